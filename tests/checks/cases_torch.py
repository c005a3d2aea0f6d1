"""Readings for TORCH-002 and TORCH-005 in depth, and for TORCH-008 and on: pairs, libraries, the allocator."""

from typing import Any

from cases_cuda import COMPAT, IN_CACHE, PATHS, newer
from cases_machine import MODULE, NVRM
from cases_target import (
    DIED,
    DISTS,
    NO_CUDA,
    PRODUCT,
    SEES_NONE,
    SEES_ONE,
    TORCH_FACTS,
    VERSION_PY,
    requires,
    version_py,
)
from host import (
    CPU,
    FAIL,
    GPU,
    H200,
    NO_NODE,
    NODES,
    OK,
    ONE_NODE,
    SKIP,
    SMI,
    UNKNOWN,
    WARN,
    Case,
    Row,
    table,
)

from runbook.checks.torch import INDEXES
from runbook.checks.torch_libraries import WHEEL_FILES

CU128 = version_py("2.10.0+cu128", "Optional[str] = '12.8'")
CPU_BUILD = version_py("2.10.0+cpu", NO_CUDA)
NO_INDEX: dict[str, Any] = {f"env {name}": None for name in INDEXES}


def packages(*names: str) -> tuple[str, ...]:
    """Dist-info folders."""
    return tuple(f"{{site}}/{name}.dist-info" for name in names)


BUILT = table(
    "TORCH-002",
    {**ONE_NODE, **NO_INDEX, VERSION_PY: CU128, DISTS: packages("torch-2.10.0")},
    Row("the index wheel: no tag in the package, one in the file", OK, {}, {"package": "2.10.0", "torch": "2.10.0+cu128"}),
    Row("a build of a container's maker", OK, {VERSION_PY: version_py("2.10.0a0+b4e4ee81d3.nv25.12", "Optional[str] = '13.1'"), DISTS: packages("torch-2.10.0a0+b4e4ee81d3.nv25.12")}),
    Row("from an index of CPU builds", FAIL, {VERSION_PY: CPU_BUILD, DISTS: packages("torch-2.10.0+cpu"), "env UV_TORCH_BACKEND": "cpu"}, {"package": "2.10.0+cpu"}, says="index of CPU builds (UV_TORCH_BACKEND is set)"),
    Row("the only build there is, as on Arm once", FAIL, {VERSION_PY: CPU_BUILD}, {"built for CUDA": "none"}, says="no CUDA build for this platform"),
    Row("two torches mixed", FAIL, {VERSION_PY: version_py("2.11.0+cu130")}, {"package": "2.10.0", "torch": "2.11.0+cu130"}, says="two torches are mixed"),
    Row("tag and build differ", FAIL, {VERSION_PY: version_py("2.10.0+cu130", "Optional[str] = '12.8'")}, says="the tag says cu130"),
    stack=GPU,
)  # fmt: skip

UVM, VISIBLE = "glob /dev/nvidia-uvm", "env CUDA_VISIBLE_DEVICES"
TWO_NODES = {NODES: ("/dev/nvidia0", "/dev/nvidia1")}


def sees_none(
    driver: dict[str, Any], runtime: dict[str, Any] | None = None, cuda: str | None = "12.8"
) -> dict[str, Any]:
    """What torch_facts.py prints when torch sees nothing."""
    return {TORCH_FACTS: {**SEES_NONE, "cuda": cuda, "driver": driver, "runtime": runtime or {}}}


def code(number: int) -> dict[str, Any]:
    """cuInit answered this."""
    return sees_none({"cuinit": number, "cuda": 13000}, {"code": number, "name": "cudaErrorUnknown"})


