"""``runbook flags``: a pasted command is judged against a release's list, and the exit code says whether vLLM takes it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runbook import flags
from runbook.errors import BadParameter, RunbookError
from runbook.parse.vllm_flags import Command

ROOT = Path(__file__).parents[1]
GPU, CPU = "vllm-0.19.1-cu128", "vllm-0.32.0-cpu"


def ran(home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "runbook", "flags", *words], capture_output=True, text=True, check=False, timeout=60,
        cwd=ROOT, env={**os.environ, "RUNBOOK_HOME": str(home), "NO_COLOR": "1"},
    )  # fmt: skip


def test_a_command_that_vllm_takes(tmp_path: Path) -> None:
    ended = ran(tmp_path, "--stack", GPU, "--", "vllm", "serve", "M", "--max-model-len", "32k", "-tp", "2")
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert lines[0].startswith("vLLM 0.19.1, 231 options, stacks/vllm-0.19.1-cu128/flags.json, made 2026")
    assert lines[-1] == "vLLM's parser takes all 3; what they do together is judged at start"


def test_a_command_that_vllm_refuses(tmp_path: Path) -> None:
    words = "VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve M --swap-space 4 --gpu-memory-utilization 0.9 --enforce-eagre"
    ended = ran(tmp_path, "--stack", GPU, words)
    assert ended.returncode == 1
    told = {line.split()[1]: line.split()[0] for line in ended.stdout.splitlines()[1:-1]}
    assert told == {"M": "ok", "--swap-space": "removed", "--gpu-memory-utilization": "default", "--enforce-eagre": "unknown", "VLLM_ATTENTION_BACKEND:": "note"}  # fmt: skip
    assert ended.stdout.splitlines()[-1] == "vLLM ends over 2 of 4: --swap-space, --enforce-eagre"


def test_as_json(tmp_path: Path) -> None:
    ended = ran(tmp_path, "--stack", CPU, "--format", "json", "--", "--calculate-kv-scales")
    found: dict[str, Any] = json.loads(ended.stdout)
    assert ended.returncode == 1
    assert (found["schema"], found["vllm"]) == ("flags/1", "0.32.0")
    assert found["flags"] == [{"word": "--calculate-kv-scales", "value": "", "option": "", "outcome": "unknown", "says": "vLLM 0.20.2 has it, this release does not", "refused": True}]  # fmt: skip


@pytest.mark.parametrize("words", [("ls", "-l"), ("vllm bench serve",), ("vllm serve 'M",)])
def test_what_is_no_such_command_is_bad_input(tmp_path: Path, words: tuple[str, ...]) -> None:
    ended = ran(tmp_path, *words)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "do: " in ended.stderr


def test_a_stack_that_is_none_is_bad_input(tmp_path: Path) -> None:
    assert ran(tmp_path, "--stack", "vllm-9", "--", "vllm", "serve", "M").returncode == 2


class Made:
    """A target with one vLLM in it; ``facts`` is what its parser says."""

    machine = "live"
    has_target = True

    def __init__(self, version: str, facts: dict[str, Any], stack: str = GPU) -> None:
        self.version, self.facts, self.stack = version, facts, stack
        self.asked = 0

    def glob(self, _: str) -> tuple[str, ...]:
        return (f"{{site}}/vllm-{self.version}.dist-info",)

    def inside(self, *_: Any, **__: Any) -> dict[str, Any]:
        self.asked += 1
        return self.facts


FACTS = {"version": "0.20.0", "options": [{"names": ["--seed"], "takes": "int", "default": 0}]}


def test_the_list_of_the_installed_release_is_taken_whatever_the_stack() -> None:
    host: Any = Made("0.32.0+cpu", {})
    by = flags.options(host, named_stack=False, installed=False)
    assert (by.version, host.asked) == ("0.32.0", 0)


def test_a_release_without_a_list_is_asked_itself() -> None:
    host: Any = Made("0.20.0", FACTS)
    by = flags.options(host, named_stack=False, installed=False)
    assert (by.version, by.origin, len(by.known)) == ("0.20.0", "the installed parser", 1)
    assert flags.options(host, named_stack=True, installed=False).version == "0.19.1"


def test_the_installed_parser_can_be_asked_for() -> None:
    host: Any = Made("0.19.1", {**FACTS, "version": "0.19.1"})
    assert flags.options(host, named_stack=False, installed=True).origin == "the installed parser"


def test_a_parser_that_does_not_load_is_no_verdict() -> None:
    host: Any = Made("0.20.0", {"error": "ImportError: libcudart.so.12"})
    with pytest.raises(RunbookError, match=r"libcudart\.so\.12"):
        flags.options(host, named_stack=False, installed=False)


def test_a_config_file_is_read_into_the_command(tmp_path: Path) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text("swap-space: 4\nenforce-eager: false\n", encoding="utf-8")
    asked, said = flags.with_config(Command((), "serve", ("M", "--config", str(path), "--seed", "1")))
    assert asked.words == ("M", "--swap-space", "4", "--seed", "1")
    assert "enforce-eager: false" in said[0]


@pytest.mark.parametrize(
    ("name", "words"), [("no.yaml", "could not be read here"), ("flags.toml", ".yaml and .yml only")]
)
def test_a_config_file_that_is_none(tmp_path: Path, name: str, words: str) -> None:
    asked = Command((), "module", ("--config", str(tmp_path / name)))
    same, said = flags.with_config(asked)
    assert same == asked
    assert words in said[0]


def test_a_command_in_one_text() -> None:
    assert flags.command(["vllm serve M \\\n  --seed 1"]).words == ("M", "--seed", "1")
    with pytest.raises(BadParameter):
        flags.command([])


def test_what_is_gone_comes_before_what_is_elsewhere() -> None:
    found = flags.gone("0.32.0")
    assert found["--calculate-kv-scales"] == {"elsewhere": "0.20.2"}
    assert "since" in found["--swap-space"]
