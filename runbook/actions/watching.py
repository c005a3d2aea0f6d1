"""What the processes of a starting server are doing, from outside: processor time, bytes, compilers, files of the caches.

A log that is silent says nothing: on an H200 one start compiled kernels for 337 s without a line. So the tree of
processes is looked at (``psutil``), and at a deadline the Python stacks in it (``py-spy``, https://github.com/benfred/py-spy).
"""

import contextlib
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from runbook.parse import caches
from runbook.probes.live import die_with_parent

# Those that do the work; nvcc, gcc and ninja only start them.
COMPILERS = frozenset(
    {"cc1", "cc1plus", "cicc", "ptxas", "cudafe++", "clang", "clang++", "ld", "lto1", "rustc"}
)
IDLE_SHARE = 0.03
"""Of one core: a process that polls a socket or a shared-memory queue uses about a hundredth."""

IDLE_BYTES = 64 * 1024
MIB = 1 << 20
STACK_LIMIT_S = 15.0
MOST_STACKS = 8
FRAMES = 4
SOURCES = frozenset({".c", ".cc", ".cpp", ".cxx", ".cu", ".ptx"})
_OUT = re.compile(r"\s(?:-o|--output-file)\s+(\S+)")
_FRAME = re.compile(r"^\s+(\S+) \((.+)\)$")


@dataclass(frozen=True)
class Look:
    """A tree of processes at one moment. ``cpu_s`` holds children that ended too; ``read`` is in bytes, from files and sockets.

    ``compilers`` are (program, what it makes); ``stopped`` are process ids in state T, by SIGSTOP or a debugger.
    """

    processes: int
    cpu_s: float
    read: int
    rss: int
    compilers: tuple[tuple[str, str], ...]
    stopped: tuple[int, ...]


def look(root: int) -> Look:
    """Look at all descendants of a process, such as a job's keeper: its orphans come back to it."""
    cpu = 0.0
    read = rss = count = 0
    compilers: list[tuple[str, str]] = []
    stopped: list[int] = []
    for process in tree(root):
        with contextlib.suppress(psutil.Error), process.oneshot():
            count += 1
            cpu += sum(process.cpu_times()[:4])
            rss += process.memory_info().rss
            if process.status() == psutil.STATUS_STOPPED:
                stopped.append(process.pid)
            if process.name() in COMPILERS:
                compilers.append((process.name(), _made_by(process.cmdline())))
            counters = process.io_counters()
            read += max(counters.read_chars, counters.read_bytes)
    return Look(count, cpu, read, rss, tuple(sorted(compilers)), tuple(stopped))


def tree(root: int) -> list[psutil.Process]:
    """All descendants of a process, oldest first; none when it is gone."""
    try:
        return psutil.Process(root).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _made_by(words: list[str]) -> str:
    """The file a compiler is at work on, without its folder: its source, for what it writes often has a made-up name."""
    sources = [word for word in words[1:] if Path(word).suffix in SOURCES]
    found = _OUT.search(" ".join(words))
    return Path(sources[-1] if sources else found[1] if found else "").name


@dataclass(frozen=True)
class Doing:
    """What a tree did between two looks, ``seconds`` apart. ``cores`` is processor time over time."""

    seconds: float
    cores: float
    read: int
    grown: int
    compilers: tuple[tuple[str, str], ...]
    stopped: tuple[int, ...]

    @property
    def idle(self) -> bool:
        """True when nothing at all goes on: no processor time, no bytes, no compiler."""
        return (
            self.cores < IDLE_SHARE
            and self.read < IDLE_BYTES
            and abs(self.grown) < MIB
            and not self.compilers
        )

    @property
    def words(self) -> str:
        """It in a few words."""
        if self.stopped:
            return f"stopped by a signal (state T): kill -CONT {' '.join(map(str, self.stopped[:3]))}"
        parts = []
        if self.compilers:
            kinds = Counter(program for program, _ in self.compilers)
            parts.append(
                "compiling: " + ", ".join(f"{number} {kind}" for kind, number in kinds.most_common(2))
            )
            parts.append(self.compilers[0][1][:40])
        parts.append(f"{self.cores:.1f} cores")
        if self.read > 32 * MIB:
            parts.append(f"reads {self.read / MIB / self.seconds:.0f} MiB/s")
        if self.grown > 32 * MIB:
            parts.append(f"memory +{self.grown / MIB:.0f} MiB")
        return ", ".join(part for part in parts if part)


def between(before: Look, after: Look, seconds: float) -> Doing:
    """What went on between two looks; processes that ended unreaped can make a difference negative, which counts as 0."""
    return Doing(
        seconds,
        max(0.0, after.cpu_s - before.cpu_s) / max(seconds, 1e-3),
        max(0, after.read - before.read),
        after.rss - before.rss,
        after.compilers,
        after.stopped,
    )


def made_since(folder: Path, since: float) -> dict[str, int]:
    """Files written to a stack's compile caches since a time (seconds since the epoch), by family of what was compiled."""
    made = []
    for path in _files(folder):
        with contextlib.suppress(OSError):
            if path.stat(follow_symlinks=False).st_mtime >= since:
                made.append(str(path.relative_to(folder)))
    return caches.families(made)


def _files(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):
        for name in names:
            yield Path(place, name)


def stacks(root: int, into: Path) -> tuple[str, ...]:
    """Write the Python stacks of a tree to a file and return, one a process, where its main thread stands.

    A process that py-spy cannot read (another user's, or the machine forbids ptrace) says so in its place.
    """
    found = [one for one in tree(root) if _is_python(one)][:MOST_STACKS]
    whole, short = [], []
    for process in found:
        text = dump(process.pid)
        whole.append(f"## process {process.pid}\n{text}\n")
        short.append(f"process {process.pid}: {main_thread(text, process.pid)}")
    into.parent.mkdir(parents=True, exist_ok=True)
    into.write_text("\n".join(whole) or "no Python process was left\n", encoding="utf-8")
    return tuple(short)


def dump(pid: int) -> str:
    """What py-spy says of a process; its complaint when it cannot look.

    Without pausing it: a process that is stopped already, or hangs in the kernel, would never answer the pause.
    """
    command = [str(Path(sys.executable).parent / "py-spy"), "dump", "--nonblocking", "--pid", str(pid)]
    try:
        ran = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=STACK_LIMIT_S,
            check=False,
            preexec_fn=die_with_parent(),
        )
    except (OSError, subprocess.TimeoutExpired) as why:
        return f"py-spy gave no answer: {why}"
    return (
        ran.stdout if ran.returncode == 0 else f"py-spy could not look: {(ran.stderr or ran.stdout).strip()}"
    )


def main_thread(text: str, pid: int) -> str:
    """The innermost frames of the main thread, whose number on Linux is the process's, or what py-spy said instead."""
    lines = text.splitlines()
    begin = next((at for at, line in enumerate(lines) if line.startswith(f"Thread {pid} ")), None)
    if begin is None:
        return lines[0] if lines else "no stack"
    frames = []
    for line in lines[begin + 1 :]:
        match = _FRAME.match(line)
        if match is None:
            break
        if "<frozen " not in match[2]:  # the machinery of imports says nothing
            frames.append(f"{match[1]} ({match[2]})")
    return " < ".join(frames[:FRAMES]) or "no frame"


def _is_python(process: psutil.Process) -> bool:
    try:
        return "python" in Path(process.exe()).name
    except psutil.Error:
        return False
