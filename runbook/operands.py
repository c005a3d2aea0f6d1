"""What ``runbook env diff`` and ``env snapshot`` are given: a word that names an environment now or at another time.

A stack (its current build), STACK/BUILD, an interpreter or the folder of an environment, ``now``, a recorded machine, a
snapshot's file, a run folder, or a date or time of a run. A run leaves a snapshot of each of its stacks.
"""

import datetime
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from runbook import connect, pins, snapshot
from runbook.errors import BadParameter
from runbook.probes import replay
from runbook.probes.replay import ReplayProbe
from runbook.snapshot import Snapshot
from runbook.workspace import CURRENT, Workspace, write_whole

SNAPSHOTS = "snapshots"
RECORDED = "recorded:"
WHEN = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d(?:[.:]\d\d){0,2})?", re.ASCII)
LONGEST = 4096  # of a path; the system refuses a longer one with an error of its own
NOWHERE = Path("/proc/self/nowhere")
AT_MOST = 5  # of a kind, in an error's list


def pair(words: Sequence[str], stack: str, work: Workspace) -> tuple[Snapshot, Snapshot]:
    """The two snapshots to compare. Of a run with several stacks the one taken is the other operand's, if it is there.

    Raises:
        BadParameter: a word that names nothing; says what there is.
    """
    first, second = (_several(word, stack, work) for word in words)
    common = next((name for name in first if name in second), None)
    one = first[common] if common is not None else next(iter(first.values()))
    other = second[common] if common is not None else next(iter(second.values()))
    return one, other


def single(word: str, stack: str, work: Workspace) -> Snapshot:
    """The snapshot that a word names; of a run with several stacks the first.

    Raises:
        BadParameter: a word that names nothing; says what there is.
    """
    return next(iter(_several(word, stack, work).values()))


def leave(folder: Path, machine: str, stacks: Sequence[str], target: str, work: Workspace) -> None:
    """Write ``snapshots/STACK.json`` of each stack into a run folder.

    Raises:
        BadParameter: the machine, a stack or the target is not there any more.
    """
    (folder / SNAPSHOTS).mkdir(exist_ok=True)
    for stack in stacks:
        host = connect.after_a_walk(connect.probe(machine, stack, target, work))
        write_whole(folder / SNAPSHOTS / f"{stack}.json", snapshot.as_json(snapshot.take(host, _now())))


def _several(word: str, stack: str, work: Workspace) -> dict[str, Snapshot]:  # noqa: PLR0911 - one return a kind of word
    """Stack -> snapshot, in the order of the run; one only for what is no run."""
    place = Path(word).expanduser() if 0 < len(word) < LONGEST else NOWHERE
    if word.startswith(RECORDED) or (place / "machine.toml").is_file():
        return _one(
            _recorded(word if word.startswith(RECORDED) else f"{RECORDED}{place.absolute()}", stack, work)
        )
    if place.is_file() and place.suffix == ".json":
        return _one(snapshot.from_json(_text(place), word))
    if (place / "run.json").is_file():
        return _of_run(place, stack)
    if word == "now" or word in pins.names():
        return _one(_live(stack if word == "now" else word, work))
    if build := _build(word, work):
        return _one(_live(word.partition("/")[0], work, str(build)))
    if python := _python(place):
        below = python.parts[len(work.targets.parts) :] if python.is_relative_to(work.targets) else ()
        named = below[0] if below and stack == "auto" and below[0] in pins.names() else stack
        return _one(_live(named, work, str(python)))
    if WHEN.fullmatch(word):
        return _of_run(_run_of(word, work), stack)
    raise BadParameter(
        f"{word!r} names no environment",
        "; ".join(_there(work)),
        "a path needs a bin/python below it, or to be one",
    )


def _one(found: Snapshot) -> dict[str, Snapshot]:
    return {found.stack: found}


def _recorded(machine: str, stack: str, work: Workspace) -> Snapshot:
    host = connect.probe(machine, stack, "", work)
    taken = host.recording.recorded if isinstance(host, ReplayProbe) else ""
    return snapshot.take(connect.cached(host), taken)


