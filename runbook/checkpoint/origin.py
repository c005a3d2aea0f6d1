"""Who saved the checkpoint and in which form: whole or text-only, adapter or merged, plain or quantised.

Marks of quantisers: ``quantization_config`` of config.json, ModelOpt's ``hf_quant_config.json``, and tensors of names that
only quantised layers have (https://huggingface.co/docs/transformers/main/en/quantization/overview).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from runbook.checkpoint import files, shapes, tensors
from runbook.checkpoint.config import NAME, Config
from runbook.checkpoint.faults import Fault, few, line
from runbook.checkpoint.files import Unusable
from runbook.checkpoint.headers import Weights

ADAPTER, MODELOPT = "adapter_config.json", "hf_quant_config.json"
# Values of quant_method that some vLLM from 0.17.0 to 0.32.0 loads; MODEL-020 asks the one at hand.
METHODS = frozenset(
    [
        "awq",
        "awq_marlin",
        "auto_awq",
        "bitsandbytes",
        "compressed-tensors",
        "experts_int8",
        "fbgemm_fp8",
        "fp8",
        "fp_quant",
        "gguf",
        "gptq",
        "gptq_marlin",
        "auto_gptq",
        "auto-round",
        "humming",
        "inc",
        "modelopt",
        "modelopt_fp4",
        "modelopt_mixed",
        "modelopt_mxfp8",
        "moe_wna16",
        "mxfp4",
        "mxfp8",
        "petit_nvfp4",
        "quark",
        "torchao",
    ]
)
LOW_BIT = {"F8_E4M3", "F8_E5M2", "F4", "F6_E2M3", "F6_E3M2", "F8_E8M0"}
TEXT_CLASSES = ("Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM")
PICKLES = (".bin", ".pt", ".pth")


def read(
    folder: Path, present: tuple[str, ...], config: Config | None, weights: Weights
) -> tuple[dict[str, Any], list[Fault]]:
    """(facts, faults)."""
    faults: list[Fault] = []
    given = _quantisation(folder, present, config, faults)
    method = given.get("quant_method") or given.get("quant_algo")
    parts = sorted(name for name in weights.tensors if tensors.stems(name))
    low = sorted(name for name, one in weights.tensors.items() if one.dtype in LOW_BIT)
    generation = config.whole.get("transformers_version") if config else None
    facts = {
        "transformers": line(generation) if isinstance(generation, str) else None,
        "form": _form(config, weights),
        "quantisation": line(method) if isinstance(method, str) else "none",
        "quantised_tensors": len({*parts, *low}),
        "adapter": ADAPTER in present,
        "mtp_tensors": sum(name.startswith("mtp.") for name in weights.tensors),
    }
    return facts, [
        *faults,
        *_files(present, weights),
        *(_adapter(folder, config) if ADAPTER in present else ()),
        *(_class(config, weights) if config else ()),
        *(_method(given, method, [*parts, *low]) if config else ()),
    ]


def _quantisation(
    folder: Path, present: tuple[str, ...], config: Config | None, faults: list[Fault]
) -> Mapping[str, Any]:
    """What is said about quantisation: in config.json, at either level, or in ModelOpt's own file."""
    for where in (config.whole, config.text) if config else ():
        given = where.get("quantization_config") or where.get("compression_config")
        if isinstance(given, dict):
            return given
    if MODELOPT not in present:
        return {}
    try:
        inner = files.json_object(folder, MODELOPT, "origin").get("quantization")
    except Unusable as why:
        faults.append(why.fault)
        return {}
    return {"quant_method": "modelopt", **inner} if isinstance(inner, dict) else {}


def _form(config: Config | None, weights: Weights) -> str:
    """``whole``, ``text only``, ``without vision`` (a class with images, and no tower), or ``other``."""
    if config is None or config.family is None:
        return "other"
    if config.family == shapes.PLAIN or all(name in TEXT_CLASSES for name in config.architectures):
        return "text only"
    tower = any(".visual." in name or name.startswith("visual.") for name in weights.tensors)
    return "whole" if config.vision and (tower or not weights.tensors) else "without vision"


