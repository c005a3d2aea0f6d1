"""Seconds of `runbook env build` against a bare `uv pip install` of the same lock; see README.md beside this file."""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from runbook import pins

UV = Path(sys.executable).with_name("uv")
MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
RATIO = 1.3
DECIDE_S = 2.0


def timed(command: list[str | Path], env: dict[str, str]) -> float:
    """Wall seconds of a command that must end well."""
    began = time.monotonic()
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {ran.stdout[-800:]}{ran.stderr[-800:]}")
    return round(time.monotonic() - began, 2)


def bare(folder: Path, stack: pins.Stack, env: dict[str, str], *more: str) -> float:
    """`uv venv` and `uv pip install -r LOCK`, as a person would."""
    place = folder / "bare"
    shutil.rmtree(place, ignore_errors=True)
    made = timed([UV, "venv", "--python", sys.executable, place], env)
    install: list[str | Path] = [
        UV,
        "pip",
        "install",
        "--python",
        place / "bin" / "python",
        "--no-deps",
        *more,
    ]
    return round(made + timed([*install, "-r", stack.lock(MINOR)], env), 2)


def main() -> None:
    """Measure, print JSON, end with 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stack", nargs="*", default=list(pins.REHEARSAL))
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
    }
    answer: dict[str, Any] = {"load_at_start": os.getloadavg()[0], "stacks": {}}
    missed = False
    runbook: list[str | Path] = [sys.executable, "-m", "runbook"]
    for name in asked.stack:
        stack = pins.stack(name)
        with tempfile.TemporaryDirectory(
            dir=Path.home()
        ) as folder:  # where uv's cache usually is: files are linked
            home = {**env, "RUNBOOK_HOME": f"{folder}/home"}
            bare(Path(folder), stack, env)  # fills the cache
            rows = []
            for _ in range(asked.rounds):
                plain = bare(Path(folder), stack, env)
                compiled = bare(Path(folder), stack, env, "--compile-bytecode")
                ours = timed([*runbook, "env", "build", "--stack", name, "--yes", "--again"], home)
                decide = timed([*runbook, "env", "build", "--stack", name, "--yes"], home)
                rows.append(
                    {"uv": plain, "uv --compile-bytecode": compiled, "ours": ours, "nothing to do": decide}
                )
                print(rows[-1], file=sys.stderr)
            ratio = statistics.median(row["ours"] / row["uv --compile-bytecode"] for row in rows)
            decided = statistics.median(row["nothing to do"] for row in rows)
            missed = missed or ratio > RATIO or decided > DECIDE_S
            answer["stacks"][name] = {"rounds": rows, "ratio": round(ratio, 2), "decide_s": decided}
    print(json.dumps(answer, indent=1))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