def _live(stack: str, work: Workspace, target: str = "") -> Snapshot:
    """This machine with one environment; of ``auto`` the first of this machine's stacks that is built."""
    host = connect.probe("live", stack, target, work)
    if not host.has_target and stack == "auto":
        others = (connect.probe("live", name, "", work) for name in pins.stacks_for(host))
        host = next((one for one in others if one.has_target), host)
    if not host.has_target:
        raise BadParameter(
            f"the stack {host.stack} has no environment here", "; ".join(_there(work)), f"runbook env build --stack {host.stack}"
        )  # fmt: skip
    return snapshot.take(connect.cached(host), _now())


def _build(word: str, work: Workspace) -> Path | None:
    """The interpreter of STACK/BUILD."""
    stack, slash, name = word.partition("/")
    if not slash or stack not in pins.names() or not name or "/" in name or name in (".", ".."):
        return None
    python = work.targets / stack / name / "bin" / "python"
    return python if os.access(python, os.X_OK) else None


def _python(place: Path) -> Path | None:
    """An interpreter, or the one of the environment in a folder. It need not start: that would be a finding."""
    for each in (place, place / "bin" / "python", place / "bin" / "python3"):
        if each.is_file() and os.access(each, os.X_OK) and each.name.startswith("python"):
            return each.absolute()
    return None


def _of_run(folder: Path, stack: str) -> dict[str, Snapshot]:
    paths = {path.stem: path for path in sorted((folder / SNAPSHOTS).glob("*.json"))}
    try:
        steps = json.loads(_text(folder / "run.json"))["steps"]
        order = list(dict.fromkeys(str(step["stack"]) for step in steps))
    except (ValueError, KeyError, TypeError):
        order = []
    wanted = [name for name in (*order, *paths) if name in paths and stack in ("auto", name)]
    if not wanted:
        seen = "no snapshot" if not paths else f"snapshots of {', '.join(paths)} and none of {stack}"
        raise BadParameter(
            f"the run {folder.name} left {seen}", "a run that ended, of this version or a later one", "name another run, or --stack"
        )  # fmt: skip
    return {name: snapshot.from_json(_text(paths[name]), str(paths[name])) for name in dict.fromkeys(wanted)}


def _run_of(word: str, work: Workspace) -> Path:
    """The latest run that began on that day, or in that hour or minute."""
    begins = word.replace(" ", "T").replace(":", ".")
    found = [path for path in _runs(work) if path.name.startswith(begins)]
    if not found:
        have = ", ".join(path.name for path in _runs(work)[-AT_MOST:])
        raise BadParameter(
            f"no run began at {word}", f"one of {have}" if have else f"a run under {work.runs}; there is none", "runbook run"
        )  # fmt: skip
    with_snapshots = [path for path in found if (path / SNAPSHOTS).is_dir()]
    return (with_snapshots or found)[-1]


def _runs(work: Workspace) -> list[Path]:
    return sorted(path.parent for path in work.runs.glob("*/run.json"))


def _there(work: Workspace) -> list[str]:
    """What can be named, by kind, for an error."""
    builds = sorted(path.parent.parent for path in work.targets.glob("*/*/bin/python") if path.parent.parent.name != CURRENT)  # fmt: skip
    kinds = {
        "stacks": pins.names(),
        "builds": [f"{path.parent.name}/{path.name}" for path in builds],
        "runs": [path.name for path in reversed(_runs(work))],
        "recorded machines": [f"{RECORDED}{name}" for name in replay.names()],
    }
    lines = [f"{kind}: {', '.join(names[:AT_MOST])}{f' and {len(names) - AT_MOST} more' if len(names) > AT_MOST else ''}" for kind, names in kinds.items() if names]  # fmt: skip
    return [*lines, "now", "the path of an interpreter, an environment, a snapshot or a run folder"]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as why:
        raise BadParameter(
            f"{path} cannot be read ({type(why).__name__})", "a text file", "check the path"
        ) from why


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
