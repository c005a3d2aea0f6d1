"""``sizes.json`` of a stack: what the wheels of its locks take, as files to fetch and as files unpacked.

One row a package, so that a plan can say what a build needs before anything is fetched. No address is kept.
"""

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from runbook import remote
from runbook.pins import Size
from runbook.resolve import Wheel

WHAT = "Bytes of the wheels of each lock, and of the files in them; sources: the .py files among those, which get bytecode."
THREADS = 8


def measured(
    found: Mapping[str, Iterable[tuple[Wheel, str]]], known: Mapping[tuple[str, str, int], Size]
) -> dict[str, dict[str, Size]]:
    """Python minor -> package -> size, from the wheels with where they lie.

    ``known`` are sizes of before, by package, version and bytes of the wheel; others are read from the wheel's own list.

    Raises:
        ActionFailed: a wheel could not be looked into.
    """
    wanted = {wheel.sha256: (wheel, place) for pairs in found.values() for wheel, place in pairs}
    with remote.opened() as wheels, ThreadPoolExecutor(THREADS) as pool:

        def size(pair: tuple[Wheel, str]) -> Size:
            wheel, place = pair
            before = known.get((wheel.package, wheel.version, wheel.size or -1))
            if before:
                return before
            files = wheels.files(place)
            sources = sum(each.file_size for each in files if each.filename.endswith(".py"))
            fetched = wheel.size if wheel.size is not None else sum(each.compress_size for each in files)
            return Size(wheel.version, fetched, sum(each.file_size for each in files), len(files), sources)

        sized = dict(zip(wanted, pool.map(size, wanted.values()), strict=True))
    return {
        minor: {wheel.package: sized[wheel.sha256] for wheel, _ in pairs} for minor, pairs in found.items()
    }


def text(by_python: Mapping[str, Mapping[str, Size]]) -> str:
    """The file: one package a line, wheels that several Pythons share once."""
    packages = sorted({package for sizes in by_python.values() for package in sizes})
    rows = []
    for package in packages:
        shared: dict[Size, list[str]] = {}
        for minor, sizes in by_python.items():
            if package in sizes:
                shared.setdefault(sizes[package], []).append(minor)
        wheels = [{"pythons": minors, **vars(size)} for size, minors in shared.items()]
        rows.append(json.dumps({"package": package, "wheels": wheels}))
    return f'{{"what": {json.dumps(WHAT)},\n"rows": [\n' + ",\n".join(rows) + "\n]}\n"
