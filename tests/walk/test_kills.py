"""A walk that is killed, in whatever way and at whatever moment, leaves no process behind and is finished by --resume.

Many deaths in one run folder: each of the four kinds as often, shuffled, at spots that move on through the pages as the
run does. The seed is printed; ``RUNBOOK_TEST_SEED`` repeats one.
"""

import contextlib
import os
import pty
import random
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import walking
from walking import OLD, Running

from runbook.actions.jobs import Jobs

PAGES = ("07_model", "08_warmup", "09_serving")
# Forty deaths when all is asked for; otherwise sixteen, so that a whole CI run ends well within its time.
TRIES = 10 if os.environ.get("RUNBOOK_TEST_ALL") else 4
LATE_S = 300.0
"""How long a spot may take to be reached: a server that starts on a machine that is busy."""

# Where a death may strike: page, step ("" is the page's very beginning), and the most seconds after that step began.
# Spots after the start of a server cost a start each, so most are before it.
EARLY = {
    "07_model": [("", 2.5), ("setup", 1.0), ("make-model", 2.0), ("model-006-check", 4.0), ("model-007-check", 4.0)],
    "08_warmup": [("", 2.5), ("setup", 1.0), ("start-server", 4.0), ("start-server", 8.0)],
    "09_serving": [("", 2.5), ("setup", 1.0), ("start-server", 4.0), ("start-server", 8.0)],
}  # fmt: skip
READY = {
    "08_warmup": [("warm-001-look", 0.5), ("warm-004-check", 4.0)],
    "09_serving": [("serve-001-look", 0.5), ("serve-004-check", 2.0)],
}
KERNEL_DIED = 138  # papermill's own code
KINDS = ("server", "kernel", "itself", "ctrl-c")


@dataclass(frozen=True)
class Death:
    """One try: what dies, when."""

    kind: str
    page: str
    step: str
    after_s: float


def deaths(rng: random.Random) -> list[Death]:
    """All of them in the order of the pages: as many of each kind, one of each (of servers two) while a server is up."""
    every = []
    for kind in KINDS:
        pages = PAGES[1:] if kind == "server" else PAGES
        while_ready = 2 if kind == "server" else 1
        for number in range(TRIES):
            page = rng.choice(list(READY)) if number < while_ready else rng.choice(pages)
            step, most = rng.choice(READY[page] if number < while_ready else EARLY[page])
            if kind == "server" and number >= while_ready:
                step, most = "start-server", 10.0
            every.append(Death(kind, page, step, rng.uniform(0.0, most)))
    rng.shuffle(every)
    return sorted(every, key=lambda one: one.page)


def strike(run: Running, home: Path, death: Death) -> bool:
    """Wait for the moment and kill; False when there was nothing any more to be killed."""
    walking.until(lambda: run.reached(death.page, death.step), LATE_S, f"{death} {run.text()[-2000:]}")
    if death.kind == "server":
        there = lambda: walking.server(home) or run.process.poll() is not None  # noqa: E731
        walking.until(there, LATE_S, f"a server of {death}")
    if death.kind == "kernel":  # of a page that has just begun there is none yet
        walking.until(lambda: run.kernel() or run.process.poll() is not None, LATE_S, f"a kernel of {death}")
    time.sleep(death.after_s)
    if run.process.poll() is not None:
        return False
    if death.kind == "server":
        job = walking.server(home)
        with contextlib.suppress(ProcessLookupError):
            if job is not None:
                os.kill(job.pid, signal.SIGKILL)
                return True
        return False
    if death.kind == "kernel":
        kernel = run.kernel()
        with contextlib.suppress(psutil.NoSuchProcess):
            if kernel is not None:
                kernel.kill()
                return True
        return False
    if death.kind == "itself":
        os.kill(run.process.pid, signal.SIGKILL)
    else:
        run.interrupt()
    return True


# A server that ends is a failed action or a failed check; a kernel that dies leaves no verdict.
CODES = {"server": 1, "kernel": 3, "itself": -signal.SIGKILL, "ctrl-c": 130}


