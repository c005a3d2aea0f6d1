"""What goes wrong during a build, made for real: after each the target that was current still is, and is whole."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import shelf
import wheels
from shelf import Shelf

from runbook import pins
from runbook.actions import Context, verifying
from runbook.actions.build_target import BuildTarget
from runbook.actions.builds import HISTORY, Build, Builds
from runbook.actions.jobs import Owner
from runbook.errors import ActionFailed
from runbook.workspace import Workspace

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
NAME = "made"
MANIFEST = f"""
schema = "stack/1"
name = "{NAME}"
what = "wheels made on the spot"
why = "their index can be cut"
device = "cpu"
vllm = "0"
torch = "0"
python = ["{MINOR}"]
model = "tiny-qwen3"
distribution = "big"
flash_attn = "none"
pin = []
"""
PATIENCE_S = 30.0
BUILDER = """
import os, signal, sys
from pathlib import Path
from runbook import errors, pins
pins.STACKS = Path(sys.argv[1])
from runbook.actions import Context, builds
from runbook.actions.build_target import BuildTarget
from runbook.actions.jobs import Owner
from runbook.workspace import Workspace

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[3] == "before the switch":
    builds.Builds.switch = die
elif sys.argv[3] == "within the switch":
    Path.symlink_to = die
elif sys.argv[3] == "after the link is made":
    Path.replace = lambda self, to: die() if self.is_symlink() else os.replace(self, to)
work, stack = Workspace(Path(sys.argv[2])), pins.stack("made")
one = BuildTarget(Context(work, stack, work.target_python("made"), True, "m", Owner.of(), 60))
try:
    one.apply(lambda line: print(line, flush=True))
except errors.RunbookError as why:
    print(why, flush=True)
    sys.exit(why.exit_code)
"""


@dataclass
class Place:
    """A workspace with a whole current target, a cache of uv's own, and a lock that has moved on since."""

    root: Path
    stacks: Path
    cache: Path
    shelf: Shelf
    first: Build

    def env(self) -> dict[str, str]:
        """What uv runs with."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
        return {
            **kept,
            "UV_DEFAULT_INDEX": self.shelf.url,
            "UV_CACHE_DIR": str(self.cache),
            "UV_HTTP_TIMEOUT": "20",
            "UV_HTTP_RETRIES": "0",
        }

    def start(self, how: str = "") -> "subprocess.Popen[str]":
        """A build in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-c", BUILDER, str(self.stacks), str(self.root), how],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.env(),
        )

    def builds(self) -> Builds:
        """Those of the workspace."""
        return Builds(Workspace(self.root), NAME)

    def move_on(self, *rows: str) -> None:
        """Change the lock, so that a build is due."""
        lock = self.stacks / NAME / f"py{MINOR.replace('.', '')}.txt"
        lock.write_text(lock.read_text(encoding="utf-8") + "".join(rows), encoding="utf-8")


def big(version: str, count: int = 40, size: int = 1 << 18) -> dict[str, str]:
    return {
        f"big/part{number}.py": (f"# {version} {number}\n" * (size // 8))[:size] for number in range(count)
    }


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    kept = tmp_path / "wheels"
    folder = tmp_path / "stacks" / NAME
    folder.mkdir(parents=True)
    (folder / "manifest.toml").write_text(MANIFEST, encoding="utf-8")
    small = wheels.made(kept, "small", "1.0", {"small.py": "x = 1\n"})
    (folder / f"py{MINOR.replace('.', '')}.txt").write_text(shelf.row(small), encoding="utf-8")
    pins.stack.cache_clear()
    monkeypatch.setattr(pins, "STACKS", tmp_path / "stacks")
    with shelf.shelf(kept) as index:
        one = Place(tmp_path / "work", tmp_path / "stacks", tmp_path / "cache", index, Build(tmp_path, {}))
        with one.start() as child:
            said = child.communicate(timeout=PATIENCE_S)[0]
        assert child.returncode == 0, said
        first = one.builds().current()
        assert first is not None
        one.first = first
        one.move_on(shelf.row(wheels.made(kept, "big", "1.0", big("1.0"))))
        yield one
    pins.stack.cache_clear()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.005)


def kill(place: Place, child: "subprocess.Popen[str]") -> None:
    """SIGKILL, and wait until the uv it had started is gone too."""
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=PATIENCE_S)
    until(
        lambda: (
            not [
                one
                for one in psutil.process_iter(["cmdline"])
                if str(place.root) in " ".join(one.info["cmdline"] or ())
            ]
        )
    )


