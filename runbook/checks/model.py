"""MODEL: is the checkpoint whole, does this vLLM know it, and does its tokenizer say what was meant?"""

import json
from typing import Any

from runbook.checks.readings import stack_of
from runbook.model import (
    Answer,
    Cost,
    Evidence,
    Fix,
    Layer,
    Risk,
    Source,
    check,
    fail,
    ok,
    skip,
    unknown,
    warn,
)
from runbook.probe import Probe
from runbook.probes import questions

CONFIG = "{model}/config.json"
REGISTRY = "{site}/vllm/model_executor/models/registry.py"
FACTS = "inside checkpoint_facts path={model}"
MAKE = Fix("Generate or fetch it again", ("runbook run 07_model",), Risk.DATA)
NEEDED = ("config.json", "tokenizer.json")
PATTERN = ["linear_attention"] * 3 + ["full_attention"]
ROPE_THETA = 10_000_000
PARTIAL_ROTARY = 0.25
LIMIT_MODEL = "{work}/models/tiny-qwen3.5"
LIMIT_STACK = "vllm-0.19.1-cpu"


def _config(host: Probe) -> dict[str, Any] | None:
    try:
        config = json.loads(host.read_text(CONFIG) or "")
    except ValueError:
        return None
    return config if isinstance(config, dict) else None


def _text(config: dict[str, Any]) -> dict[str, Any]:
    inner = config.get("text_config", config)
    return inner if isinstance(inner, dict) else {}


@check(
    "MODEL-001",
    layer=Layer.MODEL,
    title="The checkpoint folder holds a config, a tokenizer and weights",
    why="A download that was cut leaves a folder that looks right until the engine is half started.",
    source=Source(
        "transformers: files of a checkpoint",
        "https://huggingface.co/docs/transformers/main/en/models",
        "2026-11-30",
    ),
    needs_target=True,
)
def there(host: Probe) -> Answer:
    """File names of the folder."""
    files = [path.rsplit("/", 1)[1] for path in host.glob("{model}/*")]
    weights = [name for name in files if name.endswith(".safetensors")]
    missing = [name for name in NEEDED if name not in files]
    seen = (
        Evidence("files", len(files), "glob {model}/*"),
        Evidence("weight files", len(weights), "glob {model}/*"),
        Evidence("missing", " ".join(missing) or "none", "glob {model}/*"),
    )
    return fail(*seen, fix=MAKE) if missing or not weights else ok(*seen)


@check(
    "MODEL-002",
    layer=Layer.MODEL,
    title="Every weight file is as long as its header says, and none is missing from the index",
    why="A truncated shard or a git-lfs pointer fails minutes later, with an error that names neither.",
    source=Source("safetensors: the format", "https://huggingface.co/docs/safetensors/index", "2026-11-30"),
    cost=Cost.INSIDE,
    needs_target=True,
    requires=("MODEL-001",),
)
def whole(host: Probe) -> Answer:
    """Headers against file sizes, shapes against byte ranges, index against tensors."""
    facts = host.inside("checkpoint_facts", {"path": "{model}"})
    if "error" in facts:
        return fail(Evidence("error", str(facts["error"]), FACTS), fix=MAKE)
    seen = [
        Evidence("parameters", facts["parameters"], FACTS),
        Evidence("types", " ".join(facts["dtypes"]), FACTS),
        Evidence("tensors", facts["tensors"], FACTS),
        Evidence("missing from files", facts["missing_count"], FACTS),
    ]
    if facts["errors"] or facts["missing_count"]:
        return fail(*seen, Evidence("first fault", (facts["errors"] or facts["missing"])[0], FACTS), fix=MAKE)
    return ok(*seen)