NO_LIBRARY = {"error": "libcuda.so.1: cannot open shared object file: No such file or directory"}
SEEN = {**SEES_NONE, "available": True, "gpus": 1, "init_error": ""}
CAUSES = table(
    "TORCH-005",
    {**ONE_NODE, VISIBLE: None, NVRM: MODULE.format("580.159.04"), SMI: H200},
    Row("one of two is hidden on purpose", OK, {**TWO_NODES, VISIBLE: "1", TORCH_FACTS: SEEN}, {"device nodes": 2, "GPUs torch sees": 1}),
    Row("one of two is not seen, nobody knows why", WARN, {**TWO_NODES, TORCH_FACTS: SEEN}, says="fewer than there are device nodes"),
    Row("a CPU build", FAIL, sees_none(NO_LIBRARY, cuda=None), {"cause": "this torch is a CPU build"}, says="from its lock"),
    Row("a setting it does not know", FAIL, {TORCH_FACTS: {**SEES_ONE, "names": [], "init_error": "ValueError: Unrecognized key 'expandable_segment'", "driver": {"cuinit": 0, "cuda": 13000}, "runtime": {"code": 0, "name": "cudaSuccess"}}}, {"cause": "driver and runtime answer well, torch itself stops"}, says="TORCH-012"),
    Row("a compat library of another driver, the cards counted by NVML", FAIL, {**newer("580.95.05", "580.159.04"), TORCH_FACTS: {**SEES_NONE, "gpus": 1, "init_error": "RuntimeError: Error 803: system has unsupported display driver / cuda driver combination", "driver": {"cuinit": 803, "cuda": 13000}, "runtime": {"code": 803, "name": "cudaErrorSystemDriverMismatch"}}}, {"cuInit": "803", "cause": f"a cuda-compat library comes before the driver's own: {COMPAT}/libcuda.so.1 (803)"}, says="unset LD_LIBRARY_PATH"),
    Row("no libcuda", FAIL, sees_none(NO_LIBRARY, {"code": 35, "name": "cudaErrorInsufficientDriver"}), {"cudaGetDeviceCount": "cudaErrorInsufficientDriver"}, says="CUDA-007"),
    Row("an empty libcuda", FAIL, sees_none({"error": "/lib/libcuda.so.1: file too short"}), {"cause": "libcuda.so.1 is an empty file (/lib/libcuda.so.1: file too short)"}),
    Row("a stub", FAIL, code(34), {"cuInit": "34"}, says="stubs"),
    Row("driver 470 under cu128", FAIL, sees_none({"cuinit": 0, "cuda": 11040}, {"code": 35, "name": "cudaErrorInsufficientDriver"}), {"cause": "the driver serves CUDA up to 11.4, torch was built for 12.8"}, says="CUDA-008"),
    Row("hidden", FAIL, {**code(100), VISIBLE: ""}, {"cause": "CUDA_VISIBLE_DEVICES='' hides every GPU"}, says="unset CUDA_VISIBLE_DEVICES"),
    Row("hidden by minus one", FAIL, {**code(100), VISIBLE: "-1"}, {"cause": "CUDA_VISIBLE_DEVICES='-1' hides every GPU"}),
    Row("the runtime finds none where the driver starts", FAIL, {**sees_none({"cuinit": 0, "cuda": 13000}, {"code": 100, "name": "cudaErrorNoDevice"}), VISIBLE: "7"}, {"cuInit": "0", "cudaGetDeviceCount": "cudaErrorNoDevice"}),
    Row("the module is gone, the node is left", FAIL, {**code(100), NVRM: None}, {"cause": "the kernel module is not loaded"}, says="modprobe nvidia"),
    Row("MIG without an instance", FAIL, {**code(100), SMI: H200.replace("Disabled", "Enabled")}, {"cause": "MIG is on and no instance can be used"}, says="-cgi"),
    Row("no device, for no reason that can be read", FAIL, code(100), {"cause": "the driver answers that there is no device (100)"}),
    Row("no uvm node", FAIL, {**code(999), UVM: ()}, {"cause": "/dev/nvidia-uvm is missing (999)"}, says="nvidia-modprobe -u"),
    Row("uvm after a suspend", FAIL, {**code(999), UVM: ("/dev/nvidia-uvm",)}, says="modprobe -r nvidia_uvm"),
    Row("the fabric is not up", FAIL, code(802), {"cuInit": "802"}, says="fabric manager"),
    Row("module and library differ", FAIL, {PATHS: None, **IN_CACHE, **code(803)}, says="Reboot"),
    Row("compat on a GeForce", FAIL, code(804), says="cuda-compat folder"),
    Row("a code of its own", FAIL, code(805), says="layers below"),
    Row("a code nobody knows", FAIL, code(123456), {"cause": "the driver answered 123456"}),
    Row("an answer of an older script", FAIL, {TORCH_FACTS: SEES_NONE}, {"cause": "not known: this answer says nothing of the driver"}),
    stack=GPU,
)  # fmt: skip

