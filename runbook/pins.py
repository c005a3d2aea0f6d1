"""Stacks: exact sets of versions that were seen to work together, as data under ``stacks/``, each pin with its source.

A stack folder holds ``manifest.toml`` (what, why, pairs), ``requirements.in`` with its overrides, and one hashed lock
per Python minor (``py311.txt`` ...), which carries no registry address.
"""

import functools
import hashlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from runbook.errors import BadParameter
from runbook.probe import Probe

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

STACKS = Path(__file__).parent / "stacks"
MISSION = "vllm-0.19.1-cu128"
REHEARSAL = ("vllm-0.32.0-cpu", "vllm-0.19.1-cpu")


@dataclass(frozen=True)
class Pin:
    """One package at one version or range, why so, and where that is said."""

    package: str
    version: str
    why: str
    source: str
    read: str


@dataclass(frozen=True)
class Stack:
    """A manifest as read. ``device`` is ``cuda`` or ``cpu``; a CPU stack has no ``driver_floor`` and no ``machine_code``.

    ``machine_code`` lists compute capabilities with machine code in torch and vLLM alike, such as ``8.0``.
    """

    name: str
    what: str
    why: str
    device: str
    vllm: str
    torch: str
    distribution: str
    model: str
    flash_attn: str
    driver_floor: str
    machine_code: tuple[str, ...]
    pythons: tuple[str, ...]
    pins: tuple[Pin, ...]

    def lock(self, minor: str) -> Path:
        """The hashed lock for a Python such as ``3.11``.

        Raises:
            BadParameter: the stack has no lock for it.
        """
        path = STACKS / self.name / f"py{minor.replace('.', '')}.txt"
        if not path.exists():
            raise BadParameter(
                f"the stack {self.name} has no lock for Python {minor}",
                f"Python {', '.join(self.pythons)}",
                "start the runbook with one of these (they are the versions its wheels exist for)",
            )
        return path

    def pin(self, package: str) -> Pin | None:
        """The pin of one package."""
        return next((one for one in self.pins if one.package == package), None)


def names() -> tuple[str, ...]:
    """Names of all stacks."""
    return tuple(sorted(path.parent.name for path in STACKS.glob("*/manifest.toml")))


@functools.cache
def stack(name: str) -> Stack:
    """Read one stack.

    Raises:
        BadParameter: there is no stack of that name.
    """
    path = STACKS / name / "manifest.toml"
    if name not in names():
        raise BadParameter(
            f"no stack {name!r}", f"one of {', '.join(names())}", "runbook run --help lists them too"
        )
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    return Stack(
        data["name"],
        data["what"],
        data["why"],
        data["device"],
        data["vllm"],
        data["torch"],
        data["distribution"],
        data["model"],
        data["flash_attn"],
        data.get("driver_floor", ""),
        tuple(data.get("machine_code", ())),
        tuple(data["python"]),
        tuple(
            Pin(one["package"], one["version"], one["why"], one["source"], str(one["read"]))
            for one in data["pin"]
        ),
    )


def locked(lock: Path) -> dict[str, str]:
    """Package -> version of a lock, names normalised (PEP 503)."""
    pairs = re.findall(r"(?m)^([A-Za-z0-9._-]+)==([^\s;\\]+)", lock.read_text(encoding="utf-8"))
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pairs}


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def has_nvidia_gpu(host: Probe) -> bool:
    """True when the machine has an NVIDIA device node; the driver makes one per GPU.

    Under Windows' Linux cards come through /dev/dxg instead, and NVIDIA's libraries through a folder of Windows'
    driver (https://docs.nvidia.com/cuda/wsl-user-guide/).
    """
    if host.glob("/dev/nvidia[0-9]*"):
        return True
    return bool(host.glob("/dev/dxg") and host.glob("/usr/lib/wsl/lib/libcuda.so.1"))


def stacks_for(host: Probe) -> tuple[str, ...]:
    """The stacks a walk uses on this machine: the mission's with an NVIDIA GPU, else both CPU rehearsals."""
    return (MISSION,) if has_nvidia_gpu(host) else REHEARSAL


def at_least(version: str, floor: str) -> bool:
    """Numeric comparison of dotted versions such as driver numbers."""
    return Version(version) >= Version(floor)
