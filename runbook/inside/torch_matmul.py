"""Run by the target interpreter: matrix products per type against float64. Prints one JSON object.

``--device cpu|cuda``. For each type: the largest absolute error of a (256, 256) x (256, 256) product of standard normal
numbers, divided by the largest entry of the float64 product. The inputs are rounded to the type before both products,
so the figure is the error of the product alone.
"""

import argparse
import json


def main() -> None:
    """Print the errors, or why there are none."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    device = parser.parse_args().device
    try:
        import torch

        generator = torch.Generator().manual_seed(0)
        left, right = (torch.randn(256, 256, generator=generator, dtype=torch.float64) for _ in range(2))
        errors = {}
        for name in ("float32", "bfloat16", "float16"):
            dtype = getattr(torch, name)
            a, b = left.to(dtype), right.to(dtype)
            true = a.double() @ b.double()
            product = (a.to(device) @ b.to(device)).double().cpu()
            errors[name] = float(f"{((product - true).abs().max() / true.abs().max()).item():.2e}")
    except Exception as why:
        print(json.dumps({"error": f"{type(why).__name__}: {why}"}))
        return
    print(json.dumps({"device": device, "errors": errors}))


if __name__ == "__main__":
    main()
