"""config.json: what it says, in one form for every generation of transformers, and whether its values hang together.

transformers 5 keeps the rotary embedding in ``rope_parameters``; 4 kept ``rope_theta`` and ``rope_scaling`` beside the
other keys, and 5 still reads those (https://huggingface.co/docs/transformers/main/en/internal/rope_utils).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from runbook.checkpoint import files, shapes
from runbook.checkpoint.faults import Fault, line
from runbook.checkpoint.files import Unusable

NAME = "config.json"
FAMILY_THETA = 10_000_000.0  # of every Qwen3.5, by its config.json and model cards
# Largest values that are believed. Shapes are worked out from these, so a hostile config must not ask for years of it.
LAYERS, EXPERTS, WIDTH = 256, 1024, 1 << 24
COUNTS = {
    "num_hidden_layers": LAYERS,
    "mtp_num_hidden_layers": 16,
    "num_experts": EXPERTS,
    **dict.fromkeys(
        (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "moe_intermediate_size",
            "shared_expert_intermediate_size",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "linear_num_key_heads",
            "linear_key_head_dim",
            "linear_num_value_heads",
            "linear_value_head_dim",
            "linear_conv_kernel_dim",
            "full_attention_interval",
            "max_position_embeddings",
        ),
        WIDTH,
    ),
}
VISION_COUNTS = {
    "depth": LAYERS,
    **dict.fromkeys(
        (
            "hidden_size",
            "intermediate_size",
            "num_heads",
            "out_hidden_size",
            "in_channels",
            "patch_size",
            "spatial_merge_size",
            "temporal_patch_size",
            "num_position_embeddings",
        ),
        WIDTH,
    ),
}
MAY_BE_ZERO = ("mtp_num_hidden_layers",)
TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")


@dataclass(frozen=True)
class Config:
    """A config.json that could be read. ``sane``: the sizes in it can be worked with."""

    whole: Mapping[str, Any]
    text: Mapping[str, Any]
    sane: bool

    @property
    def family(self) -> str | None:
        """As ``shapes.family``."""
        return shapes.family(self.whole)

    @property
    def vision(self) -> Mapping[str, Any]:
        """The vision tower's part; empty where there is none."""
        inner = self.whole.get("vision_config")
        return inner if isinstance(inner, Mapping) else {}

    @property
    def vocabulary(self) -> int | None:
        """Rows of the embedding, as far as the config says them."""
        return count(self.text.get("vocab_size"))

    @property
    def dtype(self) -> str | None:
        """``dtype``, or ``torch_dtype`` as transformers 4 wrote it; of the text part first, as vLLM takes it."""
        for where in (self.text, self.whole):
            for key in ("dtype", "torch_dtype"):
                if isinstance(where.get(key), str):
                    return str(where[key]).removeprefix("torch.")
        return None

    @property
    def architectures(self) -> tuple[str, ...]:
        """The names under ``architectures``."""
        named = self.whole.get("architectures")
        return tuple(map(line, named)) if isinstance(named, list) else ()


