"""Machine code is read as NVIDIA's own tool lists it, and a damaged file is said to be damaged."""

import gzip
import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import made
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made import Entry, container, elf, library, ptx, sass

from runbook.binaries import code

DATA = Path(__file__).parents[1] / "data" / "machine_code"


def unpacked(name: str, folder: Path) -> str:
    path = folder / name
    path.write_bytes(gzip.decompress((DATA / f"{name}.gz").read_bytes()))
    return str(path)


def read(data: bytes, folder: Path) -> dict[str, Any] | None:
    path = folder / "made.so"
    path.write_bytes(data)
    return code.read(str(path))


def test_what_nvcc_made_is_read_as_cuobjdump_lists_it(tmp_path: Path) -> None:
    found = code.read(unpacked("sample.so", tmp_path))
    listed = (DATA / "cuobjdump.txt").read_text()
    assert found is not None
    elf_targets, ptx_targets = (set(re.findall(rf"\.(sm_\w+)\.{kind}", listed)) for kind in ("cubin", "ptx"))
    # cuobjdump drops the f of machine code, not of PTX.
    assert {one.rstrip("f") for one in found["sass"]} == elf_targets
    assert {one.replace("compute_", "sm_") for one in found["ptx"]} == ptx_targets
    assert found == {
        "sass": ["sm_80", "sm_90a", "sm_100a", "sm_100f", "sm_103"],
        "ptx": ["compute_80", "compute_120f"],
        "isa": {"compute_80": "9.0", "compute_120f": "9.0"},  # nvcc 13.0 writes PTX 9.0
        "units": [[1, ["sm_80", "sm_100a", "sm_103"], ["compute_80"]], [1, ["sm_80", "sm_90a", "sm_100f"], ["compute_120f"]]],
    }  # fmt: skip


@pytest.mark.parametrize("target", ["80", "90a", "100a", "100f"])
def test_a_program_alone_says_its_target(target: str, tmp_path: Path) -> None:
    assert code.cubin(unpacked(f"one.sm_{target}.cubin", tmp_path)) == f"sm_{target}"


@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc here; the sample above was made by it")
def test_what_nvcc_makes_here_is_read(tmp_path: Path) -> None:
    argv = [
        "nvcc",
        "-c",
        "-Xcompiler",
        "-fPIC",
        "-gencode",
        "arch=compute_90a,code=[sm_90a,compute_90a]",
        "-o",
        "one.o",
        str(DATA / "one.cu"),
    ]
    subprocess.run(argv, cwd=tmp_path, check=True, timeout=120)
    found = code.read(str(tmp_path / "one.o"))
    assert found
    assert (found["sass"], found["ptx"]) == (["sm_90a"], ["compute_90a"])


