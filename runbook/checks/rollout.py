"""SERVE: is the server ready to generate rollouts for reinforcement learning? The judgement is ``runbook.serving.rollout``."""

from collections.abc import Callable, Mapping
from typing import Any

from runbook.checks import measured
from runbook.model import (
    Answer,
    Check,
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
from runbook.parity import NOTICEABLE
from runbook.probe import Probe
from runbook.serving import rollout

KIND, HOW = "rollout", "runbook rollout"
ORIGIN = f"read {measured.place(KIND)}"
RAW = "the model's own (raw), whatever the temperature"
PROCESSED = "of what was sampled from (processed)"
RESET = Fix(
    "Reset the prefix cache after every reload: POST /reset_prefix_cache, or /pause and /resume around it",
    ("runbook rollout",),
)


def _measured(judge: Callable[[Mapping[str, Any]], Answer], host: Probe, part: str) -> Answer:
    facts = measured.of(host, KIND, HOW)
    return facts if isinstance(facts, Answer) else of(judge, facts, part)


def of(judge: Callable[[Mapping[str, Any]], Answer], facts: Mapping[str, Any], part: str) -> Answer:
    """What a judge below says of what was measured; a part that was refused is a failure with the server's words."""
    asked = facts.get(part)
    if asked is None:
        return skip("asked in the full form only: runbook rollout")
    if "error" in asked:
        return fail(
            Evidence("refused", asked["error"], ORIGIN),
            fix=Fix("See what became of the server", ("runbook status",), Risk.NONE),
        )
    return judge(facts)


def groups(facts: Mapping[str, Any]) -> Answer:
    """Groups of samples with log-probabilities."""
    found = rollout.groups(facts["groups"])
    seen = [
        Evidence("samples", f"{found.samples} of {found.requests} prompts, {found.tokens} tokens", ORIGIN),
        Evidence("distinct", found.distinct, ORIGIN),
        Evidence("log-probabilities", {rollout.RAW: RAW, rollout.PROCESSED: PROCESSED}.get(found.mode, found.mode or None), ORIGIN),
    ]  # fmt: skip
    if found.again is not None and found.median_off is not None:
        seen += [
            Evidence("off when computed anew", f"half by over {found.median_off:.2g}", ORIGIN),
            Evidence("importance ratios", f"{found.again.least:.3f} to {found.again.most:.3f}", ORIGIN),
            Evidence(f"ratios off by over {NOTICEABLE:.0%}", f"{found.again.outside_5:.1%}", ORIGIN),
        ]
    if found.faults:
        faults = [Evidence("fault", fault, ORIGIN) for fault in found.faults]
        return fail(*faults, *seen, fix=Fix("Start it with the flags rollouts need", ("runbook serve --profile rl-rollout",), Risk.RESTART))  # fmt: skip
    if found.again is None:
        return warn(*seen, reason="the server returns no token ids or scores no prompt, so the log-probabilities were not computed anew")  # fmt: skip
    return ok(*seen)


def batch(facts: Mapping[str, Any]) -> Answer:
    """What the batch changes in an answer; how far rounding goes is what computing the samples anew showed."""
    computed = {} if "error" in facts["groups"] else facts["groups"]
    rounding = rollout.groups(computed).rounding if computed else None
    found = rollout.moves(facts["batch"]["rows"], rounding or 0.0)
    seen = [Evidence("rounding", None if rounding is None else f"up to {rounding:.2g}", ORIGIN)]
    for one in found:
        where = "" if one.first is None else f", first at token {one.first}"
        seen += [
            Evidence(f"{one.how}, {one.among}", f"{one.same} of {one.answers} the same{where}", ORIGIN),
            Evidence("log-probabilities moved", f"mean {one.mean:.2g}, most {one.largest:.2g}", ORIGIN),
        ]
    odd = [
        f"{one.how}, {one.among}: {prompt}"
        + ("" if place is None else f" at token {place}")
        + f" by {far:.2g}"
        for one in found
        for prompt, place, far in one.beyond
    ]
    if odd:
        return fail(
            *(Evidence("beyond rounding", line, ORIGIN) for line in odd[:5]),
            *seen,
            fix=Fix("Compare with transformers, alone and in one batch", ("runbook parity",), Risk.NONE),
        )
    if any(one.same < one.answers for one in found):
        return warn(*seen, reason="the same request gives another answer in another batch, at ties within rounding: a trainer corrects by importance, an evaluation repeats")  # fmt: skip
    return ok(*seen)


def weights(facts: Mapping[str, Any]) -> Answer:
    """What comes after a reload in place."""
    if "why" in facts["reload"]:
        return skip(facts["reload"]["why"])
    found = rollout.renewed(facts["reload"])
    seen = (
        Evidence("answers changed with the weights", found.changed, ORIGIN),
        Evidence("reload (s)", round(found.reload_s, 2), ORIGIN),
        Evidence("prompt tokens of old weights", f"{found.stale} found in the prefix cache before it was reset", ORIGIN),
        Evidence("answer before the reset", "wrong: of both weights" if found.stale_differs else "the same", ORIGIN),
    )  # fmt: skip
    if found.faults:
        return fail(*(Evidence("fault", fault, ORIGIN) for fault in found.faults), *seen, fix=RESET)
    if found.changed is None:
        return unknown("the same weights were loaded again: name others with --new-weights", *seen)
    return ok(*seen)


@check(
    "SERVE-021",
    layer=Layer.SERVE,
    title="Groups of samples with log-probabilities are sound",
    why="A trainer weighs each token by what the server says it was worth; one place off, it learns the wrong thing and shows no error.",
    source=Source("TRL: vLLM integration", "https://huggingface.co/docs/trl/main/en/vllm_integration", "2026-11-30"),
    cost=Cost.LIVE,
    needs_target=True,
    requires=("SERVE-001",),
)  # fmt: skip
def groups_are_sound(host: Probe) -> Answer:
    """Several samples of each prompt, and their log-probabilities computed anew as a prompt."""
    return _measured(groups, host, "groups")


@check(
    "SERVE-022",
    layer=Layer.SERVE,
    title="An answer does not turn on what runs beside it, but for ties within rounding",
    why="Kernels add in an order that depends on the batch; beyond rounding, requests disturb each other and no figure can be trusted.",
    source=Source("Thinking Machines: Defeating Nondeterminism in LLM Inference", "https://thinkingmachines.ai/blog/defeating-nondeterminism-in-llm-inference/", "2026-11-30"),
    cost=Cost.LIVE,
    needs_target=True,
    requires=("SERVE-021",),
)  # fmt: skip
def batch_is_known(host: Probe) -> Answer:
    """The same prompts alone, again, and among as many as run at once, greedy and seeded."""
    return _measured(batch, host, "batch")


@check(
    "SERVE-023",
    layer=Layer.SERVE,
    title="After a reload in place, answers are those of the new weights",
    why="vLLM keeps the prefix cache over a reload: prompts already seen are answered from both policies at once, without an error.",
    source=Source("vLLM pull request 46125: whether to reset the prefix cache is left to the user", "https://github.com/vllm-project/vllm/pull/46125", "2026-11-30"),
    cost=Cost.LIVE,
    needs_target=True,
    requires=("SERVE-021",),
)  # fmt: skip
def weights_are_new(host: Probe) -> Answer:
    """A reload from other weights and back: greedy answers before, right after, after a reset of the prefix cache, and back."""
    return _measured(weights, host, "reload")


CHECKS: tuple[Check, ...] = (groups_are_sound, batch_is_known, weights_are_new)
