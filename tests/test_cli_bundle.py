"""``runbook bundle`` as it is typed: a look first, one file with --yes, and no secret of this machine in it."""

import gzip
import json
import os
import shutil
import stat
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from runbook import cli, cli_bundle, redact, tarball
from runbook.bundle import made
from runbook.workspace import Workspace

MACHINE = ["--machine", "recorded:h200-driver-470"]
KEY = "plain-looking-key"
Ended = tuple[int, str, str]
Command = Callable[..., Ended]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace with a server that has written a log and holds a key, and a run that failed."""
    for name in ("RUNBOOK_MACHINE", "RUNBOOK_RECORD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RUNBOOK_HOME", str(tmp_path / "work"))
    monkeypatch.setenv("SOME_API_KEY", "of-the-environment")
    monkeypatch.chdir(tmp_path)
    made_here = Workspace(tmp_path / "work")
    made_here.jobs.mkdir(parents=True)
    (made_here.jobs / "server.key").write_text(KEY, encoding="utf-8")
    (made_here.jobs / "server.log").write_text(
        f"started with {KEY}\nERROR 11-30 05:56:00 [core.py:1] RuntimeError: of-the-environment is not 7\n", encoding="utf-8"
    )  # fmt: skip
    return made_here


@pytest.fixture
def command(work: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """``runbook bundle WORDS`` in this process: exit code, stdout, stderr."""
    assert work.root.exists()

    def ended(*words: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["runbook", "bundle", *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert isinstance(end.value.code, int)
        return end.value.code, *capsys.readouterr()

    return ended


def a_run(work: Workspace, command: Command, name: str = "2026-11-30T10.00.00") -> Path:
    """A run folder as a walk leaves it, of the findings that a recorded machine gives."""
    code, out, _ = command("--format", "json", *MACHINE, "--yes", "--out", "made.tar.gz")
    assert (code, json.loads(out)["written"] is not None) == (0, True)
    folder = work.runs / name
    (folder / "logs").mkdir(parents=True)
    rows = unpacked(Path("made.tar.gz"))["findings.json"]
    Path("made.tar.gz").unlink()
    (folder / "findings.json").write_text(rows, encoding="utf-8")
    (folder / "run.json").write_text(
        json.dumps({"begun": "2026-11-30T10:00:00+00:00", "machine": "live", "target": "", "runbook": "0.1.0", "parameters": {}, "steps": []}), encoding="utf-8"
    )  # fmt: skip
    (folder / "logs" / "08_warmup@x.log").write_text("innocent\n", encoding="utf-8")
    return folder


def unpacked(path: Path) -> dict[str, str]:
    files = {}
    with tarfile.open(path) as archive:
        for one in archive:
            content = archive.extractfile(one)
            assert content is not None
            text = content.read().decode("utf-8", "surrogateescape")
            files[one.name.removeprefix("runbook-bundle/")] = text
    return files


def test_a_look_writes_nothing_and_yes_one_file(work: Workspace, command: Command, tmp_path: Path) -> None:
    folder = a_run(work, command)
    before = sorted(tmp_path.rglob("*"))
    code, told, _ = command()
    assert code == 0
    assert sorted(tmp_path.rglob("*")) == before
    assert told.startswith("What would go in (nothing is written yet, and nothing is sent):\n")
    assert "logs/08_warmup_x.log" in told
    assert "line 1: started with <secret-2>" in told
    assert "--yes" in told
    assert KEY not in told

    code, told, _ = command("--yes")
    place = tmp_path / f"runbook-bundle-{folder.name}.tar.gz"
    assert code == 0
    assert sorted(tmp_path.rglob("*")) == sorted([*before, place])
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    files = unpacked(place)
    assert files["logs/server.log"].splitlines()[0] == "started with <secret-2>"
    assert "RuntimeError: <secret-1> is not 7" in files["issue.md"]
    for name, text in files.items():
        assert KEY not in text, name
        assert "of-the-environment" not in text, name
    assert json.loads(files["manifest.json"])["source"] == f"the run {folder.name}"

    code, told, _ = command("--verify", str(place))
    assert (code, told.splitlines()[0]) == (0, f"{len(files) - 1} files, each as the manifest says")


def test_the_same_run_makes_the_same_bytes(work: Workspace, command: Command) -> None:
    a_run(work, command)
    hashes = {
        json.loads(command("--format", "json", "--yes", "--out", f"{name}.tar.gz")[1])["sha256"]
        for name in "ab"
    }
    assert len(hashes) == 1
    assert Path("a.tar.gz").read_bytes() == Path("b.tar.gz").read_bytes()


def test_the_newest_run_is_taken_and_another_can_be_named(work: Workspace, command: Command) -> None:
    older = a_run(work, command)
    newer = older.with_name("2026-11-30T11.00.00")
    shutil.copytree(older, newer)
    assert "runbook-bundle-2026-11-30T11.00.00.tar.gz" in command()[1]
    assert "runbook-bundle-2026-11-30T10.00.00.tar.gz" in command("--run", str(older))[1]


def test_named_logs_go_in_instead_and_of_a_recording_nothing_of_this_machine(
    work: Workspace, command: Command, tmp_path: Path
) -> None:
    log = tmp_path / "mine.log"
    log.write_text(f"x {KEY}\n", encoding="utf-8")
    code, out, _ = command(str(log), *MACHINE, "--format", "json")
    told = json.loads(out)
    names = [one["name"] for one in told["files"]]
    assert (code, told["written"]) == (0, None)
    assert [name for name in names if name.startswith("logs/")] == ["logs/mine.log"]
    row = next(one for one in told["files"] if one["name"] == "logs/mine.log")
    assert row["changed"] == [{"line": 1, "now": "x <secret-1>"}]
    assert work.root.exists()
    again = json.loads(command(*MACHINE, "--format", "json")[1])
    assert not [one["name"] for one in again["files"] if one["name"].startswith("logs/")]


def test_what_the_logs_come_to_is_put_in(work: Workspace) -> None:
    log = work.jobs / "server.log"
    log.write_text(
        log.read_text(encoding="utf-8") + f"OSError: [Errno 28] No space left on device: {KEY}\n",
        encoding="utf-8",
    )
    found = cli_bundle.gathered([log], None, MACHINE[1], "auto", "", work)
    files = {item.name: item.content.decode() for item in made(found, redact.numbered({}, [KEY]), "1")}
    (cause,) = json.loads(files["triage.json"])["causes"]
    assert (cause["key"], cause["text"]) == (
        "disk-full",
        "OSError: [Errno 28] No space left on device: <secret-1>",
    )
    assert "What the logs come to: cause" in files["bundle.html"]
    assert "disk-full" in files["issue.md"]


BAD: dict[str, tuple[list[str], str]] = {
    "a log that is not there": (["no.log"], "no.log is not there"),
    "a folder as a log": (["work"], "work is no file"),
    "a device as a log": (["/dev/zero"], "/dev/zero is no file"),
    "a compressed log": (["x.gz"], "no secret can be found"),
    "no run folder": (["--run", "work"], "no findings.json"),
    "a damaged run folder": (["--run", "damaged"], "findings.json cannot be read"),
    "a run folder of something else": (["--run", "other"], "a finding that cannot be read"),
    "an archive that is there": (["--out", "x.gz"], "is there already"),
    "a folder that is not there": (["--out", "no/x.tar.gz"], "no folder that may be written to"),
    "nothing to verify": (["--verify", "no.tar.gz"], "no.tar.gz"),
    "no bundle to verify": (["--verify", "x.gz"], "is no bundle"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_and_leaves_nothing(name: str, command: Command, tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(gzip.compress(os.urandom(5000)))
    for folder, text in (("damaged", "[{"), ("other", '[{"a": 1}]')):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "findings.json").write_text(text, encoding="utf-8")
        (tmp_path / folder / "run.json").write_text("{}", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    words, said = BAD[name]
    machine = [] if "--verify" in words else MACHINE
    code, _, err = command(*words, *machine, "--yes")
    assert code == 2
    assert said in err
    assert "  do: " in err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_changed_bundle_is_found_out(command: Command, tmp_path: Path) -> None:
    assert command(*MACHINE, "--yes", "--out", "a.tar.gz")[0] == 0
    files = unpacked(tmp_path / "a.tar.gz")
    files["findings.json"] = files["findings.json"].replace('"fail"', '"ok"')
    (tmp_path / "b.tar.gz").write_bytes(tarball.packed({name: text.encode() for name, text in files.items()}))
    code, _, err = command("--verify", "b.tar.gz")
    assert code == 1
    assert "findings.json: not the listed content" in err
