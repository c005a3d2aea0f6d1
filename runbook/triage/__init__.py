"""Triage: from a wall of log to the one cause, with the line that is it and those that follow from it."""

import io
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from runbook.errors import BadParameter
from runbook.triage import judge, scan, signatures
from runbook.triage.judge import Triage


def read(sources: Iterable[tuple[str, BinaryIO]]) -> Triage:
    """Read (name, binary stream) pairs once, at constant memory, and judge them as one log.

    Raises:
        BadParameter: the signatures of the runbook are damaged.
        OSError: a stream could not be read.
    """
    known, normal = signatures.load(), signatures.load_normal()
    seen = scan.compiled(judge.patterns(known, normal)).read(sources)
    return judge.judge(seen, known, normal)


def read_text(log: str) -> Triage:
    """The same for a text at hand."""
    return read([("", io.BytesIO(log.encode("utf-8", errors="replace")))])


def read_file(name: str) -> Triage:
    """The same for one file, at constant memory.

    Raises:
        BadParameter: it cannot be read.
    """
    with opened(name) as stream:
        return read([("", stream)])


def opened(name: str) -> BinaryIO:
    """A log, opened for reading.

    Raises:
        BadParameter: it cannot be.
    """
    try:
        return Path(name).open("rb")
    except OSError as why:
        raise BadParameter(
            f"{name}: {why.strerror}", "a log that can be read, or - for standard input", "name another file"
        ) from why
