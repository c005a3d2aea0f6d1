"""What makes a start quick: compiled bytecode, and filled compile caches; alternating starts in one run, ratios printed.

``--what bytecode``: the stack's own command from its target, and from a copy without ``__pycache__`` whose server may not
write any (PYTHONDONTWRITEBYTECODE, as the articles' Dockerfile sets it). ``--what caches``: without ``--enforce-eager``,
with empty cache folders (first ever) and with those the start before has filled.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from runbook import launch, pins
from runbook.actions import ports, watching
from runbook.parse import boot_log
from runbook.probes.live import target_env
from runbook.serving.boot import account, by_stamps
from runbook.workspace import Workspace, workspace

LIMIT_S = 600


def healthy(port: int) -> bool:
    """True when /health answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=3) as reply:
            return bool(reply.status == 200)  # noqa: PLR2004 - HTTP's OK
    except (OSError, urllib.error.URLError):
        return False


def start(argv: list[str], env: dict[str, str], port: int, log: Path) -> float:
    """Seconds from the command to /health; every process of it is gone afterwards."""
    began = time.monotonic()
    with log.open("wb") as out:
        server = subprocess.Popen(
            argv, env=env, stdout=out, stderr=out, cwd=log.parent, start_new_session=True
        )
    try:
        while not healthy(port):
            if server.poll() is not None or time.monotonic() - began > LIMIT_S:
                raise SystemExit(f"not ready ({server.poll()}); see {log}")
            time.sleep(0.1)
        return time.monotonic() - began
    finally:
        below = watching.tree(server.pid)
        with contextlib.suppress(ProcessLookupError):  # it ended by itself
            os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
        for process in below:
            if process.is_running():
                process.kill()
        server.wait()


def bare(target: Path, into: Path) -> Path:
    """A copy of a target by hard links, from which every compiled file is taken away; its interpreter."""
    subprocess.run(["cp", "-al", f"{target}/.", str(into)], check=True)
    for folder in list(into.rglob("__pycache__")):
        shutil.rmtree(folder)  # a name less for the file, whose other name stays
    return into / "bin" / "python"


def phases(log: Path, ready_s: float) -> dict[str, float]:
    """Seconds a phase, by the log's stamps."""
    text = log.read_text(encoding="utf-8", errors="replace")
    moments = by_stamps(boot_log.steps(text), boot_log.last_stamp(text), ready_s)
    return {one.name: round(one.seconds, 1) for one in account(moments, ready_s)}


def main() -> None:
    """Start the variants in turn, A B B A ..., and print each time, the medians and their ratio as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stack", default="vllm-0.19.1-cpu", help="a stack that is built in the workspace")
    parser.add_argument("--what", choices=("bytecode", "caches"), default="bytecode")
    parser.add_argument("--rounds", type=int, default=2, help="starts of each variant")
    asked = parser.parse_args()
    work, stack = workspace(), pins.stack(asked.stack)
    print(json.dumps(measured(work, stack, asked.what, asked.rounds), indent=1))


def measured(work: Workspace, stack: pins.Stack, what: str, rounds: int) -> dict[str, object]:
    """All starts of one question."""
    python, model = work.target_python(stack.name), work.models / stack.model
    if not (python.exists() and model.is_dir()):
        raise SystemExit(
            f"{python} or {model} is not there; make them: runbook run 03 07 --stack {stack.name}"
        )
    variants = ("with", "without") if what == "bytecode" else ("cached", "first ever")
    times: dict[str, list[float]] = {one: [] for one in variants}
    told: dict[str, dict[str, float]] = {}
    made: dict[str, dict[str, int]] = {}
    load = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory(prefix="boot-", dir=work.root) as name:
        scratch = Path(name)
        poor = bare(work.target(stack.name), scratch / "bare") if what == "bytecode" else python
        order = [variants if turn % 2 else variants[::-1] for turn in range(rounds)]
        if what == "caches":
            order = [variants[::-1]] * rounds  # what is cached must have been made first
        for turn, variant in enumerate(one for pair in order for one in pair):
            caches = Workspace(scratch / "home").caches(stack.name)
            if variant == "first ever":
                shutil.rmtree(caches, ignore_errors=True)
            used = poor if variant == "without" else python
            env = target_env(Workspace(scratch / "home"), stack.name, used)
            env |= {one.name: one.value for one in launch.variables(stack)} | {"HF_HUB_OFFLINE": "1"}
            port = ports.free(launch.HOST)
            argv = launch.argv(stack, str(used), str(model), "served", port)
            if variant == "without":
                env["PYTHONDONTWRITEBYTECODE"] = "1"
            if what == "caches":
                argv.remove("--enforce-eager")
                env.pop("TORCH_COMPILE_DISABLE", None)
            log, since = scratch / f"{turn}.log", time.time()
            seconds = start(argv, env, port, log)
            times[variant].append(round(seconds, 1))
            told[variant], made[variant] = phases(log, seconds), watching.made_since(caches, since)
            print(f"{variant}: {seconds:.1f} s", file=sys.stderr)
    medians = {one: statistics.median(times[one]) for one in variants}
    return {
        "stack": stack.name,
        "what": what,
        "load_at_start": load,
        "seconds": times,
        "ratio": round(medians[variants[1]] / medians[variants[0]], 2),
        "phases_of_the_last": told,
        "files_compiled_in_the_last": made,
    }


if __name__ == "__main__":
    main()
