"""Which limit binds, from readings of real servers under real load (tests/data/limits), and where nothing follows."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.parse import metrics
from runbook.serving import limits, reading
from runbook.serving.limits import Launch, Lower
from runbook.serving.reading import Reading

DATA = Path(__file__).parents[1] / "data"
CARD = Launch(max_num_seqs=256, max_num_batched_tokens=8192, max_model_len=32768, blocks=12677, block_size=272, states=3)  # fmt: skip


def rows(number: int = 12, every_s: float = 0.5, **fields: Any) -> list[Reading]:
    """Readings in steady state; a pair is a counter's start and its growth a reading."""
    made = []
    for at in range(number):
        values = {
            name: one[0] + at * one[1] if isinstance(one, tuple) else one for name, one in fields.items()
        }
        base: dict[str, Any] = {"running": 1.0, "waiting": 0.0, "kv_use": 0.1, "prompt_tokens": 10.0 * at, "generation_tokens": 50.0 * at, "preemptions": 0.0}  # fmt: skip
        made.append(Reading(at * every_s, **(base | values)))
    return made


def name(found: limits.Limit) -> str:
    return found.name


def recorded(stack: str, tag: str) -> tuple[Launch, list[Reading], float | None]:
    facts = json.loads((DATA / "limits" / f"{stack}-{tag}.json").read_text(encoding="utf-8"))
    fields = facts["fields"]
    return (
        Launch(**facts["launch"]),
        [Reading(**dict(zip(fields, row, strict=True))) for row in facts["rows"]],
        facts["offered"] or None,
    )


