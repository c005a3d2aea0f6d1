"""The journal of a run: what was begun and how it ended, one JSON object a line, each written through to disk at once.

``{"at", "event", "page", "stack", "step", ...}`` with event ``start`` or ``end`` and, at the end, ``state`` and
``duration_s``. Nothing in an executed notebook says how far a killed run came; this does.
"""

import datetime
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Journal:
    """Appends events to a file. ``seen`` is called with each, for a progress display."""

    def __init__(self, path: Path, seen: Callable[[dict[str, Any]], None] = lambda _: None) -> None:
        self.path = path
        self.seen = seen

    def write(self, event: str, **fields: str | float | dict[str, str]) -> None:
        """Append one event and wait until it is on disk."""
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
        row = {"at": now, "event": event, **fields}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.seen(row)


def events(path: Path) -> list[dict[str, Any]]:
    """The events of a journal; a last line that was cut by a kill is left out."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows
