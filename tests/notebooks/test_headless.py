"""Pages without a browser: papermill by hand, papermill with our engine, and the whole walk. All on a recording."""

import copy
import functools
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import junitparser
import nbformat
import pytest
from broken import edited
from canonical import NOTEBOOKS
from jsonschema import Draft202012Validator
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from papermill.exceptions import PapermillExecutionError
from papermill.execute import execute_notebook
from refresh import MACHINE, environment

import runbook
from runbook import cli
from runbook.checks import ALL
from runbook.journal import events
from runbook.model import FINDINGS_SCHEMA, Layer, Risk, Verdict
from runbook.params import page_spec

SCHEMA = Path(runbook.__file__).parent / "schemas" / "findings.schema.json"
DEADLINE_S = 300


def ran(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """A program of the runbook's environment, run in a folder that is not the checkout."""
    program = [sys.executable, "-m", *argv]
    env = environment(folder / "home")
    return subprocess.run(
        program, cwd=folder, env=env, check=False, capture_output=True, text=True, timeout=DEADLINE_S
    )


# One broken answer a page, and the exact ids that fail by it. What only follows from them is skipped and not among them.
BROKEN = {
    "run uname -srm": "Linux 6.1.0 aarch64\n",
    "read {site}/torch/version.py": "__version__ = '2.1.0'\ncuda = None\n",
}
FAILING = {"01_host": ["HOST-001"], "04_torch": ["TORCH-001", "TORCH-002", "TORCH-008"]}


class TestPapermillByHand:
    def test_from_another_folder(self, tmp_path: Path) -> None:
        page = str(NOTEBOOKS / "04_torch.ipynb")
        done = ran(tmp_path, "papermill", page, "out.ipynb", "-p", "machine", MACHINE, "--no-progress-bar")
        assert done.returncode == 0, done.stderr
        shown = printed(tmp_path / "out.ipynb")
        assert f"04_torch on {MACHINE}" in shown
        assert "04_torch is ready" in shown

    def test_with_the_engine(self, tmp_path: Path) -> None:
        page = str(NOTEBOOKS / "04_torch.ipynb")
        out = tmp_path / "findings here"
        out.mkdir()
        (tmp_path / "made").mkdir()
        done = ran(
            tmp_path, "papermill", "--engine", "runbook", "--no-progress-bar", page, "made/out.ipynb",
            "-p", "machine", MACHINE, "-p", "out_dir", str(out), "--execution-timeout", "120",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        rows = events(tmp_path / "made" / "events.jsonl")
        steps = [
            cell["id"]
            for cell in nbformat.read(tmp_path / "made" / "out.ipynb", 4).cells
            if cell.cell_type == "code"
        ]
        assert [row["step"] for row in rows if row["event"] == "start"] == steps
        assert [(row["step"], row["state"]) for row in rows if row["event"] == "end"] == [
            (one, "done") for one in steps
        ]
        (written,) = (out / "findings").glob("*.json")
        found = json.loads(written.read_text(encoding="utf-8"))
        assert {row["id"] for row in found} == {
            one.id for one in ALL if one.layer in page_spec("04_torch").layers
        }
        assert not list(validator().iter_errors(found))

    def test_a_gate_that_fails(self, tmp_path: Path) -> None:
        machine = edited(tmp_path, "old-torch", BROKEN)
        page = str(NOTEBOOKS / "04_torch.ipynb")
        done = ran(tmp_path, "papermill", page, "out.ipynb", "-p", "machine", machine, "--no-progress-bar")
        assert done.returncode != 0
        assert "LayerNotReady" in done.stderr
        assert not_ready(done.stderr, "04_torch") == FAILING["04_torch"]
        shown = printed(tmp_path / "out.ipynb")
        assert "edited from cpu-2core: by a test" in " ".join(shown.split())
        assert re.search(r"(?m)^FAIL    TORCH-001 ", shown)


class TestParameters:
    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["04", "-p", "machin=live"], "'machin'"),
            (["04", "-p", "strict=perhaps"], "strict='perhaps'"),
            (["08", "-p", "deadline_s=soon"], "deadline_s='soon'"),
            (["08", "-p", "deadline_s=1"], "deadline_s=1"),
            (["04", "-p", "out_dir=here"], "out_dir is no parameter"),
            (["04", "-p", "strict"], "'strict'"),
            (["04", "-p", "strict=true", "-p", "strict=true"], "given twice"),
            (["nosuchpage"], "'nosuchpage'"),
            (["04", "--machine", "recorded:nosuchmachine"], "'nosuchmachine'"),
            (["04", "--stack", "nosuchstack"], "'nosuchstack'"),
        ],
        ids=lambda words: " ".join(words) if isinstance(words, list) else "",
    )
    def test_refused(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        words: list[str],
        said: str,
    ) -> None:
        monkeypatch.setattr(sys, "argv", ["runbook", "run", *words, "--out", str(tmp_path / "run")])
        for key, value in environment(tmp_path / "home").items():
            monkeypatch.setenv(key, value)
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert end.value.code == 2
        assert said in capsys.readouterr().err
        assert not (tmp_path / "run").exists()

    def test_refused_as_a_command(self, tmp_path: Path) -> None:
        done = ran(tmp_path, "runbook", "run", "04", "-p", "machin=live", "--out", "run")
        assert done.returncode == 2
        assert done.stderr.startswith("runbook: none of the pages has a parameter 'machin'\n")
        assert "Traceback" not in done.stderr
        assert not (tmp_path / "run").exists()


