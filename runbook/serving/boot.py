"""Where the time of a start went: its phases, what no line of the log explains, and how it compares with earlier starts."""

import datetime
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from runbook.parse.boot_log import Step
from runbook.serving import figures

READY = "listening"
# Every start logs the end of these; where one is missing, what came before the next line is not known.
ALWAYS = ("imports", "inspection", "engine process", "device", "weights", "KV cache", "engine", "API server")
# These say in words how long they took; what lies before them and is longer is another thing.
IN_WORDS = ("torch.compile", "first run")
YEAR = datetime.timedelta(days=366)


@dataclass(frozen=True)
class Phase:
    """A part of a start; ``about_s`` is how far ``seconds`` may be off, by the clocks of the log.

    ``by`` is "lines" (between two lines of the log), "words" (a line says how long) or "nothing": no line explains it.
    """

    name: str
    seconds: float
    about_s: float
    by: str


@dataclass(frozen=True)
class Moment:
    """When a part of a start ended: ``at_s`` seconds after it began, give or take ``about_s``; ``took_s`` as the log says."""

    name: str
    at_s: float
    about_s: float
    took_s: float | None


@dataclass(frozen=True)
class Arrival:
    """The log had grown to ``size`` bytes: not yet after ``before_s`` seconds, seen after ``seen_s``."""

    size: int
    before_s: float
    seen_s: float


def by_arrival(steps: Sequence[Step], arrived: Sequence[Arrival]) -> tuple[Moment, ...]:
    """The ends of the parts by when their lines came; a line that was not seen to come has no moment."""
    first = ((step, next((one for one in arrived if one.size >= step.end), None)) for step in steps)
    return tuple(
        Moment(step.name, (one.before_s + one.seen_s) / 2, (one.seen_s - one.before_s) / 2, step.took_s)
        for step, one in first
        if one is not None
    )


def by_stamps(
    steps: Sequence[Step], last: tuple[datetime.datetime, float] | None, ready_s: float
) -> tuple[Moment, ...]:
    """The same from the stamps of a log alone, of which the last one before ready is taken as the moment of it."""
    if last is None:
        return ()
    begin = last[0] + datetime.timedelta(seconds=last[1] / 2 - ready_s)
    return tuple(
        Moment(step.name, _since(step.at, begin) + step.fine_s / 2, step.fine_s / 2, step.took_s)
        for step in steps
    )


def _since(at: datetime.datetime, begin: datetime.datetime) -> float:
    """Seconds from ``begin``, over a new year too: stamps have no year."""
    gap = at - begin
    if abs(gap) > YEAR / 2:
        gap += YEAR if gap < -YEAR / 2 else -YEAR
    return gap.total_seconds()


def account(moments: Sequence[Moment], ready_s: float) -> tuple[Phase, ...]:
    """The phases of a start that was ready after ``ready_s`` seconds; their seconds add up to that."""
    phases: list[Phase] = []
    before, before_about, reached = 0.0, 0.0, 0
    for moment in (*moments, Moment(READY, ready_s, 0.0, None)):
        at = min(max(moment.at_s, before), ready_s)
        phases += _parts(moment, reached, at - before, before_about + moment.about_s)
        before, before_about, reached = at, moment.about_s, max(reached, _ended(moment.name))
    return tuple(phases)


def _parts(moment: Moment, reached: int, span: float, about: float) -> list[Phase]:
    """What one stretch between two lines is made of; ``reached`` parts of those that always come had ended before it."""
    missing = ALWAYS[reached : max(reached, _ended(moment.name) - (moment.name in ALWAYS))]
    if missing:
        return [Phase(f"until {moment.name} (no line of: {', '.join(missing)})", span, about, "nothing")]
    if moment.name in IN_WORDS and moment.took_s is not None:
        took = min(moment.took_s, span)
        rest = [Phase(f"before {moment.name}", span - took, about, "nothing")] if span > took else []
        return [*rest, Phase(moment.name, took, 0.0 if took == moment.took_s else about, "words")]
    return [Phase(moment.name, span, about, "lines")]


