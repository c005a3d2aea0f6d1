"""One finding, many faces: text of 80 columns, JSON by its schema, JUnit that counts alike, HTML that is one safe file."""

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import junitparser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import runbook
from runbook import engine, probe, report
from runbook.checks import ALL, BY_ID
from runbook.model import Evidence, Finding, Fix, Layer, Risk, Source, Verdict
from runbook.probes.replay import ReplayProbe, load

SCHEMA = json.loads(
    (Path(runbook.__file__).parent / "schemas" / "findings.schema.json").read_text(encoding="utf-8")
)
SOURCE = Source("a page", "https://example.org/page", "2026-11-30")
RECORDED = engine.run(ALL, ALL, ReplayProbe(load("cpu-2core"), "vllm-0.32.0-cpu"))


def made(verdict: Verdict = Verdict.FAIL, *evidence: Evidence, **more: Any) -> Finding:
    fields: dict[str, Any] = {
        "id": "CUDA-001", "layer": Layer.CUDA, "title": "The driver is new enough", "why": "It would fail later.", "verdict": verdict, "evidence": evidence,
        "fix": Fix("Install a newer one", ("sudo apt-get install nvidia-driver-580-server",), Risk.REBOOT, "install the old one") if verdict is Verdict.FAIL else None,
        "reason": "", "waived": False, "duration_s": 0.1, "stack": "", "source": SOURCE,
    }  # fmt: skip
    return Finding(**{**fields, **more})


# Text


def test_text_of_a_failure() -> None:
    one = made(
        Verdict.FAIL,
        Evidence("driver", "470.1", "run nvidia-smi"),
        Evidence("needed", "525.60.13", "stacks/x/manifest.toml"),
    )
    assert (
        report.text(one)
        == """\
FAIL    CUDA-001    The driver is new enough
        driver  470.1      run nvidia-smi
        needed  525.60.13  stacks/x/manifest.toml
        why     It would fail later.
        fix     Install a newer one (risk: reboot)
                $ sudo apt-get install nvidia-driver-580-server
        undo    install the old one
        more    runbook explain CUDA-001"""
    )


def test_commands_to_paste_name_the_places_of_this_machine() -> None:
    one = made(Verdict.FAIL, fix=Fix("Install it", ("uv pip install --python {python} X", "ls {site}")))
    told = report.text(one, {"{python}": "/v/bin/python"})
    assert "$ uv pip install --python /v/bin/python X\n" in told
    assert "$ ls {site}\n" in told
    assert report.legend(told, {"{site}": "/v/lib"}) == "{site}   the target's packages: /v/lib"
    assert report.legend(told, {}) == "{site}   the target's packages"
    assert report.legend("no placeholder, {odd}", {"{odd}": "/x"}) == ""


def test_every_placeholder_of_a_question_is_explained() -> None:
    assert set(report.STANDS_FOR) == set(re.findall(r"``(\{\w+\})``", probe.__doc__ or "")) - {"{port}"}


def test_brief_has_fails_first_and_layers_in_order() -> None:
    low, high = made(Verdict.WARN, id="HOST-001", layer=Layer.HOST), made(Verdict.FAIL, id="CUDA-001")
    later, odd = made(Verdict.FAIL, id="PY-003", layer=Layer.PY), made(Verdict.UNKNOWN, id="HOST-002")
    told = report.brief([made(Verdict.OK), low, odd, high, later], {})
    assert re.findall(r"(?m)^(?:FAIL|WARN|UNKNOWN|OK) +(\S+)", told) == [
        "CUDA-001",
        "PY-003",
        "HOST-002",
        "HOST-001",
    ]


def test_text_of_the_others() -> None:
    assert report.text(made(Verdict.OK, Evidence("driver", "580", "x"))).splitlines() == [
        "OK      CUDA-001    The driver is new enough",
        "        driver  580  x",
    ]
    assert report.text(made(Verdict.SKIP, reason="no GPU")).splitlines()[1:] == ["        because no GPU"]
    unknown = report.text(made(Verdict.UNKNOWN, reason="not read"))
    assert "        why     It would fail later." in unknown
    assert "        more    runbook explain CUDA-001" in unknown
    assert "waived  shown as warn" in report.text(made(Verdict.WARN, waived=True))


