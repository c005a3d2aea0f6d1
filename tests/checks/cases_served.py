"""WARM, SERVE: what follows from readings of a start and a server."""

import json
from typing import Any

from host import (
    CPU,
    FAIL,
    GPU,
    MISSING,
    OK,
    OLD_CPU,
    SKIP,
    UNKNOWN,
    WARN,
    Case,
    Row,
    ran,
    table,
)

from runbook.probe import Reply

BOOT, LOG, ENDED = (
    "read {work}/jobs/server.boot.json",
    "read {work}/jobs/server.log",
    "read {work}/jobs/server.ended.json",
)
BOOTED = json.dumps({"stack": CPU, "model": "tiny-qwen3.5", "ready_s": 34.7})
TAG = "(EngineCore pid=19038) INFO 11-30 05:56:30 [kv_cache_utils.py:1316] "
CALM = f"{TAG}GPU KV cache size: 932,010 tokens\n{TAG}Maximum concurrency for 2,048 tokens per request: 455.08x\n"
FIRST = "inside openai_requests kind=first model=served n=12 port='{port}'"
TIMES: dict[str, Any] = {
    "logprobs_first_s": 3.0966,
    "logprobs_steady_s": 0.0264,
    "first_s": 0.0519,
    "steady_s": 0.0222,
    "first_over_steady": 2.34,
    "longer_first_over_steady": 1.09,
    "steady_spread": 1.25,
}
REFUSED = {"error": "APIConnectionError: Connection error."}
CACHE = "glob {work}/caches/vllm-0.19.1-cu128/*/*"

WARM = [
    *table(
        "WARM-001",
        {LOG: CALM},
        Row("came up", OK, {BOOT: BOOTED}, {"ready after (s)": 34.7, "stack": CPU, "model": "tiny-qwen3.5"}),
        Row("never became ready", UNKNOWN, {BOOT: None}, says="no boot record"),
        Row("never started", UNKNOWN, {BOOT: None, LOG: None}, says="no boot record"),
        Row("died on the way", FAIL, {BOOT: None, LOG: f"{TAG}up\n(EngineCore pid=9) ERROR 11-30 06:15:47 [core.py:1108] ValueError: too many values to unpack (expected 2)\nRuntimeError: Engine core initialization failed. See root cause above.\n"}, {"first error of the log": "ValueError: too many values to unpack (expected 2)"}, says="died before it was ready"),
        Row("a torn record", UNKNOWN, {BOOT: BOOTED[:20]}),
        Row("a record that is no object", UNKNOWN, {BOOT: "7"}),
        Row("another stack's", UNKNOWN, {BOOT: BOOTED}, {"stack": CPU}, stack=OLD_CPU, says="another stack"),
    ),
    *table(
        "WARM-002",
        {},
        Row("calm", OK, {LOG: CALM}, {"error lines": 0, "exception": "none"}),
        Row("an error line", FAIL, {LOG: CALM + "(APIServer pid=1) ERROR 11-30 06:07:28 [async_llm.py:906] AsyncLLM output_handler failed.\n"}, {"error lines": 1}),
        Row("an exception without a level", FAIL, {LOG: CALM + "RuntimeError: Unexpected head dim size, 32\n"}, {"error lines": 0, "exception": "RuntimeError: Unexpected head dim size, 32"}),
        Row("no log", UNKNOWN, {LOG: None}),
        Row("an empty log", UNKNOWN, {LOG: "\n"}),
    ),
    *table(
        "WARM-003",
        {},
        Row("room for 455", OK, {LOG: CALM}, {"KV cache (tokens)": 932_010, "concurrency at full length": 455.08}),
        Row("room for exactly one", OK, {LOG: CALM.replace("455.08x", "1.00x")}),
        Row("no room for one", FAIL, {LOG: CALM.replace("455.08x", "0.87x")}, {"concurrency at full length": 0.87}, says="max-model-len"),
        Row("the last start counts", FAIL, {LOG: CALM + CALM.replace("455.08x", "0.50x")}),
        Row("the line is gone", UNKNOWN, {LOG: TAG + "up\n"}, {"concurrency at full length": None}),
        Row("no log", UNKNOWN, {LOG: None}),
        Row("a number that is none", UNKNOWN, {LOG: CALM.replace("455.08x", "4.5.08x")}, says="no concurrency line"),
    ),
    *table(
        "WARM-004",
        {},
        Row("paid", OK, {FIRST: TIMES}, {"first request (s)": 0.0519, "steady median (s)": 0.0222, "first_over_steady": 2.34}),
        Row("no answer", FAIL, {FIRST: REFUSED}, {"error": "APIConnectionError: Connection error."}),
    ),
    *table(
        "WARM-005",
        {},
        Row("flat", OK, {FIRST: TIMES}, {"slowest over fastest": 1.25}),
        Row("as uneven as allowed", OK, {FIRST: {**TIMES, "steady_spread": 3.0}}),
        Row("still falling", WARN, {FIRST: {**TIMES, "steady_spread": 11.4}}, {"slowest over fastest": 11.4}, says="measure again"),
    ),
    *table(
        "WARM-006",
        {},
        Row("kept", OK, {CACHE: ("{work}/caches/vllm-0.19.1-cu128/triton/abc", "{work}/caches/vllm-0.19.1-cu128/vllm/x")}, {"cache entries": 2}, stack=GPU),
        Row("nothing kept", WARN, {CACHE: ()}, {"cache entries": 0}, stack=GPU),
        Row("an eager stack", SKIP, {f"glob {{work}}/caches/{CPU}/*/*": ()}, says="enforce-eager"),
    ),
    *table(
        "WARM-007",
        {},
        Row("paid", OK, {FIRST: TIMES}, {"first with logprobs (s)": 3.0966, "then (s)": 0.0264}),
        Row("a busy machine", WARN, {FIRST: {**TIMES, "logprobs_first_s": 0.02, "logprobs_steady_s": 0.4}}, says="measure again"),
    ),
]  # fmt: skip

