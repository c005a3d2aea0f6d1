"""What each library of a target needs of others and does not get: the ``links`` of ``python -m runbook.binaries``."""

import json
from dataclasses import dataclass
from typing import Any

from runbook.sonames import CUDA, NUMBERED, TORCH


@dataclass(frozen=True)
class Missing:
    """A symbol nobody provides; ``demangled`` is its C++ name in words, ``version`` "" where none is asked for."""

    symbol: str
    version: str
    demangled: str


@dataclass(frozen=True)
class Link:
    """One library.

    ``role``: ``torch`` (comes with ``import torch``), ``extension`` (links torch), ``cuda`` (links CUDA only), ``other``
    (its package brings it for another torch, CUDA or processor, and loads another file here), ``damaged`` (``problem`` says how).
    ``missing`` names the first of ``missing_count`` symbols, in the loader's order. ``missing_versions`` are (library,
    version, path of the library that lacks it). ``driver`` are libraries of the kernel driver that are not on this machine;
    ``through`` files that this one needs and that are broken themselves. ``strings`` is ``old`` or ``new`` (std::__cxx11).
    """

    file: str
    role: str
    needed: tuple[str, ...] = ()
    missing_libraries: tuple[str, ...] = ()
    missing: tuple[Missing, ...] = ()
    missing_count: int = 0
    missing_versions: tuple[tuple[str, str, str], ...] = ()
    driver: tuple[str, ...] = ()
    through: tuple[str, ...] = ()
    asked: int = 0
    strings: str = ""
    machine: str = ""
    highest: tuple[tuple[str, str], ...] = ()
    problem: str = ""

    @property
    def package(self) -> str:
        """The folder of site-packages the file lies in, or the first word of a file's name that lies on top."""
        folder, sign, _ = self.file.partition("/")
        return folder if sign else folder.partition(".")[0]

    @property
    def judged(self) -> bool:
        """Whether something loads this file in an ordinary run, so that what it lacks matters."""
        return self.role in {"torch", "extension", "damaged"}

    @property
    def whole(self) -> bool:
        """Whether it, and all it needs, finds everything but what is the driver's."""
        lacks = self.missing_libraries or self.missing_count or self.missing_versions or self.through
        return not (lacks or self.problem)

    @property
    def majors(self) -> frozenset[int]:
        """CUDA's major versions among what it needs."""
        found = (NUMBERED.match(name) for name in self.needed)
        return frozenset(int(one.group(4)) for one in found if one)


def is_torch_or_cuda(library: str) -> bool:
    """Whether a library of that name is one of torch's or CUDA's."""
    return bool(TORCH.match(library) or CUDA.match(library))


@dataclass(frozen=True)
class Provider:
    """A C or C++ runtime: where it was found, and the newest version of each kind (GLIBC, GLIBCXX, CXXABI) it provides."""

    path: str
    newest: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Links:
    """All that was read. ``torch`` and ``torch_cuda`` are versions ("" where there is none), ``strings`` torch's own kind."""

    files: tuple[Link, ...]
    torch: str = ""
    torch_cuda: str = ""
    strings: str = ""
    machine: str = ""
    libc: Provider | None = None
    libstdcxx: Provider | None = None

    @property
    def judged(self) -> tuple[Link, ...]:
        """The files that are loaded in an ordinary run."""
        return tuple(one for one in self.files if one.judged)


def links(text: str) -> Links | None:
    """The links in the answer; None when it is no such answer. Rows of another shape are left out."""
    try:
        found = json.loads(text)["links"]
        rows, system = found["files"], found["system"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(rows, list) or not isinstance(system, dict):
        return None
    return Links(
        tuple(_link(row) for row in rows if isinstance(row, dict) and _word(row.get("file"))),
        _word(system.get("torch")),
        _word(system.get("torch_cuda")),
        _word(system.get("strings")),
        _word(system.get("machine")),
        _provider(system.get("libc.so.6")),
        _provider(system.get("libstdc++.so.6")),
    )


def _link(row: dict[str, Any]) -> Link:
    missing = tuple(
        Missing(
            _word(one.get("symbol")),
            _word(one.get("version")),
            _word(one.get("demangled")) or _word(one.get("symbol")),
        )
        for one in _dicts(row.get("missing"))
        if _word(one.get("symbol"))
    )
    return Link(
        row["file"],
        _word(row.get("role")),
        _words(row.get("needed")),
        _words(row.get("missing_libraries")),
        missing,
        max(len(missing), _count(row.get("missing_count"))),
        tuple(
            (_word(one.get("library")), _word(one.get("version")), _word(one.get("in")))
            for one in _dicts(row.get("missing_versions"))
            if _word(one.get("version"))
        ),
        _words(row.get("driver")),
        _words(row.get("through")),
        _count(row.get("asked")),
        _word(row.get("strings")),
        _word(row.get("machine")),
        _kinds(row.get("highest")),
        _word(row.get("problem")),
    )


def _provider(row: object) -> Provider | None:
    if not isinstance(row, dict) or not _word(row.get("path")):
        return None
    return Provider(row["path"], _kinds(row))


def _kinds(row: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(row, dict):
        return ()
    return tuple((kind, row[kind]) for kind in ("GLIBC", "GLIBCXX", "CXXABI") if _word(row.get(kind)))


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""


def _words(value: object) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str) and one) if isinstance(value, list) else ()


def _dicts(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
