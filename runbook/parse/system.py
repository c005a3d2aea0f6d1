"""What small system tools print that no check judges but a bug report shows. Odd text gives None or nothing."""

import re
from collections.abc import Iterable

_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_UUID = re.compile(r" \(UUID: [^()\n]*\)")
_EGG = re.compile(r"-py[0-9.]+$")


def os_name(text: str | None) -> str | None:
    """``PRETTY_NAME`` of ``/etc/os-release`` (os-release(5)): quotes are optional."""
    found = re.search(r"(?m)^PRETTY_NAME=[\"']?([^\"'\n]+)", text or "")
    return found.group(1).strip() or None if found else None


def tool(name: str, text: str) -> str | None:
    """What follows a tool's name in its version line: ``gcc (Debian 12.2.0-14) 12.2.0`` -> ``(Debian 12.2.0-14) 12.2.0``."""
    found = re.search(rf"{re.escape(name)} (\S.*)", text)
    return found.group(1).strip() if found else None


def nvcc_build(text: str) -> str | None:
    """The full version in ``nvcc --version``: ``... release 13.0, V13.0.88`` -> ``13.0.88``."""
    found = re.search(r"release \S+ V(\d+(?:\.\d+)+)", text, re.ASCII)
    return found.group(1) if found else None


def package(entry: str) -> tuple[str, str] | None:
    """(name, version) of a metadata folder's or file's name; the version is "" where the name holds none.

    ``nvidia_nccl_cu12-2.27.5.dist-info`` -> (``nvidia-nccl-cu12``, ``2.27.5``). pip sets aside what it is replacing under
    a name that begins with ``~``: that is no package.
    """
    stem, dot, kind = entry.rpartition(".")
    if not dot or kind not in ("dist-info", "egg-info") or not stem or stem.startswith("~"):
        return None
    if kind == "egg-info":
        stem = _EGG.sub("", stem)
    name, _, version = stem.partition("-")
    return re.sub(r"[-_.]+", "-", name).lower(), version


def conda_packages(paths: Iterable[str]) -> tuple[tuple[str, str, str], ...]:
    """(name, version, build) of files ``conda-meta/NAME-VERSION-BUILD.json``; a name may hold hyphens itself."""
    found = []
    for path in paths:
        parts = path.rpartition("/")[2].removesuffix(".json").rsplit("-", 2)
        if path.endswith(".json") and len(parts) == 3 and all(parts):  # noqa: PLR2004 - as the docstring says
            found.append((parts[0], parts[1], parts[2]))
    return tuple(sorted(found))


def without_uuids(text: str) -> str:
    """``nvidia-smi -L`` without the UUID that names one card in the world."""
    return _UUID.sub("", text)


def without_escapes(text: str) -> str:
    """Text without terminal escapes: ``nvidia-smi topo -m`` underlines its header even in a pipe."""
    return _ESCAPE.sub("", text)


def assigned(text: str | None, name: str) -> str | None:
    """What a generated version file assigns to ``name``, without quotes; None when it does not, or assigns None.

    Such lines are ``debug = False``, ``hip: Optional[str] = None`` and ``__version__ = version = '0.19.1'``.
    """
    found = re.search(rf"(?m)^{re.escape(name)}\b[^=\n]*=(?:[^=\n]*=)*[ \t]*([^=\n]+)$", text or "")
    value = found.group(1).strip().strip("'\"") if found else "None"
    return None if value in ("None", "") else value