HEALTH, VERSION, MODELS, METRICS = (
    f"http GET {path}" for path in ("/health", "/version", "/v1/models", "/metrics")
)
NO_SERVER = Reply(0, "ConnectError: [Errno 111] Connection refused")
ASKED = "inside openai_requests kind=serving model=served n=8 port='{port}'"
COMPLETION = {
    "text": " modIser pro machine",
    "finish_reason": "length",
    "prompt_tokens": 23,
    "completion_tokens": 16,
    "seconds": 0.2,
}
CHAT = {
    "role": "assistant",
    "content": " again3 ` lU",
    "finish_reason": "length",
    "prompt_tokens": 35,
    "completion_tokens": 24,
    "seconds": 0.4,
}
STREAM = {
    "chunks": 32,
    "text": " mac then",
    "completion_tokens": 32,
    "ttft_s": 0.1107,
    "last_s": 0.5192,
    "itl_median_s": 0.0125,
}
REPEAT = {
    "calls": 8,
    "distinct_alone": 1,
    "distinct_together": 1,
    "same_alone_and_together": True,
    "text": " m",
}
PARTS: dict[str, Any] = {"completion": COMPLETION, "chat": CHAT, "stream": STREAM, "repeat": REPEAT}
REFUSED_PART = {"error": "BadRequestError: Error code: 400"}
COUNTED = """\
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="served"} 341.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="served"} 596.0
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="served"} 0.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="served"} 36.0
"""
LEFT = "run '{own}/python' -m runbook.actions.left '{work}/jobs'"
STOPPED = json.dumps({"name": "server", "exit_code": 0, "signal": None, "reason": "stopped"})


def part(name: str, **changes: Any) -> dict[str, Any]:
    """What the requests of page 09 gave, with one part changed."""
    return {ASKED: {**PARTS, name: {**PARTS[name], **changes}}}


