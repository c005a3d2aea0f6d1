"""What reinforcement learning asks of a server that generates its rollouts, judged from answers that it gave.

Four questions: are groups of samples sound, what does the batch change in an answer, what do shared prefixes save, and
are answers after a reload of weights or a sleep those of the weights in force? ``runbook.actions.rollouts`` asks them;
its facts are the answers as they came, so that all judgement is here and can be repeated on a recording.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runbook.model import Verdict
from runbook.parity import TIE, Importance, importance

# All samples alike by a chance below this are not samples.
CHANCE = math.log(1e-6)
# A sum of probabilities above 1 by more than float32 rounding: what was returned are no log-probabilities.
OVER_ONE = 1e-3
# Computed anew with the answer as a prompt, half of the tokens are off by more than this (nats, a ratio of 1.6): they are
# not this answer's log-probabilities. One place off, the tiny models' median token is off by 1.3 to 1.5; rounding in
# bfloat16 moves it by 0.03 at most (docs/rollouts.md).
OFF = 0.5
# A greedy answer whose token lies farther off than this (nats) is no rounding of a 16-bit type: the largest movement seen
# was 0.11; answered from the prefix cache of other weights, the first token lay 0.9 to 1.9 off (docs/rollouts.md).
FAR = 0.5
# Below this gap between two tokens (nats) rounding hides which of two temperatures a distribution was computed at.
APART = 0.2

RAW, PROCESSED, LOGITS = "raw", "processed", "logits"
GREEDY, SEEDED = "greedy", "seeded"
AGAIN = "alone, again"
# What a server may lack and still generate rollouts: a comparison with transformers, a reload in place.
OPTIONAL = ("SERVE-010", "SERVE-023")


@dataclass(frozen=True)
class Sample:
    """One answer: its tokens, their log-probabilities (nats), and at each place the two most probable tokens with theirs."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    best: tuple[Mapping[int, float], ...]
    finish: str

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "Sample":
        """Read what the action wrote; a log-probability that did not come is not a number."""
        return cls(
            tuple(facts["tokens"]),
            tuple(math.nan if one is None else float(one) for one in facts["logprobs"]),
            tuple({int(token): float(value) for token, value in place} for place in facts["best"]),
            str(facts["finish"]),
        )


@dataclass(frozen=True)
class Groups:
    """What came of requests with ``n`` samples each. ``faults`` are sentences; none when all is sound.

    ``again``: the answers' importance ratios when the server computes them anew as a prompt, ``rounding`` by how much (nats)
    the farthest log-probability is off then; None where it would not.
    ``mode``: of which distribution the log-probabilities are, "" where it could not be told.
    """

    requests: int
    samples: int
    tokens: int
    distinct: int
    mode: str
    again: Importance | None
    median_off: float | None
    rounding: float | None
    faults: tuple[str, ...]


def groups(facts: Mapping[str, Any]) -> Groups:
    """Judge the part ``groups`` of what was measured."""
    rows = [(row, [Sample.of(one) for one in row["samples"]]) for row in facts["rows"]]
    faults = [fault for row, samples in rows for fault in _unsound(row, samples, facts["samples"])]
    every = [one for _, samples in rows for one in samples]
    known = _pairs(every, [anew for row, _ in rows for anew in row["anew"]])
    gaps = [abs(a - b) for a, b in known]
    off = statistics.median(gaps) if gaps else None
    if off is not None and off > OFF:
        faults.append(
            f"computed anew as a prompt, half of the tokens are off by more than {off:.2f}: these are not the answers' log-probabilities"
        )
    mode = of_distribution(facts["at_1"], facts["at_half"])
    if mode == LOGITS:
        faults.append("logits were returned, not log-probabilities (--logprobs-mode)")
    return Groups(
        len(rows),
        len(every),
        sum(len(one.tokens) for one in every),
        sum(len({one.tokens for one in samples}) for _, samples in rows),
        mode,
        importance([a for a, _ in known], [b for _, b in known]) if known else None,
        off,
        max(gaps, default=None),
        tuple(faults),
    )


def _pairs(every: Sequence[Sample], anew: Sequence[Sequence[float | None]]) -> list[tuple[float, float]]:
    return [
        (served, float(later))
        for one, line in zip(every, anew, strict=False)
        for served, later in zip(one.logprobs, line, strict=False)
        if later is not None and math.isfinite(served)
    ]


def _unsound(row: Mapping[str, Any], samples: Sequence[Sample], n: int) -> Iterable[str]:
    """What is wrong with one request's samples."""
    name = row["prompt"]
    if len(samples) != n:
        yield f"{name}: {len(samples)} samples came, {n} were asked for"
    counted = sum(len(one.tokens) for one in samples)
    if row["completion_tokens"] != counted:
        yield f"{name}: usage says {row['completion_tokens']} tokens, {counted} came"
    values = [value for one in samples for value in one.logprobs]
    if any(not one.tokens or len(one.tokens) != len(one.logprobs) for one in samples):
        yield f"{name}: not every token came with its log-probability"
    elif not all(map(math.isfinite, values)):
        yield f"{name}: a log-probability is no finite number"
    elif max(values, default=0.0) > OVER_ONE:
        yield f"{name}: a log-probability of {max(values):.3g} is above 0"
    elif len(samples) > 1 and len({one.tokens for one in samples}) == 1:
        chance = (len(samples) - 1) * sum(samples[0].logprobs)
        if chance < CHANCE:
            yield f"{name}: all {len(samples)} samples are the same, by chance once in 10^{-chance / math.log(10):.0f}"


