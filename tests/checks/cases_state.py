"""SERVE-019, SERVE-020: what follows from one look at the server, as ``runbook.actions.looking`` prints it."""

import json
from typing import Any

from host import FAIL, OK, UNKNOWN, WARN, Case, Row, ran, table

ASK = "run '{own}/python' -m runbook.actions.looking '{work}/jobs'"
REST = {"running": 0.0, "waiting": 0.0, "kv_use": 0.0, "prompt_tokens": 2.0, "generation_tokens": 4.0, "finished": 1.0}  # fmt: skip
NOTHING: dict[str, None] = dict.fromkeys(REST)
WORK = REST | {"running": 3.0, "waiting": 2.0, "kv_use": 0.4}
LATER = WORK | {"generation_tokens": 90.0}
UP: dict[str, Any] = {
    "name": "server", "alive": True, "pid": 4710, "port": 32995, "began": 1796066717.9, "up_s": 216.0,
    "stack": "vllm-0.32.0-cpu", "model": "tiny-qwen3.5", "was_ready": True, "words": "GET /health", "health": 200,
    "processes": 3, "rss": 2_997_268_480, "cores": 0.01, "window_s": 0.6, "before": REST, "after": REST,
    "log": "/w/jobs/server.log", "log_bytes": 119_458, "disk_free": 34_030_723_072,
}  # fmt: skip
OVER: dict[str, Any] = {"name": "server", "log": "/w/jobs/server.log", "log_bytes": 119_458, "disk_free": 34_030_723_072}  # fmt: skip


def look(**changes: Any) -> str:
    return json.dumps(UP | changes)


def over(
    reason: str, text: str, code: int | None, signal: int | None, kills: int | None = 0, **more: Any
) -> str:
    end = {
        "reason": reason,
        "text": text,
        "exit_code": code,
        "signal": signal,
        "ended": 1.0,
        "oom_kills": kills,
    }
    return json.dumps(OVER | {"ended": end} | more)


