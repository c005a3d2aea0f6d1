"""Edited copies for TORCH: a CPU build on a GPU box, swapped libraries, settings, memory."""

import json
from collections.abc import Callable

from editing import NO_FILE, Edited, replaced

from runbook.checks.readings import DIST_INFO
from runbook.model import Verdict

FAIL, UNKNOWN = Verdict.FAIL, Verdict.UNKNOWN
PARENT, STACK = "h200-vllm-0.19.1", "vllm-0.19.1-cu128"
FACTS, MATMUL, MEMORY = (
    "inside torch_facts",
    "inside torch_matmul device=cuda",
    "inside torch_allocator device=cuda",
)
VERSION = "read {site}/torch/version.py"


# How an installer was told where to look; asked only of a CPU build.
INDEXES = tuple(
    f"env {name}"
    for name in ("UV_TORCH_BACKEND", "UV_INDEX", "UV_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")
)


def package(old: str, new: str) -> dict[str, Callable[[str], str]]:
    """A package at another version, in both lists that name it."""
    return {
        f"glob {DIST_INFO}{end}": replaced((f"/{old}.dist-info", f"/{new}.dist-info"))
        for end in ("", "/METADATA")
    }


def cpu_build(text: str) -> str:
    """torch/version.py of a CPU build."""
    return text.replace("+cu128", "+cpu").replace("'12.8'", "None")


def facts(**changes: object) -> Callable[[str], str]:
    """An answer of a script with some keys changed."""
    return lambda text: json.dumps(json.loads(text) | changes, indent=1) + "\n"


MACHINES = [
    Edited(
        "h200-cpu-torch",
        PARENT,
        STACK,
        "one H200 with a CPU build of torch",
        ("torch/version.py is 2.10.0+cpu, the package too; torch sees no GPU",),
        {
            VERSION: cpu_build,
            **package("torch-2.10.0", "torch-2.10.0+cpu"),
            **dict.fromkeys(INDEXES, NO_FILE),
            "read {site}/torch-2.10.0+cpu.dist-info/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 2.10.0+cpu\nRequires-Dist: filelock\nRequires-Dist: sympy>=1.13.3\n",
            FACTS: facts(
                version="2.10.0+cpu",
                cuda=None,
                available=False,
                gpus=0,
                names=[],
                arch_list=[],
                init_error="AssertionError: Torch not compiled with CUDA enabled",
                runtime={},
            ),
            MATMUL: '{"error": "AssertionError: Torch not compiled with CUDA enabled"}\n',
        },
        {
            "PY-003": FAIL,
            "TORCH-002": FAIL,
            "TORCH-005": FAIL,
            "TORCH-006": FAIL,
            "TORCH-008": FAIL,
            "TORCH-011": UNKNOWN,
        },
    ),
    Edited(
        "h200-libraries-swapped",
        PARENT,
        STACK,
        "one H200; NCCL, torchvision and a part of cuDNN are others",
        (
            "nvidia-nccl-cu12 2.21.5, torchvision is of cu130, libcudnn_ops was loaded from /usr/local/cuda/lib64, and the allocator keeps 256 MiB",
        ),
        {
            **package("nvidia_nccl_cu12-2.27.5", "nvidia_nccl_cu12-2.21.5"),
            "read {site}/torchvision/version.py": lambda text: text.replace("+cu128", "+cu130"),
            MATMUL: lambda text: text.replace(
                "{site}/nvidia/cudnn/lib/libcudnn_ops.so.9", "/usr/local/cuda/lib64/libcudnn_ops.so.9"
            ),
            MEMORY: lambda text: (
                json.dumps(
                    {
                        "refused": {},
                        "memory": json.loads(text)["memory"] | {"left": 268435456, "lost": 268435456},
                    }
                )
                + "\n"
            ),
        },
        {
            "PY-003": FAIL,
            "PY-015": FAIL,
            "TORCH-008": FAIL,
            "TORCH-009": FAIL,
            "TORCH-011": FAIL,
            "TORCH-013": FAIL,
        },
    ),
    Edited(
        "h200-allocator-setting",
        PARENT,
        STACK,
        "one H200; the allocator is given an option that does not exist",
        ("PYTORCH_CUDA_ALLOC_CONF is foo:1",),
        {
            "env PYTORCH_CUDA_ALLOC_CONF": "foo:1",
            MEMORY: lambda text: (
                json.dumps(
                    json.loads(text)
                    | {
                        "refused": {
                            "PYTORCH_CUDA_ALLOC_CONF": "ValueError: Unrecognized key 'foo' in Accelerator allocator config."
                        }
                    }
                )
                + "\n"
            ),
        },
        {"TORCH-012": FAIL},
    ),
]
