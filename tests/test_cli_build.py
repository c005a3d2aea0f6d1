"""``runbook build flash-attn`` from outside: bad input ends with 2, three sentences, and nothing written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def build(home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "RUNBOOK_HOME": str(home), "COLUMNS": "80"}
    return subprocess.run(
        [sys.executable, "-m", "runbook", "build", "flash-attn", *words],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--release", "2.8.3", "--source", "x.tar.gz"], "--release beside --source"),
        (["--gpu", "potato"], "potato"),
        (["--target", "/no/such/python"], "is not a program"),
        (["--source", "/no/such/flash_attn"], "is no source of flash-attn"),
        (["--jobs", "0"], "--jobs"),
        (["--stack", "none"], "no stack 'none'"),
        ([], "there is no target environment to build against"),
    ],
)
def test_bad_input_is_refused(tmp_path: Path, words: list[str], says: str) -> None:
    ended = build(tmp_path / "home", *words)
    assert ended.returncode == 2, ended
    assert says in ended.stderr
    assert not (tmp_path / "home").exists()


def test_a_target_without_torch_is_an_answer_with_what_to_do(tmp_path: Path) -> None:
    ended = build(tmp_path / "home", "--target", sys.executable, "--yes")
    assert ended.returncode == 1
    assert "torch does not load in the target: ModuleNotFoundError" in ended.stderr
    assert not (tmp_path / "home").exists()