def count(value: object) -> int | None:
    """A whole number that is not negative; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def number(value: object) -> float | None:
    """A number that JSON can say: no true, no infinity as ``1e999`` becomes."""
    return (
        value if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) else None
    )


def ids(value: object) -> tuple[int, ...]:
    """One token id or a list of them, as ``eos_token_id`` may be."""
    listed = value if isinstance(value, list) else [value]
    return tuple(known for one in listed if (known := count(one)) is not None)


def read(folder: Path) -> tuple[Config | None, list[Fault]]:
    """The config, or None where there is none to be read; and its faults."""
    try:
        whole = files.json_object(folder, NAME, "config")
    except Unusable as why:
        return None, [why.fault]
    inner = whole.get("text_config", whole)
    text: Mapping[str, Any] = inner if isinstance(inner, dict) else {}
    faults = [] if text is inner else [_fault("value", "text_config is no object")]
    odd = [*_values(whole, text)]
    found = Config(whole, text, not odd)
    faults += odd or [
        *_heads(found),
        *_layers(found),
        *_rope(found),
        *_tied(found),
        *_ids(found),
        *_vision(found),
    ]
    return found, faults


def _fault(what: str, text: str) -> Fault:
    return Fault(f"config/{what}", NAME, text)


def _values(whole: Mapping[str, Any], text: Mapping[str, Any]) -> Iterator[Fault]:
    """Sizes that are no whole numbers, or none that a model can have."""
    parts = [("", text, COUNTS)]
    if isinstance(whole.get("vision_config"), dict):
        parts.append(("vision_config.", whole["vision_config"], VISION_COUNTS))
    elif whole.get("vision_config") is not None:
        yield _fault("value", "vision_config is no object")
    for prefix, where, most in parts:
        for key, largest in most.items():
            value, least = where.get(key), 0 if key in MAY_BE_ZERO else 1
            whole_number = count(value)
            if value is not None and (whole_number is None or not least <= whole_number <= largest):
                yield _fault(
                    "value",
                    f"{prefix}{key} is {line(repr(value))}; a whole number from {least} to {largest} is expected",
                )
    kinds = text.get("layer_types")
    if kinds is not None and not (
        isinstance(kinds, list) and len(kinds) <= LAYERS and all(isinstance(one, str) for one in kinds)
    ):
        yield _fault("value", "layer_types is no list of names, one for each layer")


def _heads(config: Config) -> Iterator[Fault]:
    text = config.text
    for many, few in (
        ("num_attention_heads", "num_key_value_heads"),
        ("linear_num_value_heads", "linear_num_key_heads"),
    ):
        whole, part = text.get(many), text.get(few)
        if whole and part and whole % part:
            yield _fault("heads", f"{many} {whole} is no multiple of {few} {part}")
    width, heads = text.get("hidden_size"), text.get("num_attention_heads")
    if width and heads and not text.get("head_dim") and width % heads:
        yield _fault(
            "heads",
            f"hidden_size {width} is no multiple of num_attention_heads {heads}, and head_dim is not given",
        )
    missing = [key for key in shapes_keys(config) if text.get(key) is None]
    if missing:
        yield _fault("key", f"lacks {', '.join(missing)}")


def shapes_keys(config: Config) -> tuple[str, ...]:
    """The keys without which no shape of this family can be worked out; none for another family."""
    kind = config.family
    if kind is None:
        return ()
    keys = [
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
    ]
    if kind != shapes.PLAIN:
        keys += ["linear_num_key_heads", "linear_key_head_dim", "linear_num_value_heads"]
        keys += ["linear_value_head_dim", "linear_conv_kernel_dim"]
    if kind == shapes.SPARSE:
        return (*keys, "num_experts", "moe_intermediate_size", "shared_expert_intermediate_size")
    return (*keys, "intermediate_size")


def _layers(config: Config) -> Iterator[Fault]:
    """The kind of each layer, against their number and against ``full_attention_interval``."""
    kinds, layers = config.text.get("layer_types"), config.text.get("num_hidden_layers")
    if not isinstance(kinds, list) or not layers:
        return
    if len(kinds) != layers:
        yield _fault("layers", f"layer_types has {len(kinds)} entries for num_hidden_layers {layers}")
    every = config.text.get("full_attention_interval")
    if every and config.family != shapes.PLAIN:
        meant = shapes.layer_types({**config.text, "layer_types": None, "num_hidden_layers": len(kinds)})
        wrong = [number for number, (one, other) in enumerate(zip(kinds, meant, strict=True)) if one != other]
        if wrong:
            first = wrong[0]
            yield _fault(
                "layers",
                f"layer_types calls layer {first} {line(kinds[first])}, full_attention_interval {every} makes it {meant[first]}",
            )


def rope(config: Config) -> dict[str, Any]:
    """``theta``, ``type``, ``partial``, ``sections`` of the rotary embedding, wherever they stand; None where they are not said."""
    given = config.text.get("rope_parameters")
    parameters: Mapping[str, Any] = given if isinstance(given, dict) else {}
    old = config.text.get("rope_scaling")
    scaling: Mapping[str, Any] = old if isinstance(old, dict) else {}
    return {
        "theta": parameters.get("rope_theta", config.text.get("rope_theta")),
        "type": parameters.get("rope_type") or scaling.get("rope_type") or scaling.get("type"),
        "partial": parameters.get("partial_rotary_factor", config.text.get("partial_rotary_factor")),
        "sections": parameters.get("mrope_section") or scaling.get("mrope_section"),
        "interleaved": parameters.get("mrope_interleaved"),
    }


def _rope(config: Config) -> Iterator[Fault]:
    text, found = config.text, rope(config)
    inner, old = text.get("rope_parameters"), text.get("rope_scaling")
    if isinstance(inner, dict):
        for key in ("rope_theta", "partial_rotary_factor"):
            if key in inner and text.get(key) is not None and inner[key] != text[key]:
                yield _fault(
                    "rope-twice", f"{key} is {line(text[key])} and, in rope_parameters, {line(inner[key])}"
                )
    if isinstance(old, dict) and old and isinstance(inner, dict):
        lost = [key for key in inner if key not in old and key != "rope_type"]
        what = f"; lost by that: {', '.join(map(line, lost))}" if lost else ""
        yield _fault(
            "rope-scaling",
            f"rope_scaling {line(old)} takes the place of rope_parameters when it is read{what}",
        )
    if config.text is not config.whole and config.whole.get("rope_scaling"):
        yield _fault("rope-scaling-idle", "rope_scaling stands outside text_config, where nothing reads it")
    theta, family = number(found["theta"]), config.family
    if family is not None and (theta is None or theta <= 0):
        yield _fault("rope-theta", f"rope_theta is {line(found['theta'])}")
    elif family in (shapes.DENSE, shapes.SPARSE) and theta != FAMILY_THETA:
        yield _fault(
            "rope-theta", f"rope_theta is {theta:g}, each Qwen3.5 was trained with {FAMILY_THETA:.0f}"
        )
    yield from _sections(config, found)


def _sections(config: Config, found: Mapping[str, Any]) -> Iterator[Fault]:
    """The share of each head that is rotated, and how M-RoPE parts it among time, height and width."""
    partial, head = number(found["partial"]), config.text.get("head_dim")
    if found["partial"] is not None and (partial is None or not 0 < partial <= 1):
        yield _fault(
            "partial-rotary",
            f"partial_rotary_factor is {line(found['partial'])}, a share of each head is expected",
        )
        return
    sections = found["sections"]
    if sections is None:
        if config.family in (shapes.DENSE, shapes.SPARSE):
            yield _fault("mrope", "mrope_section is not given: images would be placed as text is")
        return
    if not isinstance(sections, list) or any(count(one) is None for one in sections):
        yield _fault("mrope", f"mrope_section is {line(sections)}, a list of three counts is expected")
    elif head and 2 * sum(sections) != (rotated := int(head * (partial or 1))):
        yield _fault(
            "mrope",
            f"mrope_section {sections} has {sum(sections)} frequencies, half of {rotated} rotated dimensions are {rotated // 2}",
        )


def _tied(config: Config) -> Iterator[Fault]:
    outer, inner = config.whole.get("tie_word_embeddings"), config.text.get("tie_word_embeddings")
    if outer is not None and inner is not None and bool(outer) != bool(inner):
        text = f"tie_word_embeddings is {line(outer)} outside and {line(inner)} in text_config: transformers takes one, vLLM the other"
        yield _fault("tie-twice", text)


def _ids(config: Config) -> Iterator[Fault]:
    rows = config.vocabulary
    for where in {id(part): part for part in (config.whole, config.text)}.values():
        for key, value in where.items():
            if rows and (key in TOKEN_IDS or key.endswith("_token_id")):
                beyond = [one for one in ids(value) if one >= rows]
                if beyond:
                    yield _fault("token-id", f"{key} {beyond[0]} is outside the vocabulary of {rows}")


def _vision(config: Config) -> Iterator[Fault]:
    vision, width = config.vision, config.text.get("hidden_size")
    if not vision or not width:
        return
    if vision.get("out_hidden_size") not in (None, width):
        yield _fault(
            "vision", f"the vision tower gives vectors of {vision['out_hidden_size']}, hidden_size is {width}"
        )
    wide, heads = vision.get("hidden_size"), vision.get("num_heads")
    if wide and heads and wide % heads:
        yield _fault(
            "vision", f"the vision tower's hidden_size {wide} is no multiple of its num_heads {heads}"
        )
