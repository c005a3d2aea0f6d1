"""How files of an untrusted folder are opened: plain files that lie in it, and a bounded part of each.

A download in the hub's own cache is a folder of links into its ``blobs``, and older downloads elsewhere hold such links too
(https://huggingface.co/docs/huggingface_hub/guides/manage-cache). Any other link out of the folder is a fault.
"""

import json
import os
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path
from typing import Any

from runbook.checkpoint.faults import Fault, line

POINTER = b"version https://git-lfs.github.com/spec/"
PAGE = (b"<!doctype html", b"<html", b"<?xml")
HEAD = 512  # bytes that show a pointer or a page
LONGEST_JSON = 40_000_000  # bytes; the tokenizer.json of Qwen3.5 has 12.8 million
UTF8_BOM = b"\xef\xbb\xbf"


class Unusable(Exception):
    """A file that cannot be used; ``fault`` says why."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.text)
        self.fault = fault


@dataclass
class Opened:
    """A plain file that is open at its begin: its length in bytes, and how many of them were read."""

    file: RawIOBase
    size: int
    spent: int = 0

    def read(self, count: int) -> bytes:
        """Up to ``count`` bytes; fewer only at the end of the file.

        Raises:
            OSError: the disk does not give them.
        """
        parts = []
        while count > 0 and (part := self.file.read(count)):
            parts.append(part)
            count -= len(part)
            self.spent += len(part)
        return b"".join(parts)


def names(folder: Path) -> tuple[str, ...]:
    """Names of everything in a folder but folders, sorted. A name that is no text is kept with surrogates, as Python does.

    Raises:
        OSError: it cannot be listed.
    """
    with os.scandir(folder) as entries:
        return tuple(sorted(entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)))


@contextmanager
def opened(folder: Path, name: str, subject: str) -> Iterator[Opened]:
    """Open a file of the folder to read bytes.

    Raises:
        Unusable: it is not there, no plain file, closed to us, or a link that leads out of the folder.
    """
    try:
        real, root = (folder / name).resolve(), folder.resolve()
    except (OSError, RuntimeError) as why:  # RuntimeError: links in a ring, before Python 3.13
        raise Unusable(Fault(f"{subject}/unreadable", name, "is a link in a ring")) from why
    if not real.is_relative_to(root) and not _is_blob(real):
        raise Unusable(Fault(f"{subject}/outside", name, "is a link that leads out of the folder"))
    try:
        # Without O_NONBLOCK a named pipe would keep us waiting for a writer.
        descriptor = os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError as why:
        raise Unusable(Fault(f"{subject}/missing", name, "is not there")) from why
    except OSError as why:
        raise Unusable(Fault(f"{subject}/unreadable", name, f"cannot be opened: {why.strerror}")) from why
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        seen = os.fstat(descriptor)
        if not stat.S_ISREG(seen.st_mode):
            raise Unusable(Fault(f"{subject}/unreadable", name, "is no plain file"))
        yield Opened(file, seen.st_size)


def _is_blob(real: Path) -> bool:
    """Whether a file is one of the hub's cache: ``models--OWNER--NAME/blobs/HASH``."""
    return real.parent.name == "blobs" and real.parents[1].name.startswith("models--")


def spoilt(head: bytes, name: str, subject: str) -> Fault | None:
    """What is wrong with a file that begins like this, whatever it ought to hold."""
    if not head:
        return Fault(f"{subject}/empty", name, "is empty")
    if head.startswith(POINTER):
        return Fault(f"{subject}/pointer", name, "is a git-lfs pointer: the file itself was never fetched")
    if head.lstrip().lower().startswith(PAGE):
        return Fault(f"{subject}/page", name, "is an HTML page, as a server answers instead of the file")
    if not head.strip(b"\0"):
        return Fault(
            f"{subject}/zeros",
            name,
            "begins with zeros only, as a file does that was reserved and never filled",
        )
    return None


def text(folder: Path, name: str, subject: str, most: int = LONGEST_JSON) -> str:
    """The text of a file.

    Raises:
        Unusable: as ``opened``; or it is spoilt, longer than ``most`` bytes, or not UTF-8.
    """
    with opened(folder, name, subject) as found:
        if found.size > most:
            raise Unusable(
                Fault(f"{subject}/too-long", name, f"has {found.size} bytes, at most {most} are read")
            )
        try:
            raw = found.read(most)
        except OSError as why:
            raise Unusable(Fault(f"{subject}/unreadable", name, f"cannot be read: {why.strerror}")) from why
    if fault := spoilt(raw[:HEAD], name, subject):
        raise Unusable(fault)
    if raw.startswith(UTF8_BOM):
        raise Unusable(
            Fault(f"{subject}/bom", name, "begins with a byte order mark, which Python's json refuses")
        )
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as why:
        raise Unusable(
            Fault(f"{subject}/encoding", name, f"is not UTF-8: {why.reason} at byte {why.start}")
        ) from why


def loads(words: str, name: str, subject: str, *, once: bool = True) -> dict[str, Any]:
    """A JSON object, without repeated keys unless ``once`` is false (looking for them doubles the time of a large one).

    Raises:
        Unusable: it is none.
    """
    try:
        found = json.loads(words, object_pairs_hook=_once if once else None, parse_constant=_constant)
    except RecursionError as why:
        raise Unusable(Fault(f"{subject}/json", name, "is nested deeper than Python's json reads")) from why
    except (ValueError, _Twice) as why:
        raise Unusable(Fault(f"{subject}/json", name, f"is no JSON: {line(_reason(why))}")) from why
    if not isinstance(found, dict):
        raise Unusable(Fault(f"{subject}/json", name, "holds no JSON object"))
    return found


def json_object(folder: Path, name: str, subject: str) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        Unusable: as ``text`` and ``loads``.
    """
    return loads(text(folder, name, subject), name, subject)


class _Twice(Exception):
    """A key that occurs twice in one object."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise _Twice(f"the key {twice!r} occurs twice")
    return found


def _constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON number")


def _reason(why: Exception) -> str:
    if isinstance(why, json.JSONDecodeError):
        return f"{why.msg} at line {why.lineno}, column {why.colno}"
    return str(why)
