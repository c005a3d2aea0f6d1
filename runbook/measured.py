"""What was measured on a server, written where checks read it: ``jobs/server.<kind>.json`` of the workspace.

Each file names the start of the server it was measured on (the job's marker), so figures of an earlier one are never
taken for those of the one that runs. A start of another server does away with them.
"""

import datetime
import json
from pathlib import Path
from typing import Any

from runbook.workspace import Workspace, write_whole

SERVER = "server"
KINDS = ("boot", "warm", "load", "rollout", "soak", "limits")


def path(work: Workspace, kind: str) -> Path:
    """The file of a kind.

    Raises:
        ValueError: no such kind.
    """
    if kind not in KINDS:
        raise ValueError(kind)
    return work.jobs / f"{SERVER}.{kind}.json"


def write(work: Workspace, kind: str, marker: str, facts: dict[str, Any]) -> None:
    """Write what was measured on the server with that marker, with the time (UTC)."""
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    work.jobs.mkdir(parents=True, exist_ok=True)
    write_whole(path(work, kind), json.dumps({"server": marker, "at": now, **facts}, indent=1) + "\n")


def forget(work: Workspace) -> None:
    """Do away with all of it: a new server is being started."""
    for kind in KINDS:
        path(work, kind).unlink(missing_ok=True)
