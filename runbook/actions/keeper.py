"""Keeps one job: starts a command, and sees to it that nothing of it outlives the job's owner.

Run by path with our own interpreter (``python -I -S keeper.py NAME FOLDER``, the two words only so that ``ps`` shows
whose keeper it is). It reads its orders, a ``Spec`` as JSON, from standard input: they hold the command's whole
environment, API keys included, so they pass through no file and no command line. It answers one JSON line on standard
output, ``{"job": {...}}`` or ``{"error": "..."}``, closes it, and stays until the last process of the job is gone.

How nothing escapes: the keeper is a child subreaper, so whatever the command starts, in whatever session, remains a
descendant of the keeper; and the command is killed by the kernel when the keeper dies (``PR_SET_PDEATHSIG``, which is
tied to the parent *thread*: the keeper has one). Imports the standard library only, and nothing of ours.

How the log stays bounded: the command writes into the file itself, so the keeper can be neither in its way nor behind.
It looks at the size now and then; above a cap it writes the newest part over the middle, behind the lines of the start
and the first error, and cuts the file there. That needs no room on a full disk and leaves plain text on any file
system. What the command wrote in the milliseconds between is lost with the middle.
"""

import contextlib
import ctypes
import json
import math
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
HURRY = signal.SIGUSR1
"""What ends the grace period at once; the stop signals start it."""

JOB_VAR = "RUNBOOK_JOB"
FOLDER_VAR = "RUNBOOK_JOBS"
NO_PIDFD_POLL_S = 0.2

MIB = 1 << 20
LOG_POLL_S = 0.5
FLOOD = 8 * MIB
FLOOD_POLL_S = 0.02
OVERLAP = 8
"""How far two parts of a search overlap: a word may lie across their border."""

LOG_CAP = 256 * MIB
LOG_HEAD = MIB
"""The lines of a start are kept whatever comes: those of vLLM are some 100 KiB."""

LOG_TAIL = 8 * MIB
EXCERPT = 128 * 1024
BEFORE_ERROR = 16 * 1024
ERRORS = (b"Error", b"ERROR")
DROPPED = re.compile(rb"^\[runbook: (\d+) bytes of this log were dropped here[^\]\n]*\]$", re.MULTILINE)
RESERVED = 4096


class Spec(TypedDict):
    """The keeper's orders. ``owner`` is "PID:START"; ``lock`` is a descriptor it holds open until it ends.

    ``scratch`` is a folder that goes when the command ends in any way but with exit code 0. ``oom`` is the file in which
    the kernel counts the processes it killed for lack of memory (a line ``oom_kill N``), "" when there is none.
    """

    name: str
    marker: str
    folder: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    log: str
    owner: str
    port: int | None
    fingerprint: dict[str, str]
    grace_s: float
    lock: int
    scratch: str | None
    oom: str


