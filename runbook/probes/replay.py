"""A recorded machine: a folder of plain answers and an index from question to file.

``machine.toml`` says what and when; ``index.json`` lists ``{"ask", "stack", "file", ...}`` sorted by stack and question.
An edited recording names its parent in ``machine.toml`` (``edited_from``, ``edits``) and holds the changed answers only.
A question without an answer raises NotRecorded: a gap in a recording must not look like a missing tool.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbook.errors import BadParameter, NotRecorded
from runbook.probe import TARGET_PLACEHOLDERS, Ran, Reply
from runbook.probes import questions

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MACHINES = Path(__file__).parent.parent / "machines"


@dataclass(frozen=True)
class Entry:
    """One recorded answer: where its text lies, and what came with it."""

    file: Path | None
    rc: int = 0
    missing: bool = False
    timed_out: bool = False
    err: str = ""
    status: int = 0


@dataclass(frozen=True)
class Recording:
    """A recorded machine: its name, what it is, and its answers by (stack, question)."""

    name: str
    what: str
    recorded: str
    edited_from: str
    edits: tuple[str, ...]
    stacks: tuple[str, ...]
    entries: dict[tuple[str, str], Entry]

    def banner(self) -> str:
        """The line that every replay prints first."""
        text = f"REPLAY of the recorded machine {self.name} ({self.what}; recorded {self.recorded}): not your machine"
        return text + (
            f"; edited from {self.edited_from}: {'; '.join(self.edits)}" if self.edited_from else ""
        )


def names() -> tuple[str, ...]:
    """Names of the recorded machines that come with the runbook."""
    return tuple(sorted(path.parent.name for path in MACHINES.glob("*/machine.toml")))


def load(name: str, children: tuple[Path, ...] = ()) -> Recording:
    """Read a recording by name, or by the path of its folder. ``children`` are the edited copies we came from.

    Raises:
        BadParameter: there is none of that name, or its files do not hold what they should.
    """
    folder = Path(name) if "/" in name else MACHINES / name
    if folder in children:
        raise BadParameter(
            f"the recording {name!r} is, by way of others, an edited copy of itself",
            "a recorded parent",
            "name another edited_from",
        )
    try:
        about = tomllib.loads((folder / "machine.toml").read_text(encoding="utf-8"))
        index: list[dict[str, Any]] = list(json.loads((folder / "index.json").read_text(encoding="utf-8")))
        parent = load(about["edited_from"], (*children, folder)) if about.get("edited_from") else None
        entries = dict(parent.entries) if parent else {}
        for row in index:
            extra = {key: row[key] for key in ("rc", "missing", "timed_out", "err", "status") if key in row}
            file = folder / "answers" / row["file"] if row.get("file") else None
            entries[row.get("stack", ""), row["ask"]] = Entry(file, **extra)
        return Recording(
            about["name"],
            about["what"],
            about["recorded"],
            about.get("edited_from", ""),
            tuple(about.get("edits", ())),
            tuple(about.get("stacks", parent.stacks if parent else ())),
            entries,
        )
    except FileNotFoundError:
        raise BadParameter(
            f"no recorded machine {name!r}",
            f"one of {', '.join(names())}, or the folder of a recording",
            "runbook record --out DIR makes one",
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as why:
        raise BadParameter(
            f"the recording {name!r} cannot be read: {type(why).__name__}: {why}",
            "machine.toml and index.json as runbook record writes them",
            "record it again",
        ) from why


class ReplayProbe:
    """Answers every question from a recording; nothing on this machine is read."""

    def __init__(self, recording: Recording, stack: str = "") -> None:
        self.recording = recording
        self.stack = stack

    @property
    def machine(self) -> str:
        """``recorded:NAME``."""
        return f"recorded:{self.recording.name}"

    @property
    def has_target(self) -> bool:
        """True when the recording holds answers about this stack's target."""
        return bool(self.stack) and self.stack in self.recording.stacks

    def _find(self, ask: str) -> Entry:
        about_target = ask.startswith(("inside ", "http ")) or any(
            name in ask for name in TARGET_PLACEHOLDERS
        )
        entry = self.recording.entries.get((self.stack if about_target else "", ask))
        if entry is None:
            raise NotRecorded(
                f"the recording {self.recording.name} has no answer to: {ask}",
                "a recorded question",
                "record the machine again",
            )
        return entry

    def _text(self, entry: Entry) -> str:
        return "" if entry.file is None else entry.file.read_text(encoding="utf-8")

    def run(self, argv: list[str], timeout_s: float = 20.0) -> Ran:  # noqa: ARG002 - a recording does not wait
        """The recorded output of a command."""
        entry = self._find(questions.run(argv))
        return Ran(tuple(argv), entry.rc, self._text(entry), entry.err, entry.missing, entry.timed_out)

    def read_text(self, path: str) -> str | None:
        """The recorded text of a file."""
        entry = self._find(f"read {path}")
        return None if entry.missing else self._text(entry)

    def glob(self, pattern: str) -> tuple[str, ...]:
        """The recorded matches of a pattern."""
        return tuple(self._text(self._find(f"glob {pattern}")).splitlines())

    def env(self, name: str) -> str | None:
        """The recorded value of a variable."""
        entry = self._find(f"env {name}")
        return None if entry.missing else self._text(entry).rstrip("\n")

    def inside(
        self,
        script: str,
        args: dict[str, str] | None = None,
        timeout_s: float = 120.0,  # noqa: ARG002 - a recording does not wait
    ) -> dict[str, Any]:
        """The recorded answer of a script in the target interpreter."""
        answer: dict[str, Any] = json.loads(self._text(self._find(questions.inside(script, args))))
        return answer

    def http(self, method: str, path: str, json: dict[str, Any] | None = None) -> Reply:
        """The recorded answer of the server."""
        entry = self._find(questions.http(method, path, json))
        return Reply(entry.status, self._text(entry))
