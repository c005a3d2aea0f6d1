"""Start vLLM's real API server as a job, wait until it answers or dies, and stop it."""

import datetime
import hashlib
import json
import os
import re
import secrets
import shlex
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from runbook import launch, measured
from runbook.actions import Context, Say, ledger, ports, watching
from runbook.actions.jobs import Job, Jobs, log_tail
from runbook.actions.launching import Launch, Launching
from runbook.actions.model_files import checkpoint_hash, folder_of
from runbook.actions.records import record_hashes
from runbook.errors import DeadlineExceeded
from runbook.parse import boot_log, vllm_log
from runbook.probes.live import LiveProbe, target_env
from runbook.serving.boot import Arrival, Boot, account, by_arrival, compared
from runbook.serving.profiles import BASELINE
from runbook.workspace import write_whole

NAME = "server"
SERVED = launch.SERVED
SAY_EVERY_S = 10.0
LOOK_EVERY_S = 2.0  # processor time is counted in hundredths of a second


class StartServer:
    """Plan and start; a running server of the same fingerprint is taken as it is, one of another is stopped first.

    ``extra`` are flags beside those of the profile, ``own`` the user's words, judged and set behind all others.
    ``env`` are variables beside those of the plan. ``port`` None takes a free one. The server listens on loopback
    unless ``host`` says otherwise.
    """

    def __init__(
        self,
        ctx: Context,
        extra: tuple[launch.Flag, ...] = (),
        profile: str = BASELINE,
        *,
        own: tuple[str, ...] = (),
        port: int | None = None,
        host: str = launch.HOST,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.ctx = ctx
        self.extra = extra
        self.profile = profile
        self.own = own
        self.port = port
        self.host = host
        self.env = dict(env or {})
        self.jobs = Jobs(ctx.work.jobs)
        self.model = folder_of(ctx)

    @cached_property
    def launch(self) -> Launch:
        """What is started; raises as ``Launching.launch``."""
        return Launching(self.ctx).launch(self.profile, self.own)

    def plan(self) -> list[str]:
        """The command, a line a flag, each with its reason."""
        lines = [f"{self.ctx.python} -m {launch.MODULE}"]
        port = ("PORT", "a free one") if self.port is None else (str(self.port), "asked for")
        loopback = self.host == launch.HOST
        given = [
            launch.Flag("--model", str(self.model), "the checkpoint"),
            launch.Flag("--served-model-name", SERVED, "clients need not know a path"),
            launch.Flag(
                "--host", self.host, "loopback only" if loopback else "every network of this machine"
            ),
            launch.Flag("--port", *port),
        ]
        planned = self.launch.planned
        lines += [
            f"  {one.flag} {one.value}".ljust(38) + f"  {one.why}"
            for one in (*given, *planned.flags, *self.extra)
        ]
        lines += [f"  {shlex.join(self.own)}".ljust(38) + "  yours"] if self.own else []
        lines += [f"  {one.name}={one.value}".ljust(38) + f"  {one.why}" for one in planned.variables]
        return [*lines, "stop    runbook stop (and whenever its owner ends, however that is)"]

    def apply(self, say: Say) -> None:
        """Start and wait for /health, or take the one that runs.

        Raises:
            JobDied: it ended; carries the root line of its log.
            DeadlineExceeded: it was not ready in time; it has been stopped.
        """
        wanted = self.fingerprint()
        job = self.jobs.get(NAME)
        if job is not None and job.fingerprint == wanted and self._boot().exists() and healthy(job):
            say(f"already running as process {job.pid}")
            return
        self.jobs.stop(NAME)
        measured.forget(self.ctx.work)
        job = self._start(wanted)
        try:
            say(f"started as process {job.pid} on port {job.port}; the log is {job.log}")
            telling = _Telling(job, self.ctx.work.caches(self.ctx.stack.name), say)
            ready_s = self.jobs.wait(
                job, telling, deadline_s=self.ctx.deadline_s, root_line=vllm_log.root_line
            )
        except DeadlineExceeded as why:
            try:
                late = self._late(job, telling, why)
            finally:
                self.jobs.stop(NAME)
            raise late from None
        except BaseException:
            self.jobs.stop(NAME)
            raise
        boot = self._account(job, telling, ready_s)
        before = ledger.read(self.ctx.work)
        record = {
            **boot.row(),
            "profile": self.profile,
            "command": shlex.join(job.argv),
            "earlier": sum(one.fingerprint == boot.fingerprint for one in before),
        }
        write_whole(self._boot(), json.dumps(record, indent=1) + "\n")
        say(f"ready after {ready_s:.1f} s; {compared(boot, before).words}")
        try:
            ledger.append(self.ctx.work, boot)
        except OSError as why:  # it serves all the same
            say(f"the ledger could not be written: {why}")

    def _late(self, job: Job, telling: "_Telling", why: DeadlineExceeded) -> DeadlineExceeded:
        """What a start that was not ready in time was at, and where its Python stands."""
        doing = telling.doing()
        place = self.ctx.work.logs / f"{job.marker}.stacks.txt"
        frames = watching.stacks(job.keeper_pid, place)
        at = f"; {frames[-1]}" if frames else ""
        idle = telling.idle_s()
        did = f"nothing for {idle:.0f} s" if idle else doing.words
        do = (
            "kill -CONT it, and find out who stopped it"
            if doing.stopped
            else f"it waits for something: read the stacks in {place}"
            if idle
            else f"it was at work, at what the stacks in {place} say: raise deadline_s; kernels can be compiled before, runbook prebuild"
        )
        return DeadlineExceeded(
            f"{why.seen}; at the end it did: {did}{at}",
            why.expected,
            f"{do}; the log is {job.log}; it has been stopped",
        )

    def _account(self, job: Job, telling: "_Telling", ready_s: float) -> Boot:
        """The start, told apart by when the lines of the log came."""
        steps = boot_log.steps(Path(job.log).read_text(encoding="utf-8", errors="replace"))
        return Boot(
            datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            job.marker,
            self.ctx.stack.name,
            self.ctx.model,
            dict(job.fingerprint),
            ready_s,
            account(by_arrival(steps, telling.arrived), ready_s),
            watching.made_since(telling.caches, job.started),
        )

    def _boot(self) -> Path:
        return self.ctx.work.jobs / f"{NAME}.boot.json"

    def fingerprint(self) -> dict[str, str]:
        """Stack, target, flags and checkpoint, as short texts."""
        # Read anew, not from the stamp: packages that were changed since the target was built are what it must show.
        site = LiveProbe(self.ctx.work, self.ctx.stack.name, self.ctx.python).places.get("{site}", "")
        records = record_hashes(Path(site)) if site else {}
        # The interpreter and the checkpoint have entries of their own, and nothing that is found rests on a port.
        words = self.launch.argv(self.ctx, 0, self.host, self.extra)[1:]
        words += [f"{one.name}={one.value}" for one in self.launch.planned.variables]
        return {
            "stack": self.ctx.stack.name,
            "packages": _short(json.dumps(records, sort_keys=True)),
            "flags": _short(shlex.join(words)),
            "model": checkpoint_hash(self.model) if self.model.exists() else "absent",
        }

    def _start(self, wanted: dict[str, str]) -> Job:
        port = ports.free(self.host) if self.port is None else ports.demanded(self.port, self.host)
        env = target_env(self.ctx.work, self.ctx.stack.name, self.ctx.python)
        env.update({one.name: one.value for one in self.launch.planned.variables})
        env.update(self.env)
        env["VLLM_API_KEY"] = api_key(self.ctx.work.jobs)
        # Our own files are local; a server that tries a hub first waits for a time-out on a closed network.
        env.setdefault("HF_HUB_OFFLINE", "1")
        argv = self.launch.argv(self.ctx, port, self.host, self.extra)
        return self.jobs.start(
            NAME, argv, env=env, cwd=self.ctx.work.root, owner=self.ctx.owner, port=port, fingerprint=wanted
        )


class StopServer:
    """Stop the server; may be called when there is none."""

    def __init__(self, ctx: Context) -> None:
        self.jobs = Jobs(ctx.work.jobs)

    def plan(self) -> list[str]:
        """What would be stopped."""
        job = self.jobs.get(NAME)
        return (
            [f"stop      process {job.pid} and all it started"] if job else ["nothing: no server is running"]
        )

    def apply(self, say: Say) -> None:
        """Stop it and wait until every process of it is gone."""
        started = time.monotonic()
        say(
            f"stopped in {time.monotonic() - started:.1f} s"
            if self.jobs.stop(NAME)
            else "no server was running"
        )


class _Telling:
    """The readiness question, which on the way says what the processes do, and notes when the log grew.

    ``arrived`` is how the log grew.
    """

    def __init__(self, job: Job, caches: Path, say: Say) -> None:
        self.job = job
        self.caches = caches
        self.say = say
        self.started = self.told = time.monotonic()
        self.arrived: list[Arrival] = []
        self.looked = self.started
        self.words = ""
        self.before = watching.look(job.keeper_pid)
        self.done: watching.Doing | None = None
        self.compilers: set[tuple[str, str]] = set()
        self.at = self.busy = self.started

    def __call__(self) -> bool:
        now = time.monotonic()
        try:
            size = Path(self.job.log).stat().st_size
        except OSError:
            size = 0
        if size > (self.arrived[-1].size if self.arrived else 0):
            self.arrived.append(Arrival(size, self.looked - self.started, now - self.started))
        self.looked = now
        self.doing()
        if now - self.told >= SAY_EVERY_S:
            self.told = now
            self.say(f"{now - self.started:4.0f} s  {self._doing()}")
        return healthy(self.job)

    def doing(self) -> watching.Doing:
        """What the processes did since this was asked last; the same answer again for a moment after that."""
        now = time.monotonic()
        if self.done is None or now - self.at >= LOOK_EVERY_S:
            found = watching.look(self.job.keeper_pid)
            self.done = watching.between(self.before, found, now - self.at)
            self.before, self.at = found, now
            self.compilers |= set(found.compilers)
            if not self.done.idle:
                self.busy = now
        return self.done

    def idle_s(self) -> float:
        """For how many seconds nothing at all has gone on; 0 while something does."""
        return self.at - self.busy

    def _doing(self) -> str:
        lines = [vllm_log.plain(line) for line in log_tail(Path(self.job.log), 5)]
        told = (line for line in reversed(lines) if line.strip() and not vllm_log.is_shadow(line))
        words = next(told, self.words)
        new, self.words = words != self.words, words
        done, idle = self.doing(), self.idle_s()
        # A compiler may come and go between two lines of ours.
        done = replace(done, compilers=tuple(sorted(self.compilers)))
        self.compilers.clear()
        if done.stopped:
            return done.words
        quiet = time.monotonic() - self.started - (self.arrived[-1].seen_s if self.arrived else 0.0)
        if idle:
            return f"no processor time, no bytes for {idle:.0f} s: it waits for something (log silent for {quiet:.0f} s)"
        made = sum(watching.made_since(self.caches, self.job.started).values()) if done.compilers else 0
        did = done.words + (f", {made} files compiled" if made else "")
        return f"{words[:48]}  ({did})" if new else f"log silent for {quiet:.0f} s: {did}"


def healthy(job: Job) -> bool:
    """True when /health answers 200. The port is bound only when the engine is up, so refused means not yet."""
    import httpx  # noqa: PLC0415 - half of a page's import time, and most pages start no server

    url = f"http://{launch.HOST}:{job.port}/health"
    try:
        # No TLS here: reading the certificates of authorities took 22 ms of processor time a question, of which a start sees hundreds.
        reply = httpx.get(url, timeout=5.0, trust_env=False, verify=False)  # noqa: S501
    except httpx.HTTPError:
        return False
    return reply.status_code == httpx.codes.OK


def fingerprint(ctx: Context, profile: str = BASELINE) -> dict[str, str]:
    """What the server of a context would be told apart by."""
    return StartServer(ctx, (), profile).fingerprint()


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def api_key(folder: Path) -> str:
    """The key of this workspace's servers, made once; only its owner may read the file."""
    path = folder / f"{NAME}.key"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(secrets.token_urlsafe(24))
    return re.sub(r"\s", "", path.read_text(encoding="utf-8"))
