"""Print the native libraries below a site-packages folder as one JSON object, and keep what was read for the next time.

``python -m runbook.binaries SITE [--cache FOLDER]`` prints ``{"files": [...], "links": {...}}``: in ``files`` a row for
each library that holds machine code (``code``), and one for each folder of ``.cubin`` files; in ``links`` what
``link.links`` found. With a cache a library is read again only when its size or time of change is another.
"""

import contextlib
import json
import os
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runbook.binaries import link, tree

# Part of what is kept: a reader that reads more, or otherwise, must not believe what an earlier one wrote.
READER = 3
UNREAD: dict[str, Any] = {}


def answer(site: str, kept: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what to print, what to keep). ``kept`` is what an earlier call gave, or {}."""
    found = tree.walk(site, kept.get("folders"))
    known = kept["files"] if isinstance(kept.get("files"), dict) else {}
    now = time.time_ns()
    files: dict[str, list[Any]] = {}
    for name in found.libraries:
        try:
            seen = tree.identity(os.stat(os.path.join(site, name)))
        except (FileNotFoundError, NotADirectoryError, ValueError):
            continue
        except OSError:
            files[name] = [None, UNREAD]
            continue
        old: Any = known.get(name)
        # A file of this very moment may change once more and keep its time.
        settled = now - seen[1] > tree.YOUNG_NS
        files[name] = old if _is_row(old) and old[0] == seen else [seen if settled else seen[:1], UNREAD]
    for folder, (count, times) in found.cubins.items():
        old = known.get(folder)
        whole = [count, *(times or ())]
        files[folder] = old if _is_row(old) and times and old[0] == whole else [whole, UNREAD]
    unread = {name: row[0][0] if row[0] else 0 for name, row in files.items() if row[1] is UNREAD}
    anew = _meanwhile(lambda: [_row(site, name, size) for name, size in unread.items()]) if unread else list
    linked = link.links(Path(site), [Path(site, name) for name in sorted(found.libraries)], kept.get("links"))
    for name, row in zip(unread, anew(), strict=True):
        files[name][1] = row
    rows = [files[name][1] for name in sorted(files) if files[name][1]]
    rows += [{"file": name, "sass": [], "ptx": [], "problem": why} for name, why in found.unread.items()]
    closed = [{"file": name, "role": "damaged", "problem": why} for name, why in found.unread.items()]
    said = {"files": rows, "links": {"files": linked["files"] + closed, "system": linked["system"]}}
    return said, {"reader": READER, "site": site, "folders": found.folders, "files": files, "links": linked}


def _is_row(kept: Any) -> bool:  # noqa: ANN401 - anything that a JSON file may hold
    """Whether it is [identity, row]. One with a problem is not believed: it may have passed, as too many open files do."""
    if not isinstance(kept, list) or len(kept) != 2:  # noqa: PLR2004 - the two
        return False
    row = kept[1]
    return row is None or (isinstance(row, dict) and "file" in row and not row.get("problem"))


def _meanwhile(work: Callable[[], list[Any]]) -> Callable[[], list[Any]]:
    """Let a child process do it while we go on; the result, which JSON must be able to say, is asked for by calling.

    A fork and a pipe, for that needs no semaphore, and so no /dev/shm: a small or missing one is among the faults that
    this program is asked about. A child that dies, or a fork that is refused, and it is done here.
    """
    reader, writer = os.pipe()
    try:
        child = os.fork()
    except OSError:
        child = -1
    if child == 0:
        try:
            with os.fdopen(writer, "w", encoding="utf-8") as pipe:
                json.dump(work(), pipe)
        finally:
            os._exit(0)
    os.close(writer)

    def result() -> list[Any]:
        with os.fdopen(reader, encoding="utf-8") as pipe:
            text = pipe.read()
        if child > 0:
            os.waitpid(child, 0)
        try:
            found = json.loads(text)
        except ValueError:
            return work()
        return found if isinstance(found, list) else work()

    return result


def _row(site: str, name: str, size: int) -> dict[str, Any] | None:
    from runbook.binaries import code

    if not name.endswith("/"):
        return code.row(os.path.join(site, name), name, size)
    try:
        programs = [each for each in os.listdir(os.path.join(site, name)) if each.endswith(".cubin")]
    except OSError:  # removed since it was listed, or closed to us
        return None
    return code.cubins_row(name, code.cubins(os.path.join(site, name, each) for each in sorted(programs)))


def _kept(path: Path, site: str) -> dict[str, Any]:
    try:
        kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return {}
    if isinstance(kept, dict) and kept.get("reader") == READER and kept.get("site") == site:
        return kept
    return {}


def _keep(path: Path, kept: dict[str, Any]) -> None:
    # A check leaves nothing behind where there is no workspace yet.
    if not path.parent.parent.parent.is_dir():
        return
    half = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        half.write_text(json.dumps(kept, separators=(",", ":")), encoding="utf-8")
        half.replace(path)
    except OSError as why:
        print(f"not kept: {why}", file=sys.stderr)
        with contextlib.suppress(OSError):
            half.unlink()


def main(argv: list[str]) -> int:
    """Answer; 2 for an argument that is no folder."""
    if len(argv) not in {1, 3} or argv[1:2] not in ([], ["--cache"]) or not os.path.isdir(argv[0]):
        print("usage: python -m runbook.binaries SITE [--cache FOLDER]; SITE is a folder", file=sys.stderr)
        return 2
    site = os.path.realpath(argv[0])
    path = Path(argv[2], f"{zlib.crc32(os.fsencode(site)):08x}.json") if argv[1:] else None
    tree.many_files()
    before = _kept(path, site) if path else {}
    found, kept = answer(site, before)
    print(json.dumps(found, separators=(",", ":")))
    if path and kept != before:
        _keep(path, kept)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
