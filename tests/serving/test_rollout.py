"""What is concluded of rollouts: sound and unsound groups, ties and more than ties, stale prefixes, readiness."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.model import Verdict
from runbook.serving import rollout

OK, WARN, FAIL, SKIP, UNKNOWN = (
    Verdict.OK,
    Verdict.WARN,
    Verdict.FAIL,
    Verdict.SKIP,
    Verdict.UNKNOWN,
)


def sample(tokens: list[int], logprobs: list[float] | None = None, gap: float = 1.0) -> dict[str, Any]:
    """An answer whose second best token, always 9, is ``gap`` less probable than the chosen one."""
    values = logprobs or [-1.0] * len(tokens)
    best = [[[token, value], [9, value - gap]] for token, value in zip(tokens, values, strict=True)]
    return {"tokens": tokens, "logprobs": values, "best": best, "finish": "length"}


def group(*samples: dict[str, Any], off: float = 0.01, **changes: Any) -> dict[str, Any]:
    """One prompt's samples, computed anew ``off`` away."""
    row = {
        "prompt": "short",
        "prompt_tokens": 5,
        "completion_tokens": sum(len(one["tokens"]) for one in samples),
        "samples": list(samples),
        "anew": [[None if value is None else value + off for value in one["logprobs"]] for one in samples],
    }
    facts = {"samples": len(samples), "rows": [row | changes]}
    return facts | {"at_1": {"a": -0.5, "b": -2.5}, "at_half": {"a": -0.5, "b": -2.5}}


TWO = (sample([1, 2, 3]), sample([1, 5, 6]))


def test_a_sound_group_has_no_fault() -> None:
    found = rollout.groups(group(*TWO))
    assert found.faults == ()
    assert (found.samples, found.tokens, found.distinct, found.mode) == (2, 6, 2, rollout.RAW)
    assert found.rounding == pytest.approx(0.01)
    assert found.again is not None
    assert found.again.mean == pytest.approx(math.exp(0.01))


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        (group(*TWO) | {"samples": 3}, "2 samples came, 3 were asked for"),
        (group(*TWO, completion_tokens=7), "usage says 7 tokens, 6 came"),
        (group(sample([1, 2]) | {"logprobs": [-1.0]}, TWO[1], completion_tokens=5, anew=[]), "not every token came with"),
        (group(sample([]), TWO[1]), "not every token came with"),
        (group(sample([1, 2]) | {"logprobs": [-1.0, None]}, TWO[1], completion_tokens=5, anew=[]), "is no finite number"),
        (group(sample([1, 2], [-1.0, 3.25]), TWO[1]), "a log-probability of 3.25 is above 0"),
        (group(*[sample([1, 2, 3], [-3.0, -3.0, -3.0])] * 4), "all 4 samples are the same, by chance once in 10^12"),
        (group(*TWO, off=0.8), "half of the tokens are off by more than 0.80"),
        (group(*TWO) | {"at_1": {"a": 7.5, "b": 3.0}}, "logits were returned"),
    ],
)  # fmt: skip
def test_what_is_unsound_is_named(facts: dict[str, Any], says: str) -> None:
    faults = rollout.groups(facts).faults
    assert any(says in fault for fault in faults), faults


def test_a_model_that_is_sure_may_say_the_same_each_time() -> None:
    assert rollout.groups(group(*[sample([1, 2], [-0.01, -0.01])] * 8)).faults == ()


@pytest.mark.parametrize(
    ("at_half", "mode"),
    [
        ({"a": -0.5, "b": -2.5}, rollout.RAW),
        ({"a": -0.51, "b": -2.47}, rollout.RAW),
        ({"a": -0.15, "b": -4.15}, rollout.PROCESSED),
        ({"b": -4.15}, ""),
        ({"a": 12.0, "b": 8.0}, rollout.LOGITS),
    ],
)
def test_the_distribution_is_told_from_two_temperatures(at_half: dict[str, float], mode: str) -> None:
    assert rollout.of_distribution({"a": -0.5, "b": -2.5}, at_half) == mode


def test_two_tokens_alike_tell_no_temperature() -> None:
    assert rollout.of_distribution({"a": -1.0, "b": -1.1}, {"a": -1.0, "b": -1.2}) == ""


@given(st.lists(st.floats(-8, 3), min_size=3, max_size=6, unique=True))
def test_softmax_at_half_the_temperature_is_always_known_for_what_it_is(logits: list[float]) -> None:
    def logs(heat: float) -> dict[str, float]:
        total = math.log(sum(math.exp(one / heat) for one in logits))
        return {str(at): one / heat - total for at, one in enumerate(logits)}

    if max(logits) - min(logits) > rollout.APART:
        assert rollout.of_distribution(logs(1.0), logs(0.5)) == rollout.PROCESSED
        assert rollout.of_distribution(logs(1.0), logs(1.0)) == rollout.RAW


def row(alone: dict[str, Any], *others: dict[str, Any], how: str = rollout.GREEDY) -> dict[str, Any]:
    return {"prompt": "long", "how": how, "alone": alone, "among": {"16 at once": list(others)}}


ALONE = sample([1, 2, 3], gap=0.02)
ROUNDING = 0.01


def test_the_same_answers_moved_by_nothing() -> None:
    (found,) = rollout.moves([row(ALONE, ALONE, ALONE)], ROUNDING)
    assert (found.answers, found.same, found.first, found.largest, found.beyond) == (2, 2, None, 0.0, ())


def turned(gap: float) -> dict[str, Any]:
    """At the second place the other of two tokens that lie ``gap`` apart."""
    return row(sample([1, 2, 3], gap=gap), sample([1, 9, 4], gap=gap))


