"""A load test held against itself: what the client saw joined with the server's own counters over the same window.

A figure is trusted only where both tell the same story. The rules are in ``doubts``, each with the tolerance it allows
and why; what is doubted is never reported as met.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runbook.parse.metrics import Metrics
from runbook.serving import figures

FEWEST = 6  # below it not even a median is bounded
CLIENT_CORE = 0.9  # vLLM's client is one thread: near a whole core it is the client that is measured
TOKENS_OFF = 0.01  # both count the same tokens
PROMPT_OFF = 0.05  # the client counts with its own tokenizer before it sends text, which comes back a token longer or shorter
# A client may see half as much again as the engine: HTTP and the server's own front lie between.
SLOW_PATH = 0.5
SLOW_PATH_S = 0.05
# A stream that reaches the client in less than half of the time in which it was made was held up.
HELD_UP = 0.5
STREAM_TOKENS = 8
STREAM_S = 0.05
SLICES = 10
APART = 0.25
SENT_SLACK = 3.0  # deviations of a Poisson count

BLIND, FAIL = "unknown", "fail"
SLOW = "slow path"

SUCCESS = "vllm:request_success_total"
WATCHED = {
    "prompt_tokens": "vllm:prompt_tokens_total",
    "generation_tokens": "vllm:generation_tokens_total",
    "e2e_sum": "vllm:e2e_request_latency_seconds_sum",
    "e2e_count": "vllm:e2e_request_latency_seconds_count",
    "decode_sum": "vllm:request_decode_time_seconds_sum",
    "decode_count": "vllm:request_decode_time_seconds_count",
    "started": "process_start_time_seconds",
}


@dataclass(frozen=True)
class Request:
    """One request as the client saw it; seconds. ``decode_s`` is from the first chunk to the last."""

    sent: float
    ttft_s: float
    decode_s: float
    tokens: int
    chunks: int
    good: bool

    @property
    def e2e_s(self) -> float:
        """From sending to the last chunk."""
        return self.ttft_s + self.decode_s

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; None below two tokens."""
        return self.decode_s / (self.tokens - 1) if self.tokens > 1 else None


@dataclass(frozen=True)
class Window:
    """What the server's counters did during a load; None where it does not export one or it fell.

    ``reasons`` is how many requests finished, by the reason it gives; ``anew`` says that the server died or was started anew.
    """

    grown: Mapping[str, float | None]
    reasons: Mapping[str, float]
    anew: str = ""

    @property
    def finished(self) -> float:
        """Requests that ended well."""
        return sum(self.reasons.values())

    def mean(self, name: str) -> float | None:
        """Mean of a histogram over the window, in seconds."""
        total, count = self.grown.get(f"{name}_sum"), self.grown.get(f"{name}_count")
        return total / count if total is not None and count else None


def window(before: Metrics, after: Metrics) -> Window:
    """The growth between two pages."""
    grown: dict[str, float | None] = {}
    fell = []
    for name, sample in WATCHED.items():
        old, new = before.total(sample), after.total(sample)
        if name == "started":
            if old is not None and new is not None and new != old:
                fell.append("the server was started anew during the load")
            continue
        if old is not None and new is not None and new < old:
            fell.append(f"the server was started anew: {sample} fell from {old:g} to {new:g}")
        # A counter that no request has touched yet is not on the page.
        grown[name] = None if new is None or new < (old or 0.0) else new - (old or 0.0)
    old_reasons, reasons = (
        before.by_label(SUCCESS, "finished_reason"),
        after.by_label(SUCCESS, "finished_reason"),
    )
    return Window(
        grown,
        {
            name: value - old_reasons.get(name, 0.0)
            for name, value in reasons.items()
            if value > old_reasons.get(name, 0.0)
        },
        fell[0] if fell else "",
    )


