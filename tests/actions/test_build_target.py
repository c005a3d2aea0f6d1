"""Targets built by the real uv from a small hashed lock: whole or not there, and every later change is noticed."""

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from runbook import pins, uv
from runbook.actions import Context
from runbook.actions.build_target import BuildTarget, fetched, mib
from runbook.actions.builds import HISTORY, STAMP, Build, Builds
from runbook.actions.jobs import Owner
from runbook.actions.records import faults, record_hashes
from runbook.errors import ActionFailed, BadParameter
from runbook.pins import Stack
from runbook.workspace import Workspace

ROOT = Path(__file__).parents[2]
MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
NAME = "tiny"
PACKAGES = ("six", "packaging")
MANIFEST = f"""
schema = "stack/1"
name = "{NAME}"
what = "two small packages"
why = "a target that is built in a second"
device = "cpu"
vllm = "0"
torch = "0"
python = ["{MINOR}"]
model = "tiny-qwen3"
distribution = "six"
flash_attn = "none"

[[pin]]
package = "glibc"
version = ">=2.17"
why = "Any Linux."
source = "https://peps.python.org/pep-0599/"
read = "2026-11-30"
"""


def locked(*names: str) -> str:
    """The rows of some packages in our own lock, hashes and all; without the marker, since it is asked for here."""
    text = (ROOT / "requirements" / "runbook.txt").read_text(encoding="utf-8")
    rows = [re.search(rf"(?m)^{name}==[^\n]+\n(?:    --hash=[^\n]+\n?)+", text) for name in names]
    return "".join(row.group() for row in rows if row)


@pytest.fixture(scope="module")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of stacks with one tiny stack in it."""
    folder = tmp_path_factory.mktemp("stacks")
    (folder / NAME).mkdir()
    (folder / NAME / "manifest.toml").write_text(MANIFEST, encoding="utf-8")
    lock = locked(*PACKAGES)
    assert lock.count("==") == len(PACKAGES)
    (folder / NAME / f"py{MINOR.replace('.', '')}.txt").write_text(lock, encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def _these_stacks(stacks: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    pins.stack.cache_clear()
    monkeypatch.setattr(pins, "STACKS", stacks)
    yield
    pins.stack.cache_clear()


def action(root: Path, stack: Stack | None = None, *, ours: bool = True) -> BuildTarget:
    work = Workspace(root)
    stack = stack or pins.stack(NAME)
    return BuildTarget(
        Context(work, stack, work.target_python(stack.name), ours, stack.model, Owner.of(), 60)
    )


@pytest.fixture(scope="module")
def first(stacks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace in which the target was built once; copied for each test that spoils it."""
    root = tmp_path_factory.mktemp("first")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pins, "STACKS", stacks)
        pins.stack.cache_clear()
        said: list[str] = []
        action(root).apply(said.append)
        assert said[0].startswith("installing 2 packages")
        assert said[-1].startswith("built in ")
    return root


@pytest.fixture
def root(first: Path, tmp_path: Path) -> Path:
    shutil.copytree(first, tmp_path / "work", symlinks=True)
    return tmp_path / "work"


def current(root: Path) -> Build:
    found = Builds(Workspace(root), NAME).current()
    assert found is not None
    return found


def site(root: Path) -> Path:
    return current(root).site


def missing_files(folder: Path) -> list[str]:
    return [one.name for one in faults(folder, by_hash=False)]


def say(_: str) -> None:
    """Nobody listens."""


# Built


def test_what_was_built_is_what_the_lock_says(first: Path) -> None:
    target = current(first).folder
    stamp = json.loads((target / STAMP).read_text(encoding="utf-8"))
    assert stamp["stack"] == NAME
    assert stamp["python"] == MINOR
    assert stamp["lock_sha256"] == pins.sha256(pins.stack(NAME).lock(MINOR))
    assert sorted(stamp["records"]) == ["packaging", "six"]
    assert stamp["records"] == record_hashes(site(first))
    assert missing_files(site(first)) == []
    ran = subprocess.run([target / "bin" / "python", "-I", "-c", "import six, packaging; print(six.__version__)"], capture_output=True, text=True, check=True)  # fmt: skip
    assert ran.stdout == f"{pins.locked(pins.stack(NAME).lock(MINOR))['six']}\n"
    assert list(site(first).glob("**/*.pyc"))  # compiled on the spot


def test_nothing_lies_outside_its_places(first: Path) -> None:
    assert sorted(path.name for path in first.iterdir()) == ["logs", "targets"]
    assert [path.name for path in (first / "targets").iterdir()] == [NAME]
    within = {path.name for path in (first / "targets" / NAME).iterdir()}
    assert within == {".lock", "current", HISTORY, current(first).name}
    assert [path.name for path in (first / "logs").iterdir()] == [f"build-{NAME}.log"]


