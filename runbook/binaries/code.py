"""Which GPUs a file holds machine code for, read from the file: SASS (``sm_90a``) and PTX (``compute_90``) targets.

nvcc leaves the code of a library in the ELF section ``.nv_fatbin``: containers one after another, one for each source
file that was compiled, and in each an entry for every target. Headers are read and code is stepped over, so a library
of a gigabyte takes a fraction of a second and no memory. NVIDIA does not publish the format. What is used here was seen
in nvcc's own output for known targets and agrees with cuobjdump on every file of a full installation
(benchmarks/arch.py, tests/binaries/).

Little-endian, offsets in bytes::

    container  0 u32 magic  4 u16 version (1)  6 u16 header size (16)  8 u64 size of the entries that follow
    entry      0 u16 kind (1 PTX, 2 ELF, 8 NVVM code for link-time optimisation)  4 u32 header size  8 u64 payload size
               24 u16 minor, 26 u16 major: of PTX the version of the language  28 u32 target, such as 90
               40 u64 flags: bit 20 the target ends in a, bit 21 in f
"""

import os
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from runbook.binaries import tree

MAGIC = b"\x50\xed\x55\xba"
CONTAINER, ENTRY = struct.Struct("<4sHHQ"), struct.Struct("<HHIQQHHIQQ")
ENTRY_HEADER, VERSION = 64, 1
PTX, ELF = 1, 2
ARCH_SPECIFIC, FAMILY = 1 << 20, 1 << 21
ELF_MAGIC, ELF64_LITTLE = b"\x7fELF", b"\x02\x01"
SECTION = struct.Struct("<IIQQQQIIQQ")
SHT_NOBITS, SHT_NOTE, SHT_NV_COMPAT = 8, 7, 0x70000086
EXECUTABLE, RELOCATABLE = ".nv_fatbin", "__nv_relfatbin"
# Data in which NVIDIA's libraries keep further containers that they load themselves (cuFFT all of its code). cuobjdump
# does not look there.
DATA = (".cask_resource", ".ldata")
NEAR, FAR = 512, 1 << 20  # bytes in which the next container is looked for, at first and then
CLOSE, WINDOW = 1 << 14, 1 << 16  # parts that lie so close are read many at a time
EM_CUDA, OLD_ABI, NEW_ABI = 190, 51, 65
KINDS = 4096  # of lists of targets in one library; a real one has some dozens
NOTES = 16  # of so many programs in a folder one has its note read
SPECIFIC = b"\x02\x09\x01"  # a record of .nv.compat, four bytes each


LONGEST = 1 << 26  # of a table; what says that it is longer is damaged


Entries = dict[tuple[int, str], tuple[int, int]]  # (kind, target without prefix) -> the newest version


class Unreadable(Exception):
    """The file is not what its name says, or is cut short; the text says how."""


def read(path: str) -> dict[str, Any] | None:
    """The machine code of one library: ``sass``, ``ptx``, ``isa`` and ``units``; None when it holds none.

    ``isa`` is the newest PTX language version of each PTX target. ``units`` counts containers of ``.nv_fatbin`` by what
    they hold: ``[[14, ["sm_80"], ["compute_80"]], ...]``, most frequent first. A kernel is in one container, so a target
    of the file may be there for some of its kernels only.

    Raises:
        Unreadable: an ELF file whose sections cannot be read, or a container that ends early.
        OSError: the file cannot be opened or read.
    """
    fd = tree.open_file(path)
    try:
        return _read(fd)
    finally:
        os.close(fd)


def _read(fd: int) -> dict[str, Any] | None:
    found = _sections(fd)
    name = EXECUTABLE if EXECUTABLE in found else RELOCATABLE
    if name not in found:
        return None
    length = os.fstat(fd).st_size
    if any(start + size > length for start, size in found.values()):
        raise Unreadable("cut short: its machine code ends beyond its end")
    units: Counter[tuple[tuple[str, ...], tuple[str, ...]]] = Counter()
    sass: set[str] = set()
    isa: dict[str, tuple[int, int]] = {}
    file = _Ahead(fd)
    for section in (name, *DATA):
        for entries in _containers(file, *found.get(section, (0, 0)), strict=section == name):
            code = {f"sm_{target}" for kind, target in entries if kind == ELF}
            ptx = {f"compute_{target}" for kind, target in entries if kind == PTX}
            sass |= code
            for (kind, target), version in entries.items():
                if kind == PTX:
                    isa[f"compute_{target}"] = max(version, isa.get(f"compute_{target}", version))
            if section == name:
                units[tuple(ordered(code)), tuple(ordered(ptx))] += 1
                if len(units) > KINDS:
                    raise Unreadable(f"more than {KINDS} different lists of targets in it: it is damaged")
    if not sass and not isa:
        return None
    ranked = sorted(units.items(), key=lambda unit: (-unit[1], unit[0]))
    return {
        "sass": ordered(sass),
        "ptx": ordered(isa),
        "isa": {target: "{}.{}".format(*isa[target]) for target in ordered(isa)},
        "units": [[count, list(code), list(ptx)] for (code, ptx), count in ranked],
    }


