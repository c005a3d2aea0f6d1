"""Recordings that differ from the committed one in a few answers, for pages that must not be ready."""

import json
from collections.abc import Mapping
from pathlib import Path

from refresh import MACHINE

from runbook.probe import TARGET_PLACEHOLDERS
from runbook.probes import replay

RECORDED = MACHINE.removeprefix("recorded:")


def edited(folder: Path, name: str, answers: Mapping[str, str]) -> str:
    """Write an edited recording into ``folder``; how its machine is called. Every question must have been recorded."""
    parent = replay.load(RECORDED)
    (folder / name / "answers").mkdir(parents=True)
    rows = []
    for number, (ask, text) in enumerate(answers.items()):
        about_target = ask.startswith(("inside ", "http ")) or any(
            word in ask for word in TARGET_PLACEHOLDERS
        )
        stack = parent.stacks[0] if about_target else ""
        assert (stack, ask) in parent.entries, f"{RECORDED} has no answer to {ask!r} that could be changed"
        rows.append({"ask": ask, "stack": stack, "file": f"{number}.txt"})
        (folder / name / "answers" / f"{number}.txt").write_text(text, encoding="utf-8")
    (folder / name / "index.json").write_text(json.dumps(rows), encoding="utf-8")
    about = {
        "name": name,
        "what": "edited",
        "recorded": "2026-01-01",
        "edited_from": RECORDED,
        "edits": ["by a test"],
    }
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in about.items())
    (folder / name / "machine.toml").write_text(lines, encoding="utf-8")
    return f"recorded:{folder / name}"
