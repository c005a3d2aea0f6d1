"""Builds of a small stand-in for flash-attn with the real uv, ninja and nvcc: kept, refused, interrupted, out of everything.

The stand-in's setup.py is ``tests/data/flash_attn_setup.txt``; a folder named torch gives the three facts a build asks of torch. What
the real package does on a real card is in ``docs/measurements.md``.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from runbook import pins, uv
from runbook.actions import Context, flash_build, flash_kernel, flash_source, flash_wheels
from runbook.actions.flash_build import NAME, BuildFlash, NoVerdict
from runbook.actions.flash_plan import Request
from runbook.actions.jobs import Jobs, Owner
from runbook.checks import toolkits
from runbook.errors import ActionFailed, BadParameter
from runbook.probes.live import LiveProbe
from runbook.workspace import Workspace

SETUP = Path(__file__).parents[1] / "data" / "flash_attn_setup.txt"
TORCH = """
__version__ = "2.11.0+cu130"
class version:
    cuda = "13.0"
class _C:
    _GLIBCXX_USE_CXX11_ABI = True
class cuda:
    is_available = staticmethod(lambda: False)
"""
CARDS = {"9.0": ["H200"]}
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the build tools and the facts of a torch."""
    with contextlib.suppress(ActionFailed):
        if toolkits.home(LiveProbe(Workspace(tmp_path_factory.mktemp("none"))))[0]:
            folder = tmp_path_factory.mktemp("target")
            for words in (
                ["venv", "--no-project", "--python", sys.executable, str(folder)],
                ["pip", "install", "--python", str(folder / "bin/python"), *flash_build.TOOLS.values()],
            ):
                assert uv.ask(words).rc == 0
            site = next(folder.glob("lib/python3.*/site-packages"))
            (site / "torch").mkdir()
            (site / "torch" / "__init__.py").write_text(TORCH, encoding="utf-8")
            return folder / "bin" / "python"
    pytest.skip("no CUDA toolkit here")


def laid_out(folder: Path) -> Path:
    """The sources of the stand-in."""
    for name, text in (
        ("setup.py", SETUP.read_text(encoding="utf-8")),
        ("flash_attn/__init__.py", '__version__ = "2.8.3"\n'),
        (flash_source.CUTLASS, "// looked for, and not read\n"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Workspace]:
    work = Workspace(tmp_path / "home")
    laid_out(tmp_path / "source")
    yield work
    Jobs(work.jobs).stop_all()


def build(work: Workspace, python: Path) -> BuildFlash:
    ctx = Context(work, pins.stack(pins.MISSION), python, False, "", Owner.of(), 60)  # noqa: FBT003 - as page.py
    return BuildFlash(ctx, Request("2.8.3", work.root.with_name("source"), CARDS, jobs=1))


def left(work: Workspace) -> list[str]:
    """What of a build is still there: folders, processes."""
    folders = [str(path) for path in (work.root / "builds").glob("*")]
    return folders + [name for _, name in Jobs(work.jobs).processes()]


def until(true: Callable[[], object]) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.05)


def compilers(work: Workspace) -> list[psutil.Process]:
    found = []
    for pid, name in Jobs(work.jobs).processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [psutil.Process(pid)] if name == "cicc" else []
    return found


def slow(work: Workspace) -> list[psutil.Process]:
    """The compiler of the long source, once it is at it."""
    found = []
    for one in compilers(work):
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [one] if "kernel2" in " ".join(one.cmdline()) else []
    return found


def test_a_wheel_is_built_kept_named_and_recorded_and_the_target_is_as_before(
    work: Workspace, python: Path
) -> None:
    site = next(python.parents[1].glob("lib/python3.*/site-packages"))
    before = sorted(path.name for path in site.iterdir())
    action = build(work, python)
    assert any("FLASH_ATTN_CUDA_ARCHS=90" in line for line in action.plan())
    assert not (work.root / "builds").exists()
    assert not (work.root / "wheels").exists()
    said: list[str] = []
    with pytest.raises(NoVerdict) as caught:
        action.apply(said.append)
    assert "no GPU to run it on" in caught.value.seen
    (one,) = flash_wheels.kept(work)
    assert one.wheel.name.startswith("flash_attn-2.8.3+cu130torch2.11abi1.sm90-cp3")
    assert one.stamp["torch"] == "2.11.0+cu130"
    assert one.stamp["steps"] == 3
    assert one.stamp["nvcc"].startswith("13.")
    assert one.rate
    assert one.stamp["sha256"] == pins.sha256(one.wheel)
    with zipfile.ZipFile(one.wheel) as wheel:
        assert any(name.startswith("flash_attn_2_cuda") for name in wheel.namelist())
    assert sorted(path.name for path in site.iterdir()) == before
    assert left(work) == []
    assert sorted(path.name for path in one.wheel.parent.iterdir()) == ["build.json", one.wheel.name]


