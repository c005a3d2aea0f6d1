"""Judging a comparison, on made numbers: noise, ties, hypotheses, prompts, importance ratios, and how it is shown."""

import json
import math
import random
import statistics
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook import parity
from runbook.parity import AGREE, DIFFER, UNKNOWN, compare, importance

NOISE = 0.03


def noisy(exact: list[float], size: float, seed: int) -> list[float]:
    """The values with a normal error whose mean distance is exactly ``size``."""
    draw = random.Random(seed)  # noqa: S311 - made numbers
    errors = [draw.gauss(0.0, 1.0) for _ in exact]
    scale = size / statistics.fmean(map(abs, errors))
    return [value + error * scale for value, error in zip(exact, errors, strict=True)]


def row(
    name: str, how: str = "alone", count: int = 64, error: float = NOISE, **changes: Any
) -> dict[str, Any]:
    """One answer whose server is ``error`` away from the exact log-probabilities and transformers ``NOISE``."""
    draw = random.Random(name)  # noqa: S311 - made numbers
    exact = [-2 - draw.random() for _ in range(count)]
    made = {
        "name": name,
        "how": how,
        "prompt_tokens": 9,
        "tokens": [draw.randrange(500) for _ in exact],
        "served": noisy(exact, error, 1),
        "reference": noisy(exact, NOISE, 2),
        "exact": exact,
        "short_by": [0.0] * count,
    }
    return made | changes


