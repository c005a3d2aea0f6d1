"""Build a stack's target environment from its lock with uv, once, and know later whether it is still that."""

import datetime
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from runbook import pins
from runbook.actions import Context, Say
from runbook.errors import ActionFailed, BadParameter
from runbook.parse import python_env
from runbook.probes.live import die_with_parent
from runbook.workspace import write_whole

STAMP = "target.json"


class BuildTarget:
    """``uv venv`` and ``uv pip sync --require-hashes --compile-bytecode``; ``target.json`` is written last."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.folder = ctx.work.targets / ctx.stack.name
        self.log = ctx.work.logs / f"build-{ctx.stack.name}.log"

    def plan(self) -> list[str]:
        """What would be built, or why nothing is."""
        if not self.ctx.ours:
            return [
                f"nothing: you named the target {self.ctx.python}; the runbook builds in its own workspace only"
            ]
        fault = self.fault()
        if fault is None:
            return [f"nothing: {self.folder} is whole and matches its lock"]
        base, lock = self._base()
        return [
            f"because   {fault}",
            f"create    {self.folder} (Python {base[0]})",
            f"install   {len(pins.locked(lock))} packages of {lock.parent.name}/{lock.name}, hashes required, bytecode compiled",
            f"log       {self.log}",
            f"undo      runbook clean --target {self.ctx.stack.name}",
        ]

    def fault(self) -> str | None:
        """Why the target must be built, or None when it is there, matches its lock and no file is missing."""
        try:
            stamp = json.loads((self.folder / STAMP).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return "there is no finished target"
        try:
            if stamp["lock_sha256"] != pins.sha256(self.ctx.stack.lock(stamp["python"])):
                return "the lock has changed since it was built"
        except (BadParameter, KeyError, TypeError):
            return "it was built from a lock that is no longer there"
        if not self.ctx.work.target_python(self.ctx.stack.name).exists():
            return "its interpreter is gone"
        if stamp.get("records") != record_hashes(site_of(self.folder)):
            return "packages were changed since it was built"
        missing = missing_files(site_of(self.folder))
        return f"{len(missing)} installed files are missing or cut, such as {missing[0]}" if missing else None

    def apply(self, say: Say) -> None:
        """Build it unless it is whole."""
        if not self.ctx.ours or self.fault() is None:
            return
        started = time.monotonic()
        (minor, base), lock = self._base()
        self.ctx.work.logs.mkdir(parents=True, exist_ok=True)
        self.log.write_text("", encoding="utf-8")
        self._clear()
        self._uv(["venv", "--python", base, "--no-project", str(self.folder)])
        say(f"installing {len(pins.locked(lock))} packages; the log is {self.log}")
        python = str(self.ctx.work.target_python(self.ctx.stack.name))
        self._uv(
            [
                "pip",
                "sync",
                "--python",
                python,
                "--require-hashes",
                "--compile-bytecode",
                "--no-progress",
                str(lock),
            ]
        )
        seconds = round(time.monotonic() - started, 1)
        stamp = {
            "schema": "target/1",
            "stack": self.ctx.stack.name,
            "python": minor,
            "lock_sha256": pins.sha256(lock),
            "built": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "seconds": seconds,
            "records": record_hashes(site_of(self.folder)),
        }
        write_whole(self.folder / STAMP, json.dumps(stamp, indent=1) + "\n")
        say(f"built in {seconds} s")

    def _clear(self) -> None:
        # Renamed first: a removal that is interrupted must not leave something that looks like a target.
        if self.folder.exists():
            waste = self.folder.with_name(f".{self.folder.name}.removed-{os.getpid()}")
            self.folder.rename(waste)
        for old in self.folder.parent.glob(f".{self.folder.name}.removed-*"):
            shutil.rmtree(old)

    def _base(self) -> tuple[tuple[str, str], Path]:
        """((minor, interpreter), lock): the runbook's own Python when the stack has a lock for it, else one that uv finds."""
        own = f"{sys.version_info.major}.{sys.version_info.minor}"
        stack = self.ctx.stack
        if own in stack.pythons:
            return (own, sys.executable), stack.lock(own)
        for minor in stack.pythons:
            ran = subprocess.run(
                [uv(), "python", "find", "--no-project", minor], capture_output=True, text=True, check=False
            )
            if ran.returncode == 0:
                return (minor, ran.stdout.strip()), stack.lock(minor)
        raise ActionFailed(
            f"the stack {stack.name} has no lock for Python {own}, and no other Python it has one for is installed",
            f"Python {', '.join(stack.pythons)}",
            f"uv python install {stack.pythons[-1]}",
        )

    def _uv(self, words: list[str]) -> None:
        env = {
            name: value
            for name, value in os.environ.items()
            if name not in ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")
        }
        # A disk cache on another file system cannot be hard-linked; copying is what uv does then, with a warning.
        with self.log.open("a", encoding="utf-8") as log:
            ran = subprocess.run(
                [uv(), *words, "--color", "never"],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env,
                check=False,
                preexec_fn=die_with_parent(),
            )
        if ran.returncode:
            tail = [
                line
                for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines()
                if line.strip()
            ][-6:]
            raise ActionFailed(
                f"uv {' '.join(words[:2])} ended with {ran.returncode}: " + " | ".join(tail),
                "every wheel of the lock can be fetched and unpacked",
                f"read {self.log}; then run the page again, which starts afresh",
            )