def test_values_as_they_are_shown() -> None:
    assert [report.show(each) for each in (None, True, False, 0, 1.50, 6.49e-07, "a", "")] == [
        "not read",
        "yes",
        "no",
        "0",
        "1.5",
        "6.49e-07",
        "a",
        "",
    ]


def test_a_long_value_is_wrapped_and_a_command_is_not() -> None:
    command = "docker run --gpus all " + "--env A=b " * 12
    one = made(
        Verdict.FAIL, Evidence("error", "word " * 40, "inside torch_facts"), fix=Fix("Do it", (command,))
    )
    lines = report.text(one).splitlines()
    assert f"                $ {command}" in lines
    assert all(len(line) <= 80 for line in lines if "$ " not in line)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.lists(st.builds(Evidence, st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=40), st.text(max_size=200) | st.integers() | st.floats() | st.booleans() | st.none(), st.text(st.characters(categories=["L"]), max_size=120)), max_size=4),
    st.sampled_from(list(Verdict)),
)  # fmt: skip
def test_no_evidence_is_lost_in_text(evidence: list[Evidence], verdict: Verdict) -> None:
    text = report.text(made(verdict, *evidence, fix=None))
    whole = "".join(text.split())
    for each in evidence:
        assert "".join(report.show(each.value).split()) in whole
    assert text.startswith(verdict.value.upper())


def test_text_of_every_recorded_finding_is_80_columns() -> None:
    for one in RECORDED:
        for line in report.text(one).splitlines():
            words = line.strip()
            # A word longer than its column stays whole: a path cut in two is a path nobody can paste.
            assert len(line) <= 80 or len(words) > 60 or words.startswith("$ "), line


def test_summary() -> None:
    some = [
        made(Verdict.OK),
        made(Verdict.FAIL, id="CUDA-002"),
        made(Verdict.SKIP, id="CUDA-003"),
        made(Verdict.SKIP, id="CUDA-004"),
    ]
    assert (
        report.summary(some)
        == "1 ok, 0 warn, 1 fail, 2 skip, 0 unknown of 4 findings\nfail    CUDA-002\nskip    CUDA-003 CUDA-004"
    )
    assert report.summary([]) == "0 ok, 0 warn, 0 fail, 0 skip, 0 unknown of 0 findings"


def test_listing() -> None:
    lines = report.listing(ALL).splitlines()
    assert len(lines) == len(ALL)
    assert lines[0].split()[:2] == ["START-001", "static"]


# JSON


@pytest.mark.parametrize("verdict", Verdict)
def test_json_is_as_the_schema_says(verdict: Verdict) -> None:
    one = made(
        verdict,
        Evidence("a", None),
        Evidence("b", value=True),
        Evidence("c", 1.5),
        Evidence("d", "\u00e4\n"),
        reason="r",
    )
    rows = json.loads(report.json_text([one]))
    jsonschema.validate(rows, SCHEMA)
    assert rows[0]["evidence"][3]["value"] == "\u00e4\n"
    assert rows[0]["fix"] == ({"text": "Install a newer one", "commands": ["sudo apt-get install nvidia-driver-580-server"], "risk": "reboot", "undo": "install the old one"} if verdict is Verdict.FAIL else None)  # fmt: skip


def test_json_of_every_recorded_finding() -> None:
    rows = json.loads(report.json_text(RECORDED))
    jsonschema.validate(rows, SCHEMA)
    assert [row["id"] for row in rows] == [one.id for one in RECORDED]


