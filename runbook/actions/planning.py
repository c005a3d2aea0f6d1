"""What a build would do, worked out before anything is touched: changes, downloads, disk, time - or why it cannot be."""

import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runbook import conflict, pins, report, resolve, tables, uv
from runbook.actions import adopting
from runbook.actions.builds import Builds
from runbook.changes import Change, Kind, package_changes
from runbook.conflict import Explanation
from runbook.errors import ActionFailed, BadParameter
from runbook.parse import python_env, uv_log
from runbook.workspace import Workspace, above

if TYPE_CHECKING:
    from runbook.actions.build_target import BuildTarget

GIB = 1 << 30


@dataclass(frozen=True)
class Plan:
    """A build in advance. ``because`` is None when nothing is to be done.

    ``fetch`` counts wheels that uv's cache lacks and ``fetch_bytes`` is the most they can weigh; ``need`` are bytes of the
    workspace's disk. None stands for what could not be learned. ``refused`` is what uv said against the lock, "" if nothing.
    """

    action: "BuildTarget"
    because: str | None
    minor: str
    base: str
    lock: Path
    against: str
    changes: tuple[Change, ...]
    same: int
    fetch: int | None
    fetch_bytes: int | None
    need: int | None
    free: int
    seconds: float | None
    basis: str
    refused: str
    notes: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """False when the disk is known to be too small."""
        return self.need is None or self.need <= self.free


def planned(action: "BuildTarget", target: str = "", *, again: bool = False) -> Plan | Explanation:
    """The plan for a stack's target; compared with the environment ``target`` instead of the current build if one is named.

    Raises:
        ActionFailed: there is no Python to build with.
        BadParameter: ``target`` is no environment.
    """
    stack = action.ctx.stack
    if stack.drill:
        found = conflict.explain_stack(stack, stack.pythons[-1])
        if isinstance(found, Explanation):
            return found
        raise ActionFailed(
            f"{stack.name} is kept because it cannot be resolved, and today it can",
            "a conflict",
            "read its manifest again: an index has changed",
        )
    (minor, base), lock = action.base()
    wanted = pins.locked(lock)
    because = action.fault() or ("you asked for it" if again else None)
    have, against = _have(action.builds, target, wanted)
    changes = tuple(package_changes(have, wanted))
    notes: list[str] = []
    refused = ""
    fetch: int | None = 0
    fetch_bytes: int | None = 0
    if because or target:
        try:
            fetch, fetch_bytes = _to_fetch(action, lock, minor, base, notes)
        except ActionFailed as why:
            fetch, fetch_bytes, refused = None, None, "; ".join(each for each in (why.seen, why.do) if each)
    sizes = pins.sizes(stack.name, minor)
    files = sum(one.files for one in sizes.values())
    seconds, basis = _time(action.ctx.work, files, fetch, fetch_bytes)
    return Plan(
        action,
        because,
        minor,
        base,
        lock,
        against,
        changes,
        sum(1 for name in wanted if have.get(name) == wanted[name]),
        fetch,
        fetch_bytes,
        _need(action.ctx.work, sizes, fetch),
        shutil.disk_usage(above(action.ctx.work.root)).free,
        seconds,
        basis,
        refused,
        tuple(notes),
    )