def test_a_kept_wheel_is_not_built_again(work: Workspace, python: Path) -> None:
    with pytest.raises(NoVerdict):
        build(work, python).apply(lambda _: None)
    again = build(work, python)
    lines = again.plan()
    assert any(line.startswith("built ") for line in lines)
    said: list[str] = []
    with pytest.raises(NoVerdict):
        again.apply(said.append)
    assert not any("building with" in line for line in said)


def test_a_wheel_whose_kernel_was_wrong_does_not_serve(work: Workspace, python: Path) -> None:
    with pytest.raises(NoVerdict):
        build(work, python).apply(lambda _: None)
    (one,) = flash_wheels.kept(work)
    flash_wheels.restamp(flash_wheels.Kept(one.wheel, {**one.stamp, "kernel": {"said": flash_kernel.WRONG}}))
    assert flash_wheels.fitting(work, one.wheel.parent.name) is None


def test_the_compilers_first_error_is_what_is_said(
    work: Workspace, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN", "error")
    with pytest.raises(ActionFailed) as caught:
        build(work, python).apply(lambda _: None)
    assert "no_such_header.h: No such file or directory" in caught.value.seen
    assert "at object 3 of 3" in caught.value.seen
    assert left(work) == []
    assert flash_wheels.kept(work) == []
    assert "no_such_header" in (work.logs / f"{NAME}.log").read_text(encoding="utf-8")


def test_a_full_disk_is_named(work: Workspace, python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN", "full")  # that object is written to /dev/full
    with pytest.raises(ActionFailed, match="the disk became full") as caught:
        build(work, python).apply(lambda _: None)
    assert "No space left on device" in caught.value.seen
    assert left(work) == []


@contextlib.contextmanager
def started(work: Workspace, python: Path) -> "Iterator[subprocess.Popen[str]]":
    """The command itself, in a process of its own, once it is at its long source; ended when the test is."""
    words = [
        "build",
        "flash-attn",
        "--source",
        str(work.root.with_name("source")),
        "--gpu",
        "H200",
        "--jobs",
        "1",
        "--target",
        str(python),
        "--yes",
    ]
    env = {**os.environ, "RUNBOOK_HOME": str(work.root), "STAND_IN": "long"}
    with subprocess.Popen(
        [sys.executable, "-m", "runbook", *words],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - one thread
    ) as command:
        try:
            until(lambda: slow(work) or command.poll() is not None)
            assert command.poll() is None, command.communicate()
            yield command
        finally:
            command.kill()


def test_a_compiler_killed_for_memory_is_named_with_fewer_jobs(work: Workspace, python: Path) -> None:
    with started(work, python) as command:
        slow(work)[0].kill()  # what the kernel does when memory runs out
        out, _ = command.communicate(timeout=PATIENCE_S)
        assert command.returncode == 1
        assert "most likely for memory, at object 3 of 3" in out
        assert "again with --jobs 1" in out
        assert left(work) == []


def test_ctrl_c_leaves_nothing(work: Workspace, python: Path) -> None:
    with started(work, python) as command:
        command.send_signal(signal.SIGINT)
        out, _ = command.communicate(timeout=PATIENCE_S)
        assert command.returncode == 130
        assert "interrupted: the build is stopped" in out
        assert left(work) == []


def test_kill_9_of_the_runbook_leaves_nothing(work: Workspace, python: Path) -> None:
    with started(work, python) as command:
        command.kill()
        command.communicate(timeout=PATIENCE_S)
        until(lambda: not left(work))
        assert flash_wheels.kept(work) == []


def test_kill_9_of_the_keeper_is_a_finding_and_leaves_nothing(work: Workspace, python: Path) -> None:
    with started(work, python) as command:
        job = Jobs(work.jobs).get(NAME)
        assert job is not None
        os.kill(job.keeper_pid, signal.SIGKILL)
        out, _ = command.communicate(timeout=PATIENCE_S)
        assert command.returncode == 1
        assert "its keeper was killed" in out
        assert left(work) == []


def test_one_at_a_time_and_runbook_stop_ends_it(work: Workspace, python: Path) -> None:
    with started(work, python) as command:
        with pytest.raises(ActionFailed, match="runs already"):
            build(work, python).apply(lambda _: None)
        assert NAME in Jobs(work.jobs).stop_all()
        out, _ = command.communicate(timeout=PATIENCE_S)
        assert command.returncode == 1
        assert "the build was stopped" in out
        assert left(work) == []


def test_what_a_dead_build_left_goes_with_the_next(work: Workspace, python: Path) -> None:
    old = work.root / "builds" / "flash-attn-4194304-1"
    (old / "src").mkdir(parents=True)
    with pytest.raises(NoVerdict):
        build(work, python).apply(lambda _: None)
    assert not old.exists()


def test_a_folder_that_is_no_source_is_refused(tmp_path: Path) -> None:
    for bad in (tmp_path, tmp_path / "flash_attn-2.8.3.zip", tmp_path / "none"):
        with pytest.raises(BadParameter):
            flash_source.release_of(bad)
    bare = tmp_path / "flash_attn-2.8.3"
    (laid_out(bare) / flash_source.CUTLASS).unlink()
    with pytest.raises(BadParameter, match=r"cutlass\.h") as caught:
        flash_source.lay_out(bare, tmp_path / "out")
    assert "submodule" in caught.value.do


def test_a_damaged_sdist_is_refused(tmp_path: Path) -> None:
    bad = tmp_path / "flash_attn-2.8.3.tar.gz"
    bad.write_bytes(b"\x1f\x8b\x08 no archive")
    with pytest.raises(BadParameter, match="cannot be unpacked"):
        flash_source.lay_out(bad, tmp_path)


PAIRS = """cc_flag = []
    cc_flag.append("-gencode")
    cc_flag.append("arch=compute_80,code=sm_80")
    if CUDA_HOME is not None:
        if bare_metal_version >= Version("11.8"):
            cc_flag.append("-gencode")
            cc_flag.append("arch=compute_90,code=sm_90")
"""


def test_targets_written_into_a_setup_are_replaced_and_others_refused(tmp_path: Path) -> None:
    setup = tmp_path / "setup.py"
    setup.write_text(PAIRS, encoding="utf-8")
    flash_source.narrow(tmp_path, ["90"])
    text = setup.read_text(encoding="utf-8")
    assert text.count("sm_90") == 1
    assert "sm_80" not in text
    assert "    cc_flag += ['-gencode', 'arch=compute_90,code=sm_90']\n" in text
    with pytest.raises(ActionFailed, match="not known"):
        flash_source.narrow(tmp_path, ["90"])


ANSWER = {
    "version": "2.8.3", "gpu": "NVIDIA H200", "cases": 144, "worst": {"float16": 0.001}, "worst_grad": 0.02,
    "blunder": 3.6, "most": 0.03, "wrong": [], "wrong_cases": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (ANSWER, "right"),
        ({**ANSWER, "wrong_cases": 1, "wrong": [{"dim": 64}]}, "wrong"),
        ({**ANSWER, "blunder": 0.01}, "unknown: the bound is so wide"),
        ({"version": "2.8.3", "no_gpu": True}, "unknown: it loads"),
        ({"error": "ImportError: undefined symbol: _ZN3c10"}, "wrong"),
        ({"error": "the child ended without an answer (SIGSEGV)"}, "wrong"),
        ({"error": "OutOfMemoryError: CUDA out of memory."}, "unknown: Out"),
        ({"error": "no answer within 600 s"}, "unknown: no answer"),
    ],
)
def test_what_the_kernels_check_found_is_judged(answer: dict[str, object], said: str) -> None:
    assert str(flash_kernel.judged(answer)["said"]).startswith(said)


def test_a_stamp_that_cannot_be_read_is_no_kept_wheel(work: Workspace) -> None:
    for name, text in (("a", "{"), ("b", "{}"), ("c", json.dumps({"wheel": "gone.whl"})), ("d", "[]")):
        place = flash_wheels.folder(work) / name
        place.mkdir(parents=True)
        (place / flash_wheels.STAMP).write_text(text, encoding="utf-8")
    assert flash_wheels.kept(work) == []
