"""TORCH: which torch is installed, whether it loads, sees what the machine has, and computes right."""

from packaging.version import Version

from runbook.checks.readings import DIST_INFO, NO_GPU, distributions, need, stack_of
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
from runbook.parse.numbers import whole
from runbook.pins import has_nvidia_gpu
from runbook.probe import Probe

VERSION_FILE = "{site}/torch/version.py"
NO_TORCH = "torch is not installed in the target"
REBUILD = Fix("Build the target again from its lock", ("runbook run 03_python",), Risk.REBUILD)
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
    """The CUDA version and the local tag in torch/version.py."""
    version, cuda = python_env.torch_version(host.read_text(VERSION_FILE))
    if version is None:
        return skip(NO_TORCH)
    seen = (
        Evidence("built for CUDA", cuda or "none", f"read {VERSION_FILE}"),
        Evidence("torch", version, f"read {VERSION_FILE}"),
    )
    if stack_of(host).device == "cpu":
        return ok(*seen)
    return ok(*seen) if cuda else fail(*seen, fix=REBUILD)


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
        return fail(Evidence("error", str(facts["error"]), "inside torch_facts"), fix=REBUILD)
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
    """device_count and, when it is 0, what torch.cuda.init() says."""
    facts = host.inside("torch_facts")
    seen = [
        Evidence("GPUs torch sees", facts["gpus"], "inside torch_facts"),
        Evidence("is_available", facts["available"], "inside torch_facts"),
    ]
    if not has_nvidia_gpu(host):
        return (
            skip(NO_GPU, *seen)
            if facts["gpus"] == 0
            else unknown("torch sees a GPU and /dev has none", *seen)
        )
    if facts["available"] and facts["gpus"]:
        return ok(*seen)
    seen.append(Evidence("torch.cuda.init()", facts["init_error"], "inside torch_facts"))
    if stack_of(host).device == "cpu":
        return skip("the stack computes on the CPU", *seen)
    return fail(
        *seen,
        fix=Fix(
            "Read page 02: driver, CUDA_VISIBLE_DEVICES, libraries", ("runbook check DRIVER CUDA",), Risk.NONE
        ),
    )


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
    if "error" in facts:
        return fail(
            Evidence("error", str(facts["error"]), f"inside torch_matmul device={device}"), fix=REBUILD
        )
    seen = [
        Evidence(f"{name} error", facts["errors"][name], f"inside torch_matmul device={device}")
        for name in TOLERANCE
    ]
    wrong = [name for name, most in TOLERANCE.items() if not facts["errors"][name] <= most]
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
    """torch.get_num_threads() against nproc."""
    cores = whole(host.run(["nproc"]).out)
    have = host.inside("torch_facts")["threads"]
    seen = (Evidence("threads", have, "inside torch_facts"), Evidence("usable cores", cores, "run nproc"))
    if cores is None:
        return unknown("nproc gave no number", *seen)
    if have > cores:
        return warn(*seen, fix=Fix("Say how many", (f"export OMP_NUM_THREADS={cores}",), Risk.NONE))
    return ok(*seen)


CHECKS = (pinned, built_for, pair, loads, sees_gpus, right, threads)
