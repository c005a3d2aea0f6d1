"""Run by the target interpreter: flash-attn's varlen qkv-packed function against attention in float32. Prints one JSON object.

``--path FOLDER`` holds the flash_attn to try and comes first; ``--backward 1`` looks at gradients too; ``--device cpu`` is
for a flash_attn that computes there, which the real one does not. Each case packs
sequences of the given lengths into one (total, 3, heads, head_dim) tensor of standard normal numbers, four heads.

The reference is the formula, sequence by sequence, in float32 (TF32 off) on the same rounded inputs. The same formula
in the inputs' own 16-bit type shows what that type costs; flash-attn may be off by twice as much, the bound of its own
tests (https://github.com/Dao-AILab/flash-attention/blob/main/tests/test_flash_attn.py), and by 1e-4, a tenth of the
spacing of float16 at 1, where the formula is exact: a sequence of one returns its value. Gradients may be off by three
times as much: they are summed with atomics, in any order. ``blunder`` is how far causal attention is from attention
without the mask; a check that would let that pass looks at nothing.
"""

import argparse
import json
import math
import sys
from typing import Any

LENGTHS = ((1,), (7,), (64,), (1, 1, 1), (1, 130, 5, 257, 1, 64), (513, 1))
HEAD_DIMS = (32, 64, 96, 128, 192, 256)
HEADS = 4
SLACK = 1e-4
OUT_FACTOR, GRAD_FACTOR = 2, 3


def formula(qkv: Any, lengths: tuple[int, ...], *, causal: bool) -> Any:
    """softmax(q k^T / sqrt(d)) v of each sequence, computed in the type of ``qkv``."""
    import torch

    done = []
    for part in qkv.split(lengths):
        query, key, value = (part[:, index].transpose(0, 1) for index in range(3))
        scores = query @ key.transpose(-1, -2) / math.sqrt(part.shape[-1])
        if causal:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=qkv.device).triu(1)
            scores = scores.masked_fill(hidden, -math.inf)
        done.append((scores.softmax(-1) @ value).transpose(0, 1))
    return torch.cat(done)


def off(one: Any, other: Any) -> float:
    """The largest difference; infinite where a number is none."""
    worst = (one.float() - other.float()).abs().max().item()
    return worst if math.isfinite(worst) else math.inf


def case(
    function: Any,
    device: str,
    lengths: tuple[int, ...],
    dim: int,
    dtype: Any,
    *,
    causal: bool,
    backward: bool,
) -> dict[str, Any]:
    """One case: how far the kernel is from float32, and how far it may be."""
    import torch

    generator = torch.Generator().manual_seed(dim + len(lengths))
    shape = (sum(lengths), 3, HEADS, dim)
    qkv = torch.randn(shape, generator=generator).to(device, dtype)
    weight = torch.randn((shape[0], HEADS, dim), generator=generator).to(device, dtype)
    ends = torch.tensor((0, *lengths), device=device).cumsum(0).to(torch.int32)
    inputs = [each.detach().requires_grad_(backward) for each in (qkv, qkv.float(), qkv.clone())]
    got = function(inputs[0], ends, max(lengths), 0.0, causal=causal)
    true, plain = (formula(each, lengths, causal=causal) for each in inputs[1:])
    row: dict[str, Any] = {
        "lengths": list(lengths),
        "dim": dim,
        "dtype": str(dtype).removeprefix("torch."),
        "causal": causal,
        "off": off(got, true),
        "may": OUT_FACTOR * off(plain, true) + SLACK,
    }
    if backward:
        for result in (got, true, plain):
            result.backward(weight.to(result.dtype))
        mine, exact, rough = (each.grad for each in inputs)
        row |= {"grad_off": off(mine, exact), "grad_may": GRAD_FACTOR * off(rough, exact) + SLACK}
    return row


def main() -> None:
    """Print the cases, or why there are none."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--path", default="")
    parser.add_argument("--backward", default="0", choices=("0", "1"))
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    asked = parser.parse_args()
    if asked.path:
        sys.path.insert(0, asked.path)
    try:
        import flash_attn
        import torch

        facts = {"version": flash_attn.__version__, "file": flash_attn.__file__}
        if asked.device == "cuda" and not torch.cuda.is_available():
            print(json.dumps({**facts, "no_gpu": True}))
            return
        torch.backends.cuda.matmul.allow_tf32 = False
        rows = [
            case(
                flash_attn.flash_attn_varlen_qkvpacked_func,
                asked.device,
                lengths,
                dim,
                dtype,
                causal=causal,
                backward=asked.backward == "1",
            )
            for lengths in LENGTHS
            for dim in HEAD_DIMS
            for dtype in (torch.float16, torch.bfloat16)
            for causal in (False, True)
        ]
        qkv = torch.randn((64, 3, HEADS, 64), generator=torch.Generator().manual_seed(0))
        blunder = off(formula(qkv, (64,), causal=True), formula(qkv, (64,), causal=False))
        facts["gpu"] = torch.cuda.get_device_name() if asked.device == "cuda" else "none"
    except Exception as why:
        print(json.dumps({"error": f"{type(why).__name__}: {why}"}))
        return
    wrong = [
        row
        for row in rows
        if not (row["off"] <= row["may"] and row.get("grad_off", 0) <= row.get("grad_may", 0))
    ]
    worst = {
        name: max(row["off"] for row in rows if row["dtype"] == name) for name in ("float16", "bfloat16")
    }
    print(
        json.dumps(
            {
                **facts,
                "cases": len(rows),
                "worst": worst,
                "worst_grad": max((row.get("grad_off", 0.0) for row in rows), default=0.0),
                "blunder": blunder,
                "most": max(row["may"] for row in rows),
                "wrong": wrong[:5],
                "wrong_cases": len(wrong),
            }
        )
    )


if __name__ == "__main__":
    main()
