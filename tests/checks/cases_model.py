"""MODEL: what follows from readings of a checkpoint. What the examination finds is shown by tests/checkpoint, on real files."""

import json
from typing import Any

from host import CPU, FAIL, MISSING, OK, OLD_CPU, SKIP, UNKNOWN, WARN, Case, Row, ran, table

FILES = "glob {model}/*"
WHOLE = tuple(
    f"{{model}}/{name}"
    for name in (
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    )
)
CONFIG, REGISTRY = "read {model}/config.json", "'{site}/vllm/model_executor/models/registry.py'"
KNOWN = f"run grep -c '\"Qwen3_5ForConditionalGeneration\"' {REGISTRY}"
ROPE: dict[str, Any] = {
    "rope_type": "default",
    "rope_theta": 10000000.0,
    "partial_rotary_factor": 0.25,
    "mrope_interleaved": True,
    "mrope_section": [2, 1, 1],
}
LAYERS = [*["linear_attention"] * 3, "full_attention"] * 2


def config(top: dict[str, Any] | None = None, **text: Any) -> str:
    """A config.json of the Qwen3.5 family; ``text`` replaces keys of text_config."""
    inner = {
        "model_type": "qwen3_5_text",
        "layer_types": LAYERS,
        "rope_parameters": ROPE,
        "partial_rotary_factor": 0.25,
        **text,
    }
    return json.dumps(
        {
            "architectures": ["Qwen3_5ForConditionalGeneration"],
            "model_type": "qwen3_5",
            "text_config": inner,
            **(top or {}),
        }
    )


