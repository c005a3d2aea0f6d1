"""Readings for CUDA-007 and on: libcuda, the driver against the wheels, toolkits and compilers."""

from typing import Any

from cases_machine import GXX, MODULE, NVCC, NVRM, RELEASE, TOOLKITS, TWO
from cases_target import DISTS, NO_CUDA, VERSION_PY, version_py
from host import (
    CPU,
    FAIL,
    GPU,
    H200,
    MISSING,
    NO_NODE,
    OK,
    ONE_NODE,
    SKIP,
    SMI,
    UNKNOWN,
    WARN,
    Case,
    Row,
    ran,
    table,
)

from runbook.checks import libraries, toolkits
from runbook.parse import compilers
from runbook.probes import questions

PATHS, CACHE = "env LD_LIBRARY_PATH", libraries.CACHE
UBUNTU = "/lib/x86_64-linux-gnu"
DRIVER = "580.159.04"
MOUNTED = "/usr/local/nvidia/lib64"
COMPAT = "/usr/local/cuda-13.0/compat"


def entry(path: str, flags: str = "libc6,x86-64") -> str:
    """A line of ``ldconfig -p``."""
    return f"\t{path.rsplit('/', 1)[1]} ({flags}) => {path}\n"


def folder(path: str, version: str, *more: str, glob: str = "lib*.so.*") -> dict[str, Any]:
    """A folder with a libcuda of this version, as a pattern lists it."""
    return {f"glob {path}/{glob}": (f"{path}/libcuda.so.1", f"{path}/libcuda.so.{version}", *more)}


CACHED = {CACHE: f"1 libs found in cache `/etc/ld.so.cache'\n{entry(f'{UBUNTU}/libcuda.so.1')}"}
IN_CACHE = {**CACHED, **folder(UBUNTU, DRIVER, glob="libcuda.so.*")}
DEFAULTS = {f"glob {pattern}": () for pattern in libraries.DEFAULT_FOLDERS}
NOT_CACHED = {CACHE: "0 libs found in cache `/etc/ld.so.cache'\n"}
GEFORCE = H200.replace("NVIDIA H200, 9.0", "NVIDIA GeForce RTX 4090, 8.9")
ADA = H200.replace("NVIDIA H200, 9.0", "NVIDIA RTX 6000 Ada Generation, 8.9")


def module(version: str) -> dict[str, Any]:
    """A machine with a driver of this version."""
    return {NVRM: MODULE.format(version), SMI: H200.replace(DRIVER, version)}


def newer(version: str, driver: str, smi: str = H200) -> dict[str, Any]:
    """A cuda-compat folder on LD_LIBRARY_PATH before the driver's library."""
    return {
        PATHS: COMPAT, **folder(COMPAT, version), **module(driver), SMI: smi.replace(DRIVER, driver),
        **CACHED, **folder(UBUNTU, driver, glob="libcuda.so.*"),
    }  # fmt: skip


