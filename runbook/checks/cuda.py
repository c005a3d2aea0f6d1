"""CUDA: driver against runtime, toolkits lying about, and what can shadow the libraries inside the wheels."""

import re

from runbook import launch
from runbook.checks.readings import GPU_QUESTION, NO_GPU, gpus, need, stack_of
from runbook.model import Answer, Evidence, Fix, Layer, Risk, Source, check, fail, ok, skip, unknown, warn
from runbook.parse import nvidia
from runbook.pins import at_least, has_nvidia_gpu
from runbook.probe import Probe

# Libraries that the wheels bring themselves.
SHADOWING = re.compile(
    r"lib(cudart|cublas|cublasLt|cudnn|cufft|curand|cusolver|cusparse|cusparseLt|nccl|nvrtc|nvJitLink|cupti)[_.]"
)


def runs_on(code: str, cap: str) -> bool:
    """True when machine code for ``code`` runs on a card of ``cap``: same major number, equal or higher minor."""
    code_major, code_minor = code.split(".")
    major, minor = cap.split(".")
    return code_major == major and int(code_minor) <= int(minor)


COMPAT = Source(
    "CUDA compatibility: minor-version compatibility",
    "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
    "2026-11-30",
)


@check(
    "CUDA-001",
    layer=Layer.CUDA,
    title="The driver is new enough for the CUDA runtime in the stack's wheels",
    why="torch imports with an older driver and then fails at its first kernel.",
    source=COMPAT,
    requires=("DRIVER-002",),
)
def driver_floor(host: Probe) -> Answer:
    """The driver's number against the floor of the wheels' CUDA major release."""
    stack = stack_of(host)
    driver = gpus(host)[0].driver
    seen = Evidence("driver", driver, GPU_QUESTION)
    if not stack.driver_floor:
        return skip("the stack computes on the CPU", seen)
    if driver is None:
        return unknown("nvidia-smi named no driver version", seen)
    evidence = (seen, need("needed", stack.driver_floor, stack))
    if at_least(driver, stack.driver_floor):
        return ok(*evidence)
    return fail(
        *evidence,
        fix=Fix(
            f"Install driver {stack.driver_floor} or newer",
            ("sudo apt-get install nvidia-driver-580-server",),
            Risk.REBOOT,
        ),
    )


@check(
    "CUDA-002",
    layer=Layer.CUDA,
    title="All names for the CUDA toolkit lead to one toolkit, or there is none",
    why="A build that takes nvcc from one and headers from another fails late. vLLM's wheels need no toolkit to start.",
    source=Source(
        "NVIDIA: CUDA installation guide for Linux",
        "https://docs.nvidia.com/cuda/cuda-installation-guide-linux/",
        "2026-11-30",
    ),
)
def one_toolkit(host: Probe) -> Answer:
    """Nvcc on PATH, CUDA_HOME, and folders under /usr/local."""
    ran = host.run(["nvcc", "--version"])
    on_path = None if ran.missing else nvidia.nvcc(ran.out)
    named = host.env("CUDA_HOME")
    folders = tuple(
        path for path in host.glob("/usr/local/cuda-[0-9]*") if path.count(".") == 1 or path[-1].isdigit()
    )
    versions = {path.rsplit("-", 1)[1] for path in folders if "." in path.rsplit("-", 1)[1]}
    seen: tuple[Evidence, ...] = (
        Evidence("nvcc on PATH", "none" if ran.missing else on_path, "run nvcc --version"),
        Evidence("CUDA_HOME", named or "not set", "env CUDA_HOME"),
        Evidence("under /usr/local", " ".join(sorted(versions)) or "none", "glob /usr/local/cuda-[0-9]*"),
    )
    if not ran.missing and on_path is None:
        return unknown("nvcc is on PATH and gave no release that can be read", *seen)
    home = None
    if named:
        home = nvidia.nvcc(host.run([f"{named}/bin/nvcc", "--version"]).out)
        seen = (*seen, Evidence("nvcc of CUDA_HOME", home or "none", f"run {named}/bin/nvcc --version"))
    if named and home is None:
        return fail(
            *seen,
            fix=Fix("Point CUDA_HOME at a toolkit that exists, or clear it", ("unset CUDA_HOME",), Risk.NONE),
        )
    if home and on_path and home != on_path:
        return fail(
            *seen, fix=Fix("Make both name one toolkit", ('export PATH="$CUDA_HOME/bin:$PATH"',), Risk.NONE)
        )
    if len(versions) > 1:
        return warn(
            *seen,
            reason="several toolkits lie side by side; a build takes the one that PATH or CUDA_HOME names",
        )
    return ok(*seen)


