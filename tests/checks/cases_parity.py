"""SERVE-010: what follows from the log-probabilities of a server and of transformers, and from their prompts."""

import random
from typing import Any

from host import CPU, FAIL, GPU, OK, OLD_CPU, SKIP, UNKNOWN, WARN, Case, Row, table

ASK = (
    "inside parity_reference dtype=auto limit=1.5 longest=1024 model=served most-gib=8 path='{model}' prompts=6 tokens=16 "
    "url='http://127.0.0.1:{port}'"
)


def answer(
    name: str, how: str, *, error: float = 0.03, noise: float = 0.03, short: float = 0.0
) -> dict[str, Any]:
    """One answer of 16 tokens; the server is ``error`` and transformers ``noise`` away from the exact log-probabilities."""
    draw = random.Random(f"{name} {how}")  # noqa: S311 - made numbers
    exact = [-2.0 - draw.random() for _ in range(16)]
    return {
        "name": name,
        "how": how,
        "prompt_tokens": 18,
        "tokens": list(range(16)),
        "served": [value + draw.choice((error, -error)) for value in exact],
        "reference": [value + draw.choice((noise, -noise)) for value in exact],
        "exact": exact,
        "short_by": [*[0.0] * 15, short],
    }


def said(*, error: float = 0.03, noise: float = 0.03, short: float = 0.0, **changes: Any) -> dict[str, Any]:
    """An answer of the script about a prompt alone, in a batch and in a chat."""
    rows = [
        answer(name, how, error=error, noise=noise, short=short)
        for name, how in (("english", "alone"), ("english", "batch"), ("chat, thinking on", "chat"))
    ]
    made: dict[str, Any] = {
        "transformers": "5.19.0",
        "dtype": "bfloat16",
        "exact_dtype": "float32",
        "max_model_len": 2048,
        "prompts_differ": [],
        "config_differs": {},
        "rows": rows,
        "hypotheses": {},
        "refused": {},
        "lower": {},
    }
    return made | changes


def explained_by(name: str, **changes: Any) -> dict[str, Any]:
    """A server five times as far off as rounding explains, and a hypothesis under which nothing is left of it."""
    facts = said(error=0.15)
    return facts | {"hypotheses": {name: [one["served"] for one in facts["rows"]]}} | changes


THETA = "text_config.rope_parameters.rope_theta = 10000.0, as in the served config.json"
TEMPLATE = {
    "name": "chat, thinking off",
    "how": "chat",
    "at": 35,
    "served": "<think>\n",
    "reference": "<think>\n\n</think>\n\n",
}

CASES: list[Case] = table(
    "SERVE-010",
    {},
    Row("agrees", OK, {ASK: said()}, {"answers": 3, "tokens": 48, "most probable ones": 1.0, "of the rest, ties": "0 of 0", "error over bfloat16 noise": 1.0}),
    Row("a tie is no fault", OK, {ASK: said(short=0.05)}, {"most probable ones": 0.9375, "of the rest, ties": "3 of 3"}),
    Row("the dense model on the old release", OK, {ASK: said(error=0.01, noise=0.01)}, {"for RL": "yes, with importance correction: rounding in bfloat16 moves 56% of the ratios by more than 1%"}, stack=OLD_CPU),
    Row("a finer dtype than it is taken to have", WARN, {ASK: said(error=1e-6)}, {"error over bfloat16 noise": 0.0}, says="finer dtype"),
    Row("another rope base", FAIL, {ASK: explained_by(THETA, config_differs={"text_config.rope_parameters.rope_theta": [10000.0, 1e7]})}, {"cause": f"the server computes with {THETA}", "error over bfloat16 noise": 5.0}, says="--hf-overrides"),
    Row("another dtype", FAIL, {ASK: said(error=0.03, noise=1e-6, dtype="float32", exact_dtype="float64", lower={"bfloat16": [one["reference"] for one in said()["rows"]]})}, {"cause": "the server computes in bfloat16, not in float32"}),
    Row("another template", FAIL, {ASK: said(prompts_differ=[TEMPLATE])}, {"cause": "the chat template: in 'chat, thinking off' token 35 is the first that differs, served '<think>\\n', reference '<think>\\n\\n</think>\\n\\n'"}),
    Row("another tokenizer", FAIL, {ASK: said(prompts_differ=[TEMPLATE | {"name": "emoji", "how": "alone", "at": 0}])}, {"for RL": "no: find the difference first"}),
    Row("nothing explains it", FAIL, {ASK: said(error=0.15)}, {"cause": "unknown: 5.0 times as far off as rounding explains, and no hypothesis explains it"}),
    Row("a token that is no tie", FAIL, {ASK: said(short=0.5)}, {"of the rest, ties": "0 of 3"}),
    Row("logits instead", FAIL, {ASK: said(error=9.0)}, {"cause": "the server returns logits, not log-probabilities (--logprobs-mode)"}),
    Row("a model too large for a walk", SKIP, {ASK: {"skip": "the reference needs 21.0 GiB of memory and may take 8.0"}}, says="needs 21.0 GiB of memory and may take 8.0; runbook parity"),
    Row("a quantised checkpoint", SKIP, {ASK: {"skip": "the checkpoint is quantised: name what it was made from as the reference"}}, says="quantised"),
    Row("a server on a GPU", SKIP, {}, stack=GPU, says="runbook parity"),
    Row("the engine died of it", UNKNOWN, {ASK: {"error": "ValueError: /v1/completions answered 500: EngineCore encountered an issue"}}, says="answered 500"),
    Row("a release without token ids", UNKNOWN, {ASK: {"error": "ValueError: this release of vLLM does not return token ids (return_token_ids)"}}, says="return_token_ids"),
    Row("no transformers", UNKNOWN, {ASK: {"error": "ModuleNotFoundError: No module named 'transformers'"}}, says="transformers"),
    Row("a crash", UNKNOWN, {ASK: {"error": "the child ended without an answer (SIGKILL)", "rc": -9, "stderr": ""}}, says="SIGKILL"),
    stack=CPU,
)  # fmt: skip