LIBCUDA = table(
    "CUDA-007",
    {PATHS: None, NVRM: MODULE.format(DRIVER), SMI: H200, **IN_CACHE},
    Row("in the cache", OK, {}, {"libcuda.so.1": f"{UBUNTU}/libcuda.so.1", "its version": DRIVER, "driver": DRIVER, "found through": "ld.so cache"}),
    Row("mounted by the container's runtime", OK, {PATHS: f"{MOUNTED}:/usr/local/nvidia/lib", **folder(MOUNTED, DRIVER), "glob /usr/local/nvidia/lib/lib*.so.*": (), CACHE: entry(f"{MOUNTED}/libcuda.so.1"), f"glob {MOUNTED}/libcuda.so.*": (f"{MOUNTED}/libcuda.so.1", f"{MOUNTED}/libcuda.so.{DRIVER}")}, {"found through": "LD_LIBRARY_PATH"}),
    Row("on the path only, which Triton then searches", OK, {PATHS: MOUNTED, **folder(MOUNTED, DRIVER), **NOT_CACHED}, {"found through": "LD_LIBRARY_PATH"}),
    Row("Arm", OK, {CACHE: entry("/lib/aarch64-linux-gnu/libcuda.so.1", "libc6,AArch64"), **folder("/lib/aarch64-linux-gnu", DRIVER, glob="libcuda.so.*")}, {"libcuda.so.1": "/lib/aarch64-linux-gnu/libcuda.so.1"}),
    Row("two releases in one folder, the link says which", OK, {**folder(UBUNTU, DRIVER, f"{UBUNTU}/libcuda.so.570.133.20", glob="libcuda.so.*"), f"run readlink -f {UBUNTU}/libcuda.so.1": f"{UBUNTU}/libcuda.so.{DRIVER}\n"}, {"its version": DRIVER}),
    Row("a compat folder off the path harms nobody", OK, {PATHS: "/opt/x", "glob /opt/x/lib*.so.*": ("/opt/x/libz.so.1",)}, {"its version": DRIVER}),
    Row("a 32-bit one alone", FAIL, {CACHE: entry("/lib/i386-linux-gnu/libcuda.so.1", "libc6"), **DEFAULTS}, {"libcuda.so.1": "not found"}),
    Row("none", FAIL, {**NOT_CACHED, **DEFAULTS}, {"libcuda.so.1": "not found"}, says="CAPABILITIES"),
    Row("the cache is older than the folder", FAIL, {f"glob {UBUNTU}/libcuda.so.*": (), **DEFAULTS}, {"libcuda.so.1": "not found"}),
    Row("found by the loader, not by Triton", FAIL, {**NOT_CACHED, **DEFAULTS, "glob /usr/lib/*-linux-gnu/libcuda.so.*": ("/usr/lib/x86_64-linux-gnu/libcuda.so.1", f"/usr/lib/x86_64-linux-gnu/libcuda.so.{DRIVER}")}, {"found through": "default folder"}, says="Triton"),
    Row("a stale line in the cache hides the path from Triton", FAIL, {PATHS: MOUNTED, **folder(MOUNTED, DRIVER), f"glob {UBUNTU}/libcuda.so.*": ()}, says="Triton"),
    Row("Triton cannot ask ldconfig", WARN, {PATHS: MOUNTED, **folder(MOUNTED, DRIVER), CACHE: MISSING}, says="TRITON_LIBCUDA_PATH"),
    Row("stubs first", FAIL, {PATHS: "/usr/local/cuda/lib64/stubs", "glob /usr/local/cuda/lib64/stubs/lib*.so.*": ("/usr/local/cuda/lib64/stubs/libcuda.so.1",), "run readlink -f /usr/local/cuda/lib64/stubs/libcuda.so.1": "/usr/local/cuda/lib64/stubs/libcuda.so\n"}, {"libcuda.so.1": "/usr/local/cuda/lib64/stubs/libcuda.so.1"}, says="Take /usr/local/cuda/lib64/stubs off"),
    Row("compat older than the driver", FAIL, newer("580.95.05", DRIVER), {"its version": "580.95.05", "driver": DRIVER}, says="803"),
    Row("compat of an older branch, by the image's ld.so.conf", FAIL, {CACHE: entry("/usr/local/cuda-12.9/compat/libcuda.so.1") + entry(f"{UBUNTU}/libcuda.so.1"), **folder("/usr/local/cuda-12.9/compat", "575.57.08", glob="libcuda.so.*")}, {"its version": "575.57.08"}, says="ld.so.conf.d"),
    Row("compat newer than the driver, data-centre card, listed", OK, newer("580.95.05", "535.230.02"), {"compat serves": "13.0", "listed for this driver branch": "yes"}),
    Row("compat newer than the driver, GeForce", FAIL, newer("580.95.05", "535.230.02", GEFORCE), {"card": "NVIDIA GeForce RTX 4090"}, says="804"),
    Row("compat newer than the driver, workstation card", WARN, newer("580.95.05", "535.230.02", ADA), says="does not say"),
    Row("compat newer than a driver of a branch that is not listed", WARN, newer("580.95.05", "550.163.01")),
    Row("compat newer than the driver, a card nobody knows", WARN, newer("580.95.05", "535.230.02", H200.replace("H200", "ZX9"))),
    Row("a libcuda of another driver first", FAIL, {PATHS: "/opt/old", **folder("/opt/old", "535.230.02")}, {"its version": "535.230.02"}, says="before the right one"),
    Row("upgraded, not rebooted", FAIL, {NVRM: MODULE.format("570.133.20")}, {"its version": DRIVER, "driver": "570.133.20"}, says="Reboot"),
    Row("no version in the name", UNKNOWN, {f"glob {UBUNTU}/libcuda.so.*": (f"{UBUNTU}/libcuda.so.1",), f"run readlink -f {UBUNTU}/libcuda.so.1": f"{UBUNTU}/libcuda.so.1\n"}, {"its version": None}),
    Row("no driver that names itself", UNKNOWN, {NVRM: None, SMI: MISSING}, {"driver": None}),
    Row("no ldconfig, nothing else", UNKNOWN, {CACHE: MISSING, **DEFAULTS}),
)  # fmt: skip


