"""Read logs of any size once, at constant memory, and note where which pattern was found.

A log is read in blocks of whole lines, and looked at in pieces of some lines. RE2's filter looks for the literals of all
patterns at once; a pattern is tried only on a piece that holds its own, until it was found often enough, and on the last ones.
"""

import codecs
import functools
import gzip
import io
import re
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

import re2

from runbook.errors import BadParameter
from runbook.triage import text

BLOCK = 1 << 18
PIECE = 1 << 11
"""Bytes looked at in one go: some lines, so that the patterns whose literals are there search little."""

LONGEST = 1 << 20
"""Bytes after which a line without an end is cut in two, so that a file without line ends fits into memory."""

MOST = 64
"""Places noted of one pattern from the beginning on; a flood of equal lines says nothing new."""

LAST = 48
"""Pieces at the end that hold the literals of a pattern found more often: how a long log ends is not lost behind its beginning."""

# Bytes as they are: a log may hold any encoding, and a pattern beyond ASCII is compared as UTF-8.
_BYTES = re2.Options()
_BYTES.encoding = re2.Options.Encoding.LATIN1
_BYTES.log_errors = False

_LOUD = (b"ERROR", b"CRITICAL", b"FATAL")
_LEVEL = re2.compile(rb"\b(DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL)\b", _BYTES)
_LEVEL_WITHIN = 160
_EXCEPTION = re2.compile(
    rb"(?:^|[\s\]):|])(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout)(?:: |\(|$)",
    _BYTES,
)
_CODE = re2.compile(rb"^\W*(?:raise |except |assert |if |return |\"|'|f\"|\^|~)", _BYTES)
_TAG = re2.compile(
    rb"^.{0,400}?(?:\[[\w./-]+\.py:\d+\]|\b\w+\.py:\d+\]|\w+\.py \d+\s*:)\s?|^.{0,80}?(?:\([\w ]+ pid=\d+\)\s*)+|^\[rank\d+\]:\s?",
    _BYTES,
)


# vLLM's request logger quotes what clients send; an error in a prompt is not an error of the server.
_QUOTED = re2.compile(
    rb"Request \S+ (?:details|JSON body): |Received request \S+: |Generated response ", _BYTES
)
_QUOTED_WITHIN = 400


@dataclass(frozen=True)
class Place:
    """A line in which something was found. ``number`` counts from 1 in its source."""

    source: str
    number: int
    line: str
    quiet: bool = False
    exception: bool = False

    @property
    def where(self) -> str:
        """SOURCE:NUMBER, or the number alone where there is one source without a name."""
        return f"{self.source}:{self.number}" if self.source else f"line {self.number}"


@dataclass
class Seen:
    """What one pass over the logs found: for each pattern its first and its last places, and how much was read."""

    places: dict[str, list[Place]] = field(default_factory=dict)
    lines: int = 0
    size: int = 0

    def of(self, pattern: str) -> list[Place]:
        """Where a pattern was found, in order: the first places and, beyond ``MOST``, those of the last pieces."""
        return self.places.get(pattern, [])


def compiled(patterns: Iterable[str]) -> "Scanner":
    """A scanner for these patterns, kept for the next time."""
    return _scanner(tuple(dict.fromkeys(patterns)))


@functools.lru_cache(maxsize=4)
def _scanner(patterns: tuple[str, ...]) -> "Scanner":
    return Scanner(patterns)


