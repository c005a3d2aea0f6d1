"""The main job as a user runs it: ``runbook run`` with its defaults, on real vLLM, and what a resumed run does again."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import junitparser
import pytest
import walking
from walking import NEW, OLD, Running

from runbook import pins
from runbook.params import PAGES
from runbook.walk import SECOND_STACK_PAGES
from runbook.workspace import Workspace

STEPS = [(page.name, NEW) for page in PAGES] + [(name, OLD) for name in SECOND_STACK_PAGES]
ROOT_LINE = "ValueError: too many values to unpack (expected 2)"


@pytest.fixture(scope="module")
def first(workspace: Path) -> Iterator[Running]:
    """The whole walk, once. Its targets are built when no test before it needed them."""
    assert walking.left(workspace) == []
    run = walking.start(workspace, walking.fresh(workspace / "runs" / "main"))
    with walking.killed_at_last(run):
        run.ended(2400)
        yield run


def resumed(home: Path, out: Path) -> tuple[int, list[str], float]:
    """A resumed run: its exit code, the steps it ran as "PAGE@STACK", the seconds it took."""
    began = time.monotonic()
    run = walking.start(home, out, "--resume")
    with walking.killed_at_last(run):
        code = run.ended()
        seconds = time.monotonic() - began
        walking.gone(home)
    rows = [row for row in run.new_rows() if row["event"] == "page-start"]
    assert run.text().splitlines()[-1] == str(out)
    return code, [f"{row['page']}@{row['stack']}" for row in rows], seconds


def evidence(rows: list[dict[str, Any]], check: str, stack: str) -> tuple[str, dict[str, Any]]:
    """Verdict and evidence, name to value, of one finding."""
    (row,) = [each for each in rows if each["id"] == check and each["stack"] == stack]
    return row["verdict"], {each["name"]: each["value"] for each in row["evidence"]}


class TestFirstRun:
    def test_it_is_green_and_says_where(self, home: Path, first: Running) -> None:
        assert first.process.returncode == 0, first.text()
        assert first.text().splitlines()[-1] == str(first.out)
        assert walking.left(home) == []

    def test_every_expected_finding(self, first: Running) -> None:
        rows = walking.findings(first.out)
        assert walking.bad(first.out) == []
        wanted = Counter(each for page, _ in STEPS for each in walking.expected(page))
        assert Counter(row["id"] for row in rows) == wanted
        for page, stack in STEPS:
            path = first.out / "findings" / f"{page}@{stack}.json"
            written = json.loads(path.read_text(encoding="utf-8"))
            assert {row["id"] for row in written} == walking.expected(page)
            # What is said of the machine itself names no stack.
            assert {row["stack"] for row in written} <= {stack, ""}

    @pytest.mark.parametrize("stack", [NEW, OLD])
    def test_real_vllm_served(self, first: Running, stack: str) -> None:
        rows = walking.findings(first.out)
        verdict, seen = evidence(rows, "SERVE-002", stack)
        assert verdict == "ok"
        assert seen["version"].split("+")[0] == pins.stack(stack).vllm == stack.split("-")[1]
        assert seen["started from"] == stack
        verdict, seen = evidence(rows, "SERVE-005", stack)
        assert verdict == "ok"
        assert seen["content"]
        notebook = (first.out / "notebooks" / f"09_serving@{stack}.ipynb").read_text(encoding="utf-8")
        assert "09_serving is ready" in notebook

    def test_the_known_limit(self, first: Running) -> None:
        rows = walking.findings(first.out)
        verdict, seen = evidence(rows, "MODEL-007", OLD)
        assert verdict == "ok"
        assert ROOT_LINE in seen.values()
        assert evidence(rows, "MODEL-007", NEW)[0] == "skip"

    def test_journal(self, first: Running) -> None:
        rows = first.new_rows()
        ends = [(row["page"], row["stack"], row["state"]) for row in rows if row["event"] == "page-end"]
        assert ends == [(page, stack, "done") for page, stack in STEPS]
        for page, stack in STEPS:
            mine = [row for row in rows if (row["page"], row["stack"]) == (page, stack)]
            notebook = json.loads((first.out / "notebooks" / f"{page}@{stack}.ipynb").read_text("utf-8"))
            steps = [cell["id"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
            assert [row["step"] for row in mine if row["event"] == "start"] == steps
            stops = [row for row in mine if row["event"] == "end"]
            assert [(row["step"], row["state"]) for row in stops] == [(step, "done") for step in steps]
            assert all(row["duration_s"] >= 0 and row["at"] for row in stops)

    def test_junit(self, first: Running) -> None:
        xml = junitparser.JUnitXml.fromfile(str(first.out / "junit.xml"))
        assert (xml.tests, xml.failures, xml.errors) == (len(walking.findings(first.out)), 0, 0)

    def test_report_and_logs(self, first: Running) -> None:
        report = (first.out / "report.html").read_text(encoding="utf-8")
        for stack in (NEW, OLD):
            assert f"vLLM {pins.stack(stack).vllm}" in report
            assert "It said:" in report
            log = (first.out / "logs" / f"08_warmup@{stack}.log").read_text(encoding="utf-8")
            assert pins.stack(stack).vllm in log
            key = (first.out.parents[1] / "jobs" / "server.key").read_text(encoding="utf-8").strip()
            assert key not in log
            assert key not in report
        walking.whole(first.out)


class TestAgain:
    def test_targets_are_not_built_twice(self, home: Path, first: Running) -> None:
        assert first.process.returncode == 0
        for stack in (NEW, OLD):
            stamp = Workspace(home).target(stack) / "target.json"
            before = stamp.read_bytes(), stamp.stat().st_mtime_ns
            run = walking.start(home, walking.fresh(home / "runs" / "again"), "03", "--stack", stack)
            with walking.killed_at_last(run):
                assert run.ended() == 0, run.text()
            notebook = (run.out / "notebooks" / f"03_python@{stack}.ipynb").read_text(encoding="utf-8")
            assert f"nothing    {stamp.parent}" in notebook
            assert (stamp.read_bytes(), stamp.stat().st_mtime_ns) == before
            assert Workspace(home).target(stack) == stamp.parent
            (step,) = [
                row["duration_s"]
                for row in run.new_rows()
                if row["event"] == "end" and row["step"] == "build-target"
            ]
            assert step < json.loads(before[0])["seconds"] / 4

    def test_a_finished_run_resumed(self, home: Path, first: Running) -> None:
        findings = walking.findings(first.out)
        code, steps, seconds = resumed(home, first.out)
        assert (code, steps) == (0, [])
        assert seconds < 30
        assert walking.findings(first.out) == findings

    def test_another_checkpoint(self, home: Path, first: Running) -> None:
        added = home / "models" / "tiny-qwen3" / "note.txt"
        added.write_text("the checkpoint is another one now\n", encoding="utf-8")
        try:
            code, steps, _ = resumed(home, first.out)
        finally:
            added.unlink()
        assert code == 0
        assert steps == [f"{page}@{OLD}" for page in ("07_model", "08_warmup", "09_serving")]

    def test_other_packages(self, home: Path, built: Path) -> None:
        assert built == home
        out = walking.fresh(home / "runs" / "packages")
        run = walking.start(home, out, "02", "04", "--stack", OLD)
        with walking.killed_at_last(run):
            assert run.ended() == 0, run.text()
        record = next(Workspace(home).target(OLD).glob("lib/python3.*/site-packages/idna-*.dist-info/RECORD"))
        before = record.read_bytes()
        record.write_bytes(before + b"added,,\n")
        try:
            code, steps, _ = resumed(home, out)
        finally:
            record.write_bytes(before)
        assert (code, steps) == (0, [f"04_torch@{OLD}"])
