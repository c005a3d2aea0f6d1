"""What goes to others when something fails: findings, environment, logs, and a text ready for a vLLM issue. Pure.

Everything passes one ``Numbered`` redactor before it is rendered, so a secret can reach no file by another way, and
what is ours (ids, verdicts, keys of causes) never passes it: no user's name can hide a verdict.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

from runbook import report
from runbook.errors import BadParameter
from runbook.model import Evidence, Finding, Fix, Layer, Risk, Source, Verdict
from runbook.params import PAGES
from runbook.parse import vllm_log
from runbook.redact import Numbered
from runbook.tarball import MANIFEST, sha256
from runbook.triage.text import plain

SCHEMA = "bundle/1"
HEAD, TAIL = 256 << 10, 1 << 20
"""What is kept of a log: the start of a vLLM server fits into the first, a hundred tracebacks into the second."""

MOST_CHANGES = 3
ISSUE_LIMIT = 60_000
"""Characters; the body of an issue on GitHub may have 65,536."""

ENVIRONMENT_LIMIT = 30_000
MOST_LINES = 12
LINE_LIMIT = 400
LONGEST_NAME = 60
"""Of a reading, as far as a line of text has room for it; a folder given with --run may hold anything."""

MIXED = 50
"""One control character in so many is more than any log has: such a file is compressed or binary."""

# Fields whose values are the runbook's own words.
OURS = frozenset({"schema", "id", "layer", "verdict", "risk", "waived", "stack", "key", "confidence", "colour", "checks", "begun", "runbook", "title", "why", "url", "read", "sources"})  # fmt: skip
_CONTROL = re.compile("[\x01-\x07\x0b\x0e-\x1a\x1c-\x1f\x7f]")


@dataclass(frozen=True)
class Log:
    """A log as it was found, cut in the middle when it was long. ``left_out`` counts the bytes that were cut."""

    name: str
    text: str
    left_out: int = 0


@dataclass(frozen=True)
class Gathered:
    """What was found. ``rows`` are findings in their JSON form, made by ``source``; ``run`` is what run.json says of them.

    ``ended`` are the journal's events, ``chosen`` says how the environment was found, ``triage`` is the JSON form of one.
    """

    rows: list[dict[str, Any]]
    source: str
    run: dict[str, Any]
    ended: Sequence[Mapping[str, Any]] = ()
    environment: str = ""
    chosen: str = ""
    logs: Sequence[Log] = ()
    triage: dict[str, Any] | None = None


@dataclass(frozen=True)
class Item:
    """One file of the bundle. ``replaced`` counts tokens by kind, ``changed`` shows a few lines as they now read."""

    name: str
    origin: str
    content: bytes
    replaced: Mapping[str, int] = field(default_factory=dict)
    changed: Sequence[tuple[int, str]] = ()
    left_out: int = 0


def excerpt(stream: BinaryIO, name: str, head: int = HEAD, tail: int = TAIL) -> Log:
    """The beginning and the end of a log of any size, at constant memory; whole lines, with a line where it was cut.

    Raises:
        BadParameter: it is no text, so no secret could be found in it.
    """
    first, last, size = stream.read(head), b"", 0
    size = len(first)
    while part := stream.read(tail):
        size += len(part)
        last = (last + part)[-tail:]
    if len(first) + len(last) < size:
        # A token that the cut halves would be no token any more: what is left of its line, or word, goes too.
        first, last = _whole_before(first), _whole_after(last)
        left = size - len(first) - len(last)
        raw = b"%s[runbook bundle: %d bytes are left out here]\n%s" % (first, left, last)
    else:
        left, raw = 0, first + last
    # PowerShell writes UTF-16. Bytes that are no UTF-8 come through as they are.
    wide = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}.get(raw[:2])
    text = raw[2:].decode(wide, "replace") if wide else raw.decode("utf-8", "surrogateescape")
    if len(_CONTROL.findall(text)) * MIXED > len(text):
        raise BadParameter(
            f"{name} is no text: in a compressed or binary file no secret can be found",
            "a plain log",
            f"gunzip -k {name}, or leave it out",
        )
    return Log(name, text, left)


def _whole_before(part: bytes) -> bytes:
    return part[: max(part.rfind(b"\n"), part.rfind(b" ") if b"\n" not in part else -1) + 1]


def _whole_after(part: bytes) -> bytes:
    at = part.find(b"\n")
    return part[at + 1 :] if at >= 0 else part.partition(b" ")[2]


def made(found: Gathered, redact: Numbered, version: str) -> tuple[Item, ...]:
    """The files, the manifest last. ``redact`` is used up: what it learns in a first reading counts in the second.

    Raises:
        BadParameter: the rows are no findings.
    """
    findings = [_finding(row) for row in found.rows]
    _redacted(found, redact)
    seen = redact.again()
    items = _redacted(found, seen)
    rows = _shown(json.loads(items[0].content))
    run = _shown(seen.tree({"begun": "", "machine": "", "target": "", "runbook": version, "parameters": {}} | found.run, OURS))  # fmt: skip
    code = next((code for one, code in (("fail", 1), ("unknown", 3)) if any(row["verdict"] == one for row in rows)), 0)  # fmt: skip
    origin = "rendered from the redacted findings.json"
    texts = {item.name: visible(item.content.decode(errors="replace")) for item in items}
    said = _shown(json.loads(texts["triage.json"])) if "triage.json" in texts else None
    logs = {name: text for name, text in texts.items() if name.startswith("logs/")}
    words = issue([_finding(row) for row in rows], texts["environment.txt"], logs, said)
    items += [
        Item("junit.xml", origin, report.junit_text(rows).encode()),
        Item("report.html", origin, report.html_text(pages(rows, found.ended), run, code).encode()),
        Item("issue.md", "written from the redacted files", words.encode()),
    ]
    html = _html(findings=[_finding(row) for row in rows], run=run, source=seen(found.source), items=items, triage=said, issue=words, environment=texts["environment.txt"], logs=logs)  # fmt: skip
    items.append(Item("bundle.html", "rendered from the redacted files", html.encode()))
    items.sort(key=lambda item: item.name)
    assert [one.verdict for one in findings] == [Verdict(row["verdict"]) for row in rows]  # noqa: S101 - a sanitiser that hides a verdict is worse than none
    return (*items, Item(MANIFEST, "of the other files", _manifest(items, seen(found.source), version)))


def _redacted(found: Gathered, redact: Numbered) -> list[Item]:
    """The files that hold what was found, redacted in an order that is always the same."""
    items = []

    def take(name: str, origin: str, old: str, new: Callable[[], str], left_out: int = 0) -> None:
        before = Counter(redact.counts)
        text = new()
        replaced = dict(sorted((redact.counts - before).items()))
        content = text.encode("utf-8", "surrogateescape")
        items.append(Item(name, origin, content, replaced, _changes(old, text), left_out))

    take(
        "findings.json", redact(found.source), _json(found.rows), lambda: _json(redact.tree(found.rows, OURS))
    )
    text = found.environment.encode(errors="replace").decode()
    take("environment.txt", f"runbook collect: {redact(found.chosen)}", text, lambda: redact(text))
    taken: set[str] = set()
    for log in found.logs:
        name = _name(redact(Path(log.name).name), taken)
        take(name, redact(log.name), log.text, lambda text=log.text: redact(text), log.left_out)  # type: ignore[misc]
    if (said := found.triage) is not None:
        take("triage.json", "runbook triage of the logs", _json(said), lambda: _json(redact.tree(said, OURS)))
    return items


def _changes(old: str, new: str) -> list[tuple[int, str]]:
    """A few of the lines that were changed, one for each kind of placeholder first."""
    if old == new:
        return []
    changed = [
        (number, after)
        for number, (before, after) in enumerate(zip(old.split("\n"), new.split("\n"), strict=True), 1)
        if before != after
    ]
    kinds: dict[str, int] = {}
    for at, (_, line) in enumerate(changed):
        for kind in re.findall(r"[<\[]([a-z-]+)-\d+[>\]]", line) or ["home"]:
            kinds.setdefault(kind, at)
    chosen = [*dict.fromkeys(kinds.values()), *range(len(changed))]
    return [changed[at] for at in sorted(list(dict.fromkeys(chosen))[:MOST_CHANGES])]


def _name(base: str, taken: set[str]) -> str:
    """A name in the bundle that is no other's: ``logs/server.log``, ``logs/server-2.log``."""
    path = Path(re.sub(r"[^\w.+-]", "_", base, flags=re.ASCII).lstrip(".") or "log")
    name, number = f"logs/{path.name}", 1
    while name in taken:
        number += 1
        name = f"logs/{path.stem}-{number}{path.suffix}"
    taken.add(name)
    return name


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def visible(text: str) -> str:
    """A text to be looked at: no terminal codes; control and direction characters by their numbers."""
    lines = re.sub(r"\r\n?", "\n", text).split("\n")
    return "\n".join(line if line.isprintable() else plain(line) for line in lines)


