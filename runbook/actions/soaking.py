"""A long run of the server under steady load: hours or days, in bounded memory, resumed after a kill.

What each stretch of time saw is one line of ``jobs/server.soak.jsonl`` (a run has at most some 20 000 of them, 300 bytes
each); its first line holds the orders. ``jobs/server.soak.json``, which checks read, is written anew with each line.
"""

import contextlib
import dataclasses
import itertools
import json
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from runbook import measured
from runbook.actions import Context, Say
from runbook.actions.gauging import MIB, Burn, own
from runbook.actions.jobs import LAST_WORDS_S, Job, Jobs
from runbook.actions.server import NAME, StartServer
from runbook.checks import limits
from runbook.endpoint import Endpoint
from runbook.errors import ActionFailed, BadParameter
from runbook.probes.live import LiveProbe
from runbook.serving import soak
from runbook.serving.profiles import BASELINE
from runbook.serving.soak import Stretch
from runbook.workspace import write_whole

MOST_HOURS = 14 * 24
STRETCHES = 60  # of a short run; of a long one they are a minute each
READ_EVERY_S = 2.0
TELL_EVERY_S = 60.0
ERRORS_KEPT = 8
SAMPLES_KEPT = 4096
REFUSED_PAUSE_S = 1.0
END_S = 5.0
RESTARTS_AN_HOUR = 6
HOUR_S = 3600
# Prompt and answer lengths of a mixed load: short ones, and now and then a long one.
SHAPES = ((8, 8), (32, 16), (32, 32), (128, 16), (256, 48))
WORDS = ("driver", "runtime", "kernel", "wheel", "layer", "gate", "cache", "token", "probe", "stack")


@dataclass(frozen=True)
class Orders:
    """What a soak was asked to do. ``rate`` is in requests a second, ``restart`` is "never" or "on-death"."""

    seconds: float
    rate: float
    concurrency: int
    restart: str

    @property
    def stretch_s(self) -> float:
        """How long one line of the record covers."""
        return min(60.0, max(1.0, self.seconds / STRETCHES))