CONVOLVED = {**PRODUCT, "convolution": 4.39e-07, "float32_precision": "highest"}
RIGHT = table(
    "TORCH-006",
    NO_NODE,
    Row("with a convolution", OK, {"inside torch_matmul device=cpu": CONVOLVED}, {"convolution error": 4.39e-07, "float32 products": "highest"}),
    Row("the convolution is wrong", FAIL, {"inside torch_matmul device=cpu": {**CONVOLVED, "convolution": 0.4}}, says="convolution"),
)  # fmt: skip

STATUS, OWN = "read /proc/self/status", "read /proc/self/cgroup"
MOUNTED = {
    OWN: "0::/a\n",
    "read /proc/self/mountinfo": "30 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    "read /sys/fs/cgroup/cpu.max": None,
}
LIMIT = "read /sys/fs/cgroup/a/cpu.max"
THREADS = table(
    "TORCH-007",
    {STATUS: "Name:\tx\nCpus_allowed_list:\t0-15\n", **MOUNTED, LIMIT: "max 100000\n", TORCH_FACTS: {**SEES_NONE, "threads": 16}},
    Row("as many", OK, {}, {"threads": 16, "usable cores": 16, "CPU quota": "none"}),
    Row("pinned to four", WARN, {STATUS: "Cpus_allowed_list:\t0-3\n"}, {"usable cores": 4}, says="OMP_NUM_THREADS=4"),
    Row("a quota of two cores", WARN, {LIMIT: "200000 100000\n"}, {"CPU quota": 2.0}, says="OMP_NUM_THREADS=2"),
    Row("a quota below one core", WARN, {LIMIT: "50000 100000\n"}, says="OMP_NUM_THREADS=1"),
    Row("no status", UNKNOWN, {STATUS: None}, {"usable cores": None}),
    Row("no groups that can be told", OK, {OWN: "lorem ipsum"}, {"CPU quota": None}),
)  # fmt: skip


def meta(package: str) -> str:
    """The question for a package's METADATA."""
    return f"read {{site}}/{package}.dist-info/METADATA"


def vision(version: str) -> dict[str, Any]:
    """torchvision/version.py; it names its CUDA only after an import."""
    return {"read {site}/torchvision/version.py": f"__version__ = '{version}'\ngit_version = '8ac8'\n"}


