"""The tensors that are there against those the config calls for: names, shapes and types."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from runbook.checkpoint import files, shapes
from runbook.checkpoint.config import NAME, Config
from runbook.checkpoint.faults import Fault, few
from runbook.checkpoint.files import Unusable
from runbook.checkpoint.headers import Tensor, Weights

Shapes = Mapping[str, tuple[int, ...]]
FLOATS = {"bfloat16": "BF16", "float16": "F16", "half": "F16", "float32": "F32", "float": "F32"}
HEAD, EMBEDDING = "lm_head.weight", "embed_tokens.weight"
# What quantisers keep beside a weight or in its place: GPTQ and AWQ, compressed-tensors, FP8 and ModelOpt, bitsandbytes.
PACKED = re.compile(
    r"\.(?:qweight|qzeros|scales|g_idx|weight_(?:packed|shape|g_idx|zero_point|scale|scale_inv|scale_2|global_scale)"
    r"|input_(?:scale|global_scale)|[kv]_scale|SCB)$"
    r"|(?<=\.weight)\.(?:absmax|quant_map|nested_absmax|nested_quant_map|quant_state\..+)$"
    r"|(?<=_proj)_(?:blocks|scales|scale|scale_inv)$"
)
EXPERTS = ".mlp.experts."
# Where savers of other generations put the language model.
BODIES = ("model.language_model.", "model.", "language_model.model.", "base_model.model.model.")
COMPARED = 4096  # bytes of two tensors that ought to be one


def compared(folder: Path, config: Config, weights: Weights) -> list[Fault]:
    """Every difference; none for a family whose shapes are not known, or a config that cannot be worked with."""
    asked = expected(config, weights)
    if asked is None:
        return []
    if moved := _moved(asked, weights.tensors):
        return [moved]
    return [
        *_missing(asked, weights.tensors),
        *_more(asked, weights.tensors),
        *_wrong(asked, weights.tensors),
        *_types(asked, weights.tensors, config),
        *_tied(folder, asked, weights.tensors, config),
    ]


def expected(config: Config, weights: Weights) -> Shapes | None:
    """What the config calls for, with experts fused or one by one as the files have them; None where that is not known."""
    if not config.sane or not weights.tensors:
        return None
    try:
        asked = shapes.expected(config.whole)
    except (KeyError, TypeError):
        return None  # config.read has named the key
    return None if asked is None else _as_stored(asked, weights.tensors)


def stems(name: str) -> tuple[str, ...]:
    """The weights of which a tensor may be a quantised part; none for one that is no such part."""
    cut = PACKED.sub("", name)
    return (cut, f"{cut}.weight") if cut != name else ()


def _as_stored(asked: Shapes, have: Collection[str]) -> Shapes:
    """Mixture-of-experts weights are saved for all experts at once or for each, and engines load both."""
    bodies = {name.partition(EXPERTS)[0] for name in have if f"{EXPERTS}0." in name}
    found: dict[str, tuple[int, ...]] = {}
    for name, shape in asked.items():
        body, cut, rest = name.partition(EXPERTS)
        if not cut or body not in bodies or rest not in {"gate_up_proj", "down_proj"}:
            found[name] = shape
            continue
        experts, out, width = shape
        parts = {"gate_proj": out // 2, "up_proj": out // 2} if rest == "gate_up_proj" else {"down_proj": out}
        for expert in range(experts):
            found |= {f"{body}{EXPERTS}{expert}.{one}.weight": (rows, width) for one, rows in parts.items()}
    return found


def _moved(asked: Shapes, have: Collection[str]) -> Fault | None:
    """The language model is all there, under other names."""
    body = next(name.removesuffix(EMBEDDING) for name in asked if name.endswith(EMBEDDING))
    mine = [name.removeprefix(body) for name in asked if name.startswith(f"{body}layers.")]
    if any(body + name in have for name in mine):
        return None
    for other in BODIES:
        if mine and all(
            other + name in have or other + name.removesuffix(".weight") + ".qweight" in have for name in mine
        ):
            text = f"calls for {body}layers..., the files hold {other}layers...: saved by another class than the config names"
            return Fault("shapes/prefix", NAME, text)
    return None


def _missing(asked: Shapes, have: Mapping[str, Tensor]) -> Iterator[Fault]:
    there = {*have, *(one for name in have for one in stems(name))}
    missing = [name for name in asked if name not in there]
    if HEAD in missing:
        missing.remove(HEAD)
        yield Fault("shapes/head", NAME, f"does not tie the embeddings, and {HEAD} is in no file")
    parts = {
        "shapes/mtp": (
            "mtp.",
            "speaks of a multi-token-prediction block, and no file holds one: it cannot be used",
        ),
        "shapes/vision": ("model.visual.", "has a vision_config, and no file holds a vision tower"),
    }
    for kind, (prefix, text) in parts.items():
        if any(name.startswith(prefix) for name in missing) and not any(
            name.startswith(prefix) for name in there
        ):
            missing = [name for name in missing if not name.startswith(prefix)]
            yield Fault(kind, NAME, text)
    layers = {
        name: found[1]
        for name in asked
        if (found := re.match(r"model\.(?:language_model\.)?layers\.(\d+)\.", name))
    }
    present = {layers[name] for name in asked if name in layers and name in there}
    if gone := sorted({number for name, number in layers.items()} - present, key=int):
        missing = [name for name in missing if layers.get(name) not in gone]
        yield Fault("shapes/layer", NAME, f"has layers of which no file holds a tensor: {few(gone)}")
    if missing:
        yield Fault("shapes/missing", NAME, f"calls for tensors that no file holds: {few(missing)}")


def _more(asked: Shapes, have: Mapping[str, Tensor]) -> Iterator[Fault]:
    more = [
        name
        for name in have
        if name not in asked and name != HEAD and not any(one in asked for one in stems(name))
    ]
    if block := [name for name in more if name.startswith("mtp.")]:
        yield Fault(
            "shapes/mtp",
            have[block[0]].file,
            "holds a multi-token-prediction block that the config does not name",
        )
    if more := [name for name in more if not name.startswith("mtp.")]:
        yield Fault(
            "shapes/extra",
            have[more[0]].file,
            f"holds tensors that the config does not call for: {few(more)}",
        )


def _wrong(asked: Shapes, have: Mapping[str, Tensor]) -> Iterator[Fault]:
    parts = {one for name in have for one in stems(name)}
    # A weight with scales beside it may be packed two to the byte.
    wrong = [
        name
        for name, shape in asked.items()
        if name in have
        and have[name].shape != shape
        and (name not in parts or have[name].dtype not in {"U8", "I8", "I32"})
    ]
    for name in wrong:
        if name.endswith((EMBEDDING, HEAD)) and have[name].shape[1:] == asked[name][1:]:
            text = f"{name} has {have[name].shape[0]} rows, the config's vocab_size is {asked[name][0]}"
            yield Fault("shapes/vocabulary", have[name].file, text)
    others = [
        name
        for name in wrong
        if not (name.endswith((EMBEDDING, HEAD)) and have[name].shape[1:] == asked[name][1:])
    ]
    if others:
        first = have[others[0]]
        text = f"{first.name} is {list(first.shape)}, the config asks {list(asked[first.name])}"
        yield Fault(
            "shapes/shape", first.file, text + (f"; and {len(others) - 1} more tensors" if others[1:] else "")
        )


def _types(asked: Shapes, have: Mapping[str, Tensor], config: Config) -> Iterator[Fault]:
    """Plain weights of another type than the config says, or of several. Some of the gated delta net are float32 always."""
    parts = {one for name in have for one in stems(name)}
    plain = [
        have[name]
        for name in asked
        if name in have
        and name not in parts
        and have[name].dtype in FLOATS.values()
        and not name.endswith(shapes.FLOAT32)
    ]
    found = Counter(one.dtype for one in plain)
    if not found:
        return
    (most, _), *_ = found.most_common(1)
    said = FLOATS.get(config.dtype or "")
    if said and said != most:
        yield Fault(
            "shapes/dtype",
            NAME,
            f"says {config.dtype}, {found[most]} of {len(plain)} plain tensors are {most}",
        )
    for other in sorted(set(found) - {most}):
        strays = [one for one in plain if one.dtype == other]
        kind = "shapes/wide" if other == "F32" else "shapes/mixed"
        text = f"tensors that are {other} among {found[most]} that are {most}: {few([one.name for one in strays])}"
        yield Fault(kind, strays[0].file, f"holds {text}")


def _tied(folder: Path, asked: Shapes, have: Mapping[str, Tensor], config: Config) -> Iterator[Fault]:
    """An output projection beside tied embeddings: a copy does no harm, another matrix would be dropped in silence."""
    embedding = next((have[name] for name in asked if name.endswith(EMBEDDING) and name in have), None)
    if HEAD in asked or HEAD not in have or embedding is None or not shapes.tied(config.whole):
        return
    if _begin(folder, have[HEAD]) != _begin(folder, embedding):
        text = (
            f"ties the embeddings, and {HEAD} in {have[HEAD].file} is another matrix, which would be dropped"
        )
        yield Fault("shapes/tie", NAME, text)


def _begin(folder: Path, tensor: Tensor) -> bytes:
    try:
        with files.opened(folder, tensor.file, "weights") as found:
            found.file.seek(tensor.begin)
            return found.read(min(COMPARED, tensor.bytes))
    except (OSError, Unusable):
        return b""
