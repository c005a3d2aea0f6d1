"""Long processes of ours - a server, a build - that outlive a notebook's kernel and never outlive their owner.

A job is a command, a keeper watching over it (``keeper.py``), a state file and a log in one folder. The owner is a
process, usually ``runbook run``; when it ends in whatever way, the keeper ends the job and everything the job started.
No state file holds the environment of a command, because API keys live there.

How the parts are told apart: a lock file is held by the keeper of a name for as long as the keeper lives (the kernel
lets go of it even after SIGKILL); every process of a job carries two environment variables, the job's marker and the
folder, by which leftovers are found when no keeper is there to kill them.
"""

import contextlib
import fcntl
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil
from pydantic import TypeAdapter, ValidationError

from runbook.actions import keeper
from runbook.errors import ActionFailed, BadParameter, DeadlineExceeded, JobDied
from runbook.parse import cgroup, mounts

START_LIMIT_S = 60.0
HURRY_S = 10.0
SWEEP_LIMIT_S = 15.0
LAST_WORDS_S = 5.0
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")  # no dot: it separates the name in file names and in markers
T = TypeVar("T")


@dataclass(frozen=True)
class Owner:
    """One particular process. ``started`` is in kernel ticks since boot, so a reused pid is another owner."""

    pid: int
    started: float

    @classmethod
    def of(cls, pid: int | None = None) -> "Owner":
        """The process with that pid, or the calling one.

        Raises:
            ActionFailed: there is no such process.
        """
        pid = os.getpid() if pid is None else pid
        start = keeper.started(pid)
        if start is None:
            raise ActionFailed(f"there is no process {pid}", "a running process to own the job")
        return cls(pid, float(start))

    @classmethod
    def parse(cls, text: str) -> "Owner":
        """Read what ``text`` wrote.

        Raises:
            BadParameter: it is not of the form PID:START.
        """
        match = re.fullmatch(r"(\d{1,10}):(\d{1,18})", text, re.ASCII)
        if match is None:
            raise BadParameter(f"{text!r} names no owner", "PID:START, as in 4242:1234567")
        return cls(int(match[1]), float(match[2]))

    def text(self) -> str:
        """The form in which an owner is handed to another process: "PID:START"."""
        return f"{self.pid}:{self.started:.0f}"

    def alive(self) -> bool:
        """True while this very process runs; a zombie does not."""
        return keeper.started(self.pid) == self.started


@dataclass(frozen=True)
class Job:
    """A job as its state file describes it.

    ``started`` is in seconds since the epoch; the two ``..._start`` are in kernel ticks since boot and tell a process
    from a later one with the same pid.
    """

    name: str
    marker: str
    keeper_pid: int
    pid: int
    pgid: int
    port: int | None
    log: str
    argv: tuple[str, ...]
    started: float
    owner: str
    fingerprint: dict[str, str]
    keeper_start: int
    pid_start: int
    grace_s: float


@dataclass(frozen=True)
class Ended:
    """How the last job of a name ended: "exited" by itself, "stopped", or "owner gone".

    One of ``exit_code`` and ``signal`` is None. ``ended`` is in seconds since the epoch, ``seconds`` is how long it ran.
    ``oom_kills`` is how many processes the kernel killed for lack of memory meanwhile, by the count in the file ``oom``;
    None when there was none to read.
    """

    name: str
    marker: str
    exit_code: int | None
    signal: int | None
    reason: str
    ended: float
    seconds: float
    log: str
    oom_kills: int | None = None
    oom: str = ""

    def text(self) -> str:
        """The end in a few words, as in "exited with code 3 after 12.0 s"."""
        how = f"exit code {self.exit_code}" if self.signal is None else _signal_name(self.signal)
        return f"{self.reason} ({how}) after {self.seconds:.1f} s"


_JOB: TypeAdapter[Job] = TypeAdapter(Job)
_ENDED: TypeAdapter[Ended] = TypeAdapter(Ended)


