"""Findings as text, JSON, JUnit and HTML. Pure: values in, text out; nothing is printed or asked here.

The text form is what a reader, a log and nbval see: 80 columns, no colour, the same on every machine.
"""

import json
import math
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from runbook.model import FINDINGS_SCHEMA, Check, Evidence, Finding, Verdict

WIDTH = 80
EXPLAIN = Path(__file__).parent / "explain"


# What the placeholders in questions and commands stand for (``probe.py`` has them all).
STANDS_FOR = {
    "{python}": "the target's interpreter",
    "{site}": "the target's packages",
    "{prefix}": "the target's folder",
    "{model}": "the folder of the model",
    "{work}": "the workspace",
    "{own}": "the runbook's own programs",
    "{disk}": "the workspace's disk",
    "{home}": "your home folder",
}


def text(one: Finding, places: Mapping[str, str] = MappingProxyType({})) -> str:
    """One finding: verdict line, evidence with origins, then reason, why and fix where they help.

    ``places`` are those of the machine at hand: a command to paste names them instead of placeholders.
    """
    tag = f"{one.verdict.value.upper():7} {one.id:11} "
    lines = [wrapped(one.title, tag, " " * len(tag))]
    if one.waived:
        lines.append(_labelled("waived", "shown as warn because it was waived by name"))
    if one.evidence:
        lines += _table(one.evidence)
    if one.reason:
        lines.append(_labelled("because", one.reason))
    if one.verdict in (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN):
        lines.append(_labelled("why", one.why))
        if one.fix:
            lines.append(_labelled("fix", f"{one.fix.text} (risk: {one.fix.risk.value})"))
            lines += [_raw("", _placed(command, places)) for command in one.fix.commands]
            if one.fix.undo:
                lines.append(_labelled("undo", one.fix.undo))
        lines.append(_labelled("more", f"runbook explain {one.id}"))
    return "\n".join(lines)


def _placed(command: str, places: Mapping[str, str]) -> str:
    for name, place in places.items():
        command = command.replace(name, place)
    return command


def legend(printed: str, places: Mapping[str, str]) -> str:
    """What the placeholders in ``printed`` stand for, one line each, with their place where it is known; "" for none."""
    rows = [
        f"{name:8} {said}" + (f": {places[name]}" if name in places else "")
        for name, said in STANDS_FOR.items()
        if name in printed
    ]
    return "\n".join(rows)


def brief(findings: Sequence[Finding], places: Mapping[str, str]) -> str:
    """What is not well, worst first, and how each layer came out."""
    told = [text(one, places) for one in worst_first(findings)]
    where = "(each finding with its readings: runbook check --evidence, or name a layer)"
    return "\n".join([*told, "", by_layer(findings), where])


def ending(findings: Iterable[Finding], printed: str, places: Mapping[str, str]) -> str:
    """What follows the findings that were ``printed``: the placeholders in them, the counts."""
    meant = legend(printed, places)
    return (f"\n{meant}\n" if meant else "") + "\n" + summary(findings)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Those that are not well: fails from the lowest layer up, then what is not known, then what works at a price."""
    order = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WARN)
    return sorted((one for one in findings if one.verdict in order), key=lambda one: order.index(one.verdict))


def _table(evidence: Sequence[Evidence]) -> list[str]:
    """Name, value, origin in columns; an origin too long for its line follows once below the rows that share it.

    It is cut to one line there; the JSON form has it whole.
    """
    names = min(max(len(one.name) for one in evidence), 30)
    values = min(max(len(show(one.value)) for one in evidence), 28)
    lines: list[str] = []
    for place, one in enumerate(evidence):
        head = f"        {one.name:{names}}  "
        whole = f"{head}{show(one.value):{values}}  {one.origin}".rstrip()
        if len(whole) <= WIDTH:
            lines.append(whole)
            continue
        value = textwrap.wrap(show(one.value), WIDTH - len(head), break_on_hyphens=False) or [""]
        lines += [head + value[0], *(" " * len(head) + line for line in value[1:])]
        if one.origin and one.origin != next((later.origin for later in evidence[place + 1 :]), None):
            lines.append(f"          ({_cut(one.origin, WIDTH - 12)})")
    return lines


def _cut(words: str, width: int) -> str:
    return words if len(words) <= width else f"{words[: width - 4]} ..."


def show(value: str | float | bool | None) -> str:  # noqa: FBT001
    """A value as every face prints it."""
    if value is None:
        return "not read"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _labelled(label: str, words: str) -> str:
    return wrapped(words, f"        {label:7} ", " " * 16)


def labelled(label: str, words: str) -> str:
    """A row of a plan or an answer that is no finding: a label of ten columns and prose beside it."""
    return wrapped(words, f"{label:10} ", " " * 11)


def _raw(label: str, line: str) -> str:
    # A command is pasted as it is: never wrapped, even when it is long.
    return f"        {label:7} $ {line}"


def plain(words: str) -> str:
    """A line from a machine, such as a file's name, without what would move the cursor or cannot be printed."""
    return words if words.isprintable() else "".join(one if one.isprintable() else "?" for one in words)


