"""Which state a job is in, judged from what was seen of it: its records, its processes, its counters, its log.

``runbook.actions.looking`` does the seeing. A state is never concluded from silence alone: a process that answers
nothing and one that computes for long look alike from a port.
"""

import re
from dataclasses import dataclass
from typing import Any

NONE = "none"
STARTING = "starting"
IDLE = "ready, idle"
BUSY = "ready, busy"
SLOW = "ready, no progress seen"
STUCK = "stuck"
RUNNING = "running"
"""Of a job without a port: a build, a fetch."""

DEAD = "dead"
STOPPED = "stopped"
UNKNOWN = "unknown"
EXIT = {
    NONE: 3,
    STARTING: 3,
    IDLE: 0,
    BUSY: 0,
    SLOW: 3,
    STUCK: 1,
    RUNNING: 0,
    DEAD: 1,
    STOPPED: 3,
    UNKNOWN: 3,
}
"""Exit code of ``runbook status``: 0 it serves, 1 it does not and should, 3 neither can be said."""

READY = (IDLE, BUSY, SLOW)
OK = 200
# Of one core, over the time between two looks: what a process that polls a queue uses stays below.
IDLE_CORES = 0.03
# A long prompt on a CPU moves no counter before its first token; a compile is seen by its compilers and waited for.
PATIENCE_S = 120.0
# A kernel on a card may hold up its process for a second without using the processor.
STILL_S = 5.0
MEMORY = re.compile(
    r"out of memory|OutOfMemoryError|Cannot allocate memory|can't allocate memory|not enough memory|bad_alloc|\bMemoryError\b|\bENOMEM\b",
    re.IGNORECASE,
)
_CARD = re.compile(r"CUDA|GPU|cudaMalloc", re.IGNORECASE)


@dataclass(frozen=True)
class End:
    """How a job ended: one of ``exit_code`` and ``signal``; ``oom_kills`` counted by the kernel meanwhile (None: not told)."""

    reason: str
    text: str
    exit_code: int | None
    signal: int | None
    ended: float
    oom_kills: int | None


@dataclass(frozen=True)
class Counters:
    """What ``/metrics`` said; None for what this release does not export."""

    running: float | None
    waiting: float | None
    kv_use: float | None
    prompt_tokens: float | None
    generation_tokens: float | None
    finished: float | None

    @property
    def load(self) -> float:
        """Requests in the engine."""
        return (self.running or 0.0) + (self.waiting or 0.0)

    def moved(self, since: "Counters") -> bool:
        """Whether work was done since: tokens counted, or requests finished."""
        pairs = (
            (self.prompt_tokens, since.prompt_tokens),
            (self.generation_tokens, since.generation_tokens),
            (self.finished, since.finished),
        )
        return any(now is not None and before is not None and now != before for now, before in pairs)


@dataclass(frozen=True)
class Look:
    """All that was seen of one job. Times in seconds, sizes in bytes; ``began`` and ``End.ended`` since the epoch.

    ``alive``: its process runs. ``was_ready``: its boot record says that it answered once. ``health`` is the status of
    ``/health`` (0: no answer; None: it has no port), ``said`` why there was none. ``stopped`` are processes in state T.
    ``before`` and ``after`` are two readings ``window_s`` apart, in which its processes used ``cores`` cores;
    ``compilers`` of them are at work.
    ``memory_limit`` says in words which limits hold here.
    """

    name: str
    alive: bool = False
    pid: int | None = None
    port: int | None = None
    began: float | None = None
    up_s: float | None = None
    stack: str = ""
    model: str = ""
    was_ready: bool = False
    ended: End | None = None
    lost: bool = False
    root: str = ""
    words: str = ""
    doing: str = ""
    health: int | None = None
    said: str = ""
    processes: int = 0
    stopped: tuple[str, ...] = ()
    rss: int = 0
    cores: float = 0.0
    compilers: int = 0
    window_s: float = 0.0
    before: Counters | None = None
    after: Counters | None = None
    log: str = ""
    log_bytes: int = 0
    log_dropped: int = 0
    disk_free: int | None = None
    file_limit: int | None = None
    memory_limit: str = ""
    key: str = ""


def read(facts: Any) -> Look | None:  # noqa: ANN401 - what a file or a child gave
    """A look from its JSON object; None when it is none."""
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - slow, and most commands look at no server

    try:
        return TypeAdapter(Look).validate_python(facts)
    except ValidationError:
        return None


