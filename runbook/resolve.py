"""Which wheels a lock or a set of requirements comes to, asked of uv before anything is fetched or installed.

uv answers in the form of PEP 751 (``pylock.toml``), which names every wheel with its size and hash. Addresses are read
past and never kept. Only wheels are considered: a source distribution would have to run its own code to be planned with.
"""

import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from runbook import uv
from runbook.errors import ActionFailed
from runbook.parse import uv_log, uv_output
from runbook.parse.python_env import normal
from runbook.parse.uv_output import BuildFailure, NoSolution
from runbook.pins import Stack

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# PEP 600: these older names stand for a glibc each.
_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


@dataclass(frozen=True)
class Wheel:
    """One file to install. ``size`` is None where the index does not say it."""

    package: str
    version: str
    file: str
    size: int | None
    sha256: str


@dataclass(frozen=True)
class Question:
    """What was to be resolved, for which Python (``3.11``) and platform (``x86_64-manylinux_2_31``)."""

    requirements: tuple[str, ...]
    overrides: tuple[str, ...]
    python: str
    platform: str


@dataclass(frozen=True)
class Resolution:
    """The wheels, one a package, in the order of their names."""

    wheels: tuple[Wheel, ...]
    python: str
    platform: str

    @property
    def versions(self) -> dict[str, str]:
        """Package -> version."""
        return {one.package: one.version for one in self.wheels}

    @property
    def download(self) -> int:
        """Bytes of all wheels whose size is known; what lies in uv's cache already is counted too."""
        return sum(one.size or 0 for one in self.wheels)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Packages whose size the index does not say."""
        return tuple(one.package for one in self.wheels if one.size is None)


@dataclass(frozen=True)
class Conflict:
    """No set of versions meets the question; ``said`` is uv's reason."""

    question: Question
    said: NoSolution


def of_lock(lock: Path, python: str, platform: str) -> Resolution:
    """The wheels that a hashed lock comes to on an interpreter, each one that the lock has the hash of.

    Raises:
        ActionFailed: uv cannot say, such as when the index cannot be reached or has no wheel of the lock.
    """
    found = located(lock, python, platform)
    return Resolution(tuple(wheel for wheel, _ in found), python, platform)


def located(lock: Path, python: str, platform: str) -> list[tuple[Wheel, str]]:
    """As ``of_lock``, each wheel with where it lies: for a look into it, and never to be kept.

    Raises:
        ActionFailed: as ``of_lock``.
    """
    words = [str(lock), "--no-deps"]
    answer = _compiled(words, "", python, platform)
    if isinstance(answer, str):
        raise _failed(answer)
    hashes = set(lock.read_text(encoding="utf-8").replace("\\", " ").split())
    return list(_chosen(answer, python, platform, hashes))


def newest(requirements: Sequence[str], python: str, platform: str) -> list[tuple[Wheel, str]]:
    """The newest wheel that each requirement allows by itself, with where it lies; what they ask of others is not looked at.

    Raises:
        ActionFailed: as ``of_requirements``.
    """
    answer = _compiled(["-", "--no-deps"], "\n".join(requirements), python, platform)
    if isinstance(answer, str):
        raise _failed(answer)
    return list(_chosen(answer, python, platform, None))


def of_requirements(question: Question) -> Resolution | Conflict:
    """The wheels that requirements come to, or why they come to nothing.

    Raises:
        ActionFailed: uv could not answer for another reason, such as an index that cannot be reached.
    """
    with tempfile.TemporaryDirectory(prefix="runbook-resolve-") as folder:
        overrides = Path(folder, "overrides.txt")
        overrides.write_text("\n".join(question.overrides), encoding="utf-8")
        words = ["-", *(["--override", str(overrides)] if question.overrides else [])]
        answer = _compiled(words, "\n".join(question.requirements), question.python, question.platform)
    if not isinstance(answer, str):
        chosen = _chosen(answer, question.python, question.platform, None)
        return Resolution(tuple(wheel for wheel, _ in chosen), question.python, question.platform)
    blamed = uv_log.fault(answer)
    said = uv_output.no_solution(answer)
    if said is None or blamed:
        raise _failed(answer)
    return Conflict(question, said)


def of_stack(stack: Stack, python: str) -> Resolution | Conflict:
    """What a stack's requirements come to today, whatever its lock says.

    Raises:
        ActionFailed: as ``of_requirements``.
    """
    return of_requirements(Question(stack.requirements, stack.overrides, python, stack.platform))


def wheel_of(requirement: str, python: str, platform: str) -> Wheel | None:
    """The wheel of one requirement alone, or None when none fits there."""
    answer = _compiled(["-", "--no-deps"], requirement, python, platform)
    return None if isinstance(answer, str) else next(_chosen(answer, python, platform, None), (None, ""))[0]


