"""A memory plan: what one start would take, what is left for the cache, which limit binds, what a change would bring."""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from runbook.errors import BadParameter
from runbook.memory import cache, overhead, weights
from runbook.memory.cache import Choice, Cut, Rules
from runbook.memory.geometry import Geometry
from runbook.memory.overhead import CONTEXT, GIB, Batch, Overhead
from runbook.memory.weights import Resident, Sized

CUDA, CPU = "cuda", "cpu"
# From this much on, vLLM's defaults are the larger ones (``vllm/engine/arg_utils.py``), but for an A100.
LARGE_CARD, LARGEST_CARD = 70 * GIB, 160 * GIB
# A CPU worker's own memory where the cache is a share of RAM: imports, threads, one pass. Two starts of 0.32.0: table memory_runs.
CPU_WORKER = int(0.9 * GIB)
# What changes are tried with: the highest share that leaves room for graphs, the fewest sequences worth naming.
HIGH_SHARE, FEW = 0.95, 32
WEIGHTS, ACTIVATIONS, LENGTH, KV, STATE, SEQUENCES = (
    "weights", "activations", "max_model_len", "kv_cache", "gdn_state", "max_num_seqs",
)  # fmt: skip


@dataclass(frozen=True)
class Device:
    """What the model is to run on. ``memory`` is bytes that cudaMemGetInfo calls total, or RAM of the node on a CPU."""

    kind: str
    memory: int
    name: str = ""
    multiprocessors: int | None = None


@dataclass(frozen=True)
class Model:
    """What is to be served: geometry, tensors as they will lie in memory, and whether the head is the embedding."""

    geometry: Geometry
    tensors: Sequence[Sized]
    tied: bool
    experts_per_token: int = 0
    expert_width: int = 0


@dataclass(frozen=True)
class Ask:
    """The command line's part. None is vLLM's default, which may depend on the card."""

    release: str
    utilization: float = 0.9
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    text_only: bool = True
    eager: bool = False
    cache_bytes: int | None = None
    choice: Choice = field(default_factory=Choice)


