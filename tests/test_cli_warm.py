"""``runbook warm-up`` and ``runbook limits`` against a server elsewhere: one that answers, one that compiles, none at all."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

METRICS = '# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{e="0"} 0\n# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{e="0"} 0\n'


class Served(BaseHTTPRequestHandler):
    """An OpenAI-compatible server of one model: refuses tools, and takes its time for the first log-probabilities."""

    bodies: ClassVar[list[dict[str, Any]]] = []
    dies: ClassVar[int] = 0

    def do_GET(self) -> None:
        models = {"data": [{"id": "m", "max_model_len": 64}]}
        self._say(200, METRICS if self.path == "/metrics" else json.dumps(models))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        first = not any("logprobs" in one for one in self.bodies)
        self.bodies.append(body)
        if self.headers["Authorization"] != "Bearer k3y":
            self._say(401, json.dumps({"error": {"message": "Unauthorized"}}))
        elif "tools" in body:
            self._say(400, json.dumps({"error": {"message": "tool choice requires a parser"}}))
        elif self.dies and len(self.bodies) > self.dies:
            self.close_connection = True
        else:
            # As a model would: a few milliseconds, and half a second more to compile a helper.
            time.sleep(0.005 + (0.5 if first and "logprobs" in body else 0))
            self._answer(body)

    def _answer(self, body: dict[str, Any]) -> None:
        chat = "messages" in body
        head = {"id": "1", "object": "x", "created": 1, "model": "m"}
        usage = {"prompt_tokens": 90, "completion_tokens": 1, "total_tokens": 91}
        part: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
        if not body.get("stream"):
            part |= {"message": {"role": "assistant", "content": "a"}} if chat else {"text": "a"}
            self._say(200, json.dumps(head | {"choices": [part], "usage": usage}))
            return
        part |= {"delta": {"content": "a"}} if chat else {"text": "a"}
        chunks = [head | {"choices": [part]}, head | {"choices": [], "usage": usage}]
        self._say(200, "".join(f"data: {json.dumps(one)}\n\n" for one in chunks) + "data: [DONE]\n\n")

    def _say(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header(
            "Content-Type", "text/event-stream" if text.startswith("data:") else "application/json"
        )
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    Served.bodies, Served.dies = [], 0
    with ThreadingHTTPServer(("127.0.0.1", 0), Served) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def runbook(home: Path, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
    ours = {name: value for name, value in os.environ.items() if not name.startswith("RUNBOOK_")}
    return subprocess.run(
        [sys.executable, "-m", "runbook", *words], capture_output=True, text=True, check=False, timeout=120,
        env={**ours, "RUNBOOK_HOME": str(home), "NO_COLOR": "1", **env},
    )  # fmt: skip


def findings(text: str) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in json.loads(text)}


def test_a_server_elsewhere_is_warmed_and_judged_and_nothing_is_written(url: str, tmp_path: Path) -> None:
    ran = runbook(
        tmp_path,
        "warm-up",
        "--url",
        f"{url}/v1/",
        "--key-env",
        "KEY",
        "--cap",
        "30",
        "--format",
        "json",
        KEY="k3y",
    )
    found = findings(ran.stdout)
    assert (ran.returncode, found["WARM-012"]["verdict"] in ("ok", "warn")) == (0, True), ran.stderr
    seen = {one["name"]: one for one in found["WARM-012"]["evidence"]}
    if found["WARM-012"]["verdict"] == "ok":
        compiled = seen["compiled in the last round"]
        assert (compiled["value"], "not ours to see" in compiled["origin"]) == (None, True)
    shapes = {one["name"]: one["value"] for one in found["WARM-014"]["evidence"]}
    assert shapes["not served"] == "tools"
    same = {one["name"]: one["value"] for one in found["WARM-013"]["evidence"]}
    assert "log-probabilities" in same["the dearest first"]
    assert "requests before the warm-up" not in same
    assert not (tmp_path / "jobs").exists()
    assert len([one for one in Served.bodies if "tools" in one]) == 1, "what is refused is not asked again"
    prompts = [one["prompt"] for one in Served.bodies if "prompt" in one and len(one["prompt"].split()) > 3]
    assert len(set(prompts)) == len(prompts), "a prefix cache would have answered"


def test_the_table_for_people(url: str, tmp_path: Path) -> None:
    ran = runbook(
        tmp_path, "warm-up", "--url", url, "--model", "m", "--key-env", "KEY", "--cap", "30", KEY="k3y"
    )
    assert "first/steady" in ran.stdout
    assert "not served: BadRequestError: tool choice requires a parser" in ran.stdout
    assert "the first request here waited" in ran.stderr
    assert "not ours to see" in ran.stderr


def test_faults_are_named(url: str, tmp_path: Path) -> None:
    wrong = runbook(tmp_path, "warm-up", "--url", url, "--model", "m")
    assert (wrong.returncode, "key missing" in wrong.stderr) == (1, True), wrong.stderr
    Served.bodies, Served.dies = [], 20
    cut = runbook(tmp_path, "warm-up", "--url", url, "--model", "m", "--key-env", "KEY", KEY="k3y")
    assert (cut.returncode, "answer cut off" in cut.stderr) == (1, True), cut.stderr
    nobody = runbook(tmp_path, "warm-up", "--url", "http://127.0.0.1:9", "--model", "m")
    assert (nobody.returncode, "nobody listens" in nobody.stderr) == (1, True), nobody.stderr


def test_an_idle_server_elsewhere_gets_no_advice(url: str, tmp_path: Path) -> None:
    ran = runbook(tmp_path, "limits", "--seconds", "3", "--url", url, "--format", "json")
    assert (ran.returncode, findings(ran.stdout)["SERVE-013"]["verdict"]) == (3, "skip"), ran.stderr


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("warm-up",), 1, "no server of this workspace runs"),
        (("limits",), 1, "no server of this workspace runs"),
        (("warm-up", "--model", "m"), 2, "without --url"),
        (("limits", "--key-env", "KEY"), 2, "without --url"),
        (("warm-up", "--url", "http://127.0.0.1:9", "--key-env", "NO_SUCH"), 2, "no such variable"),
        (("warm-up", "--url", "http://127.0.0.1:9"), 1, "names no model"),
        (("limits", "--url", "http://127.0.0.1:9", "--model", "m"), 1, "/metrics"),
        (("warm-up", "--cap", "0"), 2, "--cap"),
        (("limits", "--seconds", "x"), 2, "--seconds"),
    ],
)
def test_bad_input_and_no_server(tmp_path: Path, words: tuple[str, ...], code: int, says: str) -> None:
    ran = runbook(tmp_path, *words)
    assert (ran.returncode, says in ran.stderr) == (code, True), ran.stderr
