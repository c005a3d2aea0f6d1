"""Where an answer ends: generation_config.json, the tokenizer's end token, and the token with which the template ends a turn.

vLLM stops at the tokenizer's end token and at every ``eos_token_id`` of generation_config.json; transformers' generate()
knows the latter only, and config.json's where there is none. If a turn ends with another token, answers run on.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from runbook.checkpoint import files
from runbook.checkpoint.config import Config, count, ids, number
from runbook.checkpoint.faults import Fault, line
from runbook.checkpoint.files import Unusable
from runbook.checkpoint.tokens import SETTINGS, Tokens

NAME = "generation_config.json"
LIMITS = {
    "temperature": (0.0, 100.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.0, 100.0),
}


def read(
    folder: Path, present: tuple[str, ...], config: Config | None, tokens: Tokens | None, turn: str
) -> tuple[dict[str, Any], list[Fault]]:
    """(facts, faults). ``turn``: the token that ends a turn in the rendered template; "" where that is not known."""
    given: dict[str, Any] = {}
    faults: list[Fault] = []
    if NAME in present:
        try:
            given = files.json_object(folder, NAME, "generation")
        except Unusable as why:
            return {}, [why.fault]
    else:
        faults.append(
            Fault("generation/none", NAME, "is not there: sampling and ends are the server's own defaults")
        )
    fallback = ids(config.text.get("eos_token_id", config.whole.get("eos_token_id"))) if config else ()
    ends = ids(given.get("eos_token_id")) or fallback
    facts = {
        "ends": list(ends),
        "ends_from": NAME if ids(given.get("eos_token_id")) else "config.json",
        "tokenizer_end": tokens.of("eos_token") if tokens else None,
        "turn": turn,
        "turn_id": tokens.ids.get(turn) if tokens else None,
        "sampling": {key: given[key] for key in (*LIMITS, "top_k") if number(given.get(key)) is not None},
    }
    faults += [*_known(given, tokens), *_sampling(given)]
    if tokens:
        faults += _ends(ends, tokens, turn, given)
    return facts, faults


def _ends(ends: tuple[int, ...], tokens: Tokens, turn: str, given: Mapping[str, Any]) -> Iterator[Fault]:
    last, said = tokens.ids.get(turn), tokens.of("eos_token")
    named = {one: token for token, one in tokens.ids.items()}
    if last is None:
        return
    listed = ", ".join(f"{one} ({line(named.get(one, 'no token'))})" for one in ends) or "none"
    if last not in ends and ids(given.get("eos_token_id")):
        yield Fault(
            "generation/end",
            NAME,
            f"ends at {listed}; the chat template ends a turn with {line(turn)} ({last})",
        )
    elif last not in ends and said != last:
        text = f"calls {line(tokens.roles.get('eos_token', 'nothing'))} the eos_token; the chat template ends a turn with {line(turn)} ({last})"
        yield Fault("generation/end", SETTINGS, text)
    elif said is not None and said != last:
        text = f"calls {line(tokens.roles['eos_token'])} ({said}) the eos_token; the chat template ends a turn with {line(turn)} ({last})"
        yield Fault("generation/eos-token", SETTINGS, text)


def _known(given: Mapping[str, Any], tokens: Tokens | None) -> Iterator[Fault]:
    numbers = set(tokens.ids.values()) if tokens else set()
    for key in ("eos_token_id", "bos_token_id", "pad_token_id"):
        strange = [one for one in ids(given.get(key)) if tokens and one not in numbers]
        if strange:
            kind = "generation/pad" if key == "pad_token_id" else "generation/outside"
            yield Fault(kind, NAME, f"{key} {strange[0]} is no token of the tokenizer")


def _sampling(given: Mapping[str, Any]) -> Iterator[Fault]:
    for key, (least, most) in LIMITS.items():
        value, known = given.get(key), number(given.get(key))
        if value is not None and (known is None or not least <= known <= most):
            yield Fault(
                "generation/sampling", NAME, f"{key} is {line(value)}, {least:g} to {most:g} is expected"
            )
    if given.get("top_k") is not None and count(given["top_k"]) is None:
        yield Fault(
            "generation/sampling", NAME, f"top_k is {line(given['top_k'])}, a whole number is expected"
        )
