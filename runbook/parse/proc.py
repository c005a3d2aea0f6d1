"""Facts from ``/proc``, ``/sys`` and the small tools every Linux has."""

import re
from dataclasses import dataclass


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
    return int(found.group(1)) // 1024 if found else None


def cgroup_limit_mib(text: str | None) -> int | None:
    """A cgroup memory limit in MiB; None when there is none (``max``, absent, or v1's near-infinite number)."""
    word = (text or "").strip()
    if not word.isdigit() or int(word) >= 1 << 60:
        return None
    return int(word) // (1 << 20)


def disk(df: str) -> FileSystem | None:
    """The last row of ``df -Pk PATH``."""
    rows = [line.split(None, 5) for line in df.splitlines()[1:]]
    fields = 6
    rows = [row for row in rows if len(row) == fields and row[1].isdigit() and row[3].isdigit()]
    if not rows:
        return None
    device, total, _, free, _, mount = rows[-1]
    return FileSystem(device, int(total) // 1024, int(free) // 1024, mount)


def glibc(text: str) -> str | None:
    """The version in ``getconf GNU_LIBC_VERSION`` (``glibc 2.36``)."""
    found = re.search(r"glibc\s+(\d+\.\d+)", text)
    return found.group(1) if found else None


def open_files_limit(limits: str | None) -> int | None:
    """The soft limit of open files in ``/proc/self/limits``; None when it cannot be read, -1 when unlimited."""
    found = re.search(r"(?m)^Max open files\s+(\d+|unlimited)", limits or "")
    if not found:
        return None
    return -1 if found.group(1) == "unlimited" else int(found.group(1))


def pci_nvidia(devices: str | None) -> tuple[str, ...] | None:
    """``vendor:device`` of each NVIDIA function 0 in ``/proc/bus/pci/devices``; None when the file is not there.

    The file's first two columns are bus/devfn and vendor/device in hexadecimal (Linux ``drivers/pci/proc.c``);
    function 0 of a card is the GPU or the bridge, its audio and USB functions follow it.
    """
    if devices is None:
        return None
    found = re.findall(r"(?m)^([0-9a-f]{4})\s+(10de)([0-9a-f]{4})\b", devices)
    return tuple(f"{vendor}:{device}" for place, vendor, device in found if int(place, 16) % 8 == 0)
