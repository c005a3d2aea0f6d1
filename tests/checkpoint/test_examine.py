"""``python -m runbook.checkpoint``: one answer for the same files, without paths, and an exit code for no folder."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tiny

from runbook.parse.checkpoint import checkpoint


def ran(*words: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "runbook.checkpoint", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return tiny.make(tmp_path_factory.mktemp("checkpoints"))


def test_the_same_answer_wherever_it_lies(bases: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(bases["sharded"], tmp_path / "elsewhere")
    first, second = ran(str(bases["sharded"])), ran(str(tmp_path / "elsewhere"))
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout == second.stdout
    assert str(tmp_path) not in second.stdout
    assert len(first.stdout) < 20_000
    found = checkpoint(first.stdout)
    assert found is not None
    assert found.faults == ()
    assert found.value("weights", "tensors") == 142
    assert found.value("weights", "parameters") == 2_124_400
    assert found.table("weights", "types") == {"BF16": 130, "F32": 12}


def test_layers_that_are_alike_are_told_once(bases: dict[str, Path]) -> None:
    found = json.loads(ran(str(bases["hybrid"])).stdout)["weights"]["groups"]
    rows = {row[0]: row[1:] for row in found}
    assert rows["model.language_model.layers.N.linear_attn.A_log"] == ["F32", [4], 6, 96]
    assert sum(row[3] for row in found) == 142


@pytest.mark.parametrize(
    "words", [(), ("a", "b"), ("a", "--hash", "c"), ("/no/such/folder",), ("/etc/hostname",)]
)
def test_no_folder_is_no_answer(words: tuple[str, ...]) -> None:
    ended = ran(*words)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"faults": 1}',
        '{"faults": [["a", "b"]]}',
        '{"faults": [["a", "b", 1]]}',
        "[" * 100_000,
    ],
)
def test_no_such_answer(text: str) -> None:
    assert checkpoint(text) is None


def test_an_empty_folder_has_faults_and_does_not_raise(tmp_path: Path) -> None:
    ended = ran(str(tmp_path))
    kinds = {row[0] for row in json.loads(ended.stdout)["faults"]}
    assert {"config/missing", "tokenizer/missing", "template/none", "generation/none"} <= kinds
