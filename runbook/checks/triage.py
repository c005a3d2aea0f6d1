"""TRIAGE: what the log of this workspace's server says of a failure, by the signatures that ``runbook triage`` uses."""

from runbook.checks.warm import LOG
from runbook.model import Answer, Check, Cost, Evidence, Layer, Source, check, fail, ok, skip, unknown
from runbook.probe import Probe

MOST = 3


@check(
    "TRIAGE-001",
    layer=Layer.TRIAGE,
    title="The server's log speaks of no failure",
    why="Most of what a failing server prints are consequences; one line is the cause, and it is seldom the last.",
    source=Source(
        "vLLM: troubleshooting", "https://docs.vllm.ai/en/stable/usage/troubleshooting/", "2026-11-30"
    ),
    cost=Cost.LIVE,
)
def named(host: Probe) -> Answer:
    """The log of the last server, read as ``runbook triage`` reads it."""
    # RE2 and the signatures are loaded where there is a log to read: every `runbook check` imports this module.
    from runbook import triage  # noqa: PLC0415
    from runbook.triage import judge  # noqa: PLC0415

    log = host.read_text(LOG)
    if log is None:
        return skip("no server of this workspace was started, so there is no log")
    found = triage.read_text(log)
    origin = f"read {LOG}"
    if found.verdict == judge.CAUSE:
        first = found.causes[0]
        return fail(
            Evidence("cause", f"{first.key} ({first.sure.value})", origin),
            Evidence(first.line.where, first.line.line, origin),
            fix=first.signature.fix,
            reason=first.signature.why,
        )
    if found.verdict == judge.HEALTHY:
        return ok(
            Evidence("lines read", found.lines, origin), Evidence("lines that speak of a failure", 0, origin)
        )
    telling = [one.line for one in found.causes[:MOST]] or found.telling[:MOST]
    return unknown(found.reason, *(Evidence(one.where, one.line, origin) for one in telling))


CHECKS: tuple[Check, ...] = (named,)
