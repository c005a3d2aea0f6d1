"""Two real GRPO steps with TRL on the CPU: rollouts from our server, weights written to disk and reloaded in place.

    python benchmarks/grpo.py                         # vLLM 0.32.0, the tiny dense model (some 2 minutes)
    python benchmarks/grpo.py --stack vllm-0.19.1-cpu
    python benchmarks/grpo.py --model tiny-qwen3.5    # the hybrid

The server is started with the profile rl-rollout in the workspace of ``$RUNBOOK_HOME``, which must hold the stack's
target. TRL runs in an environment of its own, made on demand by uv and kept in its cache (torch and its CUDA libraries:
some 5 GB): it pins another vLLM than ours. Prints one JSON object; on standard error what is going on.

Why not TRL's own ``vllm_mode="server"``: TRL 1.16.0 wants vLLM 0.22.0 to 0.31.0 importable beside it, and pushes
weights through vLLM's NCCL engine, which needs a CUDA device on both sides. What is left on a CPU is its experimental
``rollout_func``: any function that brings tokens with their log-probabilities. TRL corrects by importance only with
``use_vllm``, so here it does not; the gap it would correct is measured instead.
"""

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from runbook import pins
from runbook.actions import Context
from runbook.actions.jobs import Owner
from runbook.actions.model_files import MakeModel, folder_of_name
from runbook.actions.rollouts import own
from runbook.actions.server import StartServer, StopServer
from runbook.serving.profiles import RL_ROLLOUT
from runbook.workspace import workspace

ROOT = Path(__file__).parents[1]
TRAINER = Path(__file__).with_name("grpo_in_trl.py")
NEEDS = ("trl==1.16.0", "torch==2.13.0", "httpx==0.28.1")
KEY = "VLLM_API_KEY"
LIMIT_S = 1800.0


def say(line: str) -> None:
    """Tell on standard error what is going on."""
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Start the server, train beside it, and print what the trainer found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--stack", default="vllm-0.32.0-cpu")
    parser.add_argument("--model", default="tiny-qwen3")
    parser.add_argument("--learning-rate", default="1e-3")
    asked = parser.parse_args()
    work = workspace()
    stack = pins.stack(asked.stack)
    python = work.target_python(stack.name)
    made = Context(work, stack, python, ours=True, model=asked.model, owner=Owner.of(), deadline_s=600)
    MakeModel(made).apply(say)
    with tempfile.TemporaryDirectory(prefix="grpo-") as held:
        # A copy: the trainer writes each step's weights over those of the step before.
        policy, out = Path(held) / "policy", Path(held) / "found.json"
        shutil.copytree(folder_of_name(work, asked.model), policy)
        ctx = dataclasses.replace(made, model=str(policy))
        StartServer(ctx, profile=RL_ROLLOUT).apply(say)
        try:
            endpoint, _ = own(work)
            # uv takes the environment out of its cache, apart from this project and from the target.
            command = [
                str(Path(sys.executable).with_name("uv")), "run", "--no-project", "--isolated", "--python", "3.11",
                *(word for one in NEEDS for word in ("--with", one)), "python", str(TRAINER),
                "--url", endpoint.url, "--policy", str(policy), "--out", str(out), "--learning-rate", asked.learning_rate,
            ]  # fmt: skip
            env = {**os.environ, KEY: endpoint.key, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}  # fmt: skip
            began = time.monotonic()
            subprocess.run(command, env=env, cwd=held, stdout=sys.stderr, check=True, timeout=LIMIT_S)
        finally:
            StopServer(ctx).apply(say)
        found = {"stack": stack.name, "model": asked.model, "seconds": round(time.monotonic() - began, 1)}
        print(json.dumps(found | json.loads(out.read_text(encoding="utf-8")), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