@dataclass(frozen=True)
class Plan:
    """The answer, in bytes and counts for one GPU. ``available`` is what the cache may take; ``kv_tokens`` what the log will say.

    ``capacity`` is the tokens of context that really fit at full length: concurrency times the longest length. ``binding``
    is the first limit met; ``why`` says it in a sentence. ``notes`` are what was assumed or never measured.
    """

    ask: Ask
    device: Device
    rule: Rules
    cut: Cut
    resident: Resident
    overhead: Overhead | None
    requested: int
    available: int
    blocks: int
    kv_tokens: int
    capacity: int
    concurrency: float
    longest: int
    most_sequences: int
    binding: str
    why: str
    notes: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether at least one sequence of the asked length fits: else vLLM refuses to start."""
        return self.binding not in (WEIGHTS, ACTIVATIONS, LENGTH)

    @property
    def max_model_len(self) -> int:
        """The longest length, as asked or as vLLM takes it from the config."""
        return self.ask.max_model_len or 0

    def longest_of(self, sequences: int) -> int:
        """How long each of so many sequences may be when all run at once; 0 when not even their states fit."""
        found = self.cut.longest(self.blocks // sequences)
        return min(found, self.longest)

    @property
    def state_bytes(self) -> int:
        """Bytes of the pool that the recurrent state of as many sequences as run at full length takes."""
        return (
            int(min(self.concurrency, self.ask.max_num_seqs or self.concurrency))
            * self.cut.states
            * self.cut.pool
        )


def make(model: Model, device: Device, ask: Ask) -> Plan:
    """Compute a plan.

    Raises:
        BadParameter: a release, type, share or division that cannot be; says which.
    """
    rule = cache.rules(ask.release)
    ask, notes = _complete(model, device, ask, rule)
    parallel = ask.choice.tensor_parallel
    if refused := weights.cannot_divide(model.geometry, parallel, vision=not ask.text_only):
        raise BadParameter(
            f"--tensor-parallel-size {parallel}: {refused[0]}",
            "a number that divides the heads",
            f"take one of {', '.join(str(each) for each in divisors(model.geometry, vision=not ask.text_only))}",
        )
    speculative = ask.choice.speculative_tokens > 0
    resident = weights.resident(
        model.tensors,
        model.geometry,
        tied=model.tied,
        parallel=parallel,
        vision=not ask.text_only,
        mtp=speculative,
    )
    cut = cache.cut(model.geometry, rule, device.kind, ask.choice)
    extra = None
    if device.kind == CUDA:
        extra = overhead.on_gpu(
            model.geometry,
            Batch(
                ask.max_num_seqs or 1,
                ask.max_num_batched_tokens or 1,
                model.experts_per_token,
                model.expert_width,
            ),
            parallel=parallel,
            eager=ask.eager,
            speculative=speculative,
            graphs_counted=rule.graphs_counted,
            multiprocessors=device.multiprocessors,
        )
    requested = math.ceil(device.memory * ask.utilization)
    available = _available(rule, device, ask, resident, extra, requested)
    blocks = max(0, available // cut.pool)
    return _judged(model, device, ask, rule, cut, resident, extra, requested, available, blocks, notes)


def divisors(geometry: Geometry, *, vision: bool, most: int = 16) -> list[int]:
    """Tensor-parallel sizes that divide the model, as powers of two up to ``most``."""
    return [
        size
        for size in (1, 2, 4, 8, 16)
        if size <= most and not weights.cannot_divide(geometry, size, vision=vision)
    ]


def _complete(model: Model, device: Device, ask: Ask, rule: Rules) -> tuple[Ask, tuple[str, ...]]:
    """The ask with vLLM's defaults in place, and what has to be said about it."""
    if not 0 < ask.utilization <= 1:
        raise BadParameter(
            f"--gpu-memory-utilization {ask.utilization}",
            "a share above 0 and at most 1",
            "0.9 is vLLM's default",
        )
    positions = model.geometry.positions
    length = ask.max_model_len or positions
    if length < 1 or (positions and length > positions):
        raise BadParameter(
            f"--max-model-len {length}",
            f"1 to {positions}, the positions of the config",
            "longer contexts need YaRN through --hf-overrides, see docs/memory.md",
        )
    named = device.name.lower()
    large = device.kind == CUDA and device.memory >= LARGE_CARD and "a100" not in named
    sequences, tokens = (1024, 8192) if large else (256, 2048)
    if device.kind == CUDA and device.memory >= LARGEST_CARD:
        tokens = rule.tokens_from_160_gib
    if device.kind == CPU:
        sequences, tokens = 128 * ask.choice.tensor_parallel, 2048 * ask.choice.tensor_parallel
    chosen = ask.max_num_seqs or sequences
    batched = ask.max_num_batched_tokens or min(chosen * length, tokens)
    if ask.max_num_seqs is None:
        chosen = min(chosen, batched)
    notes = []
    if not ask.text_only:
        notes.append(
            "pictures: the tower's weights are counted, its activations and the encoder cache were never measured here"
        )
    if ask.choice.tensor_parallel > 1:
        notes.append(
            "tensor parallel: sizes follow vLLM's division; buffers of NCCL and custom all-reduce are not counted"
        )
    if device.kind == CUDA and ask.release != "0.19.1":
        notes.append(f"overhead was calibrated on vLLM 0.19.1 and an H200, not on {ask.release}")
    if device.kind == CUDA and model.geometry.gdn is None:
        notes.append("the forward pass of a model without gated delta net layers was not calibrated on a GPU")
    completed = dataclasses.replace(
        ask, max_model_len=length, max_num_seqs=chosen, max_num_batched_tokens=batched
    )
    return completed, tuple(notes)


def _available(
    rule: Rules, device: Device, ask: Ask, resident: Resident, extra: Overhead | None, requested: int
) -> int:
    if ask.cache_bytes is not None:
        return ask.cache_bytes
    if device.kind == CPU:
        return device.memory // 2 if rule.half_of_ram else requested - CPU_WORKER - resident.total
    return requested - resident.total - (extra.counted if extra else 0)


def _judged(
    model: Model,
    device: Device,
    ask: Ask,
    rule: Rules,
    cut: Cut,
    resident: Resident,
    extra: Overhead | None,
    requested: int,
    available: int,
    blocks: int,
    notes: tuple[str, ...],
) -> Plan:
    length, sequences = ask.max_model_len or 1, ask.max_num_seqs or 1
    each = cut.blocks_for(length)
    concurrency = blocks / each
    longest = min(cut.longest(blocks), model.geometry.positions or cut.longest(blocks))
    # A running sequence holds its state and at least one block of attention.
    most = blocks // (cut.states + cut.attention_groups)
    if available <= 0:
        heavy = device.kind == CUDA and resident.total < requested
        binding, why = (ACTIVATIONS, "weights fit, but with the activations of the profiling run nothing is left for the cache") if heavy else (WEIGHTS, "the weights alone take more than the requested share")  # fmt: skip
    elif blocks < each:
        binding, why = (
            LENGTH,
            f"one sequence of {length:,} tokens takes {each:,} blocks, and there are {blocks:,}",
        )
    elif concurrency >= sequences:
        binding, why = (
            SEQUENCES,
            f"the cache would hold {concurrency:,.1f} sequences of {length:,} tokens, max_num_seqs lets {sequences:,} run",
        )
    elif cut.states > each - cut.states:
        binding, why = STATE, f"of the {each:,} blocks a sequence takes, {cut.states} are its recurrent state"
    else:
        binding, why = (
            KV,
            f"the cache holds {concurrency:,.2f} sequences of {length:,} tokens, max_num_seqs would let {sequences:,} run",
        )
    return Plan(
        ask, device, rule, cut, resident, extra, requested, available, blocks,
        cache.logged_tokens(rule, cut, blocks, length), int(concurrency * length), concurrency, longest, most, binding, why, notes,
    )  # fmt: skip