def of_distribution(at_1: Mapping[str, float], at_half: Mapping[str, float]) -> str:
    """Which log-probabilities a server returns, from the same place asked at temperature 1 and at 0.5.

    Raw ones are the model's whatever the temperature; processed ones are of the distribution that was sampled from, so
    the distance of two tokens doubles (``--logprobs-mode``). "" where no two tokens lie far enough apart to tell.
    """
    for values in (at_1, at_half):
        if sum(math.exp(min(one, 50.0)) for one in values.values()) > 1 + OVER_ONE:
            return LOGITS
    both = sorted((at_1[token], at_half[token]) for token in at_1.keys() & at_half.keys())
    if len(both) < 2 or (wide := both[-1][0] - both[0][0]) < APART:  # noqa: PLR2004 - a distance has two ends
        return ""
    return RAW if (both[-1][1] - both[0][1]) / wide < 1.5 else PROCESSED  # noqa: PLR2004 - midway between 1 and 2


@dataclass(frozen=True)
class Moved:
    """Answers compared with those of the same prompts asked alone. Movements are of log-probabilities, in nats.

    ``among`` is how many ran at once; ``first`` the earliest token that differs (None: none does); ``beyond`` are answers
    that rounding does not explain, as (prompt, first place that differs, how far tokens lay apart or moved).
    """

    how: str
    among: str
    answers: int
    same: int
    first: int | None
    tokens: int
    mean: float
    largest: float
    beyond: tuple[tuple[str, int | None, float], ...]


def moves(rows: Iterable[Mapping[str, Any]], rounding: float) -> list[Moved]:
    """Judge the part ``batch``: one line for each way of asking and each number at once.

    ``rounding`` is how far a log-probability was off at most when the same tokens were computed in another way
    (``Groups.rounding``). Up to three times that (``runbook.parity.TIE``), or ``FAR`` where both ways happen to agree
    better, a greedy answer turns between two tokens as at a tie, and a log-probability of it moves. What a seeded sample
    turns on is not visible, so there a difference is only counted.
    """
    most = max(TIE * rounding, FAR)
    lines: dict[tuple[str, str], list[tuple[str, Sample, Sample]]] = {}
    for row in rows:
        alone = Sample.of(row["alone"])
        for among, others in row["among"].items():
            lines.setdefault((row["how"], among), []).extend(
                (row["prompt"], alone, Sample.of(one)) for one in others
            )
    return [_moved(how, among, pairs, most) for (how, among), pairs in lines.items()]


def _moved(how: str, among: str, pairs: Sequence[tuple[str, Sample, Sample]], most: float) -> Moved:
    places = [_differs(one, other) for _, one, other in pairs]
    values = [_movements(one, other) for _, one, other in pairs]
    every = [value for line in values for value in line]
    beyond = []
    for (prompt, one, other), place, moved in zip(pairs, places, values, strict=True):
        far = max(0.0 if place is None else _apart(one, other, place), *moved, 0.0)
        if how == GREEDY and far > most:
            beyond.append((prompt, place, far))
    return Moved(
        how,
        among,
        len(pairs),
        sum(place is None for place in places),
        min((place for place in places if place is not None), default=None),
        len(every),
        statistics.fmean(every) if every else 0.0,
        max(every, default=0.0),
        tuple(beyond),
    )


def _differs(one: Sample, other: Sample) -> int | None:
    """The first place at which two answers differ; None when they are the same."""
    if one.tokens == other.tokens:
        return None
    pairs = enumerate(zip(one.tokens, other.tokens, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one.tokens), len(other.tokens)))


def _movements(one: Sample, other: Sample) -> list[float]:
    """How far each log-probability moved as long as both answers are the same, the place where they part included."""
    place = _differs(one, other)
    upto = len(one.tokens) if place is None else place
    moved = [abs(a - b) for a, b in zip(one.logprobs[:upto], other.logprobs[:upto], strict=True)]
    if place is not None and place < min(len(one.best), len(other.best)):
        here, there = one.best[place], other.best[place]
        moved += [abs(here[token] - there[token]) for token in here.keys() & there.keys()]
    return moved


def _apart(one: Sample, other: Sample, place: int) -> float:
    """How much less probable than the token chosen alone the other's token was; infinite where one answer ended early."""
    if place >= min(len(one.tokens), len(other.tokens)):
        return math.inf
    best = one.best[place]
    # A token that is not among the two best is at least as far as the second.
    return one.logprobs[place] - best.get(other.tokens[place], min(best.values(), default=-math.inf))


