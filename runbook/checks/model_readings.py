"""What the MODEL checks share: the examined checkpoint, and the verdict that follows from its faults."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from runbook.checkpoint.faults import Fault
from runbook.model import Answer, Evidence, Fix, Risk, fail, ok, unknown, warn
from runbook.parse import checkpoint
from runbook.parse.checkpoint import Checkpoint
from runbook.probe import Probe, Ran
from runbook.probes import questions

CONFIG = "{model}/config.json"
FILES = "{model}/*"
EXAMINE = questions.run(checkpoint.ARGV)
SHOWN = 5  # faults a finding shows; one cause often has many
FETCH = Fix(
    "Generate or fetch again the files that are named; what is whole is kept",
    ("runbook run 07_model",),
    Risk.DATA,
)

Seen = Callable[[Checkpoint], Sequence[Evidence]]


def config_json(host: Probe) -> dict[str, Any] | None:
    """The object in config.json; None when there is none."""
    try:
        config = json.loads(host.read_text(CONFIG) or "")
    except (ValueError, RecursionError):
        return None
    return config if isinstance(config, dict) else None


def examined(host: Probe) -> Checkpoint | Answer:
    """The checkpoint of this machine, or the unknown that says why it could not be examined."""
    ran = host.run(checkpoint.ARGV, checkpoint.TIMEOUT_S)
    found = checkpoint.checkpoint(ran.out) if ran.ok else None
    return found if found is not None else unread(ran)


def unread(ran: Ran) -> Answer:
    """The unknown for an examination that gave no answer."""
    last = ran.err.strip().splitlines()[-1:]
    why = ["it did not end in time"] if ran.timed_out else last or [f"exit code {ran.rc}, and no JSON"]
    return unknown(f"the checkpoint could not be examined: {why[0]}", Evidence("exit code", ran.rc, EXAMINE))


def judged(host: Probe, subject: str, part: str, seen: Seen, fix: Fix) -> Answer:
    """The verdict on the faults of a subject. ``part``: the facts that must have been read for an ok to say something."""
    found = examined(host)
    if isinstance(found, Answer):
        return found
    faults = found.of(subject)
    if not faults and not found.part(part):
        return unknown(f"the examination says nothing of {part}", Evidence("faults", 0, EXAMINE))
    return verdict(faults, seen(found), fix, EXAMINE)


def verdict(faults: Sequence[Fault], seen: Sequence[Evidence], fix: Fix, origin: str) -> Answer:
    """Fail for a fault that keeps the checkpoint from being served rightly, warn for a mild one, else ok."""
    # Those that count first: a reader sees SHOWN of them.
    ordered = sorted(faults, key=lambda one: one.mild)
    shown = [Evidence(one.kind, f"{one.file} {one.text}", origin) for one in ordered[:SHOWN]]
    if len(ordered) > SHOWN:
        shown.append(Evidence("more faults", len(ordered) - SHOWN, origin))
    if not ordered:
        return ok(*seen)
    if ordered[0].mild:
        return warn(*seen, *shown, reason=f"{ordered[0].file} {ordered[0].text}")
    return fail(*seen, *shown, fix=fix)