def metadata_of_source(requirement: str, python: str) -> BuildFailure | None:
    """Why a source distribution cannot say what it needs; None when it can. Its ``setup.py`` is run for that, by uv, apart.

    Raises:
        ActionFailed: as ``of_requirements``.
    """
    ran = uv.ask(["pip", "compile", "-", "--quiet", "--no-header", *_for(python)], requirement)
    failure = uv_output.build_failure(ran.text)
    if ran.rc and failure is None:
        raise _failed(ran.text)
    return failure


def _for(python: str) -> list[str]:
    # Left alone uv looks for that Python, and fetches one, to run builds with; nothing is built here.
    return ["--python-version", python, "--python", sys.executable, "--no-python-downloads"]


def _compiled(words: Sequence[str], given: str, python: str, platform: str) -> list[dict[str, Any]] | str:
    """The packages of uv's answer, or what it said instead."""
    with tempfile.TemporaryDirectory(prefix="runbook-resolve-") as folder:
        out = Path(folder, "pylock.toml")
        ran = uv.ask(
            [
                "pip", "compile", *words, "--format", "pylock.toml", "--output-file", str(out), "--quiet", "--no-header",
                *_for(python), "--python-platform", platform, "--only-binary", ":all:",
            ],
            given,
        )  # fmt: skip
        if ran.rc:
            return ran.text
        packages: list[dict[str, Any]] = tomllib.loads(out.read_text(encoding="utf-8")).get("packages", [])
        for package in packages:
            for wheel in package.get("wheels", []):
                _measure(wheel, Path(folder))
        return packages


def _measure(wheel: dict[str, Any], folder: Path) -> None:
    """Size and full path of a wheel that lies in a folder (``--find-links``), where no index says them."""
    address = wheel.get("url", "")
    local = unquote(urlsplit(address).path) if address.startswith("file:") else wheel.get("path", "")
    if local and (path := folder / local).is_file():
        wheel["path"], wheel["size"] = str(path.resolve()), path.stat().st_size


def _failed(text: str) -> ActionFailed:
    blamed = uv_log.fault(text)
    if blamed:
        named = f" ({blamed.package})" if blamed.package else ""
        return ActionFailed(f"{blamed.seen}{named}", "uv can read the package index", blamed.do)
    tail = [line for line in uv_output.lines(text) if line.strip()][-6:]
    return ActionFailed(
        f"uv could not resolve: {' | '.join(tail)}", "every package of it on the index", "read what uv says"
    )


def tags(python: str, platform: str) -> dict[Tag, int]:
    """The wheel tags that fit CPython ``3.11`` on ``x86_64-manylinux_2_31``, the best first -> their rank."""
    machine, _, glibc = platform.partition("-manylinux_")
    major, _, minor = glibc.partition("_")
    places = [
        f"{name}_{machine}"
        for each in range(int(minor), 4, -1)
        for name in (f"manylinux_{major}_{each}", *([_LEGACY[each]] if each in _LEGACY else []))
    ]
    places.append(f"linux_{machine}")
    version = tuple(int(part) for part in python.split(".")[:2])
    fitting = [
        *cpython_tags(version, platforms=places),
        *compatible_tags(version, f"cp{python.replace('.', '')}", places),
    ]
    return {tag: rank for rank, tag in enumerate(fitting)}


def _chosen(
    packages: Iterable[dict[str, Any]], python: str, platform: str, hashes: Collection[str] | None
) -> Iterator[tuple[Wheel, str]]:
    """Of several wheels of a package the one an installer takes: the best tag, then the highest build number."""
    fitting = tags(python, platform)
    for package in packages:
        rows: list[tuple[int, tuple[int, str], Wheel, str]] = []
        for each in package.get("wheels", []):
            place = each.get("url") or each.get("path", "")
            name = each.get("name") or unquote(urlsplit(place).path).rpartition("/")[2]
            digest = each.get("hashes", {}).get("sha256", "")
            if hashes is not None and f"--hash=sha256:{digest}" not in hashes:
                continue
            try:
                _, _, build, wheel_tags = parse_wheel_filename(name)
            except InvalidWheelFilename:
                continue
            if best := [fitting[tag] for tag in wheel_tags if tag in fitting]:
                number = (build[0], build[1]) if build else (-1, "")
                one = Wheel(normal(package["name"]), package["version"], name, each.get("size"), digest)
                rows.append((-min(best), number, one, place))
        if not rows:
            raise ActionFailed(
                f"no wheel of {package['name']} {package['version']} fits CPython {python} on {platform}",
                "a wheel that the lock has the hash of",
                "make the locks again: runbook env refresh",
            )
        yield max(rows, key=lambda row: row[:2])[2:]
