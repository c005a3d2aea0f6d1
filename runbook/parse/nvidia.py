"""Facts from ``nvidia-smi``, the kernel module and nvcc."""

import csv
import re
from dataclasses import dataclass

QUERY = ("index", "name", "compute_cap", "driver_version", "memory.total", "memory.used", "ecc.errors.uncorrected.volatile.total", "mig.mode.current")  # fmt: skip
ARGV = ["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits"]


@dataclass(frozen=True)
class Gpu:
    """One GPU as nvidia-smi prints it; memory in MiB; None where it prints [N/A] or nothing that can be read."""

    index: int
    name: str
    compute_cap: str | None
    driver: str | None
    total_mib: int | None
    used_mib: int | None
    ecc_uncorrected: int | None
    mig: str | None


def gpus(text: str) -> tuple[Gpu, ...]:
    """The rows of ``ARGV``; rows of another shape are left out."""
    found = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        if len(row) == len(QUERY) and row[0].strip().isdigit():
            index, name, cap, driver, total, used, ecc, mig = (cell.strip() for cell in row)
            found.append(
                Gpu(int(index), name, _match(r"\d+\.\d+", cap), _match(r"\d+(\.\d+)+", driver), _number(total), _number(used), _number(ecc), _match(r"Enabled|Disabled", mig))
            )  # fmt: skip
    return tuple(found)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


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
