"""A launch put together from a real checkpoint, this machine's memory and the options of a release; nothing is started."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from runbook import pins
from runbook.actions import Context
from runbook.actions.jobs import Owner
from runbook.actions.launching import Launching, shell
from runbook.actions.server import StartServer
from runbook.errors import ActionFailed, BadParameter
from runbook.probes.live import INSIDE
from runbook.workspace import Workspace

STACK = "vllm-0.32.0-cpu"
KIND = "tiny-qwen3.5"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / KIND
    argv = [sys.executable, "-I", "-S", str(INSIDE / "make_model.py"), "--kind", KIND, "--out", str(folder)]
    subprocess.run(argv, check=True, capture_output=True, timeout=120)
    return folder


def context(root: Path, model: Path, python: Path = Path("/no/such/python")) -> Context:
    return Context(Workspace(root), pins.stack(STACK), python, ours=True, model=str(model), owner=Owner.of(), deadline_s=60)  # fmt: skip


def values(launching: Launching, profile: str, *own: str) -> dict[str, str]:
    return {one.flag: one.value for one in launching.launch(profile, own).planned.flags}


def test_what_is_computed_follows_the_model_the_memory_and_your_flags(tmp_path: Path, model: Path) -> None:
    launching = Launching(context(tmp_path, model))
    plan = values(launching, "throughput")
    # A gigabyte holds hundreds of a quarter of 2,048 tokens: vLLM's own limit on a CPU is the smaller number.
    assert (plan["--max-num-seqs"], plan["--reasoning-parser"]) == ("128", "qwen3")
    longer = values(launching, "throughput", "--max_model_len=32k")
    room = launching.room([])
    assert room is not None
    assert int(longer["--max-num-seqs"]) == min(128, int(room.at_once(32_000 // 4)))
    # Yours is the last word of the command, the plan's is not in it, and both are told.
    assert "--max-model-len" not in longer
    found = launching.launch("throughput", ("--max_model_len=32k",))
    assert found.argv(launching.ctx, 1, "127.0.0.1")[-1] == "--max_model_len=32k"
    assert found.over == ("--max_model_len 32k is yours and goes before the plan's --max-model-len 2048 (long enough to rehearse with, quick to profile)",)  # fmt: skip
    assert "sequences of 32,000 at once" in launching.remembered(found)
    assert launching.remembered(launching.launch("baseline")).startswith("fits: weights 0.01 GiB, 932,010 KV tokens")  # fmt: skip


def test_a_switch_of_yours_takes_the_place_of_its_opposite(tmp_path: Path, model: Path) -> None:
    launching = Launching(context(tmp_path, model))
    assert "--enable-prefix-caching" in values(launching, "rl-rollout")
    found = launching.launch("rl-rollout", ("--no-enable-prefix-caching",))
    assert "--enable-prefix-caching" not in {one.flag for one in found.planned.flags}
    assert found.over[0].startswith("--no-enable-prefix-caching is yours")


@pytest.mark.parametrize(
    ("own", "seen", "do"),
    [
        (("--max-model-len", "long"), "--max-model-len long: a whole number", "runbook flags"),
        (("--num-scheduler-steps", "2"), "--num-scheduler-steps 2: leave it out", "runbook flags"),
        (("--port", "9000"), "--port after --", "runbook serve --port N"),
        (("--served-model-name=m",), "--served-model-name after --", "clients and checks ask for 'served'"),
        (("--api-key", "x"), "--api-key after --", "everybody here can read it"),
        (("tiny-qwen3",), "tiny-qwen3: a word without a flag", "runbook flags"),
    ],
)
def test_a_flag_that_would_end_the_start_is_refused(
    tmp_path: Path, model: Path, own: tuple[str, ...], seen: str, do: str
) -> None:
    with pytest.raises(BadParameter) as caught:
        Launching(context(tmp_path, model)).launch("baseline", own)
    assert caught.value.seen.startswith(seen)
    assert do in caught.value.do


def test_the_walks_command_costs_no_look_at_the_model(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "config.json").write_text("[", encoding="utf-8")
    start = StartServer(context(tmp_path, folder))
    assert start.launch.argv(start.ctx, 8000, "127.0.0.1")[-6:] == ["--max-model-len", "2048", "--max-num-seqs", "16", "--enforce-eager", "--language-model-only"]  # fmt: skip
    assert start.launch.judged == ()


def test_fingerprints_tell_profiles_and_flags_apart_and_not_ports(tmp_path: Path, model: Path) -> None:
    ctx = context(tmp_path, model)
    plain = StartServer(ctx).fingerprint()
    assert plain == StartServer(ctx, port=8123).fingerprint()
    others = (StartServer(ctx, (), "latency"), StartServer(ctx, own=("--seed", "1")), StartServer(ctx, host="0.0.0.0"))  # noqa: S104  # fmt: skip
    assert len({start.fingerprint()["flags"] for start in others} | {plain["flags"]}) == 4


def test_a_shell_gets_the_same_command_and_no_key(tmp_path: Path, model: Path) -> None:
    ctx = context(tmp_path, model)
    found = Launching(ctx).launch("rl-rollout")
    key = tmp_path / "a folder" / "server.key"
    key.parent.mkdir()
    key.write_text("made-up-key", encoding="utf-8")
    lines = shell(ctx, found, 8000, "127.0.0.1", key)
    assert "made-up-key" not in lines
    probe = lines.rpartition("\n")[0] + '\necho "$VLLM_API_KEY $VLLM_SERVER_DEV_MODE $VLLM_CPU_KVCACHE_SPACE"'
    said = subprocess.run(["bash", "-euc", probe], capture_output=True, text=True, check=True)
    assert said.stdout == "made-up-key 1 1\n"
    assert lines.rpartition("\n")[2].startswith(
        f"{ctx.python} -m vllm.entrypoints.openai.api_server --model "
    )


def stub(folder: Path, answer: object) -> Path:
    """An interpreter of another vLLM: it says where its packages are and what its parser takes, and no more."""
    site = folder / "site"
    (site / "vllm-9.9.0.dist-info").mkdir(parents=True)
    said = folder / "answer.json"
    said.write_text(json.dumps(answer), encoding="utf-8")
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nif [ "$2" = -c ]; then printf "%s\\n%s\\n" {folder} {site}; else cat {said}; fi\n')  # fmt: skip
    python.chmod(0o755)
    return python


def test_a_release_without_a_list_is_judged_by_its_own_parser(tmp_path: Path, model: Path) -> None:
    names = ("--model", "--served-model-name", "--host", "--port", "--max-model-len", "--max-num-seqs", "--only-here")  # fmt: skip
    rows = [{"names": [name], "takes": "text"} for name in names]
    rows += [{"names": [name], "takes": "none"} for name in ("--enforce-eager", "--language-model-only")]
    launching = Launching(context(tmp_path, model, stub(tmp_path / "py", {"version": "9.9.0", "options": rows})))  # fmt: skip
    found = launching.launch("text-only", ("--only-here", "x"))
    assert found.origin == "the installed parser"
    # The parsers of a chat service are not among its options.
    assert "--reasoning-parser is left out: vLLM 9.9.0 does not have it" in found.planned.left
    with pytest.raises(BadParameter, match=r"--gdn-prefill-backend"):
        launching.launch("baseline", ("--gdn-prefill-backend", "triton"))


def test_a_parser_that_cannot_be_asked_ends_the_plan(tmp_path: Path, model: Path) -> None:
    launching = Launching(context(tmp_path, model, stub(tmp_path / "py", {"error": "ImportError: no torch"})))
    with pytest.raises(ActionFailed, match="ImportError: no torch"):
        launching.launch("latency")
