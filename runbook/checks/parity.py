"""SERVE-010: is what is served what lies in the checkpoint? The judgement itself is ``runbook.parity``."""

from runbook import launch, parity
from runbook.checks.readings import stack_of
from runbook.checks.warm import SERVED
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
from runbook.pins import Stack
from runbook.probe import Probe

SCRIPT = "parity_reference"
# Few and short, so that a walk is held up by seconds; `runbook parity` asks three times as much.
PROMPTS, TOKENS, LONGEST = 6, 16, 1024
# On a CPU a larger reference takes minutes (0.8B needs 4 GiB, 4B needs 21).
MOST_GIB = 8
ORIGIN = f"inside {SCRIPT} path={{model}} url=http://127.0.0.1:{{port}} prompts={PROMPTS} tokens={TOKENS} ..."
LIMIT_S = 600.0


def asked(stack: Stack) -> dict[str, str]:
    """What the script is asked beside a server of that stack."""
    named = {one.flag: one.value for one in launch.flags(stack)}
    return {
        "path": "{model}", "url": "http://127.0.0.1:{port}", "model": SERVED, "dtype": named.get("--dtype", "auto"),
        "prompts": str(PROMPTS), "tokens": str(TOKENS), "longest": str(LONGEST), "most-gib": str(MOST_GIB),
        "limit": str(parity.LIMIT),
    }  # fmt: skip


@check(
    "SERVE-010",
    layer=Layer.SERVE,
    title="The served model's log-probabilities agree with transformers'",
    why="A rope base, a dtype or a template that differs from training shows in no error message, only in worse answers.",
    source=Source("vLLM: bitwise consistent on-policy reinforcement learning", "https://github.com/vllm-project/vllm-project.github.io/blob/main/_posts/2025-11-10-bitwise-consistent-train-inference.md", "2026-11-30"),
    cost=Cost.LIVE,
    needs_target=True,
    requires=("SERVE-004",),
)  # fmt: skip
def agrees(host: Probe) -> Answer:
    """The same greedy tokens asked of the server and computed with transformers, in its dtype and in a finer one."""
    stack = stack_of(host)
    if stack.device == "cuda":
        return skip(
            "beside a server on a GPU the reference has the CPU only, which takes minutes; runbook parity asks"
        )
    facts = host.inside(SCRIPT, asked(stack), timeout_s=LIMIT_S)
    found = parity.compare(facts)
    if "skip" in facts:
        return skip(f"{found.reason}; runbook parity asks with another, or with more time")
    if found.verdict == parity.UNKNOWN:
        return unknown(found.reason)
    seen = [
        Evidence("answers", found.prompts, ORIGIN),
        Evidence("tokens", found.tokens, ORIGIN),
        Evidence("most probable ones", round(found.equal, 4), ORIGIN),
        Evidence("of the rest, ties", f"{sum(one.tie for one in found.divergences)} of {len(found.divergences)}", ORIGIN),
        Evidence("mean difference", float(f"{found.mean_difference:.3g}"), ORIGIN),
        Evidence("largest difference", float(f"{found.max_difference:.3g}"), ORIGIN),
        Evidence(f"error over {found.dtype} noise", round(found.noise_ratio, 2), ORIGIN),
        Evidence("importance ratios", f"{found.importance.least:.3f} to {found.importance.most:.3f}", ORIGIN),
        Evidence("for RL", found.trust, ORIGIN),
    ]  # fmt: skip
    if found.verdict == parity.AGREE:
        return warn(*seen, reason=found.reason) if found.reason else ok(*seen)
    return fail(
        *(Evidence("cause", cause, ORIGIN) for cause in found.causes),
        *seen,
        fix=Fix(
            "Serve the checkpoint as it was trained, with no file of it edited; what must differ goes through --hf-overrides",
            ("runbook parity",),
            Risk.RESTART,
        ),
    )


CHECKS = (agrees,)