# What the older of the two program formats says: e_flags as seen in wheels of CUDA 12.8 (benchmarks/arch.py).
@pytest.mark.parametrize(
    ("abi", "flags", "target"),
    [
        (51, 0x500550, "sm_80"),
        (51, 0x5A055A, "sm_90"),
        (51, 0x5A0D5A, "sm_90a"),
        (65, 0x6006402, "sm_100"),
        (65, 0x600640A, "sm_100a"),
        (65, 0x600780A, "sm_120a"),
        (65, 0x1000670C, "sm_103a"),
        (99, 0x500550, None),
    ],
)
def test_the_target_of_a_program_is_in_its_header(
    abi: int, flags: int, target: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "made.cubin"
    path.write_bytes(elf({".text": b"\0"}, machine=190, flags=flags, abi=abi))
    assert code.cubin(str(path)) == target


def test_of_many_programs_with_equal_headers_some_are_asked_for_more(tmp_path: Path) -> None:
    paths = []
    for index in range(40):
        target = "100a" if index >= 20 else "100f"  # nvcc 13.0 gives both the same header
        paths.append(unpacked(f"one.sm_{target}.cubin", tmp_path))
        paths[-1] = str(Path(paths[-1]).rename(tmp_path / f"{index}.cubin"))
    paths += [str(tmp_path / "gone.cubin"), unpacked("one.sm_90a.cubin", tmp_path)]
    found = code.cubins(paths)
    assert found[:20] == ["sm_100f"] * 20
    assert found[32:] == ["sm_100a"] * 8 + [None, "sm_90a"]


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"lorem ipsum" * 20, elf({".text": b"\0"})])
def test_what_is_no_program_has_no_target(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "made.cubin"
    path.write_bytes(data)
    assert code.cubin(str(path)) is None


def test_targets_versions_and_units(tmp_path: Path) -> None:
    found = read(
        library(
            container(sass(80), sass(90, "a"), ptx(80, version=(8, 7))),
            container(sass(80), sass(90, "a"), ptx(80, version=(7, 8))),
            bytes(24),
            container(sass(100, "f"), sass(100), ptx(120, "f", (9, 0))),
            container(Entry(made.LTO, 50)),
        ),
        tmp_path,
    )
    assert found == {
        "sass": ["sm_80", "sm_90a", "sm_100", "sm_100f"],
        "ptx": ["compute_80", "compute_120f"],
        "isa": {"compute_80": "8.7", "compute_120f": "9.0"},
        "units": [
            [2, ["sm_80", "sm_90a"], ["compute_80"]],
            [1, [], []],
            [1, ["sm_100", "sm_100f"], ["compute_120f"]],
        ],
    }


def test_code_that_was_linked_into_other_code_does_not_count(tmp_path: Path) -> None:
    """With relocatable code the linker leaves its parts in the file as well; they run on nothing."""
    parts = {"__nv_relfatbin": container(sass(120))}
    assert (read(elf({**parts, ".nv_fatbin": container(sass(90))}), tmp_path) or {})["sass"] == ["sm_90"]
    assert (read(elf(parts), tmp_path) or {})["sass"] == ["sm_120"]


def test_code_that_a_library_keeps_as_data_is_found(tmp_path: Path) -> None:
    """cuFFT keeps one program where the others lie, and the rest as data."""
    data = (
        b"x" * 5933
        + struct.pack("<I", made.MAGIC)
        + b"no container"
        + bytes(2_000_000)
        + container(sass(90), ptx(90))
        + b"y"
    )
    found = read(elf({".nv_fatbin": container(sass(52)), ".ldata": data}), tmp_path)
    assert found
    assert (found["sass"], found["ptx"]) == (["sm_52", "sm_90"], ["compute_90"])
    assert found["units"] == [[1, ["sm_52"], []]]


@pytest.mark.parametrize(
    "data", [b"!<arch>\n", b"/* GNU ld script */ INPUT(libc.so.6)", elf({".text": b"\xc3"}), library()]
)
def test_a_file_without_machine_code_has_no_row(data: bytes, tmp_path: Path) -> None:
    assert read(data, tmp_path) is None


WHOLE = library(container(sass(80), ptx(80)), container(sass(90)))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty file"),
        (bytes(4096), "neither an ELF file nor a text"),
        (WHOLE[:-100], "cut short"),
        (WHOLE[:60], "no 64-bit"),
        (b"\x7fELF\x01\x01" + WHOLE[6:], "no 64-bit"),
        (WHOLE[:40] + bytes(8) + WHOLE[48:], "stripped"),
        (library(container(sass(80)).replace(b"\x01\x00\x10\x00", b"\x02\x00\x10\x00", 1)), "not known (2)"),
        (library(container(sass(80), Entry(made.ELF, 7))), "damaged"),
        (library(container(sass(80))[:-8]), "damaged"),
    ],
    ids=["empty", "zeros", "cut", "header cut", "32 bits", "no sections", "version", "target", "end"],
)  # fmt: skip
def test_a_damaged_file_is_said_to_be_damaged(data: bytes, says: str, tmp_path: Path) -> None:
    with pytest.raises(code.Unreadable, match=re.escape(says)):
        read(data, tmp_path)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(data=st.data())
def test_no_file_whatsoever_breaks_the_reader(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at : at + 4] = data.draw(st.binary(min_size=0, max_size=8))
    path = tmp_path_factory.getbasetemp() / "odd.so"
    path.write_bytes(bytes(whole))
    row = code.row(str(path), "odd.so", len(whole))
    assert row is None or row.get("problem") or row["sass"] or row["ptx"]
    code.cubin(str(path))


entries = st.builds(
    Entry,
    st.sampled_from((made.PTX, made.ELF, made.LTO)),
    st.integers(10, 130),
    st.sampled_from(("", "a", "f")),
    st.tuples(st.integers(3, 9), st.integers(0, 9)),
    st.binary(max_size=64),
    st.sampled_from((64, 80, 96, 112)),
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(containers=st.lists(st.lists(entries, max_size=5), max_size=5), gap=st.integers(0, 3))
def test_whatever_was_put_in_is_read_back(
    containers: list[list[Entry]], gap: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    every = [one for each in containers for one in each]
    found = read(
        library(*(container(*each) + bytes(8 * gap) for each in containers)), tmp_path_factory.getbasetemp()
    )
    for kind, key, prefix in ((made.ELF, "sass", "sm_"), (made.PTX, "ptx", "compute_")):
        assert set((found or {}).get(key, ())) == {
            f"{prefix}{one.target}{one.suffix}" for one in every if one.kind == kind
        }
    assert sum(unit[0] for unit in (found or {}).get("units", ())) == (len(containers) if found else 0)