SERVE = [
    *table(
        "SERVE-001",
        {},
        Row("200 and empty", OK, {HEALTH: Reply(200, "")}, {"status": 200, "body (bytes)": 0}),
        Row("the engine is dead", FAIL, {HEALTH: Reply(503, "")}, {"status": 503}),
        Row("another program", FAIL, {HEALTH: Reply(404, "not found")}, {"status": 404, "body (bytes)": 9}),
        Row("nobody there", FAIL, {HEALTH: NO_SERVER}, {"status": "ConnectError: [Errno 111] Connection refused", "body (bytes)": None}),
    ),
    *table(
        "SERVE-002",
        {BOOT: BOOTED},
        Row("the pinned one", OK, {VERSION: Reply(200, '{"version":"0.32.0"}')}, {"version": "0.32.0", "pinned": "0.32.0", "started from": CPU}),
        Row("with a local tag", OK, {VERSION: Reply(200, '{"version":"0.32.0+cpu"}')}),
        Row("somebody else's", FAIL, {VERSION: Reply(200, '{"version":"0.11.2"}')}, {"version": "0.11.2"}),
        Row("a name in front of ours", FAIL, {VERSION: Reply(200, '{"version":"0.32.01"}')}),
        Row("an object without it", FAIL, {VERSION: Reply(200, "{}")}, {"version": None}),
        Row("a web page", UNKNOWN, {VERSION: Reply(200, "<html>")}, {"status": 200}),
        Row("a number", UNKNOWN, {VERSION: Reply(200, "7")}),
        Row("nobody there", UNKNOWN, {VERSION: NO_SERVER}, {"status": 0}),
    ),
    *table(
        "SERVE-003",
        {},
        Row("refused", OK, {MODELS: Reply(401, '{"error":"Unauthorized"}')}, {"status without key": 401}),
        Row("answered", FAIL, {MODELS: Reply(200, '{"object":"list"}')}, {"status without key": 200}, says="VLLM_API_KEY"),
    ),
    *table(
        "SERVE-004",
        {},
        Row("whole", OK, {ASKED: PARTS}, {"finish_reason": "length", "prompt_tokens": 23, "completion_tokens": 16}),
        Row("it stopped by itself", OK, part("completion", finish_reason="stop", completion_tokens=3)),
        Row("no text", FAIL, part("completion", text="")),
        Row("more tokens than asked", FAIL, part("completion", completion_tokens=17), {"completion_tokens": 17}),
        Row("none counted", FAIL, part("completion", completion_tokens=0)),
        Row("no prompt counted", FAIL, part("completion", prompt_tokens=0)),
        Row("aborted", FAIL, part("completion", finish_reason="abort")),
        Row("refused", FAIL, {ASKED: {**PARTS, "completion": REFUSED_PART}}, {"error": REFUSED_PART["error"]}),
        Row("nobody there", FAIL, {ASKED: REFUSED}, {"error": REFUSED["error"]}),
    ),
    *table(
        "SERVE-005",
        {},
        Row("content", OK, {ASKED: PARTS}, {"role": "assistant", "content": " again3 ` lU"}),
        Row("empty", FAIL, part("chat", content=""), says="reasoning parser"),
        Row("null, as the reasoning parser gives it", FAIL, part("chat", content=None)),
        Row("another role", FAIL, part("chat", role="user")),
        Row("refused", FAIL, {ASKED: {**PARTS, "chat": REFUSED_PART}}),
    ),
    *table(
        "SERVE-006",
        {},
        Row("token by token", OK, {ASKED: PARTS}, {"chunks with text": 32, "TTFT (s)": 0.1107, "tokens": 32}),
        Row("all at once", FAIL, part("stream", chunks=1, last_s=0.1107), {"chunks with text": 1}, says="without the proxy"),
        Row("kept back and then all together", FAIL, part("stream", ttft_s=0.5192)),
        Row("nothing", FAIL, part("stream", chunks=0, ttft_s=None, last_s=None, itl_median_s=None), {"TTFT (s)": None}),
        Row("refused", FAIL, {ASKED: {**PARTS, "stream": REFUSED_PART}}),
    ),
    *table(
        "SERVE-007",
        {},
        Row("repeats", OK, {ASKED: PARTS}, {"distinct answers alone": 1, "distinct at once": 1, "same alone and at once": True}),
        Row("not even alone", FAIL, part("repeat", distinct_alone=3), {"distinct answers alone": 3}),
        Row("not in company", WARN, part("repeat", distinct_together=2, same_alone_and_together=False), {"distinct at once": 2}, says="company"),
        Row("in company otherwise than alone", WARN, part("repeat", same_alone_and_together=False)),
        Row("refused", FAIL, {ASKED: {**PARTS, "repeat": REFUSED_PART}}),
    ),
    *table(
        "SERVE-008",
        {},
        Row("counts", OK, {METRICS: Reply(200, COUNTED)}, {"vllm:prompt_tokens_total": 341, "vllm:generation_tokens_total": 596, "vllm:request_success_total": 36}),
        Row("success by length counts too", OK, {METRICS: Reply(200, COUNTED.replace(" 0.0", " 2.0"))}, {"vllm:request_success_total": 38}),
        Row("stuck at nothing", FAIL, {METRICS: Reply(200, COUNTED.replace("596.0", "0.0"))}, {"vllm:generation_tokens_total": 0}),
        Row("log stats are off", FAIL, {METRICS: Reply(200, "# TYPE python_info gauge\npython_info 1.0\n")}, {"vllm:prompt_tokens_total": None}, says="--disable-log-stats"),
    ),
    *table(
        "SERVE-009",
        {LEFT: "", ENDED: STOPPED},
        Row("stopped", OK, {}, {"ended because": "stopped", "processes left": 0}),
        Row("one is left", FAIL, {LEFT: "4711 VLLM::EngineCore\n"}, {"processes left": 1}, says="Sweep"),
        Row("it died by itself", WARN, {ENDED: STOPPED.replace("stopped", "exited")}, {"ended because": "exited"}, says="did not end because we asked"),
        Row("it still runs", UNKNOWN, {ENDED: None}, says="no end record"),
        Row("a torn record", UNKNOWN, {ENDED: '{"name"'}),
        Row("a record that is no object", UNKNOWN, {ENDED: "[]"}),
        Row("the look failed", UNKNOWN, {LEFT: ran(rc=1, err="Traceback")}),
        Row("no python to look with", UNKNOWN, {LEFT: MISSING}),
    ),
]  # fmt: skip

CASES: list[Case] = [*WARM, *SERVE]