def wrapped(words: str, first: str = "", rest: str = "") -> str:
    """Prose in 80 columns, its first line behind ``first`` and the others behind ``rest``."""
    return textwrap.fill(
        words,
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
        break_long_words=False,
    )


def summary(findings: Iterable[Finding]) -> str:
    """Counts by verdict, then the ids that are not ok, one line a verdict."""
    every = list(findings)
    counts = Counter(one.verdict for one in every)
    lines = [
        ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict) + f" of {len(every)} findings"
    ]
    for verdict in (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WARN, Verdict.SKIP):
        ids = [one.id for one in every if one.verdict is verdict]
        if ids:
            lines.append(wrapped(" ".join(ids), f"{verdict.value:8}", " " * 8))
    return "\n".join(lines)


def by_layer(findings: Iterable[Finding]) -> str:
    """How each layer came out, one line a layer: what a look at everything shows besides the findings that are not ok."""
    every = list(findings)
    rows = []
    for layer in dict.fromkeys(one.layer for one in every):
        counts = Counter(one.verdict for one in every if one.layer is layer)
        rows.append(
            f"{layer.value:8}"
            + "".join(f"{counts[each]:4} {each.value:8}" for each in Verdict if counts[each])
        )
    return "\n".join(row.rstrip() for row in rows)


def listing(checks: Iterable[Check]) -> str:
    """The checks there are, one line each: id, cost, title."""
    return "\n".join(f"{one.id:11} {one.cost.value:7} {one.title}" for one in checks)


def as_json(one: Finding) -> dict[str, Any]:
    """One finding as the JSON object that ``schemas/findings.schema.json`` describes."""
    return {
        "schema": FINDINGS_SCHEMA,
        "id": one.id,
        "layer": one.layer.value,
        "stack": one.stack,
        "title": one.title,
        "verdict": one.verdict.value,
        "waived": one.waived,
        "reason": one.reason,
        "why": one.why,
        "evidence": [
            {"name": each.name, "value": _finite(each.value), "origin": each.origin} for each in one.evidence
        ],
        "fix": None
        if one.fix is None
        else {
            "text": one.fix.text,
            "commands": list(one.fix.commands),
            "risk": one.fix.risk.value,
            "undo": one.fix.undo,
        },
        "source": {"title": one.source.title, "url": one.source.url, "read": one.source.read},
        "duration_s": one.duration_s,
    }