def _files(present: tuple[str, ...], weights: Weights) -> Iterator[Fault]:
    """Weights in another format than safetensors."""
    for suffixes, what in (((".gguf",), "gguf"), (PICKLES, "pickle")):
        found = [
            name
            for name in present
            if name.endswith(suffixes) and name not in {"training_args.bin", "optimizer.pt", "scheduler.pt"}
        ]
        if not found:
            continue
        if not weights.files:
            how = (
                "vLLM takes the file itself, not its folder"
                if what == "gguf"
                else "code can hide in it; publishers give safetensors"
            )
            yield Fault(f"origin/{what}", found[0], f"is all there is of weights: {how}")
        elif what == "pickle":
            yield Fault(
                "origin/pickle-beside",
                found[0],
                f"lies beside safetensors files and is not loaded: {few(found)}",
            )


def _adapter(folder: Path, config: Config | None) -> Iterator[Fault]:
    try:
        base = files.json_object(folder, ADAPTER, "origin").get("base_model_name_or_path")
    except Unusable as why:
        yield why.fault
        return
    if config is None:
        yield Fault("origin/adapter", ADAPTER, f"makes this a LoRA adapter alone; its base is {line(base)}")
    else:
        yield Fault(
            "origin/adapter-beside",
            ADAPTER,
            f"is an adapter to {line(base)} beside a whole checkpoint: only the checkpoint is loaded",
        )


def _class(config: Config, weights: Weights) -> Iterator[Fault]:
    """A text-only class over a whole model, a whole class over a text-only one, or a text-only save as such."""
    if config.family not in (shapes.DENSE, shapes.SPARSE):
        return
    tower = any(".visual." in name or name.startswith("visual.") for name in weights.tensors)
    named = ", ".join(config.architectures)
    if any(name in TEXT_CLASSES for name in config.architectures):
        if tower or config.vision or "text_config" in config.whole:
            yield Fault(
                "origin/class",
                NAME,
                f"names {named}, a class without images, over a checkpoint with a vision tower",
            )
        else:
            yield Fault(
                "origin/text-only",
                NAME,
                f"names {named}: vLLM has it from a release between 0.27 and 0.32 on, 0.19.1 refuses it",
            )
    elif not config.vision or (weights.tensors and not tower):
        yield Fault(
            "origin/rewrapped",
            NAME,
            f"names {named}, a class with images, and there is no vision tower: start with --language-model-only",
        )


def _method(given: Mapping[str, Any], method: object, parts: list[str]) -> Iterator[Fault]:
    if given and not (isinstance(method, str) and method.lower() in METHODS) and not _is_algorithm(given):
        yield Fault(
            "origin/quantisation-unknown",
            NAME,
            f"speaks of a quantisation that no vLLM loads: {line(method)}",
        )
    if not given and parts:
        yield Fault(
            "origin/quantisation-unsaid",
            NAME,
            f"says nothing of quantisation, and tensors are quantised: {few(parts)}",
        )
    if given and not parts and not _on_the_fly(method):
        yield Fault(
            "origin/quantisation-unseen",
            NAME,
            f"says {line(method)}, and no tensor is quantised: the weights are plain ones",
        )


def _is_algorithm(given: Mapping[str, Any]) -> bool:
    """ModelOpt names an algorithm, such as NVFP4, and no method; vLLM takes it for its own."""
    return isinstance(given.get("quant_algo"), str) and "quant_method" not in given


def _on_the_fly(method: object) -> bool:
    """Methods that quantise plain weights while they are loaded, or keep no mark in the names of tensors."""
    return method in {"bitsandbytes", "torchao", "experts_int8", "quark", "mxfp4"}