@dataclass(frozen=True)
class Arm:
    """One way of asking for the same groups; the speed is the median of its rounds, ``times`` a multiple of the first arm's.

    ``reused`` is the share of prompt tokens that were found in the prefix cache; None where the server counts none.
    """

    name: str
    tokens_per_s: float
    reused: float | None
    times: float


def arms(rows: Sequence[Mapping[str, Any]]) -> list[Arm]:
    """Judge the part ``throughput``, in the order in which arms were first asked."""
    found: list[Arm] = []
    for name in dict.fromkeys(row["arm"] for row in rows):
        mine = [row for row in rows if row["arm"] == name]
        speed = statistics.median(row["tokens"] / row["seconds"] for row in mine)
        queries = sum(row["queries"] or 0 for row in mine)
        reused = sum(row["hits"] or 0 for row in mine) / queries if queries else None
        found.append(Arm(name, speed, reused, speed / found[0].tokens_per_s if found else 1.0))
    return found


@dataclass(frozen=True)
class Renewed:
    """What came of reloading weights in place and of sleeping. ``faults`` are sentences; none when all is sound.

    ``stale`` is how many prompt tokens were answered from the old weights' prefix cache before it was reset;
    ``changed`` is None where the weights that were loaded are the same ones.
    """

    changed: bool | None
    stale: int
    stale_differs: bool
    reload_s: float
    faults: tuple[str, ...]


def renewed(facts: Mapping[str, Any]) -> Renewed:
    """Judge the part ``reload``: greedy answers before, right after, after a reset of the prefix cache, and of the old weights again."""
    said = {name: Sample.of(one) for name, one in facts["answers"].items()}
    before, stale, fresh, back = (said[name] for name in ("before", "stale", "fresh", "back"))
    noise = max(_movements(before, back), default=0.0)
    faults = []
    if not facts["reset"]:
        faults.append("the prefix cache could not be reset")
    if not alike(before, back):
        faults.append("the old weights, loaded again, give another answer")
    changed = None
    if facts["different"]:
        changed = before.tokens != fresh.tokens or max(_movements(before, fresh), default=0.0) > noise
        if not changed:
            faults.append("the answer after the reload is still that of the old weights")
    elif not alike(before, fresh):
        faults.append("the same weights, loaded again, give another answer")
    differs = stale.tokens != fresh.tokens or max(_movements(stale, fresh), default=0.0) > noise
    return Renewed(changed, int(facts["stale_hits"]), differs, facts["seconds"], tuple(faults))


def alike(one: Sample, other: Sample) -> bool:
    """True when two greedy answers are the same, or part at a tie."""
    most = max(_movements(one, other), default=0.0)
    place = _differs(one, other)
    return place is None or _apart(one, other, place) <= TIE * most


def told(facts: Mapping[str, Any]) -> list[str]:
    """Lines about what has no verdict of its own: what shared prefixes save, and sleep."""
    lines = []
    shared = facts.get("throughput", {})
    if "error" in shared:
        lines.append(f"shared prefixes: refused, {shared['error']}")
    if "rows" in shared:
        lines.append(f"shared prefixes: {shared['groups']} groups of {shared['samples']}")
        for one in arms(shared["rows"]):
            found = "not counted" if one.reused is None else f"{one.reused:.0%} of the prompt found"
            lines.append(f"  {one.name:<28} {one.tokens_per_s:8.0f} tokens/s  {one.times:.2f} times  {found}")
    slept = facts.get("sleep", {})
    if "why" in slept:
        lines.append(f"sleep: not tried, {slept['why']}")
    elif slept:
        same = alike(Sample.of(slept["before"]), Sample.of(slept["after"]))
        before, asleep, _ = slept["memory_mib"]
        freed = "no memory freed, it only pauses" if before is None else f"{before - asleep} MiB freed"
        lines.append(
            f"sleep: {slept['sleep_s']:.2f} s, wake {slept['wake_s']:.2f} s; {freed}; a request waits meanwhile: "
            f"{'yes' if slept['held'] else 'no'}; the answer afterwards is {'the same' if same else 'ANOTHER'}"
        )
    return lines


def ready(verdicts: Mapping[str, Verdict]) -> str:
    """One line over the findings: yes, yes with what a trainer must do, no, or no verdict; each with the ids that say why."""

    def named(*wanted: Verdict) -> str:
        return ", ".join(name for name, verdict in verdicts.items() if verdict in wanted)

    if failed := named(Verdict.FAIL):
        return f"no: {failed}"
    blind = [name for name, verdict in verdicts.items() if verdict is Verdict.SKIP and name not in OPTIONAL]
    if unsure := ", ".join(filter(None, (named(Verdict.UNKNOWN), *blind))):
        return f"no verdict: {unsure}"
    warned, skipped = named(Verdict.WARN), named(Verdict.SKIP)
    said = f"yes, with importance correction: {warned}" if warned else "yes"
    return f"{said}; not judged: {skipped}" if skipped else said