def notebook(path: Path, *sources: str) -> Path:
    """A notebook with cells named one, two, three ..."""
    names = ("one", "two", "three", "four")
    cells = [nbformat.v4.new_code_cell(source, id=name) for name, source in zip(names, sources, strict=False)]
    kernel = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)
    return path


class TestJournal:
    def execute(self, folder: Path, *sources: str, timeout: int | None = None) -> None:
        execute_notebook(
            notebook(folder / "in.ipynb", *sources), folder / "out.ipynb", engine_name="runbook",
            progress_bar=False, execution_timeout=timeout, where={"page": "mine"},
        )  # fmt: skip

    def states(self, folder: Path) -> list[tuple[str, str]]:
        """Step and state of the journal's end events; every line is complete JSON and every start has its end."""
        text = (folder / "events.jsonl").read_text(encoding="utf-8")
        assert text.endswith("\n")
        rows = [json.loads(line) for line in text.splitlines()]
        assert rows == events(folder / "events.jsonl")
        assert [row["event"] for row in rows] == ["start", "end"] * (len(rows) // 2)
        assert [row["step"] for row in rows[::2]] == [row["step"] for row in rows[1::2]]
        assert all(row["duration_s"] >= 0 for row in rows[1::2])
        assert all(row["page"] == "mine" for row in rows)
        return [(row["step"], row["state"]) for row in rows[1::2]]

    def papermill_says(self, folder: Path) -> list[str]:
        return [cell.metadata.papermill.status for cell in nbformat.read(folder / "out.ipynb", 4).cells]

    def test_all_well(self, tmp_path: Path) -> None:
        self.execute(tmp_path, "1", "2")
        assert self.states(tmp_path) == [("one", "done"), ("two", "done")]
        assert self.papermill_says(tmp_path) == ["completed", "completed"]

    def test_killed_kernel(self, tmp_path: Path) -> None:
        with pytest.raises(DeadKernelError):
            self.execute(tmp_path, "print('seen')", "import os\nos.kill(os.getpid(), 9)", "3", "4")
        assert self.states(tmp_path) == [("one", "done"), ("two", "lost")]
        assert self.papermill_says(tmp_path) == ["completed", "failed", "pending", "pending"]
        assert printed(tmp_path / "out.ipynb") == "seen\n"

    def test_timeout(self, tmp_path: Path) -> None:
        with pytest.raises(CellTimeoutError):
            self.execute(tmp_path, "1", "import time\ntime.sleep(600)", "3", timeout=1)
        assert self.states(tmp_path) == [("one", "done"), ("two", "lost")]
        assert self.papermill_says(tmp_path) == ["completed", "failed", "pending"]

    def test_failing_cell(self, tmp_path: Path) -> None:
        with pytest.raises(PapermillExecutionError, match="ZeroDivisionError"):
            self.execute(tmp_path, "1", "1 / 0", "3")
        # papermill puts a banner at the top, so that the failed cell is the third.
        assert self.states(tmp_path) == [("one", "done"), ("two", "failed")]
        by_id = {cell["id"]: cell for cell in nbformat.read(tmp_path / "out.ipynb", 4).cells}
        assert by_id["one"].metadata.papermill.status == "completed"
        assert by_id["two"].metadata.papermill.status == "failed"
        assert by_id["three"].metadata.papermill.status == "pending"


class Walked:
    """The run folder of a walk over every page, and what the command said."""

    def __init__(self, folder: Path) -> None:
        self.done = ran(folder, "runbook", "run", "--machine", MACHINE, "--out", "run")
        self.out = folder / "run"

    @functools.cached_property
    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads((self.out / "findings.json").read_text(encoding="utf-8"))
        return rows

    @functools.cached_property
    def steps(self) -> list[tuple[str, str]]:
        run = json.loads((self.out / "run.json").read_text(encoding="utf-8"))
        return [(one["page"], one["stack"]) for one in run["steps"]]


class Loads(HTMLParser):
    """The tags of a page, and every address that a browser would fetch by itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.fetched: list[str] = []
        self.feed(text)
        self.fetched += re.findall(r"@import|url\([^)]*\)", text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("src", "srcset", "data", "poster", "background", "action") or (
                name == "href" and tag != "a"
            ):
                self.fetched.append(f"{tag} {name}={value}")
            if name.startswith("on"):
                self.fetched.append(f"{tag} {name}")


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Walked:
    return Walked(tmp_path_factory.mktemp("walk"))


class TestWalk:
    def test_ends_well(self, walked: Walked) -> None:
        assert walked.done.returncode == 0, walked.done.stdout + walked.done.stderr
        assert "Traceback" not in walked.done.stderr
        assert "Warning" not in walked.done.stderr
        assert walked.done.stdout.splitlines()[-1] == str(walked.out)

    def test_every_expected_finding_is_there_once(self, walked: Walked) -> None:
        expected = [one.id for name, _ in walked.steps for one in ALL if one.layer in page_spec(name).layers]
        assert [row["id"] for row in walked.rows] == expected
        assert {one.id for one in ALL} == set(expected)
        assert {row["verdict"] for row in walked.rows} <= {"ok", "warn", "skip"}

    def test_findings_fit_the_schema(self, walked: Walked) -> None:
        assert [one.message for one in validator().iter_errors(walked.rows)] == []

    def test_junit_counts_the_same(self, walked: Walked) -> None:
        xml = junitparser.JUnitXml.fromfile(str(walked.out / "junit.xml"))
        counts = Counter(row["verdict"] for row in walked.rows)
        assert xml.tests == len(walked.rows)
        assert (xml.failures, xml.errors, xml.skipped) == (counts["fail"], counts["unknown"], counts["skip"])
        named = [case.name.split()[0] for suite in xml for case in suite]
        assert Counter(named) == Counter(row["id"] for row in walked.rows)

    def test_report_fetches_nothing(self, walked: Walked) -> None:
        text = (walked.out / "report.html").read_text(encoding="utf-8")
        loads = Loads(text)
        assert loads.fetched == []
        assert not loads.tags & {"script", "iframe", "object", "embed", "link", "base", "img", "form"}
        assert all(row["id"] in text for row in walked.rows)

    def test_journal(self, walked: Walked) -> None:
        text = (walked.out / "events.jsonl").read_text(encoding="utf-8")
        rows = [json.loads(line) for line in text.splitlines()]
        assert text.endswith("\n")
        begun, ended = (
            [(row["page"], row["stack"], row["step"]) for row in rows if row["event"] == event]
            for event in ("start", "end")
        )
        assert begun == ended
        executed = {
            path.stem: [cell["id"] for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
            for path in (walked.out / "notebooks").glob("*.ipynb")
        }
        assert begun == [
            (page, stack, step) for page, stack in walked.steps for step in executed[f"{page}@{stack}"]
        ]
        ends = [row for row in rows if row["event"] in ("end", "page-end")]
        assert {row["state"] for row in ends} == {"done"}
        assert all(isinstance(row["duration_s"], float) for row in ends)
        assert [(row["page"], row["stack"]) for row in rows if row["event"] == "page-end"] == walked.steps

    def test_pages_are_walked_as_committed(self, walked: Walked) -> None:
        # Only the first stack is committed. A walk keeps the server between pages, so what actions say differs.
        first = walked.steps[0][1]
        for name, stack in walked.steps:
            if stack == first:
                walked_cells = cells(walked.out / "notebooks" / f"{name}@{stack}.ipynb")
                for cell, text in cells(NOTEBOOKS / f"{name}.ipynb").items():
                    assert walked_cells[cell] == text, f"{name}, cell {cell}"


def test_a_walk_over_a_broken_machine(tmp_path: Path) -> None:
    machine = edited(tmp_path, "broken", BROKEN)
    done = ran(tmp_path, "runbook", "run", *FAILING, "--machine", machine, "--keep-going", "--out", "run")
    assert done.returncode == 1, done.stdout + done.stderr
    rows = json.loads((tmp_path / "run" / "findings.json").read_text(encoding="utf-8"))
    bad = [row["id"] for row in rows if row["verdict"] in ("fail", "unknown")]
    assert bad == [one for ids in FAILING.values() for one in ids]
    assert re.findall(r"(?m)^ +(?:FAIL|UNKNOWN) +([A-Z]+-\d{3}) ", done.stdout) == bad
    ends = [row for row in events(tmp_path / "run" / "events.jsonl") if row["event"] == "page-end"]
    assert [(row["page"], row["state"]) for row in ends] == [(page, "not ready") for page in FAILING]
    assert {row["page"]: not_ready(row["said"], row["page"]) for row in ends} == FAILING
    assert [one.message for one in validator().iter_errors(rows)] == []


def test_a_walk_stops_at_a_gate(tmp_path: Path) -> None:
    machine = edited(tmp_path, "broken", BROKEN)
    done = ran(tmp_path, "runbook", "run", *FAILING, "--machine", machine, "--out", "run")
    assert done.returncode == 1, done.stdout + done.stderr
    rows = json.loads((tmp_path / "run" / "findings.json").read_text(encoding="utf-8"))
    after = [row for row in rows if row["layer"] == "TORCH"]
    assert after
    assert all(row["verdict"] == "unknown" and row["reason"].startswith("not run: ") for row in after)
    assert not list((tmp_path / "run" / "notebooks").glob("04_torch*"))


def printed(path: Path) -> str:
    """Everything that an executed notebook's cells wrote to stdout; nothing may have gone to stderr."""
    texts = []
    for cell in nbformat.read(path, 4).cells:
        for one in cell.get("outputs", ()):
            if one.output_type == "stream":
                assert one.name == "stdout", one.text
                texts.append(one.text)
    return "".join(texts)


def cells(path: Path) -> dict[str, str]:
    """Cell id -> what it printed, for the cells that ask and judge."""
    return {
        cell["id"]: "".join(one.text for one in cell.outputs)
        for cell in nbformat.read(path, 4).cells
        if cell.cell_type == "code" and not {"action", "parameters"} & set(cell.metadata.tags)
    }


def not_ready(text: str, page: str) -> list[str]:
    """The ids that LayerNotReady names for a page."""
    found = re.search(rf"LayerNotReady: {page} is not ready: ([A-Z0-9, -]+)", text)
    assert found, text
    return [one.strip() for one in found.group(1).split(",")]


@functools.cache
def validator() -> Any:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


class TestSchema:
    def test_it_knows_the_words_of_the_model(self) -> None:
        schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
        finding = schema["$defs"]["finding"]["properties"]
        assert finding["schema"]["const"] == FINDINGS_SCHEMA
        assert finding["layer"]["enum"] == [one.value for one in Layer]
        assert finding["verdict"]["enum"] == [one.value for one in Verdict]
        assert schema["$defs"]["fix"]["properties"]["risk"]["enum"] == [one.value for one in Risk]

    def test_every_field_is_described(self) -> None:
        schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
        bare = [
            f"{kind}.{name}"
            for kind, form in schema["$defs"].items()
            for name, field in form["properties"].items()
            if not field.get("description") and "$ref" not in field
        ]
        assert bare == []

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda row: row.update(schema="findings/2"),
            lambda row: row.update(verdict="green"),
            lambda row: row.update(id="TORCH-1"),
            lambda row: row.update(layer="GPU"),
            lambda row: row.update(fix=None),
            lambda row: row.update(more=1),
            lambda row: row.pop("evidence"),
            lambda row: row.update(verdict="skip"),
            lambda row: row.update(verdict="unknown"),
            lambda row: row.update(waived=True),
            lambda row: row.update(duration_s=-1),
            lambda row: row["fix"].update(risk="some"),
            lambda row: row["evidence"][0].pop("origin"),
            lambda row: row["source"].update(read="today"),
        ],
    )
    def test_it_refuses(self, spoil: Callable[[dict[str, Any]], object]) -> None:
        row: dict[str, Any] = {
            "schema": "findings/1", "id": "TORCH-001", "layer": "TORCH", "stack": "", "title": "t", "verdict": "fail",
            "waived": False, "reason": "", "why": "w", "duration_s": 0.1,
            "evidence": [{"name": "torch", "value": None, "origin": ""}],
            "fix": {"text": "f", "commands": ["c"], "risk": "none", "undo": ""},
            "source": {"title": "s", "url": "u", "read": "2026-01-01"},
        }  # fmt: skip
        assert validator().is_valid([row])
        spoilt = copy.deepcopy(row)
        spoil(spoilt)
        assert not validator().is_valid([spoilt])
