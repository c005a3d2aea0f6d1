"""Which tensors a config.json calls for: names and shapes as the checkpoint holds them, before any engine fuses them.

Families: Qwen3.5 dense and mixture-of-experts, with vision tower and MTP block, and dense Qwen3. Rules: the classes
of transformers 5 (https://huggingface.co/docs/transformers/model_doc/qwen3_5 and .../qwen3_5_moe, .../qwen3) and the
published headers. The counts that follow from these shapes equal each parameter total published for the family.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Shape = tuple[int, ...]
Config = Mapping[str, Any]

DENSE, SPARSE, PLAIN = "qwen3_5", "qwen3_5_moe", "qwen3"
FULL, LINEAR = "full_attention", "linear_attention"
# Kept in float32 in every published checkpoint of the family; all else is in the config's dtype.
FLOAT32 = ("linear_attn.A_log", "linear_attn.norm.weight")


def text_config(config: Config) -> Config:
    """The language model's part: ``text_config``, or the whole of a config that is flat."""
    inner = config.get("text_config", config)
    return inner if isinstance(inner, Mapping) else {}


def family(config: Config) -> str | None:
    """DENSE, SPARSE or PLAIN by ``model_type`` (of the text part when the outer one is missing); None for any other."""
    named = str(config.get("model_type") or text_config(config).get("model_type") or "").removesuffix("_text")
    return named if named in (DENSE, SPARSE, PLAIN) else None


def layer_types(text: Config) -> tuple[str, ...]:
    """The kind of each layer: ``layer_types``, else one full layer after each ``full_attention_interval`` - 1 others.

    A config without either has full attention everywhere.
    """
    given = text.get("layer_types")
    if isinstance(given, list):
        return tuple(str(each) for each in given)
    layers, every = int(text.get("num_hidden_layers") or 0), int(text.get("full_attention_interval") or 1)
    return tuple(FULL if (layer + 1) % every == 0 else LINEAR for layer in range(layers))


def expected(config: Config) -> dict[str, Shape] | None:
    """Name and shape of each tensor; matrices are (out, in). None for a family that is not known here.

    Raises:
        KeyError: the config lacks a key that the family needs.
        TypeError: a value is of another type than the family has there.
    """
    kind, text = family(config), text_config(config)
    if kind is None:
        return None
    body = "model.language_model" if kind != PLAIN and "text_config" in config else "model"
    width, vocabulary = text["hidden_size"], text["vocab_size"]
    shapes: dict[str, Shape] = {f"{body}.embed_tokens.weight": (vocabulary, width)}
    for number, layer in enumerate(layer_types(text)):
        parts = dict(_layer(kind, layer, text))
        shapes |= {f"{body}.layers.{number}.{name}": shape for name, shape in parts.items()}
    shapes[f"{body}.norm.weight"] = (width,)
    if not tied(config):
        shapes["lm_head.weight"] = (vocabulary, width)
    shapes |= dict(_mtp(kind, text))
    vision = config.get("vision_config")
    if isinstance(vision, Mapping) and kind != PLAIN:
        shapes |= dict(_vision(vision))
    return shapes


def tied(config: Config) -> bool:
    """Whether the output projection is the embedding; the outer value wins, as in transformers' composite configs."""
    return bool(config.get("tie_word_embeddings", text_config(config).get("tie_word_embeddings", False)))


def _layer(kind: str, layer: str, text: Config, *, fused: bool = True) -> Iterator[tuple[str, Shape]]:
    width = text["hidden_size"]
    yield "input_layernorm.weight", (width,)
    yield "post_attention_layernorm.weight", (width,)
    yield from _gated_delta_net(text) if layer == LINEAR else _attention(kind, text)
    if kind == SPARSE:
        yield from _experts(text, fused=fused)
    else:
        yield from _mlp("mlp", width, text["intermediate_size"])