def still_there(place: Place) -> None:
    """The first target is current, and every byte of it is as it was."""
    current = place.builds().current()
    assert current is not None
    assert current.name == place.first.name
    assert verifying.of_build(current, by_hash=True).whole


def again(place: Place) -> None:
    """A second try builds what the lock says, and leaves nothing of the first."""
    place.shelf.stop_at = None
    with place.start() as child:
        said = child.communicate(timeout=PATIENCE_S)[0]
    assert child.returncode == 0, said
    current = place.builds().current()
    assert current is not None
    assert sorted(current.stamp["records"]) == ["big", "small"]
    assert verifying.of_build(current, by_hash=True).whole
    within = {path.name for path in place.builds().folder.iterdir()}
    finished = {one.name for one in place.builds().all()}
    assert within == {".lock", "current", HISTORY, *finished}
    assert place.first.name in finished


def test_killed_while_it_downloads(place: Place) -> None:
    place.shelf.stop_at = 1 << 20
    child = place.start()
    assert place.shelf.reached.wait(PATIENCE_S)
    kill(place, child)
    still_there(place)
    again(place)


def test_killed_while_it_unpacks(place: Place) -> None:
    place.move_on(shelf.row(wheels.made(place.shelf.folder, "many", "1.0", {f"many/m{n}.py": "x = 1\n" for n in range(4000)})))  # fmt: skip
    child = place.start()
    until(lambda: any(place.cache.rglob("many/m*.py")) or child.poll() is not None)
    assert child.poll() is None, "it was too quick to be killed"
    kill(place, child)
    still_there(place)
    place.shelf.stop_at = None
    with place.start() as second:
        assert "built in" in second.communicate(timeout=PATIENCE_S)[0]
    current = place.builds().current()
    assert current is not None
    assert verifying.of_build(current, by_hash=True).whole


@pytest.mark.parametrize("when", ["before the switch", "within the switch", "after the link is made"])
def test_killed_at_the_switch(when: str, place: Place) -> None:
    with place.start(when) as child:
        child.communicate(timeout=PATIENCE_S)
    assert child.returncode == -signal.SIGKILL
    still_there(place)
    assert place.builds().previous() is None
    again(place)
    previous = place.builds().previous()
    assert previous is not None
    assert previous.name == place.first.name


def test_the_index_is_cut_off_midway(place: Place) -> None:
    place.shelf.stop_at, place.shelf.cut = 1 << 20, True
    with place.start() as child:
        said = child.communicate(timeout=PATIENCE_S)[0]
    assert child.returncode == 1, said
    assert "uv pip sync" in said
    assert "big" in said
    assert "what was current still is" in said
    assert [one.name for one in place.builds().all()] == [place.first.name]
    still_there(place)
    place.shelf.cut = False
    again(place)


def test_the_index_is_gone(place: Place) -> None:
    shutil.rmtree(place.shelf.folder)
    place.shelf.folder.mkdir()
    with place.start() as child:
        said = child.communicate(timeout=PATIENCE_S)[0]
    assert child.returncode == 1, said
    assert "what was current still is" in said
    still_there(place)


@pytest.mark.parametrize("damage", ["another byte", "cut short"])
def test_what_uv_keeps_was_damaged(damage: str, place: Place) -> None:
    again(place)
    found = [path for path in place.cache.rglob("part7.py") if path.is_file()]
    assert found
    for path in found:
        data = path.read_bytes()
        path.unlink()  # the target holds the same inode
        path.write_bytes(data[:-1] if damage == "cut short" else data[:-1] + b"!")
    second = place.builds().current()
    assert second is not None
    place.first = second
    place.move_on(shelf.row(wheels.made(place.shelf.folder, "other", "1.0", {"other.py": ""})))
    with place.start() as child:
        said = child.communicate(timeout=PATIENCE_S)[0]
    assert child.returncode == 1, said
    assert "big/part7.py" in said
    assert "uv cache clean big" in said
    still_there(place)
    # What the message says to do.
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "cache", "clean", "big"], env=place.env(), check=True, capture_output=True)
    with place.start() as child:
        assert "built in" in child.communicate(timeout=PATIENCE_S)[0]


