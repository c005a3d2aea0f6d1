"""Run by the target interpreter: matrix products per type against float64, and the libraries that took part. Prints JSON.

``--device cpu|cuda``. For each type: the largest absolute error of a (256, 256) x (256, 256) product of standard normal
numbers, divided by the largest entry of the float64 product. The inputs are rounded to the type before both products,
so the figure is the error of the product alone. ``convolution`` is the same for a float32 convolution (cuDNN's work on
a GPU, without TF32); ``libraries`` are the NVIDIA libraries in the process afterwards, ``{site}`` for its packages.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

NVIDIA = (
    r"lib(?:cuda|cudart|cudnn|cublas|cufft|curand|cusolver|cusparse|nccl|nvrtc|nvJitLink|cupti)\w*\.so[.0-9]*"
)


def error(got: Any, true: Any) -> float:
    """Largest absolute error, as a share of the largest entry."""
    return float(f"{((got.double().cpu() - true).abs().max() / true.abs().max()).item():.2e}")


def libraries(site: str) -> dict[str, str]:
    """Name -> path of NVIDIA's libraries in this process."""
    paths = re.findall(rf"(/\S+/{NVIDIA})$", Path("/proc/self/maps").read_text(), re.MULTILINE)
    return {Path(path).name: path.replace(site, "{site}", 1) for path in sorted(set(paths))}


def version(of: Any) -> Any:
    """What a library says of itself, or why it does not."""
    try:
        found = of()
    except Exception as why:
        return f"{type(why).__name__}: {why}".splitlines()[0]
    return ".".join(map(str, found)) if isinstance(found, tuple) else found


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
            errors[name] = error(a.to(device) @ b.to(device), a.double() @ b.double())
        torch.backends.cudnn.allow_tf32 = False
        picture = left.float().reshape(1, 16, 64, 64)
        kernel = right.float().reshape(-1)[: 16 * 16 * 9].reshape(16, 16, 3, 3)
        conv = torch.nn.functional.conv2d
        convolution = error(
            conv(picture.to(device), kernel.to(device)), conv(picture.double(), kernel.double())
        )
    except Exception as why:
        print(json.dumps({"error": f"{type(why).__name__}: {why}"}))
        return
    facts = {
        "device": device,
        "errors": errors,
        "convolution": convolution,
        "float32_precision": torch.get_float32_matmul_precision(),
        "cudnn": version(torch.backends.cudnn.version),
        "nccl": version(torch.cuda.nccl.version),
        "libraries": libraries(str(Path(torch.__file__).parents[1])),
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
