"""SERVE: are the answers right, can the load test be trusted, does the service meet its objectives, and where does it bend?

All of it is read from what ``runbook validate`` measured on the server that runs.
"""

from collections.abc import Mapping
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
from runbook.serving import canary, knee, load, slo

HOW = "runbook validate --quick"
ORIGIN = f"read {measured.place('load')}"
BENCH = Source(
    "vLLM 0.19.1: the load generator behind vllm bench serve",
    "https://github.com/vllm-project/vllm/blob/v0.19.1/vllm/benchmarks/serve.py",
    "2026-11-30",
)
SHOWN = 3


@check(
    "SERVE-014",
    layer=Layer.SERVE,
    title="Canary answers are sound, and the same before and after the load",
    why="A server that answers fast and wrongly passes every load test.",
    source=Source(
        "vLLM: reproducibility", "https://docs.vllm.ai/en/stable/usage/reproducibility/", "2026-11-30"
    ),
    cost=Cost.LIVE,
    needs_target=True,
)
def canaries(host: Probe) -> Answer:
    """Greedy answers with token ids and log-probabilities: alone, all at once, and alone again after the load."""
    facts = measured.of(host, "load", HOW)
    if isinstance(facts, Answer):
        return facts
    asked = facts["canaries"]
    before, after, together = asked["before"], asked["after"], asked["together"]
    every = [
        *before.items(),
        *after.items(),
        *((name, one) for name, some in together.items() for one in some),
    ]
    faults = [each for name, one in every for each in canary.sound(name, one)]
    drifted = [one for name in before if (one := canary.moved(name, before[name], after[name]))]
    copies = [(name, one) for name, some in together.items() for one in some]
    swayed = [one for name, twin in copies if (one := canary.moved(name, before[name], twin))]
    seen = (
        Evidence("answers", len(every), ORIGIN),
        Evidence("unsound", len(faults), ORIGIN),
        Evidence("changed by the load", f"{len(drifted)} of {len(before)}", ORIGIN),
        Evidence("changed by company", _swayed(swayed, len(copies)), ORIGIN),
    )
    look = Fix("Ask one of them by hand, and read the server's log", ("runbook status",), Risk.NONE)
    if canary.silent(list(before.values())):
        return fail(*seen, fix=Fix("Look at the stop tokens and max_tokens in generation_config.json", ("runbook model",), Risk.RESTART), reason="the server answers nothing: every answer ends with its first token")  # fmt: skip
    lost = [one for one in drifted if not one.tie]
    if faults or lost:
        wrong = (
            f"{faults[0].which}: {faults[0].says}"
            if faults
            else f"{lost[0].which}: token {lost[0].place} is another one after the load, and no tie"
        )
        return fail(*seen, fix=look, reason=wrong)
    if drifted:
        return warn(*seen, reason="at near ties another token was chosen after the load")
    if swayed:
        return warn(*seen, reason="company in the batch changes greedy answers; a trainer must know")
    return ok(*seen)


def _swayed(swayed: list[canary.Moved], number: int) -> str:
    ties = sum(one.tie for one in swayed)
    return f"{len(swayed)} of {number}" + (f", {ties} of them at near ties" if swayed else "")


@check(
    "SERVE-015",
    layer=Layer.SERVE,
    title="The load test can be trusted",
    why="Zero tokens, a client at its limit or a proxy that buffers give beautiful figures of something else than the server.",
    source=BENCH,
    cost=Cost.LIVE,
    needs_target=True,
)
def trusted(host: Probe) -> Answer:
    """Each load as the client and as the server's counters saw it, held against each other."""
    facts = measured.of(host, "load", HOW)
    if isinstance(facts, Answer):
        return facts
    pair = [load.of_row(row) for row in facts["pair"]]
    steps = [*load.steps(facts), *(load.of_row(row) for row in facts["features"]), *pair]
    told = [(step, one) for step in steps for one in load.doubts(step)]
    told.sort(key=lambda pair: pair[1].weight != load.FAIL)
    cores = [step.client_cores for step in steps if step.client_cores is not None]
    seen = (
        Evidence("loads", len(steps), ORIGIN),
        Evidence("requests", sum(len(step.requests) for step in steps), ORIGIN),
        Evidence("output tokens, client", sum(step.output_tokens for step in steps), ORIGIN),
        Evidence("output tokens, server", _counted(steps), ORIGIN),
        Evidence("finished, server", _reasons(steps), ORIGIN),
        Evidence("client (cores, at most)", round(max(cores), 2) if cores else None, ORIGIN),
        *_side_by_side(pair),
        *(
            Evidence(one.kind, f"{step.name}, {knee.named(step)}: {one.says}"[:300], ORIGIN)
            for step, one in told[:SHOWN]
        ),
    )
    if not told:
        return warn(*seen, reason="two generators tell different times of the same load") if load.apart(pair) else ok(*seen)  # fmt: skip
    worst = told[0][1]
    said = f"{worst.kind}: {worst.says}"
    if worst.weight == load.FAIL:
        return fail(*seen, fix=FIXES.get(worst.kind, AGAIN), reason=said)
    if facts["quick"] and facts["device"] == "cpu" and {one.kind for _, one in told} == {load.SLOW}:
        # The engine computes on the very cores that the client runs on: that it waits is known, and what for.
        return warn(
            *seen, reason=f"on a CPU client and engine share the cores, so its times are no server's; {said}"
        )
    return unknown(said, *seen)


