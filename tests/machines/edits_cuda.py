"""Edited copies for CUDA: drivers too old, a cu13 wheel, compat and stubs before the driver, a toolkit of two faces."""

import json
import re

from editing import Change, Edited, Said, replaced

from runbook.checks import libraries
from runbook.checks.readings import DIST_INFO, GPU_QUESTION
from runbook.model import Verdict
from runbook.parse import compilers
from runbook.probes import questions
from runbook.probes.replay import load

OK, FAIL, WARN, UNKNOWN = Verdict.OK, Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN
# What a torch that cannot compute brings along.
DEAD = {"TORCH-005": FAIL, "TORCH-006": FAIL, "TORCH-011": UNKNOWN}
PARENT, STACK = "h200-vllm-0.19.1", "vllm-0.19.1-cu128"
NUMBER = "580.159.04"
PATHS, FACTS, VERSION = "env LD_LIBRARY_PATH", "inside torch_facts", "read {site}/torch/version.py"
MATMUL = "inside torch_matmul device=cuda"


def everywhere(old: str, new: str) -> dict[str, Change]:
    """Every answer of the parent in which ``old`` stands, with ``new`` in its place."""
    found: dict[str, Change] = {}
    for (stack, ask), entry in load(PARENT).entries.items():
        if stack in ("", STACK) and entry.file and old in entry.file.read_text(encoding="utf-8"):
            found[ask] = lambda text: text.replace(old, new)
    return found


def sees_none(cuinit: int, cuda: int, code: int, name: str, said: str) -> Change:
    """torch_facts on a driver that does not serve it."""

    def change(text: str) -> str:
        facts = json.loads(text)
        facts |= {
            "available": False,
            "gpus": 0,
            "names": [],
            "init_error": said,
            "driver": {"cuinit": cuinit, "cuda": cuda},
            "runtime": {"code": code, "name": name},
        }
        return json.dumps(facts, indent=1) + "\n"

    return change


TOO_OLD = "RuntimeError: The NVIDIA driver on your system is too old (found version {})."
NO_FIELD = Said('Field "compute_cap" is not a valid field to query.\n\n', rc=2)


def old_driver(number: str, cuda: int) -> dict[str, Change]:
    """The parent with another driver."""
    broken = '{"error": "RuntimeError: The NVIDIA driver on your system is too old"}\n'
    return {
        **everywhere(NUMBER, number),
        FACTS: sees_none(0, cuda, 35, "cudaErrorInsufficientDriver", TOO_OLD.format(cuda)),
        MATMUL: broken,
    }


def cu13(text: str) -> str:
    """torch/version.py of the CUDA 13 build."""
    return text.replace("+cu128", "+cu130").replace("'12.8'", "'13.0'")


def cu13_packages(text: str) -> str:
    """The runtime wheel of CUDA 13 in place of 12's."""
    return re.sub(r"nvidia_cuda_runtime_cu12-[\d.]+(?=\.dist-info)", "nvidia_cuda_runtime-13.0.96", text)


