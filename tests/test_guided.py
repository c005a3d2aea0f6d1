"""The guided forms: every step in order, stopped at the first that is guilty, and unknown is not innocent."""

from pathlib import Path
from typing import Any

import pytest

from runbook import connect, guided
from runbook.checks import BY_ID
from runbook.errors import BadParameter, NotRecorded
from runbook.model import Finding, Verdict
from runbook.probes.cached import CachedProbe
from runbook.triage import steps
from runbook.workspace import Workspace


def walked(name: str, machine: str, home: Path) -> tuple[list[str], dict[str, Finding]]:
    findings: dict[str, Finding] = {}
    host = CachedProbe(connect.probe(f"recorded:{machine}", "auto", "", Workspace(home)))
    return list(guided.walked(name, host, findings)), findings


@pytest.mark.parametrize("name", steps.BY_NAME)
def test_every_step_names_checks_that_exist(name: str) -> None:
    asked = [check for step in steps.BY_NAME[name] for check in step.checks]
    assert set(asked) <= set(BY_ID)
    assert len(asked) == len(set(asked))


@pytest.mark.parametrize("name", steps.BY_NAME)
def test_a_sound_machine_walks_to_the_end(name: str, tmp_path: Path) -> None:
    lines, findings = walked(name, "h200-vllm-0.19.1", tmp_path)
    form = steps.BY_NAME[name]
    assert [line for line in lines if line[:1].isdigit()] == [
        f"{n}. {one.asks}" for n, one in enumerate(form, 1)
    ]
    assert {check for step in form for check in step.checks} <= set(findings)
    assert any(line.startswith("no step is guilty; ") for line in lines)


def test_it_stops_at_the_first_guilty_step(tmp_path: Path) -> None:
    lines, findings = walked("golden", "h200-driver-470", tmp_path)
    guilty = next(one for one in findings.values() if one.verdict.value == "fail")
    assert guilty.id in steps.GOLDEN[0].checks
    assert lines[-1].startswith("stopped at step 1")
    assert "TRIAGE-001" not in findings
    assert any(line.startswith(f"FAIL    {guilty.id}") for text in lines for line in text.splitlines())


class Silent:
    """A machine of which nothing was recorded."""

    machine, stack, has_target = "recorded:silent", "vllm-0.19.1-cu128", True

    def _gap(self, *_: Any, **__: Any) -> Any:
        raise NotRecorded("no answer")

    run = read_text = glob = env = inside = http = _gap


def test_what_could_not_be_asked_is_not_innocent() -> None:
    findings: dict[str, Finding] = {}
    lines = list(guided.walked("golden", Silent(), findings))
    assert {one.verdict for one in findings.values()} <= {Verdict.UNKNOWN, Verdict.SKIP}
    assert " ".join(lines[lines.index("") :]).startswith(" no step is guilty; 0 of ")
    assert "unknown, so not innocent: DRIVER-001," in lines[-1]


def test_what_a_check_rests_on_is_guilty_before_it(tmp_path: Path) -> None:
    """vLLM is not installed: the check of its device is only skipped, and the cause is named all the same."""
    host = CachedProbe(connect.probe("recorded:h200-x2-docker", "auto", "", Workspace(tmp_path)))
    findings: dict[str, Finding] = {}
    form = (steps.Step("Does vLLM load?", ("VLLM-004",)),)
    lines = list(guided.walked("golden", host, findings, form))
    assert findings["VLLM-004"].verdict is Verdict.SKIP
    assert any(line.startswith("FAIL    VLLM-002") for text in lines for line in text.splitlines())
    assert lines[-1].startswith("stopped at step 1")


def test_an_unknown_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match="no guided form"):
        walked("silver", "cpu-2core", tmp_path)
