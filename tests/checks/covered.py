"""Which reported failures the checks would have seen before the start: the page ``docs/coverage.md``, made from data.

``python tests/checks/covered.py`` prints the page; with ``--write`` it replaces the one in docs/.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "coverage.json"
PAGE = ROOT / "docs" / "coverage.md"
LAYERS = ("driver", "cuda", "torch", "flash-attn", "vllm-install")
HEAD = """# What the checks would have caught

{total} reports of real failures were collected from public issue threads, in the layers driver, CUDA, torch, flash-attn and
vLLM's installation. For each it was asked: had the reporter run `runbook check` on that machine, with the environment
named by `--target`, would a check have said fail or warn **before the server's start, with the cause**?

- A finding that only says that something is wrong does not count; such reports are listed as "stopped, cause not named".
- A difference from this project's own pins does not count either: the reporters had other releases, and meant to.
- Where the report shows too little to tell what the reading would have been, it counts as not caught.
- "Caught" is not an opinion: for each such report a test feeds the check a machine with the reporter's own numbers and
  asks for the verdict and for the words of the cause (`tests/checks/test_coverage.py`; the data are
  `tests/data/coverage.json`, this page is made from them by `tests/checks/covered.py`).

What this does not show: the reports were known while the checks were written, so the share on reports of tomorrow will
be lower.

"""


def rows() -> list[dict[str, Any]]:
    """The data, one row a report."""
    found: list[dict[str, Any]] = json.loads(DATA.read_text(encoding="utf-8"))["rows"]
    return found


def page(reports: list[dict[str, Any]]) -> str:
    """The whole page."""
    caught = [one for one in reports if one["check"]]
    stopped = [one for one in reports if one.get("stops_at")]
    missed = [one for one in reports if not one["check"] and not one.get("stops_at")]
    lines = ["| layer | reports | caught | share | stopped, cause not named | not caught |", "| --- | ---: | ---: | ---: | ---: | ---: |"]  # fmt: skip
    groups = [(layer, [one for one in reports if one["layer"] == layer]) for layer in LAYERS]
    for name, group in (*groups, ("**all**", reports)):
        parts = [sum(one in each for one in group) for each in (caught, stopped, missed)]
        lines.append(f"| {name} | {len(group)} | {parts[0]} | {_share(parts[0], len(group))} | {parts[1]} | {parts[2]} |")  # fmt: skip
    lines += ["", "## Caught", "", "| report | cause | check | how |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {one['id']} {one['source']} | {one['cause']} | {one['check']} | {one['how']} |" for one in caught
    ]
    lines += ["", "## Stopped, cause not named", "", "| report | cause | stops at | what is missing |", "| --- | --- | --- | --- |"]  # fmt: skip
    lines += [
        f"| {one['id']} {one['source']} | {one['cause']} | {one['stops_at']} | {one['how']} |"
        for one in stopped
    ]
    lines += ["", "## Not caught, and why", "", "| report | cause | why it is out of reach |", "| --- | --- | --- |"]  # fmt: skip
    lines += [f"| {one['id']} {one['source']} | {one['cause']} | {one['how']} |" for one in missed]
    used = Counter(one["check"] for one in caught)
    lines += ["", "## Checks by reports", ""]
    lines += [
        ", ".join(
            f"{name} {count}" for name, count in sorted(used.items(), key=lambda item: (-item[1], item[0]))
        )
        + "."
    ]
    return HEAD.format(total=len(reports)) + "\n".join(lines) + "\n"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


if __name__ == "__main__":
    text = page(rows())
    if "--write" in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
