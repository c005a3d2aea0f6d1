"""Builds of a target environment: each in a folder of its own, one of them current, and which was current before.

``targets/<stack>/`` holds the builds (a venv each, with ``target.json`` written last and a copy of the lock), the link
``current``, and ``history.jsonl`` with a row for every switch. A build is made at its final place and never moved,
since a virtual environment knows its own path; becoming current is one rename(2) of the link. So a build that is killed
harms nothing, and going back is instant.
"""

import contextlib
import datetime
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from runbook.actions import records
from runbook.errors import ActionFailed, BadParameter
from runbook.pins import locked
from runbook.workspace import CURRENT, Workspace

STAMP = "target.json"
LOCK = "lock.txt"
HISTORY = "history.jsonl"
SCHEMA = "target/2"


@dataclass(frozen=True)
class Build:
    """One finished build. ``stamp`` is what its ``target.json`` says; empty when that cannot be read."""

    folder: Path
    stamp: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Its id within the stack: when it was built, for which Python, from which lock."""
        return self.folder.name

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def site(self) -> Path:
        """Its site-packages."""
        return records.site_of(self.folder)

    def changed(self) -> str | None:
        """What is no longer as it was built, in a few words; sizes are compared, bytes are not read."""
        if not self.stamp:
            return f"its {STAMP} cannot be read"
        if not self.python.exists():
            return "its interpreter is gone"
        have, built = records.record_hashes(self.site), self.stamp.get("records")
        if have != built:
            return "packages were changed since it was built" + _which(have, built)
        wrong = records.faults(self.site, by_hash=False)
        if wrong:
            return f"{len(wrong)} installed files are missing or cut, such as {wrong[0].name}"
        return None

    def lock(self) -> dict[str, str]:
        """Package -> version of the lock it was built from."""
        return locked(self.folder / LOCK)


class Builds:
    """The builds of one stack in one workspace."""

    def __init__(self, work: Workspace, stack: str) -> None:
        self.work = work
        self.stack = stack
        self.folder = work.targets / stack

    def all(self) -> list[Build]:
        """Finished builds, the oldest first."""
        found = sorted(self.folder.glob(f"*/{STAMP}"))
        return [Build(path.parent, _stamp(path)) for path in found if not path.parent.is_symlink()]

    def current(self) -> Build | None:
        """The build in force."""
        folder = self.folder / self._name()
        return Build(folder, _stamp(folder / STAMP)) if self._name() and folder.is_dir() else None

    def _name(self) -> str:
        """The id of the current build; "" when there is none."""
        folder = self.work.target(self.stack)
        return "" if folder.name == CURRENT else folder.name

    def previous(self) -> Build | None:
        """The build that was in force before the current one, if it is still there."""
        current = self._name()
        for row in reversed(self.history()):
            if row["to"] == current != row["from"]:
                return self._there(row["from"])
        return None

    def get(self, name: str) -> Build:
        """The build of that id.

        Raises:
            BadParameter: there is none; says which there are.
        """
        found = self._there(name)
        if found is None:
            have = ", ".join(one.name for one in self.all())
            raise BadParameter(
                f"no build {name!r} of {self.stack}",
                f"one of {have}" if have else "a build; there is none yet",
                "runbook env list",
            )
        return found

    def _there(self, name: str) -> Build | None:
        return next((one for one in self.all() if one.name == name), None)

    def history(self) -> list[dict[str, str]]:
        """Every switch, the oldest first: when (UTC), from, to, why."""
        try:
            lines = (self.folder / HISTORY).read_text(encoding="utf-8").splitlines()
        except OSError:
            return []
        rows = []
        for line in lines:
            with contextlib.suppress(ValueError):  # a line that a full disk cut short
                rows.append(json.loads(line))
        return [row for row in rows if isinstance(row, dict) and {"from", "to", "why"} <= set(row)]

    def held(self) -> bool:
        """True when the current build was gone back to: what is newer was left on purpose."""
        rows = self.history()
        return bool(rows) and rows[-1]["why"] == "rollback" and rows[-1]["to"] == self._name()

    def switch(self, name: str, why: str) -> None:
        """Make that build the current one, in one step that is either done or not."""
        # Noted first: a row too many, of a switch that was not reached, is never taken for the current one's.
        self._note(self._name(), name, why)
        fresh = self.folder / f".{CURRENT}-{os.getpid()}"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(name)
        fresh.replace(self.folder / CURRENT)
        _sync(self.folder)

    def _note(self, old: str, new: str, why: str) -> None:
        with (self.folder / HISTORY).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"at": now(), "from": old, "to": new, "why": why}) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def new(self, minor: str, lock_sha256: str) -> Path:
        """A folder for a new build, not there yet."""
        when = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H.%M.%SZ")
        name = f"{when}-py{minor.replace('.', '')}-{lock_sha256[:8]}"
        folder, number = self.folder / name, 1
        while folder.exists():
            number += 1
            folder = self.folder / f"{name}-{number}"
        return folder

    def remove(self, name: str) -> None:
        """Remove one build; renamed first, so that what is left of an interrupted removal is no build.

        Raises:
            ActionFailed: a process runs from it.
        """
        folder = self.folder / name
        if users := using(folder):
            raise ActionFailed(
                f"process {users[0]} runs from {folder}", "nothing that uses it", "runbook stop"
            )
        waste = self.folder / f".removed-{os.getpid()}-{name}"
        folder.rename(waste)
        shutil.rmtree(waste)

    def remove_all(self) -> None:
        """Remove every build and what is known of them; raises as ``remove``."""
        for one in self.all():
            if users := using(one.folder):
                raise ActionFailed(
                    f"process {users[0]} runs from {one.folder}", "nothing that uses it", "runbook stop"
                )
        (self.folder / CURRENT).unlink(missing_ok=True)
        waste = self.folder.with_name(f".removed-{os.getpid()}-{self.stack}")
        self.folder.rename(waste)
        shutil.rmtree(waste)

    def settle(self) -> None:
        """End the hold of a build that was gone back to: it is what the lock says."""
        self._note(self._name(), self._name(), "settled")

    def sweep(self) -> None:
        """Remove what killed builds and removals left. Only with the lock held: a build at work looks the same."""
        known = {self._name()} | {row[key] for row in self.history() for key in ("from", "to")}
        for path in self.folder.iterdir() if self.folder.exists() else ():
            link = path.is_symlink()
            if path.name.startswith(f".{CURRENT}-") and link:
                path.unlink()
            elif path.is_dir() and not link and path.name not in known and not (path / STAMP).exists():
                shutil.rmtree(path)

    @contextlib.contextmanager
    def locked(self) -> Iterator[int]:
        """Hold this stack's builds; gives a descriptor that children may keep, and with it the lock.

        Raises:
            ActionFailed: another process holds them, or the folder cannot be written to.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as why:
            raise ActionFailed(
                f"{self.folder} cannot be written to: {why.strerror}",
                "a workspace of your own, on a disk with room",
                "set RUNBOOK_HOME to one, or mend its permissions",
            ) from why
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 100, 0).decode(errors="replace").strip()
            os.close(fd)
            raise ActionFailed(
                f"another process is building or switching {self.stack}" + (f": {holder}" if holder else ""),
                "one at a time",
                "wait until it has ended, then try again; nothing was changed",
            ) from None
        try:
            # On a full disk: the note is a courtesy, the lock is held without it.
            with contextlib.suppress(OSError):
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"process {os.getpid()} since {now()}\n".encode(), 0)
            yield fd
        finally:
            os.close(fd)


def using(folder: Path) -> list[int]:
    """Processes that were started from a folder."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if words and words[0].startswith(f"{folder}{os.sep}"):
            found.append(process.pid)
    return found


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def _stamp(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _which(have: Mapping[str, str], built: object) -> str:
    """Names of the packages that were changed, as far as a line holds them."""
    if not isinstance(built, dict):
        return ""
    names = sorted(name for name in {*have, *built} if have.get(name) != built.get(name))
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")  # noqa: PLR2004
    return f": {shown}"


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
