"""CUDA: the driver against the runtime in the wheels, libcuda as the loader finds it, and what shadows what."""

import re

from packaging.version import Version

from runbook import tables
from runbook.checks import libraries
from runbook.checks.libraries import PATHS
from runbook.checks.readings import DIST_INFO, GPU_QUESTION, distributions, gpus, need, stack_of
from runbook.model import Answer, Evidence, Fix, Layer, Risk, Source, check, fail, ok, skip, unknown, warn
from runbook.parse import loader, nvidia, python_env
from runbook.pins import at_least
from runbook.probe import Probe

# Libraries that the wheels bring themselves.
SHADOWING = re.compile(
    r"lib(cudart|cublas|cublasLt|cudnn|cufft|curand|cusolver|cusparse|cusparseLt|nccl|nvrtc|nvJitLink|cupti)[_.]"
)
VERSION_FILE = "{site}/torch/version.py"
RUNTIME = re.compile(r"nvidia-cuda-runtime(?:-cu\d\d)?")
NEW_DRIVER = ("sudo apt-get install nvidia-driver-580-server",)
COMPAT = Source(
    "CUDA compatibility: minor-version compatibility",
    "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
    "2026-11-30",
)
# What the loader got from a folder on the path with the wheels of two torch releases (docs/measurements.md).
PARTS = "libcudnn_"


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
    value = host.env(PATHS)
    files = [path for found in libraries.on_path(host).values() for path in found]
    hits = sorted((path for path in files if SHADOWING.match(loader.name(path))), key=loader.name)
    seen = [
        Evidence(PATHS, value or "not set", f"env {PATHS}"),
        Evidence("CUDA libraries there", len(hits), "glob FOLDER/lib*.so.*"),
    ]
    if not hits:
        return ok(*seen)
    parts = [path for path in hits if loader.name(path).startswith(PARTS)]
    full = sorted(
        {
            f"{loader.name(path).split('.')[0]} {version}"
            for path in parts or hits
            if (version := loader.version(path))
        }
    )
    seen += [
        Evidence("first", loader.name(hits[0])),
        Evidence("versions", " ".join(full[:4]) or "not in the names"),
        Evidence("taken by torch's own", "cuDNN's parts" if parts else "none: torch loads the wheels' first"),
    ]
    return warn(
        *seen,
        fix=Fix("Start the server without it", ("env -u LD_LIBRARY_PATH runbook run",), Risk.NONE),
        reason="cuDNN takes its parts from there"
        if parts
        else "a program that does not import torch first gets these",
    )


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
    missing = [
        cap
        for cap in caps
        if not any(tables.code_runs(f"sm_{code.replace('.', '')}", cap) for code in stack.machine_code)
    ]
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


def runtimes(host: Probe) -> dict[str, str]:
    """Who brings which CUDA in the target: the runtime wheels and torch; ``12.8`` of ``12.8.90``."""
    found = {name: version for name, version in distributions(host).items() if RUNTIME.fullmatch(name)}
    _, torch = python_env.torch_version(host.read_text(VERSION_FILE))
    named = ({"torch": torch} if torch else {}) | found
    return {
        name: match[0]
        for name, text in named.items()
        if (match := re.match(r"\d{1,3}\.\d{1,3}", text, re.ASCII))
    }


def in_force(host: Probe, driver: str) -> str:
    """The driver version that counts for CUDA: that of a newer cuda-compat library when one is in force, else the driver's."""
    copies = libraries.libcuda(host)
    newer = copies[0].version if copies and copies[0].kind == "compat" else None
    return newer if newer and at_least(newer, driver) else driver


@check(
    "CUDA-008",
    layer=Layer.CUDA,
    title="The driver serves the CUDA runtime of every wheel that is installed",
    why="A wheel for CUDA 13 on a driver for CUDA 12 imports, and the first kernel ends in 'driver version is insufficient'.",
    source=COMPAT,
    requires=("DRIVER-001",),
    needs_target=True,
)
def serves_wheels(host: Probe) -> Answer:
    """The CUDA of the driver's branch against that of torch and of each runtime wheel, whatever the stack pins."""
    driver, have = libraries.driver(host), runtimes(host)
    seen: tuple[Evidence, ...] = (driver,)
    origin = {"torch": f"read {VERSION_FILE}"}
    seen += tuple(
        Evidence(f"runtime of {name}", cuda, origin.get(name, f"glob {DIST_INFO}"))
        for name, cuda in have.items()
    )
    if stack_of(host).device == "cpu":
        return skip("the stack computes on the CPU", *seen)
    if not have:
        return skip("no wheel in the target brings a CUDA runtime", *seen)
    if driver.value is None:
        return unknown("the driver named no version", *seen)
    number = in_force(host, str(driver.value))
    if number != driver.value:
        seen = (*seen, Evidence("cuda-compat in force", number, f"env {PATHS}"))
    return _served(host, have, number, seen)


