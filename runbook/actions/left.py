"""``python -m runbook.actions.left FOLDER``: processes that belong to jobs of a folder, by their environment marker.

One line a process, ``PID NAME``; nothing when none is left. It asks /proc, not the keeper, so it sees what the keeper missed.
"""

import sys
from pathlib import Path

from runbook.actions.jobs import Jobs


def main() -> None:
    """Print them."""
    for pid, name in Jobs(Path(sys.argv[1])).processes():
        sys.stdout.write(f"{pid} {name}\n")


if __name__ == "__main__":
    main()
