"""The walk recorded on a real H200 opens every page again, and says what was measured there."""

import json
import os
import subprocess
import sys
from pathlib import Path


def test_walk_of_the_recorded_h200_is_ready(tmp_path: Path) -> None:
    env = {**os.environ, "RUNBOOK_HOME": str(tmp_path / "work")}
    out = tmp_path / "run"
    argv = [
        sys.executable,
        "-m",
        "runbook",
        "run",
        "--machine",
        "recorded:h200-vllm-0.19.1",
        "--out",
        str(out),
    ]
    ran = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = {row["id"]: row for row in json.loads((out / "findings.json").read_text(encoding="utf-8"))}
    assert {row["stack"] for row in rows.values()} <= {"", "vllm-0.19.1-cu128"}
    seen = {(key, each["name"]): each["value"] for key, row in rows.items() for each in row["evidence"]}
    assert seen["DRIVER-002", "first"] == "NVIDIA H200"
    assert seen["CUDA-004", "compute capability"] == "9.0"
    assert seen["SERVE-002", "version"] == "0.19.1"
    assert seen["WARM-001", "ready after (s)"] == 193.2
    # The first user on a cold server waited this many times longer than the next.
    assert seen["WARM-004", "first_over_steady"] > 20
    assert seen["TORCH-005", "GPUs torch sees"] == 1
    assert seen["WARM-012", "ended"] == "flat"
    # A warmed server lets nobody wait for being the first of a kind.
    assert seen["WARM-013", "kinds"] == 14
    assert seen["SERVE-015", "output tokens, client"] == seen["SERVE-015", "output tokens, server"]
