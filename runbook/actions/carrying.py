"""Carry a stack's compile caches to another machine of the same kind: one archive with a manifest that says for which.

What differs in a way that makes the caches useless, or code in them illegal, is refused: packages, Python, card or
processor. Paths that differ are only said: keys that hold a path are then not found, and that part is compiled again.
"""

import contextlib
import gzip
import hashlib
import io
import json
import os
import platform
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from runbook.actions import Context, Say
from runbook.actions.jobs import Jobs
from runbook.actions.records import record_hashes
from runbook.actions.server import NAME
from runbook.errors import ActionFailed, BadParameter
from runbook.probes.live import LiveProbe

SCHEMA = "caches/1"
MANIFEST = "manifest.json"
INSIDE = "caches"
MOST_MANIFEST = 1 << 20
MUST_MATCH = ("schema", "stack", "packages", "python", "machine", "card")
MAY_DIFFER = ("driver", "root", "target")


def manifest(ctx: Context) -> dict[str, Any]:
    """What the caches of this machine, target and workspace are good for."""
    host = LiveProbe(ctx.work, ctx.stack.name, ctx.python)
    site = host.places.get("{site}")
    if site is None:
        raise BadParameter(
            f"no target at {ctx.python}", "the target the caches belong to", "runbook env build"
        )
    query = ["nvidia-smi", "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"]
    cards = [[part.strip() for part in line.split(",")] for line in host.run(query).out.splitlines()]
    cpu = ctx.stack.device == "cpu"
    return {
        "schema": SCHEMA,
        "stack": ctx.stack.name,
        "packages": _hash(json.dumps(record_hashes(Path(site)), sort_keys=True)),
        "python": Path(site).parent.name,
        "machine": platform.machine(),
        # Inductor compiles for the very processor (-march=native); another one may not know its instructions.
        "card": _processor() if cpu else sorted({" ".join(card[:2]) for card in cards}),
        "driver": [] if cpu else sorted({card[-1] for card in cards}),
        "root": str(ctx.work.root),
        "target": str(ctx.python.parent.parent),
    }


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _processor() -> list[str]:
    """The processor's name and a hash of its features."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    return [fields.get("model name", ""), _hash(" ".join(sorted(fields.get("flags", "").split())))]


def pack(ctx: Context, into: Path, say: Say) -> None:
    """Write the archive; it is there whole or not at all.

    Raises:
        BadParameter: there are no caches, or no target.
        ActionFailed: a server runs, which may be writing them, or the archive could not be written.
    """
    _nothing_runs(ctx)
    folder = ctx.work.caches(ctx.stack.name)
    files = sorted(_files(folder))
    if not files:
        raise BadParameter(f"nothing lies in {folder}", "caches that a start has filled", "runbook prebuild")
    about = {**manifest(ctx), "files": len(files), "bytes": sum(one.stat().st_size for one in files)}
    partial = into.with_name(f"{into.name}.part")
    try:
        with tarfile.open(partial, "w:gz", compresslevel=6, dereference=True) as archive:
            text = json.dumps(about, indent=1).encode()
            head = tarfile.TarInfo(MANIFEST)
            head.size = len(text)
            archive.addfile(head, io.BytesIO(text))
            for path in files:
                archive.add(path, f"{INSIDE}/{path.relative_to(folder)}", recursive=False, filter=_nobody)
        partial.replace(into)
    except OSError as why:
        raise ActionFailed(
            f"{into}: {why.strerror or why}", "room for the archive", "name a file on another disk"
        ) from why
    finally:
        partial.unlink(missing_ok=True)
    say(f"{into}: {len(files)} files, {into.stat().st_size >> 20} MiB, of {about['bytes'] >> 20} MiB")


def _nobody(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info


def _files(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if not path.is_symlink() and path.is_file() and path.suffix != ".lock":
                yield path


def unpack(ctx: Context, archive: Path, say: Say) -> None:
    """Put the caches of an archive in place of this stack's, whole or not at all.

    Raises:
        BadParameter: it is no such archive, is damaged, holds what it should not, or was made for another kind of machine.
        ActionFailed: a server runs, or the disk is full.
    """
    _nothing_runs(ctx)
    folder = ctx.work.caches(ctx.stack.name)
    fresh, old = (folder.with_name(f"{folder.name}.{word}") for word in ("unpack", "old"))
    if old.exists() and not folder.exists():  # killed between the two renames below
        old.rename(folder)
    for left in (fresh, old):
        shutil.rmtree(left, ignore_errors=True)
    try:
        about = _extracted(ctx, archive, fresh, say)
        if folder.exists():
            folder.rename(old)
        fresh.rename(folder)
    except OSError as why:
        raise ActionFailed(
            f"{why.filename or fresh}: {why.strerror or why}", "room for the caches", "make room; nothing was changed"
        ) from why  # fmt: skip
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)
    say(f"{folder}: {about['files']} files from {archive}")


def _extracted(ctx: Context, path: Path, fresh: Path, say: Say) -> dict[str, Any]:
    """Everything of an archive in a new folder, and its manifest."""
    if not path.is_file():
        raise BadParameter(
            f"there is no file {path}", "an archive of runbook prebuild --pack", "check the name"
        )
    count = size = 0
    try:
        with tarfile.open(path, "r:gz") as archive:
            about = _manifest_of(archive)
            _fits(about, manifest(ctx), say)
            while member := archive.next():
                size += _put(archive, member, fresh, about["bytes"] - size)
                count += 1
    except (
        tarfile.TarError,
        gzip.BadGzipFile,
        zlib.error,
        EOFError,
        FileExistsError,
        KeyError,
        TypeError,
        ValueError,
    ) as why:
        raise _bad(path, str(why) or type(why).__name__) from why
    if count != about["files"]:
        raise _bad(path, f"{count} files instead of {about['files']}")
    return about


def _put(archive: tarfile.TarFile, member: tarfile.TarInfo, fresh: Path, room: int) -> int:
    """Write one file of an archive below a folder; its size, which may be at most ``room``."""
    target, source = fresh / _inside(member), archive.extractfile(member)
    if source is None or member.size > room:
        raise ValueError(f"{member.name} is more than its manifest names")
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as file:
        shutil.copyfileobj(source, file)
    target.chmod(0o755 if member.mode & 0o100 else 0o644)
    os.utime(target, (member.mtime, member.mtime))
    return member.size


def _manifest_of(archive: tarfile.TarFile) -> dict[str, Any]:
    head = archive.next()
    source = archive.extractfile(head) if head is not None and head.name == MANIFEST else None
    if source is None:
        raise ValueError("it does not begin with a manifest")
    about = json.loads(source.read(MOST_MANIFEST))
    if not isinstance(about, dict):
        raise TypeError("its manifest is none")
    return about


def _inside(member: tarfile.TarInfo) -> PurePosixPath:
    """Where a member goes; only plain files below the caches' own folder go anywhere."""
    name = PurePosixPath(member.name)
    if not member.isreg() or name.is_absolute() or ".." in name.parts or name.parts[:1] != (INSIDE,):
        raise ValueError(f"{member.name!r} is no plain file below {INSIDE}/")
    return PurePosixPath(*name.parts[1:])


def _fits(there: dict[str, Any], here: dict[str, Any], say: Say) -> None:
    for name in MUST_MATCH:
        if there[name] != here[name]:
            raise BadParameter(
                f"the caches are for {name} {_shown(there[name])}, and here it is {_shown(here[name])}",
                "an archive from a machine of this kind, with this very target",
                "build them here: runbook prebuild",
            )
    for name in MAY_DIFFER:
        if there.get(name) != here[name]:
            was, now = _shown(there.get(name)), _shown(here[name])
            say(f"{name} was {was}, here it is {now}: what names it is compiled again")


def _shown(value: Any) -> str:  # noqa: ANN401 - a field of a manifest: text or a list of texts
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _bad(path: Path, why: str) -> BadParameter:
    return BadParameter(
        f"{path}: {why}", "a whole archive of runbook prebuild --pack", "make it again; nothing was changed"
    )


def _nothing_runs(ctx: Context) -> None:
    with contextlib.suppress(FileNotFoundError):
        job = Jobs(ctx.work.jobs).get(NAME)
        if job:
            raise ActionFailed(
                f"a server runs, as process {job.pid}, and may write its caches", "no server", "runbook stop"
            )
