"""TORCH: which torch is installed, whether it loads, sees what the machine has, and computes right."""

import re

from packaging.version import Version

from runbook.checks.limits import cores
from runbook.checks.readings import DIST_INFO, NO_GPU, REBUILD, distributions, need, stack_of
from runbook.checks.torch_cause import LOOK, VISIBLE, answers, cause
from runbook.model import (
    Answer,
    Cost,
    Evidence,
    Fix,
    Layer,
    Risk,
    Source,
    check,
    fail,
    ok,
    skip,
    unknown,
    warn,
)
from runbook.parse import python_env
from runbook.pins import has_nvidia_gpu
from runbook.probe import Probe

FACTS = "inside torch_facts"
VERSION_FILE = "{site}/torch/version.py"
# Variables by which installers are sent to another index.
INDEXES = ("UV_TORCH_BACKEND", "UV_INDEX", "UV_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")
NO_TORCH = "torch is not installed in the target"
# Largest error of a 256 x 256 product of standard normal numbers, relative to the largest entry of the float64 product.
# Machine epsilon of each type times a small factor for the sum over 256 terms.
TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 2e-3}


@check(
    "TORCH-001",
    layer=Layer.TORCH,
    title="The torch that is installed is the one the stack pins",
    why="vLLM's extension is compiled against one torch; another loads with undefined symbols or not at all.",
    source=Source(
        "PyTorch: only a limited ABI is stable between releases",
        "https://docs.pytorch.org/docs/stable/notes/libtorch_stable_abi.html",
        "2026-11-30",
    ),
    needs_target=True,
)
def pinned(host: Probe) -> Answer:
    """torch/version.py, read as text."""
    stack = stack_of(host)
    version, _ = python_env.torch_version(host.read_text(VERSION_FILE))
    seen = (Evidence("torch", version, f"read {VERSION_FILE}"), need("pinned", stack.torch, stack))
    if version is None:
        return fail(*seen, fix=REBUILD, reason=NO_TORCH)
    return ok(*seen) if Version(version).public == Version(stack.torch).public else fail(*seen, fix=REBUILD)


@check(
    "TORCH-002",
    layer=Layer.TORCH,
    title="torch was built for CUDA where the stack computes on a GPU",
    why="A CPU build installs without complaint and then sees no GPU.",
    source=Source(
        "PyTorch: local version tags name the build",
        "https://pytorch.org/get-started/previous-versions/",
        "2026-11-30",
    ),
    needs_target=True,
)
def built_for(host: Probe) -> Answer:
    """The CUDA version and the local tag in torch/version.py, against each other and against the package's own version."""
    version, cuda = python_env.torch_version(host.read_text(VERSION_FILE))
    if version is None:
        return skip(NO_TORCH)
    package = distributions(host).get("torch")
    seen = (
        Evidence("built for CUDA", cuda or "none", f"read {VERSION_FILE}"),
        Evidence("torch", version, f"read {VERSION_FILE}"),
        Evidence("package", package or "none", f"glob {DIST_INFO}"),
    )
    if package and package.split("+")[0] != version.split("+")[0]:
        return fail(
            *seen, fix=REBUILD, reason="the files of two torches are mixed: package and version.py differ"
        )
    tag = version.partition("+")[2]
    if cuda and re.fullmatch(r"cu\d{2,3}|cpu", tag) and tag != f"cu{cuda.replace('.', '')}":
        return fail(
            *seen,
            fix=REBUILD,
            reason=f"the tag says {tag}, the build says CUDA {cuda}: files of two builds are mixed",
        )
    if stack_of(host).device == "cpu" or cuda:
        return ok(*seen)
    return fail(*seen, fix=REBUILD, reason=how_it_came(host, package or ""))


