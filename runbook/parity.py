"""Is what is served what was trained? Judges what ``inside/parity_reference.py`` measured. Pure; imports nothing of ours.

Every limit is relative to what rounding does to the very checkpoint at hand: the script computes it with transformers in
the server's dtype and in a more precise one, and the distance between the two is the noise that no engine can avoid.
Measured with tiny checkpoints on two releases of vLLM (docs/parity.md), a right server is 0.90 to 1.00 times as far from
the precise answer as transformers is in the same dtype; the smallest planted fault that is found was 1.8 times as far.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

# A server farther from the precise answer than this many times the noise computes something else.
LIMIT = 1.5
# One kind of request alone has fewer tokens, so more chance: single prompts of 64 tokens were seen at 1.44.
GROUP_LIMIT = 2.0
# Below this share of the noise the server did not compute in the dtype it is taken to have, but in a finer one.
FINER = 0.2
# A token that is not the most probable one is a tie when it falls short by at most this many times the largest rounding
# error seen; the largest that was seen in a right server fell short by 1.1 times.
TIE = 3.0
# Bounds beyond which verl's example of a correction drops a token (read 2026-11-30):
# https://github.com/volcengine/verl/blob/0c42f85a0f2e8c087a53247b00b323255e422859/docs/algo/rollout_corr.md
RATIO_BOUNDS = (0.5, 2.0)
# Within this of 1, an importance ratio moves no PPO objective by more than a twentieth of its usual clip of 0.2
# (https://arxiv.org/abs/1707.06347).
NEGLIGIBLE = 0.01
NOTICEABLE = 0.05

# Keys of a config.json that are printed; JSON has all.
SHOWN = 12

AGREE, DIFFER, UNKNOWN = "agree", "differ", "unknown"
EXIT = {AGREE: 0, DIFFER: 1, UNKNOWN: 3}


@dataclass(frozen=True)
class Divergence:
    """A token that is not the reference's most probable one. ``short_by`` is in log-probability (nats)."""

    prompt: str
    how: str
    position: int
    short_by: float
    tie: bool


@dataclass(frozen=True)
class Importance:
    """The ratio trainer over server of a token's probability, as a trainer in the server's dtype sees it.

    ``k3`` is the mean of ratio - 1 - log(ratio), an estimate of the KL divergence that is never negative
    (http://joschu.net/blog/kl-approx.html); ``outside_1`` and ``outside_5`` are shares of tokens.
    """

    mean: float
    least: float
    most: float
    outside_1: float
    outside_5: float
    k3: float


