"""Build flash-attn against the target's own torch, as a job that ends with its owner, and keep the wheel.

The target is not changed: build tools it lacks lie in a folder of the build, and the finished wheel is tried from a
folder beside it. Only ``--install`` puts it into the target.
"""

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from runbook import uv
from runbook.actions import Context, Say, flash_kernel, flash_plan, flash_source, flash_wheels
from runbook.actions.builds import now
from runbook.actions.flash_plan import FlashPlan, Request
from runbook.actions.flash_wheels import Kept
from runbook.actions.jobs import Ended, Job, Jobs, Owner, log_tail
from runbook.errors import ActionFailed, RunbookError
from runbook.parse import build_log
from runbook.probes.cached import CachedProbe
from runbook.probes.live import LiveProbe, target_env
from runbook.tables import flash_attn_options, flash_attn_pair

NAME = "build-flash-attn"
VMSTAT = "/proc/vmstat"
SAMPLE_S = 2.0
SAY_EVERY_S = 30.0
GRACE_S = 5.0
LOG_BYTES = 8 << 20
# setuptools 81 dropped pkg_resources, which setup scripts of that time and torch 2.3's cpp_extension import.
TOOLS = {
    "setuptools": "setuptools>=70,<81",
    "wheel": "wheel",
    "ninja": "ninja",
    "packaging": "packaging",
    "psutil": "psutil",
}


class NoVerdict(RunbookError):
    """The wheel is there, and nobody could say whether its kernel is right (exit code 3)."""

    exit_code = 3


