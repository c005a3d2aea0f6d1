"""The ledger and what a verification found, as text of 80 columns, as JSON, and as the page docs/claims.md. Pure."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from runbook.claims.ledger import RELEASE, Claim, Layer, Verdict
from runbook.claims.probes.base import Outcome
from runbook.claims.verify import OURS, Asked, outcome
from runbook.report import plain, wrapped

LABEL = 10
PAGE_HEAD = f"""# Claims

What three published articles (000, 003 and 004 of the ledger) say about serving Qwen3.5 with vLLM {RELEASE}, and what is so.
The entries lie in [runbook/claims](../runbook/claims); this page is made of them by `runbook claims --format markdown` and
a test keeps the two the same. `runbook claims verify` asks the environments of this workspace again, `runbook claims show ID`
prints one entry with its evidence, its sources and the probes by which its verdict stands or falls.

A truth is one of vLLM {RELEASE}; where another release was measured too, the entry says so. In the column "probes": how many
readings a machine can take again, "-" where none can.
"""


def listing(claims: Sequence[Claim]) -> str:
    """One claim a paragraph by layer, then the counts."""
    lines: list[str] = []
    for layer, group in _by_layer(claims):
        lines += [layer.value, *(_line(one) for one in group), ""]
    return "\n".join([*lines, counted(claims)])


def _line(one: Claim) -> str:
    head = f"  {one.id}  {one.verdict.value:20}"
    return wrapped(one.claim, head, " " * len(head))


def counted(claims: Sequence[Claim]) -> str:
    """How many there are, by verdict, and how many have a probe."""
    by_verdict = Counter(one.verdict for one in claims)
    said = ", ".join(f"{by_verdict[each]} {each.value}" for each in Verdict if by_verdict[each])
    probed = sum(bool(one.probes) for one in claims)
    return wrapped(f"{len(claims)} claims: {said or 'none'}; {probed} with probes")


def shown(one: Claim) -> str:
    """A whole entry."""
    rows = [
        ("claim", one.claim),
        ("truth", one.truth),
        *((f"on {versions}", said) for versions, said in one.elsewhere.items()),
        ("evidence", one.evidence),
        *(("source", each) for each in one.sources),
        ("checks", ", ".join(f"runbook explain {each}" for each in one.checks) or "none"),
    ]
    lines = [f"{one.id}  {one.verdict.value}  ({one.layer.value}, article {one.article}, {one.date})"]
    lines += [_labelled(label, said) for label, said in rows]
    for probe in one.probes:
        given = probe.model_dump(mode="json", by_alias=True, exclude_unset=True)
        words = ", ".join(
            f"{name} {json.dumps(value, ensure_ascii=False)}"
            for name, value in given.items()
            if name != "kind"
        )
        lines.append(_labelled("probe", f"{given['kind']}: {words}"))
    again = (
        f"runbook claims verify {one.id}" if one.probes else "no machine can decide this; see the evidence"
    )
    return "\n".join([*lines, _labelled("again", again)])


def _labelled(label: str, words: str) -> str:
    head = f"  {label:{LABEL}}"
    head += "" if head.endswith(" ") else "  "
    # A probe may hold words of a machine or a shell line; nothing in them may move the cursor.
    return wrapped(plain(words), head, " " * (LABEL + 2))


def json_text(claims: Sequence[Claim]) -> str:
    """The entries as ``{"schema": "claims/1", "claims": [...]}``."""
    rows = [one.model_dump(mode="json", by_alias=True, exclude_unset=True) for one in claims]
    return (
        json.dumps({"schema": "claims/1", "release": RELEASE, "claims": rows}, indent=1, ensure_ascii=False)
        + "\n"
    )


def verified(asked: Sequence[Asked], *, every: bool) -> str:
    """Drifts first, then (for ``every``) all readings, then what could not be asked, and the counts by place."""
    lines: list[str] = []
    for one in asked:
        reading = one.reading
        if reading.outcome is Outcome.DRIFTED or every:
            lines += [
                wrapped(one.claim.claim, f"{reading.outcome.value:11}{one.claim.id}  ", " " * 17),
                *(
                    _reading(label, words)
                    for label, words in (
                        ("where", one.place),
                        ("expected", reading.expected),
                        ("seen", reading.seen),
                        ("by hand", reading.origin),
                    )
                ),
            ]
    if lines:
        lines.append("")
    silent = Counter(
        (one.place, one.reading.seen)
        for one in asked
        if one.reading.outcome is Outcome.CANNOT_RUN and not every
    )
    lines += [
        wrapped(f"{why} ({count})", f"cannot run  {place}: ", " " * 12)
        for (place, why), count in silent.items()
    ]
    return "\n".join([*lines, *_counts(asked)])


def _reading(label: str, words: str) -> str:
    return wrapped(plain(" ".join(words.split())), f"  {label:9}", " " * 11)


def _counts(asked: Sequence[Asked]) -> list[str]:
    places = dict.fromkeys(one.place for one in asked)
    lines = (
        [f"{'':20} {'claims':>7} {'stand':>7} {'drifted':>8} {'cannot run':>11} {'probes':>7}"]
        if places
        else []
    )
    for place in places:
        here = [one for one in asked if one.place == place]
        lines.append(_row(place, here))
    if len(places) > 1:
        lines.append(_row("in all", asked))
    return lines or ["no probe is meant for what is here"]


def _row(name: str, asked: Sequence[Asked]) -> str:
    by_claim = _outcomes(asked)
    have = Counter(by_claim.values())
    return (
        f"{name:20} {len(by_claim):7} {have[Outcome.STANDS]:7} {have[Outcome.DRIFTED]:8} "
        f"{have[Outcome.CANNOT_RUN]:11} {len(asked):7}"
    )


def _outcomes(asked: Iterable[Asked]) -> dict[str, Outcome]:
    by_claim: dict[str, list[Asked]] = {}
    for one in asked:
        by_claim.setdefault(one.claim.id, []).append(one)
    return {name: outcome(each) for name, each in by_claim.items()}


def verified_json(asked: Sequence[Asked]) -> str:
    """``{"schema": "claims-verified/1", "outcome", "claims": {id: outcome}, "readings": [...]}``."""
    rows: list[dict[str, Any]] = [
        {
            "claim": one.claim.id,
            "verdict": one.claim.verdict.value,
            "place": one.place,
            "kind": one.probe.model_dump()["kind"],
            "outcome": one.reading.outcome.value,
            "expected": one.reading.expected,
            "seen": one.reading.seen,
            "origin": one.reading.origin,
        }
        for one in asked
    ]
    by_claim = {name: each.value for name, each in sorted(_outcomes(asked).items())}
    whole = {
        "schema": "claims-verified/1",
        "outcome": outcome(asked).value,
        "claims": by_claim,
        "readings": rows,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def page(claims: Sequence[Claim]) -> str:
    """docs/claims.md: the claims by layer."""
    lines = [PAGE_HEAD, f"{counted(claims)}\n".replace("\n", " ").strip(), ""]
    for layer, group in _by_layer(claims):
        lines += [
            f"## {layer.value}",
            "",
            "| id | said | verdict | so it is | checks | probes |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        lines += [_cells(one) for one in group]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _cells(one: Claim) -> str:
    checks = ", ".join(f"[{each}](../runbook/explain/{each}.md)" for each in one.checks)
    truth = " ".join([one.truth, *(f"On {versions}: {said}" for versions, said in one.elsewhere.items())])
    cells = (one.id, one.claim, one.verdict.value, truth, checks or "-", str(len(one.probes) or "-"))
    return "| " + " | ".join(_cell(each) for each in cells) + " |"


def _cell(words: str) -> str:
    """Text of a table's cell: one line, no border of its own, no tag that a browser would take for one."""
    return " ".join(words.split()).replace("|", "\\|").replace("<", "&lt;")


def _by_layer(claims: Sequence[Claim]) -> Iterable[tuple[Layer, list[Claim]]]:
    order = list(Layer)
    ranked = sorted(claims, key=lambda one: (order.index(one.layer), one.id))
    return ((layer, list(group)) for layer, group in groupby(ranked, key=lambda one: one.layer))


__all__ = ["OURS", "counted", "json_text", "listing", "page", "shown", "verified", "verified_json"]
