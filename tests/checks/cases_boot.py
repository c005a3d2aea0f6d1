"""WARM-009 to WARM-011: records of starts, caches and logs that hang together and that do not."""

import json
from typing import Any

from host import CPU, GPU, MISSING, OK, SKIP, UNKNOWN, WARN, Case, Row, ran, table

from runbook.checks.warm import BOOT, LOG
from runbook.probes import questions

RECORD, READ_LOG = f"read {BOOT}", f"read {LOG}"
# The recorded walk's first start on an H200, by the stamps of its log.
PHASES = [
    {"name": name, "seconds": seconds, "about_s": about, "by": by}
    for name, seconds, about, by in (
        ("imports", 6.9, 0.5, "lines"),
        ("inspection", 12.0, 1.0, "lines"),
        ("engine process", 6.0, 1.0, "lines"),
        ("device", 3.0, 1.0, "lines"),
        ("weights", 1.0, 1.0, "lines"),
        ("before torch.compile", 0.98, 1.0, "nothing"),
        ("torch.compile", 29.02, 0.0, "words"),
        ("first run", 105.0, 1.0, "words"),
        ("KV cache", 10.0, 1.0, "lines"),
        ("graphs", 3.0, 1.0, "lines"),
        ("API server", 2.0, 1.0, "lines"),
    )
]
MADE = {"Triton chunk_fwd_kernel_o": 72, "inductor": 9, "torch.compile": 1}


def start(**changes: Any) -> str:
    """A boot record."""
    return json.dumps(
        {
            "at": "2026-11-30T10:31:02+00:00",
            "server": "server.1",
            "stack": GPU,
            "model": "tiny-qwen3.5",
            "fingerprint": {"flags": "ab"},
            "ready_s": 178.9,
            "phases": PHASES,
            "made": {},
            "earlier": 1,
            **changes,
        }
    )


def gap(seconds: float, about: float) -> str:
    """A start with a stretch that no line explains."""
    odd = {
        "name": "until device (no line of: inspection)",
        "seconds": seconds,
        "about_s": about,
        "by": "nothing",
    }
    return start(phases=[*PHASES, odd], ready_s=178.9 + seconds)


OLD = json.dumps({"stack": GPU, "model": "tiny-qwen3.5", "ready_s": 178.9})
NOT_OURS: tuple[Row, ...] = (
    Row("no record", UNKNOWN, {RECORD: None}, says="no boot record"),
    Row("a record of an older runbook", UNKNOWN, {RECORD: OLD}, says="older runbook"),
    Row("a torn record", UNKNOWN, {RECORD: start()[:50]}),
    Row("phases that are none", UNKNOWN, {RECORD: start(phases=7)}),
)

READY = '(APIServer pid=1) INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK\n'
CALM = f"(EngineCore pid=1) INFO 11-30 10:29:01 [backends.py:390] Compiling a graph for compile range (1, 8192) takes 25.22 s\n{READY}"
SPIKE = "(Worker pid=1) WARNING 11-30 10:40:00 [jit_monitor.py:140] Triton kernel JIT compilation during inference: _causal_conv1d_fwd. This causes a latency spike; consider extending warmup to cover this shape/config.\n"
FIND = questions.run(["find", f"{{work}}/caches/{GPU}/", "-type", "f", "-newer", BOOT])
FOUND = f"{{work}}/caches/{GPU}/"

CASES: list[Case] = [
    *table(
        "WARM-009",
        {RECORD: start()},
        Row("an H200's first start", OK, {}, {"ready after (s)": 178.9, "longest phase": "first run, 105.0 s", "unexplained, at least (s)": 0.0}),
        Row("a fifth without a line", WARN, {RECORD: gap(45.0, 1.0)}, {"unexplained, at least (s)": 44.0}, says="until device (no line of: inspection): 45.0 s"),
        Row("a long stretch of which the clocks leave all open", OK, {RECORD: gap(30.0, 30.0)}, {"unexplained, at least (s)": 0.0}),
        *NOT_OURS,
        Row("no phase at all", UNKNOWN, {RECORD: start(phases=[])}),
        stack=GPU,
    ),
    *table(
        "WARM-010",
        {RECORD: start()},
        Row("from the caches", OK, {}, {"earlier starts of its kind": 1, "kernels compiled": 0}),
        Row("the first of its kind", SKIP, {RECORD: start(earlier=0, made=MADE)}, {"kernels compiled": 81}, says="first start"),
        Row("compiled again", WARN, {RECORD: start(made=MADE)}, {"kernels compiled": 81}, says="72 Triton chunk_fwd_kernel_o"),
        Row("only a graph traced again", OK, {RECORD: start(made={"torch.compile": 1})}, {"kernels compiled": 0}),
        *NOT_OURS,
        Row("without a count of earlier ones", UNKNOWN, {RECORD: start(earlier=None)}),
        stack=GPU,
    ),
    *table(
        "WARM-011",
        {READ_LOG: CALM, FIND: ""},
        Row("nothing", OK, {}, {"lines that tell of it": 0, "kernels compiled": 0}),
        Row("a kernel for the first request", WARN, {FIND: f"{FOUND}triton/AB/_causal_conv1d_fwd.cubin\n{FOUND}triton/AB/_causal_conv1d_fwd.json\n"}, {"kernels compiled": 1}, says="Triton _causal_conv1d_fwd"),
        Row("notes, sources and locks", OK, {FIND: f"{FOUND}triton/AB/x.json\n{FOUND}inductor/py/x.cpp\n{FOUND}vllm/x.lock\n"}, {"kernels compiled": 0}),
        Row("a line of a release that watches its kernels", WARN, {READ_LOG: CALM + SPIKE}, {"lines that tell of it": 1}, says="_causal_conv1d_fwd"),
        Row("compiled before ready only", OK, {READ_LOG: SPIKE + CALM}, {"lines that tell of it": 0}),
        Row("no folder of caches", OK, {FIND: ran(rc=1, err="find: No such file or directory")}, {"kernels compiled": 0}),
        Row("no find, and a line", WARN, {FIND: MISSING, READ_LOG: CALM + SPIKE}, {"kernels compiled": None}),
        Row("no find", UNKNOWN, {FIND: MISSING}, says="find"),
        Row("no log", UNKNOWN, {READ_LOG: None}),
        Row("never ready", UNKNOWN, {READ_LOG: SPIKE}),
        stack=GPU,
    ),
    *table(
        "WARM-011",
        {READ_LOG: READY, FIND.replace(GPU, CPU): ""},
        Row("an eager start on a CPU", OK),
    ),
]  # fmt: skip
