"""Objectives are met by the interval, not by the figure; words that are none are refused."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loads import level, request, step

from runbook.errors import BadParameter
from runbook.serving import slo
from runbook.serving.load import Step
from runbook.serving.slo import MET, MISSED, OPEN


def loaded(tpots_ms: list[float]) -> Step:
    requests = tuple(request(0.1 * at, 0.1, tpot / 1000 * 15) for at, tpot in enumerate(tpots_ms))
    return step(len(tpots_ms), requests=requests)


def verdict(word: str, one: Step) -> str:
    return slo.judge(slo.read([word])[0], one).verdict


def test_the_words() -> None:
    found = slo.read(["tpot_ms=200", "ttft_p99_ms=1500.5", "rps=50"])
    assert [(one.what, one.percentile, one.limit) for one in found] == [
        ("tpot", 95.0, 0.2),
        ("ttft", 99.0, 1.5005),
        ("rps", None, 50.0),
    ]


@pytest.mark.parametrize(
    "words",
    [["tpot"], ["tpot_ms"], ["tpot_ms="], ["tpot_ms=x"], ["tpot_ms=0"], ["tpot_ms=-1"], ["speed=1"], ["ttft_p0_ms=1"],
     ["ttft_p100_ms=1"], ["rps=nan"], ["rps=1", "rps=2"], ["rps_ms=1"], ["=1"], [""]],
)  # fmt: skip
def test_words_that_are_none_are_refused(words: list[str]) -> None:
    with pytest.raises(BadParameter, match="--slo"):
        slo.read(words)


def test_a_percentile_needs_its_samples() -> None:
    assert slo.needed(slo.read(["tpot_p50_ms=1"])) == 6
    assert slo.needed(slo.read(["tpot_ms=1"])) == 72
    assert slo.needed(slo.read(["tpot_p99_ms=1", "rps=1"])) == 368
    assert slo.needed(slo.read(["rps=1"])) == 0
    held = slo.judge(slo.read(["tpot_ms=200"])[0], loaded([20.0] * 40))
    assert (held.verdict, held.more) == (OPEN, 32)
    assert "32 more samples" in held.text()


def test_the_whole_interval_decides() -> None:
    assert verdict("tpot_ms=200", loaded([20.0] * 80)) == MET
    assert verdict("tpot_ms=10", loaded([20.0] * 80)) == MISSED
    # The 95th percentile of these lies at 20 ms; its interval reaches up to the two slow ones.
    assert verdict("tpot_ms=100", loaded([20.0] * 78 + [300.0] * 2)) == OPEN
    assert verdict("tpot_p50_ms=100", loaded([20.0] * 78 + [300.0] * 2)) == MET
    assert verdict("rps=2", step()) == MET
    assert verdict("rps=20", step()) == MISSED
    assert verdict("tpot_ms=10", step(requests=())) == OPEN
    assert verdict("rps=1", step(requests=())) == OPEN


@given(st.lists(st.floats(1.0, 500.0), min_size=1, max_size=120), st.floats(1.0, 500.0))
def test_a_limit_is_never_met_and_missed_by_turns(tpots: list[float], limit: float) -> None:
    """Raising the limit only ever goes from not met by no verdict to met."""
    rank = {MISSED: 0, OPEN: 1, MET: 2}
    one = loaded(tpots)
    found = [rank[verdict(f"tpot_ms={at:.3f}", one)] for at in (limit / 2, limit, limit * 2)]
    assert found == sorted(found)


def test_objectives_count_together() -> None:
    """A throughput at one load and a latency at another are no service."""
    loads = [level(1, 40.0, 0.4), level(8, 200.0, 1.6)]
    wanted = slo.read(["e2e_p50_ms=1000", "tps=100"])
    found = slo.best(wanted, loads)
    assert found.verdict == MISSED
    assert slo.best(slo.read(["tps=100"]), loads).step is loads[1]
    assert slo.best(slo.read(["e2e_p50_ms=1000", "tps=20"]), loads).step is loads[0]
    assert (
        slo.best(wanted, [*loads, replace(loads[1], requests=loads[1].requests, concurrency=4)]).verdict
        == MISSED
    )
