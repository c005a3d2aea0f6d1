"""What each library of a target needs of others and does not get, judged as the dynamic loader would, without loading.

The answer of one file rests on others, so what is kept is kept as one, with the identity of every file looked at.
"""

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runbook.binaries import tree
from runbook.sonames import CUDA, DRIVER, TORCH

if TYPE_CHECKING:
    from runbook.binaries.loader import Load, View
    from runbook.binaries.symbols import Library, Symbol

FORMAT = 2
LISTED = 8  # missing symbols of one file that are named; how many there are is said beside them
YOUNG_NS = 2_000_000_000  # a file this young may change once more within one tick of the clock that dates it


def links(site: Path, libraries: Iterable[Path], kept: object = None) -> dict[str, Any]:
    """Links of the files among ``libraries`` (all ``*.so*`` of ``site``) that touch torch or CUDA.

    ``kept`` is what an earlier call returned: if every file it rests on is as it was, it is returned as it is.
    ``basis`` of the answer says what it rests on and is of no interest to anybody else.
    """
    every = [*map(str, libraries), *_beside(site)]
    now = time.time_ns()
    basis: dict[str, Any] = {
        "format": FORMAT,
        "search": os.environ.get("LD_LIBRARY_PATH", ""),
        "files": {
            name: _identity(name)
            for name in [*every, *(f"{site}/torch/{one}.py" for one in ("__init__", "version"))]
        },
    }
    if isinstance(kept, dict) and _still_true(kept.get("basis"), basis) and _answers(kept):
        return kept
    from runbook.binaries.loader import View

    view = View(site)
    rows = _rows(site, every, view)
    outside = {path: _identity(path) for path in view.touched if path not in basis["files"]}
    basis["files"], basis["outside"] = _settled(basis["files"], now), _settled(outside, now)
    return {"files": rows, "system": _system(view), "basis": basis}


def _answers(kept: dict[str, Any]) -> bool:
    return isinstance(kept.get("files"), list) and isinstance(kept.get("system"), dict)


Identity = list[int] | None


def _identity(path: str) -> Identity:
    """Size and times of change (ns) of a file or folder, None when there is none."""
    try:
        return tree.identity(os.stat(path))
    except (OSError, ValueError):
        return None


def _settled(identities: dict[str, Identity], now: int) -> dict[str, Identity]:
    """Those that are too young to be trusted get a time that no file has."""
    return {
        path: [one[0], -1] if one and now - one[1] < YOUNG_NS else one
        for path, one in sorted(identities.items())
    }


def _still_true(basis: object, fresh: dict[str, Any]) -> bool:
    if not isinstance(basis, dict) or not isinstance(basis.get("outside"), dict):
        return False
    return all(basis.get(name) == fresh[name] for name in fresh) and all(
        _identity(path) == identity for path, identity in basis["outside"].items()
    )


def _beside(site: Path) -> list[str]:
    """Libraries on PYTHONPATH and in the folders that ``.pth`` files add: an extension built in place lies there."""
    folders = [Path(one) for one in os.environ.get("PYTHONPATH", "").split(":") if one]
    for note in sorted(site.glob("*.pth")):
        lines = tree.text(str(note)).splitlines()
        folders += [
            site / line for line in lines if line and not line.startswith(("#", "import ", "import\t"))
        ]
    return sorted({path for folder in folders for path in _libraries_in(folder, site)})


def _libraries_in(folder: Path, site: Path) -> list[str]:
    if folder.is_relative_to(site) or site.is_relative_to(folder):
        return []
    try:
        return [str(path) for depth in ("*.so", "*/*.so") for path in folder.glob(depth)]
    except (OSError, ValueError):  # a line of a .pth file may be anything
        return []


_DRIVER_SYMBOL = re.compile(rb"(cu|nvml)[A-Z]")
_PYTHON_SYMBOL = re.compile(rb"_?Py")
_TORCH_SYMBOL = re.compile(rb"_Z\w{0,3}?N?K?(3c10|2at|5torch|6caffe2)")
# A package that serves several releases of torch or CUDA brings a file for each and loads one of them.
_FOR_TORCH = re.compile(r"torch[-_]?(\d)\.?(\d{1,2})")
_FOR_CUDA = re.compile(r"(?<![a-z])cu(?:da)?[-_]?(1[0-9])\.?(\d)?")
_FOR_DEVICE = re.compile(r"[-_.](cuda|rocm|xpu)\b")
_KINDS = ("GLIBC", "GLIBCXX", "CXXABI")
# The same function of torch with either kind of C++ string in its name: which one libc10 exports tells the kind of a torch.
_STRINGS = {
    "new": b"_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
    "old": b"_ZN3c106detail14torchCheckFailEPKcS2_jRKSs",
}


