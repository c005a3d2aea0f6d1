"""MODEL, WARM: whether the model fits the card, and whether the engine's cache is as large as was planned."""

from collections.abc import Mapping

from runbook import tables
from runbook.checks import readings
from runbook.checks.launch import running
from runbook.checks.model_readings import CONFIG, EXAMINE, config_json, examined
from runbook.checks.warm import BOOT, LOG, boot
from runbook.errors import BadParameter
from runbook.launch import Flag
from runbook.memory import devices, overhead, plan, stacked
from runbook.memory.overhead import GIB, MIB
from runbook.memory.plan import CPU, CUDA, Device, Model, Plan
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
from runbook.parse import nvidia, proc, vllm_log
from runbook.probe import Probe
from runbook.probes import questions

SMI = questions.run(nvidia.ARGV)
MEMINFO = "/proc/meminfo"
# What the planner is held to (docs/memory.md).
NEAR = 0.02
ERROR = "error (%)"  # the evidence that `plan-memory` reads again as calibration


@check(
    "MODEL-010",
    layer=Layer.MODEL,
    title="The model fits, with room for at least one sequence of the planned length",
    why="vLLM finds out after the weights are loaded, minutes in: 'No available memory for the cache blocks'.",
    source=Source(
        "vLLM: conserving memory",
        "https://docs.vllm.ai/en/stable/configuration/conserving_memory/",
        "2026-11-30",
    ),
    requires=("MODEL-001",),
)
def fits(host: Probe) -> Answer:
    """Weights by their headers, cache and activations by vLLM's own rules, against the card (or the RAM) of this machine."""
    made = planned(host)
    if isinstance(made, Answer):
        return made
    model, device, one = made
    seen = (
        Evidence(
            "memory (GiB)", round(device.memory / GIB, 2), SMI if device.kind == CUDA else f"read {MEMINFO}"
        ),
        Evidence("weights (GiB)", round(one.resident.total / GIB, 2), EXAMINE),
        Evidence("cache (GiB)", round(max(0, one.available) / GIB, 2), f"read {CONFIG}"),
        Evidence("KV tokens to be logged", one.kv_tokens, f"read {CONFIG}"),
        Evidence("sequences of full length", round(one.concurrency, 2), f"read {CONFIG}"),
        Evidence("binding", one.binding, f"read {CONFIG}"),
    )
    if not one.fits:
        others = plan.changes(model, device, one)
        text = (
            f"Start it with {others[0].what} ({others[0].cost})"
            if others
            else "Take a smaller or quantised model, or a larger card"
        )
        return fail(
            *seen,
            fix=Fix(
                text,
                (f"runbook plan-memory --model {{model}} --stack {readings.stack_of(host).name}",),
                Risk.RESTART,
            ),
            reason=one.why,
        )
    largest = overhead.largest_capture(one.ask.max_num_seqs or 1)
    if device.kind == CUDA and model.geometry.hybrid and not one.ask.eager and one.blocks < largest:
        return warn(
            *seen,
            fix=Fix(
                f"Add --max-cudagraph-capture-size {1 << max(0, one.blocks.bit_length() - 1)}",
                risk=Risk.RESTART,
            ),
            reason=f"graphs are captured up to {largest} sequences, and the state cache has {one.blocks} blocks (pitfall P13)",
        )
    return ok(*seen)


@check(
    "WARM-008",
    layer=Layer.WARM,
    title="The engine's KV cache is as large as the plan said",
    why="A plan that errs would promise a context length or a concurrency that the server then refuses; the error kept here is its calibration.",
    source=Source("measured: 33 starts on an H200 and both CPU stacks", "docs/memory.md", "2026-11-30"),
    cost=Cost.LIVE,
    needs_target=True,
    requires=("WARM-001",),
)
def as_planned(host: Probe) -> Answer:
    """'KV cache size' of the server's log against the plan of the same checkpoint, card and flags."""
    flags = running(host)
    # Of the command that runs, which may be another profile's; the stack's own where no record names one.
    made = planned(host, None if isinstance(flags, Answer) else flags)
    if isinstance(made, Answer):
        return made
    log = vllm_log.kv_cache(host.read_text(LOG) or "")
    if not log.tokens:
        return unknown("the log names no KV cache size", Evidence("log", "no such line", f"read {LOG}"))
    one = made[2]
    error = (one.kv_tokens - log.tokens) / log.tokens
    seen = (
        Evidence("tokens planned", one.kv_tokens, f"read {CONFIG}"),
        Evidence("tokens logged", log.tokens, f"read {LOG}"),
        Evidence(ERROR, round(100 * error, 2), f"read {LOG}"),
        Evidence("concurrency planned", round(one.concurrency, 2), f"read {CONFIG}"),
        Evidence("concurrency logged", log.concurrency, f"read {LOG}"),
        Evidence("tokens of context that fit", one.capacity, f"read {CONFIG}"),
    )
    stack = readings.stack_of(host).name
    if (started := (boot(host) or {}).get("stack")) not in (None, stack):
        return skip(f"the server was started from {started}", Evidence("stack", str(started), f"read {BOOT}"))
    if abs(error) <= NEAR:
        return ok(*seen)
    return warn(
        *seen,
        reason="the plan errs by more than 2 %: other processes on the card, or a case that was never measured",
    )


def planned(host: Probe, flags: Mapping[str, str] | None = None) -> tuple[Model, Device, Plan] | Answer:
    """The plan of the server that the machine's stack would start with its checkpoint, or the answer that says why not.

    ``flags``: those of another command than the stack's own, by their full names.
    """
    stack = readings.stack_of(host)
    config = config_json(host)
    if config is None:
        return unknown("config.json could not be read")
    device = device_of(host, stack.device)
    if isinstance(device, Answer):
        return device
    found = examined(host)
    if isinstance(found, Answer):
        return found
    given = None if flags is None else [Flag(name, value, "") for name, value in flags.items()]
    try:
        model, made = stacked.of_stack(stack, config, found.tensors or None, device, given)
    except BadParameter as why:
        return unknown(why.seen)
    return model, device, made


def device_of(host: Probe, kind: str) -> Device | Answer:
    """The least card of a machine, or its RAM; the answer that says why there is none to plan for."""
    if kind == CPU:
        total = proc.meminfo_mib(host.read_text(MEMINFO), "MemTotal")
        return Device(CPU, total * MIB, "RAM") if total else unknown(f"{MEMINFO} names no memory")
    cards = [one for one in readings.gpus(host) if one.total_mib]
    if not cards:
        return skip("no GPU answers, so there is nothing to fit", Evidence("GPUs", 0, SMI))
    least = min(cards, key=lambda one: one.total_mib or 0)
    return devices.sized(least.total_mib or 0, least.name, tables.card(least.name))[0]
