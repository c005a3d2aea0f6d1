"""``runbook parity`` with real servers: what is right is trusted, a planted fault is found and named, nothing is left.

Served in float32 the dense checkpoint must give transformers' tokens one by one. The hybrid has no such setting on a
CPU: vLLM 0.32.0 starts with it and dies at the first prompt ("CPU GDN attention requires BF16."), so there bfloat16
must do, where both faults are planted.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import walking
from walking import NEW

from runbook.actions.jobs import Jobs
from runbook.probes.live import INSIDE

DENSE, HYBRID = "tiny-qwen3", "tiny-qwen3.5"
CLOSED, OPEN = "'<think>\\n\\n</think>\\n\\n'", "'<think>\\n'"
KEY = "text_config.rope_parameters.rope_theta"


@pytest.fixture(scope="module")
def serving(workspace: Path) -> Path:
    """The workspace with the target that serves both kinds."""
    argv = [sys.executable, "-m", "runbook", "env", "build", "--stack", NEW, "--yes"]
    env = walking.environment(workspace)
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    return workspace


def made(kind: str, folder: Path) -> Path:
    argv = [sys.executable, "-I", "-S", str(INSIDE / "make_model.py"), "--kind", kind, "--out", str(folder)]
    subprocess.run(argv, check=True, capture_output=True, timeout=120)
    return folder


def parity(home: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and answer; what it started is gone."""
    argv = [sys.executable, "-m", "runbook", "parity", "--stack", NEW, "--format", "json", *words]
    env = walking.environment(home)
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=600)
    assert walking.left(home) == []
    assert Jobs(home / "jobs").running() == []
    answer: dict[str, Any] = json.loads(done.stdout)
    walking.tell(json.dumps({key: answer[key] for key in ("verdict", "causes", "reason", "noise_ratio", "mean_difference", "max_difference", "equal")}))  # fmt: skip
    return done.returncode, answer


def test_in_float32_every_token_is_transformers_own(home: Path, serving: Path) -> None:
    assert serving == home
    code, found = parity(home, "--model", DENSE, "--dtype", "float32")
    assert (code, found["verdict"], found["causes"]) == (0, "agree", [])
    assert found["dtype"] == "float32"
    # 22 prompts alone and again in one request, 4 chats, of 64 tokens each.
    assert (found["prompts"], found["tokens"]) == (48, 48 * 64)
    assert (found["equal"], found["equal_prompts"], found["divergences"]) == (1.0, 48, [])
    assert found["batch_same"] == 1.0
    assert 0 < found["max_difference"] < 1e-4
    assert found["trust"] == "yes, as they are"


def test_a_planted_rope_base_and_a_planted_template_are_named(
    home: Path, serving: Path, tmp_path: Path
) -> None:
    assert serving == home
    trained = made(HYBRID, tmp_path / "trained")
    served = tmp_path / "served"
    shutil.copytree(trained, served)
    config = json.loads((served / "config.json").read_text(encoding="utf-8"))
    config["text_config"]["rope_parameters"]["rope_theta"] = 10000.0
    (served / "config.json").write_text(json.dumps(config), encoding="utf-8")
    template = (served / "chat_template.jinja").read_text(encoding="utf-8")
    assert CLOSED in template
    (served / "chat_template.jinja").write_text(template.replace(CLOSED, OPEN), encoding="utf-8")
    code, found = parity(home, "--model", str(served), "--reference", str(trained), "--prompts", "12")
    assert (code, found["verdict"]) == (1, "differ")
    about_template, about_rope = found["causes"]
    assert about_template.startswith("the chat template: in 'chat, thinking off' token ")
    assert "served '<think>\\n', reference '<think>\\n\\n</think>\\n\\n'" in about_template
    assert about_rope == f"the server computes with {KEY} = 10000.0, as in the served config.json"
    assert found["config_differs"] == {KEY: [10000.0, 10000000.0]}
    # Told from the log-probabilities alone, too: the bare value explains it, and no other one does.
    ratios = found["explained"]
    others = [ratio for name, ratio in ratios.items() if "10000" not in name and "served" not in name]
    assert ratios["rope_theta = 10000"] < 1.2
    assert min(others) > 1.5
    assert found["noise_ratio"] > 1.5


def test_an_interrupt_leaves_nothing(home: Path, serving: Path) -> None:
    assert serving == home
    argv = [sys.executable, "-m", "runbook", "parity", "--stack", NEW, "--model", DENSE]
    process = subprocess.Popen(
        argv, env=walking.environment(home), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True, preexec_fn=walking.as_in_a_terminal,  # noqa: PLW1509 - the tests have one thread
    )  # fmt: skip
    try:
        walking.until(lambda: walking.server(home) is not None, 30, "its server is started")
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait(30)
    assert process.returncode == 130, said
    assert said.endswith("interrupted\n")
    assert walking.left(home) == []