class Jobs:
    """The jobs of one folder, by convention ``<workspace>/jobs``. Any process may ask, start and stop."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def start(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        owner: Owner,
        port: int | None = None,
        fingerprint: Mapping[str, str] | None = None,
        grace_s: float = 10,
        scratch: Path | None = None,
    ) -> Job:
        """Start a command as a job and return once its state file is written.

        What a dead keeper left behind under this name is killed first. The log of the job before is kept beside the new
        one, as NAME.previous.log. ``env`` is the whole environment of the command; ``argv`` must hold no secret, it is
        written down. ``grace_s`` is how many seconds the command has between SIGTERM and SIGKILL. ``scratch`` is a folder
        that the keeper removes when the command ends in any way but with exit code 0, its owner's death included.

        Raises:
            BadParameter: the name cannot be a job's, there is no command, or a path or word of it is not UTF-8.
            ActionFailed: one of that name runs, or the command could not be executed.
            DeadlineExceeded: the keeper gave no answer; it will not run the command then.
        """
        _check_name(name)
        words = [str(word) for word in argv]
        if not words:
            raise BadParameter(f"{name} was given no command")
        for text in (*words, str(self.folder), str(cwd)):
            _check_text(text)
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock(name) as lock:
            if lock is None:
                raise self._busy(name)
            self._sweep(name)
            log = self.folder / f"{name}.log"
            with contextlib.suppress(FileNotFoundError):  # there was no job before
                log.replace(self.folder / f"{name}.previous.log")
            spec: keeper.Spec = {
                "name": name,
                "marker": f"{name}.{uuid.uuid4().hex}",
                "folder": str(self.folder),
                "argv": words,
                "env": dict(env),
                "cwd": str(cwd.resolve()),
                "log": str(log),
                "owner": owner.text(),
                "port": port,
                "fingerprint": dict(fingerprint or {}),
                "grace_s": grace_s,
                "lock": lock,
                "scratch": None if scratch is None else str(scratch.resolve()),
                "oom": _oom_count(),
            }
            try:
                return self._run_keeper(spec)
            except KeyboardInterrupt:
                # The command may run by now, and whoever asked for it has no job in hand yet that could be stopped.
                self.stop(name)
                raise

    def get(self, name: str) -> Job | None:
        """The job of that name if its process runs. A stale, half-written or foreign state file is no job."""
        job = self._read(name)
        return job if job is not None and Owner(job.pid, job.pid_start).alive() else None

    def ending(self, name: str, timeout_s: float) -> None:
        """Wait until the keeper of a job whose process is over has written how that ended, if there is one at it."""
        job = self._read(name)
        if job is not None and not Owner(job.pid, job.pid_start).alive():
            self.join(job, timeout_s)

    def running(self) -> list[Job]:
        """Every job of the folder whose process runs, by name."""
        return [job for name in self._names() if (job := self.get(name)) is not None]

    def ended(self, name: str) -> Ended | None:
        """How the last job of that name ended; None while one runs, and when its keeper was killed."""
        ended = _load(_ENDED, self.folder / f"{name}.ended.json")
        return ended if ended is not None and ended.name == name else None

    def stop(self, name: str, *, grace_s: float | None = None) -> bool:
        """Stop a job and wait until every process of it is gone; True when there was something to stop.

        Works without a keeper and without a state file too. A ``grace_s`` (seconds) shorter than the job's own hurries
        the job; a longer one has no effect. May be called at any time, by several processes at once.

        Raises:
            BadParameter: the name cannot be a job's.
            ActionFailed: a process of it could not be killed, or belongs to somebody else.
        """
        _check_name(name)
        job = self._read(name)
        stopped = False
        if job is not None:
            watching = Owner(job.keeper_pid, job.keeper_start)
            stopped = _stop_keeper(
                name, watching, job.grace_s if grace_s is None else min(grace_s, job.grace_s)
            )
        # Usually finds nothing. It is what works when the keeper was killed or the state file is unreadable.
        stopped = bool(self._sweep(name)) or stopped
        self._forget(name)
        return stopped

    def stop_all(self) -> list[str]:
        """Stop every job of the folder, and every stray process of it; the names of what was stopped.

        Raises:
            ActionFailed: some could not be stopped; all others were.
        """
        names = {*self._names(), *(_name_of(marker) for _, marker in self._marked())}
        stopped = []
        problems = []
        for name in sorted(names):
            try:
                if self.stop(name):
                    stopped.append(name)
            except ActionFailed as error:  # one that cannot be stopped must not save the others
                problems.append(error)
        if problems:
            raise ActionFailed("; ".join(error.seen for error in problems), "no job left", problems[0].do)
        return stopped

    def processes(self) -> list[tuple[int, str]]:
        """(pid, name of the program) of every process that carries this folder's mark, whether a keeper knows it or not."""
        found = []
        for process, _ in self._marked():
            with contextlib.suppress(psutil.NoSuchProcess):  # compilers come and go
                found.append((process.pid, process.name()))
        return sorted(found)

    def wait(
        self,
        job: Job,
        ready: Callable[[], bool],
        *,
        deadline_s: float,
        every_s: float = 0.25,
        root_line: Callable[[str], str | None] | None = None,
    ) -> float:
        """Seconds until ``ready()`` was true, asking every ``every_s`` seconds; a death is noticed in between.

        ``root_line`` is given the end of the log (up to 256 KiB of text) and picks the line that explains a death; by
        default, and when it finds none, that is the last line with anything on it. A call of ``ready`` is never
        interrupted, so give it a short timeout of its own.

        Raises:
            JobDied: the process ended first.
            DeadlineExceeded: ``deadline_s`` seconds went by; the job still runs.
        """
        began = time.monotonic()
        watched = Owner(job.pid, job.pid_start)
        while True:
            # Alive after the question as well: an answer on a port may come from somebody else's server.
            is_ready = watched.alive() and ready()
            if not watched.alive():
                raise self._died(job, root_line)
            elapsed = time.monotonic() - began
            if is_ready:
                return elapsed
            if elapsed >= deadline_s:
                last = _last_line(log_tail(Path(job.log)))
                raise DeadlineExceeded(
                    f"{job.name} (process {job.pid}) was not ready after {elapsed:.0f} s; its last words: {last}",
                    f"ready within {deadline_s:g} s",
                    f"read {job.log}; the process still runs",
                )
            _gone_within(watched, min(every_s, deadline_s - elapsed))

    def join(self, job: Job, timeout_s: float) -> bool:
        """Wait at most ``timeout_s`` seconds until nothing of a job is left; then ``ended`` says how it went."""
        return _gone_within(Owner(job.keeper_pid, job.keeper_start), timeout_s)

    def _run_keeper(self, spec: keeper.Spec) -> Job:
        # -S as well: no .pth file of an environment may start a thread in the keeper, or delay it.
        command = [sys.executable, "-I", "-S", keeper.__file__, spec["name"], spec["folder"]]
        try:
            # The keeper holds these pipes until it has answered, so this returns with the answer, not with the job.
            run = subprocess.run(
                command,
                input=json.dumps(spec).encode(),
                capture_output=True,
                pass_fds=(spec["lock"],),
                start_new_session=True,
                timeout=START_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise DeadlineExceeded(
                f"the keeper of {spec['name']} gave no answer within {START_LIMIT_S:.0f} s",
                do=f"see whether the disks of {spec['argv'][0]} and {spec['folder']} answer",
            ) from error
        try:
            answer = json.loads(run.stdout)
        except ValueError:
            last = _last_line(run.stderr.decode("utf-8", "replace").splitlines())
            raise ActionFailed(f"the keeper of {spec['name']} failed: {last}", "a line of JSON") from None
        if "error" in answer:
            raise ActionFailed(
                f"{spec['name']} could not be started: {answer['error']}",
                f"{spec['argv'][0]} can be executed in {spec['cwd']}",
            )
        return _JOB.validate_python(answer["job"])

    def _busy(self, name: str) -> ActionFailed:
        job = self.get(name)
        if job is None:
            return ActionFailed(
                f"{name} is just being started or stopped by another process",
                "nobody at it",
                "try again in a moment",
            )
        return ActionFailed(
            f"{name} runs already, as process {job.pid}",
            f"no {name} running",
            f"use it, or stop it: runbook stop (or kill -TERM {job.keeper_pid}, its keeper)",
        )

    def _died(self, job: Job, root_line: Callable[[str], str | None] | None) -> JobDied:
        # The keeper writes how it ended once the last process is gone, which is a matter of milliseconds.
        _gone_within(Owner(job.keeper_pid, job.keeper_start), LAST_WORDS_S)
        ended = self.ended(job.name)
        how = ended.text() if ended is not None and ended.marker == job.marker else "killed, its keeper too"
        if ended is not None and ended.oom_kills:
            how += f", the kernel killed {ended.oom_kills} of its processes for lack of memory"
        lines = log_tail(Path(job.log), 5000, 262144)
        root = root_line("\n".join(lines)) if root_line is not None else None
        root = root or _last_line(lines)
        return JobDied(
            f"{job.name} (process {job.pid}) ended before it was ready: {how}: {root}", root, job.log
        )

    def _read(self, name: str) -> Job | None:
        job = _load(_JOB, self.folder / f"{name}.json")
        return job if job is not None and job.name == name else None

    def _names(self) -> list[str]:
        """Names that have a state file, ours or not, good or not."""
        return sorted(path.stem for path in self.folder.glob("*.json") if NAME.fullmatch(path.stem))

    def _forget(self, name: str) -> None:
        """Remove the state file that a killed keeper left. One that is not ours is left alone."""
        if self._read(name) is None:
            return
        with self._lock(name) as lock:
            if lock is not None:  # otherwise somebody has started the next one already
                (self.folder / f"{name}.json").unlink(missing_ok=True)

    @contextlib.contextmanager
    def _lock(self, name: str) -> Iterator[int | None]:
        """The lock of a name as a descriptor, or None when it is taken.

        The lock belongs to the descriptor and to its copies, the keeper's among them, and ends with the last of them:
        so it is closed here, never unlocked.
        """
        fd = os.open(self.folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        taken = False
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                taken = True
            except OSError as error:
                raise ActionFailed(
                    f"{self.folder} cannot be locked: {error.strerror}",
                    "a file system with flock",
                    "choose a workspace on a local disk",
                ) from error
            yield None if taken else fd
        finally:
            os.close(fd)

    def _marked(self, name: str | None = None) -> list[tuple[psutil.Process, str]]:
        """Processes that carry the marks of this folder, and of this name if one is given, each with its marker."""
        found = []
        # Other users' processes and zombies have no environ for us; neither is a leftover we could kill.
        for process in psutil.process_iter(["environ"]):
            environ: dict[str, str] = process.info["environ"] or {}
            marker = environ.get(keeper.JOB_VAR, "")
            if environ.get(keeper.FOLDER_VAR) != str(self.folder) or process.pid == os.getpid():
                continue
            if name is None or _name_of(marker) == name:
                found.append((process, marker))
        return found

    def _sweep(self, name: str) -> set[int]:
        """Kill by marker until a look finds none, and return the pids.

        Raises:
            ActionFailed: some survive SIGKILL.
        """
        killed: set[int] = set()
        deadline = time.monotonic() + SWEEP_LIMIT_S
        while found := self._marked(name):
            killed.update(process.pid for process, _ in found)
            if time.monotonic() > deadline:
                pids = ", ".join(str(process.pid) for process, _ in found)
                raise ActionFailed(
                    f"processes of {name} survive SIGKILL: {pids}",
                    "SIGKILL ends a process at once",
                    "they wait inside the kernel, often in a device driver: look at dmesg; a reboot ends them",
                )
            for process, _ in found:
                with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    process.kill()
            for process, _ in found:
                start = keeper.started(process.pid)
                if start is not None:
                    _gone_within(Owner(process.pid, start), 1)
        return killed


def _oom_count() -> str:
    """The file in which the kernel counts who it killed for lack of memory: our control group's, else the machine's.

    A command is in its starter's group. cgroups v2: memory.events, also counts the groups below; v1: memory.oom_control.
    """
    own, table = (Path("/proc/self", name).read_text(encoding="utf-8") for name in ("cgroup", "mountinfo"))
    group = cgroup.groups(own, mounts.mounts(table), "memory")
    name = "memory.oom_control" if group.version == 1 else "memory.events"
    places = [*(f"{folder}/{name}" for folder in group.folders[:1]), "/proc/vmstat"]
    return next((place for place in places if keeper.oom_kills(place) is not None), "")


def log_tail(path: Path | str, lines: int = 20, max_bytes: int = 65536) -> list[str]:
    r"""The last lines of a log, reading at most ``max_bytes`` from its end; [] when there is no such file.

    A line that begins before the part that was read is left out, unless it is the only one. Progress bars, which write
    many lines over each other with "\r", count as many lines.
    """
    try:
        with Path(path).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - max_bytes))
            text = file.read(max_bytes).decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    found = deque(text.splitlines(), maxlen=lines + 1)
    cut = size > max_bytes and len(found) > 1 and len(text.splitlines()) <= lines
    return list(found)[1:] if cut or len(found) > lines else list(found)


