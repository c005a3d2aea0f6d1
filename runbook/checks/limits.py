"""Readings of limits that several checks share: control groups, cores, and what is mounted where."""

from dataclasses import dataclass

from runbook.parse import cgroup, proc
from runbook.parse import mounts as parse_mounts
from runbook.parse.cgroup import Groups
from runbook.parse.mounts import Mount
from runbook.probe import Probe

OWN_GROUPS = "/proc/self/cgroup"
MOUNTINFO = "/proc/self/mountinfo"
STATUS = "/proc/self/status"


@dataclass(frozen=True)
class Limit:
    """The smallest limit on the way to the root: MiB or a count; None when there is none. ``origin`` is the question.

    ``known`` is False when the control groups of this process could not be read at all.
    """

    value: int | None
    origin: str
    known: bool


@dataclass(frozen=True)
class Cores:
    """Cores this process may use: ``allowed`` by its affinity, ``quota`` in cores' worth of time (None: no quota)."""

    allowed: int | None
    quota: float | None
    origin_allowed: str
    origin_quota: str
    quota_known: bool

    @property
    def usable(self) -> float | None:
        """The smaller of the two; None when the affinity could not be read."""
        return self.allowed if self.allowed is None or self.quota is None else min(self.allowed, self.quota)


def mounts(host: Probe) -> tuple[Mount, ...]:
    """The mount table of this process."""
    return parse_mounts.mounts(host.read_text(MOUNTINFO))


def levels(host: Probe, controller: str) -> Groups | None:
    """The control groups that limit this process; None when they could not be told.

    A kernel without control groups has no such file, and so no limit: that is version 0 without folders.
    """
    own = host.read_text(OWN_GROUPS)
    if own is None:
        return Groups(0)
    found = cgroup.groups(own, mounts(host), controller)
    return found if found.version else None


def _smallest(host: Probe, controller: str, name: str, old_name: str) -> Limit:
    groups = levels(host, controller)
    if groups is None:
        return Limit(None, f"read {OWN_GROUPS}", known=False)
    files = [f"{folder}/{old_name if groups.version == 1 else name}" for folder in groups.folders]
    values = [(cgroup.number(host.read_text(path)), path) for path in files]
    first = files[0] if files else OWN_GROUPS
    value, path = min(((value, path) for value, path in values if value is not None), default=(None, first))
    return Limit(value, f"read {path}", known=True)


def memory_limit(host: Probe) -> Limit:
    """The memory limit in MiB: of this control group or of one above it (control group v2 documentation, memory.max)."""
    found = _smallest(host, "memory", "memory.max", "memory.limit_in_bytes")
    return found if found.value is None else Limit(found.value >> 20, found.origin, known=True)


def process_limit(host: Probe) -> Limit:
    """How many processes and threads the control groups allow (cgroup v1 and v2 name the file alike)."""
    return _smallest(host, "pids", "pids.max", "pids.max")


def _quota(host: Probe, groups: Groups, folder: str) -> tuple[float | None, str]:
    """Version 1 keeps time and period in two files, and writes -1 for no quota."""
    if groups.version != 1:
        path = f"{folder}/cpu.max"
        return cgroup.quota(host.read_text(path)), path
    path = f"{folder}/cpu.cfs_quota_us"
    time = host.read_text(path)
    period = host.read_text(f"{folder}/cpu.cfs_period_us") if cgroup.number(time) is not None else ""
    return cgroup.quota(f"{time} {period}"), path


def cores(host: Probe) -> Cores:
    """Affinity and CPU quota. ``nproc`` is not asked: it obeys OMP_NUM_THREADS, and most releases ignore the quota."""
    allowed = proc.listed(proc.status(host.read_text(STATUS), "Cpus_allowed_list"))
    groups = levels(host, "cpu")
    found = [_quota(host, groups, folder) for folder in groups.folders] if groups else []
    first = found[0][1] if found else OWN_GROUPS
    quota, path = min(((value, path) for value, path in found if value is not None), default=(None, first))
    return Cores(allowed, quota, f"read {STATUS}", f"read {path}", groups is not None)
