"""Bad input of ``runbook rollout`` and ``runbook normalize-prompt``, and what the latter does without a target."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runbook import pins
from runbook.actions import Context
from runbook.actions.jobs import Owner
from runbook.actions.rollouts import FULL, QUICK, Rollouts, fitting
from runbook.errors import BadParameter
from runbook.probes.live import INSIDE
from runbook.workspace import Workspace

WIDE = "你好，世界。"  # noqa: RUF001 - full-width marks are the subject


def said(home: Path, *words: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "RUNBOOK_HOME": str(home), "NO_COLOR": "1"}
    argv = [sys.executable, "-m", "runbook", *words]
    return subprocess.run(argv, env=env, input=text, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("rollout",), 1, "no server of this workspace runs"),
        (("rollout", "--model", "x"), 2, "--model without --url"),
        (("rollout", "--key-env", "X"), 2, "--key-env without --url"),
        (("rollout", "--url", "http://127.0.0.1:9"), 2, "--url without --model"),
        (("rollout", "--url", "http://127.0.0.1:9", "--model", "m", "--new-weights", "/x"), 2, "--new-weights with --url"),
        (("rollout", "--url", "http://127.0.0.1:9", "--model", "m", "--key-env", "NO_SUCH_KEY"), 2, "there is no such variable"),
        (("rollout", "--samples", "1"), 2, "1 is not in the range"),
        (("normalize-prompt", "/nowhere/at/all"), 2, "No such file"),
        (("normalize-prompt", "-", "--ask"), 2, "--ask without --effect"),
    ],
)  # fmt: skip
def test_bad_input_is_said_in_words(words: tuple[str, ...], code: int, says: str, tmp_path: Path) -> None:
    done = said(tmp_path, *words)
    assert (done.returncode, says in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


def test_nobody_at_the_address_is_a_failure_with_the_reason(tmp_path: Path) -> None:
    done = said(tmp_path, "rollout", "--quick", "--url", "http://127.0.0.1:9", "--model", "m")
    assert done.returncode == 1
    assert "APIConnectionError" in done.stdout
    assert "ready for rollouts: no: SERVE-021" in done.stdout


def test_the_text_comes_out_as_it_went_in_but_for_the_marks(tmp_path: Path) -> None:
    done = said(tmp_path, "normalize-prompt", "-", text=f"{WIDE}\n\n  x")
    assert (done.returncode, done.stdout) == (0, "你好,世界.\n\n  x")


def test_tokens_without_a_target_are_not_guessed(tmp_path: Path) -> None:
    done = said(tmp_path, "normalize-prompt", "-", "--effect", "--stack", "vllm-0.19.1-cpu", text=WIDE)
    assert done.returncode == 1
    assert "tokens could not be counted with tiny-qwen3" in done.stderr


def made(kind: str, folder: Path) -> Path:
    argv = [sys.executable, "-I", "-S", str(INSIDE / "make_model.py"), "--kind", kind, "--out", str(folder)]
    subprocess.run(argv, check=True, capture_output=True, timeout=120)
    return folder


def test_weights_that_would_not_load_are_refused_before_anything_is_asked(tmp_path: Path) -> None:
    served = made("tiny-qwen3", tmp_path / "served")
    fitting(served, made("tiny-qwen3", tmp_path / "other"))
    with pytest.raises(BadParameter, match="differ in type or shape from the served ones"):
        fitting(served, made("tiny-qwen3.5", tmp_path / "hybrid"))
    with pytest.raises(BadParameter, match="holds no weights that can be read"):
        fitting(served, tmp_path)
    weights = tmp_path / "other" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(BadParameter, match="holds no weights that can be read"):
        fitting(served, tmp_path / "other")


def test_the_plan_names_what_is_asked_and_the_short_one_reloads_nothing(tmp_path: Path) -> None:
    stack = pins.stack("vllm-0.19.1-cpu")
    ctx = Context(Workspace(tmp_path), stack, Path("python"), ours=True, model="tiny-qwen3", owner=Owner.of(), deadline_s=9)  # fmt: skip
    short, full = (Rollouts(ctx, asked).plan() for asked in (QUICK, FULL))
    assert [line.split()[0] for line in short] == ["groups", "batch", "writes"]
    assert [line.split()[0] for line in full] == ["groups", "batch", "shared", "sleep", "reload", "writes"]
    assert not any(tmp_path.iterdir())
