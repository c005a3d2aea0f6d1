"""The headers of safetensors files: what each tensor is and where it lies. No weight is read.

A file begins with the length of its header (8 bytes, little endian); the header is a JSON object from a tensor's name
to its type, shape and range of bytes; the ranges fill the rest of the file without hole or overlap
(https://github.com/huggingface/safetensors#format, read 2026-11-30). The files may come from anybody: nothing in a
header makes this module read more than ``BUDGET`` bytes, follow a link out of the folder, wait, or raise.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runbook.checkpoint import files
from runbook.checkpoint.faults import Fault, few, line
from runbook.checkpoint.files import Opened, Unusable

LENGTH_BYTES = 8
LONGEST_HEADER = 100_000_000  # bytes, the format's own limit
BUDGET = 48_000_000  # bytes of headers in one folder; the 94 shards of the 397B have well under one million
METADATA = "__metadata__"
BITS = {
    name: bits
    for bits, names in {
        4: "F4",
        6: "F6_E2M3 F6_E3M2",
        8: "BOOL U8 I8 F8_E4M3 F8_E5M2 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ",
        16: "I16 U16 F16 BF16",
        32: "I32 U32 F32",
        64: "I64 U64 F64 C64",
    }.items()
    for name in names.split()
}
LARGEST = 1 << 48  # bytes or elements; more than any disk, and small enough to multiply without care
MOST_DIMENSIONS = 16


@dataclass(frozen=True)
class Tensor:
    """``dtype`` as the format writes it (``BF16``, ``F8_E4M3``), ``file`` the shard's name, ``begin`` the offset in it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    file: str
    begin: int = 0


@dataclass(frozen=True)
class Weights:
    """The tensors of a folder. ``files``: each weight file and its length in bytes. ``read_bytes``: what was read for this.

    A name that occurs twice is the tensor of the file that comes first; those of later files are in ``repeated``.
    """

    tensors: dict[str, Tensor]
    files: dict[str, int]
    faults: tuple[Fault, ...]
    read_bytes: int
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)
    repeated: tuple[Tensor, ...] = ()


def read(folder: Path) -> Weights:
    """Every tensor of the ``*.safetensors`` files of a folder, and each fault that headers and lengths show."""
    try:
        found = [name for name in files.names(folder) if name.endswith(".safetensors")]
    except OSError as why:
        return Weights({}, {}, (Fault("weights/unreadable", ".", f"cannot be listed: {why.strerror}"),), 0)
    tensors: dict[str, Tensor] = {}
    sizes: dict[str, int] = {}
    faults: list[Fault] = []
    metadata: dict[str, dict[str, str]] = {}
    repeated: list[Tensor] = []
    spent = 0
    for name in found:
        try:
            with files.opened(folder, name, "weights") as shard:
                sizes[name] = shard.size
                try:
                    header, begin = _header(shard, name, BUDGET - spent)
                finally:
                    spent += shard.spent
        except Unusable as why:
            faults.append(why.fault)
            continue
        noted = header.pop(METADATA, None)
        if isinstance(noted, dict):
            metadata[name] = {key: value for key, value in noted.items() if isinstance(value, str)}
        rows, odd = _tensors(header, name, begin, sizes[name])
        faults += odd
        repeated += [row for row in rows if row.name in tensors]
        tensors |= {row.name: row for row in rows if row.name not in tensors}
    return Weights(tensors, sizes, tuple(faults), spent, metadata, tuple(repeated))


def _header(shard: Opened, name: str, budget: int) -> tuple[dict[str, Any], int]:
    """(the header, where the weights begin).

    Raises:
        Unusable: the file has no header that can be read.
    """
    try:
        head = shard.read(files.HEAD)
        length = int.from_bytes(head[:LENGTH_BYTES], "little")
        if fault := files.spoilt(head, name, "weights") or _unfit(length, head, shard.size, budget, name):
            raise Unusable(fault)
        raw = head[LENGTH_BYTES : LENGTH_BYTES + length]
        raw += shard.read(length - len(raw))
    except OSError as why:
        raise Unusable(Fault("weights/unreadable", name, f"cannot be read: {why.strerror}")) from why
    try:
        header = files.loads(raw.decode("utf-8"), name, "weights")
    except Unusable as why:
        raise Unusable(Fault("weights/header", name, f"its header {why.fault.text}")) from why
    except UnicodeDecodeError as why:
        raise Unusable(Fault("weights/header", name, "its header is not UTF-8")) from why
    return header, LENGTH_BYTES + length


