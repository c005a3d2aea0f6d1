"""A job's log stays bounded and keeps what explains it; a full disk takes the log, never the job or its end record."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from runbook.actions import keeper, looking
from runbook.actions.jobs import Job, Jobs, Owner, log_tail
from runbook.checks import state as state_checks
from runbook.probes import ends
from runbook.workspace import Workspace

MIB = keeper.MIB
LINE = "INFO 11-30 19:30:37 [loggers.py:259] a line about as long as those of a server are, more or less"


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    jobs = Jobs(tmp_path / "jobs")
    yield jobs
    jobs.stop_all()


def shell(jobs: Jobs, script: str) -> Job:
    argv = ["bash", "-c", script]
    return jobs.start("server", argv, env=dict(os.environ), cwd=jobs.folder, owner=Owner.of(), grace_s=2)


def flood(size: int, line: str = LINE) -> str:
    return f'yes "{line}" | head -c {size}; echo'


def test_a_flood_of_a_gigabyte(jobs: Jobs, tmp_path: Path) -> None:
    script = f'echo first words; {flood(100_000_000)}; echo "RuntimeError: the first"; {flood(1_000_000_000, "ERROR again, " + LINE)}; echo last words'  # fmt: skip
    jobs.folder.mkdir()
    job = shell(jobs, script)
    watching = psutil.Process(job.keeper_pid)
    rss, largest, began = 0, 0, time.monotonic()
    while not jobs.join(job, 0.05):
        assert time.monotonic() - began < 60
        if watching.is_running() and watching.status() != psutil.STATUS_ZOMBIE:
            rss = max(rss, watching.memory_info().rss)
        largest = max(largest, Path(job.log).stat().st_size)
    size = Path(job.log).stat().st_size
    sys.stdout.write(f"{time.monotonic() - began:.1f} s, keeper {rss >> 20} MiB, largest {largest >> 20} MiB, at last {size >> 20} MiB\n")  # fmt: skip
    assert size <= keeper.LOG_CAP
    assert 0 < rss < 100 * MIB
    end = jobs.ended("server")
    assert end is not None
    assert (end.reason, end.exit_code) == ("exited", 0)
    text = ends.text(Path(job.log))
    for words in ("first words\n", "\nRuntimeError: the first\n", "\nlast words\n"):
        assert words in text
    told = keeper.DROPPED.findall(text.encode())
    assert len(told) == 1
    # Nothing but what was dropped is missing, and what is there beside is the line that says so.
    assert abs(int(told[0]) + size - 1_100_000_000) < 100 * 1024 * 1024
    seen = looking.look(Workspace(tmp_path))
    assert (seen.log_bytes, seen.log_dropped) == (size, int(told[0]))
    assert log_tail(job.log, 1) == ["last words"]


def test_a_cut_log_is_exact_when_nobody_writes(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    lines = [f"{number:09d} {LINE}\n" for number in range(200_000)]
    lines[60_000] = "ValueError: the first\n"
    whole = "".join(lines)
    path.write_text(whole)
    log = keeper.Log(str(path), cap=16 * MIB)
    assert log.bound() == keeper.FLOOD_POLL_S
    text = path.read_text()
    assert path.stat().st_size < 16 * MIB
    assert text.startswith(whole[: keeper.LOG_HEAD])
    tail = text.partition("bytes of this log were dropped here: it was over 16 MiB]\n")[2]
    assert len(tail) > keeper.LOG_TAIL - 200
    assert whole.endswith(tail)
    excerpt = text[whole.index("\n", keeper.LOG_HEAD) + 1 : log.kept]
    assert "ValueError: the first\n" in excerpt
    assert excerpt in whole
    dropped = keeper.DROPPED.search(text.encode())
    assert dropped is not None
    marker = len(dropped[0]) + 1
    assert int(dropped[1]) == len(whole) - (len(text) - marker)


def test_a_second_cut_keeps_the_first_error_and_adds_up(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    log = keeper.Log(str(path), cap=12 * MIB)
    written = 0
    for part in range(6):
        block = f"{part} {LINE}\n" * 60_000
        block += "OSError: the first\n" if part == 1 else ""
        with path.open("a") as file:
            file.write(block)
        written += len(block)
        log.bound()
        assert path.stat().st_size <= 12 * MIB
    text = path.read_text()
    assert text.count("OSError: the first\n") == 1
    found = keeper.DROPPED.findall(text.encode())
    assert len(found) == 1
    assert log.dropped == int(found[0])
    # Of earlier lines that told what was dropped, a few bytes each are counted as dropped too.
    assert 0 <= log.dropped + len(text) - written < 5 * 100


def test_a_log_below_the_cap_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text(LINE)
    before = path.stat()
    assert keeper.Log(str(path)).bound() == keeper.LOG_POLL_S
    assert path.stat() == before


def test_a_log_that_was_removed_is_no_fault(tmp_path: Path) -> None:
    assert keeper.Log(str(tmp_path / "a.log")).bound() == keeper.LOG_POLL_S


def test_the_cap_is_the_one_that_the_check_speaks_of() -> None:
    assert state_checks.LOG_CAP_MIB * MIB == keeper.LOG_CAP


# Runs in a mount namespace of its own: a job on a disk that is full before it ends.
ON_A_FULL_DISK = """
import json, os, subprocess, sys
from pathlib import Path
from runbook.actions import looking
from runbook.actions.jobs import Jobs, Owner
from runbook.errors import ActionFailed
from runbook.serving import state
from runbook.workspace import Workspace

disk = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(disk)], check=True)
jobs = Jobs(disk / "jobs")
job = jobs.start("server", ["bash", "-c", "echo up; read -r line < fifo; echo words; exit 7"],
                 env=dict(os.environ), cwd=Path(sys.argv[2]), owner=Owner.of(), grace_s=2)
def fill(name):
    with (disk / name).open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as full:
            return full.strerror

said = fill("filling")
seen = looking.look(Workspace(disk))
(Path(sys.argv[2]) / "fifo").write_text("go\\n")
assert jobs.join(job, 10)
end = jobs.ended("server")
over = looking.look(Workspace(disk))
fill("filling again")
try:
    jobs.start("server", ["true"], env=dict(os.environ), cwd=Path("/"), owner=Owner.of())
    again = "started"
except ActionFailed as why:
    again = why.seen
print(json.dumps({"said": said, "free": seen.disk_free, "alive": seen.alive, "code": end and end.exit_code,
                  "state": state.judge(over).name, "why": state.judge(over).why, "again": again, "left": jobs.processes()}))
"""


def test_a_full_disk_takes_neither_the_job_nor_its_end(tmp_path: Path) -> None:
    apart = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"], check=False).returncode:
        pytest.skip("this machine lets nobody mount a disk of his own")
    (tmp_path / "disk").mkdir()
    os.mkfifo(tmp_path / "fifo")
    command = [*apart, sys.executable, "-c", ON_A_FULL_DISK, str(tmp_path / "disk"), str(tmp_path)]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, cwd=Path(__file__).parents[2]
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["said"] == "No space left on device"
    assert (found["free"], found["alive"]) == (0, True)
    assert (found["code"], found["state"]) == (7, "dead")
    assert "exit code 7" in found["why"]
    assert "No space left on device" in found["again"]  # a start that finds no room says so
    assert found["left"] == []
