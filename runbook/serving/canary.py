"""Canaries: a few greedy answers whose tokens must be the same before and after a load, and make sense in themselves.

An answer is a dict as ``runbook.actions.canaries`` makes it: ``tokens`` (ids), ``logprobs`` of the chosen tokens, ``top`` the
largest log-probability offered at each place, ``second`` the next, ``finish``, ``prompt_tokens``, ``completion_tokens``,
``prompt_ids`` (their number) and ``error``.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

REASONS = ("stop", "length")
# Rounding of bfloat16 log-probabilities near a tie: two of its steps at the size of a logit.
TIE = 0.25
ABOVE_ZERO = 1e-3  # rounding may lift a certain token's log-probability above 0 by that much

Answer = Mapping[str, Any]


@dataclass(frozen=True)
class Fault:
    """What is wrong with an answer; ``which`` names the canary."""

    which: str
    says: str


def sound(which: str, one: Answer) -> list[Fault]:
    """What is wrong with an answer by itself."""
    if one["error"]:
        return [Fault(which, str(one["error"]))]
    tokens, logprobs, top = one["tokens"], one["logprobs"], one["top"]
    rules = (
        (not tokens, "no token"),
        (one["finish"] not in REASONS, f"stop reason {one['finish']!r}"),
        (one["completion_tokens"] != len(tokens), f"usage counts {one['completion_tokens']} tokens, {len(tokens)} came"),
        (one["prompt_tokens"] != one["prompt_ids"], f"usage counts {one['prompt_tokens']} prompt tokens, {one['prompt_ids']} were read"),
        (len(logprobs) != len(tokens), f"{len(logprobs)} log-probabilities for {len(tokens)} tokens"),
        (not all(_finite(value) and value <= ABOVE_ZERO for value in logprobs), "a log-probability that is none"),
        (any(_finite(value) and best - value > TIE for value, best in zip(logprobs, top, strict=False)), "a chosen token is not the most probable one"),
    )  # fmt: skip
    return [Fault(which, says) for wrong, says in rules if wrong]


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def silent(answers: Sequence[Answer]) -> bool:
    """True when no canary says more than its end: a server that answers nothing."""
    return bool(answers) and all(not one["error"] and len(one["tokens"]) <= 1 for one in answers)


@dataclass(frozen=True)
class Moved:
    """Where an answer left its twin: the place, and whether that place was a near tie of the two best tokens."""

    which: str
    place: int
    tie: bool


def moved(which: str, one: Answer, twin: Answer) -> Moved | None:
    """The first token in which two answers to one prompt differ; None when they are the same."""
    if one["error"] or twin["error"] or one["tokens"] == twin["tokens"]:
        return None
    pairs = enumerate(itertools.zip_longest(one["tokens"], twin["tokens"]))
    place = next(at for at, (mine, its) in pairs if mine != its)
    gaps = [
        each["top"][place] - each["second"][place]
        for each in (one, twin)
        if place < len(each["top"]) and _finite(each["second"][place])
    ]
    return Moved(which, place, bool(gaps) and min(gaps) <= TIE)
