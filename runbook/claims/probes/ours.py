"""Probes of the runbook's own data and arithmetic, each from published sources: catalogue, tables, memory calculator, GPU rules."""

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from runbook import catalogue, tables
from runbook.claims.probes.base import Probe, Reading, Target, Wanting, cannot, drifted, judged
from runbook.memory import cache, subject
from runbook.memory.cache import Choice

ABSENT = object()


def inner(found: Any, path: str) -> Any:  # noqa: ANN401 - JSON
    """The value at a dotted path of a JSON object; ABSENT when there is none."""
    for part in path.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return ABSENT
        found = found[part]
    return found


class Model(Wanting):
    """Whether a model is in the catalogue, or a value of its row there."""

    needs_target = False

    kind: Literal["model"]
    name: str
    exists: bool = True
    field: str = ""

    @model_validator(mode="after")
    def _sensible(self) -> "Model":
        if bool(self.field) != bool(super().wants()):
            raise ValueError("field and an expectation go together")
        return self

    def wants(self) -> str:
        """The expectation in words."""
        return super().wants() if self.field else "is a model of the family" if self.exists else "is none"

    def judge(self, target: Target) -> Reading:  # noqa: ARG002 - the catalogue is the runbook's own
        """Look it up."""
        found, origin = catalogue.find(self.name), f"runbook model {self.name}"
        expected = f"{self.name} {self.field} {self.wants()}".replace("  ", " ")
        if not self.field or found is None:
            right = (found is not None) == self.exists and not self.field
            seen = "in the catalogue" if found else catalogue.nearest(self.name).why
            return judged(expected, [] if right else [seen], origin, seen)
        reading = self.compare(found.get(self.field), origin)
        return Reading(reading.outcome, expected, reading.seen, origin)


class Table(Wanting):
    """A value of the one row of a table that has these values; ``absent``: no row has them.

    The table is one of ``runbook/tables``, or of the catalogue as ``catalogue/floors``.
    """

    needs_target = False

    kind: Literal["table"]
    table: str = Field(pattern=r"^(catalogue/)?[a-z_]+$")
    row: dict[str, Any]
    field: str = ""
    absent: bool = False

    @model_validator(mode="after")
    def _sensible(self) -> "Table":
        if bool(self.field) == self.absent:
            raise ValueError("give field and an expectation, or absent: true")
        return self

    @classmethod
    def _names(cls) -> tuple[str, ...]:
        return (*super()._names(), "absent")

    def wants(self) -> str:
        """The expectation in words."""
        return "has no such row" if self.absent else super().wants()

    def judge(self, target: Target) -> Reading:  # noqa: ARG002 - the tables are the runbook's own
        """Look for the row."""
        key = ", ".join(f"{name} {value}" for name, value in self.row.items())
        whose, _, name = self.table.rpartition("/")
        origin = f"runbook/{whose or 'tables'}/{name}.json, {key}"
        expected = f"{self.table} of {key}: {self.field} {self.wants()}".replace("  ", " ")
        try:
            rows = catalogue.rows(name) if whose == "catalogue" else tables.rows(name)
        except FileNotFoundError:
            return cannot(expected, f"there is no table {self.table}", origin)
        found = [one for one in rows if all(inner(one, name) == value for name, value in self.row.items())]
        if self.absent:
            return judged(expected, [json.dumps(found[0])] if found else [], origin, "no such row")
        if len(found) != 1:
            return drifted(expected, f"{len(found)} rows have these values", origin)
        value = inner(found[0], self.field)
        if value is ABSENT:
            return drifted(expected, f"the row has no {self.field}", origin)
        reading = self.compare(value, origin)
        return Reading(reading.outcome, expected, reading.seen, origin)


class Runs(Probe):
    """Whether GPU code for some targets serves a card of that capability (``tables.coverage``)."""

    needs_target = False

    kind: Literal["runs"]
    code: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    card: str
    is_: Literal["native", "ptx-jit", "none"] = Field(alias="is")

    def judge(self, target: Target) -> Reading:  # noqa: ARG002 - NVIDIA's rule, no target's
        """Apply the rule."""
        found = tables.coverage(list(self.code), list(self.ptx), self.card)
        held = ", ".join((*self.code, *self.ptx)) or "no code"
        expected = f"{held} on a card of {self.card}: {self.is_}"
        origin = "the rule of runbook arch (tables.coverage)"
        return judged(expected, [] if found == self.is_ else [found], origin, found)


class Memory(Wanting):
    """What the memory calculator says of a model of the catalogue, for vLLM of one release."""

    needs_target = False

    kind: Literal["memory"]
    model: str
    field: Literal["kv_bytes_per_token", "state_bytes_per_sequence", "block_size", "weight_bytes"]
    release: str = "0.19.1"
    build: Literal["cuda", "cpu"] = "cuda"

    def judge(self, target: Target) -> Reading:  # noqa: ARG002 - computed from the catalogue
        """Compute it; raises BadParameter for a release without rules."""
        origin, found = f"runbook plan-memory {self.model}", catalogue.find(self.model)
        expected = f"{self.model} {self.field} {self.wants()}"
        if found is None:
            return cannot(expected, f"no model {self.model} in the catalogue", origin)
        value = _computed(found.config, self.field, self.release, self.build)
        reading = self.compare(value, origin)
        return Reading(reading.outcome, expected, reading.seen, origin)


def _computed(config: Mapping[str, Any], field: str, release: str, build: str) -> int:
    made = subject.of(config, None)
    geometry = made.geometry
    if field == "kv_bytes_per_token":
        return geometry.kv_bytes_per_token()
    if field == "state_bytes_per_sequence":
        return cache.state_bytes(geometry, Choice()) * geometry.linear if geometry.hybrid else 0
    if field == "block_size":
        return cache.cut(geometry, cache.rules(release), build, Choice()).block_size
    return sum(one.bytes for one in made.tensors)
