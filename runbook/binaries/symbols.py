"""One ELF library as the dynamic loader sees it: what it needs, where it looks, what it exports.

Read from the program headers and the dynamic section alone, as the loader does, so a stripped or patched file reads the
same. A symbol is looked up through the hash table of the file: the 79 000 names of libtorch_cpu are never listed.
Rules: https://gabi.xinuos.com/elf/08-dynamic.html, the GNU hash table and symbol versions as glibc's
elf/dl-lookup.c reads them. 64 bits and little-endian only: what NVIDIA's libraries for Linux are.
"""

import mmap
import os
import struct
from collections.abc import Iterator
from functools import cached_property
from operator import mul
from pathlib import Path
from typing import NamedTuple

from runbook.binaries import tree

MACHINES = {62: "x86_64", 183: "aarch64"}
PT_LOAD, PT_DYNAMIC = 1, 2
(
    DT_NEEDED, DT_PLTRELSZ, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ, DT_STRSZ, DT_SONAME, DT_RPATH, DT_JMPREL, DT_RUNPATH,
) = (1, 2, 4, 5, 6, 7, 8, 10, 14, 15, 23, 29)  # fmt: skip
DT_GNU_HASH, DT_VERSYM, DT_VERDEF, DT_VERDEFNUM, DT_VERNEED, DT_VERNEEDNUM = (
    0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF,
)  # fmt: skip
SHT_DYNSYM = 11
SYMBOL, RELA = struct.Struct("<IBBHQQ"), struct.Struct("<QQq")
SHN_UNDEF, STB_LOCAL, STB_WEAK, STT_TLS = 0, 0, 2, 6
VERSION_BITS, HIDDEN = 0x7FFF, 0x8000
VER_FLG_BASE, VER_FLG_WEAK = 1, 2
FIRST_NAMED_VERSION = 3  # 0 is local, 1 the base, 2 the first version a file defines
WORD = 0xFFFFFFFF
# What no sound file comes near. Beyond it a file is damaged, or made to keep its reader busy.
HEADERS, NEEDED, MANY, CHAIN = 512, 4096, 4096, 1 << 14
SHORT, LONG, ALL_NAMES = (
    1 << 12,
    1 << 17,
    1 << 26,
)  # bytes of a name of a library or version, of a symbol, of all
# What reading numbers from wrong places ends in.
DAMAGE = (struct.error, IndexError, ValueError, ArithmeticError)

# Powers of 33 modulo 2^32, highest first: the GNU hash of a name is a polynomial, and a sum of products is quick.
_LONGEST = 1024
_POWERS: list[int] = [pow(33, power, WORD + 1) for power in range(_LONGEST, -1, -1)]


class BadElf(Exception):
    """The file is damaged; the text says how."""


class Foreign(BadElf):
    """The file is no 64-bit little-endian ELF library: nothing that the loader of such a process would take."""


class Symbol(NamedTuple):
    """A name and the version that is asked for with it; "" for none. ``provider`` is the library the version names."""

    name: bytes
    version: bytes = b""
    provider: str = ""


def gnu_hash(name: bytes) -> int:
    """The hash of the DT_GNU_HASH table: h = h * 33 + c from 5381, in 32 bits."""
    size = len(name)
    if size > _LONGEST:
        value = 5381
        for letter in name:
            value = (value * 33 + letter) & WORD
        return value
    total: int = sum(map(mul, name, _POWERS[_LONGEST - size + 1 :]))
    return (5381 * _POWERS[_LONGEST - size] + total) & WORD


def sysv_hash(name: bytes) -> int:
    """The hash of the older DT_HASH table, and of version names."""
    value = 0
    for letter in name:
        value = (value << 4) + letter
        top = value & 0xF0000000
        value = (value ^ (top >> 24)) & ~top & WORD
    return value


