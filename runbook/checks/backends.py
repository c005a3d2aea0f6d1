"""VLLM: which attention and gated-delta-net kernels this card gets, what compiles them, in which dtype it computes."""

from collections.abc import Callable

from runbook import launch, tables
from runbook.checks.readings import GPU_QUESTION, NO_CARD, NO_GPU, distributions, gpus, need, stack_of
from runbook.model import Answer, Evidence, Fix, Layer, Risk, Source, check, fail, ok, skip, unknown, warn
from runbook.parse import attention, numbers, python_env
from runbook.parse.attention import Choice, Model
from runbook.pins import Stack, has_nvidia_gpu
from runbook.probe import Probe

CONFIG = "{model}/config.json"
VERSION_PY = "{site}/torch/version.py"
ABSENT = Fix("Install the GPU wheel of vLLM whole: a faster backend is not there (FLASH-001, VLLM-008)", ("runbook env build",), Risk.REBUILD)  # fmt: skip
CAPABILITY = "the compute capability of the GPU"
HALF = ("half", "float16")
# Every Qwen3.5 has attention heads of 256 and linear layers with keys of 128, in bfloat16 (its config.json).
QWEN, QWEN_HEAD, QWEN_KEY = "Qwen/Qwen3.5", 256, 128
NO_CONFIG = "config.json of the checkpoint could not be read"
MODULES = {
    "vllm/vllm_flash_attn": "{site}/vllm/vllm_flash_attn/*.so",
    "flashinfer": "{site}/flashinfer/__init__.py",
}
WHICH = ["which", "gcc", "clang", "g++", "c++", "ninja", "nvcc"]
NINJA = "{prefix}/bin/ninja"
CUDA_DEFAULT = "/usr/local/cuda/bin/nvcc"
LAUNCH = "runbook/launch.py"
ATTENTION = Source(
    "vLLM 0.19.1: CudaPlatformBase.get_valid_backends, and each backend's conditions",
    "https://github.com/vllm-project/vllm/blob/v0.19.1/vllm/platforms/cuda.py",
    "2026-11-30",
)


def planned(stack: Stack, flag: str, default: str) -> str:
    """The value of a flag of the planned command."""
    return next((one.value for one in launch.flags(stack) if one.flag == flag), default)


def model(host: Probe, stack: Stack) -> tuple[Model | None, bool, Evidence]:
    """What of the checkpoint decides, whether it has gated delta net layers, and where that was read.

    Without a checkpoint on this machine, what every Qwen3.5 is known to be is taken, and said; of another model nothing
    is known then.
    """
    kv = planned(stack, "--kv-cache-dtype", "auto")
    found = attention.model_of(host.read_text(CONFIG), kv)
    if found is None and not stack.model.startswith(QWEN):
        origin = f"read {CONFIG}"
        return None, "qwen3.5" in stack.model, Evidence("the model", f"{stack.model}: not here yet", origin)
    made, linear = found or (Model(QWEN_HEAD, "bfloat16", kv), True)
    dtype = planned(stack, "--dtype", "auto")
    if dtype != "auto":
        made = Model(made.head_size, "float16" if dtype in HALF else dtype, kv)
    said = f"head size {made.head_size}, {made.dtype}, KV cache {made.kv}"
    origin = f"read {CONFIG}" if found else f"known of {stack.model}; {CONFIG} is not there"
    return made, linear, Evidence("the model", said, origin)


def capabilities(host: Probe) -> list[str]:
    """Compute capabilities of the GPUs, lowest first, each once."""
    return sorted({one.compute_cap for one in gpus(host) if one.compute_cap}, key=attention.split)


def no_card(host: Probe) -> str:
    """Why there is no card to choose for; "" where nvidia-smi lists one."""
    if not has_nvidia_gpu(host):
        return NO_GPU
    return "" if gpus(host) else NO_CARD


def present(host: Probe) -> Callable[[str], bool]:
    """Whether a module that a backend imports is in the target."""
    return lambda module: bool(host.glob(MODULES[module]))


