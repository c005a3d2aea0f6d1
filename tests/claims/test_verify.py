"""A verification as a user meets it: which targets are asked, what drift looks like, and how it ends."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import environment as making
import pytest
from turning import opposites

from runbook import cli
from runbook.claims import ledger, verify
from runbook.claims.probes.base import Outcome
from runbook.claims.target import Environment
from runbook.workspace import Workspace

Ended = tuple[int, str, str]
Command = Callable[..., Ended]
ENTRY = """
- id: C001
  claim: The queue takes eight requests at once.
  verdict: refuted
  truth: It takes seven, and refuses --swap-space.
  elsewhere: {{"==0.32.0": It takes seven there too.}}
  evidence: The engine of the target.
  sources: ["https://example.com/engine"]
  date: 2026-11-30
  checks: [SERVE-001]
  probes:
    - {{kind: value, of: vllm.engine.Queue.limit, is: {limit}}}
    - {{kind: flags, words: ["./m", "--swap-space", "4"], outcome: refused, vllm: "==0.19.1"}}
    - {{kind: model, name: Qwen/Qwen3.5-7B, exists: false}}
- id: C002
  claim: A server of this workspace is healthy.
  verdict: confirmed
  truth: It is, where there is one.
  evidence: Its own answer.
  sources: []
  date: 2026-11-30
  checks: []
  probes:
    - {{kind: answer, ask: http GET /health, is: HTTP 200}}
