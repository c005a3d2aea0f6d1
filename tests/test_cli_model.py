"""``runbook model`` and ``runbook fetch`` as a user meets them: 80 columns, exit codes, one clear refusal before any download."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hub as served
import pytest
from hub import COMMIT, Hub

from runbook import catalogue, cli
from runbook.catalogue import Model

REPO = "Qwen/Qwen3.5-4B"
MAKE = Path(__file__).parents[1] / "runbook" / "inside" / "make_model.py"
Ended = tuple[int, str, str]
Command = Callable[..., Ended]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "model"
    subprocess.run([sys.executable, MAKE, "--kind", "tiny-qwen3.5", "--out", folder], check=True, capture_output=True)  # fmt: skip
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("RUNBOOK_MACHINE", "RUNBOOK_RECORD", "HF_TOKEN", "HF_HUB_OFFLINE", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RUNBOOK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def there(tiny: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with served.hub({REPO: tiny}) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        assert not home.exists()
        yield server


@pytest.fixture
def command(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """``runbook WORDS`` in this process: exit code, stdout, stderr."""
    assert home.is_absolute()

    def ended(*words: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["runbook", *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
        code = end.value.code
        assert isinstance(code, int)
        return code, *capsys.readouterr()

    return ended


def too_wide(text: str) -> list[str]:
    """Lines of more than 80 columns; one unbroken word cannot be helped."""
    return [line for line in text.splitlines() if len(line) > 82 and len(line.split()) > 2]


def test_the_list(command: Command) -> None:
    code, out, err = command("model")
    assert (code, err) == (0, "")
    assert too_wide(out) == []
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line[:1].isdigit()}
    assert list(rows) == list(dict.fromkeys(one.size for one in catalogue.models()))
    assert rows["4B"] == ["4B", "4.66", "9.32", "32", "0.17.0", "262,144", "Base"]
    assert "apache-2.0" in out


def test_the_list_as_json(command: Command) -> None:
    code, out, _ = command("model", "--format", "json")
    found = json.loads(out)
    assert (code, found["schema"], found["read"]) == (0, "models/1", catalogue.READ)
    four = next(one for one in found["models"] if one["id"] == REPO)
    total = {"value": 4_659_865_088, "inferred": False, "source": ["hf-totals", "pinned-sizes", "computed"]}
    assert four["values"]["parameters.total"] == total
    assert four["variants"] == ["Qwen/Qwen3.5-4B-Base"]


@pytest.mark.parametrize("one", catalogue.models(), ids=lambda one: one.id)
def test_what_is_known_is_shown_where_no_hub_answers(one: Model, command: Command, home: Path) -> None:
    code, out, err = command("model", one.id)
    assert (code, err) == (3, "")
    assert out.startswith(f"{one.id}: ")
    assert f"{one.get('parameters.total'):,}" in out
    assert [each.id for each in catalogue.of(one)] == [line[:3] for line in out.splitlines() if line[:1] == "P" and line[1:3].isdigit()]  # fmt: skip
    assert "unknown" in out
    assert "127.0.0.1:1 gives no answer" in " ".join(out.split())
    assert too_wide(out) == []
    assert "None" not in out
    assert not home.exists()


@pytest.mark.parametrize(
    "words",
    [("model",), ("fetch",), ("fetch", "--yes"), ("check", "MODEL", "--model"), ("run", "--plan", "-p")],
    ids=" ".join,
)
def test_a_name_that_leads_nowhere_is_refused_before_anything(words: tuple[str, ...], command: Command, there: Hub, home: Path) -> None:  # fmt: skip
    name = "Qwen/Qwen3.5-7B"
    code, out, err = command(*words, f"model={name}" if words[-1] == "-p" else name)
    assert (code, out) == (2, "")
    assert "Qwen3.5 has no 7B" in err
    assert "Qwen/Qwen3.5-9B" in err
    assert there.log == []
    assert not home.exists()


@pytest.mark.parametrize("name", ["qwen", "a/b/c", "./here", "/no/such"])
def test_what_is_no_model(name: str, command: Command) -> None:
    assert command("model", name)[0] == 2


@pytest.mark.parametrize("name", ["tiny-qwen3.5", "/dev", "qwen", "./x"])
def test_nothing_to_fetch(name: str, command: Command) -> None:
    code, _, err = command("fetch", name)
    assert (code, "is no repository" in err) == (2, True)


def test_a_generated_model_that_is_not_there(command: Command) -> None:
    code, _, err = command("model", "tiny-qwen3.5")
    assert (code, "runbook run 07_model" in err) == (2, True)


def examined(command: Command, *words: str) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Exit code, the whole answer, and id -> verdict."""
    code, out, _ = command("model", *words, "--format", "json")
    found: dict[str, Any] = json.loads(out)
    return code, found, {one["id"]: one["verdict"] for one in found["findings"]}


