"""How the loader looks for a library: its cache, the folders of a variable, and versions that file names carry (ld.so(8))."""

import re

CACHE_ARGV = ["/sbin/ldconfig", "-p"]
# The flags of entries that a 64-bit program takes; a bare `libc6` is a 32-bit library (glibc elf/cache.c).
_WIDE = re.compile(r"\b(?:x86-64|AArch64)\b")
_ENTRY = re.compile(r"^\s+(\S+) \((.*)\) => (\S.*)$")
_VERSIONED = re.compile(r"\.so\.(\d{1,9}(?:\.\d{1,9})+)$", re.ASCII)


def cache(text: str) -> dict[str, tuple[str, ...]]:
    """Name -> paths in the order of preference, from ``ldconfig -p``; libraries of another word size are left out."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        entry = _ENTRY.match(line)
        if entry and _WIDE.search(entry[2]):
            found.setdefault(entry[1], []).append(entry[3].strip())
    return {name: tuple(dict.fromkeys(paths)) for name, paths in found.items()}


def folders(variable: str | None) -> tuple[str, ...]:
    """The folders of LD_LIBRARY_PATH in order, each once; colon and semicolon both part them, an empty word is left out."""
    words = re.split(r"[:;]", variable or "")
    return tuple(dict.fromkeys(word.rstrip("/") or "/" for word in words if word))


def words(variable: str | None) -> tuple[str, ...]:
    """The libraries of LD_PRELOAD: parted by spaces or colons."""
    return tuple(word for word in re.split(r"[:\s]+", variable or "") if word)


def folder(path: str) -> str:
    """The folder of a path."""
    return path.rpartition("/")[0]


def name(path: str) -> str:
    """The last part of a path."""
    return path.rpartition("/")[2]


def version(path: str) -> str | None:
    """The version in a file's name: ``libcuda.so.580.95.05`` -> ``580.95.05``; a lone major number is a name, not a version."""
    found = _VERSIONED.search(path)
    return found[1] if found else None


def kind(path: str) -> str:
    """``stub`` (for linking, drives no GPU), ``compat`` (a cuda-compat package's), else ``driver``, by the folder's name."""
    parts = path.split("/")[:-1]
    if "stubs" in parts:
        return "stub"
    return "compat" if any(part.startswith(("compat", "cuda-compat")) for part in parts) else "driver"