def _rows(site: Path, paths: Iterable[str], view: "View") -> list[dict[str, Any]]:
    from runbook.binaries.symbols import DAMAGE, BadElf

    with_torch = {library.path: load for load in reversed(view.torch_loads) for library in load.libraries}
    names = {path: path.removeprefix(f"{site}/") for path in sorted(paths)}
    loads: dict[str, Load] = {}
    for path in names:
        library = view.peek(path)
        if library and (path in with_torch or _of_interest(library)):
            loads[path] = with_torch.get(path) or view.dlopen(library)
        elif library:
            view.forget(library)
    # Libraries that a package carries for its extensions, such as libpng in torchvision.libs, are judged as loaded by these.
    extensions = {
        path: load for path, load in loads.items() if any(map(TORCH.match, load.libraries[0].needed))
    }
    of_extensions = {
        one.path: load for load in extensions.values() for one in load.libraries if one.path in names
    }
    loads = of_extensions | loads
    rows = {}
    for path, load in loads.items():
        library = view.open(path)
        try:
            rows[path] = _row(library, load, view)  # type: ignore[arg-type]  # it was opened above
        except (BadElf, *DAMAGE) as why:
            view.spoilt(library, why)  # type: ignore[arg-type]  # as above
    # A file may turn out to be damaged only when another one looks for its symbols there.
    rows = {path: row for path, row in rows.items() if path not in view.damaged}
    for path, row in rows.items():
        row["file"] = names[path]
        row["role"] = _role(row, view, loaded=path in with_torch, extension=path in of_extensions)
        # A file may be sound itself and still not load, for what it needs does not.
        below = [one.path for one in loads[path].below(view.open(path))]  # type: ignore[arg-type]
        lame = [
            one
            for one in below
            if one in view.damaged or (_broken(rows[one]) if one in rows else one in loads[path].absent)
        ]
        row["through"] = [one.removeprefix(f"{site}/") for one in lame[:LISTED]]
    damaged = [
        {"file": names[path], "role": "damaged", "problem": why}
        for path, why in view.damaged.items()
        if path in names
    ]
    for row in rows.values():
        row["needed"] = [name for name in row["needed"] if TORCH.match(name) or CUDA.match(name)]
    # What is empty is left out: most files lack nothing.
    every = ({name: value for name, value in row.items() if value} for row in (*rows.values(), *damaged))
    return sorted(every, key=lambda row: str(row["file"]))


def _of_interest(library: "Library") -> bool:
    return any(TORCH.match(name) or CUDA.match(name) for name in (library.name, *library.needed))


def _broken(row: dict[str, Any]) -> bool:
    return bool(row["missing_libraries"] or row["missing_versions"] or row["missing_count"])


def _row(library: "Library", load: "Load", view: "View") -> dict[str, Any]:
    undefined = library.undefined()
    gone = load.absent.get(library.path, [])
    scope = [*load.libraries, *view.everywhere]
    missing = [undefined[index] for index in _missing(library, load, undefined, view, scope)]
    driver = sorted({name for name in gone if DRIVER.match(name)})
    return {
        "file": "",
        "role": "",
        "machine": library.machine,
        "needed": list(library.needed),
        "missing_libraries": [name for name in gone if not DRIVER.match(name)],
        "strings": _strings(undefined),
        "searched": (library.runpath or library.rpath) if gone else "",
        "driver": driver,
        "loaded_first": [path.rpartition("/")[2] for path in load.first],
        "asked": len(undefined),
        "missing_count": len(missing),
        "missing": [
            {
                "symbol": one.name.decode(errors="replace"),
                "version": one.version.decode(errors="replace"),
                "demangled": demangled(one.name),
            }
            for one in missing[:LISTED]
        ],
        "missing_versions": _missing_versions(library, load.libraries, view),
        "highest": _highest(version for _, version, _, weak in library.asked_versions if not weak),
        "through": [],
    }


def _missing(
    library: "Library", load: "Load", undefined: dict[int, "Symbol"], view: "View", scope: list["Library"]
) -> list[int]:
    """Indices of the symbols nobody provides, first the one that the loader would name."""
    absent = {name for names in load.absent.values() for name in names}
    no_driver = any(map(DRIVER.match, absent))
    other_gone = any(not DRIVER.match(name) for name in absent)
    lacking = set()
    for index, symbol in undefined.items():
        if view.finds(symbol, scope):
            continue
        excused = (
            symbol.provider in absent
            or (view.python is None and _PYTHON_SYMBOL.match(symbol.name))
            or (no_driver and _DRIVER_SYMBOL.match(symbol.name))
            # With a library gone, a C name may have been its; what is torch's by its name is missing all the same.
            or (other_gone and not _TORCH_SYMBOL.match(symbol.name))
        )
        if not excused:
            lacking.add(index)
    # A name that no relocation uses is never looked for.
    return (
        list(dict.fromkeys(index for index in library.asked_in_order() if index in lacking))
        if lacking
        else []
    )