def facts(*rows: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """An answer of the script."""
    made: dict[str, Any] = {
        "dtype": "bfloat16",
        "exact_dtype": "float32",
        "max_model_len": 2048,
        "prompts_differ": [],
        "config_differs": {},
        "rows": list(rows) or [row("english"), row("english", "batch"), row("chat", "chat")],
        "hypotheses": {},
        "refused": {},
        "lower": {},
    }
    return made | changes


def moved(rows: list[dict[str, Any]], error: float) -> list[list[float]]:
    """What a hypothesis says when the server is ``error`` away from it."""
    return [noisy(one["served"], error, 3) for one in rows]


def test_within_the_noise_of_the_dtype_it_agrees() -> None:
    found = compare(facts())
    assert (found.verdict, found.causes, parity.EXIT[found.verdict]) == (AGREE, (), 0)
    assert found.noise_ratio == pytest.approx(1.0)
    assert set(found.groups) == {"alone", "batch", "chat"}
    assert (found.prompts, found.tokens, found.equal, found.equal_prompts) == (3, 192, 1.0, 3)
    assert found.batch_same == 1.0


def test_beyond_the_noise_and_unexplained_it_differs_with_an_unknown_cause() -> None:
    found = compare(facts(row("english", error=3 * NOISE)))
    assert (found.verdict, parity.EXIT[found.verdict]) == (DIFFER, 1)
    assert found.causes[0].startswith("unknown: 3.0 times")
    assert found.trust == "no: find the difference first"


@settings(deadline=None)  # the machine may be busy
@given(st.floats(0.0, parity.LIMIT - 0.01), st.floats(parity.LIMIT + 0.01, 50.0))
def test_the_verdict_turns_with_the_error_alone(small: float, large: float) -> None:
    assert compare(facts(row("a", count=400, error=small * NOISE))).verdict == AGREE
    assert compare(facts(row("a", count=400, error=large * NOISE))).verdict == DIFFER


@settings(deadline=None)  # the machine may be busy
@given(st.floats(1e-6, 10.0))
def test_the_limit_is_relative_to_the_noise(scale: float) -> None:
    """The same picture a million times smaller is judged alike: float32 needs no limit of its own."""
    one = row("a", count=200, error=1.2 * NOISE)
    small = {
        name: [
            exact + (value - exact) * scale / 10 for value, exact in zip(one[name], one["exact"], strict=True)
        ]
        for name in ("served", "reference")
    }
    ratios = [compare(facts(one)).noise_ratio, compare(facts(one | small)).noise_ratio]
    assert ratios[0] == pytest.approx(ratios[1], rel=1e-4)


def test_no_noise_at_all_leaves_room_for_no_error() -> None:
    exact = row("a")["exact"]
    same = row("a", served=exact, reference=exact)
    assert compare(facts(same)).verdict == AGREE
    off = row("a", served=[value - 1e-9 for value in exact], reference=exact)
    assert compare(facts(off)).verdict == DIFFER


def test_the_hypothesis_that_brings_it_down_to_noise_is_named() -> None:
    rows = [row("english", error=4 * NOISE), row("chat", "chat", error=4 * NOISE)]
    tried = {
        "rope_theta = 1e+06": moved(rows, 3 * NOISE),
        "rope_theta = 10000": moved(rows, NOISE),
        "partial_rotary_factor = 1": moved(rows, 9 * NOISE),
    }
    found = compare(facts(*rows, hypotheses=tried))
    assert found.causes == ("the server computes with rope_theta = 10000",)
    assert list(found.explained) == ["rope_theta = 10000", "rope_theta = 1e+06", "partial_rotary_factor = 1"]
    assert found.explained["rope_theta = 10000"] == pytest.approx(1.0)


def test_of_two_equal_explanations_the_first_is_named() -> None:
    """The script puts the keys of the served config.json before what goes wrong by experience."""
    rows = [row("english", error=4 * NOISE)]
    same = moved(rows, NOISE)
    found = compare(
        facts(
            *rows,
            hypotheses={
                "rope_theta = 10000.0, as in the served config.json": same,
                "rope_theta = 10000": same,
            },
        )
    )
    assert found.causes == ("the server computes with rope_theta = 10000.0, as in the served config.json",)


def test_a_difference_that_nothing_explains_still_names_the_keys_that_differ() -> None:
    rows = [row("english", error=4 * NOISE)]
    key = {"rope_scaling": [{"type": "dynamic", "factor": 4.0}, None]}
    found = compare(
        facts(*rows, config_differs=key, hypotheses={"rope_scaling = ...": moved(rows, 4 * NOISE)})
    )
    (cause,) = found.causes
    assert cause.startswith("unknown: 4.0 times")
    assert cause.endswith("; the served config.json differs in rope_scaling")


def test_a_hypothesis_that_only_helps_a_little_is_not_named() -> None:
    rows = [row("english", error=6 * NOISE)]
    found = compare(facts(*rows, hypotheses={"rope_theta = 10000": moved(rows, 3 * NOISE)}))
    assert found.causes[0].startswith("unknown: ")


def test_a_hypothesis_that_transformers_refuses_is_said() -> None:
    found = compare(facts(row("english", error=4 * NOISE), refused={"head_dim = 7": "RuntimeError: shapes"}))
    assert found.verdict == DIFFER
    assert "not computed head_dim = 7: RuntimeError: shapes" in parity.as_text(found)


def test_quantised_weights_are_named_where_nothing_else_explains_it() -> None:
    rows = [row("english", error=4 * NOISE)]
    key = {"quantization_config.quant_method": ["fp8", None]}
    found = compare(
        facts(*rows, config_differs=key, refused={"the served folder, weights and all": "needs a GPU"})
    )
    assert found.causes == ("the served weights are quantised, the reference's are not",)


def test_another_dtype_is_named_by_its_own_noise() -> None:
    exact = row("a")["exact"]
    tiny = [value + 1e-6 * (-1) ** n for n, value in enumerate(exact)]
    one = row("a", reference=tiny, error=NOISE)
    coarse = {"bfloat16": [noisy(exact, NOISE, 7)], "float16": [noisy(exact, NOISE / 8, 8)]}
    found = compare(facts(one, dtype="float32", exact_dtype="float64", lower=coarse))
    assert found.causes == ("the server computes in bfloat16, not in float32",)


def test_a_server_finer_than_its_dtype_is_said_and_no_fault() -> None:
    found = compare(facts(row("a", error=NOISE / 100)))
    assert found.verdict == AGREE
    assert "finer dtype" in found.reason
    assert "finer dtype" in parity.as_text(found)


def test_only_in_a_batch() -> None:
    rows = [row(str(n)) for n in range(6)] + [row("0", "batch", error=3 * NOISE)]
    found = compare(facts(*rows))
    assert found.noise_ratio < parity.LIMIT
    assert found.causes == ("requests in one batch disturb each other; alone each is right",)


def test_alone_and_in_a_batch_are_compared_token_by_token() -> None:
    first, second = row("a"), row("b")
    found = compare(
        facts(first, second, first | {"how": "batch"}, second | {"how": "batch", "tokens": [1] * 64})
    )
    assert found.batch_same == 0.5


def test_a_flip_within_rounding_is_a_tie_and_one_beyond_it_a_fault() -> None:
    largest = max(abs(a - b) for a, b in zip(row("a")["reference"], row("a")["exact"], strict=True))
    flips = [0.0] * 64
    flips[5] = largest * parity.TIE * 0.9
    found = compare(facts(row("a", short_by=flips)))
    assert (found.verdict, found.equal_prompts) == (AGREE, 0)
    assert [(one.position, one.tie) for one in found.divergences] == [(5, True)]
    flips[9] = largest * parity.TIE * 1.1
    found = compare(facts(row("a", short_by=flips)))
    assert found.verdict == DIFFER
    assert found.causes[0].startswith("unknown: a chosen token falls short")
    assert [(one.position, one.tie) for one in found.divergences] == [(5, True), (9, False)]
    assert "alone, a: token 9 falls short" in parity.as_text(found)


CHAT = {
    "name": "chat, thinking off",
    "how": "chat",
    "at": 35,
    "served": "<think>\n",
    "reference": "</think>\n",
}


def test_a_template_is_named_by_the_first_token_that_differs() -> None:
    found = compare(facts(prompts_differ=[CHAT]))
    assert found.verdict == DIFFER
    assert found.causes == (
        "the chat template: in 'chat, thinking off' token 35 is the first that differs, served '<think>\\n', reference '</think>\\n'",
    )


def test_when_plain_text_differs_the_tokenizer_is_to_blame() -> None:
    found = compare(facts(prompts_differ=[CHAT, CHAT | {"name": "emoji", "how": "alone", "at": 2}]))
    assert found.causes[0].startswith("the tokenizer: in 'emoji' token 2 ")


def test_a_template_and_a_model_fault_are_both_named() -> None:
    rows = [row("english", error=4 * NOISE)]
    found = compare(
        facts(*rows, prompts_differ=[CHAT], hypotheses={"rope_theta = 10000": moved(rows, NOISE)})
    )
    assert [cause.partition(":")[0] for cause in found.causes] == [
        "the chat template",
        "the server computes with rope_theta = 10000",
    ]


def test_logits_are_told_from_log_probabilities() -> None:
    found = compare(facts(row("a", served=[7.5] * 64)))
    assert found.causes == ("the server returns logits, not log-probabilities (--logprobs-mode)",)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"error": "ValueError: /v1/completions answered 500"}, "answered 500"),
        ({"skip": "the reference needs 111.0 GiB of memory and may take 22.0"}, "may take 22.0"),
        (facts(row("a", served=[math.nan] * 64)), "not a number"),
        (facts(row("a", reference=[-math.inf] * 64)), "not a number"),
    ],
)
def test_no_verdict_without_numbers(answer: dict[str, Any], says: str) -> None:
    found = compare(answer)
    assert (found.verdict, parity.EXIT[found.verdict]) == (UNKNOWN, 3)
    assert says in found.reason
    assert says in parity.as_text(found)


