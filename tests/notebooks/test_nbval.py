"""The committed outputs are true: nbval, strict and without sanitising, runs every page again on the recorded machine.

And nbval would say so if they were not: one thing in each of many cells is falsified, and exactly those must be red.
"""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from broken import edited
from canonical import NOTEBOOKS, Cell, Notebook, dumped, fixed, joined, read
from papermill.execute import execute_notebook
from refresh import MACHINE, environment

CELL_TIMEOUT_S = 120
WHOLE_S = 600

Outcome = dict[tuple[str, str], str]


def nbval(paths: Sequence[Path], folder: Path, machine: str) -> Outcome:
    """(notebook, cell id) -> passed or failed, for every code cell."""
    report = folder / "nbval.xml"
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider", "-c", str(folder / "pytest.ini"), f"--rootdir={paths[0].parent}",
            "--nbval", "--nbval-current-env", f"--nbval-cell-timeout={CELL_TIMEOUT_S}",
            f"--junitxml={report}", *map(str, paths),
        ],
        cwd=folder, env=environment(folder / "home", machine), check=False, capture_output=True, text=True,
        timeout=WHOLE_S,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    cells = {path.stem: [cell["id"] for cell in notebook(path).code] for path in paths}
    found: Outcome = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it a moment ago
        name = case.attrib["classname"].removesuffix(".ipynb")
        bad = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        number = int(case.attrib["name"].removeprefix("Cell "))
        found[name, cells[name][number]] = ", ".join(bad) or "passed"
    assert set(found) == {(stem, cell) for stem, every in cells.items() for cell in every}
    assert (done.returncode == 0) is (set(found.values()) == {"passed"}), done.stdout
    return found


def notebook(path: Path) -> Notebook:
    return read(path.stem, path.read_text(encoding="utf-8"))


def test_every_output_is_what_the_recording_gives(tmp_path: Path) -> None:
    paths = sorted(NOTEBOOKS.glob("*.ipynb"))
    # nbval compares nothing in a cell without a count; canonical form sees to the count, this to the outputs.
    compared = [cell for path in paths for cell in notebook(path).code if cell["execution_count"]]
    assert sum(bool(cell["outputs"]) for cell in compared) == len(compared) - len(paths)
    found = nbval(paths, tmp_path, MACHINE)
    assert {key: said for key, said in found.items() if said != "passed"} == {}


# A page that shows all five verdicts, made from the recorded machine by changing four of its answers.
FIVE = {
    "run uname -srm": "Linux 6.1.0 aarch64\n",
    "run df -Pk /dev/shm": "Filesystem 1024-blocks Used Available Capacity Mounted on\nshm 65536 0 65536 0% /dev/shm\n",
    "read /proc/meminfo": "",
}


@dataclass(frozen=True)
class Lie:
    """One falsified thing: in which cell, and how its printed text becomes another."""

    what: str
    cell: str
    tell: Callable[[str], str]


def word(old: str, new: str) -> Callable[[str], str]:
    def tell(text: str) -> str:
        assert text.count(old) >= 1, f"{old!r} is not in:\n{text}"
        return text.replace(old, new, 1)

    return tell


def verdict(old: str, new: str) -> Callable[[str], str]:
    return word(f"{old:7} ", f"{new:7} ")


