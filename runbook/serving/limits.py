"""Which limit binds a server under load, from its launch and a window of readings; and when nothing follows from them.

A limit is named only where the readings show it: requests wait, and the thing they wait for is used up. An idle server gets
no advice, and a window that fits no rule gets no verdict.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runbook.parse import vllm_log
from runbook.parse.metrics import Metrics
from runbook.parse.numbers import whole
from runbook.serving.reading import Reading, grown, rate

IDLE, STUCK, OPEN, NONE = "idle", "stuck", "no verdict", "none reached"
SEQS, KV, STATE, BUDGET = "max-num-seqs", "KV cache", "GDN state blocks", "token budget"
CLIENT, FRONT, COMPUTE = "client", "API server process", "compute"
NAMED = (SEQS, KV, STATE, BUDGET, CLIENT, FRONT, COMPUTE)

FEWEST = 5  # readings under load
MOSTLY = 0.5
STUCK_S = 10.0
BUSY = 0.9  # of a core, or of all of them: a process that is never quite scheduled reads a little less than it could use
REACHED = 0.8  # of what clients offer, is being worked on
GREW, FLAT = 1.5, 1.1
OFTEN = 0.01  # preemptions for each finished request: below it the cache is full at times, not the limit
HITS_FLOOR = 1000.0  # prompt tokens, below which a hit rate says nothing

MOVES = {
    SEQS: "raise --max-num-seqs; the KV cache must have room for it",
    KV: "give the cache more memory (--gpu-memory-utilization; on a CPU VLLM_CPU_KVCACHE_SPACE), shorten --max-model-len, or --kv-cache-dtype fp8",
    STATE: "each sequence of a hybrid model holds its recurrent state whatever its length: more memory, or a lower --max-num-seqs",
    BUDGET: "raise --max-num-batched-tokens: prefill is quicker, and tokens of running answers come later",
    CLIENT: "the server is not the limit: more client processes, or a client on another machine",
    FRONT: "one process does HTTP, templates and tokens: --api-server-count",
    COMPUTE: "no flag: a faster or a further card, a smaller or quantised model",
    STUCK: "runbook status; then runbook stop, and start it again",
}


@dataclass(frozen=True)
class Launch:
    """How a server was started, as far as it says; None for what it does not say.

    ``states`` are the blocks that a sequence begins with for its recurrent state, whatever its length; 0 for a model without.
    ``cores`` are those the server may use where it computes on the CPU, None for one on a card.
    """

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    blocks: int | None = None
    block_size: int | None = None
    blocks_overridden: bool = False
    states: int = 0
    cores: float | None = None


def launch(
    flags: Mapping[str, str], page: Metrics, log: str, max_model_len: int | None, cores: float | None
) -> Launch:
    """What is known of a start: its flags, ``vllm:cache_config_info`` of its metrics, and its log."""
    cache = page.labels("vllm:cache_config_info")
    blocks, size = whole(cache.get("num_gpu_blocks", "")), whole(cache.get("block_size", ""))
    concurrency = _number(cache.get("kv_cache_max_concurrency", "")) or vllm_log.kv_cache(log).concurrency
    states = 0
    # A dense model says mamba_block_size None, or nothing at all.
    if blocks and size and max_model_len and concurrency and whole(cache.get("mamba_block_size", "")):
        states = max(0, round(blocks / concurrency) - math.ceil(max_model_len / size))
        if cache.get("mamba_cache_mode") == "align":
            # A sequence may come to keep the state before its last block too; it begins with one (runbook.memory.cache).
            states //= 2
    budget = whole(flags.get("--max-num-batched-tokens", "")) or whole(
        log.rpartition("max_num_batched_tokens=")[2].partition(".")[0].partition(",")[0]
    )
    return Launch(
        whole(flags.get("--max-num-seqs", "")),
        budget,
        max_model_len,
        blocks,
        size,
        cache.get("num_gpu_blocks_override", "None") != "None",
        states,
        cores,
    )


@dataclass(frozen=True)
class Limit:
    """What binds: one of ``NAMED``, or IDLE, STUCK, NONE, OPEN. ``says`` is why, ``moves`` what would move it ("" for none).

    ``evidence`` are (what, value) pairs of the window.
    """

    name: str
    says: str
    moves: str
    evidence: tuple[tuple[str, str | float | int | None], ...]


@dataclass(frozen=True)
class Lower:
    """A window at a lower load: how many requests were offered at once, and tokens a second (read and made)."""

    offered: float
    tps: float


def judge(
    start: Launch, rows: Sequence[Reading], offered: float | None = None, lower: Lower | None = None
) -> Limit:
    """The limit that a window of readings shows. ``offered``: how many requests clients keep open at once."""
    read = [row for row in rows if row.running is not None and row.waiting is not None]
    loaded = [row for row in read if _sum(row) > 0]
    facts = _facts(start, read, loaded, offered)
    if stuck := _stuck(read):
        return Limit(STUCK, f"requests ran for {stuck:.0f} s and no token came", MOVES[STUCK], facts)
    if not read:
        return Limit(OPEN, "no reading of /metrics says what runs", "", facts)
    if not loaded:
        return Limit(IDLE, "nothing was asked of it in this time: no advice", "", facts)
    if len(loaded) < FEWEST:
        return Limit(OPEN, f"{len(loaded)} readings under load; {FEWEST} are needed", "", facts)
    queued = [row for row in loaded if row.waiting]
    if len(queued) >= MOSTLY * len(loaded):
        name, says = _queue(start, queued)
    else:
        name, says = _no_queue(start, loaded, offered, lower)
    moves = MOVES.get(name, "")
    if name in (KV, STATE) and start.blocks_overridden:
        moves = f"leave out --num-gpu-blocks-override; {moves}"
    return Limit(name, says, moves, facts)


def _queue(start: Launch, queued: Sequence[Reading]) -> tuple[str, str]:
    """Requests wait: for a place, for blocks, for a share of the step's tokens?"""
    running = statistics.median(row.running or 0 for row in queued)
    full = start.max_num_seqs
    preempted, finished = grown(queued, "preemptions") or 0, grown(queued, "finished") or 0
    if preempted and preempted >= OFTEN * finished:
        return _memory(
            start,
            queued,
            f"preemptions: {preempted:.0f}; requests were thrown out of the cache while they ran",
        )
    if full and sum((row.running or 0) >= full for row in queued) >= MOSTLY * len(queued):
        return (
            SEQS,
            f"requests waited while {running:.0f} ran, which is all that --max-num-seqs {full} allows",
        )
    if room := _no_room(start, queued):
        return _memory(start, queued, room)
    steps, tokens = grown(queued, "steps"), grown(queued, "step_tokens")
    budget = start.max_num_batched_tokens
    if budget and steps and tokens is not None and tokens / steps >= MOSTLY * budget:
        return BUDGET, f"a step took {tokens / steps:.0f} tokens on average, of the {budget} it may take"
    if sum((row.deferred or 0) >= MOSTLY * (row.waiting or 0) for row in queued) >= MOSTLY * len(queued):
        return OPEN, "requests wait for something else than room: a grammar, an adapter or a transfer"
    return OPEN, "requests wait, and no limit that is known here is used up"