- id: C003
  claim: Nothing that a machine could tell.
  verdict: unverifiable-here
  truth: No figures are given.
  evidence: The text itself.
  sources: []
  date: 2026-11-30
  checks: []
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return making.made(tmp_path_factory.mktemp("claims") / "env")


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return making.made(tmp_path_factory.mktemp("claims") / "env", "0.32.0")


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment whose vLLM was taken away."""
    made = making.made(tmp_path_factory.mktemp("claims") / "env")
    (info,) = made.parents[1].glob("lib/*/site-packages/vllm-*.dist-info")
    info.rename(info.with_name("other-1.0.dist-info"))
    return made


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """``runbook claims WORDS`` over a ledger of three entries, in this process: exit code, stdout, stderr."""
    monkeypatch.delenv("RUNBOOK_MACHINE", raising=False)
    monkeypatch.setenv("RUNBOOK_HOME", str(tmp_path / "home"))

    def ended(*words: str, limit: int = 7) -> Ended:
        path = tmp_path / "ledger" / "000" / "serving.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(ENTRY.format(limit=limit), encoding="utf-8")
        monkeypatch.setattr(ledger, "claims", lambda: ledger.read(path.parents[1]))
        monkeypatch.setattr(sys, "argv", ["runbook", "claims", *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert isinstance(end.value.code, int)
        return end.value.code, *capsys.readouterr()

    return ended


def test_all_that_can_be_asked_stands(command: Command, python: Path) -> None:
    code, out, err = command("verify", "--target", str(python))
    assert code == 0
    assert "drifted" not in out.splitlines()[0]
    assert "cannot run  runbook: no server of this workspace is running (1)" in out
    assert out.splitlines()[-1].split() == ["in", "all", "2", "1", "0", "1", "4"]
    assert f"{python}: vLLM 0.19.1, 2 probes" in err


def test_a_drift_names_the_claim_what_was_expected_and_what_is_seen(command: Command, python: Path) -> None:
    code, out, _ = command("verify", "C001", "--target", str(python), limit=8)
    assert code == 1
    assert out.splitlines()[:4] == [
        "drifted    C001  The queue takes eight requests at once.",
        *(line for line in out.splitlines() if line.startswith("  where")),
        "  expected vllm.engine.Queue.limit is 8",
        "  seen     7",
    ]


def test_another_release_is_asked_what_is_meant_for_it(command: Command, later: Path) -> None:
    code, out, _ = command("verify", "C001", "--target", str(later), "--format", "json")
    told = json.loads(out)
    assert (code, told["outcome"], told["claims"]) == (0, "stands", {"C001": "stands"})
    assert [(each["kind"], each["outcome"]) for each in told["readings"]] == [
        ("model", "stands"),
        ("value", "stands"),
    ]


def test_an_environment_without_vllm_cannot_be_asked(command: Command, without: Path) -> None:
    code, out, _ = command("verify", "C001", "--target", str(without))
    assert code == 3
    assert "vLLM is not installed there (2)" in " ".join(out.split())


def test_nothing_that_can_run_is_no_verdict(command: Command) -> None:
    code, out, err = command("verify", "C002")
    assert code == 3
    assert "no server of this workspace is running" in out
    assert "no target is built here" in err


def test_every_reading_is_shown_on_request(command: Command, python: Path) -> None:
    code, out, _ = command("verify", "C001", "--target", str(python), "--all")
    assert code == 0
    assert out.count("stands     C001") == 3
    assert "refused error: unrecognized arguments: --swap-space 4" in " ".join(out.split())


def test_a_stack_of_the_workspace_is_asked_by_its_name(
    command: Command, python: Path, tmp_path: Path
) -> None:
    target = tmp_path / "home" / "targets" / "vllm-0.19.1-cpu"
    target.mkdir(parents=True)
    (target / "made").symlink_to(python.parents[1])
    (target / "current").symlink_to("made")
    code, out, _ = command("verify", "C001", "--stack", "vllm-0.19.1-cpu")
    assert code == 0
    assert "vllm-0.19.1-cpu" in out
    code, out, _ = command("verify", "C001")
    assert code == 0
    assert "vllm-0.19.1-cpu" in out
    code, _, err = command("verify", "C001", "--stack", "vllm-0.32.0-cpu")
    assert code == 2
    assert "no target of vllm-0.32.0-cpu is built here" in err


REFUSED = {
    "an id": (["verify", "C999"], "no claim 'C999'"),
    "a claim without probes": (["verify", "C003"], "none of these claims has a probe"),
    "a layer": (["--layer", "cud"], "--layer 'cud' is none"),
    "a verdict": (["verify", "--verdict", "true"], "--verdict 'true' is none"),
    "a pair that does not occur": (["--layer", "cuda"], "no claim is of that layer and verdict"),
    "two ways to name a target": (["verify", "--target", "a", "--stack", "b"], "--target beside --stack"),
    "an interpreter": (["verify", "--target", "/no/such/python"], "is not a program"),
    "a stack": (["verify", "--stack", "vllm-9"], "vllm-9"),
    "nothing to show": (["show"], "ID"),
}


@pytest.mark.parametrize(("words", "says"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_refused(words: list[str], says: str, command: Command) -> None:
    code, out, err = command(*words)
    assert (code, out) == (2, "")
    assert says in err


def test_the_list_and_an_entry(command: Command) -> None:
    code, out, _ = command()
    assert code == 0
    assert "  C001  refuted             The queue takes eight requests at once." in out
    assert "3 claims: 1 confirmed, 1 refuted, 1 unverifiable-here; 2 with probes" in " ".join(out.split())
    assert command("C001")[1].count("  C0") == 1
    assert [
        each["id"] for each in json.loads(command("--verdict", "refuted", "--format", "json")[1])["claims"]
    ] == ["C001"]
    code, out, _ = command("show", "C001")
    assert code == 0
    for said in ("truth     It takes seven", "on ==0.32.0", "runbook explain SERVE-001", 'value: is 7, of "vllm.engine.Queue.limit"', "again     runbook claims verify C001"):  # fmt: skip
        assert " ".join(said.split()) in " ".join(out.split())
    assert "no machine can decide this" in command("show", "C003")[1]
    assert max(map(len, out.splitlines())) <= 80


def test_probes_go_where_they_are_meant_to(python: Path, later: Path, tmp_path: Path) -> None:
    path = tmp_path / "000" / "serving.yaml"
    path.parent.mkdir()
    path.write_text(ENTRY.format(limit=7), encoding="utf-8")
    ours = making.asked(tmp_path / "none", tmp_path / "work")
    targets = [making.asked(each, tmp_path / "work") for each in (python, later)]
    asked = verify.verify(ledger.read(tmp_path), ours, targets)
    assert [(one.claim.id, one.reading.outcome) for one in asked] == [
        ("C001", Outcome.STANDS), ("C002", Outcome.CANNOT_RUN), ("C001", Outcome.STANDS), ("C001", Outcome.STANDS), ("C001", Outcome.STANDS),
    ]  # fmt: skip
    assert verify.exit_code(asked) == 0
    assert verify.exit_code([one for one in asked if one.claim.id == "C002"]) == 3  # there is no server
    assert verify.exit_code([]) == 3


def test_an_interpreter_that_breaks_is_no_drift(tmp_path: Path) -> None:
    python = making.made(tmp_path / "env")
    (package,) = (tmp_path / "env").glob("lib/*/site-packages/vllm/__init__.py")
    package.write_text("import os\nos.abort()\n", encoding="utf-8")
    target = making.asked(python, tmp_path / "work")
    target.ask([{"about": "value", "of": "vllm.engine.size"}])
    assert (
        target.told({"about": "value", "of": "vllm.engine.size"})["error"]
        == "the child ended without an answer (SIGABRT)"
    )
    assert (
        "not asked" in Environment("other", target.host).told({"about": "value", "of": "sys.path"})["error"]
    )


@pytest.mark.slow
def test_the_targets_of_this_machine() -> None:
    """Every verdict that ships stands in every target that is built here, and no probe turned into its opposite does."""
    work = Workspace(Path(os.environ.get("RUNBOOK_TEST_HOME", "/nonexistent")))
    built = sorted(work.targets.glob("*/current/bin/python"))
    if not built:
        pytest.skip(f"no target is built in {work.root}")
    for python in built:
        target = making.asked(python, work.root)
        probes = [
            (one.id, probe)
            for one in ledger.claims()
            for probe in one.probes
            if probe.needs_target and probe.is_for(target.vllm, target.device)
        ]
        turned = [(name, opposite) for name, probe in probes for opposite in opposites(probe)]
        target.ask(question for _, probe in (*probes, *turned) for question in probe.questions())
        assert [
            (name, seen)
            for name, probe in probes
            if (seen := probe.judge(target)).outcome is not Outcome.STANDS
        ] == []
        assert [
            (name, seen) for name, probe in turned if (seen := probe.judge(target)).outcome is Outcome.STANDS
        ] == []
