"""Warming up by evidence: what to ask of a new server, when it has become steady, and what a new request then waits.

Nothing here sends anything. The rules use ranks only: latencies have long tails, and a busy machine makes them longer.
"""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runbook.serving import figures

PROBE, PROFILE, STRESS = "probe", "profile", "stress"

WITHIN = 1.1
"""How many times the steady wait a new request may take, and how much two rounds may differ, to count as the same."""

KNOWN = 1.5
"""How far from 1, either way, the interval of that comparison may reach; beyond it the machine is too noisy to tell."""

STALL, STALL_S = 2.0, 0.05
"""A wait of so many times its shape's own (as the round goes) and so many seconds more is a stall. The smallest one-off
cost seen on an H200 was 0.2 s (a few Triton cubins)."""

FEWEST = 3  # rounds: what the first one paid must not hide behind a neighbour in the second

LONGEST_TOKENS = 32_768  # a prompt; prefill of more takes seconds a round and finds no other kernel
MOST_AT_ONCE = 64
LONG_OUT = 256
MARGIN = 0.8  # a prompt is built from words, whose number of tokens is known to a few per cent

TOOLS = [{
    "type": "function",
    "function": {
        "name": "look_up", "description": "Look up a word.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
}]  # fmt: skip
GREY = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAAAAACPAi4CAAAAKUlEQVR42u3MQREAAAwCIGMb3xD77SAA6VEEAoFAIBAIBAKBQCAQfA8Gon2AamDdm78AAAAASUVORK5CYII="
"""64 x 64 grey pixels."""


@dataclass(frozen=True)
class Shape:
    """One kind of request: ``tokens`` in, ``out`` tokens at most, ``at_once`` of them; ``more`` goes to the API as it is."""

    name: str
    kind: str
    tokens: int
    out: int
    at_once: int = 1
    chat: bool = False
    stream: bool = True
    image: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Served:
    """What a server says, or its command says, of what it takes. ``tools`` and ``images`` are True where it was started so."""

    max_model_len: int
    max_num_seqs: int
    tools: bool
    images: bool


def schema(name: str) -> dict[str, Any]:
    """A response format; another name makes another grammar, which the server has not compiled yet."""
    shape = {
        "type": "object",
        "properties": {name: {"type": "string", "maxLength": 8}, "n": {"enum": ["one", "two"]}},
        "required": [name, "n"],
        "additionalProperties": False,
    }
    return {
        "response_format": {"type": "json_schema", "json_schema": {"name": name, "schema": shape}},
    }


def shapes(served: Served) -> tuple[Shape, ...]:
    """Every shape the service will see, dearest last; the very first is the tiny request that a first user sends."""
    longest = min(int(served.max_model_len * MARGIN), LONGEST_TOKENS)
    usual = max(8, min(256, longest // 4))
    out = max(8, min(LONG_OUT, served.max_model_len // 16))
    features = [
        Shape("one token", PROBE, 3, 1),
        Shape("chat", PROBE, 16, 4, chat=True),
        Shape("chat, not streamed", PROBE, 16, 4, chat=True, stream=False),
        Shape("log-probabilities", PROBE, 16, 4, more={"logprobs": 1}),
        Shape(
            "chat with log-probabilities", PROBE, 16, 4, chat=True, more={"logprobs": True, "top_logprobs": 2}
        ),
        Shape("sampled", PROBE, 16, 4, more={"temperature": 0.8, "top_p": 0.9, "extra_body": {"top_k": 20}}),
        Shape(
            "several answers (n=4)", PROBE, 16, 4, more={"n": min(4, served.max_num_seqs), "temperature": 1.0}
        ),
        Shape("JSON schema", PROBE, 16, 24, chat=True, more=schema("word")),
    ]
    if served.tools:
        features.append(Shape("tools", PROBE, 16, 8, chat=True, more={"tools": TOOLS}))
    if served.images:
        features.append(Shape("image", PROBE, 16, 4, chat=True, image=True))
    lengths = [Shape(f"prompt of {size}", PROBE, size, 1) for size in powers(16, longest)]
    batches = [
        Shape(f"{size} at once", STRESS, 16, 4, at_once=size)
        for size in powers(2, min(served.max_num_seqs, MOST_AT_ONCE))
    ]
    many = min(8, served.max_num_seqs)
    return (
        *features,
        *lengths,
        *batches,
        Shape(f"usual: {usual} in, {out} out", PROFILE, usual, out),
        Shape(f"stress: {many} x {longest // 2}", STRESS, longest // 2, out // 4, at_once=many),
    )


def unseen(served: Served) -> tuple[Shape, ...]:
    """Kinds of request that ``shapes`` never sent: other lengths, batches, numbers of answers, schemas and sampling."""
    longest = min(int(served.max_model_len * MARGIN), LONGEST_TOKENS)
    kinds = [
        Shape("one token", PROBE, 3, 1),
        Shape("completion", PROBE, 11, 2),
        Shape("chat", PROBE, 23, 3, chat=True),
        Shape("log-probabilities (3)", PROBE, 13, 2, more={"logprobs": 3}),
        Shape(
            "sampled otherwise",
            PROBE,
            17,
            2,
            more={"temperature": 0.6, "top_p": 0.8, "presence_penalty": 0.5},
        ),
        Shape(
            "several answers (n=2)", PROBE, 19, 2, more={"n": min(2, served.max_num_seqs), "temperature": 1.0}
        ),
        Shape("another JSON schema", PROBE, 16, 4, chat=True, more=schema("place")),
        *(Shape(f"prompt of {size}", PROBE, size, 1) for size in _between(longest)),
        *(Shape(f"{size} at once", STRESS, 21, 2, at_once=min(size, served.max_num_seqs)) for size in (3, 5)),
    ]
    # With little context and one request at a time, the shapes that follow from those limits may be among these.
    asked = [_request(one) for one in shapes(served)[1:]]
    return tuple(one for one in kinds if _request(one) not in asked)


def _request(one: Shape) -> Shape:
    """A shape without what only names it."""
    return dataclasses.replace(one, name="", kind=PROBE)


def _between(longest: int) -> list[int]:
    """Up to five lengths that are no powers of two."""
    return [size for size in (37, 101, 333, 700, 1111) if size < longest]


def powers(first: int, last: int) -> list[int]:
    """Powers of two times ``first`` up to ``last``, and ``last`` itself; empty where even ``first`` is more."""
    if last < first:
        return []
    steps = [first * 2**step for step in range(int(math.log2(last / first)) + 1)]
    return steps if steps[-1] == last else [*steps, last]


@dataclass(frozen=True)
class Trend:
    """How the newest round compares with those before.

    ``ratio`` is how many times as long the best before waited, the median over shapes with its interval; ``stalled`` are
    shapes that stood still in the newest round. ``flat`` is None where the machine is too noisy to tell.
    """

    flat: bool | None
    ratio: figures.Interval | None
    stalled: tuple[str, ...]

    @property
    def falls(self) -> bool:
        """True where it is shown that waits still fall."""
        return self.ratio is not None and self.ratio.low is not None and self.ratio.low > WITHIN


BEFORE = 3
"""Rounds that the newest is held against."""


def trend(rounds: Sequence[Mapping[str, float]]) -> Trend:
    """Whether waits still fall, from the rounds so far: shape -> seconds to the first token.

    Each shape is compared with itself, so short and long prompts count alike; and with its best of the three rounds before, not with the last alone,
    since a neighbour that comes and goes makes whole rounds slow, and the next one seem to fall. Waits have stopped falling
    when two things hold. The median over shapes of (best before / newest) shows no fall: the lower end of its exact rank
    interval is at most ``WITHIN``; and the interval is near enough to 1 (``KNOWN``, either way) for that to mean something.
    And no single shape stalls, which a median over twenty shapes would not show: a kernel that only one of them needs.
    """
    if len(rounds) < FEWEST:
        return Trend(flat=False, ratio=None, stalled=())
    # The best of ever more rounds lies ever lower: 17 rounds at one level were never found flat.
    newest, earlier = rounds[-1], rounds[-1 - BEFORE : -1]
    ratios = [1 / times for times in _times(newest, earlier).values()]
    if not ratios:
        return Trend(flat=None, ratio=None, stalled=())
    ratio, stalled = figures.median(ratios), _stalled(newest, earlier)
    if stalled or Trend(None, ratio, ()).falls:
        return Trend(flat=False, ratio=ratio, stalled=stalled)
    if ratio.low is None or ratio.high is None or ratio.high > KNOWN or ratio.low < 1 / KNOWN:
        return Trend(flat=None, ratio=ratio, stalled=())
    return Trend(flat=True, ratio=ratio, stalled=())


def _times(newest: Mapping[str, float], earlier: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """How many times its best so far each shape waited."""
    return {
        name: wait / best
        for name, wait in newest.items()
        if wait > 0 and (best := min((one[name] for one in earlier if name in one), default=0.0)) > 0
    }


def _stalled(newest: Mapping[str, float], earlier: Sequence[Mapping[str, float]]) -> tuple[str, ...]:
    """Shapes that stood out of the newest round: each against its own best so far, and against how the others fared.

    On a quiet machine three quarters of them wait at most 1.1 times their best; where they wait twice as long, a
    neighbour took the time, and only what stands out of that is a stall.
    """
    times = _times(newest, earlier)
    if not times:
        return ()
    usual = max(1.0, figures.percentile(list(times.values()), 75).value)
    return tuple(
        name
        for name, ratio in times.items()
        if ratio > STALL * usual and newest[name] * (1 - 1 / ratio) > STALL_S
    )


@dataclass(frozen=True)
class Row:
    """A shape over all rounds: what the first to send it waited, and the median of the rounds after it (seconds)."""

    name: str
    kind: str
    first_s: float
    steady_s: float


def rows(asked: Sequence[Shape], rounds: Sequence[Mapping[str, float]]) -> tuple[Row, ...]:
    """The table of a warm-up, in the order in which shapes were sent; one that was never answered has no row."""
    found = []
    for shape in asked:
        waits = [one[shape.name] for one in rounds if shape.name in one]
        if waits:
            found.append(Row(shape.name, shape.kind, waits[0], statistics.median(waits[1:] or waits)))
    return tuple(found)


@dataclass(frozen=True)
class New:
    """Requests of a kind never sent before against their own repeats (never the same prompt twice).

    ``ratio`` is first over steady: the median over kinds with its interval. ``kinds`` are the rows, ``stalled`` those whose
    first one stood still.
    """

    ratio: figures.Interval | None
    kinds: tuple[Row, ...]
    stalled: tuple[str, ...]


def new(waits: Mapping[str, Sequence[float]], kinds: Mapping[str, str]) -> New:
    """What a first request of a new kind waits: ``waits`` are the seconds of each kind, in the order sent."""
    table = tuple(
        Row(name, kinds[name], each[0], statistics.median(each[1:]))
        for name, each in waits.items()
        if len(each) > 1
    )
    ratios = [row.first_s / row.steady_s for row in table if row.steady_s > 0]
    return New(
        figures.median(ratios) if ratios else None,
        table,
        _stalled({row.name: row.first_s for row in table}, [{row.name: row.steady_s for row in table}]),
    )


def as_facts(row: Row) -> dict[str, Any]:
    """A row as it is written down, in seconds to a tenth of a millisecond."""
    facts = dataclasses.asdict(row)
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in facts.items()}