@pytest.mark.parametrize(
    ("gap", "rounding", "beyond"),
    [(0.4, 0.0, False), (0.6, 0.0, True), (0.6, 0.21, False), (0.6, 0.19, True)],
)
def test_a_tie_is_within_half_a_nat_or_three_times_the_rounding(
    gap: float, rounding: float, *, beyond: bool
) -> None:
    (found,) = rollout.moves([turned(gap)], rounding)
    assert (found.same, found.first, bool(found.beyond)) == (0, 1, beyond)


def test_a_token_that_was_not_among_the_best_two_is_no_nearer_than_the_second() -> None:
    (found,) = rollout.moves([row(sample([1, 2, 3], gap=0.7), sample([1, 7, 3]))], ROUNDING)
    assert found.beyond[0][2] >= 0.7


def test_a_log_probability_that_moves_far_is_beyond_rounding_though_the_answer_is_the_same() -> None:
    (found,) = rollout.moves([row(ALONE, sample([1, 2, 3], [-1.0, -1.8, -1.0]))], ROUNDING)
    ((prompt, place, far),) = found.beyond
    assert (found.same, prompt, place) == (1, "long", None)
    assert far == pytest.approx(0.8)


def test_an_answer_that_ends_early_is_no_tie() -> None:
    (found,) = rollout.moves([row(ALONE, sample([1, 2]))], ROUNDING)
    assert found.beyond == (("long", 2, math.inf),)


def test_where_a_seeded_sample_turns_is_counted_and_not_judged() -> None:
    (found,) = rollout.moves([row(ALONE, sample([1, 7, 3], gap=3.0), how=rollout.SEEDED)], ROUNDING)
    assert (found.same, found.first, found.beyond) == (0, 1, ())


def test_arms_are_compared_with_the_first_by_the_median_of_their_rounds() -> None:
    rows = [
        {"arm": name, "tokens": 100, "seconds": seconds, "queries": queries, "hits": 50.0}
        for name, seconds, queries in (("one", 1.0, 100.0), ("many", 2.0, 100.0), ("many", 4.0, 100.0), ("one", 1.0, None))
    ]  # fmt: skip
    one, many = rollout.arms(rows)
    assert (one.name, one.tokens_per_s, one.times, one.reused) == ("one", 100.0, 1.0, 1.0)
    assert (many.tokens_per_s, many.times, many.reused) == (37.5, 0.375, 0.5)


OLD, NEW = sample([1, 2, 3]), sample([4, 5, 6])
MIXED = sample([4, 7, 8])


def reload(**changes: Any) -> dict[str, Any]:
    answers = {"before": OLD, "stale": MIXED, "fresh": NEW, "back": OLD}
    answers |= {name: changes.pop(name) for name in list(changes) if name in answers}
    return {
        "seconds": 0.04,
        "stale_hits": 96.0,
        "reset": True,
        "different": True,
        "answers": answers,
    } | changes


def test_a_reload_that_works() -> None:
    found = rollout.renewed(reload())
    assert (found.changed, found.stale, found.stale_differs, found.faults) == (True, 96, True, ())


def test_weights_that_differ_by_little_still_show_in_the_log_probabilities() -> None:
    assert rollout.renewed(reload(fresh=sample([1, 2, 3], [-1.0, -1.001, -1.0]))).changed is True


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        (reload(fresh=OLD, stale=OLD), "still that of the old weights"),
        (reload(back=NEW), "the old weights, loaded again, give another answer"),
        (reload(reset=False), "could not be reset"),
        (reload(different=False), "the same weights, loaded again, give another answer"),
    ],
)
def test_a_reload_that_does_not(facts: dict[str, Any], says: str) -> None:
    assert any(says in fault for fault in rollout.renewed(facts).faults)


def test_the_same_weights_prove_no_change() -> None:
    found = rollout.renewed(reload(different=False, fresh=OLD, stale=OLD, stale_hits=0.0))
    assert (found.changed, found.stale_differs, found.faults) == (None, False, ())


@pytest.mark.parametrize(
    ("verdicts", "says"),
    [
        ((OK, OK, OK), "yes"),
        ((OK, WARN, OK), "yes, with importance correction: SERVE-022"),
        ((OK, WARN, SKIP), "yes, with importance correction: SERVE-022; not judged: SERVE-023"),
        ((OK, FAIL, UNKNOWN), "no: SERVE-022"),
        ((OK, WARN, UNKNOWN), "no verdict: SERVE-023"),
        ((SKIP, SKIP, SKIP), "no verdict: SERVE-021, SERVE-022"),
    ],
)
def test_ready_in_one_line(verdicts: tuple[Verdict, ...], says: str) -> None:
    ids = ("SERVE-021", "SERVE-022", "SERVE-023")
    assert rollout.ready(dict(zip(ids, verdicts, strict=True))) == says


def test_sleep_is_told_with_what_it_frees() -> None:
    slept = {
        "sleep_s": 0.5,
        "wake_s": 0.25,
        "held": True,
        "memory_mib": [9000, 1000, 9000],
        "before": OLD,
        "after": OLD,
    }
    (line,) = rollout.told({"sleep": slept})
    assert "8000 MiB freed" in line
    assert line.endswith("the same")
    (worse,) = rollout.told({"sleep": slept | {"memory_mib": [None, None, None], "after": NEW}})
    assert "only pauses" in worse
    assert worse.endswith("ANOTHER")
    assert rollout.told({"sleep": {"why": "no such endpoint"}}) == ["sleep: not tried, no such endpoint"]
