"""From the words of a command to a memory plan: which checkpoint, which card, which vLLM. The files and tables are read here.

Neither a weight is read nor a GPU touched: headers, config.json, ``nvidia-smi`` and the stack's manifest are enough.
"""

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path

from runbook import catalogue, connect, hub, pins, tables
from runbook.checkpoint import headers
from runbook.checks import model_memory
from runbook.errors import BadParameter
from runbook.memory import devices, plan, stacked, subject
from runbook.memory.overhead import GIB, MIB
from runbook.memory.plan import CPU, CUDA, Device
from runbook.parse import nvidia, proc
from runbook.pins import Stack
from runbook.probe import Probe
from runbook.workspace import Workspace

MEMINFO = "/proc/meminfo"
RUNS = 20  # the latest walks that are looked at


@dataclass(frozen=True)
class On:
    """Where it would run, under which stack, and what was assumed about it."""

    stack: Stack
    device: Device
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Subject:
    """What would be served: under its name, whether it has a vision tower, and where its sizes come from."""

    name: str
    model: plan.Model
    vision: bool
    notes: tuple[str, ...] = ()


def device_of(work: Workspace, stack: str, gpu: str, memory_mib: int | None) -> On:
    """The device of a command: the card named, or the one in this machine; RAM on a stack without a GPU.

    Raises:
        BadParameter: no such stack or card, a card beside a CPU stack, or nothing to take its memory from.
    """
    host: Probe = connect.probe("live", "auto", "", work)
    elsewhere = bool(gpu) or memory_mib is not None
    named = pins.buildable(stack) if stack != "auto" else pins.stack(_default(host, elsewhere=elsewhere))
    if named.device == CPU:
        if gpu:
            raise BadParameter(
                f"--gpu {gpu} with the stack {named.name}", "a stack for GPUs", f"--stack {_mission()}"
            )
        total = memory_mib or proc.meminfo_mib(host.read_text(MEMINFO), "MemTotal")
        if not total:
            raise BadParameter(
                f"{MEMINFO} names no memory", "RAM of the machine", "give it: --gpu-memory-mib"
            )
        return On(named, Device(CPU, total * MIB, "RAM"))
    if gpu:
        return On(named, *devices.named(gpu, memory_mib))
    if memory_mib is not None:
        return On(named, *devices.sized(memory_mib, "", None))
    found = nvidia.gpus(host.run(nvidia.ARGV).out)
    total = min((one.total_mib for one in found if one.total_mib), default=None)
    if total is None:
        raise BadParameter(
            "no GPU answers here, and none was named",
            "--gpu NAME or --gpu-memory-mib N",
            'runbook plan-memory --model Qwen/Qwen3.5-4B --gpu "RTX 4090"',
        )
    return On(named, *devices.sized(total, found[0].name, tables.card(found[0].name)))


def _mission() -> str:
    return next(name for name in pins.names() if pins.stack(name).device == CUDA)


def _default(host: Probe, *, elsewhere: bool) -> str:
    """A card that is named asks for the mission's stack, whatever this machine is."""
    return _mission() if elsewhere else pins.stacks_for(host)[0]


def cache_of_environment(device: Device) -> int | None:
    """Bytes that VLLM_CPU_KVCACHE_SPACE (GiB) gives the cache on a CPU, as a vLLM started from here would read it.

    Raises:
        BadParameter: it is set to something that is no whole number of GiB.
    """
    named = os.environ.get(stacked.CPU_CACHE, "")
    if device.kind != CPU or not named:
        return None
    if not named.isascii() or not named.isdigit() or int(named) < 1:
        raise BadParameter(
            f"{stacked.CPU_CACHE}={named!r}", "whole GiB, 1 or more", f"unset {stacked.CPU_CACHE}"
        )
    return int(named) * GIB


def subject_of(work: Workspace, name: str, dtype: str) -> Subject:
    """The checkpoint of a name: a folder, one in the workspace, the catalogue's shapes, or headers read off the hub.

    Raises:
        BadParameter: the name leads nowhere, or what is there cannot be planned for.
        RunbookError: the hub cannot be reached, or refuses.
    """
    from runbook.actions.model_files import folder_of_name  # noqa: PLC0415 - actions import psutil

    folder = folder_of_name(work, name)
    if (folder / "config.json").is_file():
        return _of_folder(name, folder, dtype)
    known = catalogue.find(name)
    if known is not None:
        config = known.config
        if known.precision == "bf16":
            made = subject.of(config, None, dtype)
            return Subject(
                name,
                made,
                bool(config.get("vision_config")),
                ("sizes follow from the catalogue's shapes; its files are not here",),
            )
    if not catalogue.HUB_ID.fullmatch(name):
        raise BadParameter(
            f"model {name!r} is not in the workspace yet",
            "a folder or a hub id",
            "runbook run 07_model makes the generated ones",
        )
    skeleton = hub.examine(name, "", work.skeletons / name.replace("/", "--")).folder
    return _of_folder(name, skeleton, dtype)


def _of_folder(name: str, folder: Path, dtype: str) -> Subject:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as why:
        raise BadParameter(
            f"{folder / 'config.json'} cannot be read: {why}",
            "a JSON object",
            "runbook model says what is wrong with a checkpoint",
        ) from why
    if not isinstance(config, dict):
        raise BadParameter(
            f"{folder / 'config.json'} holds no object", "a config", "take the one the checkpoint came with"
        )
    held = headers.read(folder)
    rows = [(one.name, one.dtype, one.shape, one.bytes) for one in held.tensors.values()]
    notes = () if rows else ("no weight files are here; sizes follow from the config",)
    if held.faults:
        notes = (*notes, f"{held.faults[0].file} {held.faults[0].text}: sizes may be wrong")
    return Subject(name, subject.of(config, rows or None, dtype), bool(config.get("vision_config")), notes)


def calibration(work: Workspace, stack: str) -> tuple[str, ...]:
    """What the walks of this workspace found: how far the plans of this stack's starts were off (WARM-008), or nothing."""
    errors: list[float] = []
    for file in sorted(work.runs.glob("*/findings/08_warmup@*.json"))[-RUNS:]:
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            errors += [
                float(each["value"])
                for row in found
                if (row["id"], row["stack"]) == ("WARM-008", stack)
                for each in row["evidence"]
                if each["name"] == model_memory.ERROR
            ]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # a run that was cut, or one of an earlier runbook
    if not errors:
        return ()
    return (
        f"calibration: {len(errors)} starts of {stack} in this workspace, largest error {max(errors, key=abs):+.2f} %",
    )


def noted(made: plan.Plan, notes: tuple[str, ...]) -> plan.Plan:
    """The plan with more notes."""
    return dataclasses.replace(made, notes=(*made.notes, *notes))
