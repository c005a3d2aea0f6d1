"""Facts from ``nvidia-smi``, the kernel module and nvcc."""

import re
from dataclasses import dataclass

from runbook.parse.numbers import whole

QUERY = ("index", "name", "compute_cap", "driver_version", "memory.total", "memory.used", "ecc.errors.uncorrected.volatile.total", "mig.mode.current")  # fmt: skip
ARGV = ["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits"]


@dataclass(frozen=True)
class Gpu:
    """One GPU as nvidia-smi prints it; memory in MiB; None where it prints [N/A] or nothing that can be read.

    ``ecc_uncorrected`` is the cell as printed: a count, ``[N/A]`` on cards without ECC, or words on a sick card.
    """

    index: int
    name: str
    compute_cap: str | None
    driver: str | None
    total_mib: int | None
    used_mib: int | None
    ecc_uncorrected: str
    mig: str | None


def gpus(text: str) -> tuple[Gpu, ...]:
    """The rows of ``ARGV``; rows of another shape are left out."""
    found = []
    for line in text.splitlines():
        # Split by hand: no cell holds a comma or a quote, and csv gives up on long cells and NUL bytes.
        row = [cell.strip() for cell in line.split(",")]
        index = whole(row[0])
        if len(row) == len(QUERY) and index is not None:
            _, name, cap, driver, total, used, ecc, mig = row
            found.append(
                Gpu(
                    index,
                    name,
                    _match(r"\d{1,4}\.\d{1,4}", cap),
                    _match(r"\d{1,9}(\.\d{1,9})+", driver),
                    whole(total),
                    whole(used),
                    ecc,
                    _match(r"Enabled|Disabled", mig),
                )
            )
    return tuple(found)


def _match(pattern: str, text: str) -> str | None:
    return text if re.fullmatch(pattern, text, re.ASCII) else None


def module_version(text: str | None) -> str | None:
    """The kernel module's version in ``/proc/driver/nvidia/version`` (closed and open modules print it alike)."""
    found = re.search(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)", text or "", re.ASCII)
    return found.group(1) if found else None


def driver_cuda(text: str) -> str | None:
    """The highest CUDA version the driver serves, from the header of plain ``nvidia-smi``. It is not a toolkit."""
    found = re.search(r"CUDA Version:\s*(\d+\.\d+)", text, re.ASCII)
    return found.group(1) if found else None


def nvcc(text: str) -> str | None:
    """The release in ``nvcc --version``, such as ``13.0``."""
    found = re.search(r"release (\d+\.\d+)", text, re.ASCII)
    return found.group(1) if found else None


def is_open_module(text: str | None) -> bool | None:
    """True for the open kernel module, False for the proprietary one, by ``/proc/driver/nvidia/version``; None for neither."""
    found = re.search(r"NVRM version: NVIDIA UNIX (Open )?.*Kernel Module", text or "")
    return None if found is None else bool(found.group(1))


def parameter(params: str | None, name: str) -> int | None:
    """A number in ``/proc/driver/nvidia/params``, such as ``DeviceFileMode: 438`` (decimal of octal 0666)."""
    found = re.search(rf"(?m)^{re.escape(name)}:\s*([0-9]{{1,10}})\s*$", params or "")
    return whole(found.group(1)) if found else None


def mig_names(listing: str) -> tuple[str, ...]:
    """Profiles of the MIG instances in ``nvidia-smi -L``, such as ``1g.18gb``, in its order."""
    return tuple(re.findall(r"(?m)^\s+MIG (\S+)\s+Device\s+[0-9]+:", listing))


def matrix(text: str) -> tuple[tuple[str, ...], ...]:
    """The GPU-by-GPU cells of ``nvidia-smi topo -m`` or ``-p2p r``; () when the table is not there or not square."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    rows = [line.split() for line in plain.splitlines() if re.match(r"\s*GPU[0-9]+\s", line)]
    # The first row is the heading; network cards and affinities stand right of the GPUs.
    count = sum(1 for cell in rows[0] if re.fullmatch(r"GPU[0-9]+", cell)) if rows else 0
    body = [row[1 : count + 1] for row in rows[1:]]
    return tuple(map(tuple, body)) if len(body) == count and all(len(row) == count for row in body) else ()


@dataclass(frozen=True)
class PciFunction:
    """Function 0 of an NVIDIA device on the bus; ``device`` is its id (``2335``), ``driver`` the kernel driver or ""."""

    bus: str
    device: str
    driver: str


def pci_functions(devices: str | None) -> tuple[PciFunction, ...] | None:
    """NVIDIA's function 0 of each device in ``/proc/bus/pci/devices``; None when the file is not there.

    Columns (Linux ``drivers/pci/proc.c``): bus and devfn, vendor and device, interrupt, seven addresses, seven sizes, driver.
    The file names no PCI domain; a machine with several has one line for each all the same.
    """
    if devices is None:
        return None
    found = []
    for line in devices.splitlines():
        row = line.split("\t")
        place = re.match(r"([0-9a-f]{2})([0-9a-f]{2})\t10de([0-9a-f]{4})\t", line)
        if place and int(place[2], 16) % 8 == 0:
            name = row[17].strip() if len(row) > 17 else ""  # noqa: PLR2004 - the column named above
            found.append(PciFunction(f"{place[1]}:{int(place[2], 16) // 8:02x}.0", place[3], name))
    return tuple(found)
