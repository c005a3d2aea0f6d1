"""What differs between two sets of packages, most suspicious first, each change with why it matters.

Which packages decide is a table (``tables/suspects.json``): its order is the order of suspicion. The wheel of torch on
the public index has no local tag; its flavour of CUDA is named from ``tables/torch.json``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase

from packaging.version import InvalidVersion, Version

from runbook import tables
from runbook.parse.python_env import normal

OTHER = 50
NEW = 80
CONFIRMED = 20  # ranks below it decide a start


class Kind(str, Enum):
    """What became of a package."""

    ADDED = "added"
    REMOVED = "removed"
    SWAPPED = "swapped"


@dataclass(frozen=True)
class Change:
    """One package on its way from ``have`` to ``want`` ("" where it is not there). The lower ``rank``, the more suspicious.

    ``instead`` names what takes its place, and ``want`` is that one's version: CUDA's libraries have other names in another release.
    """

    name: str
    kind: Kind
    have: str
    want: str
    why: str
    rank: int
    instead: str = ""

    @property
    def decides(self) -> bool:
        """True when it can decide whether a start works."""
        return self.rank < CONFIRMED

    def text(self) -> str:
        """``torch 2.11.0+cu130 -> 2.10.0+cu128``, ``+ foo 1.0`` or ``- bar 2.0``."""
        if self.kind is Kind.SWAPPED:
            return f"{self.name} {self.have} -> {self.instead} {self.want}".replace("  ", " ")
        return f"+ {self.name} {self.want}" if self.kind is Kind.ADDED else f"- {self.name} {self.have}"


def package_changes(have: Mapping[str, str], want: Mapping[str, str]) -> list[Change]:
    """Every package that is in one only or has two versions, most suspicious first; the same order for the same packages."""
    old = {normal(name): version for name, version in have.items()}
    new = {normal(name): version for name, version in want.items()}
    twins = {name: other for name in old if (other := _twin(name, old, new))}
    names = (old.keys() | new.keys()) - set(twins.values())
    found = [_change(name, old.get(name, ""), new.get(twins.get(name, name), ""), twins.get(name, "")) for name in names if name in twins or old.get(name) != new.get(name)]  # fmt: skip
    return sorted(found, key=lambda one: (one.rank, one.name))


def suspect(name: str) -> tuple[int, Mapping[str, str]] | None:
    """(place in the order of suspicion, its row) of a package that decides; None for any other."""
    rows = tables.rows("suspects")
    return next(((at, row) for at, row in enumerate(rows) if fnmatchcase(name, row["package"])), None)


def _twin(name: str, old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """The name under which another CUDA release brings the same library, when one goes as the other comes; else ""."""
    for row in tables.rows("cuda_wheels"):
        names = [str(row[major]) for major in ("12", "13") if major in row]
        if name in names and name not in new:
            return next((other for other in names if other in new and other not in old), "")
    return ""


def _change(name: str, old: str, new: str, twin: str) -> Change:
    kind = Kind.ADDED if not old else Kind.REMOVED if not new else Kind.SWAPPED
    found = suspect(name)
    if found is None:
        rank, why = (OTHER, _direction(old, new)) if kind is Kind.SWAPPED else (NEW, "")
        return Change(name, kind, old, new, why, rank)
    at, row = found
    # Twenty ranks for a table that may grow: the end of it shares the last one.
    rank = min(at, CONFIRMED - 1)
    if twin:
        return Change(name, kind, old, new, "one of CUDA's libraries, of another CUDA release", rank, twin)
    if kind is Kind.REMOVED:
        return Change(name, kind, old, new, row["gone"], rank)
    if kind is Kind.ADDED:
        # What was not there before displaces nothing; torch beside no torch is a build from nothing.
        return Change(name, kind, old, new, _brings(name, new), OTHER - 1)
    same = _release(old) == _release(new) and _flavour(name, old) == _flavour(name, new)
    said = [_tags(name, old, new), "" if same else row["swapped"]]
    return Change(name, kind, old, new, "; ".join(filter(None, said)), rank)


def _release(version: str) -> str:
    return version.partition("+")[0]


def _brings(name: str, new: str) -> str:
    flavour = _flavour(name, new)
    return f"brings {_spoken(flavour)}" if flavour else "decides whether a start works"


def _tags(name: str, old: str, new: str) -> str:
    """What the versions say besides the row: another CUDA, the same release from elsewhere, or the way it went."""
    before, after = _flavour(name, old), _flavour(name, new)
    if before and after and before != after:
        return f"{_spoken(before)} -> {_spoken(after)}"
    if _release(old) == _release(new):
        same = f", {_spoken(before)} as before" if before and before == after else ""
        return f"the same release from another index{same}"
    return _direction(old, new)


def _flavour(name: str, version: str) -> str:
    """``cu128`` of ``2.10.0+cu128``; of torch without a tag that of the public index's wheel; "" where nobody knows."""
    _, _, tag = version.partition("+")
    if tag or name != "torch":
        return tag
    row = tables.torch(version)
    return str(row["cuda"]) if row and row.get("cuda") else ""


def _spoken(flavour: str) -> str:
    digits = flavour.removeprefix("cu")
    if digits != flavour and digits.isascii() and digits.isdigit() and len(digits) > 1:
        return f"CUDA {digits[:-1]}.{digits[-1]}"
    return "no CUDA" if flavour == "cpu" else flavour


def _direction(old: str, new: str) -> str:
    try:
        before, after = Version(old), Version(new)
    except InvalidVersion:
        return ""
    if before == after:
        return "two spellings of one version"
    word = "newer" if after > before else "older"
    return f"{word} {'major ' if after.major != before.major else ''}release"
