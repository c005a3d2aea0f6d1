"""Service level objectives as parameters, and whether a load meets them: by the interval of the figure, never by the figure alone.

The words: ``ttft_ms``, ``tpot_ms`` and ``e2e_ms`` are latencies that at least 95 % of the requests must not exceed,
``ttft_p50_ms`` and the like name another percentile; ``rps`` and ``tps`` are answers and output tokens a second that must be
reached.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runbook.errors import BadParameter
from runbook.parse.numbers import decimal
from runbook.serving import figures, load

PERCENTILE = 95.0
MET, MISSED, OPEN = "met", "not met", "no verdict"
_LATENCY = re.compile(r"(ttft|tpot|e2e)(?:_p(\d{1,2}(?:\.\d+)?))?_ms")
_RATE = re.compile(r"rps|tps")
WORDS = "ttft_ms, tpot_ms, e2e_ms (or ttft_p99_ms and the like), rps, tps"

# The articles' figures, for models of 7B to 9B on a GPU; they name no lengths, so they are a yardstick and not an objective.
YARDSTICK: Mapping[str, float] = {"tpot_ms": 200.0, "rps": 50.0}


@dataclass(frozen=True)
class Objective:
    """One objective. ``what`` is ttft, tpot, e2e, rps or tps; ``limit`` in seconds, or a second."""

    name: str
    what: str
    percentile: float | None
    limit: float

    @property
    def latency(self) -> bool:
        """True where less is better."""
        return self.percentile is not None


@dataclass(frozen=True)
class Held:
    """An objective held against a load; ``more`` is how many samples more would tell, 0 where that is not the point."""

    objective: Objective
    verdict: str
    figure: figures.Interval | None
    more: int = 0

    def text(self) -> str:
        """One line, as in "p95 41.2 (38.0 to 55.1) ms against 200: met"."""
        one, found = self.objective, self.figure
        scale, unit = (1000.0, " ms") if one.latency else (1.0, "/s")
        if found is None:
            return f"no figure against {one.limit * scale:g}{unit}: {self.verdict}"
        low, high = ("?" if end is None else f"{end * scale:.4g}" for end in (found.low, found.high))
        which = f"p{one.percentile:g} " if one.latency else ""
        need = f"; {self.more} more samples would tell" if self.more else ""
        return f"{which}{found.value * scale:.4g} ({low} to {high}){unit} against {one.limit * scale:g}: {self.verdict}{need}"


def read(words: Sequence[str]) -> tuple[Objective, ...]:
    """``NAME=NUMBER`` words as objectives.

    Raises:
        BadParameter: a word is none, a number is not positive, or a name comes twice.
    """
    found: dict[str, Objective] = {}
    for word in words:
        name, _, value = word.partition("=")
        limit = decimal(value)
        latency = _LATENCY.fullmatch(name)
        if limit is None or not 0 < limit < math.inf or not (latency or _RATE.fullmatch(name)):
            raise BadParameter(
                f"--slo {word}", f"NAME=NUMBER, the name one of {WORDS}", "for example --slo tpot_ms=200"
            )
        if name in found:
            raise BadParameter(f"--slo {name} is given twice", "each objective once", "leave one out")
        if latency:
            percentile = float(latency[2] or PERCENTILE)
            if not percentile:
                raise BadParameter(f"--slo {word}", "a percentile above 0", "for example tpot_p99_ms")
            found[name] = Objective(name, latency[1], percentile, limit / 1000)
        else:
            found[name] = Objective(name, name, None, limit)
    return tuple(found.values())


def needed(objectives: Sequence[Objective]) -> int:
    """How many samples bound every percentile asked for from above."""
    return max((_needed(one.percentile) for one in objectives if one.percentile is not None), default=0)


def _needed(percentile: float, confidence: float = figures.CONFIDENCE) -> int:
    # The largest of n samples exceeds the true percentile with probability 1 - share**n.
    return math.ceil(math.log((1 - confidence) / 2) / math.log(percentile / 100))


def judge(one: Objective, step: load.Step) -> Held:
    """Met when the whole interval lies on the right side, not met when on the wrong one, else no verdict."""
    if one.percentile is None:
        figure, fewest = load.rate(step, one.what), 0
    else:
        samples, fewest = step.samples(one.what), _needed(one.percentile)
        figure = figures.percentile(samples, one.percentile) if samples else None
    if figure is None:
        return Held(one, OPEN, None, fewest)
    good, bad = (figure.high, figure.low) if one.latency else (figure.low, figure.high)
    if good is not None and (good <= one.limit if one.latency else good >= one.limit):
        return Held(one, MET, figure)
    if bad is not None and (bad > one.limit if one.latency else bad < one.limit):
        return Held(one, MISSED, figure)
    return Held(one, OPEN, figure, _more(one, figure, fewest))


def _more(one: Objective, figure: figures.Interval, fewest: int) -> int:
    """Samples still wanted: an interval narrows with their square root."""
    ends = [abs(end - figure.value) for end in (figure.low, figure.high) if end is not None]
    distance = abs(one.limit - figure.value)
    wanted = fewest
    if ends and distance:
        wanted = max(wanted, math.ceil(figure.n * (max(ends) / distance) ** 2))
    return max(1, wanted - figure.n)


@dataclass(frozen=True)
class Service:
    """All objectives at one step of a load."""

    step: load.Step
    held: tuple[Held, ...]

    @property
    def verdict(self) -> str:
        """Met when all are, not met when one is not, else no verdict."""
        found = {one.verdict for one in self.held}
        return MISSED if MISSED in found else OPEN if OPEN in found else MET


def best(objectives: Sequence[Objective], loads: Sequence[load.Step]) -> Service:
    """The step at which most is met: objectives count together, a rate at one load and a latency at another do not.

    Raises:
        ValueError: there is no step.
    """
    every = [Service(step, tuple(judge(one, step) for one in objectives)) for step in loads]
    rank = {MET: 0, OPEN: 1, MISSED: 2}
    return min(
        every,
        key=lambda one: (rank[one.verdict], sum(each.verdict == MISSED for each in one.held), -one.step.tps),
    )