def swapped(text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join([*lines[:-2], lines[-1], lines[-2]])


LIES = (
    Lie("fail told as ok", "host-001-check", verdict("FAIL", "OK")),
    Lie("warn told as ok", "host-005-check", verdict("WARN", "OK")),
    Lie("unknown told as ok", "host-004-check", verdict("UNKNOWN", "OK")),
    Lie("skip told as ok", "driver-001-check", verdict("SKIP", "OK")),
    Lie("fail told as unknown", "host-001-check", verdict("FAIL", "UNKNOWN")),
    Lie("unknown told as skip", "host-004-check", verdict("UNKNOWN", "SKIP")),
    Lie("ok told as warn", "host-002-check", verdict("OK", "WARN")),
    Lie("ok told as fail", "host-003-check", verdict("OK", "FAIL")),
    Lie("ok told as skip", "host-006-check", verdict("OK", "SKIP")),
    Lie("ok told as unknown", "host-007-check", verdict("OK", "UNKNOWN")),
    Lie("another id", "driver-002-check", word("DRIVER-002", "DRIVER-003")),
    Lie("another title", "driver-004-check", word("hides no GPU", "hides a GPU")),
    Lie("another evidence value", "host-002-check", word("glibc   2.", "glibc   3.")),
    Lie("another number", "host-006-check", word("4096", "4095")),
    Lie("another origin", "host-007-check", word("read /proc/self/status", "read /proc/1/status")),
    Lie("another version", "setup", word("vLLM 0.", "vLLM 1.")),
    Lie("another machine", "setup", word("01_host on recorded:", "01_host on live: ")),
    Lie("no word of a replay", "setup", word("REPLAY of", "Reading of")),
    Lie("another fix", "host-001-check", lambda text: text.replace("fix     ", "fix     Do not ", 1)),
    Lie("another risk", "host-005-check", word("(risk: restart)", "(risk: none)")),
    Lie("another reason", "driver-001-check", word("no NVIDIA GPU", "one NVIDIA GPU")),
    Lie("another reading", "host-001-look", word("aarch64", "x86_64")),
    Lie("another count in the summary", "gate", word("1 fail", "0 fail")),
    Lie("another id in the summary", "gate", word("fail    HOST-001", "fail    HOST-002")),
    Lie("ready", "gate", word("is not ready", "is ready")),
    Lie("no output", "driver-003-check", lambda _: ""),
    Lie("a line too many", "driver-005-check", lambda text: text + "all is well\n"),
    Lie("a line too few", "driver-006-check", lambda text: "".join(text.splitlines(keepends=True)[:-1])),
    Lie("lines in another order", "driver-002-check", swapped),
    Lie("a space too many", "driver-004-check", lambda text: text.rstrip("\n") + " \n"),
)  # fmt: skip


def placed() -> list[list[Lie]]:
    """The lies spread over copies of the page, at most one in a cell."""
    copies: list[list[Lie]] = []
    for lie in LIES:
        free = next((copy for copy in copies if lie.cell not in {one.cell for one in copy}), None)
        if free is None:
            copies.append(free := [])
        free.append(lie)
    return copies


def told(nb: Notebook, lies: Sequence[Lie]) -> str:
    """The notebook's text with the lies in its outputs."""
    cells: list[Cell] = json.loads(nb.text)["cells"]
    for lie in lies:
        (cell,) = (one for one in cells if one["id"] == lie.cell)
        (output,) = cell["outputs"]
        text = joined(output["text"])
        false = lie.tell(text)
        assert false != text, lie.what
        cell["outputs"] = [{**output, "text": false}] if false else []
    return dumped({**nb.json, "cells": cells})


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """nbval's word on an untouched page with all verdicts ("true") and on its falsified copies ("false-1" ...)."""
    folder = tmp_path_factory.mktemp("lies")
    machine = edited(folder, "five-verdicts", FIVE)
    source, out = folder / "in.ipynb", folder / "out.ipynb"
    # The gate must not raise: an exception is red in any case and would prove nothing.
    text = (NOTEBOOKS / "01_host.ipynb").read_text(encoding="utf-8")
    source.write_text(text.replace("strict: bool = True", "strict: bool = False"), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        for key, value in environment(folder / "home", machine).items():
            patch.setenv(key, value)
        execute_notebook(source, out, kernel_name="python3", cwd=str(folder), progress_bar=False)
    # Under a name that is no page's, so that its parameters stay as they are.
    true = read("true", fixed(read("true", out.read_text(encoding="utf-8"))))
    texts = {"true": true.text, **{f"false-{n}": told(true, lies) for n, lies in enumerate(placed())}}
    for name, each in texts.items():
        (folder / f"{name}.ipynb").write_text(each, encoding="utf-8")
    return {"true": true, "found": nbval([folder / f"{name}.ipynb" for name in texts], folder, machine)}


def test_the_page_shows_every_verdict(judged: dict[str, Any]) -> None:
    shown = {
        joined(one["text"]).split()[0] for cell in judged["true"].tagged("check") for one in cell["outputs"]
    }
    assert shown == {"OK", "WARN", "FAIL", "SKIP", "UNKNOWN"}


def test_an_untouched_copy_is_green(judged: dict[str, Any]) -> None:
    assert {said for (name, _), said in judged["found"].items() if name == "true"} == {"passed"}


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.what)
def test_a_lie_is_red(judged: dict[str, Any], lie: Lie) -> None:
    (name,) = (f"false-{n}" for n, lies in enumerate(placed()) if lie in lies)
    assert judged["found"][name, lie.cell] == "failure"


def test_what_is_not_falsified_is_green(judged: dict[str, Any]) -> None:
    red = {key for key, said in judged["found"].items() if said != "passed"}
    assert red == {(f"false-{n}", lie.cell) for n, lies in enumerate(placed()) for lie in lies}
