"""Reading a log of any size in bounded memory: its two ends, and the first error between.

A server in trouble may write a gigabyte a minute; what explains it stands near the beginning or at the end.
"""

import os
from pathlib import Path
from typing import BinaryIO

# A server writes about 100 KiB on its way up. Of the shortest lines the text then takes some 250 MB split up, no more.
MOST = 8 << 20
EXCERPT = 128 * 1024
PART = 4 << 20
OVERLAP = 8  # a word may lie across the border of two parts
ERRORS = (b"Error", b"ERROR")


def text(place: Path, most: int = MOST) -> str:
    """The text of a file (undecodable bytes replaced).

    Of a ``.log`` above ``most`` bytes only the first and the last half of that, what stands around the first error
    between, and lines that say how much was left out. Any other file is read whole.

    Raises:
        OSError: it cannot be read.
    """
    if place.suffix != ".log":
        return place.read_text(encoding="utf-8", errors="replace")
    with place.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if size <= most:
            return _plain(file.read(most))
        head, tail_at = file.read(most // 2), size - most // 2
        error = _first_error(file, len(head), tail_at)
        file.seek(tail_at)
        tail = file.read(most // 2)
    between = f"\n[runbook: of {tail_at - len(head)} bytes between, {len(error)} around the first error were read]\n"
    return _plain(head) + between + _plain(error) + "\n" + _plain(tail)


def _first_error(file: BinaryIO, start: int, end: int) -> bytes:
    """Up to 128 KiB from the line of the first error on; b"" when nothing between speaks of one."""
    at = start
    while at < end:
        file.seek(at)
        part = file.read(min(PART, end - at))
        places = [place for word in ERRORS if (place := part.find(word)) >= 0]
        if places:
            file.seek(at + part.rfind(b"\n", 0, min(places)) + 1)
            return file.read(min(EXCERPT, end - file.tell()))
        if not part:
            break  # it was cut meanwhile
        at += max(1, len(part) - OVERLAP)
    return b""


def _plain(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
