"""Real tiny checkpoints, and ways to write them otherwise: other headers, several shards with an index, edited JSON."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from runbook.probes.live import INSIDE

ONE, INDEX = "model.safetensors", "model.safetensors.index.json"
KINDS = {"hybrid": "tiny-qwen3.5", "plain": "tiny-qwen3"}
SHARDS = 3
Header = dict[str, Any]


def make(root: Path) -> dict[str, Path]:
    """The generated kinds, and the hybrid once more in shards."""
    for name, kind in KINDS.items():
        argv = [sys.executable, str(INSIDE / "make_model.py"), "--kind", kind, "--out", str(root / name)]
        subprocess.run(argv, check=True, capture_output=True, timeout=60)
    shutil.copytree(root / "hybrid", root / "sharded")
    shard(root / "sharded", SHARDS)
    return {name: root / name for name in (*KINDS, "sharded")}


def header(path: Path) -> tuple[Header, bytes]:
    """The header of a weight file, and the bytes behind it."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def write(path: Path, head: Header | bytes, body: bytes, length: int | None = None) -> None:
    """A weight file of any header, true or not; ``length`` is what it gives its header, if not the truth."""
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + body)


def laid(path: Path, tensors: Iterable[tuple[str, str, list[int], bytes]]) -> None:
    """A sound weight file of these tensors: name, type, shape, content."""
    head: Header = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, dtype, shape, content in tensors:
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(content)]}
        body += content
    write(path, head, body)


def tensors(path: Path) -> list[tuple[str, str, list[int], bytes]]:
    """The tensors of a weight file, in the order of their bytes."""
    head, body = header(path)
    head.pop("__metadata__", None)
    rows = sorted(head.items(), key=lambda item: item[1]["data_offsets"])
    return [(name, one["dtype"], one["shape"], body[slice(*one["data_offsets"])]) for name, one in rows]


def shard(folder: Path, count: int) -> None:
    """Split the one weight file of a folder, and write the index."""
    every = tensors(folder / ONE)
    (folder / ONE).unlink()
    named: dict[str, str] = {}
    for number in range(count):
        name = f"model-{number + 1:05}-of-{count:05}.safetensors"
        part = every[number::count]
        laid(folder / name, part)
        named |= {row[0]: name for row in part}
    index = {"metadata": {"total_size": sum(len(row[3]) for row in every)}, "weight_map": named}
    (folder / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")


def shard_of(number: int) -> str:
    """The name of a shard, counted from 1."""
    return f"model-{number:05}-of-{SHARDS:05}.safetensors"


def edited(name: str, change: Callable[[Any], None]) -> Callable[[Path], None]:
    """A change to a JSON file of the folder."""

    def spoil(folder: Path) -> None:
        found = json.loads((folder / name).read_text(encoding="utf-8"))
        change(found)
        (folder / name).write_text(json.dumps(found), encoding="utf-8")

    return spoil


def rebuilt(change: Callable[[list[tuple[str, str, list[int], bytes]]], Any]) -> Callable[[Path], None]:
    """Other tensors in a sound weight file."""

    def spoil(folder: Path) -> None:
        every = tensors(folder / ONE)
        laid(folder / ONE, change(every))

    return spoil
