"""The tiny checkpoint: the same bytes each time, whole or not there, and found whole by checkpoint_facts; six ways to break it."""

import hashlib
import json
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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


# checkpoint_facts


def facts(folder: Path) -> dict[str, Any]:
    code, answer = script("checkpoint_facts", "--path", str(folder))
    assert code == 0
    return answer


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_checkpoint(kind: str, made: Made) -> None:
    folder, answer = made[kind]
    found = facts(folder)
    assert found["errors"] == []
    assert found["parameters"] == answer["parameters"]
    assert found["tensors"] == TENSORS[kind]
    assert found["files"] == sorted(answer["files"])
    assert (found["missing"], found["missing_count"]) == ([], 0)
    assert found["dtypes"] == (["BF16", "F32"] if kind == "tiny-qwen3.5" else ["BF16"])


def cut(weights: Path) -> None:
    weights.write_bytes(weights.read_bytes()[:-1])


def longer(weights: Path) -> None:
    weights.write_bytes(weights.read_bytes() + b"\0")


def pointer(weights: Path) -> None:
    weights.write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 2147483648\n", encoding="utf-8"
    )


def lie(weights: Path) -> None:
    weights.write_bytes(struct.pack("<Q", 1 << 40) + weights.read_bytes()[8:])


def empty(weights: Path) -> None:
    weights.write_bytes(b"")


def no_json(weights: Path) -> None:
    raw = bytearray(weights.read_bytes())
    raw[8] = ord("x")
    weights.write_bytes(raw)


def rewritten(weights: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """The same file with another header of the same length."""
    raw = weights.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode().ljust(length)
    assert len(text) == length
    weights.write_bytes(raw[:8] + text + raw[8 + length :])


def shape(weights: Path) -> None:
    def halve(header: dict[str, Any]) -> None:
        header["lm_head.weight"]["shape"] = [256, 128]

    rewritten(weights, halve)


def no_offsets(weights: Path) -> None:
    def drop(header: dict[str, Any]) -> None:
        del header["lm_head.weight"]["data_offsets"]

    rewritten(weights, drop)


def other_json(weights: Path) -> None:
    raw = b"[1, 2]  "
    weights.write_bytes(struct.pack("<Q", len(raw)) + raw)


CORRUPTIONS: dict[str, tuple[Callable[[Path], None], str]] = {
    "cut by one byte": (cut, "its header promises"),
    "longer by one byte": (longer, "its header promises"),
    "a git-lfs pointer": (pointer, "is a git-lfs pointer"),
    "a header length that lies": (lie, "header of 1099511627776 bytes in a file of"),
    "empty": (empty, "shorter than a header"),
    "a header that is no JSON": (no_json, "the header is no JSON"),
    "another shape": (shape, "lm_head.weight has 131072 bytes, its shape and type ask 65536"),
    "a tensor without a place": (no_offsets, ""),
    "a header that is a list": (other_json, ""),
}


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_broken_checkpoint(name: str, made: Made, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    shutil.copytree(made["tiny-qwen3"][0], folder)
    spoil, words = CORRUPTIONS[name]
    spoil(folder / "model.safetensors")
    found = facts(folder)
    said = found.get("errors") or [found.get("error", "")]
    assert said != [""]
    assert words in said[0]
    assert not words or "model.safetensors" in said[0]


def test_a_tensor_the_index_names_and_no_file_has(made: Made, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    shutil.copytree(made["tiny-qwen3"][0], folder)
    names = ["lm_head.weight", "model.norm.weight", *(f"model.layers.9.{each}" for each in "abcdef")]
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, "model-00002-of-00002.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    found = facts(folder)
    assert found["missing_count"] == 6
    assert found["missing"] == [f"model.layers.9.{each}" for each in "abcde"]


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_broken_index(text: str, made: Made, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    shutil.copytree(made["tiny-qwen3"][0], folder)
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    found = facts(folder)
    assert found.get("error") or found["errors"]