@check(
    "VLLM-010",
    layer=Layer.VLLM,
    title="vLLM's attention for this card comes compiled with it",
    why="A backend that is compiled on this machine costs minutes at the first start, or fails there without its tools.",
    source=ATTENTION,
    needs_target=True,
    requires=("VLLM-001",),
)
def backend(host: Probe) -> Answer:
    """The first backend of the release's list that takes this capability, head size, dtype and KV cache."""
    stack = stack_of(host)
    version = distributions(host).get(stack.distribution, "")
    made, _, about = model(host, stack)
    if stack.device == "cpu":
        return _on_cpu(version, made, about)
    if nothing := no_card(host):
        return skip(nothing)
    if made is None:
        return unknown(NO_CONFIG, about)
    caps = capabilities(host)
    choices = {cap: attention.choose(version, cap, made, present(host)) for cap in caps}
    if not caps or None in choices.values():
        what = f"how vLLM {version or '(not found)'} chooses" if caps else CAPABILITY
        return unknown(f"{what} is not on record", about)
    seen = [about, *_ignored(host, version)]
    named = planned(stack, "--attention-backend", "")
    if named:
        return _named(host, named, version, made, caps, seen)
    for cap, one in choices.items():
        if one:
            seen.append(Evidence(f"backend on {cap}", one.backend or "none", GPU_QUESTION))
            seen.append(Evidence(f"because ({cap})", one.because, one.source))
    return _by_choice([one for one in choices.values() if one], seen)


def _on_cpu(version: str, made: Model | None, about: Evidence) -> Answer:
    row = next(iter(tables.attention(version, "cpu")), None)
    if row is None:
        return unknown(f"how vLLM {version or '(not found)'} chooses is not on record", about)
    seen = (about, Evidence("backend", row["name"], row["source"][0]), Evidence("because", row["because"], row["source"][0]))  # fmt: skip
    if made is None or made.head_size in row["head_sizes"]:
        return ok(*seen)
    sizes = ", ".join(str(one) for one in row["head_sizes"])
    fix = Fix(f"Serve a model whose attention heads have one of the sizes {sizes}")
    return fail(*seen, fix=fix, reason="its kernels are not made for this head size")


def _ignored(host: Probe, version: str) -> list[Evidence]:
    """Variables that older releases read and this one does not."""
    rows = tables.attention(version, "env")
    values = {row["name"]: host.env(row["name"]) for row in rows}
    said = "which nothing reads any more; use"
    return [
        Evidence(row["name"], f"{values[row['name']]}, {said} {row['flag']}", f"env {row['name']}")
        for row in rows
        if values[row["name"]]
    ]


def _named(
    host: Probe, named: str, version: str, made: Model, caps: list[str], seen: list[Evidence]
) -> Answer:
    for cap in caps:
        why = attention.against(version, named.upper(), cap, made, present(host))
        seen.append(Evidence(f"{named} on {cap}", why or "taken", GPU_QUESTION))
        if why:
            fix = Fix("Leave --attention-backend out, or name one that takes this card and model")
            return fail(
                *seen, fix=fix, reason=f"vLLM ends with: Selected backend {named} is not valid ({why})"
            )
    return ok(*seen)


def _by_choice(choices: list[Choice], seen: list[Evidence]) -> Answer:
    if any(not one.backend for one in choices):
        fix = Fix("Serve this model from another card; the reasons name what each backend wants")
        return fail(*seen, fix=fix, reason="vLLM ends with: No valid attention backend found")
    compiled = sorted({one.backend for one in choices if one.compiles == "flashinfer"})
    if compiled:
        fix = Fix("Have nvcc and ninja on PATH before the first start (VLLM-013), or take Triton's", ("--attention-backend TRITON_ATTN",), Risk.NONE)  # fmt: skip
        return warn(
            *seen, fix=fix, reason=f"{compiled[0]} is compiled on this machine, with nvcc, when first used"
        )
    if any(one.compiles for one in choices):
        gone = any("is not installed" in one.because for one in choices)
        fix = ABSENT if gone else Fix("Nothing is broken; another card or head size has a faster backend")
        return warn(
            *seen, fix=fix, reason="this is the backend that is left when no other fits, compiled by Triton"
        )
    if any(one.name.startswith("VLLM_") for one in seen):
        return warn(*seen, reason="a variable is set that this release does not read")
    return ok(*seen)


