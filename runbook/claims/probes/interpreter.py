"""Probes that the target's own interpreter answers: its parser, its objects, and what it computes. One start for all of a target."""

import json
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from runbook import catalogue
from runbook.claims.probes.base import Probe, Reading, Target, Wanting, cannot, drifted, judged, short

BY_HAND = "{python} runbook/inside/claim_facts.py --asked"
# Configs that engine and rope are asked with: of the published model, as the catalogue has it, and of small dense ones.
PUBLISHED = {"qwen3.5-4b": "Qwen/Qwen3.5-4B"}
DENSE: dict[str, dict[str, Any]] = {
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 64},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
}
SMALL = {
    "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 1024, "max_position_embeddings": 32768, "dtype": "bfloat16",
}  # fmt: skip


def by_hand(question: dict[str, Any]) -> str:
    """The command that asks it again."""
    return f"{BY_HAND} '{json.dumps([question])}'"


class Flags(Probe):
    """What the target's own parser makes of a command line: takes it, takes it and says something, or ends over it.

    ``form`` is ``serve`` (vllm serve WORDS), ``module`` (python -m vllm.entrypoints.openai.api_server WORDS) or ``demo``
    (python -m vllm.entrypoints.api_server WORDS, as far as they are the engine's); ``shown`` is the outcome of ``--help``;
    ``sets`` are values that the parsed options must have.
    """

    kind: Literal["flags"]
    words: tuple[str, ...]
    form: Literal["serve", "module", "demo"] = "serve"
    outcome: Literal["accepted", "refused", "warned", "shown"]
    says: tuple[str, ...] = ()
    sets: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _sensible(self) -> "Flags":
        if self.outcome == "warned" and not self.says:
            raise ValueError("warned without says: what is said has to be named")
        if self.outcome == "refused" and self.sets:
            raise ValueError("a refused command sets nothing")
        return self

    def _question(self) -> dict[str, Any]:
        return {"about": "flags", "form": self.form, "words": list(self.words), "sets": list(self.sets)}

    def questions(self) -> Sequence[dict[str, Any]]:
        """The command line."""
        return (self._question(),)

    def judge(self, target: Target) -> Reading:
        """Compare what became of it."""
        origin = by_hand(self._question())
        wanted = [
            self.outcome,
            *(f"says {one!r}" for one in self.says),
            *(f"{name} is {short(one)}" for name, one in self.sets.items()),
        ]
        expected = f"{' '.join(self.words)}: {', '.join(wanted)}"
        told = target.told(self._question())
        if "value" not in told:
            return cannot(expected, _why(told), origin)
        have = told["value"]
        outcome = "accepted" if self.outcome == "warned" else self.outcome
        wrong = [have["outcome"]] if have["outcome"] != outcome else []
        wrong += [f"does not say {one!r}" for one in self.says if one not in have["said"]]
        wrong += [
            f"{name} is {short(have['sets'].get(name))}"
            for name, one in self.sets.items()
            if have["sets"].get(name) != one
        ]
        if wrong and have["said"]:
            wrong.append(short(have["said"]))
        return judged(expected, wrong, origin, f"{have['outcome']} {short(have['said'])}".strip())