AGAIN = Fix("Find out why, and load it again", ("runbook validate",), Risk.NONE)
FIXES = {
    "zero tokens": Fix("Look at max_tokens, the stop tokens and the canaries", ("runbook check SERVE-014",)),
    "failed requests": Fix("Read what the server said, then load it again", ("runbook status",)),
    "another server": Fix("Find out who started it anew, then load it again", ("runbook status",)),
    "counters disagree": Fix("Stop whoever else uses the server, then load it again", ("runbook validate",)),
    "client-bound": Fix("Load it from a machine or cores of its own, or by several clients", ()),
    "buffered stream": Fix("Ask the server directly, without the proxy between", ()),
}


def _side_by_side(pair: list[load.Step]) -> list[Evidence]:
    seen = [Evidence(step.name, _row(step), ORIGIN) for step in pair]
    if len(pair) == 2 and all(step.good for step in pair):  # noqa: PLR2004 - a pair
        first, second = ((load.median_ms(step, "e2e") or 0.0, step.rps) for step in pair)
        told = f"e2e {second[0] / first[0] - 1:+.0%}, answers/s {second[1] / first[1] - 1:+.0%}"
        seen.append(Evidence(f"{pair[1].name} against {pair[0].name}", told, ORIGIN))
    return seen


def _counted(steps: list[load.Step]) -> int | None:
    found = [step.server.grown.get("generation_tokens") for step in steps if step.server]
    return int(sum(each for each in found if each is not None)) if found else None


def _reasons(steps: list[load.Step]) -> str | None:
    sums: dict[str, float] = {}
    for step in steps:
        for name, number in (step.server.reasons if step.server else {}).items():
            sums[name] = sums.get(name, 0.0) + number
    return ", ".join(f"{number:g} by {name}" for name, number in sorted(sums.items())) or None


@check(
    "SERVE-016",
    layer=Layer.SERVE,
    title="The service meets its objectives",
    why="A mean hides the users who wait; a percentile of thirty requests hides how little is known of it.",
    source=Source(
        "SciPy: quantile_test, the confidence interval of a quantile",
        "https://docs.scipy.org/doc/scipy/reference/generated/scipy.stats.quantile_test.html",
        "2026-11-30",
    ),
    cost=Cost.LIVE,
    needs_target=True,
    requires=("SERVE-015",),
)
def objectives(host: Probe) -> Answer:
    """Each objective against the interval of its figure, all at one load; without any, the articles' yardstick on a GPU."""
    facts = measured.of(host, "load", HOW)
    if isinstance(facts, Answer):
        return facts
    asked = slo.read(facts["objectives"])
    if not asked and facts["device"] != "cuda":
        return skip("no objective for a rehearsal on a CPU; runbook validate --slo tpot_ms=200 gives one")
    wanted = asked or slo.read([f"{name}={limit:g}" for name, limit in _yardstick(facts).items()])
    found = slo.best(wanted, load.steps(facts))
    seen = (
        Evidence("at", f"{knee.named(found.step)}, {len(found.step.good)} requests", ORIGIN),
        Evidence("lengths (tokens)", "{} in, {} out".format(*facts["lengths"]), ORIGIN),
        *(Evidence(one.objective.name, one.text(), ORIGIN) for one in found.held),
    )
    if found.verdict == slo.MET:
        return ok(*seen)
    if not asked:
        return warn(*seen, reason="the articles' figures, which name no lengths; give your own with runbook validate --slo")  # fmt: skip
    if found.verdict == slo.MISSED:
        return fail(*seen, fix=Fix("See what binds, and serve with another profile or more cards", ("runbook limits", "runbook serve --plan"), Risk.RESTART))  # fmt: skip
    return unknown("the samples do not tell yet", *seen)


def _yardstick(facts: Mapping[str, Any]) -> dict[str, float]:
    """A quick load is no measure of throughput."""
    return {name: limit for name, limit in slo.YARDSTICK.items() if name != "rps" or not facts["quick"]}


@check(
    "SERVE-017",
    layer=Layer.SERVE,
    title="It is known from which load on latency bends",
    why="Beyond the knee every added request only waits; below it a part of the machine stands idle.",
    source=BENCH,
    cost=Cost.LIVE,
    needs_target=True,
    requires=("SERVE-015",),
)
def bends(host: Probe) -> Answer:
    """Loads in rising order, and the first that was not worth it."""
    facts = measured.of(host, "load", HOW)
    if isinstance(facts, Answer):
        return facts
    steps = load.steps(facts)
    if facts["quick"]:
        return skip("one quick load shows no knee; runbook validate raises it step by step")
    found = knee.find(steps)
    seen = (
        Evidence("knee", None if found.at is None else knee.named(steps[found.at]), ORIGIN),
        Evidence("because", found.says, ORIGIN),
        *(Evidence(knee.named(step), _row(step), ORIGIN) for step in steps),
        *(Evidence(f"with {step.name}", _row(step), ORIGIN) for step in map(load.of_row, facts["features"])),
    )
    if found.at is None:
        return warn(*seen, reason="no load that was tried bent it: ask for higher ones with --steps")
    return ok(*seen)


def _row(step: load.Step) -> str:
    return (
        f"{step.rps:.3g}/s, {step.tps:.4g} tokens/s, TTFT {_ms(step, 'ttft')}, TPOT {_ms(step, 'tpot')}, e2e {_ms(step, 'e2e')} ms"
        + (f", waiting {step.waiting:.0%}" if step.waiting else "")
    )


def _ms(step: load.Step, what: str) -> str:
    value = load.median_ms(step, what)
    return "-" if value is None else f"{value:.4g}"


CHECKS = (canaries, trusted, objectives, bends)
