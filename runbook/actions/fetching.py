"""Fetch a checkpoint from a hub into the workspace: planned first, resumed after any end, compared with the hub's hashes.

Everything grows in ``models/NAME.part``, which becomes ``models/NAME`` by a rename once every file is there and right:
a folder without ``.part`` is whole. The bytes are moved by a job (``fetch_files``), which dies with whoever started it.
"""

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from runbook import catalogue, hub
from runbook.actions import Say, fetch_files
from runbook.actions.jobs import Job, Jobs, Owner, log_tail
from runbook.errors import ActionFailed
from runbook.hub import Listing
from runbook.workspace import Workspace, above, write_whole

TELL_EVERY_S = 5.0
LOOK_EVERY_S = 0.5
SPARE = 64 << 20  # for a file system's own needs


def place(work: Workspace, repo: str) -> Path:
    """Where a repository's checkpoint lies or will lie."""
    return work.models / repo.replace("/", "--")


class Fetch:
    """One repository at one revision. The hub is asked when first needed."""

    def __init__(
        self, work: Workspace, repo: str, revision: str = "", source: str = hub.HF, owner: Owner | None = None
    ) -> None:
        self.work = work
        self.repo = repo
        self.revision = revision
        self.source = source
        self.owner = owner or Owner.of()
        folder = place(work, repo)
        # A link to another disk stays one: what is fetched grows beside the folder that it leads to.
        self.folder = folder.resolve() if folder.is_symlink() else folder
        self.partial = self.folder.with_name(f"{self.folder.name}.part")
        self.jobs = Jobs(work.jobs)
        self.name = f"fetch-{re.sub(r'[^a-z0-9_-]+', '-', self.folder.name.lower())}"[:63]
        self._found: Listing | None = None

    def listing(self) -> Listing:
        """What the hub says; raises as ``hub.listing``."""
        if self._found is None:
            self._found = hub.listing(self.repo, self.revision, self.source)
        return self._found

    def there(self) -> bool:
        """True when the folder holds this commit (or these very files, where the hub names no commit), whole."""
        about = hub.sealed(self.folder)
        return about is not None and _same(about, self.listing())

    def to_fetch(self) -> int:
        """Bytes that are not on this disk yet."""
        return self.listing().size - _have(self.partial, self.listing())

    def plan(self) -> list[str]:
        """What would be fetched from where, and whether there is room; asks the hub and changes nothing.

        Raises:
            BadParameter, ActionFailed: as ``hub.listing``.
        """
        found = self.listing()
        naming = catalogue.nearest(self.repo)
        commit = found.commit or "no commit named, its files are told by their hashes"
        largest = max(found.files, key=lambda one: one.size, default=None)
        hashed = sum(bool(one.sha256 or one.blob) for one in found.files)
        lines = [
            f"model     {naming.why}",
            f"from      {hub.shown(found.endpoint)}, {found.revision}: {commit}",
            f"files     {len(found.files)}, {amount(found.size)}; {hashed} with a hash to compare",
            *([f"largest   {largest.path}, {amount(largest.size)}"] if largest else []),
        ]
        if found.gated:
            lines.append("gated     the account of HF_TOKEN must have accepted its terms")
        if self.there():
            return [*lines, f"nothing   {self.folder} holds it"]
        have = _have(self.partial, found)
        about = hub.sealed(self.folder)
        return [
            *lines,
            f"fetch     {amount(found.size - have)}" + (f", {amount(have)} is there" if have else ""),
            f"into      {self.folder}" + (f", in place of commit {about['commit']}" if about else ""),
            f"disk      {amount(self._free())} free",
        ]

    def _free(self) -> int:
        return shutil.disk_usage(above(self.partial)).free

    def apply(self, say: Say) -> None:
        """Fetch, compare, and put the folder in place, unless it is there already.

        Raises:
            ActionFailed: the hub, the disk or the bytes failed; what was fetched is kept and gone on with.
        """
        if self.there():
            say(f"{self.folder} holds it")
            return
        found = self.listing()
        need, free = self.to_fetch() + SPARE, self._free()
        if need > free:
            raise ActionFailed(
                f"{amount(need)} more are needed and {amount(free)} are free in {above(self.partial)}",
                "room for the whole checkpoint",
                "make room, or set RUNBOOK_HOME to another disk",
            )
        if running := self.jobs.get(self.name):
            raise ActionFailed(
                f"{self.repo} is being fetched already, by process {running.pid}",
                "one fetch of a repository at a time",
                "wait for it, or stop it: runbook stop",
            )
        try:
            self._prepare(found)
            self._carry_out(found, say)
            self._put_in_place(found)
        except OSError as why:
            raise ActionFailed(
                f"{why.filename or self.partial}: {why.strerror}",
                "a workspace that can be written to",
                "see to the folder or set RUNBOOK_HOME to another, then fetch again: what is there is kept",
            ) from why
        say(
            f"{self.folder}: {len(found.files)} files, {amount(found.size)}, each compared with the hub's hash"
        )

    def _prepare(self, found: Listing) -> None:
        """Write the plan; drop what belongs to another one; offer what an older revision has in common."""
        plan = self.partial / fetch_files.PLAN
        try:
            before = {each["path"]: each for each in json.loads(plan.read_text(encoding="utf-8"))["files"]}
        except (OSError, ValueError, KeyError, TypeError):
            before = {}
        wanted = {one.path: one for one in found.files}
        for path in sorted(self.partial.rglob("*")):
            name = str(path.relative_to(self.partial))
            if path.is_dir() or name.startswith(".cache/"):
                continue
            one, was = wanted.get(name), before.get(name)
            if one is None or was is None or (was["size"], was["sha256"], was["blob"]) != (one.size, one.sha256, one.blob):  # fmt: skip
                path.unlink()
        plan.parent.mkdir(parents=True, exist_ok=True)
        about = {"source": found.source, "repo": found.repo, "endpoint": hub.shown(found.endpoint), "revision": found.revision, "files": [asdict(one) for one in found.files]}  # fmt: skip
        write_whole(plan, json.dumps(about))
        plan.chmod(0o600)  # a mirror's address may hold credentials
        for one in found.files:
            old, part = self.folder / one.path, fetch_files.part_of(self.partial, one)
            if old.is_file() and old.stat().st_size == one.size and not (self.partial / one.path).exists():
                part.parent.mkdir(parents=True, exist_ok=True)
                part.unlink(missing_ok=True)
                os.link(old, part)

    def _carry_out(self, found: Listing, say: Say) -> None:
        env = {
            **os.environ,
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_VERBOSITY": "error",
        }
        # -I: no file of the repository that is being fetched can pass for a module.
        argv = [sys.executable, "-I", "-m", "runbook.actions.fetch_files", str(self.partial)]
        job = self.jobs.start(self.name, argv, env=env, cwd=self.partial, owner=self.owner, grace_s=2)
        try:
            say(f"fetching as process {job.pid}; the log is {job.log}")
            self._watch(job, found, say)
        except BaseException:
            self.jobs.stop(self.name)
            say(f"stopped: what was fetched is kept in {self.partial}; the same command goes on there")
            raise
        ended = self.jobs.ended(self.name)
        if ended is not None and ended.exit_code == 0:
            return
        last = (log_tail(job.log, 1) or [""])[0]
        try:
            said = json.loads(last)
            raise ActionFailed(said["seen"], said["expected"], said["do"])
        except (ValueError, KeyError, TypeError):
            how = ended.text() if ended else "killed, its keeper too"
            raise ActionFailed(
                f"the fetch of {self.repo} ended: {how}: {last}",
                "every file fetched",
                f"read {job.log}, then fetch again: what is there is kept",
            ) from None

    def _watch(self, job: Job, found: Listing, say: Say) -> None:
        """Say how far it is, until the job has ended."""
        began = told = time.monotonic()
        first = _have(self.partial, found)
        while not self.jobs.join(job, LOOK_EVERY_S):
            now = time.monotonic()
            if now - told >= TELL_EVERY_S:
                told = now
                say(progress(_have(self.partial, found), first, found.size, now - began))

    def _put_in_place(self, found: Listing) -> None:
        hub.seal(self.partial, found, skeleton=False)
        old = self.folder.with_name(f"{self.folder.name}.old")
        if self.folder.exists():
            shutil.rmtree(old, ignore_errors=True)
            self.folder.rename(old)
        self.partial.rename(self.folder)
        # The plan goes last: a kill before the rename finds it, and so every file, again.
        (self.folder / fetch_files.PLAN).unlink()
        shutil.rmtree(old, ignore_errors=True)


