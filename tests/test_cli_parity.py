"""``runbook parity`` from outside, without a model: bad input ends with 2 before anything starts; a server elsewhere is asked.

tests/walk/test_served_parity.py has the real servers.
"""

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

SECRET = "parity-test-key"  # noqa: S105 - made up


def parity(home: Path, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "RUNBOOK_HOME": str(home), "COLUMNS": "80", **variables}
    return subprocess.run(
        [sys.executable, "-m", "runbook", "parity", *words],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--api-key-env", "HOME"], "--api-key-env HOME: without --url"),
        (["--url", "http://127.0.0.1:1", "--api-key-env", "NO_SUCH"], "there is no such variable"),
        (["--model", "qwen"], "'qwen'"),
        (["--reference", "/no/such/folder"], "no config.json in /no/such/folder"),
        (["--url", "http://127.0.0.1:1"], "no config.json in "),
        (["--stack", "none"], "no stack 'none'"),
        (["--dtype", "int4"], "--dtype"),
        (["--prompts", "0"], "--prompts"),
        ([], "no target environment for "),
    ],
)
def test_bad_input_is_refused(tmp_path: Path, words: list[str], says: str) -> None:
    ended = parity(tmp_path / "home", *words)
    assert (ended.returncode, ended.stdout) == (2, ""), ended
    assert says in ended.stderr
    assert not (tmp_path / "home").exists()


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """A server that is not vLLM: it keeps the keys it is shown and answers 404."""

    keys: list[str | None]

    def do_GET(self) -> None:
        self.keys.append(self.headers["Authorization"])
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, list[str | None]]]:
    Elsewhere.keys = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1", Elsewhere.keys
        server.shutdown()


def test_a_server_elsewhere_never_sees_the_key_of_this_workspace(
    tmp_path: Path, elsewhere: tuple[str, list[str | None]]
) -> None:
    """The script fails before it asks where there is no transformers; what may be sent is decided before."""
    url, keys = elsewhere
    home = tmp_path / "home"
    python = home / "targets" / "vllm-0.32.0-cpu" / "current" / "bin" / "python"
    python.parent.mkdir(parents=True)
    # A target whose transformers is a stub: enough to come to the first question.
    stub = tmp_path / "stub"
    (stub / "transformers").mkdir(parents=True)
    (stub / "transformers" / "__init__.py").write_text(
        "__version__ = '5'\nclass AutoTokenizer:\n    from_pretrained = staticmethod(lambda *a, **k: None)\n"
    )
    python.write_text(f'#!/bin/sh\nPYTHONPATH={stub} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (home / "jobs").mkdir()
    (home / "jobs" / "server.key").write_text("the workspace's own")
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "qwen3"}')
    words = ["--stack", "vllm-0.32.0-cpu", "--url", url, "--reference", str(model), "--format", "json"]
    for more, seen in (([], None), (["--api-key-env", "PARITY_KEY"], f"Bearer {SECRET}")):
        keys.clear()
        ended = parity(home, *words, *more, PARITY_KEY=SECRET)
        assert ended.returncode == 3, ended
        answer = json.loads(ended.stdout)
        assert answer["verdict"] == "unknown"
        assert "answered 404" in answer["reason"]
        assert keys == [seen]
        assert SECRET not in ended.stdout + ended.stderr