def uv() -> str:
    """The uv beside our own interpreter, else the one on PATH.

    Raises:
        ActionFailed: there is none.
    """
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.exists() else shutil.which("uv")
    if not found:
        raise ActionFailed(
            "uv is not there", "uv beside the runbook's interpreter", "python3 bootstrap.py setup"
        )
    return found


def site_of(folder: Path) -> Path:
    """The site-packages folder of a target we built (it may not exist yet)."""
    return next(iter(folder.glob("lib/python3.*/site-packages")), folder / "lib" / "site-packages")


def record_hashes(site: Path) -> dict[str, str]:
    """Package -> hash of its RECORD, which lists every file of it with its own hash."""
    found = {}
    for record in sorted(site.glob("*.dist-info/RECORD")):
        name = next(iter(python_env.distributions([record.parent.name])), record.parent.name)
        found[name] = hashlib.sha256(record.read_bytes()).hexdigest()[:16]
    return found


def missing_files(site: Path) -> list[str]:
    """Files that a RECORD lists and that are gone or of another size (their bytes are not read: that takes minutes).

    Some packages list the same file with different sizes (flashinfer-python and torch-c-dlpack-ext both bring a
    build_backend.py): it is right when it fits one of them.
    """
    with ThreadPoolExecutor(4) as pool:
        listed = list(pool.map(_compared, site.glob("*.dist-info/RECORD")))
    wrong = {name for bad, _ in listed for name in bad}
    return sorted(wrong.difference(*(good for _, good in listed)))


def _compared(record: Path) -> tuple[list[str], list[str]]:
    """(files that do not fit, files that do) of one RECORD; bytecode is left out."""
    site = record.parent.parent
    bad: list[str] = []
    good: list[str] = []
    for line in record.read_text(encoding="utf-8").splitlines():
        name, _, size = line.rsplit(",", 2) if line.count(",") >= 2 else (line, "", "")  # noqa: PLR2004
        name = name.strip('"')
        if name.endswith(".pyc"):
            continue  # compiled on the spot; some are listed that no compiler can make, and Python makes others as it goes
        try:
            have = os.stat(site / name).st_size  # noqa: PTH116 - 40 000 of them, Path.stat costs a third more
        except OSError:
            bad.append(name)
            continue
        (bad if size.isdigit() and have != int(size) else good).append(name)
    return bad, good
