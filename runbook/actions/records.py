"""What RECORD files say of an environment's files: which are gone, cut, edited, or of no package at all.

The format: https://packaging.python.org/en/latest/specifications/recording-installed-packages/
"""

import base64
import csv
import hashlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from runbook.parse import numbers, python_env

# Read in pieces: one library of torch has 1 GB.
PIECE = 1 << 20
TOGETHER = 256  # files a task: one task a file would take longer than looking at it
WORKERS = min(8, os.cpu_count() or 1) + 1


@dataclass(frozen=True)
class Listed:
    """One row of a RECORD. ``digest`` is ``algorithm=base64`` or ""; ``size`` None where the row has none."""

    package: str
    name: str
    digest: str
    size: int | None


@dataclass(frozen=True)
class Fault:
    """A file that is not what its package recorded: ``gone``, ``cut`` (shorter) or ``edited``."""

    package: str
    name: str
    kind: str


def site_of(folder: Path) -> Path:
    """The site-packages folder of a virtual environment we built (it may not exist yet)."""
    return next(iter(folder.glob("lib/python3.*/site-packages")), folder / "lib" / "site-packages")


def record_hashes(site: Path) -> dict[str, str]:
    """Package -> hash of its RECORD, which lists every file of it with its own hash."""
    found = {}
    for record in sorted(site.glob("*.dist-info/RECORD")):
        found[_package(record)] = hashlib.sha256(record.read_bytes()).hexdigest()[:16]
    return found


def faults(site: Path, *, by_hash: bool) -> list[Fault]:
    """Files that a RECORD lists and that are gone, cut or, asked ``by_hash``, edited; by package and name.

    Some packages list the same file with different contents (flashinfer-python and torch-c-dlpack-ext both bring a
    build_backend.py): it is right when it fits one of them. Sizes alone take half a second for 35 000 files, hashes
    read every byte.
    """
    rows: dict[str, list[Listed]] = {}
    for one in _listed(site):
        rows.setdefault(one.name, []).append(one)
    every = list(rows.values())
    pieces = [every[at : at + TOGETHER] for at in range(0, len(every), TOGETHER)]

    def look(piece: list[list[Listed]]) -> list[Fault]:
        return [one for each in piece if (one := _fault(site, each, by_hash=by_hash))]

    with ThreadPoolExecutor(WORKERS) as pool:
        found = [one for part in pool.map(look, pieces) for one in part]
    return sorted(found, key=lambda one: (one.package, one.name))


def strays(site: Path) -> set[str]:
    """Files in site-packages that no RECORD lists, bytecode aside."""
    listed = {os.path.normpath(one.name) for one in _listed(site)}
    return {name for name in _files(site) if not name.endswith(".pyc") and name not in listed}


def weight(site: Path) -> tuple[int, int]:
    """(files, bytes) that the RECORDs list."""
    sizes = [one.size or 0 for one in _listed(site)]
    return len(sizes), sum(sizes)


def _listed(site: Path) -> Iterator[Listed]:
    for record in site.glob("*.dist-info/RECORD"):
        package = _package(record)
        # csv refuses a NUL.
        text = record.read_text(encoding="utf-8", errors="replace").replace("\0", "\ufffd")
        for row in csv.reader(text.splitlines()):
            # Compiled on the spot; some are listed that no compiler can make, and Python makes others as it goes.
            if row and row[0] and not row[0].endswith(".pyc"):
                name, digest, size = (*row, "", "")[:3]
                yield Listed(package, name, digest, numbers.whole(size))


def _package(record: Path) -> str:
    return next(iter(python_env.distributions([record.parent.name])), record.parent.name)


def _fault(site: Path, rows: Iterable[Listed], *, by_hash: bool) -> Fault | None:
    """What is wrong with one file, by the row that comes nearest to it; None when it fits one."""
    wrong = []
    for one in rows:
        kind = _kind(os.path.join(site, one.name), one, by_hash=by_hash)  # noqa: PTH118 - 40 000 of them
        if kind is None:
            return None
        wrong.append(Fault(one.package, one.name, kind))
    return wrong[-1]


def _kind(path: str, one: Listed, *, by_hash: bool) -> str | None:
    try:
        size = os.stat(path).st_size  # noqa: PTH116 - 40 000 of them, Path.stat costs a third more
        if one.size is not None and size != one.size:
            return "cut" if size < one.size else "edited"
        if not by_hash or not one.digest:
            return None
        return None if _fits(path, one.digest) else "edited"
    except OSError:
        return "gone"


def _fits(path: str, digest: str) -> bool:
    algorithm, _, wanted = digest.partition("=")
    if algorithm not in hashlib.algorithms_available:
        return True  # nothing is known against it
    summed = hashlib.new(algorithm)
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - as above
        while piece := file.read(PIECE):
            summed.update(piece)
    return base64.urlsafe_b64encode(summed.digest()).rstrip(b"=").decode() == wanted.rstrip("=")


def _files(site: Path) -> Iterator[str]:
    above = len(str(site)) + 1
    for folder, _, names in os.walk(site):
        for name in names:
            yield os.path.join(folder, name)[above:]  # noqa: PTH118 - as above