def test_two_at_once(place: Place) -> None:
    place.shelf.stop_at = 1 << 20
    one = place.start()
    assert place.shelf.reached.wait(PATIENCE_S)
    with place.start() as other:
        said = other.communicate(timeout=PATIENCE_S)[0]
    assert other.returncode == 1, said
    assert f"another process is building or switching {NAME}: process {one.pid} since" in said
    still_there(place)
    place.shelf.go.set()
    assert "built in" in one.communicate(timeout=PATIENCE_S)[0]
    current = place.builds().current()
    assert current is not None
    assert verifying.of_build(current, by_hash=True).whole


def test_interrupted_it_leaves_nothing(place: Place) -> None:
    place.shelf.stop_at = 1 << 20
    child = place.start()
    assert place.shelf.reached.wait(PATIENCE_S)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=PATIENCE_S)
    assert child.returncode != 0
    assert [path.name for path in place.builds().folder.glob("20*")] == [place.first.name]
    still_there(place)
    again(place)


def mounted(folder: Path, options: str) -> None:
    """A file system of its own; only root may."""
    ran = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True, check=False)  # fmt: skip
    if ran.returncode:
        pytest.skip(f"no file system can be mounted here: {ran.stderr.strip()}")


@pytest.mark.parametrize("megabytes", [4, 8])
def test_the_disk_is_full(megabytes: int, place: Place, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted(small, f"size={megabytes}m")
    try:
        shutil.copytree(place.root, small / "work", symlinks=True)
        kept, place.root = place.root, small / "work"
        with place.start() as child:
            said = child.communicate(timeout=PATIENCE_S)[0]
        assert child.returncode == 1, said
        assert "No space left on device" in said
        assert "what was current still is" in said
        assert [path.name for path in place.builds().folder.glob("20*")] == [place.first.name]
        still_there(place)
        subprocess.run(["mount", "-o", "remount,size=64m", small], check=True)
        again(place)
        place.root = kept
    finally:
        subprocess.run(["umount", small], check=True)


def test_the_workspace_is_read_only(place: Place, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir()
    mounted(locked, "size=64m")
    try:
        shutil.copytree(place.root, locked / "work", symlinks=True)
        place.root = locked / "work"
        subprocess.run(["mount", "-o", "remount,ro", locked], check=True)
        with place.start() as child:
            said = child.communicate(timeout=PATIENCE_S)[0]
        assert child.returncode == 1, said
        assert "Read-only file system" in said
        assert "RUNBOOK_HOME" in said
        still_there(place)
        subprocess.run(["mount", "-o", "remount,rw", locked], check=True)
        again(place)
    finally:
        subprocess.run(["umount", locked], check=True)


def test_without_a_network_a_folder_of_wheels_does(place: Place) -> None:
    """The air-gapped installation: the network is cut by the kernel, loopback included."""
    cut = ["unshare", "--map-root-user", "--net"]
    if subprocess.run([*cut, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no network namespace can be made here")
    builder = [*cut, sys.executable, "-c", BUILDER, str(place.stacks), str(place.root), ""]
    shutil.rmtree(place.cache)
    lost = subprocess.run(builder, env=place.env(), capture_output=True, text=True, check=False)
    assert lost.returncode == 1, lost.stdout
    assert "what was current still is" in lost.stdout
    still_there(place)
    env = {**place.env(), "UV_OFFLINE": "1", "UV_FIND_LINKS": str(place.shelf.folder)}
    done = subprocess.run(builder, env=env, capture_output=True, text=True, check=False)
    assert "built in" in done.stdout, done.stdout
    current = place.builds().current()
    assert current is not None
    assert sorted(current.stamp["records"]) == ["big", "small"]


def test_a_build_of_ours_raises_what_a_caller_can_act_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same by call, as a page does it: the error carries what to do."""
    for name, value in place.env().items():
        monkeypatch.setenv(name, value)
    work = Workspace(place.root)
    place.shelf.server.shutdown()
    place.shelf.server.server_close()
    one = BuildTarget(
        Context(
            work,
            pins.stack(NAME),
            work.target_python(NAME),
            ours=True,
            model="m",
            owner=Owner.of(),
            deadline_s=60,
        )
    )
    with pytest.raises(ActionFailed) as failed:
        one.apply(lambda _: None)
    assert str(one.log) in failed.value.do
    still_there(place)
