"""Run by the target interpreter: what lies in each package, in short, so that two environments can be compared.

Of every distribution: a hash of what its RECORD lists, who installed it, where it came from, what it asks for, and its
files that were changed after it was installed. Nothing is imported. Prints one JSON object.

Left out of the hash is what differs between two installs of one wheel: bytecode, programs (their first line names the
interpreter) and the installer's own notes in the ``.dist-info`` folder.
"""

from __future__ import annotations  # a target may be older than the runbook's own Python

import csv
import hashlib
import json
import os
import re
import sys
import sysconfig
from collections import Counter
from pathlib import Path

FIRST = 3
"""How many changed files of a package are named."""
LATER_S = 5.0
"""An installer writes RECORD last; a file that is this much younger was written by somebody else."""


def text_of(path: Path) -> str | None:
    """A file's text, or None; a NUL would end a path, and csv refuses it."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").replace("\0", "\ufffd")
    except OSError:
        return None


def rows_of(record: str) -> list[list[str]]:
    """Path, hash and size of the files that came with the wheel."""
    rows = [row for row in csv.reader(record.splitlines()) if row and row[0]]
    return [
        row
        for row in rows
        if not row[0].startswith(("..", "/")) and ".dist-info/" not in row[0] and not row[0].endswith(".pyc")
    ]


def touched(site: str, record: Path, paths: list[str]) -> list[str]:
    """Files written after the install; none where most are: such a folder was copied, and its times say nothing."""
    try:
        limit = os.stat(record).st_mtime + LATER_S  # noqa: PTH116 - as below
    except OSError:
        return []
    found = []
    for path in paths:
        try:
            if os.stat(f"{site}/{path}").st_mtime > limit:  # noqa: PTH116 - 46 000 of them, Path.stat costs a third more
                found.append(path)
        except OSError:
            continue
    return sorted(found) if len(found) * 2 < len(paths) or len(paths) == 1 else []


def origin(text: str | None) -> str | None:
    """Where a package that came from no index is from: ``checkout file:///src``, ``git URL @ commit``, ``file:///x.whl``."""
    try:
        said = json.loads(text or "")
        url = str(said["url"])
    except (ValueError, KeyError, TypeError):
        return None
    vcs = said.get("vcs_info")
    if isinstance(vcs, dict):
        return f"{vcs.get('vcs', 'git')} {url} @ {vcs.get('commit_id', 'unknown commit')}"
    folder = said.get("dir_info")
    editable = isinstance(folder, dict) and folder.get("editable")
    return f"checkout {url}" if editable else url


def needs(metadata: str | None) -> list[str]:
    """Names that the package asks for without an extra."""
    head = (metadata or "").partition("\n\n")[0]
    lines = re.findall(r"(?m)^Requires-Dist:[ \t]*([A-Za-z0-9._-]+)(.*)$", head)
    return sorted({re.sub(r"[-_.]+", "-", name).lower() for name, rest in lines if not re.search(r"\bextra\s*==", rest)})  # fmt: skip


def read(info: Path) -> tuple[dict[str, object], list[str]]:
    """The facts of one distribution, and the files that came with it."""
    record = text_of(info / "RECORD")
    rows = rows_of(record) if record is not None else []
    listed = "\n".join(sorted(",".join(row) for row in rows))
    facts: dict[str, object] = {
        "entry": info.name,
        "content": hashlib.sha256(listed.encode()).hexdigest()[:16] if rows else None,
        "installer": (text_of(info / "INSTALLER") or "").strip()[:20] or None,
        "origin": origin(text_of(info / "direct_url.json")),
        "needs": needs(text_of(info / "METADATA")),
    }
    return facts, [row[0] for row in rows]


def of_folder(site: str) -> list[dict[str, object]]:
    """The distributions of one folder, with their changed files; a file that two list is the later one's."""
    found = [(info, *read(info)) for info in sorted(Path(site).glob("*.dist-info"))]
    owners = Counter(path for *_, paths in found for path in set(paths))
    for info, facts, paths in found:
        changed = touched(site, info / "RECORD", [path for path in paths if owners[path] == 1])
        facts["touched"], facts["first"] = len(changed), changed[:FIRST]
    return [facts for _, facts, _ in found]


def main() -> None:
    """Print the facts, of each folder in the order of ``sys.path``."""
    csv.field_size_limit(1 << 30)  # by default a long word is an error
    own = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    folders = dict.fromkeys(path for path in (*sys.path[1:], *own) if path and Path(path).is_dir())
    print(json.dumps({"packages": [one for site in folders for one in of_folder(site)]}))


if __name__ == "__main__":
    main()
