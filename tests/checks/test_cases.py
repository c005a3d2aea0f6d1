"""Every check is judged guilty and innocent: literal readings in, verdict and evidence out."""

import shutil
from collections import defaultdict
from pathlib import Path

import cases
import pytest
from host import FAIL, OK, SKIP, UNKNOWN, WARN, Case, evidence, found

from runbook import launch, pins
from runbook.checks import ALL, BY_ID
from runbook.model import Verdict

CASES = cases.ALL
# Checks without a guilty case, each with the reason. Empty now: every check can be failed or warned about.
NEVER_GUILTY: dict[str, str] = {}


@pytest.fixture
def _edited_stack(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case: Case = request.getfixturevalue("case")
    if not case.manifest:
        return
    text = (pins.STACKS / case.stack / "manifest.toml").read_text(encoding="utf-8")
    for old, new in case.manifest:
        assert old in text
        text = text.replace(old, new)
    (tmp_path / case.stack).mkdir()
    (tmp_path / case.stack / "manifest.toml").write_text(text, encoding="utf-8")
    shutil.copy(pins.STACKS / case.stack / "flags.json", tmp_path / case.stack)
    monkeypatch.setattr(pins, "STACKS", tmp_path)
    monkeypatch.setattr(launch, "STACKS", tmp_path)


@pytest.mark.usefixtures("_edited_stack")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_verdict_and_evidence(case: Case) -> None:
    finding = found(case.id, case.answers, case.stack, built=case.built)
    words = f"{finding.reason} {finding.fix.text if finding.fix else ''} {finding.fix.commands if finding.fix else ''}"
    assert finding.verdict is case.verdict, finding
    have = evidence(finding)
    assert {name: have.get(name, "no such evidence") for name in case.evidence} == case.evidence
    assert case.says in words
    # A break is an unknown too, but never the one a case asks for.
    assert "the check itself broke" not in finding.reason, finding.reason


@pytest.mark.usefixtures("_edited_stack")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_finding_is_fit_to_be_shown(case: Case) -> None:
    finding = found(case.id, case.answers, case.stack, built=case.built)
    if finding.verdict is FAIL:
        assert finding.fix
    if finding.verdict in (SKIP, UNKNOWN):
        assert finding.reason
    if finding.verdict is OK:
        assert finding.evidence, "a claim without evidence"
    for each in finding.evidence:
        assert each.name
        assert isinstance(each.value, str | int | float | bool | None), each
        assert not isinstance(each.value, str) or "\n" not in each.value, each


def test_every_check_is_innocent_once_and_guilty_once() -> None:
    seen: dict[str, set[Verdict]] = defaultdict(set)
    for case in CASES:
        seen[case.id].add(case.verdict)
    assert set(seen) == set(BY_ID)
    assert [one.id for one in ALL if OK not in seen[one.id]] == []
    assert {one.id for one in ALL if not seen[one.id] & {WARN, FAIL}} == set(NEVER_GUILTY)


def test_names_are_unique() -> None:
    names = [str(case) for case in CASES]
    assert len(names) == len(set(names))
