"""Compare an environment with its lock and with what its packages recorded: changed packages, edited and missing files."""

import json
import time
from dataclasses import dataclass
from pathlib import Path

from runbook.actions import records
from runbook.actions.builds import Build
from runbook.changes import Change, package_changes
from runbook.parse import python_env


@dataclass(frozen=True)
class Verified:
    """What was compared and what does not fit.

    ``changes`` lead from the lock to what is installed; ``rewritten`` are packages of the locked version whose list of
    files is not the one they were installed with; ``strays`` are files that no package lists.
    """

    place: Path
    against: str
    packages: int
    files: int
    bytes: int
    by_hash: bool
    seconds: float
    changes: tuple[Change, ...] = ()
    rewritten: tuple[str, ...] = ()
    faults: tuple[records.Fault, ...] = ()
    strays: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """True when everything fits."""
        return not (self.changes or self.rewritten or self.faults or self.strays)


def of_build(build: Build, *, by_hash: bool) -> Verified:
    """A build of ours against the lock it was built from and the records it was built with."""
    lock = build.lock()
    built = build.stamp.get("records", {})
    have = records.record_hashes(build.site)
    rewritten = sorted(name for name in have if name in built and have[name] != built[name])
    known = set(build.stamp.get("strays", ()))
    notes = () if build.stamp else ("its target.json cannot be read, so its records are not known",)
    return _verified(build.site, "the lock it was built from", lock, by_hash=by_hash, rewritten=rewritten, known=known, notes=notes)  # fmt: skip


def of_site(site: Path, lock: dict[str, str] | None, against: str, *, by_hash: bool) -> Verified:
    """Any site-packages against its own records, and against a lock when there is one."""
    return _verified(site, against, lock, by_hash=by_hash, rewritten=[], known=None, notes=())


def _verified(
    site: Path,
    against: str,
    lock: dict[str, str] | None,
    *,
    by_hash: bool,
    rewritten: list[str],
    known: set[str] | None,
    notes: tuple[str, ...],
) -> Verified:
    started = time.monotonic()
    have = python_env.distributions(path.name for path in site.glob("*.dist-info"))
    changes = tuple(package_changes(lock, have)) if lock is not None else ()
    swapped = {one.name for one in changes}
    faults = tuple(records.faults(site, by_hash=by_hash))
    files, size = records.weight(site)
    # Of somebody else's environment nobody knows which files were there at first.
    strays = tuple(sorted(records.strays(site) - known)) if known is not None else ()
    return Verified(
        site,
        against,
        len(have),
        files,
        size,
        by_hash,
        round(time.monotonic() - started, 1),
        changes,
        tuple(name for name in rewritten if name not in swapped),
        faults,
        strays,
        notes,
    )


def as_text(one: Verified, *, limit: int) -> str:
    """What fits and what does not, at most ``limit`` lines of each kind."""
    how = "every byte read" if one.by_hash else "sizes compared, bytes not read"
    lines = [
        f"target     {one.place.parents[2] if len(one.place.parents) > 2 else one.place}",  # noqa: PLR2004 - lib/python3.x
        f"against    {one.against}",
        f"compared   {one.packages} packages, {one.files} files, {one.bytes / 2**30:.1f} GiB in {one.seconds} s; {how}",
    ]
    lines += [f"note       {note}" for note in one.notes]
    lines += _part("not as locked", [f"{each.text()}  {each.why}".rstrip() for each in one.changes], limit)
    lines += _part("relisted", [f"{name}: its RECORD is not the one it was installed with" for name in one.rewritten], limit)  # fmt: skip
    for kind in ("edited", "cut", "gone"):
        lines += _part(
            kind, [f"{each.name}  ({each.package})" for each in one.faults if each.kind == kind], limit
        )
    lines += _part("of no package", list(one.strays), limit)
    lines.append("verdict    whole" if one.whole else "verdict    NOT as it was built")
    return "\n".join(lines)


def _part(label: str, rows: list[str], limit: int) -> list[str]:
    if not rows:
        return []
    rest = [f"  ... {len(rows) - limit} more; --all shows them"] if len(rows) > limit else []
    return [f"{label}: {len(rows)}", *(f"  {row}" for row in rows[:limit]), *rest]


def as_json(one: Verified) -> str:
    """The same for a program."""
    data = {
        "schema": "verified/1",
        "whole": one.whole,
        "place": str(one.place),
        "against": one.against,
        "packages": one.packages,
        "files": one.files,
        "bytes": one.bytes,
        "by_hash": one.by_hash,
        "seconds": one.seconds,
        "changes": [{"package": each.name, "kind": each.kind.value, "locked": each.have, "installed": each.want} for each in one.changes],
        "relisted": list(one.rewritten),
        "faults": [{"package": each.package, "file": each.name, "kind": each.kind} for each in one.faults],
        "strays": list(one.strays),
        "notes": list(one.notes),
    }  # fmt: skip
    return json.dumps(data, indent=1) + "\n"
