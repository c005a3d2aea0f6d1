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


def soft_limit(limits: str | None, name: str) -> int | None:
    """A soft limit of ``/proc/self/limits`` such as ``Max open files``; None when it cannot be read, -1 when unlimited."""
    found = re.search(rf"(?m)^{re.escape(name)}\s+(\d+|unlimited)", limits or "")
    if not found:
        return None
    return -1 if found.group(1) == "unlimited" else whole(found.group(1))


def status(text: str | None, field: str) -> str | None:
    """A field of ``/proc/self/status`` such as ``Cpus_allowed_list``."""
    found = re.search(rf"(?m)^{re.escape(field)}:[ \t]*(\S.*)$", text or "")
    return found.group(1).strip() if found else None


def listed(text: str | None) -> int | None:
    """How many numbers a list such as ``0-3,8`` names (cpuset(7)); None when it is none."""
    count = 0
    for part in (text or "").strip().split(","):
        first, dash, last = part.partition("-")
        low = whole(first)
        high = whole(last) if dash else low
        if low is None or high is None or high < low:
            return None
        count += high - low + 1
    return count


def os_release(text: str | None) -> dict[str, str]:
    """Keys of ``/etc/os-release``, quotes taken off (os-release(5))."""
    pairs = re.findall(r"(?m)^([A-Z_]+)=(.*)$", text or "")
    return {key: value.strip().strip("\"'") for key, value in pairs}


def modules(text: str | None) -> frozenset[str] | None:
    """Names of the loaded modules in ``/proc/modules``; None when the file is not there."""
    return None if text is None else frozenset(re.findall(r"(?m)^(\w+) \d+ ", text, re.ASCII))


def pci_nvidia(devices: str | None) -> tuple[str, ...] | None:
    """``vendor:device`` of each NVIDIA function 0 in ``/proc/bus/pci/devices``; None when the file is not there.

    The file's first two columns are bus/devfn and vendor/device in hexadecimal (Linux ``drivers/pci/proc.c``);
    function 0 of a card is the GPU or the bridge, its audio and USB functions follow it.
    """
    if devices is None:
        return None
    found = re.findall(r"(?m)^([0-9a-f]{4})\s+(10de)([0-9a-f]{4})\b", devices)
    return tuple(f"{vendor}:{device}" for place, vendor, device in found if int(place, 16) % 8 == 0)


def pci_drivers(devices: str | None) -> tuple[str, ...] | None:
    """The driver that holds each NVIDIA function 0, by the last column of the same file; "" for none, None as above."""
    if devices is None:
        return None
    column = 17
    found = []
    for line in devices.splitlines():
        row = line.split("\t")
        if len(row) > 1 and re.fullmatch(r"[0-9a-f]{4}", row[0]) and re.match(r"10de[0-9a-f]{4}\b", row[1]):
            name = row[column].strip() if len(row) > column else ""
            if int(row[0], 16) % 8 == 0:
                found.append(name)
    return tuple(found)


def identity(text: str | None) -> tuple[int, frozenset[int]] | None:
    """Effective user id and all group ids of a process, from ``/proc/PID/status`` (proc_pid_status(5)); None when not read.

    Uid and Gid are four numbers each, of which the second is the effective one.
    """
    user, group = ((status(text, field) or "").split()[1:2] for field in ("Uid", "Gid"))
    numbers = [whole(word) for word in (*user, *group, *(status(text, "Groups") or "").split())]
    if len(user) + len(group) != 2 or None in numbers[:2]:  # noqa: PLR2004 - one each
        return None
    return numbers[0] or 0, frozenset(number for number in numbers[1:] if number is not None)


def memory_regions(resource: str | None) -> int | None:
    """Memory regions of a PCI device that have an address, by ``/sys/bus/pci/devices/*/resource``; None when not read.

    One line a region: start, end, flags; bit 9 of the flags marks memory (Linux ``include/linux/ioport.h``). A region for
    which the machine's firmware and the kernel found no room is all zero, or has flags and no start.
    """
    rows = re.findall(r"(?m)^0x([0-9a-f]{16}) 0x[0-9a-f]{16} 0x([0-9a-f]{16})$", resource or "")
    is_memory = 0x200
    return (
        sum(1 for start, flags in rows[:6] if int(start, 16) and int(flags, 16) & is_memory) if rows else None
    )
