"""A tiny server with vLLM's manners, for what a real one cannot be made to do: leak, stand still, die. Run by path.

``--port P [--leak MIB] [--stand-after N] [--die-after N]``: streamed completions a token at a time, and the counters of
/metrics that the runbook reads. Each answer keeps MIB more; from the N-th on it answers nothing more, or the process ends.
"""

import argparse
import http.server
import json
import os
import threading
import time
from typing import Any, ClassVar

PAGE = """# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total {prompt}.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total {made}.0
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running {running}.0
"""


class Answering(http.server.BaseHTTPRequestHandler):
    """One request; what is counted lies in the class, since there is one server."""

    protocol_version = "HTTP/1.1"
    given: argparse.Namespace
    counted: ClassVar = {"prompt": 0, "made": 0, "running": 0, "answers": 0}
    lock = threading.Lock()
    kept: ClassVar[list[bytes]] = []

    def do_GET(self) -> None:
        body = PAGE.format(**self.counted).encode() if self.path == "/metrics" else b""
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.lock:
            self.counted["answers"] += 1
            self.counted["running"] += 1
            number = self.counted["answers"]
        if self.given.die_after and number >= self.given.die_after:
            os._exit(3)
        if self.given.stand_after and number >= self.given.stand_after:
            threading.Event().wait()
        self.kept.append(os.urandom(1) * int(self.given.leak * 2**20))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        tokens = int(asked["max_tokens"])
        for at in range(tokens):
            time.sleep(0.002)  # a token takes its time
            self._chunk([{"index": 0, "text": " a", "finish_reason": "length" if at == tokens - 1 else None}])
            with self.lock:
                self.counted["made"] += 1
        self._chunk([], usage={"prompt_tokens": 5, "completion_tokens": tokens, "total_tokens": 5 + tokens})
        self.wfile.write(b"data: [DONE]\n\n")
        with self.lock:
            self.counted["prompt"] += 5
            self.counted["running"] -= 1

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> None:
        chunk = {"id": "x", "object": "text_completion", "created": 0, "model": "served", "choices": choices}
        self.wfile.write(f"data: {json.dumps(chunk | more)}\n\n".encode())
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--leak", type=float, default=0.0)
    parser.add_argument("--stand-after", type=int, default=0)
    parser.add_argument("--die-after", type=int, default=0)
    Answering.given = parser.parse_args()
    http.server.ThreadingHTTPServer(("127.0.0.1", Answering.given.port), Answering).serve_forever()


if __name__ == "__main__":
    main()
