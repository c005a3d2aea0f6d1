"""Facts from ``/proc``, ``/sys`` and the small tools every Linux has."""

import re
from dataclasses import dataclass

from runbook.parse.numbers import whole


@dataclass(frozen=True)
class FileSystem:
    """One row of ``df -Pk``; sizes in MiB."""

    device: str
    total_mib: int
    free_mib: int
    mount: str


def cpu_flags(cpuinfo: str | None) -> frozenset[str]:
    """Instruction-set flags of the first core in ``/proc/cpuinfo`` (x86: ``flags``, Arm: ``Features``)."""
    found = re.search(r"(?m)^(?:flags|Features)\s*:\s*(.+)$", cpuinfo or "")
    return frozenset(found.group(1).split()) if found else frozenset()


def cpu_name(cpuinfo: str | None) -> str | None:
    """``model name`` of the first core."""
    found = re.search(r"(?m)^model name\s*:\s*(.+)$", cpuinfo or "")
    return found.group(1).strip() if found else None


def meminfo_mib(meminfo: str | None, field: str) -> int | None:
    """A field of ``/proc/meminfo`` in MiB."""
    found = re.search(rf"(?m)^{re.escape(field)}:\s*(\d+) kB", meminfo or "")
    kib = whole(found.group(1)) if found else None
    return None if kib is None else kib // 1024


def cgroup_limit_mib(text: str | None) -> int | None:
    """A cgroup memory limit in MiB; None when there is none (``max``, absent, or v1's near-infinite number)."""
    limit = whole(text or "")
    return None if limit is None or limit >= 1 << 59 else limit // (1 << 20)


def disk(df: str) -> FileSystem | None:
    """The last row of ``df -Pk PATH``."""
    fields = 6
    for line in reversed(df.splitlines()[1:]):
        row = line.split(None, fields - 1)
        if (
            len(row) == fields
            and (total := whole(row[1])) is not None
            and (free := whole(row[3])) is not None
        ):
            return FileSystem(row[0], total // 1024, free // 1024, row[5])
    return None


def glibc(text: str) -> str | None:
    """The version in ``getconf GNU_LIBC_VERSION`` (``glibc 2.36``)."""
    found = re.search(r"glibc\s+(\d+\.\d+)", text)
    return found.group(1) if found else None


def open_files_limit(limits: str | None) -> int | None:
    """The soft limit of open files in ``/proc/self/limits``; None when it cannot be read, -1 when unlimited."""
    found = re.search(r"(?m)^Max open files\s+(\d+|unlimited)", limits or "")
    if not found:
        return None
    return -1 if found.group(1) == "unlimited" else whole(found.group(1))


def pci_nvidia(devices: str | None) -> tuple[str, ...] | None:
    """``vendor:device`` of each NVIDIA function 0 in ``/proc/bus/pci/devices``; None when the file is not there.

    The file's first two columns are bus/devfn and vendor/device in hexadecimal (Linux ``drivers/pci/proc.c``);
    function 0 of a card is the GPU or the bridge, its audio and USB functions follow it.
    """
    if devices is None:
        return None
    found = re.findall(r"(?m)^([0-9a-f]{4})\s+(10de)([0-9a-f]{4})\b", devices)
    return tuple(f"{vendor}:{device}" for place, vendor, device in found if int(place, 16) % 8 == 0)