def _strings(undefined: dict[int, "Symbol"]) -> str:
    """The kind of C++ string in the names this file wants of torch: ``new`` (std::__cxx11), ``old``, or "" where none tells."""
    names = [one.name for one in undefined.values() if _TORCH_SYMBOL.match(one.name)]
    # Ss is std::string in a mangled name; RK before it says that it stands for a type here.
    return (
        "new"
        if any(b"__cxx11" in one for one in names)
        else "old"
        if any(b"RKSs" in one for one in names)
        else ""
    )


def _missing_versions(library: "Library", scope: list["Library"], view: "View") -> list[dict[str, str]]:
    """Versions such as GLIBCXX_3.4.32 that the library which should define them does not."""
    by_name = {one.name: one for one in reversed(scope)}
    return [
        {"library": name, "version": version, "in": by_name[name].path}
        for name, version, _, weak in library.asked_versions
        if not weak
        and name in by_name
        and (versions := view.versions(by_name[name]))
        and version.encode() not in versions
    ]


def _role(row: dict[str, Any], view: "View", *, loaded: bool, extension: bool) -> str:
    """The part a file plays.

    ``torch``: of torch or loaded with it; ``extension``: links torch, or is carried by one that does; ``cuda``: links CUDA
    only; ``other``: for another torch, CUDA or processor.
    """
    name = row["file"]
    if row["machine"] != view.machine:
        return "other"
    if loaded or name.startswith(("torch/", "nvidia/cudnn/")):
        return "torch"
    if view.torch_version and _is_for_other(name.rpartition("/")[2], view.torch_version, view.torch_cuda):
        return "other"
    return "extension" if extension else "cuda"


def _is_for_other(name: str, torch: str, cuda: str) -> bool:
    """Whether a file's name says that it is for another torch, CUDA or device than what is installed."""
    major, minor = (*torch.split(".")[:2], "")[:2]
    if (wanted := _FOR_TORCH.search(name)) and wanted.groups() != (major, minor):
        return True
    cuda_major, _, cuda_minor = cuda.partition(".")
    if wanted := _FOR_CUDA.search(name):
        return wanted.group(1) != cuda_major or wanted.group(2) not in (None, cuda_minor)
    return not cuda and _FOR_DEVICE.search(name) is not None


def _highest(versions: Iterable[str]) -> dict[str, str]:
    """The newest of each kind: {"GLIBC": "2.34", "GLIBCXX": "3.4.29", "CXXABI": "1.3.13"}."""
    newest: dict[str, tuple[int, ...]] = {}
    for version in versions:
        kind, _, number = version.partition("_")
        if kind in _KINDS and re.fullmatch(r"\d{1,4}(\.\d{1,4})*", number, re.ASCII):
            newest[kind] = max(newest.get(kind, ()), tuple(map(int, number.split("."))))
    return {kind: ".".join(map(str, newest[kind])) for kind in sorted(newest)}


def _system(view: "View") -> dict[str, Any]:
    """The C and C++ runtime that a process of this environment uses, with the newest version each provides."""
    from runbook.binaries.symbols import Symbol

    c10 = [one for one in view.loaded.values() if one.name == "libc10.so"]
    found: dict[str, Any] = {
        "machine": view.machine,
        "python": view.python.path if view.python else "",
        "torch": view.torch_version,
        "torch_cuda": view.torch_cuda,
        "strings": next((kind for kind, name in _STRINGS.items() if view.finds(Symbol(name), c10)), ""),
    }
    for name in ("libc.so.6", "libstdc++.so.6"):
        library = view.loaded.get(name) or (view.search(name, view.python) if view.python else None)
        found[name] = (
            {"path": library.path, **_highest(one.decode(errors="replace") for one in view.versions(library))}
            if library
            else {}
        )
    return found


_cxx: dict[str, Any] = {}


def demangled(name: bytes) -> str:
    """A C++ name in words, by the C++ runtime of this machine; the name as it is where there is none."""
    import ctypes  # only when something is missing

    if not _cxx:
        try:
            _cxx["demangle"] = getattr(ctypes.CDLL("libstdc++.so.6"), "__cxa_demangle")
            _cxx["demangle"].restype = ctypes.c_void_p
            _cxx["free"] = ctypes.CDLL(None).free
            _cxx["free"].argtypes = [ctypes.c_void_p]
        except (OSError, AttributeError):
            _cxx["demangle"] = None
    plain = name.decode(errors="replace")
    if not _cxx["demangle"] or not name.startswith(b"_Z"):
        return plain
    state = ctypes.c_int()
    at = _cxx["demangle"](ctypes.c_char_p(name), None, None, ctypes.byref(state))
    if not at:
        return plain
    text = ctypes.string_at(at).decode(errors="replace")
    _cxx["free"](at)
    return text