def _no_room(start: Launch, queued: Sequence[Reading]) -> str:
    """Why the next request finds no blocks; "" where it does, or where that cannot be told."""
    uses = [row.kv_use for row in queued if row.kv_use is not None]
    if not uses:
        return ""
    use = statistics.median(uses)
    need = _need(start, queued)
    if start.blocks and need is not None:
        free = (1 - use) * start.blocks
        if free < need:
            return f"{free:.0f} of {start.blocks} blocks were free, and a request needs {need}"
        return ""
    return f"{use:.0%} of the cache was in use" if use >= BUSY else ""


def _need(start: Launch, queued: Sequence[Reading]) -> int | None:
    """Blocks that a request of the window's average prompt needs to begin; None where none has finished in it."""
    total, count = grown(queued, "prompt_sum"), grown(queued, "prompt_count")
    if not (start.block_size and total is not None and count):
        return None
    return math.ceil(total / count / start.block_size) + start.states


def _memory(start: Launch, queued: Sequence[Reading], says: str) -> tuple[str, str]:
    """Blocks are used up: by keys and values, or by recurrent state that a sequence holds however short it is?"""
    held = [
        row.kv_use * start.blocks / row.running
        for row in queued
        if row.kv_use is not None and row.running and start.blocks
    ]
    each = statistics.median(held) if held else 0.0
    if start.states and each and start.states > MOSTLY * each:
        return (
            STATE,
            f"{says}; of the {each:.1f} blocks that each held, {start.states} are its recurrent state",
        )
    return KV, says


