"""One reading of a running server: its gauges and counters from ``/metrics``, and what its processes and the client burn.

Names are those the server exports; what it does not export is None, never zero. Counters are kept as they stand, since the
server's start: a rate is what lies between two readings (``rate``), and a counter that falls means another server.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runbook.parse.metrics import Metrics

COUNTERS = {
    "prompt_tokens": "vllm:prompt_tokens_total",
    "generation_tokens": "vllm:generation_tokens_total",
    "preemptions": "vllm:num_preemptions_total",
    # Not prefix_cache_hits over prefix_cache_queries: a request that waits for blocks asks again at every step (0.19.1:
    # 209,400 tokens looked up while 14,400 were read).
    "cached_tokens": "vllm:prompt_tokens_cached_total",
    "finished": "vllm:request_success_total",
    "steps": "vllm:iteration_tokens_total_count",
    "step_tokens": "vllm:iteration_tokens_total_sum",
    "ttft_sum_s": "vllm:time_to_first_token_seconds_sum",
    "ttft_count": "vllm:time_to_first_token_seconds_count",
    "prompt_sum": "vllm:request_prompt_tokens_sum",
    "prompt_count": "vllm:request_prompt_tokens_count",
}


@dataclass(frozen=True)
class Reading:
    """A moment: ``at`` in seconds on a clock that only goes forward; CPU in cores' worth since the reading before.

    ``kv_use`` is a share of 1; ``deferred`` are those waiting for something else than room. ``server_cpu`` and ``server_rss_mib`` are of all the server's processes, ``front_cpu`` of
    the one that answers HTTP, ``client_cpu`` of the one that asks; None where it is not ours to see. ``missed`` says why
    ``/metrics`` gave nothing, "" when it did.
    """

    at: float
    running: float | None = None
    waiting: float | None = None
    kv_use: float | None = None
    deferred: float | None = None
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    preemptions: float | None = None
    cached_tokens: float | None = None
    finished: float | None = None
    steps: float | None = None
    step_tokens: float | None = None
    ttft_sum_s: float | None = None
    ttft_count: float | None = None
    prompt_sum: float | None = None
    prompt_count: float | None = None
    prompt_tps: float | None = None
    gen_tps: float | None = None
    server_cpu: float | None = None
    front_cpu: float | None = None
    server_rss_mib: float | None = None
    client_cpu: float | None = None
    missed: str = ""


def of(page: Metrics, at: float, before: Reading | None = None) -> Reading:
    """The reading of a page; tokens a second are since ``before``."""
    counters: dict[str, Any] = {name: page.total(sample) for name, sample in COUNTERS.items()}
    now = Reading(
        at,
        page.total("vllm:num_requests_running"),
        page.total("vllm:num_requests_waiting"),
        page.most("vllm:kv_cache_usage_perc"),
        page.total("vllm:num_requests_waiting_by_reason", reason="deferred"),
        **counters,
    )
    if before is None:
        return now
    return dataclasses.replace(
        now,
        prompt_tps=rate((before, now), "prompt_tokens"),
        gen_tps=rate((before, now), "generation_tokens"),
    )


def grown(rows: Sequence[Reading], counter: str) -> float | None:
    """How much a counter grew from the first reading that has it to the last; None where fewer than two have, or it fell."""
    have = [value for row in rows if (value := getattr(row, counter)) is not None]
    if len(have) < 2 or have[-1] < have[0]:  # noqa: PLR2004 - growth lies between two
        return None
    return float(have[-1] - have[0])


def rate(rows: Sequence[Reading], counter: str) -> float | None:
    """``grown`` a second."""
    have = [row for row in rows if getattr(row, counter) is not None]
    much = grown(have, counter)
    seconds = have[-1].at - have[0].at if have else 0.0
    return much / seconds if much is not None and seconds > 0 else None