@dataclass(frozen=True)
class Step:
    """One load at one level, both sides of it.

    ``concurrency`` requests at once at most (0: no bound), sent at ``rate`` a second (0: as soon as one may be).
    ``client_cores`` is what the client burnt, in cores' worth. ``waiting`` is the share of the readings in which requests
    waited, ``running`` the median number that ran; None where nobody read. ``input_tokens`` is None where a template adds
    what the client does not count. ``errors`` are words and how often.
    """

    name: str
    concurrency: int
    rate: float
    seconds: float
    requests: tuple[Request, ...]
    input_tokens: int | None
    client_cores: float | None
    server: Window | None
    waiting: float | None = None
    running: float | None = None
    errors: Mapping[str, int] | None = None

    @property
    def good(self) -> list[Request]:
        """Requests that were answered."""
        return [one for one in self.requests if one.good]

    @property
    def output_tokens(self) -> int:
        """Tokens made, by the client's count."""
        return sum(one.tokens for one in self.good)

    @property
    def rps(self) -> float:
        """Answers a second."""
        return len(self.good) / self.seconds if self.seconds > 0 else 0.0

    @property
    def tps(self) -> float:
        """Output tokens a second."""
        return self.output_tokens / self.seconds if self.seconds > 0 else 0.0

    def samples(self, what: str) -> list[float]:
        """Seconds of ``ttft``, ``tpot`` or ``e2e``, of the requests that were answered."""
        found = (getattr(one, f"{what}_s") for one in self.good)
        return [value for value in found if value is not None]

    def slices(self, what: str) -> list[float]:
        """Answers (``rps``) or tokens (``tps``) a second in each tenth of the load, by when the answers ended."""
        if self.seconds <= 0 or not self.requests:
            return []
        began, width = min(one.sent for one in self.requests), self.seconds / SLICES
        sums = [0.0] * SLICES
        for one in self.good:
            at = min(SLICES - 1, int((one.sent + one.e2e_s - began) / width))
            sums[at] += one.tokens if what == "tps" else 1
        return [each / width for each in sums]


def median_ms(step: Step, what: str) -> float | None:
    """The median of ``ttft``, ``tpot`` or ``e2e`` in milliseconds; None without samples."""
    found = step.samples(what)
    return round(statistics.median(found) * 1000, 2) if found else None


@dataclass(frozen=True)
class Doubt:
    """Why a load is not to be trusted: ``weight`` fail where it is wrong, unknown where it cannot be told; ``kind`` names it."""

    weight: str
    kind: str
    says: str


def doubts(step: Step) -> list[Doubt]:
    """All that speaks against a load, gravest first; none when it can be trusted."""
    found = [
        *_anew(step),  # a cause, which explains whatever else is wrong
        *_nothing(step),
        *_failed(step),
        *_counters(step),
        *_client(step),
        *_path(step),
        *_stream(step),
        *_sent(step),
    ]
    return sorted(found, key=lambda one: one.weight != FAIL)


def _anew(step: Step) -> list[Doubt]:
    server = step.server
    return [Doubt(FAIL, "another server", server.anew)] if server is not None and server.anew else []


def _nothing(step: Step) -> list[Doubt]:
    if not step.good:
        return []  # _failed says it
    empty = sum(1 for one in step.good if not one.tokens)
    if empty:
        return [Doubt(FAIL, "zero tokens", f"{empty} of {len(step.good)} answers without a single token")]
    if all(one.tokens == 1 for one in step.good):
        return [Doubt(FAIL, "zero tokens", "every answer ends with its first token")]
    if len(step.good) < FEWEST:
        return [
            Doubt(BLIND, "too few samples", f"{len(step.good)} answers; a median is bounded from {FEWEST} on")
        ]
    return []


def _failed(step: Step) -> list[Doubt]:
    bad = len(step.requests) - len(step.good)
    if not step.requests:
        return [Doubt(FAIL, "failed requests", "no request was sent")]
    if not bad:
        return []
    worst = max((step.errors or {"": 0}).items(), key=lambda row: row[1])[0]
    return [
        Doubt(
            FAIL,
            "failed requests",
            f"{bad} of {len(step.requests)} failed" + (f": {worst}" if worst else ""),
        )
    ]


def _counters(step: Step) -> list[Doubt]:
    server = step.server
    if server is not None and server.anew:
        return []
    if server is None or server.grown.get("generation_tokens") is None:
        return [
            Doubt(BLIND, "no counters", "the server's own counters cannot be read; nothing holds the client's against them")
        ]  # fmt: skip
    made, read = server.grown["generation_tokens"] or 0.0, server.grown.get("prompt_tokens")
    found = []
    pairs = [
        ("output tokens", step.output_tokens, made, TOKENS_OFF),
        ("requests finished", len(step.good), server.finished, 0.0),
    ]
    if read is not None and step.input_tokens is not None:
        pairs.append(("prompt tokens", step.input_tokens, read, PROMPT_OFF))
    for name, client, counted, off in pairs:
        if abs(client - counted) > off * max(client, counted):
            found.append(
                Doubt(FAIL, "counters disagree", f"{name}: the client {client:g}, the server {counted:g}")
            )
    return found


def _client(step: Step) -> list[Doubt]:
    cores = step.client_cores
    if cores is None or cores < CLIENT_CORE:
        return []
    return [
        Doubt(FAIL, "client-bound", f"the client burnt {cores:.2f} of the one core it can use; the server had to wait for it")
    ]  # fmt: skip


