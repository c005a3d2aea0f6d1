"""Fetching from hubs on loopback with the real huggingface_hub: whole, cut, resumed, lied to, refused, from a mirror, interrupted."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import hub as served
import pytest
from hub import COMMIT, Hub

from runbook import hub
from runbook.actions import fetch_files
from runbook.actions.fetching import Fetch, amount, progress, span
from runbook.actions.jobs import Jobs
from runbook.checkpoint import headers
from runbook.errors import ActionFailed, BadParameter
from runbook.hub import RemoteFile, Unreachable
from runbook.workspace import Workspace

REPO = "Qwen/Qwen3.5-4B"
MAKE = Path(__file__).parents[1] / "runbook" / "inside" / "make_model.py"
WEIGHTS = "model.safetensors"
# huggingface_hub hands on what it reads in pieces of this size, so this much of a file may come twice after an end.
PIECE, LARGE = 10 << 20, 25 << 20
SECRET = "hf_thisIsTheTokenOfTheTests"  # noqa: S105 - of the tests' own hub
VARIABLES = ("HF_ENDPOINT", "MODELSCOPE_ENDPOINT")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A generated checkpoint, 4.3 MB, with a file in a folder besides."""
    folder = tmp_path_factory.mktemp("tiny") / "model"
    subprocess.run([sys.executable, MAKE, "--kind", "tiny-qwen3.5", "--out", folder], check=True, capture_output=True)  # fmt: skip
    (folder / "docs").mkdir()
    (folder / "docs" / "with space+plus.md").write_text("read me", encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a file of two and a half pieces."""
    folder = tmp_path_factory.mktemp("large")
    (folder / "config.json").write_text("{}", encoding="utf-8")
    (folder / WEIGHTS).write_bytes(bytes(range(256)) * (LARGE >> 8))
    return folder


@pytest.fixture
def there(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that serves it, named as both."""
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with served.hub({REPO: tiny}) as server:
        for name in VARIABLES:
            monkeypatch.setenv(name, server.address)
        yield server


@pytest.fixture
def work(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "work")


def fetched(work: Workspace, source: str = hub.HF) -> tuple[Fetch, list[str]]:
    """A fetch carried out, and what it said."""
    one, said = Fetch(work, REPO, source=source), list[str]()
    one.apply(said.append)
    return one, said


def same(folder: Path, other: Path) -> bool:
    """The same files with the same bytes, hidden folders left out."""

    def content(root: Path) -> dict[str, str]:
        files = (path for path in root.rglob("*") if path.is_file())
        return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files if not str(path.relative_to(root)).startswith(".cache")}  # fmt: skip

    return content(folder) == content(other)


@pytest.mark.parametrize("source", hub.SOURCES)
def test_whole(source: str, there: Hub, work: Workspace, tiny: Path) -> None:
    one = Fetch(work, REPO, source=source)
    plan = "\n".join(one.plan())
    assert "post-trained" in plan
    assert there.address in plan
    assert (COMMIT in plan) is (source == hub.HF)
    assert not work.root.exists(), "a plan changes nothing"
    one, said = fetched(work, source=source)
    assert same(one.folder, tiny)
    assert "each compared" in said[-1]
    assert [path.name for path in work.models.iterdir()] == [one.folder.name]
    about = hub.sealed(one.folder)
    assert about
    assert (about["repo"], about["commit"]) == (REPO, COMMIT if source == hub.HF else "")
    total = sum(there.sent(str(path.relative_to(tiny))) for path in tiny.rglob("*") if path.is_file())
    assert total == one.listing().size
    there.log.clear()
    assert "nothing" in Fetch(work, REPO, source=source).plan()[-1]
    assert fetched(work, source=source)[1] == [f"{one.folder} holds it"]
    assert there.sent(WEIGHTS) == 0


def test_the_hubs_own_client_takes_the_folder_for_its_own(there: Hub, work: Workspace) -> None:
    one, _ = fetched(work)
    there.log.clear()
    text = (
        f"from huggingface_hub import snapshot_download as get; get({REPO!r}, local_dir={str(one.folder)!r})"
    )
    env = {**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HOME": str(work.root / "hf")}
    subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, env=env)
    assert there.log
    assert sum(each.sent for each in there.log) == 0