COMPAT = "/usr/local/cuda-13.0/compat"
STUBS = "/usr/local/cuda/lib64/stubs"
MACHINES = [
    Edited(
        "h200-driver-470",
        PARENT,
        STACK,
        "one H200 with driver 470, cu128 wheels",
        ("every answer names driver 470.256.02; nvidia-smi does not know compute_cap; CUDA serves 11.4",),
        {**old_driver("470.256.02", 11040), GPU_QUESTION: NO_FIELD},
        {
            "DRIVER-002": FAIL,
            "CUDA-008": FAIL,
            "CUDA-009": WARN,
            **DEAD,
        },
    ),
    Edited(
        "h200-driver-510",
        PARENT,
        STACK,
        "one H200 with driver 510, cu128 wheels",
        ("every answer names driver 510.108.03; CUDA serves 11.6",),
        old_driver("510.108.03", 11060),
        {"CUDA-001": FAIL, "CUDA-008": FAIL, "CUDA-009": WARN, **DEAD, "ARCH-004": WARN},
    ),
    Edited(
        "h200-cu13-wheel",
        PARENT,
        STACK,
        "one H200 with driver 570, a torch for CUDA 13",
        ("every answer names driver 570.133.20; torch/version.py and the runtime wheel are of CUDA 13.0",),
        {
            **old_driver("570.133.20", 12080),
            VERSION: cu13,
            f"glob {DIST_INFO}": cu13_packages,
            "run /opt/gcc/bin/gcc --version": "gcc (Ubuntu 13.3.0-6ubuntu2~24.04.1) 13.3.0\n",
            f"glob {DIST_INFO}/METADATA": cu13_packages,
        },
        {
            "CUDA-008": FAIL,
            "CUDA-009": WARN,
            "CUDA-011": OK,
            "PY-003": FAIL,
            "PY-014": FAIL,
            "PY-015": FAIL,
            **DEAD,
            "TORCH-008": FAIL,
            "TORCH-009": FAIL,
            "ARCH-004": WARN,
        },
    ),
    Edited(
        "h200-compat-shadows",
        PARENT,
        STACK,
        "one H200; an older cuda-compat comes before the driver's libcuda",
        (f"LD_LIBRARY_PATH begins with {COMPAT}, which holds 580.95.05; cuInit answers 803",),
        {
            PATHS: lambda text: f"{COMPAT}:{text}",
            f"glob {COMPAT}/lib*.so.*": f"{COMPAT}/libcuda.so.1\n{COMPAT}/libcuda.so.580.95.05\n{COMPAT}/libnvidia-ptxjitcompiler.so.580.95.05",
            FACTS: sees_none(
                803,
                13000,
                803,
                "cudaErrorSystemDriverMismatch",
                "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803: system has unsupported display driver / cuda driver combination",
            ),
            MATMUL: '{"error": "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803"}\n',
        },
        {"CUDA-007": FAIL, **DEAD},
    ),
    Edited(
        "h200-stubs-first",
        PARENT,
        STACK,
        "one H200; the stubs folder comes before the driver's libcuda",
        (f"LD_LIBRARY_PATH begins with {STUBS}; cuInit answers 34",),
        {
            PATHS: lambda text: f"{STUBS}:{text}",
            f"glob {STUBS}/lib*.so.*": f"{STUBS}/libcuda.so.1",
            f"run readlink -f {STUBS}/libcuda.so.1": f"{STUBS}/libcuda.so\n",
            FACTS: sees_none(34, 0, 34, "cudaErrorStubLibrary", "RuntimeError: CUDA error: stub library"),
            MATMUL: '{"error": "RuntimeError: CUDA driver is a stub library"}\n',
        },
        {"CUDA-007": FAIL, **DEAD},
    ),
    Edited(
        "h200-two-faced-cuda",
        PARENT,
        STACK,
        "one H200; nvcc 13.0 with headers of 12.1",
        ("the headers below CUDA_HOME say 12.1", "the nvcc on PATH is 12.1's, that of CUDA_HOME is 13.0's"),
        {
            "run nvcc --version": replaced(("release 13.0", "release 12.1")),
            questions.run(compilers.header_argv("/usr/local/cuda")): "#define CUDART_VERSION  12010\n",
        },
        {"CUDA-002": FAIL, "CUDA-010": FAIL},
    ),
    Edited(
        "h200-system-cuda-on-path",
        PARENT,
        STACK,
        "one H200; a system CUDA with another cuDNN on LD_LIBRARY_PATH",
        ("LD_LIBRARY_PATH begins with /usr/local/cuda-13.0/lib64, which holds cuDNN 9.14.0",),
        {
            PATHS: lambda text: f"/usr/local/cuda-13.0/lib64:{text}",
            "glob /usr/local/cuda-13.0/lib64/lib*.so.*": "\n".join(
                f"/usr/local/cuda-13.0/lib64/{name}"
                for name in (
                    "libcublas.so.13",
                    "libcudnn.so.9",
                    "libcudnn_graph.so.9",
                    "libcudnn_graph.so.9.14.0",
                    "libcudnn_ops.so.9",
                    "libcudnn_ops.so.9.14.0",
                )
            ),
        },
        {"CUDA-003": WARN, "TORCH-010": FAIL},
    ),
]
assert libraries.CACHE  # the cache needs no edit: what comes first on the path wins
