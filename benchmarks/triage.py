"""How well ``runbook triage`` names causes: on the corpus of real failures, by half, and on logs made here.

``python benchmarks/triage.py`` prints the shares and a table of misses; exit code 1 below the targets. The halves are
drawn by the source of a log (SHA-256, even or odd): the signatures were first written with the ``held-out`` half unseen,
and docs/measurements.md gives what that version reached.
"""

import argparse
import hashlib
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from runbook import triage
from runbook.triage import judge

DATA = Path(__file__).parent.parent / "tests" / "data"
TOP_1, TOP_3 = 0.95, 0.98
HALVES = ("tune", "held-out")


@dataclass(frozen=True)
class Result:
    """One log with the cause that is known and those that were named, best first."""

    name: str
    cause: str
    half: str
    verdict: str
    named: tuple[str, ...]
    sure: str

    @property
    def first(self) -> bool:
        """The known cause was named first, and as the cause."""
        return self.named[:1] == (self.cause,)

    @property
    def among_three(self) -> bool:
        """The known cause is among the first three."""
        return self.cause in self.named[:3]


def half(source: str) -> str:
    """Which half a log belongs to; those of one source go together."""
    return HALVES[int(hashlib.sha256(source.encode()).hexdigest(), 16) % 2]


def corpus() -> list[dict[str, Any]]:
    """The cases of the corpus."""
    cases: list[dict[str, Any]] = yaml.load(
        (DATA / "corpus" / "cases.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader
    )
    return cases


def results(cases: Iterable[dict[str, Any]]) -> list[Result]:
    """Every case, read."""
    found = []
    for case in cases:
        read = triage.read_text(case["log"])
        found.append(
            Result(
                case["id"],
                case["cause_key"],
                half(case["source"]),
                read.verdict,
                tuple(one.key for one in read.causes),
                read.causes[0].sure.value if read.causes else "",
            )
        )
    return found


def share(rows: Sequence[Result], what: str) -> float:
    """Which part of the rows has a property."""
    return sum(bool(getattr(one, what)) for one in rows) / len(rows)


def healthy() -> dict[str, list[str]]:
    """Healthy log -> causes that were named all the same."""
    found = {}
    for path in sorted((DATA / "healthy").glob("*.log")):
        read = triage.read_file(str(path))
        found[path.name] = [one.key for one in read.causes] if read.verdict != judge.HEALTHY else []
    return found


def main() -> int:
    """Print the figures; 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=HALVES, help="only this half of the corpus")
    asked = parser.parse_args()
    rows = [one for one in results(corpus()) if asked.half in (None, one.half)]
    print("| logs | n | top-1 | top-3 | verdict cause |")
    print("|---|---|---|---|---|")
    groups = {"all": rows, **{name: [one for one in rows if one.half == name] for name in HALVES}}
    for name, group in groups.items():
        if group:
            decided = sum(one.verdict == judge.CAUSE for one in group) / len(group)
            print(
                f"| {name} | {len(group)} | {share(group, 'first'):.1%} | {share(group, 'among_three'):.1%} | {decided:.1%} |"
            )
    print("\n| the first is | n | right |\n|---|---|---|")
    for sure in ("stated", "likely", "possible"):
        group = [one for one in rows if one.sure == sure]
        if group:
            print(f"| {sure} | {len(group)} | {share(group, 'first'):.1%} |")
    missed = [one for one in rows if not one.first]
    print("\n| missed | cause | verdict | named |\n|---|---|---|---|")
    for one in missed:
        print(f"| {one.name} | {one.cause} | {one.verdict} | {', '.join(one.named[:3]) or '-'} |")
    wrong = {name: causes for name, causes in healthy().items() if causes}
    print(f"\nhealthy logs: {len(healthy())}, false alarms: {len(wrong)} {wrong or ''}")
    low = share(rows, "first") < TOP_1 or share(rows, "among_three") < TOP_3
    return 1 if low or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
