"""Statistics against brute force, textbook values and simulation: an interval must hold what it says."""

import itertools
import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.serving import figures

FLOATS = st.floats(-1e6, 1e6, allow_nan=False)
SAMPLES = st.lists(FLOATS, min_size=1, max_size=60)


def dice(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - not for secrets


def binomial(n: int, p: float) -> list[float]:
    """P(X <= k), term by term."""
    return list(itertools.accumulate(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)))


@given(SAMPLES, st.sampled_from([1, 5, 25, 50, 90, 99, 99.9]))
def test_a_percentile_is_a_sample_inside_its_interval(samples: list[float], p: float) -> None:
    one = figures.percentile(samples, p)
    assert one.value in samples
    assert one.low is None or (one.low in samples and one.low <= one.value)
    assert one.high is None or (one.high in samples and one.high >= one.value)
    assert one.n == len(samples)


@pytest.mark.parametrize("n", [5, 6, 8, 20, 100])
@pytest.mark.parametrize("p", [50, 90, 99])
def test_bounds_are_the_nearest_ranks_that_the_binomial_allows(n: int, p: float) -> None:
    one = figures.percentile([float(k) for k in range(1, n + 1)], p)
    below = binomial(n, p / 100)
    lows = [k for k in range(1, n + 1) if below[k - 1] <= 0.025]
    highs = [k for k in range(1, n + 1) if below[k - 1] >= 0.975]
    assert one.low == (lows[-1] if lows else None)
    assert one.high == (highs[0] if highs else None)


def test_published_ranks_of_the_median() -> None:
    """Conover's and every other table: 95 % of 10 samples are the 2nd and 9th, of 6 the 1st and last; 5 give none."""
    ten, six, five = (figures.median([float(k) for k in range(n)]) for n in (10, 6, 5))
    assert (ten.low, ten.high) == (1, 8)
    assert (six.low, six.high) == (0, 5)
    assert (five.low, five.high, five.bounded) == (None, None, False)


def test_a_bound_of_the_99th_percentile_needs_as_many_samples_as_said() -> None:
    assert figures.percentile(list(map(float, range(368))), 99).bounded
    assert figures.percentile(list(map(float, range(367))), 99).high is None


@pytest.mark.parametrize(("p", "rank"), [(55, 55), (7, 7), (99.9, 100), (29, 29), (57, 57)])
def test_a_rank_is_not_lost_to_rounding(p: float, rank: int) -> None:
    assert figures.percentile(list(map(float, range(1, 101))), p).value == rank


@pytest.mark.parametrize("p", [0, 100, -1, 101])
def test_a_percentile_that_is_none(p: float) -> None:
    with pytest.raises(ValueError, match="percentile"):
        figures.percentile([1.0], p)
    with pytest.raises(ValueError, match="0 samples"):
        figures.percentile([], 50)


def test_intervals_hold_the_truth_as_often_as_they_claim() -> None:
    """A heavy tail (Pareto 1.5, whose mean hardly converges): 1000 samples of 40, median and 90th percentile."""
    chance = dice(7)
    for p in (50, 90):
        truth = (1 - p / 100) ** (-1 / 1.5)
        held = 0
        for _ in range(1000):
            one = figures.percentile([chance.paretovariate(1.5) for _ in range(40)], p)
            held += (one.low is None or one.low <= truth) and (one.high is None or truth <= one.high)
        assert held >= 940, (p, held)


@given(SAMPLES, st.floats(0.1, 10), FLOATS)
def test_the_median_follows_a_change_of_units(samples: list[float], scale: float, shift: float) -> None:
    one = figures.median(samples)
    other = figures.median([scale * sample + shift for sample in samples])
    assert other.value == pytest.approx(scale * one.value + shift, abs=1e-6 * (1 + abs(shift)), rel=1e-6)
    assert (one.low is None) == (other.low is None)


def test_a_slope_of_a_line_is_the_line() -> None:
    one = figures.slope([(float(x), 3.0 * x - 7) for x in range(12)])
    assert (one.value, one.low, one.high) == (3, 3, 3)


def test_one_outlier_does_not_tilt_a_slope() -> None:
    points = [(float(x), 2.0 * x) for x in range(20)]
    points[10] = (10.0, 1e9)
    assert figures.slope(points).value == pytest.approx(2)


@given(st.lists(FLOATS, min_size=6, max_size=25, unique=True))
def test_a_slope_upside_down_has_its_interval_upside_down(values: list[float]) -> None:
    """What is cut off below is cut off above: an interval lopsided by a rank is not one of 95 %."""
    points = [(float(x), y) for x, y in enumerate(values)]
    one, other = figures.slope(points), figures.slope([(x, -y) for x, y in points])
    assert other.low == (None if one.high is None else pytest.approx(-one.high))
    assert other.high == (None if one.low is None else pytest.approx(-one.low))


def test_slopes_hold_the_truth_as_often_as_they_claim() -> None:
    chance = dice(11)
    held = 0
    for _ in range(600):
        one = figures.slope([(float(x), 0.5 * x + chance.paretovariate(1.2)) for x in range(14)])
        held += one.low is not None and one.high is not None and one.low <= 0.5 <= one.high
    assert held >= 565, held


def test_too_few_points_leave_a_slope_open() -> None:
    assert not figures.slope([(0.0, 1.0), (1.0, 2.0), (2.0, 9.0)]).bounded
    with pytest.raises(ValueError, match="no slope"):
        figures.slope([(1.0, 1.0), (1.0, 2.0)])


@given(st.lists(st.tuples(FLOATS, FLOATS), max_size=80), st.integers(1, 30))
def test_blocks_lose_nothing_and_are_alike(points: list[tuple[float, float]], number: int) -> None:
    points = sorted(points)
    made = figures.blocks(points, number)
    assert len(made) == min(number, len(points))
    assert [x for x, _ in made] == sorted(x for x, _ in made)
    if len(points) <= number:
        assert made == points


def test_blocks_are_medians_of_neighbours() -> None:
    points = [(float(x), float(x * x)) for x in range(21)]
    made = figures.blocks(points, 20)
    assert len(made) == 20
    first, *_, last = figures.blocks(points, 4)
    assert first == (2.0, statistics.median(x * x for x in range(5)))
    assert last[0] > 17
