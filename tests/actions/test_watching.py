"""What is said of real processes: one that works, one that waits, one that was stopped, a compiler, a Python that hangs."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from runbook.actions import watching
from runbook.actions.watching import Doing, Look

HANG = "import time\n\n\ndef wait():\n    time.sleep(600)\n\n\nwait()\n"


@contextmanager
def child(*words: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A shell with one child, so that the shell's descendants are what is looked at."""
    with subprocess.Popen(["sh", "-c", '"$@" & wait', "sh", *words], start_new_session=True) as process:
        try:
            until(lambda: begun(process.pid, words))
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def until(true: Callable[[], object], within_s: float = 20.0) -> None:
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < within_s
        time.sleep(0.02)


def seen(root: int, looks: list[Look]) -> Look:
    """One more look."""
    looks.append(watching.look(root))
    return looks[-1]


def begun(root: int, words: tuple[str, ...]) -> bool:
    """Whether the command itself runs, and no longer the shell's copy that becomes it."""
    return any(
        Path(one.cmdline()[0]).name == Path(words[0]).name for one in watching.tree(root) if one.cmdline()
    )


def during(root: int, seconds: float = 1.0) -> Doing:
    before, began = watching.look(root), time.monotonic()
    time.sleep(seconds)  # a stretch of time is what is measured
    return watching.between(before, watching.look(root), time.monotonic() - began)


def test_a_process_at_work() -> None:
    with child(sys.executable, "-c", "while True: pass") as process:
        found = during(process.pid)
    assert not found.idle
    assert found.cores > watching.IDLE_SHARE
    assert "cores" in found.words


def test_a_process_that_waits() -> None:
    with child("sleep", "600") as process:
        found = during(process.pid)
    assert found.idle


def test_a_process_that_reads_is_not_idle(tmp_path: Path) -> None:
    large = tmp_path / "weights"
    large.write_bytes(b"\0" * (8 << 20))
    script = f"import time\nwhile True:\n    open({str(large)!r}, 'rb').read()\n    time.sleep(0.2)\n"
    with child(sys.executable, "-c", script) as process:
        found = during(process.pid)
    assert found.read > watching.IDLE_BYTES
    assert not found.idle


def test_a_stopped_process_is_named() -> None:
    with child("sleep", "600") as process:
        (sleeper,) = watching.tree(process.pid)
        sleeper.suspend()
        until(lambda: sleeper.status() == psutil.STATUS_STOPPED)
        found = during(process.pid, 0.1)
        assert found.stopped == (sleeper.pid,)
        assert f"kill -CONT {sleeper.pid}" in found.words


@pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")
def test_a_compiler_and_what_it_makes(tmp_path: Path) -> None:
    source = tmp_path / "kernel_3.cpp"
    source.write_text(
        "#include <regex>\n#include <map>\n#include <iostream>\n"
        + "".join(f'bool f{n}(const std::string& s) {{ return std::regex_match(s, std::regex("a{n}")); }}\n' for n in range(20))
    )  # fmt: skip
    looks: list[Look] = []
    with child("g++", "-O2", "-c", str(source), "-o", str(tmp_path / "kernel_3.o")) as process:
        until(lambda: seen(process.pid, looks).compilers)
    program, made = looks[-1].compilers[0]
    assert program == "cc1plus"
    assert made == "kernel_3.cpp"
    assert "compiling: 1 cc1plus" in watching.between(looks[0], looks[-1], 0.1).words


def test_nothing_is_left_of_a_tree_that_is_gone() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert watching.tree(process.pid) == []
    assert watching.look(process.pid).processes == 0


@pytest.mark.parametrize("stopped", [False, True])
def test_where_a_python_hangs(tmp_path: Path, *, stopped: bool) -> None:
    script = tmp_path / "model_loader.py"
    script.write_text(HANG)
    with child(sys.executable, str(script)) as process:
        (python,) = watching.tree(process.pid)
        until(lambda: "wait" in watching.dump(python.pid))
        if stopped:
            python.suspend()
        into = tmp_path / "logs" / "stacks.txt"
        (short,) = watching.stacks(process.pid, into)
    assert short.startswith(f"process {python.pid}: wait (model_loader.py:5) < <module> (model_loader.py:8)")
    text = into.read_text()
    assert "time.sleep" not in text
    assert f"## process {python.pid}" in text


def test_a_process_that_cannot_be_read_says_so() -> None:
    with child("sleep", "600") as process:
        said = watching.dump(watching.tree(process.pid)[0].pid)
    assert said.startswith("py-spy could not look: ")
    assert watching.main_thread(said, 1) == said.splitlines()[0]


def test_files_since_the_start(tmp_path: Path) -> None:
    for name, age_s in (("triton/A/k.cubin", 0), ("triton/A/k.json", 0), ("triton/B/old.cubin", 500)):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
        os.utime(path, (time.time() - age_s,) * 2)
    assert watching.made_since(tmp_path, time.time() - 100) == {"Triton k": 1}
    assert watching.made_since(tmp_path / "none", 0.0) == {}
