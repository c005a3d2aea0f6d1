"""What the hub said: hashes and revisions, as huggingface_hub leaves them beside a download and in its own cache."""

import hashlib
import json
from pathlib import Path

import pytest

from runbook.checkpoint import examine

ONE, OTHER = "a" * 40, "b" * 40
WEIGHTS, SETTINGS = b"\x08\0\0\0\0\0\0\0{}      ", b'{"model_type": "x"}'


def tag(raw: bytes, *, large: bool) -> str:
    """The ETag of a file: sha256 of a large one, git's hash of any other."""
    if large:
        return hashlib.sha256(raw).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(raw) + raw, usedforsecurity=False).hexdigest()


def noted(folder: Path, name: str, revision: str, etag: str) -> None:
    kept = folder / ".cache" / "huggingface" / "download"
    kept.mkdir(parents=True, exist_ok=True)
    (kept / f"{name}.metadata").write_text(f"{revision}\n{etag}\n1764500000.0\n", encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A download of two files, with the hub's word of both."""
    for name, raw in (("model.safetensors", WEIGHTS), ("config.json", SETTINGS)):
        (tmp_path / name).write_bytes(raw)
        noted(tmp_path, name, ONE, tag(raw, large=raw is WEIGHTS))
    return tmp_path


def test_files_with_their_hashes(folder: Path) -> None:
    assert examine.facts(folder)["hub"] == {"revisions": {ONE: 2}, "files": 2}
    assert examine.hashed(folder) == {"hashes": {"checked": 2, "not_known": 0}, "faults": []}


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_bit_that_flipped(name: str, folder: Path) -> None:
    raw = bytearray((folder / name).read_bytes())
    raw[-1] ^= 1
    (folder / name).write_bytes(raw)
    found = examine.hashed(folder)
    assert [row[:2] for row in found["faults"]] == [["hashes/other", name]]
    assert found["hashes"]["checked"] == 2


def test_two_revisions_in_one_folder(folder: Path) -> None:
    noted(folder, "config.json", OTHER, tag(SETTINGS, large=False))
    found = examine.facts(folder)
    assert found["hub"]["revisions"] == {ONE: 1, OTHER: 1}
    assert "hashes/revisions" in [row[0] for row in found["faults"]]


def test_modelscope_has_a_commit_for_each_file(folder: Path) -> None:
    noted(folder, "config.json", OTHER, tag(SETTINGS, large=False))
    record = folder / ".cache" / "runbook" / "source.json"
    record.parent.mkdir()
    record.write_text(
        '{"source": "modelscope", "repo": "Qwen/x", "revision": "master", "skeleton": false}',
        encoding="utf-8",
    )
    found = examine.facts(folder)
    assert found["hub"]["repo"] == "Qwen/x"
    assert "hashes/revisions" not in [row[0] for row in found["faults"]]


@pytest.mark.parametrize("text", ["", f"{ONE}\n", f"{ONE}\n\n", "\0" * 50, "x" * 10_000])
def test_metadata_that_says_nothing(text: str, folder: Path) -> None:
    (folder / ".cache/huggingface/download/config.json.metadata").write_text(text, encoding="utf-8")
    assert examine.facts(folder)["hub"]["files"] == 1


def test_a_tag_of_another_form_is_not_compared(folder: Path) -> None:
    noted(folder, "config.json", ONE, "W/abc")
    assert examine.hashed(folder)["hashes"] == {"checked": 1, "not_known": 1}


def test_the_hubs_own_cache(tmp_path: Path) -> None:
    repository = tmp_path / "models--Qwen--Qwen3.5-4B"
    snapshot = repository / "snapshots" / ONE
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for name, raw in (("model.safetensors", WEIGHTS), ("config.json", SETTINGS)):
        etag = tag(raw, large=raw is WEIGHTS)
        (repository / "blobs" / etag).write_bytes(raw)
        (snapshot / name).symlink_to(f"../../blobs/{etag}")
    assert examine.facts(snapshot)["hub"] == {"revisions": {ONE: 2}, "files": 2}
    assert examine.hashed(snapshot) == {"hashes": {"checked": 2, "not_known": 0}, "faults": []}
    (snapshot / "config.json").resolve().write_bytes(b"{}")
    assert json.dumps(examine.hashed(snapshot)["faults"]).count("hashes/other") == 1