TOKENIZER = "inside tokenizer_facts path='{model}'"
ENDS = "read {model}/generation_config.json"
TOKENS: dict[str, Any] = {
    "transformers": "5.19.0",
    "class": "Qwen3_5Tokenizer",
    "length": 512,
    "round_trips": [True, True, True],
    "eos": "<|im_end|>",
    "eos_id": 505,
    "template": {
        "thinking": "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n",
        "plain": "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    },
}
TRY = "inside try_engine path='{work}/models/tiny-qwen3.5'"
KNOWN_ERROR = {
    "root": "ValueError: too many values to unpack (expected 2)",
    "where": "dispatch_cpu_unquantized_gemm (utils.py)",
}

EXAMINE = "run '{own}/python' -m runbook.checkpoint '{model}'"
HASH, DISTS = f"{EXAMINE} --hash", "glob {site}/*.dist-info"
METHODS = "read {site}/vllm/model_executor/layers/quantization/__init__.py"
OLD_TRANSFORMERS = ("{site}/transformers-4.57.6.dist-info",)
REVISION = "a" * 40
FETCHED = {"revisions": {REVISION: 8}, "files": 8}
# As printed for the generated tiny-qwen3.5, in parts.
EXAMINED: dict[str, Any] = {
    "files": ["config.json", "model.safetensors"],
    "weights": {"files": 1, "bytes": 4_267_472, "tensors": 142, "parameters": 2_124_400, "types": {"BF16": 130, "F32": 12}, "read_bytes": 17_856},
    "config": {"model_type": "qwen3_5", "family": "qwen3_5", "dtype": "bfloat16", "vocabulary": 512, "layers": {"full_attention": 2, "linear_attention": 6}, "rope": {"theta": 1e7, "partial": 0.25}},
    "tokenizer": {"class": "PreTrainedTokenizerFast", "tokens": 512, "added": 9, "roles": {"eos_token": ["<|im_end|>", 505], "pad_token": ["<|endoftext|>", 503]}},
    "template": {"from": "chat_template.jinja", "ends": {"default": "<|im_start|>assistant\n<think>\n", "no user": "<think>\n"}, "thinking": "on", "tools": False, "turn": "<|im_end|>"},
    "generation": {"ends": [505, 503], "ends_from": "generation_config.json", "tokenizer_end": 505, "turn": "<|im_end|>", "turn_id": 505},
    "origin": {"transformers": None, "form": "whole", "quantisation": "none", "quantised_tensors": 0, "adapter": False, "mtp_tensors": 0},
    "hub": {"revisions": {}, "files": 0},
}  # fmt: skip


def checkpoint(*faults: list[str], **parts: Any) -> dict[str, Any]:
    """The examination of a checkpoint with these faults, and with these parts otherwise (None: not there)."""
    found = {name: value for name, value in {**EXAMINED, **parts}.items() if value is not None}
    return {EXAMINE: json.dumps({**found, "faults": list(faults)})}


def hashed(count: int, *faults: list[str]) -> str:
    """What the comparison of hashes prints."""
    return json.dumps({"hashes": {"checked": count, "not_known": 0}, "faults": list(faults)})


def quantised(method: str) -> dict[str, Any]:
    return checkpoint(origin={**EXAMINED["origin"], "quantisation": method})


def classed(name: str) -> dict[str, Any]:
    return checkpoint(tokenizer={**EXAMINED["tokenizer"], "class": name})


def backend(name: str) -> str:
    """The search for a class in the source of transformers."""
    return f"run grep -rlwE '--include=tokenization_*.py' 'class {name}' '{{site}}/transformers'"


UNREAD = (
    Row("the examination failed", UNKNOWN, {EXAMINE: ran(rc=1, err="Traceback\nMemoryError\n")}, says="MemoryError"),
    Row("the examination took too long", UNKNOWN, {EXAMINE: ran(rc=-9, timed_out=True)}, says="did not end in time"),
    Row("the folder is gone", UNKNOWN, {EXAMINE: ran(rc=2, err="the folder cannot be listed: No such file or directory")}, says="cannot be listed"),
    Row("a row that is no fault", UNKNOWN, {EXAMINE: json.dumps({**EXAMINED, "faults": [["weights/cut"]]})}, says="no JSON"),
    Row("a cut answer", UNKNOWN, {EXAMINE: json.dumps(EXAMINED)[:100]}),
)  # fmt: skip

MODEL = [
    *table(
        "MODEL-001",
        {},
        Row("whole", OK, {FILES: WHOLE}, {"files": 6, "weight files": 1, "missing": "none"}),
        Row("no weights", FAIL, {FILES: tuple(name for name in WHOLE if "safetensors" not in name)}, {"weight files": 0}),
        Row("no tokenizer", FAIL, {FILES: tuple(name for name in WHOLE if not name.endswith("/tokenizer.json"))}, {"missing": "tokenizer.json"}),
        Row("an index without its shards", FAIL, {FILES: ("{model}/config.json", "{model}/tokenizer.json", "{model}/model.safetensors.index.json")}, {"weight files": 0}),
        Row("no folder", FAIL, {FILES: ()}, {"files": 0, "missing": "config.json tokenizer.json"}),
        Row("an adapter alone", FAIL, {FILES: ("{model}/adapter_config.json", "{model}/adapter_model.safetensors")}, {"missing": "config.json tokenizer.json"}),
    ),
    *table(
        "MODEL-002",
        {},
        Row("whole", OK, checkpoint(), {"parameters": 2_124_400, "types": "BF16 F32", "tensors": 142, "files": 1, "bytes read": 17_856}),
        Row("cut", FAIL, checkpoint(["weights/cut", "model.safetensors", "ends 20 bytes before its header says, of 4268464"]), {"weights/cut": "model.safetensors ends 20 bytes before its header says, of 4268464"}),
        Row("seven faults, of which five are shown", FAIL, checkpoint(*(["weights/pointer", f"{number}.safetensors", "is a git-lfs pointer"] for number in range(7))), {"more faults": 2}),
        Row("a fault of another subject", OK, checkpoint(["index/none", "model.safetensors.index.json", "is not there"])),
        *UNREAD,
    ),
    *table(
        "MODEL-003",
        {CONFIG: config()},
        Row("known", OK, {KNOWN: "1\n"}, {"architectures": "Qwen3_5ForConditionalGeneration", "lines in the registry": "1"}),
        Row("not known", FAIL, {KNOWN: ran("0\n", rc=1)}, {"lines in the registry": "0"}, says="0.17.0"),
        Row("no architecture named", FAIL, {CONFIG: config({"architectures": []})}, {"architectures": "none"}),
        Row("architectures is null", FAIL, {CONFIG: config({"architectures": None})}),
        Row("config is no JSON", FAIL, {CONFIG: "version https://git-lfs.github.com/spec/v1\n"}, {"config.json": "no JSON object"}),
        Row("config is a list", FAIL, {CONFIG: "[]"}),
        Row("the registry moved", UNKNOWN, {KNOWN: ran(rc=2, err="grep: registry.py: No such file or directory")}),
        Row("no grep", UNKNOWN, {KNOWN: MISSING}),
    ),
    *table(
        "MODEL-004",
        {},
        Row("as published", OK, {CONFIG: config()}, {"layers": "6 gated-delta-net, 2 full", "rope theta": 1e7, "partial rotary": 0.25, "interleaved M-RoPE": True}),
        Row("the text model alone", OK, {CONFIG: json.dumps({"model_type": "qwen3_5_text", "layer_types": LAYERS, "rope_parameters": ROPE})}),
        Row("theta reset by the articles' edit", FAIL, {CONFIG: config(rope_parameters={**ROPE, "rope_theta": 10000.0})}, {"rope theta": 10000.0}),
        Row("M-RoPE lost", FAIL, {CONFIG: config(rope_parameters={"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25})}, {"interleaved M-RoPE": None}),
        Row("no rope at all", FAIL, {CONFIG: config(rope_parameters=None, partial_rotary_factor=None)}, {"rope theta": None, "partial rotary": None}),
        Row("all layers full", FAIL, {CONFIG: config(layer_types=["full_attention"] * 8)}, {"layers": "0 gated-delta-net, 8 full"}),
        Row("full attention first", FAIL, {CONFIG: config(layer_types=LAYERS[::-1])}),
        Row("no layer types", FAIL, {CONFIG: config(layer_types=None)}),
        Row("another family", SKIP, {CONFIG: json.dumps({"model_type": "qwen3"})}, {"model_type": "qwen3"}),
        Row("no config", UNKNOWN, {CONFIG: None}),
        Row("a cut config", UNKNOWN, {CONFIG: config()[:-10]}),
    ),
    *table(
        "MODEL-005",
        {},
        Row("untouched", OK, {CONFIG: config()}, {"rope_scaling, top level": "none", "rope_scaling, text_config": "none"}),
        Row("null is nothing", OK, {CONFIG: config({"rope_scaling": None})}),
        Row("the articles' edit, inside", FAIL, {CONFIG: config(rope_scaling={"type": "dynamic", "factor": 4.0})}, {"rope_scaling, text_config": '{"type": "dynamic", "factor": 4.0}'}),
        Row("the articles' edit, on top", FAIL, {CONFIG: config({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}})}),
        Row("YaRN is another matter", OK, {CONFIG: config(rope_scaling={"rope_type": "yarn", "factor": 4.0})}),
        Row("no config", UNKNOWN, {CONFIG: None}),
    ),
    *table(
        "MODEL-006",
        {ENDS: '{"eos_token_id": [505, 503], "pad_token_id": 503}\n'},
        Row("well", OK, {TOKENIZER: TOKENS}, {"class": "Qwen3_5Tokenizer", "texts that come back": "3 of 3", "end token": "<|im_end|> (505)", "generation_config ends at": "505, 503"}),
        Row("one end token, not a list", OK, {TOKENIZER: TOKENS, ENDS: '{"eos_token_id": 505}'}, {"generation_config ends at": "505"}),
        Row("another class", FAIL, {TOKENIZER: {**TOKENS, "class": "LlamaTokenizerFast", "round_trips": [True, False, False]}}, {"texts that come back": "1 of 3"}),
        Row("the template is lost", FAIL, {TOKENIZER: {**TOKENS, "template": {"thinking": "Hi", "plain": "Hi"}}}, {"template ends with": "'Hi'"}),
        Row("ends at another token", FAIL, {TOKENIZER: {**TOKENS, "eos_id": 503}, ENDS: '{"eos_token_id": [505]}'}),
        Row("no generation_config", WARN, {TOKENIZER: TOKENS, ENDS: None}, {"generation_config ends at": "not given"}),
        Row("generation_config is cut", WARN, {TOKENIZER: TOKENS, ENDS: '{"eos_token_id": [50'}),
        Row("generation_config is no object", WARN, {TOKENIZER: TOKENS, ENDS: "[]"}),
        Row("it does not load", FAIL, {TOKENIZER: {"error": "ValueError: Tokenizer class X does not exist"}}, {"error": "ValueError: Tokenizer class X does not exist"}),
    ),
    *table(
        "MODEL-007",
        {},
        Row("the known error", OK, {TRY: KNOWN_ERROR}, {"root line": KNOWN_ERROR["root"]}, stack=OLD_CPU),
        Row("it loads", FAIL, {TRY: {"loaded": True}}, {"loaded": True}, stack=OLD_CPU, says="The limit is gone"),
        Row("another error", UNKNOWN, {TRY: {"root": "OSError: no space left on device", "where": "write (io.py)"}}, stack=OLD_CPU, says="not with the known error"),
        Row("the known words elsewhere", UNKNOWN, {TRY: {**KNOWN_ERROR, "where": "main (user.py)"}}, stack=OLD_CPU),
        Row("a crash", UNKNOWN, {TRY: {"error": "the child ended without an answer (SIGKILL)", "rc": -9, "stderr": ""}}, {"root line": "the child ended without an answer (SIGKILL)"}, stack=OLD_CPU),
        Row("another stack", SKIP, {}, stack=CPU),
    ),
    *table(
        "MODEL-011",
        {},
        Row("as described", OK, checkpoint(), {"family": "qwen3_5", "tensors": 142, "type in the config": "bfloat16"}),
        Row("another vocabulary", FAIL, checkpoint(["shapes/vocabulary", "model.safetensors", "lm_head.weight has 512 rows, the config's vocab_size is 600"]), {"shapes/vocabulary": "model.safetensors lm_head.weight has 512 rows, the config's vocab_size is 600"}, says="one and the same checkpoint"),
        Row("no block for multi-token prediction", WARN, checkpoint(["shapes/mtp", "config.json", "speaks of a multi-token-prediction block"])),
        Row("another family", SKIP, checkpoint(config={**EXAMINED["config"], "family": None}), {"family": None}),
        *UNREAD,
    ),
    *table(
        "MODEL-012",
        {},
        Row("one file", OK, checkpoint(), {"index": "none", "weight files": 1}),
        Row("an index", OK, checkpoint(files=["model.safetensors.index.json"]), {"index": "there"}),
        Row("a shard is missing", FAIL, checkpoint(["index/shard", "model-00003-of-00003.safetensors", "is named by the index and not there"]), {"index/shard": "model-00003-of-00003.safetensors is named by the index and not there"}),
        Row("no index for three files", WARN, checkpoint(["index/none", "model.safetensors.index.json", "is not there for 3 weight files"]), says="3 weight files"),
        Row("the mild fault comes first", FAIL, checkpoint(["index/total-size", "i", "says 1"], ["index/key", "i", "does not name tensors"])),
        *UNREAD,
    ),
    *table(
        "MODEL-013",
        {},
        Row("fits", OK, checkpoint(), {"tokens": 512, "rows in the model": 512, "roles": "eos_token <|im_end|> (505), pad_token <|endoftext|> (503)"}),
        Row("too many tokens", FAIL, checkpoint(["tokenizer/vocabulary", "tokenizer.json", "has 1 tokens with ids up to 512, the model's vocab_size is 512"]), {"tokenizer/vocabulary": "tokenizer.json has 1 tokens with ids up to 512, the model's vocab_size is 512"}),
        Row("it was cut", FAIL, checkpoint(["tokenizer/json", "tokenizer.json", "is no JSON"], tokenizer={})),
        Row("code of its own", WARN, checkpoint(["tokenizer/remote-code", "tokenizer_config.json", "names code of its own"]), says="code of its own"),
        Row("nothing was read", UNKNOWN, checkpoint(tokenizer={}), says="says nothing of tokenizer"),
        *UNREAD,
    ),
    *table(
        "MODEL-014",
        {},
        Row("renders", OK, checkpoint(), {"taken from": "chat_template.jinja", "thinking, when not asked for": "on", "a turn ends with": "<|im_end|>", "no user message": "is rendered"}),
        Row("asks for a user", OK, checkpoint(template={**EXAMINED["template"], "ends": {"no user": "raises: No user query found in messages."}}), {"no user message": "raises: No user query found in messages."}),
        Row("none", FAIL, checkpoint(["template/none", "chat_template.jinja", "is not there"], template={}), {"template/none": "chat_template.jinja is not there"}, says="--chat-template"),
        Row("no switch", WARN, checkpoint(["template/thinking", "chat_template.jinja", "has no switch for thinking"])),
        *UNREAD,
    ),
    *table(
        "MODEL-015",
        {},
        Row("ends", OK, checkpoint(), {"a turn ends with": "<|im_end|>", "its id": 505, "answers end at": "505, 503", "given by": "generation_config.json", "tokenizer's end": 505}),
        Row("at another token", FAIL, checkpoint(["generation/end", "generation_config.json", "ends at 503 (<|endoftext|>)"]), {"generation/end": "generation_config.json ends at 503 (<|endoftext|>)"}, says="stop_token_ids"),
        Row("no generation_config", WARN, checkpoint(["generation/none", "generation_config.json", "is not there"])),
        *UNREAD,
    ),
    *table(
        "MODEL-016",
        {FILES: WHOLE},
        Row("whole", OK, checkpoint(), {"form": "whole", "quantisation": "none", "adapter": False}),
        Row("an adapter alone", FAIL, checkpoint(["origin/adapter", "adapter_config.json", "makes this a LoRA adapter alone; its base is Qwen/Qwen3.5-4B"]), {"origin/adapter": "adapter_config.json makes this a LoRA adapter alone; its base is Qwen/Qwen3.5-4B"}),
        Row("a text-only save", WARN, checkpoint(["origin/text-only", "config.json", "names Qwen3_5ForCausalLM"])),
        Row("no checkpoint", SKIP, {FILES: ()}),
        Row("nothing was read", UNKNOWN, checkpoint(origin=None)),
        *UNREAD,
    ),
    *table(
        "MODEL-017",
        checkpoint(hub=FETCHED),
        Row("every hash", OK, {HASH: hashed(8)}, {"files with the hub's hash": 8}),
        Row("a bit flipped", FAIL, {HASH: hashed(8, ["hashes/other", "model.safetensors", "has the hash 1234..."])}, {"hashes/other": "model.safetensors has the hash 1234..."}),
        Row("generated here", SKIP, checkpoint(), {"files the hub gave a hash for": 0}),
        Row("headers alone", SKIP, checkpoint(hub={**FETCHED, "skeleton": True}), {"skeleton": True}),
        Row("no file could be compared", UNKNOWN, {HASH: hashed(0)}),
        Row("it did not end", UNKNOWN, {HASH: ran(rc=-9, timed_out=True)}, says="did not end in time"),
        *UNREAD,
    ),
    *table(
        "MODEL-018",
        {},
        Row("one revision", OK, checkpoint(hub=FETCHED), {"revision": REVISION, "files with a revision": 8}),
        Row("a commit for each file", OK, checkpoint(hub={"revisions": {REVISION: 7, "b" * 40: 1}, "files": 8, "source": "modelscope", "repo": "Qwen/Qwen3.5-4B", "revision": "master"}), {"repository": "Qwen/Qwen3.5-4B", "revision": "master on ModelScope, a commit for each file"}),
        Row("two revisions", FAIL, checkpoint(["hashes/revisions", "config.json", "and others are of several revisions: 2"], hub={"revisions": {REVISION: 7, "b" * 40: 1}, "files": 8}), {"revision": f"{REVISION} {'b' * 40}"}, says="one revision named"),
        Row("generated here", SKIP, checkpoint(), {"revision": "not known"}, says="generated here"),
        Row("nothing was read", UNKNOWN, checkpoint(hub=None)),
        *UNREAD,
    ),
    *table(
        "MODEL-019",
        {},
        Row("hangs together", OK, checkpoint(), {"model_type": "qwen3_5", "layers": "2 full_attention, 6 linear_attention", "vocabulary": 512}),
        Row("a comma too many", FAIL, checkpoint(["config/json", "config.json", "is no JSON"], config={}), {"config/json": "config.json is no JSON"}, says="nobody needs to edit it"),
        Row("an edit that does nothing", WARN, checkpoint(["config/rope-scaling-idle", "config.json", "rope_scaling stands outside text_config"])),
        *UNREAD,
    ),
    *table(
        "MODEL-020",
        {DISTS: ("{site}/transformers-5.19.0.dist-info",)},
        Row("plain", OK, checkpoint(), {"quantisation": "none", "tokenizer class": "PreTrainedTokenizerFast", "transformers": "5.19.0"}),
        Row("FP8", OK, {**quantised("fp8"), METHODS: '    "awq",\n    "fp8",\n'}, {"quantisation": "fp8", "in vLLM's list": True}),
        Row("a quantisation that this vLLM dropped", FAIL, {**quantised("gguf"), METHODS: '    "awq",\n    "fp8",\n'}, {"in vLLM's list": False}, says="that this vLLM lists"),
        Row("the list moved", UNKNOWN, {**quantised("fp8"), METHODS: None}),
        Row("transformers 5 takes any class", OK, classed("TokenizersBackend")),
        Row("transformers 4 has no such class", FAIL, {**classed("TokenizersBackend"), DISTS: OLD_TRANSFORMERS, backend("TokenizersBackend"): ran(rc=1)}, {"files that define it": 0}, says="transformers 5"),
        Row("transformers 4 has the class", OK, {**classed("Qwen2Tokenizer"), DISTS: OLD_TRANSFORMERS, backend("Qwen2Tokenizer"): "{site}/transformers/models/qwen2/tokenization_qwen2.py\n"}, {"files that define it": 1}),
        Row("a class that is no name", FAIL, {**classed("a b|c"), DISTS: OLD_TRANSFORMERS}),
        Row("no grep", UNKNOWN, {**classed("Qwen2Tokenizer"), DISTS: OLD_TRANSFORMERS, backend("Qwen2Tokenizer"): MISSING}),
        Row("no transformers", UNKNOWN, {**checkpoint(), DISTS: ()}),
        Row("nothing was read", UNKNOWN, checkpoint(origin=None)),
        *UNREAD,
    ),
]  # fmt: skip

CASES: list[Case] = MODEL
