"""The words of the runbook as values: layer, check, finding, verdict, evidence, fix, source.

Everything here is frozen and imports the standard library only, so a finding can be rendered as notebook text,
terminal line, JSON, JUnit or HTML without any of these knowing the others.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

FINDINGS_SCHEMA = "findings/1"


class Layer(str, Enum):
    """One storey of the stack, lowest first. The value is the prefix of its check ids."""

    START = "START"
    HOST = "HOST"
    DRIVER = "DRIVER"
    CUDA = "CUDA"
    PY = "PY"
    TORCH = "TORCH"
    FLASH = "FLASH"
    ARCH = "ARCH"
    ABI = "ABI"
    VLLM = "VLLM"
    MODEL = "MODEL"
    WARM = "WARM"
    SERVE = "SERVE"
    TRIAGE = "TRIAGE"


class Verdict(str, Enum):
    """What a check concluded. ``unknown`` is never green and never blames the machine."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"
    UNKNOWN = "unknown"


class Cost(str, Enum):
    """What asking costs, cheapest first: file reads, a child of the target, a live server, or minutes."""

    STATIC = "static"
    INSIDE = "inside"
    LIVE = "live"
    SLOW = "slow"

    def within(self, limit: "Cost") -> bool:
        """True when this cost is at most ``limit``."""
        order = list(Cost)
        return order.index(self) <= order.index(limit)


class Risk(str, Enum):
    """What carrying out a fix interrupts or endangers."""

    NONE = "none"
    RESTART = "restart"
    REBUILD = "rebuild"
    REBOOT = "reboot"
    DATA = "data"


@dataclass(frozen=True)
class Source:
    """Where a rule comes from: ``read`` is the ISO date on which the page said so."""

    title: str
    url: str
    read: str


@dataclass(frozen=True)
class Evidence:
    """One reading a verdict rests on. ``origin`` is the command or path by which a reader repeats it."""

    name: str
    value: str | int | float | bool | None
    origin: str = ""


@dataclass(frozen=True)
class Fix:
    """What to do, shown and never run by a check. ``argv`` holds commands, one string each, to paste."""

    text: str
    commands: tuple[str, ...] = ()
    risk: Risk = Risk.NONE
    undo: str = ""


@dataclass(frozen=True)
class Answer:
    """What a check function returns: verdict, evidence, and a fix or the reason for skip and unknown."""

    verdict: Verdict
    evidence: tuple[Evidence, ...] = ()
    fix: Fix | None = None
    reason: str = ""


def ok(*evidence: Evidence) -> Answer:
    """The title of the check is true on this machine."""
    return Answer(Verdict.OK, evidence)


def warn(*evidence: Evidence, fix: Fix | None = None, reason: str = "") -> Answer:
    """It works, with a cost or a risk the reader should know."""
    return Answer(Verdict.WARN, evidence, fix, reason)


def fail(*evidence: Evidence, fix: Fix, reason: str = "") -> Answer:
    """The title is false on this machine; a fix is always given."""
    return Answer(Verdict.FAIL, evidence, fix, reason)


def skip(reason: str, *evidence: Evidence) -> Answer:
    """The question does not arise here; ``reason`` says why."""
    return Answer(Verdict.SKIP, evidence, None, reason)


def unknown(reason: str, *evidence: Evidence) -> Answer:
    """It could not be read; ``reason`` says what was missing."""
    return Answer(Verdict.UNKNOWN, evidence, None, reason)


@dataclass(frozen=True)
class Check:
    """A question with a permanent id. ``judge`` takes a ``runbook.probe.Probe`` and returns an Answer.

    ``title`` is a sentence that is true when all is well. ``needs_target`` says that the question is about a target
    environment, not about the machine alone. The function's type is loose because this module knows no probe.
    """

    id: str
    layer: Layer
    title: str
    why: str
    source: Source
    cost: Cost
    requires: tuple[str, ...]
    needs_target: bool
    judge: Callable[[Any], Answer] = field(repr=False, compare=False)


@dataclass(frozen=True)
class Finding:
    """The answer of one check on one machine. ``stack`` is "" for questions about the machine alone."""

    id: str
    layer: Layer
    title: str
    why: str
    verdict: Verdict
    evidence: tuple[Evidence, ...]
    fix: Fix | None
    reason: str
    waived: bool
    duration_s: float
    stack: str
    source: Source


def check(
    id: str,  # noqa: A002 - the field is called id everywhere, in JSON too
    *,
    layer: Layer,
    title: str,
    why: str,
    source: Source,
    cost: Cost = Cost.STATIC,
    requires: tuple[str, ...] = (),
    needs_target: bool = False,
) -> Callable[[Callable[[Any], Answer]], Check]:
    """Build a Check around a function; nothing is registered, ``checks/__init__`` lists the checks literally."""

    def build(judge: Callable[[Any], Answer]) -> Check:
        return Check(id, layer, title, why, source, cost, requires, needs_target, judge)

    return build