def _path(step: Step) -> list[Doubt]:
    """Whether the client saw much more time than the engine spent: then latencies are not the server's."""
    engine = step.server.mean("e2e") if step.server else None
    seen = step.samples("e2e")
    if engine is None or not seen:
        return []
    extra = statistics.fmean(seen) - engine
    if extra <= max(SLOW_PATH_S, SLOW_PATH * engine):
        return []
    return [
        Doubt(BLIND, SLOW, f"a request took {statistics.fmean(seen):.3f} s for the client and {engine:.3f} s in the engine: a starved client, a proxy or the server's front holds it up")
    ]  # fmt: skip


def _stream(step: Step) -> list[Doubt]:
    """Whether tokens came one by one: a proxy that buffers makes of TTFT the whole time and of TPOT nothing."""
    long = [one for one in step.good if one.tokens >= STREAM_TOKENS]
    if not long:
        return []
    seen = statistics.fmean(one.decode_s for one in long)
    made = step.server.mean("decode") if step.server else None
    if made is not None and made >= STREAM_S and seen < HELD_UP * made:
        return [
            Doubt(FAIL, "buffered stream", f"the engine made an answer in {made:.3f} s and it reached the client within {seen:.3f} s: something between holds the stream up, TTFT and TPOT mean nothing")
        ]  # fmt: skip
    if made is None and statistics.median(one.chunks for one in long) <= 2:  # noqa: PLR2004 - one, and the end
        return [
            Doubt(BLIND, "buffered stream", "whole answers came in one piece: TTFT and TPOT mean nothing")
        ]
    return []


def _sent(step: Step) -> list[Doubt]:
    """Whether an open load was sent as asked; one with a bound on requests at once waits for the server by design."""
    sent = sorted(one.sent for one in step.requests)
    if not step.rate or step.concurrency or len(sent) < FEWEST or sent[-1] <= sent[0]:
        return []
    real = (len(sent) - 1) / (sent[-1] - sent[0])
    if real >= step.rate * (1 - SENT_SLACK / len(sent) ** 0.5):
        return []
    return [Doubt(FAIL, "client-bound", f"{real:.3g} requests/s were sent, {step.rate:g} were asked for")]


def apart(pair: Sequence[Step]) -> bool:
    """Whether two loads meant to be the same differ: medians by over a quarter, and their intervals nowhere the same."""
    medians = [figures.median(step.samples("e2e")) for step in pair if step.good]
    if len(medians) < 2:  # noqa: PLR2004 - a pair
        return False
    low, high = sorted(medians, key=lambda one: one.value)
    beyond = low.high is not None and high.low is not None and low.high < high.low
    return beyond and high.value > (1 + APART) * low.value


def rate(step: Step, what: str) -> figures.Interval | None:
    """``rps`` or ``tps`` of a load with the interval of its tenths' median; None without answers."""
    parts, value = step.slices(what), getattr(step, what)
    if not parts or not step.good:
        return None
    part = figures.median(parts)
    low = None if part.low is None else min(part.low, value)
    high = None if part.high is None else max(part.high, value)
    return figures.Interval(value, low, high, len(step.good))


def as_row(step: Step) -> dict[str, Any]:
    """A step as JSON; times to a tenth of a millisecond."""
    return {
        "name": step.name,
        "concurrency": step.concurrency,
        "rate": step.rate,
        "seconds": round(step.seconds, 4),
        "requests": [
            [round(one.sent, 4), round(one.ttft_s, 5), round(one.decode_s, 5), one.tokens, one.chunks, int(one.good)]
            for one in step.requests
        ],
        "input_tokens": step.input_tokens,
        "client_cores": None if step.client_cores is None else round(step.client_cores, 3),
        "server": None
        if step.server is None
        else {"grown": dict(step.server.grown), "reasons": dict(step.server.reasons), "anew": step.server.anew},
        "waiting": None if step.waiting is None else round(step.waiting, 3),
        "running": step.running,
        "errors": dict(step.errors or {}),
    }  # fmt: skip


def of_row(row: Mapping[str, Any]) -> Step:
    """The step that ``as_row`` wrote.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    server = row["server"]
    return Step(
        name=str(row["name"]),
        concurrency=int(row["concurrency"]),
        rate=float(row["rate"]),
        seconds=float(row["seconds"]),
        requests=tuple(
            Request(float(sent), float(first), float(decode), int(tokens), int(chunks), bool(good))
            for sent, first, decode, tokens, chunks, good in row["requests"]
        ),
        input_tokens=row["input_tokens"],
        client_cores=row["client_cores"],
        server=None if server is None else Window(server["grown"], server["reasons"], server["anew"]),
        waiting=row["waiting"],
        running=row["running"],
        errors=row["errors"],
    )


def steps(facts: Mapping[str, Any]) -> Sequence[Step]:
    """The loads of ``server.load.json``."""
    return [of_row(row) for row in facts["steps"]]
