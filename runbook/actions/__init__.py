"""What changes a machine, and only inside the workspace: build a target, make a model, start and stop a server.

Each action can say what it would do (``plan``) without doing it, knows when nothing is to be done, and can be repeated.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from runbook.actions.jobs import Owner
from runbook.pins import Stack
from runbook.workspace import Workspace

Say = Callable[[str], None]


@dataclass(frozen=True)
class Context:
    """What actions work on. ``python`` is the target interpreter; ``ours`` is False when the user named it."""

    work: Workspace
    stack: Stack
    python: Path
    ours: bool
    model: str
    owner: Owner
    deadline_s: int


class Action(Protocol):
    """A change in the workspace that can be planned, carried out, and carried out again."""

    def plan(self) -> list[str]:
        """Lines saying what would be done, or that nothing is to do. Changes nothing."""

    def apply(self, say: Say) -> None:
        """Do it; ``say`` is given a line now and then.

        Raises:
            ActionFailed: it could not be done.
        """