@dataclass(frozen=True)
class State:
    """A name, why, and the next step."""

    name: str
    why: str
    do: str


def judge(seen: Look) -> State:
    """The state of a job."""
    return _alive(seen) if seen.alive else _over(seen)


def _alive(seen: Look) -> State:
    if seen.stopped:
        pids = " ".join(one.split()[0] for one in seen.stopped)
        return State(
            STUCK,
            f"stopped by a signal (state T): {', '.join(seen.stopped)}",
            f"kill -CONT {pids} lets it go on; or runbook stop",
        )
    if seen.port is None:
        return State(RUNNING, seen.words or "it runs", f"follow it: tail -f {seen.log}")
    if seen.health:
        return _answering(seen)
    return _silent(seen)


def _answering(seen: Look) -> State:
    if seen.health != OK:
        why = f"/health answers {seen.health}: the engine behind it is dead" + (
            f": {seen.root}" if seen.root else ""
        )
        return State(DEAD, why, f"read {seen.log}, then runbook stop and start it again")
    if seen.after is None or seen.before is None:
        why = f"/health answers, /metrics did not in time; its processes used {seen.cores:.1f} cores"
        return State(SLOW, why, "look again")
    if seen.after.running is None:
        return State(
            IDLE, "/health answers; it exports no counters, so how busy it is cannot be told", "ask it"
        )
    return _loaded(seen, seen.before, seen.after)


def _silent(seen: Look) -> State:
    if not seen.was_ready:
        doing = f"; {seen.doing}" if seen.doing else ""
        return State(
            STARTING, f"its port is not bound yet{doing}; it last said: {seen.words or '(nothing)'}", "wait"
        )
    why = f"it was ready and answers nothing now ({seen.said})"
    if seen.cores < IDLE_CORES:
        return State(
            STUCK, f"{why}; its processes use no processor time", "runbook stop, then start it again"
        )
    return State(
        UNKNOWN,
        f"{why}, while its processes use {seen.cores:.1f} cores",
        "look again; if it stays so: runbook stop",
    )


def _loaded(seen: Look, before: Counters, now: Counters) -> State:
    load = f"running {now.running:g}, waiting {now.waiting or 0:g}"
    if not now.load and not before.load:
        return State(IDLE, f"{load}: it waits for requests", "ask it")
    if now.moved(before) or not now.load:
        return State(
            BUSY, f"{load}, KV cache {100 * (now.kv_use or 0):.0f} % in use, tokens are counted", "nothing"
        )
    still = f"{load}, and no token was counted in {seen.window_s:.1f} s"
    if seen.cores < IDLE_CORES and seen.window_s >= STILL_S:
        return State(
            STUCK, f"{still}, while its processes used no processor time", "runbook stop, then start it again"
        )
    if seen.window_s >= PATIENCE_S and not seen.compilers:
        return State(
            STUCK,
            f"{still}, while its processes used {seen.cores:.1f} cores",
            "py-spy dump, then runbook stop",
        )
    return State(
        SLOW,
        f"{still}, while its processes used {seen.cores:.1f} cores: "
        + (f"{seen.compilers} compilers are at work" if seen.compilers else "a long prompt, or a loop"),
        f"look for longer: runbook status --window {PATIENCE_S:.0f}",
    )


def _over(seen: Look) -> State:
    log = f"read {seen.log}" if seen.log else "runbook run 08_warmup"
    if seen.ended is None:
        if seen.lost:
            return State(DEAD, "it was killed, and its keeper too: there is no end record", log)
        return State(NONE, "nothing of that name was started here", "runbook serve")
    if seen.ended.reason != "exited":
        return State(STOPPED, seen.ended.text, "start it again when it is needed")
    return State(DEAD, f"{seen.ended.text}: {cause(seen)}", log)


def cause(seen: Look) -> str:
    """Why a job that ended by itself did, as far as records and log say."""
    end = seen.ended
    limit = f"; {seen.memory_limit}" if seen.memory_limit else ""
    if end is not None and end.oom_kills:
        return f"out of memory: the kernel killed {end.oom_kills} of its processes{limit}"
    if MEMORY.search(seen.root):
        card = bool(_CARD.search(seen.root))
        return f"out of memory{' on the card' if card else ''}: {seen.root}{'' if card else limit}"
    if seen.root:
        return seen.root
    if end is not None and end.signal is not None:
        return "killed from outside, and nothing in its log says why"
    return f"its last words: {seen.words}" if seen.words else "its log says nothing"
