"""Why a set of requirements cannot be met, in plain words: every clash, which pin to drop, and what resolves then.

uv stops at the first contradiction. Here the pin in it is dropped and uv asked again, until it resolves; so each advice
has been tried. What is named as kept (the stack's own vLLM) is never dropped.
"""

import dataclasses
import re
import textwrap
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet

from runbook.errors import ActionFailed
from runbook.parse.python_env import normal
from runbook.parse.uv_output import YOU, Demand, Lack, Lacking, NoSolution
from runbook.pins import Stack
from runbook.report import wrapped
from runbook.resolve import (
    Conflict,
    Question,
    Resolution,
    metadata_of_source,
    of_requirements,
    of_stack,
    wheel_of,
)

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
# The newest glibc that uv knows a platform for: a wheel that does not fit there has no wheel for any Linux of today.
NEWEST = "x86_64-manylinux_2_40"


@dataclass(frozen=True)
class Clash:
    """One contradiction: ``says`` it in sentences; ``drop`` and ``take`` are what to change; ``then`` is asked next.

    ``drop`` is a requirement as it was asked, ``take`` an override or a Python to take; either may be "".
    """

    package: str
    says: tuple[str, ...]
    drop: str
    take: str
    then: Question


@dataclass(frozen=True)
class Explanation:
    """All clashes of a question and what resolves without them; ``left`` is what uv said where no way was found."""

    name: str
    question: Question
    clashes: tuple[Clash, ...]
    resolution: Resolution | None
    left: str
    notes: tuple[str, ...]


def explain_stack(stack: Stack, python: str) -> Explanation | Resolution:
    """What a stack's requirements come to: the resolution, or why there is none.

    Raises:
        ActionFailed: uv could not answer for another reason, such as an index that cannot be reached.
    """
    answer = of_stack(stack, python)
    if isinstance(answer, Resolution):
        return answer
    pin = stack.pin("python")
    return explain(answer, {stack.distribution}, stack.name, (pin.why,) if pin else ())


def explain(
    conflict: Conflict, keep: Collection[str], name: str = "the requirements", notes: tuple[str, ...] = ()
) -> Explanation:
    """Drop what clashes until it resolves; ``keep`` are packages that stay.

    Raises:
        ActionFailed: as ``explain_stack``.
    """
    clashes: list[Clash] = []
    answer: Conflict | Resolution = conflict
    while isinstance(answer, Conflict) and (clash := _clash(answer, keep)):
        clashes.append(clash)
        answer = of_requirements(clash.then)
    if isinstance(answer, Conflict):
        said = answer.said.raw.strip()
        return Explanation(name, conflict.question, tuple(clashes), None, said, notes)
    needed, answer = _needed(clashes, answer)
    return Explanation(name, conflict.question, needed, answer, "", notes)


def _needed(clashes: list[Clash], found: Resolution) -> tuple[tuple[Clash, ...], Resolution]:
    """Without the drops that a later one made needless: each is put back, and stays when it resolves all the same."""
    question = clashes[-1].then
    kept: list[Clash] = []
    for clash in clashes[:-1]:
        if clash.drop:
            trial = dataclasses.replace(question, requirements=(*question.requirements, clash.drop))
            answer = of_requirements(trial)
            if isinstance(answer, Resolution):
                question, found = trial, answer
                continue
        kept.append(clash)
    return (*kept, clashes[-1]), found


def _clash(conflict: Conflict, keep: Collection[str]) -> Clash | None:
    """The contradiction that uv stopped at, with what to change; None where nothing can be."""
    said, question = conflict.said, conflict.question
    yours = {one.package for one in said.demands if one.who == YOU} - set(keep)
    if clash := _python(said, question, yours):
        return clash
    lacking = (clash for lack in said.lacks if (clash := _lacking(said, lack, question, yours)))
    return next(lacking, None) or _clashing(said, question, yours)


