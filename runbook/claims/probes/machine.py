"""Probes that put a question to a machine: the one at hand, its server, or one that was recorded."""

from typing import Literal

from pydantic import Field, model_validator

from runbook.claims.probes.base import Reading, Target, Wanting, cannot
from runbook.errors import BadParameter, NotRecorded
from runbook.probes import questions, replay

NO_SERVER = "HTTP 0"
GONE = (": no such program", ": not there")


class Answer(Wanting):
    """The raw answer to a question as ``questions.py`` writes it (``http GET /health``), of this machine or a recorded one.

    ``stack`` names the target of a recorded machine when it has several. ``in_order``: each is found after the one before.
    """

    needs_target = False

    kind: Literal["answer"]
    ask: str = Field(pattern=r"^(run|read|glob|env|inside|http) \S")
    machine: str = ""
    stack: str = ""
    in_order: tuple[str, ...] = ()

    @classmethod
    def _names(cls) -> tuple[str, ...]:
        return (*super()._names(), "in_order")

    def wants(self) -> str:
        """The expectations in words."""
        order = " before ".join(map(repr, self.in_order))
        return ", ".join(part for part in (super().wants(), f"has {order}" if order else "") if part)

    def _unmet(self, value: object) -> bool:
        at, text = 0, str(value)
        for words in self.in_order:
            at = text.find(words, at)
            if at < 0:
                return True
            at += len(words)
        return super()._unmet(value)

    @model_validator(mode="after")
    def _sensible(self) -> "Answer":
        if not self.machine and not self.ask.startswith("http GET "):
            raise ValueError("this machine is asked for http GET only; name a recorded machine for the rest")
        if self.stack and not self.machine:
            raise ValueError("stack goes with a recorded machine")
        return self

    def judge(self, target: Target) -> Reading:
        """Ask."""
        where = self.machine or "the server of this workspace"
        expected, origin = f"{self.ask}: {self.wants()}", f"{self.ask} ({where})"
        host = target.host
        try:
            if self.machine:
                recording = replay.load(self.machine)
                stacks = [one for one in recording.stacks if self.stack in ("", one)]
                host = replay.ReplayProbe(recording, stacks[0] if stacks else "")
            text = questions.ask(host, self.ask)
        except (NotRecorded, BadParameter) as why:
            return cannot(expected, why.seen, origin)
        if text.startswith(NO_SERVER) and not self.machine:
            return cannot(expected, "no server of this workspace is running", origin)
        if text.endswith(GONE) and not (self.has or self.in_order or "is_" in self.model_fields_set):
            return cannot(expected, text, origin)  # what is not there lacks everything
        reading = self.compare(text, origin)
        return Reading(reading.outcome, expected, reading.seen, origin)
