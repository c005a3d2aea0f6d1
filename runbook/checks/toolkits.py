"""CUDA: toolkits and compilers, and whether a build at run time would find a pair that fits."""

from runbook import launch, tables
from runbook.checks.readings import GPU_QUESTION, NO_CARD, NO_GPU, gpus, need, stack_of
from runbook.model import Answer, Evidence, Fix, Layer, Risk, Source, check, fail, ok, skip, unknown, warn
from runbook.parse import compilers, loader, nvidia, python_env
from runbook.pins import Stack, has_nvidia_gpu
from runbook.probe import Probe
from runbook.probes import questions

DEFAULT_HOME = "/usr/local/cuda"
TOOLKITS = "/usr/local/cuda-[0-9]*"
WHICH_NVCC = ["sh", "-c", "command -v nvcc"]
VERSION_FILE = "{site}/torch/version.py"
# Folders of headers that come before a toolkit's own, whatever nvcc is taken (GCC manual, environment variables).
INCLUDES = ("CPATH", "CPLUS_INCLUDE_PATH")


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
    folders = tuple(path for path in host.glob(TOOLKITS) if path.count(".") == 1 or path[-1].isdigit())
    versions = {path.rsplit("-", 1)[1] for path in folders if "." in path.rsplit("-", 1)[1]}
    seen: tuple[Evidence, ...] = (
        Evidence("nvcc on PATH", "none" if ran.missing else on_path, "run nvcc --version"),
        Evidence("CUDA_HOME", named or "not set", "env CUDA_HOME"),
        Evidence("under /usr/local", " ".join(sorted(versions)) or "none", f"glob {TOOLKITS}"),
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


def home(host: Probe) -> tuple[str | None, str]:
    """(the toolkit a build takes, what led there), in the order of torch.utils.cpp_extension and FlashInfer.

    CUDA_HOME, CUDA_PATH, the folder above the nvcc on PATH, then /usr/local/cuda.
    """
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if named := host.env(name):
            return named.rstrip("/") or "/", f"env {name}"
    ran = host.run(WHICH_NVCC)
    if ran.ok and ran.out.strip():
        return loader.folder(loader.folder(ran.out.strip())), questions.run(WHICH_NVCC)
    return (DEFAULT_HOME if host.glob(f"{DEFAULT_HOME}/bin") else None), f"glob {DEFAULT_HOME}/bin"


def nvcc_of(host: Probe, place: str, led: str) -> Evidence:
    """The release of the toolkit's nvcc, asked by the name that led to it."""
    argv = ["nvcc", "--version"] if led == questions.run(WHICH_NVCC) else [f"{place}/bin/nvcc", "--version"]
    ran = host.run(argv)
    return Evidence("nvcc", None if ran.missing else nvidia.nvcc(ran.out), questions.run(argv))


def headers_of(host: Probe, place: str) -> str | None:
    """The release of the headers below a folder; None where there are none."""
    ran = host.run(compilers.header_argv(place))
    return compilers.header(ran.out) if ran.ok else None


@check(
    "CUDA-010",
    layer=Layer.CUDA,
    title="The toolkit that a build would take has compiler, headers and library of one release",
    why="'Two-faced CUDA': code compiled by one release against headers of another fails to build, or crashes when it runs.",
    source=Source(
        "PyTorch: torch.utils.cpp_extension looks for CUDA_HOME",
        "https://docs.pytorch.org/docs/stable/cpp_extension.html",
        "2026-11-30",
    ),
)
def one_face(host: Probe) -> Answer:
    """CUDA_HOME as torch finds it: nvcc, the headers and libcudart below it, and headers that come before them."""
    place, led = home(host)
    dangling = bool(host.glob(DEFAULT_HOME)) and not host.glob(f"{DEFAULT_HOME}/*")
    if place is None:
        none = skip("there is no toolkit; serving from wheels needs none")
        return warn(LOST, fix=UNLINK) if dangling else none
    return _whole(host, place, led, dangling=dangling)


def _whole(host: Probe, place: str, led: str, *, dangling: bool) -> Answer:
    """The verdict about the toolkit in one place."""
    nvcc, headers = nvcc_of(host, place, led), headers_of(host, place)
    libraries = host.glob(f"{place}/lib64/libcudart.so.*")
    numbers = {(loader.version(path) or path.rpartition(".so.")[2]).split(".")[0] for path in libraries}
    seen = [
        Evidence("a build takes", place, led),
        nvcc,
        Evidence("its headers", headers or "none", questions.run(compilers.header_argv(place))),
        Evidence("its libcudart", " ".join(sorted(numbers)) or "none", f"glob {place}/lib64/libcudart.so.*"),
    ]
    if nvcc.value is None:
        return skip(
            "no nvcc answers there: nothing could be built (CUDA-002 says where CUDA_HOME leads)", *seen
        )
    release = str(nvcc.value)
    before = first_headers(host, release)
    if before:
        return fail(
            *seen, before, fix=Fix("Take it off", ("unset CPATH CPLUS_INCLUDE_PATH",)),
            reason="headers of another release come before the toolkit's own",
        )  # fmt: skip
    if (headers and headers != release) or (numbers and release.split(".", maxsplit=1)[0] not in numbers):
        return fail(*seen, fix=name_one(host), reason=f"nvcc is of {release}, what lies beside it is not")
    if headers is None:
        why = f"torch and FlashInfer look for headers in {place}/include, and there are none"
        return warn(*seen, fix=name_one(host), reason=why)
    return warn(*seen, LOST, fix=UNLINK) if dangling else ok(*seen)


def first_headers(host: Probe, release: str) -> Evidence | None:
    """A folder of headers of another release that a variable puts before every toolkit's."""
    for name in INCLUDES:
        for folder in loader.folders(host.env(name)):
            other = headers_of(host, folder.removesuffix("/include")) if folder.endswith("/include") else None
            if other and other != release:
                return Evidence(f"{name} puts first", f"{folder} of {other}", f"env {name}")
    return None


def name_one(host: Probe) -> Fix:
    """The cure: a toolkit by its own folder, the newest of those that are there."""
    there = host.glob(TOOLKITS)
    home = there[-1] if there else "/usr/local/cuda-12.9"
    return Fix("Name one whole toolkit", (f"export CUDA_HOME={home}", 'export PATH="$CUDA_HOME/bin:$PATH"'))


LOST = Evidence(DEFAULT_HOME, "leads nowhere", f"glob {DEFAULT_HOME}/*")
UNLINK = Fix(
    "Lead the link to a toolkit that is there, or remove it",
    ("sudo rm /usr/local/cuda",),
    Risk.NONE,
    "ln -s again",
)


def host_compiler(host: Probe) -> tuple[str, str]:
    """(what nvcc hands C++ code to, what says so): CC as torch and FlashInfer pass it, NVCC's own variables, else gcc."""
    if named := host.env("CC"):
        return named, "env CC"
    if named := compilers.ccbin(host.env("NVCC_PREPEND_FLAGS")):
        return named, "env NVCC_PREPEND_FLAGS"
    if named := host.env("NVCC_CCBIN"):
        return named, "env NVCC_CCBIN"
    return "gcc", "nvcc takes the gcc on PATH"


def planned(stack: Stack) -> bool:
    """True when the planned command has kernels compiled by nvcc."""
    return (
        next((one.value for one in launch.flags(stack) if one.flag == "--gdn-prefill-backend"), "auto")
        != "triton"
    )


@check(
    "CUDA-011",
    layer=Layer.CUDA,
    title="The nvcc that a build would take knows the card, accepts the host compiler and is of torch's CUDA release",
    why="torch refuses an nvcc of another major release, nvcc a newer gcc than it knows, and an old nvcc the target of a new card.",
    source=Source(
        "NVIDIA: CUDA installation guide for Linux, host compiler support",
        "https://docs.nvidia.com/cuda/cuda-installation-guide-linux/",
        "2026-11-30",
    ),
    requires=("DRIVER-001",),
    needs_target=True,
)
def fit(host: Probe) -> Answer:
    """The toolkit of CUDA-010 against torch/version.py, the cards, and the compiler nvcc would call."""
    stack = stack_of(host)
    if stack.device != "cuda":
        return skip("the stack computes on the CPU")
    place, led = home(host)
    nvcc = nvcc_of(host, place, led) if place else None
    if nvcc is None or nvcc.value is None:
        return skip("there is no nvcc where a build looks; CUDA-006 says whether the plan needs one")
    return _fits(host, stack, nvcc)


def _fits(host: Probe, stack: Stack, nvcc: Evidence) -> Answer:
    """The verdict about one nvcc."""
    release = str(nvcc.value)
    built, torch = python_env.torch_version(host.read_text(VERSION_FILE))
    if built and torch is None:
        return skip("torch is not built for CUDA, so nothing is built against it; TORCH-002 says more", nvcc)
    name, said = host_compiler(host)
    argv = [name, "--version"]
    gxx = compilers.compiler(host.run(argv).out)
    caps = sorted({one.compute_cap for one in gpus(host) if one.compute_cap})
    seen = (
        nvcc,
        Evidence("torch was built for", torch, f"read {VERSION_FILE}"),
        Evidence("cards", " ".join(caps) or None, GPU_QUESTION),
        Evidence("host compiler", f"{gxx.family} {gxx.version}" if gxx else None, questions.run(argv)),
        Evidence("it is taken by", said),
    )
    row = tables.toolkit(release)
    wrong = misfits(release, row or {}, torch, caps, gxx)
    if wrong:
        fix = Fix(
            f"Install nvcc of torch's CUDA ({torch or '12.8'}) and name it in CUDA_HOME, or {wrong[0][1]}"
        )
        why = "; ".join(each for each, _ in wrong)
        if planned(stack):
            return fail(*seen, fix=fix, reason=why)
        return warn(*seen, fix=fix, reason=f"{why} (no harm yet: the plan compiles nothing with nvcc)")
    if not caps and not gpus(host):
        return skip(NO_CARD, *seen)
    if row is None or torch is None or not caps or gxx is None:
        return unknown("nvcc's release, torch's CUDA, the card or the host compiler is not known here", *seen)
    return ok(*seen)


def misfits(
    release: str, row: dict[str, object], torch: str | None, caps: list[str], gxx: compilers.Compiler | None
) -> list[tuple[str, str]]:
    """What does not go together, each with what else would cure it."""
    found = []
    if torch and torch.split(".")[0] != release.split(".", maxsplit=1)[0]:
        found.append((f"torch for CUDA {torch} refuses nvcc {release}", "take a torch for that CUDA"))
    known = row.get("sm")
    if isinstance(known, list):
        found += [
            (f"nvcc {release} does not know sm_{cap.replace('.', '')}", "take a newer toolkit")
            for cap in caps
            if cap.replace(".", "") not in known
        ]
    if gxx:
        limit = row.get("gcc_max") if gxx.family == "gcc" else row.get("clang_below")
        if isinstance(limit, int) and (gxx.major > limit if gxx.family == "gcc" else gxx.major >= limit):
            older = f"gcc-{limit}" if gxx.family == "gcc" else f"clang-{limit - 1}"
            found.append((f"nvcc {release} refuses {gxx.family} {gxx.version}", f"export CC={older}"))
    return found


CHECKS = (one_toolkit, compiler, nvcc_for_jit, one_face, fit)