COMPANIONS = ("torch-2.10.0", "torchvision-0.25.0", "torchaudio-2.10.0", "triton-3.6.0")
PAIRED = {
    VERSION_PY: CU128,
    DISTS: packages(*COMPANIONS),
    meta("torch-2.10.0"): requires("filelock", 'triton==3.6.0; platform_system == "Linux"'),
    meta("torchvision-0.25.0"): requires("numpy", "torch (==2.10.0)"),
    meta("torchaudio-2.10.0"): requires("torch==2.10.0"),
    **vision("0.25.0+cu128"),
    "read {site}/torchaudio/version.py": "__version__ = '2.10.0+cu128'\n",
}
GOES = table(
    "TORCH-008",
    PAIRED,
    Row("as published", OK, {}, {"torch": "2.10.0+cu128", "triton": "3.6.0, asked: triton ==3.6.0", "torchvision": "0.25.0, asked: torch ==2.10.0", "torchvision is built for": "cu128"}),
    Row("a torchaudio that names no torch", OK, {meta("torchaudio-2.10.0"): "Name: torchaudio\n"}),
    Row("a torchvision that asks for a range", OK, {meta("torchvision-0.25.0"): requires("torch>=2.10.0")}, {"torchvision": "0.25.0, asked: torch >=2.10.0"}),
    Row("neither is installed", OK, {DISTS: packages("torch-2.10.0", "triton-3.6.0")}),
    Row("triton with a local tag", OK, {DISTS: packages("torch-2.10.0", "triton-3.6.0+git1")}),
    Row("torchvision of another torch", FAIL, {DISTS: packages("torch-2.10.0", "torchvision-0.24.1", "triton-3.6.0"), meta("torchvision-0.24.1"): requires("torch (==2.9.1)")}, {"torchvision": "0.24.1, asked: torch ==2.9.1"}, says="torchvision"),
    Row("torchvision of the same release for the CPU", FAIL, vision("0.25.0+cpu"), {"torchvision is built for": "cpu"}, says="torchvision of cpu"),
    Row("triton was replaced", FAIL, {DISTS: packages(*COMPANIONS[:3], "triton-3.7.0")}, {"triton": "3.7.0, asked: triton ==3.6.0"}, says="triton"),
    Row("triton is gone", FAIL, {DISTS: packages(*COMPANIONS[:3])}, {"triton": "none, asked: triton ==3.6.0"}),
    Row("no METADATA", UNKNOWN, {DISTS: packages("torch-2.10.0"), meta("torch-2.10.0"): None}),
    Row("specifiers that are none", UNKNOWN, {meta("torchvision-0.25.0"): requires("torch (=2.10.0)")}),
    Row("no torch", SKIP, {VERSION_PY: None}, says="not installed"),
    stack=GPU,
)  # fmt: skip

CUDNN, OTHER_NCCL = "nvidia_cudnn_cu12-9.10.2.21", "nvidia_nccl_cu12-2.27.5"
RECORDS = {
    f"read {{site}}/{CUDNN}.dist-info/RECORD": "nvidia/cudnn/include/cudnn.h,sha256=x,1\nnvidia/cudnn/lib/libcudnn.so.9,sha256=x,1\nnvidia/cudnn/lib/libcudnn_ops.so.9,sha256=x,1\n",
    f"read {{site}}/{OTHER_NCCL}.dist-info/RECORD": "nvidia/nccl/lib/libnccl.so.2,sha256=x,1\n",
}
FILES = (
    "{site}/nvidia/cudnn/lib/libcudnn.so.9",
    "{site}/nvidia/cudnn/lib/libcudnn_ops.so.9",
    "{site}/nvidia/nccl/lib/libnccl.so.2",
)
ASKS = requires(
    "filelock",
    "nvidia-cudnn-cu12==9.10.2.21; platform_system == 'Linux'",
    "nvidia-nccl-cu12==2.27.5",
    "nvidia-cublas-cu12==12.8.4.1",
)
WITH = {
    VERSION_PY: CU128, DISTS: packages("torch-2.10.0", CUDNN, OTHER_NCCL, "nvidia_cublas_cu12-12.8.4.1"),
    meta("torch-2.10.0"): ASKS, **RECORDS, f"glob {WHEEL_FILES}": FILES,
}  # fmt: skip


def record_of(package: str, old: str) -> dict[str, Any]:
    """The RECORD of a package under another version."""
    return {f"read {{site}}/{package}.dist-info/RECORD": RECORDS[f"read {{site}}/{old}.dist-info/RECORD"]}