def _finite(value: str | float | bool | None) -> str | float | bool | None:  # noqa: FBT001 - a value is no switch
    """JSON has no NaN and no infinity; as words they survive every reader."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def json_text(findings: Iterable[Finding]) -> str:
    """The JSON list of findings."""
    return (
        json.dumps([as_json(one) for one in findings], indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    )


def junit_text(rows: Iterable[dict[str, Any]]) -> str:
    """JUnit XML of findings in their JSON form: fail is a failure, unknown an error, skip is skipped."""
    from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite  # noqa: PLC0415 - only when asked for

    suites: dict[str, Any] = {}
    for row in rows:
        name = row["layer"] + (f" {row['stack']}" if row["stack"] else "")
        suite = suites.setdefault(name, TestSuite(name))
        case = TestCase(
            f"{row['id']} {row['title']}", classname=f"runbook.{row['layer']}", time=row["duration_s"]
        )
        seen = _xml("; ".join(f"{each['name']}={show(each['value'])}" for each in row["evidence"]))
        if row["verdict"] == "fail":
            case.result = [Failure(_xml(f"{row['reason']} {seen} fix: {row['fix']['text']}".strip()))]
        elif row["verdict"] == "unknown":
            case.result = [Error(_xml(row["reason"]) or seen)]
        elif row["verdict"] == "skip":
            case.result = [Skipped(_xml(row["reason"]))]
        else:
            case.system_out = seen
        suite.add_testcase(case)
    xml = JUnitXml("runbook")
    for suite in suites.values():
        xml.add_testsuite(suite)
    xml.update_statistics()
    text_form: bytes | str = xml.tostring()
    return text_form.decode() if isinstance(text_form, bytes) else text_form


def _xml(words: str) -> str:
    """Without the characters that XML 1.0 has no place for (https://www.w3.org/TR/xml/#charsets), such as escapes."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", words)


def not_run(check: Check, stack: str, why: str) -> dict[str, Any]:
    """The JSON row of an expected finding that was never made: unknown, never silently absent."""
    reason = f"not run: {why}"
    missing = Finding(
        check.id, check.layer, check.title, check.why, Verdict.UNKNOWN, (), None, reason, waived=False, duration_s=0.0, stack=stack, source=check.source
    )  # fmt: skip
    return as_json(missing)


def html_text(pages: list[dict[str, Any]], run: dict[str, Any], code: int) -> str:
    """The report of a run: one file, no script, nothing fetched.

    Each page is ``{"page", "stack", "state", "seconds", "rows"}``, its rows findings in their JSON form; ``run`` is run.json, ``code`` the
    exit code.
    """
    environment = templates()
    environment.filters["show"] = show
    counts = Counter(row["verdict"] for page in pages for row in page["rows"])
    verdicts = [verdict.value for verdict in Verdict]
    text: str = environment.get_template("report.html").render(
        pages=pages,
        run=run,
        code=code,
        counts=counts,
        total=counts.total(),
        verdicts=verdicts,
        served=_served(pages),
    )
    return text


def templates() -> Any:  # noqa: ANN401 - jinja2 is imported when asked for
    """An environment for what lies in ``runbook/templates``: everything is escaped, and a name that is missing is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - only when asked for

    return Environment(
        loader=PackageLoader("runbook"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _served(pages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a reader asks first, per stack that served: taken from the evidence of findings that passed."""
    wanted = {
        ("SERVE-002", "version"): "version",
        ("WARM-001", "model"): "model",
        ("WARM-001", "ready after (s)"): "ready",
        ("WARM-004", "first request (s)"): "first",
        ("WARM-004", "steady median (s)"): "steady",
        ("WARM-007", "first with logprobs (s)"): "logprobs",
        ("SERVE-006", "TTFT (s)"): "ttft",
        ("SERVE-006", "median ITL (s)"): "itl",
        ("SERVE-005", "content"): "said",
    }
    stacks: dict[str, dict[str, Any]] = {}
    for page in pages:
        for row in page["rows"]:
            if row["verdict"] in (Verdict.OK.value, Verdict.WARN.value):
                for each in row["evidence"]:
                    if name := wanted.get((row["id"], each["name"])):
                        stacks.setdefault(page["stack"], {"stack": page["stack"]})[name] = each["value"]
    return [facts for facts in stacks.values() if "said" in facts]


def explain_page(check_id: str) -> str | None:
    """The page of a check id, or None when there is none."""
    path = EXPLAIN / f"{check_id}.md"
    return path.read_text(encoding="utf-8") if path.exists() else None
