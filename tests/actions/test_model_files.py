"""Where a checkpoint lies, how one is made with a real interpreter, and what its hash notices."""

import json
import sys
from pathlib import Path

import pytest

from runbook import pins
from runbook.actions import Context
from runbook.actions.jobs import Owner
from runbook.actions.model_files import GENERATED, MakeModel, checkpoint_hash, folder_of
from runbook.errors import ActionFailed, BadParameter
from runbook.workspace import Workspace


def context(root: Path, model: str, python: Path | None = None) -> Context:
    stack = pins.stack("vllm-0.19.1-cpu")
    return Context(
        Workspace(root),
        stack,
        python or Path(sys.executable),
        ours=True,
        model=model,
        owner=Owner.of(),
        deadline_s=60,
    )


def test_places(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}", encoding="utf-8")
    assert folder_of(context(tmp_path, "tiny-qwen3")) == tmp_path / "models" / "tiny-qwen3"
    assert folder_of(context(tmp_path, "Qwen/Qwen3.5-4B")) == tmp_path / "models" / "Qwen--Qwen3.5-4B"
    assert folder_of(context(tmp_path, str(tmp_path / "mine"))) == tmp_path / "mine"


def test_a_folder_of_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}", encoding="utf-8")
    assert folder_of(context(tmp_path / "work", "~/m")) == tmp_path / "m"


@pytest.mark.parametrize(
    ("name", "needle"),
    [
        ("", "no model ''"),
        ("qwen", "no model 'qwen'"),
        ("tiny-qwen", "tiny-qwen3"),
        ("a/b/c", "no model 'a/b/c'"),
        ("/a", "no config.json"),
        ("Qwen/", "no model 'Qwen/'"),
        ("Qwen/Qwen3.5-7B", "Qwen/Qwen3.5-9B"),
        ("Qwen3.5-4B", "Qwen/Qwen3.5-4B"),
        ("../models", "no config.json"),
        ("..", "no config.json"),
        ("../..", "no config.json"),
        ("/no/such/folder", "no config.json in /no/such/folder"),
        ("./here", "no config.json"),
    ],
)
def test_no_model(name: str, needle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadParameter) as refused:
        folder_of(context(tmp_path / "work", name))
    assert needle in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", GENERATED)
def test_the_plan_says_what_and_changes_nothing(name: str, tmp_path: Path) -> None:
    lines = MakeModel(context(tmp_path / "work", name)).plan()
    assert [line.split()[0] for line in lines] == ["generate"] * len(lines)
    assert name in lines[0]
    assert list(tmp_path.iterdir()) == []
    (line, resume) = MakeModel(context(tmp_path / "work", "Qwen/Qwen3.5-4B")).plan()
    assert "from the hub" in line
    assert "kept" in resume


def test_made_once(tmp_path: Path) -> None:
    told: list[str] = []
    one = MakeModel(context(tmp_path, "tiny-qwen3"))
    one.apply(told.append)
    assert [line.split(":")[0] for line in told] == ["tiny-qwen3", "tiny-qwen3.5"]
    assert all("written" in line for line in told)
    config = json.loads((tmp_path / "models" / "tiny-qwen3" / "config.json").read_text(encoding="utf-8"))
    assert config["model_type"] == "qwen3"
    told.clear()
    one.apply(told.append)
    assert all("already there" in line for line in told)


def test_what_is_in_the_way_is_not_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "tiny-qwen3"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ActionFailed, match="holds something else"):
        MakeModel(context(tmp_path, "tiny-qwen3")).apply(lambda _: None)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_without_an_interpreter(tmp_path: Path) -> None:
    with pytest.raises(ActionFailed, match="no target interpreter"):
        MakeModel(context(tmp_path, "tiny-qwen3", tmp_path / "no-python")).apply(lambda _: None)


def test_a_hub_that_cannot_be_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(
        ActionFailed, match=r"Qwen/Qwen3\.5-4B: http://127\.0\.0\.1:1 gives no answer"
    ) as failed:
        MakeModel(context(tmp_path, "Qwen/Qwen3.5-4B")).apply(lambda _: None)
    assert "HF_ENDPOINT" in failed.value.do
    assert "-p model=/path" in failed.value.do


def test_a_folder_is_used_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    one = MakeModel(context(tmp_path / "work", str(tmp_path)))
    assert one.plan() == [f"nothing: {tmp_path} is used as it is"]
    before = sorted(tmp_path.iterdir())
    one.apply(lambda _: None)
    assert [path for path in sorted(tmp_path.iterdir()) if path.name != "work"] == before


def test_the_hash_notices_what_makes_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"a": 1}', encoding="utf-8")
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(bytes(5 << 20))
    seen = {checkpoint_hash(tmp_path)}
    assert seen == {checkpoint_hash(tmp_path)}
    (tmp_path / "config.json").write_text('{"a": 2}', encoding="utf-8")  # same length
    seen.add(checkpoint_hash(tmp_path))
    weights.write_bytes(bytes((5 << 20) + 1))
    seen.add(checkpoint_hash(tmp_path))
    weights.rename(tmp_path / "other.safetensors")
    seen.add(checkpoint_hash(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    seen.add(checkpoint_hash(tmp_path))
    assert len(seen) == 5
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").write_text("not part of it", encoding="utf-8")
    assert checkpoint_hash(tmp_path) in seen


def test_the_hash_of_no_folder(tmp_path: Path) -> None:
    assert checkpoint_hash(tmp_path / "none") == checkpoint_hash(tmp_path)