class Library:
    """An open ELF file. ``path`` is the name it was found under: ``$ORIGIN`` is its folder, symlinks not followed.

    Raises:
        Foreign: it is no library for the loader.
        BadElf: it is one, and cut short or otherwise damaged. What is read later may raise one of ``DAMAGE``.
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = str(path)
        self._places: dict[int, int] = {}
        fd = tree.open_file(self.path)
        try:
            self.data = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
        except ValueError as why:
            raise BadElf("empty file") from why
        finally:
            os.close(fd)
        try:
            self._read()
        except DAMAGE as why:
            self.data.close()
            raise BadElf(f"cut short or not as ELF is: {why}") from why
        except BadElf:
            self.data.close()
            raise

    def _read(self) -> None:
        data = self.data
        if data[:4] != b"\x7fELF" or data[4] != 2 or data[5] != 1:  # noqa: PLR2004 - class 64, little-endian
            if tree.is_spoilt(data[:64]):
                raise BadElf("neither an ELF file nor a text")
            raise Foreign("not a 64-bit little-endian ELF file")
        self.machine = MACHINES.get(struct.unpack_from("<H", data, 18)[0], "other")
        program, self._sections = struct.unpack_from("<QQ", data, 32)
        size, count, self._section_size, self._section_count = struct.unpack_from("<HHHH", data, 54)
        if count > HEADERS:
            raise BadElf(f"it says that it has {count} program headers")
        self._loads: list[tuple[int, int, int]] = []
        dynamic = None
        for at in range(program, program + size * count, size):
            kind, _, offset, address, _, in_file = struct.unpack_from("<IIQQQQ", data, at)
            if offset + in_file > len(data) and kind in (PT_LOAD, PT_DYNAMIC):
                raise BadElf(f"cut short: {len(data)} bytes, a part of it ends at {offset + in_file}")
            if kind == PT_LOAD:
                self._loads.append((address, address + in_file, offset))
            elif kind == PT_DYNAMIC:
                dynamic = (offset, in_file)
        self._tags: dict[int, int] = {}
        needed = self._dynamic(dynamic)
        self._strings = self._at(DT_STRTAB)
        self._symbols = self._at(DT_SYMTAB)
        self.needed = tuple(self._text(each).decode() for each in needed)
        self.soname = self._named(DT_SONAME)
        self.runpath = self._named(DT_RUNPATH)
        # A file that has both is looked up by its RUNPATH alone (ld.so(8)).
        self.rpath = "" if self.runpath else self._named(DT_RPATH)

    def _dynamic(self, dynamic: tuple[int, int] | None) -> list[int]:
        """Fill ``_tags`` from the section at (offset, size); where the names of needed libraries stand."""
        data = self.data
        if dynamic is None:
            raise Foreign("no dynamic section: nothing for the loader to do")
        needed: list[int] = []
        end = dynamic[0] + dynamic[1] // 16 * 16
        for tag, value in struct.iter_unpack("<QQ", data[dynamic[0] : end]):
            if tag == 0:
                break
            if tag == DT_NEEDED:
                needed.append(value)
                if len(needed) > NEEDED:
                    raise BadElf("a list of needed libraries without an end")
            else:
                self._tags[tag] = value
        return needed

    @property
    def name(self) -> str:
        """By what others ask for it."""
        return self.soname or self.path.rpartition("/")[2]

    def _named(self, tag: int) -> str:
        return self._text(self._tags[tag]).decode() if tag in self._tags else ""

    def _at(self, tag: int) -> int:
        """Where in the file a table lies that the dynamic section gives the address of; 0 when it has none."""
        if tag in self._places:
            return self._places[tag]
        address = self._tags.get(tag)
        found = 0 if address is None else self._in_file(address)
        if found < 0:
            raise BadElf(f"table {tag:#x} lies outside the file")
        self._places[tag] = found
        return found

    def _in_file(self, address: int) -> int:
        places = (address - start + offset for start, end, offset in self._loads if start <= address < end)
        return next(places, -1)

    def _text(self, offset: int, longest: int = SHORT) -> bytes:
        start = self._strings + offset
        end = self.data.find(b"\0", start, start + longest)
        if end < 0:
            raise ValueError(f"a name at byte {start} has no end")
        return self.data[start:end]

    @cached_property
    def _hashed_from(self) -> int:
        """Index of the first symbol in the GNU hash table; the undefined ones stand before it. 0: no such table, or an empty one."""
        at = self._at(DT_GNU_HASH)
        if not at:
            return 0
        buckets, first, words = struct.unpack_from("<III", self.data, at)
        table = self.data[at + 16 + 8 * words : at + 16 + 8 * words + 4 * buckets]
        return first if table.count(0) < len(table) else 0

    @cached_property
    def _symbol_count(self) -> int:
        """How many symbols there are: from the old hash table, else the section header, else up to the string table."""
        old = self._at(DT_HASH)
        if old:
            return int(struct.unpack_from("<I", self.data, old + 4)[0])
        for at in range(
            self._sections, self._sections + self._section_size * self._section_count, self._section_size
        ):
            kind, size = (
                struct.unpack_from("<I", self.data, at + 4)[0],
                struct.unpack_from("<Q", self.data, at + 32)[0],
            )
            if kind == SHT_DYNSYM:
                return int(size) // SYMBOL.size
        return max(0, self._strings - self._symbols) // SYMBOL.size

    @cached_property
    def asked_versions(self) -> tuple[tuple[str, str, int, bool], ...]:
        """Versions this file asks for: library, version, its index among the symbols' versions, and whether it may lack."""
        at = self._at(DT_VERNEED)
        found: list[tuple[str, str, int, bool]] = []
        for _ in range(min(self._tags.get(DT_VERNEEDNUM, 0), MANY) if at else 0):
            _, count, file, first, following = struct.unpack_from("<HHIII", self.data, at)
            library, entry = self._text(file).decode(), at + first
            for _ in range(count):
                if len(found) > MANY:
                    raise ValueError("its list of versions leads in a circle")
                _, flags, index, name, after = struct.unpack_from("<IHHII", self.data, entry)
                found.append(
                    (library, self._text(name).decode(), index & VERSION_BITS, bool(flags & VER_FLG_WEAK))
                )
                entry += after
            at += following
        return tuple(found)

    @cached_property
    def versions(self) -> dict[int, bytes]:
        """Versions this file defines, by index, without the base."""
        at, found = self._at(DT_VERDEF), {}
        for _ in range(min(self._tags.get(DT_VERDEFNUM, 0), MANY) if at else 0):
            _, flags, index, _, _, first, following = struct.unpack_from("<HHHHIII", self.data, at)
            if not flags & VER_FLG_BASE:
                found[index] = self._text(struct.unpack_from("<I", self.data, at + first)[0])
            at += following
        return found

    def _version_of(self, index: int) -> int:
        at = self._at(DT_VERSYM)
        return int(struct.unpack_from("<H", self.data, at + 2 * index)[0]) if at else 1

    def undefined(self) -> dict[int, Symbol]:
        """Symbols, by index, that some other library must define. Weak ones may lack, so they are left out."""
        found, letters = {}, 0
        asked = {index: (library, version.encode()) for library, version, index, _ in self.asked_versions}
        for index in range(1, self._hashed_from or self._symbol_count):
            name, info, _, section, _, _ = SYMBOL.unpack_from(self.data, self._symbols + index * SYMBOL.size)
            if (
                section == SHN_UNDEF
                and info >> 4 not in (STB_LOCAL, STB_WEAK)
                and (text := self._text(name, LONG))
            ):
                provider, version = asked.get(self._version_of(index) & VERSION_BITS, ("", b""))
                found[index] = Symbol(text, version, provider)
                letters += len(text) + SYMBOL.size
                if letters > ALL_NAMES:
                    raise ValueError("more names than a library has")
        return found

    def defines(self, symbol: Symbol, value: int) -> bool:
        """Whether the loader would take ``symbol``, of GNU hash ``value``, from this file."""
        return any(self._fits(index, symbol) for index in self._candidates(symbol.name, value))

    def _candidates(self, name: bytes, value: int) -> Iterator[int]:
        at = self._gnu
        if at is None:
            yield from self._old_candidates(name)
            return
        bloom, mask, shift, bucket_at, buckets, chain_at = at
        word = struct.unpack_from("<Q", self.data, bloom + 8 * (value // 64 & mask))[0]
        if not word >> value % 64 & word >> (value >> shift) % 64 & 1:
            return
        index = struct.unpack_from("<I", self.data, bucket_at + 4 * (value % buckets))[0]
        if not index:
            return
        for _ in range(CHAIN):
            link = struct.unpack_from("<I", self.data, chain_at + 4 * index)[0]
            if link | 1 == value | 1:
                yield index
            if link & 1:
                return
            index += 1
        raise ValueError("a chain of its hash table has no end")

    @cached_property
    def _gnu(self) -> tuple[int, int, int, int, int, int] | None:
        at = self._at(DT_GNU_HASH)
        if not at:
            return None
        buckets, first, words, shift = struct.unpack_from("<IIII", self.data, at)
        bucket_at = at + 16 + 8 * words
        return at + 16, words - 1, shift, bucket_at, buckets, bucket_at + 4 * buckets - 4 * first

    def _old_candidates(self, name: bytes) -> Iterator[int]:
        at = self._at(DT_HASH)
        if not at:
            return
        buckets, chain = struct.unpack_from("<II", self.data, at)
        index = struct.unpack_from("<I", self.data, at + 8 + 4 * (sysv_hash(name) % buckets))[0]
        for _ in range(min(chain, CHAIN) + 1):
            if not index:
                return
            yield index
            index = struct.unpack_from("<I", self.data, at + 8 + 4 * (buckets + index))[0]
        raise ValueError("a chain of its hash table has no end")

    def _fits(self, index: int, symbol: Symbol) -> bool:
        name, info, _, section, value, _ = SYMBOL.unpack_from(self.data, self._symbols + index * SYMBOL.size)
        start = self._strings + name
        if self.data[start : start + len(symbol.name) + 1] != symbol.name + b"\0":
            return False
        if section == SHN_UNDEF or info >> 4 == STB_LOCAL or (value == 0 and info & 15 != STT_TLS):
            return False
        if DT_VERSYM not in self._tags:
            return True
        version = self._version_of(index)
        if symbol.version:
            own = self.versions.get(version & VERSION_BITS)
            return own == symbol.version or (own is None and not version & HIDDEN)
        return version & VERSION_BITS < FIRST_NAMED_VERSION or not version & HIDDEN

    def asked_in_order(self) -> Iterator[int]:
        """Indices of symbols in the order in which the loader resolves them: data first, then the calls."""
        for table, size in ((DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)):
            at = self._at(table)
            length = self._tags.get(size, 0) // RELA.size * RELA.size if at else 0
            for _, info, _ in RELA.iter_unpack(self.data[at : at + length]):
                if info >> 32:
                    yield info >> 32