def test_cut_and_tried_again(there: Hub, work: Workspace, large: Path) -> None:
    """A line that breaks in the middle of a file: it goes on behind the last whole piece."""
    there.repos[REPO] = large
    there.faults.cut[WEIGHTS] = (2 * PIECE + (1 << 20), 1)
    one, _ = fetched(work)
    assert same(one.folder, large)
    ranges = [each.range for each in there.log if each.path.startswith("/kept/")]
    assert ranges[0] == ""
    assert set(ranges[1:]) <= {f"bytes={count * PIECE}-" for count in (1, 2)}
    assert len(ranges) == 2


@pytest.mark.parametrize("source", hub.SOURCES)
def test_killed_and_resumed(source: str, there: Hub, work: Workspace, large: Path) -> None:
    """The job is killed while a file is under way; the next fetch goes on at the byte that reached the disk."""
    there.repos[REPO] = large
    there.faults.gate, there.faults.gate_at = threading.Event(), 2 * PIECE + (1 << 20)
    failures: list[ActionFailed] = []

    def run() -> None:
        try:
            fetched(work, source=source)
        except ActionFailed as why:
            failures.append(why)

    thread = threading.Thread(target=run)
    thread.start()
    one = Fetch(work, REPO, source=source)
    part = fetch_files.part_of(one.partial, next(each for each in one.listing().files if each.path == WEIGHTS))  # fmt: skip
    until(lambda: part.exists() and part.stat().st_size == 2 * PIECE)
    job = one.jobs.get(one.name)
    assert job
    os.kill(job.pid, signal.SIGKILL)
    thread.join(30)
    assert "is kept" in failures[0].do
    assert not one.folder.exists(), "half a checkpoint never looks whole"
    have = part.stat().st_size
    there.faults.gate = None
    there.log.clear()
    assert f"{amount(have)} is there" in "\n".join(one.plan())
    fetched(work, source=source)
    assert same(one.folder, large)
    assert there.sent(WEIGHTS) == LARGE - have == PIECE // 2


def test_a_hub_without_ranges_starts_the_file_anew(there: Hub, work: Workspace, large: Path) -> None:
    there.repos[REPO], there.faults.ranges = large, False
    there.faults.cut[WEIGHTS] = (PIECE + (1 << 20), 1)
    one, _ = fetched(work)
    assert same(one.folder, large)


@pytest.mark.parametrize("name", [WEIGHTS, "config.json"])
def test_wrong_bytes_are_caught_and_fetched_anew(name: str, there: Hub, work: Workspace, tiny: Path) -> None:
    """Large files have a sha256, small ones git's hash."""
    there.faults.lies[name] = b"{}"
    with pytest.raises(ActionFailed, match=f"{re.escape(name)} came with hash") as failed:
        fetched(work)
    assert "another mirror" in failed.value.do
    one = Fetch(work, REPO)
    assert not one.folder.exists()
    assert not (one.partial / name).exists()
    there.faults.lies.clear()
    assert same(fetched(work)[0].folder, tiny)