NEWER_CUDNN = "nvidia_cudnn_cu12-9.15.1.9"
COMPLETE = table(
    "TORCH-009",
    WITH,
    Row("as published", OK, {}, {"NVIDIA packages asked for": 3, "nvidia-cudnn-cu12": "9.10.2.21, asked 9.10.2.21"}),
    Row("a newer cuDNN by hand", WARN, {DISTS: packages("torch-2.10.0", NEWER_CUDNN, OTHER_NCCL, "nvidia_cublas_cu12-12.8.4.1"), **record_of(NEWER_CUDNN, CUDNN)}, {"nvidia-cudnn-cu12": "9.15.1.9, asked 9.10.2.21"}, says="newer"),
    Row("an older NCCL", FAIL, {DISTS: packages("torch-2.10.0", CUDNN, "nvidia_nccl_cu12-2.21.5", "nvidia_cublas_cu12-12.8.4.1")}, {"nvidia-nccl-cu12": "2.21.5, asked 2.27.5"}, says="nvidia-nccl-cu12"),
    Row("2.9 is older than 2.27", FAIL, {DISTS: packages("torch-2.10.0", CUDNN, "nvidia_nccl_cu12-2.9.5", "nvidia_cublas_cu12-12.8.4.1")}),
    Row("cuBLAS is gone", FAIL, {DISTS: packages("torch-2.10.0", CUDNN, OTHER_NCCL)}, {"nvidia-cublas-cu12": "none, asked 12.8.4.1"}, says="nvidia-cublas-cu12"),
    Row("a part of cuDNN was deleted", FAIL, {f"glob {WHEEL_FILES}": (FILES[0], FILES[2])}, {"files gone": 1, "first": "nvidia/cudnn/lib/libcudnn_ops.so.9"}),
    Row("a torch that brings everything inside itself", SKIP, {meta("torch-2.10.0"): requires("filelock")}, {"NVIDIA packages asked for": 0}),
    Row("no METADATA", UNKNOWN, {DISTS: ()}, says="built in place"),
    Row("no RECORD", UNKNOWN, dict.fromkeys(RECORDS, None), says="RECORD"),
    Row("no torch", SKIP, {VERSION_PY: None}),
    stack=GPU,
)  # fmt: skip

NCCL_PATH, PRELOAD = "env VLLM_NCCL_SO_PATH", "env LD_PRELOAD"
SYSTEM = "/usr/local/cuda/lib64"
QUIET = {
    VERSION_PY: CU128,
    DISTS: packages("torch-2.10.0", CUDNN),
    PRELOAD: None,
    NCCL_PATH: None,
    PATHS: None,
}


def on_path(*names: str) -> dict[str, Any]:
    """A folder on LD_LIBRARY_PATH."""
    return {PATHS: SYSTEM, f"glob {SYSTEM}/lib*.so.*": tuple(f"{SYSTEM}/{name}" for name in names)}


