"""Edited copies about a stray flash-attn, other cards under the GPU stack, and a start that was set up badly."""

import json
import re
from collections.abc import Callable
from typing import Any

from editing import NO_FILE, NO_PROGRAM, Edited, Said

from runbook import launch
from runbook.checks import backends, flash_stray, vllm
from runbook.checks.readings import BINARIES
from runbook.model import Verdict
from runbook.parse import nvidia
from runbook.probes import questions

H200, CPU2, GPU, OLD_CPU = "h200-vllm-0.19.1", "cpu-2core", "vllm-0.19.1-cu128", "vllm-0.19.1-cpu"
OK, FAIL, WARN = Verdict.OK, Verdict.FAIL, Verdict.WARN
DISTS, METADATA, SMI = (
    "glob {site}/*.dist-info",
    "glob {site}/*.dist-info/METADATA",
    questions.run(nvidia.ARGV),
)
FLASHINFER = {"glob {site}/flashinfer/__init__.py": "{site}/flashinfer/__init__.py\n"}
PACKAGE, ROTARY = f"glob {flash_stray.PACKAGE}", f"glob {flash_stray.ROTARY}"
WHICH = questions.run(backends.WHICH)
REGISTRY = (
    """run grep -c '"Qwen3_5ForConditionalGeneration"' '{site}/vllm/model_executor/models/registry.py'"""
)
RECORD = questions.run(["grep", "-F", ".so,", "{site}/vllm-0.19.1.dist-info/RECORD"])
UNIT = "/etc/systemd/system/qwen-vllm.service"
SERVICE = "[Service]\nRestart=always\nExecStart=/opt/venv/bin/vllm serve Qwen/Qwen3.5-4B --max-model-len 32768 --swap-space 4 --disable-log-requests\n"
EXTENSION = "flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so"
LAME = {
    "file": EXTENSION, "role": "extension", "needed": ["libc10.so", "libtorch.so"], "missing_libraries": [],
    "missing": [{"symbol": "_ZN3c105ErrorC2ENS_14SourceLocationESs", "version": "", "demangled": "c10::Error::Error(c10::SourceLocation, std::string)"}],
    "missing_count": 1, "missing_versions": [], "driver": [], "through": [],
}  # fmt: skip
QWEN = '{"model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"], "text_config": {"hidden_size": 1024, "intermediate_size": 3584, "vocab_size": 248320, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "linear_num_key_heads": 16, "linear_num_value_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "mamba_ssm_dtype": "float32", "max_position_embeddings": 262144, "layer_types": ["linear_attention", "full_attention"]}}\n'


def one_more(line: str) -> Callable[[str], str]:
    """One path more in a list, in its place."""
    return lambda text: "\n".join(sorted([*text.splitlines(), line])) + "\n"


def recorded(name: str) -> dict[str, Callable[[str], str]]:
    """One package more, in both lists that name it."""
    return {
        DISTS: one_more(f"{{site}}/{name}.dist-info"),
        METADATA: one_more(f"{{site}}/{name}.dist-info/METADATA"),
    }


def without(pattern: str) -> Callable[[str], str]:
    """The lines that do not hold a pattern."""
    return lambda text: "".join(
        line for line in text.splitlines(keepends=True) if not re.search(pattern, line)
    )


def with_link(row: dict[str, Any]) -> Callable[[str], str]:
    """The libraries of the target and one more that links torch."""

    def change(text: str) -> str:
        answer = json.loads(text)
        answer["links"]["files"].append(row)
        return json.dumps(answer) + "\n"

    return change


def without_flag(flag: str) -> Callable[[str], str]:
    """A parser that lost a flag."""

    def change(text: str) -> str:
        answer = json.loads(text)
        answer["flags"] = [one for one in answer["flags"] if one != flag]
        answer["options_sha256"] = "0" * 64
        return json.dumps(answer, indent=1) + "\n"

    return change


def with_values(**changes: object) -> Callable[[str], str]:
    """An answer of a script with some keys changed."""
    return lambda text: json.dumps(json.loads(text) | changes, indent=1) + "\n"


def card(name: str, cap: str, mib: int) -> Callable[[str], str]:
    """Another card in the rows of nvidia-smi."""
    return lambda text: re.sub(
        r"(?m)^(\d+), NVIDIA H200, 9\.0, ([^,]+), \d+", rf"\1, {name}, {cap}, \2, {mib}", text
    )


