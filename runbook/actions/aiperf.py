"""A second load generator, AIPerf, on demand: in an environment of its own, pinned and hashed, against the same server.

Two generators that were written apart and give the same figures make a client's mistake unlikely. AIPerf brings neither
torch nor vLLM. It takes a tokenizer's folder only where $HF_HUB_OFFLINE is not set: with it the folder is looked up as the
name of a repository (read in aiperf 0.13.0, ``common/tokenizer.py``).
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from runbook import tables, uv
from runbook.actions import Context, Say
from runbook.actions.bench import Load, Said
from runbook.actions.jobs import log_tail
from runbook.endpoint import Endpoint
from runbook.errors import ActionFailed
from runbook.probes.live import die_with_parent
from runbook.serving.load import Request
from runbook.workspace import Workspace

VERSION = "0.13.0"
PINS = tables.FOLDER / "aiperf.txt"
OLDEST = (3, 11)
LIMIT_S = 900.0
QUIET = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


def program(work: Workspace) -> Path:
    """Where the program lies once it is installed."""
    return work.root / "tools" / f"aiperf-{VERSION}" / "bin" / "aiperf"


def install(ctx: Context, say: Say) -> Path:
    """The program, installed if it is not there: wheels only, each with its hash (about 480 MB on disk).

    Raises:
        ActionFailed: no interpreter is new enough, or a wheel could not be had.
    """
    found = program(ctx.work)
    if found.exists():
        return found
    python = sys.executable if sys.version_info >= OLDEST else str(ctx.python)
    folder = found.parents[1]
    say(f"installing aiperf {VERSION} into {folder}")
    for words in (
        ("venv", "--quiet", "--clear", "--python", python, str(folder)),
        (
            "pip", "install", "--quiet", "--python", str(folder / "bin" / "python"), "--require-hashes",
            "--only-binary", ":all:", "--requirements", str(PINS),
        ),
    ):  # fmt: skip
        ran = uv.ask(words)
        if ran.rc:
            found.unlink(missing_ok=True)
            last = ran.text.strip().splitlines()[-1:] or ["no word"]
            raise ActionFailed(
                f"aiperf {VERSION} could not be installed: {last[0]}",
                f"a Python of {'.'.join(map(str, OLDEST))} or newer and an index that has its wheels",
                "leave --generator out: vllm bench serve needs nothing more",
            )
    return found


def put(ctx: Context, endpoint: Endpoint, tokenizer: Path, load: Load, say: Say) -> Said:
    """The same load by the other generator.

    Raises:
        ActionFailed: it could not be installed, broke, or was not done in time.
    """
    aiperf = install(ctx, say)
    log = ctx.work.logs / "aiperf.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="aiperf-") as folder:
        orders = Path(folder) / "orders.json"
        orders.write_text(json.dumps(_orders(endpoint, tokenizer, load, folder)), encoding="utf-8")
        env = {name: value for name, value in uv.environment().items() if name not in QUIET}
        env.update(OPENAI_API_KEY=endpoint.key or "none", NO_COLOR="1")
        with log.open("wb") as out:
            child = subprocess.Popen(
                [str(aiperf), "profile", "--config", str(orders)], cwd=folder, env=env, stdin=subprocess.DEVNULL,
                stdout=out, stderr=out, start_new_session=True,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - the function is one system call, see there
            )  # fmt: skip
            try:
                rc = child.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                rc = -signal.SIGKILL
            finally:
                with contextlib.suppress(ProcessLookupError):  # its own children too, however it ended
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        rows = _rows(Path(folder) / "profile_export.jsonl")
    if rc or not rows:
        words = next((line for line in reversed(log_tail(log)) if line.strip()), "it ended without a word")
        raise ActionFailed(f"aiperf (exit code {rc}): {words.strip()}", "a load", f"read {log}")
    return _said(rows)


def _orders(endpoint: Endpoint, tokenizer: Path, load: Load, folder: str) -> dict[str, Any]:
    """The configuration file, YAML in the form of JSON; it names the key's variable, never the key."""
    phase: dict[str, Any] = {"requests": load.number}
    if load.rate:
        phase |= {"type": "poisson", "rate": load.rate}
    else:
        phase |= {"type": "concurrency", "concurrency": load.concurrency or load.number}
    return {
        "schemaVersion": "2.0",
        "randomSeed": load.seed + 1,
        "benchmark": {
            "model": endpoint.model,
            "endpoint": {
                "url": endpoint.url,
                "type": "completions",
                "streaming": True,
                "api_key": "${OPENAI_API_KEY}",
                "extra": {"ignore_eos": True, "temperature": 0},
            },
            "tokenizer": {"name": str(tokenizer)},
            "dataset": {
                "type": "synthetic",
                "entries": load.number,
                "isl": load.input_len,
                "osl": load.output_len,
            },
            "profiling": phase,
            "artifacts": {"dir": folder},
            "gpu_telemetry": {"enabled": False},
            "server_metrics": {"enabled": False},
        },
    }


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines if line.strip()]


def _said(rows: list[dict[str, Any]]) -> Said:
    """What it wrote of each request. Times are in nanoseconds since the epoch and in milliseconds."""
    requests, errors, read = [], Counter[str](), 0
    first = min(row["metadata"]["request_start_ns"] for row in rows)
    last = max(row["metadata"]["request_end_ns"] for row in rows)
    for row in rows:
        seen = row.get("metrics") or {}
        good = not row.get("error") and "time_to_first_token" in seen
        ttft, whole = (_value(seen, name) / 1000 for name in ("time_to_first_token", "request_latency"))
        tokens = _value(seen, "usage_completion_tokens") or _value(seen, "output_sequence_length")
        read += int(_value(seen, "usage_prompt_tokens") or _value(seen, "input_sequence_length"))
        sent = (row["metadata"]["request_start_ns"] - first) / 1e9
        requests.append(
            Request(sent, ttft, max(0.0, whole - ttft), int(tokens), int(_value(seen, "http_req_chunks_received")), good)
        )  # fmt: skip
        if row.get("error"):
            errors[str(row["error"])[:160]] += 1
    seconds = (last - first) / 1e9
    # Several processes of it share the work, so one core is no bound for it.
    return Said(seconds, None, read, tuple(requests), errors)


def _value(seen: dict[str, Any], name: str) -> float:
    found = seen.get(name) or {}
    return float(found.get("value") or 0.0)