def test_the_schema_can_refuse() -> None:
    row = report.as_json(made())
    for name, value in (("verdict", "green"), ("id", "cuda-1"), ("schema", "findings/2"), ("layer", "GPU")):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate([{**row, name: value}], SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate([{name: value for name, value in row.items() if name != "reason"}], SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate([{**row, "more": 1}], SCHEMA)


def test_numbers_that_json_has_not() -> None:
    """A NaN is evidence of a broken card; its JSON must be one that every reader takes."""
    text = report.json_text(
        [made(Verdict.FAIL, Evidence("error", float("nan")), Evidence("most", float("inf")))]
    )

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    rows = json.loads(text, parse_constant=refuse)
    jsonschema.validate(rows, SCHEMA)


def test_a_finding_never_made_is_a_row_all_the_same() -> None:
    row = report.not_run(BY_ID["TORCH-001"], "s", "the page 04_torch was not reached")
    jsonschema.validate([row], SCHEMA)
    assert (row["verdict"], row["stack"], row["reason"]) == (
        "unknown",
        "s",
        "not run: the page 04_torch was not reached",
    )


# JUnit


def test_junit_counts_as_the_findings_do() -> None:
    some = [
        made(verdict, Evidence("a", '<b> & "c"', "x"), id=f"CUDA-00{number}", reason="r")
        for number, verdict in enumerate(Verdict)
    ]
    xml = junitparser.JUnitXml.fromstring(report.junit_text(report.as_json(one) for one in some).encode())
    assert (xml.tests, xml.failures, xml.errors, xml.skipped) == (5, 1, 1, 1)
    cases = {case.name.split()[0]: case for suite in xml for case in suite}
    assert cases["CUDA-002"].result[0].message == 'r a=<b> & "c" fix: Install a newer one'
    assert cases["CUDA-000"].system_out == 'a=<b> & "c"'


def test_junit_has_a_suite_for_each_layer_and_stack() -> None:
    rows = [
        report.as_json(each) for each in (made(), made(stack="s"), made(stack="t"), made(layer=Layer.HOST))
    ]
    xml = junitparser.JUnitXml.fromstring(report.junit_text(rows).encode())
    assert [suite.name for suite in xml] == ["CUDA", "CUDA s", "CUDA t", "HOST"]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.text(max_size=60), st.sampled_from([Verdict.OK, Verdict.FAIL, Verdict.UNKNOWN, Verdict.SKIP]))
def test_junit_of_odd_text_can_be_read(text: str, verdict: Verdict) -> None:
    """A log line with a control character is evidence; a report that no CI can read is none."""
    made_text = report.junit_text([report.as_json(made(verdict, Evidence("line", text), reason=text))])
    assert junitparser.JUnitXml.fromstring(made_text.encode()).tests == 1


# HTML


class Page(HTMLParser):
    """What a page has."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


RUN = {
    "schema": "run/1",
    "runbook": "0.1.0",
    "begun": "2026-11-30T05:00:00+00:00",
    "machine": "recorded:cpu-2core",
    "target": "",
    "parameters": {},
    "steps": [],
}


def page_of(rows: list[dict[str, Any]]) -> tuple[str, Page]:
    pages: list[dict[str, Any]] = [
        {"page": "02_cuda", "stack": "vllm-0.32.0-cpu", "state": "done", "seconds": 1.5, "rows": rows},
        {"page": "04_torch", "stack": "vllm-0.32.0-cpu", "state": "not run", "seconds": None, "rows": []},
    ]
    text = report.html_text(pages, RUN, 3)
    page = Page()
    page.feed(text)
    return text, page


def test_html_is_one_file_without_scripts() -> None:
    _, page = page_of([report.as_json(one) for one in RECORDED])
    assert "script" not in page.tags
    assert not {"img", "iframe", "object", "embed"} & set(page.tags)
    assert "link" not in page.tags
    whole = "".join(page.texts)
    for one in RECORDED:
        assert one.id in whole
        assert one.title in whole


def test_html_escapes_what_a_machine_said() -> None:
    evil = "<script>alert('x')</script><img src=x onerror=y>"
    text, page = page_of(
        [
            report.as_json(
                made(Verdict.FAIL, Evidence(evil, evil, evil), reason=evil, fix=Fix(evil, (evil,), undo=evil))
            )
        ]
    )
    assert "script" not in page.tags
    assert "img" not in page.tags
    assert html.escape(evil, quote=False).split("&#39;")[0][:12] in text
    assert evil in "".join(page.texts)


def test_html_says_how_many() -> None:
    _, page = page_of(
        [report.as_json(made(verdict, id=f"CUDA-00{number}")) for number, verdict in enumerate(Verdict)]
    )
    assert {"ok", "warn", "fail", "skip", "unknown"} <= {
        word.strip(" :,") for text in page.texts for word in text.lower().split()
    }


def test_explain_pages() -> None:
    assert (report.explain_page("CUDA-001") or "").startswith("# CUDA-001")
    assert report.explain_page("CUDA-999") is None
    assert report.explain_page("") is None
