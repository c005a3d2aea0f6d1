"""Run by the target interpreter: what a checkpoint folder holds, from its headers. No weight is loaded, no torch either.

``--path DIR``. A safetensors file begins with the length of its JSON header (8 bytes, little endian), then the header:
https://huggingface.co/docs/safetensors/index#format
"""

import argparse
import json
import struct
from pathlib import Path
from typing import Any

LENGTH_BYTES = 8
LONGEST_HEADER = 100_000_000  # the format's own limit
BITS = {
    "F64": 64,
    "F32": 32,
    "F16": 16,
    "BF16": 16,
    "I64": 64,
    "I32": 32,
    "I16": 16,
    "I8": 8,
    "U8": 8,
    "BOOL": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
}


def header(path: Path) -> dict[str, Any]:
    """Tensors of one file, or ``error``; the byte ranges must fill the file exactly."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(LENGTH_BYTES)
        if len(start) < LENGTH_BYTES or start.startswith(b"version"):
            return {
                "error": f"{path.name} is {'a git-lfs pointer' if start.startswith(b'version') else 'shorter than a header'}"
            }
        (length,) = struct.unpack("<Q", start)
        if length > min(LONGEST_HEADER, size - LENGTH_BYTES):
            return {"error": f"{path.name}: header of {length} bytes in a file of {size}"}
        try:
            tensors = json.loads(file.read(length))
        except ValueError:
            return {"error": f"{path.name}: the header is no JSON"}
    tensors.pop("__metadata__", None)
    end = max((each["data_offsets"][1] for each in tensors.values()), default=0)
    if LENGTH_BYTES + length + end != size:
        return {"error": f"{path.name}: {size} bytes, its header promises {LENGTH_BYTES + length + end}"}
    return {"tensors": tensors}


def facts(folder: Path) -> dict[str, Any]:
    """Files, header errors, parameters and types of a checkpoint."""
    files = sorted(path.name for path in folder.iterdir() if path.is_file())
    errors, parameters, types, names = [], 0, set(), set()
    for path in sorted(folder.glob("*.safetensors")):
        found = header(path)
        if "error" in found:
            errors.append(found["error"])
            continue
        for name, each in found["tensors"].items():
            count = 1
            for extent in each["shape"]:
                count *= extent
            parameters += count
            types.add(each["dtype"])
            names.add(name)
            begin, end = each["data_offsets"]
            if each["dtype"] in BITS and count * BITS[each["dtype"]] != 8 * (end - begin):
                errors.append(
                    f"{path.name}: {name} has {end - begin} bytes, its shape and type ask {count * BITS[each['dtype']] // 8}"
                )
    index = folder / "model.safetensors.index.json"
    missing: list[str] = []
    if index.exists():
        missing = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"]) - names)
    return {
        "files": files,
        "errors": errors,
        "parameters": parameters,
        "dtypes": sorted(types),
        "tensors": len(names),
        "missing": missing[:5],
        "missing_count": len(missing),
    }


def main() -> None:
    """Print the facts, or why there are none."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--path", required=True, type=Path)
    try:
        print(json.dumps(facts(parser.parse_args().path)))
    except Exception as why:
        print(json.dumps({"error": f"{type(why).__name__}: {why}"}))


if __name__ == "__main__":
    main()
