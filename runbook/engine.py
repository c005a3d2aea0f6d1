"""Run checks against a probe: order by ``requires``, time each, turn a crash into an unknown. Prints nothing."""

import re
import time
from collections.abc import Callable, Iterable, Mapping

from runbook.errors import BadParameter, NotRecorded
from runbook.model import Answer, Check, Cost, Finding, Verdict, skip, unknown, warn
from runbook.probe import Probe

PASSED = (Verdict.OK, Verdict.WARN)
# How a skip that came from a required check begins; one that comes from that skip repeats it and names the first cause.
BLOCKED = re.compile(r"[A-Z]+-\d{3} is ")


def select(checks: Iterable[Check], names: Iterable[str], limit: Cost) -> tuple[Check, ...]:
    """The checks named by id or by layer prefix (all when none is named) of cost up to ``limit``, in their order.

    A check named by its whole id is taken whatever it costs.

    Raises:
        BadParameter: a name is neither an id nor a layer.
    """
    every = tuple(checks)
    wanted = {name.upper() for name in names}
    known = {one.id for one in every} | {one.layer.value for one in every}
    if strange := sorted(wanted - known):
        layers = sorted({one.layer.value for one in every})
        raise BadParameter(
            f"no check or layer {', '.join(strange)}",
            f"an id such as {every[0].id}, or one of {', '.join(layers)}",
            "runbook check --list",
        )
    if not wanted:
        return tuple(one for one in every if one.cost.within(limit))
    return tuple(
        one for one in every if one.id in wanted or (one.layer.value in wanted and one.cost.within(limit))
    )


def with_required(chosen: Iterable[Check], every: Iterable[Check]) -> tuple[Check, ...]:
    """``chosen`` and all they require, each after what it requires.

    Raises:
        ValueError: a required id does not exist, or checks require each other in a circle (our own bug).
    """
    by_id = {one.id: one for one in every}
    ordered: dict[str, Check] = {}

    def add(one: Check, above: tuple[str, ...]) -> None:
        if one.id in above:
            raise ValueError(f"checks require each other in a circle: {' -> '.join((*above, one.id))}")
        for need in one.requires:
            if need not in by_id:
                raise ValueError(f"{one.id} requires {need}, which does not exist")
            add(by_id[need], (*above, one.id))
        ordered.setdefault(one.id, one)

    for one in chosen:
        add(one, ())
    return tuple(ordered.values())


def judge(one: Check, host: Probe, earlier: Mapping[str, Finding], waived: bool = False) -> Finding:  # noqa: FBT001, FBT002
    """The finding of one check; ``earlier`` holds those of what it requires."""
    started = time.perf_counter()
    answer = _blocked(one, host, earlier) or _ask(one, host)
    demoted = waived and answer.verdict is Verdict.FAIL
    if demoted:
        answer = warn(*answer.evidence, fix=answer.fix, reason=answer.reason or "waived")
    return Finding(
        one.id, one.layer, one.title, one.why, answer.verdict, answer.evidence, answer.fix, answer.reason, demoted,
        round(time.perf_counter() - started, 3), host.stack if one.needs_target else "", one.source,
    )  # fmt: skip


def _blocked(one: Check, host: Probe, earlier: Mapping[str, Finding]) -> Answer | None:
    if one.needs_target and not host.has_target:
        return skip(
            "there is no target environment to examine (runbook run builds one; --target PYTHON names one)"
        )
    for need in one.requires:
        before = earlier[need]
        if before.verdict in PASSED:
            continue
        if BLOCKED.match(before.reason):
            return skip(before.reason)
        because = f": {before.reason}" if before.reason and before.verdict is not Verdict.FAIL else ""
        return skip(f"{need} is {before.verdict.value}{because}")
    return None


def _ask(one: Check, host: Probe) -> Answer:
    try:
        return one.judge(host)
    except NotRecorded as gap:
        return unknown(gap.seen)
    except Exception as why:  # noqa: BLE001 - a check that breaks must not take the others with it, and is never green
        return unknown(
            f"the check itself broke ({type(why).__name__}: {why}); this says nothing about the machine"
        )


def run(
    chosen: Iterable[Check],
    every: Iterable[Check],
    host: Probe,
    *,
    waive: Iterable[str] = (),
    seen: Callable[[Finding], None] = lambda _: None,
) -> list[Finding]:
    """Judge ``chosen`` and what they require; ``seen`` is called with each finding as it is made."""
    waived = set(waive)
    findings: dict[str, Finding] = {}
    for one in with_required(chosen, every):
        findings[one.id] = judge(one, host, findings, one.id in waived)
        seen(findings[one.id])
    return list(findings.values())


def exit_code(findings: Iterable[Finding], expected: Iterable[tuple[str, str]] = ()) -> int:
    """0 all ok, warn or skip; 1 a fail; 3 an unknown, nothing judged at all, or an expected (id, stack) missing."""
    every = list(findings)
    verdicts = {one.verdict for one in every}
    if Verdict.FAIL in verdicts:
        return 1
    have = {(one.id, one.stack) for one in every}
    if Verdict.UNKNOWN in verdicts or not verdicts & set(PASSED) or set(expected) - have:
        return 3
    return 0