def _last_line(lines: Sequence[str]) -> str:
    return next((line.strip() for line in reversed(lines) if line.strip()), "(nothing was written)")


def _load(adapter: TypeAdapter[T], path: Path) -> T | None:
    try:
        return adapter.validate_json(path.read_bytes())
    except (OSError, ValidationError):  # missing, a folder, unreadable, half-written, or somebody else's
        return None


def _check_name(name: str) -> None:
    if NAME.fullmatch(name) is None:
        raise BadParameter(f"{name!r} cannot name a job", "lower-case letters, digits, - and _, at most 63")


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadParameter(f"{text!r} is not UTF-8", "names that a state file can hold") from None


def _name_of(marker: str) -> str:
    return marker.partition(".")[0]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no name
        return f"signal {number}"


def _stop_keeper(name: str, watching: Owner, grace_s: float) -> bool:
    """End a keeper and thereby its job; False when it is gone already.

    First it is asked, then it is told that the grace is over, then it is killed, which kills the command with it.
    """
    for number, patience_s in ((signal.SIGTERM, grace_s), (keeper.HURRY, HURRY_S), (signal.SIGKILL, HURRY_S)):
        if not watching.alive():
            return number is not signal.SIGTERM
        try:
            os.kill(watching.pid, number)
            os.kill(watching.pid, signal.SIGCONT)  # should somebody have stopped it
        except ProcessLookupError:
            return True
        except PermissionError as error:
            raise ActionFailed(
                f"{name} belongs to another user (its keeper is process {watching.pid})",
                do="stop it as that user",
            ) from error
        if _gone_within(watching, patience_s):
            return True
    return True


def _gone_within(process: Owner, timeout_s: float) -> bool:
    """Wait until that process is gone, at most ``timeout_s`` seconds; False when it still runs."""
    deadline = time.monotonic() + timeout_s
    try:
        fd = keeper.pidfd(process.pid, int(process.started))
    except ProcessLookupError:
        return True
    if fd is None:
        while process.alive():
            if time.monotonic() >= deadline:
                return False
            time.sleep(min(0.05, max(0.0, deadline - time.monotonic())))
        return True
    try:
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        return bool(poller.poll(max(0.0, timeout_s) * 1000))
    finally:
        os.close(fd)
