"""Look at a job of this workspace from every side at once, and say what went wrong with a request to a server.

Run as ``python -m runbook.actions.looking JOBS [WINDOW_S]`` it prints the look at the server as one JSON object: that is
how checks ask, since two readings some time apart are one question.
"""

import dataclasses
import json
import os
import re
import resource
import shutil
import sys
import time
from pathlib import Path

import psutil

from runbook import launch
from runbook.actions import keeper, watching
from runbook.actions.jobs import Ended, Job, Jobs, log_tail
from runbook.checks import limits
from runbook.endpoint import Endpoint, Reply
from runbook.errors import ActionFailed
from runbook.parse import metrics, vllm_log
from runbook.probes import ends
from runbook.probes.live import LiveProbe
from runbook.serving import faults, state
from runbook.workspace import Workspace

SERVER = "server"
WINDOW_S = 10.0
"""How long progress is waited for; a server at work shows it within two readings."""

EVERY_S = 0.5
ANSWER_S = 5.0
OK, NOT_FOUND = 200, 404
_UP = "Application startup complete."
# What is left to say of an engine that was killed: it had no time for words of its own.
_DIED = re.compile(r"Engine core proc \S+ died unexpectedly.*")


def look(work: Workspace, name: str = SERVER, window_s: float = WINDOW_S) -> state.Look:
    """What can be seen of a job now. Takes up to ``window_s`` seconds when it has work and shows no progress."""
    jobs = Jobs(work.jobs)
    jobs.ending(name, ANSWER_S)
    job, end = jobs.get(name), jobs.ended(name)
    log = Path(job.log if job else end.log if end else work.jobs / f"{name}.log")
    size, dropped, free = _disk(log)
    seen = state.Look(name, log=str(log), log_bytes=size, log_dropped=dropped, disk_free=free)
    if job is None:
        text = _own_part(_text(log))
        return dataclasses.replace(
            seen,
            ended=None if end is None else _end(end),
            lost=end is None and (work.jobs / f"{name}.json").exists(),
            root=_root(text),
            words=_last(log),
            memory_limit=_memory_limit(work, end),
        )
    boot = _boot(work, job) if name == SERVER else {}
    before = watching.look(job.keeper_pid)
    at = time.monotonic()
    seen = dataclasses.replace(
        seen,
        alive=True,
        pid=job.pid,
        port=job.port,
        began=job.started,
        up_s=max(0.0, time.time() - job.started),
        stack=job.fingerprint.get("stack", ""),
        model=str(boot.get("model", "")),
        was_ready=bool(boot),
        words=_last(log),
        file_limit=_file_limit(job.pid),
        key=str(work.jobs / f"{name}.key") if (work.jobs / f"{name}.key").exists() else "",
    )
    if job.port is not None and not before.stopped:
        seen = _asked(seen, Endpoint(f"http://{launch.HOST}:{job.port}", ""), at + window_s)
        # A server whose engine died closes its port first: what it leaves is looked at once it has ended.
        closed = seen.health == 0 and seen.was_ready and "Timeout" not in seen.said
        if closed and jobs.join(job, ANSWER_S):
            return look(work, name, window_s)
    after, seconds = watching.look(job.keeper_pid), max(time.monotonic() - at, 1e-3)
    doing = watching.between(before, after, seconds)
    return dataclasses.replace(
        seen,
        root="" if seen.health == OK else _root(_own_part(_text(log))),
        processes=after.processes,
        stopped=tuple(f"{pid} {_name(pid)}" for pid in after.stopped),
        rss=after.rss,
        cores=round(doing.cores, 3),
        doing=doing.words,
        compilers=len(doing.compilers),
        window_s=round(seen.window_s or seconds, 3),
    )


def _asked(seen: state.Look, server: Endpoint, until: float) -> state.Look:
    """The look with what the server answers: its counters again and again until they move, its requests are done, or time is up."""
    status, said = server.get("/health", ANSWER_S)
    seen = dataclasses.replace(seen, health=status, said="" if status else said)
    if status != OK:
        if not status and not seen.was_ready:
            time.sleep(EVERY_S)  # what its processes do can be told from two looks only
        return seen
    before = after = counters(server)
    first = time.monotonic()
    # Two readings at least: on a machine that is busy the first alone may take as long as was to be waited.
    until = max(until, first + EVERY_S)
    while before is not None and after is not None and after.load and time.monotonic() < until:
        time.sleep(EVERY_S)  # the interval between two readings
        after = counters(server)
        if after is None or after.moved(before):
            break
    return dataclasses.replace(seen, before=before, after=after, window_s=time.monotonic() - first)


def counters(server: Endpoint) -> state.Counters | None:
    """The counters that tell of work; None when ``/metrics`` did not answer."""
    try:
        page = server.metrics()
    except ActionFailed:
        return None
    return of_page(page)