def how_it_came(host: Probe, package: str) -> str:
    """Where a CPU build comes from: an index of CPU builds leaves its tag in the package's version."""
    named = [f"{name} is set" for name in INDEXES if host.env(name)]
    where = f" ({', '.join(named)})" if named else ""
    if package.endswith("+cpu"):
        return (
            f"it came from an index of CPU builds{where}; a +cpu version satisfies every pin on the plain one"
        )
    return f"the index has no CUDA build for this platform, or it was built here{where}"


@check(
    "TORCH-003",
    layer=Layer.TORCH,
    title="torchvision and torchaudio are the ones the stack pins beside its torch",
    why="A mismatched torchvision fails at import with 'operator torchvision::nms does not exist', and vLLM imports it.",
    source=Source(
        "PyTorch: which versions go together", "https://github.com/pytorch/vision#installation", "2026-11-30"
    ),
    needs_target=True,
)
def pair(host: Probe) -> Answer:
    """Installed versions against the stack's pins."""
    if python_env.torch_version(host.read_text(VERSION_FILE))[0] is None:
        return skip(NO_TORCH)
    stack = stack_of(host)
    have = distributions(host)
    seen, wrong = [], []
    for name in ("torchvision", "torchaudio"):
        pin = stack.pin(name)
        if pin is None:
            continue
        seen += [
            Evidence(name, have.get(name), f"glob {DIST_INFO}"),
            need(f"{name} pinned", pin.version, stack),
        ]
        if have.get(name) is None or Version(have[name]).public != Version(pin.version.lstrip("=")).public:
            wrong.append(name)
    if not seen:
        return unknown("the stack pins neither")
    return fail(*seen, fix=REBUILD) if wrong else ok(*seen)


@check(
    "TORCH-004",
    layer=Layer.TORCH,
    title="torch loads in the target interpreter",
    why="Missing or foreign libraries show at import; it is asked in a child so that a crash takes nothing with it.",
    source=Source(
        "PyTorch: verification of an installation", "https://pytorch.org/get-started/locally/", "2026-11-30"
    ),
    cost=Cost.INSIDE,
    needs_target=True,
)
def loads(host: Probe) -> Answer:
    """``import torch`` in a child, whatever torch it is."""
    if python_env.torch_version(host.read_text(VERSION_FILE))[0] is None:
        return skip(NO_TORCH)
    facts = host.inside("torch_facts")
    if "error" in facts:
        error = str(facts["error"])
        why = (
            "a setting of the allocator that cannot be parsed does this too: see TORCH-012"
            if "SIGABRT" in error
            else ""
        )
        return fail(Evidence("error", error, FACTS), fix=REBUILD, reason=why)
    return ok(
        Evidence("torch", facts["version"], "inside torch_facts"),
        Evidence("import (s)", facts["import_s"], "inside torch_facts"),
    )


@check(
    "TORCH-005",
    layer=Layer.TORCH,
    title="torch sees as many GPUs as the machine has",
    why="torch.cuda.is_available() answers False without a reason; the cause is one layer further down.",
    source=Source("PyTorch: torch.cuda", "https://docs.pytorch.org/docs/stable/cuda.html", "2026-11-30"),
    cost=Cost.INSIDE,
    needs_target=True,
    requires=("TORCH-004",),
)
def sees_gpus(host: Probe) -> Answer:
    """The count of torch against the device nodes and, when it sees none, the one cause of it."""
    facts, nodes = host.inside("torch_facts"), host.glob("/dev/nvidia[0-9]*")
    seen = [
        Evidence("GPUs torch sees", facts["gpus"], FACTS),
        Evidence("is_available", facts["available"], FACTS),
        Evidence("device nodes", len(nodes), "glob /dev/nvidia[0-9]*"),
    ]
    if not nodes:
        if facts["gpus"] == 0:
            return skip(NO_GPU, *seen)
        return unknown("torch sees a GPU and /dev has none", *seen)
    if facts["available"] and facts["gpus"] and not facts["init_error"]:
        if facts["gpus"] < len(nodes) and host.env(VISIBLE) is None:
            return warn(
                *seen, fix=LOOK, reason=f"fewer than there are device nodes, and {VISIBLE} is not set"
            )
        return ok(*seen)
    if stack_of(host).device == "cpu":
        return skip("the stack computes on the CPU", *seen)
    why, fix = cause(host, facts)
    seen += [Evidence("cause", why, FACTS), Evidence("torch.cuda.init()", facts["init_error"], FACTS)]
    seen += [Evidence(name, value, FACTS) for name, value in answers(facts)]
    return fail(*seen, fix=fix)