@check(
    "VLLM-012",
    layer=Layer.VLLM,
    title="The gated-delta-net kernels of the plan need no compiling with nvcc",
    why="Three of four layers of Qwen3.5 are of this kind; FlashInfer's prefill for them took 335 s to compile on an H200.",
    source=Source(
        "vLLM 0.19.1: ChunkGatedDeltaRule",
        "https://github.com/vllm-project/vllm/blob/v0.19.1/vllm/model_executor/layers/mamba/gdn_linear_attn.py",
        "2026-11-30",
    ),
    needs_target=True,
    requires=("VLLM-001",),
)
def delta_net(host: Probe) -> Answer:
    """--gdn-prefill-backend and the capability, by the release's own condition."""
    stack = stack_of(host)
    version = distributions(host).get(stack.distribution, "")
    _, linear, about = model(host, stack)
    if not linear:
        return skip("the model has no gated delta net layers", about)
    if stack.device == "cpu":
        return _delta_net_on_cpu(version, about)
    nothing = no_card(host)
    return skip(nothing) if nothing else _delta_net(host, stack, version, about)


def _delta_net(host: Probe, stack: Stack, version: str, about: Evidence) -> Answer:
    asked = planned(stack, "--gdn-prefill-backend", "auto")
    cuda = python_env.torch_version(host.read_text(VERSION_PY))[1] or ""
    major = numbers.whole(cuda.partition(".")[0]) or 0
    caps = capabilities(host)
    rules = {cap: attention.gdn(version, cap, asked, QWEN_KEY, major) for cap in caps}
    taken = [rule for rule in rules.values() if rule]
    if not caps or len(taken) < len(caps):
        what = f"which kernels vLLM {version or '(not found)'} takes" if caps else CAPABILITY
        return unknown(f"{what} is not on record", about)
    seen = [about, need("--gdn-prefill-backend", asked, stack)]
    for cap, rule in zip(caps, taken, strict=True):
        seen.append(Evidence(f"prefill on {cap}", rule.backend, GPU_QUESTION))
        seen.append(Evidence(f"because ({cap})", rule.because, rule.source))
    if asked not in ("auto", *(rule.backend for rule in taken)):
        fix = Fix("Leave the flag out; vLLM only warns and takes another", risk=Risk.NONE)
        return warn(*seen, fix=fix, reason=f"{asked} is asked for and not to be had on this card")
    if any(rule.compiles == "flashinfer" for rule in taken):
        fix = Fix("Plan Triton's kernels: first start on an H200 226 s instead of 512", ("--gdn-prefill-backend triton",), Risk.NONE)  # fmt: skip
        return warn(*seen, fix=fix, reason="compiled with nvcc at the first start, in minutes of silence")
    return ok(*seen)


def _delta_net_on_cpu(version: str, about: Evidence) -> Answer:
    row = next(iter(tables.attention(version, "cpu")), None)
    if row is None:
        return unknown(f"which kernels vLLM {version or '(not found)'} takes is not on record", about)
    seen = (about, Evidence("gated delta net", row["gdn"], row["source"][0]))
    fix = Fix("Take the stack vllm-0.32.0-cpu for a Qwen3.5", risk=Risk.REBUILD)
    return fail(*seen, fix=fix) if row["gdn"].startswith("none") else ok(*seen)


@check(
    "VLLM-013",
    layer=Layer.VLLM,
    title="The compilers that the planned command wants at run time are found",
    why="Kernels are compiled while the server starts; a tool that is not on PATH ends it with 'No such file ... ninja'.",
    source=Source(
        "vLLM issue 49029: ninja of an environment that is not activated is not found",
        "https://github.com/vllm-project/vllm/issues/49029",
        "2026-11-30",
    ),
    needs_target=True,
)
def tools(host: Probe) -> Answer:
    """What compiles at run time by plan and card, and its tools: on PATH, by CC, CXX and CUDA_HOME, as each looks for them."""
    stack = stack_of(host)
    wanted = _compilers(host, stack)
    if not wanted:
        return skip("nothing is compiled at run time by this plan")
    ran = host.run(WHICH)
    if ran.missing and "flashinfer" not in wanted:
        return unknown("there is no program 'which' to look tools up with")
    paths = {line.rpartition("/")[2]: line for line in ran.out.splitlines() if line.startswith("/")}
    seen, lacking = [], []
    for compiler in wanted:
        row = tables.jit_tools(compiler) or {"needs": [], "why": ""}
        for group in row["needs"]:
            found, origin = _look(host, group, paths)
            seen.append(Evidence(f"{compiler}: {' or '.join(group)}", found or "not found", origin))
            lacking += [] if found else [group[0]]
    if not lacking:
        return ok(*seen)
    own = host.glob(NINJA) if "ninja" in lacking else ()
    seen += [Evidence("ninja in the environment", own[0], f"glob {NINJA}")] if own else []
    commands = tuple(_remedy(name, bool(own)) for name in lacking)
    fix = Fix("Make them findable before the server starts", commands, Risk.NONE)
    if own and lacking == ["ninja"]:
        mine = "the runbook's own server has the environment's bin folder on its PATH; a start by hand needs it too"
        return warn(*seen, fix=fix, reason=mine)
    return fail(*seen, fix=fix, reason=f"not found: {', '.join(lacking)}")