def test_a_folder(command: Command, tiny: Path) -> None:
    code, found, verdicts = examined(command, str(tiny))
    assert (code, found["known"], found["examined"]["folder"]) == (0, None, str(tiny))
    assert verdicts["MODEL-001"] == verdicts["MODEL-002"] == "ok"
    code, out, _ = command("model", str(tiny))
    assert code == 0
    assert "its own files decide" in out
    assert str(tiny) in out


def test_a_folder_that_is_broken(command: Command, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((tiny / "config.json").read_bytes())
    code, _, verdicts = examined(command, str(tmp_path))
    assert (code, verdicts["MODEL-001"]) == (1, "fail")


def test_on_the_hub_and_here(command: Command, there: Hub, home: Path) -> None:
    """Judged from a skeleton first; once fetched, from the folder, and the hub is asked no more."""
    code, found, verdicts = examined(command, REPO)
    assert code == 0
    assert (found["examined"]["hub"], found["examined"]["commit"]) == (there.address, COMMIT)
    assert found["known"]["id"] == REPO
    assert "hidden_size 128, not 2560" in found["examined"]["differs"], "a tiny one under that name"
    assert (verdicts["MODEL-001"], verdicts["MODEL-002"]) == ("ok", "ok")
    assert sum(one.sent for one in there.log) < 200_000
    assert not (home / "models").exists()
    code, out, _ = command("fetch", REPO)
    assert (code, "add --yes to do it" in out, too_wide(out)) == (0, True, [])
    assert not (home / "models").exists()
    code, out, _ = command("fetch", REPO, "--yes")
    assert (code, "each compared" in out) == (0, True)
    there.log.clear()
    code, here, again = examined(command, REPO)
    assert (code, here["examined"]["commit"], there.log) == (0, COMMIT, [])
    assert here["examined"]["folder"] == str(home / "models" / "Qwen--Qwen3.5-4B")
    assert again == verdicts
    code, out, _ = command("clean")
    assert (code, "skeletons/Qwen--Qwen3.5-4B" in out) == (0, True)


def test_the_config_that_is_known_differs_in_nothing(command: Command, home: Path) -> None:
    """As it is, and with one value edited; the rest of the folder is missing, so it fails all the same."""
    folder, model = home / "models" / "Qwen--Qwen3.5-4B", catalogue.find(REPO)
    assert model
    folder.mkdir(parents=True)
    for theta, differs in ((10_000_000, ""), (10_000, "rope_parameters")):
        config = model.config
        config["text_config"]["rope_parameters"] = {**config["text_config"]["rope_parameters"], "rope_theta": theta}  # fmt: skip
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        code, found, _ = examined(command, REPO)
        assert (code, found["examined"]["differs"]) == (1, differs)


def test_a_name_of_another_family(command: Command, there: Hub, tiny: Path) -> None:
    there.repos["someone/Qwen3.5-4B-mine"] = tiny
    code, out, _ = command("model", "someone/Qwen3.5-4B-mine")
    assert code == 0
    assert "by its name one of Qwen/Qwen3.5-4B" in " ".join(out.split())


def test_refused_by_the_hub(command: Command, there: Hub) -> None:
    there.faults.gated = True
    there.faults.token = "hf_other"  # noqa: S105 - of this hub
    code, out, err = command("model", REPO)
    assert (code, out.startswith(REPO)) == (1, True)
    assert "answers 403" in err


def test_a_recorded_machine_answers_for_its_own_checkpoint(command: Command) -> None:
    code, out, _ = command("model", REPO, "--machine", "recorded:h200-vllm-0.19.1")
    assert code == 0
    assert "REPLAY of the recorded machine h200-vllm-0.19.1" in " ".join(out.split())
    assert "MODEL-00" in out or "MODEL " in out