ELSEWHERE = table(
    "TORCH-010",
    QUIET,
    Row("nothing is set", OK, {}, {"LD_PRELOAD": "not set", "taken from LD_LIBRARY_PATH": 0, "cuDNN of the wheels": "9.10.2.21"}),
    Row("a system toolkit, of which torch takes nothing", OK, on_path("libcudart.so.12", "libcublasLt.so.12", "libnvJitLink.so.12", "libcudnn.so.9", "libnccl.so.2"), {"taken from LD_LIBRARY_PATH": 0}),
    Row("jemalloc is preloaded", OK, {PRELOAD: "/usr/lib/libjemalloc.so.2"}),
    Row("cuDNN's parts of another release", FAIL, on_path("libcudnn_ops.so.9", "libcudnn_ops.so.9.14.0"), {"their versions": "9.14.0"}, says="mix of two releases"),
    Row("cuDNN's parts of the same release", WARN, on_path("libcudnn_ops.so.9", "libcudnn_ops.so.9.10.2"), {"their versions": "9.10.2"}, says="same release"),
    Row("cuDNN's parts of no name", WARN, on_path("libcudnn_ops.so.9"), {"their versions": "not in the names"}),
    Row("nvJitLink, for a torch that does not load its own first", WARN, {**on_path("libnvJitLink.so.12", "libnvJitLink.so.12.1.105"), VERSION_PY: version_py("2.5.1+cu124", "Optional[str] = '12.4'")}, {"taken from LD_LIBRARY_PATH": 2}),
    Row("NCCL by LD_PRELOAD", WARN, {PRELOAD: "/opt/nccl/libnccl.so.2.21.5"}, says="by hand"),
    Row("NCCL by vLLM's variable", WARN, {NCCL_PATH: "/opt/libnccl.so.2", "glob /opt/libnccl.so.2": ("/opt/libnccl.so.2",)}, {"VLLM_NCCL_SO_PATH": "/opt/libnccl.so.2"}),
    Row("the variable names nothing", FAIL, {NCCL_PATH: "/opt/libnccl.so.2", "glob /opt/libnccl.so.2": ()}, says="not there"),
    Row("a CPU build", SKIP, {VERSION_PY: CPU_BUILD}),
    Row("no torch", SKIP, {VERSION_PY: None}),
    stack=GPU,
)  # fmt: skip

FROM_WHEELS = {"libcudnn.so.9": FILES[0], "libcudnn_ops.so.9": FILES[1], "libnccl.so.2": FILES[2]}
COMPUTED = {**CONVOLVED, "cudnn": 91002, "nccl": "2.27.5", "libraries": FROM_WHEELS}
MAPPED = "inside torch_matmul device=cuda"
LOADED = table(
    "TORCH-011",
    {**ONE_NODE, DISTS: packages(CUDNN, OTHER_NCCL), f"glob {WHEEL_FILES}": FILES, MAPPED: COMPUTED},
    Row("from the wheels", OK, {}, {"loaded from the wheels": 3, "from elsewhere": 0, "cuDNN says": "9.10.2", "NCCL says": "2.27.5"}),
    Row("the driver's libcuda is no wheel's", OK, {MAPPED: {**COMPUTED, "libraries": {**FROM_WHEELS, "libcuda.so.580.159.04": "/usr/local/nvidia/lib64/libcuda.so.580.159.04"}}}),
    Row("on a machine without a GPU", OK, {**NO_NODE, "inside torch_matmul device=cpu": COMPUTED}),
    Row("a part from elsewhere", FAIL, {MAPPED: {**COMPUTED, "libraries": {**FROM_WHEELS, "libcudnn_ops.so.9": f"{SYSTEM}/libcudnn_ops.so.9.14.0"}}}, {"from elsewhere": 1, "libcudnn_ops.so.9": f"{SYSTEM}/libcudnn_ops.so.9.14.0"}, says="TORCH-010"),
    Row("an NCCL that is not the package's", FAIL, {MAPPED: {**COMPUTED, "nccl": "2.21.5"}}, {"nvidia-nccl-cu* installed": "2.27.5"}),
    Row("a cuDNN that is not the package's", FAIL, {MAPPED: {**COMPUTED, "cudnn": 92000}}, {"cuDNN says": "9.20.0"}),
    Row("cuDNN refuses to say", WARN, {MAPPED: {**COMPUTED, "cudnn": "RuntimeError: cuDNN version incompatibility"}}, {"cuDNN says": "RuntimeError: cuDNN version incompatibility"}),
    Row("a CPU build loads none", SKIP, {MAPPED: {**COMPUTED, "libraries": {}}}),
    Row("nothing was computed", UNKNOWN, {MAPPED: DIED}),
    stack=GPU,
)  # fmt: skip

CONF, CUDA_CONF = "env PYTORCH_ALLOC_CONF", "env PYTORCH_CUDA_ALLOC_CONF"
PARSED = "inside torch_allocator device=cpu"


def refused(**said: str) -> dict[str, Any]:
    """What the parser of the installed torch answers."""
    return {PARSED: {"refused": said}}


