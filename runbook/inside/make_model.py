"""Write a tiny random Qwen3.5 or Qwen3 checkpoint from a seed, byte for byte the same everywhere.

Run by the target interpreter as ``python make_model.py --kind tiny-qwen3.5 --out DIR [--seed 0]``. It prints
one JSON object and nothing else; with an "error" key and exit code 2 when it cannot do what was asked.

It needs the standard library only, so no release of torch, transformers or safetensors can change a byte.
The weights mean nothing; their names, shapes and types are those of a real checkpoint. The rules come from:

* file format: https://github.com/huggingface/safetensors#format
* names, shapes, config keys: https://huggingface.co/docs/transformers/model_doc/qwen3_5 and .../qwen3
* head sizes, measured with vLLM 0.32.0 on a CPU: attention takes 32, the gated delta net 64. With 32 there it
  loads, answers /health, and dies on the first prompt ("Unexpected head dim size, 32").
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
import re
import shutil
import struct
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

Shape = tuple[int, ...]

# Ids 0..255 are bytes, then merges, then these; the vocabulary has no unused id.
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"]
SPECIALS += ["<|image_pad|>", "<|video_pad|>", "<think>", "</think>"]
VOCAB = 512
FIRST_SPECIAL = VOCAB - len(SPECIALS)  # 503: endoftext; 505, im_end, ends an answer
FLOAT32 = ("A_log", "linear_attn.norm.weight")  # as in real checkpoints; all else is bfloat16

# Widths and counts in elements, positions in tokens.
QWEN3 = """{
  "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "bfloat16",
  "vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "attention_bias": false,
  "tie_word_embeddings": false, "hidden_act": "silu", "rms_norm_eps": 1e-06, "max_position_embeddings": 32768,
  "rope_theta": 1000000.0, "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
  "bos_token_id": null, "eos_token_id": 505, "pad_token_id": 503
}
"""
# A quarter of each attention head is rotated: 32 * 0.25 / 2 = 4 frequencies, which mrope_section shares out.
QWEN35 = """{
  "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "tie_word_embeddings": false,
  "image_token_id": 508, "video_token_id": 509, "vision_start_token_id": 506, "vision_end_token_id": 507,
  "text_config": {
    "model_type": "qwen3_5_text", "dtype": "bfloat16", "mamba_ssm_dtype": "float32",
    "vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 8,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention",
                    "linear_attention", "linear_attention", "linear_attention", "full_attention"],
    "full_attention_interval": 4, "mtp_num_hidden_layers": 0, "attention_bias": false,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "partial_rotary_factor": 0.25,
    "linear_num_key_heads": 2, "linear_key_head_dim": 64, "linear_num_value_heads": 4,
    "linear_value_head_dim": 64, "linear_conv_kernel_dim": 4, "attn_output_gate": true,
    "hidden_act": "silu", "rms_norm_eps": 1e-06, "max_position_embeddings": 32768,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000000.0, "partial_rotary_factor": 0.25,
                        "mrope_interleaved": true, "mrope_section": [2, 1, 1]},
    "bos_token_id": null, "eos_token_id": 505, "pad_token_id": 503, "tie_word_embeddings": false
  },
  "vision_config": {
    "model_type": "qwen3_5", "depth": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 2,
    "out_hidden_size": 128, "in_channels": 3, "patch_size": 16, "spatial_merge_size": 2,
    "temporal_patch_size": 2, "num_position_embeddings": 64, "hidden_act": "gelu_pytorch_tanh",
    "deepstack_visual_indexes": []
  }
}
"""
ENDS = '{"eos_token_id": [505, 503], "pad_token_id": 503}\n'
TOKENIZER = """{
  "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 32768, "unk_token": null,
  "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "clean_up_tokenization_spaces": false
}
"""
PIXELS = """{
  "WHAT_type": "NAME", "processor_class": "Qwen3VLProcessor",
  "patch_size": 16, "merge_size": 2, "temporal_patch_size": 2, "image_mean": [0.5, 0.5, 0.5],
  "image_std": [0.5, 0.5, 0.5], "size": {"shortest_edge": 1024, "longest_edge": 65536}
}
"""
# ChatML. OPENING follows the assistant's name: Qwen3.5 opens the thinking block, Qwen3 lets the model do it.
TEMPLATE = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if message.content is string and message.role == 'assistant' -%}
{{- message.content.split('</think>')[-1].lstrip() -}}
{%- elif message.content is string -%}{{- message.content -}}
{%- elif message.content -%}
{%- for part in message.content -%}
{%- if part.type in ['image', 'image_url'] -%}<|vision_start|><|image_pad|><|vision_end|>
{%- elif part.type in ['video', 'video_url'] -%}<|vision_start|><|video_pad|><|vision_end|>
{%- else -%}{{- part.text -}}{%- endif -%}
{%- endfor -%}{%- endif -%}{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}
{%- if enable_thinking is defined and not enable_thinking -%}{{- '<think>\\n\\n</think>\\n\\n' -}}
{%- else -%}{{- 'OPENING' -}}{%- endif -%}{%- endif -%}
"""
# The merges are learnt from this text, so common words of the runbook become one or two tokens.
CORPUS = """\
The server reads the weights, reserves memory for the cache, captures its graphs and only then opens the port.
A healthy answer means that the engine is alive; it does not mean that the first request will be fast.
Ask one question of the machine, write down the reading, and give a verdict with the evidence beside it.
When two numbers disagree, measure again before you change anything, and change only one thing at a time.
The driver is older than the library, the library is older than the compiler, and the message names neither.
Warm the model with a short prompt and a normal prompt, then measure the time to the first token.
The user asks, the assistant thinks, the system waits. What is the capital of France? Hello, world!
If the process stops, look for the first error in the log; the last one is only its shadow.
"""


