"""Canary answers: sound or not, and moved or not, at a tie or not."""

from typing import Any

import pytest

from runbook.serving import canary


def answer(**changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "error": "", "tokens": [5, 6, 7], "logprobs": [-0.5, -1.0, -2.0], "top": [-0.5, -1.0, -2.0],
        "second": [-3.0, -1.1, -4.0], "finish": "length", "prompt_tokens": 4, "completion_tokens": 3, "prompt_ids": 4,
    }  # fmt: skip
    return made | changes


def test_a_sound_answer() -> None:
    assert canary.sound("a", answer()) == []
    assert canary.sound("a", answer(logprobs=[1e-6, -1.0, -2.0])) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"error": "500"}, "500"),
        ({"tokens": [], "logprobs": [], "completion_tokens": 0}, "no token"),
        ({"finish": "error"}, "stop reason 'error'"),
        ({"finish": None}, "stop reason None"),
        ({"completion_tokens": 2}, "usage counts 2 tokens, 3 came"),
        ({"prompt_tokens": 3}, "usage counts 3 prompt tokens, 4 were read"),
        ({"logprobs": [-0.5]}, "1 log-probabilities for 3 tokens"),
        ({"logprobs": [0.5, -1.0, -2.0]}, "a log-probability that is none"),
        ({"logprobs": [float("nan"), -1.0, -2.0]}, "a log-probability that is none"),
        ({"logprobs": [None, -1.0, -2.0]}, "a log-probability that is none"),
        ({"top": [-0.1, -1.0, -2.0]}, "a chosen token is not the most probable one"),
    ],
)
def test_an_unsound_answer(changes: dict[str, Any], says: str) -> None:
    assert says in [fault.says for fault in canary.sound("a", answer(**changes))]


def test_where_an_answer_moved() -> None:
    assert canary.moved("a", answer(), answer()) is None
    assert canary.moved("a", answer(), answer(tokens=[5, 9, 7])) == canary.Moved("a", 1, tie=True)
    assert canary.moved("a", answer(), answer(tokens=[8, 6, 7])) == canary.Moved("a", 0, tie=False)
    assert canary.moved("a", answer(), answer(tokens=[5, 6])) == canary.Moved("a", 2, tie=False)
    assert canary.moved("a", answer(), answer(error="500")) is None


def test_a_server_that_answers_nothing() -> None:
    assert canary.silent([answer(tokens=[2])] * 3)
    assert not canary.silent([answer(tokens=[2]), answer()])
    assert not canary.silent([answer(error="500", tokens=[])])
    assert not canary.silent([])
