"""Write ``runbook/stacks/NAME/flags.json``: the options of a release's own parser, asked of an installed target.

    python benchmarks/ship_flags.py NAME [PYTHON]

PYTHON defaults to the target the runbook built for the stack. Every check of flags that imports nothing judges by
these files; check VLLM-005 asks the installed parser too and says when the two disagree.
"""

import datetime
import json
import sys
from pathlib import Path

from runbook import pins
from runbook.probes.live import LiveProbe
from runbook.workspace import workspace

HEAD = ("what", "distribution", "version", "parser_device", "command", "made", "options_sha256")


def main() -> None:
    """Ask the target and write the file."""
    stack = pins.stack(sys.argv[1])
    work = workspace()
    python = Path(sys.argv[2]) if sys.argv[2:] else work.target_python(stack.name)
    facts = LiveProbe(work, stack.name, python).inside("vllm_facts", {"options": "all"})
    if "error" in facts:
        sys.exit(f"{python}: {facts['error']}")
    if facts["version"].split("+")[0] != stack.vllm:
        sys.exit(f"{python} holds vLLM {facts['version']}, the stack pins {stack.vllm}")
    head = {
        "what": "Options of the server's own argument parser, as the release prints them.",
        "distribution": stack.distribution,
        "command": f"python benchmarks/ship_flags.py {stack.name}",
        "made": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        **facts,
    }
    lines = [f"{json.dumps(name)}: {json.dumps(head[name])}," for name in HEAD]
    rows = ",\n".join(json.dumps(one) for one in facts["options"])
    out = pins.STACKS / stack.name / "flags.json"
    out.write_text("{" + "\n".join(lines) + '\n"options": [\n' + rows + "\n]}\n", encoding="utf-8")
    print(f"{len(facts['options'])} options -> {out}")


if __name__ == "__main__":
    main()
