"""Failure signatures: what software prints when something is wrong, the one cause it speaks of, and what to do.

The data lie in ``runbook/signatures/``, one file per layer. The keys are a vocabulary that other records use too, so one
is never renamed. Patterns are RE2's: they run in linear time whatever the log holds
(https://github.com/google/re2/wiki/Syntax), and each stands for one line.
"""

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import re2
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from runbook import entries
from runbook.errors import BadParameter
from runbook.model import Fix, Risk

FOLDER = Path(__file__).parent.parent / "signatures"

COLOURS: Mapping[str, str] = {
    "driver": "red",
    "cuda": "red",
    "kernels": "red",
    "torch": "yellow",
    "flash-attn": "yellow",
    "vllm-install": "blue",
    "memory": "blue",
    "parallel": "blue",
    "serving": "blue",
    "ops": "blue",
    "model": "green",
    "tokenizer": "green",
    "client": "green",
}
"""The layers of causes, lowest first, in the four colours of the articles: CUDA, PyTorch, vLLM's settings, model or data."""

COLOUR_NAMES: Mapping[str, str] = {
    "red": "CUDA",
    "yellow": "PyTorch",
    "blue": "vLLM and its surroundings",
    "green": "model or data",
}


class Sure(str, Enum):
    """How far the text itself goes: it names the cause, is typical of it, or only hints at it."""

    STATED = "stated"
    LIKELY = "likely"
    POSSIBLE = "possible"

    @property
    def weight(self) -> int:
        """Higher is surer."""
        return {"stated": 3, "likely": 2, "possible": 1}[self.value]

    def less(self) -> "Sure":
        """One step less sure."""
        return {"stated": Sure.LIKELY, "likely": Sure.POSSIBLE, "possible": Sure.POSSIBLE}[self.value]


@dataclass(frozen=True)
class Rule:
    """One way in which a cause shows.

    Every pattern of ``says`` is found, the first on the line that is the cause and on ``times`` lines at least; none of
    ``never`` is. ``within`` is the greatest distance in lines to the first. ``versions`` are releases of vLLM. ``excerpt`` is
    for lines that are normal in the log of a server that came up, and telling where somebody picked them out; ``up`` for
    lines that are normal while a server starts, and count behind that only.
    """

    says: tuple[str, ...]
    sure: Sure
    never: tuple[str, ...] = ()
    within: int | None = None
    versions: str = ""
    excerpt: bool = False
    up: bool = False
    times: int = 1


@dataclass(frozen=True)
class Signature:
    """A cause with the ways in which it shows. ``over`` are causes whose lines are consequences or vaguer forms of it."""

    key: str
    layer: str
    why: str
    rules: tuple[Rule, ...]
    fix: Fix
    over: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @property
    def colour(self) -> str:
        """The colour of its layer."""
        return COLOURS[self.layer]


@dataclass(frozen=True)
class Normal:
    """A line that looks like a failure and is none: ``shadow`` where it only says that another line has the cause."""

    says: str
    why: str
    shadow: bool = False


# The word of an error comes from us; RE2 would write its own to standard error as well.
_QUIET = re2.Options()
_QUIET.log_errors = False
_RULE = frozenset({"says", "not", "sure", "within", "versions", "excerpt", "up", "times"})
_SIGNATURE = frozenset({"key", "layer", "why", "rules", "fix", "over", "checks", "sources"})
_FIX = frozenset({"text", "commands", "risk", "undo"})


@functools.cache
def load(folder: Path = FOLDER) -> tuple[Signature, ...]:
    """All signatures of a folder, in the order of the files.

    Raises:
        BadParameter: a file is not what is described here, a pattern is none, or a key stands twice.
    """
    found = [
        _signature(path, row)
        for path in sorted(folder.glob("*.yaml"))
        if path.name != "normal.yaml"
        for row in entries.read(path, path.name)
    ]
    twice = sorted(key for key, times in Counter(one.key for one in found).items() if times > 1)
    if twice:
        raise BadParameter(
            f"more than one signature {', '.join(twice)}", "each key once", "put the rules together"
        )
    return tuple(found)


@functools.cache
def load_normal(folder: Path = FOLDER) -> tuple[Normal, ...]:
    """The lines that look like failures and are none.

    Raises:
        BadParameter: as ``load``.
    """
    path = folder / "normal.yaml"
    found = []
    for row in entries.read(path, path.name):
        says = _patterns(path, "normal", [row.get("says")])[0]
        found.append(Normal(says, str(row.get("why", "")), shadow=bool(row.get("shadow", False))))
    return tuple(found)


def _signature(path: Path, row: dict[str, Any]) -> Signature:
    key = str(row.get("key", ""))
    _only(path, key, row, _SIGNATURE)
    fix = row.get("fix") or {}
    _only(path, f"{key}: fix", fix, _FIX)
    if row.get("layer") not in COLOURS:
        raise _bad(path, key, f"layer {row.get('layer')!r}", f"one of {', '.join(COLOURS)}")
    if not (key and row.get("why") and row.get("rules") and fix.get("text")):
        raise _bad(path, key, f"fields {', '.join(row)}", "at least key, layer, why, rules and fix.text")
    try:
        risk = Risk(fix.get("risk", "none"))
    except ValueError as why:
        raise _bad(path, key, str(why), f"one of {', '.join(one.value for one in Risk)}") from why
    return Signature(
        key=key,
        layer=row["layer"],
        why=" ".join(str(row["why"]).split()),
        rules=tuple(_rule(path, key, one) for one in row["rules"]),
        fix=Fix(
            " ".join(str(fix["text"]).split()), tuple(fix.get("commands") or ()), risk, fix.get("undo") or ""
        ),
        over=tuple(row.get("over") or ()),
        checks=tuple(row.get("checks") or ()),
        sources=tuple(row.get("sources") or ()),
    )


def _rule(path: Path, key: str, row: dict[str, Any]) -> Rule:
    _only(path, key, row, _RULE)
    if not row.get("says"):
        raise _bad(path, key, "a rule without says", "at least one pattern")
    try:
        SpecifierSet(row.get("versions") or "")
        sure = Sure(row.get("sure"))
    except (InvalidSpecifier, ValueError) as why:
        raise _bad(
            path, key, str(why), "stated, likely or possible, and versions as PEP 440 has them"
        ) from why
    return Rule(
        says=_patterns(path, key, row["says"]),
        sure=sure,
        never=_patterns(path, key, row.get("not") or ()),
        within=row.get("within"),
        versions=row.get("versions") or "",
        excerpt=bool(row.get("excerpt", False)),
        up=bool(row.get("up", False)),
        times=row.get("times", 1),
    )


def _patterns(path: Path, key: str, given: Iterable[Any]) -> tuple[str, ...]:
    found = tuple(given) if not isinstance(given, str) else (given,)
    for one in found:
        try:
            re2.compile(one, _QUIET)
        except (re2.error, TypeError) as why:
            raise _bad(path, key, f"{one!r}: {why}", "a pattern of RE2") from why
    return found


def _only(path: Path, key: str, row: Any, known: frozenset[str]) -> None:  # noqa: ANN401 - whatever YAML held
    if not isinstance(row, dict) or not set(row) <= known:
        seen = sorted(set(row) - known) if isinstance(row, dict) else row
        raise _bad(path, key, f"{seen}", f"only {', '.join(sorted(known))}")


def _bad(path: Path, key: str, seen: str, expected: str) -> BadParameter:
    return BadParameter(f"{path.name}: {key}: {seen}", expected, "mend the signature")
