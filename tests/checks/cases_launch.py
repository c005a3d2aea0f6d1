"""SERVE-011 and SERVE-012: what a server was started with, against the model and against the engine's own line."""

import json

from host import CPU, FAIL, GPU, OK, OLD_CPU, UNKNOWN, WARN, Case, Row, ran, table

BOOT, LOG = "read {work}/jobs/server.boot.json", "read {work}/jobs/server.log"
CONFIG = "read {model}/config.json"
EXAMINE = "run '{own}/python' -m runbook.checkpoint '{model}'"
MODULE = "{python} -m vllm.entrypoints.openai.api_server --model {model} --served-model-name served"
QWEN = json.dumps({"model_type": "qwen3_5"})
OFF = "--default-chat-template-kwargs '{\"enable_thinking\": false}'"


def booted(flags: str, stack: str = CPU) -> str:
    return json.dumps({"stack": stack, "model": "m", "ready_s": 30.1, "command": f"{MODULE} {flags}".strip()})


def template(thinking: str) -> str:
    return json.dumps({"template": {"from": "chat_template.jinja", "thinking": thinking}, "faults": []})


PARSER = booted("--reasoning-parser qwen3")
THINKS, DOES_NOT = template("on"), template("off")

PARSERS = table(
    "SERVE-011",
    {BOOT: PARSER, CONFIG: QWEN, EXAMINE: THINKS},
    Row("thinks, and is split", OK, {}, {"--reasoning-parser": "qwen3", "template thinks by default": "on", "parser of the family": "qwen3"}),
    Row("no parser", OK, {BOOT: booted(""), EXAMINE: DOES_NOT}, {"--reasoning-parser": "none"}),
    Row("does not think, and the parser was not told", FAIL, {EXAMINE: DOES_NOT}, {"enable_thinking by default": "not set"}, says="P01"),
    Row("the same on the other release", FAIL, {BOOT: booted("--reasoning-parser=qwen3", OLD_CPU), EXAMINE: DOES_NOT}, stack=OLD_CPU, says="leave the parser out"),
    Row("does not think, and the parser knows", OK, {BOOT: booted(f"--reasoning-parser qwen3 {OFF}"), EXAMINE: DOES_NOT}, {"enable_thinking by default": False}),
    Row("written with underscores", FAIL, {BOOT: booted("--reasoning_parser qwen3"), EXAMINE: DOES_NOT}),
    Row("no switch for thinking", WARN, {EXAMINE: template("no switch")}, says="no switch"),
    Row("another family's parser", WARN, {BOOT: booted("--reasoning-parser deepseek_r1")}, says="qwen3"),
    Row("a family that is not on record", OK, {BOOT: booted("--reasoning-parser qwen3"), CONFIG: '{"model_type": "llama"}'}, {"parser of the family": "none on record"}),
    Row("the template was not read", UNKNOWN, {EXAMINE: '{"template": {}, "faults": []}'}, says="could not be read"),
    Row("the checkpoint was not read", UNKNOWN, {EXAMINE: ran("", rc=1, err="x")}, says="could not be examined"),
    Row("no boot record", UNKNOWN, {BOOT: None}, says="names no command"),
    Row("an odd boot record", UNKNOWN, {BOOT: '{"command": "\'"}'}, says="names no command"),
    Row("a command that starts no vLLM", UNKNOWN, {BOOT: '{"command": "python -m http.server"}'}, says="cannot be read"),
)  # fmt: skip


def line(version: str = "0.32.0", **changes: str) -> str:
    """The engine's line, much shortened but in its form: nested objects, quotes and names of types among the values."""
    values = {
        "model": "'{model}'", "speculative_config": "None", "dtype": "torch.bfloat16", "max_seq_len": "2048",
        "tensor_parallel_size": "1", "quantization": "None", "enforce_eager": "True",
        "aux_output_config": "AuxOutputConfig(enable_return_routed_experts=False, max_bytes=None)",
        "kv_cache_dtype": "auto", "device_config": "cpu",
        "structured_outputs_config": "StructuredOutputsConfig(backend='auto', reasoning_parser='', enable_in_reasoning=False)",
        "seed": "0", "enable_prefix_caching": "True", "enable_chunked_prefill": "True",
        "compilation_config": "{'mode': <CompilationMode.NONE: 0>, 'splitting_ops': [], 'pass_config': {'a': True}}",
        **changes,
    }  # fmt: skip
    said = ", ".join(f"{name}={value}" for name, value in values.items())
    return f"(EngineCore pid=9) INFO 11-30 17:27:11 [core.py:133] Initializing a V1 LLM engine (v{version}) with config: {said}\n"


ASKED = booted("--max-model-len 2048 --enforce-eager")
ENGINE = table(
    "SERVE-012",
    {BOOT: ASKED, LOG: line()},
    Row("as asked", OK, {}, {"asked for, and in its line": 2, "computes on": "cpu", "max_seq_len": "2048", "enable_prefix_caching": "True"}),
    Row("8k is 8000", OK, {BOOT: booted("--max-model-len 8k"), LOG: line(max_seq_len="8000")}, {"max_seq_len": "8000"}),
    Row("nothing asked", OK, {BOOT: booted("")}, {"asked for, and in its line": 0}),
    Row("auto asks for nothing", OK, {BOOT: booted("--dtype auto --kv-cache-dtype auto")}),
    Row("half is float16", OK, {BOOT: booted("--dtype half"), LOG: line(dtype="torch.float16")}, {"dtype": "torch.float16"}),
    Row("another type", WARN, {BOOT: booted("--dtype float32")}, {"dtype asked for": "torch.float32"}, says="torch.float32 was asked for"),
    Row("no prefix cache", WARN, {BOOT: booted("--enable-prefix-caching"), LOG: line(enable_prefix_caching="False")}, {"enable_prefix_caching asked for": "True"}),
    Row("a prefix cache all the same", WARN, {BOOT: booted("--no-enable-prefix-caching")}, {"enable_prefix_caching asked for": "False"}),
    Row("a shorter context", WARN, {LOG: line(max_seq_len="1024")}, {"max_seq_len asked for": "2048"}, says="1024"),
    Row("the parser that was asked for", OK, {BOOT: booted("--reasoning-parser qwen3"), LOG: line(structured_outputs_config="StructuredOutputsConfig(backend='auto', reasoning_parser='qwen3')")}, {"asked for, and in its line": 1}),
    Row("the last start counts", WARN, {LOG: line() + line(max_seq_len="1024")}),
    Row("on another device", FAIL, {BOOT: booted("", GPU), LOG: line("0.19.1")}, stack=GPU, says="it computes on cpu"),
    Row("no such line", UNKNOWN, {LOG: "INFO up\n"}, says="no line of the engine"),
    Row("no log", UNKNOWN, {LOG: None}),
    Row("no boot record", UNKNOWN, {BOOT: None}),
)  # fmt: skip

CASES: list[Case] = [*PARSERS, *ENGINE]
