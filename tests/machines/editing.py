"""How an edited machine is made from a recorded one: changed answers, each said in words, and what they turn.

``python tests/machines/write.py`` writes the folders under runbook/machines again from the tables ``edits_*.py``, so a
machine that was recorded anew carries its edited copies along. A test compares the folders with what it would write.
"""

import importlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runbook.model import Verdict
from runbook.probes.record import describe, keep
from runbook.probes.replay import Entry, Recording, load

MACHINES = Path(__file__).parents[2] / "runbook" / "machines"


@dataclass(frozen=True)
class Said:
    """A changed answer that is more than a text: an exit code, a missing program or file, a line on stderr."""

    text: str = ""
    rc: int = 0
    err: str = ""
    missing: bool = False
    timed_out: bool = False


# A file or variable that is not there; a program that is not there.
NO_FILE = Said(missing=True)
NO_PROGRAM = Said(rc=127, err="[Errno 2] No such file or directory", missing=True)
Change = str | Said | Callable[[str], str]


@dataclass(frozen=True)
class Edited:
    """An edited copy. ``answers`` maps a question to its new answer, or to a function from the parent's text to it.

    ``turns`` names every verdict that differs from the parent's and did not become a skip; the check that finds the
    cause must be among them. Without ``target`` the copy has no environment: readings from inside would not fit the edit.
    """

    name: str
    parent: str
    stack: str
    what: str
    edits: tuple[str, ...]
    answers: Mapping[str, Change]
    turns: Mapping[str, Verdict] = field(default_factory=dict)
    target: bool = True


def replaced(*pairs: tuple[str, str]) -> Callable[[str], str]:
    """A change by replacement; each text must be there, or the edit would say what it does not do."""

    def change(text: str) -> str:
        for old, new in pairs:
            if old not in text:
                raise ValueError(f"nothing to replace: {old!r}")
            text = text.replace(old, new)
        return text

    return change


def _before(parent: Recording, stack: str, ask: str) -> Entry:
    for key in ((stack, ask), ("", ask)):
        if key in parent.entries:
            return parent.entries[key]
    raise ValueError(f"{parent.name} has no answer to: {ask}")


def write(one: Edited, machines: Path = MACHINES) -> Path:
    """Write the folder of an edited copy; what lay there is replaced."""
    parent = load(one.parent)
    folder = machines / one.name
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    for ask, change in one.answers.items():
        if callable(change):
            entry = _before(parent, one.stack, ask)
            text = entry.file.read_text(encoding="utf-8") if entry.file else ""
            said = Said(change(text), entry.rc, entry.err)
        else:
            said = Said(change) if isinstance(change, str) else change
        suffix = "json" if ask.startswith("inside ") else "txt"
        extra: dict[str, Any] = {name: getattr(said, name) for name in ("rc", "err", "missing", "timed_out")}
        keep(folder, ask, one.stack, said.text, suffix, **extra)
    about: dict[str, Any] = {"name": one.name, "what": one.what, "recorded": parent.recorded}
    about |= {"edited_from": one.parent, "edits": list(one.edits)}
    if not one.target or one.stack in parent.stacks:
        about["stacks"] = [one.stack] if one.target else []
    describe(folder, about)
    return folder


def tables() -> list[Edited]:
    """Every edited copy of the modules ``edits_*.py`` beside this one."""
    return [
        one
        for path in sorted(Path(__file__).parent.glob("edits_*.py"))
        for one in importlib.import_module(path.stem).MACHINES
    ]
