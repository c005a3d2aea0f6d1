"""Wheels of flash-attn that were built here: ``wheels/flash-attn/<what it is for>/`` with ``build.json`` beside the wheel.

``build.json`` is written last, so a folder without one is no kept wheel.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbook.actions import flash_kernel
from runbook.workspace import Workspace, write_whole

STAMP = "build.json"


@dataclass(frozen=True)
class Kept:
    """A kept wheel and how it was built. ``rate`` is core seconds an object and target; None where it cannot be told."""

    wheel: Path
    stamp: Mapping[str, Any]

    @property
    def built(self) -> str:
        """When, in UTC."""
        return str(self.stamp.get("built", ""))

    @property
    def without(self) -> tuple[str, ...]:
        """Options that were left out."""
        return tuple(self.stamp.get("without", ()))

    @property
    def kernel(self) -> str:
        """What the check of its kernel said: right, wrong, or why it was not run."""
        return str(self.stamp.get("kernel", {}).get("said", "not checked"))

    @property
    def rate(self) -> float | None:
        """Core seconds an object took."""
        try:
            done = self.stamp["steps"] * len(self.stamp["archs"])
            return float(self.stamp["seconds"] * self.stamp["jobs"] / done)
        except (KeyError, TypeError, ZeroDivisionError):
            return None


def folder(work: Workspace) -> Path:
    """Where they lie."""
    return work.root / "wheels" / "flash-attn"


def kept(work: Workspace) -> list[Kept]:
    """Every kept wheel, oldest first; folders without a readable stamp or wheel are passed over."""
    found = []
    for path in folder(work).glob(f"*/{STAMP}"):
        try:
            stamp = json.loads(path.read_text(encoding="utf-8"))
            wheel = path.parent / stamp["wheel"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if wheel.is_file():
            found.append(Kept(wheel, stamp))
    return sorted(found, key=lambda one: one.built)


def fitting(work: Workspace, name: str) -> Kept | None:
    """The kept wheel of that name, unless its kernel was found wrong."""
    return next(
        (one for one in kept(work) if one.wheel.parent.name == name and one.kernel != flash_kernel.WRONG),
        None,
    )


def keep(work: Workspace, name: str, wheel: Path, stamp: Mapping[str, Any]) -> Kept:
    """Move a wheel to its place; one that was kept there before goes."""
    place = folder(work) / name
    if place.exists():
        shutil.rmtree(place)
    place.mkdir(parents=True)
    shutil.move(wheel, place / wheel.name)
    return restamp(Kept(place / wheel.name, {**stamp, "wheel": wheel.name}))


def restamp(one: Kept) -> Kept:
    """Write what is known about a kept wheel."""
    write_whole(one.wheel.with_name(STAMP), json.dumps(one.stamp, indent=1) + "\n")
    return one
