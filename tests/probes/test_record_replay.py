"""What a live machine said is written down, and a replay of it says the same to every check."""

import datetime
import json
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from runbook import engine, pins
from runbook.checks import ALL, BY_ID
from runbook.errors import BadParameter, NotRecorded
from runbook.model import Cost, Evidence, Finding, Verdict
from runbook.probe import Probe, Ran, Reply
from runbook.probes import replay
from runbook.probes.cached import CachedProbe
from runbook.probes.live import SET_BUT_HIDDEN, LiveProbe
from runbook.probes.record import RecordProbe, finish
from runbook.probes.replay import ReplayProbe, load
from runbook.workspace import Workspace

STACK = "vllm-0.19.1-cpu"


@pytest.fixture
def live(tmp_path: Path) -> LiveProbe:
    """This machine; our own environment stands in for a target, so that target questions have answers too."""
    model = tmp_path / "work" / "models" / "m"
    model.mkdir(parents=True)
    (model / "config.json").write_text('{"model_type": "qwen3"}', encoding="utf-8")
    return LiveProbe(Workspace(tmp_path / "work"), STACK, Path(sys.executable), model)


def shown(findings: list[Finding]) -> dict[str, tuple[Verdict, tuple[Evidence, ...], str, object]]:
    return {one.id: (one.verdict, one.evidence, one.reason, one.fix) for one in findings}


def test_the_same_findings_live_and_replayed(live: LiveProbe, tmp_path: Path) -> None:
    out = tmp_path / "box"
    chosen = engine.select(ALL, [], Cost.STATIC)
    # Cached, as the commands do it: a reading that moves (free memory) is taken once.
    recorder = RecordProbe(live, out)
    heard = shown(engine.run(chosen, ALL, CachedProbe(recorder)))
    finish(out, (STACK,))
    again = engine.run(chosen, ALL, ReplayProbe(load(str(out)), STACK))
    # An origin may hold a folder or a group's number: redacted in the recording, and so in what a replay asks.
    for each, finding in shown(again).items():
        assert repr(finding) == recorder.redact(repr(heard[each])), each
    assert {one.verdict for one in again} >= {Verdict.OK}
    assert not any("has no answer" in one.reason for one in again)


def test_the_same_findings_of_the_target(live: LiveProbe, tmp_path: Path) -> None:
    out = tmp_path / "box"
    chosen = [BY_ID["PY-005"], BY_ID["PY-006"], BY_ID["PY-003"], BY_ID["MODEL-001"], BY_ID["MODEL-005"]]
    heard = engine.run(chosen, ALL, CachedProbe(RecordProbe(live, out)))
    finish(out, (STACK,))
    assert shown(engine.run(chosen, ALL, ReplayProbe(load(str(out)), STACK))) == shown(heard)
    other = engine.run(chosen, ALL, ReplayProbe(load(str(out)), "vllm-0.32.0-cpu"))
    # A checkpoint can be looked at without a target, and nobody looked at this one.
    assert {one.id for one in other if one.verdict is Verdict.UNKNOWN} == {"MODEL-001"}
    assert {one.verdict for one in other} == {Verdict.SKIP, Verdict.UNKNOWN}


