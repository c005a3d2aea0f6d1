"""The boot ledger, ``<workspace>/boots.jsonl``: a row for each start that became ready, so that later ones can be compared."""

import json
from pathlib import Path

from runbook.serving.boot import Boot
from runbook.workspace import Workspace, write_whole

MOST_ROWS = 200


def path(work: Workspace) -> Path:
    """Where it lies."""
    return work.root / "boots.jsonl"


def read(work: Workspace) -> list[Boot]:
    """Every row that can be read, oldest first; a line that a kill or a full disk cut short is passed over."""
    try:
        lines = path(work).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [boot for line in lines if (boot := _row(line))]


def append(work: Workspace, boot: Boot) -> None:
    """Add a start; of more than ``MOST_ROWS`` the oldest go. The file is always whole, the old one or the new."""
    rows = [*read(work), boot][-MOST_ROWS:]
    write_whole(path(work), "".join(json.dumps(one.row()) + "\n" for one in rows))


def _row(line: str) -> Boot | None:
    try:
        return Boot.of(json.loads(line))
    except ValueError:
        return None
