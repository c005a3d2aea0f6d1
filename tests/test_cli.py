"""The command line: bad input is refused with three sentences and leaves nothing behind; every end has its exit code."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import junitparser
import psutil
import pytest

import runbook
from runbook import __version__, checks, cli, engine
from runbook.actions.jobs import Jobs, Owner
from runbook.checks import ALL
from runbook.model import Cost, Layer
from runbook.probes import replay

PROGRAM = Path(sys.executable).with_name("runbook")
MACHINE = "recorded:cpu-2core"
SCHEMA = json.loads(
    (Path(runbook.__file__).parent / "schemas" / "findings.schema.json").read_text(encoding="utf-8")
)
Ended = tuple[int, str, str]
Command = Callable[..., Ended]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that is not there yet, and no setting from outside."""
    folder = tmp_path / "home"
    for name in ("RUNBOOK_MACHINE", "RUNBOOK_RECORD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RUNBOOK_HOME", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def command(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """``runbook WORDS`` in this process: exit code, stdout, stderr."""
    monkeypatch.setenv("RUNBOOK_HOME", str(home))

    def ended(*words: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["runbook", *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
        code = end.value.code
        assert isinstance(code, int)
        return code, *capsys.readouterr()

    return ended


def program(home: Path, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """The installed program in a process of its own."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("RUNBOOK_")}
    env |= {"RUNBOOK_HOME": str(home), "COLUMNS": "80", **more.pop("env", {})}
    return subprocess.run(
        [PROGRAM, *words], env=env, capture_output=True, text=True, timeout=60, check=False, **more
    )


def edited(folder: Path, rows: list[dict[str, Any]], parent: str = "cpu-2core") -> str:
    """A machine edited from a recorded one; ``rows`` are its index, each with the answer's text under "text"."""
    (folder / "answers").mkdir(parents=True)
    rows = [dict(row) for row in rows]
    for number, row in enumerate(rows):
        if "text" in row:
            row["file"] = f"{number}.txt"
            (folder / "answers" / row["file"]).write_text(row.pop("text"), encoding="utf-8")
    (folder / "index.json").write_text(json.dumps(rows), encoding="utf-8")
    about = f'name = "{folder.name}"\nwhat = "made for a test"\nrecorded = "2026-11-30"\nedited_from = "{parent}"\nedits = ["one"]\n'
    (folder / "machine.toml").write_text(about, encoding="utf-8")
    return f"recorded:{folder}"


SMALL: list[dict[str, Any]] = [
    {"ask": "read /proc/meminfo", "stack": "", "text": "MemTotal: 4000000 kB\nMemAvailable: 2048000 kB\n"}
]
NO_STATUS: dict[str, Any] = {"ask": "read /proc/self/status", "stack": "", "missing": True}
UNREADABLE: list[dict[str, Any]] = [{"ask": "read /proc/meminfo", "stack": "", "missing": True}]

# What is typed, what the message must name, and what it must say was expected or may be done.
BAD: dict[str, tuple[list[str], list[str]]] = {
    "no command": ([], ["--help"]),
    "a command that is misspelt": (["chek"], ["chek", "check"]),
    "an option that is misspelt": (["check", "--frmat", "json"], ["--frmat", "--help"]),
    "an option of another command": (["explain", "CUDA-001", "--plan"], ["--plan"]),
    "an argument too many": (["stop", "now"], ["now"]),
    "a page": (["run", "04_tocrh"], ["04_tocrh", "04_torch"]),
    "a page by a number there is none for": (["run", "42"], ["42", "00_start"]),
    "a stack, run": (["run", "--stack", "vllm-0.20.0"], ["vllm-0.20.0", "vllm-0.19.1-cu128"]),
    "a stack, check": (["check", "--stack", "vllm-0.20.0"], ["vllm-0.20.0", "vllm-0.19.1-cu128"]),
    "a stack that is a path": (["check", "--stack", "../stacks/vllm-0.19.1-cpu"], ["../stacks/vllm-0.19.1-cpu", "vllm-0.19.1-cpu"]),
    "a stack that is empty": (["check", "--stack", ""], ["''", "vllm-0.19.1-cpu"]),
    "a check id": (["check", "TORCH-099"], ["TORCH-099", "runbook check --list"]),
    "a layer": (["check", "TORCHES"], ["TORCHES", "TORCH"]),
    "one of several layers": (["check", "TORCH", "GPU"], ["GPU", "DRIVER"]),
    "a cost": (["check", "--cost", "free"], ["free", "static"]),
    "a format": (["check", "--format", "yaml"], ["yaml", "junit"]),
    "a machine": (["check", "--machine", "mars"], ["mars", "live", "cpu-2core"]),
    "a recorded machine": (["check", "--machine", "recorded:mars"], ["mars", "cpu-2core", "runbook record"]),
    "a recorded machine without a name": (["check", "--machine", "recorded:"], ["''", "cpu-2core"]),
    "a recorded machine to run on": (["run", "--machine", "recorded:mars"], ["mars", "cpu-2core"]),
    "a recording that is not there": (["check", "--machine", "recorded:/no/such/folder"], ["/no/such/folder", "runbook record"]),
    "a parameter": (["run", "--machine", MACHINE, "-p", "modle=tiny-qwen3"], ["modle", "model"]),
    "a parameter of another page": (["run", "04", "--machine", MACHINE, "-p", "deadline_s=60"], ["deadline_s", "strict"]),
    "a parameter without =": (["run", "-p", "strict"], ["strict", "name=value"]),
    "a parameter without a name": (["run", "-p", "=1"], ["=1", "name=value"]),
    "a parameter twice": (["run", "-p", "strict=true", "-p", "strict=false"], ["strict", "twice"]),
    "no whole number": (["run", "08", "--machine", MACHINE, "-p", "deadline_s=soon"], ["deadline_s='soon'", "whole number", "900"]),
    "a number with a point": (["run", "08", "--machine", MACHINE, "-p", "deadline_s=60.5"], ["60.5", "whole number"]),
    "a number too small": (["run", "08", "--machine", MACHINE, "-p", "deadline_s=1"], ["deadline_s=1", "10"]),
    "a number too large": (["run", "08", "--machine", MACHINE, "-p", "deadline_s=100000"], ["100000", "7200"]),
    "no truth value": (["run", "04", "--machine", MACHINE, "-p", "strict=maybe"], ["strict='maybe'", "true or false"]),
    "a folder that is relative": (["run", "04", "--machine", MACHINE, "-p", "out_dir=here"], ["out_dir"]),
    "the machine as a parameter": (["run", "04", "--machine", MACHINE, "-p", "machine=live", "--plan"], ["machine"]),
    "a stack as a parameter": (["run", "04", "--machine", MACHINE, "-p", "stack=vllm-0.20.0", "--plan"], ["stack"]),
    "a model": (["run", "07", "--machine", "live", "-p", "model=qwen", "--plan"], ["qwen", "tiny-qwen3"]),
    "a target that is not there": (["check", "--machine", "live", "--target", "/no/such/python"], ["/no/such/python", "bin/python"]),
    "a target that is a folder": (["check", "--machine", "live", "--target", "/usr"], ["/usr", "bin/python"]),
    "a target that is no program": (["check", "--machine", "live", "--target", "/etc/passwd"], ["/etc/passwd", "bin/python"]),
    "a target beside a recording": (["check", "--machine", MACHINE, "--target", "/bin/sh"], ["/bin/sh", "recorded:cpu-2core"]),
    "nothing to resume": (["run", "--resume"], ["resume"]),
    "a folder without a run to resume": (["run", "--resume", "--out", "/usr"], ["/usr", "run.json"]),
    "resume beside a page": (["run", "--resume", "04"], ["--resume", "pages"]),
    "resume beside a parameter": (["run", "--resume", "-p", "strict=false"], ["--resume", "parameters"]),
    "resume beside a plan": (["run", "--resume", "--plan"], ["--resume"]),
    "a page to explain": (["explain", "TORCH-099"], ["TORCH-099", "runbook check --list"]),
    "a path to explain": (["explain", "../README"], ["../README", "runbook check --list"]),
    "nothing to explain": (["explain"], ["ID"]),
    "nothing to record to": (["record"], ["--out"]),
    "a waiver": (["check", "--waive", "TORCH-099"], ["TORCH-099", "runbook check --list"]),
    "a stack to clean": (["clean", "--target", "vllm-0.20.0"], ["vllm-0.20.0", "vllm-0.19.1-cpu"]),
    "a stack to clean that leads out": (["clean", "--target", "..", "--yes"], ["..", "vllm-0.19.1-cpu"]),
    "port nought": (["lab", "--port", "0"], ["--port", "1"]),
    "a port too large": (["lab", "--port", "65536"], ["--port", "65535"]),
    "a port that is no number": (["lab", "--port", "web"], ["--port", "integer"]),
}  # fmt: skip
# typer's own complaints say what was seen and point to --help.
USAGE = {"no command", "a command that is misspelt", "an option that is misspelt", "an option of another command", "an argument too many", "a cost", "a format", "nothing to explain", "nothing to record to", "port nought", "a port too large", "a port that is no number"}  # fmt: skip


def left(folder: Path) -> list[str]:
    """Everything below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name: str, command: Command, tmp_path: Path) -> None:
    words, needles = BAD[name]
    code, out, err = command(*words)
    assert (code, out) == (2, "")
    for needle in needles:
        assert needle in err
    assert "\n  do: " in err
    assert name in USAGE or "\n  expected: " in err
    assert "Traceback" not in err
    assert left(tmp_path) == []


@pytest.mark.parametrize("name", ["a check id", "a machine", "a port too large", "no command"])
def test_bad_input_is_refused_by_the_program(name: str, tmp_path: Path) -> None:
    words, needles = BAD[name]
    ended = program(tmp_path / "home", *words, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert all(needle in ended.stderr for needle in needles)
    assert left(tmp_path) == []


BROKEN_RECORDINGS: dict[str, dict[str, str]] = {
    "nothing in it": {},
    "no index": {"machine.toml": 'name = "x"\nwhat = "x"\nrecorded = "2026-11-30"\n'},
    "an index that is no JSON": {"machine.toml": 'name = "x"\nwhat = "x"\nrecorded = "2026-11-30"\n', "index.json": "[{"},
    "an index that is an object": {"machine.toml": 'name = "x"\nwhat = "x"\nrecorded = "2026-11-30"\n', "index.json": '{"ask": "run nproc"}'},
    "an index of numbers": {"machine.toml": 'name = "x"\nwhat = "x"\nrecorded = "2026-11-30"\n', "index.json": "[1]"},
    "a row without a question": {"machine.toml": 'name = "x"\nwhat = "x"\nrecorded = "2026-11-30"\n', "index.json": '[{"stack": ""}]'},
    "no name": {"machine.toml": 'what = "x"\nrecorded = "2026-11-30"\n', "index.json": "[]"},
    "machine.toml is no TOML": {"machine.toml": "name = ", "index.json": "[]"},
    "machine.toml is no text": {"machine.toml": "\udcff", "index.json": "[]"},
    "a parent there is none of": {"machine.toml": 'name = "x"\nwhat = "x"\nrecorded = "2026-11-30"\nedited_from = "mars"\n', "index.json": "[]"},
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN_RECORDINGS)
def test_a_broken_recording_is_refused(name: str, command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "machine"
    folder.mkdir()
    for file, text in BROKEN_RECORDINGS[name].items():
        (folder / file).write_bytes(text.encode("utf-8", "surrogateescape"))
    before = left(tmp_path)
    code, out, err = command("check", "--machine", f"recorded:{folder}")
    assert (code, out) == (2, "")
    assert "expected: " in err
    assert "do: " in err
    assert ("mars" if "parent" in name else str(folder)) in err
    assert left(tmp_path) == before


def test_a_recording_edited_from_itself_is_refused(command: Command, tmp_path: Path) -> None:
    machine = edited(tmp_path / "loop", [], parent=str(tmp_path / "loop"))
    code, _, err = command("check", "--machine", machine)
    assert code == 2
    assert "Traceback" not in err


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"steps": [{"page": "04_torch"}]}', '{"steps": [{"page": "nopage", "stack": "x"}], "machine": "live", "target": "", "parameters": {}}'])  # fmt: skip
def test_a_broken_run_is_not_resumed(text: str, command: Command, tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "run.json").write_text(text, encoding="utf-8")
    code, printed, err = command("run", "--resume", "--out", str(out))
    assert (code, printed) == (2, "")
    assert "expected: " in err
    assert left(tmp_path) == ["run", "run/run.json"]


def test_a_run_folder_is_not_used_twice(command: Command, tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "run.json").write_text("{}", encoding="utf-8")
    code, _, err = command("run", "00", "--machine", MACHINE, "--out", str(out))
    assert code == 2
    assert f"runbook run --resume --out {out}" in err
    assert left(tmp_path) == ["run", "run/run.json"]


def test_a_file_is_no_run_folder(command: Command, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine", encoding="utf-8")
    code, _, err = command("run", "00", "--machine", MACHINE, "--out", str(tmp_path / "run"))
    assert code == 2, err
    assert "Traceback" not in err
    assert (tmp_path / "run").read_text(encoding="utf-8") == "mine"


def test_a_recording_is_not_written_over(command: Command, tmp_path: Path) -> None:
    edited(tmp_path / "box", [])
    before = left(tmp_path)
    code, _, err = command("record", "--out", str(tmp_path / "box"))
    assert code == 2
    assert "already holds" in err
    assert left(tmp_path) == before


@pytest.mark.parametrize("words", [("check",), ("run", "--plan"), ("stop",), ("clean",), ("lab",)])
def test_a_relative_workspace_is_refused(
    words: tuple[str, ...], command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RUNBOOK_HOME", "work")
    code, out, err = command(*words)
    assert (code, out) == (2, "")
    assert "RUNBOOK_HOME='work'" in err
    assert "export RUNBOOK_HOME=$PWD/work" in err
    assert left(tmp_path) == []


def test_no_home_at_all_is_refused(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RUNBOOK_HOME", "XDG_DATA_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    code, _, err = command("check")
    assert code == 2
    assert "neither RUNBOOK_HOME nor HOME is set" in err


@pytest.mark.parametrize("value", ["mars", "recorded:mars", "live2"])
def test_a_machine_named_by_the_environment_is_checked_too(
    value: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNBOOK_MACHINE", value)
    code, _, err = command("check")
    assert code == 2
    assert value.removeprefix("recorded:") in err


# Exit codes


def test_0_when_all_is_well(command: Command) -> None:
    code, out, err = command("check", "HOST", "--machine", MACHINE)
    assert (code, err) == (0, "")
    assert out.startswith("REPLAY of the recorded machine cpu-2core")
    assert re.search(r"(?m)^\d+ ok, 0 warn, 0 fail, \d+ skip, 0 unknown of \d+ findings$", out)
    assert max(len(line) for line in out.splitlines()) <= 80


def test_1_when_something_failed(command: Command, tmp_path: Path) -> None:
    code, out, err = command("check", "HOST", "--machine", edited(tmp_path / "small", SMALL))
    assert (code, err) == (1, "")
    assert "FAIL    HOST-004" in out
    assert "available (MiB)     2000" in out
    assert "fix     Free memory" in out
    assert "more    runbook explain HOST-004" in out


def test_a_waiver_shows_a_failure_as_warn_and_ends_with_0(command: Command, tmp_path: Path) -> None:
    code, out, _ = command(
        "check", "HOST", "--machine", edited(tmp_path / "small", SMALL), "--waive", "HOST-004"
    )
    assert code == 0
    assert "WARN    HOST-004" in out
    assert "waived" in out
    assert "1 warn, 0 fail" in out


def test_a_waiver_of_another_check_helps_nothing(command: Command, tmp_path: Path) -> None:
    machine = edited(tmp_path / "small", SMALL)
    assert command("check", "HOST", "--machine", machine, "--waive", "HOST-005")[0] == 1


def test_a_waiver_makes_no_unknown_green(command: Command, tmp_path: Path) -> None:
    machine = edited(tmp_path / "blind", UNREADABLE)
    assert command("check", "HOST", "--machine", machine, "--waive", "HOST-004")[0] == 3


def test_3_when_something_could_not_be_read(command: Command, tmp_path: Path) -> None:
    code, out, _ = command("check", "HOST", "--machine", edited(tmp_path / "blind", UNREADABLE))
    assert code == 3
    assert "UNKNOWN HOST-004" in out


def test_1_wins_over_3(command: Command, tmp_path: Path) -> None:
    rows = [*SMALL, NO_STATUS]
    assert command("check", "HOST", "--machine", edited(tmp_path / "both", rows))[0] == 1


def test_3_when_nothing_could_be_judged(command: Command) -> None:
    code, out, _ = command("check", "DRIVER", "--machine", MACHINE)
    assert code == 3
    drivers = [one for one in checks.ALL if one.layer is Layer.DRIVER]
    assert f"0 ok, 0 warn, 0 fail, {len(drivers)} skip" in out


def test_4_when_the_bug_is_ours(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object, **__: object) -> None:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr(engine, "run", breaks)
    code, _, err = command("check", "HOST", "--machine", MACHINE)
    assert code == 4
    assert "RuntimeError: a bug of ours" in err
    assert "this is a bug of ours" in err


def test_a_check_that_breaks_is_3_not_4(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(_: object) -> Any:
        raise RuntimeError("odd")

    broken = dataclasses.replace(ALL[0], judge=breaks)
    monkeypatch.setattr(checks, "ALL", (broken, *ALL[1:]))
    code, out, _ = command("check", broken.id, "--machine", MACHINE)
    assert code == 3
    assert "the check itself broke (RuntimeError: odd)" in " ".join(out.split())


def test_130_when_interrupted_and_the_question_asked_dies_too(tmp_path: Path) -> None:
    slow = tmp_path / "bin" / "getconf"
    slow.parent.mkdir()
    slow.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nsleep 600\n", encoding="utf-8")
    slow.chmod(0o755)
    env = {name: value for name, value in os.environ.items() if not name.startswith("RUNBOOK_")}
    env |= {"RUNBOOK_HOME": str(tmp_path / "home"), "PATH": f"{slow.parent}:{os.environ['PATH']}"}
    words = [str(PROGRAM), "check", "HOST"]
    # As a shell with a terminal starts it: a test run in the background would hand down an ignored Ctrl-C.
    with subprocess.Popen(
        words,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - one thread
    ) as child:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
        child.send_signal(signal.SIGINT)
        printed, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    assert err == "interrupted\n"
    assert printed.startswith("OK      HOST-001")
    asked = int((tmp_path / "pid").read_text())
    assert not psutil.pid_exists(asked) or psutil.Process(asked).status() == psutil.STATUS_ZOMBIE
    assert not (tmp_path / "home").exists()


def until(true: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


# Forms of output


def test_json_is_as_its_schema_says(command: Command, tmp_path: Path) -> None:
    machine = edited(tmp_path / "small", SMALL)
    code, out, err = command("check", "--cost", "slow", "--machine", machine, "--format", "json")
    rows = json.loads(out)
    jsonschema.validate(rows, SCHEMA)
    assert (code, err) == (1, "")
    assert [row["id"] for row in rows] == [one.id for one in engine.with_required(ALL, ALL)]
    assert [row["id"] for row in rows if row["verdict"] == "fail"] == ["HOST-004"]
    required = SCHEMA["$defs"]["finding"]["required"]
    assert all(sorted(row) == sorted(required) for row in rows)


def test_junit_counts_as_the_findings_do(command: Command, tmp_path: Path) -> None:
    rows = [*SMALL, NO_STATUS]
    code, out, _ = command(
        "check", "HOST", "DRIVER", "--machine", edited(tmp_path / "x", rows), "--format", "junit"
    )
    xml = junitparser.JUnitXml.fromstring(out.encode())
    assert code == 1
    _, text, _ = command("check", "HOST", "DRIVER", "--machine", edited(tmp_path / "y", rows))
    counts = re.search(
        r"(?m)^\d+ ok, \d+ warn, (\d+) fail, (\d+) skip, (\d+) unknown of (\d+) findings$", text
    )
    assert counts
    failures, skipped, errors, tests = map(int, counts.groups())
    assert (xml.tests, xml.failures, xml.errors, xml.skipped) == (tests, failures, errors, skipped)
    assert failures
    assert errors
    assert [suite.name for suite in xml] == ["HOST", "DRIVER"]


def test_one_check_and_what_it_requires(command: Command) -> None:
    _, out, _ = command("check", "VLLM-003", "--machine", MACHINE, "--format", "json")
    ids = [row["id"] for row in json.loads(out)]
    assert ids[-1] == "VLLM-003"
    assert set(checks.BY_ID["VLLM-003"].requires) < set(ids)
    assert len(ids) < 6


def test_ids_and_layers_may_be_written_small(command: Command) -> None:
    assert command("check", "host-007", "--machine", MACHINE)[0] == 0
    assert "HOST-008" in command("check", "host", "--machine", MACHINE)[1]


@pytest.mark.parametrize("cost", Cost)
def test_no_question_dearer_than_allowed(cost: Cost, command: Command) -> None:
    _, out, _ = command("check", "--list", "--cost", cost.value)
    listed = [line.split()[0] for line in out.splitlines()]
    assert listed == [one.id for one in ALL if one.cost.within(cost)]


def test_a_list_has_every_check(command: Command, home: Path) -> None:
    code, out, _ = command("check", "--list", "--cost", "slow")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [one.id for one in ALL]
    assert not home.exists()


def test_checks_change_nothing(command: Command, tmp_path: Path) -> None:
    command("check", "--machine", MACHINE, "--cost", "slow")
    command("check", "HOST", "START", "DRIVER", "CUDA", "PY")  # this machine
    assert left(tmp_path) == []


@pytest.mark.parametrize("name", replay.names())
def test_every_recorded_machine_has_an_answer_to_every_static_question(name: str, command: Command) -> None:
    _, out, _ = command("check", "--machine", f"recorded:{name}", "--format", "json")
    gaps = [f"{row['id']}: {row['reason']}" for row in json.loads(out) if "has no answer to" in row["reason"]]
    broke = [
        f"{row['id']}: {row['reason']}"
        for row in json.loads(out)
        if "the check itself broke" in row["reason"]
    ]
    assert (gaps, broke) == ([], [])


def test_the_plan_changes_nothing(command: Command, tmp_path: Path) -> None:
    code, out, _ = command("run", "--plan", "--machine", MACHINE)
    assert code == 0
    assert out.splitlines()[0] == "machine recorded:cpu-2core"
    assert "04_torch" in out
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    "words", [(), ("run",), ("check",), ("explain",), ("record",), ("stop",), ("lab",), ("clean",)]
)
def test_help_names_the_exit_codes(words: tuple[str, ...], command: Command) -> None:
    code, out, _ = command(*words, "--help")
    text = " ".join(out.split())
    assert code == 0
    for each in (
        "0 every expected finding",
        "1 something failed",
        "2 bad input",
        "3 no verdict",
        "4 a bug of ours",
        "130 interrupted",
    ):
        assert each in text


def test_version(command: Command) -> None:
    assert command("--version") == (0, f"runbook {__version__}\n", "")


def test_the_program_and_the_module_are_one(tmp_path: Path) -> None:
    as_module = subprocess.run(
        [sys.executable, "-m", "runbook", "--version"], capture_output=True, text=True, check=False
    )
    assert as_module.stdout == program(tmp_path, "--version").stdout == f"runbook {__version__}\n"


def test_explain_prints_the_page(command: Command) -> None:
    code, out, _ = command("explain", "cuda-001")
    assert code == 0
    assert "CUDA-001" in out.splitlines()[0]
    assert "## Fix" in out


def test_a_closed_pipe_is_no_bug_of_ours(tmp_path: Path) -> None:
    line = f"'{PROGRAM}' check --list | head -1"
    ended = subprocess.run(["bash", "-o", "pipefail", "-c", line], env={**os.environ, "RUNBOOK_HOME": str(tmp_path)}, capture_output=True, text=True, check=False)  # fmt: skip
    assert ended.stdout.startswith("START-001")
    assert "bug of ours" not in ended.stderr
    assert "Traceback" not in ended.stderr


# Recording, stopping, cleaning


def test_what_is_recorded_replays_to_the_same_findings(command: Command, tmp_path: Path) -> None:
    out = tmp_path / "this-box"
    code, printed, _ = command("record", "--out", str(out), "--cost", "static")
    assert code == 0
    assert f"recorded:{out}" in printed
    live = {
        row["id"]: (row["verdict"], row["evidence"])
        for row in json.loads(command("check", "HOST", "--format", "json")[1])
    }
    replayed = {row["id"]: (row["verdict"], row["evidence"]) for row in json.loads(command("check", "HOST", "--machine", f"recorded:{out}", "--format", "json")[1])}  # fmt: skip
    moving = {"HOST-004"}  # free memory is another a moment later
    assert {each for each in live if live[each] != replayed[each]} <= moving
    assert live["HOST-004"][0] == replayed["HOST-004"][0]


@pytest.fixture(autouse=True)
def _no_recording_after_a_test() -> Any:
    yield
    os.environ.pop("RUNBOOK_RECORD", None)


def test_stop_may_be_repeated(command: Command, home: Path) -> None:
    assert command("stop") == (0, "nothing was running\n", "")
    assert not home.exists()
    jobs = Jobs(home / "jobs")
    job = jobs.start(
        "server", ["sleep", "600"], env=dict(os.environ), cwd=Path("/"), owner=Owner.of(), grace_s=2
    )
    code, out, err = command("stop")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"stopped: server \(1 processes\) in \d+\.\d s; 0 left\n", out)
    assert not psutil.pid_exists(job.pid)
    assert command("stop") == (0, "nothing was running\n", "")


def filled(home: Path) -> None:
    """A workspace with something of everything."""
    for name in (
        "targets/vllm-0.19.1-cpu/bin/python",
        "targets/vllm-0.32.0-cpu/bin/python",
        "models/tiny-qwen3/config.json",
        "caches/vllm-0.19.1-cpu/triton/x",
        "runs/2026-11-30T01.02.03/run.json",
    ):
        (home / name).parent.mkdir(parents=True)
        (home / name).write_text("x" * 3, encoding="utf-8")


def test_clean_shows_first_and_then_removes_caches_and_runs(command: Command, home: Path) -> None:
    filled(home)
    before = left(home)
    code, out, _ = command("clean")
    assert code == 0
    assert "shown only; add --yes to remove" in out
    assert left(home) == before
    assert [line.split("MiB")[1].strip() for line in out.splitlines()[:-1]] == [str(home / "caches/vllm-0.19.1-cpu"), str(home / "runs/2026-11-30T01.02.03")]  # fmt: skip
    code, out, _ = command("clean", "--yes")
    assert code == 0
    assert out.endswith("removed\n")
    assert (home / "models/tiny-qwen3/config.json").exists()
    assert (home / "targets/vllm-0.19.1-cpu/bin/python").exists()
    assert not list(home.glob("caches/*")) + list(home.glob("runs/*"))
    assert command("clean") == (0, "nothing to remove\n", "")


def test_clean_one_target(command: Command, home: Path) -> None:
    filled(home)
    assert command("clean", "--target", "vllm-0.19.1-cpu", "--yes")[0] == 0
    assert not (home / "targets/vllm-0.19.1-cpu").exists()
    assert not (home / "caches/vllm-0.19.1-cpu").exists()
    assert (home / "targets/vllm-0.32.0-cpu").exists()
    assert (home / "runs/2026-11-30T01.02.03").exists()


def test_clean_all_leaves_what_is_not_ours(command: Command, home: Path, tmp_path: Path) -> None:
    filled(home)
    (tmp_path / "neighbour").mkdir()
    (home / "thesis.tex").write_text("years of work", encoding="utf-8")
    assert command("clean", "--all", "--yes")[0] == 0
    assert not (home / "targets").exists()
    assert not (home / "models").exists()
    assert (tmp_path / "neighbour").exists()
    assert (home / "thesis.tex").exists(), (
        "a folder that was somebody's before it became the workspace was removed whole"
    )


def test_clean_follows_no_link_out_of_the_workspace(command: Command, home: Path, tmp_path: Path) -> None:
    filled(home)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").write_text("x", encoding="utf-8")
    (home / "caches" / "linked").symlink_to(tmp_path / "outside")
    (home / "runs" / "notes.txt").write_text("a file, not a folder", encoding="utf-8")
    code, _, err = command("clean", "--yes")
    assert code == 0, err
    assert (tmp_path / "outside" / "precious").exists()
    assert not (home / "caches" / "vllm-0.19.1-cpu").exists()


def test_clean_in_a_workspace_that_is_not_there(command: Command, home: Path) -> None:
    assert command("clean", "--all", "--yes") == (0, "nothing to remove\n", "")
    assert not home.exists()


def test_a_look_at_everything_shows_what_is_not_well_and_counts_the_rest(
    command: Command, tmp_path: Path
) -> None:
    machine = edited(tmp_path / "small", SMALL)
    _, brief, _ = command("check", "--machine", machine)
    assert "FAIL    HOST-004" in brief
    assert "OK      HOST-001" not in brief
    assert re.search(r"(?m)^HOST +\d+ ok .*1 fail", brief)
    assert "runbook check --evidence" in brief
    _, whole, _ = command("check", "--machine", machine, "--evidence")
    assert "OK      HOST-001" in whole
    assert brief.splitlines()[-3:] == whole.splitlines()[-3:]  # the same summary
    _, named, _ = command("check", "HOST", "--machine", machine, "--brief")
    assert "OK      HOST-001" not in named
