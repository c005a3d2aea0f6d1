"""The kernel's check on the CPU with a real torch: attention that is right passes, attention that is wrong does not.

flash-attn itself computes on GPUs only (``docs/measurements.md`` says what an H200 answered), so its function's place is
taken by PyTorch's own attention, once as it should be and once with a fault.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import walking

from runbook.actions import flash_kernel
from runbook.probes.live import INSIDE
from runbook.workspace import Workspace

PLACE = """
import torch
__version__ = "2.8.3"

def flash_attn_varlen_qkvpacked_func(qkv, ends, longest, dropout_p=0.0, softmax_scale=None, causal=False):
    done = []
    for part in qkv.split((ends[1:] - ends[:-1]).tolist()):
        query, key, value = (part[:, index].transpose(0, 1)[None].float() for index in range(3))
        {fault}
        done.append(torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal)[0].transpose(0, 1))
    return torch.cat(done).to(qkv.dtype)
"""


def asked(python: Path, folder: Path, fault: str) -> dict[str, Any]:
    (folder / "flash_attn").mkdir(parents=True)
    (folder / "flash_attn" / "__init__.py").write_text(PLACE.replace("{fault}", fault), encoding="utf-8")
    words = ["--path", str(folder), "--device", "cpu", "--backward", "1"]
    ran = subprocess.run(
        [str(python), str(INSIDE / "flash_check.py"), *words], capture_output=True, text=True, check=True
    )
    found = json.loads(ran.stdout)
    assert isinstance(found, dict)
    return found


def test_right_attention_is_right(built: Path, tmp_path: Path) -> None:
    found = asked(Workspace(built).target_python(walking.OLD), tmp_path, "pass")
    assert found["cases"] == 144
    assert flash_kernel.judged(found)["said"] == flash_kernel.RIGHT


@pytest.mark.parametrize(
    ("fault", "least"),
    [
        ("causal = False", 48),  # no mask: seen wherever a sequence is longer than one
        ("key = key.roll(1, 2)", 1),  # each key is its neighbour's
        ("query = query * 1.1", 1),  # a wrong scale
        ("value = value if value.shape[2] > 1 else value * 0", 1),  # a fault in a length of one alone
    ],
)
def test_wrong_attention_is_wrong(built: Path, tmp_path: Path, fault: str, least: int) -> None:
    found = asked(Workspace(built).target_python(walking.OLD), tmp_path, fault)
    assert found["wrong_cases"] >= least
    assert flash_kernel.judged(found)["said"] == flash_kernel.WRONG
