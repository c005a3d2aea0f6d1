"""Where a process's control groups lie, from ``/proc/self/cgroup`` and the mount table (cgroups(7)).

A limit of any folder on the way to the root counts. Version 1 has one hierarchy a controller, version 2 one for all, and
a machine may have both; a container often sees its own group as the root.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from runbook.parse.mounts import Mount
from runbook.parse.numbers import whole

DEEPEST = 32
# Version 1 writes "no limit" as a number near 2**63.
NEAR_INFINITE = 1 << 59


@dataclass(frozen=True)
class Groups:
    """Folders whose files limit a process, its own first and the root of the mount last; version 1 or 2, 0 for none."""

    version: int
    folders: tuple[str, ...] = ()


def paths(text: str | None) -> dict[str, str]:
    """Controller -> path of ``/proc/self/cgroup``; the path of version 2 is under ""."""
    found: dict[str, str] = {}
    for line in (text or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if whole(number) is None or not colon or not path.startswith("/"):
            continue
        for name in controllers.split(","):
            found.setdefault(name, path)
    return found


def groups(text: str | None, mounts: Iterable[Mount], controller: str) -> Groups:
    """The groups that limit this process by ``controller``.

    Version 0 when it is in no group of that controller, or its hierarchy is not mounted where we can see it.
    """
    own, table = paths(text), tuple(mounts)
    first = next((one for one in table if one.kind == "cgroup" and controller in one.options), None)
    second = next((one for one in table if one.kind == "cgroup2"), None)
    if first is not None and controller in own:
        return Groups(1, _upwards(first, own[controller]))
    return Groups(2, _upwards(second, own[""])) if second is not None and "" in own else Groups(0)


def _upwards(mount: Mount, path: str) -> tuple[str, ...]:
    """From the group to the mount's own folder. A group outside of what is mounted is seen as that folder itself."""
    if mount.root != "/":
        inside = path == mount.root or path.startswith(f"{mount.root}/")
        path = path[len(mount.root) :] if inside else "/"
    parts = [part for part in path.split("/") if part]
    if ".." in parts or len(parts) > DEEPEST:
        parts = []
    return tuple("/".join((mount.place, *parts[:depth])) for depth in range(len(parts), -1, -1))


def number(text: str | None) -> int | None:
    """A limit in its own unit (bytes, processes); None when there is none (``max``, -1, absent, near infinite)."""
    limit = whole(text or "")
    return None if limit is None or limit >= NEAR_INFINITE else limit


def quota(text: str | None) -> float | None:
    """Cores' worth of time in ``cpu.max`` (``200000 100000``: two); None when there is no quota."""
    words = (text or "").split()
    pair = 2
    if len(words) != pair:
        return None
    time, period = whole(words[0]), whole(words[1])
    return None if time is None or not period else round(time / period, 2)
