"""Bytes of the parameters on each GPU: which tensors a start loads, and how tensor parallelism divides them.

Sizes come from the headers of the checkpoint where there is one, else from the shapes its config calls for in its own
type. Division follows the layers of ``vllm/model_executor/models/qwen3_next.py`` and ``qwen3_5.py`` (0.19.1).
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from runbook.checkpoint import shapes
from runbook.memory.geometry import BYTES, Geometry

# vLLM pads the vocabulary to a multiple of this before it divides it.
VOCABULARY_STEP = 64
# M-RoPE keeps its table for four times the positions of the config.
MROPE_TABLES = 4
_WHOLE = re.compile(
    r"(?:norm\d?\.(?:weight|bias)|mlp\.gate\.weight|shared_expert_gate\.weight|pos_embed\.weight|patch_embed\.proj\.(?:weight|bias)"
    r"|o_proj\.bias|out_proj\.bias|\.visual\..*(?:proj|fc2)\.bias)$"
)
_KEYS = re.compile(r"self_attn\.[kv]_proj\.")
_VOCABULARY = re.compile(r"(?:embed_tokens|lm_head)\.weight$")


@dataclass(frozen=True)
class Sized:
    """One tensor: its name in the checkpoint, its shape, and its bytes as they will lie in memory."""

    name: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class Resident:
    """Bytes on one GPU. ``rotary`` is the table of sines and cosines, no parameter but as lasting."""

    language: int
    vision: int
    mtp: int
    rotary: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.language + self.vision + self.mtp + self.rotary


def by_config(config: Mapping[str, object], dtype: str) -> list[Sized] | None:
    """The tensors that the config calls for, in the type they are loaded in; None for a family whose shapes are not known.

    Raises:
        KeyError: a key is missing.
        TypeError: a value is of another type.
    """
    wanted = shapes.expected(config)
    if wanted is None:
        return None
    return [
        Sized(name, shape, math.prod(shape) * (4 if name.endswith(shapes.FLOAT32) else BYTES[dtype]))
        for name, shape in wanted.items()
    ]


def resident(
    tensors: Iterable[Sized],
    geometry: Geometry,
    *,
    tied: bool,
    parallel: int,
    vision: bool,
    mtp: bool,
) -> Resident:
    """What one GPU holds when ``vision`` and ``mtp`` say whether the tower and the drafting block are loaded.

    A tied checkpoint that holds a copy of the embedding as ``lm_head.weight`` keeps one of the two.
    """
    parts = {"language": 0, "vision": 0, "mtp": 0}
    for one in tensors:
        if tied and one.name == "lm_head.weight":
            continue
        part = "vision" if ".visual." in one.name else "mtp" if one.name.startswith("mtp.") else "language"
        parts[part] += share(one, geometry, parallel)
    positions = geometry.positions * (MROPE_TABLES if geometry.mrope else 1)
    return Resident(
        parts["language"],
        parts["vision"] if vision else 0,
        parts["mtp"] if mtp else 0,
        positions * geometry.rotary_dim * BYTES[geometry.dtype],
    )


def share(one: Sized, geometry: Geometry, parallel: int) -> int:
    """Bytes of a tensor on each of ``parallel`` GPUs: whole, divided, or keys and values repeated when heads run out."""
    if _VOCABULARY.search(one.name):
        rows = math.ceil(one.shape[0] / VOCABULARY_STEP) * VOCABULARY_STEP
        return math.ceil(one.bytes / one.shape[0] * rows / parallel)
    if parallel == 1 or _WHOLE.search(one.name):
        return one.bytes
    if _KEYS.search(one.name):
        return math.ceil(one.bytes / geometry.kv_heads) * max(1, geometry.kv_heads // parallel)
    return math.ceil(one.bytes / parallel)


def cannot_divide(geometry: Geometry, parallel: int, *, vision: bool) -> list[str]:
    """Why that tensor parallelism is refused, or works badly; empty when it divides."""
    why = []
    counts = {"attention heads": geometry.heads}
    if geometry.gdn:
        counts |= {
            "gated-delta-net key heads": geometry.gdn.key_heads,
            "gated-delta-net value heads": geometry.gdn.value_heads,
        }
    if geometry.intermediate:
        counts["MLP width"] = geometry.intermediate
    if vision and geometry.vision_heads:
        counts["vision heads"] = geometry.vision_heads
    why += [
        f"{count} {what} are not divisible by {parallel}"
        for what, count in counts.items()
        if count % parallel
    ]
    if geometry.kv_heads % parallel and parallel % geometry.kv_heads:
        why.append(f"{geometry.kv_heads} KV heads neither divide nor are divided by {parallel}")
    block = geometry.fp8_block
    if block and geometry.intermediate and geometry.intermediate // parallel % block:
        why.append(
            f"{geometry.intermediate} / {parallel} = {geometry.intermediate // parallel} is no multiple of the FP8 block of {block} (pitfall P14)"
        )
    return why