MACHINES = [
    Edited(
        "h200-flash-attn-4", H200, GPU, "one H200; a trainer's flash-attn-4 in the serving environment",
        ("flash-attn-4 4.0.0b5 is installed: a folder flash_attn that holds cute and nothing else",),
        {**recorded("flash_attn_4-4.0.0b5"), PACKAGE: flash_stray.PACKAGE + "\n", ROTARY: ""},
        {"PY-003": WARN, "FLASH-002": WARN, "FLASH-005": FAIL},
    ),
    Edited(
        "h200-flash-attn-of-another-torch", H200, GPU, "one H200; flash-attn 2.6.3 built for torch 2.3 beside torch 2.10",
        ("flash-attn 2.6.3 is installed, and its extension lacks a symbol of libc10",),
        {**recorded("flash_attn-2.6.3"), "read {site}/flash_attn-2.6.3.dist-info/METADATA": "Metadata-Version: 2.1\nName: flash_attn\nVersion: 2.6.3\nRequires-Dist: torch\nRequires-Dist: einops\n", PACKAGE: flash_stray.PACKAGE + "\n", ROTARY: flash_stray.ROTARY + "\n", BINARIES: with_link(LAME)},
        {"PY-003": WARN, "FLASH-002": WARN, "FLASH-005": WARN, "FLASH-006": FAIL},
    ),
    Edited(
        "rtx5090-cu128", H200, GPU, "an RTX 5090 (12.0) under the stack for CUDA 12.8",
        ("nvidia-smi lists an RTX 5090 of 32607 MiB with compute capability 12.0",),
        {SMI: card("NVIDIA GeForce RTX 5090", "12.0", 32607)},
        {"FLASH-004": WARN, "ARCH-003": WARN, "WARM-008": WARN},
    ),
    Edited(
        "t4-cu128", H200, GPU, "a T4 (7.5), which has no bfloat16, under the stack for CUDA 12.8",
        ("nvidia-smi lists a T4 of 15360 MiB with compute capability 7.5",),
        {SMI: card("Tesla T4", "7.5", 15360), **FLASHINFER},
        {"FLASH-004": WARN, "VLLM-010": WARN, "VLLM-014": WARN, "WARM-008": WARN},
    ),
    Edited(
        "h200-old-start-script", H200, GPU, "one H200; a service unit, variables and files of another release",
        ("a unit starts vLLM with --swap-space and --disable-log-requests", "VLLM_ATTENTION_BACKEND is set", "PYTHONPATH names a checkout of vLLM", "MAX_JOBS is 64", "vllm/_moe_C.abi3.so is gone", "no compiler is on PATH, and CC and CXX are not set"),
        {f"glob {vllm.UNITS}": UNIT + "\n", f"read {UNIT}": SERVICE, "env VLLM_ATTENTION_BACKEND": "FLASHINFER\n", "env PYTHONPATH": "/src/vllm\n", "glob /src/vllm/vllm/__init__.py": "/src/vllm/vllm/__init__.py\n", "glob /src/vllm/vllm.py": "", "glob /src/vllm/flash_attn": "", "env MAX_JOBS": "64\n", WHICH: Said("/usr/local/cuda/bin/nvcc\n", rc=1), "env CC": NO_FILE, "env CXX": NO_FILE, "env NVCC_PREPEND_FLAGS": NO_FILE, "env NVCC_CCBIN": NO_FILE, "run g++ --version": NO_PROGRAM, "run gcc --version": NO_PROGRAM, "glob {site}/vllm/*.so": without(r"/_moe_C\.")},
        {"CUDA-005": FAIL,  "PY-002": WARN, "FLASH-007": WARN, "VLLM-008": FAIL, "VLLM-009": WARN, "VLLM-010": WARN, "VLLM-011": WARN, "VLLM-013": FAIL},
    ),
    Edited(
        "h200-cut-install", H200, GPU, "one H200; an install that was cut: vLLM's attention files are not there",
        ("vllm/vllm_flash_attn holds no library",),
        {"glob {site}/vllm/vllm_flash_attn/*.so": "", **FLASHINFER},
        {"FLASH-001": FAIL, "VLLM-008": FAIL, "VLLM-010": WARN},
    ),
    Edited(
        "h200-parser-lost-a-flag", H200, GPU, "one H200; a vLLM whose parser no longer has a flag of the plan",
        ("--gdn-prefill-backend is not among the options of the installed parser",),
        {"inside vllm_facts": without_flag("--gdn-prefill-backend")},
        {"VLLM-005": FAIL},
    ),
    Edited(
        "cpu-qwen3.5-on-0.19.1", CPU2, OLD_CPU, "2 cores; a Qwen3.5 for the CPU build of 0.19.1",
        ("the checkpoint is a Qwen3.5",),
        {"read {model}/config.json": QWEN, REGISTRY: "1\n"},
        {"VLLM-012": FAIL, "MODEL-004": FAIL, "MODEL-008": FAIL, "MODEL-009": OK, "WARM-008": WARN},
    ),
    Edited(
        "h200-nothing-loads", H200, GPU, "one H200; torch does not load, and the server's module is gone",
        ("import torch ends in an ImportError", "the server's module is not there"),
        {
            "inside torch_facts": '{"error": "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory"}\n',
            f"glob {{site}}/{launch.MODULE.replace('.', '/')}.py": "",
        },
        {"TORCH-004": FAIL, "VLLM-007": FAIL},
    ),
    Edited(
        "h200-wrong-attention", H200, GPU, "one H200; attention is computed wrong, vLLM takes the CPU and does not know Qwen3.5",
        ("attention in bfloat16 differs from float64 by 0.4", "vLLM's platform is the CPU", "Qwen3.5 is not in its registry"),
        {
            "inside attention device=cuda": with_values(errors={"float32": 6e-07, "bfloat16": 0.4}),
            "inside vllm_facts": with_values(platform="cpu", qwen_archs=["Qwen3ForCausalLM"]),
        },
        {"FLASH-003": FAIL, "VLLM-004": FAIL, "VLLM-006": FAIL},
    ),
    Edited(
        "h200-vllm-does-not-load", H200, GPU, "one H200; vLLM's extension was built for another torch",
        ("import vllm ends in an undefined symbol",),
        {"inside vllm_facts": '{"error": "ImportError: vllm/_C.abi3.so: undefined symbol: _ZN3c1013MessageLoggerC1EPKciib"}\n'},
        {"VLLM-003": FAIL},
    ),
    Edited(
        "v100-cu128", H200, GPU, "a V100 (7.0) under the stack for CUDA 12.8",
        ("nvidia-smi lists a V100 of 32768 MiB with compute capability 7.0",),
        {SMI: card("Tesla V100-SXM2-32GB", "7.0", 32768), **FLASHINFER},
        {"CUDA-004": FAIL, "FLASH-004": WARN, "VLLM-010": WARN, "VLLM-014": WARN, "WARM-008": WARN},
    ),
]  # fmt: skip
