"""WARM: how the server came up, what it said on the way, and what the first user would have waited."""

import json
from typing import Any

from runbook import launch
from runbook.checks.readings import stack_of
from runbook.model import (
    Answer,
    Cost,
    Evidence,
    Fix,
    Layer,
    Risk,
    Source,
    check,
    fail,
    ok,
    skip,
    unknown,
    warn,
)
from runbook.parse import vllm_log
from runbook.probe import Probe

BOOT = "{work}/jobs/server.boot.json"
LOG = "{work}/jobs/server.log"
SERVED = "served"
FIRST = f"inside openai_requests kind=first model={SERVED} n=12 port={{port}}"
START = Fix("Start it and read the log's root line", ("runbook run 08_warmup",), Risk.RESTART)
FLAT = 3.0
NOISE_S = 0.1


def boot(host: Probe) -> dict[str, Any] | None:
    """What the last start wrote: stack, model, ready_s; None when no start finished."""
    try:
        facts = json.loads(host.read_text(BOOT) or "")
    except ValueError:
        return None
    return facts if isinstance(facts, dict) else None


def first_requests(host: Probe) -> dict[str, Any]:
    """The first requests a server answered, timed; asked once, since a server has only one first request."""
    return host.inside(
        "openai_requests", {"kind": "first", "port": "{port}", "model": SERVED, "n": "12"}, timeout_s=300.0
    )


@check(
    "WARM-001",
    layer=Layer.WARM,
    title="The server came up and answered on its port",
    why="The port is bound only when the engine is ready, so before that a hang and a long compile look alike from outside.",
    source=Source(
        "measured on an H200: only refused connections before ready, never a 503",
        "docs/measurements.md",
        "2026-11-30",
    ),
    cost=Cost.LIVE,
    needs_target=True,
)
def came_up(host: Probe) -> Answer:
    """The boot record, written when /health answered 200 for the first time."""
    facts = boot(host)
    if facts is None:
        root = vllm_log.root_line(host.read_text(LOG) or "")
        if root:
            return fail(
                Evidence("first error of the log", root, f"read {LOG}"),
                fix=START,
                reason="the server died before it was ready",
            )
        return unknown("no boot record: the server was not started by this runbook, or never became ready")
    seen = (
        Evidence("ready after (s)", facts.get("ready_s"), f"read {BOOT}"),
        Evidence("stack", facts.get("stack"), f"read {BOOT}"),
        Evidence("model", facts.get("model"), f"read {BOOT}"),
    )
    if facts.get("stack") != host.stack:
        return unknown("the boot record is of another stack", *seen)
    return ok(*seen)


@check(
    "WARM-002",
    layer=Layer.WARM,
    title="The server's log names no error",
    why="A server can answer /health while a worker has already logged what will break the first long request.",
    source=Source(
        "vLLM: troubleshooting", "https://docs.vllm.ai/en/stable/usage/troubleshooting/", "2026-11-30"
    ),
    cost=Cost.LIVE,
    needs_target=True,
    requires=("WARM-001",),
)
def quiet(host: Probe) -> Answer:
    """Lines at level ERROR and exceptions in the log."""
    log = host.read_text(LOG)
    if log is None or not log.strip():
        return unknown("there is no log, or nothing in it")
    errors, root = vllm_log.errors(log), vllm_log.root_line(log)
    seen = (
        Evidence("error lines", len(errors), f"read {LOG}"),
        Evidence("exception", root or "none", f"read {LOG}"),
    )
    return fail(*seen, fix=START) if errors or root else ok(*seen)


@check(
    "WARM-003",
    layer=Layer.WARM,
    title="The KV cache holds at least one sequence of the full context length",
    why="Less than that and vLLM refuses to start, or answers long prompts with preemption only.",
    source=Source(
        "vLLM: conserving memory",
        "https://docs.vllm.ai/en/stable/configuration/conserving_memory/",
        "2026-11-30",
    ),
    cost=Cost.LIVE,
    needs_target=True,
    requires=("WARM-001",),
)
def kv_cache(host: Probe) -> Answer:
    """'KV cache size' and 'Maximum concurrency' as the engine logged them."""
    log = host.read_text(LOG)
    kv = vllm_log.kv_cache(log or "")
    seen = (
        Evidence("KV cache (tokens)", kv.tokens, f"read {LOG}"),
        Evidence("concurrency at full length", kv.concurrency, f"read {LOG}"),
    )
    if kv.concurrency is None:
        return unknown("the log has no concurrency line that can be read", *seen)
    return (
        ok(*seen)
        if kv.concurrency >= 1
        else fail(*seen, fix=Fix("Shorten --max-model-len or give the cache more memory", risk=Risk.RESTART))
    )


