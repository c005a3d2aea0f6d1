"""What a start takes besides weights and cache: the peak of the profiling run, CUDA libraries, CUDA graphs.

vLLM measures these by running; here they are computed. The profiling run has two peaks, and the larger one counts. The
**sampler**, for as many rows as sequences may run: logits in the model's type, then as float32, probabilities and random
numbers, beside the buffer of its top-k kernel (a row of the vocabulary for each multiprocessor) and cuBLAS's workspace;
read in ``vllm/v1/sample`` of 0.19.1. The **forward pass** of ``max_num_batched_tokens``: bytes a token, linear in the
width and in the gated delta net's heads; coefficients fitted to real starts on an H200. ``tables/memory_runs.json``
holds each start with what it logged; ``benchmarks/plan_memory.py`` prints the error on each.
"""

from dataclasses import dataclass

from runbook.memory.geometry import BYTES, Geometry

MIB, GIB = 1 << 20, 1 << 30
CUBLAS_WORKSPACE = 32 * MIB
# Multiprocessors where the card is not known. The H200 of the fits has 132.
MULTIPROCESSORS = 132
# Logits as float32, probabilities, random numbers: 4 bytes each; the model's own type comes on top.
SAMPLER_BYTES = 12
# A drafting block adds draft logits and the rejection sampler's copies.
DRAFT_BYTES = 16
# Fitted (H200, 0.19.1, bfloat16): bytes a token of the forward pass = 18 x width + 2040 x value heads + 4700.
WIDTH_BYTES, HEAD_BYTES, TOKEN_BYTES = 18, 2040, 4700
# A dense layer's gate, up and product, in elements a unit of intermediate width; more than the delta net only in models without it.
MLP_ELEMENTS = 3
# With 2,048 tokens a step (vLLM's default below 70 GiB) one start held a further float32 copy of the logits and a second
# workspace, 0.27 GiB; why is not known. It is counted, since that errs on the safe side where memory is short.
SMALL_STEP, SMALL_STEP_BYTES = 2048, 4
# CUDA libraries and kernels loaded while profiling: 0.23 to 0.25 GiB in twenty starts.
NON_TORCH = int(0.24 * GIB)
# Before vLLM takes its first reading the CUDA context is there: it lies outside the requested share.
CONTEXT = int(0.51 * GIB)
# Graphs: GiB for each layer with all 102 captured (51 sizes, piecewise and full); 0.43 to 1.17 GiB seen.
GRAPH_PER_LAYER = int(0.0185 * GIB)
GRAPH_ESTIMATE_PER_LAYER = int(0.0165 * GIB)
ALL_CAPTURES = 102
LARGEST_CAPTURE = 512


@dataclass(frozen=True)
class Overhead:
    """Bytes on one GPU. ``graphs`` lie outside the requested share where the release does not count them."""

    sampler: int
    forward: int
    non_torch: int
    graphs: int
    graphs_counted: int

    @property
    def peak(self) -> int:
        """The larger of the two peaks of the profiling run."""
        return max(self.sampler, self.forward)

    @property
    def counted(self) -> int:
        """What vLLM takes off the requested memory."""
        return self.peak + self.non_torch + self.graphs_counted


@dataclass(frozen=True)
class Batch:
    """How much may run at once: sequences and tokens of one step; ``experts_per_token`` of a mixture of experts, else 0."""

    sequences: int
    tokens: int
    experts_per_token: int
    expert_width: int


def on_gpu(
    geometry: Geometry,
    batch: Batch,
    *,
    parallel: int,
    eager: bool,
    speculative: bool,
    graphs_counted: bool,
    multiprocessors: int | None,
) -> Overhead:
    """The overhead of one start on one GPU."""
    element = BYTES[geometry.dtype]
    rows = min(batch.sequences, batch.tokens)
    programs = multiprocessors or MULTIPROCESSORS
    buffer = min(1 << max(0, min(programs, rows) - 1).bit_length(), programs) * geometry.vocabulary * 4
    logits = rows * geometry.vocabulary * (element + SAMPLER_BYTES + (DRAFT_BYTES if speculative else 0))
    hidden = (batch.tokens + 2 * rows) * geometry.hidden * element
    experts = _experts(geometry, batch, parallel, element)
    sampler = logits + buffer + CUBLAS_WORKSPACE + hidden + experts
    if batch.tokens <= SMALL_STEP:
        sampler += rows * geometry.vocabulary * SMALL_STEP_BYTES + CUBLAS_WORKSPACE
    forward = batch.tokens * _per_token(geometry, parallel, element) + experts
    captures = 0 if eager else _captures(batch.sequences) / ALL_CAPTURES
    layers = geometry.full + geometry.linear
    return Overhead(
        sampler,
        forward,
        NON_TORCH,
        int(captures * layers * GRAPH_PER_LAYER),
        int(captures * layers * GRAPH_ESTIMATE_PER_LAYER) if graphs_counted else 0,
    )


def _per_token(geometry: Geometry, parallel: int, element: int) -> int:
    scale = element / 2
    mlp = MLP_ELEMENTS * element * geometry.intermediate // parallel + WIDTH_BYTES * geometry.hidden * scale
    if geometry.gdn is None:
        return int(mlp)
    heads = HEAD_BYTES * geometry.gdn.value_heads / parallel
    return int(max(mlp, (WIDTH_BYTES * geometry.hidden + heads + TOKEN_BYTES) * scale))


def _experts(geometry: Geometry, batch: Batch, parallel: int, element: int) -> int:
    """The workspace of the fused experts stays allocated: both projections and the product between them, for each token and expert."""
    inner = batch.expert_width // parallel
    return batch.tokens * batch.experts_per_token * (3 * inner + geometry.hidden) * element


def largest_capture(sequences: int) -> int:
    """The most sequences a graph is captured for, by vLLM's default: twice those that may run, 512 at most."""
    return min(2 * sequences, LARGEST_CAPTURE)


def _captures(sequences: int) -> int:
    """Graphs captured: piecewise up to ``largest_capture``, full ones up to the sequences themselves."""
    piecewise = _sizes(largest_capture(sequences))
    return piecewise + _sizes(min(sequences, LARGEST_CAPTURE))


def _sizes(largest: int) -> int:
    return sum(
        1 for size in (1, 2, 4, *range(8, 256, 8), *range(256, LARGEST_CAPTURE + 1, 16)) if size <= largest
    )
