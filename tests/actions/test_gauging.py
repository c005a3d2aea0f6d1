"""The gauge on a real page of /metrics served on a real port, and on real processes that burn."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import psutil
import pytest

from runbook.actions.gauging import Burn, Gauge, launch_value, max_model_len
from runbook.endpoint import Endpoint
from runbook.serving.reading import Reading

PAGE = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0"}} 2
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0"}} 3
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{engine="0"}} 0.5
vllm:kv_cache_usage_perc{{engine="1"}} 0.25
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{{engine="0"}} {tokens}
"""
BUSY = "import subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', 'while True: pass'])\nprint(flush=True)\nchild.wait()"


class Page(BaseHTTPRequestHandler):
    asked: ClassVar[int] = 0
    down: ClassVar[bool] = False
    models: ClassVar[str] = "{}"

    def do_GET(self) -> None:
        Page.asked += 1
        text = self.models if self.path == "/v1/models" else PAGE.format(tokens=100 * Page.asked)
        self.send_response(503 if self.down else 200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield Endpoint(f"http://127.0.0.1:{server.server_port}", "m")
        server.shutdown()
        thread.join()


@pytest.fixture
def burner() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that does nothing but wait for its child, which burns a core."""
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        for child in psutil.Process(process.pid).children():
            child.kill()


def enough(number: int, gauge: Gauge) -> None:
    deadline = time.monotonic() + 20
    while len(gauge.rows) < number and time.monotonic() < deadline:
        assert not gauge.ended.wait(0.02)
    assert len(gauge.rows) >= number


def test_it_reads_on_until_it_is_stopped_and_keeps_the_newest(endpoint: Endpoint) -> None:
    seen: list[Reading] = []
    with Gauge(endpoint, every_s=0.02, keep=4, seen=seen.append) as gauge:
        enough(4, gauge)
        while len(seen) < 8:
            assert not gauge.ended.wait(0.02)
    assert len(gauge.rows) == 4
    assert list(gauge.rows) == seen[-4:]
    last = seen[-1]
    assert (last.running, last.waiting, last.kv_use, last.missed) == (2, 3, 0.5, "")
    assert last.preemptions is None
    assert seen[0].gen_tps is None
    assert last.gen_tps == pytest.approx(100 / (last.at - seen[-2].at))
    assert gauge.ended.is_set()
    gauge.stop()


def test_a_page_that_does_not_come_is_a_reading_and_no_end(endpoint: Endpoint) -> None:
    Page.down = True
    try:
        with Gauge(endpoint, server=os.getpid(), every_s=0.02) as gauge:
            enough(3, gauge)
            Page.down = False
            while gauge.rows[-1].missed:
                assert not gauge.ended.wait(0.02)
    finally:
        Page.down = False
    first = gauge.rows[0]
    assert (first.running, "503" in first.missed) == (None, True)
    assert first.server_rss_mib


def test_what_the_listener_raises_comes_out_where_it_is_stopped(endpoint: Endpoint) -> None:
    def full(_: Reading) -> None:
        raise OSError(28, "No space left on device")

    gauge = Gauge(endpoint, every_s=0.02, seen=full).start()
    assert gauge.ended.wait(20)
    with pytest.raises(OSError, match="No space"):
        gauge.stop()


def test_a_child_counts_for_its_parent(burner: "subprocess.Popen[bytes]") -> None:
    burn = Burn(burner.pid)
    first = burn.since(time.monotonic())
    assert first.cores is None
    assert first.rss_mib
    deadline = time.monotonic() + 20
    cores, root = 0.0, 1.0
    while cores < 0.2 and time.monotonic() < deadline:
        threading.Event().wait(0.3)  # what is measured is what burns in that time
        later = burn.since(time.monotonic())
        assert later.cores is not None
        assert later.root_cores is not None
        cores, root = later.cores, later.root_cores
    assert cores >= 0.2
    assert cores < 1.3
    assert root < cores / 2


def test_a_process_that_is_gone_or_elsewhere() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for burn in (Burn(gone.pid), Burn(None)):
        assert burn.since(1.0) == burn.since(2.0)
        assert burn.since(3.0).cores is None


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["--max-num-seqs", "4"], "4"),
        (["--max-num-seqs=8"], "8"),
        (["--max-num-seqs", "4", "--max-num-seqs=8"], "8"),
        (["--max-num-seqs"], ""),
        ([], ""),
    ],
)
def test_the_last_value_of_a_flag_counts(words: list[str], value: str) -> None:
    assert launch_value(["python", *words], "--max-num-seqs") == value


@pytest.mark.parametrize(
    ("told", "length"),
    [
        ('{"data": [{"id": "x", "max_model_len": 7}, {"id": "m", "max_model_len": 2048}]}', 2048),
        ('{"data": [{"id": "m"}]}', None),
        ('{"data": [{"id": "m", "max_model_len": "2048"}]}', None),
        ('{"data": {}}', None),
        ("[]", None),
        ("<html>", None),
    ],
)
def test_the_length_that_a_server_tells(endpoint: Endpoint, told: str, length: int | None) -> None:
    Page.models = told
    assert max_model_len(endpoint) == length