def _same(about: Mapping[str, Any], found: Listing) -> bool:
    if about.get("source") == found.source and about.get("commit") and about["commit"] == found.commit:
        return True
    have = {(each["path"], each["size"], each["sha256"] or each["blob"]) for each in about["files"]}
    return have == {(one.path, one.size, one.sha256 or one.blob) for one in found.files}


def _have(partial: Path, found: Listing) -> int:
    """Bytes of the plan that are in the folder, finished or growing."""
    return sum(
        min(_size(partial / one.path) or _size(fetch_files.part_of(partial, one)), one.size)
        for one in found.files
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # moved to its place this moment, or not begun
        return 0


def amount(size: int) -> str:
    """Bytes as people say them, in powers of ten as hubs and disks count: ``9.32 GB``."""
    for unit, power in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= power:
            return f"{size / power:.{2 if size < 100 * power else 0}f} {unit}"
    return f"{size} B"


def progress(have: int, first: int, total: int, seconds: float) -> str:
    """One line of a fetch under way: ``1.20 GB of 9.32 GB (12 %), 110 MB/s, about 1 min 14 s left``."""
    rate = (have - first) / seconds if seconds > 0 else 0.0
    if have >= total:
        return f"{amount(total)} of {amount(total)} (100 %), comparing hashes"
    left = f"about {span((total - have) / rate)} left" if rate >= 1 else "nothing came yet"
    return f"{amount(have)} of {amount(total)} ({100 * have // total} %), {amount(int(rate))}/s, {left}"


def span(seconds: float) -> str:
    """Seconds as people say them."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