@check(
    "MODEL-003",
    layer=Layer.MODEL,
    title="vLLM's registry holds the checkpoint's architecture",
    why="Otherwise the start ends in 'Model architectures ... are not supported for now'.",
    source=Source(
        "vLLM: supported models", "https://docs.vllm.ai/en/stable/models/supported_models/", "2026-11-30"
    ),
    needs_target=True,
    requires=("MODEL-001", "VLLM-001"),
)
def known(host: Probe) -> Answer:
    """``architectures`` of config.json, looked for as text: no import is needed to see a name in the registry."""
    config = _config(host)
    if config is None:
        return fail(Evidence("config.json", "no JSON object", f"read {CONFIG}"), fix=MAKE)
    named = [str(name) for name in config.get("architectures") or ()]
    asks = [["grep", "-c", f'"{name}"', REGISTRY] for name in named]
    found = [host.run(ask) for ask in asks]
    seen = (
        Evidence("architectures", " ".join(named) or "none", f"read {CONFIG}"),
        Evidence(
            "lines in the registry",
            " ".join(ran.out.strip() for ran in found),
            questions.run(asks[0]) if asks else "",
        ),
    )
    no_such_file = 2
    if any(ran.missing or ran.rc >= no_such_file for ran in found):
        return unknown("the registry is not where this release should have it", *seen)
    if any(ran.ok for ran in found):
        return ok(*seen)
    return fail(
        *seen,
        fix=Fix(
            "Take a vLLM that knows it (Qwen3.5: 0.17.0 or newer), or the official checkpoint",
            risk=Risk.REBUILD,
        ),
    )


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
    needs_target=True,
    requires=("MODEL-001",),
)
def shape(host: Probe) -> Answer:
    """layer_types, rope_parameters and partial rotary of text_config."""
    config = _config(host)
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
    needs_target=True,
    requires=("MODEL-001",),
)
def unedited(host: Probe) -> Answer:
    """rope_scaling at both levels of config.json."""
    config = _config(host)
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
    "MODEL-006",
    layer=Layer.MODEL,
    title="The tokenizer loads, gives text back unchanged, and its chat template renders",
    why="A foreign tokenizer class or a lost template shows as empty or endless answers, not as an error.",
    source=Source(
        "transformers: chat templates",
        "https://huggingface.co/docs/transformers/main/en/chat_templating",
        "2026-11-30",
    ),
    cost=Cost.INSIDE,
    needs_target=True,
    requires=("MODEL-001",),
)
def tokenizer(host: Probe) -> Answer:
    """Round trips in English, Chinese and emoji; the template with thinking on and off; the end token against generation_config."""
    origin = "inside tokenizer_facts path={model}"
    facts = host.inside("tokenizer_facts", {"path": "{model}"})
    if "error" in facts:
        return fail(Evidence("error", str(facts["error"]), origin), fix=MAKE)
    try:
        given = json.loads(host.read_text("{model}/generation_config.json") or "{}")
    except ValueError:
        given = None
    ends = given.get("eos_token_id") if isinstance(given, dict) else None
    listed = ends if isinstance(ends, list) else [ends]
    seen = (
        Evidence("class", facts["class"], origin),
        Evidence(
            "texts that come back", f"{sum(facts['round_trips'])} of {len(facts['round_trips'])}", origin
        ),
        Evidence("end token", f"{facts['eos']} ({facts['eos_id']})", origin),
        Evidence(
            "generation_config ends at",
            ", ".join(str(each) for each in listed if each is not None) or "not given",
            "read {model}/generation_config.json",
        ),
        Evidence("template ends with", repr(facts["template"]["plain"][-32:]), origin),
    )
    if not all(facts["round_trips"]) or "assistant" not in facts["template"]["plain"]:
        return fail(*seen, fix=MAKE)
    if ends is None:
        return warn(
            *seen, reason="without generation_config.json the server samples and stops by its own defaults"
        )
    return ok(*seen) if facts["eos_id"] in listed else fail(*seen, fix=MAKE)


@check(
    "MODEL-007",
    layer=Layer.MODEL,
    title="vLLM 0.19.1's CPU build rejects Qwen3.5 with the known error",
    why="It is why the rehearsal serves Qwen3.5 on 0.32.0; the day this check fails, the rehearsal can use the pinned release.",
    source=Source("measured here by running into it", "docs/measurements.md", "2026-11-30"),
    cost=Cost.SLOW,
    needs_target=True,
    requires=("VLLM-001",),
)
def known_limit(host: Probe) -> Answer:
    """Load the tiny Qwen3.5 in one process of the target and read the root line of what it says."""
    if stack_of(host).name != LIMIT_STACK:
        return skip(f"the limit is one of the stack {LIMIT_STACK}")
    origin = f"inside try_engine path={LIMIT_MODEL}"
    facts = host.inside("try_engine", {"path": LIMIT_MODEL}, timeout_s=240.0)
    if facts.get("loaded"):
        return fail(
            Evidence("loaded", value=True, origin=origin),
            fix=Fix("The limit is gone: let the rehearsal serve Qwen3.5 on this stack and retire this check"),
        )
    root = str(facts.get("root", facts.get("error", "")))
    seen = (Evidence("root line", root, origin), Evidence("raised in", facts.get("where"), origin))
    if root.startswith("ValueError") and str(facts.get("where")).startswith("dispatch_cpu_unquantized_gemm"):
        return ok(*seen)
    return unknown("it fails, but not with the known error", *seen)


CHECKS = (there, whole, known, shape, unedited, tokenizer, known_limit)
