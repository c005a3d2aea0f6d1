"""One real server under ``vllm bench serve``: a sound load is trusted, and four traps are not."""

import http.client
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import walking
from walking import OLD

from runbook import pins
from runbook.actions import Context
from runbook.actions.bench import Bench, Load
from runbook.actions.gauging import Gauge, own
from runbook.actions.jobs import Job, Jobs, Owner
from runbook.actions.model_files import folder_of
from runbook.actions.server import NAME, StartServer, StopServer
from runbook.actions.validating import Asked, Loads, Validate
from runbook.endpoint import Endpoint
from runbook.serving import load
from runbook.workspace import Workspace

VOCABULARY = 512  # of the tiny checkpoint: whatever token comes first is its end


@pytest.fixture(scope="module")
def ctx(built: Path) -> Iterator[Context]:
    work, stack = Workspace(built), pins.stack(OLD)
    made = Context(work, stack, work.target_python(OLD), True, stack.model, Owner.of(), 300)  # noqa: FBT003
    StartServer(made).apply(walking.tell)
    try:
        yield made
    finally:
        StopServer(made).apply(walking.tell)
        assert walking.left(built) == []


def running(ctx: Context) -> Job:
    job = Jobs(ctx.work.jobs).get(NAME)
    assert job is not None
    return job


def validate(home: Path, *words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Exit code, and findings by id."""
    argv = [sys.executable, "-m", "runbook", "validate", *words, "--format", "json"]
    env = walking.environment(home)
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout, done.stderr
    walking.tell(done.stderr.strip())
    return done.returncode, {one["id"]: one for one in json.loads(done.stdout)}


def seen(finding: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one["value"] for one in finding["evidence"]}


def test_a_sound_load_is_trusted_and_judged(ctx: Context) -> None:
    code, found = validate(
        ctx.work.root, "--quick", "--slo", "tpot_p50_ms=60000", "--slo", "e2e_p50_ms=0.001"
    )
    walking.tell(json.dumps({name: seen(one) for name, one in found.items()}))
    assert [found[f"SERVE-0{number}"]["verdict"] for number in (14, 15, 16, 17)] == ["ok", "ok", "fail", "skip"]  # fmt: skip
    assert code == 1
    told = seen(found["SERVE-015"])
    assert told["output tokens, client"] == told["output tokens, server"] == told["requests"] * 16
    assert told["finished, server"] == f"{told['requests']} by length"
    assert 0 < told["client (cores, at most)"] < load.CLIENT_CORE
    told = seen(found["SERVE-016"])
    assert told["tpot_p50_ms"].endswith(": met")
    assert told["e2e_p50_ms"].endswith(": not met")


class Proxy(http.server.BaseHTTPRequestHandler):
    """Passes requests on; with ``hold`` an answer is collected first, as a proxy does that buffers."""

    protocol_version = "HTTP/1.0"
    port: int
    hold = False

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        there = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with closing(there):
            wanted = {name: value for name, value in self.headers.items() if name != "Host"}
            there.request("POST", self.path, body, wanted)
            answer = there.getresponse()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers["Content-Type"])
            self.end_headers()
            if self.hold:
                self.wfile.write(answer.read())
            else:
                while piece := answer.read1():
                    self.wfile.write(piece)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def proxied(endpoint: Endpoint) -> Iterator[Endpoint]:
    Proxy.port = int(endpoint.url.rpartition(":")[2])
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Endpoint(f"http://127.0.0.1:{server.server_port}", endpoint.model, endpoint.key)
        server.shutdown()


@contextmanager
def starved(pid: int) -> Iterator[None]:
    """A process that is let run one twentieth of the time, by SIGSTOP and SIGCONT as cpulimit does."""
    over = threading.Event()

    def hold() -> None:
        while not over.wait(0.02):
            os.kill(pid, signal.SIGSTOP)
            over.wait(0.4)
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_traps_are_never_ok(ctx: Context) -> None:
    job = running(ctx)
    endpoint = own(ctx.work, job)
    # Long enough that the engine needs more for an answer than the least that a stream is judged by (load.STREAM_S).
    plain = Load("trap", 24, 48, 64, concurrency=4)
    kinds: dict[str, set[str]] = {}
    with proxied(endpoint) as front, closing(Bench(ctx, front, folder_of(ctx))) as bench:
        bench.ready()
        with Gauge(endpoint, server=job.pid, client=bench.pid) as gauge:
            loads = Loads(Validate(ctx, Asked()), bench, endpoint, gauge, job, walking.tell)

            def put(name: str, one: Load) -> None:
                found = load.doubts(loads.put(one))
                walking.tell(f"{name}: {[(each.weight, each.says) for each in found]}")
                kinds[name] = {each.kind for each in found}

            put("nothing amiss", plain)
            every = {"stop_token_ids": list(range(VOCABULARY))}
            put("its end at once", Load("trap", 24, 48, 16, concurrency=4, ignore_eos=False, body=every))
            put("no tokens asked for", Load("trap", 24, 48, 16, concurrency=4, body={"max_tokens": 0}))
            Proxy.hold = True
            try:
                put("a proxy that buffers", plain)
            finally:
                Proxy.hold = False
            with starved(bench.pid):
                put("a starved client", plain)
    assert kinds["nothing amiss"] == set()
    assert "zero tokens" in kinds["its end at once"]
    assert kinds["no tokens asked for"] & {"failed requests", "zero tokens"}
    assert kinds["a proxy that buffers"] == {"buffered stream"}
    assert kinds["a starved client"] & {"slow path", "buffered stream"}


def test_a_server_that_dies_under_the_load_is_told(ctx: Context) -> None:
    """The last of this file: it takes the server away."""
    job = running(ctx)
    home = ctx.work.root
    argv = [
        sys.executable,
        "-m",
        "runbook",
        "validate",
        "--steps",
        "4,8,16",
        "--step-s",
        "30",
        "--format",
        "json",
    ]
    process = subprocess.Popen(argv, env=walking.environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    try:
        watching = own(ctx.work, job)
        at_start = watching.metrics().total(load.SUCCESS) or 0.0
        # Past the canaries: 24 answers, and then some of the load.
        walking.until(
            lambda: (watching.metrics().total(load.SUCCESS) or 0.0) > at_start + 40, 90, "it is under load"
        )
        os.kill(job.pid, signal.SIGKILL)
        out, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait(30)
    walking.tell(said)
    found = {one["id"]: one for one in json.loads(out)}
    assert (process.returncode, found["SERVE-015"]["verdict"]) == (1, "fail")
    assert "the server died under the load: " in found["SERVE-015"]["reason"]
    assert "SIGKILL" in found["SERVE-015"]["reason"]
    assert found["SERVE-016"]["verdict"] == "skip"
