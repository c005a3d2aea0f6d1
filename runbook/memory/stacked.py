"""The plan of a server as a stack would start it: flags left out by a command are those of the stack's manifest."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from runbook import launch
from runbook.launch import Flag
from runbook.memory import plan, subject
from runbook.memory.cache import Choice
from runbook.memory.overhead import GIB
from runbook.memory.plan import CPU, Ask, Device, Plan
from runbook.pins import Stack

CPU_CACHE = "VLLM_CPU_KVCACHE_SPACE"
DEFAULT_SHARE = 0.9


def ask_of(
    stack: Stack,
    choice: Choice,
    *,
    positions: int,
    own_server: bool,
    text_only: bool,
    eager: bool = False,
    utilization: float | None = None,
    max_model_len: int | None = None,
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    cache_bytes: int | None = None,
    flags: Sequence[Flag] | None = None,
) -> Ask:
    """What would be asked of vLLM: the words given, else what the stack starts its server with, else vLLM's default.

    A length of the stack is cut to ``positions``, the longest the checkpoint can do. The stack's cache size in RAM holds
    for its own server only: not where a share or another machine's memory is named. ``flags`` stand for the stack's own
    where it is another command that is planned.
    """
    planned = _values(stack, flags)
    if cache_bytes is None and stack.device == CPU and own_server and utilization is None:
        space = next((one.value for one in launch.variables(stack) if one.name == CPU_CACHE), None)
        cache_bytes = int(space) * GIB if space else None
    if max_model_len is None and "--max-model-len" in planned:
        max_model_len = min(int(planned["--max-model-len"]), positions or int(planned["--max-model-len"]))
    if max_num_seqs is None and "--max-num-seqs" in planned:
        max_num_seqs = int(planned["--max-num-seqs"])
    if max_num_batched_tokens is None and "--max-num-batched-tokens" in planned:
        max_num_batched_tokens = int(planned["--max-num-batched-tokens"])
    if utilization is None:
        utilization = float(planned.get("--gpu-memory-utilization", DEFAULT_SHARE))
    return Ask(
        stack.vllm,
        utilization,
        max_model_len,
        max_num_seqs,
        max_num_batched_tokens,
        text_only,
        eager or "--enforce-eager" in planned,
        cache_bytes,
        choice,
    )


def of_stack(
    stack: Stack,
    config: Mapping[str, Any],
    tensors: Iterable[tuple[str, str, tuple[int, ...], int]] | None,
    device: Device,
    flags: Sequence[Flag] | None = None,
) -> tuple[plan.Model, Plan]:
    """The model and the plan of the server that the stack would start with a checkpoint on a device, or with other ``flags``.

    Raises:
        BadParameter: the checkpoint cannot be planned for.
    """
    made = subject.of(config, tensors)
    planned = _values(stack, flags)
    none = '"image":0' in planned.get("--limit-mm-per-prompt", "").replace(" ", "")
    text_only = none or "--language-model-only" in planned or not config.get("vision_config")
    ask = ask_of(
        stack,
        _choice(planned),
        positions=made.geometry.positions,
        own_server=True,
        text_only=text_only,
        flags=flags,
    )
    return made, plan.make(made, device, ask)


def _values(stack: Stack, flags: Sequence[Flag] | None) -> dict[str, str]:
    return {one.flag: one.value for one in (launch.flags(stack) if flags is None else flags)}


def _choice(planned: Mapping[str, str]) -> Choice:
    """What the flags say about how the cache is cut."""
    guess = planned.get("--speculative-config", "")
    block = planned.get("--block-size")
    caching = {"--enable-prefix-caching": True, "--no-enable-prefix-caching": False}
    return Choice(
        int(planned.get("--tensor-parallel-size", 1)),
        planned.get("--kv-cache-dtype", "auto"),
        planned.get("--mamba-ssm-cache-dtype", "auto"),
        int(block) if block else None,
        next((on for flag, on in caching.items() if flag in planned), None),
        int(json.loads(guess).get("num_speculative_tokens", 0)) if guess else 0,
    )