def test_gated(there: Hub, work: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    there.faults.gated, there.faults.token = True, SECRET
    assert "gated" in "\n".join(Fetch(work, REPO).plan())
    with pytest.raises(ActionFailed, match="is gated") as failed:
        fetched(work)
    assert f"{there.address}/{REPO}" in failed.value.do
    assert "HF_TOKEN" in failed.value.do
    monkeypatch.setenv("HF_TOKEN", SECRET)
    one, said = fetched(work)
    assert {each.token for each in there.log if each.path.endswith("config.json")} >= {SECRET}
    written = [path for root in (work.jobs, one.folder) for path in root.rglob("*") if path.is_file()]
    assert [path for path in written if SECRET.encode() in path.read_bytes()] == []
    assert SECRET not in "".join(said)


@pytest.mark.parametrize(
    ("repo", "revision", "token", "says"),
    [
        ("Qwen/Qwen3-8B", "", "", "is not on .*, or is private"),
        (REPO, "no-such", "", "no revision 'no-such'"),
        (REPO, "", "hf_wrong", r"refuses the request .*401; a token is set"),
    ],
)
def test_refused(repo: str, revision: str, token: str, says: str, there: Hub, work: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    there.faults.token = SECRET
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(ActionFailed, match=says) as failed:
        Fetch(work, repo, revision).plan()
    assert not isinstance(failed.value, Unreachable)
    assert "hf_wrong" not in str(failed.value)


def test_private(there: Hub, work: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    there.faults.private, there.faults.token = True, SECRET
    with pytest.raises(ActionFailed, match="or is private"):
        Fetch(work, REPO).plan()
    monkeypatch.setenv("HF_TOKEN", SECRET)
    assert Fetch(work, REPO).plan()


@pytest.mark.parametrize("source", hub.SOURCES)
def test_no_answer(source: str, there: Hub, work: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    there.faults.busy = True
    with pytest.raises(Unreachable, match="answers 503"):
        Fetch(work, REPO, source=source).plan()
    for name in VARIABLES:
        monkeypatch.setenv(name, "http://user:secret@127.0.0.1:1")
    with pytest.raises(Unreachable, match="gives no answer") as failed:
        Fetch(work, REPO, source=source).plan()
    assert "secret" not in str(failed.value)
    for name in VARIABLES:
        monkeypatch.setenv(name, "hub.example")
    with pytest.raises(BadParameter, match="is no address"):
        Fetch(work, REPO, source=source).plan()


def test_offline_asks_nobody(there: Hub, work: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(Unreachable, match="HF_HUB_OFFLINE is set"):
        Fetch(work, REPO).plan()
    assert there.log == []


def test_modelscope_without_the_repository(there: Hub, work: Workspace) -> None:
    assert there.repos
    with pytest.raises(ActionFailed, match="answers 404") as failed:
        Fetch(work, "Qwen/Qwen3-8B", source=hub.MODELSCOPE).plan()
    assert not isinstance(failed.value, Unreachable)


def test_no_such_source(work: Workspace) -> None:
    with pytest.raises(BadParameter, match="--source 'other'"):
        hub.endpoint("other")
    assert not work.root.exists()


def test_another_revision_takes_what_is_the_same(
    there: Hub, work: Workspace, tiny: Path, tmp_path: Path
) -> None:
    one, _ = fetched(work)
    newer = tmp_path / "newer"
    shutil.copytree(tiny, newer)
    (newer / "config.json").write_text("{}", encoding="utf-8")
    (newer / "docs" / "with space+plus.md").unlink()
    there.repos[REPO], there.commit = newer, "5e6f7a8b" * 5
    there.log.clear()
    assert f"in place of commit {COMMIT}" in "\n".join(Fetch(work, REPO).plan())
    fetched(work)
    assert same(one.folder, newer)
    assert (there.sent(WEIGHTS), there.sent("config.json") > 0) == (0, True)
    assert [path.name for path in work.models.iterdir()] == [one.folder.name]


def test_a_folder_of_other_origin_behind_a_link(
    there: Hub, work: Workspace, tiny: Path, tmp_path: Path
) -> None:
    """Its files are compared and kept, the link stays one, and a file that is no checkpoint's goes."""
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(tiny, elsewhere)
    (elsewhere / "config.json").write_bytes(bytes((tiny / "config.json").stat().st_size))
    (elsewhere / "stray.txt").write_text("old", encoding="utf-8")
    work.models.mkdir(parents=True)
    (work.models / "Qwen--Qwen3.5-4B").symlink_to(elsewhere)
    fetched(work)
    assert (there.sent(WEIGHTS), there.sent("config.json") > 0) == (0, True)
    assert (work.models / "Qwen--Qwen3.5-4B").is_symlink()
    assert same(elsewhere, tiny)


def test_a_workspace_that_cannot_be_written_to(there: Hub, tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file", encoding="utf-8")
    with pytest.raises(ActionFailed, match="Not a directory"):
        fetched(Workspace(tmp_path))
    assert there.sent(WEIGHTS) == 0


def test_the_disk_is_full(there: Hub, work: Workspace) -> None:
    """/dev/full answers every write with the error of a full disk."""
    one = Fetch(work, REPO)
    part = fetch_files.part_of(one.partial, next(each for each in one.listing().files if each.path == WEIGHTS))  # fmt: skip
    part.parent.mkdir(parents=True)
    part.symlink_to("/dev/full")
    with pytest.raises(ActionFailed, match="No space left on device") as failed:
        fetched(work)
    assert "RUNBOOK_HOME" in failed.value.do
    assert not one.folder.exists()
    assert there.log


def test_no_room_is_said_before_anything_is_fetched(there: Hub, work: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setattr(Fetch, "_free", lambda _: 1000)
    with pytest.raises(ActionFailed, match=r"1\.00 kB are free"):
        fetched(work)
    assert there.sent(WEIGHTS) == 0
    assert not work.root.exists()


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../b", ".cache/runbook/source.json", "a\\b"])  # fmt: skip
def test_a_hub_that_names_files_elsewhere(name: str, there: Hub, work: Workspace) -> None:
    there.faults.extra = (name,)
    with pytest.raises(ActionFailed, match="lists a file"):
        fetched(work)
    with pytest.raises(ActionFailed, match="lists a file"):
        hub.examine(REPO, "", work.skeletons / "x")
    assert not work.root.exists()


def test_a_hub_that_names_no_sizes(there: Hub, work: Workspace) -> None:
    there.faults.sizes = False
    with pytest.raises(ActionFailed, match="names no size"):
        Fetch(work, REPO).plan()


def test_two_at_once(there: Hub, work: Workspace) -> None:
    there.faults.gate = threading.Event()
    thread = threading.Thread(target=lambda: fetched(work))
    thread.start()
    one = Fetch(work, REPO)
    until(lambda: one.jobs.get(one.name) is not None)
    with pytest.raises(ActionFailed, match="being fetched already"):
        fetched(work)
    there.faults.gate.set()
    thread.join(30)
    assert one.folder.exists()


def test_ctrl_c(there: Hub, work: Workspace, large: Path) -> None:
    """A terminal's Ctrl-C ends the command with 130 and the job with it, and what came is kept."""
    there.repos[REPO] = large
    there.faults.gate, there.faults.gate_at = threading.Event(), 2 * PIECE + (1 << 20)
    env = {**os.environ, "RUNBOOK_HOME": str(work.root)}
    command = subprocess.Popen([sys.executable, "-m", "runbook", "fetch", REPO, "--yes"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip
    one = Fetch(work, REPO)
    part = fetch_files.part_of(one.partial, next(each for each in one.listing().files if each.path == WEIGHTS))  # fmt: skip
    until(lambda: part.exists() and part.stat().st_size == 2 * PIECE)
    command.send_signal(signal.SIGINT)
    out, _ = command.communicate(timeout=30)
    assert command.returncode == 130, out
    assert "the same command goes on there" in out
    assert Jobs(work.jobs).running() == []
    assert part.stat().st_size == 2 * PIECE
    there.faults.gate = None
    ended = subprocess.run([sys.executable, "-m", "runbook", "fetch", REPO, "--yes"], env=env, capture_output=True, text=True, check=False)  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert same(one.folder, large)


def test_a_skeleton_is_read_as_the_checkpoint(there: Hub, work: Workspace, tiny: Path) -> None:
    made = hub.examine(REPO, "", work.skeletons / "x")
    whole, bare = headers.read(tiny), headers.read(made.folder)
    assert (bare.tensors, bare.files, bare.faults) == (whole.tensors, whole.files, whole.faults)
    assert made.read == sum(each.sent for each in there.log) <= there.log[0].sent + 200_000
    assert (made.folder / "config.json").read_bytes() == (tiny / "config.json").read_bytes()
    assert (made.folder / WEIGHTS).stat().st_blocks * 512 < (tiny / WEIGHTS).stat().st_size // 10
    assert hub.sealed(made.folder) is None, "a skeleton never passes for a checkpoint"
    note = (made.folder / hub.NOTES / f"{WEIGHTS}.metadata").read_text(encoding="utf-8").splitlines()
    assert note[:2] == [COMMIT, hashlib.sha256((tiny / WEIGHTS).read_bytes()).hexdigest()]
    assert [path.name for path in work.skeletons.iterdir()] == ["x"]


@pytest.mark.parametrize("source", hub.SOURCES)
@pytest.mark.parametrize("ranges", [True, False])
def test_a_skeleton_of_large_files(source: str, *, ranges: bool, there: Hub, work: Workspace, tmp_path: Path) -> None:  # fmt: skip
    """A header of several parts, a file that is no safetensors, and one too large to be taken whole."""
    folder = tmp_path / "repo"
    folder.mkdir()
    header = json.dumps({f"t{number}": {"dtype": "BF16", "shape": [1], "data_offsets": [2 * number, 2 * number + 2]} for number in range(5000)}).encode()  # fmt: skip
    (folder / WEIGHTS).write_bytes(len(header).to_bytes(8, "little") + header + bytes(10_000))
    (folder / "odd.safetensors").write_bytes(b"\xff" * 100_000)
    (folder / "short.safetensors").write_bytes(b"abc")
    (folder / "empty.safetensors").write_bytes(b"")
    (folder / "big.bin").write_bytes(bytes(hub.WHOLE_LIMIT + 1))
    there.repos[REPO], there.faults.ranges = folder, ranges
    made = hub.examine(REPO, "", work.skeletons / "x", source)
    assert {path.name: path.stat().st_size for path in made.folder.iterdir() if path.is_file()} == {path.name: path.stat().st_size for path in folder.iterdir()}  # fmt: skip
    assert len(headers.read(made.folder).tensors) == 5000
    assert made.read < 1_000_000
    assert there.sent("big.bin") == 0


def test_what_is_read_for_a_skeleton_is_bounded(there: Hub, work: Workspace, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """Headers come first, then small files for as long as the limit allows; the others stay holes."""
    monkeypatch.setattr(hub, "READ_LIMIT", hub.FIRST_PART + 2500)
    made = hub.examine(REPO, "", work.skeletons / "x")
    assert made.read <= hub.FIRST_PART + 2500
    assert headers.read(made.folder).tensors == headers.read(tiny).tensors
    assert (made.folder / "tokenizer.json").read_bytes() == bytes((tiny / "tokenizer.json").stat().st_size)
    monkeypatch.setattr(hub, "READ_LIMIT", hub.FIRST_PART - 1)
    with pytest.raises(ActionFailed, match="the headers of"):
        hub.examine(REPO, "", work.skeletons / "x")
    assert there.log


def test_a_file_of_a_skeleton_that_is_refused(there: Hub, work: Workspace) -> None:
    there.faults.gated, there.faults.token = True, SECRET
    with pytest.raises(ActionFailed, match="answers 403"):
        hub.examine(REPO, "", work.skeletons / "x")
    assert not (work.skeletons / "x").exists()


@pytest.mark.parametrize(
    ("size", "said"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (9_319_737_856, "9.32 GB"), (806_797_000_000, "807 GB")],
)
def test_amounts(size: int, said: str) -> None:
    assert amount(size) == said


@pytest.mark.parametrize(("seconds", "said"), [(0.4, "0 s"), (74, "1 min 14 s"), (7260, "2 h 1 min")])
def test_spans(seconds: float, said: str) -> None:
    assert span(seconds) == said


@pytest.mark.parametrize(
    ("have", "first", "says"),
    [
        (1_200_000_000, 0, "1.20 GB of 9.32 GB (12 %), 120 MB/s, about 1 min 8 s left"),
        (1_200_000_000, 1_200_000_000, "nothing came yet"),
        (9_320_000_000, 0, "(100 %), comparing hashes"),
    ],
)
def test_progress(have: int, first: int, says: str) -> None:
    assert says in progress(have, first, 9_320_000_000, 10.0)


def test_a_file_without_any_hash_is_compared_by_its_size(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    one = RemoteFile("x", 3, "", "", "", "")
    assert fetch_files.differs(tmp_path / "x", one) == ""
    assert "3 bytes instead of 4" in fetch_files.differs(tmp_path / "x", RemoteFile("x", 4, "", "", "", ""))


def until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait for a condition; fails when it does not come."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.02)
