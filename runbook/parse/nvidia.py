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
