"""A made-up machine: a dict from question to answer. A question it was not given raises NotRecorded, as in a replay.

``run``: the text on stdout, or a ``Ran`` for anything but success; ``read`` and ``env``: text or None; ``glob``: paths;
``inside``: the object the script prints; ``http``: a ``Reply``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runbook.checks import BY_ID
from runbook.checks.readings import GPU_QUESTION
from runbook.engine import judge
from runbook.errors import NotRecorded
from runbook.model import Check, Finding, Verdict
from runbook.probe import Ran, Reply
from runbook.probes import questions

CPU = "vllm-0.32.0-cpu"
OLD_CPU = "vllm-0.19.1-cpu"
GPU = "vllm-0.19.1-cu128"

OK, WARN, FAIL, SKIP, UNKNOWN = Verdict.OK, Verdict.WARN, Verdict.FAIL, Verdict.SKIP, Verdict.UNKNOWN
# What nvidia-smi printed on an H200 with driver 580.159.04 (see shared/facts/h200.md), in the columns we ask for.
H200 = "0, NVIDIA H200, 9.0, 580.159.04, 143771, 0, 0, Disabled\n"
SMI = GPU_QUESTION
NODES = "glob /dev/nvidia[0-9]*"
ONE_NODE = {NODES: ("/dev/nvidia0",)}
NO_NODE: dict[str, Any] = {NODES: (), "glob /dev/dxg": ()}


def ran(out: str = "", rc: int = 0, err: str = "", *, timed_out: bool = False) -> Ran:
    """What a program that is there did."""
    return Ran((), rc, out, err, timed_out=timed_out)


MISSING = Ran((), 127, "", "No such file or directory", missing=True)


class Host:
    """Answers from a dict; ``asked`` remembers the questions."""

    machine = "live"

    def __init__(self, answers: Mapping[str, Any], stack: str = CPU, *, has_target: bool = True) -> None:
        self.answers = answers
        self.stack = stack
        self.has_target = has_target
        self.asked: list[str] = []

    def _answer(self, ask: str) -> Any:
        self.asked.append(ask)
        if ask not in self.answers:
            raise NotRecorded(f"no answer to: {ask}")
        return self.answers[ask]

    def run(self, argv: list[str], timeout_s: float = 20.0) -> Ran:  # noqa: ARG002
        found: Ran | str = self._answer(questions.run(argv))
        return Ran(tuple(argv), 0, found, "") if isinstance(found, str) else found

    def read_text(self, path: str) -> str | None:
        found: str | None = self._answer(f"read {path}")
        return found

    def glob(self, pattern: str) -> tuple[str, ...]:
        return tuple(self._answer(f"glob {pattern}"))

    def env(self, name: str) -> str | None:
        found: str | None = self._answer(f"env {name}")
        return found

    def inside(
        self,
        script: str,
        args: dict[str, str] | None = None,
        timeout_s: float = 120.0,  # noqa: ARG002
    ) -> dict[str, Any]:
        found: dict[str, Any] = self._answer(questions.inside(script, args))
        return found

    def http(self, method: str, path: str, json: dict[str, Any] | None = None) -> Reply:
        found: Reply = self._answer(questions.http(method, path, json))
        return found


@dataclass(frozen=True)
class Case:
    """Readings of one machine, and what one check must conclude from them."""

    id: str
    name: str
    verdict: Verdict
    answers: Mapping[str, Any]
    evidence: Mapping[str, Any] = field(default_factory=dict)
    stack: str = CPU
    says: str = ""  # words that reason or fix must hold
    manifest: tuple[tuple[str, str], ...] = ()  # replacements in the stack's manifest
    built: bool = True  # whether the stack's target is there

    def __str__(self) -> str:
        return f"{self.id} {self.name}"


@dataclass(frozen=True)
class Row:
    """One line of a table: the readings that differ from the table's base."""

    name: str
    verdict: Verdict
    changes: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    stack: str = ""
    says: str = ""
    manifest: tuple[tuple[str, str], ...] = ()
    built: bool = True


def table(check_id: str, base: Mapping[str, Any], *rows: Row, stack: str = CPU) -> list[Case]:
    """The cases of one check."""
    return [
        Case(
            check_id,
            row.name,
            row.verdict,
            {**base, **row.changes},
            row.evidence,
            row.stack or stack,
            row.says,
            row.manifest,
            row.built,
        )
        for row in rows
    ]


def passed(one: Check) -> dict[str, Finding]:
    """Findings, all ok, of what a check requires."""
    return {
        need: Finding(
            need, BY_ID[need].layer, BY_ID[need].title, BY_ID[need].why, Verdict.OK, (), None, "",
            waived=False, duration_s=0.0, stack="", source=BY_ID[need].source,
        )
        for need in one.requires
    }  # fmt: skip


def found(check_id: str, answers: Mapping[str, Any], stack: str = CPU, *, built: bool = True) -> Finding:
    """What a check concludes from these readings when everything it requires has passed."""
    one = BY_ID[check_id]
    return judge(one, Host(answers, stack, has_target=built), passed(one))


def evidence(finding: Finding) -> dict[str, Any]:
    """Name -> value."""
    return {each.name: each.value for each in finding.evidence}
