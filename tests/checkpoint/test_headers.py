"""Headers of hostile files: whatever is in them ends as a fault, soon, and with few bytes read."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import tiny
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runbook.checkpoint import headers
from runbook.checkpoint.faults import LONGEST, Fault

NAME = "model.safetensors"
ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def only(folder: Path) -> Fault:
    (fault,) = headers.read(folder).faults
    return fault


def test_a_sound_file(tmp_path: Path) -> None:
    tiny.laid(
        tmp_path / NAME,
        [("b", "BF16", [2, 3], bytes(12)), ("a", "F32", [], bytes(4)), ("none", "U8", [0, 7], b"")],
    )
    found = headers.read(tmp_path)
    assert found.faults == ()
    assert {one.name: (one.dtype, one.shape, one.bytes, one.file) for one in found.tensors.values()} == {
        "b": ("BF16", (2, 3), 12, NAME),
        "a": ("F32", (), 4, NAME),
        "none": ("U8", (0, 7), 0, NAME),
    }
    assert found.files == {NAME: (tmp_path / NAME).stat().st_size}
    assert found.metadata == {NAME: {"format": "pt"}}
    raw = (tmp_path / NAME).read_bytes()
    assert found.tensors["a"].begin == len(raw) - 4


def test_the_second_file_of_a_name_is_told_apart(tmp_path: Path) -> None:
    for name in ("a.safetensors", "b.safetensors"):
        tiny.laid(tmp_path / name, [("x", "U8", [1], b"1")])
    found = headers.read(tmp_path)
    assert found.tensors["x"].file == "a.safetensors"
    assert [one.file for one in found.repeated] == ["b.safetensors"]


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        ({"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}, "weights/entry"),
        ({"dtype": "F32", "shape": [True], "data_offsets": [0, 8]}, "weights/entry"),
        ({"dtype": "F32", "shape": [2.0], "data_offsets": [0, 8]}, "weights/entry"),
        ({"dtype": "F32", "shape": [1 << 60], "data_offsets": [0, 8]}, "weights/entry"),
        ({"dtype": "F32", "shape": [1] * 17, "data_offsets": [0, 8]}, "weights/entry"),
        ({"dtype": ["F32"], "shape": [2], "data_offsets": [0, 8]}, "weights/entry"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 8, 16]}, "weights/entry"),
        ({"dtype": "F4", "shape": [3], "data_offsets": [0, 8]}, "weights/range"),
        ([], "weights/entry"),
        (None, "weights/entry"),
        ({**ENTRY, "data_offsets": [4, 12]}, "weights/hole"),
        ({**ENTRY, "shape": [1 << 40] * 2, "data_offsets": [0, 8]}, "weights/range"),
    ],
)
def test_an_entry_that_cannot_be(entry: Any, kind: str, tmp_path: Path) -> None:
    tiny.write(tmp_path / NAME, {"x": entry}, bytes(8))
    assert kind in [fault.kind for fault in headers.read(tmp_path).faults]


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b'{"a": NaN}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": 1, "a": 2}',
        b"{} trailing",
        b"\xff\xfe",
        b'{"\xff": 1}',
        b"null",
        b"",
    ],
    ids=["lists in lists", "objects in objects", "NaN", "a long number", "a key twice", "more behind", "no UTF-8", "no UTF-8 inside", "null", "nothing"],
)  # fmt: skip
def test_a_header_that_is_no_header(text: bytes, tmp_path: Path) -> None:
    tiny.write(tmp_path / NAME, text, bytes(8))
    assert only(tmp_path).kind in {"weights/header", "weights/zeros"}


def test_a_pipe_does_not_keep_us_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / NAME)
    assert only(tmp_path).text == "is no plain file"


def test_links(tmp_path: Path) -> None:
    """Out of the folder, to nowhere, in a ring; and the form that is right: into the hub's own cache, from there or elsewhere."""
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir()
    folder.mkdir()
    tiny.laid(outside / NAME, [("x", "U8", [1], b"1")])
    links = {
        "out": outside / NAME,
        "gone": folder / "nothing",
        "ring": folder / "ring.safetensors",
        "far": Path("../outside") / NAME,
    }
    for name, to in links.items():
        (folder / f"{name}.safetensors").symlink_to(to)
    found = {fault.file: fault.kind for fault in headers.read(folder).faults}
    assert found == {
        "out.safetensors": "weights/outside",
        "far.safetensors": "weights/outside",
        "gone.safetensors": "weights/missing",
        "ring.safetensors": "weights/unreadable",
    }
    blobs, snapshot = tmp_path / "models--a--b" / "blobs", tmp_path / "models--a--b" / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (outside / NAME).rename(blobs / "123")
    (snapshot / NAME).symlink_to("../../blobs/123")
    assert (headers.read(snapshot).faults, [*headers.read(snapshot).tensors]) == ((), ["x"])
    older = tmp_path / "older"
    older.mkdir()
    (older / NAME).symlink_to(blobs / "123")
    assert headers.read(older).faults == ()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_is_closed_to_us(tmp_path: Path) -> None:
    tiny.laid(tmp_path / NAME, [("x", "U8", [1], b"1")])
    (tmp_path / NAME).chmod(0)
    assert only(tmp_path).text == "cannot be opened: Permission denied"