def of_page(page: metrics.Metrics) -> state.Counters:
    """The counters of one reading of ``/metrics``."""
    return state.Counters(
        page.total("vllm:num_requests_running"),
        page.total("vllm:num_requests_waiting"),
        page.total("vllm:kv_cache_usage_perc"),
        page.total("vllm:prompt_tokens_total"),
        page.total("vllm:generation_tokens_total"),
        page.total("vllm:request_success_total"),
    )


def names(work: Workspace) -> list[str]:
    """The server, and every other job that a record of is left here."""
    jobs = Jobs(work.jobs)
    found = {path.name.partition(".")[0] for path in work.jobs.glob("*.json")}
    others = (name for name in found if jobs.get(name) or jobs.ended(name))
    return [SERVER, *sorted(name for name in others if name != SERVER)]


def fault(reply: Reply, server: Endpoint, work: Workspace | None = None) -> faults.Fault | None:
    """What went wrong with a request, by name; None when nothing did.

    ``work`` is given when the server is that workspace's own: then its records, processes and log are looked at too.
    """
    if not reply.error:
        return None
    known = faults.Known(model=server.model, keyed=bool(server.key))
    if work is not None:
        seen = look(work, window_s=state.STILL_S)
        found = state.judge(seen)
        dead = found.name in (state.DEAD, state.STOPPED, state.NONE)
        known = dataclasses.replace(
            known, end=found.why if dead else "", standstill=found.why if found.name == state.STUCK else ""
        )
    if reply.status == NOT_FOUND:
        known = dataclasses.replace(known, served=served(server))
    return faults.named(reply, known)


def served(server: Endpoint) -> tuple[str, ...] | None:
    """The names that ``/v1/models`` gives; None when it does not tell."""
    status, body = server.get("/v1/models")
    try:
        return tuple(str(one["id"]) for one in json.loads(body)["data"]) if status == OK else None
    except (ValueError, KeyError, TypeError):
        return None


def _end(end: Ended) -> state.End:
    return state.End(end.reason, end.text(), end.exit_code, end.signal, end.ended, end.oom_kills)


def _boot(work: Workspace, job: Job) -> dict[str, object]:
    """The boot record of this very start; empty before it was ready."""
    try:
        facts = json.loads((work.jobs / f"{SERVER}.boot.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) and facts.get("server") == job.marker else {}


def _text(log: Path) -> str:
    try:
        return ends.text(log)
    except OSError:
        return ""


def _own_part(text: str) -> str:
    """What was logged after the server was up, or all of it when it never was: a warning of the start explains no death."""
    return text.rpartition(_UP)[2]


def _root(text: str) -> str:
    died = _DIED.search(text)
    return vllm_log.root_line(text) or (died[0].strip() if died else "")


def _last(log: Path) -> str:
    lines = [vllm_log.plain(line).strip() for line in log_tail(log, 20)]
    return next((line[:200] for line in reversed(lines) if line and not vllm_log.is_shadow(line)), "")


def _disk(log: Path) -> tuple[int, int, int | None]:
    """Size of a log, what the keeper dropped of it, and what is free where it lies."""
    try:
        size = log.stat().st_size
        with log.open("rb") as file:
            told = re.search(keeper.DROPPED, file.read(keeper.LOG_HEAD + keeper.EXCERPT + (1 << 17)))
    except OSError:
        size, told = 0, None
    try:
        free = shutil.disk_usage(log.parent).free
    except OSError:
        free = None
    return size, int(told[1]) if told else 0, free


def _file_limit(pid: int) -> int | None:
    """The largest file that a process may write, in bytes (RLIMIT_FSIZE); None without a limit or an answer."""
    try:
        soft = psutil.Process(pid).rlimit(psutil.RLIMIT_FSIZE)[0]
    except (psutil.Error, OSError):
        return None
    return None if soft == psutil.RLIM_INFINITY else soft


def _memory_limit(work: Workspace, end: Ended | None) -> str:
    """Which limits of memory hold for what is started here, in words; the count of kills says whose group it was."""
    parts = []
    group = limits.memory_limit(LiveProbe(work))
    if end is not None and end.oom and end.oom != "/proc/vmstat":
        folder = Path(end.oom).parent
        for name in ("memory.max", "memory.limit_in_bytes"):
            try:
                parts.append(f"limit of its control group {int((folder / name).read_text()) >> 20} MiB")
            except (OSError, ValueError):
                continue
    elif group.value is not None:
        parts.append(f"limit of its control group {group.value} MiB")
    space = resource.getrlimit(resource.RLIMIT_AS)[0]
    if space != resource.RLIM_INFINITY:
        parts.append(f"address space limited to {space >> 20} MiB (ulimit -v)")
    return ", ".join(parts)


def _name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.NoSuchProcess:
        return "(gone)"


def main() -> None:
    """Print the look at the server of a folder of jobs as JSON."""
    folder = Path(sys.argv[1])
    window_s = float(sys.argv[2]) if len(sys.argv) > 2 else WINDOW_S  # noqa: PLR2004
    found = look(Workspace(folder.resolve().parent), window_s=window_s)
    sys.stdout.write(json.dumps(dataclasses.asdict(found)) + os.linesep)


if __name__ == "__main__":
    main()
