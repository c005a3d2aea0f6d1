"""``runbook plan-memory``: what a person and a program see, exit codes, and what past runs of the workspace add."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from runbook import planned, report, workspace
from runbook.checks import BY_ID, model_memory
from runbook.cli import app
from runbook.errors import BadParameter
from runbook.model import Evidence, Finding, Verdict

MAKE = Path(__file__).parents[1] / "runbook" / "inside" / "make_model.py"
REQUIRED = {"kv_tokens", "kv_gib", "weights_gib", "block_size", "max_concurrency", "binding"}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNBOOK_HOME", str(tmp_path / "work"))
    monkeypatch.delenv("RUNBOOK_MACHINE", raising=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models") / "tiny"
    subprocess.run(
        [sys.executable, str(MAKE), "--kind", "tiny-qwen3.5", "--out", str(out)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return out


def asked(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["plan-memory", *words])
    if isinstance(result.exception, BadParameter):
        return result.exception.exit_code, str(result.exception)
    return result.exit_code, result.output


def as_json(*words: str) -> dict[str, Any]:
    code, text = asked(*words, "--format", "json")
    answer: dict[str, Any] = json.loads(text)
    assert code == (0 if answer["fits"] else 1)
    return answer


def test_the_command_of_the_issue_answers_what_was_asked(folder: Path) -> None:
    answer = as_json(
        "--model", str(folder), "--gpu-memory-mib", "24564", "--gpu-memory-utilization", "0.9", "--max-model-len", "4096",
        "--max-num-seqs", "64", "--tensor-parallel-size", "1", "--kv-cache-dtype", "auto", "--text-only", "--stack", "vllm-0.19.1-cu128",
    )  # fmt: skip
    assert answer.keys() >= REQUIRED
    assert answer["block_size"] == 272
    assert answer["binding"] == "max_num_seqs"


def test_a_published_model_needs_no_files() -> None:
    answer = as_json("--model", "Qwen/Qwen3.5-4B", "--gpu", "H200", "--text-only", "--max-model-len", "32768")
    assert answer["kv_tokens"] == pytest.approx(934_032, rel=0.02)
    assert answer["max_concurrency"] == pytest.approx(107.26, rel=0.02)
    assert any("catalogue" in note for note in answer["notes"])


def test_this_machine_is_the_default_on_a_stack_for_the_cpu(folder: Path) -> None:
    answer = as_json("--model", str(folder), "--stack", "vllm-0.32.0-cpu")
    assert (answer["kv_tokens"], answer["kv_gib"], answer["max_concurrency"]) == (932_010, 1.0, 455.08)


def test_the_cache_size_of_the_environment_counts_as_it_does_for_vllm(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--model", str(folder), "--stack", "vllm-0.32.0-cpu", "--gpu-memory-utilization", "0.2")
    assert as_json(*words)["kv_gib"] > 1.5
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    assert as_json(*words)["kv_tokens"] == 932_010
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "0.5")
    assert asked(*words)[0] == 2


def test_what_does_not_fit_ends_with_one_and_says_what_would(tmp_path: Path) -> None:
    code, text = asked(
        "--model", "Qwen/Qwen3.5-27B", "--gpu", "RTX 4090", "--text-only", "--chart", str(tmp_path / "a.svg")
    )
    assert code == 1
    assert "DOES NOT FIT" in text
    assert "--tensor-parallel-size 4" in text
    assert max(map(len, text.splitlines())) <= 80
    assert (tmp_path / "a.svg").read_text().startswith("<svg ")


def test_several_cards_are_divided_every_way() -> None:
    answer = as_json("--model", "Qwen/Qwen3.5-27B", "--gpu", "H200", "--gpus", "4", "--want", "100")
    assert {(one["tensor_parallel"], one["replicas"]) for one in answer["placements"]} == {
        (1, 4),
        (2, 2),
        (4, 1),
    }
    assert answer["want"]["sequences"] == 100
    assert 0 < answer["want"]["longest"] < 32768


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--model", "Qwen/Qwen3.5-7B", "--gpu", "H200"), "Qwen/Qwen3.5-9B"),
        (("--model", "Qwen/Qwen3.5-4B", "--gpu", "GTX 999"), "--gpu-memory-mib"),
        (("--model", "Qwen/Qwen3.5-4B", "--gpu", "H200", "--stack", "vllm-0.32.0-cpu"), "a stack for GPUs"),
        (("--model", "Qwen/Qwen3.5-4B", "--gpu", "H200", "--stack", "nope"), "nope"),
        (("--model", "Qwen/Qwen3.5-4B", "--gpu", "H200", "--tensor-parallel-size", "3"), "not divisible by 3"),
        (("--model", "Qwen/Qwen3.5-4B", "--gpu", "H200", "--gpu-memory-utilization", "90"), "at most 1"),
        (("--model", "Qwen/Qwen3.5-4B", "--gpu", "H200", "--dtype", "int4"), "bfloat16"),
        (("--model", "Qwen/Qwen3.5-4B", "--gpu", "H200", "--mamba-ssm-cache-dtype", "fp8"), "float32"),
        (("--model", "Qwen/Qwen3.5-4B", "--gpu", "H200", "--chart", "/nowhere/a.svg"), "no folder"),
        (("--model", "/nowhere", "--gpu", "H200"), "config.json"),
        (("--model", "tiny-qwen3.5", "--gpu", "H200"), "runbook run 07_model"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_error(words: tuple[str, ...], says: str) -> None:
    code, text = asked(*words)
    assert code == 2
    assert says in text


def test_a_checkpoint_without_the_drafting_block_cannot_draft(folder: Path) -> None:
    code, text = asked("--model", str(folder), "--gpu", "H200", "--num-speculative-tokens", "1")
    assert code == 2
    assert "P19" in text


def test_a_config_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[1]")
    assert "holds no object" in asked("--model", str(tmp_path), "--gpu", "H200")[1]
    (tmp_path / "config.json").write_text("{")
    assert "cannot be read" in asked("--model", str(tmp_path), "--gpu", "H200")[1]


def test_errors_of_past_runs_are_kept_as_calibration(folder: Path) -> None:
    work = workspace.workspace()
    stack = "vllm-0.32.0-cpu"

    def ran(when: str, text: str) -> None:
        file = work.runs / when / "findings" / f"08_warmup@{stack}.json"
        file.parent.mkdir(parents=True)
        file.write_text(text)

    def row(error: float) -> str:
        """What a page's gate writes."""
        one = BY_ID["WARM-008"]
        seen = (Evidence(model_memory.ERROR, error),)
        made = Finding(
            one.id, one.layer, one.title, one.why, Verdict.OK, seen, None, "",
            waived=False, duration_s=0.0, stack=stack, source=one.source,
        )  # fmt: skip
        return report.json_text([made])

    assert planned.calibration(work, stack) == ()
    ran("2026-11-29", row(0.1))
    ran("2026-11-30", row(-0.7))
    ran("2026-12-01", "{")
    assert "2 starts" in planned.calibration(work, stack)[0]
    assert "-0.70 %" in asked("--model", str(folder), "--stack", stack)[1]
    assert planned.calibration(work, "vllm-0.19.1-cpu") == ()
