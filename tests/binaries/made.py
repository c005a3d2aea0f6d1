"""Libraries and GPU programs put together byte by byte, as nvcc lays them out: what a test wants and nothing else."""

import struct
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MAGIC = 0xBA55ED50
PTX, ELF, LTO = 1, 2, 8
SUFFIXES = {"": 0, "a": 1 << 20, "f": 1 << 21}


@dataclass(frozen=True)
class Entry:
    """One program in a container; ``version`` is that of the PTX language."""

    kind: int
    target: int
    suffix: str = ""
    version: tuple[int, int] = (0, 0)
    payload: bytes = b"\x7fELF" + bytes(28)
    header: int = 64


def sass(target: int, suffix: str = "") -> Entry:
    return Entry(ELF, target, suffix)


def ptx(target: int, suffix: str = "", version: tuple[int, int] = (8, 7)) -> Entry:
    return Entry(PTX, target, suffix, version, bytes(24), 80)


def container(*entries: Entry) -> bytes:
    body = b"".join(
        struct.pack(
            "<HHIQQHHIQQQQ", one.kind, 0x0101, one.header, len(one.payload), 0,
            one.version[1], one.version[0], one.target, 0, 0x11 | SUFFIXES[one.suffix], 0, 0,
        )[: one.header].ljust(one.header, b"\0")
        + one.payload
        for one in entries
    )  # fmt: skip
    return struct.pack("<IHHQ", MAGIC, 1, 16, len(body)) + body


def elf(sections: Mapping[str, bytes], machine: int = 62, flags: int = 0, abi: int = 0) -> bytes:
    """A 64-bit ELF file of these sections and a table of their names."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in (*sections, ".shstrtab"))
    placed, body = [], b""
    for name, data in {**sections, ".shstrtab": names}.items():
        placed.append((names.index(name.encode() + b"\0"), 64 + len(body), len(data), 1))
        body += data + bytes(-len(data) % 8)
    table = bytes(64) + b"".join(
        struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, at, size, 0, 0, 8, 0) for name, at, size, kind in placed
    )
    head = b"\x7fELF\x02\x01\x01" + bytes([abi]) + bytes(8)
    head += struct.pack(
        "<HHIQQQIHHHHHH",
        3,
        machine,
        1,
        0,
        0,
        64 + len(body),
        flags,
        64,
        56,
        0,
        64,
        len(placed) + 1,
        len(placed),
    )
    return head + body + table


def library(*containers: bytes, **sections: bytes) -> bytes:
    """A library with these containers in ``.nv_fatbin``."""
    return elf({".text": b"\xc3" * 40, ".nv_fatbin": b"".join(containers), **sections})


def site(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def wheel(path: Path, files: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in files.items():
            packed.writestr(name, data)
    return path


# What the tests of `runbook arch` install: a torch and a vLLM for Hopper, with attention kernels for Ampere and PTX.
TORCH = library(container(sass(80), sass(90)), container(sass(80), sass(90), sass(90, "a")))
VLLM = library(container(sass(80), sass(90)), container(sass(80), ptx(80, version=(8, 8))))
ATTENTION = library(container(sass(80), ptx(80, version=(8, 8))))
FILES: Mapping[str, bytes] = {
    "torch/lib/libtorch_cuda.so": TORCH,
    "torch/lib/libtorch_cpu.so": elf({".text": b"\xc3"}),
    "vllm/_C.abi3.so": VLLM,
    "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so": ATTENTION,
}
CORE_FILES: Sequence[str] = ("torch/lib/libtorch_cuda.so", "vllm/_C.abi3.so")
