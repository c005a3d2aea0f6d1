"""FLASH: which attention kernels vLLM brings itself, whether a separate flash-attn is in the way, and correct attention."""

from runbook.checks.readings import DIST_INFO, GPU_QUESTION, NO_GPU, distributions, gpus, stack_of
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
from runbook.pins import has_nvidia_gpu
from runbook.probe import Probe

BUNDLED = "{site}/vllm/vllm_flash_attn/*.so"
TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2}


@check(
    "FLASH-001",
    layer=Layer.FLASH,
    title="vLLM brings the attention kernels this stack uses",
    why="The articles' hour-long flash-attn build is not needed: a GPU wheel of vLLM carries its own copy.",
    source=Source(
        "vLLM: bundled flash attention (vllm_flash_attn)",
        "https://github.com/vllm-project/flash-attention",
        "2026-11-30",
    ),
    needs_target=True,
)
def bundled(host: Probe) -> Answer:
    """Extension files under vllm/vllm_flash_attn; a CPU build has none and uses its own CPU attention."""
    stack = stack_of(host)
    found = [path.rsplit("/", 1)[1] for path in host.glob(BUNDLED)]
    seen = (
        Evidence("bundled files", " ".join(found) or "none", f"glob {BUNDLED}"),
        Evidence("stack computes on", stack.device, f"stacks/{stack.name}/manifest.toml"),
    )
    if stack.flash_attn == "bundled" and not found:
        return fail(
            *seen,
            fix=Fix(
                "Install the GPU wheel of vLLM, not the CPU build", ("runbook run 03_python",), Risk.REBUILD
            ),
        )
    return ok(*seen)


@check(
    "FLASH-002",
    layer=Layer.FLASH,
    title="No separate flash-attn is installed beside vLLM's own",
    why="A package built against another torch breaks imports that try it, and serving never uses it.",
    source=Source(
        "flash-attention issue 1644: undefined symbol after a torch upgrade",
        "https://github.com/Dao-AILab/flash-attention/issues/1644",
        "2026-11-30",
    ),
    needs_target=True,
)
def no_stray(host: Probe) -> Answer:
    """Distributions named flash-attn*."""
    if not distributions(host):
        return unknown("no package at all was found in the target, so nothing can be said of one")
    found = {name: version for name, version in distributions(host).items() if name.startswith("flash-attn")}
    seen = Evidence(
        "flash-attn packages",
        ", ".join(f"{name} {version}" for name, version in sorted(found.items())) or "none",
        f"glob {DIST_INFO}",
    )
    if found:
        return warn(
            seen,
            fix=Fix(
                "Remove it from the serving environment",
                (f"uv pip uninstall --python {{python}} {' '.join(sorted(found))}",),
                Risk.REBUILD,
                undo="uv pip install it again",
            ),
        )
    return ok(seen)


@check(
    "FLASH-003",
    layer=Layer.FLASH,
    title="Attention agrees with float64, with a batch of one and a sequence of one too",
    why="Wrong attention serves fluent nonsense: no error, no log line.",
    source=Source(
        "PyTorch: scaled_dot_product_attention, with its reference formula",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
        "2026-11-30",
    ),
    cost=Cost.INSIDE,
    needs_target=True,
    requires=("TORCH-004",),
)
def right(host: Probe) -> Answer:
    """Causal attention of several shapes on the stack's device."""
    device = stack_of(host).device
    if device == "cuda" and not has_nvidia_gpu(host):
        return skip(NO_GPU)
    origin = f"inside attention device={device}"
    facts = host.inside("attention", {"device": device})
    if "error" in facts:
        return fail(
            Evidence("error", str(facts["error"]), origin),
            fix=Fix("Look at page 04 first", ("runbook check TORCH",), Risk.NONE),
        )
    seen = [Evidence("shapes (batch x length)", " ".join(facts["shapes"]), origin)]
    seen += [Evidence(f"{name} error", facts["errors"][name], origin) for name in TOLERANCE]
    wrong = [name for name, most in TOLERANCE.items() if not facts["errors"][name] <= most]
    return (
        fail(*seen, fix=Fix("Do not serve from this machine; try another torch build", risk=Risk.REBUILD))
        if wrong
        else ok(*seen)
    )


@check(
    "FLASH-004",
    layer=Layer.FLASH,
    title="The card's generation has a flash-attention of its own in the wheel",
    why="Version 3 is for 9.0 only; 8.x runs version 2; other cards compile version 2's PTX at first use.",
    source=Source(
        "measured: code in vLLM 0.19.1's files, read with cuobjdump", "docs/measurements.md", "2026-11-30"
    ),
    requires=("DRIVER-002",),
)
def generation(host: Probe) -> Answer:
    """Compute capability to flash-attention version, as the files of the 0.19.1 wheel allow."""
    if stack_of(host).device != "cuda":
        return skip("the stack computes on the CPU")
    caps = sorted({one.compute_cap for one in gpus(host) if one.compute_cap})
    if not caps:
        return unknown(NO_GPU)
    by_cap = {cap: _version_for(cap) for cap in caps}
    seen = [Evidence(f"compute capability {cap}", version, GPU_QUESTION) for cap, version in by_cap.items()]
    if all(version in ("FA2", "FA3") for version in by_cap.values()):
        return ok(*seen)
    return warn(*seen, reason="its first use compiles PTX, or another attention backend is taken")


def _version_for(cap: str) -> str:
    major = int(cap.split(".", maxsplit=1)[0])
    ampere, hopper = 8, 9
    if major < ampere:
        return "none: another backend"
    return "FA3" if major == hopper else "FA2" if major == ampere else "FA2 from PTX"


CHECKS = (bundled, no_stray, right, generation)
