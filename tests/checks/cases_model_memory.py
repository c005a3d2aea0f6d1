"""MODEL-010 and WARM-008: checkpoints and cards that go together and that do not; starts that agree with their plan or not."""

import json
from typing import Any

from host import CPU, FAIL, GPU, H200, OK, OLD_CPU, SKIP, SMI, UNKNOWN, WARN, Case, Row, table

from runbook import catalogue
from runbook.checks.model_readings import CONFIG, EXAMINE
from runbook.checks.warm import BOOT, LOG

READ, MEMINFO = f"read {CONFIG}", "read /proc/meminfo"
RAM = "MemTotal:       24683656 kB\n"
EXAMINED = json.dumps({"files": [], "weights": {}, "faults": []})
QUIET = "(EngineCore pid=1) INFO 11-30 16:28:41 [kv_cache_utils.py:1319] GPU KV cache size: {:,} tokens\n(EngineCore pid=1) INFO 11-30 16:28:41 [kv_cache_utils.py:1324] Maximum concurrency for 32,768 tokens per request: {}x\n"


def model(name: str, **changes: Any) -> dict[str, Any]:
    """Readings of a published model whose weights are not there, so that its shapes count."""
    known = catalogue.find(f"Qwen/Qwen3.5-{name}")
    assert known is not None
    text = {**known.config["text_config"], **changes}
    return {READ: json.dumps({**known.config, "text_config": text}), EXAMINE: EXAMINED}


def card(name: str, mib: int) -> dict[str, Any]:
    """One card of that name and size."""
    return {SMI: H200.replace("NVIDIA H200", name).replace("143771", str(mib))}


FITS: dict[str, Any] = {**model("4B"), SMI: H200}
STARTED: dict[str, Any] = {**FITS, f"read {BOOT}": json.dumps({"stack": GPU})}
CASES: list[Case] = [
    *table(
        "MODEL-010",
        FITS,
        Row("4B on an H200", OK, {}, {"memory (GiB)": 139.8, "weights (GiB)": 7.96, "binding": "kv_cache"}),
        Row("27B on an H200", OK, model("27B"), {"KV tokens to be logged": 294_000, "sequences of full length": 33.33}),
        Row("27B on 24 GiB", FAIL, {**model("27B"), **card("NVIDIA GeForce RTX 4090", 24564)}, {"binding": "weights"}, says="--tensor-parallel-size 4"),
        Row("4B on 11 GiB", FAIL, card("a card", 11500), {"binding": "max_model_len"}, says="max-model-len"),
        Row("nothing helps", FAIL, {**model("397B-A17B"), **card("a card", 4096)}, {"binding": "weights"}, says="smaller"),
        Row("the smallest of two cards counts", FAIL, {**model("27B"), SMI: H200 + H200.replace("0, NVIDIA", "1, NVIDIA").replace("143771", "24564")}),
        Row("graphs for more than there are states", WARN, {**model("27B"), **card("a card", 69000)}, says="max-cudagraph-capture-size"),
        Row("no GPU answers", SKIP, {SMI: ""}),
        Row("no config", UNKNOWN, {READ: None}),
        Row("a config that says nothing", UNKNOWN, {READ: "{}"}, says="num_hidden_layers"),
        Row("the examination failed", UNKNOWN, {EXAMINE: ""}),
        stack=GPU,
    ),
    *table(
        "MODEL-010",
        {**model("0.8B"), MEMINFO: RAM},
        Row("a cache in RAM", OK, {}, {"memory (GiB)": 23.54, "cache (GiB)": 1.0}),
        Row("RAM that nobody knows", UNKNOWN, {MEMINFO: None}),
        stack=CPU,
    ),
    *table(
        "WARM-008",
        {**STARTED, f"read {LOG}": QUIET.format(934_032, "107.26")},
        Row("as planned", OK, {}, {"tokens planned": 934_560, "tokens logged": 934_032, "error (%)": 0.06, "tokens of context that fit": 3_515_609}),
        Row("two percent are allowed", OK, {f"read {LOG}": QUIET.format(918_000, "105.4")}),
        Row("another process had the card", WARN, {f"read {LOG}": QUIET.format(700_000, "80.38")}, {"error (%)": 33.51}, says="2 %"),
        Row("more than planned", WARN, {f"read {LOG}": QUIET.format(1_200_000, "137.8")}),
        Row("the log says nothing", UNKNOWN, {f"read {LOG}": "up\n"}),
        Row("no log", UNKNOWN, {f"read {LOG}": None}),
        Row("started from another stack", SKIP, {f"read {BOOT}": json.dumps({"stack": OLD_CPU})}),
        Row("no config", UNKNOWN, {READ: None}),
        stack=GPU,
    ),
]  # fmt: skip
