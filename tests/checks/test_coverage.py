"""docs/coverage.md is what its data say, and what the data call caught is caught: by the check, on such a machine."""

from typing import Any

import covered
import pytest
from cases import ALL
from host import Case, found

from runbook.checks import BY_ID
from runbook.model import Cost, Verdict
from runbook.probe import Ran
from runbook.report import explain_page

ROWS = covered.rows()
CAUGHT = [one for one in ROWS if one["check"]]
STOPPED = [one for one in ROWS if "stops_at" in one]
WELL = (Verdict.FAIL, Verdict.WARN)


def changed(value: Any, edits: list[list[str]], used: set[str]) -> Any:
    """An answer with the reporter's numbers in place of the row's."""
    if isinstance(value, str):
        for old, new in edits:
            if old in value:
                used.add(old)
                value = value.replace(old, new)
        return value
    if isinstance(value, list | tuple):
        return type(value)(changed(one, edits, used) for one in value)
    if isinstance(value, dict):
        return {changed(key, edits, used): changed(one, edits, used) for key, one in value.items()}
    if isinstance(value, Ran):
        out, err = changed(value.out, edits, used), changed(value.err, edits, used)
        return Ran(value.argv, value.rc, out, err, value.missing, value.timed_out)
    return value


def machine(row: dict[str, Any], check: str) -> tuple[Case, dict[str, Any]]:
    """The guilty row of the check's table, and its answers with the edits; each edit must have changed something."""
    case = next((one for one in ALL if (one.id, one.name) == (check, row["row"])), None)
    assert case, f"{row['id']}: no row {row['row']!r} of {check} in tests/checks/cases_*.py"
    used: set[str] = set()
    answers: dict[str, Any] = changed(dict(case.answers), row.get("edits", []), used)
    assert used == {old for old, _ in row.get("edits", [])}, f"{row['id']}: edits without effect"
    return case, answers


@pytest.mark.parametrize("row", CAUGHT, ids=lambda row: row["id"])
def test_what_counts_as_caught_is_caught_with_its_cause(row: dict[str, Any]) -> None:
    case, answers = machine(row, row["check"])
    finding = found(row["check"], answers, case.stack)
    assert finding.verdict in WELL, finding
    fix = finding.fix
    told = [finding.reason, fix.text if fix else "", *(fix.commands if fix else ())]
    told += [f"{one.name} {one.value}" for one in finding.evidence]
    assert row["names"] in "\n".join(told), finding


@pytest.mark.parametrize("row", [one for one in STOPPED if "row" in one], ids=lambda row: row["id"])
def test_what_is_stopped_without_its_cause_is_stopped(row: dict[str, Any]) -> None:
    case, answers = machine(row, row["stops_at"])
    assert found(row["stops_at"], answers, case.stack).verdict in WELL


def test_every_check_that_is_named_exists_and_has_a_page() -> None:
    named = {one["check"] for one in CAUGHT} | {one["stops_at"] for one in STOPPED}
    assert sorted(named - set(BY_ID)) == []
    assert [name for name in sorted(named) if explain_page(name) is None] == []


def test_a_check_that_catches_needs_no_running_server() -> None:
    assert [one["id"] for one in CAUGHT if BY_ID[one["check"]].cost not in (Cost.STATIC, Cost.INSIDE)] == []


def test_the_data_are_whole() -> None:
    ids = [one["id"] for one in ROWS]
    assert len(ids) == len(set(ids))
    for one in ROWS:
        assert one["layer"] in covered.LAYERS
        assert one["before_start"] is (one["check"] is not None)
        assert one["how"].endswith(".")
        assert ("names" in one) is (one["check"] is not None)


def test_the_page_is_what_the_data_say() -> None:
    assert covered.PAGE.read_text(encoding="utf-8") == covered.page(ROWS), (
        "docs/coverage.md is of other data: python tests/checks/covered.py --write"
    )
