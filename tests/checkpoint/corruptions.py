"""What happens to checkpoints, one row each: what is done to a real one, and which check must say so, of which file."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiny import INDEX, ONE, Header, edited, header, laid, rebuilt, shard_of, tensors, write

from runbook.model import Verdict

FAIL, WARN = Verdict.FAIL, Verdict.WARN
CONFIG, TOKENS, SETTINGS = "config.json", "tokenizer.json", "tokenizer_config.json"
ENDS, TEMPLATE, ADAPTER = "generation_config.json", "chat_template.jinja", "adapter_config.json"
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 4267472\n"
PAGE = "<!DOCTYPE html>\n<html><head><title>429 Too Many Requests</title></head></html>\n"
EMBEDDING = "model.language_model.embed_tokens.weight"
LAYER_2 = "model.language_model.layers.2."


@dataclass(frozen=True)
class Corruption:
    """``base``: hybrid, plain or sharded; ``kind`` and ``file`` must stand in the evidence of ``check``."""

    name: str
    base: str
    spoil: Callable[[Path], Any]
    check: str
    kind: str
    file: str
    verdict: Verdict = FAIL

    def __str__(self) -> str:
        return self.name


def written(name: str, text: str | bytes) -> Callable[[Path], Any]:
    """Other content of a file."""
    raw = text.encode() if isinstance(text, str) else text
    return lambda folder: (folder / name).write_bytes(raw)


def removed(*names: str) -> Callable[[Path], Any]:
    def spoil(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return spoil


def replaced(name: str, old: str, new: str) -> Callable[[Path], Any]:
    """A text in a file; it must be there."""

    def spoil(folder: Path) -> None:
        text = (folder / name).read_text(encoding="utf-8")
        assert old in text
        (folder / name).write_text(text.replace(old, new), encoding="utf-8")

    return spoil


def cut(name: str, left: int | None = None, *, more: int = 0) -> Callable[[Path], Any]:
    """A file of another length: so many bytes, or so many more."""

    def spoil(folder: Path) -> None:
        raw = (folder / name).read_bytes()
        (folder / name).write_bytes(raw[: left if left is not None else len(raw)] + bytes(more))

    return spoil


def headed(change: Callable[[Header], Any]) -> Callable[[Path], Any]:
    """Another header over the same bytes."""

    def spoil(folder: Path) -> None:
        head, body = header(folder / ONE)
        change(head)
        write(folder / ONE, head, body)

    return spoil


def lied(length: int) -> Callable[[Path], Any]:
    """The length of the header is not true."""

    def spoil(folder: Path) -> None:
        head, body = header(folder / ONE)
        write(folder / ONE, head, body, length)

    return spoil


def swapped(folder: Path) -> None:
    """Two shards, each under the header of the other."""
    first, second = (folder / shard_of(number) for number in (1, 2))
    heads = [header(path) for path in (first, second)]
    write(first, heads[1][0], heads[0][1])
    write(second, heads[0][0], heads[1][1])


def named(change: Callable[[dict[str, str]], Any]) -> Callable[[Path], None]:
    """Another map in the index."""
    return edited(INDEX, lambda whole: change(whole["weight_map"]))


def text_config(**values: Any) -> Callable[[Path], None]:
    """Other values of text_config."""
    return edited(CONFIG, lambda whole: whole["text_config"].update(values))


def top(**values: Any) -> Callable[[Path], None]:
    """Other values of config.json itself."""
    return edited(CONFIG, lambda whole: whole.update(values))


def rope(**values: Any) -> Callable[[Path], None]:
    return edited(CONFIG, lambda whole: whole["text_config"]["rope_parameters"].update(values))


def settings(key: str, value: str) -> Callable[[Path], None]:
    return edited(SETTINGS, lambda whole: whole.update({key: value}))


def without_token(token: str) -> Callable[[Path], None]:
    """A special token that tokenizer.json does not have."""
    return edited(
        TOKENS,
        lambda whole: whole.update(
            added_tokens=[one for one in whole["added_tokens"] if one["content"] != token]
        ),
    )


def overlapping(head: Header) -> None:
    first, second = [name for name in head if name != "__metadata__"][:2]
    size = head[second]["data_offsets"][1] - head[second]["data_offsets"][0]
    head[second]["data_offsets"] = [head[first]["data_offsets"][0], head[first]["data_offsets"][0] + size]


def doubled_key(folder: Path) -> None:
    """The same name twice in one header."""
    raw, body = header(folder / ONE)
    text = json.dumps(raw)
    name = json.dumps(EMBEDDING)
    write(folder / ONE, text.replace(json.dumps("lm_head.weight"), name, 1).encode(), body)


def again(folder: Path) -> None:
    """A tensor of the second shard in the first as well."""
    first, second = (tensors(folder / shard_of(number)) for number in (1, 2))
    laid(folder / shard_of(1), [*first, second[0]])


def as_type(which: str, dtype: str) -> Callable[[Path], None]:
    """Tensors of that name in another type of the same width."""
    return rebuilt(
        lambda every: [(name, dtype if which in name else kind, *rest) for name, kind, *rest in every]
    )


def text_only(folder: Path) -> None:
    """Saved as a text-only model: a flat config, the class without images, no vision tower, shorter names."""
    whole = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    flat = {**whole["text_config"], "architectures": ["Qwen3_5ForCausalLM"], "tie_word_embeddings": False}
    (folder / CONFIG).write_text(json.dumps(flat), encoding="utf-8")
    every = [row for row in tensors(folder / ONE) if ".visual." not in row[0]]
    laid(folder / ONE, [(name.replace(".language_model", ""), *rest) for name, *rest in every])  # type: ignore[misc]


def adapter_alone(folder: Path) -> None:
    """What a LoRA training leaves: an adapter and its config."""
    for path in folder.iterdir():
        path.unlink()
    (folder / ADAPTER).write_text(
        '{"peft_type": "LORA", "r": 8, "base_model_name_or_path": "Qwen/Qwen3.5-4B"}'
    )
    laid(
        folder / "adapter_model.safetensors",
        [("base_model.model.lm_head.lora_A.weight", "F32", [1], bytes(4))],
    )


def quantised(folder: Path) -> None:
    """A weight replaced by GPTQ's parts, and no word of it in the config."""
    every = tensors(folder / ONE)
    name = f"{LAYER_2}mlp.up_proj.weight"
    rest = [row for row in every if row[0] != name]
    part = (name.replace(".weight", ".qweight"), "I32", [16, 256], bytes(16 * 256 * 4))
    laid(folder / ONE, [*rest, part])


