"""SERVE: real requests to the real server, and what must be true of its answers. Nothing here is said of a server that was not asked."""

import json
from typing import Any

from runbook.checks.readings import stack_of
from runbook.checks.warm import SERVED, START, boot
from runbook.model import Answer, Cost, Evidence, Fix, Layer, Risk, Source, check, fail, ok, unknown, warn
from runbook.parse import metrics
from runbook.probe import Probe

API = Source(
    "vLLM: OpenAI-compatible server",
    "https://docs.vllm.ai/en/stable/serving/openai_compatible_server/",
    "2026-11-30",
)
COUNTERS = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:request_success_total")
UNAUTHORIZED = 401
ASKED_TOKENS = 16


ORIGIN = f"inside openai_requests kind=serving model={SERVED} n=8 port={{port}}"


def _asked(host: Probe, part: str) -> dict[str, Any]:
    """One part of the requests of this page; all are sent in one go, since importing the SDK takes longer than they do."""
    args = {"kind": "serving", "port": "{port}", "model": SERVED, "n": "8"}
    facts = host.inside("openai_requests", args, timeout_s=240.0)
    found: dict[str, Any] = facts if "error" in facts else facts[part]
    return found


def _broken(facts: dict[str, Any]) -> Answer | None:
    return fail(Evidence("error", str(facts["error"]), ORIGIN), fix=START) if "error" in facts else None


@check(
    "SERVE-001",
    layer=Layer.SERVE,
    title="/health answers 200",
    why="It is the readiness probe of every orchestrator. Its body is empty: a probe that parses JSON there never succeeds.",
    source=Source(
        "vLLM 0.19.1: the health endpoint",
        "https://github.com/vllm-project/vllm/blob/v0.19.1/vllm/entrypoints/serve/instrumentator/health.py",
        "2026-11-30",
    ),
    cost=Cost.LIVE,
    needs_target=True,
)
def health(host: Probe) -> Answer:
    """GET /health."""
    reply = host.http("GET", "/health")
    seen = (
        Evidence("status", reply.status or reply.body, "http GET /health"),
        Evidence("body (bytes)", len(reply.body) if reply.status else None, "http GET /health"),
    )
    return ok(*seen) if reply.status == 200 else fail(*seen, fix=START)  # noqa: PLR2004


@check(
    "SERVE-002",
    layer=Layer.SERVE,
    title="The server is the vLLM that the stack pins",
    why="A server left by somebody else answers on the same port just as gladly.",
    source=API,
    cost=Cost.LIVE,
    needs_target=True,
    requires=("SERVE-001",),
)
def version(host: Probe) -> Answer:
    """GET /version, and the stack in the boot record."""
    reply = host.http("GET", "/version")
    try:
        have = json.loads(reply.body).get("version")
    except (ValueError, AttributeError):
        return unknown("GET /version gave no JSON", Evidence("status", reply.status, "http GET /version"))
    stack = stack_of(host)
    started = (boot(host) or {}).get("stack")
    seen = (
        Evidence("version", have, "http GET /version"),
        Evidence("pinned", stack.vllm, f"stacks/{stack.name}/manifest.toml"),
        Evidence("started from", started, "read {work}/jobs/server.boot.json"),
    )
    return (
        ok(*seen)
        if str(have).split("+")[0] == stack.vllm
        else fail(*seen, fix=Fix("Stop it and start ours", ("runbook stop",), Risk.RESTART))
    )


@check(
    "SERVE-003",
    layer=Layer.SERVE,
    title="A request without the key is refused",
    why="A port forwarded by mistake would otherwise give the card to whoever finds it. Only /v1 is guarded, not /metrics.",
    source=API,
    cost=Cost.LIVE,
    needs_target=True,
    requires=("SERVE-001",),
)
def key(host: Probe) -> Answer:
    """GET /v1/models with no Authorization header."""
    reply = host.http("GET", "/v1/models")
    seen = Evidence("status without key", reply.status, "http GET /v1/models")
    if not reply.status:
        return unknown(f"the server is gone: {reply.body}", seen)
    return (
        ok(seen)
        if reply.status == UNAUTHORIZED
        else fail(seen, fix=Fix("Start it with VLLM_API_KEY set, as the runbook does", risk=Risk.RESTART))
    )


@check(
    "SERVE-004",
    layer=Layer.SERVE,
    title="A completion has text, a stop reason and token counts that add up",
    why="Usage counts feed billing, scheduling and rollout lengths; a wrong one is noticed weeks later.",
    source=API,
    cost=Cost.LIVE,
    needs_target=True,
    requires=("SERVE-001",),
)
def completion(host: Probe) -> Answer:
    """One greedy completion of at most 16 tokens."""
    facts = _asked(host, "completion")
    if broken := _broken(facts):
        return broken
    seen = [
        Evidence(name, facts[name], ORIGIN)
        for name in ("text", "finish_reason", "prompt_tokens", "completion_tokens")
    ]
    right = (
        facts["finish_reason"] in ("length", "stop")
        and 0 < facts["completion_tokens"] <= ASKED_TOKENS
        and facts["prompt_tokens"] > 0
    )
    return ok(*seen) if right and facts["text"] else fail(*seen, fix=START)


