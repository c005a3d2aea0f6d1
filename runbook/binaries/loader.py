"""Which file the dynamic loader takes for each needed library, and which symbols a process then finds.

The start of a Python process is gone through in the order in which it happens: the interpreter, what ``import torch``
loads, then one more file. Who may provide a library follows ld.so(8): one that is loaded already under that name, RPATH,
LD_LIBRARY_PATH, RUNPATH, /etc/ld.so.cache, the system's folders. Who may provide a symbol follows dlopen(3): what is
global (the interpreter and libtorch_global_deps, with what they need) and what the file itself needs, all the way down;
not whatever else happens to be loaded.
"""

import os
import re
import struct
from collections import ChainMap, deque
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from runbook.binaries import tree
from runbook.binaries.symbols import DAMAGE, BadElf, Foreign, Library, Symbol, gnu_hash

# What torch's own list of CUDA libraries to load looks like, in all releases since 2.0: a dict or a list of pairs.
_PRELOADED = re.compile(r"""["'](\w+)["']\s*[,:]\s*["'](lib[\w.*\[\]-]+)["']""")
_SYSTEM_FOLDERS = ("/lib/{}-linux-gnu", "/usr/lib/{}-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
_CACHE_FILE, _CACHE_MAGIC = "/etc/ld.so.cache", b"glibc-ld.so.cache1.1"
_CACHE_HEADER, _CACHE_ENTRY = 48, 24  # bytes

Loaded = dict[str, Library] | ChainMap[str, Library]


class Load:
    """One dlopen: ``libraries`` in the loader's order, ``needs`` of each (path -> paths), ``absent`` (path -> names).

    ``first`` are files that the package has to load beforehand, or this file could not be loaded.
    """

    def __init__(self) -> None:
        self.libraries: list[Library] = []
        self.needs: dict[str, list[Library]] = {}
        self.absent: dict[str, list[str]] = {}
        self.first: list[str] = []

    def below(self, library: Library) -> list[Library]:
        """What ``library`` needs, all the way down, nearest first, without itself."""
        seen, queue = {library.path: library}, deque([library])
        while queue:
            for one in self.needs.get(queue.popleft().path, ()):
                if one.path not in seen:
                    seen[one.path] = one
                    queue.append(one)
        return list(seen.values())[1:]


class View:
    """The files as the loader sees them, and what one Python process has loaded after ``import torch``."""

    def __init__(self, site: Path) -> None:
        self.site = site
        self.touched: set[str] = set()  # files and folders looked at: what the answer rests on
        self.damaged: dict[str, str] = {}  # files that cannot be read -> why
        self._folders: dict[str, frozenset[str]] = {}
        self._opened: dict[str, Library | None] = {}
        self._peeked = ""
        self._hashes: dict[bytes, int] = {}
        self._brought_by: dict[str, Library | None] = {}
        self._cached = self._ld_cache()
        self._searched = [one for one in re.split("[:;]", os.environ.get("LD_LIBRARY_PATH", "")) if one]
        self.python = self._interpreter()
        self.machine = self.python.machine if self.python else os.uname().machine
        self._system = [one.format(self.machine) for one in _SYSTEM_FOLDERS]
        self.loaded: dict[str, Library] = {}
        self.everywhere: list[Library] = []  # the global scope
        self.torch_loads: list[Load] = []
        self.torch_version, self.torch_cuda = self._torch_version()
        if self.python:
            self.everywhere += self._load(self.python, self.loaded).libraries
        self._import_torch()

    def open(self, path: str) -> Library | None:
        """The library at ``path``; None when it is none that this reader knows."""
        if path not in self._opened:
            self.touched.add(path)
            try:
                self._opened[path] = Library(path)
            except Foreign:
                self._opened[path] = None
            except BadElf as why:
                self._opened[path] = None
                self.damaged[path] = str(why)
            except (OSError, ValueError) as why:
                self._opened[path] = None
                self.damaged[path] = getattr(why, "strerror", None) or str(why)
        return self._opened[path]

    def peek(self, path: str) -> Library | None:
        """As ``open``, for one that may be of no interest; ``forget`` it then, for each keeps a file open."""
        self._peeked = "" if path in self._opened else path
        return self.open(path)

    def forget(self, library: Library) -> None:
        """Close the library that was peeked at last, if nobody had opened it before."""
        if library.path == self._peeked:
            library.data.close()
            del self._opened[library.path]

    def spoilt(self, library: Library, why: Exception) -> None:
        """Note that a library whose headers were sound is damaged further in."""
        self.damaged.setdefault(library.path, f"not as ELF is: {why}")

    def _holds(self, folder: str, name: str) -> bool:
        if folder not in self._folders:
            self.touched.add(folder)
            try:
                self._folders[folder] = frozenset(os.listdir(folder))
            except (OSError, ValueError):
                self._folders[folder] = frozenset()
        return name in self._folders[folder]

    def _ld_cache(self) -> dict[str, list[str]]:
        """Library name to paths, as ldconfig wrote them (``elf/dl-cache.h`` of glibc says how)."""
        self.touched.add(_CACHE_FILE)
        found: dict[str, list[str]] = {}
        try:
            data = Path(_CACHE_FILE).read_bytes()
            start = data.index(_CACHE_MAGIC)
            count = struct.unpack_from("<I", data, start + len(_CACHE_MAGIC))[0]
            first = start + _CACHE_HEADER
            for at in range(first, first + _CACHE_ENTRY * count, _CACHE_ENTRY):
                _, key, value = struct.unpack_from("<III", data, at)
                name, path = (
                    data[start + each : data.index(b"\0", start + each)].decode(errors="replace")
                    for each in (key, value)
                )
                found.setdefault(name, []).append(path)
        except (OSError, struct.error, ValueError):
            return {}
        return found

    def _interpreter(self) -> Library | None:
        """The program of this site-packages folder: what ``/proc/self/exe`` would be."""
        version, prefix = self.site.parent.name, self.site.parent.parent.parent
        for folder in (prefix / "bin", Path("/usr/bin")):
            for name in (version, "python", "python3"):
                if os.path.exists(folder / name) and (found := self.open(os.path.realpath(folder / name))):
                    return found
        return None

    def _text(self, name: str) -> str:
        return tree.text(str(self.site / name))

    def _torch_version(self) -> tuple[str, str]:
        text = self._text("torch/version.py")
        found = (
            re.search(rf"^{name}\s*(?::[^=\n]+)?=\s*['\"]([^'\"]+)", text, re.MULTILINE)
            for name in ("__version__", "cuda")
        )
        version, cuda = (one.group(1) if one else "" for one in found)
        return version, cuda

    def search(self, name: str, owner: Library) -> Library | None:
        """The file that the loader takes for ``name`` when ``owner`` needs it. One for another processor is passed over."""
        for path in self._candidates(name, owner):
            folder = path.rpartition("/")[0]
            if self._holds(folder, name) and (found := self.open(path)) and found.machine == self.machine:
                return found
        return None

    def _candidates(self, name: str, owner: Library) -> Iterator[str]:
        if "/" in name:
            yield name
            return
        if not owner.runpath:
            above: Library | None = owner
            while above is not None:
                yield from _places(above.rpath, name, above)
                above = self._brought_by.get(above.path)
            if self.python:
                yield from _places(self.python.rpath, name, self.python)
        yield from (f"{folder}/{name}" for folder in self._searched)
        yield from _places(owner.runpath, name, owner)
        yield from self._cached.get(name, ())
        yield from (f"{folder}/{name}" for folder in self._system)

    def _load(self, root: Library, loaded: Loaded) -> Load:
        """What comes with ``root``, breadth first as the loader maps it; ``loaded`` grows by it."""
        load, queue = Load(), deque([root])
        for name in (root.name, root.path.rpartition("/")[2]):
            loaded.setdefault(name, root)
        while queue:
            library = queue.popleft()
            if library.path in load.needs:
                continue
            load.libraries.append(library)
            load.needs[library.path] = []
            for name in library.needed:
                found = loaded.get(name)
                if found is None and (found := self.search(name, library)):
                    self._brought_by.setdefault(found.path, library)
                    loaded[name] = found
                    loaded.setdefault(found.name, found)
                if found is None:
                    load.absent.setdefault(library.path, []).append(name)
                else:
                    load.needs[library.path].append(found)
                    queue.append(found)
        return load

    def _import_torch(self) -> None:
        """What ``torch/__init__.py`` loads: libtorch_global_deps for all to see, CUDA's libraries by path, then torch._C."""
        deps = self.open(str(self.site / "torch/lib/libtorch_global_deps.so"))
        if deps:
            load = self._try(deps)
            if load.absent:
                self._preload()
                load = self._load(deps, self.loaded)
            elif any(one.name.startswith("libcudart.so") for one in load.libraries):
                self._preload()
            self.everywhere += [one for one in load.libraries if one not in self.everywhere]
            self.torch_loads.append(load)
        for path in sorted((self.site / "torch").glob("_C.*.so")):
            if module := self.open(str(path)):
                self.torch_loads.append(self._load(module, self.loaded))

    def _try(self, library: Library) -> Load:
        """Load a file; a load that fails leaves nothing behind."""
        trial: ChainMap[str, Library] = ChainMap({}, self.loaded)
        load = self._load(library, trial)
        if not load.absent:
            self.loaded.update(trial.maps[0])
        return load

    def _preload(self) -> None:
        """The libraries of NVIDIA's packages that this torch names in ``_preload_cuda_deps``, up to the first it cannot load."""
        _, _, text = self._text("torch/__init__.py").partition("def _preload_cuda_deps")
        major = self.torch_cuda.partition(".")[0]
        for package, pattern in _PRELOADED.findall(text.partition("\ndef ")[0]):
            places = [f"nvidia/{package}/lib", f"nvidia/cu{major}/lib", f"{package}/lib"]
            path = next(
                (path for place in places for path in self._matching(f"{self.site}/{place}", pattern)), ""
            )
            library = self.open(path) if path else None
            if library is None or self._try(library).absent:
                return

    def _matching(self, folder: str, pattern: str) -> list[str]:
        self._holds(folder, "")
        return [f"{folder}/{name}" for name in sorted(self._folders[folder]) if fnmatchcase(name, pattern)]

    def dlopen(self, library: Library) -> Load:
        """What loading this file after ``import torch`` brings; nothing stays loaded."""
        trial: ChainMap[str, Library] = ChainMap({}, self.loaded)
        load = self._load(library, trial)
        beside = [
            f"{path.rpartition('/')[0]}/{name}"
            for path, names in load.absent.items()
            for name in names
            if self._holds(path.rpartition("/")[0], name)
        ]
        # Its package loads it by path beforehand, as torchaudio does: this file could never be loaded otherwise.
        others = [other for path in beside if (other := self.open(path))]
        if not others:
            return load
        trial = ChainMap({}, self.loaded)
        for other in others:
            self._load(other, trial)
        load = self._load(library, trial)
        load.first = [other.path for other in others]
        return load

    def finds(self, symbol: Symbol, scope: Iterable[Library]) -> bool:
        """Whether one of the libraries exports the symbol."""
        value = self._hashes.get(symbol.name)
        if value is None:
            value = self._hashes[symbol.name] = gnu_hash(symbol.name)
        return any(self._defines(library, symbol, value) for library in scope)

    def _defines(self, library: Library, symbol: Symbol, value: int) -> bool:
        if library.path in self.damaged:
            return False
        try:
            return library.defines(symbol, value)
        except (BadElf, *DAMAGE) as why:
            self.spoilt(library, why)
            return False

    def versions(self, library: Library) -> list[bytes]:
        """The versions that a library defines; none when it is damaged."""
        try:
            return list(library.versions.values())
        except (BadElf, *DAMAGE) as why:
            self.spoilt(library, why)
            return []


def _places(words: str, name: str, owner: Library) -> Iterator[str]:
    """Where a RPATH or RUNPATH of ``owner`` has ``name``."""
    origin = owner.path.rpartition("/")[0]
    for word in words.split(":") if words else ():
        place = word.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
        if place.startswith("/"):
            yield f"{os.path.normpath(place)}/{name}"