def _clashing(said: NoSolution, question: Question, yours: set[str]) -> Clash | None:
    """Two demands on one package: of yours the one that is asked for most often goes, which is where they meet."""
    if not yours:
        return None
    asked = [one.package for one in said.demands]
    package = min(yours, key=lambda each: (-asked.count(each), each))
    wanted = next(one.wanted for one in said.demands if one.package == package and one.who == YOU)
    return _dropped(question, package, wanted, _demand_says(said, package))


def _lacking(said: NoSolution, lack: Lack, question: Question, yours: set[str]) -> Clash | None:
    """What is not to be had: drop it when it is yours, else take another Linux or Python, or the plain release."""
    if "+" in lack.wanted:
        return _local(said, lack, question)
    exact = f"{lack.package}{lack.wanted}"
    other = _elsewhere(exact, question) if lack.why is Lacking.WHEEL else None
    if lack.package not in yours:
        return other
    says = (f"you ask for {exact}", *(other.says if other else _lack_says(lack, question.python)))
    return _dropped(question, lack.package, lack.wanted, says)


def _dropped(question: Question, package: str, wanted: str, says: Iterable[str]) -> Clash | None:
    """The clash that leaves out the line that asks for the package, of several the one with these versions."""
    lines = [line for line in question.requirements if _name(line) == package]
    if not lines:
        return None
    drop = next((line for line in lines if line.endswith(wanted)), lines[0])
    then = tuple(line for line in question.requirements if line != drop)
    return Clash(package, tuple(says), drop, "", dataclasses.replace(question, requirements=then))


def _name(line: str) -> str:
    try:
        return normal(Requirement(line).name)
    except InvalidRequirement:
        return ""


def _python(said: NoSolution, question: Question, yours: set[str]) -> Clash | None:
    """A Python that is not allowed: drop the package that refuses it, or take another Python when it must stay."""
    for bounds in said.python:
        package = re.split(r"[<>=!~]", bounds.who, maxsplit=1)[0]
        who = bounds.who or "a package"
        says = (f"you ask for Python {question.python}", f"{who} runs on Python {bounds.wanted} only")
        if package in yours:
            return _dropped(question, package, "", says)
        allowed = SpecifierSet(bounds.wanted)
        other = next((one for one in PYTHONS if allowed.contains(one)), "")
        if other:
            then = dataclasses.replace(question, python=other)
            return Clash("python", says, "", f"Python {other}", then)
    return None


def _local(said: NoSolution, lack: Lack, question: Question) -> Clash:
    """``torch==2.10.0+cpu`` is on no index but PyTorch's own; the plain release takes its place as an override."""
    override = f"{lack.package}{lack.wanted.partition('+')[0]}"
    says = (
        *_demand_says(said, lack.package),
        f"the index has no build {lack.wanted.removeprefix('==')} of {lack.package}: such builds are kept elsewhere",
    )
    then = dataclasses.replace(question, overrides=(*question.overrides, override))
    return Clash(lack.package, says, "", f"the override {override}", then)


def _demand_says(said: NoSolution, package: str) -> list[str]:
    return [_ask(one, said) for one in said.demands if one.package == package]


def _ask(one: Demand, said: NoSolution) -> str:
    wanted = f"{one.package}{_plain(one.wanted)}" if one.wanted else f"any {one.package}"
    if one.who == YOU:
        return f"you ask for {wanted}"
    package = re.split(r"[<>=!~]", one.who, maxsplit=1)[0]
    through = next((each.who for each in said.demands if each.package == package and each.who != YOU), "")
    return f"{one.who}{f', which {through} asks for,' if through else ''} asks for {wanted}"


def _plain(wanted: str) -> str:
    # uv writes the bound of `!=5.0.*` as <5.0.dev0.
    return wanted.replace(".dev0", "")