def _attention(kind: str, text: Config) -> Iterator[tuple[str, Shape]]:
    width, head = text["hidden_size"], text["head_dim"]
    queries, keys = text["num_attention_heads"] * head, text["num_key_value_heads"] * head
    gated = kind != PLAIN and text.get("attn_output_gate", True)
    rows = {"q": queries * (2 if gated else 1), "k": keys, "v": keys}
    for name, out in rows.items():
        yield f"self_attn.{name}_proj.weight", (out, width)
        if text.get("attention_bias"):
            yield f"self_attn.{name}_proj.bias", (out,)
    yield "self_attn.o_proj.weight", (width, queries)
    if text.get("attention_bias"):
        yield "self_attn.o_proj.bias", (width,)
    yield "self_attn.q_norm.weight", (head,)
    yield "self_attn.k_norm.weight", (head,)


def _gated_delta_net(text: Config) -> Iterator[tuple[str, Shape]]:
    width, heads, size = text["hidden_size"], text["linear_num_value_heads"], text["linear_value_head_dim"]
    values = heads * size
    mixed = 2 * text["linear_num_key_heads"] * text["linear_key_head_dim"] + values
    yield "linear_attn.in_proj_qkv.weight", (mixed, width)
    yield "linear_attn.in_proj_z.weight", (values, width)
    yield "linear_attn.in_proj_a.weight", (heads, width)
    yield "linear_attn.in_proj_b.weight", (heads, width)
    yield "linear_attn.conv1d.weight", (mixed, 1, text["linear_conv_kernel_dim"])
    yield "linear_attn.A_log", (heads,)
    yield "linear_attn.dt_bias", (heads,)
    yield "linear_attn.norm.weight", (size,)
    yield "linear_attn.out_proj.weight", (width, values)


def _mlp(name: str, width: int, inner: int) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.gate_proj.weight", (inner, width)
    yield f"{name}.up_proj.weight", (inner, width)
    yield f"{name}.down_proj.weight", (width, inner)


def _experts(text: Config, *, fused: bool) -> Iterator[tuple[str, Shape]]:
    width, count, inner = text["hidden_size"], text["num_experts"], text["moe_intermediate_size"]
    yield "mlp.gate.weight", (count, width)
    if fused:
        yield "mlp.experts.gate_up_proj", (count, 2 * inner, width)
        yield "mlp.experts.down_proj", (count, width, inner)
    else:
        for expert in range(count):
            yield from _mlp(f"mlp.experts.{expert}", width, inner)
    yield from _mlp("mlp.shared_expert", width, text["shared_expert_intermediate_size"])
    yield "mlp.shared_expert_gate.weight", (1, width)


def _mtp(kind: str, text: Config) -> Iterator[tuple[str, Shape]]:
    """The multi-token-prediction block: full-attention layers behind a projection of embedding and hidden state.

    Its experts are stored one by one where the layers' are fused: only so the 2,924 tensors of 397B-A17B come out.
    """
    layers, width = int(text.get("mtp_num_hidden_layers") or 0), text["hidden_size"]
    if kind == PLAIN or not layers:
        return
    yield "mtp.fc.weight", (width, 2 * width)
    for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        yield f"mtp.{name}.weight", (width,)
    for number in range(layers):
        for name, shape in _layer(kind, FULL, text, fused=False):
            yield f"mtp.layers.{number}.{name}", shape


def _vision(vision: Config) -> Iterator[tuple[str, Shape]]:
    """Each layer but the table of positions has a bias."""
    wide, inner, patch = vision["hidden_size"], vision["intermediate_size"], vision["patch_size"]
    merged = wide * vision["spatial_merge_size"] ** 2
    layers: dict[str, Shape] = {
        "patch_embed.proj": (wide, vision["in_channels"], vision["temporal_patch_size"], patch, patch),
        "merger.norm": (wide,),
        "merger.linear_fc1": (merged, merged),
        "merger.linear_fc2": (vision["out_hidden_size"], merged),
    }
    for block in range(vision["depth"]):
        layers |= {
            f"blocks.{block}.{name}": shape
            for name, shape in (
                ("norm1", (wide,)),
                ("norm2", (wide,)),
                ("attn.qkv", (3 * wide, wide)),
                ("attn.proj", (wide, wide)),
                ("mlp.linear_fc1", (inner, wide)),
                ("mlp.linear_fc2", (wide, inner)),
            )
        }
    for name, shape in layers.items():
        yield f"model.visual.{name}.weight", shape
        yield f"model.visual.{name}.bias", shape[:1]
    yield "model.visual.pos_embed.weight", (vision["num_position_embeddings"], wide)
