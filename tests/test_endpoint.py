"""A client against a server that answers on a real socket what OpenAI-compatible servers answer, well and badly."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from runbook.endpoint import Endpoint
from runbook.errors import ActionFailed

Chunks = list[dict[str, Any] | str | float]


class Handler(BaseHTTPRequestHandler):
    """Plays what ``script`` holds: chunks of a stream (numbers are pauses in seconds), or one answer with a status."""

    protocol_version = "HTTP/1.1"
    script: ClassVar[dict[str, Any]] = {}
    seen: ClassVar[list[dict[str, Any]]] = []
    keys: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append(body)
        self.keys.append(self.headers.get("Authorization", ""))
        if "answer" in self.script:
            self._whole(self.script.get("status", 200), json.dumps(self.script["answer"]))
            if self.script.get("resets"):  # as vLLM 0.19.1 does after a 400: the kept connection is dead
                self.close_connection = True
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for chunk in self.script["chunks"]:
            if isinstance(chunk, float):
                time.sleep(chunk)  # what is tested is when a chunk arrives
                continue
            text = chunk if isinstance(chunk, str) else json.dumps(chunk)
            self.wfile.write(f"data: {text}\n\n".encode())
            self.wfile.flush()
        self.close_connection = True

    def do_GET(self) -> None:
        self._whole(self.script.get("status", 200), self.script.get("page", ""))

    def _whole(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[Endpoint]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as played:
        thread = threading.Thread(target=played.serve_forever, args=(0.02,))
        thread.start()
        yield Endpoint(f"http://127.0.0.1:{played.server_port}", "m", "k3y")
        played.shutdown()
        thread.join()


def play(**script: Any) -> None:
    Handler.script, Handler.seen[:] = script, []


def part(text: str = "", reason: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": "1", "object": "text_completion", "created": 1, "model": "m", "choices": [{"index": 0, "text": text, "finish_reason": reason, **more}]}  # fmt: skip


def delta(reason: str | None = None, **what: Any) -> dict[str, Any]:
    return {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [{"index": 0, "delta": what, "finish_reason": reason}]}  # fmt: skip


USAGE = {"id": "1", "object": "text_completion", "created": 1, "model": "m", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}}  # fmt: skip


def test_arrivals_are_timed_from_when_it_was_sent(server: Endpoint) -> None:
    play(chunks=[0.1, part("a"), 0.1, part("b"), part("c", "length"), USAGE, "[DONE]"])
    reply = server.complete("x", 3)
    assert (reply.text, reply.finish_reason, reply.error, reply.status) == ("abc", "length", "", 200)
    assert (reply.prompt_tokens, reply.completion_tokens, len(reply.arrived)) == (5, 3, 3)
    assert reply.ttft_s is not None
    assert 0.1 <= reply.ttft_s < reply.arrived[1] - 0.05
    assert reply.tpot_s == pytest.approx((reply.arrived[2] - reply.arrived[0]) / 2)
    assert reply.seconds >= reply.arrived[-1]
    assert Handler.seen[0]["stream_options"] == {"include_usage": True}
    assert Handler.keys[-1] == "Bearer k3y"


def test_a_token_without_text_is_an_arrival(server: Endpoint) -> None:
    """A small tokenizer under a large vocabulary, or a piece of a character: tokens come and no text."""
    play(chunks=[part(""), 0.05, part(""), part("", "length"), USAGE, "[DONE]"])
    reply = server.complete("x", 3)
    assert len(reply.arrived) == 3
    assert reply.tpot_s is not None


def test_the_opening_chunk_of_a_chat_is_none(server: Endpoint) -> None:
    play(chunks=[delta(role="assistant", content=""), 0.1, delta(reasoning="hm"), delta(content="ok"), delta("stop"), USAGE, "[DONE]"])  # fmt: skip
    reply = server.chat([{"role": "user", "content": "x"}], 3)
    assert reply.ttft_s is not None
    assert reply.ttft_s >= 0.1
    assert (reply.text, reply.finish_reason) == ("ok", "stop")


def test_an_answer_that_is_not_streamed(server: Endpoint) -> None:
    answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}], "usage": USAGE["usage"]}  # fmt: skip
    play(answer=answer)
    reply = server.chat([{"role": "user", "content": "x"}], 3, stream=False)
    assert (reply.text, reply.finish_reason, reply.completion_tokens, len(reply.arrived)) == (
        "hi",
        "stop",
        3,
        1,
    )
    assert "stream" not in Handler.seen[0]
    assert reply.tpot_s is None
    play(answer={**part("hey", "length"), "usage": USAGE["usage"]})
    assert server.complete("x", 3, stream=False).text == "hey"


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        ([part("a"), part("b")], "CutOff"),
        ([], "CutOff"),
        ([part("a"), "{not json", part("b", "stop")], "JSONDecodeError"),
        ([part("a"), {"error": {"message": "engine dead", "code": 500}}], "engine dead"),
    ],
)
def test_a_stream_that_ends_badly_is_an_error(server: Endpoint, chunks: Chunks, words: str) -> None:
    """A server that dies closes its streams in good order: no word of the protocol says that the answer is half."""
    play(chunks=chunks)
    reply = server.complete("x", 3)
    assert words in reply.error
    assert reply.status == 0


def test_a_refused_request_leaves_the_next_one_alone(server: Endpoint) -> None:
    """vLLM 0.19.1 resets the connection after a 400 of its own; a kept one would fail the request after it."""
    play(answer={"error": {"message": "too long", "code": 400}}, status=400, resets=True)
    reply = server.complete("x", 3)
    assert (reply.status, "too long" in reply.error) == (400, True)
    play(chunks=[part("a", "stop"), USAGE, "[DONE]"])
    assert [server.complete("x", 3).error for _ in range(3)] == ["", "", ""]


def test_the_clock_starts_after_the_sdk_is_there(server: Endpoint) -> None:
    """The first request of a process is no slower than the next: imports are no server's time."""
    play(chunks=[part("a", "stop"), USAGE, "[DONE]"])
    fresh = Endpoint(server.url, "m", "k")
    first, *later = (fresh.complete("x", 1).seconds for _ in range(8))
    assert first < max(later) + 0.2


def test_nobody_there() -> None:
    reply = Endpoint("http://127.0.0.1:9", "m").complete("x", 1)
    assert reply.status == 0
    assert "Connect" in reply.error
    with pytest.raises(ActionFailed, match="/metrics"):
        Endpoint("http://127.0.0.1:9", "m").metrics()


def test_a_page_that_is_no_metrics(server: Endpoint) -> None:
    play(page="<html>hello</html>")
    with pytest.raises(ActionFailed, match="200"):
        server.metrics()
    play(page="a 1\n", status=503)
    with pytest.raises(ActionFailed, match="503"):
        server.metrics()
    play(page="# TYPE a counter\na_total 3\n")
    assert server.metrics().total("a_total") == 3


def test_the_key_is_in_no_repr(server: Endpoint) -> None:
    assert "k3y" not in repr(server)
