"""Start vLLM's real API server as a job, wait until it answers or dies, and stop it."""

import hashlib
import json
import os
import re
import secrets
import shlex
import socket
import time
from pathlib import Path

from runbook import launch, measured
from runbook.actions import Context, Say
from runbook.actions.jobs import Job, Jobs, log_tail
from runbook.actions.model_files import checkpoint_hash, folder_of
from runbook.actions.records import record_hashes
from runbook.errors import DeadlineExceeded
from runbook.parse import vllm_log
from runbook.probes.live import LiveProbe, target_env
from runbook.workspace import write_whole

NAME = "server"
SERVED = "served"
SAY_EVERY_S = 10.0


class StartServer:
    """Plan and start; a running server of the same fingerprint is taken as it is, one of another is stopped first.

    ``extra`` are flags beside those of the stack.
    """

    def __init__(self, ctx: Context, extra: tuple[launch.Flag, ...] = ()) -> None:
        self.ctx = ctx
        self.extra = extra
        self.jobs = Jobs(ctx.work.jobs)
        self.model = folder_of(ctx)

    def plan(self) -> list[str]:
        """The command, a line a flag, each with its reason."""
        lines = [f"{self.ctx.python} -m {launch.MODULE}"]
        given = [
            launch.Flag("--model", str(self.model), "the checkpoint"),
            launch.Flag("--served-model-name", SERVED, "clients need not know a path"),
            launch.Flag("--host", launch.HOST, "loopback only"),
            launch.Flag("--port", "PORT", "a free one"),
        ]
        lines += [
            f"  {one.flag} {one.value}".ljust(38) + f"  {one.why}"
            for one in (*given, *launch.flags(self.ctx.stack), *self.extra)
        ]
        lines += [
            f"  {one.name}={one.value}".ljust(38) + f"  {one.why}" for one in launch.variables(self.ctx.stack)
        ]
        return [*lines, "stop    runbook stop (and whenever its owner ends, however that is)"]

    def apply(self, say: Say) -> None:
        """Start and wait for /health, or take the one that runs.

        Raises:
            JobDied: it ended; carries the root line of its log.
            DeadlineExceeded: it was not ready in time; it has been stopped.
        """
        wanted = fingerprint(self.ctx, self.extra)
        job = self.jobs.get(NAME)
        if job is not None and job.fingerprint == wanted and self._boot().exists() and healthy(job):
            say(f"already running as process {job.pid}")
            return
        self.jobs.stop(NAME)
        measured.forget(self.ctx.work)
        job = self._start(wanted)
        say(f"started as process {job.pid} on port {job.port}; the log is {job.log}")
        try:
            ready_s = self.jobs.wait(
                job, _Telling(job, say), deadline_s=self.ctx.deadline_s, root_line=vllm_log.root_line
            )
        except DeadlineExceeded as why:
            self.jobs.stop(NAME)
            do = f"read {job.log}, then raise deadline_s if it was still at work; it has been stopped"
            raise DeadlineExceeded(why.seen, why.expected, do) from None
        except BaseException:
            self.jobs.stop(NAME)
            raise
        boot = {
            "server": job.marker,
            "stack": self.ctx.stack.name,
            "model": self.ctx.model,
            "ready_s": round(ready_s, 1),
            "command": shlex.join(job.argv),
        }
        write_whole(self._boot(), json.dumps(boot, indent=1) + "\n")
        say(f"ready after {ready_s:.1f} s")

    def _boot(self) -> Path:
        return self.ctx.work.jobs / f"{NAME}.boot.json"

    def _start(self, wanted: dict[str, str]) -> Job:
        port = free_port()
        env = target_env(self.ctx.work, self.ctx.stack.name, self.ctx.python)
        env.update({one.name: one.value for one in launch.variables(self.ctx.stack)})
        env["VLLM_API_KEY"] = api_key(self.ctx.work.jobs)
        # Our own files are local; a server that tries a hub first waits for a time-out on a closed network.
        env.setdefault("HF_HUB_OFFLINE", "1")
        argv = launch.argv(self.ctx.stack, str(self.ctx.python), str(self.model), SERVED, port, self.extra)
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
    """The readiness question, which says on the way what the log last said."""

    def __init__(self, job: Job, say: Say) -> None:
        self.job = job
        self.say = say
        self.started = self.last = self.since = time.monotonic()
        self.words = ""

    def __call__(self) -> bool:
        now = time.monotonic()
        if now - self.last >= SAY_EVERY_S:
            self.last = now
            lines = [vllm_log.plain(line) for line in log_tail(Path(self.job.log), 5)]
            told = (line for line in reversed(lines) if line.strip() and not vllm_log.is_shadow(line))
            words = next(told, self.words or "(nothing in the log yet)")
            if words != self.words:
                self.words, self.since = words, now
            quiet = now - self.since
            self.say(
                f"{now - self.started:4.0f} s  "
                + (f"(log silent for {quiet:.0f} s)" if quiet else words[:66])
            )
        return healthy(self.job)


def healthy(job: Job) -> bool:
    """True when /health answers 200. The port is bound only when the engine is up, so refused means not yet."""
    import httpx  # noqa: PLC0415 - half of a page's import time, and most pages start no server

    try:
        return (
            httpx.get(f"http://{launch.HOST}:{job.port}/health", timeout=5.0, trust_env=False).status_code
            == httpx.codes.OK
        )
    except httpx.HTTPError:
        return False


def fingerprint(ctx: Context, extra: tuple[launch.Flag, ...] = ()) -> dict[str, str]:
    """Stack, target, flags and checkpoint, as short texts."""
    # Read anew, not from the stamp: packages that were changed since the target was built are what it must show.
    site = LiveProbe(ctx.work, ctx.stack.name, ctx.python).places.get("{site}", "")
    records = record_hashes(Path(site)) if site else {}
    folder = folder_of(ctx)
    flags = shlex.join(launch.argv(ctx.stack, "python", ctx.model, SERVED, 0, extra))
    return {
        "stack": ctx.stack.name,
        "packages": _short(json.dumps(records, sort_keys=True)),
        "flags": _short(flags),
        "model": checkpoint_hash(folder) if folder.exists() else "absent",
    }


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def free_port() -> int:
    """A loopback port that is free now."""
    with socket.socket() as probe:
        probe.bind((launch.HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def api_key(folder: Path) -> str:
    """The key of this workspace's servers, made once; only its owner may read the file."""
    path = folder / f"{NAME}.key"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(secrets.token_urlsafe(24))
    return re.sub(r"\s", "", path.read_text(encoding="utf-8"))
