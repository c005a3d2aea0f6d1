"""``runbook env refresh``: what the index says today of a stack's pins and locks, and a proposal to go with it.

The proposal is a folder of its own, checked as the shipped stacks are; nothing of the package changes unless it is
written in a checkout on request. All asking goes through uv, so its settings for mirrors and proxies hold.
"""

import datetime
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from runbook import locks, pins, remote, sizes, uv
from runbook.changes import Change, package_changes
from runbook.errors import ActionFailed, BadParameter
from runbook.parse import requirement, uv_log, uv_output
from runbook.parse.python_env import normal
from runbook.pins import Pin, Stack
from runbook.report import wrapped
from runbook.resolve import located, newest

STALE_DAYS = 90
_CUTOFF = re.compile(r"--exclude-newer \S+")
_SOURCE = re.compile(r"pkg:pypi/([a-z0-9.-]+)@(\S+)$")


@dataclass(frozen=True)
class Move:
    """A package that the new locks have at another version, and for which Pythons."""

    change: Change
    pythons: tuple[str, ...]


@dataclass(frozen=True)
class Newer:
    """A pinned package of which the index has a later release; ``asks`` is what that release says of the stack's other pins."""

    package: str
    pinned: str
    newest: str
    asks: tuple[str, ...]


@dataclass(frozen=True)
class Proposal:
    """What was found; the files lie in ``folder``. ``wrong`` are pins whose source says otherwise, ``old`` those read long ago."""

    stack: str
    folder: Path
    cutoff: str
    moves: tuple[Move, ...]
    newer: tuple[Newer, ...]
    wrong: tuple[str, ...]
    old: tuple[str, ...]
    faults: tuple[str, ...]
    written: bool

    @property
    def failed(self) -> bool:
        """True when the proposal must not be taken as it is."""
        return bool(self.wrong or self.faults)


def propose(stack: Stack, out: Path, *, write: bool = False, today: datetime.date | None = None) -> Proposal:
    """Ask the index about every pin, resolve the stack's requirements anew into ``out``, and check what came of it.

    Args:
        stack: the stack; a drill has no lock to renew.
        out: a folder that is not there yet, or empty.
        write: also put the proposal in the place of the stack's own files, when all checks pass and we run from a checkout.
        today: the day to judge by and the cutoff of the new locks.

    Raises:
        BadParameter: the stack is a drill, ``out`` is taken, or there is no checkout to write to.
        ActionFailed: the index could not be asked, or the requirements no longer resolve.
    """
    if stack.drill:
        stack.lock(stack.pythons[0])
    _free(out)
    if write:
        _checkout()
    day = today or datetime.datetime.now(datetime.timezone.utc).date()
    cutoff = f"{day.isoformat()}T00:00:00Z"
    ours = pins.STACKS / stack.name
    said = {(pin.source): text for pin, text in _sources(stack)}
    held = {pin: _held(pin, stack, said.get(pin.source)) for pin in stack.pins}
    shutil.copytree(ours, out, ignore=shutil.ignore_patterns("py*.txt", "sizes.json"), dirs_exist_ok=True)
    asked = (out / "requirements.in").read_text(encoding="utf-8")
    (out / "requirements.in").write_text(_CUTOFF.sub(f"--exclude-newer {cutoff}", asked), encoding="utf-8")
    fresh = {pin.package for pin, fault in held.items() if fault == ""}
    manifest = (out / "manifest.toml").read_text(encoding="utf-8")
    (out / "manifest.toml").write_text(_dated(manifest, fresh, day), encoding="utf-8")
    for minor in stack.pythons:
        _lock(stack, out, minor, cutoff)
    found = {minor: located(out / locks.lock_name(minor), minor, stack.platform) for minor in stack.pythons}
    by_python = sizes.measured(found, _known(stack))
    (out / "sizes.json").write_text(sizes.text(by_python), encoding="utf-8")
    faults = tuple(locks.faults(out))
    wrong = tuple(fault for fault in held.values() if fault)
    written = write and not faults and not wrong
    if written:
        for path in out.iterdir():
            shutil.copy(path, ours / path.name)
        pins.stack.cache_clear()
    old = tuple(
        f"{pin.package} {pin.version}, read {pin.read}" for pin in stack.pins if _days(pin, day) > STALE_DAYS
    )
    return Proposal(stack.name, out, cutoff, _moves(stack, out), _newer(stack), wrong, old, faults, written)


