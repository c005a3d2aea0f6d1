"""The scripts for the target interpreter, run by a plain one: whatever is missing there, they print one JSON object."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runbook.probes.live import INSIDE

MODEL = ["--path", "/no/such/model"]
SCRIPTS: dict[str, list[str]] = {
    "attention": ["--device", "cpu"],
    "bench_serve": ["--url", "http://127.0.0.1:1", "--model", "served", "--tokenizer", "/no/such/model"],
    "build_facts": [],
    "count_tokens": [*MODEL, "--texts", "/no/such/file"],
    "flash_check": [],
    "openai_requests": ["--kind", "first", "--port", "1", "--model", "served"],
    "parity_reference": [*MODEL, "--url", "http://127.0.0.1:1"],
    "tokenizer_facts": MODEL,
    "torch_allocator": ["--device", "cpu"],
    "torch_facts": [],
    "torch_matmul": ["--device", "cpu"],
    "try_engine": MODEL,
    "vllm_facts": [],
}
WITHOUT_LIBRARIES = {"claim_facts", "contents", "interpreter", "owners", "py_facts", "make_model"}
IMPORTS = {"attention": "torch", "bench_serve": "vllm", "count_tokens": "tokenizers", "build_facts": "torch", "flash_check": "flash_attn", "openai_requests": "openai", "parity_reference": "transformers", "tokenizer_facts": "transformers", "torch_allocator": "torch", "torch_facts": "torch", "torch_matmul": "torch", "try_engine": "vllm", "vllm_facts": "vllm"}  # fmt: skip


def ran(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A script in an interpreter without site-packages: no library at all."""
    argv = [sys.executable, "-I", "-S", str(INSIDE / f"{script}.py"), *words]
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=60, check=False, env={"HF_HUB_OFFLINE": "1"}
    )


def answer(ended: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert len(ended.stdout.splitlines()) == 1, ended
    found = json.loads(ended.stdout)
    assert isinstance(found, dict)
    return found


def test_every_script_is_tried() -> None:
    assert {path.stem for path in INSIDE.glob("*.py")} == set(SCRIPTS) | WITHOUT_LIBRARIES


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_that_cannot_do_its_work_says_why(script: str) -> None:
    ended = ran(script, *SCRIPTS[script])
    found = answer(ended)
    assert ended.returncode == 0
    assert ended.stderr == ""
    # try_engine's answer is the error itself: its root line.
    why = found["root"] if script == "try_engine" else found["error"]
    if script in IMPORTS:
        assert why == f"ModuleNotFoundError: No module named '{IMPORTS[script]}'"
    else:
        assert "FileNotFoundError" in why


@pytest.mark.parametrize(("script", "words"), [("attention", ["--device", "tpu"]), ("openai_requests", ["--kind", "third", "--port", "1", "--model", "m"])])  # fmt: skip
def test_bad_words_are_refused_without_an_answer(script: str, words: list[str]) -> None:
    """They come from our own checks, so this is a bug of ours; the probe then says that the child gave no answer."""
    ended = ran(script, *words)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "usage:" in ended.stderr


def own_facts(python: Path | str) -> dict[str, Any]:
    return answer(
        subprocess.run(
            [python, "-I", str(INSIDE / "py_facts.py")], capture_output=True, text=True, check=True
        )
    )


def test_py_facts() -> None:
    found = own_facts(sys.executable)
    assert found["version"] == ".".join(map(str, sys.version_info[:3]))
    assert found["implementation"] == "CPython"
    assert found["own_prefix"] is True
    assert isinstance(found["python_h"], bool)
    assert found["bytecode_percent"] is None


def test_py_facts_of_an_environment_that_lost_its_pyvenv_cfg(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(Path(sys.executable).resolve())
    assert own_facts(python)["own_prefix"] is False


def test_bytecode_is_counted(tmp_path: Path) -> None:
    package = tmp_path / "torch"
    (package / "nn").mkdir(parents=True)
    for name in ("__init__.py", "nn/__init__.py", "nn/a.py", "nn/b.py"):
        (package / name).write_text("", encoding="utf-8")
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(package / "__init__.py")], check=True)
    argv = [sys.executable, "-S", "-B", str(INSIDE / "py_facts.py")]
    ended = subprocess.run(
        argv, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert json.loads(ended.stdout)["bytecode_percent"] == 25
