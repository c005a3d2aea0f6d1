"""``runbook status`` over jobs that are cheap to start: what it says of each state, and its exit codes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from runbook.actions import looking
from runbook.actions.jobs import Jobs, Owner
from runbook.cli_status import described
from runbook.serving import state
from runbook.workspace import Workspace

Status = Callable[..., tuple[int, str]]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "home"
    Jobs(tmp_path / "home" / "jobs").stop_all()


@pytest.fixture
def status(home: Path) -> Status:
    def asked(*words: str) -> tuple[int, str]:
        argv = [sys.executable, "-m", "runbook", "status", *words]
        env = {**os.environ, "RUNBOOK_HOME": str(home), "COLUMNS": "200"}
        ran = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60, env=env)
        assert ran.stderr == ""
        return ran.returncode, ran.stdout

    return asked


def start(home: Path, script: str, name: str = "server", **more: Any) -> Any:
    argv = ["bash", "-c", script]
    return Jobs(home / "jobs").start(name, argv, env=dict(os.environ), cwd=Path("/"), owner=Owner.of(), grace_s=2, **more)  # fmt: skip


def until_ended(home: Path, job: Any) -> None:
    assert Jobs(home / "jobs").join(job, 10)


def test_nothing_was_started(home: Path, status: Status) -> None:
    code, said = status()
    assert code == 3
    assert said.splitlines()[0] == "server  none"
    assert not home.exists()


def test_a_server_that_starts(home: Path, status: Status) -> None:
    start(home, "echo loading; sleep 600", port=9, fingerprint={"stack": "vllm-0.32.0-cpu"})
    code, said = status()
    assert code == 3
    assert said.startswith("server  starting\n  why        its port is not bound yet")
    assert "it last said: loading" in said
    assert "http://127.0.0.1:9/v1" in said


def test_a_stopped_process_is_stuck(home: Path, status: Status) -> None:
    job = start(home, "sleep 600", port=9)
    psutil.Process(job.pid).suspend()
    code, said = status("--format", "json")
    (row,) = json.loads(said)["jobs"]
    assert (code, row["state"]) == (1, "stuck")
    assert f"kill -CONT {job.pid}" in row["do"]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'ValueError: no such thing'; exit 3", "exited (exit code 3) after"),
        ("echo 'ValueError: no such thing'; kill -SEGV $$", "exited (SIGSEGV) after"),
        ("echo 'torch.OutOfMemoryError: CUDA out of memory.'; exit 1", "out of memory on the card"),
        (
            "echo 'Engine core proc EngineCore died unexpectedly, shutting down client.'",
            "EngineCore died unexpectedly",
        ),
    ],
)
def test_a_server_that_died(home: Path, status: Status, script: str, why: str) -> None:
    until_ended(home, start(home, script, port=9))
    code, said = status()
    assert code == 1
    assert said.startswith("server  dead\n")
    assert why in said


def test_a_server_that_was_stopped_is_not_dead(home: Path, status: Status) -> None:
    start(home, "sleep 600", port=9)
    Jobs(home / "jobs").stop("server")
    code, said = status()
    assert (code, said.splitlines()[0]) == (3, "server  stopped")


def test_a_keeper_that_was_killed_leaves_no_record(home: Path, status: Status) -> None:
    job = start(home, "sleep 600", port=9)
    psutil.Process(job.keeper_pid).kill()
    until_ended(home, job)
    code, said = status()
    assert (code, said.splitlines()[0]) == (1, "server  dead")
    assert "there is no end record" in said


def test_other_jobs_are_told_too_and_decide_nothing(home: Path, status: Status) -> None:
    start(home, "echo object 7 of 9; sleep 600", name="build")
    code, said = status()
    assert code == 3
    assert "\nbuild  running\n  why        object 7 of 9\n" in said


def test_watching_says_what_changes_and_ends_with_the_server(home: Path) -> None:
    job = start(home, "echo loading; sleep 600", port=9)
    argv = [sys.executable, "-m", "runbook", "status", "--watch"]
    env = {**os.environ, "RUNBOOK_HOME": str(home)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env) as watch:
        try:
            assert watch.stdout is not None
            assert "  starting  " in watch.stdout.readline()
            os.kill(job.pid, signal.SIGKILL)
            rest = watch.stdout.read()
            assert watch.wait(30) == 1
        finally:
            watch.kill()
    assert "  dead  exited (SIGKILL) after" in rest


def test_a_window_out_of_range_is_bad_input(home: Path) -> None:
    argv = [sys.executable, "-m", "runbook", "status", "--window", "0"]
    ran = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, "RUNBOOK_HOME": str(home)})  # fmt: skip
    assert (ran.returncode, ran.stdout) == (2, "")


def test_the_key_is_never_shown(home: Path) -> None:
    (home / "jobs").mkdir(parents=True)
    (home / "jobs" / "server.key").write_text("a-secret-key")
    start(home, "sleep 600", port=9)
    seen = looking.look(Workspace(home), window_s=0.5)
    text = "\n".join(described(seen)) + repr(seen)
    assert str(home / "jobs" / "server.key") in text
    assert "a-secret-key" not in text


def test_every_state_has_an_exit_code() -> None:
    names = (state.NONE, state.STARTING, state.IDLE, state.BUSY, state.SLOW, state.STUCK, state.RUNNING, state.DEAD, state.STOPPED, state.UNKNOWN)  # fmt: skip
    assert set(state.EXIT) == set(names)
    assert {state.EXIT[name] for name in state.READY} == {0, 3}


def test_a_full_disk_is_told_and_is_no_bug_of_ours(home: Path) -> None:
    argv = [sys.executable, "-m", "runbook", "status"]
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60, env={**os.environ, "RUNBOOK_HOME": str(home)})  # fmt: skip
    assert ran.returncode == 1
    assert ran.stderr == "runbook: no room is left to write a file\n  do: df -h\n"