def test_every_kind_of_answer_comes_back(
    live: LiveProbe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "box"
    record = RecordProbe(live, out)
    monkeypatch.setenv("HF_TOKEN", "sesame")
    monkeypatch.setenv("PLAIN", "a b")
    monkeypatch.setenv("EMPTY", "")

    def answers(host: Probe) -> list[Any]:
        return [
            host.run(["sh", "-c", "echo out; echo err >&2; exit 3"]),
            host.run(["no-such-program-anywhere"]),
            host.run(["sleep", "60"], 0.3),
            host.run(["true"]),
            host.read_text("{model}/config.json"),
            host.read_text("/no/such/file"),
            host.read_text("/dev/null"),
            host.glob("{model}/*"),
            host.glob("/no/such/*"),
            [host.env(name) for name in ("HF_TOKEN", "PLAIN", "EMPTY", "NOT_SET_AT_ALL")],
            host.inside("tokenizer_facts", {"path": "/no/such/folder"}),
            host.http("GET", "/health"),
        ]

    heard = answers(record)
    finish(out, (STACK,))
    again = answers(ReplayProbe(load(str(out)), STACK))
    assert again == heard
    assert heard[9] == [SET_BUT_HIDDEN, "a b", "", None]
    assert heard[2].timed_out
    everything = "".join(path.read_text(encoding="utf-8") for path in out.rglob("*") if path.is_file())
    assert "sesame" not in everything
    assert str(tmp_path) not in everything


def test_an_index_names_each_answer_once_and_nothing_else_lies_there(live: LiveProbe, tmp_path: Path) -> None:
    record = RecordProbe(live, tmp_path / "box")
    for _ in range(2):
        record.run(["uname", "-srm"])
        record.read_text("{model}/config.json")
    rows = json.loads((tmp_path / "box" / "index.json").read_text(encoding="utf-8"))
    assert [(row["stack"], row["ask"]) for row in rows] == [
        ("", "run uname -srm"),
        (STACK, "read {model}/config.json"),
    ]
    files = {row["file"] for row in rows}
    assert {path.name for path in (tmp_path / "box" / "answers").iterdir()} == files


def test_a_later_answer_replaces_the_earlier(live: LiveProbe, tmp_path: Path) -> None:
    record = RecordProbe(live, tmp_path / "box")
    assert live.model
    record.read_text("{model}/config.json")
    (live.model / "config.json").unlink()
    record.read_text("{model}/config.json")
    finish(tmp_path / "box", (STACK,))
    assert ReplayProbe(load(str(tmp_path / "box")), STACK).read_text("{model}/config.json") is None
    assert list((tmp_path / "box" / "answers").iterdir()) == []


def test_what_is_settled_keeps_its_first_answer(live: LiveProbe, tmp_path: Path) -> None:
    record = RecordProbe(live, tmp_path / "box")
    boot = Path(live.places["{work}"]) / "jobs" / "server.boot.json"
    boot.parent.mkdir(parents=True, exist_ok=True)
    for record.settled, text in (("", "first"), ("", "second"), ("{work}/jobs", "of another stack")):
        boot.write_text(text)
        record.read_text("{work}/jobs/server.boot.json")
    record.read_text("{work}/jobs/server.log")  # new, so it is kept
    finish(tmp_path / "box", (STACK,))
    replayed = ReplayProbe(load(str(tmp_path / "box")), STACK)
    assert replayed.read_text("{work}/jobs/server.boot.json") == "second"
    assert replayed.read_text("{work}/jobs/server.log") is None


def test_the_machine_says_what_it_is(live: LiveProbe, tmp_path: Path) -> None:
    RecordProbe(live, tmp_path / "my-box").run(["true"])
    finish(tmp_path / "my-box", (STACK,))
    one = load(str(tmp_path / "my-box"))
    assert (one.name, one.stacks, one.edited_from, one.edits) == ("my-box", (STACK,), "", ())
    assert re.match(r"\d+ cores, \d+ GiB, ", one.what)
    assert one.banner().startswith("REPLAY of the recorded machine my-box (")
    assert one.banner().endswith("): not your machine")


# Replay


def test_a_question_nobody_asked_is_a_gap_not_an_answer() -> None:
    host = ReplayProbe(load("cpu-2core"), "vllm-0.32.0-cpu")
    for ask in (
        lambda: host.run(["made-up"]),
        lambda: host.read_text("/made/up"),
        lambda: host.glob("/made/up*"),
        lambda: host.env("MADE_UP"),
        lambda: host.inside("made_up"),
        lambda: host.http("GET", "/made-up"),
    ):
        with pytest.raises(NotRecorded, match=r"(?i)the recording cpu-2core has no answer to: .*made.up"):
            ask()


def test_a_gap_makes_a_finding_unknown_and_says_which(tmp_path: Path) -> None:
    copied = tmp_path / "gap"
    shutil.copytree(replay.MACHINES / "cpu-2core", copied)
    rows = json.loads((copied / "index.json").read_text(encoding="utf-8"))
    (copied / "index.json").write_text(
        json.dumps([row for row in rows if row["ask"] != "read /proc/self/status"]), encoding="utf-8"
    )
    (finding,) = engine.run([BY_ID["HOST-007"]], ALL, ReplayProbe(load(str(copied))))
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.reason == "the recording cpu-2core has no answer to: read /proc/self/status"
    assert finding.evidence == ()


def test_an_answer_whose_file_is_gone_is_no_missing_tool(tmp_path: Path) -> None:
    copied = tmp_path / "torn"
    shutil.copytree(replay.MACHINES / "cpu-2core", copied)
    for path in (copied / "answers").glob("read-proc-self-status-*"):
        path.unlink()
    (finding,) = engine.run([BY_ID["HOST-007"]], ALL, ReplayProbe(load(str(copied))))
    assert finding.verdict is Verdict.UNKNOWN


def test_the_answers_of_one_stack_are_not_the_other_s() -> None:
    machine = load("cpu-2core")
    versions = {stack: ReplayProbe(machine, stack).http("GET", "/version").body for stack in machine.stacks}
    assert versions == {"vllm-0.32.0-cpu": '{"version":"0.32.0"}', "vllm-0.19.1-cpu": '{"version":"0.19.1"}'}
    assert not ReplayProbe(machine).has_target
    assert not ReplayProbe(machine, "vllm-0.19.1-cu128").has_target
    # What is asked of the machine itself is the same for all.
    assert len({ReplayProbe(machine, stack).run(["uname", "-srm"]) for stack in ("", *machine.stacks)}) == 1


def test_a_replay_does_not_wait() -> None:
    ran = ReplayProbe(load("cpu-2core")).run(["uname", "-srm"], timeout_s=0.0)
    assert (ran.rc, ran.out.split()[0], ran.timed_out) == (0, "Linux", False)


# Edited recordings


def edited(
    folder: Path, rows: list[dict[str, Any]], texts: Mapping[str, str], parent: str = "cpu-2core", **more: Any
) -> Path:
    (folder / "answers").mkdir(parents=True)
    for name, text in texts.items():
        (folder / "answers" / name).write_text(text, encoding="utf-8")
    (folder / "index.json").write_text(json.dumps(rows), encoding="utf-8")
    about = {
        "name": folder.name,
        "what": "edited",
        "recorded": "2026-11-30",
        "edited_from": parent,
        "edits": ["one core"],
        **more,
    }
    (folder / "machine.toml").write_text(
        "".join(f"{key} = {json.dumps(value)}\n" for key, value in about.items()), encoding="utf-8"
    )
    return folder


def test_an_edit_lies_over_its_parent(tmp_path: Path) -> None:
    status = "Uid:\t0\t0\t0\t0\nCpus_allowed_list:\t0\n"
    folder = edited(
        tmp_path / "one-core",
        [{"ask": "read /proc/self/status", "stack": "", "file": "n.txt"}],
        {"n.txt": status},
    )
    one = load(str(folder))
    host = ReplayProbe(one, "vllm-0.32.0-cpu")
    assert host.read_text("/proc/self/status") == status
    assert host.run(["uname", "-srm"]).out == ReplayProbe(load("cpu-2core")).run(["uname", "-srm"]).out
    assert host.has_target
    assert one.banner().endswith("not your machine; edited from cpu-2core: one core")
    before, after = (
        shown(engine.run(engine.select(ALL, ["HOST"], Cost.STATIC), ALL, ReplayProbe(load(name))))
        for name in ("cpu-2core", str(folder))
    )
    assert {each for each in before if before[each] != after[each]} == {"HOST-007"}


def test_an_edit_can_take_an_answer_away(tmp_path: Path) -> None:
    rows = [
        {"ask": "run lscpu --version", "stack": "", "rc": 127, "missing": True},
        {"ask": "read {model}/config.json", "stack": "vllm-0.32.0-cpu", "missing": True},
        {"ask": "http GET /health", "stack": "vllm-0.32.0-cpu", "status": 503},
        {"ask": "run nproc", "stack": "", "rc": -9, "timed_out": True, "err": "slow"},
    ]
    host = ReplayProbe(load(str(edited(tmp_path / "less", rows, {}))), "vllm-0.32.0-cpu")
    assert host.run(["lscpu", "--version"]).missing
    assert host.read_text("{model}/config.json") is None
    assert host.http("GET", "/health") == Reply(503, "")
    assert host.run(["nproc"]) == Ran(("nproc",), -9, "", "slow", timed_out=True)
    assert ReplayProbe(load(str(tmp_path / "less")), "vllm-0.19.1-cpu").read_text("{model}/config.json")


def test_an_edit_of_an_edit(tmp_path: Path) -> None:
    first = edited(tmp_path / "first", [{"ask": "run nproc", "stack": "", "file": "n"}], {"n": "1\n"})
    second = edited(
        tmp_path / "second",
        [{"ask": "env CUDA_HOME", "stack": "", "file": "e"}],
        {"e": "/opt/cuda\n"},
        str(first),
    )
    host = ReplayProbe(load(str(second)))
    assert (host.run(["nproc"]).out, host.env("CUDA_HOME")) == ("1\n", "/opt/cuda")


def test_an_edit_may_have_fewer_stacks(tmp_path: Path) -> None:
    machine = load(str(edited(tmp_path / "bare", [], {}, stacks=[])))
    assert not ReplayProbe(machine, "vllm-0.32.0-cpu").has_target


@pytest.mark.parametrize("circle", [1, 2, 3])
def test_a_circle_of_edits_is_refused(circle: int, tmp_path: Path) -> None:
    for number in range(circle):
        edited(tmp_path / f"m{number}", [], {}, str(tmp_path / f"m{(number + 1) % circle}"))
    with pytest.raises(BadParameter):
        load(str(tmp_path / "m0"))


# The machines we ship


@pytest.mark.parametrize("name", replay.names())
def test_a_shipped_machine_is_whole(name: str) -> None:
    one = load(name)
    folder = replay.MACHINES / name
    assert one.name == name
    assert one.recorded == datetime.date.fromisoformat(one.recorded).isoformat()
    assert bool(one.edited_from) == bool(one.edits)
    assert all(entry.file is None or entry.file.is_file() for entry in one.entries.values())
    rows = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    keys = [(row["stack"], row["ask"]) for row in rows]
    assert keys == sorted(set(keys))
    named = {row["file"] for row in rows if "file" in row}
    have = {path.name for path in (folder / "answers").iterdir()} if (folder / "answers").exists() else set()
    assert have == named
    assert {stack for stack, _ in one.entries} <= {
        "",
        *one.stacks,
        *(load(one.edited_from).stacks if one.edited_from else ()),
        # A machine whose card is not to be seen is judged for the stack that such a machine gets.
        *(pins.REHEARSAL[:1] if not one.stacks else ()),
    }


def test_what_a_variable_names_is_asked_again_as_it_was_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question built from an answer must be found by a replay, which reads that answer redacted."""
    home = tmp_path / "bob"
    (home / "cuda").mkdir(parents=True)
    (home / "cuda" / "version.json").write_text("{}", encoding="utf-8")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("CUDA_HOME", str(home / "cuda"))
    folder = tmp_path / "machine"
    recorder = RecordProbe(LiveProbe(Workspace(tmp_path / "work")), folder)
    named = recorder.env("CUDA_HOME")
    assert named
    recorder.read_text(f"{named}/version.json")
    recorder.glob(f"{named}/*")
    recorder.run(["ls", named])
    finish(folder, ())
    assert str(home) not in "".join(path.read_text() for path in folder.rglob("*") if path.is_file())
    host = ReplayProbe(load(str(folder)))
    again = host.env("CUDA_HOME")
    assert again == "{home}/cuda"
    assert host.read_text(f"{again}/version.json") == "{}"
    assert host.glob(f"{again}/*") == ("{home}/cuda/version.json",)
    assert host.run(["ls", again]).out == "version.json\n"


@pytest.mark.parametrize(
    "value", ["http://bob:sesame@proxy:3128", "bob:sesame@proxy:3128", "http://bob:s@ses@me@proxy:3128", "http://sesame@proxy:3128"]
)  # fmt: skip
def test_a_proxy_is_read_without_credentials(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", value)
    read = LiveProbe(Workspace(tmp_path)).env("https_proxy")
    assert read
    assert read.endswith("<credentials>@proxy:3128")
    assert "sesame" not in read.replace("s@ses@me", "sesame")


def test_mounts_and_groups_of_others_are_not_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = "27 1 254:0 / / rw - ext4 /dev/vda rw\n28 27 0:25 / /mnt/bob/secret rw - nfs server:/bob rw\n31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n32 27 0:29 / /tmp rw,noexec - tmpfs tmpfs rw\n"
    number = "a1c7dee82957708d71d83e709663910d"
    files = {
        "/proc/self/mountinfo": mounts,
        "/proc/self/cgroup": f"0::/jobs/{number}\n",
        f"/sys/fs/cgroup/jobs/{number}/memory.max": "max\n",
    }
    live = LiveProbe(Workspace(tmp_path / "work"))
    monkeypatch.setattr(live, "read_text", files.get)
    recorder = RecordProbe(live, tmp_path / "machine")
    for path in files:
        recorder.read_text(path)
    finish(tmp_path / "machine", ())
    host = ReplayProbe(load(str(tmp_path / "machine")))
    kept = host.read_text("/proc/self/mountinfo") or ""
    assert [line.split()[4] for line in kept.splitlines()] == ["/", "/sys/fs/cgroup", "/tmp"]  # noqa: S108
    group = (host.read_text("/proc/self/cgroup") or "").strip().removeprefix("0::")
    assert number not in group
    assert host.read_text(f"/sys/fs/cgroup{group}/memory.max") == "max\n"
