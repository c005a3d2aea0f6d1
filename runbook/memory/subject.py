"""What is to be planned for, put together from a config.json and, where there are any, the headers of its weights."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from runbook.checkpoint import shapes
from runbook.errors import BadParameter
from runbook.memory import geometry, weights
from runbook.memory.geometry import BYTES
from runbook.memory.plan import Model
from runbook.memory.weights import Sized

# Types that vLLM converts to the model's own when it loads; others are quantised and stay as they are.
CONVERTED = ("F32", "F16", "BF16", "F64")


def of(
    config: Mapping[str, Any],
    tensors: Iterable[tuple[str, str, tuple[int, ...], int]] | None,
    dtype: str = "auto",
) -> Model:
    """The model of a config; ``tensors`` are (name, type in the file, shape, bytes), None where only the config is known.

    Of several alike one row may stand, with the bytes of all: names may have N for a number, as an examination groups them.

    Raises:
        BadParameter: the architecture or the type is not one the planner knows.
    """
    plain = geometry.of(config)
    word = plain.dtype if dtype == "auto" else {"half": "float16", "float": "float32"}.get(dtype, dtype)
    if word not in ("float32", "bfloat16", "float16"):
        raise BadParameter(f"--dtype {dtype}", "auto, bfloat16, float16 or float32", "leave it out")
    if dtype == "auto" and word == "float32":
        word = "bfloat16"  # what vLLM's auto makes of a float32 checkpoint
    shaped = dataclasses.replace(plain, dtype=word)
    sized = _by_config(config, word) if tensors is None else [_loaded(*row, word) for row in tensors]
    if sized is None:
        raise BadParameter(
            f"no weights are here, and the shapes of model_type {config.get('model_type')!r} are not known",
            "a folder with its weight files, or a config of Qwen3.5 or Qwen3",
            "name the folder of the checkpoint",
        )
    text = shapes.text_config(config)
    return Model(
        shaped,
        tuple(sized),
        shapes.tied(config),
        int(text.get("num_experts_per_tok") or 0) if shaped.experts else 0,
        int(text.get("moe_intermediate_size") or 0),
    )


def _by_config(config: Mapping[str, Any], dtype: str) -> list[Sized] | None:
    try:
        found = weights.by_config(config, dtype)
        for one in found or ():
            _whole(one.name, one.shape)
    except (KeyError, TypeError, ValueError, AttributeError) as why:
        raise BadParameter(
            f"config.json does not say what the weights are: {type(why).__name__} {why}",
            "every width and count of its family",
            "runbook model DIR says what is wrong with the checkpoint",
        ) from why
    return found


def _whole(name: str, shape: Iterable[Any]) -> None:
    """Raise ValueError for a shape that no tensor has: what a config holds is multiplied before it is looked at."""
    if not all(isinstance(extent, int) and extent > 0 for extent in shape):
        raise ValueError(f"{name} {shape}")


def _loaded(name: str, kept: str, shape: tuple[int, ...], size: int, word: str) -> Sized:
    if kept not in CONVERTED or name.endswith(shapes.FLOAT32):
        return Sized(name, shape, size)
    in_file = {"F64": 8, "F32": 4}.get(kept, 2)
    return Sized(name, shape, size // in_file * BYTES[word])
