"""The mount table (``/proc/self/mountinfo``, see proc_pid_mountinfo(5)) and ``df`` with several paths."""

import re
from dataclasses import dataclass

from runbook.parse.numbers import whole

# GNU df; with paths, one row a path in the order of the paths.
DF = ["df", "-k", "--output=avail,itotal,iavail,fstype,target"]


@dataclass(frozen=True)
class Mount:
    """One mounted file system. ``root`` is the folder of it that is seen at ``place``."""

    root: str
    place: str
    kind: str
    source: str
    options: frozenset[str]


@dataclass(frozen=True)
class Room:
    """What is free where a path lies; ``inodes`` and ``free_inodes`` are None on file systems that make them as needed."""

    free_mib: int
    inodes: int | None
    free_inodes: int | None
    kind: str
    mount: str


def _plain(word: str) -> str:
    r"""A path with its octal escapes (``\040`` for a blank) undone."""
    return re.sub(r"\\([0-3][0-7]{2})", lambda match: chr(int(match[1], 8)), word)


def mounts(mountinfo: str | None) -> tuple[Mount, ...]:
    """Every mount, in the table's order: a later one at the same place hides the earlier."""
    found = []
    for line in (mountinfo or "").splitlines():
        before, dash, after = line.partition(" - ")
        left, right = before.split(), after.split()
        lefts, rights = 6, 3
        if not dash or len(left) < lefts or len(right) < rights:
            continue
        options = frozenset((*left[5].split(","), *right[2].split(",")))
        found.append(Mount(_plain(left[3]), _plain(left[4]), right[0], _plain(right[1]), options))
    return tuple(found)


def at(table: tuple[Mount, ...], place: str) -> Mount | None:
    """What is mounted at exactly this place."""
    return next((one for one in reversed(table) if one.place == place), None)


def rooms(df: str) -> tuple[Room, ...]:
    """The rows of ``DF``; empty when one of them cannot be read, since rows are told apart by their order."""
    found = []
    fields = 5
    for line in df.splitlines()[1:]:
        row = line.split(None, fields - 1)
        # Of a file system that is more than full (reserved blocks, a quota) df prints a negative number.
        free = (0 if re.fullmatch(r"-[0-9]+", row[0]) else whole(row[0])) if len(row) == fields else None
        if free is None:
            return ()
        inodes = whole(row[1]) or None
        found.append(Room(free // 1024, inodes, whole(row[2]) if inodes else None, row[3], row[4].strip()))
    return tuple(found)
