"""TORCH: the allocator's settings, and whether it gives memory back."""

from runbook import launch
from runbook.checks.readings import NO_GPU, stack_of
from runbook.model import Answer, Cost, Evidence, Fix, Layer, Risk, Source, check, fail, ok, skip, unknown
from runbook.pins import has_nvidia_gpu
from runbook.probe import Probe

# PYTORCH_ALLOC_CONF is the newer name; torch reads both.
NAMES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
SLEEP = "--enable-sleep-mode"
SPREADS = "expandable_segments:True"
MIB = 1 << 20
# What a context of its own takes after the first allocation may stay; a lost block would be 256 MiB.
LOST_MIB = 128
PAGE = "https://docs.pytorch.org/docs/stable/notes/cuda.html"


def _device(host: Probe) -> str:
    return "cuda" if stack_of(host).device == "cuda" and has_nvidia_gpu(host) else "cpu"


@check(
    "TORCH-012",
    layer=Layer.TORCH,
    title="torch's allocator takes the settings it is given",
    why="A word it cannot parse ends import torch in a crash, an unknown option the first allocation, minutes into a start.",
    source=Source("PyTorch: CUDA semantics, optimizing memory usage", PAGE, "2026-11-30"),
    cost=Cost.INSIDE,
    needs_target=True,
)
def settings(host: Probe) -> Answer:
    """The variables, judged by the parser of the torch that is installed, and against the planned command."""
    given = {name: value for name in NAMES if (value := host.env(name)) is not None}
    origin = f"inside torch_allocator device={_device(host)}"
    seen = [Evidence(name, given.get(name, "not set"), f"env {name}") for name in NAMES]
    if not given:
        return ok(*seen)
    facts = host.inside("torch_allocator", {"device": _device(host)})
    refused = facts.get("refused")
    if "error" in facts or not isinstance(refused, dict):
        return unknown(f"the child could not ask the parser: {facts.get('error', 'no answer')}", *seen)
    wrong = [(name, str(refused[name])) for name in given if refused.get(name)]
    if wrong:
        name, why = wrong[0]
        return fail(
            *seen, Evidence("the parser says", why, origin), fix=Fix(f"Correct {name}, or clear it", (f"unset {name}",), Risk.RESTART)
        )  # fmt: skip
    planned = {one.flag for one in launch.flags(stack_of(host))}
    if SLEEP in planned and any(SPREADS in value.replace(" ", "") for value in given.values()):
        return fail(
            *seen,
            Evidence("planned", SLEEP, "stacks/*/manifest.toml"),
            fix=Fix("Leave one of the two away", tuple(f"unset {name}" for name in given), Risk.RESTART),
            reason="vLLM's sleep mode keeps its memory in a pool of its own and refuses expandable segments",
        )
    if any(name not in refused for name in given):
        return unknown("the child did not see the variable", *seen)
    return ok(*seen)


@check(
    "TORCH-013",
    layer=Layer.TORCH,
    title="torch allocates on the GPU and gives the memory back",
    why="A card that is full, or held by a dead process, fails here in a second instead of after the weights are loaded.",
    source=Source("PyTorch: CUDA semantics, memory management", PAGE, "2026-11-30"),
    cost=Cost.INSIDE,
    needs_target=True,
    requires=("TORCH-005",),
)
def gives_back(host: Probe) -> Answer:
    """256 MiB allocated, freed, and the cache emptied, in a child with the settings of TORCH-012."""
    if _device(host) == "cpu":
        return skip("the stack computes on the CPU" if stack_of(host).device == "cpu" else NO_GPU)
    origin = "inside torch_allocator device=cuda"
    facts = host.inside("torch_allocator", {"device": "cuda"})
    if error := facts.get("memory_error") or facts.get("error"):
        held = Fix("See who holds the card's memory", ("nvidia-smi", "runbook check DRIVER-005"))
        return fail(Evidence("error", str(error), origin), fix=held)
    memory = facts.get("memory")
    keys = ("asked", "allocated", "reserved", "left", "lost")
    if not isinstance(memory, dict) or not all(isinstance(memory.get(key), int) for key in keys):
        return unknown("the child named no figures")
    mib = {key: memory[key] // MIB for key in keys}
    seen = (
        Evidence("allocated (MiB)", mib["allocated"], origin),
        Evidence("reserved then (MiB)", mib["reserved"], origin),
        Evidence("reserved after emptying (MiB)", mib["left"], origin),
        Evidence("not free again (MiB)", mib["lost"], origin),
    )
    if memory["allocated"] < memory["asked"]:
        return unknown("less was allocated than asked for: another allocator is at work", *seen)
    if memory["left"] or mib["lost"] > LOST_MIB:
        clear = Fix(
            "Clear the allocator's settings, then try another driver",
            tuple(f"unset {name}" for name in NAMES),
            Risk.RESTART,
        )
        return fail(*seen, fix=clear, reason="the allocator keeps what was given back")
    return ok(*seen)


CHECKS = (settings, gives_back)
