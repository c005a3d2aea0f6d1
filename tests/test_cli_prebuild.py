"""``runbook boot`` and ``runbook prebuild`` from outside: real logs, a ledger, and bad input that ends with 2."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runbook.actions import ledger
from runbook.serving.boot import Boot, Phase
from runbook.workspace import Workspace

LOG = Path(__file__).parent / "data" / "boot" / "h200-0.19.1.log"


def runbook(home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "RUNBOOK_HOME": str(home), "COLUMNS": "80"}
    return subprocess.run(
        [sys.executable, "-m", "runbook", *words],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["boot"], "no start is on record"),
        (["boot", "/no/such.log"], "No such file"),
        (["boot", __file__], "tells of a start"),
        (["prebuild", "--pack", "a", "--unpack", "b"], "--pack and --unpack at once"),
        (["prebuild", "--stack", "none"], "no stack 'none'"),
        (["prebuild", "--stack", "vllm-0.19.1-cpu"], "no target at "),
        (["prebuild", "--stack", "vllm-0.19.1-cpu", "qwen"], "no model 'qwen'"),
        (["prebuild", "--stack", "vllm-0.19.1-cpu", "--jobs", "0"], "--jobs"),
        (
            ["prebuild", "--stack", "vllm-0.19.1-cpu", "--unpack", "/no/such", "--yes"],
            "there is no file /no/such",
        ),
        (["prebuild", "--stack", "vllm-0.19.1-cpu", "--pack", "/no/such/x"], "nothing lies in "),
    ],
)
def test_bad_input_is_refused(tmp_path: Path, words: list[str], says: str) -> None:
    ended = runbook(tmp_path / "home", *words)
    assert ended.returncode == 2, ended
    assert says in ended.stderr
    assert not (tmp_path / "home").exists()


def test_the_phases_of_a_log(tmp_path: Path) -> None:
    ended = runbook(tmp_path, "boot", str(LOG))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "105.0 s  +-1.0  first run" in ended.stdout
    found = json.loads(runbook(tmp_path, "boot", "--format", "json", str(LOG)).stdout)
    assert sum(one["seconds"] for one in found["phases"]) == pytest.approx(found["ready_s"], abs=0.1)
    assert len(found["compiled"]) == 6
    assert not list(tmp_path.iterdir())


def test_the_last_start_beside_earlier_ones(tmp_path: Path) -> None:
    work = Workspace(tmp_path)
    for number, imports in enumerate((30.0, 9.0, 9.5, 9.2, 21.0)):
        phases = (Phase("imports", imports, 0.1, "lines"), Phase("before first run", 5.0, 0.1, "nothing"))
        ledger.append(work, Boot("2026-11-30T10:00:00+00:00", f"server.{number}", "vllm-0.19.1-cpu", "tiny-qwen3", {"flags": "a"}, imports + 5, phases, {"inductor": 2}))  # fmt: skip
    kept = work.caches("vllm-0.19.1-cpu") / "inductor" / "x.so"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"\0" * 1_048_576)
    text = runbook(tmp_path, "boot").stdout
    assert "slower than every one of 3 earlier starts (without a cause this happens once in 4 starts), most in imports (+11.8 s)" in text  # fmt: skip
    assert "before first run  ?" in text
    assert "1.0 MiB" in text
    assert str(kept.parent) in text
    found = json.loads(runbook(tmp_path, "boot", "--format", "json").stdout)
    assert (found["earlier"], found["slower_than"], found["unexplained_s"], found["made"]) == (3, 3, 5.0, {"inductor": 2})  # fmt: skip