def test_importance_ratios_of_known_numbers() -> None:
    found = importance(
        [-1.0, -1.0, -1.0, -1.0], [-1.0, -1.0 + math.log(1.02), -1.0 + math.log(1.1), -1.0 + math.log(0.5)]
    )
    assert found.mean == pytest.approx((1 + 1.02 + 1.1 + 0.5) / 4)
    assert [found.least, found.most] == pytest.approx([0.5, 1.1])
    assert (found.outside_1, found.outside_5) == (0.75, 0.5)
    k3 = [value - 1 - math.log(value) for value in (1, 1.02, 1.1, 0.5)]
    assert found.k3 == pytest.approx(sum(k3) / 4)


@settings(deadline=None)  # the machine may be busy
@given(st.lists(st.tuples(st.floats(-20, 0), st.floats(-20, 0)), min_size=1))
def test_k3_is_never_negative_and_nothing_but_equality_makes_it_nothing(
    pairs: list[tuple[float, float]],
) -> None:
    served, trainer = [one for one, _ in pairs], [one for _, one in pairs]
    found = importance(served, trainer)
    assert found.k3 >= 0
    assert found.least <= found.mean * (1 + 1e-9) and found.mean <= found.most * (1 + 1e-9)  # noqa: PT018 - one chain
    assert importance(served, served) == parity.Importance(1.0, 1.0, 1.0, 0.0, 0.0, 0.0)


def test_what_a_trainer_may_do_with_it() -> None:
    exact = row("a")["exact"]
    fine = [value - 1e-6 for value in exact]
    assert compare(facts(row("a", served=fine, reference=fine))).trust == "yes, as they are"
    assert compare(facts()).trust.startswith("yes, with importance correction: rounding in bfloat16 moves ")
    rough = row("a", count=64, served=[v - 0.9 for v in exact], reference=[v + 0.9 for v in exact])
    found = compare(facts(rough))
    assert found.verdict == AGREE
    assert found.trust.startswith("no: rounding alone moves a token's ratio to 6.05")


def test_as_json_holds_what_a_program_needs_and_no_nan() -> None:
    values = json.loads(json.dumps(parity.as_json(compare(facts(row("a")))), allow_nan=False))
    assert values["schema"] == "parity/1"
    assert values["batch_same"] is None
    assert {"verdict", "causes", "trust", "importance", "divergences", "noise_ratio", "groups"} <= set(values)


def test_as_text_is_plain_and_names_what_differs() -> None:
    rows = [row("english", error=4 * NOISE), row("english", "batch", error=4 * NOISE)]
    text = parity.as_text(
        compare(
            facts(*rows, hypotheses={"rope_theta = 10000": moved(rows, NOISE)}, config_differs={"rope_theta": [10000.0, 1e7]})
        )
    )  # fmt: skip
    assert text.splitlines()[0] == "verdict      differ"
    for words in (
        "for RL       no: find",
        "config       rope_theta: served 10000.0, reference 10000000.0",
        "times the noise with rope_theta = 10000",
    ):
        assert words in text