def wheels(cuda: str = "12.8", *runtimes: str) -> dict[str, Any]:
    """A target whose torch is built for this CUDA, with these runtime wheels."""
    names = runtimes or (
        f"nvidia_cuda_runtime_cu12-{cuda}.90" if cuda.startswith("12") else f"nvidia_cuda_runtime-{cuda}.96",
    )
    return {
        VERSION_PY: version_py(f"2.10.0+cu{cuda.replace('.', '')}", f"Optional[str] = '{cuda}'"),
        DISTS: tuple(f"{{site}}/{name}.dist-info" for name in names),
    }


WHEELS = table(
    "CUDA-008",
    {**ONE_NODE, PATHS: None, **module(DRIVER), **IN_CACHE, **wheels()},
    Row("an H200 with driver 580", OK, {}, {"driver": DRIVER, "runtime of torch": "12.8", "runtime of nvidia-cuda-runtime-cu12": "12.8", "driver serves CUDA up to": "13.0"}),
    Row("the toolkit's own driver", OK, module("570.26"), {"driver serves CUDA up to": "12.8"}),
    Row("CUDA 13 wheels on driver 580", OK, wheels("13.0"), {"runtime of nvidia-cuda-runtime": "13.0"}),
    Row("a branch of the future", OK, module("700.10.01"), {"driver serves CUDA up to": "branch not listed"}),
    Row("an older minor of the same major", WARN, module("535.230.02"), {"driver serves CUDA up to": "12.2"}, says="error 222"),
    Row("the floor exactly", WARN, module("525.60.13"), {"driver serves CUDA up to": "12.0"}, says="12.8"),
    Row("one build below the floor", FAIL, module("525.60.11"), {"lowest driver for CUDA 12": "525.60.13"}),
    Row("driver 470", FAIL, {**module("470.256.02"), SMI: ran('Field "compute_cap" is not a valid field to query.\n', rc=2)}, {"driver": "470.256.02", "driver serves CUDA up to": "11.4"}, says="Install driver 525.60.13 or newer ('sudo apt-get"),
    Row("driver 510", FAIL, module("510.108.03"), {"driver serves CUDA up to": "11.6"}),
    Row("cu13 wheels on a cu12 driver", FAIL, {**module("570.133.20"), **wheels("13.0")}, {"lowest driver for CUDA 13": "580.65.06"}, says="CUDA 13 wheel on a driver for CUDA 12.8"),
    Row("the same on a data-centre card may use compat", FAIL, {**module("570.133.20"), **wheels("13.0")}, says="cuda-compat-13-0"),
    Row("a GeForce may not", FAIL, {**module("570.133.20"), **wheels("13.0"), SMI: GEFORCE.replace(DRIVER, "570.133.20")}, says="take wheels for CUDA 12 (runbook env build)"),
    Row("driver 580.65.05 is below 13's floor", FAIL, {**module("580.65.05"), **wheels("13.0")}),
    Row("compat in force", OK, {**newer("580.95.05", "535.230.02"), **wheels("13.0")}, {"cuda-compat in force": "580.95.05", "driver serves CUDA up to": "13.0"}),
    Row("a bystander of CUDA 13", WARN, {**module("570.133.20"), **wheels("12.8", "nvidia_cuda_runtime_cu12-12.8.90", "nvidia_cuda_runtime-13.0.96")}, says="nvidia-cuda-runtime is beyond this driver"),
    Row("CUDA 11 wheels on any driver", OK, wheels("11.8", "nvidia_cuda_runtime_cu11-11.8.89")),
    Row("a CUDA that no table has", UNKNOWN, wheels("14.0", "nvidia_cuda_runtime-14.0.1")),
    Row("no version said", UNKNOWN, {NVRM: None, SMI: MISSING}, {"driver": None}),
    Row("a CPU build, no runtime", SKIP, {VERSION_PY: version_py("2.10.0+cpu", NO_CUDA), DISTS: ("{site}/torch-2.10.0+cpu.dist-info",)}, says="no wheel"),
    stack=GPU,
)  # fmt: skip
ON_CPU = table("CUDA-008", {**ONE_NODE, **module(DRIVER), **wheels()}, Row("a CPU stack", SKIP, {}, says="computes on the CPU"), stack=CPU)  # fmt: skip