@dataclass(frozen=True)
class Change:
    """What one change of the command would bring. ``cost`` says what it takes in return."""

    what: str
    plan: Plan
    cost: str


def _chosen(ask: Ask, *, kv_dtype: str | None = None, tensor_parallel: int | None = None) -> Ask:
    choice = ask.choice
    return dataclasses.replace(
        ask,
        choice=dataclasses.replace(
            choice,
            kv_dtype=kv_dtype or choice.kv_dtype,
            tensor_parallel=tensor_parallel or choice.tensor_parallel,
        ),
    )


def changes(model: Model, device: Device, plan: Plan) -> list[Change]:
    """Each single change that vLLM offers, computed anew; those that bring no more, or still do not fit, are left out."""
    found = [
        Change(what, make(model, device, other), cost)
        for what, cost, other in _candidates(model, device, plan)
    ]
    return [one for one in found if one.plan.fits and one.plan.concurrency > plan.concurrency]


def _candidates(model: Model, device: Device, plan: Plan) -> Iterator[tuple[str, str, Ask]]:
    """(flag, what it takes in return, the ask with it)."""
    ask, sequences = plan.ask, plan.ask.max_num_seqs or 0
    if plan.longest and plan.longest < plan.max_model_len:
        yield (
            f"--max-model-len {plan.longest}",
            "longer is refused",
            dataclasses.replace(ask, max_model_len=plan.longest),
        )
    if not ask.text_only:
        yield "--language-model-only", "no pictures", dataclasses.replace(ask, text_only=True)
    if device.kind != CUDA:
        return
    if ask.choice.kv_dtype == "auto":
        yield "--kv-cache-dtype fp8", "8-bit keys and values", _chosen(ask, kv_dtype="fp8")
    if ask.utilization < HIGH_SHARE and ask.cache_bytes is None:
        yield (
            f"--gpu-memory-utilization {HIGH_SHARE}",
            "less is left for others",
            dataclasses.replace(ask, utilization=HIGH_SHARE),
        )
    fewer = max(FEW, 1 << max(0, math.ceil(plan.concurrency) - 1).bit_length())
    if plan.concurrency < fewer < sequences:
        yield f"--max-num-seqs {fewer}", "never more at once", dataclasses.replace(ask, max_num_seqs=fewer)
    wider = [
        size
        for size in divisors(model.geometry, vision=not ask.text_only)
        if size > ask.choice.tensor_parallel
    ]
    # The first that starts at all; where it does already, the next one up.
    for size in wider:
        other = _chosen(ask, tensor_parallel=size)
        if make(model, device, other).fits:
            yield f"--tensor-parallel-size {size}", f"{size} GPUs", other
            return


@dataclass(frozen=True)
class Placement:
    """One way to use several GPUs: ``replicas`` servers of ``parallel`` GPUs each; concurrency over all of them."""

    parallel: int
    replicas: int
    plan: Plan

    @property
    def concurrency(self) -> float:
        """Sequences of full length over all replicas, at most max_num_seqs each."""
        return self.replicas * min(self.plan.concurrency, self.plan.ask.max_num_seqs or math.inf)


def placements(model: Model, device: Device, ask: Ask, gpus: int) -> list[Placement]:
    """Every division of ``gpus`` equal cards into replicas, the one with most sequences of full length first; those that do not fit last."""
    sizes: Iterable[int] = (
        size for size in divisors(model.geometry, vision=not ask.text_only, most=gpus) if gpus % size == 0
    )
    made = [
        Placement(
            size,
            gpus // size,
            make(model, device, _chosen(ask, tensor_parallel=size)),
        )
        for size in sizes
    ]
    return sorted(made, key=lambda one: (not one.plan.fits, -one.concurrency))


# The CUDA context and the graphs lie outside the requested share: with a share of 1 there is no room for them.
def outside(plan: Plan) -> int:
    """Bytes that a start takes outside the requested share of the card."""
    if plan.overhead is None:
        return 0
    return CONTEXT + plan.overhead.graphs - plan.overhead.graphs_counted