class UnusableError(Exception):
    """The request cannot be carried out; the text says why."""


class Arguments(argparse.ArgumentParser):
    """A parser whose complaints become JSON on stdout, like every other answer of this script."""

    def error(self, message: str) -> NoReturn:
        """Hand the complaint to main()."""
        raise UnusableError(message)


def byte_symbols() -> list[str]:
    """Name each byte's stand-in: printable bytes as they are, the others from code point 256 on."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = map(chr, range(256, 512))
    return [chr(value) if value in plain else next(others) for value in range(256)]


def learn_merges(count: int) -> list[tuple[str, str]]:
    """Byte pair encoding: the first merges on CORPUS; of equally frequent pairs the one that sorts last."""
    symbols = byte_symbols()
    pieces = re.findall(r" ?[A-Za-z]+| ?[^A-Za-z\s]+|\s", CORPUS)
    words = [[symbols[byte] for byte in piece.encode()] for piece in pieces]
    merges: list[tuple[str, str]] = []
    while len(merges) < count:
        pairs = Counter(pair for word in words for pair in itertools.pairwise(word))
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        for word in words:
            place = 0
            while place + 1 < len(word):
                if (word[place], word[place + 1]) == best:
                    word[place : place + 2] = ["".join(best)]
                place += 1
    return merges


def build_tokenizer() -> tuple[str, list[int]]:
    """The text of tokenizer.json, and the ids that decode to printable ASCII."""
    merges = learn_merges(FIRST_SPECIAL - 256)
    entries = [*byte_symbols(), *(left + right for left, right in merges)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": FIRST_SPECIAL + place, "content": token, "special": "think" not in token, **plain}
        for place, token in enumerate(SPECIALS)
    ]
    model = {"type": "BPE", "vocab": {entry: n for n, entry in enumerate(entries)}, "merges": merges}
    roles = dict.fromkeys(["pre_tokenizer", "post_processor", "decoder"], byte_level)
    document = {"version": "1.0", "added_tokens": added, "normalizer": None, **roles, "model": model}
    readable = {byte_symbols()[32], *map(chr, range(33, 127))}
    ids = [number for number, entry in enumerate(entries) if readable.issuperset(entry)]
    return json.dumps(document, indent=1) + "\n", ids


def text_shapes(config: dict[str, Any]) -> dict[str, Shape]:
    """Names and shapes of the language model. Matrices are (out, in); a norm or bias is (width,)."""
    hybrid = "text_config" in config
    text, body = (config["text_config"], "model.language_model") if hybrid else (config, "model")
    width, inner, head = text["hidden_size"], text["intermediate_size"], text["head_dim"]
    heads, kv = text["num_attention_heads"] * head, text["num_key_value_heads"] * head
    shapes: dict[str, Shape] = {"lm_head.weight": (VOCAB, width)}
    shapes |= {f"{body}.embed_tokens.weight": (VOCAB, width), f"{body}.norm.weight": (width,)}
    for layer in range(text["num_hidden_layers"]):
        if hybrid and text["layer_types"][layer] == "linear_attention":
            values, size = text["linear_num_value_heads"], text["linear_value_head_dim"]
            mixed = 2 * text["linear_num_key_heads"] * text["linear_key_head_dim"] + values * size
            mixer: dict[str, Shape] = {
                "linear_attn.in_proj_qkv.weight": (mixed, width),
                "linear_attn.in_proj_z.weight": (values * size, width),
                **{f"linear_attn.in_proj_{name}.weight": (values, width) for name in "ab"},
                "linear_attn.conv1d.weight": (mixed, 1, text["linear_conv_kernel_dim"]),
                "linear_attn.dt_bias": (values,),
                "linear_attn.A_log": (values,),
                "linear_attn.norm.weight": (size,),
                "linear_attn.out_proj.weight": (width, values * size),
            }
        else:
            mixer = {
                "self_attn.q_proj.weight": (heads * (1 + hybrid), width),  # Qwen3.5: a gate for each query
                "self_attn.o_proj.weight": (width, heads),
                **{f"self_attn.{name}_proj.weight": (kv, width) for name in "kv"},
                **{f"self_attn.{name}_norm.weight": (head,) for name in "qk"},
            }
        rest: dict[str, Shape] = {f"mlp.{name}_proj.weight": (inner, width) for name in ("gate", "up")}
        rest |= {"mlp.down_proj.weight": (width, inner)}
        rest |= {f"{name}_layernorm.weight": (width,) for name in ("input", "post_attention")}
        shapes |= {f"{body}.layers.{layer}.{name}": shape for name, shape in (mixer | rest).items()}
    return shapes


def vision_shapes(vision: dict[str, Any]) -> dict[str, Shape]:
    """Names and shapes of the vision tower; every layer there but the position table has a bias."""
    wide, inner, patch = vision["hidden_size"], vision["intermediate_size"], vision["patch_size"]
    merged = wide * vision["spatial_merge_size"] ** 2
    shapes: dict[str, Shape] = {
        "patch_embed.proj": (wide, vision["in_channels"], vision["temporal_patch_size"], patch, patch),
        "merger.norm": (wide,),
        "merger.linear_fc1": (merged, merged),
        "merger.linear_fc2": (vision["out_hidden_size"], merged),
    }
    for block in (f"blocks.{number}." for number in range(vision["depth"])):
        shapes |= {f"{block}norm1": (wide,), f"{block}norm2": (wide,)}
        shapes |= {f"{block}attn.qkv": (3 * wide, wide), f"{block}attn.proj": (wide, wide)}
        shapes |= {f"{block}mlp.linear_fc1": (inner, wide), f"{block}mlp.linear_fc2": (wide, inner)}
    full = {f"model.visual.{name}.weight": shape for name, shape in shapes.items()}
    full |= {f"model.visual.{name}.bias": shape[:1] for name, shape in shapes.items()}
    return full | {"model.visual.pos_embed.weight": (vision["num_position_embeddings"], wide)}


def centre_and_reach(kind: str, name: str, shape: Shape) -> tuple[float, float]:
    """Middle and half width of a tensor's values; hidden states stay near 1 and logits within about 15."""
    if name.endswith(("norm.weight", "norm1.weight", "norm2.weight")):
        # Qwen3.5's text norms multiply by 1 + weight; its gated and vision norms, like Qwen3's, by weight.
        added = kind == "tiny-qwen3.5" and ".linear_attn." not in name and ".visual." not in name
        return (0.0 if added else 1.0), 0.1
    if name.endswith(("dt_bias", "A_log")):
        return (-3.0 if "dt" in name else 0.0), 1.0  # softplus(-3) is about 0.05: the state forgets slowly
    if name.endswith("bias"):
        return 0.0, 0.02
    if name.endswith("embed_tokens.weight"):
        return 0.0, math.sqrt(3.0)  # variance 1
    return 0.0, math.sqrt(3.0 / math.prod(shape[1:])) * (4.0 if name == "lm_head.weight" else 1.0)


