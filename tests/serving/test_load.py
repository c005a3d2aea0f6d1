"""A load that is sound is not doubted, and each thing that can be wrong with one is, alone."""

import json
from dataclasses import replace
from typing import Any

import pytest
from loads import request, step, window

from runbook.parse import metrics
from runbook.serving import load
from runbook.serving.load import BLIND, FAIL, Step

PAGE = """# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0"} %s
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop"} %s
vllm:request_success_total{engine="0",finished_reason="length"} 7.0
"""


def kinds(one: Step) -> list[tuple[str, str]]:
    return [(each.weight, each.kind) for each in load.doubts(one)]


def test_a_sound_load_is_not_doubted() -> None:
    assert kinds(step()) == []


REQUESTS = step().requests
BAD = replace(REQUESTS[0], good=False, tokens=0)


@pytest.mark.parametrize(
    ("changes", "weight", "kind"),
    [
        ({"requests": tuple(replace(one, tokens=0) for one in REQUESTS)}, FAIL, "zero tokens"),
        ({"requests": tuple(replace(one, tokens=1) for one in REQUESTS), "server": window(40, grown={"generation_tokens": 40.0})}, FAIL, "zero tokens"),
        ({"requests": ()}, FAIL, "failed requests"),
        ({"requests": (BAD, *REQUESTS[1:]), "errors": {"500 Internal": 1}}, FAIL, "failed requests"),
        ({"requests": REQUESTS[:5], "input_tokens": 320, "server": window(5)}, BLIND, "too few samples"),
        ({"server": None}, BLIND, "no counters"),
        ({"server": window(40, grown={"generation_tokens": None})}, BLIND, "no counters"),
        ({"server": window(40, anew="it fell")}, FAIL, "another server"),
        ({"server": window(40, grown={"generation_tokens": 700.0})}, FAIL, "counters disagree"),
        ({"server": window(40, grown={"prompt_tokens": 3000.0})}, FAIL, "counters disagree"),
        ({"server": window(40, reasons={"length": 39.0, "abort": 2.0})}, FAIL, "counters disagree"),
        ({"client_cores": 0.95}, FAIL, "client-bound"),
        ({"server": window(40, grown={"e2e_sum": 4.0})}, BLIND, "slow path"),
        ({"requests": tuple(replace(one, ttft_s=0.39, decode_s=0.01) for one in REQUESTS)}, FAIL, "buffered stream"),
        ({"rate": 8.0, "concurrency": 0}, FAIL, "client-bound"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(changes: dict[str, Any], weight: str, kind: str) -> None:
    found = kinds(step(**changes))
    assert (weight, kind) in found
    # Fewer requests or tokens make counters disagree as well; nothing else is blamed.
    assert {name for _, name in found} <= {kind, "counters disagree", "no counters"}


@pytest.mark.parametrize(
    "changes",
    [
        {"client_cores": None},
        {"rate": 4.0, "concurrency": 0},
        {"rate": 8.0, "concurrency": 4},  # its bound on requests at once holds it back, by design
        {"server": window(40, grown={"prompt_tokens": 2600.0})},
        {"server": window(40, grown={"decode_sum": None, "e2e_sum": None})},
    ],
)
def test_what_is_allowed_is_not_doubted(changes: dict[str, Any]) -> None:
    assert kinds(step(**changes)) == []


def test_the_gravest_doubt_comes_first() -> None:
    found = kinds(step(client_cores=0.99, server=None))
    assert [weight for weight, _ in found] == [FAIL, BLIND]


def test_a_window_is_what_grew_and_knows_another_server() -> None:
    before, after = metrics.read(PAGE % (100.0, 2.0)), metrics.read(PAGE % (180.0, 5.0))
    grew = load.window(before, after)
    assert (grew.grown["generation_tokens"], grew.reasons, grew.finished, grew.anew) == (80.0, {"stop": 3.0}, 3.0, "")  # fmt: skip
    assert grew.grown["prompt_tokens"] is None
    assert grew.mean("e2e") is None
    assert "fell from 180 to 100" in load.window(after, before).anew
    # A counter that nothing has touched yet is not on the page before.
    assert load.window(metrics.read("# TYPE a counter\na 1\n"), after).grown["generation_tokens"] == 180.0


def test_a_process_that_began_during_the_load_is_another() -> None:
    """Its counters may have grown past those of the one before."""
    began = "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds %s\n"
    pages = [
        metrics.read(PAGE % (made, 1.0) + began % at) for made, at in ((10.0, 5.0), (90.0, 9.0), (95.0, 9.0))
    ]
    assert "anew" in load.window(pages[0], pages[1]).anew
    assert load.window(pages[1], pages[2]).anew == ""


def test_a_step_survives_its_file() -> None:
    one = step(server=window(40, anew="x"), errors={"a": 2})
    again = load.of_row(json.loads(json.dumps(load.as_row(one))))
    assert load.as_row(again) == load.as_row(one)
    assert load.doubts(again) == load.doubts(one)


def test_rates_are_bounded_by_tenths_of_the_load() -> None:
    found = load.rate(step(), "rps")
    assert found is not None
    assert found.value == pytest.approx(4.0)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= 4.0 <= found.high
    assert sum(step().slices("tps")) == pytest.approx(step().tps * load.SLICES)
    assert load.rate(step(requests=()), "rps") is None


def test_times_of_a_request() -> None:
    assert request(decode=0.3).tpot_s == pytest.approx(0.02)
    assert request(tokens=1).tpot_s is None
    assert load.median_ms(step(), "e2e") == pytest.approx(400.0)
    assert load.median_ms(step(requests=()), "e2e") is None
