"""FLASH: which attention kernels vLLM brings itself, and whether attention is right. ``flash_stray`` is about others."""

from runbook import tables
from runbook.checks.readings import (
    BINARIES,
    DIST_INFO,
    GPU_QUESTION,
    NO_GPU,
    NO_VLLM,
    binaries,
    distributions,
    gpus,
    stack_of,
)
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
from runbook.parse import attention
from runbook.parse.attention import Flash
from runbook.parse.binaries import Binary
from runbook.pins import has_nvidia_gpu
from runbook.probe import Probe

QWEN_HEAD = 256  # size of an attention head in every Qwen3.5 (facts of the checkpoints' config.json)
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
    seen: tuple[Evidence, ...] = (
        Evidence("bundled files", " ".join(found) or "none", f"glob {BUNDLED}"),
        Evidence("stack computes on", stack.device, f"stacks/{stack.name}/manifest.toml"),
    )
    code = {one.file.rsplit("/", 1)[1]: one for one in binaries(host) or () if "vllm_flash_attn/" in one.file}
    seen += tuple(Evidence(name, _code(code[name]), BINARIES) for name in found if name in code)
    if stack.flash_attn == "bundled" and not found and stack.distribution not in distributions(host):
        fix = Fix("Build the target from its lock", ("runbook env build",), Risk.REBUILD)
        return fail(*seen, fix=fix, reason=NO_VLLM)
    if stack.flash_attn == "bundled" and not found:
        return fail(
            *seen,
            fix=Fix("Install the GPU wheel of vLLM, not the CPU build", ("runbook env build",), Risk.REBUILD),
        )
    return ok(*seen)


@check(
    "FLASH-002",
    layer=Layer.FLASH,
    title="No separate flash-attn is installed beside vLLM's own",
    why="Serving on CUDA computes nothing with it, but each rotary layer imports it: one that does not load ends the start.",
    source=Source(
        "flash-attention issue 1644: undefined symbol after a torch upgrade",
        "https://github.com/Dao-AILab/flash-attention/issues/1644",
        "2026-11-30",
    ),
    needs_target=True,
)
def no_stray(host: Probe) -> Answer:
    """Distributions named flash-attn*; FLASH-005 says what vLLM does with one."""
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
    title="The flash attention that vLLM picks for this card has machine code for it",
    why="Version 3 is for 9.x; 8.x runs version 2; later cards make theirs of version 2's PTX at first use.",
    source=Source(
        "vLLM 0.19.1: get_flash_attn_version",
        "https://github.com/vllm-project/vllm/blob/v0.19.1/vllm/v1/attention/backends/fa_utils.py",
        "2026-11-30",
    ),
    requires=("DRIVER-002",),
    needs_target=True,
)
def generation(host: Probe) -> Answer:
    """The version by capability and head size, as vLLM chooses it, and what its file holds for the card."""
    stack = stack_of(host)
    if stack.device != "cuda":
        return skip("the stack computes on the CPU")
    version = distributions(host).get(stack.distribution, "")
    if not version:
        return skip(NO_VLLM)
    caps = sorted({one.compute_cap for one in gpus(host) if one.compute_cap}, key=attention.split)
    picked = {cap: attention.flash_version(version, cap, QWEN_HEAD) for cap in caps}
    if not caps or None in picked.values():
        if caps:
            return unknown(f"which flash attention vLLM {version} picks is not on record")
        return unknown("no compute capability was read; nvidia-smi before 510 prints none")
    files = binaries(host)
    seen: list[Evidence] = []
    states = {cap: _state(one, cap, version, files) for cap, one in picked.items() if one}
    for cap, one in picked.items():
        if one:
            seen.append(Evidence(f"flash attention on {cap}", _told(one, states[cap]), GPU_QUESTION))
            seen.append(Evidence(f"because ({cap})", _why(one, states[cap], version), one.source))
    seen.append(Evidence("libraries read", None if files is None else len(files), BINARIES))
    return _judged(set(states.values()), seen)


def _judged(states: set[str | None], seen: list[Evidence]) -> Answer:
    if None in states:
        return unknown("the file of that version could not be read", *seen)
    if tables.NONE in states:
        fix = Fix("Install the GPU wheel of vLLM again", ("runbook env build",), Risk.REBUILD)
        return fail(
            *seen, fix=fix, reason="the file it would use is not there, or holds nothing for the card"
        )
    if states <= {tables.NATIVE}:
        return ok(*seen)
    return warn(*seen, reason="its first use compiles PTX, or another backend is taken (VLLM-010 says which)")


def _state(picked: Flash, cap: str, version: str, files: tuple[Binary, ...] | None) -> str | None:
    """How the file of a version serves a card; "" where vLLM takes none there; None when it could not be read."""
    if not attention.takes_flash(version, cap):
        return ""
    if files is None:
        return None
    one = next((one for one in files if one.file == picked.file), None)
    if one is not None and one.problem:
        return None
    return tables.coverage(list(one.sass), list(one.ptx), cap) if one else tables.NONE


def _told(picked: Flash, state: str | None) -> str:
    if state == "":
        return "none: another backend"
    said = {tables.NATIVE: "machine code", tables.JIT: "from PTX", tables.NONE: "no code for it", None: "not read"}  # fmt: skip
    return f"FA{picked.version} ({said[state]})"


def _why(picked: Flash, state: str | None, version: str) -> str:
    row = next((one for one in tables.attention(version, "backend") if one["name"] == "FLASH_ATTN"), {})
    return f"it needs {row.get('cc_from')}" if state == "" else picked.because


def _code(one: Binary) -> str:
    """What a file holds, in a few words."""
    return " ".join((*one.sass, *one.ptx)) or one.problem or "no machine code"


CHECKS = (bundled, no_stray, right, generation)