NUMBERS = table(
    "CUDA-009",
    {**module(DRIVER), **wheels(), NVCC: MISSING},
    Row("no toolkit", OK, {}, {"1 driver serves up to": "13.0", "2 runtime in the wheels": "12.8", "3 toolkit on PATH": "none"}),
    Row("three different numbers, all well", OK, {NVCC: RELEASE.format("12.6")}, {"3 toolkit on PATH": "12.6"}),
    Row("a toolkit as new as the driver", OK, {NVCC: RELEASE.format("13.0")}),
    Row("a toolkit of a newer minor", WARN, {NVCC: RELEASE.format("13.2")}, {"3 toolkit on PATH": "13.2"}, says="error 222"),
    Row("a toolkit of a newer major", WARN, {**module("570.133.20"), NVCC: RELEASE.format("13.0")}, {"1 driver serves up to": "12.8"}, says="error 35"),
    Row("a branch that is not listed", UNKNOWN, {**module("700.10.01"), NVCC: RELEASE.format("13.0")}),
    Row("an nvcc that does not answer", UNKNOWN, {NVCC: ran(rc=1)}),
    stack=GPU,
)  # fmt: skip

WHICH = questions.run(toolkits.WHICH_NVCC)
LINK, BIN, INSIDE = "glob /usr/local/cuda", "glob /usr/local/cuda/bin", "glob /usr/local/cuda/*"
HOME, CUDA_PATH = "env CUDA_HOME", "env CUDA_PATH"
NO_INCLUDES: dict[str, Any] = {"env CPATH": None, "env CPLUS_INCLUDE_PATH": None}


def toolkit(place: str, headers: str | None, libcudart: str | None) -> dict[str, Any]:
    """Headers and runtime library of a toolkit's folder."""
    major, _, minor = (headers or "0.0").partition(".")
    line = f"#define CUDART_VERSION  {int(major) * 1000 + int(minor) * 10}\n"
    library = f"{place}/lib64/libcudart.so.{libcudart}"
    return {
        questions.run(compilers.header_argv(place)): line
        if headers
        else ran(rc=2, err="grep: No such file or directory"),
        f"glob {place}/lib64/libcudart.so.*": (library,) if libcudart else (),
    }


def nvcc_at(place: str, release: str | None) -> dict[str, Any]:
    """The nvcc below a folder."""
    return {f"run {place}/bin/nvcc --version": MISSING if release is None else RELEASE.format(release)}


