"""Reading what was measured on the server that runs: the files that ``runbook.measured`` writes."""

import json
from typing import Any

from runbook.model import Answer, unknown
from runbook.probe import Probe


def place(kind: str) -> str:
    """Where the file of a kind lies, as evidence names it."""
    return f"{{work}}/jobs/server.{kind}.json"


def of(host: Probe, kind: str, how: str) -> dict[str, Any] | Answer:
    """What was measured on the last server that was started; an unknown when that was not done (``how`` says by what)."""
    facts = _read(host, kind)
    if facts is None:
        return unknown(f"not measured on this server yet: {how}")
    boot = _read(host, "boot")
    if boot is None or facts.get("server") != boot.get("server"):
        return unknown(f"what was measured is of another start of the server: {how}")
    return facts


def _read(host: Probe, kind: str) -> dict[str, Any] | None:
    try:
        facts = json.loads(host.read_text(place(kind)) or "")
    except ValueError:
        return None
    return facts if isinstance(facts, dict) else None
