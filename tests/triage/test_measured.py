"""What is promised of triage: the cause of real failures first, and no healthy server accused."""

import importlib.util
import io
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from runbook import triage
from runbook.triage import judge

DATA = Path(__file__).parents[1] / "data"
HEALTHY = sorted((DATA / "healthy").glob("*.log"))
SERVERS = [path for path in HEALTHY if path.name.startswith("vllm-")]
FAULTY: list[dict[str, str]] = yaml.load(
    (DATA / "faulty" / "index.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader
)
# Things that are written beside a server's log and speak of no failure.
NOISE = (
    '2026-11-30T05:00:00Z level=info msg="scrape done" duration=0.002 failures=0',
    "Nov 30 05:00:00 box systemd[1]: Started Daily Cleanup of Temporary Directories.",
    "Nov 30 05:00:00 box kernel: perf: interrupt took too long (2503 > 2500), lowering rate",
    'INFO:     10.0.0.7:50312 - "GET /metrics HTTP/1.1" 200 OK',
    "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.2s/it]",
    "[notice] A new release of pip is available: 25.0 -> 26.0",
    '{"ts": 1796000000, "event": "error_rate", "value": 0.0}',
    "DEBUG 11-30 05:00:00 [x.py:1] retry budget 3, timeout 600 s, out of 3 attempts 0 used",
)  # fmt: skip


def benchmark() -> Any:
    """``benchmarks/triage.py``, so that what is promised and what is reported are one figure."""
    path = Path(__file__).parents[2] / "benchmarks" / "triage.py"
    spec = importlib.util.spec_from_file_location("benchmark_of_triage", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_cause_is_named_first_on_the_corpus() -> None:
    measured = benchmark()
    rows = measured.results(measured.corpus())
    assert len(rows) == 218
    assert measured.share(rows, "first") >= measured.TOP_1
    assert measured.share(rows, "among_three") >= measured.TOP_3


WRAPPED: dict[str, Callable[[str], str]] = {
    "docker compose": lambda line: f"vllm-1  | {line}",
    "journal": lambda line: f"Nov 30 05:00:00 gpu-box vllm[4711]: {line}",
    "kubernetes": lambda line: f"2026-11-30T05:00:00.123456789Z stderr F {line}",
    "docker's json": lambda line: json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026"}, separators=(",", ":")),
    "windows line ends": lambda line: line + "\r",
    "colour": lambda line: "\x1b[31m" + line.replace(" ", "\x1b[0m ", 1),
    "a process tag": lambda line: f"(EngineCore_DP0 pid=7) {line}",
}  # fmt: skip


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_what_a_log_is_wrapped_in_hides_nothing(wrap: Callable[[str], str]) -> None:
    measured = benchmark()
    cases = [
        {**case, "log": "\n".join(wrap(line) for line in case["log"].splitlines())}
        for case in measured.corpus()
    ]
    assert measured.share(measured.results(cases), "first") >= measured.TOP_1


def test_a_log_of_another_cause_is_not_right() -> None:
    """The measure itself can fail: with the causes exchanged nearly nothing is right."""
    measured = benchmark()
    cases = measured.corpus()
    keys = [case["cause_key"] for case in cases]
    turned = [{**case, "cause_key": key} for case, key in zip(cases, keys[50:] + keys[:50], strict=True)]
    assert measured.share(measured.results(turned), "first") < 0.1


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
def test_a_healthy_log_is_not_accused(path: Path) -> None:
    found = triage.read_file(str(path))
    assert [one.key for one in found.causes] == []
    assert found.verdict == (judge.HEALTHY if path in SERVERS else found.verdict)
    assert [one.line for one in found.telling] == []


@pytest.mark.parametrize("path", SERVERS, ids=lambda path: path.stem)
def test_nor_with_noise_in_it(path: Path) -> None:
    chance = random.Random(path.name)  # noqa: S311 - no secret
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    for _ in range(60):
        lines.insert(chance.randrange(len(lines) + 1), f"{chance.choice(NOISE)} {chance.random()}\n")
    found = triage.read([("", io.BytesIO("".join(lines).encode()))])
    assert ([one.key for one in found.causes], found.verdict) == ([], judge.HEALTHY)


@pytest.mark.parametrize("path", SERVERS[:6], ids=lambda path: path.stem)
def test_one_failure_in_a_healthy_log_is_seen(path: Path) -> None:
    log = path.read_bytes() + b"(EngineCore pid=9) ERROR 11-30 05:00:00 [core.py:1] OddError: something new\n"
    found = triage.read([("", io.BytesIO(log))])
    ended = b"[shutdown]" in log or b"Shutting down" in log
    assert found.verdict == judge.NONE or ended


@pytest.mark.parametrize("row", FAULTY, ids=lambda row: row["file"].removesuffix(".log"))
def test_what_was_broken_here_is_named(row: dict[str, str]) -> None:
    found = triage.read_file(str(DATA / "faulty" / row["file"]))
    assert [one.key for one in found.causes[:1]] == ([] if row["cause"] == "none" else [row["cause"]])
