"""The tiny checkpoint: the same bytes each time, whole or not there, and found whole by the reader of checkpoints."""

import hashlib
import json
import math
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from runbook.checkpoint import headers
from runbook.probes.live import INSIDE

KINDS = ("tiny-qwen3.5", "tiny-qwen3")
TENSORS = {"tiny-qwen3.5": 142, "tiny-qwen3": 47}


def script(name: str, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and answer of a script in an interpreter without site-packages."""
    argv = [sys.executable, "-I", "-S", str(INSIDE / f"{name}.py"), *words]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert len(ended.stdout.splitlines()) == 1, ended
    return ended.returncode, json.loads(ended.stdout)


def make(kind: str, out: Path, *more: str) -> tuple[int, dict[str, Any]]:
    return script("make_model", "--kind", kind, "--out", str(out), *more)


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Both models, and what was said of them."""
    root = tmp_path_factory.mktemp("models")
    found = {}
    for kind in KINDS:
        code, answer = make(kind, root / kind)
        assert code == 0, answer
        found[kind] = (root / kind, answer)
    return found


Made = dict[str, tuple[Path, dict[str, Any]]]


@pytest.mark.parametrize("kind", KINDS)
def test_it_says_what_it_wrote(kind: str, made: Made) -> None:
    folder, answer = made[kind]
    assert answer["written"] is True
    assert answer["files"] == hashes(folder)
    assert answer["bytes"] == sum(path.stat().st_size for path in folder.iterdir())
    assert answer["out"] == str(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bytes_again_elsewhere(kind: str, made: Made, tmp_path: Path) -> None:
    code, answer = make(kind, tmp_path / "deep" / "er" / kind)
    assert code == 0
    assert answer["files"] == made[kind][1]["files"]


def test_another_seed_is_another_model(made: Made, tmp_path: Path) -> None:
    _, answer = make("tiny-qwen3", tmp_path / "m", "--seed", "1")
    before = made["tiny-qwen3"][1]["files"]
    assert {name for name, digest in answer["files"].items() if before[name] != digest} == {
        "model.safetensors"
    }


def test_what_is_there_is_not_written_again(made: Made) -> None:
    folder, answer = made["tiny-qwen3"]
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    code, again = make("tiny-qwen3", folder)
    assert (code, again["written"], again["files"]) == (0, False, answer["files"])
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    assert make("tiny-qwen3", tmp_path / "m")[1]["written"] is True


@pytest.mark.parametrize("what", ["a file of the user's", "a cut model", "a file in its place", "a link"])
def test_nothing_is_ever_overwritten(what: str, made: Made, tmp_path: Path) -> None:
    out = tmp_path / "m"
    if what == "a cut model":
        shutil.copytree(made["tiny-qwen3"][0], out)
        (out / "model.safetensors").write_bytes(b"cut")
    elif what == "a file in its place":
        out.write_text("mine", encoding="utf-8")
    elif what == "a link":
        out.symlink_to(tmp_path / "elsewhere")
    else:
        out.mkdir()
        (out / "notes.txt").write_text("mine", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    code, answer = make("tiny-qwen3", out)
    assert code == 2
    assert str(out) in answer["error"]
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "words",
    [[], ["--kind", "tiny-llama", "--out", "/x"], ["--kind", "tiny-qwen3"], ["--kind", "tiny-qwen3", "--out", "/x", "--seed", "one"], ["--kin", "tiny-qwen3", "--out", "/x"], ["--kind", "tiny-qwen3", "--out", "/proc/nothing/here"]],
)  # fmt: skip
def test_bad_words_are_refused_as_json(words: list[str]) -> None:
    code, answer = script("make_model", *words)
    assert code == 2
    assert list(answer) == ["error"]
    assert answer["error"]


@pytest.mark.parametrize("after_s", [0.25, 0.45, 0.6, 0.75, 0.9])
def test_killed_in_the_middle_it_leaves_no_half_model(after_s: float, made: Made, tmp_path: Path) -> None:
    out = tmp_path / "m"
    argv = [
        sys.executable,
        "-I",
        "-S",
        str(INSIDE / "make_model.py"),
        "--kind",
        "tiny-qwen3",
        "--out",
        str(out),
    ]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as child:
        time.sleep(after_s)
        child.send_signal(signal.SIGKILL)
    assert not out.exists() or hashes(out) == made["tiny-qwen3"][1]["files"]
    assert make("tiny-qwen3", out)[0] == 0
    assert hashes(out) == made["tiny-qwen3"][1]["files"]


def test_killed_while_it_writes_it_leaves_no_half_model(made: Made, tmp_path: Path) -> None:
    """Killed by the file-size limit in the middle of the weights: the kernel does it at the very byte."""
    out = tmp_path / "m"
    argv = [
        sys.executable,
        "-I",
        "-S",
        str(INSIDE / "make_model.py"),
        "--kind",
        "tiny-qwen3",
        "--out",
        str(out),
    ]
    limited = ["bash", "-c", 'ulimit -f 100; trap - XFSZ; exec "$@"', "x", *argv]
    ended = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert ended.returncode != 0, ended
    assert not out.exists()
    assert make("tiny-qwen3", out)[0] == 0
    assert hashes(out) == made["tiny-qwen3"][1]["files"]


def test_four_at_once_make_one_model(made: Made, tmp_path: Path) -> None:
    argv = [
        sys.executable,
        "-I",
        "-S",
        str(INSIDE / "make_model.py"),
        "--kind",
        "tiny-qwen3",
        "--out",
        str(tmp_path / "m"),
    ]
    children = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    answers = [json.loads(child.communicate(timeout=120)[0]) for child in children]
    assert [child.returncode for child in children] == [0] * 4
    assert sum(answer["written"] for answer in answers) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    assert hashes(tmp_path / "m") == made["tiny-qwen3"][1]["files"]


# what the reader of checkpoints finds in it; tests/checkpoint says what it finds in broken ones


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_checkpoint(kind: str, made: Made) -> None:
    folder, answer = made[kind]
    found = headers.read(folder)
    assert found.faults == ()
    assert sum(math.prod(one.shape) for one in found.tensors.values()) == answer["parameters"]
    assert len(found.tensors) == TENSORS[kind]
    assert {one.dtype for one in found.tensors.values()} == (
        {"BF16", "F32"} if kind == "tiny-qwen3.5" else {"BF16"}
    )