def test_a_whole_target_is_left_alone(first: Path) -> None:
    one = action(first)
    stamp = (current(first).folder / STAMP).read_text(encoding="utf-8")
    assert one.fault() is None
    plan = one.plan()
    assert any(line.startswith("nothing    ") for line in plan)
    assert plan[-1] == "changes    none: 2 packages as locked"
    told: list[str] = []
    one.apply(told.append)
    assert told == []
    assert (current(first).folder / STAMP).read_text(encoding="utf-8") == stamp


def test_the_plan_of_a_new_one_changes_nothing(tmp_path: Path) -> None:
    lines = action(tmp_path / "work").plan()
    assert "because    there is no finished target" in lines
    assert any(line.startswith("changes    2 packages added") for line in lines)
    assert lines[-1] == f"undo       runbook env remove {NAME}"
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_is_not_ours_is_never_touched(tmp_path: Path) -> None:
    one = action(tmp_path / "work", ours=False)
    assert one.plan()[0].startswith("nothing: you named the target")
    one.apply(say)
    assert list(tmp_path.iterdir()) == []


# Changed since


def test_a_file_is_gone(root: Path) -> None:
    (site(root) / "six.py").unlink()
    assert missing_files(site(root)) == ["six.py"]
    assert action(root).fault() == "1 installed files are missing or cut, such as six.py"


def test_a_file_was_edited(root: Path) -> None:
    path = site(root) / "packaging" / "version.py"
    path.write_text(path.read_text(encoding="utf-8") + "# patched\n", encoding="utf-8")
    assert action(root).fault() == "1 installed files are missing or cut, such as packaging/version.py"


def test_a_file_was_cut(root: Path) -> None:
    (site(root) / "six.py").write_text("", encoding="utf-8")
    assert missing_files(site(root)) == ["six.py"]


def test_compiled_files_may_go(root: Path) -> None:
    for path in site(root).glob("**/*.pyc"):
        path.unlink()
    assert action(root).fault() is None


def test_another_release_was_installed(root: Path) -> None:
    python = current(root).python
    subprocess.run(
        [uv.program(), "pip", "install", "--python", python, "--no-deps", "-q", "idna"],
        check=True,
        capture_output=True,
    )
    assert action(root).fault() == "packages were changed since it was built: idna"
    subprocess.run(
        [uv.program(), "pip", "uninstall", "--python", python, "-q", "idna"], check=True, capture_output=True
    )
    assert action(root).fault() is None
    subprocess.run(
        [uv.program(), "pip", "uninstall", "--python", python, "-q", "six"], check=True, capture_output=True
    )
    assert action(root).fault() == "packages were changed since it was built: six"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "7", '"x"', "{}", '{"python": "3.11"}', '{"lock_sha256": "0", "python": "9.9"}'],
)
def test_a_torn_stamp_is_no_stamp(text: str, root: Path) -> None:
    (current(root).folder / STAMP).write_text(text, encoding="utf-8")
    assert action(root).fault() is not None


def test_a_stamp_of_another_lock(root: Path) -> None:
    path = current(root).folder / STAMP
    stamp = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**stamp, "lock_sha256": "0" * 64}), encoding="utf-8")
    assert action(root).fault() == "the lock has changed since it was built"
    path.write_text(json.dumps({**stamp, "python": "3.9"}), encoding="utf-8")
    assert action(root).fault() == "it was built from a lock that is no longer there"
    path.write_text(
        json.dumps({name: value for name, value in stamp.items() if name != "records"}), encoding="utf-8"
    )
    assert action(root).fault() == "packages were changed since it was built"


def test_its_interpreter_is_gone(root: Path) -> None:
    python = current(root).python
    python.unlink()
    python.symlink_to("/no/such/python")
    assert action(root).fault() == "its interpreter is gone"


def test_what_is_broken_is_built_anew_beside_it(root: Path) -> None:
    broken = current(root)
    (broken.site / "six.py").unlink()
    (root / "targets" / NAME / "killed").mkdir()  # no stamp, never current: what a killed build leaves
    action(root).apply(say)
    assert action(root).fault() is None
    assert current(root).name != broken.name
    assert not (broken.site / "six.py").exists()
    assert not (root / "targets" / NAME / "killed").exists()


# What goes wrong on the way

BUILDER = """
import sys
from pathlib import Path
from runbook import pins, uv
pins.STACKS = Path(sys.argv[1])
from runbook.actions import Context
from runbook.actions.build_target import BuildTarget, fetched, mib
from runbook.actions.jobs import Owner
from runbook.workspace import Workspace
work, stack = Workspace(Path(sys.argv[2])), pins.stack("tiny")
BuildTarget(Context(work, stack, work.target_python("tiny"), True, "m", Owner.of(), 60)).apply(lambda line: print(line, flush=True))
"""