KILLED = "exited (SIGKILL) after 325.0 s"
DIED = "Engine core proc EngineCore died unexpectedly, shutting down client."
CASES: list[Case] = [
    *table(
        "SERVE-019",
        {},
        Row("waits", OK, {ASK: look()}, {"state": "ready, idle", "/health": 200, "processes": 3, "requests running": 0}),
        Row("works", OK, {ASK: look(before=WORK, after=LATER, cores=1.8)}, {"state": "ready, busy", "requests running": 3, "requests waiting": 2}),
        Row("the last request ended in between", OK, {ASK: look(before=WORK, after=REST | {"finished": 4.0})}, {"state": "ready, busy"}),
        Row("exports no counters", OK, {ASK: look(before=NOTHING, after=NOTHING)}, {"state": "ready, idle"}),
        Row("its metrics come too late", UNKNOWN, {ASK: look(before=WORK, after=None, cores=1.9)}, says="/metrics did not in time; its processes used 1.9 cores"),
        Row("its engine is stopped", FAIL, {ASK: look(stopped=["4711 VLLM::EngineCore"], health=None, before=None, after=None)}, {"state": "stuck", "stopped by a signal": "4711 VLLM::EngineCore"}, says="kill -CONT 4711"),
        Row("stopped while it starts", FAIL, {ASK: look(was_ready=False, health=None, stopped=["4710 python"])}, {"state": "stuck"}),
        Row("stands still and does nothing", FAIL, {ASK: look(before=WORK, after=WORK, window_s=10.2)}, {"state": "stuck"}, says="runbook stop"),
        Row("stands still and does nothing, for a second", UNKNOWN, {ASK: look(before=WORK, after=WORK, window_s=1.0)}, says="no token was counted in 1.0 s"),
        Row("stands still and computes", UNKNOWN, {ASK: look(before=WORK, after=WORK, window_s=10.2, cores=1.9)}, says="a long prompt, or a loop"),
        Row("stands still and compiles for two minutes", UNKNOWN, {ASK: look(before=WORK, after=WORK, window_s=121.0, cores=1.9, compilers=2)}, says="2 compilers are at work"),
        Row("stands still and computes for two minutes", FAIL, {ASK: look(before=WORK, after=WORK, window_s=121.0, cores=1.9)}, {"state": "stuck"}, says="py-spy"),
        Row("nothing runs and all waits", FAIL, {ASK: look(before=REST | {"waiting": 5.0}, after=REST | {"waiting": 5.0}, window_s=10.2)}, {"state": "stuck", "requests waiting": 5}),
        Row("answers no more", FAIL, {ASK: look(health=0, said="ReadTimeout: timed out", before=None, after=None)}, {"state": "stuck", "/health": 0}),
        Row("answers no more and computes", UNKNOWN, {ASK: look(health=0, said="ReadTimeout: timed out", cores=1.0, before=None, after=None)}, says="ReadTimeout"),
        Row("its engine is dead", FAIL, {ASK: look(health=503, root=DIED, before=None, after=None)}, {"state": "dead", "/health": 503, "why": f"/health answers 503: the engine behind it is dead: {DIED}"}),
        Row("starts", UNKNOWN, {ASK: look(was_ready=False, health=0, said="ConnectError", words="Loading weights", doing="1.0 cores")}, says="Loading weights"),
        Row("was killed", FAIL, {ASK: over("exited", KILLED, None, 9)}, {"state": "dead", "why": f"{KILLED}: killed from outside, and nothing in its log says why"}),
        Row("was killed for its memory", FAIL, {ASK: over("exited", KILLED, None, 9, 1, memory_limit="limit of its control group 2000 MiB")}, {"why": f"{KILLED}: out of memory: the kernel killed 1 of its processes; limit of its control group 2000 MiB"}),
        Row("its engine was killed for its memory", FAIL, {ASK: over("exited", "exited (exit code 0) after 9.0 s", 0, None, 1, root=DIED)}, {"why": "exited (exit code 0) after 9.0 s: out of memory: the kernel killed 1 of its processes"}),
        Row("had no more address space", FAIL, {ASK: over("exited", "exited (exit code 1) after 9.0 s", 1, None, root="MemoryError", memory_limit="address space limited to 4000 MiB (ulimit -v)")}, {"why": "exited (exit code 1) after 9.0 s: out of memory: MemoryError; address space limited to 4000 MiB (ulimit -v)"}),
        Row("had no more memory on the card", FAIL, {ASK: over("exited", "exited (exit code 1) after 9.0 s", 1, None, root="torch.OutOfMemoryError: CUDA out of memory.", memory_limit="x")}, {"why": "exited (exit code 1) after 9.0 s: out of memory on the card: torch.OutOfMemoryError: CUDA out of memory."}),
        Row("its engine was killed", FAIL, {ASK: over("exited", "exited (exit code 0) after 9.0 s", 0, None, root=DIED)}, {"why": f"exited (exit code 0) after 9.0 s: {DIED}"}),
        Row("no record of its end", FAIL, {ASK: json.dumps(OVER | {"lost": True})}, {"state": "dead", "why": "it was killed, and its keeper too: there is no end record"}),
        Row("was stopped", UNKNOWN, {ASK: over("stopped", "stopped (exit code 0) after 9.0 s", 0, None)}, {"state": "stopped"}, says="stopped"),
        Row("its owner ended", UNKNOWN, {ASK: over("owner gone", "owner gone (exit code 0) after 9.0 s", 0, None)}, {"state": "stopped"}),
        Row("was never started", UNKNOWN, {ASK: json.dumps(OVER)}, {"state": "none"}, says="nothing of that name"),
        Row("the look broke", UNKNOWN, {ASK: ran("Traceback", 1)}, {"exit code": 1}),
        Row("the look took too long", UNKNOWN, {ASK: ran("", -9, timed_out=True)}),
        Row("an answer that is none", UNKNOWN, {ASK: "[1, 2"}),
        Row("an answer of another kind", UNKNOWN, {ASK: '{"name": 7}'}),
    ),
    *table(
        "SERVE-020",
        {},
        Row("small", OK, {ASK: look()}, {"log (MiB)": 0, "dropped of it (MiB)": 0, "free on its disk (MiB)": 32454, "largest file (MiB)": "unlimited"}),
        Row("a full disk", FAIL, {ASK: look(disk_free=4096)}, {"free on its disk (MiB)": 0}, says="being lost"),
        Row("of a server that is gone", FAIL, {ASK: json.dumps(OVER | {"disk_free": 0})}, says="the disk is full"),
        Row("little room", WARN, {ASK: look(disk_free=500 << 20)}, says="little room"),
        Row("a flood", WARN, {ASK: look(log_bytes=250 << 20, log_dropped=900 << 20)}, {"log (MiB)": 250, "dropped of it (MiB)": 900}, says="a flood"),
        Row("a limit of file size", WARN, {ASK: look(file_limit=8 << 20)}, {"largest file (MiB)": 8}, says="ulimit -f"),
        Row("a limit above the cap", OK, {ASK: look(file_limit=1 << 30)}, {"largest file (MiB)": 1024}),
        Row("no log", UNKNOWN, {ASK: look(log_bytes=0)}, says="no log"),
        Row("a disk that does not tell", UNKNOWN, {ASK: look(disk_free=None)}, says="cannot be told"),
        Row("the look broke", UNKNOWN, {ASK: ran("", 1)}, {"exit code": 1}),
    ),
]  # fmt: skip
