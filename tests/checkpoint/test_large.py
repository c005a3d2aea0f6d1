"""A checkpoint of the size of Qwen3.5-397B-A17B, its weights sparse: examined in seconds, from a thousandth of its bytes."""

import json
import subprocess
import sys
import time
from math import prod
from pathlib import Path
from typing import Any

import pytest
import tiny

from runbook.checkpoint import shapes

# As in the config.json of Qwen/Qwen3.5-397B-A17B, by way of
# https://github.com/ai-dynamo/aiconfigurator/tree/095f58a51c4ca8e61b66ec108d86f223f8d559ce (read 2026-11-30).
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe", "tie_word_embeddings": False,
    "text_config": {
        "model_type": "qwen3_5_moe_text", "dtype": "bfloat16", "hidden_size": 4096, "num_experts": 512, "moe_intermediate_size": 1024,
        "shared_expert_intermediate_size": 1024, "num_hidden_layers": 60, "full_attention_interval": 4, "num_attention_heads": 32,
        "num_key_value_heads": 2, "head_dim": 256, "linear_num_key_heads": 16, "linear_num_value_heads": 64, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "vocab_size": 248320, "mtp_num_hidden_layers": 1, "attn_output_gate": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25, "mrope_interleaved": True, "mrope_section": [11, 11, 10]},
    },
    "vision_config": {
        "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "out_hidden_size": 4096, "patch_size": 16,
        "spatial_merge_size": 2, "temporal_patch_size": 2, "in_channels": 3, "num_position_embeddings": 2304,
    },
}  # fmt: skip
SHARDS, TENSORS, PARAMETERS = 94, 2924, 403_397_928_944
MOST_READ = 50_000_000  # bytes
# What the kernel counts of this very process, its own libraries among it.
ASK = "import sys; from runbook.checkpoint.__main__ import main; main(sys.argv[1:]); print(open('/proc/self/io').read())"


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """94 files of 806 GB together that take no room: headers are written, weights are holes."""
    every = shapes.expected(CONFIG)
    assert every is not None
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    named = {}
    rows = list(every.items())
    for number in range(SHARDS):
        name = f"model-{number + 1:05}-of-{SHARDS:05}.safetensors"
        head: tiny.Header = {}
        place = 0
        for tensor, shape in rows[number::SHARDS]:
            exact = tensor.endswith(shapes.FLOAT32)
            size = prod(shape) * (4 if exact else 2)
            head[tensor] = {
                "dtype": "F32" if exact else "BF16",
                "shape": shape,
                "data_offsets": [place, place + size],
            }
            place += size
            named[tensor] = name
        tiny.write(tmp_path / name, head, b"")
        with (tmp_path / name).open("r+b") as file:
            file.truncate(file.seek(0, 2) + place)
    (tmp_path / tiny.INDEX).write_text(json.dumps({"weight_map": named}), encoding="utf-8")
    return tmp_path


def test_it_reads_headers_only(large: Path) -> None:
    began = time.perf_counter()
    ran = subprocess.run(
        [sys.executable, "-c", ASK, str(large)], capture_output=True, text=True, check=True, timeout=60
    )
    took = time.perf_counter() - began
    answer, _, counts = ran.stdout.partition("\n}\n")
    found = json.loads(f"{answer}}}")
    read = int(dict(line.split(": ") for line in counts.splitlines() if line)["rchar"])
    assert (found["weights"]["files"], found["weights"]["tensors"], found["weights"]["parameters"]) == (
        SHARDS,
        TENSORS,
        PARAMETERS,
    )
    assert found["weights"]["bytes"] > 800_000_000_000
    assert [
        row
        for row in found["faults"]
        if row[0].startswith(("weights/", "index/", "shapes/", "config/", "origin/"))
    ] == []
    assert found["weights"]["read_bytes"] < 2_000_000
    assert read < MOST_READ
    assert took < 10
    assert len(answer) < 100_000