def _compilers(host: Probe, stack: Stack) -> list[str]:
    if stack.device == "cpu":
        eager = any(one.flag == "--enforce-eager" for one in launch.flags(stack))
        return [] if eager else ["inductor-cpu"]
    version = distributions(host).get(stack.distribution, "")
    made, linear, _ = model(host, stack)
    asked = planned(stack, "--gdn-prefill-backend", "auto")
    found = {"triton"}
    for cap in capabilities(host):
        one = attention.choose(version, cap, made, present(host)) if made else None
        rule = attention.gdn(version, cap, asked) if linear else None
        found |= {each.compiles for each in (one, rule) if each and each.compiles}
    return sorted(found)


def _look(host: Probe, group: list[str], paths: dict[str, str]) -> tuple[str | None, str]:
    """The tool as its user looks for it, and the question."""
    origin = "run " + " ".join(WHICH)
    variable = {"gcc": "CC", "c++": "CXX", "g++": "CXX"}.get(group[0])
    named = host.env(variable) if variable else None
    if named:
        return f"{named} ({variable})", f"env {variable}"
    if group[0] == "nvcc":
        for name in ("CUDA_HOME", "CUDA_PATH"):
            folder = host.env(name)
            if folder:
                path = f"{folder}/bin/nvcc"
                return next(iter(host.glob(path)), None), f"glob {path}"
    found = next((paths[name] for name in group if name in paths), None)
    if found is None and group[0] == "nvcc":
        return next(iter(host.glob(CUDA_DEFAULT)), None), f"glob {CUDA_DEFAULT}"
    return found, origin


def _remedy(name: str, in_environment: bool) -> str:  # noqa: FBT001 - a private function of one caller
    if name == "ninja":
        return (
            "export PATH={prefix}/bin:$PATH" if in_environment else "uv pip install --python {python} ninja"
        )
    if name == "nvcc":
        return "export CUDA_HOME=/usr/local/cuda   # where a toolkit of torch's CUDA version lies"
    return "sudo apt-get install gcc g++"


@check(
    "VLLM-014",
    layer=Layer.VLLM,
    title="The card computes in the model's dtype",
    why="Cards before 8.0 have no bfloat16: asked for by name it ends the start, else vLLM takes float16 and says so once.",
    source=Source(
        "vLLM 0.19.1: CudaPlatformBase.check_if_supports_dtype, ModelConfig._resolve_auto_dtype",
        "https://github.com/vllm-project/vllm/blob/v0.19.1/vllm/platforms/cuda.py",
        "2026-11-30",
    ),
    requires=("DRIVER-002",),
)
def dtype(host: Probe) -> Answer:
    """The checkpoint's dtype and --dtype against the capability."""
    stack = stack_of(host)
    if stack.device != "cuda":
        return skip("the stack computes on the CPU")
    caps = capabilities(host)
    if not caps:
        return unknown("nvidia-smi printed no compute capability (drivers before 510 do not)")
    made, _, about = model(host, stack)
    if made is None:
        return unknown(NO_CONFIG, about)
    asked = planned(stack, "--dtype", "auto")
    seen = (
        about,
        Evidence("compute capability", " ".join(caps), GPU_QUESTION),
        need("--dtype", asked, stack),
    )
    if attention.dtype_on(caps[0], made.dtype) == made.dtype:
        return ok(*seen)
    if asked == "auto":
        return warn(
            *seen,
            reason=f"vLLM takes float16 in place of {made.dtype} on {caps[0]}; log-probabilities differ",
        )
    fix = Fix("Ask for float16, which this card has", ("--dtype half",), Risk.NONE)
    return fail(*seen, fix=fix, reason="vLLM ends with: Bfloat16 is only supported on GPUs with compute capability of at least 8.0")  # fmt: skip


CHECKS = (backend, delta_net, tools, dtype)
