"""Which compiler answers, and which toolkit a header belongs to."""

import re
from dataclasses import dataclass

# What torch and FlashInfer would include; a few bytes of it are asked for, the file has 0.6 MB.
HEADER = "include/cuda_runtime_api.h"
_CLANG = re.compile(r"\bclang version (\d{1,4})\.(\d{1,4})", re.ASCII)
# g++ (Debian 12.2.0-14) 12.2.0 | gcc (GCC) 15.3.0 20260101 | x86_64-conda-linux-gnu-cc (conda-forge gcc 14.2.0-1) 14.2.0
_GCC = re.compile(r"^\S*(?:g\+\+|gcc|c\+\+|cc)\S* \(.*\) (\d{1,4})\.(\d{1,4})", re.ASCII | re.MULTILINE)
_CUDART = re.compile(r"#\s*define\s+CUDART_VERSION\s+(\d{4,6})\b", re.ASCII)


@dataclass(frozen=True)
class Compiler:
    """``family`` is gcc or clang; ``major`` decides whether nvcc accepts it."""

    family: str
    major: int
    version: str


def compiler(text: str) -> Compiler | None:
    """The compiler that printed ``--version``; None for another one or for odd text."""
    for family, pattern in (("clang", _CLANG), ("gcc", _GCC)):
        if found := pattern.search(text):
            return Compiler(family, int(found[1]), f"{found[1]}.{found[2]}")
    return None


def header_argv(home: str) -> list[str]:
    """The command that shows the release of a toolkit's headers."""
    return ["grep", "-m1", "define CUDART_VERSION", f"{home}/{HEADER}"]


def header(text: str) -> str | None:
    """The release in that line: ``#define CUDART_VERSION  13000`` -> ``13.0``."""
    found = _CUDART.search(text)
    if not found:
        return None
    number = int(found[1])
    return f"{number // 1000}.{number % 1000 // 10}"


def ccbin(flags: str | None) -> str | None:
    """The host compiler named in nvcc's flags (NVCC_PREPEND_FLAGS), the last one given."""
    found = re.findall(r"(?:^|\s)(?:-ccbin|--compiler-bindir)[=\s]\s*([^\s\"']+)", flags or "")
    return found[-1] if found else None