@check(
    "WARM-004",
    layer=Layer.WARM,
    title="The price of the first request is known",
    why="The first user waits for what was not compiled or allocated before; a warm-up pays that bill in advance.",
    source=Source("measured on both CPU stacks and on an H200", "docs/measurements.md", "2026-11-30"),
    cost=Cost.LIVE,
    needs_target=True,
    requires=("WARM-001",),
)
def first(host: Probe) -> Answer:
    """Twelve requests of one token and four of 64, from ready on, through the openai SDK; then four with logprobs."""
    facts = first_requests(host)
    if "error" in facts:
        return fail(Evidence("error", str(facts["error"]), FIRST), fix=START)
    return ok(
        Evidence("first request (s)", facts["first_s"], FIRST),
        Evidence("steady median (s)", facts["steady_s"], FIRST),
        Evidence("first_over_steady", facts["first_over_steady"], FIRST),
        Evidence("longer_first_over_steady", facts["longer_first_over_steady"], FIRST),
    )


@check(
    "WARM-005",
    layer=Layer.WARM,
    title="After the first requests the latency is flat",
    why="A latency that still falls means that something is still being compiled; numbers taken now are not the server's.",
    source=Source(
        "measured on an H200: nothing improved after one tiny and one normal request",
        "docs/measurements.md",
        "2026-11-30",
    ),
    cost=Cost.LIVE,
    needs_target=True,
    requires=("WARM-004",),
)
def flat(host: Probe) -> Answer:
    """Largest over smallest of the later six of the twelve one-token requests."""
    spread = first_requests(host)["steady_spread"]
    seen = (
        Evidence("slowest over fastest", spread, FIRST),
        Evidence("taken as flat up to", FLAT, "checks/warm.py"),
    )
    return (
        ok(*seen)
        if spread <= FLAT
        else warn(
            *seen,
            reason="the machine is busy or the server still warms up; measure again before trusting numbers",
        )
    )


@check(
    "WARM-006",
    layer=Layer.WARM,
    title="What was compiled lies in a lasting folder, for the next start",
    why="Caches under /tmp are lost with the container, and the next start pays for the compile again.",
    source=Source(
        "PyTorch: compile-time caching",
        "https://docs.pytorch.org/tutorials/recipes/torch_compile_caching_tutorial.html",
        "2026-11-30",
    ),
    cost=Cost.LIVE,
    needs_target=True,
    requires=("WARM-001",),
)
def kept(host: Probe) -> Answer:
    """Folders under the stack's cache folder in the workspace."""
    stack = stack_of(host)
    pattern = f"{{work}}/caches/{stack.name}/*/*"
    found = host.glob(pattern)
    seen = Evidence("cache entries", len(found), f"glob {pattern}")
    if any(one.flag == "--enforce-eager" for one in launch.flags(stack)):
        return skip("the stack starts with --enforce-eager, which compiles no graph", seen)
    return ok(seen) if found else warn(seen, reason="nothing was kept; the next start compiles again")


@check(
    "WARM-007",
    layer=Layer.WARM,
    title="The first request with log-probabilities has been paid for",
    why="It compiles a helper of its own: seconds to half a minute for the first rollout, though /health was long green.",
    source=Source("measured on both CPU stacks: 4 s and 25 s", "docs/measurements.md", "2026-11-30"),
    cost=Cost.LIVE,
    needs_target=True,
    requires=("WARM-004",),
)
def logprobs(host: Probe) -> Answer:
    """One request with logprobs from the first moment on, and three more."""
    facts = first_requests(host)
    seen = (
        Evidence("first with logprobs (s)", facts["logprobs_first_s"], FIRST),
        Evidence("then (s)", facts["logprobs_steady_s"], FIRST),
    )
    if facts["logprobs_steady_s"] > facts["logprobs_first_s"] + NOISE_S:
        return warn(
            *seen, reason="later ones took longer than the first; the machine was busy, measure again"
        )
    return ok(*seen)


CHECKS = (came_up, quiet, kv_cache, first, flat, kept, logprobs)
