"""The real starts that the planner is held against: ``tables/memory_runs.json``, each planned anew from its own flags."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runbook import tables
from runbook.memory import plan, subject
from runbook.memory.cache import Choice
from runbook.memory.overhead import GIB
from runbook.memory.plan import CPU, CUDA, Ask, Device, Plan

# The machines of the rows. RAM of the one without a GPU: MemTotal of its one node.
CPU_BYTES = 24683656 << 10


@dataclass(frozen=True)
class Run:
    """One start: the row as kept, and what the planner says of it now."""

    row: Mapping[str, Any]
    plan: Plan

    @property
    def error(self) -> float:
        """Of the logged tokens, as a share: above 0 the plan promised too much."""
        logged = int(self.row["kv_tokens"])
        return (self.plan.kv_tokens - logged) / logged


def rows() -> tuple[Mapping[str, Any], ...]:
    """Every start on record."""
    return tables.rows("memory_runs")


def planned(row: Mapping[str, Any], config: Mapping[str, Any]) -> Run:
    """The plan for a row; ``config`` is that of its model as published or generated.

    Raises:
        BadParameter: the row cannot be planned for.
    """
    flags, text = row["flags"], {**config.get("text_config", {}), **row.get("config", {})}
    whole = {**config, "text_config": text} if "text_config" in config else dict(config)
    made = subject.of(whole, None, flags.get("dtype", "auto"))
    on_gpu = row["machine"] == "H200"
    device = (
        Device(CUDA, tables.visible_memory("h200-sxm") or 0, "NVIDIA H200", 132)
        if on_gpu
        else Device(CPU, CPU_BYTES, "RAM")
    )
    ask = Ask(
        row["vllm"],
        utilization=flags.get("utilization", 0.9),
        max_model_len=flags["max_model_len"],
        max_num_seqs=flags.get("max_num_seqs"),
        max_num_batched_tokens=flags.get("max_num_batched_tokens"),
        eager=flags.get("eager", not on_gpu),
        cache_bytes=flags["cache_gib"] * GIB if "cache_gib" in flags else None,
        choice=Choice(
            flags.get("tensor_parallel", 1),
            flags.get("kv_dtype", "auto"),
            prefix_caching=flags.get("prefix_caching"),
            speculative_tokens=flags.get("speculative_tokens", 0),
        ),
    )
    return Run(row, plan.make(made, device, ask))