LOCAL = "/usr/local/cuda"
WHOLE_KIT = {
    HOME: LOCAL,
    **nvcc_at(LOCAL, "12.8"),
    **toolkit(LOCAL, "12.8", "12.8.90"),
    LINK: (LOCAL,),
    INSIDE: (f"{LOCAL}/bin",),
}
NO_KIT: dict[str, Any] = {TOOLKITS: (), HOME: None, CUDA_PATH: None, WHICH: ran(rc=127), LINK: (), BIN: ()}
FACES = table(
    "CUDA-010",
    {**NO_KIT, **NO_INCLUDES},
    Row("whole, by CUDA_HOME", OK, WHOLE_KIT, {"a build takes": LOCAL, "nvcc": "12.8", "its headers": "12.8", "its libcudart": "12"}),
    Row("whole, by nvcc on PATH", OK, {WHICH: "/usr/local/cuda-13.0/bin/nvcc\n", NVCC: RELEASE.format("13.0"), **toolkit("/usr/local/cuda-13.0", "13.0", "13")}, {"a build takes": "/usr/local/cuda-13.0"}),
    Row("CUDA_PATH counts where CUDA_HOME is not set", OK, {**WHOLE_KIT, HOME: None, CUDA_PATH: LOCAL}),
    Row("Ubuntu's own package", OK, {WHICH: "/usr/bin/nvcc\n", NVCC: RELEASE.format("12.0"), **toolkit("/usr", "12.0", None)}, {"a build takes": "/usr"}),
    Row("none", SKIP, {}, says="needs none"),
    Row("a runtime image: a folder and no nvcc", SKIP, {LINK: (LOCAL,), INSIDE: (f"{LOCAL}/bin",), BIN: (f"{LOCAL}/bin",), **nvcc_at(LOCAL, None), **toolkit(LOCAL, None, "12.8.90")}, {"nvcc": None}),
    Row("headers of another release", FAIL, {**WHOLE_KIT, **toolkit(LOCAL, "12.1", "12.8.90")}, {"nvcc": "12.8", "its headers": "12.1"}, says="what lies beside it is not"),
    Row("conda's nvcc, the system's headers", FAIL, {**WHOLE_KIT, **nvcc_at(LOCAL, "13.0")}, {"nvcc": "13.0"}),
    Row("libcudart of another major", FAIL, {**WHOLE_KIT, **toolkit(LOCAL, "12.8", "11.8.89")}, {"its libcudart": "11"}),
    Row("CPATH puts others first", FAIL, {**WHOLE_KIT, "env CPATH": "/opt/a:/usr/local/cuda-11.8/include", questions.run(compilers.header_argv("/usr/local/cuda-11.8")): "#define CUDART_VERSION  11080\n"}, {"CPATH puts first": "/usr/local/cuda-11.8/include of 11.8"}, says="Take it off"),
    Row("CPATH names the same release", OK, {**WHOLE_KIT, "env CPATH": f"{LOCAL}/include"}),
    Row("a wrapper on PATH", WARN, {TOOLKITS: ("/usr/local/cuda-12.8", "/usr/local/cuda-13.0"), WHICH: "/usr/local/bin/nvcc\n", NVCC: RELEASE.format("13.0"), **toolkit("/usr/local", None, None)}, {"a build takes": "/usr/local", "its headers": "none"}, says="CUDA_HOME=/usr/local/cuda-13.0"),
    Row("a link that leads nowhere", WARN, {LINK: (LOCAL,), INSIDE: ()}, {LOCAL: "leads nowhere"}, says="rm /usr/local/cuda"),
    Row("the same beside a whole one", WARN, {WHICH: "/opt/cuda/bin/nvcc\n", NVCC: RELEASE.format("13.0"), **toolkit("/opt/cuda", "13.0", "13"), LINK: (LOCAL,), INSIDE: ()}, {LOCAL: "leads nowhere"}),
    Row("an nvcc that does not answer", SKIP, {**WHOLE_KIT, f"run {LOCAL}/bin/nvcc --version": ran(rc=1)}, {"nvcc": None}),
)  # fmt: skip

