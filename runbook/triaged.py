"""A triage as text and as JSON. The text form is plain: 80 columns but for lines of a log, no colour."""

from collections.abc import Sequence
from typing import Any

from runbook import report
from runbook.triage.judge import CAUSE, HEALTHY, NONE, Cause, Triage
from runbook.triage.scan import Place
from runbook.triage.signatures import COLOUR_NAMES

MOST_LINES = 8
EXIT = {HEALTHY: 0, CAUSE: 1, NONE: 3}
SCHEMA = "triage/1"

COLLECT = (
    "the log from its first line on, not only its end: VLLM_LOGGING_LEVEL=DEBUG says more",
    "what the machine itself says: runbook check",
    "the kernel's words: dmesg --ctime | grep -iE 'nvrm|xid|oom'",
    "all of it in one file for a report: runbook bundle",
)


def as_json(found: Triage) -> dict[str, Any]:
    """The JSON object that ``schemas/triage.schema.json`` describes; causes best first."""
    return {
        "schema": SCHEMA,
        "verdict": found.verdict,
        "reason": found.reason,
        "version": found.version,
        "lines": found.lines,
        "causes": [_cause(one) for one in found.causes],
        "telling": [_place(one) for one in _first(found.telling)],
        "after": [_place(one) for one in _first(found.after)],
        "past": [{"key": one.key, **_place(one.line)} for one in found.past],
        "refused": [{"key": one.key, **_place(one.line)} for one in found.refused],
    }


def _cause(one: Cause) -> dict[str, Any]:
    fix = one.signature.fix
    return {
        "key": one.key,
        "layer": one.signature.layer,
        "colour": one.signature.colour,
        "confidence": one.sure.value,
        **_place(one.line),
        "also": [_place(place) for place in one.also],
        "follows": one.follows or None,
        "why": one.signature.why,
        "fix": {
            "text": fix.text,
            "commands": list(fix.commands),
            "risk": fix.risk.value,
            "undo": fix.undo or None,
        },
        "checks": list(one.signature.checks),
        "machine": [
            {"id": reading.check, "verdict": reading.verdict.value, "text": reading.text}
            for reading in one.readings
        ],
        "sources": list(one.signature.sources),
    }


def _place(place: Place) -> dict[str, Any]:
    return {"file": place.source or None, "line": place.number, "text": place.line}


def as_text(found: Triage) -> str:
    """What a reader sees: the verdict, the first cause in full, the others by name, and what to do."""
    release = f", written by vLLM {found.version}" if found.version else ""
    lines = [f"{found.lines:,} line{'s' * (found.lines != 1)} read{release}"]
    if found.verdict == CAUSE:
        lines += _whole(found.causes[0], "CAUSE")
        if found.after:
            lines += ["", "lines that follow from it", *_listed(found.after)]
        lines += _others(found.causes[1:])
    elif found.causes:
        lines += ["", report.labelled("NO VERDICT", found.reason)]
        for one in found.causes[:2]:
            lines += _whole(one, "EITHER")
        lines += _others(found.causes[2:])
        lines += ["", "what helps to decide", *_items(COLLECT)]
    elif found.verdict == NONE:
        lines += ["", report.labelled("NO VERDICT", found.reason)]
        if found.telling:
            lines += ["", "the lines that tell most", *_listed(found.telling)]
        lines += ["", "what helps to find the cause", *_items(COLLECT)]
    else:
        lines += ["", report.labelled("HEALTHY", found.reason)]
    notes = [(one, "over: a later start came up, or the server was told to end") for one in found.past]
    notes += [
        (one, "a request was refused: the client's mistake, others were answered") for one in found.refused
    ]
    lines += [""] * bool(notes)
    for one, said in notes:
        lines += [report.labelled("note", f"{one.key} ({one.line.where}): {said}")]
    return "\n".join(lines) + "\n"


def _whole(one: Cause, label: str) -> list[str]:
    said = one.signature
    colour = COLOUR_NAMES[said.colour]
    rows = [
        "",
        report.labelled(
            label, f"{one.key} ({one.sure.value} by the log; layer {said.layer}, {said.colour}: {colour})"
        ),
        f"{one.line.where:10} {one.line.line}",
        *(f"{place.where:10} {place.line}" for place in one.also),
        report.labelled("why", said.why),
    ]
    rows += [
        report.labelled("machine", f"{reading.check} {reading.verdict.value}: {reading.text}")
        for reading in one.readings
    ]
    if one.confirmed:
        rows.append(report.labelled("", "confirmed by this machine"))
    elif one.denied:
        rows.append(
            report.labelled(
                "", "this machine does not show it: the log is of another one, or of another time"
            )
        )
    rows.append(report.labelled("fix", f"{said.fix.text} (risk: {said.fix.risk.value})"))
    rows += [f"{'':10} $ {command}" for command in said.fix.commands]
    if said.fix.undo:
        rows.append(report.labelled("undo", said.fix.undo))
    if said.checks and not one.readings:
        rows.append(report.labelled("ask", f"runbook check {' '.join(said.checks)}"))
    rows += [f"{'source' if not at else '':10} {source}" for at, source in enumerate(said.sources[:2])]
    return rows


def _others(causes: Sequence[Cause]) -> list[str]:
    if not causes:
        return []
    rows = ["", "other causes that the log speaks of"]
    for one in causes[:4]:
        because = f"follows from {one.follows}" if one.follows else one.sure.value
        rows.append(report.wrapped(f"{one.key} ({because}; {one.line.where})", "  ", " " * 11))
    return rows


def _listed(places: Sequence[Place]) -> list[str]:
    rows = [f"  {place.where:10} {place.line}" for place in _first(places)]
    left = len(places) - len(rows)
    return [*rows, f"  … and {left} more"] if left > 0 else rows


def _first(places: Sequence[Place]) -> list[Place]:
    """The first lines of what was said; the same words again count once."""
    told: dict[str, Place] = {}
    for place in places:
        told.setdefault(place.line[-60:], place)
    return list(told.values())[:MOST_LINES]


def _items(texts: Sequence[str]) -> list[str]:
    return [report.wrapped(text, "  - ", "    ") for text in texts]
