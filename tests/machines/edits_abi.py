"""Edited copies whose libraries do not fit each other: the reading of the GPU stack with the lacks that were measured.

What each lacks was read from real environments put together so (torchvision 0.21.0, NCCL 2.21.5 beside torch 2.10.0;
vLLM 0.19.1 beside torch 2.13.0 for CUDA 13), where the loader named the same library and symbol first.
"""

import json
from collections.abc import Callable
from typing import Any

from editing import Edited, replaced

from runbook.checks.readings import BINARIES
from runbook.model import Verdict

FAIL = Verdict.FAIL
PARENT, STACK = "h200-vllm-0.19.1", "vllm-0.19.1-cu128"
FileRow = dict[str, Any]


def lacking(row: FileRow, count: int, symbol: str, words: str) -> None:
    row |= {"missing": [{"symbol": symbol, "version": "", "demangled": words}], "missing_count": count}


def changed(change: Callable[[FileRow], None]) -> Callable[[str], str]:
    """The reading with a change made to each row of its links."""

    def edit(text: str) -> str:
        answer = json.loads(text)
        for row in answer["links"]["files"]:
            change(row)
        return json.dumps(answer, separators=(",", ":")) + "\n"

    return edit


def torch_of_cuda_13(row: FileRow) -> None:
    package, _, name = row["file"].partition("/")
    if row["role"] == "torch":
        numbered = (
            "libcudart.so",
            "libcublas.so",
            "libcublasLt.so",
            "libnvrtc.so",
            "libnvJitLink.so",
            "libcupti.so",
        )
        row["needed"] = [
            one[:-2] + "13" if one.startswith(numbered) else one for one in row.get("needed", [])
        ]
    if package == "vllm" and "libcudart.so.12" in row.get("needed", []):
        row["missing_libraries"] = ["libcudart.so.12"]
    if row["file"] == "vllm/_C.abi3.so":
        symbol = "_ZN3c1013MessageLoggerC1EPKciib"
        lacking(row, 5, symbol, "c10::MessageLogger::MessageLogger(char const*, int, int, bool)")
    if package == "torchvision" and name == "_C.so":
        row["strings"] = "old"
        lacking(row, 13, "_ZNK5torch8autograd4Node4nameEv", "torch::autograd::Node::name() const")


def older_runtime(row: FileRow) -> None:
    if row["file"] == "torch/lib/libtorch_cuda.so":
        lacking(row, 5, "ncclCommShrink", "ncclCommShrink")
    if row["file"] == "vllm/_C.abi3.so":
        place = "{home}/miniconda3/envs/serve/lib/libstdc++.so.6"
        row["missing_versions"] = [{"library": "libstdc++.so.6", "version": "GLIBCXX_3.4.22", "in": place}]


MACHINES = [
    Edited(
        "h200-mixed-wheels",
        PARENT,
        STACK,
        "one NVIDIA H200, torch for CUDA 13 under a vLLM for CUDA 12, torchvision of torch 2.6",
        (
            "torch's libraries ask for CUDA 13, libcudart.so.12 is nowhere",
            "vLLM's extension and torchvision's lack symbols of torch",
        ),
        {
            "read {site}/torch/version.py": replaced(("+cu128", "+cu130"), ("'12.8'", "'13.0'")),
            BINARIES: changed(torch_of_cuda_13),
        },
        {
            "CUDA-011": Verdict.OK,
            "PY-014": FAIL,
            "TORCH-008": FAIL,
            "ABI-001": FAIL,
            "ABI-002": FAIL,
            "ABI-003": FAIL,
            "ABI-005": FAIL,
        },
    ),
    Edited(
        "h200-older-runtime",
        PARENT,
        STACK,
        "one NVIDIA H200, a C++ runtime and an NCCL older than what is linked against them",
        (
            "libstdc++ of the environment ends before GLIBCXX_3.4.22",
            "libtorch_cuda finds an NCCL without ncclCommShrink",
        ),
        {BINARIES: changed(older_runtime)},
        {"ABI-004": FAIL, "ABI-006": FAIL},
    ),
]