def stat_fields(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third (state) on, or None when there is no such process."""
    try:
        # Bytes first: a process may call itself anything, and its name is in this line, in parentheses.
        text = Path(f"/proc/{pid}/stat").read_bytes().decode("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def started(pid: int) -> int | None:
    """When the process began, in kernel ticks since boot; None when it is gone or a zombie.

    A pid together with this number means one process for as long as the machine is up, even after the pid is reused.
    """
    fields = stat_fields(pid)
    if fields is None or fields[0] in "ZX":
        return None
    return int(fields[19])


def pidfd(pid: int, start: int) -> int | None:
    """A descriptor that turns readable when that very process ends; None on a kernel without them.

    Raises:
        ProcessLookupError: it is gone already.
    """
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (AttributeError, OSError):
        fd = None  # a Python built on old headers; a kernel before 5.3; a strict container
    if started(pid) != start:  # asked after opening: from here on the descriptor cannot mean another process
        if fd is not None:
            os.close(fd)
        raise ProcessLookupError(pid)
    return fd


def write_atomically(path: Path, document: dict[str, Any]) -> None:
    """Write JSON so that a reader sees the old file or the new one; over what ``reserve`` wrote, if it did.

    There is no fsync, on purpose: a machine that loses power loses the job too, so durability buys nothing, while on
    a disk busy with a download an fsync was seen to hold up the keeper, and thereby the end of its job, for 3 s.
    """
    partial = _partial(path)
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.flush()
        file.truncate()
    partial.replace(path)


def reserve(path: Path) -> None:
    """Take the room on disk that a later ``write_atomically`` of up to 4 KiB needs: it may be full by then."""
    _partial(path).write_bytes(b" " * RESERVED)


def _partial(path: Path) -> Path:
    return path.with_name(path.name + ".tmp")


def oom_kills(path: str) -> int | None:
    """How many processes the kernel has killed for lack of memory, by its own count; None when it cannot be read."""
    try:
        found = re.search(r"(?m)^oom_kill (\d+)$", Path(path).read_text(encoding="utf-8")) if path else None
    except OSError:
        return None
    return int(found[1]) if found else None


class Log:
    """The job's log, kept below a cap: its beginning, the first error and what is newest.

    ``kept`` is how many bytes of the file stay for ever. What is new is searched until an error is found, at ``error_at``.
    """

    def __init__(self, path: str, cap: int = LOG_CAP) -> None:
        self.path = path
        self.cap = cap
        self.kept = 0
        self.size = 0
        self.dropped = 0
        self.searched = 0
        self.error_at: int | None = None
        self.error_kept = False

    def bound(self) -> float:
        """Drop the middle if the file is larger than the cap; in how many seconds to look again."""
        try:
            # Its own descriptor, for this moment only: one that appends would write to the end wherever it is told to.
            fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return LOG_POLL_S  # somebody removed it; the command writes on into a file without a name
        try:
            before, self.size = self.size, os.fstat(fd).st_size
            flood = self.size - before > FLOOD or self.size > self.cap
            self._search(fd)
            if self.size > self.cap:
                self._drop(fd)
        except OSError:
            return LOG_POLL_S  # a disk that fails: the job is more than its log
        finally:
            os.close(fd)
        return FLOOD_POLL_S if flood else LOG_POLL_S

    def _search(self, fd: int) -> None:
        """Look for the first line that speaks of an error in what came since the last look."""
        # No more than the cap at once: the cutting must not wait for the search of a flood that goes on meanwhile.
        at, end = self.searched, min(self.size, self.searched + self.cap)
        while self.error_at is None and at < end:
            part = os.pread(fd, min(4 * MIB, end - at), at)
            places = [place for word in ERRORS if (place := part.find(word)) >= 0]
            if places:
                self.error_at = at + min(places)
            at += max(1, len(part) - OVERLAP)
        self.searched = end

    def _drop(self, fd: int) -> None:
        if self.dropped == 0:
            self.kept = self._line_end(fd, LOG_HEAD)
        size = os.fstat(fd).st_size
        tail_at = self._line_end(fd, size - LOG_TAIL)
        excerpt = b""
        if self.error_at is not None and not self.error_kept and self.error_at < tail_at:
            start = max(self.kept, self.error_at - BEFORE_ERROR)
            end = min(tail_at, self.error_at + EXCERPT)
            excerpt = os.pread(fd, max(0, end - start), start)
            excerpt = excerpt[: excerpt.rfind(b"\n") + 1] or excerpt + b"\n"
            self.error_kept = True
        self.dropped += tail_at - self.kept - len(excerpt)
        told = f"[runbook: {self.dropped} bytes of this log were dropped here: it was over {self.cap >> 20} MiB]\n"
        before = excerpt + told.encode()
        try:
            _write_at(fd, before, self.kept)
            length = self._copy_tail(fd, tail_at, self.kept + len(before))
        except OSError:
            # A full disk that copies what is written over: then all of it goes, which makes room.
            before, excerpt, length = b"", b"", 0
        self.size = self.kept + len(before) + length
        os.ftruncate(fd, self.size)
        moved = tail_at - self.kept - len(before)
        if self.error_at is not None and not self.error_kept:
            self.error_at -= moved
        self.kept += len(excerpt)
        # A flood of hundreds of MiB a second may outrun the search: what it had not come to is gone unseen.
        self.searched = max(self.kept, self.searched - moved)

    def _copy_tail(self, fd: int, start: int, to: int) -> int:
        """Copy what is behind ``start``, and what comes meanwhile, to an earlier place; how many bytes that were.

        A job's last words must not be lost; of a flood that is faster than this no more than the cap is copied.
        """
        copied = 0
        while copied < self.cap and (new := os.fstat(fd).st_size - start - copied) > 0:
            data = os.pread(fd, min(new, 2 * LOG_TAIL), start + copied)
            _write_at(fd, data, to + copied)
            copied += len(data)
        return copied

    @staticmethod
    def _line_end(fd: int, at: int) -> int:
        """The beginning of the line after ``at``, or ``at`` where the next 64 KiB hold no end of a line."""
        found = os.pread(fd, 65536, at).find(b"\n")
        return at + found + 1 if found >= 0 else at


def _write_at(fd: int, data: bytes, at: int) -> None:
    written = 0
    while written < len(data):
        written += os.pwrite(fd, data[written:], at + written)


def _prctl() -> Callable[[int, int], None]:
    libc = ctypes.CDLL(None, use_errno=True)

    zero = ctypes.c_ulong(0)

    def call(option: int, value: int) -> None:
        if libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero) != 0:
            raise OSError(ctypes.get_errno(), f"prctl({option})")

    return call


def _wake_on_signals() -> int:
    """Route every signal of interest into a pipe, one byte each, and return its reading end."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (*STOP_SIGNALS, HURRY, signal.SIGCHLD):
        signal.signal(number, lambda _number, _frame: None)  # a handler must exist for the byte to be written
    # A caller may have had some blocked, and both we and the command would inherit that.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return reader


def _start(spec: Spec, log: int, prctl: Callable[[int, int], None]) -> "subprocess.Popen[bytes]":
    keeper = os.getpid()

    def in_child() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:  # it died before the line above took effect
            os.kill(os.getpid(), signal.SIGKILL)

    marks = {
        JOB_VAR: spec["marker"],
        FOLDER_VAR: spec["folder"],
        # vLLM renames its processes with setproctitle, which by default writes over /proc/PID/environ, marks included.
        "SPT_NOENV": "1",
    }
    return subprocess.Popen(
        spec["argv"],
        env=spec["env"] | marks,
        cwd=spec["cwd"],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        preexec_fn=in_child,  # noqa: PLW1509 - the keeper has one thread
    )


def _ask_to_end(pgid: int) -> None:
    # Gone, or no longer ours to signal (setuid): in both cases the killing at the end has the last word.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pgid, signal.SIGTERM)
        os.killpg(pgid, signal.SIGCONT)  # a stopped process acts on SIGTERM only once it goes on


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names are all that is wanted
        if entry.isdecimal() and (fields := stat_fields(int(entry))) is not None:
            children.setdefault(int(fields[1]), []).append(int(entry))
    found = []
    ahead = [root]
    while ahead:
        below = children.get(ahead.pop(), [])
        found += below
        ahead += below
    return found


def _kill_everything(child: int) -> int:
    """Kill and reap all descendants, return the wait status of the child.

    Every one that is reaped is followed by a new look, so a process forked while we were looking is found too; and
    since orphans come to us, having no children left means having no descendants left.
    """
    status = 0
    while True:
        for pid in _descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            pid, this = os.waitpid(-1, 0)
        except ChildProcessError:
            return status
        if pid == child:
            status = this


def _child_ended(child: int) -> bool:
    """Reap orphans that came to us and ended. The child itself stays unreaped: its pid, the group's id, stays ours."""
    while True:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return False
        if ended.si_pid == child:
            return True
        os.waitpid(ended.si_pid, 0)


def _watch(
    child: int, owner: tuple[int, int], owner_fd: int | None, wake: int, grace_s: float, log: Log
) -> str:
    """Wait until it is time to kill what is left, and return why: "exited", "stopped" or "owner gone"."""
    poller = select.poll()
    poller.register(wake, select.POLLIN)
    if owner_fd is not None:
        poller.register(owner_fd, select.POLLIN)
    reason = ""
    kill_at = math.inf
    while not _child_ended(child):
        left_s = kill_at - time.monotonic()
        if left_s <= 0:
            break
        if owner_fd is None and not reason:
            left_s = NO_PIDFD_POLL_S
        ready = {fd for fd, _ in poller.poll(min(left_s, log.bound()) * 1000)}
        signals = set(os.read(wake, 65536)) if wake in ready else set()
        if not reason:
            owner_gone = owner_fd in ready if owner_fd is not None else started(owner[0]) != owner[1]
            reason = "owner gone" if owner_gone else "stopped" if signals - {signal.SIGCHLD} else ""
            if reason:
                kill_at = time.monotonic() + grace_s
                _ask_to_end(child)
        if HURRY in signals:
            break
        if reason and owner_fd in ready:
            poller.unregister(owner_fd)  # it stays readable from now on
    return reason or "exited"


def _answer(document: dict[str, Any]) -> None:
    os.write(1, json.dumps(document).encode() + b"\n")


def _keep(spec: Spec) -> None:
    prctl = _prctl()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    wake = _wake_on_signals()
    pid_text, _, start_text = spec["owner"].partition(":")
    owner = int(pid_text), int(start_text)
    try:
        owner_fd = pidfd(*owner)
    except ProcessLookupError:
        _answer({"error": f"the owner, process {owner[0]}, is gone"})
        return
    folder = Path(spec["folder"])
    state = folder / f"{spec['name']}.json"
    ended = folder / f"{spec['name']}.ended.json"
    log = os.open(spec["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    bounded = Log(spec["log"])
    killed_before = oom_kills(spec["oom"])
    began, clock = time.time(), time.monotonic()
    try:
        process = _start(spec, log, prctl)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        _answer({"error": str(error)})
        return

    reason, status = "stopped", 0
    try:
        ended.unlink(missing_ok=True)
        reserve(ended)
        job = {
            "name": spec["name"],
            "marker": spec["marker"],
            "keeper_pid": os.getpid(),
            "keeper_start": started(os.getpid()),
            "pid": process.pid,
            # A child that is over already is a zombie and has no start; 0 is nobody's, which is what is meant.
            "pid_start": started(process.pid) or 0,
            "pgid": process.pid,
            "port": spec["port"],
            "log": spec["log"],
            "argv": spec["argv"],
            "started": began,
            "owner": spec["owner"],
            "fingerprint": spec["fingerprint"],
            "grace_s": spec["grace_s"],
        }
        write_atomically(state, job)
        try:
            _answer({"job": job})
        except BrokenPipeError:
            return  # whoever asked for the job died or gave up; nobody knows of it, so it must not run
        _leave_caller(log)
        reason = _watch(process.pid, owner, owner_fd, wake, spec["grace_s"], bounded)
    finally:
        # Whatever happened above, a full disk included, the processes go first and the bookkeeping follows.
        status = _kill_everything(process.pid)
        process.returncode = code = os.waitstatus_to_exitcode(status)
        bounded.bound()
        if spec["scratch"] and (code or reason != "exited"):
            shutil.rmtree(spec["scratch"], ignore_errors=True)
        killed = oom_kills(spec["oom"])
        document = {
            "name": spec["name"],
            "marker": spec["marker"],
            "exit_code": code if code >= 0 else None,
            "signal": -code if code < 0 else None,
            "reason": reason,
            "ended": time.time(),
            "seconds": round(time.monotonic() - clock, 3),
            "log": spec["log"],
            "oom_kills": None if killed is None or killed_before is None else killed - killed_before,
            "oom": spec["oom"],
        }
        try:
            write_atomically(ended, document)
        finally:
            state.unlink(missing_ok=True)


def _leave_caller(log: int) -> None:
    """Let go of the caller's pipes; should the keeper itself fail later, its traceback goes to the job's log."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, 1)
    os.dup2(log, 2)
    os.close(null)


def main() -> None:
    """Read the orders, detach, keep the job."""
    spec: Spec = json.loads(sys.stdin.buffer.read())
    if os.fork() != 0:
        # The caller reaps this process now, and never has the keeper as a child it would have to reap later.
        os._exit(0)
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.set_inheritable(spec["lock"], False)  # noqa: FBT003 - positional only; the command must not hold the lock
    try:
        _keep(spec)
    except BrokenPipeError:
        sys.exit(1)  # nobody is listening any more, and nothing was left running


if __name__ == "__main__":
    main()