REAL = json.loads((DATA / "limits" / "named.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("case", "named"), REAL.items())
def test_what_a_real_server_under_a_known_load_is_found_to_be_bound_by(case: str, named: str) -> None:
    stack, _, tag = case.rpartition("-")
    assert name(limits.judge(*recorded(stack, tag))) == named


def test_every_rule_has_its_window() -> None:
    full: dict[str, Any] = {"running": 256.0, "waiting": 40.0, "kv_use": 0.5}
    prompts: dict[str, Any] = {"prompt_sum": (0.0, 4000.0), "prompt_count": (0.0, 1.0)}
    starved: dict[str, Any] = {"running": 90.0, "waiting": 30.0, "kv_use": 0.9995, **prompts}
    cases: dict[str, list[Reading]] = {
        limits.SEQS: rows(**full),
        limits.KV: rows(**starved),
        limits.BUDGET: rows(running=40.0, waiting=30.0, steps=(0.0, 2.0), step_tokens=(0.0, 14_000.0)),
        limits.NONE: rows(running=5.0),
    }
    assert {named: name(limits.judge(CARD, window)) for named, window in cases.items()} == {
        named: named for named in cases
    }


def test_preemption_is_memory_even_at_the_full_number_of_sequences() -> None:
    window = rows(running=256.0, waiting=5.0, kv_use=0.97, preemptions=(0.0, 1.0))
    found = limits.judge(CARD, window)
    assert (found.name, "preemptions: 11" in found.says) == (limits.KV, True)
    rare = rows(running=256.0, waiting=5.0, kv_use=0.9, preemptions=(0.0, 0.1), finished=(0.0, 40.0))
    assert name(limits.judge(CARD, rare)) == limits.SEQS


def test_short_sequences_of_a_hybrid_model_fill_the_cache_with_state() -> None:
    """3 of 4 blocks that each sequence holds are recurrent state: more KV for longer prompts is not what it lacks."""
    start = dataclasses.replace(CARD, max_num_seqs=2048, blocks=400)
    window = rows(running=100.0, waiting=30.0, kv_use=1.0, prompt_sum=(0.0, 100.0), prompt_count=(0.0, 1.0))
    assert name(limits.judge(start, window)) == limits.STATE
    assert name(limits.judge(dataclasses.replace(start, states=0), window)) == limits.KV


def test_a_cache_cut_by_hand_is_said_so() -> None:
    start = dataclasses.replace(CARD, blocks=24, blocks_overridden=True)
    found = limits.judge(start, rows(running=2.0, waiting=9.0, kv_use=1.0))
    assert found.moves.startswith("leave out --num-gpu-blocks-override")


def test_a_cache_that_could_take_the_next_request_is_not_the_limit() -> None:
    window = rows(running=90.0, waiting=30.0, kv_use=0.95, prompt_sum=(0.0, 300.0), prompt_count=(0.0, 1.0))
    assert name(limits.judge(CARD, window)) == limits.OPEN


def test_whose_turn_it_is_when_nothing_waits() -> None:
    lag: dict[str, Any] = {"running": 20.0, "waiting": 0.0}
    judged = {
        limits.CLIENT: limits.judge(CARD, rows(**lag, client_cpu=0.99, front_cpu=0.3), 64),
        limits.FRONT: limits.judge(CARD, rows(**lag, client_cpu=0.4, front_cpu=0.99), 64),
        limits.OPEN: limits.judge(CARD, rows(**lag, client_cpu=0.2, front_cpu=0.3), 64),
        limits.NONE: limits.judge(CARD, rows(running=60.0, client_cpu=0.99), 64),
    }
    assert {named: found.name for named, found in judged.items()} == {named: named for named in judged}


def test_computing_is_the_limit_when_more_requests_bring_no_more_tokens() -> None:
    window = rows(running=64.0, waiting=0.0)
    now = limits.tps(window)
    assert now is not None
    assert name(limits.judge(CARD, window, 64, Lower(32, now))) == limits.COMPUTE
    assert name(limits.judge(CARD, window, 64, Lower(32, now / 1.8))) == limits.NONE
    assert name(limits.judge(CARD, window, 40, Lower(32, now))) == limits.NONE


def test_a_cpu_server_that_uses_every_core() -> None:
    start = Launch(max_num_seqs=16, cores=2.0)
    assert name(limits.judge(start, rows(running=8.0, server_cpu=1.7, client_cpu=0.2), 8)) == limits.COMPUTE
    assert name(limits.judge(start, rows(running=8.0, server_cpu=0.6, client_cpu=1.3), 8)) == limits.CLIENT
    assert name(limits.judge(start, rows(running=8.0, server_cpu=0.6), 8)) == limits.NONE


def test_an_idle_server_gets_no_advice() -> None:
    found = limits.judge(CARD, rows(running=0.0))
    assert (found.name, found.moves) == (limits.IDLE, "")


def test_standing_still_is_not_a_limit() -> None:
    still = rows(40, generation_tokens=7.0, prompt_tokens=3.0, running=4.0)
    found = limits.judge(CARD, still)
    assert (found.name, "no token came" in found.says) == (limits.STUCK, True)
    assert name(limits.judge(CARD, still[:18])) != limits.STUCK, "8.5 s may be a prefill"
    recovered = [*still, dataclasses.replace(still[-1], at=99.0, generation_tokens=8.0)]
    assert name(limits.judge(CARD, recovered)) != limits.STUCK


def test_thin_evidence_gets_no_verdict() -> None:
    assert name(limits.judge(CARD, [])) == limits.OPEN
    assert name(limits.judge(CARD, rows(4, running=256.0, waiting=9.0))) == limits.OPEN
    assert name(limits.judge(CARD, [Reading(1.0, missed="refused")] * 9)) == limits.OPEN
    assert name(limits.judge(Launch(), rows(running=9.0, waiting=9.0))) == limits.OPEN
    deferred = limits.judge(CARD, rows(running=9.0, waiting=9.0, deferred=9.0))
    assert "something else than room" in deferred.says


def test_a_hit_rate_needs_enough_tokens() -> None:
    assert limits.hit_rate(rows(prompt_tokens=(0.0, 50.0), cached_tokens=(0.0, 40.0))) is None
    assert limits.hit_rate(rows(prompt_tokens=(0.0, 500.0), cached_tokens=(0.0, 400.0))) == pytest.approx(0.8)
    assert limits.hit_rate(rows()) is None


def test_a_counter_that_fell_is_another_server_and_no_growth() -> None:
    assert reading.grown(rows(3, generation_tokens=(9.0, -4.0)), "generation_tokens") is None
    assert reading.grown(rows(1), "generation_tokens") is None
    assert reading.rate(rows(3), "generation_tokens") == pytest.approx(100)
    assert reading.rate(rows(3), "cached_tokens") is None


@pytest.mark.parametrize(
    ("release", "found"),
    [
        ("0.19.1", Launch(16, None, 2048, 8192, 128, blocks_overridden=False, states=0)),
        ("0.32.0", Launch(16, None, 2048, 5461, 384, blocks_overridden=False, states=3)),
    ],
)
def test_a_launch_as_it_says_itself(release: str, found: Launch) -> None:
    page = metrics.read((DATA / "metrics" / f"{release}.txt").read_text(encoding="utf-8"))
    log = "Maximum concurrency for 2,048 tokens per request: 512.00x"
    assert limits.launch({"--max-num-seqs": "16"}, page, log, 2048, None) == found


def test_a_launch_that_says_nothing() -> None:
    assert limits.launch({}, metrics.Metrics({}), "", None, None) == Launch()
    log = "INFO 11-30 vllm.py:1] Chunked prefill is enabled with max_num_batched_tokens=8192."
    assert limits.launch({}, metrics.Metrics({}), log, None, None).max_num_batched_tokens == 8192


NUMBERS = st.none() | st.floats(0, 1e6, allow_nan=False)


@given(
    st.lists(
        st.builds(Reading, st.floats(0, 1e4), NUMBERS, NUMBERS, st.none() | st.floats(0, 1), NUMBERS, NUMBERS, NUMBERS, NUMBERS),
        max_size=20,
    ),
    st.none() | st.floats(1, 100),
)  # fmt: skip
def test_any_window_gets_some_verdict(window: list[Reading], offered: float | None) -> None:
    found = limits.judge(CARD, window, offered)
    assert found.name in (*limits.NAMED, limits.IDLE, limits.STUCK, limits.OPEN, limits.NONE)
    assert found.says
    assert bool(found.moves) == (found.name in limits.MOVES)
    json.dumps(limits.as_facts(found))
