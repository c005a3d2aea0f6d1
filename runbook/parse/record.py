"""Lines of a distribution's RECORD file: path, hash, size (PyPA: recording installed projects)."""

import csv
import io

from runbook.parse import numbers


def sizes(lines: str) -> dict[str, int]:
    """Path below site-packages -> size in bytes; lines without a size, and odd ones, are left out."""
    found = {}
    try:
        rows = list(csv.reader(io.StringIO(lines.replace("\0", ""))))
    except csv.Error:
        return {}
    for row in rows:
        size = numbers.whole(row[2]) if len(row) == 3 else None  # noqa: PLR2004 - path, hash, size
        if size is not None and row[0] and not row[0].startswith(("/", "..")):
            found[row[0]] = size
    return found
