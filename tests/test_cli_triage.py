"""``runbook triage``: where a log may come from, what is printed, and the exit code of each verdict."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import Result
from typer.testing import CliRunner

from runbook.cli import app

SCHEMA = Path(__file__).parents[1] / "runbook" / "schemas" / "triage.schema.json"
KV = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n"
UP = "INFO:     Application startup complete.\n"
Triage = Callable[..., Result]


@pytest.fixture
def triage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Triage:
    monkeypatch.setenv("RUNBOOK_HOME", str(tmp_path / "home"))
    return lambda *words, **more: CliRunner().invoke(app, ["triage", *map(str, words)], **more)


def refused(asked: Result) -> str:
    """The words of a refusal; the command line turns it into exit code 2 (tests/test_cli.py)."""
    assert asked.exception is not None
    assert getattr(asked.exception, "exit_code", None) == 2, asked.exception
    return str(asked.exception)


def written(folder: Path, text: str, name: str = "server.log") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [(KV, 1, "CAUSE"), (UP, 0, "HEALTHY"), ("OddError: x\n", 3, "NO VERDICT"), ("", 3, "NO VERDICT")],
)
def test_each_verdict_has_its_word_and_its_exit_code(
    triage: Triage, tmp_path: Path, text: str, code: int, said: str
) -> None:
    log = written(tmp_path, text)
    asked = triage(log)
    assert (asked.exit_code, said in asked.output) == (code, True), asked.output
    row = json.loads(triage(log, "--format", "json").output)
    jsonschema.validate(row, json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert row["verdict"] == {1: "cause", 0: "healthy", 3: "none"}[code]


def test_the_contract_of_a_cause(triage: Triage, tmp_path: Path) -> None:
    row = json.loads(triage(written(tmp_path, UP + KV), "--format", "json").output)
    first: dict[str, Any] = row["causes"][0]
    assert {"key", "layer", "confidence", "line", "why", "fix", "checks"} <= set(first)
    assert (first["key"], first["layer"], first["line"]) == ("no-memory-for-kv-blocks", "memory", 2)
    assert first["text"] == KV.strip()
    assert first["fix"]["text"]


def test_standard_input_and_several_files(triage: Triage, tmp_path: Path) -> None:
    assert triage("-", input=KV.encode()).exit_code == 1
    dmesg = written(tmp_path, "nothing\n", "dmesg.txt")
    asked = triage(dmesg, written(tmp_path, KV), "--format", "json")
    assert json.loads(asked.output)["causes"][0]["file"] == "server.log"


def test_the_servers_own_log_without_a_word(triage: Triage, tmp_path: Path) -> None:
    assert "no server of this workspace was started" in refused(triage())
    written(tmp_path / "home" / "jobs", UP)
    assert triage().exit_code == 0


def test_a_run_folder(triage: Triage, tmp_path: Path) -> None:
    assert "no *.log in" in refused(triage("--run", tmp_path))
    written(tmp_path / "logs", KV, "09_serving@x.log")
    asked = triage("--run", tmp_path, "--machine", "none")
    assert (asked.exit_code, "no-memory-for-kv-blocks" in asked.output) == (1, True)


def test_a_process_that_writes_to_a_file(triage: Triage, tmp_path: Path) -> None:
    log = written(tmp_path, KV)
    with (
        log.open("a", encoding="utf-8") as out,
        subprocess.Popen(["sleep", "60"], stdout=out, stderr=out) as process,
    ):
        try:
            assert triage("--pid", process.pid, "--machine", "none").exit_code == 1
        finally:
            process.kill()
    with subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        try:
            assert "cannot be read again" in refused(triage("--pid", process.pid))
        finally:
            process.kill()
    assert f"there is no process {process.pid}" in refused(triage("--pid", process.pid))


def test_bad_input_is_one_clear_error(triage: Triage, tmp_path: Path) -> None:
    assert "No such file" in refused(triage(tmp_path / "none.log"))
    assert "directory" in refused(triage(tmp_path))
    assert "one of them" in refused(triage(tmp_path, "--pid", 1))
    assert "gzip" in refused(triage(_bytes(tmp_path / "cut.gz", b"\x1f\x8b\x08")))


def _bytes(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_a_machine_confirms_what_the_log_says(triage: Triage, tmp_path: Path) -> None:
    log = written(
        tmp_path,
        "RuntimeError: The NVIDIA driver on your system is too old (found version 12000). Please update your GPU driver\n",
    )
    alone = json.loads(triage(log, "--format", "json").output)["causes"][0]
    asked = triage(log, "--machine", "recorded:h200-driver-470", "--format", "json")
    first = json.loads(asked.output)["causes"][0]
    assert (alone["key"], first["key"]) == ("driver-too-old", "driver-too-old")
    assert alone["machine"] == []
    assert "fail" in {one["verdict"] for one in first["machine"]}
    shown = triage(log, "--machine", "recorded:h200-driver-470").output
    assert "confirmed by this machine" in shown
    innocent = triage(log, "--machine", "recorded:h200-vllm-0.19.1").output
    assert "this machine does not show it" in innocent
