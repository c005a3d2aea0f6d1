"""WARM: what a warm-up showed, by the file it wrote: that it ended by its own criterion, and what a new request waits now."""

import statistics
from typing import Any

from runbook.checks import measured
from runbook.model import (
    Answer,
    Cost,
    Evidence,
    Fix,
    Layer,
    Risk,
    Source,
    check,
    fail,
    ok,
    skip,
    unknown,
    warn,
)
from runbook.probe import Probe
from runbook.serving import warm

KIND = "warm"
HOW = "runbook warm-up"
ORIGIN = f"read {measured.place(KIND)}"
AGAIN = Fix("Warm it up when the machine is quiet, with more time", (f"{HOW} --cap 300",), Risk.NONE)
WARMED = Source("docs/warmup.md: how the criterion works", "docs/warmup.md", "2026-11-30")


@check(
    "WARM-012",
    layer=Layer.WARM,
    title="The warm-up ended because nothing got faster any more and nothing was compiled",
    why="A fixed number of warm-up requests is a guess; figures taken while waits still fall are not the server's.",
    source=WARMED,
    cost=Cost.LIVE,
    needs_target=True,
    requires=("WARM-001",),
)
def ended(host: Probe) -> Answer:
    """How it ended, the last comparison of rounds, and what was compiled in the last round."""
    facts = measured.of(host, KIND, HOW)
    if isinstance(facts, Answer):
        return facts
    trend = facts["trend"]
    seen = [
        Evidence("ended", facts["ended"], ORIGIN),
        Evidence("rounds", facts["rounds"], ORIGIN),
        Evidence("requests", facts["requests"], ORIGIN),
        Evidence("took (s)", facts["seconds"], ORIGIN),
        Evidence("best before / last round", _with_interval(trend), ORIGIN),
    ]
    if facts["stalled"]:
        seen.append(Evidence("stalled in the last round", ", ".join(facts["stalled"]), ORIGIN))
    if facts["log_seen"]:
        seen.append(Evidence("compiled in the last round", _compiled(facts), ORIGIN))
    if facts["ended"] == "flat":
        if not facts["log_seen"]:
            seen.append(
                Evidence("compiled in the last round", None, "its log and caches are not ours to see")
            )
        return ok(*seen)
    if facts["ended"] == "noisy":
        reason = (
            "rounds differ too much to say whether waits still fall: the machine is busy with something else"
        )
        return warn(*seen, fix=AGAIN, reason=reason)
    return warn(
        *seen, fix=AGAIN, reason="it ended at its cap: waits still fell, or something was still compiled"
    )


FELT_S = 0.02
"""Below this a ratio of small waits is a matter of two cores' scheduling, and nobody waits: it warns and does not fail."""


@check(
    "WARM-013",
    layer=Layer.WARM,
    title=f"A request of a new kind waits at most {warm.WITHIN} times as long as its repeats",
    why="That is what a warm-up is for: the first user of a length, a schema or a batch pays no bill of the server's start.",
    source=WARMED,
    cost=Cost.LIVE,
    needs_target=True,
    requires=("WARM-012",),
)
def same(host: Probe) -> Answer:
    """Kinds that were never sent, each with prompts that were never sent: the first of each over the median of its repeats."""
    facts = measured.of(host, KIND, HOW)
    if isinstance(facts, Answer):
        return facts
    new = facts["new"]
    seen = [
        Evidence("first over steady", _with_interval(new), ORIGIN),
        Evidence("kinds", len(new["kinds"]), ORIGIN),
        Evidence("the very first request (s)", facts["first_s"], ORIGIN),
        Evidence("a first request now (s)", facts["now_s"], ORIGIN),
        Evidence("the dearest first", f"{facts['slowest_first_s']:.3f} s ({facts['slowest_first']})", ORIGIN),
    ]
    if facts.get("after_rest_s") is not None:  # a recording may be older
        seen.append(Evidence(f"after {facts['rest_s']:g} s of rest (s)", facts["after_rest_s"], ORIGIN))
    if facts["asked_before"]:
        seen.append(Evidence("requests before the warm-up", facts["asked_before"], ORIGIN))
    if new["value"] is None or new["low"] is None or new["high"] is None:
        return unknown("too few kinds were answered for an interval", *seen)
    extra_s = statistics.median(one["first_s"] - one["steady_s"] for one in new["kinds"])
    if new["low"] > warm.WITHIN and extra_s >= FELT_S:
        return fail(*seen, fix=AGAIN, reason="the first of a kind waits longer than its repeats")
    if new["low"] > warm.WITHIN:
        return warn(*seen, fix=AGAIN, reason=f"the first of a kind waits longer, by {1000 * extra_s:.0f} ms")
    doubt = _doubt(new)
    return warn(*seen, fix=AGAIN, reason=doubt) if doubt else ok(*seen)


def _doubt(new: dict[str, Any]) -> str:
    if new["stalled"]:
        return f"one kind stood still at its first request: {', '.join(new['stalled'])}"
    if new["value"] > warm.WITHIN:
        return "more than allowed, though within the noise of this machine; measure again"
    if new["high"] > warm.KNOWN:
        return "the machine is too busy for a narrower interval; measure again"
    return ""


@check(
    "WARM-014",
    layer=Layer.WARM,
    title="Every kind of request the server takes was warmed",
    why="A kernel, grammar or sampler that only one kind of request needs is built when the first such request comes.",
    source=WARMED,
    cost=Cost.LIVE,
    needs_target=True,
    requires=("WARM-001",),
)
def every_shape(host: Probe) -> Answer:
    """The shapes that were sent, and those that the server refused, which it does not serve."""
    facts = measured.of(host, KIND, HOW)
    if isinstance(facts, Answer):
        return facts
    names = [row["name"] for row in facts["shapes"]]
    refused: dict[str, str] = facts["refused"]
    seen = [
        Evidence("shapes", len(names), ORIGIN),
        Evidence("longest prompt", _longest(names), ORIGIN),
        Evidence("not served", ", ".join(refused) or "none", ORIGIN),
    ]
    if not names:
        return skip("no shape was answered", *seen)
    lost = [row["name"] for row in facts["shapes"] if row["name"] in refused]
    if lost:
        return warn(*seen, reason=f"served once and refused later: {', '.join(lost)}: {refused[lost[0]]}")
    return ok(*seen)


def _longest(names: list[str]) -> str | None:
    return next(
        (name.removeprefix("prompt of ") for name in reversed(names) if name.startswith("prompt of")), None
    )


def _compiled(facts: dict[str, Any]) -> str:
    if not facts["compiled"] and not facts["cache_files"]:
        return "nothing"
    words = f"{facts['compiled']} lines of the log, {facts['cache_files']} files"
    return f"{words}: {facts['compiled_example']}" if facts["compiled_example"] else words


def _with_interval(one: dict[str, float | None]) -> str | None:
    if one["value"] is None:
        return None
    low, high = (f"{end:.2f}" if (end := one[name]) is not None else "?" for name in ("low", "high"))
    return f"{one['value']:.2f} ({low} to {high})"


CHECKS = (ended, same, every_shape)
