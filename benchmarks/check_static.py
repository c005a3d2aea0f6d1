"""How long ``runbook check`` (static questions only) takes, and how much memory; see README.md beside this file."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TARGET_S = 0.5
TARGET_MB = 60
WARM_UPS = 2
HEAVY = ("torch", "vllm", "transformers", "numpy", "jupyterlab", "papermill", "IPython", "httpx")
COMMAND = [sys.executable, "-m", "runbook", "check"]
VERDICTS = (0, 1, 3)


def once(env: dict[str, str]) -> tuple[float, float]:
    """(wall seconds, peak MB) of one call. The peak is that of the process or of a child of it, whichever is higher."""
    began = time.perf_counter()
    process = subprocess.Popen(COMMAND, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = code = os.waitstatus_to_exitcode(status)
    if code not in VERDICTS:
        raise SystemExit(f"runbook check ended with {code}: that is no measurement")
    return seconds, usage.ru_maxrss * 1024 / 1e6


def imported(env: dict[str, str]) -> list[str]:
    """Which of the heavy packages a call imports, by the interpreter's own account."""
    words = [sys.executable, "-X", "importtime", *COMMAND[1:]]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    names = {
        line.rpartition("|")[2].strip().partition(".")[0]
        for line in done.stderr.splitlines()
        if line.startswith("import time:")
    }
    return sorted(names & set(HEAVY))


def measured(env: dict[str, str], calls: int) -> dict[str, Any]:
    """Warm up, measure, judge."""
    for _ in range(WARM_UPS):
        once(env)
    load = os.getloadavg()[0]
    rows = [once(env) for _ in range(calls)]
    seconds = [row[0] for row in rows]
    found: dict[str, Any] = {
        "benchmark": "check_static",
        "calls": calls,
        "wall_s": {
            "median": round(statistics.median(seconds), 3),
            "min": round(min(seconds), 3),
            "max": round(max(seconds), 3),
            "target": TARGET_S,
        },
        "peak_mb": {"max": round(max(row[1] for row in rows), 1), "target": TARGET_MB},
        "heavy_imports": imported(env),
        "python": sys.version.split()[0],
        "cores": os.cpu_count(),
        "load_at_start": round(load, 2),
        "workspace": env["RUNBOOK_HOME"],
    }
    found["met"] = (
        found["wall_s"]["median"] <= TARGET_S
        and found["peak_mb"]["max"] <= TARGET_MB
        and not {"torch", "vllm"} & set(found["heavy_imports"])
    )
    return found


def main() -> None:
    """Measure, print JSON, exit 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10, help="how many calls are measured")
    parser.add_argument(
        "--home", type=Path, help="workspace, such as one with a target in it; default: an empty one"
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as empty:
        env = {**os.environ, "RUNBOOK_HOME": str(asked.home.resolve() if asked.home else empty)}
        found = measured(env, asked.calls)
    print(json.dumps(found, indent=1))
    sys.exit(0 if found["met"] else 1)


if __name__ == "__main__":
    main()
