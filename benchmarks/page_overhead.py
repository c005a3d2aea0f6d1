"""What pages 08 and 09 cost over the bare commands: the same server and the same kinds of requests, with and without them.

``python benchmarks/page_overhead.py [--stack S] [--rounds N]``; see README.md beside this file. Bare is one process that starts
the server's command, sends what the pages send and sends SIGTERM: no notebook, no kernel, no check, no keeper, no record.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from runbook import launch, pins
from runbook.actions import Context
from runbook.actions.jobs import Owner
from runbook.actions.launching import SERVED
from runbook.actions.model_files import MakeModel, folder_of
from runbook.actions.rollouts import QUICK, measure
from runbook.actions.server import StartServer
from runbook.actions.validating import Asked, Validate
from runbook.actions.warming import WarmUp
from runbook.checks import parity
from runbook.endpoint import Endpoint
from runbook.probes.live import LiveProbe, target_env
from runbook.workspace import Workspace

INSIDE = Path(launch.__file__).parent / "inside"
KEY = "bare"
READY_S = 600.0


def bare(ctx: Context) -> dict[str, float]:
    """Seconds of each command and of all of it."""
    port = 8123
    endpoint = Endpoint(f"http://{launch.HOST}:{port}", SERVED, KEY)
    env = target_env(ctx.work, ctx.stack.name, ctx.python) | {"VLLM_API_KEY": KEY, "HF_HUB_OFFLINE": "1"}
    env |= {one.name: one.value for one in launch.variables(ctx.stack)}
    argv = StartServer(ctx).launch.argv(ctx, port, launch.HOST)
    took: dict[str, float] = {}
    began = last = time.monotonic()

    def lap(name: str) -> None:
        nonlocal last
        took[name], last = round(time.monotonic() - last, 2), time.monotonic()

    with (ctx.work.root / "bare.log").open("w") as log:
        server = subprocess.Popen(argv, env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            while not _answers(endpoint.url):
                if server.poll() is not None or time.monotonic() - began > READY_S:
                    raise SystemExit(f"the server is not there: {log.name}")
                time.sleep(0.25)
            lap("server")
            for kind, number in (("first", "12"), ("serving", "8")):
                words = ["--kind", kind, "--port", str(port), "--model", SERVED, "--n", number]
                script = [str(ctx.python), str(INSIDE / "openai_requests.py"), *words]
                subprocess.run(script, env=env, check=True, stdout=subprocess.DEVNULL)
                lap(f"requests, {kind}")
            WarmUp(ctx, endpoint).apply(lambda _: None)
            lap("warm-up")
            os.environ["VLLM_API_KEY"] = KEY
            host = LiveProbe(ctx.work, ctx.stack.name, ctx.python, folder_of(ctx))
            args = {
                name: value.replace("{port}", str(port)) for name, value in parity.asked(ctx.stack).items()
            }
            host.inside(parity.SCRIPT, args, parity.LIMIT_S)
            lap("parity")
            measure(endpoint, QUICK, lambda _: None, 16, ("short",))
            lap("rollouts")
            Validate(ctx, Asked(quick=True), endpoint, folder_of(ctx)).apply(lambda _: None)
            lap("validate")
        finally:
            server.terminate()
            server.wait(60)
    lap("stop")
    return {**took, "all": round(time.monotonic() - began, 2)}


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=2.0, trust_env=False).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def pages(ctx: Context, folder: Path) -> float:
    """Seconds of a walk over both pages."""
    env = os.environ | {"RUNBOOK_HOME": str(ctx.work.root)}
    words = ["run", "08", "09", "--stack", ctx.stack.name, "--keep-going", "--out", str(folder)]
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "runbook", *words], env=env, check=True, stdout=sys.stderr)
    return round(time.monotonic() - began, 2)


def main() -> None:
    """Alternate them and print JSON: seconds of each, and the ratio of the sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stack", default="vllm-0.19.1-cpu")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--home", type=Path, help="a workspace with the stack's target in it", required=True)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="page-overhead-") as held:
        home = Path(held)
        (home / "targets").symlink_to(asked.home.resolve() / "targets")
        work, stack = Workspace(home), pins.stack(asked.stack)
        ctx = Context(work, stack, work.target_python(stack.name), True, stack.model, Owner.of(), 900)  # noqa: FBT003
        MakeModel(ctx).apply(lambda _: None)
        rows = [(bare(ctx), pages(ctx, home / f"run-{number}")) for number in range(asked.rounds)]
    plain, walked = sum(one["all"] for one, _ in rows), sum(two for _, two in rows)
    print(json.dumps({"stack": stack.name, "bare": [one for one, _ in rows], "pages": [two for _, two in rows], "ratio": round(walked / plain, 3)}, indent=1))  # fmt: skip


if __name__ == "__main__":
    main()
