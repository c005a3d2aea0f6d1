import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from canonical import (
    METADATA,
    NOTEBOOKS,
    RULES,
    Cell,
    dumped,
    faults,
    fixed,
    main,
    parameters_source,
    read,
    setup_source,
)

from runbook.checks import ALL
from runbook.params import PAGES, page_spec

NAME = "00_start"


def text_cell(name: str, source: str) -> Cell:
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": source}


def code_cell(name: str, tag: str, source: str, output: str = "seen\n") -> Cell:
    outputs = [{"name": "stdout", "output_type": "stream", "text": output}] if output else []
    return {
        "cell_type": "code", "id": name, "metadata": {"tags": [tag]}, "source": source,
        "outputs": outputs, "execution_count": None,
    }  # fmt: skip


def good(name: str = NAME) -> dict[str, Any]:
    """A notebook without a fault."""
    spec = page_spec(name)
    cells = [
        text_cell("title", "# A page\n\nWhat one will know."),
        code_cell("parameters", "parameters", parameters_source(spec), ""),
        code_cell("setup", "setup", setup_source(spec), "REPLAY of the recorded machine a-box (tiny)\n"),
        text_cell("room-why", "## Is there room?"),
        code_cell("room-look", "look", 'page.look("run df -Pk {disk}")'),
    ]
    cells += [
        code_cell(f"{one.id.lower()}-check", "check", f'page.check("{one.id}")', f"OK {one.id}\n")
        for one in ALL
        if one.layer in spec.layers
    ]
    cells += [code_cell("gate", "gate", "page.gate()", "gate ready\n"), text_cell("next", "**Next** more.")]
    for count, cell in enumerate((one for one in cells if one["cell_type"] == "code"), 1):
        cell["execution_count"] = count
    return {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}


def named(nb: dict[str, Any], name: str) -> Cell:
    cell: Cell = next(one for one in nb["cells"] if one["id"] == name)
    return cell


def faults_of(nb: dict[str, Any], name: str = NAME) -> set[str]:
    return {one.partition(":")[0] for one in faults(read(name, dumped(nb)))}


