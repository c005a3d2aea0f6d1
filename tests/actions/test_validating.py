"""The short load of page 09 is put once more where the client was held up, and what the second try says counts."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from loads import step, window

from runbook import pins
from runbook.actions import Context
from runbook.actions.jobs import Owner
from runbook.actions.validating import Asked, Loads, Validate
from runbook.serving import load
from runbook.serving.load import Step
from runbook.workspace import Workspace

SOUND, HELD_UP = step(), step(server=window(40, grown={"e2e_sum": 4.0}))


@pytest.fixture
def quick(tmp_path: Path) -> Callable[..., tuple[list[Step], list[Any]]]:
    """The quick load over a server of which these steps are what is measured, one after another."""
    stack = pins.stack("vllm-0.19.1-cpu")
    ctx = Context(Workspace(tmp_path), stack, tmp_path / "python", ours=True, model=stack.model, owner=Owner.of(), deadline_s=1)  # fmt: skip

    def put(*measured: Step) -> tuple[list[Step], list[Any]]:
        asked: list[Any] = []
        coming: Iterator[Step] = itertools.chain(measured)

        class Measured(Loads):
            def put(self, one: Any, by: Any = None) -> Step:
                assert by is None
                asked.append(one)
                self.rows.append([])
                return next(coming)

        loads = Measured(Validate(ctx, Asked(quick=True)), None, None, None, None, lambda _: None)  # type: ignore[arg-type]
        return loads.all()[0], asked

    return put


def test_a_client_that_was_held_up_once(quick: Callable[..., tuple[list[Step], list[Any]]]) -> None:
    assert [doubt.kind for doubt in load.doubts(HELD_UP)] == [load.SLOW]
    steps, asked = quick(HELD_UP, SOUND, SOUND)
    assert steps == [SOUND, SOUND]  # the second, longer load follows as ever
    assert asked[0].seed != asked[1].seed
    assert asked[0].number == asked[1].number


def test_a_client_that_is_held_up_always(quick: Callable[..., tuple[list[Step], list[Any]]]) -> None:
    steps, asked = quick(HELD_UP, HELD_UP, HELD_UP, HELD_UP)
    assert (steps, len(asked)) == ([HELD_UP, HELD_UP], 4)


def test_a_sound_load_is_put_once(quick: Callable[..., tuple[list[Step], list[Any]]]) -> None:
    steps, asked = quick(SOUND, SOUND)
    assert (steps, len(asked)) == ([SOUND, SOUND], 2)
