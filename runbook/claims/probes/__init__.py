"""The kinds of probes, one union: a row of the ledger says which by ``kind``."""

from typing import Annotated

from pydantic import Field

from runbook.claims.probes.elf import Elf
from runbook.claims.probes.files import Files, Text
from runbook.claims.probes.interpreter import Fact, Flags, Value
from runbook.claims.probes.machine import Answer
from runbook.claims.probes.metadata import Lock, Requirements, Requires
from runbook.claims.probes.ours import Memory, Model, Runs, Table

KINDS = (
    Text,
    Files,
    Requires,
    Requirements,
    Lock,
    Elf,
    Flags,
    Value,
    Fact,
    Model,
    Memory,
    Table,
    Runs,
    Answer,
)
AnyProbe = Annotated[
    Text
    | Files
    | Requires
    | Requirements
    | Lock
    | Elf
    | Flags
    | Value
    | Fact
    | Model
    | Memory
    | Table
    | Runs
    | Answer,
    Field(discriminator="kind"),
]

__all__ = ["KINDS", "AnyProbe"]
