"""Real walks for the tests of this folder: start ``runbook run``, follow its journal, see what is left of it."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from runbook.actions.jobs import Job, Jobs
from runbook.checks import ALL
from runbook.params import page_spec

ROOT = Path(__file__).parents[2]
OLD = "vllm-0.19.1-cpu"
NEW = "vllm-0.32.0-cpu"
GONE_S = 15.0
"""How long something of a killed walk may still run."""

FINISH_S = 900.0


def environment(home: Path) -> dict[str, str]:
    """The tests' own environment, pointed at one workspace; nothing of a walk that tests are run from."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("RUNBOOK_")}
    return {**env, "RUNBOOK_HOME": str(home), "NO_COLOR": "1"}


def left(home: Path) -> list[str]:
    """Every process of a workspace, as "PID COMMAND": all inherit $RUNBOOK_HOME or have a file of it mapped.

    Broader than the markers of jobs on purpose: kernels, keepers, uv and scripts of the target are found too.
    """
    found = []
    wanted = f"RUNBOOK_HOME={home}".encode()
    for process in psutil.process_iter():
        folder = Path(f"/proc/{process.pid}")
        try:
            marked = wanted in (folder / "environ").read_bytes().split(b"\0")
            if marked or f" {home}/" in (folder / "maps").read_text(encoding="utf-8", errors="replace"):
                found.append(f"{process.pid} {' '.join(process.cmdline())[:160]}")
        except (OSError, psutil.Error):
            continue  # it ended while we looked, or is a zombie
    return found


def events(journal: Path) -> list[dict[str, Any]]:
    """The rows of a journal; a last line that was cut by a kill is left out."""
    rows = []
    for line in journal.read_text(encoding="utf-8").splitlines() if journal.exists() else ():
        with contextlib.suppress(ValueError):
            rows.append(json.loads(line))
    return rows


def until(true: Callable[[], object], within_s: float, what: str) -> float:
    """Seconds until a condition came true."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < within_s, f"not within {within_s:g} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - began


def gone(home: Path, within_s: float = GONE_S) -> float:
    """Seconds until no process of the workspace is left."""
    began = time.monotonic()
    while remaining := left(home):
        assert time.monotonic() - began < within_s, f"left after {within_s:g} s: {remaining}"
        time.sleep(0.1)
    return time.monotonic() - began


@dataclass
class Running:
    """A ``runbook run`` at work. Its output is in files, so that a full pipe can never hold it up."""

    process: "subprocess.Popen[bytes]"
    out: Path
    said: Path
    rows_before: int

    def new_rows(self) -> list[dict[str, Any]]:
        """What the journal got since this process began."""
        return events(self.out / "events.jsonl")[self.rows_before :]

    def reached(self, page: str, step: str) -> bool:
        """True once the journal shows the step begun, or the page when ``step`` is empty; also when the run is over."""
        wanted = "start" if step else "page-start"
        return self.process.poll() is not None or any(
            row["event"] == wanted and row["page"] == page and row.get("step", "") == step
            for row in self.new_rows()
        )

    def kernel(self) -> psutil.Process | None:
        """The page's kernel, when there is one."""
        try:
            children = psutil.Process(self.process.pid).children()
            kernels = [one for one in children if "ipykernel_launcher" in " ".join(one.cmdline())]
        except psutil.Error:
            return None
        return kernels[0] if kernels else None

    def ended(self, within_s: float = FINISH_S) -> int:
        """Its exit code."""
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {within_s:g} s: {self.text()[-2000:]}") from None

    def text(self) -> str:
        """What it has printed, both streams."""
        return self.said.read_text(encoding="utf-8", errors="replace")

    def interrupt(self) -> None:
        """Ctrl-C as a terminal does it: SIGINT to the whole process group."""
        os.killpg(self.process.pid, signal.SIGINT)


def start(home: Path, out: Path, *words: str) -> Running:
    """``runbook run WORDS --out OUT`` in a process group of its own, from a folder that is not the checkout."""
    return started([sys.executable, "-m", "runbook", "run", *words, "--out", str(out)], home, out)


def started(command: list[str], home: Path, out: Path) -> Running:
    """A command of the runbook's environment, in the workspace ``home``."""
    said = home / "logs" / f"said-{out.name}.txt"
    said.parent.mkdir(exist_ok=True)
    rows_before = len(events(out / "events.jsonl"))
    with said.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=home,
            env=environment(home),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=as_in_a_terminal,  # noqa: PLW1509 - the tests have one thread
        )
    return Running(process, out, said, rows_before)


def as_in_a_terminal() -> None:
    """Signals as a shell with a terminal starts a command: not ignored, as they are for one in the background."""
    for each in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(each, signal.SIG_DFL)


@contextmanager
def killed_at_last(run: Running) -> Iterator[None]:
    """Whatever a test does, the walk does not outlive it."""
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.process.pid, signal.SIGKILL)
        run.process.wait(30)


def fresh(out: Path) -> Path:
    """The folder, gone, so that a run can be begun there."""
    shutil.rmtree(out, ignore_errors=True)
    return out


def drained(terminal: int) -> bool:
    """Read what a terminal shows, so that it never fills up; always True."""
    with contextlib.suppress(OSError):
        while os.read(terminal, 65536):
            pass
    return True


def tell(line: str) -> None:
    """A line for the test's report."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def server(home: Path) -> Job | None:
    """The workspace's server, while its process runs."""
    return Jobs(home / "jobs").get("server")


def whole(out: Path) -> None:
    """Every JSON file of a run folder can be read, and every line of its journal but perhaps a last one that was cut."""
    for path in (
        out / "run.json",
        *out.glob("findings*.json"),
        *out.glob("findings/*"),
        *out.glob("*/*.ipynb"),
    ):
        json.loads(path.read_text(encoding="utf-8"))
    journal = out / "events.jsonl"
    if journal.exists():
        lines = journal.read_text(encoding="utf-8").splitlines(keepends=True)
        for line in lines:
            if line.endswith("\n"):
                json.loads(line)


def expected(*pages: str) -> set[str]:
    """Ids of the findings that pages must make."""
    layers = {layer for page in pages for layer in page_spec(page).layers}
    return {one.id for one in ALL if one.layer in layers}


def findings(out: Path) -> list[dict[str, Any]]:
    """The rows of findings.json."""
    rows: list[dict[str, Any]] = json.loads((out / "findings.json").read_text(encoding="utf-8"))
    return rows


def bad(out: Path) -> list[str]:
    """Findings of a run that are fail or unknown, with their reasons."""
    return [
        f"{row['id']}@{row['stack']} {row['verdict']} {row['reason']} {row['evidence']}"
        for row in findings(out)
        if row["verdict"] in ("fail", "unknown")
    ]
