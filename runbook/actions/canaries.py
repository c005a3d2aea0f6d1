"""Ask a server the canaries: greedy answers with token ids and log-probabilities, alone and together."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from runbook.endpoint import Endpoint

TOKENS = 16
LIMIT_S = 120.0
PROMPTS = {
    "english": "A driver, a runtime and a wheel met on a machine.",
    "code": "def layers(stack):\n    return [",
    "numbers": "1 2 3 5 8 13 21",
    "long": "The gate opens when every finding is ok. " * 12,
}
# Two of the best at each place: how near a tie it was.
TOP = 2


def alone(endpoint: Endpoint) -> dict[str, dict[str, Any]]:
    """Each canary by itself, one after another; after one that failed the others are not asked, and fail with it."""
    found: dict[str, dict[str, Any]] = {}
    for name, prompt in PROMPTS.items():
        failed = next((one for one in found.values() if one["error"]), None)
        found[name] = failed or _asked(endpoint, prompt)
    return found


def together(endpoint: Endpoint, copies: int) -> dict[str, list[dict[str, Any]]]:
    """All canaries at once, each ``copies`` times."""
    words = [(name, prompt) for name, prompt in PROMPTS.items() for _ in range(copies)]
    with ThreadPoolExecutor(len(words)) as pool:
        answers = list(pool.map(lambda word: _asked(endpoint, word[1]), words))
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in PROMPTS}
    for (name, _), answer in zip(words, answers, strict=True):
        found[name].append(answer)
    return found


def _asked(endpoint: Endpoint, prompt: str) -> dict[str, Any]:
    import openai  # noqa: PLC0415 - half a second that only a run pays

    try:
        answer = endpoint.client.completions.create(
            model=endpoint.model, prompt=prompt, max_tokens=TOKENS, temperature=0.0, logprobs=TOP, seed=0,
            extra_body={"return_token_ids": True}, timeout=LIMIT_S,
        )  # fmt: skip
    except (openai.APIError, httpx.HTTPError) as why:
        behind = f" ({type(why.__cause__).__name__}: {why.__cause__})" if why.__cause__ else ""
        return {
            "error": f"{type(why).__name__}: {why}{behind}"[:300],
            "status": getattr(why, "status_code", 0),
        }
    if not answer.choices:
        return {"error": "an answer without choices", "status": 200}
    choice, usage = answer.choices[0], answer.usage
    read = getattr(choice, "prompt_token_ids", None) or getattr(answer, "prompt_token_ids", None)
    said = choice.logprobs
    places = (said.top_logprobs or []) if said else []
    offered = [_rounded(sorted((each or {}).values(), reverse=True)) for each in places]
    return {
        "error": "",
        "tokens": getattr(choice, "token_ids", None) or [],
        "logprobs": _rounded(said.token_logprobs or []) if said else [],
        "top": [each[0] if each else None for each in offered],
        "second": [each[1] if len(each) > 1 else None for each in offered],
        "finish": choice.finish_reason,
        "prompt_tokens": usage.prompt_tokens if usage else None,
        "completion_tokens": usage.completion_tokens if usage else None,
        "prompt_ids": len(read) if read else None,
    }


def _rounded(values: Iterable[float | None]) -> list[float | None]:
    """To a ten-thousandth: a file of them is read by people, too."""
    return [None if each is None else round(each, 4) for each in values]