class Soak:
    """Plan and run; ``resume`` goes on with the record of an earlier run of this workspace.

    Raises:
        BadParameter: there is nothing to resume.
    """

    def __init__(self, ctx: Context, orders: Orders, *, resume: bool = False) -> None:
        self.ctx = ctx
        self.orders = orders
        self.jobs = Jobs(ctx.work.jobs)
        self.path = ctx.work.jobs / f"{NAME}.soak.jsonl"
        self.rows = self._earlier() if resume else []
        self.counted: float | None = None  # the server's tokens at the end of the stretch before
        self.moved = 0.0  # when tokens last moved, or nothing was under way

    def plan(self) -> list[str]:
        """What would be sent, for how long, and where it is written."""
        one = self.orders
        return [
            f"soak      {one.seconds / 3600:g} h of {one.rate:g} requests/s, at most {one.concurrency} at once",
            f"read      /metrics and the memory of the server's processes, every {READ_EVERY_S:g} s",
            f"write     {self.path}, a line every {one.stretch_s:g} s",
            f"restart   {one.restart}",
        ]

    def apply(self, say: Say) -> None:
        """Run to the end, or until the server is gone and may not be started again.

        Raises:
            ActionFailed: no server runs.
        """
        job, rows = self._running(), self.rows
        life = rows[-1].start + 1 if rows else 0
        # Written whole: a last line that was cut by a kill goes, so that the next one stands alone.
        lines = [json.dumps(one) for one in (dataclasses.asdict(self.orders), *map(dataclasses.asdict, rows))]
        write_whole(self.path, "\n".join(lines) + "\n")
        done = rows[-1].at if rows else 0.0
        load = _Load(own(self.ctx.work, job), self.orders)
        ended = "interrupted"
        errors: Counter[str] = Counter()
        told = -TELL_EVERY_S
        load.start()
        self.moved = time.monotonic()
        try:
            while done < self.orders.seconds:
                seconds = min(self.orders.stretch_s, self.orders.seconds - done)
                row = self._stretch(load, job, done, seconds, life)
                done = row.at
                rows.append(row)
                errors.update(load.taken_errors())
                self._append(dataclasses.asdict(row))
                self._write(job, rows, errors, "running")
                if done - told >= TELL_EVERY_S:
                    told = done
                    say(_line(row))
                if not row.died:
                    continue
                say(f"the server is gone: {row.died}")
                lately = sum(1 for one in rows if one.died and done - one.at < HOUR_S)
                if self.orders.restart == "never" or lately > RESTARTS_AN_HOUR:
                    ended = "the server died" if self.orders.restart == "never" else "the server died again and again"  # fmt: skip
                    break
                load.pause()
                self.counted, self.moved = None, time.monotonic()
                StartServer(self.ctx, profile=self._profile()).apply(say)
                job, life = self._running(), life + 1
                load.resume(own(self.ctx.work, job))
            else:
                ended = "done"
        finally:
            load.end()
            self._write(job, rows, errors, ended)
        say(f"{ended} after {done / 3600:.2f} h")

    def _earlier(self) -> list[Stretch]:
        """What is resumed; the orders are those of the record."""
        orders, rows = record(self.path)
        if orders is None:
            raise BadParameter(
                f"there is no soak to resume in {self.path}", "the record of one", "leave --resume out"
            )
        if rows and rows[-1].at >= orders.seconds:
            raise BadParameter(
                "the last soak ran to its end",
                "one that was cut short",
                "leave --resume out: a new one begins",
            )
        self.orders = orders
        return rows

    def _running(self) -> Job:
        job = self.jobs.get(NAME)
        if job is None:
            raise ActionFailed(
                "no server of this workspace runs", "one that answers", "start it: runbook serve"
            )
        return job

    def _stretch(self, load: "_Load", job: Job, done: float, seconds: float, life: int) -> Stretch:
        """One stretch of the run; the server's death ends it early."""
        began = time.monotonic()
        server, ours = Burn(job.pid), psutil.Process()
        rss: list[float] = []
        first = last = self.counted if self.counted is not None else _tokens(load.endpoint)
        stalled, alive = 0.0, True
        while (left := began + seconds - time.monotonic()) > 0 and alive:
            time.sleep(min(left, READ_EVERY_S))  # the time between two readings is what is waited for
            here = self.jobs.get(NAME)
            alive = here is not None and here.marker == job.marker
            now = time.monotonic()
            if (size := server.since(now).rss_mib) is not None:
                rss.append(size * MIB)
            tokens = _tokens(load.endpoint)
            if (tokens is not None and tokens != last) or not load.under_way():
                self.moved = now
            stalled = max(stalled, now - self.moved)
            if tokens is not None:
                first, last = (tokens if first is None else first), tokens
        self.counted = last
        requests, failed, times, late = load.taken()
        return Stretch(
            at=round(done + time.monotonic() - began, 3),
            seconds=round(time.monotonic() - began, 3),
            requests=requests,
            failed=failed,
            tokens=int(max(0.0, (last or 0.0) - (first or 0.0))),
            rss=median(rss) if rss else None,
            gpu=_gpu(),
            ours=float(ours.memory_info().rss),
            median_s=round(median(times), 4) if times else None,
            slowest_s=round(max(times), 4) if times else None,
            stalled_s=round(stalled, 1),
            late_s=round(late, 1),
            start=life,
            died="" if alive else self._death(job),
        )

    def _profile(self) -> str:
        """The profile that the server was started with; it is started again so."""
        try:
            boot = json.loads((self.ctx.work.jobs / f"{NAME}.boot.json").read_text(encoding="utf-8"))
            return str(boot["profile"])
        except (OSError, ValueError, KeyError, TypeError):
            return BASELINE

    def _death(self, job: Job) -> str:
        self.jobs.join(job, LAST_WORDS_S)  # its keeper writes how it ended
        ended = self.jobs.ended(NAME)
        return ended.text() if ended else "killed, its keeper too"

    def _append(self, row: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def _write(self, job: Job, rows: list[Stretch], errors: Counter[str], ended: str) -> None:
        steady = soak.settled(rows)
        facts = {
            "asked_s": self.orders.seconds,
            "seconds": rows[-1].at if rows else 0.0,
            "ended": ended,
            "orders": dataclasses.asdict(self.orders),
            "requests": sum(row.requests for row in rows),
            "failed": sum(row.failed for row in rows),
            "errors": dict(errors.most_common(ERRORS_KEPT)),
            "tokens": sum(row.tokens for row in rows),
            "stalled_s": max((row.stalled_s for row in rows), default=0.0),
            "slowest_s": max((row.slowest_s for row in rows if row.slowest_s is not None), default=None),
            "late_s": max((row.late_s for row in rows), default=0.0),
            "deaths": [[row.at, row.died] for row in rows if row.died][-ERRORS_KEPT:],
            "memory": _memory(self.ctx),
            **{name: soak.points(steady, name) for name in ("rss", "gpu", "ours")},
            "stretches": len(rows),
            "record_bytes": self.path.stat().st_size if self.path.exists() else 0,
        }
        measured.write(self.ctx.work, "soak", job.marker, facts)


def record(path: Path) -> tuple[Orders | None, list[Stretch]]:
    """What a soak's record holds; a line that was cut by a kill is left out."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None, []
    found: list[dict[str, Any]] = []
    for line in lines:
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    try:
        return Orders(**found[0]), [Stretch(**row) for row in found[1:]]
    except (IndexError, TypeError):
        return None, []


@dataclass
class _Seen:
    requests: int = 0
    failed: int = 0
    late_s: float = 0.0
    times: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)


class _Load:
    """Requests at a steady rate from a few threads; what came of them is taken stretch by stretch."""

    def __init__(self, endpoint: Endpoint, orders: Orders) -> None:
        self.endpoint = endpoint
        self.orders = orders
        self._lock = threading.Lock()
        self._ending, self._go = threading.Event(), threading.Event()
        self._seen = _Seen()
        self._flying = 0
        self._number = itertools.count()
        self._began = time.monotonic()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(orders.concurrency)]

    def start(self) -> None:
        self._began = time.monotonic()
        self._go.set()
        for each in self._threads:
            each.start()

    def end(self) -> None:
        self._ending.set()
        self._go.set()
        self.endpoint.client.close()  # a request under way ends with an error at once
        deadline = time.monotonic() + END_S
        for each in self._threads:
            each.join(timeout=max(0.0, deadline - time.monotonic()))  # one that hangs ends with the process

    def pause(self) -> None:
        self._go.clear()

    def resume(self, endpoint: Endpoint) -> None:
        with self._lock:
            self.endpoint, self._began, self._number = endpoint, time.monotonic(), itertools.count()
        self._go.set()

    def under_way(self) -> int:
        return self._flying

    def taken(self) -> tuple[int, int, list[float], float]:
        """Requests answered, failed, their times in seconds and how late the latest was sent, since last asked."""
        with self._lock:
            seen, errors = self._seen, self._seen.errors
            self._seen = _Seen(errors=errors)
        return seen.requests, seen.failed, seen.times, seen.late_s

    def taken_errors(self) -> Counter[str]:
        with self._lock:
            errors, self._seen.errors = self._seen.errors, Counter()
        return errors

    def _work(self) -> None:
        for number, due in self._due():
            draw = random.Random(number)  # noqa: S311 - a mix of requests, the same in every run
            long, answer = draw.choice(SHAPES)
            prompt = " ".join(draw.choices(WORDS, k=long))
            with self._lock:
                endpoint, self._flying = self.endpoint, self._flying + 1
            reply = endpoint.complete(
                prompt, answer, temperature=0.0, extra_body={"ignore_eos": True, "seed": number}
            )
            with self._lock:
                self._flying -= 1
                if self._ending.is_set():
                    return  # it was cut by our own end
                self._seen.requests += 1
                self._seen.late_s = max(self._seen.late_s, due)
                if reply.error:
                    self._seen.failed += 1
                    self._seen.errors[reply.error[:160]] += 1
                elif len(self._seen.times) < SAMPLES_KEPT:
                    self._seen.times.append(reply.seconds)
            if reply.error and not reply.status:
                self._ending.wait(
                    REFUSED_PAUSE_S
                )  # nobody listens: ask again in a while, not in a tight loop

    def _due(self) -> Iterator[tuple[int, float]]:
        """The next request of the schedule each time, once its moment has come, and how many seconds late that was."""
        while self._go.wait() and not self._ending.is_set():
            with self._lock:
                number = next(self._number)
                at = self._began + number / self.orders.rate
            if self._ending.wait(max(0.0, at - time.monotonic())):
                return
            yield number, max(0.0, time.monotonic() - at)


def _tokens(endpoint: Endpoint) -> float | None:
    """Tokens read and made so far by the server's own counters; None when it does not answer."""
    try:
        page = endpoint.metrics()
    except ActionFailed:
        return None
    made, read = page.total("vllm:generation_tokens_total"), page.total("vllm:prompt_tokens_total")
    return None if made is None or read is None else made + read


def _gpu() -> float | None:
    """Memory in use on the first card, in bytes; None where there is none."""
    argv = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    try:
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=True)
        return float(ran.stdout.split()[0]) * 2**20
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None


def _memory(ctx: Context) -> float:
    """Bytes that a process may have here: the machine's, or less by its control group."""
    limit = limits.memory_limit(LiveProbe(ctx.work)).value
    total = psutil.virtual_memory().total
    return float(min(total, limit * 2**20) if limit else total)


def _line(row: Stretch) -> str:
    size = "" if row.rss is None else f", {row.rss / 2**20:.0f} MiB"
    return f"{row.at / 60:7.1f} min  {row.requests} requests, {row.failed} failed, {row.tokens / row.seconds:.0f} tokens/s{size}"