def encode(value: float, *, exact: bool) -> bytes:
    """Little-endian float32 (4 bytes) or bfloat16 (2 bytes, rounded to nearest, ties to even)."""
    whole = struct.pack("<f", value)
    bits = int.from_bytes(whole, "little")
    return whole if exact else ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).to_bytes(2, "little")


def draw(kind: str, seed: int, name: str, shape: Shape, readable: list[int]) -> bytes:
    """Fill one tensor with 256 evenly spaced levels, picked by a hash stream of its own.

    Output rows of special tokens and unprintable bytes are zero: greedy text is readable, runs to its limit.
    """
    centre, reach = centre_and_reach(kind, name, shape)
    steps = [centre + reach * (2 * step - 255) / 255 for step in range(256)]
    levels = [encode(value, exact=name.endswith(FLOAT32)) for value in steps]
    picks = hashlib.shake_256(f"{kind}/{seed}/{name}".encode()).digest(math.prod(shape))
    size = len(levels[0])
    data = bytearray(size * len(picks))
    for byte in range(size):
        data[byte::size] = picks.translate(bytes(level[byte] for level in levels))
    if name == "lm_head.weight":
        row = size * shape[1]
        for number in set(range(VOCAB)).difference(readable):
            data[number * row : (number + 1) * row] = bytes(row)
    return bytes(data)


