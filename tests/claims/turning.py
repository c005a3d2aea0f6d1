"""Every shipped probe turned into its opposite: one that stands as well would decide nothing."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pydantic import TypeAdapter

from runbook.claims.probes import AnyProbe
from runbook.claims.probes.base import Probe

READ: TypeAdapter[Any] = TypeAdapter(AnyProbe)
NONE = "zz-no-such-thing"
WANTED = ("has", "needs", "searches", "holds", "asks", "defines", "says", "fails", "sass", "ptx")
"""Lists of what must be there: with one thing more, which is nowhere."""


def opposites(probe: Probe) -> Iterator[Probe]:
    """The probe with one expectation at a time turned round, for those that can be turned without knowing the target."""
    given = probe.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for changes in _changes(given):
        yield READ.validate_python({**given, **changes})


def _changes(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Of what any kind may want; of what is particular to one see below."""
    kind = given["kind"]
    yield from ({name: [*given[name], NONE]} for name in WANTED if given.get(name))
    if kind in ("text", "value", "answer") and given.get("lacks"):
        yield {"lacks": [*given["lacks"], *(given.get("has") or "e")]}
    if given.get("in_order"):
        yield {"in_order": [*given["in_order"], NONE]}
    if "is" in given:
        yield {"is": _other(kind, given["is"])}
    yield from ({"at_least": given[name] * 1000} for name in ("at_least",) if name in given)
    yield from ({"at_most": given[name] / 1000} for name in ("at_most",) if name in given)
    if kind in KINDS:
        yield from KINDS[kind](given)


def _files(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"names": [NONE]} if given.get("names") else {"there": not given.get("there", True)}


def _lock(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if given.get("absent"):
        yield {"package": "torch"}


def _requires(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if given.get("absent"):
        yield {"of": "torch"}
    if given.get("tag"):
        yield {"tag": NONE}
    if given.get("allows"):
        yield {"allows": [*given["allows"], "0.0.1"]}
        yield {"refuses": [*given.get("refuses", []), given["allows"][0]]}


def _flags(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"outcome": "accepted" if given["outcome"] == "refused" else "refused", "sets": {}}
    yield from ({"sets": {**given["sets"], name: NONE}} for name in given.get("sets", {}))


def _model(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if not given.get("field"):
        yield {"exists": not given.get("exists", True)}


KINDS: dict[str, Callable[[dict[str, Any]], Iterable[dict[str, Any]]]] = {
    "files": _files, "lock": _lock, "requires": _requires, "flags": _flags, "model": _model,
}  # fmt: skip


def _other(kind: str, value: object) -> object:
    if kind == "runs":
        return "none" if value != "none" else "native"
    return not value if isinstance(value, bool) else NONE
