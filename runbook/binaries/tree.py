"""Which libraries lie below a folder, found anew in some milliseconds when little has changed.

A folder whose time of change is the one kept holds the same names as then, so it is not listed again: a full GPU target
has 6 000 folders and 68 000 files, 10 000 of them of interest here.
"""

import os
import time
from typing import Any

# A change in the same tick of the clock as the reading leaves no trace in a time: what is younger is not trusted.
YOUNG_NS = 2_000_000_000
SKIPPED = ("__pycache__",)


class Tree:
    """``libraries``: paths below the root. ``cubins``: folder -> (how many ``.cubin`` files, its time). ``folders``: what to keep.

    The time of a folder is 0 where it is not to be trusted.
    """

    def __init__(self) -> None:
        self.libraries: list[str] = []
        self.cubins: dict[str, tuple[int, int]] = {}
        self.folders: dict[str, list[Any]] = {}


def walk(root: str, kept: object = None) -> Tree:
    """Every library below ``root``; ``kept`` is ``folders`` of an earlier walk, or anything else."""
    known = kept if isinstance(kept, dict) else {}
    tree = Tree()
    now = time.time_ns()
    waiting = [""] if "" not in known else list(known)
    seen = set(waiting)
    while waiting:
        folder = waiting.pop()
        path = os.path.join(root, folder) if folder else root
        try:
            changed = os.stat(path).st_mtime_ns
        except OSError:
            continue
        prefix = f"{folder}/" if folder else ""
        row: Any = known.get(folder)
        if _fits(row) and row[0] == changed:
            _, names, cubins = row
        else:
            names, cubins, inner = _listed(path)
            new = [prefix + name for name in inner if prefix + name not in seen]
            waiting += new
            seen.update(new)
        trusted = changed if now - changed > YOUNG_NS else 0
        tree.folders[folder] = [trusted, names, cubins]
        tree.libraries += [prefix + name for name in names]
        if cubins:
            tree.cubins[prefix] = (cubins, trusted)
    return tree


def _fits(row: Any) -> bool:  # noqa: ANN401 - anything that a JSON file may hold
    return (
        isinstance(row, list)
        and [type(part) for part in row] == [int, list, int]
        and all(isinstance(name, str) for name in row[1])
    )


def is_library(name: str) -> bool:
    """True for the names of shared libraries: ``a.so``, ``a.so.12``."""
    return name.endswith(".so") or ".so." in name


def _listed(path: str) -> tuple[list[str], int, list[str]]:
    names: list[str] = []
    inner: list[str] = []
    cubins = 0
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in SKIPPED:
                        inner.append(entry.name)
                elif entry.name.endswith(".cubin"):
                    cubins += 1
                elif is_library(entry.name) and entry.is_file():
                    names.append(entry.name)
    except OSError:
        return [], 0, []
    return sorted(names), cubins, inner
