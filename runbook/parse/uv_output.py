"""What uv says when requirements cannot be met, as values: who asks for what, what there is not, which Python.

The sentences are those of its resolver (https://github.com/astral-sh/uv/blob/main/crates/uv-resolver/src/pubgrub/report.rs
and .../resolver/availability.rs); releases before 0.13 draw them in a box and wrap them. Text of another shape is kept and
called not understood.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from runbook.parse.python_env import normal

YOU = "you"
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_BOX = "\u00d7\u2570\u251c\u2502\u2500\u25b6"  # a cross, two corners, two strokes, an arrow head
_LEADS = re.compile(rf"^[\s{_BOX}]*(?:(?:error|cause|Caused by): ?)?")
_MARKER = re.compile(r"\{[^{}]*\}")  # llguidance{platform_machine == 'x86_64'}>=1.7
_BECAUSE = re.compile(r"(?:^|(?<= ))(?:And b|B)ecause ")
_ONE = r"(?:==|!=|<=|>=|~=|<|>)[^\s,]+"
_TOKEN = re.compile(
    rf"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]\s]*\])?({_ONE}(?:,{_ONE})*)?(?=,? |,?$)", re.ASCII
)
_YOURS = re.compile(r"your? (?:(?:project|workspace) )?requires? (.+)$")
_ASKS = re.compile(r"(.+?) depends? on (.+)$")
_PYTHON = re.compile(r"the (?:requested|current) Python version \(([^)]*)\) does not satisfy Python(\S+)$")
_ONLY = re.compile(r"only (?:the following versions of )?(\S+) (?:is|are) available(?:: (.+))?$")


class Lacking(str, Enum):
    """Why a package or a version of it cannot be had."""

    VERSION = "no such version"
    PACKAGE = "not on the index"
    CACHE = "not in the cache, and the network is off"
    FOLDER = "not in the folder of wheels"
    WHEEL = "no wheel that fits"
    BROKEN = "a damaged file or metadata"
    YANKED = "withdrawn by its authors"
    DATE = "published after the cutoff"
    NETWORK = "not fetched"


# Wordings of availability.rs and prioritized_distribution.rs of uv, most particular first.
_LACKS = (
    (Lacking.PACKAGE, re.compile(r"(.+?) (?:was|were) not found in the package registry$")),
    (Lacking.CACHE, re.compile(r"(.+?) (?:(?:was|were) not found in the cache|needs? to be downloaded from a registry)$")),
    (Lacking.FOLDER, re.compile(r"(.+?) (?:was|were) not found in the provided package locations$")),
    (Lacking.WHEEL, re.compile(r"(.+?) (?:has|have) no (?:\S+ )*(?:wheels?|source distribution|available distributions)(?: with .+)?$")),
    (Lacking.BROKEN, re.compile(r"(.+?) (?:has|have) (?:an invalid package format|invalid metadata|inconsistent metadata)$")),
    (Lacking.YANKED, re.compile(r"(.+?) (?:was|were) yanked\b")),
    (Lacking.DATE, re.compile(r"(.+?) (?:(?:was|were) published after the exclude newer time|(?:has|have) no publish time)$")),
    (Lacking.NETWORK, re.compile(r"(.+?) could not be fetched from the network\b")),
    (Lacking.VERSION, re.compile(r"there (?:is|are) no versions? of (.+)$")),
)  # fmt: skip


@dataclass(frozen=True)
class Demand:
    """``who`` asks for a package: ``you``, or a package at a version. ``wanted`` is "" for any version."""

    who: str
    package: str
    wanted: str


@dataclass(frozen=True)
class Lack:
    """What cannot be had; ``wanted`` are the versions meant, "" for all."""

    package: str
    wanted: str
    why: Lacking


@dataclass(frozen=True)
class Bounds:
    """``who`` runs on ``wanted`` only, and ``have`` is the Python asked about; ``who`` is "" where uv does not say."""

    who: str
    have: str
    wanted: str


@dataclass(frozen=True)
class NoSolution:
    """Why there is no set of versions that meets everything asked. ``offered``: package -> the versions there are."""

    demands: tuple[Demand, ...]
    lacks: tuple[Lack, ...]
    python: tuple[Bounds, ...]
    offered: dict[str, str]
    hints: tuple[str, ...]
    raw: str

    @property
    def understood(self) -> bool:
        """False when no sentence was of a known shape; then ``raw`` is all there is."""
        return bool(self.demands or self.lacks or self.python)


@dataclass(frozen=True)
class BuildFailure:
    """A source distribution that could not be built, or not even asked for its metadata.

    ``said`` is the last line of its error; ``needs`` a package it imports without saying so, "" when uv names none.
    """

    package: str
    version: str
    said: str
    needs: str
    raw: str


def lines(text: str) -> list[str]:
    """The lines of an error of uv without colours, box and label."""
    return [_LEADS.sub("", _ANSI.sub("", line)).rstrip() for line in text.splitlines()]


def no_solution(text: str) -> NoSolution | None:
    """The resolver's answer in a text of uv; None when there is none in it."""
    every = lines(text)
    start = next((at for at, line in enumerate(every) if line.startswith("No solution found when")), None)
    if start is None:
        return None
    said, hints = _apart(every[start + 1 :])
    demands: dict[Demand, None] = {}
    lacks: dict[Lack, None] = {}
    have: list[tuple[str, str]] = []
    offered: dict[str, str] = {}
    for clause in _clauses(said):
        if found := _PYTHON.match(clause):
            have.append((found[1], found[2]))
        elif found := _ONLY.match(clause):
            offered.update(_offered(found[1], found[2]))
        elif lack := _lack(clause):
            lacks[lack] = None
        else:
            demands.update(dict.fromkeys(_demands(clause)))
    bounds = _bounds(have, demands)
    asked = tuple(one for one in demands if one.package != "python")
    return NoSolution(asked, tuple(lacks), bounds, offered, hints, text)


