"""How vLLM cuts its cache memory: block size, page, groups, blocks for a sequence. Nothing here depends on the card.

A block is ``block_size`` tokens of one full-attention layer, or the recurrent state of one sequence in one gated delta
net layer; both take one page of the same bytes, so the state is padded up to the attention page. Layers are grouped so
that each group has as many as the rarer kind; a block of the pool holds one page for each layer of a group. Rules:
``vllm/v1/core/kv_cache_utils.py`` and the hybrid block size in ``vllm/model_executor/models/config.py`` (0.19.1) or
``vllm/platforms/interface.py`` (0.32.0), read in the wheels of the releases that ``tables/vllm_memory.json`` lists.
"""

import math
from dataclasses import dataclass

from runbook import tables
from runbook.errors import BadParameter
from runbook.memory.geometry import BYTES, Geometry

# Above this ratio of layer counts the groups are as large as the rarer kind, below it as the commoner one.
NEAR = 1.5
STATE_TYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Rules:
    """What one release does.

    ``tokens``: how it computes the token count it logs, from ``groups`` or from ``concurrency``. ``block``: the smallest
    block by device, in tokens, which is also the step in which a hybrid model's block is raised; with
    ``step_follows_block`` a given ``--block-size`` is the step instead. ``half_of_ram``: a CPU worker without a size for its
    cache takes half of the RAM, whatever ``--gpu-memory-utilization`` says; else that share, less what it holds itself.
    """

    release: str
    tokens: str
    hybrid_prefix_caching: bool
    graphs_counted: bool
    block: dict[str, int]
    step_follows_block: bool
    tokens_from_160_gib: int
    half_of_ram: bool


def rules(release: str) -> Rules:
    """The rules of a release.

    Raises:
        BadParameter: that release was not read; another may count otherwise, so none is taken in its place.
    """
    known = {row["release"]: row for row in tables.rows("vllm_memory")}
    if release not in known:
        raise BadParameter(
            f"the memory rules of vLLM {release} are not known here",
            f"one of {', '.join(known)}",
            "name a stack with one of these releases: --stack",
        )
    row = known[release]
    return Rules(
        release,
        row["tokens"],
        row["hybrid_prefix_caching"],
        row["graphs_counted"],
        row["block"],
        row["step_follows_block"],
        row["tokens_from_160_gib"],
        row["cpu_cache"] == "half of RAM",
    )


@dataclass(frozen=True)
class Cut:
    """One GPU's share of the cache.

    ``page`` is bytes of one block of one layer; ``pool`` bytes of one block of the pool, a page for each layer of the
    largest group; ``states`` blocks that a sequence takes for its recurrent state whatever its length; ``padding`` the
    share of a state's page that is wasted.
    """

    block_size: int
    page: int
    pool: int
    attention_groups: int
    state_groups: int
    states: int
    padding: float

    @property
    def groups(self) -> int:
        """Groups of layers, each with a block table of its own."""
        return self.attention_groups + self.state_groups

    def blocks_for(self, length: int) -> int:
        """Blocks of the pool that one sequence of ``length`` tokens takes."""
        return self.attention_groups * math.ceil(length / self.block_size) + self.states

    def longest(self, blocks: int) -> int:
        """Tokens of the longest single sequence that ``blocks`` hold; 0 when not even its state fits."""
        return max(0, (blocks - self.states) // self.attention_groups) * self.block_size


@dataclass(frozen=True)
class Choice:
    """What the command line says about the cache; None is vLLM's default."""

    tensor_parallel: int = 1
    kv_dtype: str = "auto"
    ssm_dtype: str = "auto"
    block_size: int | None = None
    prefix_caching: bool | None = None
    speculative_tokens: int = 0


def kv_element(geometry: Geometry, named: str) -> int:
    """Bytes of one cached key or value element.

    Raises:
        BadParameter: ``--kv-cache-dtype`` is none that the planner knows.
    """
    word = geometry.dtype if named == "auto" else named
    if word not in BYTES:
        raise BadParameter(
            f"--kv-cache-dtype {named}", f"auto, {', '.join(BYTES)}", "leave it out for the model's own type"
        )
    return BYTES[word]


def cut(geometry: Geometry, rule: Rules, device: str, choice: Choice) -> Cut:
    """Pages and groups of one GPU (or of the one CPU worker).

    Raises:
        BadParameter: a type that is not known.
    """
    parallel = choice.tensor_parallel
    element = kv_element(geometry, choice.kv_dtype)
    per_token = 2 * max(1, geometry.kv_heads // parallel) * geometry.head_dim * element
    smallest = rule.block[device]
    block = choice.block_size or smallest
    full = geometry.full + (geometry.mtp if choice.speculative_tokens else 0)
    if geometry.gdn is None:
        return Cut(block, block * per_token, block * per_token * full, 1, 0, 0, 0.0)
    state = state_bytes(geometry, choice)
    step = max(smallest, block) if rule.step_follows_block else smallest
    block = max(block, step * math.ceil(state / (step * per_token)))
    page = block * per_token
    largest, rarest = max(full, geometry.linear), min(full, geometry.linear)
    size = largest if largest < rarest * NEAR else rarest
    attention, recurrent = math.ceil(full / size), math.ceil(geometry.linear / size)
    caching = rule.hybrid_prefix_caching if choice.prefix_caching is None else choice.prefix_caching
    # With prefix caching (mode "align") a sequence keeps the state it runs with and the one before the last block.
    each = (2 if caching else 1) + choice.speculative_tokens
    return Cut(block, page, page * size, attention, recurrent, recurrent * each, (page - state) / page)


def state_bytes(geometry: Geometry, choice: Choice) -> int:
    """Bytes of the recurrent state of one sequence in one gated delta net layer: convolution window and matrix.

    The matrix has the type that the config names in ``mamba_ssm_dtype`` (float32 in every published checkpoint); a
    config without it gets the model's own type, and half the state.

    Raises:
        ValueError: the model has no such layers.
        BadParameter: a type that vLLM does not keep a state in.
    """
    if geometry.gdn is None:
        raise ValueError("no gated delta net layers")
    gdn, parallel = geometry.gdn, choice.tensor_parallel
    matrix = (geometry.ssm_dtype or geometry.dtype) if choice.ssm_dtype == "auto" else choice.ssm_dtype
    if matrix not in STATE_TYPES:
        raise BadParameter(
            f"--mamba-ssm-cache-dtype {matrix}", f"auto, {', '.join(STATE_TYPES)}", "leave it out"
        )
    window = gdn.channels // parallel * (gdn.kernel - 1 + choice.speculative_tokens)
    return (
        window * BYTES[geometry.dtype]
        + gdn.value_heads // parallel * gdn.value_dim * gdn.key_dim * BYTES[matrix]
    )


def logged_tokens(rule: Rules, cut: Cut, blocks: int, max_model_len: int) -> int:
    """The number that the release logs as 'KV cache size ... tokens'.

    0.19.1 divides the blocks by the number of groups, as if each group took as many; later ones multiply concurrency
    by the longest length.
    """
    if rule.tokens == "groups":
        return blocks // cut.groups * cut.block_size
    return int(blocks / cut.blocks_for(max_model_len) * max_model_len)
