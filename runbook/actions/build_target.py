"""Build a stack's target environment from its lock with uv, once, and know later whether it is still that."""

import contextlib
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from runbook import pins, uv
from runbook.actions import Context, Say, planning, records
from runbook.actions.builds import LOCK, SCHEMA, STAMP, Build, Builds, now
from runbook.errors import ActionFailed, BadParameter
from runbook.parse import uv_log
from runbook.probes.live import die_with_parent
from runbook.workspace import write_whole

BEGUN = re.compile(r"(?m)^Downloading (\S+) \(([\d.]+[KMG]iB)\)$")
INSTALLED = re.compile(r"(?m)^Installed \d+ packages? in ")
TELL_EVERY_S = 10.0
LOOK_EVERY_S = 0.1
PLAN_LINES = 12
T = TypeVar("T")


class BuildTarget:
    """``uv venv`` and ``uv pip sync --require-hashes`` into a new folder, every byte compared, then one switch."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.builds = Builds(ctx.work, ctx.stack.name)
        self.log = ctx.work.logs / f"build-{ctx.stack.name}.log"

    def plan(self) -> list[str]:
        """What would be built, or why nothing is."""
        if not self.ctx.ours:
            return [
                f"nothing: you named the target {self.ctx.python}; the runbook builds in its own workspace only"
            ]
        return planning.as_text(planning.planned(self), limit=PLAN_LINES).splitlines()

    def undo(self) -> str:
        """The command that takes a build back."""
        name = self.ctx.stack.name
        return f"runbook env {f'rollback --stack {name}' if self.builds.current() else f'remove {name}'}"

    def fault(self) -> str | None:
        """Why the target must be built, or None when it is there, matches its lock and no file is missing.

        A build that was gone back to is held to the lock it was built from: it was chosen over a newer one.
        """
        current = self.builds.current()
        if current is None:
            return "there is no finished target"
        if not self.builds.held():
            try:
                if current.stamp["lock_sha256"] != pins.sha256(self.ctx.stack.lock(current.stamp["python"])):
                    return "the lock has changed since it was built"
            except (BadParameter, KeyError, TypeError):
                return "it was built from a lock that is no longer there"
        return current.changed()

    def apply(self, say: Say) -> None:
        """Build it unless it is whole.

        Raises:
            ActionFailed: it could not be built; the target that was current still is, and nothing else is left.
        """
        if self.ctx.ours and self.fault() is not None:
            self.build(say)

    def build(self, say: Say) -> Build:
        """Build it anew and make it current; raises as ``apply``."""
        (minor, base), lock = self.base()
        with self.builds.locked() as held:
            self.builds.sweep()
            folder = self.builds.new(minor, pins.sha256(lock))
            with self._all_or_nothing(folder):
                self._build(folder, minor, base, lock, held, say)
            self.builds.switch(folder.name, "build")
        return self.builds.get(folder.name)

    def _build(self, folder: Path, minor: str, base: str, lock: Path, held: int, say: Say) -> None:
        started = time.monotonic()
        self._uv(["venv", "--python", base, "--no-project", str(folder)], held, subprocess.Popen.wait)
        say(f"installing {len(pins.locked(lock))} packages; the log is {self.log}")
        sync = [
            "pip",
            "sync",
            "--python",
            str(folder / "bin" / "python"),
            "--require-hashes",
            "--compile-bytecode",
        ]
        site = records.site_of(folder)
        wrong = self._uv([*sync, "--no-progress", str(lock)], held, self._compared(site, say))
        if wrong:
            raise _damaged(wrong)
        files, size = records.weight(site)
        stamp = {
            "schema": SCHEMA,
            "stack": self.ctx.stack.name,
            "python": minor,
            "lock_sha256": pins.sha256(lock),
            "built": now(),
            "seconds": round(time.monotonic() - started, 1),
            "phases": {step: one.seconds for step, one in uv_log.timings(self._said()).items()},
            "fetched_mib": sum(mib(size) for _, size in BEGUN.findall(self._said())),
            "files": files,
            "bytes": size,
            "strays": sorted(records.strays(site)),
            "records": records.record_hashes(site),
        }
        shutil.copyfile(lock, folder / LOCK)
        write_whole(folder / STAMP, json.dumps(stamp, indent=1) + "\n")
        say(f"built in {stamp['seconds']} s: {files} files, every one as its package recorded it")

    @contextmanager
    def _all_or_nothing(self, folder: Path) -> Iterator[None]:
        """Remove what a build that fails or is interrupted has made; a build that is killed is swept by the next."""
        try:
            self.ctx.work.logs.mkdir(parents=True, exist_ok=True)
            self.log.write_text("", encoding="utf-8")
            yield
        except OSError as why:
            shutil.rmtree(folder, ignore_errors=True)
            raise ActionFailed(
                f"{why.filename or folder}: {why.strerror}",
                "a workspace that can be written to, with room for the build",
                "make room or set RUNBOOK_HOME to another disk, then try again; what was current still is",
            ) from why
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def base(self) -> tuple[tuple[str, str], Path]:
        """((minor, interpreter), lock): the runbook's own Python when the stack has a lock for it, else one that uv finds.

        Raises:
            ActionFailed: no Python that the stack has a lock for is installed.
        """
        own = f"{sys.version_info.major}.{sys.version_info.minor}"
        stack = self.ctx.stack
        if own in stack.pythons:
            return (own, sys.executable), stack.lock(own)
        for minor in stack.pythons:
            ran = subprocess.run(
                [uv.program(), "python", "find", "--no-project", minor],
                capture_output=True,
                text=True,
                check=False,
            )
            if ran.returncode == 0:
                return (minor, ran.stdout.strip()), stack.lock(minor)
        raise ActionFailed(
            f"the stack {stack.name} has no lock for Python {own}, and no other Python it has one for is installed",
            f"Python {', '.join(stack.pythons)}",
            f"uv python install {stack.pythons[-1]}",
        )

    def _uv(self, words: list[str], held: int, meanwhile: Callable[["subprocess.Popen[bytes]"], T]) -> T:
        """Run uv to its end, with its output in the log, and something else meanwhile."""
        # A disk cache on another file system cannot be hard-linked; copying is what uv does then, with a warning.
        with (
            self.log.open("a", encoding="utf-8") as log,
            subprocess.Popen(
                [uv.program(), *words, "--color", "never"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=uv.environment(),
                pass_fds=(held,),
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - the function is one system call, see there
            ) as child,
        ):
            try:
                found = meanwhile(child)
                child.wait()
            except BaseException:
                child.kill()
                raise
        if child.returncode:
            raise self._failed(words, child.returncode)
        return found

    def _failed(self, words: list[str], code: int) -> ActionFailed:
        text = self._said()
        tail = [line for line in text.splitlines() if line.strip()][-6:]
        blamed = uv_log.fault(text)
        cause = f"{blamed.seen}: " if blamed else ""
        do = f"{blamed.do}; then try again" if blamed else "try again, which starts afresh"
        return ActionFailed(
            f"{cause}uv {' '.join(words[:2])} ended with {code}: " + " | ".join(tail),
            "every wheel of the lock can be fetched and unpacked",
            f"{do}; what was current still is; the log is {self.log}",
        )

    def _said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def _compared(self, site: Path, say: Say) -> Callable[["subprocess.Popen[bytes]"], list[records.Fault]]:
        """Say now and then how far uv is, and compare every byte as soon as all is installed.

        uv compiles bytecode then, which leaves a core idle at times.
        """

        def compare(child: "subprocess.Popen[bytes]") -> list[records.Fault]:
            started = told = time.monotonic()
            while child.poll() is None:
                log = self._said()
                if INSTALLED.search(log):
                    say("installed; compiling bytecode, and comparing every file with its package's record")
                    break
                if time.monotonic() - told > TELL_EVERY_S:  # a silent half hour looks like a hang
                    told = time.monotonic()
                    say(f"{told - started:.0f} s: {fetched(log)}")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(LOOK_EVERY_S)
            return [] if child.poll() else records.faults(site, by_hash=True)

        return compare


def fetched(log: str) -> str:
    """How far the fetching of a build is: uv names its larger wheels when it begins and ends each."""
    begun = BEGUN.findall(log)
    ended = set(re.findall(r"(?m)^ Downloaded (\S+)$", log))
    open_ = [f"{name} ({size})" for name, size in begun if name not in ended]
    if not open_:
        return f"{len(ended)} large wheels fetched" if ended else "resolving and unpacking"
    return f"{len(ended)} of {len(begun)} large wheels fetched, now {', '.join(open_[:3])}"


def mib(size: str) -> float:
    """``16.0MiB`` as uv writes it."""
    return float(size[:-3]) * {"KiB": 1 / 1024, "MiB": 1.0, "GiB": 1024.0}[size[-3:]]


def _damaged(wrong: list[records.Fault]) -> ActionFailed:
    packages = sorted({one.package for one in wrong})
    return ActionFailed(
        f"{len(wrong)} files are not what their packages recorded, such as {wrong[0].name} ({wrong[0].kind})",
        "files as in the wheels, whose hashes the lock has: what uv keeps in its cache was damaged after it was unpacked",
        f"uv cache clean {' '.join(packages[:5])}, then try again; what was current still is",
    )