@pytest.mark.parametrize("after_s", [0.0, 0.03, 0.1])
def test_killed_in_the_middle_it_is_no_target_and_no_uv_is_left(
    after_s: float, stacks: Path, tmp_path: Path
) -> None:
    root = tmp_path / "work"
    env = {
        **os.environ,
        "UV_CACHE_DIR": str(tmp_path / "cache"),
    }  # an empty cache makes the installation take a while
    with subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(stacks), str(root)], stdout=subprocess.PIPE, text=True, env=env
    ) as child:
        assert child.stdout
        assert child.stdout.readline().startswith("installing")
        time.sleep(after_s)
        child.send_signal(signal.SIGKILL)
        child.wait(20)
    finished = Builds(Workspace(root), NAME).current() is not None
    assert (action(root).fault() is None) == finished
    end = time.monotonic() + 10
    while any(str(root) in " ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"])):
        assert time.monotonic() < end, "uv goes on without us"
        time.sleep(0.05)
    action(root).apply(say)
    assert action(root).fault() is None


def spoiled(stacks: Path, tmp_path: Path, lock: str) -> Stack:
    shutil.copytree(stacks / NAME, tmp_path / "stacks" / NAME)
    (tmp_path / "stacks" / NAME / f"py{MINOR.replace('.', '')}.txt").write_text(lock, encoding="utf-8")
    pins.stack.cache_clear()
    return pins.stack(NAME)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: re.sub(r"sha256:[0-9a-f]{8}", "sha256:00000000", text), "ash mismatch"),
        (lambda text: re.sub(r" \\\n    --hash=\S+", "", text), "--require-hashes"),
        (
            lambda text: text.replace("six==", "no-such-package-of-anybody-1f3==0.0.0+"),
            "no-such-package-of-anybody-1f3",
        ),
    ],
    ids=["another hash", "no hash", "no such package"],
)
def test_a_lock_that_cannot_be_installed(
    change: object, says: str, stacks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(change)
    monkeypatch.setattr(pins, "STACKS", tmp_path / "stacks")
    stack = spoiled(stacks, tmp_path, change(locked(*PACKAGES)))
    one = action(tmp_path / "work", stack)
    with pytest.raises(ActionFailed) as failed:
        one.apply(say)
    assert "uv pip sync ended with " in failed.value.seen
    assert says in failed.value.seen
    assert str(one.log) in failed.value.do
    assert says in one.log.read_text(encoding="utf-8")
    assert one.fault() == "there is no finished target"


def test_a_python_without_a_lock(tmp_path: Path) -> None:
    stack = dataclasses.replace(pins.stack(NAME), pythons=("3.1",))
    with pytest.raises(ActionFailed, match=f"has no lock for Python {MINOR}") as failed:
        action(tmp_path / "work", stack).apply(say)
    assert failed.value.do == "uv python install 3.1"
    with pytest.raises(BadParameter):
        stack.lock("3.1")


def test_a_record_with_odd_lines(tmp_path: Path) -> None:
    folder = tmp_path / "a-1.dist-info"
    folder.mkdir()
    (tmp_path / "with, comma.py").write_text("12345", encoding="utf-8")
    (tmp_path / "plain.py").write_text("12345", encoding="utf-8")
    (folder / "RECORD").write_text(
        '"with, comma.py",sha256=x,5\nplain.py,sha256=x,5\na-1.dist-info/RECORD,,\nplain.py,,\n\n',
        encoding="utf-8",
    )
    assert missing_files(tmp_path) == []
    (tmp_path / "with, comma.py").write_text("1", encoding="utf-8")
    assert missing_files(tmp_path) == ["with, comma.py"]


@pytest.mark.parametrize(
    ("log", "says"),
    [
        ("", "resolving and unpacking"),
        ("Resolved 3 packages in 1ms\n", "resolving and unpacking"),
        ("Downloading numpy (16.0MiB)\n", "0 of 1 large wheels fetched, now numpy (16.0MiB)"),
        ("Downloading a (1.0MiB)\nDownloading b (2.5GiB)\n Downloaded a\n", "1 of 2 large wheels fetched, now b (2.5GiB)"),
        ("Downloading a (1.0MiB)\n Downloaded a\n", "1 large wheels fetched"),
    ],
)  # fmt: skip
def test_how_far_a_download_is(log: str, says: str) -> None:
    assert fetched(log) == says


@pytest.mark.parametrize(("size", "is_"), [("16.0MiB", 16.0), ("2.5GiB", 2560.0), ("512KiB", 0.5)])
def test_sizes_as_uv_writes_them(size: str, is_: float) -> None:
    assert mib(size) == is_
