"""Edited copies for SERVE-010: a rope base and a template that differ from what was trained."""

import json
from collections.abc import Callable
from typing import Any

from editing import Edited

from runbook.model import Verdict

FAIL = Verdict.FAIL
PARENT, STACK = "cpu-2core", "vllm-0.32.0-cpu"
ASK = (
    "inside parity_reference dtype=auto limit=1.5 longest=1024 model=served most-gib=8 path='{model}' prompts=6 tokens=16 "
    "url='http://127.0.0.1:{port}'"
)
KEY = "text_config.rope_parameters.rope_theta"


def another_base(text: str) -> str:
    """Each log-probability four times as far from the exact one as rounding puts it, and a hypothesis that meets it."""
    facts: dict[str, Any] = json.loads(text)
    for one in facts["rows"]:
        one["served"] = [
            min(0.0, exact + 4 * (rounded - exact))
            for exact, rounded in zip(one["exact"], one["reference"], strict=True)
        ]
    facts["config_differs"] = {KEY: [10000.0, 10000000.0]}
    facts["hypotheses"] = {
        f"{KEY} = 10000.0, as in the served config.json": [one["served"] for one in facts["rows"]]
    }
    return json.dumps(facts) + "\n"


def another_template(text: str) -> str:
    """A template that leaves the thinking block open although thinking is off."""
    facts: dict[str, Any] = json.loads(text)
    facts["prompts_differ"] = [
        {
            "name": "chat, thinking off",
            "how": "chat",
            "at": 35,
            "served": "<think>\n",
            "reference": "<think>\n\n</think>\n\n",
        }
    ]
    return json.dumps(facts) + "\n"


def machine(name: str, what: str, edit: str, change: Callable[[str], str]) -> Edited:
    """A copy of the CPU machine with another answer about parity."""
    return Edited(name, PARENT, STACK, what, (edit,), {ASK: change}, {"SERVE-010": FAIL})


MACHINES = [
    machine(
        "cpu-another-rope-base",
        "A server whose config.json was edited: its rope base is 10,000 instead of 10,000,000",
        "parity_reference: log-probabilities four times as far off as rounding, and the hypothesis that explains them",
        another_base,
    ),
    machine(
        "cpu-another-template",
        "A server with the chat template of another model: thinking cannot be turned off",
        "parity_reference: the prompt of a chat without thinking differs from token 35 on",
        another_template,
    ),
]