@dataclass
class _Seen:
    """What was seen of a build while it ran."""

    peak_mib: int = 0
    biggest_mib: int = 0
    biggest: str = ""

    def look(self, job: Job) -> int:
        """Take a sample; how many compilers run."""
        compilers = total = 0
        with contextlib.suppress(psutil.NoSuchProcess):
            for one in psutil.Process(job.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    mib = one.memory_info().rss >> 20
                    name = one.name()
                    total += mib
                    compilers += name == "nvcc"
                    if mib > self.biggest_mib:
                        self.biggest_mib, self.biggest = mib, name
        self.peak_mib = max(self.peak_mib, total)
        return compilers


class BuildFlash:
    """Plan, build, keep, try. ``anyway`` builds where none is needed; ``install`` puts the wheel into the target."""

    def __init__(
        self, ctx: Context, request: Request | None = None, *, anyway: bool = False, install: bool = False
    ) -> None:
        self.ctx = ctx
        self.anyway = anyway
        self.install = install
        asked = request or Request()
        if asked.source is not None:
            asked = Request(
                flash_source.release_of(asked.source), asked.source, asked.cards, asked.jobs, asked.without
            )
        self.request = asked
        self.live = LiveProbe(ctx.work, ctx.stack.name, ctx.python)
        self.host = CachedProbe(self.live)
        self.jobs = Jobs(ctx.work.jobs)
        self.log = ctx.work.logs / f"{NAME}.log"
        self.unneeded = ""
        self.ready: Kept | None = None
        self._plan: FlashPlan | None = None

    @property
    def to_do(self) -> bool:
        """True when ``apply`` would do something; ask after ``plan``."""
        return not self.unneeded and (
            self.ready is None or self.install or self.ready.kernel != flash_kernel.RIGHT
        )

    def plan(self) -> list[str]:
        """Why nothing is needed, which kept wheel serves, or what would be built.

        Raises:
            BadParameter, ActionFailed: why nothing can be built.
        """
        why = flash_plan.unneeded(self.host, self.ctx.stack, self.request.release)
        if why and not self.anyway:
            self.unneeded = why
            return [f"not needed: {why}", "--anyway builds one all the same"]
        facts = flash_plan.facts_of(self.host)
        plan = self._plan = flash_plan.made(self.host, self.ctx.work, self.request, facts, anyway=self.anyway)
        lines = [f"not needed: {why}", "built all the same, since --anyway was given"] if why else []
        lines = lines or ["needed    nothing in the target brings these kernels"]
        self.ready = flash_wheels.fitting(self.ctx.work, plan.name)
        if self.ready is not None:
            lines += [f"built     {self.ready.built}: {self.ready.wheel}", f"kernel    {self.ready.kernel}"]
            return [*lines, *self._after()]
        return [
            *lines,
            *plan.lines(),
            f"keep      {flash_wheels.folder(self.ctx.work) / plan.name}",
            *self._after(),
            f"log       {self.log}",
        ]

    def _after(self) -> list[str]:
        install = [f"install   into {self.ctx.python}"] if self.install else []
        return [
            "then      its kernel is compared with attention in float32, from a folder beside the target",
            *install,
        ]

    def apply(self, say: Say) -> None:
        """Build unless a wheel that fits is kept; then try its kernel, and install it if that was asked.

        Raises:
            ActionFailed: it was not built, or its kernel is wrong.
            NoVerdict: it was built, and there is no GPU to run it on.
        """
        if self._plan is None:
            self.plan()
        plan = self._plan
        if plan is None:
            return
        self.ctx.work.logs.mkdir(parents=True, exist_ok=True)
        done = self.ready or self._build(plan, say)
        self.ready = done = self._tried(plan, done, say)
        if done.kernel == flash_kernel.WRONG:
            wrong = done.stamp["kernel"]["why"]
            raise ActionFailed(
                f"the kernel of {done.wheel.name} is wrong: {wrong}",
                "twice the error of the formula in the same type at most",
                "do not use it; try another release or toolkit",
            )
        if self.install:
            flash_source.by_uv(
                ["pip", "install", "--python", str(self.ctx.python), "--no-deps", str(done.wheel)],
                self.log,
                "installing the wheel",
            )
            say(f"installed into {self.ctx.python}")
        if done.kernel != flash_kernel.RIGHT:
            raise NoVerdict(
                f"{done.wheel} is built; its kernel was not judged: {done.kernel}",
                "a GPU it was built for",
                "carry the wheel there, and run the same command: it tries a kept wheel",
            )

    def _build(self, plan: FlashPlan, say: Say) -> Kept:
        if (running := self.jobs.get(NAME)) is not None:
            raise ActionFailed(
                f"a build of flash-attn runs already, as process {running.pid}",
                "one at a time: two would share memory that was counted once",
                "wait for it, or end it: runbook stop",
            )
        self._sweep()
        owner = self.ctx.owner
        scratch = self.ctx.work.root / "builds" / f"flash-attn-{owner.pid}-{owner.started:.0f}"
        scratch.mkdir(parents=True, exist_ok=True)
        self.log.write_text("", encoding="utf-8")
        try:
            env = self._env(plan, scratch, say)
            folder = self._sources(plan, scratch, env, say)
            return self._compiled(plan, scratch, folder, env, say)
        except KeyboardInterrupt:
            say(f"interrupted: the build is stopped and its folder removed; the log is {self.log}")
            raise
        finally:
            self.jobs.stop(NAME)
            shutil.rmtree(scratch, ignore_errors=True)

    def _sweep(self) -> None:
        """Remove folders of builds whose owner is gone; a keeper that was killed leaves one."""
        for path in (self.ctx.work.root / "builds").glob("flash-attn-*-*"):
            pid, _, start = path.name.removeprefix("flash-attn-").partition("-")
            if not Owner.parse(f"{pid}:{start}").alive():
                shutil.rmtree(path)

    def _env(self, plan: FlashPlan, scratch: Path, say: Say) -> dict[str, str]:
        """The environment of the build: the target's own, tools it lacks in front, every limit set."""
        tools, tmp = scratch / "tools", scratch / "tmp"
        tmp.mkdir(exist_ok=True)
        missing = [TOOLS[name] for name, version in plan.facts["tools"].items() if version is None]
        missing += ["pip"] if self.request.source is None else []
        if missing:
            say(
                f"the target has no {', '.join(one.partition('>')[0] for one in missing)}: into a folder of the build"
            )
            flash_source.by_uv(
                ["pip", "install", "--python", str(self.ctx.python), "--target", str(tools), *missing],
                self.log,
                "fetching build tools",
            )
        env = target_env(self.ctx.work, self.ctx.stack.name, self.ctx.python)
        macros = " ".join(f"-D{flash_attn_options()[one]['macro']}" for one in self.request.without)
        if macros:
            for name in ("NVCC_APPEND_FLAGS", "CFLAGS"):
                env[name] = f"{env.get(name, '')} {macros}".strip()
        if plan.toolkit.headers:
            # After the toolkit's own folder, which torch names with -I (GCC manual: environment variables).
            folders = [self.live.resolve(one) for one in plan.toolkit.headers]
            env["CPATH"] = os.pathsep.join([*folders, *([env["CPATH"]] if env.get("CPATH") else [])])
        env["PATH"] = os.pathsep.join([str(tools / "bin"), env["PATH"]])
        return env | {
            "PYTHONPATH": str(tools),
            "TMPDIR": str(tmp),
            "CUDA_HOME": plan.toolkit.home,
            "MAX_JOBS": str(plan.share.jobs),
            # One target at a time within a job: what was measured, and memory does not multiply by the targets.
            "NVCC_THREADS": "1",
            "FLASH_ATTN_CUDA_ARCHS": ";".join(plan.archs),
            # Otherwise its setup.py looks for somebody's wheel on GitHub first, for a torch of that major and minor number.
            "FLASH_ATTENTION_FORCE_BUILD": "TRUE",
        }

    def _sources(self, plan: FlashPlan, scratch: Path, env: Mapping[str, str], say: Say) -> Path:
        source = self.request.source
        if source is None:
            say(f"fetching the sources of {self.request.release}")
            source = flash_source.fetch(self.request.release, self.ctx.python, scratch, env, self.log)
        folder = flash_source.lay_out(source, scratch)
        if not plan.row["honours_archs"]:
            flash_source.narrow(folder, plan.archs)
        return folder

    def _compiled(self, plan: FlashPlan, scratch: Path, folder: Path, env: dict[str, str], say: Say) -> Kept:
        out = scratch / "wheel"
        kills = build_log.oom_kills(self.live.read_text(VMSTAT))
        argv = [uv.program(), "build", "--wheel", "--no-build-isolation", "--python", str(self.ctx.python), "--color", "never", "--out-dir", str(out), str(folder)]  # fmt: skip
        # Not before: pip refuses an sdist whose metadata says another version than its name.
        named = {**env, "FLASH_ATTN_LOCAL_VERSION": plan.local}
        job = self.jobs.start(
            NAME, argv, env=named, cwd=scratch, owner=self.ctx.owner, grace_s=GRACE_S, scratch=scratch
        )
        say(f"building with {plan.share.jobs} jobs as process {job.pid}; the log is {self.log}")
        seen = self._watched(plan, job, say)
        ended = self.jobs.ended(NAME)
        log = "\n".join(log_tail(job.log, 1 << 20, LOG_BYTES))
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"{log}\n")
        wheels = sorted(out.glob("*.whl"))
        if ended is None or ended.exit_code != 0 or not wheels:
            raise self._failure(plan, ended, log, kills)
        stamp = {
            "schema": "flash-attn-build/1",
            "for": plan.name,
            "release": self.request.release,
            "torch": plan.facts["torch"],
            "cuda": plan.facts["cuda"],
            "python": plan.facts["tag"],
            "cxx11_abi": plan.facts["cxx11_abi"],
            "archs": list(plan.archs),
            "without": list(self.request.without),
            "nvcc": plan.toolkit.release,
            "compiler": plan.toolkit.gxx,
            "built": now(),
            "seconds": round(ended.seconds, 1),
            "jobs": plan.share.jobs,
            "steps": (build_log.progress(log) or (plan.steps, plan.steps))[1],
            "peak_mib": seen.peak_mib,
            "biggest_process": f"{seen.biggest} {seen.biggest_mib} MiB",
            "sha256": hashlib.sha256(wheels[0].read_bytes()).hexdigest(),
            "mib": wheels[0].stat().st_size >> 20,
        }
        done = flash_wheels.keep(self.ctx.work, plan.name, wheels[0], stamp)
        say(f"built in {ended.seconds:.0f} s, at most {seen.peak_mib} MiB in use: {done.wheel}")
        return done

    def _watched(self, plan: FlashPlan, job: Job, say: Say) -> _Seen:
        """Wait for the end; say now and then how far it is."""
        seen = _Seen()
        began = last = time.monotonic()
        while not self.jobs.join(job, SAMPLE_S):
            compilers = seen.look(job)
            at = time.monotonic()
            if at - last >= SAY_EVERY_S:
                last = at
                say(_beat(plan, log_tail(job.log, 1 << 20, LOG_BYTES), at - began, compilers, seen))
        return seen

    def _failure(self, plan: FlashPlan, ended: Ended | None, log: str, kills: int | None) -> ActionFailed:
        """What ended the build, by the plainest sign there is; the order is that of causes, not of the log."""
        steps = build_log.progress(log) or (0, plan.steps)
        how = "its keeper was killed" if ended is None else ended.text()
        at = f"at object {steps[0]} of {steps[1]}; {how}"
        read = f"the log is {self.log}; nothing else was left"
        if line := build_log.disk_full(log):
            return ActionFailed(
                f"the disk became full, {at}: {line}",
                f"{plan.disk_mib} MiB free in {self.ctx.work.root}",
                f"runbook clean, or RUNBOOK_HOME on a larger disk; {read}",
            )
        after = build_log.oom_kills(self.live.read_text(VMSTAT))
        more = 0 if kills is None or after is None else after - kills
        line = build_log.killed(log)
        if line or more:
            fewer = max(1, plan.share.jobs // 2)
            counted = f"; the kernel killed {more} for memory meanwhile" if more else ""
            return ActionFailed(
                f"a compiler was killed, most likely for memory, {at}{counted}: {line or '(no word in the log)'}",
                f"{plan.row['job_mib']} MiB for each of {plan.share.jobs} jobs",
                f"again with --jobs {fewer}; {read}",
            )
        if ended is None or ended.reason != "exited" or ended.signal is not None:
            return ActionFailed(
                f"the build was stopped, {at}", "a build that nobody stops", f"start it again; {read}"
            )
        first = build_log.first_error(log) or (log.strip().splitlines() or ["(nothing was written)"])[-1]
        pair = flash_attn_pair(self.request.release, str(plan.facts["torch"]))
        return ActionFailed(
            f"it does not compile, {at}; the first error: {first}",
            pair["works"] if pair else "sources that fit this torch and this nvcc",
            read,
        )

    def _tried(self, plan: FlashPlan, done: Kept, say: Say) -> Kept:
        """The kernel against float32; what was found is recorded with the wheel. One that was found right is not run again."""
        if done.kernel == flash_kernel.RIGHT:
            return done
        with flash_kernel.beside(done.wheel, self.ctx.python, self.log) as folder:
            backward = "0" if "backward" in plan.request.without else "1"
            said = self.live.inside(
                "flash_check", {"path": str(folder), "backward": backward}, flash_kernel.LIMIT_S
            )
        kernel = flash_kernel.judged(said)
        say(f"kernel: {kernel['said']}" + (f" ({kernel['why']})" if kernel.get("why") else ""))
        return flash_wheels.restamp(Kept(done.wheel, {**done.stamp, "kernel": kernel}))


class ShowFlash(BuildFlash):
    """The same for a page, on which what cannot be built is a line and no error."""

    def plan(self) -> list[str]:
        """The plan, or why there is none."""
        try:
            return super().plan()
        except RunbookError as why:
            return str(why).splitlines()


def _beat(plan: FlashPlan, lines: list[str], elapsed: float, compilers: int, seen: _Seen) -> str:
    """One line: objects, time, what is left, memory, and what was compiled last."""
    log = "\n".join(lines)
    done, total = build_log.progress(log) or (0, plan.steps)
    left = (
        ""
        if plan.seconds is None
        else f", about {max(0.0, plan.seconds - elapsed) / 60:.0f} min to go by the plan"
    )
    # The first objects of a wave come late and together, so a rate means something only after one wave.
    if done > plan.share.jobs:
        left = f", about {elapsed / done * (total - done) / 60:.0f} min to go"
    last = build_log.last_file(log) or next(
        (line.strip()[:60] for line in reversed(lines) if line.strip()), ""
    )
    return f"{done} of {total} objects, {elapsed / 60:.1f} min{left}; {compilers} compilers, {seen.peak_mib} MiB at most; {last}"
