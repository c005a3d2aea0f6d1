"""What the rotary embedding of an installed vLLM becomes when config.json is edited as the articles say.

    $PYTHON benchmarks/rope_edits.py CHECKPOINT      # $PYTHON: a target's interpreter; no weights are read

One line an edit: class, base, numbers rotated. docs/parity.md has what it printed.
"""

import copy
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.rotary_embedding import get_rope
from vllm.transformers_utils.config import get_config

DYNAMIC = {"type": "dynamic", "factor": 4.0}
THETA = 10_000_000.0
Edit = Callable[[dict[str, Any]], None]
EDITS: dict[str, Edit] = {
    "as it is": lambda _: None,
    "inside text_config": lambda config: _text(config).update(rope_scaling=DYNAMIC),
    "at top level": lambda config: config.update(rope_scaling=DYNAMIC),
    "inside, theta beside it": lambda config: _text(config).update(rope_scaling=DYNAMIC, rope_theta=THETA),
}


def _text(config: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = config.get("text_config", config)
    return found


def main() -> None:
    """Print what each edit leads to."""
    plain = json.loads((Path(sys.argv[1]) / "config.json").read_text(encoding="utf-8"))
    for name, edit in EDITS.items():
        config = copy.deepcopy(plain)
        edit(config)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps(config), encoding="utf-8")
            text = get_config(folder, trust_remote_code=False).get_text_config()
        with set_current_vllm_config(VllmConfig()):
            rope = get_rope(
                text.head_dim,
                text.max_position_embeddings,
                rope_parameters=text.rope_parameters,
                dtype=torch.float32,
            )
        print(f"{name:24} {type(rope).__name__} base {rope.base:.0f}, {rope.rotary_dim} numbers of a head")


if __name__ == "__main__":
    main()
