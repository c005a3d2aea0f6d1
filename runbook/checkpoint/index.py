"""model.safetensors.index.json against the shards and against what their headers hold.

vLLM loads the shards that the index names and nothing else; transformers looks each tensor up in it
(https://huggingface.co/docs/transformers/main/en/big_models#sharded-checkpoints).
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from runbook.checkpoint import files
from runbook.checkpoint.config import count
from runbook.checkpoint.faults import Fault, few
from runbook.checkpoint.files import Unusable
from runbook.checkpoint.headers import Weights

NAME = "model.safetensors.index.json"
SHARD = re.compile(r"model-(\d{5})-of-(\d{5})\.safetensors")


def compared(folder: Path, present: tuple[str, ...], weights: Weights) -> list[Fault]:
    """Faults of the index, or of its absence. ``present``: names of the folder's files."""
    if NAME not in present:
        return [*_without(weights), *_twice(weights, None)]
    try:
        whole = files.json_object(folder, NAME, "index")
    except Unusable as why:
        return [why.fault]
    named = whole.get("weight_map")
    if (
        not isinstance(named, dict)
        or not named
        or not all(isinstance(shard, str) for shard in named.values())
    ):
        return [Fault("index/map", NAME, "has no weight_map from tensors to files")]
    return [
        *_shards(named, weights),
        *_tensors(named, weights),
        *_twice(weights, named),
        *_total(whole, named, weights),
    ]


def _without(weights: Weights) -> Iterator[Fault]:
    """A checkpoint of one file needs no index; of one with many the file names say how many there are."""
    shards = {name: found for name in weights.files if (found := SHARD.fullmatch(name))}
    for total in sorted({found[2] for found in shards.values()}):
        have = {int(found[1]) for found in shards.values() if found[2] == total}
        missing = sorted(set(range(1, min(int(total), 10_000) + 1)) - have)
        if missing:
            gone = [f"model-{number:05}-of-{total}.safetensors" for number in missing]
            yield Fault(
                "index/shard",
                gone[0],
                f"is not there: shards missing, by the names of the others: {few(gone)}",
            )
    if len(weights.files) > 1:
        yield Fault(
            "index/none",
            NAME,
            f"is not there for {len(weights.files)} weight files: vLLM loads them all, transformers none",
        )


def _shards(named: Mapping[str, str], weights: Weights) -> Iterator[Fault]:
    listed = set(named.values())
    for shard in sorted(listed - set(weights.files)):
        lost = [name for name, where in named.items() if where == shard]
        yield Fault(
            "index/shard", shard, f"is named by the index and not there; it should hold tensors: {few(lost)}"
        )
    unlisted = sorted(set(weights.files) - listed)
    if unlisted:
        yield Fault(
            "index/unlisted", unlisted[0], f"is not named by the index, so it is not loaded: {few(unlisted)}"
        )


def _tensors(named: Mapping[str, str], weights: Weights) -> Iterator[Fault]:
    """Tensors in one of the two only, and those that the index sends to another file. A file without a header says nothing."""
    unread = {fault.file for fault in weights.faults} | {
        shard for shard in named.values() if shard not in weights.files
    }
    unread -= {tensor.file for tensor in weights.tensors.values()}
    held: dict[str, set[str]] = {name: {tensor.file} for name, tensor in weights.tensors.items()}
    for tensor in weights.repeated:
        held[tensor.name].add(tensor.file)
    listed = set(named.values())
    lost = [name for name, where in named.items() if name not in held and where not in unread]
    if lost:
        yield Fault("index/tensor", NAME, f"names tensors that no file holds: {few(lost)}")
    elsewhere = [
        name
        for name, where in named.items()
        if name in held and where not in held[name] and where not in unread
    ]
    if elsewhere:
        first = elsewhere[0]
        where = f"{first} is in {min(held[first])}, not in {named[first]}"
        yield Fault(
            "index/elsewhere", NAME, f"sends tensors to a file that lacks them: {few(elsewhere)}; {where}"
        )
    more = [name for name, where in held.items() if name not in named and where & listed]
    if more:
        yield Fault("index/key", NAME, f"does not name tensors that its files hold: {few(more)}")


def _twice(weights: Weights, named: Mapping[str, str] | None) -> Iterator[Fault]:
    """One name in two files that are both loaded: which of them counts is chance."""
    loaded = set(weights.files) if named is None else set(named.values())
    twice = [
        one for one in weights.repeated if one.file in loaded and weights.tensors[one.name].file in loaded
    ]
    if twice:
        others = f"{twice[0].name} is in {weights.tensors[twice[0].name].file} too"
        yield Fault(
            "index/twice", twice[0].file, f"holds tensors again: {few([one.name for one in twice])}; {others}"
        )


def _total(whole: Mapping[str, object], named: Mapping[str, str], weights: Weights) -> Iterator[Fault]:
    about = whole.get("metadata")
    said = count(about.get("total_size")) if isinstance(about, dict) else None
    listed = set(named.values())
    found = sum(one.bytes for one in weights.tensors.values() if one.file in listed)
    if said is not None and said != found and not weights.faults and listed <= set(weights.files):
        yield Fault(
            "index/total-size", NAME, f"says total_size {said}, the tensors of its files have {found} bytes"
        )
