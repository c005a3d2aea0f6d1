"""Statistics of measured times: medians and percentiles with confidence intervals, slopes, flatness. Standard library only.

None of it assumes a distribution: latencies have long tails, so every interval here comes from ranks.
"""

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A figure with its confidence interval; ``low`` or ``high`` is None where the samples are too few to bound it."""

    value: float
    low: float | None
    high: float | None
    n: int

    @property
    def bounded(self) -> bool:
        """True when both ends are known."""
        return self.low is not None and self.high is not None


def percentile(samples: Sequence[float], p: float, confidence: float = CONFIDENCE) -> Interval:
    """The ``p``-th percentile (0 < p < 100) of ``samples`` and the order statistics that enclose it.

    The interval is exact for any distribution: the number of samples below the true percentile is binomial, so the
    k-th smallest sample bounds it from below with a probability that can be summed up (Conover, Practical Nonparametric
    Statistics, chapter 3). With n samples a bound of the 99th percentile from above needs 368.

    Raises:
        ValueError: no samples, or ``p`` out of range.
    """
    if not samples or not 0 < p < 100:  # noqa: PLR2004 - per cent
        raise ValueError(f"{len(samples)} samples, percentile {p}")
    ordered = sorted(samples)
    n, share = len(ordered), p / 100
    # Rounded: 0.55 * 100 is 55.00000000000001, and would be the 56th.
    value = ordered[min(n - 1, max(0, math.ceil(round(p * n / 100, 9)) - 1))]
    tail = (1 - confidence) / 2
    below = _binomial_cdf(n, share)
    # low: the largest k (from 1) with P(at most k - 1 below) <= tail; high: the smallest k with P(at most k - 1) >= 1 - tail.
    lows = [k for k in range(1, n + 1) if below[k - 1] <= tail]
    highs = [k for k in range(1, n + 1) if below[k - 1] >= 1 - tail]
    return Interval(
        value, ordered[lows[-1] - 1] if lows else None, ordered[highs[0] - 1] if highs else None, n
    )


def median(samples: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The median and its interval; the value is the usual one, the mean of the middle two of an even number.

    Raises:
        ValueError: no samples.
    """
    one = percentile(samples, 50, confidence)
    return Interval(statistics.median(samples), one.low, one.high, one.n)


def _binomial_cdf(n: int, p: float) -> list[float]:
    """P(X <= k) for k = 0 .. n of a binomial (n, p), by logarithms so that large n does not underflow."""
    log_p, log_q = math.log(p), math.log1p(-p)
    rows = (
        math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * log_p + (n - k) * log_q
        for k in range(n + 1)
    )
    return list(itertools.accumulate(math.exp(row) for row in rows))


def slope(points: Sequence[tuple[float, float]], confidence: float = CONFIDENCE) -> Interval:
    """The Theil-Sen slope of y over x with Sen's interval (Sen 1968, JASA 63, 1379); units of y over units of x.

    Robust against single outliers, and free of any distribution. Consecutive samples of a process are correlated, which
    makes the interval too narrow: give it medians of blocks rather than raw samples.

    Raises:
        ValueError: fewer than two different x.
    """
    slopes = sorted(
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for earlier, later in itertools.combinations(points, 2)
        if later[0] != earlier[0]
    )
    if not slopes:
        raise ValueError(f"{len(points)} points on one place give no slope")
    n = len(points)
    spread = statistics.NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    # As many slopes lie outside on either side; counted from 0, so the m-th smallest is at m - 1 (Gilbert 1987, 16.4).
    low, high = math.floor((len(slopes) - spread) / 2) - 1, math.ceil((len(slopes) + spread) / 2)
    return Interval(
        statistics.median(slopes),
        slopes[low] if low >= 0 else None,
        slopes[high] if high < len(slopes) else None,
        n,
    )


def blocks(points: Sequence[tuple[float, float]], number: int) -> list[tuple[float, float]]:
    """``points`` in order, cut into ``number`` blocks that differ by one at most, each as (median x, median y); fewer points, fewer blocks."""
    number = min(number, len(points)) or 1
    ends = [at * len(points) // number for at in range(number + 1)]
    cut = [points[first:last] for first, last in itertools.pairwise(ends)]
    return [
        (statistics.median(x for x, _ in one), statistics.median(y for _, y in one)) for one in cut if one
    ]