class Scanner:
    """Looks for many patterns at once."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self.patterns = patterns
        self._filter = re2.Filter()
        for one in patterns:
            self._filter.Add(b"(?m)" + one.encode(), _BYTES)  # ^ and $ are those of a line
        self._filter.Compile()
        self._each = [self._filter.re(number) for number in range(len(patterns))]

    def read(self, sources: Iterable[tuple[str, BinaryIO]]) -> Seen:
        """One pass over (name, stream) pairs; streams are read in blocks and not closed.

        Raises:
            BadParameter: a stream is gzip and damaged, or cut.
            OSError: a stream could not be read.
        """
        seen = Seen()
        late: dict[int, deque[_Part]] = {}
        for name, stream in sources:
            number, block = 1, b""
            for block in blocks(stream):
                seen.size += len(block)
                for piece in pieces(without_escapes(block)):
                    part = _Part(name, number, piece)
                    for found in self._filter.Match(piece, potential=True) or ():
                        room = MOST - len(seen.of(self.patterns[found]))
                        if room > 0 and self._note(seen, found, part, room):
                            continue
                        if len(piece) <= BLOCK:  # looked at in the end: a flood would be searched for nothing
                            late.setdefault(found, deque(maxlen=LAST)).append(part)
                    number += piece.count(b"\n")
            seen.lines += number - (not block or block.endswith(b"\n"))
        for found, parts in late.items():
            for part in parts:
                self._note(seen, found, part, len(part.piece))
        return seen

    def _note(self, seen: Seen, pattern: int, part: "_Part", room: int) -> bool:
        """Note at most ``room`` lines of a piece, behind those that are noted; False when it holds more."""
        places = seen.of(self.patterns[pattern])
        noted = places[-1].number if places and places[-1].source == part.source else 0
        found: list[Place] = []
        piece, number, counted, at = part.piece, part.first, 0, 0
        while match := self._each[pattern].search(piece, at):
            if len(found) == room:
                break
            number += piece.count(b"\n", counted, match.start())
            counted = match.start()
            begins = piece.rfind(b"\n", 0, match.start()) + 1
            ends = piece.find(b"\n", match.start())
            line = piece[begins : len(piece) if ends < 0 else ends]
            if number > noted and not _QUOTED.search(line[:_QUOTED_WITHIN]):
                found.append(_place(part.source, number, line, match.start() - begins, match.end() - begins))
            # One find a line: a line of a megabyte with thousands of them would take as many searches.
            at = len(piece) if ends < 0 else ends + 1
        if found:
            seen.places.setdefault(self.patterns[pattern], []).extend(found)
        return match is None


@dataclass(frozen=True)
class _Part:
    """A piece of a source; ``first`` is the number of its first line."""

    source: str
    first: int
    piece: bytes


def _place(name: str, number: int, line: bytes, start: int, end: int) -> Place:
    shown = text.excerpt(line, start, end)
    return Place(name, number, shown, quiet=_is_quiet(line), exception=_is_exception(line))


def _is_quiet(line: bytes) -> bool:
    """True for a line logged below the level of an error."""
    level = _LEVEL.search(line[:_LEVEL_WITHIN])
    return level is not None and level[1] not in _LOUD


def _is_exception(line: bytes) -> bool:
    """True for the line that ends a traceback, and not for the code that is quoted in it."""
    said = _TAG.sub(b"", line[:2000], count=1)
    return bool(_EXCEPTION.search(said)) and not _CODE.match(said)


_CODES = re.compile(text.ESCAPES.encode())
# A line of Docker's json-file log, whose quotes are escaped.
_DOCKER = re.compile(rb'(?m)^\{"log":"(.*?)(?:\\n)?","stream":"std(?:out|err)"[^\n]*\}$')


def without_escapes(block: bytes) -> bytes:
    """A block without the codes that colour it, and without Docker's JSON around it: both stand inside what patterns look for."""
    if b"\x1b" in block or b"u001b" in block:
        block = _CODES.sub(b"", block)
    if b'{"log":"' in block:
        block = _DOCKER.sub(lambda line: line[1].replace(b'\\"', b'"').replace(b"\\t", b"\t"), block)
    return block


def pieces(block: bytes) -> Iterator[bytes]:
    """A block cut at line ends into pieces of about ``PIECE`` bytes; a longer line is a piece of its own."""
    start = 0
    while start < len(block):
        end = block.rfind(b"\n", start, start + PIECE) + 1 or block.find(b"\n", start) + 1 or len(block)
        yield block[start:end]
        start = end


def blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Blocks of whole lines of a stream; gzip is unpacked, UTF-16 (as PowerShell writes) becomes UTF-8."""
    rest = b""
    for part in _parts(stream):
        rest += part
        cut = rest.rfind(b"\n") + 1
        if cut:
            yield rest[:cut]
            rest = rest[cut:]
        elif len(rest) >= LONGEST:
            yield rest
            rest = b""
    if rest:
        yield rest


def _parts(stream: BinaryIO) -> Iterator[bytes]:
    read = getattr(stream, "read1", stream.read)
    first = stream.read(4)
    if first[:2] == b"\x1f\x8b":
        try:
            with gzip.GzipFile(fileobj=_Rest(first, stream)) as unpacked:
                yield from iter(lambda: unpacked.read(BLOCK), b"")
        except (EOFError, gzip.BadGzipFile, zlib.error) as why:
            raise BadParameter(
                f"gzip: {why}", "a whole file", "unpack it by hand, as far as it goes: zcat"
            ) from why
        return
    if first[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        little = first[:2] == codecs.BOM_UTF16_LE
        decoder = codecs.getincrementaldecoder("utf-16-le" if little else "utf-16-be")(errors="replace")
        yield decoder.decode(first[2:]).encode()
        yield from (decoder.decode(part).encode() for part in iter(lambda: read(BLOCK), b""))
        return
    yield first.removeprefix(codecs.BOM_UTF8)
    yield from iter(lambda: read(BLOCK), b"")


class _Rest(io.RawIOBase):
    """A stream whose first bytes were read already; ``gzip`` wants it whole."""

    def __init__(self, first: bytes, stream: BinaryIO) -> None:
        self._first = first
        self._stream = stream

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        taken, self._first = (self._first, b"") if size < 0 else (self._first[:size], self._first[size:])
        return taken + self._stream.read(size - len(taken) if size >= 0 else -1)
