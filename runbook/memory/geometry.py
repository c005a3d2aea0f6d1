"""What of a config.json decides about memory: layers by kind, heads, widths, types. Bytes and counts, nothing measured."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runbook.checkpoint import shapes
from runbook.errors import BadParameter

BYTES = {
    "float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2,
    "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "float8_e4m3fn": 1,
}  # fmt: skip
LARGEST = 1 << 40
NEEDED = ("num_hidden_layers", "num_attention_heads", "hidden_size", "vocab_size")
# Keys of designs whose cache is cut otherwise: latent attention, windows, state-space layers of other kinds.
OTHER_CACHES = ("kv_lora_rank", "mamba_d_state", "ssm_cfg", "attention_chunk_size")


@dataclass(frozen=True)
class Gdn:
    """The gated delta net: heads and widths of one layer; ``kernel`` is the length of its convolution, in tokens."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int

    @property
    def channels(self) -> int:
        """Channels of the convolution: queries, keys and values side by side."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


@dataclass(frozen=True)
class Geometry:
    """One language model. ``full`` and ``linear`` count layers, ``mtp`` those of the multi-token-prediction block."""

    full: int
    linear: int
    mtp: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    intermediate: int
    vocabulary: int
    positions: int
    rotary_dim: int
    mrope: bool
    dtype: str
    ssm_dtype: str | None
    gdn: Gdn | None
    experts: int = 0
    vision_heads: int = 0
    fp8_block: int | None = None

    @property
    def hybrid(self) -> bool:
        """Whether some layers keep a recurrent state instead of keys and values."""
        return self.linear > 0

    def kv_bytes_per_token(self, element: int = 2) -> int:
        """Keys and values of one token in all full-attention layers, in bytes; ``element`` is the cache's type in bytes."""
        return 2 * self.full * self.kv_heads * self.head_dim * element


def of(config: Mapping[str, Any]) -> Geometry:
    """The geometry of a config.json.

    Raises:
        BadParameter: a key is missing or of another type, or the cache of that architecture is cut in a way not known here.
    """
    text = shapes.text_config(config)
    missing = [key for key in NEEDED if not isinstance(text.get(key), int) or text[key] < 1]
    if missing:
        raise BadParameter(
            f"config.json has no usable {', '.join(missing)}",
            "the config of a decoder: layers, heads, hidden_size, vocab_size as whole numbers",
            "take the config the checkpoint came with",
        )
    foreign = [key for key in OTHER_CACHES if text.get(key)]
    if text.get("sliding_window") and text.get("use_sliding_window", True):
        foreign.append("sliding_window")
    kinds = shapes.layer_types(text)
    strange = sorted(set(kinds) - {shapes.FULL, shapes.LINEAR})
    if foreign or strange:
        raise BadParameter(
            f"the cache of this architecture is not one the planner knows ({', '.join(foreign + strange)})",
            "full attention, with or without gated delta net layers: Qwen3.5, Qwen3 and plain decoders",
            "start it and read 'GPU KV cache size' in the log",
        )
    try:
        made = _geometry(config, text, kinds)
        _sensible(made)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, ZeroDivisionError) as why:
        raise BadParameter(
            f"config.json cannot be read as a decoder's: {type(why).__name__} {why}",
            "whole numbers for every count and width",
            "runbook model DIR says what is wrong with the checkpoint",
        ) from why
    return made


def _sensible(made: Geometry) -> None:
    """Raise ValueError for counts that no model has: what divides by them would end in an error of ours."""
    counts = {
        "heads": made.heads,
        "KV heads": made.kv_heads,
        "head_dim": made.head_dim,
        "layers of full attention": made.full,
    }
    if made.gdn:
        counts |= {f"gated delta net: {name}": value for name, value in vars(made.gdn).items()}
    wrong = [f"{name} {value}" for name, value in counts.items() if not 0 < value < LARGEST]
    wrong += [
        f"{name} {value}"
        for name, value in (
            ("MTP layers", made.mtp),
            ("positions", made.positions),
            ("width", made.intermediate),
        )
        if not 0 <= value < LARGEST
    ]
    if wrong:
        raise ValueError(", ".join(wrong))


def _geometry(config: Mapping[str, Any], text: Mapping[str, Any], kinds: tuple[str, ...]) -> Geometry:
    heads, hidden = int(text["num_attention_heads"]), int(text["hidden_size"])
    head_dim = int(text.get("head_dim") or hidden // heads)
    linear = kinds.count(shapes.LINEAR)
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    partial = rope.get("partial_rotary_factor", text.get("partial_rotary_factor", 1.0))
    gdn = None
    if linear:
        gdn = Gdn(
            int(text["linear_num_key_heads"]),
            int(text["linear_num_value_heads"]),
            int(text["linear_key_head_dim"]),
            int(text["linear_value_head_dim"]),
            int(text["linear_conv_kernel_dim"]),
        )
    vision, quantised = config.get("vision_config") or {}, config.get("quantization_config") or {}
    block = quantised.get("weight_block_size") or [None]
    ssm = text.get("mamba_ssm_dtype")
    return Geometry(
        full=kinds.count(shapes.FULL),
        linear=linear,
        mtp=int(text.get("mtp_num_hidden_layers") or 0),
        heads=heads,
        kv_heads=int(text.get("num_key_value_heads") or heads),
        head_dim=head_dim,
        hidden=hidden,
        intermediate=int(text.get("intermediate_size") or text.get("moe_intermediate_size") or 0),
        vocabulary=int(text["vocab_size"]),
        positions=int(text.get("max_position_embeddings") or 0),
        rotary_dim=int(head_dim * float(partial)),
        mrope=bool(rope.get("mrope_section")),
        dtype=_dtype(
            text.get("dtype") or text.get("torch_dtype") or config.get("dtype") or config.get("torch_dtype")
        ),
        ssm_dtype=None if ssm is None else _dtype(ssm),
        gdn=gdn,
        experts=int(text.get("num_experts") or 0),
        vision_heads=int(vision.get("num_heads") or 0),
        fp8_block=int(block[0]) if block[0] else None,
    )


def _dtype(named: Any) -> str:  # noqa: ANN401 - whatever a config.json holds
    word = str(named or "bfloat16").removeprefix("torch.")
    if word not in BYTES:
        raise ValueError(f"dtype {word!r}")
    return word
