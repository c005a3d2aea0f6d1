"""What ``python -m runbook.checkpoint`` prints: facts of a checkpoint folder and its faults."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runbook.checkpoint.faults import Fault

# One question for every check about the folder; a probe asks it once.
ARGV = ["{own}/python", "-m", "runbook.checkpoint", "{model}"]
HASH = [*ARGV, "--hash"]
TIMEOUT_S = 60.0
HASH_TIMEOUT_S = 3600.0  # 400 GB at 0.2 GB/s and more


@dataclass(frozen=True)
class Checkpoint:
    """``facts`` by subject, as printed; ``faults`` in their order."""

    facts: Mapping[str, Any]
    faults: tuple[Fault, ...]

    def of(self, subject: str) -> tuple[Fault, ...]:
        """The faults of one subject."""
        return tuple(one for one in self.faults if one.subject == subject)

    def part(self, subject: str) -> Mapping[str, Any]:
        """The facts of one subject; empty where nothing could be read."""
        found = self.facts.get(subject)
        return found if isinstance(found, dict) else {}

    def value(self, subject: str, name: str) -> str | int | float | bool | None:
        """One fact, when it is a plain value."""
        found = self.part(subject).get(name)
        return found if isinstance(found, str | int | float | bool) else None

    def names(self, subject: str, name: str) -> tuple[str, ...]:
        """One fact, when it is a list of texts."""
        found = self.part(subject).get(name)
        return tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else ()

    def table(self, subject: str, name: str) -> Mapping[str, Any]:
        """One fact, when it maps names to values."""
        found = self.part(subject).get(name)
        return found if isinstance(found, dict) else {}

    @property
    def tensors(self) -> tuple[tuple[str, str, tuple[int, ...], int], ...]:
        """Name, type, shape and bytes of the tensors, those alike in one row with the bytes of all (numbers in names are N)."""
        rows = self.part("weights").get("groups")
        return tuple(found for row in (rows if isinstance(rows, list) else ()) if (found := _group(row)))


def _group(row: object) -> tuple[str, str, tuple[int, ...], int] | None:
    if not isinstance(row, list) or len(row) != len(("name", "type", "shape", "count", "bytes")):
        return None
    name, kept, shape, _, size = row
    whole = isinstance(shape, list) and all(isinstance(each, int) and each > 0 for each in shape)
    plain = (
        isinstance(name, str)
        and isinstance(kept, str)
        and isinstance(size, int)
        and not isinstance(size, bool)
    )
    return (name, kept, tuple(shape), size) if whole and plain else None


def checkpoint(text: str) -> Checkpoint | None:
    """The answer; None when it is none. A row of faults that is no fault makes it none: nothing may be overlooked."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("faults"), list):
        return None
    rows = [_fault(row) for row in found["faults"]]
    if None in rows:
        return None
    return Checkpoint(found, tuple(one for one in rows if one))


def _fault(row: object) -> Fault | None:
    if not isinstance(row, list) or len(row) != len(("kind", "file", "text")):
        return None
    return Fault(*row) if all(isinstance(one, str) for one in row) else None
