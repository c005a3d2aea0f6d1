"""Edited copies on which the model does not fit, or the engine's cache is not what was planned."""

import json
import re
from collections.abc import Callable

from editing import Edited

from runbook import catalogue
from runbook.checkpoint import examine
from runbook.checks.model_readings import CONFIG, EXAMINE
from runbook.checks.warm import LOG
from runbook.model import Verdict
from runbook.parse import nvidia
from runbook.probes import questions

H200, GPU = "h200-vllm-0.19.1", "vllm-0.19.1-cu128"
SMI = questions.run(nvidia.ARGV)


def of_27b() -> str:
    """config.json of the 27B, as the catalogue has it."""
    known = catalogue.find("Qwen/Qwen3.5-27B")
    if known is None:
        raise LookupError("Qwen/Qwen3.5-27B")
    return json.dumps(known.config, indent=1) + "\n"


def without_weights(text: str) -> str:
    """The examination of a folder that holds no weight file yet: the config's shapes count."""
    whole = json.loads(text)
    whole["weights"] = {**whole["weights"], "groups": []}
    return examine.as_json(whole) + "\n"


def tokens(count: int) -> Callable[[str], str]:
    """Another size in the log's line."""
    return lambda text: re.sub(r"(KV cache size: )[\d,]+", rf"\g<1>{count:,}", text)


MACHINES = [
    Edited(
        "h200-model-too-large",
        H200,
        GPU,
        "A card of 24 GiB on which Qwen3.5-27B is to be served.",
        ("nvidia-smi's query says 24564 MiB", "config.json is the 27B's", "the examination names no tensors"),
        {
            SMI: lambda text: text.replace("143771", "24564"),
            f"read {CONFIG}": of_27b(),
            EXAMINE: without_weights,
        },
        {"MODEL-010": Verdict.FAIL, "WARM-008": Verdict.WARN},
    ),
    Edited(
        "h200-cache-smaller-than-planned",
        H200,
        GPU,
        "An H200 whose memory another process shared while the server started.",
        ("the log's 'KV cache size' is 40,000,000 tokens",),
        {f"read {LOG}": tokens(40_000_000)},
        {"WARM-008": Verdict.WARN},
    ),
]
