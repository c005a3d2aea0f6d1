"""Judge wheels before they are installed: what they would lack beside the torch of a target.

``python -m runbook.binaries.before SITE ROOM WHEEL...`` prints ``{"links": {...}}`` as ``python -m runbook.binaries`` does, for the
files of the wheels; for every file of the environment when torch itself is among them. The target is not touched: ROOM,
an empty folder, gets the wheels' libraries, and symbolic links to those that the target has and the wheels do not replace.
Who made it removes it: this program may be killed at its deadline.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from runbook.binaries import link, packed, tree

BESIDE = ("torch/__init__.py", "torch/version.py")  # read to know what torch loads first


def judge(site: Path, wheels: list[Path], room: Path) -> dict[str, object]:
    """The links of the wheels as if installed into ``site``; ``room`` is an empty folder for the copy.

    Raises:
        packed.BadWheel: a wheel cannot be read.
        OSError: the disk is full.
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
    with _named(wheel), packed.opened(wheel) as archive:
        for member in packed.members(archive, _is_wanted):
            inner = _inside(member.filename)
            path = PurePosixPath(inner)
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, (folder / path).open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
            names.append(inner)
    return names


@contextmanager
def _named(wheel: Path) -> Iterator[None]:
    try:
        yield
    except packed.BadWheel as why:
        raise packed.BadWheel(f"{wheel.name}: {why}") from why


def _inside(name: str) -> str:
    return re.sub(r"^[^/]+\.data/(purelib|platlib)/", "", name)


def _is_wanted(name: str) -> bool:
    return tree.is_library(name.rpartition("/")[2]) or _inside(name) in BESIDE


def _installed(site: Path, wheel: Path) -> list[str]:
    """Files of the release of this distribution that is installed: the wheel would take their place."""
    name = re.sub(r"[-_.]+", "_", wheel.name.partition("-")[0]).lower()
    for record in site.glob("*.dist-info/RECORD"):
        if re.sub(r"[-_.]+", "_", record.parent.name.partition("-")[0]).lower() == name:
            return [line.partition(",")[0] for line in tree.text(str(record)).splitlines()]
    return []


def main(argv: list[str]) -> int:
    """Answer; 2 for arguments that are no folders and wheels, 3 when one cannot be read."""
    if not argv[2:] or not all(map(os.path.isdir, argv[:2])):
        print(
            "usage: python -m runbook.binaries.before SITE ROOM WHEEL...; both are folders, ROOM is empty",
            file=sys.stderr,
        )
        return 2
    tree.many_files()
    try:
        site, room = (Path(os.path.realpath(one)) for one in argv[:2])
        print(json.dumps(judge(site, [Path(one) for one in argv[2:]], room)))
    except (OSError, packed.BadWheel) as why:
        print(why, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
