"""SERVE: does the server that runs make progress, and can it go on writing? Judged by ``runbook.serving.state``."""

import json

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
    unknown,
    warn,
)
from runbook.probe import Probe
from runbook.serving import state

LOOK = ["{own}/python", "-m", "runbook.actions.looking", "{work}/jobs"]
ORIGIN = "run {own}/python -m runbook.actions.looking {work}/jobs"
# A look waits up to 10 s for progress and as long for answers; imports and a busy machine come on top.
LIMIT_S = 60.0
MIB = 1 << 20
# Above it the keeper drops the middle of a log (actions/keeper.py).
LOG_CAP_MIB = 256
# An end record and the last lines of a log take less; below this the next burst of lines is lost.
FULL_MIB = 64
# A log to its cap and the one before it, compile caches, findings.
LOW_MIB = 1_000
MOVE = Fix("Make room, or put the workspace on a larger disk", ("df -h", "runbook clean"), Risk.NONE)


def _seen(host: Probe) -> state.Look | Answer:
    ran = host.run(LOOK, timeout_s=LIMIT_S)
    try:
        found = state.read(json.loads(ran.out)) if ran.ok else None
    except ValueError:
        found = None
    return found or unknown("the look at the server gave no answer", Evidence("exit code", ran.rc, ORIGIN))


@check(
    "SERVE-019",
    layer=Layer.SERVE,
    title="The server makes progress or waits for work",
    why="A stuck engine keeps its port open and answers /health with 200; only counters, process states and records tell.",
    source=Source("vLLM: production metrics", "https://docs.vllm.ai/en/stable/usage/metrics/", "2026-11-30"),
    cost=Cost.LIVE,
    needs_target=True,
)
def progress(host: Probe) -> Answer:
    """Records, process states, /health, and two readings of the counters while something runs."""
    look = _seen(host)
    if isinstance(look, Answer):
        return look
    found = state.judge(look)
    seen = [Evidence("state", found.name, ORIGIN)]
    if look.alive:
        seen += [
            Evidence("/health", look.health, ORIGIN),
            Evidence("processes", look.processes, ORIGIN),
            Evidence("stopped by a signal", ", ".join(look.stopped) or "none", ORIGIN),
        ]
    if look.after is not None and look.after.running is not None:
        seen += [
            Evidence("requests running", int(look.after.running), ORIGIN),
            Evidence("requests waiting", int(look.after.waiting or 0), ORIGIN),
        ]
    if found.name in (state.IDLE, state.BUSY):
        return ok(*seen)
    seen.append(Evidence("why", found.why, ORIGIN))
    if found.name in (state.STUCK, state.DEAD):
        return fail(*seen, fix=Fix(found.do, ("runbook status", "runbook stop"), Risk.RESTART))
    return unknown(f"{found.name}: {found.why}", *seen)


@check(
    "SERVE-020",
    layer=Layer.SERVE,
    title="The server's log stays bounded, and there is room to write it",
    why="A server goes on without a log when its disk is full; what it says when it dies is then lost.",
    source=Source(
        "Python: logging goes on after an error of a handler",
        "https://docs.python.org/3/library/logging.html#logging.Handler.handleError",
        "2026-11-30",
    ),
    cost=Cost.LIVE,
    needs_target=True,
)
def room_to_write(host: Probe) -> Answer:
    """Size of the log, what was dropped of it, what is free where it lies, and the largest file the server may write."""
    look = _seen(host)
    if isinstance(look, Answer):
        return look
    if not look.log_bytes:
        return unknown("there is no log, or nothing in it", Evidence("state", state.judge(look).name, ORIGIN))
    free = None if look.disk_free is None else look.disk_free // MIB
    most = None if look.file_limit is None else look.file_limit // MIB
    seen = (
        Evidence("log (MiB)", look.log_bytes // MIB, ORIGIN),
        Evidence("dropped of it (MiB)", look.log_dropped // MIB, ORIGIN),
        Evidence("free on its disk (MiB)", free, ORIGIN),
        Evidence("largest file (MiB)", "unlimited" if most is None else most, ORIGIN),
    )
    if free is None:
        return unknown("what is free on its disk cannot be told", *seen)
    if free < FULL_MIB:
        return fail(*seen, fix=MOVE, reason="the disk is full: lines of the log and records are being lost")
    return _bounded(look, free, most, seen)


def _bounded(look: state.Look, free: int, most: int | None, seen: tuple[Evidence, ...]) -> Answer:
    if most is not None and most < LOG_CAP_MIB:
        return warn(
            *seen,
            fix=Fix("Start it from a shell without that limit", ("ulimit -f unlimited",), Risk.RESTART),
            reason="its log ends at the largest file it may write (ulimit -f)",
        )
    if look.log_dropped:
        return warn(
            *seen,
            reason=f"a flood: the middle was dropped above {LOG_CAP_MIB} MiB; its head tells what repeats",
        )
    return warn(*seen, fix=MOVE, reason="little room is left") if free < LOW_MIB else ok(*seen)


CHECKS = (progress, room_to_write)
