"""Which attention and gated-delta-net kernels a vLLM release takes on a card, from the rules in ``tables/attention_backends.json``.

Pure. A release without rules has no answer (None): nothing is guessed from a neighbour. What the rules leave out
(attention sinks, MLA, sparse and bidirectional attention, a block size that was asked for) Qwen3.5 does not use.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runbook import tables

FP16_ONLY_BELOW = 8  # vllm/platforms/cuda.py, supported_dtypes: bfloat16 from 8.0 on


@dataclass(frozen=True)
class Model:
    """What of a checkpoint and of the plan decides: size of an attention head, dtype, dtype of the KV cache."""

    head_size: int
    dtype: str = "bfloat16"
    kv: str = "auto"


@dataclass(frozen=True)
class Choice:
    """The backend taken, why, and what compiles it at run time ("" when nothing does); ``refused`` are those before it."""

    backend: str
    because: str
    compiles: str
    module: str
    refused: tuple[tuple[str, str], ...]
    source: str


@dataclass(frozen=True)
class Flash:
    """Version of flash attention and the file of the wheel that holds it."""

    version: int
    file: str
    because: str
    source: str


@dataclass(frozen=True)
class Gdn:
    """Kernel for the prefill of gated delta net layers, why, and what compiles it."""

    backend: str
    because: str
    compiles: str
    source: str


def split(cap: str) -> tuple[int, int]:
    """``8.9`` -> (8, 9).

    Raises:
        ValueError: no capability.
    """
    major, minor = cap.split(".")
    return int(major), int(minor)


def matches(pattern: str, cap: str) -> bool:
    """``9.0`` is that capability, ``10`` any of major number 10, "" all."""
    return pattern in ("", cap, cap.split(".", maxsplit=1)[0])


def dtype_on(cap: str, dtype: str) -> str:
    """The dtype vLLM really uses: below 8.0 ``bfloat16`` becomes ``float16``."""
    return "float16" if dtype == "bfloat16" and split(cap)[0] < FP16_ONLY_BELOW else dtype


def order(version: str, cap: str) -> tuple[tuple[str, ...], str, str] | None:
    """Backends in the order tried, the sentence for it, and the source."""
    row = _first(version, "order", cap)
    return (tuple(row["backends"]), row["because"], row["source"][0]) if row else None


def choose(
    version: str, cap: str, model: Model, present: Callable[[str], bool] = lambda _: True
) -> Choice | None:
    """The backend that a release takes; ``present`` says whether a module of the environment is there.

    Its ``backend`` is "" when none fits (vLLM then ends with "No valid attention backend found").
    """
    tried = order(version, cap)
    if tried is None:
        return None
    refused: list[tuple[str, str]] = []
    for name in tried[0]:
        row = _backend(version, name)
        why = _against(row, version, cap, model, present) if row else "not for this kind of attention"
        if row and not why:
            return Choice(name, _because(tried[1], refused), row["compiles"], row["module"], tuple(refused), row["source"][0])  # fmt: skip
        refused.append((name, why))
    return Choice("", _because(tried[1], refused), "", "", tuple(refused), tried[2])


def against(version: str, name: str, cap: str, model: Model, present: Callable[[str], bool]) -> str | None:
    """Why a release refuses a backend that was asked for; "" when it takes it, None when the release has no rules."""
    if order(version, cap) is None:
        return None
    row = _backend(version, name)
    return (
        _against(row, version, cap, model, present) if row else "it is not among this release's backends here"
    )


def takes_flash(version: str, cap: str) -> bool:
    """True when flash attention runs on the card at all."""
    row = _backend(version, "FLASH_ATTN")
    return row is not None and split(cap) >= split(row["cc_from"])


def flash_version(version: str, cap: str, head_size: int) -> Flash | None:
    """The version of flash attention for a card and a head size."""
    for row in tables.attention(version, "flash"):
        if matches(row["cc"], cap) and _head(row, head_size) == "":
            return Flash(row["version"], row["file"], row["because"], row["source"][0])
    return None


def gdn(version: str, cap: str, planned: str = "auto", key_dim: int = 128, cuda: int = 0) -> Gdn | None:
    """The prefill kernel of gated delta net layers; ``planned`` is the value of --gdn-prefill-backend, or auto."""
    for row in tables.attention(version, "gdn"):
        fits = matches(row["cc"], cap) and row["planned"] in ("", planned)
        if fits and row.get("key_dim", key_dim) == key_dim and cuda >= row.get("cuda_from", 0):
            return Gdn(row["backend"], row["because"], row["compiles"], row["source"][0])
    return None


def model_of(config: str | None, kv: str = "auto") -> tuple[Model, bool] | None:
    """(what decides, whether there are gated delta net layers) of a checkpoint's config.json; None when it does not say."""
    try:
        data = json.loads(config or "")
    except (ValueError, RecursionError):
        return None
    text = data.get("text_config", data) if isinstance(data, dict) else None
    if not isinstance(text, dict):
        return None
    size = _whole(text.get("head_dim"))
    hidden, heads = _whole(text.get("hidden_size")), _whole(text.get("num_attention_heads"))
    size = size or (hidden // heads if hidden and heads else None)
    if not size:
        return None
    dtype = text.get("dtype") or text.get("torch_dtype") or data.get("dtype") or data.get("torch_dtype")
    layers = text.get("layer_types")
    linear = "linear_attention" in layers if isinstance(layers, list) else "linear_key_head_dim" in text
    return Model(size, dtype if isinstance(dtype, str) else "bfloat16", kv), linear


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _first(version: str, rule: str, cap: str) -> dict[str, Any] | None:
    return next((row for row in tables.attention(version, rule) if matches(row["cc"], cap)), None)


def _backend(version: str, name: str) -> dict[str, Any] | None:
    return next((row for row in tables.attention(version, "backend") if row["name"] == name), None)


def _head(row: dict[str, Any], size: int) -> str:
    if (
        size > row.get("head_to", size)
        or size < row.get("head_from", size)
        or size % row.get("head_multiple", 1)
    ):
        return f"head size {size}"
    return f"head size {size}" if size not in row.get("head_sizes", [size]) else ""


def _against(
    row: dict[str, Any], version: str, cap: str, model: Model, present: Callable[[str], bool]
) -> str:
    if row["module"] and not present(row["module"]):
        return f"{row['module']} is not installed"
    if split(cap) < split(row.get("cc_from", cap)) or split(cap) > split(row.get("cc_to", cap)):
        return f"capability {cap} (it takes {row.get('cc_from', '')} to {row.get('cc_to', 'any')})"
    if said := _head(row, model.head_size):
        return said
    dtype = dtype_on(cap, model.dtype)
    if dtype not in row["dtypes"]:
        return f"dtype {dtype}"
    kinds = list(row["kv"])
    found = flash_version(version, cap, 0) if "kv_with_version_3" in row else None
    if found and found.version == 3:  # noqa: PLR2004 - a version by its name
        kinds += row["kv_with_version_3"]
    return "" if model.kv in kinds else f"KV cache {model.kv}"


def _because(first: str, refused: list[tuple[str, str]]) -> str:
    return "; ".join([first, *(f"not {name}: {why}" for name, why in refused)])
