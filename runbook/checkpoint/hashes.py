"""What the hub said of each file: its revision and its hash, and whether the file has that hash now.

huggingface_hub leaves ``.cache/huggingface/download/NAME.metadata`` beside what it downloads: revision, ETag, time, a line
each. The ETag of a large file is its sha256, of any other git's sha1 of the blob
(https://huggingface.co/docs/huggingface_hub/package_reference/file_download). In the hub's own cache it is the name of the
blob that a file links to, below a folder that bears the revision. The runbook's own downloads leave the same metadata, and
a record of the whole: a repository on ModelScope has a commit for each file and none for a branch.
"""

import hashlib
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbook.checkpoint import files
from runbook.checkpoint.faults import Fault, few, line
from runbook.checkpoint.files import Unusable

KEPT = Path(".cache", "huggingface", "download")
RECORD = Path(".cache", "runbook"), "source.json"  # written by runbook.hub.seal
COMMIT = re.compile(r"[0-9a-f]{40}")
PIECE = 1 << 22
SHA256, SHA1 = 64, 40
MOST = 4096  # bytes of a metadata file


@dataclass(frozen=True)
class Said:
    """What the hub said of one file; ``revision`` is "" where it is not a commit."""

    name: str
    revision: str
    tag: str


def said(folder: Path, present: tuple[str, ...]) -> tuple[Said, ...]:
    """Each file of which the hub's word is kept."""
    found = (_kept(folder, name) or _linked(folder, name) for name in present)
    return tuple(one for one in found if one)


def _kept(folder: Path, name: str) -> Said | None:
    try:
        lines = files.text(folder / KEPT, f"{name}.metadata", "hashes", MOST).splitlines()
    except Unusable:
        return None
    if len(lines) < 2 or not lines[1]:  # noqa: PLR2004 - revision and tag
        return None
    return Said(name, lines[0] if COMMIT.fullmatch(lines[0]) else "", lines[1].strip('"'))


def _linked(folder: Path, name: str) -> Said | None:
    """In the hub's own cache: ``snapshots/REVISION/NAME`` leads to ``blobs/TAG``."""
    real = folder.resolve()
    if real.parent.name != "snapshots" or not (folder / name).is_symlink():
        return None
    blob = (folder / name).resolve()
    return Said(name, real.name, blob.name) if blob.parent.name == "blobs" else None


def facts(folder: Path, every: tuple[Said, ...]) -> dict[str, Any]:
    """Revisions with the number of their files; of a download of the runbook the repository as well."""
    revisions = sorted({one.revision for one in every if one.revision})
    found: dict[str, Any] = {
        "revisions": {revision: sum(one.revision == revision for one in every) for revision in revisions},
        "files": len(every),
    }
    try:
        record = files.json_object(folder / RECORD[0], RECORD[1], "hashes")
    except Unusable:
        return found
    named = {key: line(record.get(key)) for key in ("source", "repo", "revision")}
    return {**found, **named, "skeleton": record.get("skeleton") is True}


def compared(folder: Path, every: tuple[Said, ...]) -> tuple[dict[str, Any], list[Fault]]:
    """Read every file of which the hub's word is kept, several at once, and compare."""
    known = [one for one in every if len(one.tag) in (SHA256, SHA1)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda one: _hash(folder, one), known))
    faults = [one for one in found if isinstance(one, Fault)]
    checked = {
        "checked": len(found) - sum(fault.kind != "hashes/other" for fault in faults),
        "not_known": len(every) - len(known),
    }
    return checked, faults


def _hash(folder: Path, one: Said) -> Fault | None:
    try:
        with files.opened(folder, one.name, "hashes") as found:
            make: Callable[[], Any] = hashlib.sha256 if len(one.tag) == SHA256 else lambda: _blob(found.size)
            sum_ = make()
            while piece := found.read(PIECE):
                sum_.update(piece)
    except Unusable as why:
        return why.fault
    except OSError as why:
        return Fault("hashes/unreadable", one.name, f"cannot be read: {why.strerror}")
    if sum_.hexdigest() == one.tag:
        return None
    return Fault(
        "hashes/other", one.name, f"has the hash {sum_.hexdigest()[:12]}..., the hub gave {one.tag[:12]}..."
    )


def _blob(size: int) -> Any:  # noqa: ANN401 - hashlib has no public name for it
    """Git's hash of a blob: sha1 over its kind and length, then its content."""
    return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)


def mixed(every: tuple[Said, ...], about: dict[str, Any]) -> list[Fault]:
    """Files of several revisions in one folder. ``about``: as ``facts``; on ModelScope each file has a commit of its own."""
    revisions = list(about["revisions"])
    if len(revisions) < 2 or about.get("source") == "modelscope":  # noqa: PLR2004 - more than one
        return []
    return [
        Fault("hashes/revisions", every[0].name, f"and others are of several revisions: {few(revisions)}")
    ]