def _no_queue(
    start: Launch, loaded: Sequence[Reading], offered: float | None, lower: Lower | None
) -> tuple[str, str]:
    """Nothing waits in the server: is it the client, the front process, or the computing itself?"""
    running = statistics.median(row.running or 0 for row in loaded)
    ours, front, whole_server = (
        _median([getattr(row, name) for row in loaded]) for name in ("client_cpu", "front_cpu", "server_cpu")
    )
    if offered and running < REACHED * offered:
        lag = f"{running:.0f} of {offered:.0f} requests were in the engine and none waited there"
        if ours is not None and ours >= BUSY:
            return CLIENT, f"{lag}; the client used {ours:.1f} cores"
        if front is not None and front >= BUSY:
            return FRONT, f"{lag}; the process that answers HTTP used {front:.1f} cores"
        return OPEN, f"{lag}; neither the client nor the process that answers HTTP was busy"
    if start.cores and whole_server is not None and whole_server + (ours or 0) >= BUSY * start.cores:
        used = f"{whole_server:.1f} of {start.cores:g} cores, the client {ours or 0:.1f}"
        return (COMPUTE if whole_server > (ours or 0) else CLIENT), f"nothing waited; the server used {used}"
    now = tps(loaded)
    if lower and offered and now is not None and offered >= GREW * lower.offered and now < FLAT * lower.tps:
        return COMPUTE, (
            f"{offered:.0f} requests at once instead of {lower.offered:.0f} brought {now:.0f} tokens/s instead of {lower.tps:.0f}"
        )
    return NONE, "no request waited, and nothing was used up"


def _stuck(rows: Sequence[Reading]) -> float:
    """Seconds at the end of the window in which requests ran and no counter of tokens moved; 0 where that was not long."""
    last, since = None, None
    for row in rows:
        tokens = (row.prompt_tokens, row.generation_tokens)
        if not row.running or None in tokens:
            last, since = None, None
        elif tokens != last:
            last, since = tokens, row.at
    still = rows[-1].at - since if rows and since is not None else 0.0
    return still if still >= STUCK_S else 0.0


def tps(rows: Sequence[Reading]) -> float | None:
    """Tokens a second over a window, read and made together."""
    read, made = rate(rows, "prompt_tokens"), rate(rows, "generation_tokens")
    return None if read is None or made is None else read + made


def hit_rate(rows: Sequence[Reading]) -> float | None:
    """Share of prompt tokens that came from the prefix cache; None below ``HITS_FLOOR`` prompt tokens."""
    asked, hits = grown(rows, "prompt_tokens"), grown(rows, "cached_tokens")
    return hits / asked if asked is not None and hits is not None and asked >= HITS_FLOOR else None


def _facts(
    start: Launch, read: Sequence[Reading], loaded: Sequence[Reading], offered: float | None
) -> tuple[tuple[str, str | float | int | None], ...]:
    seconds = read[-1].at - read[0].at if read else 0.0
    kv = _median([row.kv_use for row in loaded])
    found: list[tuple[str, str | float | int | None]] = [
        ("watched (s)", round(seconds, 1)),
        ("readings under load", f"{len(loaded)} of {len(read)}"),
    ]
    if not loaded:
        return tuple(found)
    preempted, finished = grown(read, "preemptions"), grown(read, "finished")
    rows: list[tuple[str, str | float | int | None]] = [
        ("offered at once", None if offered is None else round(offered)),
        ("running (median)", _round(_median([row.running for row in loaded]))),
        ("waiting (median)", _round(_median([row.waiting for row in loaded]))),
        ("--max-num-seqs", start.max_num_seqs),
        ("KV cache in use (median)", None if kv is None else f"{kv:.0%}"),
        ("preemptions", None if preempted is None else f"{preempted:.0f} of {finished or 0:.0f} finished"),
        ("prefix-cache hits", None if (hits := hit_rate(read)) is None else f"{hits:.0%}"),
        ("tokens/s", _round(tps(read))),
        ("server CPU (cores)", _round(_median([row.server_cpu for row in loaded]), 2)),
        ("client CPU (cores)", _round(_median([row.client_cpu for row in loaded]), 2)),
    ]
    return (*found, *(row for row in rows if row[1] is not None))


def as_facts(found: Limit) -> dict[str, Any]:
    """A limit as it is written down for the checks."""
    return {
        "limit": found.name,
        "says": found.says,
        "moves": found.moves,
        "evidence": [list(pair) for pair in found.evidence],
    }


def _sum(row: Reading) -> float:
    return (row.running or 0) + (row.waiting or 0)


def _median(values: Sequence[float | None]) -> float | None:
    have = [value for value in values if value is not None]
    return statistics.median(have) if have else None


def _round(value: float | None, digits: int = 1) -> float | None:
    return None if value is None else round(value, digits)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