@check(
    "CUDA-003",
    layer=Layer.CUDA,
    title="LD_LIBRARY_PATH puts no system CUDA before the libraries inside the wheels",
    why="NVIDIA's own libraries look there for their parts, so one cuDNN takes pieces of another and fails in the middle.",
    source=Source(
        "ld.so(8): the search order", "https://man7.org/linux/man-pages/man8/ld.so.8.html", "2026-11-30"
    ),
)
def no_shadow(host: Probe) -> Answer:
    """Folders on LD_LIBRARY_PATH that hold CUDA runtime libraries; libcuda itself belongs to the driver."""
    value = host.env("LD_LIBRARY_PATH")
    folders = [folder.rstrip("/") for folder in (value or "").split(":") if folder]
    names = [path.rsplit("/", 1)[1] for folder in folders for path in host.glob(f"{folder}/lib*.so.*")]
    hits = sorted(name for name in names if SHADOWING.match(name))
    seen = [
        Evidence("LD_LIBRARY_PATH", value or "not set", "env LD_LIBRARY_PATH"),
        Evidence("CUDA libraries there", len(hits), "glob FOLDER/lib*.so.*"),
    ]
    if hits:
        away = Fix("Start the server without it", ("env -u LD_LIBRARY_PATH runbook run",), Risk.NONE)
        return warn(*seen, Evidence("first", hits[0]), fix=away)
    return ok(*seen)


@check(
    "CUDA-004",
    layer=Layer.CUDA,
    title="The stack's wheels hold machine code for this card",
    why="Otherwise the first kernel ends in 'no kernel image is available for execution on the device'.",
    source=Source(
        "CUDA programming guide: binary compatibility",
        "https://docs.nvidia.com/cuda/cuda-programming-guide/01-introduction/cuda-platform.html",
        "2026-11-30",
    ),
    requires=("DRIVER-002",),
)
def code_for_card(host: Probe) -> Answer:
    """Compute capability of each GPU against the sm numbers in the stack's binaries."""
    stack = stack_of(host)
    caps = sorted({one.compute_cap for one in gpus(host) if one.compute_cap})
    seen = Evidence("compute capability", " ".join(caps) or None, GPU_QUESTION)
    if stack.device != "cuda":
        return skip("the stack computes on the CPU", seen)
    if not caps:
        return unknown("nvidia-smi printed no compute capability (drivers before 510 do not)", seen)
    have = need("machine code for", " ".join(stack.machine_code), stack)
    missing = [cap for cap in caps if not any(runs_on(code, cap) for code in stack.machine_code)]
    if missing:
        return fail(
            seen,
            have,
            fix=Fix(
                f"No wheel of this stack runs on {missing[0]}; use another card or an older stack",
                risk=Risk.REBUILD,
            ),
        )
    return ok(seen, have)


@check(
    "CUDA-005",
    layer=Layer.CUDA,
    title="A C++ compiler is there for kernels that are built at run time",
    why="torch.compile's CPU code, Triton's launcher and FlashInfer's kernels are compiled on first use.",
    source=Source("measured: compilers seen at work during a start", "docs/measurements.md", "2026-11-30"),
)
def compiler(host: Probe) -> Answer:
    """``g++ --version``; CXX wins when it is set."""
    named = host.env("CXX") or "g++"
    ran = host.run([named, "--version"])
    seen = Evidence(
        "compiler", None if ran.missing else (ran.out.splitlines() or [""])[0], f"run {named} --version"
    )
    if ran.ok:
        return ok(seen)
    if named != "g++":
        return fail(seen, fix=Fix("Point CXX at a compiler that is there, or clear it", ("unset CXX",)))
    return fail(seen, fix=Fix("Install one", ("sudo apt-get install g++",)))


@check(
    "CUDA-006",
    layer=Layer.CUDA,
    title="nvcc is there where the planned command has kernels compiled with it, or the plan needs none",
    why="FlashInfer compiles its gated-delta-net kernels at the first start: minutes of silence, or an error without nvcc.",
    source=Source(
        "measured on an H200: 335 s of compiling before the port was bound",
        "docs/measurements.md",
        "2026-11-30",
    ),
)
def nvcc_for_jit(host: Probe) -> Answer:
    """The compiler only matters where a GPU stack is planned without Triton's kernels for the prefill."""
    if not has_nvidia_gpu(host):
        return skip(NO_GPU)
    stack = stack_of(host)
    if stack.device != "cuda":
        return skip("the stack computes on the CPU")
    ran = host.run(["nvcc", "--version"])
    planned = next((one.value for one in launch.flags(stack) if one.flag == "--gdn-prefill-backend"), "auto")
    seen = (
        Evidence("nvcc", "none" if ran.missing else nvidia.nvcc(ran.out), "run nvcc --version"),
        need("--gdn-prefill-backend", planned, stack),
    )
    if planned == "triton" or ran.ok:
        return ok(*seen)
    return warn(
        *seen,
        fix=Fix(
            "Plan Triton's kernels, which need a C compiler only",
            ("--gdn-prefill-backend triton",),
            Risk.NONE,
        ),
    )


CHECKS = (driver_floor, one_toolkit, no_shadow, code_for_card, compiler, nvcc_for_jit)
