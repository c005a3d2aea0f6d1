"""The machine code in what ``python -m runbook.binaries`` prints: every library of an environment, read from its files."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

# One question for everybody; a probe asks it once. The first time it takes seconds, then less than 0.1 s.
ARGV = ["{own}/python", "-m", "runbook.binaries", "{site}", "--cache", "{work}/caches/binaries"]
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Unit:
    """``count`` source files of a library were compiled for just these targets."""

    count: int
    sass: tuple[str, ...]
    ptx: tuple[str, ...]


@dataclass(frozen=True)
class Binary:
    """One library, or a folder of ``.cubin`` files taken together (``cubins`` is how many; ``file`` ends in ``/``).

    ``sass`` holds targets such as ``sm_90a``, ``ptx`` such as ``compute_90``, in order; ``isa`` the newest version of
    the PTX language for each PTX target, such as ``8.7``. ``size`` is in bytes. ``problem`` says why the machine code
    could not be read; it is "" when it could.
    """

    file: str
    size: int
    sass: tuple[str, ...]
    ptx: tuple[str, ...]
    isa: Mapping[str, str] = field(default_factory=dict, hash=False)
    units: tuple[Unit, ...] = ()
    cubins: int = 0
    problem: str = ""

    @property
    def package(self) -> str:
        """The folder of site-packages it lies in: ``torch``, ``vllm``; of NVIDIA's the one below, ``nvidia/cublas``."""
        first, *rest = self.file.split("/")
        return f"{first}/{rest[0]}" if first == "nvidia" and len(rest) > 1 else first


def binaries(text: str) -> tuple[Binary, ...] | None:
    """The files of the answer, in its order; None when it is no such answer. Rows of another shape are left out."""
    try:
        rows = json.loads(text)["files"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return rows_of(rows) if isinstance(rows, list) else None


def rows_of(rows: list[object]) -> tuple[Binary, ...]:
    """The files in rows of ``runbook.binaries``."""
    return tuple(one for row in rows if (one := _binary(row)) is not None)


def _binary(row: object) -> Binary | None:
    if not isinstance(row, dict) or not isinstance(row.get("file"), str) or not row["file"]:
        return None
    problem = row.get("problem")
    return Binary(
        row["file"],
        _count(row.get("bytes")),
        _targets(row.get("sass"), "sm_"),
        _targets(row.get("ptx"), "compute_"),
        _versions(row.get("isa")),
        _units(row.get("units")),
        _count(row.get("cubins")),
        problem if isinstance(problem, str) else "",
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _targets(value: object, prefix: str) -> tuple[str, ...]:
    words = value if isinstance(value, list) else []
    return tuple(
        one
        for one in words
        if isinstance(one, str) and re.fullmatch(rf"{prefix}[1-9]\d{{1,2}}[af]?", one, re.ASCII)
    )


def _versions(value: object) -> dict[str, str]:
    pairs = value.items() if isinstance(value, dict) else ()
    return {
        target: version
        for target, version in pairs
        if _targets([target], "compute_")
        and isinstance(version, str)
        and re.fullmatch(r"\d{1,3}\.\d{1,3}", version, re.ASCII)
    }


def _units(value: object) -> tuple[Unit, ...]:
    rows = value if isinstance(value, list) else []
    return tuple(
        Unit(row[0], _targets(row[1], "sm_"), _targets(row[2], "compute_"))
        for row in rows
        if isinstance(row, list) and len(row) == 3 and _count(row[0])  # noqa: PLR2004 - count, SASS and PTX
    )