def _have(builds: Builds, target: str, wanted: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """Packages to compare with, and what they are of."""
    if target:
        seen = adopting.examined(target)
        return {name: adopting.plain(version, wanted.get(name)) for name, version in seen.packages.items()}, str(seen.python)  # fmt: skip
    current = builds.current()
    if current is None:
        return {}, "nothing: there is no target yet"
    return python_env.distributions(path.name for path in current.site.glob("*.dist-info")), f"the current target {current.name}"  # fmt: skip


def _to_fetch(
    action: "BuildTarget", lock: Path, minor: str, base: str, notes: list[str]
) -> tuple[int | None, int | None]:
    """(wheels that uv's cache lacks, the most bytes they can weigh)."""
    with tempfile.TemporaryDirectory(prefix="runbook-plan-") as empty:
        # Into an empty folder: what is installed elsewhere does not count.
        ran = uv.ask(
            [
                *("pip", "sync", "--dry-run", "--require-hashes", "--python", base),
                *("--target", empty, str(lock)),
            ]
        )
    if ran.rc:
        blamed = uv_log.fault(ran.text)
        last = next((line for line in reversed(ran.text.splitlines()) if line.strip()), "no word")
        raise ActionFailed(
            blamed.seen if blamed else f"uv refuses the lock: {last}", do=blamed.do if blamed else ""
        )
    lacking = re.search(r"(?m)^Would download (\d+) packages?$", ran.text)
    count = int(lacking[1]) if lacking else 0
    if not count:
        return 0, 0
    shipped = pins.sizes(action.ctx.stack.name, minor)
    weights = [one.wheel for one in shipped.values()]
    if not shipped:
        try:
            wheels = resolve.of_lock(lock, minor, action.ctx.stack.platform)
        except (ActionFailed, BadParameter) as why:
            notes.append(f"how much that is could not be learned: {why.seen}")
            return count, None
        if wheels.unknown:
            notes.append(f"the index does not say how large {len(wheels.unknown)} of the wheels are")
            return count, None
        weights = [one.size or 0 for one in wheels.wheels]
    return count, sum(sorted(weights, reverse=True)[:count])


def _need(work: Workspace, sizes: Mapping[str, pins.Size], fetch: int | None) -> int | None:
    """Bytes the workspace's disk must have: uv links a file from its cache where both are on one file system."""
    if not sizes:
        return None
    whole = sum(one.installed for one in sizes.values())
    bytecode = whole - sum(one.unpacked for one in sizes.values())
    said = uv.ask(["cache", "dir"]).text.strip()
    shared = bool(said) and above(Path(said)).stat().st_dev == above(work.root).stat().st_dev
    return bytecode if shared and fetch == 0 else whole


def _time(
    work: Workspace, files: int, fetch: int | None, fetch_bytes: int | None
) -> tuple[float | None, str]:
    """(seconds, on what they rest): rates of the latest build here, else those that were shipped."""
    if not files:
        return None, "no sizes were shipped for this lock"
    (row,) = tables.rows("build_rates")
    rate, basis = float(row["value"]), f"{row['value']} files a second on {row['where']}"
    speed = None
    stamps = sorted((one.stamp for name in pins.names() for one in Builds(work, name).all()), key=lambda one: one.get("built", ""))  # fmt: skip
    for stamp in stamps:
        rest = stamp.get("seconds", 0) - stamp.get("phases", {}).get("prepared", 0)
        if rest > 0 and stamp.get("files", 0) > files // 10:
            rate, basis = (
                stamp["files"] / rest,
                f"{stamp['files'] / rest:.0f} files a second in the build of {stamp['built']} here",
            )
        if stamp.get("fetched_mib", 0) > 50 and stamp["phases"].get("prepared"):  # noqa: PLR2004 - less says little of a rate
            speed = stamp["fetched_mib"] * 2**20 / stamp["phases"]["prepared"]
    if not fetch:
        return files / rate, basis
    if speed is None or fetch_bytes is None:
        return files / rate, f"{basis}; and the download, whose rate was not measured here yet"
    return files / rate + fetch_bytes / speed, f"{basis}, {speed / 2**20:.0f} MiB fetched a second"


def as_text(plan: Plan | Explanation, *, limit: int) -> str:
    """The plan, or the conflict in plain words."""
    if isinstance(plan, Explanation):
        return conflict.as_text(plan).rstrip()
    action, stack = plan.action, plan.action.ctx.stack
    lines = [_line("stack", f"{stack.name}: vLLM {stack.vllm}, torch {stack.torch}")]
    if plan.because is None:
        lines.append(_line("nothing", f"{action.ctx.work.target(stack.name)} is whole and matches its lock"))
    else:
        lines.append(_line("because", plan.because))
    lines += [_line("python", f"{plan.minor}, from {plan.base}"), _line("against", plan.against)]
    lines += _changed(plan, limit)
    if plan.because is None:
        return "\n".join(lines)
    lines += [
        *([_line("refused", plan.refused)] if plan.refused else [_line("fetch", _fetched(plan))]),
        _line("disk", _disk(plan)),
        _line(
            "time",
            "not known: " + plan.basis
            if plan.seconds is None
            else f"about {plan.seconds:.0f} s ({plan.basis})",
        ),
        *[_line("note", each) for each in plan.notes],
        _line("create", f"a new build in {action.builds.folder}; hashes required, bytecode compiled"),
        _line("switch", "to it when every file is as its package recorded it; nothing changes before"),
        _line("log", str(action.log)),
        f"{'undo':10} {action.undo()}",
    ]
    return "\n".join(lines)


def _line(label: str, words: str) -> str:
    return report.labelled(label, words)


def _changed(plan: Plan, limit: int) -> list[str]:
    if not plan.changes:
        return [_line("changes", f"none: {plan.same} packages as locked")]
    if plan.same == 0 and all(one.kind is Kind.ADDED for one in plan.changes):
        pinned = {one.package for one in plan.action.ctx.stack.pins}
        core = ", ".join(f"{one.name} {one.want}" for one in plan.changes if one.name in pinned)
        return [_line("changes", f"{len(plan.changes)} packages added, among them {core}")]
    counts = {kind: sum(1 for one in plan.changes if one.kind is kind) for kind in Kind}
    words = ", ".join(f"{count} {kind.value}" for kind, count in counts.items() if count)
    lines = [_line("changes", f"{words}; {plan.same} stay")]
    weighty = [one for one in plan.changes if one.decides or one.kind is not Kind.ADDED] or list(plan.changes)
    rows = list(plan.changes) if limit > len(plan.changes) else weighty[:limit]
    for one in rows:
        lines.append(f"  {one.text()}")
        lines += [report.labelled("", one.why)] if one.why else []
    rest = len(plan.changes) - len(rows)
    return lines + ([f"  and {rest} more; --all shows them"] if rest else [])


def _fetched(plan: Plan) -> str:
    if plan.fetch == 0:
        return "nothing: uv's cache has every wheel"
    size = "an unknown size" if plan.fetch_bytes is None else f"at most {plan.fetch_bytes / GIB:.2f} GiB"
    return f"{size}: uv's cache lacks {plan.fetch} wheels"


def _disk(plan: Plan) -> str:
    if plan.need is None:
        return f"need not known; {plan.free / GIB:.1f} GiB free"
    words = f"{plan.need / GIB:.1f} GiB, {plan.free / GIB:.1f} GiB free"
    return words if plan.fits else f"NOT ENOUGH: {words}"


def exit_code(plan: Plan | Explanation) -> int:
    """1 when it cannot be built: the demands clash, uv refuses the lock, or the disk is too small."""
    return 1 if isinstance(plan, Explanation) or plan.refused or not plan.fits else 0


def as_json(plan: Plan | Explanation) -> str:
    """The same for a program."""
    if isinstance(plan, Explanation):
        return json.dumps(conflict.as_json(plan), indent=1) + "\n"
    data = {
        "schema": "plan/1",
        "stack": plan.action.ctx.stack.name,
        "because": plan.because,
        "python": plan.minor,
        "against": plan.against,
        "changes": [{"package": one.name, "kind": one.kind.value, "have": one.have, "want": one.want, "why": one.why} for one in plan.changes],
        "same": plan.same,
        "fetch_wheels": plan.fetch,
        "fetch_bytes": plan.fetch_bytes,
        "need_bytes": plan.need,
        "free_bytes": plan.free,
        "fits": plan.fits,
        "refused": plan.refused or None,
        "seconds": plan.seconds,
        "basis": plan.basis,
        "notes": list(plan.notes),
    }  # fmt: skip
    return json.dumps(data, indent=1) + "\n"