def build_files(kind: str, seed: int) -> tuple[dict[str, bytes], int]:
    """Every file of the checkpoint by name, and its number of parameters."""
    tokenizer, readable = build_tokenizer()
    texts = {"tokenizer.json": tokenizer, "tokenizer_config.json": TOKENIZER, "generation_config.json": ENDS}
    texts["config.json"], opening = (QWEN3, "") if kind == "tiny-qwen3" else (QWEN35, "<think>\\n")
    texts["chat_template.jinja"] = TEMPLATE.replace("OPENING", opening)
    config = json.loads(texts["config.json"])
    shapes = text_shapes(config)
    if "vision_config" in config:
        shapes |= vision_shapes(config["vision_config"])
        for what, name in (("image", "Qwen2VLImageProcessorFast"), ("video", "Qwen3VLVideoProcessor")):
            file = ("video_" if what == "video" else "") + "preprocessor_config.json"
            texts[file] = PIXELS.replace("WHAT", f"{what}_processor").replace("NAME", name)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = bytearray()
    for name in sorted(shapes, key=lambda name: (not name.endswith(FLOAT32), name)):  # keeps both aligned
        kept = "F32" if name.endswith(FLOAT32) else "BF16"
        raw = draw(kind, seed, name, shapes[name], readable)
        span = [len(body), len(body) + len(raw)]
        header[name] = {"dtype": kept, "shape": shapes[name], "data_offsets": span}
        body += raw
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    files = {name: text.encode() for name, text in texts.items()}
    files["model.safetensors"] = len(head).to_bytes(8, "little") + head + body
    return dict(sorted(files.items())), sum(map(math.prod, shapes.values()))


def same(folder: Path, files: dict[str, bytes]) -> bool:
    """Whether the folder already holds each of these files with exactly this content."""
    paths = {folder / name: raw for name, raw in files.items()}
    return all(path.is_file() and path.read_bytes() == raw for path, raw in paths.items())


def install(folder: Path, files: dict[str, bytes]) -> bool:
    """Put the files into the folder in one step, or find them there (False). Nothing is ever overwritten."""
    if same(folder, files):
        return False
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise UnusableError(f"{folder} holds something else; name another folder or remove it")
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        for name, raw in files.items():
            (draft / name).write_bytes(raw)
        draft.chmod(0o755)
        draft.rename(folder)  # replaces an empty folder, refuses a filled one
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        if same(folder, files):  # another process was first
            return False
        raise
    return True


def main(words: list[str]) -> int:
    """Answer on stdout; 0 when the checkpoint is there, 2 when it is not."""
    began = time.monotonic()
    parser = Arguments(prog="make_model.py", add_help=False, allow_abbrev=False)
    parser.add_argument("--kind", required=True, choices=["tiny-qwen3.5", "tiny-qwen3"])
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--seed", type=int, default=0)
    try:
        asked = parser.parse_args(words)
        files, parameters = build_files(asked.kind, asked.seed)
        written = install(asked.out.absolute(), files)
    except (UnusableError, OSError) as problem:
        print(json.dumps({"error": str(problem)}))
        return 2
    answer = {"kind": asked.kind, "seed": asked.seed, "out": str(asked.out.absolute()), "written": written}
    answer["files"] = {name: hashlib.sha256(raw).hexdigest() for name, raw in files.items()}
    answer |= {"bytes": sum(map(len, files.values())), "parameters": parameters}
    print(json.dumps(answer | {"seconds": round(time.monotonic() - began, 3)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