def ordered(targets: Any) -> list[str]:  # noqa: ANN401 - any iterable of strings
    """Targets by number and then by suffix: sm_80, sm_90, sm_90a, sm_100."""
    return sorted(targets, key=lambda target: (int(re.sub(r"\D", "", target)), target))


def _sections(fd: int) -> dict[str, tuple[int, int]]:
    """Name -> (offset, size) of those sections of an ELF file that may hold code for GPUs; none when it is a text or an archive."""
    head = os.pread(fd, 64, 0)
    if not head:
        raise Unreadable("empty file")
    if head[:4] != ELF_MAGIC:
        if tree.is_spoilt(head):
            raise Unreadable("neither an ELF file nor a text")
        return {}
    if len(head) < 64 or head[4:6] != ELF64_LITTLE:  # noqa: PLR2004 - the size of an ELF header
        raise Unreadable("no 64-bit little-endian ELF file")
    (start,) = struct.unpack_from("<Q", head, 40)
    size, count, names = struct.unpack_from("<HHH", head, 58)
    if not start or not count:
        raise Unreadable("its section headers were stripped")
    table = _at(fd, start, size * count)
    if size != SECTION.size or len(table) < size * count or names >= count:
        raise Unreadable("cut short: its section headers lie beyond its end")
    rows = list(SECTION.iter_unpack(table))
    text = _at(fd, rows[names][4], rows[names][5])
    return {
        name: (row[4], row[5])
        for row in rows
        if row[1] != SHT_NOBITS
        for name in (EXECUTABLE, RELOCATABLE, *DATA)
        if text.startswith(name.encode() + b"\0", row[0])
    }


def _at(fd: int, start: int, size: int) -> bytes:
    """A part of the file; shorter, or empty, where the numbers lead beyond it."""
    return os.pread(fd, size, start) if size <= LONGEST and start < 1 << 62 else b""


