"""Probes of a target's libraries: what they need, where they look, what they export, and their GPU code. Nothing is loaded."""

import mmap
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Literal

from pydantic import model_validator

from runbook.binaries import code
from runbook.binaries.symbols import BadElf, Library, Symbol, gnu_hash
from runbook.claims.probes.base import Probe, Reading, Target, cannot, drifted, judged
from runbook.claims.probes.files import placed

Words = tuple[str, ...]


class Elf(Probe):
    """One library, or several by a pattern: what is wanted must be in one of them, what is not wanted in none.

    ``needs`` and ``searches`` are parts of a needed library's name and of RPATH or RUNPATH, ``asks`` parts of an undefined
    symbol's name; ``defines`` are whole mangled names. ``holds`` is text anywhere in the file.
    """

    kind: Literal["elf"]
    file: str
    needs: Words = ()
    needs_not: Words = ()
    searches: Words = ()
    searches_nothing: bool = False
    defines: Words = ()
    defines_not: Words = ()
    asks: Words = ()
    asks_not: Words = ()
    holds: Words = ()
    holds_not: Words = ()
    sass: Words = ()
    sass_not: Words = ()
    ptx: Words = ()
    ptx_not: Words = ()

    @model_validator(mode="after")
    def _can_fail(self) -> "Elf":
        placed(self.file)
        if not self._wants():
            raise ValueError("nothing is wanted of the library: the probe cannot fail")
        return self

    def _wants(self) -> list[str]:
        given = self.model_fields_set - {"kind", "file", "vllm", "device"}
        return [
            f"{name.replace('_', ' ')} {', '.join(value)}"
            if isinstance(value, tuple)
            else name.replace("_", " ")
            for name in type(self).model_fields
            if name in given and (value := getattr(self, name))
        ]

    def judge(self, target: Target) -> Reading:
        """Read the files."""
        expected, origin = f"{self.file}: {'; '.join(self._wants())}", self._origin()
        found = target.host.glob(self.file)
        if not found:
            return drifted(expected, f"there is no {self.file}", origin)
        have: dict[str, set[str]] = {}
        try:
            for path in found:
                for name, words in self._read(target.place(path)).items():
                    have.setdefault(name, set()).update(words)
        except (OSError, BadElf, code.Unreadable, ValueError) as why:
            return cannot(expected, f"{type(why).__name__}: {why}", origin)
        wrong = [
            f"{name}: {', '.join(missing)} not there"
            for name, seen in have.items()
            if (missing := [one for one in self._asked(name) if not _part_of(seen, one, name)])
        ]
        wrong += [
            f"{name}: {', '.join(there)} there"
            for name, seen in have.items()
            if (there := [one for one in self._asked(f"{name}_not") if _part_of(seen, one, name)])
        ]
        wrong += (
            [f"looks in {', '.join(sorted(have['searches']))}"]
            if self.searches_nothing and have["searches"]
            else []
        )
        seen = "; ".join(f"{name} {', '.join(sorted(words)[:12])}" for name, words in have.items() if words)
        return judged(expected, wrong, origin, seen[:400] or "nothing of the kind")

    def _asked(self, field: str) -> Words:
        asked: Words = getattr(self, field, ())
        return asked

    def _origin(self) -> str:
        if self.sass or self.sass_not or self.ptx or self.ptx_not:
            return f"cuobjdump --list-elf --list-ptx {self.file}"
        if self.holds or self.holds_not:
            return f"grep -c {(*self.holds, *self.holds_not)[0]!r} {self.file}"
        if self.defines or self.defines_not or self.asks or self.asks_not:
            return f"nm -D {self.file}"
        return f"readelf -d {self.file}"

    def _read(self, path: str) -> dict[str, Iterable[str]]:
        """What was asked about, of one file."""
        have: dict[str, Iterable[str]] = {}
        if self.sass or self.sass_not or self.ptx or self.ptx_not:
            row = code.read(path) or {"sass": [], "ptx": []}
            have |= {"sass": row["sass"], "ptx": row["ptx"]}
        if words := (*self.holds, *self.holds_not):
            have["holds"] = _words_in(path, words)
        library = Library(path)
        with closing(library.data):
            if self.needs or self.needs_not:
                have["needs"] = library.needed
            if self.searches or self.searches_nothing:
                have["searches"] = [one for one in (library.runpath, library.rpath) if one]
            if names := (*self.defines, *self.defines_not):
                have["defines"] = [
                    one for one in names if library.defines(Symbol(one.encode()), gnu_hash(one.encode()))
                ]
            if self.asks or self.asks_not:
                have["asks"] = [one.name.decode(errors="replace") for one in library.undefined().values()]
        return have


def _words_in(path: str, words: Words) -> list[str]:
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return [one for one in words if data.find(one.encode()) >= 0]


def _part_of(seen: Iterable[str], wanted: str, name: str) -> bool:
    """Whole words where a part would be another thing (``sm_10`` of ``sm_100``), parts where names have numbers behind them."""
    return (
        wanted in seen if name in ("sass", "ptx", "defines", "holds") else any(wanted in one for one in seen)
    )