class Value(Wanting):
    """An object of the target's libraries by its dotted name, the default of an argument, or what a call returns.

    ``missing: true``: there is no such name. ``fails``: the call ends in an error that holds these words.
    """

    kind: Literal["value"]
    of: str = Field(pattern=r"^[A-Za-z_][\w.]*$")
    argument: str = ""
    call: tuple[Any, ...] | None = None
    missing: bool = False
    fails: tuple[str, ...] = ()

    @classmethod
    def _names(cls) -> tuple[str, ...]:
        return (*super()._names(), "missing", "fails")

    def wants(self) -> str:
        """The expectation in words."""
        if self.missing:
            return "no such name"
        return f"fails with {', '.join(map(repr, self.fails))}" if self.fails else super().wants()

    def _question(self) -> dict[str, Any]:
        asked: dict[str, Any] = {"about": "value", "of": self.of}
        if self.argument:
            asked["argument"] = self.argument
        if self.call is not None:
            asked["call"] = list(self.call)
        return asked

    def questions(self) -> Sequence[dict[str, Any]]:
        """The name."""
        return (self._question(),)

    def judge(self, target: Target) -> Reading:
        """Compare the answer."""
        origin, told = by_hand(self._question()), target.told(self._question())
        name = f"{self.of}{f' ({self.argument})' if self.argument else ''}"
        expected = f"{name} {self.wants()}"
        if "error" in told:
            return cannot(expected, _why(told), origin)
        if self.missing or "missing" in told:
            gone = told.get("missing")
            right = self.missing and gone is not None
            return judged(expected, [] if right else [gone or "it is there"], origin, gone or "")
        if self.fails:
            text = told.get("raised")
            right = text is not None and all(one in text for one in self.fails)
            return judged(expected, [] if right else [short(text or "no error")], origin, short(text or ""))
        found = self.compare(told.get("value", told.get("raised")), origin)
        return Reading(found.outcome, expected, found.seen, origin)


class Fact(Wanting):
    """A fact that the target's vLLM computes, by the name of a function of ``inside/claim_facts.py``; ``field`` is one of its answer.

    ``given.model`` stands for a config.json of ours, over which ``given.config`` is laid (dictionaries key by key).
    """

    kind: Literal["fact"]
    name: Literal["engine", "rope", "page", "state", "registered"]
    given: dict[str, Any] = Field(default_factory=dict)
    field: str
    fails: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _known(self) -> "Fact":
        model = self.given.get("model")
        known = (*PUBLISHED, *DENSE)
        if model is not None and model not in known:
            raise ValueError(f"given.model is {model!r}, and has to be one of {', '.join(known)}")
        return self

    @classmethod
    def _names(cls) -> tuple[str, ...]:
        return (*super()._names(), "fails")

    def wants(self) -> str:
        """The expectation in words."""
        return f"fails with {', '.join(map(repr, self.fails))}" if self.fails else super().wants()

    def _question(self) -> dict[str, Any]:
        given = dict(self.given)
        if self.name in ("engine", "rope"):
            given["config"] = over(config(given.pop("model", "qwen3.5-4b")), given.get("config", {}))
        if self.name == "engine":
            given["flags"] = list(given.get("flags", ()))
        return {"about": "fact", "name": self.name, "given": given}

    def questions(self) -> Sequence[dict[str, Any]]:
        """The function and its arguments."""
        return (self._question(),)

    def judge(self, target: Target) -> Reading:
        """Compare one field of the answer."""
        asked = {"about": "fact", "name": self.name, "given": self.given}
        origin = by_hand(asked)
        expected = f"{self.name} {json.dumps(self.given)}: {self.field} {self.wants()}"
        told = target.told(self._question())
        if self.fails and "error" in told and all(one in told["error"] for one in self.fails):
            return judged(expected, [], origin, short(told["error"]))
        if "value" not in told:
            return cannot(expected, _why(told), origin)
        if self.fails:
            return drifted(expected, "it succeeds", origin)
        if self.field not in told["value"]:
            return cannot(expected, f"{self.name} answers no {self.field}", origin)
        found = self.compare(told["value"][self.field], origin)
        return Reading(found.outcome, expected, found.seen, origin)


def config(model: str) -> dict[str, Any]:
    """The config.json that a model's short name stands for."""
    if model in DENSE:
        return {**SMALL, **DENSE[model]}
    return next(one for one in catalogue.models() if one.id == PUBLISHED[model]).config


def over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """One JSON object laid over another; a null takes the key away."""
    merged = dict(below)
    for key, value in above.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = over(merged[key], value)
        else:
            merged[key] = value
    return merged


def _why(told: dict[str, Any]) -> str:
    return short(told.get("error") or told.get("missing") or told.get("raised") or "no answer")