def _ended(name: str) -> int:
    """How many of the parts that always come have ended at the line of ``name``: all at ready, and any odd one follows the weights."""
    if name == READY:
        return len(ALWAYS)
    return ALWAYS.index(name) + 1 if name in ALWAYS else ALWAYS.index("weights") + 1


def unexplained(phases: Sequence[Phase]) -> float:
    """Seconds of a start that no line explains."""
    return sum(one.seconds for one in phases if one.by == "nothing")


@dataclass(frozen=True)
class Boot:
    """One start, as the ledger keeps it.

    ``made`` counts files written to the compile caches by family of kernels while it started; ``at`` is in UTC.
    """

    at: str
    server: str
    stack: str
    model: str
    fingerprint: dict[str, str]
    ready_s: float
    phases: tuple[Phase, ...]
    made: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, row: dict[str, Any]) -> "Boot | None":
        """Read a row of the ledger, or a boot record; None when it is none."""
        try:
            return cls(
                str(row["at"]),
                str(row["server"]),
                str(row["stack"]),
                str(row["model"]),
                {str(name): str(value) for name, value in row["fingerprint"].items()},
                float(row["ready_s"]),
                tuple(
                    Phase(str(one["name"]), float(one["seconds"]), float(one["about_s"]), str(one["by"]))
                    for one in row["phases"]
                ),
                {str(name): int(number) for name, number in row["made"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def row(self) -> dict[str, Any]:
        """As JSON, with times to a hundredth of a second."""
        rounded = [
            {**asdict(one), "seconds": round(one.seconds, 2), "about_s": round(one.about_s, 2)}
            for one in self.phases
        ]
        return {**asdict(self), "ready_s": round(self.ready_s, 1), "phases": rounded}


@dataclass(frozen=True)
class Compared:
    """A start beside the earlier ones of the same fingerprint on the same machine.

    ``slower_than`` of ``earlier`` starts were quicker. ``grown`` is the phase that took longer by most against its
    median, and by how many seconds; None when none did or there is nothing to compare with.
    """

    earlier: int
    slower_than: int
    usual_s: figures.Interval | None
    grown: tuple[str, float] | None

    @property
    def words(self) -> str:
        """The comparison in a line."""
        if not self.earlier or self.usual_s is None:
            return "the first start with these packages, flags and weights on this machine"
        usual = f"{self.usual_s.value:.1f} s usually"
        if self.slower_than < self.earlier:
            return f"{usual}; slower than {self.slower_than} of {self.earlier} earlier starts"
        chance = f"without a cause this happens once in {self.earlier + 1} starts"
        phase = f", most in {self.grown[0]} (+{self.grown[1]:.1f} s)" if self.grown else ""
        return f"{usual}; slower than every one of {self.earlier} earlier starts ({chance}){phase}"


def compared(boot: Boot, earlier: Sequence[Boot]) -> Compared:
    """Compare a start with the earlier ones of its fingerprint; the very first of them is left out if others follow.

    The first start compiles and reads from a cold disk. If nothing has changed, each order of n + 1 starts is as likely
    as any other, so the new one is the slowest of them by chance once in n + 1: that needs no assumption about times.
    """
    same = [one for one in earlier if one.fingerprint == boot.fingerprint and one.server != boot.server]
    same = same[1:] if len(same) > 1 else same
    if not same:
        return Compared(0, 0, None, None)
    grown = []
    for phase in boot.phases:
        before = [one.seconds for row in same for one in row.phases if one.name == phase.name]
        if before:
            grown.append((phase.name, phase.seconds - figures.median(before).value))
    most = max(grown, key=lambda one: one[1], default=None)
    return Compared(
        len(same),
        sum(one.ready_s < boot.ready_s for one in same),
        figures.median([one.ready_s for one in same]),
        most if most is not None and most[1] > 0 else None,
    )
