"""What every kind of probe has: which targets it is for, and a reading as its answer."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Literal, Protocol

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from runbook.probe import Probe as Host

SHOWN = 160
"""Characters of a value that are shown."""


class Outcome(str, Enum):
    """What a probe found: the verdict stands, it has drifted, it could not be asked, or the probe is for other targets."""

    STANDS = "stands"
    DRIFTED = "drifted"
    CANNOT_RUN = "cannot-run"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True)
class Reading:
    """One answer: what must be so, what is, and how a reader repeats it by hand."""

    outcome: Outcome
    expected: str
    seen: str
    origin: str


class Target(Protocol):
    """An environment as the probes see it (``runbook/claims/target.py``)."""

    @property
    def host(self) -> Host:
        """The machine, with the placeholders of this environment."""

    def place(self, path: str) -> str:
        """A path with its placeholders replaced."""

    def told(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What the interpreter answered to a question of ``inside/claim_facts.py``."""


class Record(BaseModel):
    """A row of the ledger: nothing may be misspelt in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Probe(Record):
    """A reading that decides whether a verdict stands. ``vllm`` and ``device`` say for which targets it is meant."""

    needs_target: ClassVar[bool] = True

    vllm: str = ""
    device: Literal["", "cpu", "cuda"] = ""

    @field_validator("vllm")
    @classmethod
    def _is_specifier(cls, said: str) -> str:
        try:
            SpecifierSet(said)
        except InvalidSpecifier as why:
            raise ValueError(f"{said!r} is no range of versions") from why
        return said

    def is_for(self, version: str, device: str) -> bool:
        """Whether the probe is meant for a target of that vLLM and that build."""
        return SpecifierSet(self.vllm).contains(version, prereleases=True) and self.device in ("", device)

    def questions(self) -> Sequence[dict[str, Any]]:
        """What the interpreter of the target is to be asked, for all probes in one start."""
        return ()

    @abstractmethod
    def judge(self, target: Target) -> Reading:
        """Ask, and compare. A probe without need of a target is handed one that it does not use."""


def stands(expected: str, seen: str, origin: str) -> Reading:
    """It is as the verdict says."""
    return Reading(Outcome.STANDS, expected, seen, origin)


def drifted(expected: str, seen: str, origin: str) -> Reading:
    """It is not as the verdict says."""
    return Reading(Outcome.DRIFTED, expected, seen, origin)


def cannot(expected: str, why: str, origin: str) -> Reading:
    """It could not be asked; ``why`` says what was missing."""
    return Reading(Outcome.CANNOT_RUN, expected, why, origin)


def judged(expected: str, wrong: Sequence[str], origin: str, seen: str = "so it is") -> Reading:
    """Drifted over each of ``wrong``; stands without any."""
    return drifted(expected, "; ".join(wrong), origin) if wrong else stands(expected, seen, origin)


def short(value: object) -> str:
    """A value in one line that a terminal can show."""
    text = value if isinstance(value, str) else repr(value)
    plain = "".join(each if each.isprintable() else " " for each in text).strip()
    return plain if len(plain) <= SHOWN else f"{plain[: SHOWN - 4]} ..."


class Wanting(Probe):
    """A probe that compares one value; at least one expectation is given, and all that are must be met."""

    is_: Any = Field(None, alias="is")
    is_not: Any = None
    at_least: float | None = None
    at_most: float | None = None
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _wants_something(self) -> "Wanting":
        if not self.wants():
            raise ValueError(
                f"one of {', '.join(self._names())} is missing: without it the probe cannot fail"
            )
        return self

    @classmethod
    def _names(cls) -> tuple[str, ...]:
        return ("is", "is_not", "at_least", "at_most", "has", "lacks")

    def wants(self) -> str:
        """The expectations in words; "" for none."""
        given = self.model_fields_set
        parts = [
            f"is {short(self.is_)}" if "is_" in given else "",
            f"is not {short(self.is_not)}" if "is_not" in given else "",
            f"at least {self.at_least}" if self.at_least is not None else "",
            f"at most {self.at_most}" if self.at_most is not None else "",
            f"has {', '.join(map(repr, self.has))}" if self.has else "",
            f"lacks {', '.join(map(repr, self.lacks))}" if self.lacks else "",
        ]
        return ", ".join(part for part in parts if part)

    def compare(self, value: object, origin: str) -> Reading:
        """The reading for a value that was found."""
        return judged(self.wants(), [short(value)] if self._unmet(value) else [], origin, short(value))

    def _unmet(self, value: object) -> bool:
        given = self.model_fields_set
        number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
        held: object = value if isinstance(value, (list, tuple)) else str(value)
        return (
            ("is_" in given and not _same(value, self.is_))
            or ("is_not" in given and _same(value, self.is_not))
            or (self.at_least is not None and (number is None or number < self.at_least))
            or (self.at_most is not None and (number is None or number > self.at_most))
            or any(each not in held for each in self.has)  # type: ignore[operator]
            or any(each in held for each in self.lacks)  # type: ignore[operator]
        )


def _same(value: object, wanted: object) -> bool:
    """Equality as JSON has it: true is not 1, a tuple is a list."""
    if isinstance(value, bool) != isinstance(wanted, bool):
        return False
    return list(value) == wanted if isinstance(value, tuple) else value == wanted
