"""Do before the first start what it would do: write bytecode, and compile every kernel this card, model and plan need.

Kernels are built by the start itself: the planned command with ``--load-format dummy``, which needs a checkpoint's small
files only, so it can run while the weights are fetched. That covers torch.compile, Triton and FlashInfer at once, with the
keys the server will ask for, since no key of theirs depends on weights (``LoadConfig.compute_hash`` has no factor: code read in
vLLM 0.19.1; one key for both formats: measured on 0.19.1 and 0.32.0, docs/boot.md). A second start then proves it.
"""

import contextlib
import dataclasses
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from runbook import launch, measured, tables
from runbook.actions import Context, Say, flash_plan
from runbook.actions.jobs import Jobs
from runbook.actions.model_files import GENERATED, MakeModel, folder_of
from runbook.actions.server import NAME, StartServer, StopServer
from runbook.checks import backends
from runbook.errors import ActionFailed, BadParameter
from runbook.model import Verdict
from runbook.parse import boot_log
from runbook.parse.caches import kernels
from runbook.probes.live import LiveProbe, die_with_parent, target_env
from runbook.serving.boot import Boot
from runbook.serving.profiles import BASELINE
from runbook.workspace import above

DUMMY = launch.Flag("--load-format", "dummy", "kernels depend on shapes only")
JOB_MIB = 4096
"""FlashInfer's compilers took 1.7 to 3.1 GB each when sampled on an H200 (docs/measurements.md)."""

DISK_MIB = 2000
"""A first start left 124 MB of caches on an H200, and bytecode of a target is some 0.5 GB."""

# By default FlashInfer compiles for minutes without a word. Verbose alone would compile for a debugger, with -O0 -G
# (flashinfer/jit/core.py of 0.6.6, gen_jit_spec: code read, not run).
SPEAKING = {"FLASHINFER_JIT_VERBOSE": "1", "FLASHINFER_JIT_DEBUG": "0"}
TELL_EVERY_S = 10.0
PYC_HEADER = 16


@dataclass(frozen=True)
class Prebuilt:
    """What was done. ``compiled`` and ``again`` count files by family, of the first and of the second start.

    ``graphs_again`` is how many graphs the second start traced anew although their kernels lay there.
    """

    bytecode: int
    first_s: float | None
    compiled: dict[str, int]
    second_s: float | None
    again: dict[str, int]
    graphs_again: int

    @property
    def proven(self) -> bool:
        """True when the second start compiled no kernel."""
        return not kernels(self.again)

    def lines(self) -> list[str]:
        """It as text."""
        said = [f"bytecode  {self.bytecode} files lacked it and have it now"]
        if self.first_s is None or self.second_s is None:
            return [*said, "kernels   nothing is compiled at a start with this plan"]
        made, again = kernels(self.compiled), kernels(self.again)
        said += [f"compiled  {made} kernels in a start of {self.first_s:.1f} s"]
        said += [f"  {number:>6}  {family}" for family, number in self.compiled.items()]
        said += [f"proof     a second start took {self.second_s:.1f} s and compiled {again}"]
        if self.graphs_again:
            said += [f"graphs    {self.graphs_again} traced again: vLLM could not load what it had saved"]
        return said


