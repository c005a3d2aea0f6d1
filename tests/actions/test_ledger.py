"""The ledger survives what a kill leaves, and does not grow for ever."""

from pathlib import Path

import pytest

from runbook.actions import ledger
from runbook.serving.boot import Boot, Phase
from runbook.workspace import Workspace


def boot(number: int) -> Boot:
    return Boot("2026-11-30T00:00:00+00:00", f"server.{number}", "s", "m", {}, float(number), (Phase("imports", 1.0, 0.1, "lines"),))  # fmt: skip


def test_no_ledger_yet(tmp_path: Path) -> None:
    assert ledger.read(Workspace(tmp_path)) == []


def test_rows_come_back_in_their_order(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    for number in range(3):
        ledger.append(work, boot(number))
    assert ledger.read(work) == [boot(number) for number in range(3)]


def test_only_the_last_rows_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MOST_ROWS", 3)
    work = Workspace(tmp_path)
    for number in range(5):
        ledger.append(work, boot(number))
    assert [one.server for one in ledger.read(work)] == ["server.2", "server.3", "server.4"]


@pytest.mark.parametrize("torn", ["", "{", '{"at": "x"}', "7", "null", "\x00\xff"])
def test_a_torn_line_costs_one_row_at_most(tmp_path: Path, torn: str) -> None:
    work = Workspace(tmp_path)
    ledger.append(work, boot(1))
    with ledger.path(work).open("a", encoding="utf-8") as file:
        file.write(torn)
    assert ledger.read(work) == [boot(1)]
    ledger.append(work, boot(2))
    assert ledger.read(work) == [boot(1), boot(2)]