def _elsewhere(exact: str, question: Question) -> Clash | None:
    """The newer Linux or the other Python that a wheel of ``exact`` is for; None when it has no wheel at all."""
    package = re.split(r"[<>=!~]", exact, maxsplit=1)[0]
    if newer := wheel_of(exact, question.python, NEWEST):
        tag = re.search(r"manylinux_(\d+)_(\d+)_x86_64(?!.*manylinux)", newer.file)
        glibc = f"{tag[1]}.{tag[2]}" if tag else "2.40"
        then = dataclasses.replace(question, platform=f"x86_64-manylinux_{glibc.replace('.', '_')}")
        says = f"{exact} has wheels for glibc {glibc} and newer, and you ask for {question.platform.partition('-')[2]}"
        return Clash(package, (says,), "", f"a Linux with glibc {glibc} or newer", then)
    for other in PYTHONS:
        if wheel_of(exact, other, NEWEST):
            then = dataclasses.replace(question, python=other)
            says = f"{exact} has a wheel for Python {other}, and none for {question.python}"
            return Clash(package, (says,), "", f"Python {other}", then)
    return None


def _lack_says(lack: Lack, python: str) -> list[str]:
    exact = f"{lack.package}{lack.wanted}"
    if lack.why is not Lacking.WHEEL:
        return [f"{exact}: {lack.why.value}"]
    return ["it has no wheel on the index, only its source", *_source_says(exact, python)]


def _source_says(exact: str, python: str) -> list[str]:
    try:
        failure = metadata_of_source(exact, python)
    except ActionFailed as why:
        return [f"its source could not be asked what it needs: {why.seen}"]
    if failure is None:
        return ["its source says what it needs, so it can be built once its needs are installed"]
    needs = f"; it needs {failure.needs} for that and does not say so" if failure.needs else ""
    return [f'asked what it needs, its source ends with "{failure.said}"{needs}']


def as_text(one: Explanation) -> str:
    """What clashes, what to drop, what resolves then; 80 columns."""
    asked = one.question
    count = len(one.clashes)
    found = f": {count} clash{'es' if count > 1 else ''}" if count else ""
    lines = [wrapped(f"{one.name} cannot be resolved for Python {asked.python} on {asked.platform}{found}.")]
    for number, clash in enumerate(one.clashes, 1):
        lines += ["", wrapped(clash.drop or clash.take or clash.package, f"{number:3}  ", " " * 5)]
        lines += [wrapped(says, "       - ", " " * 9) for says in clash.says]
        lines.append(wrapped(_advice(clash, one.resolution), "       do  ", " " * 11))
    lines.append("")
    if one.resolution:
        lines.append(wrapped(_ending(one)))
    else:
        lines += ["No way was found from there; uv says:", textwrap.indent(one.left, "  ")]
    lines += [wrapped(note) for note in one.notes]
    return "\n".join(lines) + "\n"


def _advice(clash: Clash, found: Resolution | None) -> str:
    if clash.take:
        return f"take {clash.take}"
    instead = found.versions.get(clash.package) if found else None
    if instead:
        return f"drop {clash.drop}; {clash.package} {instead} comes then, as the others ask"
    more = "; to have it all the same, build it against the finished target: runbook build flash-attn"
    return f"drop {clash.drop}; nothing else asks for it{more if clash.package == 'flash-attn' else ''}"


def _ending(one: Explanation) -> str:
    found = one.resolution
    if found is None:
        return ""
    have = found.versions
    named = dict.fromkeys(
        [*(_name(line) for line in one.question.requirements), *(each.package for each in one.clashes)]
    )
    shown = ", ".join(f"{name} {have[name]}" for name in named if name in have)
    without = [name for name in named if name not in have and name != "python"]
    end = f"; without {', '.join(without)}" if without else ""
    changed = "these dropped" if all(each.drop for each in one.clashes) else "these changes"
    return f"With {changed} it resolves to {len(have)} packages on Python {found.python}: {shown}{end}."


def as_json(one: Explanation) -> dict[str, Any]:
    """The same as a JSON object."""
    return {
        "schema": "conflict/1",
        "name": one.name,
        "python": one.question.python,
        "platform": one.question.platform,
        "requirements": list(one.question.requirements),
        "clashes": [
            {"package": each.package, "says": list(each.says), "drop": each.drop, "take": each.take}
            for each in one.clashes
        ],
        "resolves_to": one.resolution.versions if one.resolution else None,
        "left": one.left,
        "notes": list(one.notes),
    }
