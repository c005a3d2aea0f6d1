"""Run by the target interpreter: causal attention against float64. Prints one JSON object.

``--device cpu|cuda``. Tensors are (batch, heads, length, head_dim) = (B, 4, L, 64) of standard normal numbers; the
figure is the largest absolute difference over all shapes. A batch of one and a length of one are among them: both have
their own code paths.
"""

import argparse
import json
import math

SHAPES = ((1, 1), (1, 7), (2, 64), (3, 130))


def main() -> None:
    """Print the errors, or why there are none."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    device = parser.parse_args().device
    try:
        import torch

        generator = torch.Generator().manual_seed(0)
        errors = dict.fromkeys(("float32", "bfloat16"), 0.0)
        for batch, length in SHAPES:
            query, key, value = (
                torch.randn(batch, 4, length, 64, generator=generator, dtype=torch.float64) for _ in range(3)
            )
            for name in errors:
                dtype = getattr(torch, name)
                q, k, v = (each.to(dtype) for each in (query, key, value))
                got = torch.nn.functional.scaled_dot_product_attention(
                    q.to(device), k.to(device), v.to(device), is_causal=True
                )
                scores = q.double() @ k.double().transpose(-1, -2) / math.sqrt(64)
                hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
                true = scores.masked_fill(hidden, -math.inf).softmax(-1) @ v.double()
                errors[name] = max(errors[name], (got.double().cpu() - true).abs().max().item())
    except Exception as why:
        print(json.dumps({"error": f"{type(why).__name__}: {why}"}))
        return
    shapes = [f"{batch}x{length}" for batch, length in SHAPES]
    print(
        json.dumps(
            {
                "device": device,
                "shapes": shapes,
                "errors": {name: float(f"{error:.2e}") for name, error in errors.items()},
            }
        )
    )


if __name__ == "__main__":
    main()