def _served(host: Probe, have: dict[str, str], number: str, seen: tuple[Evidence, ...]) -> Answer:
    """The verdict for a driver of this number."""
    served = tables.branch_cuda(number)
    seen = (
        *seen,
        Evidence("driver serves CUDA up to", served or "branch not listed", "tables/driver_branches.json"),
    )
    floors = {name: tables.driver_floor(cuda) for name, cuda in have.items()}
    short = [name for name, floor in floors.items() if floor and not at_least(number, floor)]
    if short:
        return _too_old(host, short, have, number, seen)
    if None in floors.values():
        return unknown("a runtime is of a CUDA release that no table here lists", *seen)
    beyond = sorted(
        {cuda for cuda in have.values() if served and Version(cuda) > Version(served)}, key=Version
    )
    if not beyond:
        return ok(*seen)
    most = beyond[-1]
    return warn(
        *seen,
        fix=Fix(f"For all of CUDA {most} install driver {tables.shipped_driver(most) or 'of its branch'} or newer", NEW_DRIVER, Risk.REBOOT),
        reason=f"runs by minor-version compatibility: calls new in {most} fail, and so does code that exists only as PTX of {most} (error 222)",
    )  # fmt: skip


def _too_old(
    host: Probe, short: list[str], have: dict[str, str], number: str, seen: tuple[Evidence, ...]
) -> Answer:
    """A runtime of a newer major release than the driver's; of one that torch does not use only a warning."""
    name = short[0]
    floor = tables.driver_floor(have[name])
    major = have[name].split(".", maxsplit=1)[0]
    seen = (*seen, Evidence(f"lowest driver for CUDA {major}", floor, "tables/driver_floors.json"))
    torch = have.get("torch", "").split(".", maxsplit=1)[0]
    if (
        "torch" not in short
        and torch
        and all(have[each].split(".", maxsplit=1)[0] != torch for each in short)
    ):
        return warn(
            *seen,
            reason=f"{name} is beyond this driver; torch, built for CUDA {have['torch']}, does not use it",
        )
    served = tables.branch_cuda(number)
    # The stack's own wheels are a way out only where this driver serves them.
    wheels = ""
    if served and at_least(number, stack_of(host).driver_floor):
        wheels = f", or take wheels for CUDA {served.split('.', maxsplit=1)[0]} (runbook env build)"
    classes = {(tables.card(one.name) or {}).get("class") for one in gpus(host)}
    compat = tables.compat_package(
        have[name], int(number.split(".", maxsplit=1)[0])
    ) == "yes" and classes == {"datacenter"}
    package = f"cuda-compat-{have[name].replace('.', '-')}"
    extra = f"; on this data-centre card {package} in front of LD_LIBRARY_PATH serves too" if compat else ""
    return fail(
        *seen,
        fix=Fix(
            f"Install driver {floor} or newer{wheels}{extra}",
            NEW_DRIVER,
            Risk.REBOOT,
        ),
        reason=f"CUDA {major} wheel on a driver for CUDA {served or 'of an older release'}",
    )


@check(
    "CUDA-009",
    layer=Layer.CUDA,
    title="The three CUDA numbers of this machine go together",
    why="nvidia-smi's CUDA Version is what the driver serves, not a toolkit; code built by a newer toolkit may not run here.",
    source=Source(
        "CUDA compatibility: application considerations",
        "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
        "2026-11-30",
    ),
    requires=("DRIVER-001",),
)
def three_numbers(host: Probe) -> Answer:
    """Driver, runtime in the wheels and toolkit on PATH side by side; only a toolkit beyond the driver is worth a warning."""
    driver = libraries.driver(host)
    served = tables.branch_cuda(str(driver.value)) if driver.value else None
    have = runtimes(host) if host.has_target else {}
    ran = host.run(["nvcc", "--version"])
    toolkit = None if ran.missing else nvidia.nvcc(ran.out)
    seen = (
        driver,
        Evidence("1 driver serves up to", served or "not listed", "tables/driver_branches.json"),
        Evidence(
            "2 runtime in the wheels", " ".join(sorted(set(have.values()))) or "no wheel", f"glob {DIST_INFO}"
        ),
        Evidence("3 toolkit on PATH", "none" if ran.missing else toolkit, "run nvcc --version"),
    )
    if driver.value is None:
        return unknown("the driver named no version", *seen)
    if ran.missing:
        return ok(*seen)
    if served is None or toolkit is None:
        return unknown("the driver's branch is in no table here, or nvcc named no release", *seen)
    if Version(toolkit) <= Version(served):
        return ok(*seen)
    same_major = Version(toolkit).major == Version(served).major
    why = f"PTX made by {toolkit} does not compile on this driver (error 222); machine code for the card does run"
    return warn(
        *seen,
        fix=Fix(
            f"Build with a toolkit up to {served}, or install the driver of CUDA {toolkit}",
            NEW_DRIVER,
            Risk.REBOOT,
        ),
        reason=why
        if same_major
        else f"nothing built by {toolkit} starts on a driver for CUDA {served} (error 35)",
    )


CHECKS = (driver_floor, no_shadow, code_for_card, serves_wheels, three_numbers)
