"""The guided forms of triage: a few checks in order, a line each, stopped at the first that is guilty."""

from collections.abc import Iterator, Mapping, MutableMapping, Sequence

from runbook import connect, engine, report
from runbook.checks import ALL, BY_ID
from runbook.errors import BadParameter
from runbook.model import Finding, Verdict
from runbook.probe import Probe
from runbook.triage import steps
from runbook.triage.steps import Step


def walked(
    name: str, host: Probe, findings: MutableMapping[str, Finding], form: Sequence[Step] = ()
) -> Iterator[str]:
    """Lines of a guided form; ``findings`` are those made so far, and what is judged here is put there.

    ``form`` gives other steps than those of the name.

    Raises:
        BadParameter: there is no form of that name.
    """
    if not form and name not in steps.BY_NAME:
        raise BadParameter(f"no guided form {name!r}", " or ".join(steps.BY_NAME), "name one of them")
    asked, not_answered = 0, []
    for number, step in enumerate(form or steps.BY_NAME[name], 1):
        yield f"{number}. {step.asks}"
        for check_id in step.checks:
            found = judged(check_id, host, findings)
            asked += 1
            yield _line(found)
            if guilty := _guilty(found, findings):
                yield ""
                yield report.text(guilty, connect.places(host))
                yield ""
                yield f"stopped at step {number}: mend this first, then walk the steps again"
                return
            if found.verdict in (Verdict.SKIP, Verdict.UNKNOWN):
                not_answered.append(found)
    yield ""
    yield f"no step is guilty; {asked - len(not_answered)} of {asked} checks could answer"
    if left := [one.id for one in not_answered if one.verdict is Verdict.UNKNOWN]:
        yield report.wrapped(f"unknown, so not innocent: {', '.join(left)}")


def judged(check_id: str, host: Probe, findings: MutableMapping[str, Finding]) -> Finding:
    """The finding of one check, with what it requires judged first."""
    for one in engine.with_required((BY_ID[check_id],), ALL):
        if one.id not in findings or one.id == check_id:
            findings[one.id] = engine.judge(one, host, findings)
    return findings[check_id]


def _line(found: Finding) -> str:
    says = {Verdict.SKIP: found.reason, Verdict.UNKNOWN: f"{found.title}: {found.reason}"}
    return report.wrapped(
        says.get(found.verdict, found.title), f"   {found.verdict.value:7} {found.id:10} ", " " * 22
    )


def _guilty(found: Finding, findings: Mapping[str, Finding]) -> Finding | None:
    """The finding itself, or one that it rests on: a check above a guilty one is only skipped."""
    chain = engine.with_required((BY_ID[found.id],), ALL)
    return next((findings[one.id] for one in chain if findings[one.id].verdict is Verdict.FAIL), None)
