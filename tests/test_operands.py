"""Words that name an environment: each kind finds its own, and a word that names nothing is answered with what there is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import wheels

from runbook import operands, snapshot
from runbook.errors import BadParameter
from runbook.probes import replay
from runbook.workspace import CURRENT, Workspace

CPU, OLD = "vllm-0.32.0-cpu", "vllm-0.19.1-cpu"
H200 = "recorded:h200-vllm-0.19.1"
CPU_BOX = "recorded:cpu-2core"


@pytest.fixture
def work(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "work")


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished build of a stack in a workspace; its interpreter."""
    root = tmp_path_factory.mktemp("built")
    python = wheels.environment(root / "targets" / CPU / "20261130-1", wheels.torch(root / "dist"))
    (root / "targets" / CPU / CURRENT).symlink_to("20261130-1")
    return python


def run_of(work: Workspace, name: str, *stacks: str, machine: str = CPU_BOX) -> Path:
    """A run folder as ``runbook run`` leaves it: run.json first, then a snapshot of each stack."""
    folder = work.runs / name
    folder.mkdir(parents=True)
    steps = [{"page": "03_python", "stack": stack} for stack in stacks]
    (folder / "run.json").write_text(json.dumps({"steps": steps}), encoding="utf-8")
    operands.leave(folder, machine, stacks, "", work)
    return folder


def test_a_stack_a_build_a_folder_and_an_interpreter_are_one_environment(build: Path, tmp_path: Path) -> None:
    work = Workspace(build.parents[4])
    words = [CPU, f"{CPU}/20261130-1", str(build), str(build.parent.parent), str(work.target(CPU))]
    found = [operands.single(word, "auto", work) for word in words]
    assert {one.torch for one in found} == {"2.10.0+cu128"}
    assert {one.stack for one in found} == {CPU}
    assert operands.single("now", "auto", work).torch == "2.10.0+cu128"
    file = tmp_path / "carried.json"
    file.write_text(snapshot.as_json(found[0]), encoding="utf-8")
    assert operands.single(str(file), "auto", work) == found[0]


def test_a_recorded_machine_is_named_or_given_by_its_folder(work: Workspace) -> None:
    named = operands.single(H200, "auto", work)
    folder = replay.MACHINES / "h200-vllm-0.19.1"
    assert operands.single(str(folder), "auto", work).packages == named.packages
    assert named.taken == "2026-11-30"


def test_a_day_names_its_last_run_and_a_time_the_run_of_that_time(work: Workspace) -> None:
    run_of(work, "2026-11-29T08.00.00", OLD)
    run_of(work, "2026-11-29T09.30.00", CPU)
    run_of(work, "2026-11-30T10.00.00", OLD)
    assert operands.single("2026-11-29", "auto", work).stack == CPU
    assert operands.single("2026-11-29T08", "auto", work).stack == OLD
    assert operands.single("2026-11-29 09:30", "auto", work).stack == CPU
    assert operands.single(str(work.runs / "2026-11-30T10.00.00"), "auto", work).stack == OLD


def test_of_a_run_with_two_stacks_the_one_that_both_sides_have_is_taken(work: Workspace) -> None:
    both = run_of(work, "2026-11-29T08.00.00", CPU, OLD)
    one = run_of(work, "2026-11-30T08.00.00", OLD)
    assert [side.stack for side in operands.pair((str(both), str(one)), "auto", work)] == [OLD, OLD]
    assert [side.stack for side in operands.pair((str(one), str(both)), "auto", work)] == [OLD, OLD]
    assert operands.single(str(both), "auto", work).stack == CPU
    assert operands.single(str(both), OLD, work).stack == OLD
    with pytest.raises(BadParameter, match=r"none of vllm-0\.19\.1-cu128"):
        operands.single(str(both), "vllm-0.19.1-cu128", work)


def test_a_run_that_was_stopped_before_its_snapshot_is_passed_over_for_one_that_was_not(
    work: Workspace,
) -> None:
    run_of(work, "2026-11-29T08.00.00", CPU)
    later = work.runs / "2026-11-29T09.00.00"
    later.mkdir()
    (later / "run.json").write_text("{}", encoding="utf-8")
    assert operands.single("2026-11-29", "auto", work).stack == CPU
    with pytest.raises(BadParameter, match=r"2026-11-29T09.00.00 left no snapshot"):
        operands.single(str(later), "auto", work)


@pytest.mark.parametrize("word", ["nope", "", "..", "vllm-0.32.0-cpu/..", "vllm-0.32.0-cpu/nope", "/etc/passwd", "a\0b", "\udcff", "x" * 5000])  # fmt: skip
def test_a_word_that_names_nothing_is_answered_with_what_there_is(word: str, work: Workspace) -> None:
    run_of(work, "2026-11-29T08.00.00", OLD)
    with pytest.raises(BadParameter) as caught:
        operands.single(word, "auto", work)
    for there in (CPU, "2026-11-29T08.00.00", "recorded:cpu-2core", "now"):
        assert there in caught.value.expected


def test_a_day_without_a_run_and_a_stack_without_a_build_say_so(work: Workspace) -> None:
    run_of(work, "2026-11-29T08.00.00", OLD)
    with pytest.raises(BadParameter, match="no run began at 2026-11-28") as caught:
        operands.single("2026-11-28", "auto", work)
    assert "2026-11-29T08.00.00" in caught.value.expected
    with pytest.raises(BadParameter, match=r"the stack vllm-0\.32\.0-cpu has no environment here"):
        operands.single(CPU, "auto", work)


def test_a_walk_leaves_a_snapshot_that_is_what_the_machine_says_now(tmp_path: Path) -> None:
    """The real command, on a recorded machine; the gate of the page may be what it is."""
    out = tmp_path / "run"
    env = {**os.environ, "RUNBOOK_HOME": str(tmp_path / "work")}
    words = [
        sys.executable,
        "-m",
        "runbook",
        "run",
        "02",
        "--machine",
        CPU_BOX,
        "--stack",
        OLD,
        "--out",
        str(out),
    ]
    ran = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert (out / "report.html").exists(), ran.stdout + ran.stderr
    left = snapshot.from_json((out / operands.SNAPSHOTS / f"{OLD}.json").read_text(encoding="utf-8"), "left")
    now = operands.single(CPU_BOX, OLD, Workspace(tmp_path / "work"))
    assert left.packages == now.packages != {}
    assert (left.stack, left.machine) == (OLD, CPU_BOX)