@check(
    "TORCH-006",
    layer=Layer.TORCH,
    title="Matrix products agree with float64 in every type a model is served in",
    why="One real computation proves more than any version string, and a broken BLAS or card shows in the numbers.",
    source=Source(
        "Higham, Accuracy and Stability of Numerical Algorithms, ch. 3",
        "https://epubs.siam.org/doi/book/10.1137/1.9780898718027",
        "2026-11-30",
    ),
    cost=Cost.INSIDE,
    needs_target=True,
    requires=("TORCH-004",),
)
def right(host: Probe) -> Answer:
    """A 256 x 256 product per type on the device the stack uses."""
    device = stack_of(host).device
    if device == "cuda" and not has_nvidia_gpu(host):
        return skip(NO_GPU)
    facts = host.inside("torch_matmul", {"device": device})
    asked = f"inside torch_matmul device={device}"
    if "error" in facts:
        seen = [Evidence("error", str(facts["error"]), asked)]
        if device == "cuda":
            fix = Fix("See first why torch cannot use the GPU", ("runbook check TORCH-005 --cost inside",))
            return fail(
                *seen, fix=fix, reason="nothing was computed; where TORCH-005 fails too, it names the cause"
            )
        return fail(*seen, fix=REBUILD)
    figures = {name: facts["errors"][name] for name in TOLERANCE}
    limits = dict(TOLERANCE)
    if "convolution" in facts:
        figures["convolution"], limits["convolution"] = facts["convolution"], TOLERANCE["float32"]
    seen = [Evidence(f"{name} error", figure, asked) for name, figure in figures.items()]
    seen.append(Evidence("float32 products", facts.get("float32_precision", "not said"), asked))
    wrong = [name for name, most in limits.items() if not figures[name] <= most]
    if wrong:
        return fail(
            *seen,
            fix=Fix(
                f"{', '.join(wrong)} is wrong on this {device}: try another machine, then another build",
                risk=Risk.REBUILD,
            ),
        )
    return ok(*seen)


@check(
    "TORCH-007",
    layer=Layer.TORCH,
    title="torch starts no more threads than there are cores to use",
    why="In a container that hides its limit it starts one for each core of the machine, and they fight each other.",
    source=Source(
        "PyTorch: set_num_threads",
        "https://docs.pytorch.org/docs/stable/generated/torch.set_num_threads.html",
        "2026-11-30",
    ),
    cost=Cost.INSIDE,
    needs_target=True,
    requires=("TORCH-004",),
)
def threads(host: Probe) -> Answer:
    """torch.get_num_threads() against the cores the kernel lets this process use (nproc would obey OMP_NUM_THREADS too)."""
    usable = cores(host)
    have = host.inside("torch_facts")["threads"]
    seen = (
        Evidence("threads", have, FACTS),
        Evidence("usable cores", usable.allowed, usable.origin_allowed),
        Evidence(
            "CPU quota",
            usable.quota if usable.quota is not None else "none" if usable.quota_known else None,
            usable.origin_quota,
        ),
    )
    if usable.allowed is None:
        return unknown("the list of allowed cores could not be read", *seen)
    most = max(1, int(min(usable.allowed, usable.quota or usable.allowed)))
    if have > most:
        return warn(*seen, fix=Fix("Say how many", (f"export OMP_NUM_THREADS={most}",), Risk.NONE))
    return ok(*seen)


CHECKS = (pinned, built_for, pair, loads, sees_gpus, right, threads)
