"""Run by the target interpreter: whose the installed files are. Reads RECORD files and imports nothing of the packages.

Prints one JSON object: files recorded and gone, files of another size than recorded, files that two distributions
recorded with different contents, and modules that none recorded. Bytecode, programs (``../../../bin``) and contents are
not compared: only names, sizes and the hashes that the RECORD files hold.
"""

import csv
import json
import os
import sysconfig
import time
from collections import defaultdict
from pathlib import Path

FIRST = 5
"""How many examples of each kind are named."""

CODE = (".py", ".so")
# Folders of tests are deleted to make images smaller; nothing that serves imports them.
TESTS = ("/tests/", "/test/", "/testing/")


def is_code(path: str) -> bool:
    """True for a module or a shared library, versioned names such as ``libcublas.so.12`` too, outside tests."""
    name = path.rpartition("/")[2]
    return (name.endswith(CODE) or ".so." in name) and not any(word in f"/{path}" for word in TESTS)


def code_first(paths: list[str]) -> list[str]:
    """Some of the paths, libraries first, then modules, then the rest."""
    return sorted(paths, key=lambda path: (not is_code(path), path.endswith(".py"), path))[:FIRST]


def text_of(path: Path) -> str | None:
    """A file's text, or None."""
    try:
        # A NUL ends a path, and csv refuses it.
        return path.read_text(encoding="utf-8", errors="replace").replace("\0", "\ufffd")
    except OSError:
        return None


def name_of(dist_info: Path) -> str:
    """``torch 2.10.0`` of ``torch-2.10.0.dist-info``."""
    return " ".join(dist_info.name.removesuffix(".dist-info").split("-", 1))


class Site:
    """What the RECORD files of one site-packages folder say, compared with what lies there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = 0
        self.unrecorded: list[str] = []
        self.installers: dict[str, int] = defaultdict(int)
        self.owners: dict[str, list[tuple[str, str]]] = {}
        self.missing: dict[str, list[str]] = defaultdict(list)
        self.resized: dict[str, list[str]] = defaultdict(list)
        self.tops: set[str] = set()
        for dist_info in sorted(folder.glob("*.dist-info")):
            self.read(dist_info)

    def read(self, dist_info: Path) -> None:
        """Take in one distribution."""
        name = name_of(dist_info)
        self.installers[(text_of(dist_info / "INSTALLER") or "unnamed").strip()[:20]] += 1
        record = text_of(dist_info / "RECORD")
        if record is None:
            self.unrecorded.append(name)
            return
        for row in csv.reader(record.splitlines()):
            path = row[0] if row else ""
            if not path or path.startswith(("..", "/")) or path.endswith(".pyc"):
                continue
            self.files += 1
            self.tops.add(path.partition("/")[0])
            self.owners.setdefault(path, []).append((name, row[1] if len(row) > 1 else ""))
            size = row[2] if len(row) > 2 else ""  # noqa: PLR2004 - path, hash, size
            try:
                have = os.stat(f"{self.folder}/{path}").st_size  # noqa: PTH116 - 46 000 of them, Path.stat costs a third more
            except OSError:
                self.missing[name].append(path)
                continue
            if size.isdecimal() and int(size) != have:
                self.resized[name].append(path)

    def shared(self) -> dict[tuple[str, ...], list[str]]:
        """Owners -> files that they recorded with different contents; equal copies (``nvidia/__init__.py``) harm nobody."""
        found: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for path, rows in self.owners.items():
            if len(rows) > 1 and len({digest for _, digest in rows}) > 1:
                found[tuple(sorted({name for name, _ in rows}))].append(path)
        return found

    def unowned(self) -> list[str]:
        """Modules, packages and path files at the top that no distribution recorded."""
        found = []
        for path in sorted(self.folder.iterdir()):
            name = path.name
            if name in self.tops or name == "__pycache__" or name.endswith((".dist-info", ".egg-info")):
                continue
            package = path.is_dir() and any(next(path.glob(f"*{ending}"), None) for ending in CODE)
            if package or (path.is_file() and name.endswith((*CODE, ".pth", ".egg-link"))):
                found.append(name)
        return found


def counted(found: dict[str, list[str]]) -> list[dict[str, object]]:
    """One row a distribution: how many files, how many of them code, and examples."""
    return [
        {
            "distribution": name,
            "files": len(paths),
            "code": sum(map(is_code, paths)),
            "first": code_first(paths),
        }
        for name, paths in sorted(found.items())
    ]


def main() -> None:
    """Print the facts."""
    began = time.monotonic()
    csv.field_size_limit(1 << 30)  # by default a long word is an error
    folders = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    real = {os.path.realpath(folder): Path(folder) for folder in folders if Path(folder).is_dir()}
    sites = [Site(folder) for folder in real.values()]
    installers: dict[str, int] = defaultdict(int)
    for site in sites:
        for name, count in site.installers.items():
            installers[name] += count
    shared = [
        {
            "owners": list(owners),
            "files": len(paths),
            "code": sum(map(is_code, paths)),
            "first": code_first(paths),
        }
        for site in sites
        for owners, paths in sorted(site.shared().items())
    ]
    disputed = {path for site in sites for paths in site.shared().values() for path in paths}
    resized = [
        {name: [path for path in paths if path not in disputed] for name, paths in site.resized.items()}
        for site in sites
    ]
    print(
        json.dumps(
            {
                "distributions": sum(installers.values()),
                "files": sum(site.files for site in sites),
                "installers": dict(installers),
                "unrecorded": sorted(name for site in sites for name in site.unrecorded),
                "missing": [row for site in sites for row in counted(site.missing)],
                "resized": [
                    row
                    for found in resized
                    for row in counted({name: paths for name, paths in found.items() if paths})
                ],
                "shared": shared,
                "unowned": sorted(name for site in sites for name in site.unowned()),
                "seconds": round(time.monotonic() - began, 2),
            }
        )
    )


if __name__ == "__main__":
    main()