class _Ahead:
    """Reads a file from front to back in small pieces; where these lie close together, many with one call."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.asked = self.start = 0
        self.data = b""

    def at(self, start: int, size: int) -> bytes:
        """``size`` bytes from ``start`` on; fewer at the end of the file."""
        begin = start - self.start
        if begin < 0 or begin + size > len(self.data):
            ahead = WINDOW if 0 < start - self.asked < CLOSE else 0
            self.start, self.data, begin = start, os.pread(self.fd, max(size, ahead), start), 0
        self.asked = start
        return self.data[begin : begin + size]


def _containers(file: _Ahead, start: int, size: int, *, strict: bool) -> Iterator[Entries]:
    """The entries of each container in a part of the file.

    ``strict``: what is there must be whole. Elsewhere the magic number may be part of something else.
    """
    at, end = start, start + size
    while (at := _find(file, at, end)) >= 0:
        head = file.at(at, CONTAINER.size).ljust(CONTAINER.size, b"\0")
        magic, version, header, length = CONTAINER.unpack(head)
        whole = version == VERSION and header == CONTAINER.size and at + header + length <= end
        entries = _entries(file, at + header, at + header + length) if whole else None
        if entries is None and strict:
            raise Unreadable(
                f"a container of machine code at byte {at} is damaged, or of a version that is not known ({version})"
            )
        if entries is None:
            at += len(magic)
            continue
        yield entries
        at += header + length


def _find(file: _Ahead, at: int, end: int) -> int:
    """Where the next container begins; -1 when there is none. They are nearly always next to each other."""
    window = NEAR
    while at < end:
        found = file.at(at, min(window, end - at)).find(MAGIC)
        if found >= 0:
            return at + found
        if end - at <= window:
            break
        at += window - len(MAGIC) + 1
        window = FAR
    return -1


def _entries(file: _Ahead, at: int, end: int) -> Entries | None:
    found: Entries = {}
    while at < end:
        head = file.at(at, ENTRY_HEADER)
        if len(head) < ENTRY_HEADER:
            return None
        kind, _, header, payload, _, minor, major, target, _, flags = ENTRY.unpack_from(head)
        if header < ENTRY_HEADER or at + header + payload > end or not 10 <= target <= 999:  # noqa: PLR2004 - two or three digits
            return None
        if kind in {PTX, ELF}:
            key = (kind, f"{target}{_suffix(flags)}")
            found[key] = max((major, minor), found.get(key, (0, 0)))
        at += header + payload
    return found


def _suffix(flags: int) -> str:
    return "a" if flags & ARCH_SPECIFIC else "f" if flags & FAMILY else ""


def cubin(path: str) -> str | None:
    """The target of a file that is one program for one GPU, such as ``sm_100f``; None when it is no such file.

    The number is in the ELF header. That the target ends in a is said by a bit there (up to CUDA 12.9) or by a record
    of the section ``.nv.compat`` (13.0); that it ends in f only by the command line that ptxas left in a note.

    Raises:
        OSError: the file cannot be opened or read.
    """
    return next(_cubins([path]))


def cubins(paths: Iterable[str]) -> list[str | None]:
    """The targets of many programs that lie together; None for one that is none, or cannot be read.

    The header of each is read, which has the number and mostly the a. Of programs with equal headers one in 16 has its
    note read, and those up to the next are taken to be compiled alike: the page of the note costs as much as all else.
    """
    return list(_cubins(paths, NOTES))


def _cubins(paths: Iterable[str], every: int = 1) -> Iterator[str | None]:
    suffixes: dict[int, str] = {}
    for place, path in enumerate(paths):
        try:
            fd = tree.open_file(path)
        except OSError:
            if every == 1:
                raise
            yield None
            continue
        try:
            head = os.pread(fd, 64, 0)
            flags = _flags(head)
            if flags is None:
                yield None
            elif head[7] == OLD_ABI:
                yield f"sm_{flags & 0xFF}{'a' if flags & 0x800 else ''}"
            elif flags & 0x8:
                yield f"sm_{flags >> 8 & 0xFF}a"
            else:
                number = flags >> 8 & 0xFF
                if flags not in suffixes or place % every == 0:
                    suffixes[flags] = _suffix_by_sections(fd, head, number)
                yield f"sm_{number}{suffixes[flags]}"
        finally:
            os.close(fd)


def _flags(head: bytes) -> int | None:
    """The field of the ELF header that holds the target; None when it is not that of a GPU program."""
    if len(head) < 64 or head[:4] != ELF_MAGIC or head[7] not in {OLD_ABI, NEW_ABI}:  # noqa: PLR2004 - the size of an ELF header
        return None
    machine, flags = struct.unpack_from("<18xH28xI", head)
    return int(flags) if machine == EM_CUDA else None


def _suffix_by_sections(fd: int, head: bytes, number: int) -> str:
    (start,) = struct.unpack_from("<Q", head, 40)
    size, count = struct.unpack_from("<HH", head, 58)
    table = _at(fd, start, size * count)
    if size != SECTION.size or len(table) % size:
        return ""
    for row in SECTION.iter_unpack(table):
        data = _at(fd, row[4], min(row[5], 4096)) if row[1] in {SHT_NOTE, SHT_NV_COMPAT} else b""
        if row[1] == SHT_NOTE and (said := _compiled_for(data, number)):
            return said
        if row[1] == SHT_NV_COMPAT and any(data.startswith(SPECIFIC, at) for at in range(0, len(data), 4)):
            return "a"
    return ""


def _compiled_for(data: bytes, number: int) -> str:
    """The suffix in a command line of ptxas such as ``-arch sm_100f``, when the number is this one."""
    at = data.find(b"-arch")  # some times as quick as a pattern
    said = re.match(rb"-arch[ =]sm_(\d{2,3})([af]?)", data[at : at + 20]) if at >= 0 else None
    return said[2].decode() if said and int(said[1]) == number else ""


def row(path: str, name: str, size: int) -> dict[str, Any] | None:
    """A library as a row of the answer; None when it holds no machine code."""
    head = {"file": name, "bytes": size}
    try:
        found = read(path)
    except (OSError, Unreadable) as why:
        return {
            **head,
            "sass": [],
            "ptx": [],
            "problem": why.strerror if isinstance(why, OSError) else str(why),
        }
    return {**head, **found} if found else None


def cubins_row(folder: str, targets: list[str | None]) -> dict[str, Any]:
    """A folder of programs as one row; ``targets`` has that of each, None for a file that is no program."""
    strange = targets.count(None)
    found = {
        "file": folder,
        "sass": ordered({target for target in targets if target}),
        "ptx": [],
        "cubins": len(targets),
    }
    return found | ({"problem": f"{strange} of its files are no program for a GPU"} if strange else {})
