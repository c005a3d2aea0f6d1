"""Which libraries lie below a folder, found anew in some milliseconds when little has changed.

A folder whose time of change is the one kept holds the same names as then, so it is not listed again: a full GPU target
has 6 000 folders and 68 000 files, 10 000 of them of interest here.
"""

import contextlib
import errno
import os
import stat
import time
from typing import Any

# A change in the same tick of the clock as the reading leaves no trace in a time: what is younger is not trusted.
YOUNG_NS = 2_000_000_000
MOST = 1 << 24  # letters of a text that are read
SKIPPED = ("__pycache__",)


class Tree:
    """``libraries``: paths below the root. ``cubins``: folder -> (how many ``.cubin`` files, its times). ``folders``: what to keep.

    The times of a folder are None where they are not to be trusted. ``unread``: folders that could not be listed -> why.
    """

    def __init__(self) -> None:
        self.libraries: list[str] = []
        self.cubins: dict[str, tuple[int, list[int] | None]] = {}
        self.unread: dict[str, str] = {}
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
            changed = identity(os.stat(path))[1:]
        except (OSError, ValueError):
            continue
        prefix = f"{folder}/" if folder else ""
        row: Any = known.get(folder)
        if _fits(row) and row[0] == changed:
            _, names, cubins = row
        else:
            names, cubins, inner, why = _listed(path)
            if why:
                tree.unread[prefix or "./"] = why
                changed = [now, now]
            new = [prefix + name for name in inner if prefix + name not in seen]
            waiting += new
            seen.update(new)
        trusted = changed if now - changed[0] > YOUNG_NS else None
        tree.folders[folder] = [trusted, names, cubins]
        tree.libraries += [prefix + name for name in names]
        if cubins:
            tree.cubins[prefix] = (cubins, trusted)
    return tree


def _fits(row: Any) -> bool:  # noqa: ANN401 - anything that a JSON file may hold
    return (
        isinstance(row, list)
        and [type(part) for part in row] == [list, list, int]
        and all(isinstance(name, str) for name in row[1])
    )


def identity(seen: os.stat_result) -> list[int]:
    """Size and the two times of change in ns. The first, of the content, can be set back, as installers do; the second cannot."""
    return [seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns]


def is_spoilt(head: bytes) -> bool:
    """Whether a file of a library's name that begins like this is damaged: no ELF file, and no linker script or archive."""
    return b"\0" in head and not head.startswith((b"\x7fELF", b"!<arch>"))


def text(path: str) -> str:
    """What a text file holds; "" where there is none, it cannot be read, or is no plain file."""
    try:
        with os.fdopen(open_file(path), encoding="utf-8", errors="replace") as file:
            return file.read(MOST)
    except (OSError, ValueError):
        return ""


def many_files() -> None:
    """Let this process hold as many files open as it may: each library that is looked into takes one, and 1024 is a usual limit."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def open_file(path: str) -> int:
    """A descriptor of a plain file. A pipe of that name would keep its reader waiting for ever, so it is refused.

    Raises:
        OSError: it cannot be opened, or is no plain file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no plain file", path)
    return fd


def is_library(name: str) -> bool:
    """True for the names of shared libraries: ``a.so``, ``a.so.12``."""
    return name.endswith(".so") or ".so." in name


def _listed(path: str) -> tuple[list[str], int, list[str], str]:
    """Names of libraries, how many GPU programs, names of folders, and why it could not be listed ("" when it could)."""
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
                elif is_library(entry.name) and _is_there(entry):
                    names.append(entry.name)
    except OSError as why:
        return [], 0, [], why.strerror or "not listed"
    return sorted(names), cubins, inner, ""


def _is_there(entry: os.DirEntry[str]) -> bool:
    """Anything but a link that leads to a folder or nowhere. A pipe or a link in a circle is kept, to be named as a problem."""
    try:
        return not entry.is_symlink() or not stat.S_ISDIR(entry.stat().st_mode)
    except FileNotFoundError:
        return False
    except OSError:
        return True
