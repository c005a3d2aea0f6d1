"""The short load of page 09 goes on, each load as long as the one before was quick, until enough was read to name a limit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from loads import step

from runbook import pins
from runbook.actions import Context
from runbook.actions.jobs import Owner
from runbook.actions.validating import MOST, QUICK, QUICK_S, QUICK_TRIES, Asked, Loads, Validate
from runbook.serving import limits
from runbook.serving.load import Step
from runbook.serving.reading import Reading
from runbook.workspace import Workspace

ENOUGH = 2 * limits.FEWEST
SLOW = step()


def put(home: Path, *measured: tuple[Step, int], dead: str = "") -> list[Any]:
    """What is put on a server of which each load is measured so, with so many readings under it."""
    stack = pins.stack("vllm-0.19.1-cpu")
    ctx = Context(Workspace(home), stack, home / "python", ours=True, model=stack.model, owner=Owner.of(), deadline_s=1)  # fmt: skip
    asked: list[Any] = []
    coming = iter(measured)

    class Measured(Loads):
        def put(self, one: Any, by: Any = None) -> Step:
            assert by is None
            asked.append(one)
            found, readings = next(coming)
            self.rows.append([Reading(at=float(at), running=4.0) for at in range(readings)])
            return found

        def _dead(self) -> str:
            return dead

    unused: Any = (
        None  # what would load and watch a server: put() and _dead() alone use it, and stand in here
    )
    loads = Measured(Validate(ctx, Asked(quick=True)), unused, unused, unused, unused, unused)
    steps, features, pair = loads.all()
    assert (len(steps), features, pair) == (len(asked), [], [])
    return asked


def test_enough_at_once(tmp_path: Path) -> None:
    assert [one.number for one in put(tmp_path, (SLOW, ENOUGH))] == [QUICK["cpu"]]


def test_a_first_load_that_was_held_up_does_not_set_the_length(tmp_path: Path) -> None:
    quick = replace(SLOW, seconds=SLOW.seconds / 20)
    asked = put(tmp_path, (SLOW, 2), (quick, 4), (quick, ENOUGH))
    assert [one.number for one in asked][1:] == [
        max(QUICK["cpu"], min(MOST, round(each.rps * QUICK_S))) for each in (SLOW, quick)
    ]
    assert len({one.seed for one in asked}) == len(asked)


def test_it_ends(tmp_path: Path) -> None:
    assert len(put(tmp_path, *[(SLOW, 1)] * 9)) == QUICK_TRIES
    assert len(put(tmp_path, (SLOW, 0), dead="it died")) == 1