SLEEPING = (("[[serve]]\n", '[[serve]]\nflag = "--enable-sleep-mode"\nwhy = "x"\n\n[[serve]]\n'),)
SETTINGS = table(
    "TORCH-012",
    {**NO_NODE, CONF: None, CUDA_CONF: None},
    Row("none", OK, {}, {"PYTORCH_ALLOC_CONF": "not set"}),
    Row("known", OK, {CUDA_CONF: "expandable_segments:True", **refused(PYTORCH_CUDA_ALLOC_CONF="")}, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    Row("an option that is none", FAIL, {CUDA_CONF: "foo:1", **refused(PYTORCH_CUDA_ALLOC_CONF="ValueError: Unrecognized key 'foo' in Accelerator allocator config.")}, {"the parser says": "ValueError: Unrecognized key 'foo' in Accelerator allocator config."}, says="unset PYTORCH_CUDA_ALLOC_CONF"),
    Row("no value, by the newer name", FAIL, {CONF: "expandable_segments", **refused(PYTORCH_ALLOC_CONF="RuntimeError: i < config_.size() INTERNAL ASSERT FAILED")}, says="PYTORCH_ALLOC_CONF"),
    Row("sleep mode beside expandable segments", FAIL, {CUDA_CONF: "expandable_segments:True", **refused(PYTORCH_CUDA_ALLOC_CONF="")}, says="sleep mode", manifest=SLEEPING),
    Row("sleep mode beside another setting", OK, {CUDA_CONF: "max_split_size_mb:128", **refused(PYTORCH_CUDA_ALLOC_CONF="")}, manifest=SLEEPING),
    Row("the child was not given it", UNKNOWN, {CUDA_CONF: "max_split_size_mb:128", **refused()}),
    Row("torch does not load", UNKNOWN, {CUDA_CONF: "max_split_size_mb:128", PARSED: DIED}),
)  # fmt: skip

MIB = 1 << 20
GAVE = {"asked": 256 * MIB, "allocated": 256 * MIB, "reserved": 256 * MIB, "left": 0, "lost": 34 * MIB}
ALLOCATED = "inside torch_allocator device=cuda"


def figures(**changes: int) -> dict[str, Any]:
    """What the child measured."""
    return {ALLOCATED: {"refused": {}, "memory": GAVE | changes}}


MEMORY = table(
    "TORCH-013",
    ONE_NODE,
    Row("given back", OK, figures(), {"allocated (MiB)": 256, "reserved after emptying (MiB)": 0, "not free again (MiB)": 34}),
    Row("kept by the allocator", FAIL, figures(left=256 * MIB), {"reserved after emptying (MiB)": 256}, says="keeps what was given back"),
    Row("gone from the card", FAIL, figures(lost=256 * MIB), {"not free again (MiB)": 256}),
    Row("a full card", FAIL, {ALLOCATED: {"refused": {}, "memory_error": "OutOfMemoryError: CUDA out of memory."}}, {"error": "OutOfMemoryError: CUDA out of memory."}, says="DRIVER-005"),
    Row("the child died", FAIL, {ALLOCATED: DIED}),
    Row("another allocator counts nothing", UNKNOWN, figures(allocated=0)),
    Row("no figures", UNKNOWN, {ALLOCATED: {"refused": {}}}),
    Row("no GPU", SKIP, NO_NODE, says="no NVIDIA GPU"),
    stack=GPU,
)  # fmt: skip
MEMORY_CPU = table("TORCH-013", ONE_NODE, Row("a CPU stack", SKIP, {}, says="computes on the CPU"), stack=CPU)

CASES: list[Case] = [
    *BUILT, *CAUSES, *RIGHT, *THREADS, *GOES, *COMPLETE, *ELSEWHERE, *LOADED, *SETTINGS, *MEMORY, *MEMORY_CPU
]  # fmt: skip
