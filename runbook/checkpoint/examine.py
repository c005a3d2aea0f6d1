"""One folder examined: every subject read once, its facts and faults side by side.

The answer is the same for the same files: sorted, without paths, without times. It stays small whatever the size of the
model, for layers and experts that are alike are told once, with their number.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import Any

from runbook.checkpoint import (
    config,
    files,
    generation,
    hashes,
    headers,
    index,
    origin,
    template,
    tensors,
    tokens,
)
from runbook.checkpoint.config import Config
from runbook.checkpoint.faults import Fault, line
from runbook.checkpoint.headers import Weights

MOST_FAULTS, MOST_GROUPS, MOST_FILES = 100, 300, 300


def facts(folder: Path) -> dict[str, Any]:
    """What a checkpoint holds and what is wrong with it, from headers and small files.

    Raises:
        OSError: the folder cannot be listed.
    """
    present = files.names(folder)
    weights = headers.read(folder)
    about, faults = config.read(folder)
    words, odd = tokens.read(folder, present, about)
    chat, unfit = template.read(folder, present, words)
    ends, wrong = generation.read(folder, present, about, words, str(chat.get("turn", "")))
    form, strange = origin.read(folder, present, about, weights)
    every = [
        *weights.faults,
        *(tensors.compared(folder, about, weights) if about else ()),
        *index.compared(folder, present, weights),
        *odd,
        *unfit,
        *wrong,
        *strange,
        *faults,
    ]
    known = hashes.said(folder, present)
    hub = hashes.facts(folder, known)
    every += hashes.mixed(known, hub)
    return {
        "files": [line(name) for name in present[:MOST_FILES]],
        "weights": _weights(weights),
        "config": _config(about),
        "tokenizer": {
            "class": words.named,
            "tokens": len(words.ids),
            "added": len(words.added),
            "roles": {role: [line(token), words.of(role)] for role, token in sorted(words.roles.items())},
        }
        if words
        else {},
        "template": chat,
        "generation": ends,
        "origin": form,
        "hub": hub,
        "faults": told(every),
    }


def hashed(folder: Path) -> dict[str, Any]:
    """Every file against the hash that the hub gave; reads them whole.

    Raises:
        OSError: the folder cannot be listed.
    """
    found, faults = hashes.compared(folder, hashes.said(folder, files.names(folder)))
    return {"hashes": found, "faults": told(faults)}


def as_json(found: dict[str, Any]) -> str:
    """One object, a line for each subject: readable in a terminal, and in a recording's history."""
    rows = [
        f'"{name}":{json.dumps(value, separators=(",", ":"), allow_nan=False)}'
        for name, value in found.items()
    ]
    return "{\n" + ",\n".join(rows) + "\n}"


def told(faults: Iterable[Fault]) -> list[list[str]]:
    """Faults as JSON says them."""
    return [[one.kind, line(one.file), line(one.text)] for one in faults][:MOST_FAULTS]


def _weights(weights: Weights) -> dict[str, Any]:
    """Totals, and each shape once: ``groups`` holds name, type, shape, how many, bytes of them all."""
    rows: Counter[tuple[str, str, tuple[int, ...]]] = Counter()
    size: Counter[tuple[str, str, tuple[int, ...]]] = Counter()
    for one in weights.tensors.values():
        key = (re.sub(r"(?<=\.)\d+(?=\.|$)", "N", one.name), one.dtype, one.shape)
        rows[key] += 1
        size[key] += one.bytes
    groups = sorted(rows)
    return {
        "files": len(weights.files),
        "bytes": sum(weights.files.values()),
        "tensors": len(weights.tensors),
        "parameters": sum(prod(one.shape) for one in weights.tensors.values()),
        "types": dict(sorted(Counter(line(one.dtype) for one in weights.tensors.values()).items())),
        "groups": [
            [line(key[0]), line(key[1]), list(key[2]), rows[key], size[key]] for key in groups[:MOST_GROUPS]
        ],
        "groups_left_out": max(0, len(groups) - MOST_GROUPS),
        "read_bytes": weights.read_bytes,
    }


def _config(about: Config | None) -> dict[str, Any]:
    """What other checks and readers ask of config.json, in one form for each generation of transformers."""
    if about is None:
        return {}
    kinds = about.text.get("layer_types")
    return {
        "architectures": list(about.architectures),
        "model_type": line(about.whole.get("model_type")),
        "family": about.family,
        "dtype": line(about.dtype) if about.dtype else None,
        "vocabulary": about.vocabulary,
        "layers": dict(sorted(Counter(map(line, kinds)).items())) if isinstance(kinds, list) else {},
        "rope": {key: _value(value) for key, value in config.rope(about).items()},
        "vision": bool(about.vision),
    }


def _value(value: object) -> float | bool | str | None:
    """A value of a config: as it is where it is short, as text where it is of another type."""
    if value is None or isinstance(value, bool) or config.number(value) is not None:
        return value  # type: ignore[return-value]
    return line(value)
