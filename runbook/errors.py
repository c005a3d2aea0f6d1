"""The few errors a caller is meant to catch. Imports nothing of ours.

Each carries three sentences: what was seen, what was expected, what to do. They are separate so that the terminal,
a notebook and a test can each show them in their own way.
"""


class RunbookError(Exception):
    """Something the user can act on. ``exit_code`` is what the command line ends with."""

    exit_code = 2

    def __init__(self, seen: str, expected: str = "", do: str = "") -> None:
        super().__init__(seen)
        self.seen = seen
        self.expected = expected
        self.do = do

    def __str__(self) -> str:
        """One paragraph with the three parts, as the terminal prints it."""
        parts = [self.seen]
        if self.expected:
            parts.append(f"expected: {self.expected}")
        if self.do:
            parts.append(f"do: {self.do}")
        return "\n  ".join(parts)

    def _render_traceback_(self) -> list[str]:
        """What IPython shows for it in a notebook: the message; where in our code it was raised helps nobody."""
        return [f"{type(self).__name__}: {self}"]


class BadParameter(RunbookError):
    """A parameter, id, page, stack or file that does not exist or does not fit (exit code 2)."""


class NotRecorded(RunbookError):
    """A replay was asked a question its recording has no answer to (the check becomes unknown, not failed)."""

    exit_code = 3


class LayerNotReady(RunbookError):
    """Raised by a page's gate: one or more findings are fail or unknown. ``ids`` names them."""

    exit_code = 1

    def __init__(self, ids: tuple[str, ...], summary: str) -> None:
        super().__init__(summary, "every finding ok, warn or skip", f"runbook explain {ids[0]}")
        self.ids = ids


class ActionFailed(RunbookError):
    """An action (build, generate, serve) ended without doing what it planned (exit code 1)."""

    exit_code = 1


class JobDied(ActionFailed):
    """A background process ended before it was ready. ``root`` is the line of its log that says why."""

    def __init__(self, seen: str, root: str, log: str) -> None:
        super().__init__(seen, "a process that stays up until it is stopped", f"read {log}")
        self.root = root
        self.log = log


class DeadlineExceeded(ActionFailed):
    """A condition did not come true in time; no verdict about the machine follows from that (exit code 3)."""

    exit_code = 3
