"""Judge wheels before they are installed: what they would lack beside the torch of a target.

``python -m runbook.binaries.before SITE WHEEL...`` prints ``{"links": {...}}`` as ``python -m runbook.binaries`` does, for the
files of the wheels; for every file of the environment when torch itself is among them. The target is not touched: a
temporary folder gets the wheels' libraries, and symbolic links to those that the target has and the wheels do not replace.
"""

import json
import os
import re
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

from runbook.binaries import link, tree

BESIDE = ("torch/__init__.py", "torch/version.py")  # read to know what torch loads first


def judge(site: Path, wheels: list[Path], room: Path) -> dict[str, object]:
    """The links of the wheels as if installed into ``site``; ``room`` is an empty folder for the copy.

    Raises:
        zipfile.BadZipFile: a wheel is no zip file.
        OSError: one cannot be read, or the disk is full.
    """
    prefix = site.parents[2]
    copy = room / site.relative_to(prefix)
    copy.mkdir(parents=True)
    (room / "bin").symlink_to(prefix / "bin")
    # conda keeps its C++ runtime here, and its packages find it by a path relative to their own.
    for path in (prefix / "lib").glob("*.so*"):
        (room / "lib" / path.name).symlink_to(path)
    new = [name for wheel in wheels for name in _unpack(wheel, copy)]
    replaced = {name for wheel in wheels for name in _installed(site, wheel)}
    found = [name for name in tree.walk(str(site)).libraries if name not in replaced]
    for name in (*found, *(each for each in BESIDE if (site / each).exists())):
        place = copy / name
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(site / name)
    libraries = sorted({*found, *(name for name in new if tree.is_library(name))})
    linked = link.links(copy, [copy / name for name in libraries])
    whole = any(name.startswith("torch/lib/") for name in new)
    rows = [row for row in linked["files"] if whole or row["file"] in new]
    text = json.dumps({"links": {"files": rows, "system": linked["system"]}}, separators=(",", ":"))
    answer: dict[str, object] = json.loads(text.replace(str(room), str(prefix)))
    return answer


def _unpack(wheel: Path, folder: Path) -> list[str]:
    """Write what matters here below ``folder``; its names there. ``NAME.data/platlib/`` stands for the folder itself."""
    names = []
    with zipfile.ZipFile(wheel) as packed:
        for name in packed.namelist():
            inner = re.sub(r"^[^/]+\.data/(purelib|platlib)/", "", name)
            path = PurePosixPath(inner)
            wanted = tree.is_library(path.name) or inner in BESIDE
            if not wanted or name.endswith("/") or path.is_absolute() or ".." in path.parts:
                continue
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            with packed.open(name) as source, (folder / path).open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
            names.append(inner)
    return names


def _installed(site: Path, wheel: Path) -> list[str]:
    """Files of the release of this distribution that is installed: the wheel would take their place."""
    name = re.sub(r"[-_.]+", "_", wheel.name.partition("-")[0]).lower()
    for record in site.glob("*.dist-info/RECORD"):
        if re.sub(r"[-_.]+", "_", record.parent.name.partition("-")[0]).lower() == name:
            return [
                line.partition(",")[0]
                for line in record.read_text(encoding="utf-8", errors="replace").splitlines()
            ]
    return []


def main(argv: list[str]) -> int:
    """Answer; 2 for arguments that are no folder and wheels, 3 when one cannot be read."""
    if not argv[1:] or not os.path.isdir(argv[0]):
        print("usage: python -m runbook.binaries.before SITE WHEEL...; SITE is a folder", file=sys.stderr)
        return 2
    try:
        with tempfile.TemporaryDirectory(prefix="runbook-abi-") as room:
            print(
                json.dumps(
                    judge(
                        Path(os.path.realpath(argv[0])), [Path(one) for one in argv[1:]], Path(room).resolve()
                    )
                )
            )
    except (OSError, zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, NotImplementedError) as why:
        print(f"not read: {why}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
