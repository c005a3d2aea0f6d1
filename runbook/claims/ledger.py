"""The entries of the ledger, read from the files beside this module and checked as they are read."""

import datetime
import functools
from enum import Enum
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import Field, ValidationError, field_validator

from runbook.claims import rows
from runbook.claims.probes import AnyProbe
from runbook.claims.probes.base import Record
from runbook.errors import BadParameter

RELEASE = "0.19.1"
AT_MOST = 3  # faults of an entry that are named


class Layer(str, Enum):
    """What a claim is about, lowest first; the name of its file."""

    DRIVER = "driver"
    CUDA = "cuda"
    PYTHON = "python"
    TORCH = "torch"
    FLASH = "flash-attn"
    VLLM = "vllm"
    MODEL = "model"
    TOKENIZER = "tokenizer"
    SERVING = "serving"
    TUNING = "tuning"
    WARMUP = "warmup"
    DEPLOY = "deploy"
    TRIAGE = "triage"


class Verdict(str, Enum):
    """What became of a claim."""

    CONFIRMED = "confirmed"
    PARTLY = "partly"
    REFUTED = "refuted"
    OBSOLETE = "obsolete"
    HARDWARE = "hardware-dependent"
    UNVERIFIABLE = "unverifiable-here"


class Claim(Record):
    """One thing that is said, and what is so.

    ``truth`` is of vLLM 0.19.1; ``elsewhere`` says, by range of versions, what another release does. ``checks`` are ids of
    the runbook's checks that the claim explains. The verdict stands while every probe does that can be asked.
    """

    id: str = Field(pattern=r"^C\d{3}$")
    article: str = Field(pattern=r"^\d{3}$")
    layer: Layer
    claim: str = Field(min_length=10)
    verdict: Verdict
    truth: str = Field(min_length=10)
    elsewhere: dict[str, str] = Field(default_factory=dict)
    evidence: str = Field(min_length=10)
    sources: tuple[str, ...]
    date: datetime.date
    checks: tuple[str, ...]
    probes: tuple[AnyProbe, ...] = ()

    @field_validator("elsewhere")
    @classmethod
    def _are_ranges(cls, said: dict[str, str]) -> dict[str, str]:
        for versions in said:
            try:
                SpecifierSet(versions)
            except InvalidSpecifier as why:
                raise ValueError(f"{versions!r} is no range of versions") from why
        return said


def read(folder: Path) -> tuple[Claim, ...]:
    """Every entry of a folder ``ARTICLE/LAYER.yaml``, by id.

    Raises:
        BadParameter: a file or an entry is not as it should be, or an id is given twice.
    """
    found: dict[str, Claim] = {}
    for path in rows.files(folder):
        for row in rows.of(path):
            one = _claim(row, path)
            if one.id in found:
                raise rows.wrong(path, one.id, "the id is given twice", "an id of its own")
            found[one.id] = one
    return tuple(found[name] for name in sorted(found))


@functools.cache
def claims() -> tuple[Claim, ...]:
    """The entries that ship with the runbook."""
    return read(rows.FOLDER)


def chosen(
    ids: tuple[str, ...] = (), layer: Layer | None = None, verdict: Verdict | None = None
) -> tuple[Claim, ...]:
    """The claims of these ids, of a layer, of a verdict; all of them where nothing is said.

    Raises:
        BadParameter: an id that is none.
    """
    wanted = tuple(one.upper() for one in ids)
    if strange := sorted(set(wanted) - {one.id for one in claims()}):
        raise BadParameter(
            f"there is no claim {strange[0]!r}", "an id such as C093", "runbook claims lists them"
        )
    return tuple(
        one
        for one in claims()
        if (not wanted or one.id in wanted) and layer in (None, one.layer) and verdict in (None, one.verdict)
    )


def _claim(row: dict[str, Any], path: Path) -> Claim:
    name = str(row.get("id", "an entry without an id"))
    if path_given := sorted({"article", "layer"} & set(row)):
        raise rows.wrong(path, name, f"{path_given[0]} is given", "article and layer in the path only")
    try:
        return Claim.model_validate({**row, "article": path.parent.name, "layer": path.stem})
    except ValidationError as why:
        seen = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in why.errors()[:AT_MOST])
        raise rows.wrong(path, name, seen, "an entry as runbook/claims/ledger.py describes it") from why