@check(
    "SERVE-005",
    layer=Layer.SERVE,
    title="A chat answer has content",
    why="With a reasoning parser and a model that does not think by default, content comes back empty and the answer elsewhere.",
    source=Source(
        "vLLM issue 53284: empty content with the reasoning parser",
        "https://github.com/vllm-project/vllm/issues/53284",
        "2026-11-30",
    ),
    cost=Cost.LIVE,
    needs_target=True,
    requires=("SERVE-001",),
)
def chat(host: Probe) -> Answer:
    """One chat answer through the checkpoint's own template."""
    facts = _asked(host, "chat")
    if broken := _broken(facts):
        return broken
    seen = [
        Evidence(name, facts[name], ORIGIN)
        for name in ("role", "content", "finish_reason", "completion_tokens")
    ]
    return (
        ok(*seen)
        if facts["content"] and facts["role"] == "assistant"
        else fail(
            *seen, fix=Fix("Drop the reasoning parser, or ask with enable_thinking set", risk=Risk.RESTART)
        )
    )


@check(
    "SERVE-006",
    layer=Layer.SERVE,
    title="Streaming delivers token by token",
    why="A proxy or a template that buffers turns a stream into one late answer; time to first token then means nothing.",
    source=API,
    cost=Cost.LIVE,
    needs_target=True,
    requires=("SERVE-001",),
)
def stream(host: Probe) -> Answer:
    """Chunks of one streamed answer of 32 tokens, and when the first and the last came."""
    facts = _asked(host, "stream")
    if broken := _broken(facts):
        return broken
    chunks, ttft, last = facts["chunks"], facts["ttft_s"], facts["last_s"]
    seen = (
        Evidence("chunks with text", chunks, ORIGIN),
        Evidence("tokens", facts["completion_tokens"], ORIGIN),
        Evidence("TTFT (s)", ttft, ORIGIN),
        Evidence("median ITL (s)", facts["itl_median_s"], ORIGIN),
    )
    spread = chunks > 1 and isinstance(ttft, float) and isinstance(last, float) and ttft < last
    return (
        ok(*seen)
        if spread
        else fail(*seen, fix=Fix("Ask the server directly, without the proxy between", risk=Risk.NONE))
    )


@check(
    "SERVE-007",
    layer=Layer.SERVE,
    title="Greedy decoding repeats",
    why="An RL trainer compares log-probabilities with the server's; answers that change at temperature 0 poison that.",
    source=Source(
        "vLLM: reproducibility", "https://docs.vllm.ai/en/stable/usage/reproducibility/", "2026-11-30"
    ),
    cost=Cost.LIVE,
    needs_target=True,
    requires=("SERVE-001",),
)
def repeats(host: Probe) -> Answer:
    """One prompt eight times alone and eight times at once, temperature 0."""
    facts = _asked(host, "repeat")
    if broken := _broken(facts):
        return broken
    seen = [
        Evidence(label, facts[name], ORIGIN)
        for label, name in (
            ("distinct answers alone", "distinct_alone"),
            ("distinct at once", "distinct_together"),
            ("same alone and at once", "same_alone_and_together"),
        )
    ]
    if facts["distinct_alone"] != 1:
        return fail(
            *seen,
            fix=Fix("Look for sampling defaults in generation_config.json and for a seed", risk=Risk.RESTART),
        )
    return (
        ok(*seen)
        if facts["distinct_together"] == 1 and facts["same_alone_and_together"]
        else warn(*seen, reason="company in the batch changes the answer; a trainer must know")
    )


@check(
    "SERVE-008",
    layer=Layer.SERVE,
    title="The server counts the tokens it makes",
    why="Counters that stand still while requests run are how a stuck engine looks; without them nobody notices.",
    source=Source("vLLM: production metrics", "https://docs.vllm.ai/en/stable/usage/metrics/", "2026-11-30"),
    cost=Cost.LIVE,
    needs_target=True,
    requires=("SERVE-004",),
)
def counts(host: Probe) -> Answer:
    """The counters on /metrics after the requests above."""
    reply = host.http("GET", "/metrics")
    if not reply.status:
        return unknown(f"the server is gone: {reply.body}")
    totals = metrics.totals(reply.body)
    seen = [
        Evidence(name, int(totals[name]) if name in totals else None, "http GET /metrics")
        for name in COUNTERS
    ]
    if any(each.value is None for each in seen):
        return fail(
            *seen,
            fix=Fix(
                "Start it without --disable-log-stats, which removes every vllm: metric", risk=Risk.RESTART
            ),
        )
    return ok(*seen) if all(each.value for each in seen) else fail(*seen, fix=START)


@check(
    "SERVE-009",
    layer=Layer.SERVE,
    title="The server was stopped and left no process behind",
    why="An engine process that outlives its API server keeps the whole card's memory.",
    source=Source(
        "measured: what kill -9 of the API server leaves behind", "docs/measurements.md", "2026-11-30"
    ),
    cost=Cost.LIVE,
    needs_target=True,
)
def stopped(host: Probe) -> Answer:
    """The keeper's end record, and a look through /proc for processes that carry the job's mark."""
    path = "{work}/jobs/server.ended.json"
    look = ["{own}/python", "-m", "runbook.actions.left", "{work}/jobs"]
    ran = host.run(look)
    try:
        reason = str(json.loads(host.read_text(path) or "")["reason"])
    except (ValueError, KeyError, TypeError):
        return unknown("there is no end record: the server still runs, or its keeper was killed")
    left = ran.out.splitlines()
    seen = (
        Evidence("ended because", reason, f"read {path}"),
        Evidence("processes left", len(left), "run {own}/python -m runbook.actions.left {work}/jobs"),
    )
    if not ran.ok:
        return unknown("the look through /proc failed", *seen)
    if left:
        return fail(*seen, fix=Fix("Sweep them up", ("runbook stop",), Risk.RESTART))
    if reason == "stopped":
        return ok(*seen)
    return warn(*seen, reason="it did not end because we asked it to; read its log")


CHECKS = (health, version, key, completion, chat, stream, repeats, counts, stopped)