def _unfit(length: int, head: bytes, size: int, budget: int, name: str) -> Fault | None:
    """Why a header of this length is not read."""
    if len(head) < LENGTH_BYTES:
        return Fault("weights/cut", name, f"has {size} bytes: no whole length of a header")
    after = size - LENGTH_BYTES
    if length > LONGEST_HEADER:
        text = f"gives its header {length} bytes, the format allows {LONGEST_HEADER}; it may be no safetensors file"
        return Fault("weights/header-length", name, text)
    if head[LENGTH_BYTES : LENGTH_BYTES + 1] not in {b"{", b""}:
        return Fault(
            "weights/header", name, "its header does not begin with a brace; it may be no safetensors file"
        )
    if length > after:
        return Fault(
            "weights/cut", name, f"has {size} bytes, its header alone promises {LENGTH_BYTES + length}"
        )
    if LENGTH_BYTES + length > budget:
        text = f"its header of {length} bytes is not read: a folder's headers are read up to {BUDGET} bytes"
        return Fault("weights/header-budget", name, text)
    return None


def _tensors(header: dict[str, Any], name: str, start: int, size: int) -> tuple[list[Tensor], list[Fault]]:
    """The tensors of a file whose header ends at ``start``, and its faults."""
    rows: list[Tensor] = []
    spans: list[tuple[int, int, str]] = []
    odd: dict[str, list[str]] = {}
    for key, value in header.items():
        entry = _entry(value)
        if entry is None:
            odd.setdefault("weights/entry", []).append(key)
            continue
        dtype, shape, begin, end = entry
        if dtype not in BITS:
            odd.setdefault("weights/type", []).append(f"{key}: {line(dtype)}")
        elif math.prod(shape) * BITS[dtype] != 8 * (end - begin):
            asked = math.prod(shape) * BITS[dtype] // 8
            odd.setdefault("weights/range", []).append(
                f"{key}: {end - begin} bytes, {dtype} {list(shape)} asks {asked}"
            )
        rows.append(Tensor(key, dtype, shape, end - begin, name, start + begin))
        spans.append((begin, end, key))
    said = {
        "weights/entry": "header entries that are not a type, a shape and a range",
        "weights/type": "tensors of a type the format does not have",
        "weights/range": "tensors whose range does not fit their shape",
    }
    faults = [Fault(kind, name, f"{said[kind]}: {few(found)}") for kind, found in odd.items()]
    return rows, [*faults, *_layout(spans, name, size - start)]


def _entry(value: object) -> tuple[str, tuple[int, ...], int, int] | None:
    """Type, shape, begin and end; None when it is not that."""
    if not isinstance(value, dict):
        return None
    dtype, shape, span = (value.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or not isinstance(shape, list) or len(shape) > MOST_DIMENSIONS:
        return None
    if not isinstance(span, list) or len(span) != 2 or not all(map(_count, [*shape, *span])):  # noqa: PLR2004 - begin, end
        return None
    return (dtype, tuple(shape), span[0], span[1]) if span[0] <= span[1] else None


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST


def _layout(spans: list[tuple[int, int, str]], name: str, room: int) -> Iterator[Fault]:
    """Holes and overlaps of the ranges, and a file longer or shorter than they promise."""
    place = 0
    for begin, end, key in sorted(spans):
        if begin != place:
            how = (
                "overlaps the one before it" if begin < place else f"follows a hole of {begin - place} bytes"
            )
            kind = "weights/overlap" if begin < place else "weights/hole"
            yield Fault(kind, name, f"the range of {line(key)} {how}")
            break
        place = end
    promised = max((end for _, end, _ in spans), default=0)
    if promised > room:
        yield Fault(
            "weights/cut", name, f"ends {promised - room} bytes before its header says, of {promised}"
        )
    elif promised < room and spans:
        yield Fault("weights/long", name, f"goes on {room - promised} bytes after its last tensor")
    elif promised < room:
        yield Fault("weights/long", name, f"holds no tensor but {room} bytes after its header")