PLAIN = {"env CC": None, "env NVCC_PREPEND_FLAGS": None, "env NVCC_CCBIN": None}
GCC = "run gcc --version"
NO_TRITON = (('flag = "--gdn-prefill-backend"', 'flag = "--other"'),)
FIT = table(
    "CUDA-011",
    {**ONE_NODE, SMI: H200, HOME: LOCAL, **nvcc_at(LOCAL, "12.8"), **wheels(), **PLAIN, GCC: GXX.replace("g++", "gcc")},
    Row("nvcc 12.8, gcc 12, an H200", OK, {}, {"nvcc": "12.8", "torch was built for": "12.8", "cards": "9.0", "host compiler": "gcc 12.2"}),
    Row("another minor release of one major", OK, nvcc_at(LOCAL, "12.9")),
    Row("CC is what torch and FlashInfer pass", OK, {"env CC": "/opt/gcc/bin/gcc", "run /opt/gcc/bin/gcc --version": "gcc (GCC) 13.3.0\n"}, {"host compiler": "gcc 13.3", "it is taken by": "env CC"}),
    Row("clang", OK, {"env NVCC_CCBIN": "clang++", "run clang++ --version": "Debian clang version 14.0.6\n"}, {"host compiler": "clang 14.0"}),
    Row("flags say which", OK, {"env NVCC_PREPEND_FLAGS": "-ccbin g++-13 -lineinfo", "run g++-13 --version": "g++-13 (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0\n"}, {"it is taken by": "env NVCC_PREPEND_FLAGS"}),
    Row("another major, nothing planned", WARN, nvcc_at(LOCAL, "13.0"), {"nvcc": "13.0", "torch was built for": "12.8"}, says="torch for CUDA 12.8 refuses nvcc 13.0"),
    Row("another major, a build planned", FAIL, nvcc_at(LOCAL, "13.0"), says="refuses nvcc 13.0", manifest=NO_TRITON),
    Row("an old nvcc and a new card", FAIL, {**nvcc_at(LOCAL, "12.6"), SMI: H200.replace("H200, 9.0", "GeForce RTX 5090, 12.0")}, says="does not know sm_120", manifest=NO_TRITON),
    Row("one card of two", WARN, {**nvcc_at(LOCAL, "12.6"), SMI: TWO.replace("1, NVIDIA H200, 9.0", "1, NVIDIA B200, 10.0")}, {"cards": "10.0 9.0"}, says="sm_100"),
    Row("gcc too new", FAIL, {GCC: "gcc (Debian 15.2.0-1) 15.2.0\n"}, {"host compiler": "gcc 15.2"}, says="export CC=gcc-14", manifest=NO_TRITON),
    Row("clang too new", WARN, {"env CC": "clang", "run clang --version": "clang version 20.1.2\n"}, says="refuses clang 20.1"),
    Row("no nvcc", SKIP, {HOME: None, CUDA_PATH: None, WHICH: ran(rc=127), BIN: ()}, says="CUDA-006"),
    Row("CUDA_HOME without nvcc", SKIP, nvcc_at(LOCAL, None)),
    Row("an nvcc that no table has", UNKNOWN, nvcc_at(LOCAL, "12.15")),
    Row("no host compiler", UNKNOWN, {GCC: MISSING}, {"host compiler": None}),
    Row("no card said", SKIP, {SMI: MISSING}, {"cards": None}, says="DRIVER-002"),
    stack=GPU,
)  # fmt: skip
FIT_CPU = table("CUDA-011", NO_NODE, Row("a CPU stack", SKIP, {}, says="computes on the CPU"))

CASES: list[Case] = [*LIBCUDA, *WHEELS, *ON_CPU, *NUMBERS, *FACES, *FIT, *FIT_CPU]