class Prebuild:
    """Bytecode, then a start that compiles, then one that must not. ``jobs`` None: as many as memory and cores allow.

    ``own`` are the user's flags for the server, as for ``runbook serve``.
    """

    def __init__(
        self, ctx: Context, jobs: int | None = None, profile: str = BASELINE, own: tuple[str, ...] = ()
    ) -> None:
        self.ctx = ctx
        self.profile = profile
        self.own = own
        self.asked = jobs
        self.host = LiveProbe(ctx.work, ctx.stack.name, ctx.python, folder_of(ctx))

    def plan(self) -> list[str]:
        """What would be done; raises as ``apply`` where that is known before."""
        self._ready()
        lacking = len(list(without_bytecode(self.site()))) if self.ctx.ours else 0
        lines = [f"bytecode  {lacking} files of the target lack it" if self.ctx.ours else self._foreign()]
        if not self.compiles():
            return [*lines, "kernels   nothing is compiled at a start with this plan"]
        ctx, whole = self.small()
        lines += [
            f"kernels   a start with {DUMMY.flag} {DUMMY.value} on {folder_of(ctx)}, at most {self.jobs()} compilers at once",
            f"into      {ctx.work.caches(ctx.stack.name)}",
            f"proof     a second start, {'with its weights' if whole else 'as the first'}, must compile nothing",
        ]
        if not whole:
            lines.append(
                "later     keys of graphs hold the folder's path: those are compiled once more from its own; Triton's and FlashInfer's are found"
            )
        return lines

    def apply(self, say: Say) -> Prebuilt:
        """Do it, and leave nothing running.

        Raises:
            BadParameter: no target, or not even the small files of the checkpoint are there.
            ActionFailed: a compiler is missing, the disk is too full, a server runs, or a start failed.
        """
        self._ready()
        bytecode = self._bytecode(say)
        if not self.compiles():
            return Prebuilt(bytecode, None, {}, None, {}, 0)
        ctx, whole = self.small()
        if ctx.model in GENERATED:
            MakeModel(ctx).apply(say)
        try:
            first, _ = self._start(ctx, say, dummy=True)
            second, log = self._start(ctx, say, dummy=not whole)
        finally:
            # What checks would read of it is not of the server that is to come.
            measured.forget(self.ctx.work)
        again = len([line for line in boot_log.compile_lines(log) if "Compiling model again" in line])
        return Prebuilt(bytecode, first.ready_s, first.made, second.ready_s, second.made, again)

    def compiles(self) -> bool:
        """True when a start with this plan compiles something: anything on a GPU, and on a CPU unless it is eager."""
        if self.ctx.stack.device != "cpu":
            return True
        words = [
            one.flag for one in StartServer(self.ctx, (), self.profile, own=self.own).launch.planned.flags
        ]
        last = [word for word in (*words, *self.own) if word in {"--enforce-eager", "--no-enforce-eager"}]
        return not last or last[-1] == "--no-enforce-eager"

    def small(self) -> tuple[Context, bool]:
        """The context with a folder that has the checkpoint's small files, and whether its weights are there too.

        Raises:
            BadParameter: there is no such folder.
        """
        folder = folder_of(self.ctx)
        if self.ctx.model in GENERATED or any(folder.glob("*.safetensors")):
            return self.ctx, True
        places = (folder, folder.with_name(f"{folder.name}.part"), self.ctx.work.skeletons / folder.name)
        for place in places:
            if (place / "config.json").is_file() and any(place.glob("tokenizer*.json")):
                return dataclasses.replace(self.ctx, model=str(place)), False
        raise BadParameter(
            f"no config.json with a tokenizer in {' or '.join(str(one) for one in places)}",
            "the small files of the checkpoint",
            f"begin to fetch it, they come first: runbook fetch {self.ctx.model}",
        )

    def jobs(self) -> int:
        """How many compilers may run at once; raises as ``flash_plan.share``."""
        return flash_plan.share(self.host, {"job_mib": JOB_MIB}, sys.maxsize, self.asked).jobs

    def site(self) -> Path:
        """The target's site-packages."""
        return Path(self.host.places["{site}"])

    def _foreign(self) -> str:
        return f"bytecode  left as it is: you named the target {self.ctx.python}"

    def _ready(self) -> None:
        if not self.host.has_target or "{site}" not in self.host.places:
            raise BadParameter(
                f"no target at {self.ctx.python}",
                "a target that is built",
                f"runbook env build --stack {self.ctx.stack.name}",
            )
        running = Jobs(self.ctx.work.jobs).get(NAME)
        if running:
            raise ActionFailed(
                f"a server runs, as process {running.pid}: it has the memory that a second one needs",
                "no server",
                "runbook stop",
            )
        free = shutil.disk_usage(above(self.ctx.work.root)).free >> 20
        if free < DISK_MIB:
            raise ActionFailed(
                f"{free} MiB are free in {above(self.ctx.work.root)}",
                f"{DISK_MIB} MiB for bytecode and caches",
                "make room, or set RUNBOOK_HOME to another disk",
            )
        self._tools()

    def _tools(self) -> None:
        """A compiler that is missing is said now, not minutes into a start (check VLLM-013; on a CPU inductor wants g++)."""
        if self.ctx.stack.device == "cpu":
            missing = "" if not self.compiles() or shutil.which("g++") else "g++"
            do = "sudo apt-get install g++"
        else:
            answer = backends.tools.judge(self.host)
            missing = answer.reason if answer.verdict is Verdict.FAIL else self._flashinfer()
            do = "; ".join(answer.fix.commands) if answer.fix else "export CUDA_HOME=/usr/local/cuda"
        if missing:
            raise ActionFailed(
                f"compilers: {missing}", "what a start compiles with (runbook explain VLLM-013)", do
            )

    def _flashinfer(self) -> str:
        """What FlashInfer lacks when the user asks for its gated-delta-net kernels: the check knows the stack's flags only."""
        words = " ".join(self.own).replace("=", " ")
        row = tables.jit_tools("flashinfer")
        if "--gdn-prefill-backend flashinfer" not in words or row is None:
            return ""
        env = target_env(self.ctx.work, self.ctx.stack.name, self.ctx.python)
        cuda = env.get("CUDA_HOME") or env.get("CUDA_PATH") or "/usr/local/cuda"
        path = os.pathsep.join((env["PATH"], f"{cuda}/bin"))
        lacking = [
            group[0] for group in row["needs"] if not any(shutil.which(one, path=path) for one in group)
        ]
        return f"not found: {', '.join(lacking)}" if lacking else ""

    def _start(self, ctx: Context, say: Say, *, dummy: bool) -> tuple[Boot, str]:
        """One start and its end: what it wrote of itself, and its log."""
        env = {"MAX_JOBS": str(self.jobs()), **SPEAKING}
        if self.ctx.stack.device == "cpu":
            env["TORCH_COMPILE_DISABLE"] = "0"  # the CPU stacks set it, for they start eagerly
        start = StartServer(ctx, (DUMMY,) if dummy else (), self.profile, own=self.own, env=env)
        try:
            start.apply(say)
            text = measured.path(ctx.work, "boot").read_text(encoding="utf-8")
            log = (ctx.work.jobs / f"{NAME}.log").read_text(encoding="utf-8", errors="replace")
        finally:
            StopServer(ctx).apply(say)
        boot = Boot.of(json.loads(text))
        if boot is None:
            raise ActionFailed(
                "the start left a record that cannot be read", "phases and files made", "start again"
            )
        return boot, log

    def _bytecode(self, say: Say) -> int:
        """How many files lacked bytecode and have it now."""
        if not self.ctx.ours:
            say(self._foreign())
            return 0
        site = self.site()
        before = set(without_bytecode(site))
        if not before:
            return 0
        say(f"compiling {len(before)} files of {site} to bytecode")
        for source in before:  # compileall looks at the time only, an import at the size too
            _compiled(source, site).unlink(missing_ok=True)
        # By time stamp, not by an unchecked hash: a file that is mended later must never run as it was before.
        command = ["-I", "-m", "compileall", "-q", "-j", str(cores()), "--invalidation-mode", "timestamp"]
        with subprocess.Popen(
            [str(self.ctx.python), *command, str(site)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent(),  # noqa: PLW1509 - the function is one system call, see there
        ) as child:
            try:
                while True:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        child.wait(TELL_EVERY_S)
                        break
                    say(f"{len(before & set(without_bytecode(site)))} left")
            except BaseException:
                os.killpg(child.pid, 9)
                raise
        # A few files of packages are templates or of another Python and never compile; uv passes them over too.
        return len(before) - len(before & set(without_bytecode(site)))


def cores() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0))


def without_bytecode(site: Path) -> Iterator[Path]:
    """Sources below a site-packages folder without bytecode that its interpreter would take.

    That is a file in ``__pycache__`` with the source's time and size, or one made by hash (PEP 552).
    """
    for folder, _, names in os.walk(site):
        for name in names:
            source = Path(folder, name)
            if source.suffix == ".py" and not _fresh(source, _compiled(source, site)):
                yield source


def _compiled(source: Path, site: Path) -> Path:
    """Where the bytecode of a source lies; the site-packages folder stands in ``python3.X``."""
    tag = f"cpython-{site.parent.name.removeprefix('python').replace('.', '')}"
    return source.parent / "__pycache__" / f"{source.stem}.{tag}.pyc"


def _fresh(source: Path, compiled: Path) -> bool:
    try:
        with compiled.open("rb") as file:
            head = file.read(PYC_HEADER)
        seen = source.stat()
    except OSError:
        return False
    if len(head) < PYC_HEADER:
        return False
    flags, time, size = struct.unpack("<III", head[4:])
    return bool(flags) or (time, size) == (int(seen.st_mtime) & 0xFFFFFFFF, seen.st_size & 0xFFFFFFFF)