def _free(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadParameter(
            f"{out} is there already", "a new folder for the proposal", "name another with --out"
        )


def _checkout() -> None:
    if not (pins.STACKS.parents[1] / ".git").exists():
        raise BadParameter(
            f"{pins.STACKS} is no part of a checkout",
            "--write in a git checkout of the runbook, where the change can be read and undone",
            "leave --write out; the proposal lies in the folder of --out",
        )


def _days(pin: Pin, day: datetime.date) -> int:
    return (day - datetime.date.fromisoformat(pin.read)).days


def _known(stack: Stack) -> dict[tuple[str, str, int], pins.Size]:
    return {
        (package, size.version, size.wheel): size
        for minor in stack.pythons
        for package, size in pins.sizes(stack.name, minor).items()
    }


def _lock(stack: Stack, out: Path, minor: str, cutoff: str) -> None:
    """As the loop in ``requirements.in`` says."""
    overrides = out / "overrides.txt"
    ran = uv.ask(
        [
            "pip", "compile", str(out / "requirements.in"), *(["--override", str(overrides)] if overrides.exists() else []),
            "--python-version", minor, "--python", sys.executable, "--no-python-downloads",
            "--python-platform", stack.platform, "--only-binary", ":all:", "--generate-hashes", "--no-annotate", "--no-header",
            "--no-emit-index-url", "--no-emit-find-links", "--exclude-newer", cutoff, "--quiet", "-o", str(out / locks.lock_name(minor)),
        ]
    )  # fmt: skip
    if ran.rc:
        blamed = uv_log.fault(ran.text)
        said = " ".join(line for line in uv_output.lines(ran.text) if line)
        raise ActionFailed(
            f"{stack.name} was not resolved for Python {minor}: {blamed.seen if blamed else said}",
            "requirements that resolve with what the index has",
            blamed.do if blamed else "change requirements.in or overrides.txt",
        )


def _sources(stack: Stack) -> Iterable[tuple[Pin, str]]:
    """(pin, METADATA of the release that is its source), for each pin whose source is a release on the index."""
    wanted: dict[str, str] = {}
    for pin in stack.pins:
        if source := _SOURCE.match(pin.source):
            wanted[pin.source] = f"{source[1]}=={source[2]}"
    by_name: dict[str, dict[str, str]] = {}
    for address, line in wanted.items():
        by_name.setdefault(normal(Requirement(line).name), {})[address] = line
    texts: dict[str, str] = {}
    with remote.opened() as wheels:
        # Two releases of one package cannot be asked for at once.
        while by_name := {name: lines for name, lines in by_name.items() if lines}:
            batch = dict(lines.popitem() for lines in by_name.values())
            places = {
                wheel.package: place
                for wheel, place in newest([*batch.values()], stack.pythons[-1], stack.platform)
            }
            for address, line in batch.items():
                texts[address] = wheels.metadata(places[normal(Requirement(line).name)])
    return [(pin, texts[pin.source]) for pin in stack.pins if pin.source in texts]


def _held(pin: Pin, stack: Stack, metadata: str | None) -> str | None:
    """Empty when the source says what the pin says, a sentence when it says otherwise, None when it is no metadata of a release."""
    source = _SOURCE.match(pin.source)
    mine = {normal(Requirement(line).name) for line in (*stack.requirements, *stack.overrides)}
    if metadata is None or source is None or pin.package in locks.PROGRAMS - {"python"}:
        return None
    name = normal(source[1])
    if pin.package == name:
        return (
            ""
            if source[2] == pin.version
            else f"{pin.package}: the pin says {pin.version}, its source is {source[2]}"
        )
    if pin.package in mine:
        return None  # what the stack asks for itself; the source says why
    if pin.package == "python":
        asked = HeaderParser().parsestr(metadata).get("Requires-Python", "")
    else:
        asked = str(asked_of(metadata, pin.package, stack.pythons[-1]))
    if _agrees(pin.version, SpecifierSet(asked)):
        return ""
    return f"{pin.package}: the pin says {pin.version}, {name} {source[2]} asks for {asked or 'none of it'}"


def asked_of(metadata: str, package: str, python: str) -> SpecifierSet:
    """All that a release asks of a package on Linux, without its extras."""
    where = requirement.environment(python, "x86_64")
    found = SpecifierSet()
    for line in HeaderParser().parsestr(metadata).get_all("Requires-Dist") or []:
        one = Requirement(line)
        if normal(one.name) == package and (one.marker is None or one.marker.evaluate(dict(where))):
            found &= one.specifier
    return found


def _agrees(pinned: str, asked: SpecifierSet) -> bool:
    """An exact pin is allowed by what is asked; a range says nothing that is not asked."""
    if re.match(r"\d", pinned):
        return bool(asked) and asked.contains(Version(pinned), prereleases=True)
    return set(SpecifierSet(pinned)) <= set(asked)


def _dated(manifest: str, fresh: set[str], day: datetime.date) -> str:
    """The manifest with today's date at the pins that were read again and found so."""
    blocks = re.split(r"(?m)^(?=\[\[)", manifest)
    for at, block in enumerate(blocks):
        named = re.search(r'(?m)^package = "([^"]+)"$', block)
        if block.startswith("[[pin]]") and named and named[1] in fresh:
            blocks[at] = re.sub(r'(?m)^read = "[^"]*"$', f'read = "{day.isoformat()}"', block)
    return "".join(blocks)


def _moves(stack: Stack, out: Path) -> tuple[Move, ...]:
    """Packages that move, the most suspicious first; the same move for several Pythons is said once."""
    found: dict[Change, list[str]] = {}
    for minor in stack.pythons:
        new = pins.locked(out / locks.lock_name(minor))
        for change in package_changes(pins.locked(stack.lock(minor)), new):
            found.setdefault(change, []).append(minor)
    moves = (Move(change, tuple(minors)) for change, minors in found.items())
    return tuple(sorted(moves, key=lambda one: (one.change.rank, one.change.name, one.pythons)))


def _newer(stack: Stack) -> tuple[Newer, ...]:
    """Later releases of the pinned packages, each for the stack's newest Python."""
    python = stack.pythons[-1]
    have = pins.locked(stack.lock(python))
    names = [pin.package for pin in stack.pins if pin.package in have]
    found = []
    with remote.opened() as wheels:
        for wheel, place in newest(names, python, stack.platform):
            if Version(wheel.version) > Version(have[wheel.package]):
                asks: Sequence[str] = ()
                if wheel.package == stack.distribution:
                    asks = _asks(wheels.metadata(place), names, python)
                found.append(Newer(wheel.package, have[wheel.package], wheel.version, tuple(asks)))
    return tuple(sorted(found, key=lambda one: (one.package != stack.distribution, one.package)))


def _asks(metadata: str, names: Sequence[str], python: str) -> list[str]:
    bounds = HeaderParser().parsestr(metadata).get("Requires-Python", "")
    asked = [(name, str(asked_of(metadata, name, python))) for name in names]
    return [f"python {bounds}", *(f"{name} {wanted}" for name, wanted in asked if wanted)]


def as_text(one: Proposal) -> str:
    """What moves, what no longer holds, what is old, and what the checks said; 80 columns."""
    lines = [wrapped(f"{one.stack} with what the index had by {one.cutoff}")]
    lines.append(
        f"moves     {len(one.moves)} packages"
        if one.moves
        else "moves     nothing: the locks are as new as can be"
    )
    for move in one.moves:
        why = f"  ({move.change.why})" if move.change.why else ""
        lines.append(
            wrapped(f"{move.change.text()}  Python {' '.join(move.pythons)}{why}", "          ", " " * 14)
        )
    lines += _rows(
        "newer", [_newer_line(each) for each in one.newer], "no pinned package has a later release"
    )
    lines += _rows("wrong", one.wrong, "every pin that could be read again holds")
    lines += _rows("old", one.old, f"no pin was read more than {STALE_DAYS} days ago")
    lines += _rows("checks", one.faults, "hashes, addresses, pins and requirements are as they must be")
    where = f"written over {one.stack}" if one.written else f"in {one.folder}; nothing else was changed"
    lines.append(wrapped(where, "files     ", " " * 10))
    return "\n".join(lines) + "\n"


def _newer_line(one: Newer) -> str:
    asks = f"; it asks for {', '.join(one.asks)}" if one.asks else ""
    return f"{one.package} {one.newest} (pinned {one.pinned}){asks}"


def _rows(label: str, rows: Sequence[str], none: str) -> list[str]:
    return [wrapped(row, f"{'' if at else label:10}", " " * 14) for at, row in enumerate(rows or [none])]


def as_json(one: Proposal) -> dict[str, Any]:
    """The same as a JSON object."""
    moves: list[Mapping[str, Any]] = [
        {"package": each.change.name, "kind": each.change.kind.value, "have": each.change.have, "want": each.change.want, "pythons": list(each.pythons)}
        for each in one.moves
    ]  # fmt: skip
    return {
        "schema": "refresh/1",
        "stack": one.stack,
        "folder": str(one.folder),
        "cutoff": one.cutoff,
        "moves": moves,
        "newer": [{**vars(each), "asks": list(each.asks)} for each in one.newer],
        "wrong": list(one.wrong),
        "old": list(one.old),
        "faults": list(one.faults),
        "written": one.written,
        "failed": one.failed,
    }
