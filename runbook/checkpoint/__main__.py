"""Print what a checkpoint folder holds, and its faults, as one JSON object.

``python -m runbook.checkpoint FOLDER`` reads headers and small files; with ``--hash`` it reads every file whole and
compares it with the hash that the hub gave.
"""

import sys
from pathlib import Path

from runbook.checkpoint import examine


def main(argv: list[str]) -> int:
    """Answer; 2 for an argument that is no folder."""
    if len(argv) not in {1, 2} or argv[1:] not in ([], ["--hash"]):
        print("usage: python -m runbook.checkpoint FOLDER [--hash]", file=sys.stderr)
        return 2
    folder = Path(argv[0])
    try:
        found = examine.hashed(folder) if argv[1:] else examine.facts(folder)
    except OSError as why:
        print(f"the folder cannot be listed: {why.strerror}", file=sys.stderr)
        return 2
    print(examine.as_json(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
