"""``refresh`` of a small stack on an index of our own: what moves, what no longer holds, what is old; nothing changes unasked."""

import dataclasses
import datetime
import json
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import wheels
from ranged import Index, index

from runbook import locks, pins, refresh
from runbook.errors import ActionFailed, BadParameter
from runbook.pins import Stack

TODAY = datetime.date(2026, 12, 1)
PIN = '[[pin]]\npackage = "{0}"\nversion = "{1}"\nwhy = "x."\nsource = "{2}"\nread = "{3}"\n'
MANIFEST = """schema = "stack/1"
name = "tiny"
what = "x."
why = "x."
device = "cpu"
vllm = "1.0"
torch = "2.0"
python = ["3.11", "3.12"]
model = "tiny-qwen3"
distribution = "vllm"
flash_attn = "none"

"""
OLD = "2026-08-01"
PINS = [
    ("python", ">=3.10,<3.14", "pkg:pypi/vllm@1.0", "2026-11-30"),
    ("glibc", ">=2.28", "pkg:pypi/vllm@1.0", "2026-11-30"),
    ("vllm", "1.0", "pkg:pypi/vllm@1.0", "2026-11-30"),
    ("torch", "2.0", "pkg:pypi/vllm@1.0", OLD),
    ("numpy", "<3", "pkg:pypi/torch@2.0", "2026-11-30"),
    ("nvidia-driver", ">=525", "https://example.invalid/driver", OLD),
]
IN = "# made with --exclude-newer 2026-11-30T00:00:00Z\nvllm==1.0\n"


def made(shelf: Path, name: str, version: str, needs: list[str]) -> None:
    wheels.made(shelf, name, version, {f"{name}.py": f"version = '{version}'\n"}, needs=needs)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    folder = tmp_path / "shelf"
    made(folder, "vllm", "1.0", ["torch==2.0", 'numpy; extra == "fast"'])
    made(folder, "torch", "2.0", ["numpy<3"])
    made(folder, "numpy", "2.1", [])
    _bounded(folder)
    with index(folder) as server:
        settings = tmp_path / "uv.toml"
        # A loopback index names no day of upload; all its files are taken to be of long ago.
        settings.write_text(
            f'[[index]]\nurl = "{server.address}/simple"\ndefault = true\nexclude-newer = false\n',
            encoding="utf-8",
        )
        monkeypatch.setenv("UV_CONFIG_FILE", str(settings))
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
        yield server


def _bounded(folder: Path) -> None:
    """The wheel of vllm with the bounds of Python that its pin says."""
    path = folder / "vllm-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path) as old:
        held = {name: old.read(name) for name in old.namelist()}
    held["vllm-1.0.dist-info/METADATA"] += b"Requires-Python: <3.14,>=3.10\n"
    with zipfile.ZipFile(path, "w") as new:
        for name, data in held.items():
            new.writestr(name, data)


