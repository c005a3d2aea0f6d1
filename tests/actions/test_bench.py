"""The child that puts the load: what it says is read, one that dies or hangs is told and leaves nothing.

The target's interpreter is a shell script here; tests/walk/test_validate.py has vLLM's own.
"""

import json
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from runbook import pins
from runbook.actions import Context
from runbook.actions.bench import Bench, Load
from runbook.actions.jobs import Owner
from runbook.endpoint import Endpoint
from runbook.errors import ActionFailed
from runbook.workspace import Workspace

READY = """echo '{"ready": true, "import_s": 0.25}'"""
SAID = {
    "seconds": 2.0, "cpu_s": 0.5, "completed": 1, "failed": 1, "input_tokens": 64, "output_tokens": 16,
    "requests": [
        [100.5, 0.1, 0.3, 0.05, 16, 16, ""],
        [101.0, 0.0, 0, 0.0, 0, 0, "Traceback (most recent call last):\n  File x\nConnectionError: refused\n"],
    ],
}  # fmt: skip
LOAD = Load("trap", 2, 64, 16, concurrency=1)


def bench(tmp_path: Path, script: str) -> Bench:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    python.chmod(0o755)
    stack, owner = pins.stack("vllm-0.32.0-cpu"), Owner.of()
    ctx = Context(Workspace(tmp_path / "home"), stack, python, True, "m", owner, 60)  # noqa: FBT003
    return Bench(ctx, Endpoint("http://127.0.0.1:9", "served", "a-secret-key"), tmp_path)


def test_what_it_says_is_read(tmp_path: Path) -> None:
    script = f"""test "$OPENAI_API_KEY" = a-secret-key || exit 9
{READY}
read orders
echo "$orders" >&2
printf '%s\\n' '{json.dumps(SAID)}'
cat >/dev/null"""
    with closing(bench(tmp_path, script)) as one:
        assert one.ready() == 0.25
        said = one.put(LOAD)
        assert "a-secret-key" not in " ".join(psutil.Process(one.pid).cmdline())
    assert (said.seconds, said.cores, said.input_tokens) == (2.0, 0.25, 64)
    good, bad = said.requests
    assert (good.sent, good.tokens, good.good) == (0.0, 16, True)
    assert good.e2e_s == pytest.approx(0.4)
    assert (bad.sent, bad.good) == (0.5, False)
    assert said.errors == {"ConnectionError: refused": 1}
    assert json.loads(one.log.read_text(encoding="utf-8"))["number"] == 2
    assert not psutil.pid_exists(one.pid)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo 'ModuleNotFoundError: no vllm' >&2; exit 1", "ModuleNotFoundError: no vllm"),
        ("exit 1", "it ended without a word"),
        ("""echo '{"error": "ImportError: libcudart"}'""", "ImportError: libcudart"),
    ],
)
def test_one_that_cannot_be_imported_is_told(tmp_path: Path, script: str, says: str) -> None:
    with closing(bench(tmp_path, script)) as one, pytest.raises(ActionFailed, match=says):
        one.ready()
    assert not psutil.pid_exists(one.pid)


def test_one_that_hangs_is_given_up(tmp_path: Path) -> None:
    with closing(bench(tmp_path, f"trap '' TERM\n{READY}\nwhile :; do sleep 1; done")) as one:
        one.ready()
        with pytest.raises(ActionFailed, match="given up: no token came"):
            one.put(LOAD, lambda: "no token came")
    assert not psutil.pid_exists(one.pid)
