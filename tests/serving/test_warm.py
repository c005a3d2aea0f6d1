"""When a warm-up is over, on waits as noisy as a small busy machine makes them, and on those an H200 really showed."""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runbook.serving import warm
from runbook.serving.warm import Served

TINY = Served(2048, 16, tools=False, images=False)
NAMES = [f"shape {number}" for number in range(22)]


def dice(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - not for secrets


def steady(chance: random.Random, noise: float = 0.1) -> dict[str, float]:
    """Waits of 10 to 300 ms, each with a tail of its own."""
    return {
        name: (0.01 + 0.013 * number) * (1 + noise * chance.expovariate(1))
        for number, name in enumerate(NAMES)
    }


def cold(chance: random.Random) -> dict[str, float]:
    return {name: wait * 4 for name, wait in steady(chance).items()}


def test_the_first_rounds_tell_nothing() -> None:
    chance = dice(1)
    assert warm.trend([steady(chance), steady(chance)]).flat is False
    assert warm.trend([]).ratio is None


def test_waits_that_fell_are_not_flat_and_those_that_stay_are() -> None:
    chance = dice(2)
    rounds = [cold(chance), cold(chance), steady(chance), steady(chance)]
    fell, stays = warm.trend(rounds[:3]), warm.trend(rounds)
    assert (fell.flat, fell.falls, stays.flat, stays.falls) == (False, True, True, False)
    assert fell.ratio is not None
    assert fell.ratio.value == pytest.approx(4, rel=0.2)
    assert stays.ratio is not None
    assert stays.ratio.low is not None
    assert stays.ratio.low <= warm.WITHIN


def test_a_warm_server_on_a_noisy_machine_is_called_flat_nearly_always() -> None:
    """Ended needlessly late it costs a round; a rule that hardly ever ends would be no rule."""
    chance = dice(3)
    for noise, least in ((0.05, 0.99), (0.2, 0.95)):
        verdicts = [warm.trend([steady(chance, noise) for _ in range(3)]).flat for _ in range(300)]
        assert verdicts.count(True) >= least * len(verdicts), noise


def test_waits_that_fall_by_a_quarter_are_hardly_ever_called_flat() -> None:
    chance = dice(4)
    wrong = 0
    for _ in range(300):
        before = [{name: wait * 1.4 for name, wait in steady(chance).items()} for _ in range(2)]
        wrong += warm.trend([*before, steady(chance)]).flat is True
    assert wrong <= 15


def test_a_neighbour_that_comes_and_goes_is_no_fall() -> None:
    """Rounds of one warm server while others kept the machine busy: each shape took half as long again in every other round."""
    chance = dice(10)
    slow = [{name: wait * 1.9 for name, wait in steady(chance).items()} for _ in range(2)]
    found = warm.trend([slow[0], steady(chance), slow[1]])
    assert (found.flat, found.falls) == (None, False)
    assert warm.trend([slow[0], steady(chance), slow[1], steady(chance)]).flat is True


def test_one_shape_that_still_compiles_is_seen_though_the_median_is_not_moved() -> None:
    chance = dice(5)
    rounds = [steady(chance) for _ in range(3)]
    rounds[-1]["shape 7"] += 0.9  # what 256 tokens of a 9B cost once on an H200
    found = warm.trend(rounds)
    assert (found.flat, found.stalled) == (False, ("shape 7",))
    assert warm.trend([*rounds, steady(chance)]).flat, "the round after it is held against the best before"


def test_a_wobble_of_a_few_milliseconds_is_no_stall() -> None:
    chance = dice(6)
    rounds = [steady(chance) for _ in range(3)]
    rounds[-1]["shape 0"] += 0.03
    assert warm.trend(rounds).stalled == ()


def test_a_machine_too_noisy_to_tell_is_not_called_flat() -> None:
    chance = dice(8)
    few = [{name: chance.uniform(0.01, 0.02) for name in NAMES[:4]} for _ in range(3)]
    assert warm.trend(few).flat is None
    told = 0
    for _ in range(100):
        wild = [{name: chance.lognormvariate(-4, 1.5) for name in NAMES} for _ in range(3)]
        told += warm.trend(wild).flat is True
    assert told <= 10


def test_what_an_h200_showed() -> None:
    """Measured there with 9B (docs/measurements.md): first 2.24 s then 0.04 s, 2.30 then 1.41, 12.89 then 10.96."""
    first = dict.fromkeys(NAMES, 0.35) | {"tiny": 2.237, "usual": 0.95, "stress": 1.9}
    later = [
        dict.fromkeys(NAMES, 0.34) | {"tiny": wait, "usual": 0.061, "stress": 0.47} for wait in (0.041, 0.048)
    ]
    assert warm.trend([first, *later]).flat is True


@example(length=53, seqs=1, tools=False, images=False)
@example(length=28, seqs=1, tools=False, images=False)
@given(st.integers(20, 200_000), st.integers(1, 2048), st.booleans(), st.booleans())
def test_shapes_fit_what_the_server_takes(length: int, seqs: int, tools: bool, images: bool) -> None:  # noqa: FBT001
    served = Served(length, seqs, tools, images)
    asked, unseen = warm.shapes(served), warm.unseen(served)
    names = [one.name for one in asked]
    assert len(set(names)) == len(names)
    assert asked[0].tokens < 8
    assert all(one.tokens + one.out <= max(length, 48) for one in (*asked, *unseen) if one.tokens > 24)
    assert all(one.at_once <= seqs for one in (*asked, *unseen))
    assert ("tools" in names, "image" in names) == (tools, images)
    ours = {(one.tokens, one.out, one.at_once, one.chat, str(one.more)) for one in asked[1:]}
    assert not [
        one.name for one in unseen[1:] if (one.tokens, one.out, one.at_once, one.chat, str(one.more)) in ours
    ]


def test_every_kind_the_articles_name_is_there() -> None:
    asked = warm.shapes(TINY)
    assert {one.kind for one in asked} == {warm.PROBE, warm.PROFILE, warm.STRESS}
    assert [one.at_once for one in asked if one.name.endswith("at once")] == [2, 4, 8, 16]
    assert [one.tokens for one in asked if one.name.startswith("prompt of")] == [
        16,
        32,
        64,
        128,
        256,
        512,
        1024,
        1638,
    ]
    assert any(not one.stream for one in asked)
    assert any("response_format" in one.more for one in asked)


@pytest.mark.parametrize(
    ("first", "last", "found"),
    [(16, 100, [16, 32, 64, 100]), (2, 16, [2, 4, 8, 16]), (2, 1, []), (16, 16, [16]), (2, 3, [2, 3])],
)
def test_powers(first: int, last: int, found: list[int]) -> None:
    assert warm.powers(first, last) == found


def test_rows_are_the_first_and_the_median_of_the_rest() -> None:
    asked = warm.shapes(TINY)[:3]
    first, second, _ = (one.name for one in asked)
    rows = warm.rows(asked, [{first: 3.9, second: 0.2}, {first: 0.06}, {first: 0.08}])
    assert [(row.name, row.first_s, row.steady_s) for row in rows] == [(first, 3.9, 0.07), (second, 0.2, 0.2)]


def test_a_new_kind_that_waits_as_long_as_its_repeats_and_one_that_does_not() -> None:
    chance = dice(9)
    kinds = dict.fromkeys((one.name for one in warm.unseen(TINY)), warm.PROBE)
    fine = {name: [0.05 * (1 + chance.expovariate(20)) for _ in range(5)] for name in kinds}
    found = warm.new(fine, kinds)
    assert found.ratio is not None
    assert found.ratio.bounded
    assert found.ratio.value == pytest.approx(1, abs=0.1)
    assert found.stalled == ()
    unwarmed = warm.new({name: [3.9, *waits[1:]] for name, waits in fine.items()}, kinds)
    assert unwarmed.ratio is not None
    assert unwarmed.ratio.low is not None
    assert unwarmed.ratio.low > 60
    assert warm.new(fine | {"chat": [3.9, *fine["chat"][1:]]}, kinds).stalled == ("chat",)
    assert warm.new({}, {}).ratio is None