def changed(name: str, **fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda nb: named(nb, name).update(copy.deepcopy(fields))


def look(source: str) -> Callable[[dict[str, Any]], None]:
    return changed("room-look", source=source)


def outputs(*given: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    return changed("room-look", outputs=list(given))


def stream(text: str, name: str = "stdout") -> dict[str, Any]:
    return {"name": name, "output_type": "stream", "text": text}


def inserted(at: int, cell: Cell) -> Callable[[dict[str, Any]], None]:
    return lambda nb: nb["cells"].insert(at, cell)


def dropped(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda nb: nb["cells"].remove(named(nb, name))


def replaced(name: str, old: str, new: str) -> Callable[[dict[str, Any]], None]:
    def change(nb: dict[str, Any]) -> None:
        source = named(nb, name)["source"]
        assert old in source
        named(nb, name)["source"] = source.replace(old, new)

    return change


WIDGET: dict[str, Any] = {"application/vnd.jupyter.widget-state+json": {}}
ERROR = {"output_type": "error", "ename": "LayerNotReady", "evalue": "", "traceback": []}
RESULT = {"output_type": "execute_result", "data": {"text/plain": "1"}, "metadata": {}, "execution_count": 1}
DISPLAY = {"output_type": "display_data", "data": {"text/html": "<b>"}, "metadata": {}}

# (rule that must speak, what is done to a good notebook, whether --fix can undo it)
FAULTY: list[tuple[str, Callable[[dict[str, Any]], None], bool]] = [
    ("version", lambda nb: nb.update(nbformat_minor=4), True),
    ("metadata", lambda nb: nb.update(metadata={}), True),
    ("metadata", lambda nb: nb.update(metadata={**METADATA, "papermill": {"duration": 1}}), True),
    ("metadata", lambda nb: nb.update(metadata={**METADATA, "widgets": WIDGET}), True),
    (
        "metadata",
        lambda nb: nb.update(metadata={**METADATA, "language_info": {"name": "python", "version": "3.11.7"}}),
        True,
    ),
    ("cell_keys", changed("title", attachments={}), True),
    ("cell_keys", changed("room-why", cell_type="raw"), False),
    ("cell_metadata", changed("gate", metadata={"tags": ["gate"], "papermill": {}}), True),
    ("cell_metadata", changed("gate", metadata={"tags": ["gate"], "execution": {}}), True),
    ("cell_metadata", changed("gate", metadata={"tags": ["gate"], "collapsed": True}), True),
    ("cell_metadata", changed("title", metadata={"tags": ["look"]}), True),
    ("cell_tags", changed("room-look", metadata={}), False),
    ("cell_tags", changed("room-look", metadata={"tags": ["look", "nbval-skip"]}), True),
    ("cell_tags", changed("room-look", metadata={"tags": ["raises-exception"]}), False),
    ("no_injected_parameters", inserted(2, code_cell("injected", "injected-parameters", "machine = 1", "")), True),
    ("cell_ids", changed("room-look", id="3f2a91bc"), False),
    ("cell_ids", changed("room-look", id="deadbeef"), False),
    ("cell_ids", changed("room-look", id="Room look"), False),
    ("cell_ids", changed("room-look", id="gate"), False),
    ("ids_say_what", changed("start-001-check", id="start-002-check"), False),
    ("ids_say_what", changed("room-look", id="room"), False),
    ("ids_say_what", changed("room-why", id="room"), False),
    ("ids_say_what", changed("gate", id="the-gate"), False),
    ("order", lambda nb: nb["cells"].reverse(), False),
    ("order", dropped("next"), False),
    ("no_empty_cells", changed("room-why", source="\n \n"), True),
    ("no_empty_cells", look(""), True),
    ("title_is_a_heading", changed("title", source="A page"), False),
    ("title_is_a_heading", changed("room-why", source="# Another title"), False),
    ("columns", changed("room-why", source="## a\n" + "x" * 121), False),
    ("columns", changed("room-why", source="## a\n\n" + "word " * 26 + "\n\n```\nx\n```"), True),
    ("columns", changed("room-why", source="- " + "word " * 26), False),
    ("columns", changed("room-why", source="word " * 23 + "then - a dash that would make a list"), False),
    ("columns", look("page.look('" + "x" * 121 + "')"), False),
    ("short_code", look("\n".join(f"page.look('run {n}')" for n in range(13))), False),
    ("plain_code", look("def f(): pass"), False),
    ("plain_code", look("async def f(): pass"), False),
    ("plain_code", look("f = lambda: 1"), False),
    ("plain_code", look("class A: pass"), False),
    ("plain_code", look("try:\n    page.look('x')\nexcept Exception: pass"), False),
    ("plain_code", look("%time page.look('x')"), False),
    ("plain_code", look("%%bash\nls"), False),
    ("plain_code", look("!nvidia-smi"), False),
    ("plain_code", look("out = !nvidia-smi"), False),
    ("plain_code", look("page.look?"), False),
    ("plain_code", look("get_ipython().run_line_magic('time', '')"), False),
    ("plain_code", look("import subprocess"), False),
    ("plain_code", look("from pip import main"), False),
    ("plain_code", look("import os\nos.system('ls')"), False),
    ("plain_code", look("page.look("), False),
    ("parameters_cell", replaced("parameters", 'machine: str = "auto"', 'machine: str = "live"'), True),
    ("parameters_cell", replaced("parameters", "strict: bool = True", "strict: int = 1"), True),
    ("parameters_cell", replaced("parameters", "out_dir", "outdir"), True),
    ("parameters_cell", replaced("parameters", "# folder for", "# the folder for"), True),
    ("parameters_cell", replaced("parameters", "strict: bool = True", "more: int = 1\nstrict: bool = True"), True),
    ("parameters_cell", dropped("parameters"), False),
    ("setup_cell", replaced("setup", "    strict=strict,\n", ""), True),
    ("setup_cell", replaced("setup", '"start"', '"host"'), True),
    ("setup_cell", dropped("setup"), False),
    ("every_check", dropped("start-002-check"), False),
    ("every_check", replaced("start-002-check", "START-002", "START-001"), False),
    ("every_check", replaced("start-002-check", "START-002", "TORCH-002"), False),
    ("every_check", replaced("start-002-check", 'page.check("START-002")', "print('OK START-002')"), False),
    ("one_gate", dropped("gate"), False),
    ("one_gate", replaced("gate", "page.gate()", "page.gate"), False),
    ("one_gate", inserted(-1, code_cell("late-look", "look", "page.look('x')")), False),
    ("counted", changed("start-001-check", execution_count=None), False),
    ("counted", changed("start-001-check", execution_count=40), True),
    ("no_errors", outputs(stream("x\n"), ERROR), True),
    ("plain_outputs", outputs(stream("x\n"), stream("careful\n", "stderr")), True),
    ("plain_outputs", outputs(stream("x\n"), RESULT), True),
    ("plain_outputs", outputs(DISPLAY, stream("x\n")), True),
    ("plain_outputs", outputs(stream("x\n"), stream("y\n")), True),
    ("plain_outputs", outputs(stream("\x1b[31mred\x1b[0m\n")), False),
    ("plain_outputs", outputs(stream("10%\r20%\n")), False),
    ("outputs_there", changed("start-001-check", outputs=[]), False),
    ("outputs_there", changed("start-001-check", outputs=[stream(" \n")]), False),
    ("outputs_there", changed("gate", outputs=[]), False),
    ("outputs_there", changed("parameters", outputs=[stream("x")]), True),
    ("says_replay", changed("setup", outputs=[stream("page start on live\n")]), False),
]  # fmt: skip


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_committed(path: Path) -> None:
    nb = read(path.stem, path.read_text(encoding="utf-8"))
    assert faults(nb) == []
    assert fixed(nb) == nb.text


def test_every_page_has_its_notebook() -> None:
    assert {one.name for one in PAGES} == {path.stem for path in NOTEBOOKS.glob("*.ipynb")}


@pytest.mark.parametrize("spec", PAGES, ids=lambda spec: spec.name)
def test_a_good_notebook_has_no_fault(spec: Any) -> None:
    nb = read(spec.name, dumped(good(spec.name)))
    assert faults(nb) == []
    assert fixed(nb) == nb.text


@pytest.mark.parametrize(
    ("rule", "change", "fixable"), FAULTY, ids=[f"{number}-{one[0]}" for number, one in enumerate(FAULTY)]
)
def test_faulty(rule: str, change: Callable[[dict[str, Any]], None], fixable: bool) -> None:  # noqa: FBT001
    nb = good()
    change(nb)
    assert rule in faults_of(nb)
    mended = read(NAME, fixed(read(NAME, dumped(nb))))
    assert (faults(mended) == []) is fixable
    assert fixed(mended) == mended.text


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(good()),
        json.dumps(good(), indent=1, sort_keys=True),
        dumped(good()).rstrip("\n"),
        dumped(good()).replace("\n ", "\n  "),
        dumped(good()).replace("seen", "s\\u00e9en"),
    ],
    ids=["one line", "text not in lines", "no last newline", "other indent", "escaped"],
)
def test_other_bytes(text: str) -> None:
    nb = read(NAME, text)
    assert faults(nb) == [
        "byte_form: its bytes are not in canonical form (key order, indent 1, lines, newline at the end)"
    ]
    assert faults(read(NAME, fixed(nb))) == []


def test_name_that_is_no_page() -> None:
    assert "is_a_page" in faults_of(good(), "00_begin")
    assert "is_a_page" in faults_of(good(), "start")


def test_every_rule_can_speak() -> None:
    spoken = {rule for rule, _, _ in FAULTY} | {"byte_form", "is_a_page"}
    assert spoken == {rule.__name__ for rule in RULES}


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nb = good()
    changed("gate", metadata={"tags": ["gate"], "papermill": {}})(nb)
    path = tmp_path / "00_start.ipynb"
    path.write_text(json.dumps(nb), encoding="utf-8")
    assert main([str(path)]) == 1
    assert "cell gate has metadata papermill" in capsys.readouterr().out
    assert path.read_text(encoding="utf-8") == json.dumps(nb)
    assert main(["--fix", str(path)]) == 0
    assert path.read_text(encoding="utf-8") == dumped(good())
    assert capsys.readouterr().out == f"{path}: rewritten\n"
    assert main(["--fix", str(path)]) == 0
    assert capsys.readouterr().out == ""