def _apart(every: list[str]) -> tuple[str, tuple[str, ...]]:
    """(The argument on one line, the hints); a hint ends at an empty line or at the next."""
    said: list[str] = []
    hints: list[list[str]] = []
    inside = False
    for line in every:
        if line.startswith("hint: "):
            hints.append([line.removeprefix("hint: ")])
            inside = True
        elif not line:
            inside = False
        else:
            (hints[-1] if inside else said).append(line)
    return " ".join(_MARKER.sub("", " ".join(said)).split()), tuple(" ".join(one) for one in hints)


def _clauses(said: str) -> Iterator[str]:
    """What is given in each sentence; what uv concludes from it is left out."""
    for sentence in _BECAUSE.split(said)[1:]:
        given = sentence.partition(", we can conclude that")[0]
        clause = ""
        for part in given.strip().rstrip(".").split(" and "):
            if clause and not _only_tokens(part):
                yield clause.strip().rstrip(",")
                clause = part
            else:
                clause = f"{clause} {part}" if clause else part
        yield clause.strip().rstrip(",")


def _only_tokens(part: str) -> bool:
    """True for ``numpy==2.3.0``, which goes on with what was asked, and not for the start of another clause."""
    words = [_TOKEN.fullmatch(word) for word in part.rstrip(",").split()]
    return all(words) and (len(words) == 1 or all(word[2] for word in words if word))


def _demands(clause: str) -> Iterator[Demand]:
    if found := _YOURS.match(clause):
        who, wanted = YOU, found[1]
    elif found := _ASKS.match(clause):
        who, wanted = found[1].removeprefix("all versions of "), found[2]
    else:
        return
    tokens = [
        (normal(one[1]), one[2] or "") for one in _TOKEN.finditer(wanted.partition(" of: ")[2] or wanted)
    ]
    if wanted.startswith("one of:"):
        ranges = " or ".join(range_ for _, range_ in tokens)
        tokens = [(tokens[0][0], ranges)] if tokens else []
    for package, range_ in tokens:
        yield Demand(who, package, range_)


def _offered(package: str, ranges: str | None) -> dict[str, str]:
    tokens = list(_TOKEN.finditer(ranges or package))
    return {normal(tokens[0][1]): " or ".join(one[2] or "any" for one in tokens)} if tokens else {}


def _lack(clause: str) -> Lack | None:
    for why, wording in _LACKS:
        if (found := wording.match(clause)) and (
            one := _TOKEN.match(found[1].removeprefix("all versions of "))
        ):
            return Lack(normal(one[1]), one[2] or "", why)
    return None


def _bounds(have: list[tuple[str, str]], demands: dict[Demand, None]) -> tuple[Bounds, ...]:
    asking = {one.wanted: one.who for one in demands if one.package == "python"}
    return tuple(Bounds(asking.get(wanted, ""), version, wanted) for version, wanted in have)


def build_failure(text: str) -> BuildFailure | None:
    """The build that failed in a text of uv; None when there is none in it."""
    every = lines(text)
    found = None
    for line in every:
        if found := re.match(r"Failed to (?:download and )?build `([^`=\s]+)==([^`\s]+)`", line):
            break
    if found is None:
        return None
    whole = " ".join(every)
    needs = re.search(r"depends on `([^`]+)`, but doesn't declare it as a build dependency", whole)
    errors = [line for line in every if re.match(r"(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception)\b", line)]
    return BuildFailure(
        normal(found[1]), found[2], errors[-1] if errors else "", needs[1] if needs else "", text
    )
