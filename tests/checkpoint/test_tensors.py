"""Checkpoints that are right and look unusual: experts fused or one by one, every common quantisation, every published size."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runbook import catalogue
from runbook.checkpoint import config, origin, shapes, tensors
from runbook.checkpoint.headers import Tensor, Weights

SPARSE: dict[str, Any] = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe", "tie_word_embeddings": False,
    "text_config": {
        "model_type": "qwen3_5_moe_text", "dtype": "bfloat16", "vocab_size": 512, "hidden_size": 128, "num_hidden_layers": 4, "full_attention_interval": 4,
        "num_experts": 8, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
        "linear_num_key_heads": 2, "linear_key_head_dim": 64, "linear_num_value_heads": 4, "linear_value_head_dim": 64, "linear_conv_kernel_dim": 4, "mtp_num_hidden_layers": 1,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25, "mrope_section": [2, 1, 1], "mrope_interleaved": True},
    },
    "vision_config": {
        "depth": 1, "hidden_size": 64, "intermediate_size": 128, "num_heads": 2, "out_hidden_size": 128, "in_channels": 3, "patch_size": 16,
        "spatial_merge_size": 2, "temporal_patch_size": 2, "num_position_embeddings": 64,
    },
}  # fmt: skip
Rows = dict[str, tuple[str, tuple[int, ...]]]


def plain() -> Rows:
    """As published: experts fused, part of the gated delta net in float32."""
    found = shapes.expected(SPARSE)
    assert found is not None
    return {
        name: ("F32" if name.endswith(shapes.FLOAT32) else "BF16", shape) for name, shape in found.items()
    }


def one_by_one() -> Rows:
    """Each expert's weights by themselves."""
    rows: Rows = {}
    for name, (kind, shape) in plain().items():
        body, cut, rest = name.partition(".mlp.experts.")
        if not cut or rest not in {"gate_up_proj", "down_proj"}:
            rows[name] = (kind, shape)
            continue
        count, out, width = shape
        parts = {"gate_proj": out // 2, "up_proj": out // 2} if rest == "gate_up_proj" else {"down_proj": out}
        rows |= {
            f"{body}{cut}{number}.{part}.weight": (kind, (size, width))
            for number in range(count)
            for part, size in parts.items()
        }
    return rows


def packed(change: Callable[[str, tuple[int, ...]], Rows], rows: Rows) -> Rows:
    """The projections of the language model's feed-forward layers, quantised."""
    found: Rows = {}
    for name, (kind, shape) in rows.items():
        quantised = ".language_model.layers." in name and ".mlp." in name and name.endswith("_proj.weight")
        found |= change(name.removesuffix(".weight"), shape) if quantised else {name: (kind, shape)}
    return found


def fp8(name: str, shape: tuple[int, ...]) -> Rows:
    return {f"{name}.weight": ("F8_E4M3", shape), f"{name}.weight_scale_inv": ("F32", (1, 1))}


def gptq(name: str, shape: tuple[int, ...]) -> Rows:
    out, width = shape
    rows: Rows = {f"{name}.qweight": ("I32", (width // 8, out)), f"{name}.qzeros": ("I32", (1, out // 8))}
    return rows | {f"{name}.scales": ("F16", (1, out)), f"{name}.g_idx": ("I32", (width,))}


def nvfp4(name: str, shape: tuple[int, ...]) -> Rows:
    out, width = shape
    rows: Rows = {
        f"{name}.weight": ("U8", (out, width // 2)),
        f"{name}.weight_scale": ("F8_E4M3", (out, width // 16)),
    }
    return rows | {f"{name}.weight_scale_2": ("F32", ()), f"{name}.input_scale": ("F32", ())}


def compressed(name: str, shape: tuple[int, ...]) -> Rows:
    out, width = shape
    rows: Rows = {
        f"{name}.weight_packed": ("I32", (out, width // 8)),
        f"{name}.weight_scale": ("BF16", (out, 1)),
    }
    return rows | {f"{name}.weight_shape": ("I64", (2,))}


def bitsandbytes(name: str, shape: tuple[int, ...]) -> Rows:
    rows: Rows = {
        f"{name}.weight": ("U8", (shape[0] * shape[1] // 2, 1)),
        f"{name}.weight.absmax": ("U8", (8,)),
    }
    return rows | {
        f"{name}.weight.quant_map": ("F32", (16,)),
        f"{name}.weight.quant_state.bitsandbytes__nf4": ("U8", (99,)),
    }


def weights(rows: Rows) -> Weights:
    every = {name: Tensor(name, kind, shape, 0, "model.safetensors") for name, (kind, shape) in rows.items()}
    return Weights(every, {"model.safetensors": 0}, (), 0)


def kinds(rows: Rows, folder: Path, **more: Any) -> list[str]:
    """Every fault of these tensors under this config, of names and shapes and of the form."""
    (folder / "config.json").write_text(json.dumps({**SPARSE, **more}), encoding="utf-8")
    about, faults = config.read(folder)
    assert about is not None
    found = weights(rows)
    every = [
        *faults,
        *tensors.compared(folder, about, found),
        *origin.read(folder, ("config.json",), about, found)[1],
    ]
    return [fault.kind for fault in every]


def test_experts_fused_and_one_by_one(tmp_path: Path) -> None:
    assert kinds(plain(), tmp_path) == []
    assert kinds(one_by_one(), tmp_path) == []


def test_an_expert_that_is_missing(tmp_path: Path) -> None:
    rows = one_by_one()
    del rows["model.language_model.layers.3.mlp.experts.7.up_proj.weight"]
    assert kinds(rows, tmp_path) == ["shapes/missing"]


@pytest.mark.parametrize(
    ("method", "change"),
    [
        ("fp8", fp8),
        ("gptq", gptq),
        ("modelopt", nvfp4),
        ("compressed-tensors", compressed),
        ("bitsandbytes", bitsandbytes),
    ],
)
def test_quantised_and_said_so(
    method: str, change: Callable[[str, tuple[int, ...]], Rows], tmp_path: Path
) -> None:
    rows = packed(change, one_by_one())
    assert len(rows) > len(one_by_one())
    assert kinds(rows, tmp_path, quantization_config={"quant_method": method}) == []
    assert kinds(rows, tmp_path) == ["origin/quantisation-unsaid"]


def test_a_copy_of_the_embedding_as_head_does_no_harm(tmp_path: Path) -> None:
    """Some trainers save both although they are one; two that differ are told apart by their first bytes."""
    rows = plain()
    names = [name for name in rows if name.endswith((tensors.EMBEDDING, tensors.HEAD))]
    (tmp_path / "config.json").write_text(
        json.dumps({**SPARSE, "tie_word_embeddings": True}), encoding="utf-8"
    )
    about, _ = config.read(tmp_path)
    assert about is not None
    (tmp_path / "model.safetensors").write_bytes(b"same" * 2 + b"else")
    found = weights(rows)
    for second, kind in ((4, []), (8, ["shapes/tie"])):
        for name, begin in zip(names, (0, second), strict=True):
            found.tensors[name] = Tensor(name, "BF16", rows[name][1], 4, "model.safetensors", begin)
        assert [fault.kind for fault in tensors.compared(tmp_path, about, found)] == kind


def published() -> list[dict[str, Any]]:
    """The models of the catalogue whose config is given in full."""
    parts = ("text_config", "vision_config")
    return [row for row in catalogue.rows("models") if all(isinstance(row.get(part), dict) for part in parts)]


@pytest.mark.parametrize("row", published(), ids=lambda row: row["id"])
def test_no_published_config_has_a_fault(row: dict[str, Any], tmp_path: Path) -> None:
    text = dict(row["text_config"])
    pattern = text["layer_types"]
    text["layer_types"] = pattern["pattern"] * pattern["repeat"]
    whole = {"architectures": row["architectures"], "model_type": row["model_type"], "text_config": text}
    whole |= {
        "tie_word_embeddings": text["tie_word_embeddings"],
        "vision_config": row["vision_config"],
        **(row.get("config_token_ids") or {}),
    }
    (tmp_path / "config.json").write_text(json.dumps(whole), encoding="utf-8")
    about, faults = config.read(tmp_path)
    assert faults == []
    assert about is not None
    asked = shapes.expected(about.whole)
    assert asked is not None
    rows: Rows = {
        name: ("F32" if name.endswith(shapes.FLOAT32) else "BF16", shape) for name, shape in asked.items()
    }
    assert tensors.compared(tmp_path, about, weights(rows)) == []


def test_all_eight_sizes_are_among_them() -> None:
    assert len({row["size"] for row in published()}) == 8
