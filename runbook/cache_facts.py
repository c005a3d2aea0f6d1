"""``python -m runbook.cache_facts KIND FOLDER``: what lies in a compile cache, entry by entry, and what made it.

Prints ``{"rows": [{"path", "bytes", "made_by"}]}``; KIND is ``triton``, ``inductor``, ``vllm``, ``flashinfer`` or
``tree`` (any folder as one entry). ``made_by`` is a list of
what the entry itself tells: a version, or the environment with whose torch it was compiled. The layouts were
seen in caches made by Triton 3.6.0, torch 2.10.0 and 2.13.0 and vLLM 0.19.1 and 0.32.0, and FlashInfer's in its source
(flashinfer/jit/env.py of 0.6.6). Links are not followed and a file under two names is counted once.
"""

import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

KINDS = ("triton", "inductor", "vllm", "flashinfer", "tree")
USAGE = 2
# What torch compiles names files of the environment it lay in, and a graph that is saved whole names torch's release.
_PLACE = re.compile(rb"/lib(?:64)?/python3[.][0-9]+/(?:site|dist)-packages/(?:torch|vllm)/")
_TORCH = re.compile(rb"# torch version: ([0-9A-Za-z.+_-]{1,60})\n")
_BEFORE = re.compile(rb"[\0\s\"'(=:]")
NOT_READ = (".gch", ".h", ".lock", ".cubin")
LONGEST = 4096
_TRITON = re.compile(r'"triton_version": ?"([^"]{1,60})"')
AOT = "torch_aot_compile"
COMPILED = "torch_compile_cache"


@dataclass(frozen=True)
class Entry:
    """One part of a cache that goes or stays as a whole."""

    path: str
    bytes: int
    made_by: tuple[str, ...]


class Walker:
    """Sizes of folders; a hard-linked file belongs to the first folder in which it was met."""

    def __init__(self) -> None:
        self.met: set[tuple[int, int]] = set()

    def files(self, folder: str) -> Iterator[os.DirEntry[str]]:
        """Every file below a folder, links as themselves; a folder that cannot be listed is passed over."""
        waiting = [folder]
        while waiting:
            try:
                with os.scandir(waiting.pop()) as found:
                    for one in found:
                        if one.is_dir(follow_symlinks=False):
                            waiting.append(one.path)
                        else:
                            yield one
            except OSError:
                continue

    def entry(self, path: str, made_by: tuple[str, ...] = ()) -> Entry:
        """A file or a folder with all below it."""
        size = 0
        for one in self.files(path) if os.path.isdir(path) and not os.path.islink(path) else ():
            try:
                seen = one.stat(follow_symlinks=False)
            except OSError:
                continue
            if seen.st_nlink == 1 or (seen.st_dev, seen.st_ino) not in self.met:
                self.met.add((seen.st_dev, seen.st_ino))
                size += seen.st_size
        return Entry(path, size, made_by)


def folders(path: str) -> list[str]:
    """The folders in a folder, sorted; links are none."""
    try:
        with os.scandir(path) as found:
            return sorted(one.path for one in found if one.is_dir(follow_symlinks=False))
    except OSError:
        return []


def name(path: str) -> str:
    """The last part of a path."""
    return path.rpartition("/")[2]


def makers(walker: Walker, path: str) -> tuple[str, ...]:
    """What the files below a folder tell: ``torch 2.10.0+cu128``, and the folders of the environments they name."""
    found: set[str] = set()
    for one in walker.files(path):
        if one.is_file(follow_symlinks=False) and not one.name.endswith(NOT_READ):
            data = read(one.path)
            found |= {f"torch {os.fsdecode(match[1])}" for match in _TORCH.finditer(data)}
            found |= {place for match in _PLACE.finditer(data) if (place := before(data, match.start()))}
    return tuple(sorted(found))


def before(data: bytes, end: int) -> str:
    """The folder whose path ends there: from the first slash after what cannot be part of a path; "" when there is none."""
    begin = _BEFORE.split(data[max(0, end - LONGEST) : end])[-1]
    return os.fsdecode(b"/" + begin[begin.index(b"/") :].lstrip(b"/")) if b"/" in begin else ""


def read(path: str, most: int = 1 << 26) -> bytes:
    """The beginning of a file; a pipe of that name, or one that may not be read, is empty."""
    try:
        with open(path, "rb", opener=lambda place, flags: os.open(place, flags | os.O_NONBLOCK)) as file:
            return file.read(most)
    except OSError:
        return b""


def triton(walker: Walker, folder: str) -> list[Entry]:
    """One entry a kernel; its metadata names the release that compiled it."""
    found = []
    for path in folders(folder):
        metadata = (one for one in walker.files(path) if one.name.endswith(".json") and not one.name.startswith("__grp__"))  # fmt: skip
        versions = {
            match[1] for one in metadata if (match := _TRITON.search(os.fsdecode(read(one.path, 1 << 20))))
        }
        found.append(walker.entry(path, tuple(f"triton {version}" for version in sorted(versions))))
    return found


def inductor(walker: Walker, folder: str) -> list[Entry]:
    """The folder as one entry: its parts refer to each other by hashes."""
    return [walker.entry(folder, makers(walker, folder))]


def vllm(walker: Walker, folder: str) -> list[Entry]:
    """One entry a compiled model, of either layout: ``torch_compile_cache/HASH`` and ``.../torch_aot_compile/HASH``."""
    compiled = f"{folder}/{COMPILED}"
    paths = [path for path in folders(compiled) if name(path) != AOT] + folders(f"{compiled}/{AOT}")
    return [walker.entry(path, makers(walker, path)) for path in paths]


def flashinfer(walker: Walker, folder: str) -> list[Entry]:
    """One entry a release, of which the folder has the name; ``cubins`` are fetched and belong to no release."""
    return [
        walker.entry(path, (f"flashinfer-python {name(path)}",)) for path in folders(folder) if name(path)[:1].isdigit()
    ]  # fmt: skip


def tree(walker: Walker, folder: str) -> list[Entry]:
    """Any folder."""
    return [walker.entry(folder)]


READ = {"triton": triton, "inductor": inductor, "vllm": vllm, "flashinfer": flashinfer, "tree": tree}


def main(words: list[str]) -> int:
    """Print the rows of the folders named, each once."""
    kind, *places = words or [""]
    if kind not in READ or not places:
        print(f"usage: python -m runbook.cache_facts {'|'.join(KINDS)} FOLDER...", file=sys.stderr)
        return USAGE
    walker = Walker()
    rows = [
        vars(one)
        for place in places
        if os.path.isdir(place)
        for one in READ[kind](walker, place.rstrip("/") or "/")
    ]
    print(json.dumps({"rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
