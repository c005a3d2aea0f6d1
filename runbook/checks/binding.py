"""SERVE: the limit that binds the server under load, by the file that a load run or ``runbook limits`` wrote."""

from runbook.checks import measured
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
from runbook.probe import Probe
from runbook.serving import limits

KIND = "limits"
HOW = "runbook validate, or runbook limits while it is under load"
ORIGIN = f"read {measured.place(KIND)}"
RESTART = Fix(
    "Stop it and start it again; its log may say why", ("runbook status", "runbook stop"), Risk.RESTART
)


@check(
    "SERVE-013",
    layer=Layer.SERVE,
    title="The limit that binds the server under load is known",
    why="A flag that is turned without knowing the limit changes nothing, or the wrong thing; the readings say which one binds.",
    source=Source(
        "vLLM: optimization and tuning",
        "https://docs.vllm.ai/en/stable/configuration/optimization/",
        "2026-11-30",
    ),
    cost=Cost.LIVE,
    needs_target=True,
    requires=("SERVE-001",),
)
def binds(host: Probe) -> Answer:
    """What was named from launch flags, the gauges and counters of /metrics, and the CPU of server and client."""
    facts = measured.of(host, KIND, HOW)
    if isinstance(facts, Answer):
        return facts
    seen = [Evidence("limit", facts["limit"], ORIGIN), Evidence("because", facts["says"], ORIGIN)]
    if facts["moves"]:
        seen.append(Evidence("what moves it", facts["moves"], "docs/warmup.md"))
    seen += [Evidence(str(name), value, ORIGIN) for name, value in facts["evidence"]]
    name = facts["limit"]
    if name == limits.STUCK:
        return fail(*seen, fix=RESTART, reason=facts["says"])
    if name == limits.IDLE:
        return skip(facts["says"], *seen)
    if name == limits.OPEN:
        return unknown(facts["says"], *seen)
    if name == limits.CLIENT:
        return warn(*seen, reason="what was measured is the client, not the server")
    return ok(*seen)


CHECKS = (binds,)
