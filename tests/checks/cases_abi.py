"""ABI: what follows from the links of a target's libraries, as ``python -m runbook.binaries`` prints them."""

import json
from typing import Any

from host import CPU, FAIL, GPU, MISSING, OK, SKIP, UNKNOWN, WARN, Case, ran

from runbook.checks.readings import BINARIES
from runbook.model import Verdict

GLIBC = {"path": "/lib/x86_64-linux-gnu/libc.so.6", "GLIBC": "2.36"}
STDCXX = {"path": "/lib/x86_64-linux-gnu/libstdc++.so.6", "GLIBCXX": "3.4.30", "CXXABI": "1.3.13"}
SYSTEM: dict[str, Any] = {
    "machine": "x86_64", "python": "/usr/bin/python3.11", "torch": "2.10.0+cu128", "torch_cuda": "12.8", "strings": "new",
    "libc.so.6": GLIBC, "libstdc++.so.6": STDCXX,
}  # fmt: skip
CHECK_INT = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib"
NAME = "_ZNK5torch8autograd4Node4nameEv"


def row(
    file: str, role: str = "extension", needed: str = "libtorch.so libc10.so libcudart.so.12", **more: Any
) -> dict[str, Any]:
    """One file, whole unless ``more`` says otherwise."""
    return {
        "file": file, "role": role, "machine": "x86_64", "needed": needed.split(), "missing_libraries": [], "missing_versions": [],
        "missing_count": 0, "missing": [], "driver": [], "through": [], "asked": 100, "strings": "new",
        "highest": {"GLIBC": "2.29", "GLIBCXX": "3.4.22", "CXXABI": "1.3.11"},
    } | more  # fmt: skip


def lacks(*symbols: tuple[str, str], version: str = "", count: int = 0) -> dict[str, Any]:
    """The fields of a file that lacks symbols, each with its name in words."""
    named = [{"symbol": one, "version": version, "demangled": words} for one, words in symbols]
    return {"missing": named, "missing_count": count or len(named)}


VLLM = row("vllm/_C.abi3.so", driver=["libcuda.so.1"])
VISION = row("torchvision/_C.so")
C10 = row("torch/lib/libc10.so", "torch", "libstdc++.so.6")
TORCH_CUDA = row(
    "torch/lib/libtorch_cuda.so", "torch", "libc10.so libnccl.so.2 libcudart.so.12 libcublas.so.12"
)
OTHER = row("torch_c_dlpack_ext/addon_torch24-cpu.so", "other", **lacks((NAME, "Node::name()")))
RDMA = row(
    "nvidia/cufile/lib/libcufile_rdma.so.1", "cuda", "libibverbs.so.1", missing_libraries=["libibverbs.so.1"]
)
WHOLE = (VLLM, VISION, C10, TORCH_CUDA, OTHER, RDMA)


def said(*files: dict[str, Any], **system: Any) -> dict[str, Any]:
    """The answer of a machine whose target has these files."""
    return {BINARIES: json.dumps({"files": [], "links": {"files": list(files), "system": SYSTEM | system}})}


GOOD = said(*WHOLE)
# name, readings, stack, verdict, evidence, words of reason or fix
Line = tuple[str, dict[str, Any], str, Verdict, dict[str, Any], str]
UNREAD: list[dict[str, Any]] = [
    {BINARIES: MISSING},
    {BINARIES: ran("", 1, "Traceback")},
    {BINARIES: "no json"},
    {BINARIES: '{"files": []}'},
    {BINARIES: '{"files": [], "links": {"files": {}, "system": {}}}'},
]

NO_CUDART = row("vllm/_C.abi3.so", missing_libraries=["libcudart.so.12"])
FFMPEG = [
    row(f"torchcodec/core{number}.so", missing_libraries=[f"libavcodec.so.{number}"]) for number in (58, 59)
]
OLD_VISION = row(
    "torchvision/_C.so",
    strings="old",
    **lacks((NAME, "torch::autograd::Node::name() const"), (CHECK_INT, "c10_cuda_check(int)"), count=13),
)
NEEDS_INT = row("vllm/_C.abi3.so", **lacks((CHECK_INT, "c10::cuda::c10_cuda_check_implementation(int, ...)")))
BEHIND = row("torchaudio/_torchaudio.so", through=["torchaudio/libtorchaudio.so"])
OLD_NCCL = row(
    "torch/lib/libtorch_cuda.so",
    "torch",
    "libnccl.so.2",
    **lacks(("ncclCommShrink", "ncclCommShrink"), count=5),
)
OLD_JIT = row(
    "nvidia/cusparse/lib/libcusparse.so.12",
    "torch",
    "libnvJitLink.so.12",
    **lacks(("__nvJitLinkCreate_12_8", "__nvJitLinkCreate_12_8"), version="libnvJitLink.so.12"),
)
NEW_CXX = row(
    "vllm/_C.abi3.so",
    missing_versions=[
        {"library": "libstdc++.so.6", "version": "GLIBCXX_3.4.32", "in": "/opt/conda/lib/libstdc++.so.6"}
    ],
    highest={"GLIBCXX": "3.4.32", "GLIBC": "2.29"},
)
NEW_GLIBC = row(
    "vllm/_C.abi3.so",
    missing_versions=[{"library": "libc.so.6", "version": "GLIBC_2.38", "in": GLIBC["path"]}],
    highest={"GLIBC": "2.38"},
)
CUT = {
    "file": "vllm/_moe_C.abi3.so",
    "role": "damaged",
    "problem": "cut short: 4096 bytes, a part of it ends at 254653008",
}

