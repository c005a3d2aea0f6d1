"""Run by the target interpreter: real requests through the openai SDK. Prints one JSON object.

``--kind KIND --port PORT --model NAME [--n N]``; the key comes from the variable VLLM_API_KEY.

first      N requests of one token, four of 64 and four with logprobs, timed in the order a first user meets them (seconds)
serving    what page 09 judges, in one go, each part under its name:
           completion  one completion of 16 tokens
           chat        one chat answer of 24 tokens
           stream      one streamed chat answer: chunks, time to first token, time of all (seconds)
           repeat      one greedy prompt N times alone, then N times at once
"""

import argparse
import itertools
import json
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

PROMPT = "A driver, a runtime and a wheel met on a machine."
GREEDY = {"temperature": 0.0, "seed": 0}


def _timed(call: Any) -> tuple[float, Any]:
    started = time.perf_counter()
    answer = call()
    return round(time.perf_counter() - started, 4), answer


def first(client: Any, model: str, n: int) -> dict[str, Any]:
    """The first short request against the steady median, then the first longer one against its own repeats."""
    short = [
        _timed(lambda: client.completions.create(model=model, prompt="Hello", max_tokens=1, **GREEDY))[0]
        for _ in range(n)
    ]
    longer = [
        _timed(
            lambda: client.completions.create(
                model=model, prompt=PROMPT * 4, max_tokens=64, extra_body={"ignore_eos": True}, **GREEDY
            )
        )[0]
        for _ in range(4)
    ]
    logprobs = [
        _timed(
            lambda: client.completions.create(model=model, prompt="Hello", max_tokens=1, logprobs=1, **GREEDY)
        )[0]
        for _ in range(4)
    ]
    steady, steady_long = statistics.median(short[n // 2 :]), statistics.median(longer[1:])
    return {
        "logprobs_first_s": logprobs[0],
        "logprobs_steady_s": round(statistics.median(logprobs[1:]), 4),
        "short_s": short,
        "longer_s": longer,
        "first_s": short[0],
        "steady_s": round(steady, 4),
        "first_over_steady": round(short[0] / steady, 2),
        "longer_first_over_steady": round(longer[0] / steady_long, 2),
        # Largest against smallest of the later half: near 1 when warm-up is over.
        "steady_spread": round(max(short[n // 2 :]) / min(short[n // 2 :]), 2),
    }


def completion(client: Any, model: str, _: int) -> dict[str, Any]:
    """Text, stop reason and token counts of one completion."""
    seconds, answer = _timed(
        lambda: client.completions.create(model=model, prompt=PROMPT, max_tokens=16, **GREEDY)
    )
    choice = answer.choices[0]
    return {
        "text": choice.text,
        "finish_reason": choice.finish_reason,
        "prompt_tokens": answer.usage.prompt_tokens,
        "completion_tokens": answer.usage.completion_tokens,
        "seconds": seconds,
    }


def chat(client: Any, model: str, _: int) -> dict[str, Any]:
    """Content, stop reason and token counts of one chat answer."""
    messages = [{"role": "user", "content": "Say something about the machine."}]
    seconds, answer = _timed(
        lambda: client.chat.completions.create(model=model, messages=messages, max_tokens=24, **GREEDY)
    )
    choice = answer.choices[0]
    return {
        "role": choice.message.role,
        "content": choice.message.content,
        "finish_reason": choice.finish_reason,
        "prompt_tokens": answer.usage.prompt_tokens,
        "completion_tokens": answer.usage.completion_tokens,
        "seconds": seconds,
    }


def stream(client: Any, model: str, _: int) -> dict[str, Any]:
    """Arrival of the chunks of one streamed answer."""
    messages = [{"role": "user", "content": "Count the layers."}]
    started = time.perf_counter()
    arrived, text, usage = [], "", None
    for chunk in client.chat.completions.create(
        model=model,
        messages=messages,
        max_tokens=32,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
        **GREEDY,
    ):
        if chunk.usage:
            usage = chunk.usage
        if chunk.choices and chunk.choices[0].delta.content:
            arrived.append(time.perf_counter() - started)
            text += chunk.choices[0].delta.content
    gaps = [later - earlier for earlier, later in itertools.pairwise(arrived)]
    return {
        "chunks": len(arrived),
        "text": text,
        "completion_tokens": usage.completion_tokens if usage else None,
        "ttft_s": round(arrived[0], 4) if arrived else None,
        "last_s": round(arrived[-1], 4) if arrived else None,
        "itl_median_s": round(statistics.median(gaps), 4) if gaps else None,
    }


def _greedy(client: Any, model: str, prompt: str) -> str:
    text: str = client.completions.create(model=model, prompt=prompt, max_tokens=24, **GREEDY).choices[0].text
    return text


def repeat(client: Any, model: str, n: int) -> dict[str, Any]:
    """Distinct answers to one prompt at temperature 0."""
    alone = [_greedy(client, model, PROMPT) for _ in range(n)]
    with ThreadPoolExecutor(n) as pool:
        together = list(pool.map(lambda _: _greedy(client, model, PROMPT), range(n)))
    return {
        "calls": n,
        "distinct_alone": len(set(alone)),
        "distinct_together": len(set(together)),
        "same_alone_and_together": set(alone) == set(together),
        "text": alone[0],
    }


def serving(client: Any, model: str, n: int) -> dict[str, Any]:
    """The parts of page 09; one that fails carries its own error and does not hide the others."""
    parts: dict[str, Any] = {}
    for part in (completion, chat, stream, repeat):
        try:
            parts[part.__name__] = part(client, model, n)
        except Exception as why:
            parts[part.__name__] = {"error": f"{type(why).__name__}: {why}"}
    return parts


KINDS = {"first": first, "serving": serving}


def main() -> None:
    """Send the requests of one kind."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", required=True, choices=KINDS)
    parser.add_argument("--port", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--n", type=int, default=8)
    args = parser.parse_args()
    try:
        import openai

        client = openai.OpenAI(
            base_url=f"http://127.0.0.1:{args.port}/v1",
            api_key=os.environ.get("VLLM_API_KEY", "none"),
            max_retries=0,
            timeout=90,
        )
        answer = KINDS[args.kind](client, args.model, args.n)
    except Exception as why:
        print(json.dumps({"error": f"{type(why).__name__}: {why}"}))
        return
    print(json.dumps(answer, ensure_ascii=False))


if __name__ == "__main__":
    main()
