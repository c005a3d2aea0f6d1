"""Probes that read a target's files: source and metadata as text, and which files there are."""

import ast
import shlex
from pathlib import PurePosixPath
from typing import Literal

from pydantic import field_validator, model_validator

from runbook.claims.probes.base import Probe, Reading, Target, drifted, judged

PLACEHOLDERS = ("{site}/", "{prefix}/")


def placed(path: str) -> str:
    """A path below the target, as the ledger writes it.

    Raises:
        ValueError: it begins with no placeholder, or leads out again.
    """
    if not path.startswith(PLACEHOLDERS) or ".." in PurePosixPath(path).parts:
        raise ValueError(f"{path!r} does not begin with one of {', '.join(PLACEHOLDERS)}")
    return path


class Text(Probe):
    """What a text file of the target holds, and what none of them does; ``within`` one Python def or class of it."""

    kind: Literal["text"]
    path: tuple[str, ...]
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    any_case: bool = False
    within: str = ""

    @field_validator("path", mode="before")
    @classmethod
    def _one_or_several(cls, given: object) -> object:
        return (given,) if isinstance(given, str) else given

    @model_validator(mode="after")
    def _can_fail(self) -> "Text":
        for path in self.path:
            placed(path)
        if not self.has and not self.lacks:
            raise ValueError("has or lacks is missing: without one the probe cannot fail")
        if self.within.partition(" ")[0] not in ("", "def", "class"):
            raise ValueError(
                f"within is {self.within!r}, and has to be 'def NAME', 'def CLASS.NAME' or 'class NAME'"
            )
        return self

    def judge(self, target: Target) -> Reading:
        """Read every file that matches."""
        inner = f" in {self.within}" if self.within else ""
        wanted = [*(f"has {one!r}" for one in self.has), *(f"lacks {one!r}" for one in self.lacks)]
        expected = ", ".join(wanted) + inner
        words = [word for one in (*self.has, *self.lacks) for word in ("-e", one)]
        argv = ["grep", "-F", *(["-i"] if self.any_case else []), "-n", *words]
        origin = f"{shlex.join(argv)} {' '.join(self.path)}"
        texts: dict[str, str] = {}
        for path in self.path:
            found = target.host.glob(path)
            if not found:
                return drifted(expected, f"there is no {path}", origin)
            texts |= {one: text for one in found if (text := target.host.read_text(one)) is not None}
        if self.within:
            texts = {path: part for path, text in texts.items() if (part := _part(text, self.within))}
            if not texts:
                return drifted(expected, f"no {self.within} there", origin)
        if self.any_case:
            texts = {path: text.lower() for path, text in texts.items()}
        wrong = [f"no {one!r}" for one in self.has if not self._holding(texts, one)]
        wrong += [f"{one!r} in {where[0]}" for one in self.lacks if (where := self._holding(texts, one))]
        return judged(expected, wrong, origin, f"{len(texts)} file{'s' if len(texts) > 1 else ''} read")

    def _holding(self, texts: dict[str, str], words: str) -> list[str]:
        asked = words.lower() if self.any_case else words
        return [path for path, text in texts.items() if asked in text]


def _part(text: str, within: str) -> str:
    """The source of one def or class; "" when there is none of that name or the text is no Python."""
    try:
        node: ast.AST = ast.parse(text)
    except (SyntaxError, ValueError):
        return ""
    for name in within.partition(" ")[2].split("."):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        found = next((one for one in ast.walk(node) if isinstance(one, kinds) and one.name == name), None)
        if found is None:
            return ""
        node = found
    return ast.get_source_segment(text, node) or ""


class Files(Probe):
    """Whether files of that pattern are there; with ``names`` exactly these."""

    kind: Literal["files"]
    path: str
    there: bool = True
    names: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _sensible(self) -> "Files":
        placed(self.path)
        if self.names and not self.there:
            raise ValueError("names beside there: false")
        return self

    def judge(self, target: Target) -> Reading:
        """List them."""
        found = sorted({PurePosixPath(one).name for one in target.host.glob(self.path)})
        wanted = ", ".join(sorted(self.names)) if self.names else "there" if self.there else "not there"
        right = found == sorted(self.names) if self.names else bool(found) == self.there
        seen = ", ".join(found[:8]) or "nothing of that name"
        return judged(f"{self.path}: {wanted}", [] if right else [seen], f"ls -d {self.path}", seen)