def _shown(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, list):
        return [_shown(one) for one in value]
    if isinstance(value, dict):
        return {key: _shown(one) for key, one in value.items()}
    return value


def _finding(row: Mapping[str, Any]) -> Finding:
    """A finding from its JSON form.

    Raises:
        BadParameter: it is none.
    """
    try:
        fix = row["fix"] and Fix(
            row["fix"]["text"], tuple(row["fix"]["commands"]), Risk(row["fix"]["risk"]), row["fix"]["undo"]
        )
        return Finding(
            row["id"], Layer(row["layer"]), row["title"], row["why"], Verdict(row["verdict"]), tuple(Evidence(one["name"][:LONGEST_NAME], one["value"], one["origin"]) for one in row["evidence"]),
            fix, row["reason"], waived=bool(row["waived"]), duration_s=float(row["duration_s"]), stack=row["stack"],
            source=Source(row["source"]["title"], row["source"]["url"], row["source"]["read"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as why:
        raise BadParameter(
            f"a finding that cannot be read ({type(why).__name__}: {why})",
            "findings.json of a run folder of this release",
            "runbook run, or runbook bundle without --run",
        ) from why


def pages(rows: Sequence[Mapping[str, Any]], ended: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """The rows by the page that asked, as ``report.html_text`` takes them; ``ended`` are a journal's events."""
    page_of = {layer.value: spec.name for spec in PAGES for layer in spec.layers}
    ends = {(row["page"], row["stack"]): row for row in ended if row["event"] == "page-end"}
    found = []
    for page, group in groupby(rows, key=lambda row: page_of.get(row["layer"], row["layer"])):
        asked = list(group)
        named = {one["stack"] for one in asked}
        end = next((ends[page, stack] for stack in sorted(named, reverse=True) if (page, stack) in ends), None)  # fmt: skip
        # Findings about the machine alone name no stack; the page's end does.
        end = end or next((one for (name, _), one in ends.items() if name == page), None)
        seconds = end["duration_s"] if end else sum(one["duration_s"] for one in asked)
        stack = str(end["stack"]) if end else max(named)
        found.append({"page": page, "stack": stack, "state": end["state"] if end else "asked", "seconds": seconds, "rows": asked})  # fmt: skip
    return found


def issue(
    findings: Sequence[Finding], environment: str, logs: Mapping[str, str], triage: Mapping[str, Any] | None
) -> str:
    """A text to paste into vLLM's form for bugs. Whatever a machine or a log said stands in fences: nobody is pinged."""
    told = [report.text(one) for one in report.worst_first(findings)]
    asked = "\n".join([*told, "", report.by_layer(findings)]) if findings else "no check was made"
    lines = list(_telling(logs, triage))
    text = "\n".join(
        (
            "### Your current environment\n",
            "<details>\n<summary>The output of <code>runbook collect</code> (the form's own labels)</summary>\n",
            _fenced(_cut(environment, ENVIRONMENT_LIMIT)),
            "\n</details>\n",
            "### 🐛 Describe the bug\n",
            "<!-- What you did, what you expected and what came instead. -->\n",
            "What the logs say:\n",
            _fenced("\n".join(lines) if lines else "no line of an error was found"),
            "\nWhat checks of the machine found not well:\n",
            _fenced(_cut(asked, ISSUE_LIMIT - ENVIRONMENT_LIMIT - 10_000)),
            "\nLogs, findings and their hashes are in the attached bundle; secrets, names and addresses are replaced by numbered placeholders.",
        )
    )
    return text + "\n"


def _telling(logs: Mapping[str, str], triage: Mapping[str, Any] | None) -> Iterator[str]:
    """The lines that say what went wrong: the causes of a triage, else each log's root line and its errors."""
    if triage is not None:
        yield f"verdict: {triage['verdict']}"
        for one in triage.get("causes", [])[:3]:
            yield f"{one['key']} ({one['confidence']} by the log): {one['why']}"
            yield f"  {_cut(_place(one), LINE_LIMIT)}"
        for one in triage.get("telling", [])[:MOST_LINES]:
            yield f"  {_cut(_place(one), LINE_LIMIT)}"
        return
    for name, text in logs.items():
        root = vllm_log.root_line(text)
        errors = [line for line in vllm_log.errors(text) if line.strip()][:MOST_LINES]
        if root or errors:
            yield f"{name}:"
        if root:
            yield f"  {_cut(root, LINE_LIMIT)}"
        yield from (f"  {_cut(line, LINE_LIMIT)}" for line in dict.fromkeys(errors) if line != root)


def _place(one: Mapping[str, Any]) -> str:
    where = f"{one.get('file') or ''}:{one.get('line')}".lstrip(":")
    return f"{where}  {one.get('text', '')}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} ... ({len(text) - most} characters more)"


def _fenced(text: str) -> str:
    """A code block that its content cannot end."""
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text.rstrip()}\n{fence}"


def _manifest(items: Sequence[Item], source: str, version: str) -> bytes:
    rows = [_row(item) for item in items]
    return _json({"schema": SCHEMA, "runbook": version, "source": source, "files": rows}).encode()


def _row(item: Item) -> dict[str, Any]:
    return {
        "name": item.name,
        "size": len(item.content),
        "sha256": sha256(item.content),
        "origin": item.origin,
        "left_out": item.left_out,
        "replaced": dict(item.replaced),
    }


def _html(**facts: Any) -> str:  # noqa: ANN401 - what the template takes
    environment = report.templates()
    environment.filters["counted"] = _counted
    environment.filters["amount"] = amount
    counts = Counter(one.verdict.value for one in facts["findings"])
    worst = [(one, report.text(one)) for one in report.worst_first(facts["findings"])]
    rows = [_row(item) for item in sorted(facts["items"], key=lambda item: item.name)]
    text: str = environment.get_template("bundle.html").render(
        **facts, counts=counts, worst=worst, rows=rows, verdicts=[one.value for one in Verdict]
    )
    return text


def _counted(replaced: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in replaced.items())


def amount(size: int) -> str:
    """Bytes as a reader wants them."""
    for factor, unit in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size} B"


def preview(items: Sequence[Item]) -> str:
    """What would leave: each file with its size and what was replaced, and a few lines as they would leave."""
    lines = []
    width = max(len(item.name) for item in items)
    for item in items:
        lines.append(
            f"  {item.name:{width}} {amount(len(item.content)):>13}  {_counted(item.replaced)}".rstrip()
        )
        if item.left_out:
            lines.append(f"      the middle is left out: {amount(item.left_out)}")
        lines += [f"      line {number}: {_around(visible(line))}" for number, line in item.changed]
    replaced: Counter[str] = Counter()
    for item in items:
        replaced.update(item.replaced)
    lines.append(f"\nreplaced: {_counted(dict(sorted(replaced.items()))) or 'nothing'}")
    return "\n".join(lines)


def _around(line: str) -> str:
    """The part of a line with its first placeholder."""
    found = re.search(r"[<\[][a-z-]+-\d+[>\]]|~", line)
    start = max(0, (found.start() if found else 0) - 30)
    part = line[start : start + 62]
    return f"{'...' if start else ''}{part.strip()}{'...' if start + 62 < len(line) else ''}"


def as_json(items: Sequence[Item]) -> list[dict[str, Any]]:
    """The preview as JSON: the rows of the manifest, with the lines."""
    return [
        {**_row(item), "changed": [{"line": number, "now": visible(line)} for number, line in item.changed]}
        for item in items
    ]
