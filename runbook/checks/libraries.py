"""Libraries as the loader finds them, and the driver's number: readings that several layers share.

The order is that of ld.so(8): LD_LIBRARY_PATH, then its cache, then the default folders. (A DT_RPATH of the file that
asks comes first of all; torch's files have one, and it leads into the wheels, where no libcuda lies.)
"""

import re
from dataclasses import dataclass

from runbook.checks.readings import GPU_QUESTION, gpus
from runbook.model import Evidence
from runbook.parse import loader, nvidia
from runbook.probe import Probe
from runbook.probes import questions

LIBCUDA = "libcuda.so.1"
PATHS = "LD_LIBRARY_PATH"
CACHE = questions.run(loader.CACHE_ARGV)
MODULE = "/proc/driver/nvidia/version"
_NUMBER = re.compile(r"\d{1,4}(?:\.\d{1,4}){1,3}", re.ASCII)
DEFAULT_FOLDERS = ("/usr/lib*/libcuda.so.*", "/usr/lib/*-linux-gnu/libcuda.so.*")


@dataclass(frozen=True)
class Copy:
    """One libcuda.so.1: ``how`` the loader comes to it, the version its file bears, ``kind`` stub, compat or driver."""

    path: str
    how: str
    version: str | None
    kind: str
    origin: str


def on_path(host: Probe) -> dict[str, tuple[str, ...]]:
    """Folder of LD_LIBRARY_PATH -> the libraries in it, in the order in which they are searched."""
    return {folder: host.glob(f"{folder}/lib*.so.*") for folder in loader.folders(host.env(PATHS))}


def cache(host: Probe) -> dict[str, tuple[str, ...]] | None:
    """The loader's cache, name -> paths; None when ldconfig is not there or fails."""
    ran = host.run(loader.CACHE_ARGV)
    return loader.cache(ran.out) if ran.ok else None


def libcuda(host: Probe) -> tuple[Copy, ...]:
    """Every libcuda.so.1 in the order in which the loader comes to it: a program gets the first."""
    found = []
    for folder, files in on_path(host).items():
        if f"{folder}/{LIBCUDA}" in files:
            found.append(_copy(host, f"{folder}/{LIBCUDA}", PATHS, files, f"glob {folder}/lib*.so.*"))
    for path in (cache(host) or {}).get(LIBCUDA, ()):
        files = host.glob(f"{loader.folder(path)}/libcuda.so.*")
        if path in files:  # else the cache is older than what lies there
            found.append(_copy(host, path, "ld.so cache", files, CACHE))
    if not found:
        for pattern in DEFAULT_FOLDERS:
            files = host.glob(pattern)
            found += [
                _copy(host, path, "default folder", tuple(each for each in files if loader.folder(each) == loader.folder(path)), f"glob {pattern}")
                for path in files
                if loader.name(path) == LIBCUDA
            ]  # fmt: skip
    first: dict[str, Copy] = {}
    for one in found:
        first.setdefault(one.path, one)
    return tuple(first.values())


def _copy(host: Probe, path: str, how: str, beside: tuple[str, ...], origin: str) -> Copy:
    versions = {loader.version(each) for each in beside if loader.name(each).startswith("libcuda.so.")} - {
        None
    }
    if len(versions) != 1:
        # Several releases in one folder, or a link into another one: only the link itself knows.
        ran = host.run(["readlink", "-f", path])
        versions = {loader.version(ran.out.strip())} if ran.ok else set()
    return Copy(path, how, next(iter(versions), None), loader.kind(path), origin)


def driver(host: Probe) -> Evidence:
    """The driver's version, of the kernel module or else as nvidia-smi names it, with the question that told it."""
    module = nvidia.module_version(host.read_text(MODULE))
    if module and _NUMBER.fullmatch(module):
        return Evidence("driver", module, f"read {MODULE}")
    found = gpus(host)
    named = found[0].driver if found else None
    return Evidence("driver", named if named and _NUMBER.fullmatch(named) else None, GPU_QUESTION)


def driver_version(host: Probe) -> str | None:
    """The driver's version, such as ``580.159.04``."""
    value = driver(host).value
    return value if isinstance(value, str) else None