def pickled(folder: Path) -> None:
    """Weights as a pickle, as years ago."""
    (folder / ONE).rename(folder / "pytorch_model.bin")


def narrowed(every: list[tuple[str, str, list[int], bytes]]) -> list[tuple[str, str, list[int], bytes]]:
    """A projection of half the rows."""
    return [(name, kind, [shape[0] // 2, *shape[1:]], raw[: len(raw) // 2]) if name == f"{LAYER_2}mlp.up_proj.weight" else (name, kind, shape, raw) for name, kind, shape, raw in every]  # fmt: skip


ROWS = [
    # the files themselves
    Corruption("a shard that was cut", "sharded", cut(shard_of(2), 900_000), "MODEL-002", "weights/cut", shard_of(2)),
    Corruption("a file that goes on", "hybrid", cut(ONE, more=4096), "MODEL-002", "weights/long", ONE),
    Corruption("the headers of two shards swapped", "sharded", swapped, "MODEL-002", "weights/long", shard_of(2)),
    Corruption("a git-lfs pointer for weights", "hybrid", written(ONE, POINTER), "MODEL-002", "weights/pointer", ONE),
    Corruption("an empty weight file", "hybrid", written(ONE, b""), "MODEL-002", "weights/empty", ONE),
    Corruption("seven bytes of a weight file", "hybrid", cut(ONE, 7), "MODEL-002", "weights/cut", ONE),
    Corruption("a weight file that was reserved and not filled", "hybrid", written(ONE, bytes(100_000)), "MODEL-002", "weights/zeros", ONE),
    Corruption("an HTML page for weights", "hybrid", written(ONE, PAGE), "MODEL-002", "weights/page", ONE),
    Corruption("a header longer than the format allows", "hybrid", lied(1 << 62), "MODEL-002", "weights/header-length", ONE),
    Corruption("a header longer than the file", "hybrid", lied(99_000_000), "MODEL-002", "weights/cut", ONE),
    Corruption("a header shorter than it is", "hybrid", lied(1000), "MODEL-002", "weights/header", ONE),
    Corruption("ranges that overlap", "hybrid", headed(overlapping), "MODEL-002", "weights/overlap", ONE),
    Corruption("a range below zero", "hybrid", headed(lambda head: head[EMBEDDING].update(data_offsets=[-8, 0])), "MODEL-002", "weights/entry", ONE),
    Corruption("a shape that does not fill its range", "hybrid", headed(lambda head: head[EMBEDDING].update(shape=[511, 128])), "MODEL-002", "weights/range", ONE),
    Corruption("a type that does not exist", "hybrid", headed(lambda head: head[EMBEDDING].update(dtype="BF17")), "MODEL-002", "weights/type", ONE),
    Corruption("a name twice in one header", "hybrid", doubled_key, "MODEL-002", "weights/header", ONE),
    Corruption("no weights", "hybrid", removed(ONE), "MODEL-001", "weight files", "0"),
    # index and shards
    Corruption("a shard is missing", "sharded", removed(shard_of(3)), "MODEL-012", "index/shard", shard_of(3)),
    Corruption("a shard is missing, and there is no index", "sharded", removed(shard_of(3), INDEX), "MODEL-012", "index/shard", shard_of(3)),
    Corruption("no index for three shards", "sharded", removed(INDEX), "MODEL-012", "index/none", INDEX, WARN),
    Corruption("a key is missing from the index", "sharded", named(lambda where: where.pop(EMBEDDING)), "MODEL-012", "index/key", INDEX),
    Corruption("the index names a tensor that is nowhere", "sharded", named(lambda where: where.update({"model.extra.weight": shard_of(1)})), "MODEL-012", "index/tensor", INDEX),
    Corruption("the index names the wrong shard", "sharded", named(lambda where: where.update({EMBEDDING: shard_of(1) if where[EMBEDDING] != shard_of(1) else shard_of(2)})), "MODEL-012", "index/elsewhere", INDEX),
    Corruption("a tensor in two shards", "sharded", again, "MODEL-012", "index/twice", shard_of(2)),
    Corruption("another total size", "sharded", edited(INDEX, lambda whole: whole["metadata"].update(total_size=1)), "MODEL-012", "index/total-size", INDEX, WARN),
    Corruption("an index that was cut", "sharded", cut(INDEX, 500), "MODEL-012", "index/json", INDEX),
    Corruption("an index without a map", "sharded", written(INDEX, "{}"), "MODEL-012", "index/map", INDEX),
    # weights against config
    Corruption("a projection of half its size", "hybrid", rebuilt(narrowed), "MODEL-011", "shapes/shape", ONE),
    Corruption("another vocab_size than the embedding has rows", "hybrid", text_config(vocab_size=600), "MODEL-011", "shapes/vocabulary", ONE),
    Corruption("the config says another type", "hybrid", text_config(dtype="float16"), "MODEL-011", "shapes/dtype", CONFIG),
    Corruption("the config of transformers 4 says another type", "plain", edited(CONFIG, lambda whole: whole.update(torch_dtype="float32") or whole.pop("dtype")), "MODEL-011", "shapes/dtype", CONFIG),
    Corruption("two 16-bit types", "hybrid", as_type("mlp.up_proj", "F16"), "MODEL-011", "shapes/mixed", ONE),
    Corruption("no output projection, and not tied", "hybrid", rebuilt(lambda every: [row for row in every if row[0] != "lm_head.weight"]), "MODEL-011", "shapes/head", CONFIG),
    Corruption("tied by the config, and two matrices", "hybrid", edited(CONFIG, lambda whole: whole.update(tie_word_embeddings=True) or whole["text_config"].update(tie_word_embeddings=True)), "MODEL-011", "shapes/tie", CONFIG),
    Corruption("a layer is missing", "hybrid", rebuilt(lambda every: [row for row in every if not row[0].startswith(LAYER_2)]), "MODEL-011", "shapes/layer", CONFIG),
    Corruption("a tensor is missing", "hybrid", rebuilt(lambda every: [row for row in every if row[0] != f"{LAYER_2}linear_attn.A_log"]), "MODEL-011", "shapes/missing", CONFIG),
    Corruption("a tensor that nobody asked for", "hybrid", rebuilt(lambda every: [*every, ("model.adapter.weight", "BF16", [4], bytes(8))]), "MODEL-011", "shapes/extra", ONE),
    Corruption("names of a text-only save", "hybrid", rebuilt(lambda every: [(name.replace("model.language_model.", "model."), *rest) for name, *rest in every]), "MODEL-011", "shapes/prefix", CONFIG),
    Corruption("a vision tower that was dropped", "hybrid", rebuilt(lambda every: [row for row in every if ".visual." not in row[0]]), "MODEL-011", "shapes/vision", CONFIG),
    Corruption("multi-token prediction without its block", "hybrid", text_config(mtp_num_hidden_layers=1), "MODEL-011", "shapes/mtp", CONFIG, WARN),
    # the config in itself
    Corruption("layer_types edited", "hybrid", edited(CONFIG, lambda whole: whole["text_config"]["layer_types"].__setitem__(0, "full_attention")), "MODEL-019", "config/layers", CONFIG),
    Corruption("a layer less than there are types", "hybrid", text_config(num_hidden_layers=7), "MODEL-019", "config/layers", CONFIG),
    Corruption("rope theta edited", "hybrid", rope(rope_theta=10000.0), "MODEL-019", "config/rope-theta", CONFIG),
    Corruption("rope theta edited in one of two places", "plain", top(rope_theta=10000.0), "MODEL-019", "config/rope-twice", CONFIG),
    Corruption("M-RoPE sections edited", "hybrid", rope(mrope_section=[11, 11, 10]), "MODEL-019", "config/mrope", CONFIG),
    Corruption("partial rotary of more than all", "hybrid", rope(partial_rotary_factor=1.5), "MODEL-019", "config/rope-twice", CONFIG),
    Corruption("the articles' rope_scaling", "hybrid", text_config(rope_scaling={"type": "dynamic", "factor": 2.0}), "MODEL-019", "config/rope-scaling", CONFIG),
    Corruption("the articles' rope_scaling, on top", "hybrid", top(rope_scaling={"type": "dynamic", "factor": 2.0}), "MODEL-019", "config/rope-scaling-idle", CONFIG, WARN),
    Corruption("tied inside and not outside", "hybrid", text_config(tie_word_embeddings=True), "MODEL-019", "config/tie-twice", CONFIG),
    Corruption("heads that cannot be shared", "hybrid", text_config(num_key_value_heads=3), "MODEL-019", "config/heads", CONFIG),
    Corruption("a size that is no number", "hybrid", text_config(hidden_size="128"), "MODEL-019", "config/value", CONFIG),
    Corruption("ten million layers", "hybrid", text_config(num_hidden_layers=10_000_000, layer_types=None), "MODEL-019", "config/value", CONFIG),
    Corruption("a size that is not there", "hybrid", edited(CONFIG, lambda whole: whole["text_config"].pop("head_dim")), "MODEL-019", "config/key", CONFIG),
    Corruption("an image token outside the vocabulary", "hybrid", top(image_token_id=248056), "MODEL-019", "config/token-id", CONFIG),
    Corruption("a vision tower of another width", "hybrid", edited(CONFIG, lambda whole: whole["vision_config"].update(out_hidden_size=64)), "MODEL-019", "config/vision", CONFIG),
    Corruption("a comment in the config", "hybrid", replaced(CONFIG, '"num_heads": 2', '"num_heads": 2 // two'), "MODEL-019", "config/json", CONFIG),
    Corruption("a comma too many in the config", "hybrid", replaced(CONFIG, '"deepstack_visual_indexes": []', '"deepstack_visual_indexes": [],'), "MODEL-019", "config/json", CONFIG),
    Corruption("a byte order mark before the config", "hybrid", lambda folder: (folder / CONFIG).write_bytes(b"\xef\xbb\xbf" + (folder / CONFIG).read_bytes()), "MODEL-019", "config/bom", CONFIG),
    Corruption("a git-lfs pointer for the config", "hybrid", written(CONFIG, POINTER), "MODEL-019", "config/pointer", CONFIG),
    # text and tokens
    Corruption("tokenizer.json that was cut", "hybrid", cut(TOKENS, 5000), "MODEL-013", "tokenizer/json", TOKENS),
    Corruption("a tokenizer larger than the embedding", "plain", edited(TOKENS, lambda whole: whole["model"]["vocab"].update(more=512)), "MODEL-013", "tokenizer/vocabulary", TOKENS),
    Corruption("a class of another family", "plain", settings("tokenizer_class", "LlamaTokenizerFast"), "MODEL-013", "tokenizer/class", SETTINGS),
    Corruption("the end token is gone", "hybrid", without_token("<|im_end|>"), "MODEL-013", "tokenizer/special", SETTINGS),
    Corruption("a pad token that does not exist", "hybrid", settings("pad_token", "<pad>"), "MODEL-013", "tokenizer/pad", SETTINGS),
    Corruption("the image token of another model", "hybrid", top(image_token_id=507), "MODEL-013", "tokenizer/id", CONFIG),
    Corruption("two tokens of one id", "plain", edited(TOKENS, lambda whole: whole["added_tokens"][0].update(id=1)), "MODEL-013", "tokenizer/ids", TOKENS),
    Corruption("a merge of what is no token", "plain", edited(TOKENS, lambda whole: whole["model"]["merges"].append(["qq", "zz"])), "MODEL-013", "tokenizer/merges", TOKENS),
    Corruption("no template", "hybrid", removed(TEMPLATE), "MODEL-014", "template/none", TEMPLATE),
    Corruption("a template that does not parse", "hybrid", written(TEMPLATE, "{% for message in messages %}{{ message.content }}"), "MODEL-014", "template/parse", TEMPLATE),
    Corruption("a template that raises on a plain chat", "hybrid", written(TEMPLATE, "{{ raise_exception('tools are required') }}"), "MODEL-014", "template/raises", TEMPLATE),
    Corruption("a template that does not end", "hybrid", written(TEMPLATE, "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"), "MODEL-014", "template/limit", TEMPLATE),
    Corruption("a template that forgets the user", "hybrid", replaced(TEMPLATE, "{{- message.content -}}", ""), "MODEL-014", "template/text", TEMPLATE),
    Corruption("a template of another model", "hybrid", replaced(TEMPLATE, "<|im_end|>", "<|eot_id|>"), "MODEL-014", "template/token", TEMPLATE),
    Corruption("a template without ends of turns", "hybrid", replaced(TEMPLATE, "<|im_end|>", ""), "MODEL-014", "template/turn", TEMPLATE),
    Corruption("a template without a switch for thinking", "hybrid", replaced(TEMPLATE, "enable_thinking is defined", "false"), "MODEL-014", "template/thinking", TEMPLATE, WARN),
    Corruption("ends at another token", "hybrid", edited(ENDS, lambda whole: whole.update(eos_token_id=[503])), "MODEL-015", "generation/end", ENDS),
    Corruption("an eos_token that ends no turn", "hybrid", settings("eos_token", "<|endoftext|>"), "MODEL-015", "generation/eos-token", SETTINGS, WARN),
    Corruption("an end outside the vocabulary", "hybrid", edited(ENDS, lambda whole: whole.update(eos_token_id=[505, 248046])), "MODEL-015", "generation/outside", ENDS),
    Corruption("no generation_config", "hybrid", removed(ENDS), "MODEL-015", "generation/none", ENDS, WARN),
    Corruption("a temperature below zero", "hybrid", edited(ENDS, lambda whole: whole.update(temperature=-1)), "MODEL-015", "generation/sampling", ENDS, WARN),
    # the form of the whole
    Corruption("a text-only class over a whole model", "hybrid", top(architectures=["Qwen3_5ForCausalLM"]), "MODEL-016", "origin/class", CONFIG),
    Corruption("a text-only save", "hybrid", text_only, "MODEL-016", "origin/text-only", CONFIG, WARN),
    Corruption("a class with images, and no tower", "hybrid", edited(CONFIG, lambda whole: whole.pop("vision_config")), "MODEL-016", "origin/rewrapped", CONFIG),
    Corruption("a LoRA adapter alone", "hybrid", adapter_alone, "MODEL-016", "origin/adapter", ADAPTER),
    Corruption("a LoRA adapter beside a checkpoint", "hybrid", written(ADAPTER, '{"base_model_name_or_path": "Qwen/Qwen3.5-4B"}'), "MODEL-016", "origin/adapter-beside", ADAPTER, WARN),
    Corruption("a quantisation that does not exist", "hybrid", top(quantization_config={"quant_method": "int3"}), "MODEL-016", "origin/quantisation-unknown", CONFIG),
    Corruption("quantised, and not said so", "hybrid", quantised, "MODEL-016", "origin/quantisation-unsaid", CONFIG),
    Corruption("said to be quantised, and plain", "hybrid", top(quantization_config={"quant_method": "gptq", "bits": 4}), "MODEL-016", "origin/quantisation-unseen", CONFIG),
    Corruption("weights as a pickle", "hybrid", pickled, "MODEL-016", "origin/pickle", "pytorch_model.bin"),
]  # fmt: skip
