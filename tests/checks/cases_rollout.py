"""SERVE-021 to SERVE-023: rollouts that were asked of the server, and of this start of it."""

import json
from typing import Any

from host import FAIL, OK, OLD_CPU, SKIP, UNKNOWN, WARN, Case, Row, table

FACTS, BOOT = "read {work}/jobs/server.rollout.json", "read {work}/jobs/server.boot.json"
SERVER = {"server": "server.1"}


def sample(tokens: list[int], logprob: float = -1.0) -> dict[str, Any]:
    """An answer; at each place the second best token, 9, lies 0.02 below."""
    best = [[[token, logprob], [9, logprob - 0.02]] for token in tokens]
    return {"tokens": tokens, "logprobs": [logprob] * len(tokens), "best": best, "finish": "length"}


ONE, OTHER = sample([1, 2, 3]), sample([1, 5, 6])
GROUP = {
    "prompt": "short",
    "prompt_tokens": 5,
    "completion_tokens": 6,
    "samples": [ONE, OTHER],
    "anew": [[-1.01, -1.02, -0.99], [-1.0, -1.0, -1.01]],
}
GROUPS = {
    "samples": 2,
    "rows": [GROUP],
    "at_1": {"token_id:4": -0.5, "token_id:5": -2.5},
    "at_half": {"token_id:4": -0.5, "token_id:5": -2.5},
}


def among(*others: dict[str, Any]) -> dict[str, Any]:
    return {"rows": [{"prompt": "long", "how": "greedy", "alone": ONE, "among": {"16 at once": others}}]}


RELOAD = {
    "seconds": 0.043,
    "stale_hits": 192.0,
    "reset": True,
    "different": True,
    "answers": {"before": ONE, "stale": sample([7, 2, 8]), "fresh": OTHER, "back": ONE},
}
SLEEPLESS = "the server was started without VLLM_SERVER_DEV_MODE=1, so it has no endpoint for it"
DIED = "InternalServerError: EngineCore encountered an issue. See stack trace (above) for the root cause."


def facts(**parts: Any) -> dict[str, Any]:
    """The file as written, of this start."""
    return {FACTS: json.dumps({**SERVER, "quick": False, "groups": GROUPS, "batch": among(ONE), **parts})}


NOWHERE: dict[str, Any] = {FACTS: None, BOOT: json.dumps(SERVER)}
EARLIER: dict[str, Any] = {**facts(), BOOT: json.dumps({"server": "server.2"})}
BASE = {**facts(), BOOT: json.dumps(SERVER)}
CASES: list[Case] = [
    *table(
        "SERVE-021",
        BASE,
        Row("sound", OK, {}, {"samples": "2 of 1 prompts, 6 tokens", "distinct": 2, "log-probabilities": "the model's own (raw), whatever the temperature"}),
        Row("of what was sampled from", OK, facts(groups=GROUPS | {"at_half": {"token_id:4": -0.02, "token_id:5": -4.02}}), {"log-probabilities": "of what was sampled from (processed)"}, stack=OLD_CPU),
        Row("logits", FAIL, facts(groups=GROUPS | {"rows": [GROUP | {"samples": [sample([1, 2, 3], 4.5), OTHER], "anew": []}]}), {"fault": "short: a log-probability of 4.5 is above 0"}, says="rl-rollout"),
        Row("one too few", FAIL, facts(groups=GROUPS | {"samples": 3}), {"fault": "short: 2 samples came, 3 were asked for"}),
        Row("nothing computed anew", WARN, facts(groups=GROUPS | {"rows": [GROUP | {"anew": []}]}), says="were not computed anew"),
        Row("refused", FAIL, facts(groups={"error": DIED}), {"refused": DIED}, says="runbook status"),
        Row("not asked", UNKNOWN, NOWHERE, says="runbook rollout"),
        Row("of another start", UNKNOWN, EARLIER, says="another start"),
    ),
    *table(
        "SERVE-022",
        BASE,
        Row("the same", OK, {}, {"greedy, 16 at once": "1 of 1 the same", "rounding": "up to 0.02"}),
        Row("a tie", WARN, facts(batch=among(ONE, sample([1, 9, 4]))), {"greedy, 16 at once": "1 of 2 the same, first at token 1"}, says="importance"),
        Row("no tie", FAIL, facts(batch=among(sample([1, 2, 3], -1.6))), {"beyond rounding": "greedy, 16 at once: long by 0.6"}, says="runbook parity"),
        Row("nothing computed anew", OK, facts(groups=GROUPS | {"rows": [GROUP | {"anew": []}]}), {"rounding": None}),
        Row("the engine died of it", FAIL, facts(batch={"error": DIED}), {"refused": DIED}),
        Row("of another start", UNKNOWN, EARLIER, says="another start"),
    ),
    *table(
        "SERVE-023",
        {**BASE, **facts(reload=RELOAD)},
        Row("new", OK, {}, {"answers changed with the weights": True, "reload (s)": 0.04, "prompt tokens of old weights": "192 found in the prefix cache before it was reset", "answer before the reset": "wrong: of both weights"}),
        Row("still old", FAIL, facts(reload=RELOAD | {"answers": {"before": ONE, "stale": ONE, "fresh": ONE, "back": ONE}}), {"fault": "the answer after the reload is still that of the old weights"}, says="reset_prefix_cache"),
        Row("not back", FAIL, facts(reload=RELOAD | {"answers": {"before": sample([7, 7, 7]), "stale": OTHER, "fresh": OTHER, "back": OTHER}}), {"fault": "the old weights, loaded again, give another answer"}),
        Row("the same weights", UNKNOWN, facts(reload=RELOAD | {"different": False, "stale_hits": 0.0, "answers": {"before": ONE, "stale": ONE, "fresh": ONE, "back": ONE}}), says="--new-weights"),
        Row("no such endpoint", SKIP, facts(reload={"why": SLEEPLESS}), says="VLLM_SERVER_DEV_MODE=1"),
        Row("asked in short", SKIP, facts(), says="full form"),
        Row("not asked", UNKNOWN, NOWHERE, says="runbook rollout"),
    ),
]  # fmt: skip