def one_try(home: Path, out: Path, death: Death) -> str:
    """Start or resume, strike, and see that all is over; what went wrong, or "" when nothing did."""
    words = ["--resume"] if (out / "run.json").exists() else [*PAGES, "--stack", OLD]
    # A page that came through a try before is there to be struck again.
    for page in PAGES[PAGES.index(death.page) :]:
        (out / "findings" / f"{page}@{OLD}.json").unlink(missing_ok=True)
    run = walking.start(home, out, *words)
    with walking.killed_at_last(run):
        struck = strike(run, home, death)
        began = time.monotonic()
        try:
            walking.gone(home)
        except AssertionError:
            ends = [row["state"] for row in run.new_rows() if row["event"] == "page-end"]
            if not struck or set(ends) <= {"done"}:
                # What was hit had done its work, so the walk went on. It proves nothing: end it, go on.
                run.interrupt()
                walking.gone(home)
                struck = False
            else:
                raise
        seconds = time.monotonic() - began
        code = run.ended(1)
    walking.whole(out)
    walking.tell(
        f"{death.kind:7} {death.page:11} {death.step:16} +{death.after_s:4.1f} s:"
        f" code {code:4}, all gone in {seconds:4.1f} s{'' if struck else ' (nothing to kill)'}"
    )
    wanted = {CODES[death.kind]} if struck else {130}
    wanted |= {0} if death.kind in ("server", "kernel") or not struck else set()
    return "" if code in wanted else f"{death}: exit code {code}; {run.text()[-3000:]}"


def seed() -> int:
    """A new one each time, or the one that is to be repeated."""
    return int(os.environ.get("RUNBOOK_TEST_SEED") or random.SystemRandom().randrange(1 << 32))


def test_deaths_then_resume(home: Path, built: Path) -> None:
    assert built == home
    number = seed()
    walking.tell(f"RUNBOOK_TEST_SEED={number}")
    out = walking.fresh(home / "runs" / "killed")
    problems = [said for death in deaths(random.Random(number)) if (said := one_try(home, out, death))]  # noqa: S311
    assert problems == []
    run = walking.start(home, out, "--resume")
    assert run.ended() == 0, run.text()
    walking.gone(home)
    assert {row["id"] for row in walking.findings(out)} == walking.expected(*PAGES)
    assert walking.bad(out) == []
    assert Jobs(home / "jobs").processes() == []


@pytest.fixture
def starting(home: Path, built: Path) -> Iterator[Running]:
    """A walk whose server is just coming up."""
    assert built == home
    run = walking.start(home, walking.fresh(home / "runs" / "starting"), "08", "--stack", OLD)
    with walking.killed_at_last(run):
        walking.until(lambda: walking.server(home) or run.process.poll() is not None, LATE_S, "a server")
        yield run


def test_sigterm_is_an_interruption(home: Path, starting: Running) -> None:
    time.sleep(2)
    starting.process.terminate()
    walking.gone(home)
    assert starting.ended(1) == 130
    walking.whole(starting.out)
    assert {row["verdict"] for row in walking.findings(starting.out)} == {"unknown"}


def test_impatient_ctrl_c(home: Path, starting: Running) -> None:
    time.sleep(2)
    began = time.monotonic()
    while starting.process.poll() is None and time.monotonic() - began < walking.GONE_S:
        with contextlib.suppress(ProcessLookupError):
            starting.interrupt()
        time.sleep(0.1)
    walking.gone(home, walking.GONE_S - (time.monotonic() - began))
    # One more may strike the interpreter itself while it ends; what a shell shows is 130 either way.
    assert starting.ended(1) in (130, -signal.SIGINT)


def test_terminal_is_closed(home: Path, built: Path) -> None:
    assert built == home
    out = walking.fresh(home / "runs" / "closed")
    child, terminal = pty.fork()
    if child == 0:
        walking.as_in_a_terminal()
        words = [sys.executable, "-m", "runbook", "run", "08", "--stack", OLD, "--out", str(out)]
        os.execve(sys.executable, words, walking.environment(home))  # noqa: S606 - the child of a fork
    try:
        os.set_blocking(terminal, False)
        walking.until(lambda: walking.drained(terminal) and walking.server(home), LATE_S, "a server")
    finally:
        os.close(terminal)
    walking.gone(home)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) in (-signal.SIGHUP, 130)
    walking.whole(out)


@pytest.mark.parametrize("victim", ["papermill", "kernel"])
def test_a_page_by_hand(home: Path, built: Path, victim: str) -> None:
    assert built == home
    page = walking.ROOT / "notebooks" / "08_warmup.ipynb"
    out = walking.fresh(home / "runs" / "by-hand")
    out.mkdir(parents=True)
    words = ["papermill", str(page), str(out / "out.ipynb"), "-p", "stack", OLD, "-p", "apply", "True"]
    run = walking.started([sys.executable, "-m", *words, "--no-progress-bar"], home, out)
    with walking.killed_at_last(run):
        walking.until(lambda: walking.server(home) or run.process.poll() is not None, LATE_S, "a server")
        time.sleep(2)
        kernel = run.kernel()
        assert kernel is not None, run.text()
        if victim == "papermill":
            run.process.kill()
        else:
            kernel.kill()
        seconds = walking.gone(home)
        walking.tell(f"{victim} killed: all gone in {seconds:.1f} s")
        assert run.ended(1) == (-signal.SIGKILL if victim == "papermill" else KERNEL_DIED)
