"""The protocol of a host: six questions, asked alike of a live machine, a recording or an edited recording.

No implementation lives here; see ``probes/``. Paths and argv may hold placeholders, which the probe resolves, so that
no recording holds anybody's folders:

``{python}``  interpreter of the target environment        ``{site}``  its site-packages folder
``{prefix}``  its root folder (``sys.prefix``)             ``{home}``  the user's home folder
``{work}``    the runbook's workspace                      ``{model}`` the folder of the model in use
``{own}``     folder of the runbook's own programs         ``{disk}``  nearest folder above the workspace that exists
``{port}``    port of this workspace's server
"""

from dataclasses import dataclass
from typing import Any, Protocol

# A question that holds one of these is about the target environment and is recorded per stack.
TARGET_PLACEHOLDERS = ("{python}", "{site}", "{prefix}", "{model}", "{work}", "{port}")


@dataclass(frozen=True)
class Ran:
    """What a command did. ``missing``: no such program. ``timed_out``: it was killed at its deadline."""

    argv: tuple[str, ...]
    rc: int
    out: str
    err: str
    missing: bool = False
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        """True when the program was there, ended in time and returned 0."""
        return self.rc == 0 and not self.missing and not self.timed_out


@dataclass(frozen=True)
class Reply:
    """An HTTP answer; ``status`` 0 means that no connection was made and ``body`` says why."""

    status: int
    body: str


class Probe(Protocol):
    """A host that can be asked. ``stack`` names the target environment asked about ("" when there is none)."""

    @property
    def machine(self) -> str:
        """``live`` or ``recorded:NAME``."""

    @property
    def stack(self) -> str:
        """The stack whose target environment answers target questions."""

    @property
    def has_target(self) -> bool:
        """True when there is a target interpreter to ask."""

    def run(self, argv: list[str], timeout_s: float = 20.0) -> Ran:
        """Run a program; a missing program is an answer, not an exception."""

    def read_text(self, path: str) -> str | None:
        """The text of a file (undecodable bytes replaced), or None when there is none or it cannot be read."""

    def glob(self, pattern: str) -> tuple[str, ...]:
        """Paths that match, sorted, with the placeholders of the pattern kept in place."""

    def env(self, name: str) -> str | None:
        """An environment variable of the runbook's own process."""

    def inside(
        self, script: str, args: dict[str, str] | None = None, timeout_s: float = 120.0
    ) -> dict[str, Any]:
        """The JSON object printed by ``inside/<script>.py`` in a child of the target interpreter.

        A child that crashes, hangs or prints no JSON is an answer too: ``{"error": ..., "rc": ..., "stderr": ...}``.
        """

    def http(self, method: str, path: str, json: dict[str, Any] | None = None) -> Reply:
        """One request to the server of this workspace (loopback, port from its state file)."""
