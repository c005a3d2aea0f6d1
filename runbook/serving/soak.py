"""A long run, judged: whether memory grows, whether requests failed or stood still. Facts in, verdicts out; nothing is asked here.

A leak is told by the slope of the server's resident memory over time, with its interval, on medians of blocks, after a
time of settling: a server still fills caches and arenas in its first minutes. What the slope would come to over the
hours the service must run decides whether it matters.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from runbook.serving import figures

HORIZON_H = 72.0
"""How long the articles want a server to run without running out of memory."""

SHARE = 0.1
"""The part of the memory there is that growth over those hours may take."""

SETTLE = 0.25
SETTLE_MOST_S = 600.0
BLOCKS = 20
FEWEST_BLOCKS = 8  # below it Sen's 95 % interval ends at the extreme slopes, or beyond them

GREW = 64 * 2**20
"""What must have been added before it is called a leak, in bytes: a server still adds some tens of MiB while it settles."""

OK, LEAK, OPEN = "ok", "leak", "open"


@dataclass(frozen=True)
class Stretch:
    """What one stretch of the run saw; ``at`` is the end of it, in seconds of running, bytes and seconds elsewhere.

    ``start`` counts the server's starts within the run, from 0; ``late_s`` is how far sending fell behind its rate, ``died``
    how the server ended in this stretch, "" while it lived.
    """

    at: float
    seconds: float
    requests: int
    failed: int
    tokens: int
    rss: float | None
    gpu: float | None
    ours: float
    median_s: float | None
    slowest_s: float | None
    stalled_s: float
    late_s: float
    start: int
    died: str = ""


@dataclass(frozen=True)
class Growth:
    """Whether something grows: ``slope`` in bytes an hour with its interval, and the words for it."""

    verdict: str
    slope: figures.Interval | None
    says: str


def settled(rows: Sequence[Stretch]) -> list[Stretch]:
    """The stretches of the longest life of the server within the run, without its time of settling.

    That is its first quarter, at most ten minutes.
    """
    lives: dict[int, list[Stretch]] = {}
    for row in rows:
        lives.setdefault(row.start, []).append(row)
    longest = max(lives.values(), key=lambda life: sum(row.seconds for row in life), default=[])
    if not longest:
        return []
    began = longest[0].at - longest[0].seconds
    until = began + min(SETTLE * (longest[-1].at - began), SETTLE_MOST_S)
    return [row for row in longest if row.at - row.seconds >= until]


def points(rows: Sequence[Stretch], what: str) -> list[tuple[float, float]]:
    """(hours, bytes) of ``rss``, ``gpu`` or ``ours``, as medians of at most 20 blocks; neighbours in time resemble each other."""
    seen = [(row.at / 3600, float(getattr(row, what))) for row in rows if getattr(row, what) is not None]
    return figures.blocks(seen, BLOCKS) if seen else []


def growth(
    cut: Sequence[tuple[float, float]], room: float, horizon_h: float = HORIZON_H, share: float = SHARE
) -> Growth:
    """Judge (hours, bytes) points against ``room``, the bytes there are.

    No leak when even the upper end of the slope stays below ``share`` of the room over the horizon; a leak when its lower
    end goes beyond and some of it was seen; else there is no verdict yet, with what could not be ruled out.
    """
    if len(cut) < FEWEST_BLOCKS:
        return Growth(OPEN, None, f"{len(cut)} blocks of readings after settling, {FEWEST_BLOCKS} are needed")
    slope = figures.slope(cut)
    if slope.low is None or slope.high is None:
        return Growth(OPEN, slope, "too few readings to bound the slope")
    allowed = share * room / horizon_h
    told = f"{_mib(slope.value)} MiB/h, between {_mib(slope.low)} and {_mib(slope.high)}"
    if slope.high <= allowed:
        most = max(0.0, slope.high) * horizon_h
        return Growth(
            OK, slope, f"{told}: at most {_mib(most)} MiB in {horizon_h:g} h, of {_mib(room)} there are"
        )
    grew = slope.value * (cut[-1][0] - cut[0][0])
    if slope.low > allowed and grew < GREW:
        return Growth(OPEN, slope, f"{told}: {_mib(grew)} MiB so far, which may still be settling; {GREW / grew:.1f} times as long should tell")  # fmt: skip
    if slope.low > allowed:
        hours = (room - cut[-1][1]) / slope.value
        return Growth(LEAK, slope, f"{told}: the memory there is lasts {max(0.0, hours):.1f} h at this rate")
    return Growth(
        OPEN,
        slope,
        f"{told}: up to {_mib(slope.high * horizon_h)} MiB in {horizon_h:g} h cannot be ruled out; "
        f"{_times(slope.value, slope.low, slope.high, allowed):.1f} times as long should tell",
    )


def _times(value: float, low: float, high: float, allowed: float) -> float:
    """How much longer a run must be: a slope's interval narrows with the time to the power of 3/2."""
    beyond = value > allowed
    half, distance = (value - low, value - allowed) if beyond else (high - value, allowed - value)
    return max(1.5, (half / distance) ** (2 / 3)) if distance else math.inf


def _mib(size: float) -> str:
    mib = size / 2**20
    return f"{mib:.4g}" if abs(mib) < 1e4 else f"{mib:.0f}"  # noqa: PLR2004 - four figures, or whole
