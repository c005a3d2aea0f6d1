"""Run by the target interpreter: does torch's allocator take its settings, and give memory back? Prints one JSON object.

``--device cpu|cuda``. The settings are taken out of the environment before torch is imported: one that cannot be parsed
ends ``import torch`` in std::terminate (measured with 2.10 and 2.13). Then the installed parser judges each. On a GPU
256 MiB are allocated, freed and given back; figures in bytes.
"""

import argparse
import json
import os
from typing import Any

NAMES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
BYTES = 256 << 20
BACKENDS = ("native", "cudaMallocAsync")


def judged(torch: Any, text: str) -> str:
    """What the parser says against the settings, "" when it takes them.

    The backend is chosen when torch is loaded and cannot be set again, so its value alone is compared.
    """
    words = text.split(",")
    for word in words:
        key, _, value = word.partition(":")
        if key.strip() == "backend" and value.strip() not in BACKENDS:
            return f"Unknown allocator backend {value.strip()!r}"
    rest = ",".join(word for word in words if word.partition(":")[0].strip() != "backend")
    parsers = ("_accelerator_setAllocatorSettings", "_cuda_cudaCachingAllocator_set_allocator_settings")
    internals = vars(torch)["_C"]
    take = next((getattr(internals, name) for name in parsers if hasattr(internals, name)), None)
    if not rest or take is None:
        return ""
    try:
        take(rest)
    except Exception as why:
        return f"{type(why).__name__}: {why}".splitlines()[0]
    return ""


def memory(torch: Any) -> dict[str, int]:
    """Bytes during an allocation and after it was given back."""
    free = torch.cuda.mem_get_info()[0]
    block = torch.empty(BYTES, dtype=torch.uint8, device="cuda")
    during = {"allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved()}
    del block
    torch.cuda.empty_cache()
    left = torch.cuda.memory_reserved()
    return {"asked": BYTES, **during, "left": left, "lost": free - torch.cuda.mem_get_info()[0]}


def main() -> None:
    """Print the facts, or why torch does not load."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    device = parser.parse_args().device
    given = {name: os.environ.pop(name) for name in NAMES if name in os.environ}
    try:
        import torch
    except Exception as why:
        print(json.dumps({"error": f"{type(why).__name__}: {why}"}))
        return
    facts: dict[str, Any] = {"refused": {name: judged(torch, text) for name, text in given.items()}}
    if device == "cuda":
        try:
            facts["memory"] = memory(torch)
        except Exception as why:
            facts["memory_error"] = f"{type(why).__name__}: {why}".splitlines()[0]
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
