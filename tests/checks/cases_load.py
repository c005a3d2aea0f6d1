"""SERVE-014 to SERVE-018: a validation and a soak of this start of the server."""

import json
from typing import Any

from host import FAIL, GPU, OK, SKIP, UNKNOWN, WARN, Case, Row, table
from loads import level, request, step, window

from runbook.serving import load
from runbook.serving.load import Step

LOAD, SOAK, BOOT = (f"read {{work}}/jobs/server.{kind}.json" for kind in ("load", "soak", "boot"))
HERE = {"server": "server.1"}


def answer(tokens: list[int], **changes: Any) -> dict[str, Any]:
    """A canary's answer; at its second place the two best lie 0.1 apart."""
    logprobs = [-1.0] * len(tokens)
    second = [-1.1 if at == 1 else -4.0 for at in range(len(tokens))]
    made = {
        "error": "", "tokens": tokens, "logprobs": logprobs, "top": logprobs, "second": second, "finish": "length",
        "prompt_tokens": 9, "completion_tokens": len(tokens), "prompt_ids": 9,
    }  # fmt: skip
    return made | changes


SAME = answer([5, 6, 7])


def canaries(before: Any = SAME, after: Any = SAME, together: Any = SAME) -> dict[str, Any]:
    return {"before": {"a": before}, "after": {"a": after}, "together": {"a": [SAME, together]}}


CLIMB = (level(1, 40.0, 0.4), level(2, 72.0, 0.45), level(4, 73.6, 0.85))


def facts(*steps: Step, **changes: Any) -> str:
    made: dict[str, Any] = {
        "quick": False, "device": "cpu", "objectives": [], "lengths": [64, 16], "canaries": canaries(),
        "steps": [load.as_row(one) for one in steps or (step(),)], "features": [], "pair": [],
        "generator": "vllm bench serve of 0.32.0", "import_s": 8.0,
    }  # fmt: skip
    return json.dumps(HERE | made | changes)


def rows(*steps: Step) -> list[dict[str, Any]]:
    return [load.as_row(one) for one in steps]


GIB = 2**30
FLAT = [[at / 40, 4.0 * GIB] for at in range(20)]
RISING = [[at / 40, 4.0 * GIB + at * GIB / 40] for at in range(20)]  # 1 GiB an hour
WILD = [[at / 40, 4.0 * GIB + (at % 3) * GIB] for at in range(20)]


def soaked(**changes: Any) -> str:
    made: dict[str, Any] = {
        "asked_s": 1800.0, "seconds": 1800.2, "ended": "done", "orders": {"seconds": 1800.0, "rate": 1.0, "concurrency": 4, "restart": "never"},
        "requests": 1800, "failed": 0, "errors": {}, "tokens": 540000, "stalled_s": 0.0, "slowest_s": 1.3, "late_s": 0.2, "deaths": [], "memory": 24.0 * GIB, "rss": FLAT, "gpu": [], "ours": FLAT, "stretches": 60, "record_bytes": 15000,
    }  # fmt: skip
    return json.dumps(HERE | made | changes)


NOT_YET = {LOAD: None}
ANOTHER = {BOOT: json.dumps({"server": "server.2"})}
DEATH = [600.0, "exited (SIGKILL) after 700.0 s"]

