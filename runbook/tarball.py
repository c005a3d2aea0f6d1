"""Files in one archive that is the same for the same files, and a look into one that may come from anybody."""

import gzip
import hashlib
import io
import json
import tarfile
import zlib
from collections.abc import Mapping

from runbook.errors import BadParameter

FOLDER = "runbook-bundle"
MANIFEST = "manifest.json"
LIMIT = 64 << 20
"""Bytes that the files may have together: what a reader unpacks in memory, and far above what an issue takes."""


def sha256(content: bytes) -> str:
    """The hash that a manifest names."""
    return hashlib.sha256(content).hexdigest()


def packed(files: Mapping[str, bytes]) -> bytes:
    """A ``.tar.gz`` of the files in one folder: by name, of nobody, without times.

    Raises:
        BadParameter: they are more than anybody would read.
    """
    size = sum(map(len, files.values()))
    if size > LIMIT:
        raise BadParameter(
            f"the files come to {size >> 20} MiB", f"{LIMIT >> 20} MiB at most", "name fewer logs"
        )
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files):
            entry = tarfile.TarInfo(f"{FOLDER}/{name}")
            entry.size, entry.mode, entry.mtime = len(files[name]), 0o644, 0
            archive.addfile(entry, io.BytesIO(files[name]))
    out = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=out, mtime=0) as stream:
        stream.write(raw.getvalue())
    return out.getvalue()


def problems(archive: bytes, name: str) -> tuple[int, list[str]]:
    """How many files the manifest lists, and what in the archive is not as it says. Nothing is unpacked onto a disk.

    Raises:
        BadParameter: the file, called ``name``, is no bundle.
    """
    files, found = _members(archive, name)
    manifest = files.pop(MANIFEST, None)
    if manifest is None:
        raise _no_bundle(name, f"it holds no {MANIFEST}")
    listed = _listed(manifest, name)
    for each in sorted(listed.keys() | files.keys()):
        if each not in files:
            found.append(f"{each}: listed, and not there")
        elif each not in listed:
            found.append(f"{each}: there, and not listed")
        elif (len(files[each]), sha256(files[each])) != listed[each]:
            found.append(f"{each}: not the listed content")
    return len(listed), found


def _members(archive: bytes, name: str) -> tuple[dict[str, bytes], list[str]]:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(archive)) as stream:
            raw = stream.read(LIMIT + (1 << 20))
            if stream.read(1):
                raise _no_bundle(name, f"unpacked it has more than {LIMIT >> 20} MiB")
    except (OSError, EOFError, zlib.error) as why:
        raise _no_bundle(name, str(why)) from why
    files: dict[str, bytes] = {}
    found = []
    try:
        with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as opened:
            for entry in opened:
                inside = entry.name.removeprefix(f"{FOLDER}/")
                content = opened.extractfile(entry) if entry.isreg() else None
                if content is None or inside == entry.name or ".." in inside.split("/") or inside in files:
                    found.append(f"{entry.name}: not a file of a bundle")
                else:
                    files[inside] = content.read()
    except (tarfile.TarError, EOFError, ValueError, UnicodeError, OverflowError) as why:
        raise _no_bundle(name, str(why)) from why
    return files, found


def _listed(manifest: bytes, name: str) -> dict[str, tuple[int, str]]:
    try:
        rows = json.loads(manifest)["files"]
        return {str(row["name"]): (int(row["size"]), str(row["sha256"])) for row in rows}
    except (ValueError, KeyError, TypeError, RecursionError) as why:
        raise _no_bundle(name, f"its {MANIFEST} cannot be read ({type(why).__name__})") from why


def _no_bundle(name: str, why: str) -> BadParameter:
    return BadParameter(f"{name} is no bundle: {why}", "a file that runbook bundle wrote", "name another")