NOTHING = Importance(math.nan, math.nan, math.nan, math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Parity:
    """What a comparison says. Differences are in log-probability (nats); ``noise_ratio`` is error over noise."""

    verdict: str
    causes: tuple[str, ...]
    reason: str
    dtype: str = ""
    exact_dtype: str = ""
    prompts: int = 0
    tokens: int = 0
    equal: float = math.nan
    equal_prompts: int = 0
    mean_difference: float = math.nan
    max_difference: float = math.nan
    error: float = math.nan
    noise: float = math.nan
    noise_ratio: float = math.nan
    groups: Mapping[str, float] = field(default_factory=dict)
    divergences: tuple[Divergence, ...] = ()
    batch_same: float = math.nan
    importance: Importance = NOTHING
    explained: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    config_differs: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    prompts_differ: tuple[Mapping[str, Any], ...] = ()

    @property
    def trust(self) -> str:
        """Whether a trainer may use the server's log-probabilities, in a sentence."""
        seen = self.importance
        if self.verdict != AGREE:
            return "no: find the difference first"
        if not (RATIO_BOUNDS[0] <= seen.least and seen.most <= RATIO_BOUNDS[1]):
            return f"no: rounding alone moves a token's ratio to {seen.least:.2f} and {seen.most:.2f}"
        if seen.outside_1:
            return (
                f"yes, with importance correction: rounding in {self.dtype} moves {seen.outside_1:.0%} "
                f"of the ratios by more than {NEGLIGIBLE:.0%}"
            )
        return "yes, as they are"


def unknown(reason: str) -> Parity:
    """No verdict, and why."""
    return Parity(UNKNOWN, (), reason)


def compare(facts: Mapping[str, Any]) -> Parity:
    """The verdict over the answer of ``inside/parity_reference.py``.

    ``causes`` names what is wrong as far as evidence goes: the tokenizer or the template by the first token that
    differs, a fault of the model by the hypothesis under which the difference falls to noise. A difference that nothing
    explains has the cause "unknown".
    """
    if "error" in facts:
        return unknown(str(facts["error"]))
    if "skip" in facts:
        return unknown(str(facts["skip"]))
    rows: list[dict[str, Any]] = list(facts["rows"])
    served, middle, exact = (_joined(rows, name) for name in ("served", "reference", "exact"))
    if not all(map(math.isfinite, (*served, *middle, *exact))):
        return unknown("a log-probability is not a number")
    error, noise = _mean_gap(served, exact), _mean_gap(middle, exact)
    groups = {
        how: _ratio([one for one in rows if one["how"] == how])
        for how in dict.fromkeys(one["how"] for one in rows)
    }
    largest = max(abs(a - b) for a, b in zip(middle, exact, strict=True))
    found = tuple(_divergences(rows, TIE * largest))
    explained = {
        name: _over(_mean_gap(served, _chained(lines)), noise) for name, lines in facts["hypotheses"].items()
    }
    causes = _causes(facts, served, error, noise, groups, explained)
    if not causes and any(not one.tie for one in found):
        causes = [
            "unknown: a chosen token falls short of the most probable one by more than rounding explains"
        ]
    off = [abs(a - b) for a, b in zip(served, middle, strict=True)]
    divergent = {(one.prompt, one.how) for one in found}
    return Parity(
        verdict=DIFFER if causes else AGREE,
        causes=tuple(causes),
        reason=""
        if _over(error, noise) >= FINER
        else f"the server is far closer than {facts['dtype']} allows: it computes in a finer dtype",
        dtype=facts["dtype"],
        exact_dtype=facts["exact_dtype"],
        prompts=len(rows),
        tokens=len(served),
        equal=1 - len(found) / len(served),
        equal_prompts=len(rows) - len(divergent),
        mean_difference=statistics.fmean(off),
        max_difference=max(off),
        error=error,
        noise=noise,
        noise_ratio=_over(error, noise),
        groups=groups,
        divergences=found,
        batch_same=_batch_same(rows),
        importance=importance(served, middle),
        refused=facts["refused"],
        explained=dict(sorted(explained.items(), key=lambda item: item[1])),
        config_differs=facts["config_differs"],
        prompts_differ=tuple(facts["prompts_differ"]),
    )


def importance(served: Sequence[float], trainer: Sequence[float]) -> Importance:
    """Statistics of exp(trainer - served) over tokens."""
    logs = [b - a for a, b in zip(served, trainer, strict=True)]
    ratios = [math.exp(one) for one in logs]
    return Importance(
        statistics.fmean(ratios),
        min(ratios),
        max(ratios),
        statistics.fmean(abs(one - 1) > NEGLIGIBLE for one in ratios),
        statistics.fmean(abs(one - 1) > NOTICEABLE for one in ratios),
        # expm1 keeps the digits that exp(x) - 1 - x loses near 0.
        max(0.0, statistics.fmean(math.expm1(one) - one for one in logs)),
    )


def _causes(
    facts: Mapping[str, Any],
    served: Sequence[float],
    error: float,
    noise: float,
    groups: Mapping[str, float],
    explained: Mapping[str, float],
) -> list[str]:
    causes = [_prompt_cause(facts["prompts_differ"])] if facts["prompts_differ"] else []
    if max(served) > 0:
        return [*causes, "the server returns logits, not log-probabilities (--logprobs-mode)"]
    beyond = _over(error, noise) > LIMIT
    if not beyond:
        crowd, alone = groups.get("batch", 0.0), groups.get("alone", 0.0)
        if crowd > GROUP_LIMIT and alone <= LIMIT:
            causes.append("requests in one batch disturb each other; alone each is right")
        return causes
    best = min(explained.values(), default=math.inf)
    if best <= LIMIT:
        # The first of several that explain it equally well; the script names the served config's own keys first.
        named = next(name for name, ratio in explained.items() if ratio <= best * 1.02)
        return [*causes, f"the server computes with {named}"]
    for name, lines in facts["lower"].items():
        coarse = _mean_gap(_joined(facts["rows"], "exact"), _chained(lines))
        if 1 / LIMIT <= _over(error, coarse) <= LIMIT:
            return [*causes, f"the server computes in {name}, not in {facts['dtype']}"]
    if any(key.startswith("quantization_config") for key in facts["config_differs"]):
        return [*causes, "the served weights are quantised, the reference's are not"]
    keys = list(facts["config_differs"])[:SHOWN]
    hint = f"; the served config.json differs in {', '.join(keys)}" if keys else ""
    return [
        *causes,
        f"unknown: {_over(error, noise):.1f} times as far off as rounding explains, and no hypothesis explains it{hint}",
    ]


def _prompt_cause(differ: Sequence[Mapping[str, Any]]) -> str:
    # When plain text already becomes other tokens, the template is not to blame.
    first = next((one for one in differ if one["how"] != "chat"), differ[0])
    what = "the chat template" if first["how"] == "chat" else "the tokenizer"
    return (
        f"{what}: in {first['name']!r} token {first['at']} is the first that differs, "
        f"served {first['served']!r}, reference {first['reference']!r}"
    )


def _divergences(rows: Iterable[Mapping[str, Any]], tie: float) -> Iterable[Divergence]:
    for one in rows:
        for position, short in enumerate(one["short_by"]):
            if short > 0:
                yield Divergence(one["name"], one["how"], position, short, short <= tie)


def _batch_same(rows: Sequence[Mapping[str, Any]]) -> float:
    """Share of the prompts whose tokens are the same alone and in a batch."""
    alone = {one["name"]: one["tokens"] for one in rows if one["how"] == "alone"}
    crowd = [one["tokens"] == alone[one["name"]] for one in rows if one["how"] == "batch"]
    return statistics.fmean(crowd) if crowd else math.nan


def _ratio(rows: Sequence[Mapping[str, Any]]) -> float:
    served, middle, exact = (_joined(rows, name) for name in ("served", "reference", "exact"))
    return _over(_mean_gap(served, exact), _mean_gap(middle, exact))


def _over(error: float, noise: float) -> float:
    """Error in units of noise; with no noise at all only no error is none."""
    return error / noise if noise else (math.inf if error else 0.0)


def _joined(rows: Iterable[Mapping[str, Any]], name: str) -> list[float]:
    return _chained(one[name] for one in rows)


def _chained(lines: Iterable[Sequence[float]]) -> list[float]:
    return [value for line in lines for value in line]


def _mean_gap(one: Sequence[float], other: Sequence[float]) -> float:
    return statistics.fmean(abs(a - b) for a, b in zip(one, other, strict=True))


def as_text(found: Parity) -> str:
    """Lines for a terminal."""
    if found.verdict == UNKNOWN:
        return f"verdict      no verdict: {found.reason}"
    seen = found.importance
    real = [one for one in found.divergences if not one.tie]
    lines = [
        f"verdict      {found.verdict}" + "".join(f"\n             {cause}" for cause in found.causes),
        f"for RL       {found.trust}",
        f"asked        {found.prompts} answers, {found.tokens} tokens; served in {found.dtype}, judged by {found.exact_dtype}",
        f"tokens       {found.equal:.2%} are the reference's most probable one; {found.equal_prompts} of {found.prompts} answers wholly",
        f"             {len(found.divergences) - len(real)} ties within rounding, {len(real)} others",
    ]
    lines += [
        f"             {one.how}, {one.prompt}: token {one.position} falls short by {one.short_by:.3g}"
        for one in real[:5]
    ]
    lines += [
        f"difference   mean {found.mean_difference:.3g}, max {found.max_difference:.3g} (server against transformers in {found.dtype})",
        f"noise        the server is {found.error:.3g} from {found.exact_dtype}, transformers in {found.dtype} {found.noise:.3g}: {found.noise_ratio:.2f} times (limit {LIMIT})",
        f"             {', '.join(f'{how} {ratio:.2f}' for how, ratio in found.groups.items())}",
        f"in a batch   {found.batch_same:.0%} of the prompts give the same tokens as alone",
        f"importance   mean {seen.mean:.5f}, from {seen.least:.4f} to {seen.most:.4f}; {seen.outside_1:.1%} beyond 1 %, {seen.outside_5:.1%} beyond 5 %; k3 {seen.k3:.2e}",
    ]
    lines += [
        f"config       {key}: served {pair[0]}, reference {pair[1]}"
        for key, pair in list(found.config_differs.items())[:SHOWN]
    ]
    lines += [
        f"if it were   {ratio:8.2f} times the noise with {name}" for name, ratio in found.explained.items()
    ]
    lines += [f"not computed {name}: {why}" for name, why in found.refused.items()]
    lines += [f"note         {found.reason}"] if found.reason else []
    return "\n".join(lines)


def as_json(found: Parity) -> dict[str, Any]:
    """The same as values; what is not a number becomes None."""
    values: dict[str, Any] = asdict(found) | {"trust": found.trust, "schema": "parity/1"}
    finite: dict[str, Any] = _finite(values)
    return finite


def _finite(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return value
