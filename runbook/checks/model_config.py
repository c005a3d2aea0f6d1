"""MODEL: is the config the one the checkpoint was made with, and in a form that can be served?"""

import json
from typing import Any

from runbook.checks.model_readings import CONFIG, EXAMINE, FILES, config_json, examined, judged, verdict
from runbook.model import Answer, Evidence, Fix, Layer, Risk, Source, check, fail, ok, skip, unknown
from runbook.parse.checkpoint import Checkpoint
from runbook.probe import Probe

PATTERN = ["linear_attention"] * 3 + ["full_attention"]
ROPE_THETA = 10_000_000
PARTIAL_ROTARY = 0.25
ORIGINAL = Fix("Take the config the checkpoint came with; nobody needs to edit it", risk=Risk.DATA)
WHOLE = Fix(
    "Serve the official checkpoint, the one the adapter was merged into, or a quantised one with its own config",
    risk=Risk.DATA,
)


def _text(config: dict[str, Any]) -> dict[str, Any]:
    inner = config.get("text_config", config)
    return inner if isinstance(inner, dict) else {}


@check(
    "MODEL-004",
    layer=Layer.MODEL,
    title="The config has Qwen3.5's shape: three gated-delta-net layers to one of full attention, constant rope theta",
    why="KV cache is kept in every fourth layer only; a config that lost this plans memory wrongly or decodes nonsense.",
    source=Source(
        "transformers: Qwen3.5 configuration",
        "https://huggingface.co/docs/transformers/main/en/model_doc/qwen3_5",
        "2026-11-30",
    ),
    requires=("MODEL-001",),
)
def shape(host: Probe) -> Answer:
    """layer_types, rope_parameters and partial rotary of text_config."""
    config = config_json(host)
    if config is None:
        return unknown("config.json could not be read")
    if not str(config.get("model_type", "")).startswith("qwen3_5"):
        return skip(
            "the checkpoint is not of the Qwen3.5 family",
            Evidence("model_type", str(config.get("model_type")), f"read {CONFIG}"),
        )
    text = _text(config)
    kinds = text.get("layer_types") or []
    rope = text.get("rope_parameters") or {}
    pattern = bool(kinds) and kinds == (PATTERN * len(kinds))[: len(kinds)]
    partial = rope.get("partial_rotary_factor", text.get("partial_rotary_factor"))
    seen = (
        Evidence(
            "layers",
            f"{kinds.count('linear_attention')} gated-delta-net, {kinds.count('full_attention')} full",
            f"read {CONFIG}",
        ),
        Evidence("rope theta", rope.get("rope_theta"), f"read {CONFIG}"),
        Evidence("partial rotary", partial, f"read {CONFIG}"),
        Evidence("interleaved M-RoPE", rope.get("mrope_interleaved"), f"read {CONFIG}"),
    )
    rope_right = (rope.get("rope_theta"), partial, rope.get("mrope_interleaved")) == (
        ROPE_THETA,
        PARTIAL_ROTARY,
        True,
    )
    return (
        ok(*seen)
        if pattern and rope_right
        else fail(
            *seen,
            fix=Fix("Take the config the checkpoint came with; nobody needs to edit it", risk=Risk.DATA),
        )
    )


@check(
    "MODEL-005",
    layer=Layer.MODEL,
    title="Nobody put a rope_scaling of type dynamic into the config",
    why="The articles' edit drops M-RoPE and resets theta to 10000 inside text_config, and does nothing at the top level.",
    source=Source(
        "measured: the edit's effect on vLLM 0.19.1's rotary embedding", "docs/measurements.md", "2026-11-30"
    ),
    requires=("MODEL-001",),
)
def unedited(host: Probe) -> Answer:
    """rope_scaling at both levels of config.json."""
    config = config_json(host)
    if config is None:
        return unknown("config.json could not be read")
    found = {
        place: where.get("rope_scaling")
        for place, where in (("top level", config), ("text_config", _text(config)))
    }
    seen = tuple(
        Evidence(f"rope_scaling, {place}", json.dumps(value) if value else "none", f"read {CONFIG}")
        for place, value in found.items()
    )
    edited = [
        value
        for value in found.values()
        if isinstance(value, dict) and (value.get("type") or value.get("rope_type")) == "dynamic"
    ]
    return (
        fail(
            *seen,
            fix=Fix(
                "Take the block out; longer contexts go through vLLM's own --hf-overrides", risk=Risk.DATA
            ),
        )
        if edited
        else ok(*seen)
    )


@check(
    "MODEL-016",
    layer=Layer.MODEL,
    title="The folder is a whole checkpoint, in a form that can be served",
    why="An adapter without its base, a text-only save under a class with images, or weights that are quantised and do not say so fail late.",
    source=Source(
        "vLLM: what was reported of text-only and re-saved Qwen3.5 checkpoints",
        "https://github.com/vllm-project/vllm/issues/36275",
        "2026-11-30",
    ),
)
def servable(host: Probe) -> Answer:
    """Who saved it and how: class, vision tower, adapter files, quantisation by config and by names of tensors."""
    if not host.glob(FILES):
        return skip("there is no checkpoint here yet")
    found = examined(host)
    if isinstance(found, Answer):
        return found
    if not found.part("origin"):
        return unknown("the examination says nothing of origin")
    return verdict(found.of("origin"), _origin(found), WHOLE, EXAMINE)


def _origin(found: Checkpoint) -> tuple[Evidence, ...]:
    return (
        Evidence("form", found.value("origin", "form"), EXAMINE),
        Evidence("saved by transformers", found.value("origin", "transformers") or "not said", EXAMINE),
        Evidence("quantisation", found.value("origin", "quantisation"), EXAMINE),
        Evidence("quantised tensors", found.value("origin", "quantised_tensors"), EXAMINE),
        Evidence("adapter", found.value("origin", "adapter"), EXAMINE),
        Evidence("MTP tensors", found.value("origin", "mtp_tensors"), EXAMINE),
    )


@check(
    "MODEL-019",
    layer=Layer.MODEL,
    title="config.json is sound, and its values hang together",
    why="A comma too many stops the start; heads, layers or rotary sections that do not fit are found by a worker, minutes later, or never.",
    source=Source(
        "transformers: rotary embeddings, their parameters",
        "https://huggingface.co/docs/transformers/main/en/internal/rope_utils",
        "2026-11-30",
    ),
    requires=("MODEL-001",),
)
def hangs_together(host: Probe) -> Answer:
    """JSON as Python reads it; heads, layers, rotary embedding and M-RoPE sections, tied embeddings, token ids, vision."""
    return judged(host, "config", "config", _config, ORIGINAL)


def _config(found: Checkpoint) -> tuple[Evidence, ...]:
    rope = found.table("config", "rope")
    layers = found.table("config", "layers")
    return (
        Evidence("model_type", found.value("config", "model_type"), EXAMINE),
        Evidence(
            "layers", ", ".join(f"{count} {kind}" for kind, count in layers.items()) or "of one kind", EXAMINE
        ),
        Evidence(
            "rope", ", ".join(f"{key} {value}" for key, value in rope.items() if value is not None), EXAMINE
        ),
        Evidence("vocabulary", found.value("config", "vocabulary"), EXAMINE),
    )


CHECKS = (shape, unedited, servable, hangs_together)
