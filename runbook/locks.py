"""What is wrong with a stack's folder: its locks, what they were resolved from, the manifest and the sizes must agree."""

import re
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from runbook import pins
from runbook.parse.python_env import normal
from runbook.pins import Pin, Stack

# Pins that name a program, not a package of the lock.
PROGRAMS = frozenset({"python", "glibc", "cuda", "nvidia-driver", "nvidia-driver-as-shipped"})
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def faults(folder: Path) -> list[str]:
    """One sentence a fault; none when all is well."""
    stack = pins.read(folder)
    have = {path.name for path in folder.glob("py*.txt")}
    wanted = {lock_name(minor): minor for minor in stack.pythons} if not stack.drill else {}
    found = [f"{name} is missing" for name in sorted(set(wanted) - have)]
    found += [
        f"{name} is for a Python that the manifest does not name" for name in sorted(have - set(wanted))
    ]
    for name in sorted(have & set(wanted)):
        found += [f"{name}: {fault}" for fault in _lock(folder / name, folder, stack, wanted[name])]
    return found


def lock_name(minor: str) -> str:
    """``py311.txt`` for ``3.11``."""
    return f"py{minor.replace('.', '')}.txt"


def _lock(path: Path, folder: Path, stack: Stack, minor: str) -> list[str]:
    text = path.read_text(encoding="utf-8")
    found = [f"it says {word}" for word in ("://", "--index-url", "--find-links") if word in text]
    found += [fault for row in re.split(r"\n(?=\S)", text.strip()) if (fault := _row(row))]
    have = pins.locked(path)
    found += [fault for pin in stack.pins if (fault := unmet(pin, have, minor))]
    for file in ("requirements.in", "overrides.txt"):
        for line in pins.lines(folder / file):
            one = Requirement(line)
            version = have.get(normal(one.name), "")
            if not version or not one.specifier.contains(version, prereleases=True):
                found.append(f"{file} asks for {line}, and the lock has {version or 'none'}")
    return found


def _row(row: str) -> str | None:
    """What is wrong with one package of a lock: it has one exact version, no marker, no address, and hashes."""
    head, *hashes = (line.strip().rstrip("\\").strip() for line in row.splitlines())
    try:
        one = Requirement(head)
    except InvalidRequirement:
        return f"{head[:60]!r} is no requirement"
    exact = [each for each in one.specifier if each.operator == "==" and not each.version.endswith("*")]
    if len(one.specifier) != 1 or not exact or one.url:
        return f"{head} is not one exact version"
    if one.marker:
        # A lock is for one Python on one platform; a marker would make a check call a package absent that need not be there.
        return f"{head} has a marker"
    if not hashes or not all(_HASH.fullmatch(each) for each in hashes):
        return f"{head} has no hash, or one of another kind"
    return None


def unmet(pin: Pin, have: dict[str, str], minor: str) -> str | None:
    """How the lock of a Python differs from a pin; None when it does not, or is not asked to."""
    if pin.package in PROGRAMS or (pin.since and Version(minor) < Version(pin.since)):
        return None
    version = have.get(pin.package)
    wanted = SpecifierSet(pin.version if re.match(r"[<>=!~]", pin.version) else f"=={pin.version}")
    if version is not None and wanted.contains(version, prereleases=True):
        return None
    return f"the manifest pins {pin.package} {pin.version}, and the lock has {version or 'none'}"
