"""``runbook serve`` from outside, without vLLM: what would end a start is said before it; the plan is words and JSON.

tests/walk/test_serve.py has the real server.
"""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from runbook.actions import ports
from runbook.errors import ActionFailed, BadParameter

NEW, GPU = "vllm-0.32.0-cpu", "vllm-0.19.1-cu128"
EVERYWHERE = "0.0.0.0"  # noqa: S104 - refused here


def serve(home: Path, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "RUNBOOK_HOME": str(home), "COLUMNS": "80", **variables}
    argv = [sys.executable, "-m", "runbook", "serve", *words]
    return subprocess.run(
        argv, env=env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=120
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--profile", "fast"], "no profile 'fast'"),
        (["--host", EVERYWHERE, "--profile", "rl-rollout"], "would be open to everybody"),
        (["--target", "/no/such/python"], "'/no/such/python' is not a program"),
        (["Qwen/Qwen3.5-7B"], "there is no model 'Qwen/Qwen3.5-7B'"),
        (["--", "--num-scheduler-steps", "2"], "--num-scheduler-steps 2: leave it out"),
        (["tiny-qwen3.5", "tiny-qwen3"], "a word without a flag is the model"),
        ([], "no target environment for"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(tmp_path: Path, words: list[str], says: str) -> None:
    ended = serve(tmp_path / "home", "--stack", NEW, *words)
    assert (ended.returncode, ended.stdout) == (2, ""), ended
    assert says in ended.stderr
    assert not (tmp_path / "home" / "jobs").exists()


def test_a_plan_names_every_flag_with_its_reason_and_starts_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    ended = serve(home, "Qwen/Qwen3.5-2B", "--stack", GPU, "--plan", "--profile", "latency", "--", "--max_model_len=8k")  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    said = ended.stdout
    assert re.search(r"^  --max-num-seqs 32 +H200: 6\.9 ms", said, re.MULTILINE)
    # The catalogue knows that the small sizes do not think by default; no file of the model is here.
    assert '--default-chat-template-kwargs {"enable_thinking": false}  P01' in said
    assert "yours   --max_model_len 8k is yours and goes before the plan's --max-model-len 32768" in said
    assert "--max-model-len 32768" not in said.partition("the same in a shell")[2]
    assert re.search(r"^memory  not known: no GPU answers|^memory  fits", said, re.MULTILINE)
    assert f"parser  takes all of it, by stacks/{GPU}/flags.json" in said
    assert 'export VLLM_API_KEY="$(cat ' in said
    assert not home.exists()


def test_a_plan_as_json_is_the_command(tmp_path: Path) -> None:
    ended = serve(tmp_path / "home", "--stack", NEW, "--plan", "--format", "json", "--port", "9001", "--", "--seed", "7")  # fmt: skip
    assert ended.returncode == 0, ended
    made = json.loads(ended.stdout)
    assert (made["schema"], made["profile"], made["stack"]) == ("launch/1", "baseline", NEW)
    assert made["argv"][-2:] == ["--seed", "7"]
    assert made["argv"][made["argv"].index("--port") + 1] == "9001"
    assert [one["flag"] for one in made["flags"]] == [row for row in made["argv"] if row in {one["flag"] for one in made["flags"]}]  # fmt: skip
    assert made["judged_by"] == f"stacks/{NEW}/flags.json"
    plain = json.loads(serve(tmp_path / "home", "--stack", NEW, "--plan", "--format", "json").stdout)
    assert (plain["own"], plain["replaced"], plain["left_out"]) == ([], [], [])
    assert plain["judged_by"] == f"stacks/{NEW}/manifest.toml"


def test_flags_may_come_from_a_file_and_an_odd_one_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "flags.yaml"
    config.write_text("max-model-len: 512\nenforce-eager: true\n", encoding="utf-8")
    ended = serve(tmp_path / "home", "--stack", NEW, "--plan", "--", "--config", str(config))
    assert ended.returncode == 0, ended
    assert "  --max-model-len 512 --enforce-eager" in ended.stdout
    ended = serve(tmp_path / "home", "--stack", NEW, "--plan", "--", "--config", str(tmp_path / "none.yaml"))
    assert (ended.returncode, "could not be read here" in ended.stderr) == (2, True), ended


def test_a_taken_port_is_said_with_its_holder_before_anything_starts(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        # An interpreter that is there, so that the port is what is wrong; no vLLM is needed to say so.
        ended = serve(home, "--stack", NEW, "--target", sys.executable, "--port", str(port))
    assert (ended.returncode, ended.stdout) == (1, ""), ended
    assert f"port {port} is taken by process {os.getpid()} of user " in ended.stderr
    assert "--port " in ended.stderr.partition("do: ")[2]
    assert not (home / "jobs").exists()


def test_a_model_that_is_not_here_is_not_fetched_unasked(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = str(one.getsockname()[1])
    ended = serve(home, "Qwen/Qwen3.5-4B", "--stack", NEW, "--target", sys.executable, "--port", port)
    assert ended.returncode == 2, ended
    assert "do: runbook fetch Qwen/Qwen3.5-4B" in ended.stderr
    assert not (home / "jobs" / "server.json").exists()


def test_a_free_port_is_taken_and_a_closed_one_is_free_again() -> None:
    port = ports.free("127.0.0.1")
    assert ports.demanded(port, "127.0.0.1") == port
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with socket.create_connection(("127.0.0.1", port)), pytest.raises(ActionFailed, match=str(port)):
            ports.demanded(port, "127.0.0.1")
    # The connection that was just closed lingers in the kernel; a server may listen all the same.
    assert ports.demanded(port, "127.0.0.1") == port
    with pytest.raises(BadParameter, match=r"on 192\.0\.2\.1"):
        ports.demanded(port, "192.0.2.1")