CASES: list[Case] = [
    *table(
        "SERVE-014",
        {BOOT: json.dumps(HERE), LOAD: facts()},
        Row("sound", OK, {}, {"answers": 4, "unsound": 0, "changed by the load": "0 of 1", "changed by company": "0 of 2"}),
        Row("changed by company at a tie", WARN, {LOAD: facts(canaries=canaries(together=answer([5, 9, 7])))}, {"changed by company": "1 of 2, 1 of them at near ties"}, says="a trainer must know"),
        Row("changed by the load at a tie", WARN, {LOAD: facts(canaries=canaries(after=answer([5, 9, 7])))}, {"changed by the load": "1 of 1"}, says="near ties"),
        Row("changed by the load", FAIL, {LOAD: facts(canaries=canaries(after=answer([8, 6, 7])))}, says="a: token 0 is another one after the load, and no tie"),
        Row("answers nothing", FAIL, {LOAD: facts(canaries=canaries(*[answer([2], finish="stop")] * 3))}, says="the server answers nothing"),
        Row("dead after the load", FAIL, {LOAD: facts(canaries=canaries(after={"error": "APIConnectionError: refused"}))}, {"unsound": 1}, says="refused"),
        Row("usage that does not add up", FAIL, {LOAD: facts(canaries=canaries(answer([5, 6, 7], completion_tokens=4)))}, says="usage counts 4 tokens, 3 came"),
        Row("a log-probability above zero", FAIL, {LOAD: facts(canaries=canaries(answer([5, 6, 7], logprobs=[0.5, -1.0, -1.0])))}, says="a log-probability that is none"),
        Row("not measured", UNKNOWN, NOT_YET, says="runbook validate --quick"),
        Row("another start's", UNKNOWN, ANOTHER, says="another start"),
    ),
    *table(
        "SERVE-015",
        {BOOT: json.dumps(HERE), LOAD: facts()},
        Row("both sides agree", OK, {}, {"requests": 40, "output tokens, client": 640, "output tokens, server": 640, "finished, server": "40 by length", "client (cores, at most)": 0.2}),
        Row("zero tokens", FAIL, {LOAD: facts(step(requests=tuple(request(tokens=0) for _ in range(40)), server=window(40, grown={"generation_tokens": 0.0})))}, {"output tokens, client": 0}, says="zero tokens"),
        Row("all failed", FAIL, {LOAD: facts(step(requests=tuple(request(good=False, tokens=0) for _ in range(40)), server=window(0), errors={"401 Unauthorized": 40}))}, says="40 of 40 failed: 401 Unauthorized"),
        Row("the server died", FAIL, {LOAD: facts(step(server=window(0, anew="the server died under the load: exited (SIGKILL)")))}, says="died under the load"),
        Row("somebody else's tokens", FAIL, {LOAD: facts(step(server=window(50)))}, says="Stop whoever else uses the server"),
        Row("client-bound", FAIL, {LOAD: facts(step(client_cores=0.97))}, {"client (cores, at most)": 0.97}, says="cores of its own"),
        Row("a buffered stream", FAIL, {LOAD: facts(step(requests=tuple(request(at / 4, 0.39, 0.01) for at in range(40))))}, says="Ask the server directly"),
        Row("a starved client", UNKNOWN, {LOAD: facts(step(server=window(40, grown={"e2e_sum": 4.0, "decode_sum": 3.0})))}, says="slow path"),
        Row("a starved client in a rehearsal", WARN, {LOAD: facts(step(server=window(40, grown={"e2e_sum": 4.0, "decode_sum": 3.0})), quick=True)}, says="share the cores"),
        Row("a starved client on a GPU", UNKNOWN, {LOAD: facts(step(server=window(40, grown={"e2e_sum": 4.0, "decode_sum": 3.0})), device="cuda", quick=True)}, stack=GPU, says="slow path"),
        Row("no counters in a rehearsal", UNKNOWN, {LOAD: facts(step(server=None), quick=True)}, says="no counters"),
        Row("too few", UNKNOWN, {LOAD: facts(step(4))}, says="too few samples"),
        Row("no counters", UNKNOWN, {LOAD: facts(step(server=None))}, says="no counters"),
        Row("chat counts by a template", OK, {LOAD: facts(features=rows(step(name="chat", input_tokens=None, server=window(40, grown={"prompt_tokens": 9000.0}))))}, {"loads": 2}),
        Row("two generators agree", OK, {LOAD: facts(pair=rows(step(name="vllm bench"), step(name="aiperf", client_cores=None)))}, {"aiperf": "4/s, 64 tokens/s, TTFT 100, TPOT 20, e2e 400 ms", "aiperf against vllm bench": "e2e +0%, answers/s +0%"}),
        Row("two generators differ", WARN, {LOAD: facts(pair=rows(step(name="vllm bench"), step(name="aiperf", requests=tuple(request(at / 4, 0.2, 0.4) for at in range(40)), server=window(40, grown={"e2e_sum": 22.0}))))}, says="two generators"),
        Row("not measured", UNKNOWN, NOT_YET),
    ),
    *table(
        "SERVE-016",
        {BOOT: json.dumps(HERE), LOAD: facts(step(80), objectives=["tpot_ms=200", "rps=2"])},
        Row("met", OK, {}, {"at": "4 at once, 80 requests", "tpot_ms": "p95 20 (20 to 20) ms against 200: met"}),
        Row("not met", FAIL, {LOAD: facts(step(80), objectives=["tpot_ms=10"])}, {"tpot_ms": "p95 20 (20 to 20) ms against 10: not met"}, says="runbook limits"),
        Row("met, each at another load", FAIL, {LOAD: facts(*CLIMB, objectives=["e2e_p50_ms=420", "tps=60"])}),
        Row("too few to tell", UNKNOWN, {LOAD: facts(objectives=["tpot_ms=200"])}, {"tpot_ms": "p95 20 (20 to ?) ms against 200: no verdict; 32 more samples would tell"}),
        Row("a rehearsal", SKIP, {LOAD: facts()}, says="no objective for a rehearsal on a CPU"),
        Row("the yardstick on a GPU", OK, {LOAD: facts(step(96), device="cuda", quick=True)}, {"tpot_ms": "p95 20 (20 to 20) ms against 200: met"}, stack=GPU),
        Row("short of the yardstick", WARN, {LOAD: facts(step(96), device="cuda")}, stack=GPU, says="name no lengths"),
        Row("not measured", UNKNOWN, NOT_YET),
    ),
    *table(
        "SERVE-017",
        {BOOT: json.dumps(HERE), LOAD: facts(*CLIMB)},
        Row("bends", OK, {}, {"knee": "2 at once", "because": "2 at once gives 72 tokens/s; 4 at once brings +2%, a request takes 1.9 times as long"}),
        Row("does not bend", WARN, {LOAD: facts(*CLIMB[:2])}, {"knee": None}, says="--steps"),
        Row("one quick load", SKIP, {LOAD: facts(quick=True)}, says="runbook validate raises it"),
        Row("not measured", UNKNOWN, NOT_YET),
    ),
    *table(
        "SERVE-018",
        {BOOT: json.dumps(HERE), SOAK: soaked()},
        Row("flat", OK, {}, {"minutes of load": 30.0, "requests": 1800, "deaths": 0, "memory": "0 MiB/h, between 0 and 0: at most 0 MiB in 72 h, of 24576 there are"}),
        Row("a leak", FAIL, {SOAK: soaked(rss=RISING)}, says="lasts 19.5 h at this rate"),
        Row("a leak on the card", FAIL, {SOAK: soaked(gpu=RISING)}, says="lasts 19.5 h at this rate"),
        Row("it died", FAIL, {SOAK: soaked(deaths=[DEATH], ended="the server died")}, says="SIGKILL"),
        Row("it stood still", FAIL, {SOAK: soaked(stalled_s=45.0)}, {"longest standstill (s)": 45.0}, says="no token came"),
        Row("requests failed", FAIL, {SOAK: soaked(failed=2, errors={"InternalServerError: x": 2})}, says="InternalServerError: x"),
        Row("always full", WARN, {SOAK: soaked(late_s=300.0)}, says="did not keep up"),
        Row("no verdict yet", UNKNOWN, {SOAK: soaked(rss=WILD)}, says="no verdict about memory yet"),
        Row("cut short", UNKNOWN, {SOAK: soaked(ended="interrupted")}, says="--resume"),
        Row("it still runs", UNKNOWN, {SOAK: soaked(ended="running")}, says="it still runs"),
        Row("no memory read", UNKNOWN, {SOAK: soaked(rss=[])}, says="could not be read"),
        Row("no tokens counted", UNKNOWN, {SOAK: soaked(tokens=0)}, says="counters of tokens"),
        Row("not soaked", SKIP, {SOAK: None}, says="runbook soak"),
        Row("another start's", SKIP, ANOTHER, says="no soak was run on this server"),
    ),
]  # fmt: skip