LIBRARIES: list[Line] = [
    ("as built from the lock", GOOD, GPU, OK, {"files looked at": 4, "left to the driver": "libcuda.so.1", "not found": 0}, ""),
    ("a CPU stack", said(row("vllm/_C.abi3.so", needed="libtorch.so"), C10), CPU, OK, {"files looked at": 2}, ""),
    ("libcudart deleted", said(NO_CUDART, C10), GPU, FAIL, {"libcudart.so.12": "not found, needed by vllm/_C.abi3.so"}, "nvidia-cuda-runtime-cu12"),
    ("a library of vLLM's own", said(row("vllm/_C.abi3.so", missing_libraries=["libnuma.so.1"])), CPU, FAIL, {"libnuma.so.1": "not found, needed by vllm/_C.abi3.so"}, "from its lock"),
    ("FFmpeg for torchcodec", said(VLLM, *FFMPEG), CPU, WARN, {"torchcodec wants": "libavcodec of the system"}, "cannot be imported here"),
    ("one FFmpeg of two is enough", said(VLLM, FFMPEG[0], row("torchcodec/core59.so")), CPU, OK, {"not found": 0}, ""),
    ("a file cut short", said(VLLM, CUT), GPU, FAIL, {"vllm/_moe_C.abi3.so": f"damaged: {CUT['problem']}"}, "from its lock"),
    ("a library of the system is broken", said(row("vllm/_C.abi3.so", through=["/usr/lib/libodd.so"])), CPU, FAIL, {"/usr/lib/libodd.so": "lacks a library of its own"}, "from its lock"),
    ("nothing that links torch", said(OTHER, RDMA), CPU, SKIP, {}, "no file of this environment"),
    *((f"not read {at}", answer, GPU, UNKNOWN, {}, "could not be read") for at, answer in enumerate(UNREAD)),
]  # fmt: skip
VLLM_SYMBOLS: list[Line] = [
    ("as built from the lock", GOOD, GPU, OK, {"files of vLLM": 1, "symbols they ask for": 100, "not exported": 0}, ""),
    ("torch of another release", said(NEEDS_INT, C10), GPU, FAIL, {"vllm/_C.abi3.so": "lacks c10::cuda::c10_cuda_check_implementation(int, ...)", "torch releases that export them": "2.4.1 to 2.9.1"}, "what goes with torch 2.10.0+cu128"),
    ("four files", said(*(NEEDS_INT | {"file": f"vllm/{name}.so"} for name in "abcd")), GPU, FAIL, {"more such files": 1}, ""),
    ("other wheels than those of the table", said(NEEDS_INT, machine="aarch64"), GPU, FAIL, {"torch releases that export them": "no such evidence"}, ""),
    ("a symbol that no table knows", said(row("vllm/_C.abi3.so", **lacks(("_ZN2at4goneEv", "at::gone()")))), GPU, FAIL, {"vllm/_C.abi3.so": "lacks at::gone()", "torch releases that export them": "no such evidence"}, ""),
    ("a library is missing first", said(NO_CUDART), GPU, UNKNOWN, {"files of vLLM": 1}, "libraries are missing"),
    ("torch itself lacks symbols", said(row("vllm/_C.abi3.so", through=["torch/lib/libtorch_cuda.so"]), OLD_NCCL), GPU, OK, {"not exported": 0}, ""),
    ("no vLLM", said(VISION, C10), GPU, SKIP, {}, "no extension here"),
    ("not read", UNREAD[0], GPU, UNKNOWN, {}, "could not be read"),
]  # fmt: skip
OTHER_SYMBOLS: list[Line] = [
    ("as built from the lock", GOOD, GPU, OK, {"files of other packages": 1, "not exported": 0}, ""),
    ("torchvision of torch 2.6", said(OLD_VISION, C10), GPU, FAIL, {"torchvision/_C.so": "lacks torch::autograd::Node::name() const (the first of 13)", "torch releases that export them": "2.4.1 to 2.6.0"}, "built with the old C++ strings"),
    ("its pair is named", said(OLD_VISION, C10), GPU, FAIL, {}, "torchvision 0.25.0"),
    ("new strings on an old torch", said(row("torchvision/_C.so", **lacks((NAME, "x"))), torch="2.6.0+cu124", strings="old"), GPU, FAIL, {}, "built with the new C++ strings"),
    ("torchcodec without FFmpeg", said(VISION, *FFMPEG), CPU, OK, {"files of other packages": 1}, ""),
    ("flash-attn has its own check", said(VLLM, row("flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so", **lacks((CHECK_INT, "x")))), GPU, SKIP, {}, "nothing but vLLM"),
    ("a file behind one without its library", said(BEHIND, row("torchaudio/libtorchaudio.so", missing_libraries=["libcudart.so.12"])), GPU, UNKNOWN, {}, "libraries are missing"),
    ("not read", UNREAD[1], GPU, UNKNOWN, {}, "could not be read"),
]  # fmt: skip
RUNTIME: list[Line] = [
    ("as built from the lock", GOOD, GPU, OK, {"GLIBC asked for": "2.29 by vllm/_C.abi3.so", "GLIBC here": "2.36", "GLIBCXX here": "3.4.30", "CXXABI here": "1.3.13"}, ""),
    ("3.4.9 is older than 3.4.22", said(row("vllm/a.so", highest={"GLIBCXX": "3.4.9"}), row("vllm/b.so", highest={"GLIBCXX": "3.4.22"})), GPU, OK, {"GLIBCXX asked for": "3.4.22 by vllm/b.so"}, ""),
    ("conda's older libstdc++", said(NEW_CXX), GPU, FAIL, {"GLIBCXX_3.4.32": "not in /opt/conda/lib/libstdc++.so.6, needed by vllm/_C.abi3.so"}, "newer libstdc++"),
    ("an older distribution", said(NEW_GLIBC), GPU, FAIL, {"GLIBC_2.38": f"not in {GLIBC['path']}, needed by vllm/_C.abi3.so"}, "distribution"),
    ("a version of another library", said(row("vllm/_C.abi3.so", missing_versions=[{"library": "libown.so", "version": "V_2", "in": ""}])), GPU, FAIL, {"V_2": "not in libown.so, needed by vllm/_C.abi3.so"}, "from its lock"),
    ("no libstdc++", said(VLLM, **{"libstdc++.so.6": {}}), GPU, UNKNOWN, {"GLIBCXX here": "not found"}, "was not found"),
    ("nothing that links torch", said(OTHER), CPU, SKIP, {}, "no file of this environment"),
    ("not read", UNREAD[2], GPU, UNKNOWN, {}, "could not be read"),
]  # fmt: skip
ONE_CUDA: list[Line] = [
    ("as built from the lock", GOOD, GPU, OK, {"CUDA 12 linked by": "torch, torchvision, vllm"}, ""),
    ("torch of CUDA 13 under vLLM of CUDA 12", said(VLLM, row("torch/lib/libc10_cuda.so", "torch", "libcudart.so.13"), torch_cuda="13.0"), GPU, FAIL, {"CUDA 12 linked by": "vllm", "CUDA 13 linked by": "torch", "torch built for CUDA": "13.0"}, "builds of one CUDA"),
    ("a copy in a wheel counts", said(C10, row("torchvision/image.so", needed="libcudart.e8e8b82a.so.13"), TORCH_CUDA), GPU, FAIL, {"CUDA 13 linked by": "torchvision"}, ""),
    ("cuFFT 11 and NCCL 2 have numbers of their own", said(row("torch/lib/libtorch_cuda.so", "torch", "libcufft.so.11 libnccl.so.2 libcudnn.so.9 libcublasLt.so.12")), GPU, OK, {"CUDA 12 linked by": "torch"}, ""),
    ("a CPU torch", said(row("vllm/_C.abi3.so", needed="libtorch.so"), C10), CPU, SKIP, {}, "nothing here links"),
    ("not read", UNREAD[3], GPU, UNKNOWN, {}, "could not be read"),
]  # fmt: skip
TORCH_SYMBOLS: list[Line] = [
    ("as built from the lock", GOOD, GPU, OK, {"files of torch": 2, "not exported": 0}, ""),
    ("an older NCCL", said(VLLM, C10, OLD_NCCL), GPU, FAIL, {"torch/lib/libtorch_cuda.so": "lacks ncclCommShrink (the first of 5)"}, "LD_LIBRARY_PATH"),
    ("an older nvJitLink", said(C10, OLD_JIT), GPU, FAIL, {"nvidia/cusparse/lib/libcusparse.so.12": "lacks __nvJitLinkCreate_12_8@libnvJitLink.so.12"}, "NVIDIA's packages"),
    ("libnccl deleted", said(C10, row("torch/lib/libtorch_cuda.so", "torch", missing_libraries=["libnccl.so.2"])), GPU, UNKNOWN, {}, "libraries are missing"),
    ("no torch", said(VLLM), GPU, SKIP, {}, "not installed"),
    ("not read", UNREAD[4], GPU, UNKNOWN, {}, "could not be read"),
]  # fmt: skip


def table(check_id: str, lines: list[Line]) -> list[Case]:
    return [
        Case(check_id, name, verdict, answers, evidence, stack, says)
        for name, answers, stack, verdict, evidence, says in lines
    ]


CASES: list[Case] = [
    *table("ABI-001", LIBRARIES),
    *table("ABI-002", VLLM_SYMBOLS),
    *table("ABI-003", OTHER_SYMBOLS),
    *table("ABI-004", RUNTIME),
    *table("ABI-005", ONE_CUDA),
    *table("ABI-006", TORCH_SYMBOLS),
]