def test_no_folder(tmp_path: Path) -> None:
    assert only(tmp_path / "none").kind == "weights/unreadable"


def test_headers_have_a_budget(tmp_path: Path) -> None:
    """Two files whose headers are of 40 MB each: the second is not read, and that is said."""
    body = {"x": ENTRY, "__metadata__": {"filling": "x" * 40_000_000}}
    for name in ("a.safetensors", "b.safetensors"):
        tiny.write(tmp_path / name, body, bytes(8))
    found = headers.read(tmp_path)
    assert [(fault.kind, fault.file) for fault in found.faults] == [
        ("weights/header-budget", "b.safetensors")
    ]
    assert found.read_bytes < headers.BUDGET


def test_names_that_would_spoil_a_terminal(tmp_path: Path) -> None:
    name = "\x1b[31m" + "\u202e" + "n" * 10_000
    tiny.write(tmp_path / NAME, {name: {"dtype": "X", "shape": [8], "data_offsets": [0, 8]}}, bytes(8))
    text = only(tmp_path).text
    assert "\x1b" not in text
    assert len(text) < LONGEST + 100


odd = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)
counts = st.integers(-2, 40) | odd
entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "BF16", "F4", "U8", "X", ""]) | odd,
        "shape": st.lists(counts, max_size=4) | odd,
        "data_offsets": st.lists(counts, max_size=3) | odd,
    }
)
sound_json = st.dictionaries(st.text(max_size=8) | st.just("__metadata__"), entries | odd, max_size=4)
lengths = (
    st.none() | st.integers(0, 1 << 64).map(lambda value: min(value, (1 << 64) - 1)) | st.integers(0, 200)
)


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(head=sound_json | st.binary(max_size=200), body=st.binary(max_size=64), length=lengths)
def test_no_file_makes_it_raise_or_read_much(
    head: Any, body: bytes, length: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "fuzz"
    folder.mkdir(exist_ok=True)
    tiny.write(folder / NAME, head, body, length)
    began = time.perf_counter()
    found = headers.read(folder)
    assert time.perf_counter() - began < 1
    assert found.read_bytes <= (folder / NAME).stat().st_size
    for one in found.tensors.values():
        assert one.bytes >= 0
        assert all(extent >= 0 for extent in one.shape)
    if not found.faults:  # then it is sound: every byte behind the header is some tensor's, and once
        assert sum(one.bytes for one in found.tensors.values()) == len(body) if length is None else True
    json.dumps([fault.text for fault in found.faults])