@pytest.fixture
def stack(shelf: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:  # noqa: ARG001
    """The stack, locked with what the index has at first."""
    monkeypatch.setattr(pins, "STACKS", tmp_path / "checkout" / "runbook" / "stacks")
    folder = pins.STACKS / "tiny"
    folder.mkdir(parents=True)
    (folder / "manifest.toml").write_text(
        MANIFEST + "\n".join(PIN.format(*one) for one in PINS), encoding="utf-8"
    )
    (folder / "requirements.in").write_text(IN, encoding="utf-8")
    (folder / "flags.json").write_text("{}\n", encoding="utf-8")
    pins.stack.cache_clear()
    for minor in ("3.11", "3.12"):
        refresh._lock(pins.stack("tiny"), folder, minor, "2026-11-30T00:00:00Z")
    assert locks.faults(folder) == []
    yield pins.stack("tiny")
    pins.stack.cache_clear()


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def test_what_moved_and_what_is_newer_goes_to_a_folder_of_its_own(
    stack: Stack, shelf: Index, tmp_path: Path
) -> None:
    made(shelf.folder, "numpy", "2.2", [])
    made(shelf.folder, "vllm", "1.1", ["torch==2.1"])
    shutil.rmtree(tmp_path / "cache")  # uv keeps a page of the index for ten minutes
    before = contents(pins.STACKS / "tiny")
    out = tmp_path / "out"
    found = refresh.propose(stack, out, today=TODAY)
    assert contents(pins.STACKS / "tiny") == before
    assert [(one.change.text(), one.pythons) for one in found.moves] == [
        ("numpy 2.1 -> 2.2", ("3.11", "3.12"))
    ]
    assert found.newer == (
        refresh.Newer("vllm", "1.0", "1.1", ("python ", "torch ==2.1")),
        refresh.Newer("numpy", "2.1", "2.2", ()),
    )
    assert (found.wrong, found.faults, found.failed, found.written) == ((), (), False, False)
    assert found.old == (f"torch 2.0, read {OLD}", f"nvidia-driver >=525, read {OLD}")
    assert pins.locked(out / "py312.txt") == {"vllm": "1.0", "torch": "2.0", "numpy": "2.2"}
    assert "--exclude-newer 2026-12-01T00:00:00Z" in (out / "requirements.in").read_text(encoding="utf-8")
    rows = json.loads((out / "sizes.json").read_text(encoding="utf-8"))["rows"]
    assert [(row["package"], len(row["wheels"])) for row in rows] == [("numpy", 1), ("torch", 1), ("vllm", 1)]
    assert not any(shelf.address in text for text in contents(out).values())
    text = refresh.as_text(found)
    assert all(len(line) <= 80 for line in text.splitlines() if str(tmp_path) not in line)
    assert "numpy 2.1 -> 2.2" in text
    assert refresh.as_json(found)["moves"][0]["want"] == "2.2"


def test_a_pin_that_was_read_again_gets_today_as_its_date(stack: Stack, tmp_path: Path) -> None:
    out = tmp_path / "out"
    refresh.propose(stack, out, today=TODAY)
    read = {pin.package: pin.read for pin in pins.read(out).pins}
    assert read == {
        "python": "2026-12-01",
        "glibc": "2026-11-30",
        "vllm": "2026-12-01",
        "torch": "2026-12-01",
        "numpy": "2026-12-01",
        "nvidia-driver": OLD,
    }


def test_a_pin_whose_source_says_otherwise_is_wrong(stack: Stack, tmp_path: Path) -> None:
    said = {"torch": "2.1", "numpy": "<2", "python": ">=3.9,<3.14"}
    altered = tuple(
        dataclasses.replace(pin, version=said.get(pin.package, pin.version)) for pin in stack.pins
    )
    found = refresh.propose(
        dataclasses.replace(stack, pins=altered), tmp_path / "out", write=False, today=TODAY
    )
    assert found.failed
    assert set(found.wrong) == {
        "torch: the pin says 2.1, vllm 1.0 asks for ==2.0",
        "numpy: the pin says <2, torch 2.0 asks for <3",
        "python: the pin says >=3.9,<3.14, vllm 1.0 asks for <3.14,>=3.10",
    }


def test_written_over_the_stack_only_when_asked_in_a_checkout(
    stack: Stack, shelf: Index, tmp_path: Path
) -> None:
    made(shelf.folder, "numpy", "2.2", [])
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(BadParameter, match="no part of a checkout"):
        refresh.propose(stack, tmp_path / "first", write=True, today=TODAY)
    assert not (tmp_path / "first").exists()
    (tmp_path / "checkout" / ".git").mkdir()
    found = refresh.propose(stack, tmp_path / "out", write=True, today=TODAY)
    assert found.written
    assert contents(pins.STACKS / "tiny") == contents(tmp_path / "out")
    assert pins.sizes("tiny", "3.11")["numpy"].version == "2.2"


def test_what_fails_a_check_is_not_written(stack: Stack, shelf: Index, tmp_path: Path) -> None:
    made(shelf.folder, "numpy", "2.9", [])
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "checkout" / ".git").mkdir()
    manifest = pins.STACKS / "tiny" / "manifest.toml"
    manifest.write_text(manifest.read_text(encoding="utf-8").replace('"<3"', '"<2.5"'), encoding="utf-8")
    before = contents(pins.STACKS / "tiny")
    found = refresh.propose(stack, tmp_path / "out", write=True, today=TODAY)
    assert found.faults == tuple(
        f"py{each}.txt: the manifest pins numpy <2.5, and the lock has 2.9" for each in ("311", "312")
    )
    assert (found.failed, found.written) == (True, False)
    assert contents(pins.STACKS / "tiny") == before
    assert "pins numpy <2.5" in refresh.as_text(found)


def test_requirements_that_no_longer_resolve(stack: Stack, shelf: Index, tmp_path: Path) -> None:
    (shelf.folder / "numpy-2.1-py3-none-any.whl").unlink()
    made(shelf.folder, "numpy", "3.0", [])
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(ActionFailed, match=r"tiny was not resolved for Python 3\.11.*numpy"):
        refresh.propose(stack, tmp_path / "out", today=TODAY)


def test_a_folder_that_is_taken_and_a_drill(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("", encoding="utf-8")
    with pytest.raises(BadParameter, match="is there already"):
        refresh.propose(stack, tmp_path / "out", today=TODAY)
    with pytest.raises(BadParameter, match="cannot be resolved"):
        refresh.propose(dataclasses.replace(stack, drill=True), tmp_path / "drill", today=TODAY)
