"""Stacks: exact sets of versions that were seen to work together, as data under ``stacks/``, each pin with its source.

A stack folder holds ``manifest.toml`` (what, why, pairs), ``requirements.in`` with its overrides, one hashed lock per
Python minor (``py311.txt`` ...), which carries no registry address, and ``sizes.json``, what the wheels of the locks take.
A drill has requirements that clash, hence no lock: it can be planned, to see why, and never built.
"""

import functools
import hashlib
import json
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
# Bytes of bytecode for each byte of source: 1.299 and 1.284 in the two CPU targets that were looked into (Python 3.11).
BYTECODE = 1.3


@dataclass(frozen=True)
class Pin:
    """One package at one version or range, why so, and where that is said; ``since`` the Python from which it is asked for."""

    package: str
    version: str
    why: str
    source: str
    read: str
    since: str = ""


@dataclass(frozen=True)
class Size:
    """Bytes of one package of a lock: its wheel, and the files in it; ``sources`` are those that get bytecode beside them."""

    version: str
    wheel: int
    unpacked: int
    files: int
    sources: int

    @property
    def installed(self) -> int:
        """Bytes on disk once its bytecode is compiled."""
        return self.unpacked + round(self.sources * BYTECODE)


@dataclass(frozen=True)
class Stack:
    """A manifest as read. ``device`` is ``cuda`` or ``cpu``; a CPU stack has no ``driver_floor`` and no ``machine_code``.

    ``machine_code`` lists compute capabilities with machine code in torch and vLLM alike, such as ``8.0``. ``flash_attn``
    is ``bundled`` in vLLM, ``none``, or the release of a package of its own. A ``drill`` has no lock and is never built.
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
    drill: bool = False

    @property
    def platform(self) -> str:
        """The oldest Linux its wheels install on, as uv's ``--python-platform`` names it; from the pin of glibc."""
        glibc = self.pin("glibc")
        if glibc is None:
            raise BadParameter(
                f"the stack {self.name} pins no glibc", "a [[pin]] of glibc", "add one to its manifest"
            )
        return f"x86_64-manylinux_{glibc.version.removeprefix('>=').replace('.', '_')}"

    @property
    def requirements(self) -> tuple[str, ...]:
        """What its locks were resolved from."""
        return lines(STACKS / self.name / "requirements.in")

    @property
    def overrides(self) -> tuple[str, ...]:
        """What replaces a demand of a package's own metadata."""
        return lines(STACKS / self.name / "overrides.txt")

    def lock(self, minor: str) -> Path:
        """The hashed lock for a Python such as ``3.11``.

        Raises:
            BadParameter: the stack has no lock for it, or is a drill, which has none at all.
        """
        if self.drill:
            raise _is_drill(self.name)
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


def lines(path: Path) -> tuple[str, ...]:
    """The requirements of a file, without its comments; none when it is not there."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return tuple(
        line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
    )


def _is_drill(name: str) -> BadParameter:
    return BadParameter(
        f"the stack {name} cannot be resolved, so it has no lock and is never built",
        f"one of {', '.join(names())}",
        f"runbook env plan --stack {name} shows which of its pins clash",
    )


def _folders() -> tuple[str, ...]:
    return tuple(sorted(path.parent.name for path in STACKS.glob("*/manifest.toml")))


def names() -> tuple[str, ...]:
    """Names of the stacks that can be built."""
    return tuple(name for name in _folders() if not stack(name).drill)


def drills() -> tuple[str, ...]:
    """Names of the stacks that clash with themselves."""
    return tuple(name for name in _folders() if stack(name).drill)


def buildable(name: str) -> Stack:
    """Read a stack that is to be built or examined.

    Raises:
        BadParameter: there is no stack of that name, or it is a drill.
    """
    one = stack(name)
    if one.drill:
        raise _is_drill(name)
    return one


@functools.cache
def stack(name: str) -> Stack:
    """Read one stack, a drill too.

    Raises:
        BadParameter: there is no stack of that name.
    """
    if name not in _folders():
        raise BadParameter(
            f"no stack {name!r}", f"one of {', '.join(names())}", "runbook run --help lists them too"
        )
    return read(STACKS / name)


def read(folder: Path) -> Stack:
    """The stack of a folder, which need not be one of ours."""
    data = tomllib.loads((folder / "manifest.toml").read_text(encoding="utf-8"))
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
            Pin(
                one["package"],
                one["version"],
                one["why"],
                one["source"],
                str(one["read"]),
                one.get("since", ""),
            )
            for one in data["pin"]
        ),
        data.get("drill", False),
    )


def sizes(name: str, minor: str) -> dict[str, Size]:
    """Package -> what it takes, for the lock of one Python; empty for a stack without ``sizes.json``."""
    path = STACKS / name / "sizes.json"
    if not path.exists():
        return {}
    return {
        row["package"]: Size(each["version"], each["wheel"], each["unpacked"], each["files"], each["sources"])
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]
        for each in row["wheels"]
        if minor in each["pythons"]
    }


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
