"""The one legal byte form of a committed notebook, so that diffs and failure reports read like sentences.

``python tests/notebooks/canonical.py`` lists faults; ``--fix`` first rewrites what can be rewritten: it drops what must
not be there and writes the parameters and setup cells that the page's dataclass asks for. It never makes outputs up:
those come from ``refresh.py``.
"""

import argparse
import ast
import dataclasses
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from runbook.checks import ALL
from runbook.errors import BadParameter
from runbook.params import PageSpec, page_spec

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
TAGS = ("parameters", "setup", "look", "check", "action", "gate")
CELL_KEYS = {
    "code": {"cell_type", "execution_count", "id", "metadata", "outputs", "source"},
    "markdown": {"cell_type", "id", "metadata", "source"},
}
COLUMNS = 120
LINES = 12
SHELL = frozenset({"get_ipython", "subprocess", "system", "popen", "exec", "eval", "pip", "__import__"})
MAGIC = re.compile(r"^\s*(?:[%!?]|\w[\w.]*\?+$|\w+ *= *[%!])")
WORDED = re.compile(r"[a-z]{2,}(?:-[a-z0-9]+)*")
CONTROL = re.compile(r"[^\t\n\x20-\x7e\u00a0-\U0010ffff]")
BLOCK = re.compile(r"#|```|[-*+>|] |\s{2,}|\d+[.)] |\|")
RANDOM_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f-]+)?")

Cell = dict[str, Any]


@dataclass(frozen=True)
class Notebook:
    """A notebook as read: its name without suffix, its text and its parsed JSON."""

    name: str
    text: str
    json: dict[str, Any]

    @property
    def cells(self) -> list[Cell]:
        return list(self.json["cells"])

    @property
    def code(self) -> list[Cell]:
        return [cell for cell in self.cells if cell["cell_type"] == "code"]

    @property
    def spec(self) -> PageSpec | None:
        try:
            return page_spec(self.name)
        except BadParameter:
            return None

    def tagged(self, tag: str) -> list[Cell]:
        return [cell for cell in self.code if tag in tags(cell)]


def source(cell: Cell) -> str:
    """A cell's source as one text."""
    return joined(cell["source"])


def joined(text: str | list[str]) -> str:
    """Text that nbformat keeps as one string or as a list of lines."""
    return text if isinstance(text, str) else "".join(text)


def tags(cell: Cell) -> list[str]:
    """A cell's tags."""
    return list(cell["metadata"].get("tags", ()))


def dumped(nb: dict[str, Any]) -> str:
    """The bytes of a notebook: sorted keys, indent 1, text as lists of lines, a newline at the end."""
    return json.dumps(_listed(nb), ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def _listed(nb: dict[str, Any]) -> dict[str, Any]:
    cells = []
    for cell in nb["cells"]:
        new = {**cell, "source": source(cell).splitlines(keepends=True)}
        if "outputs" in cell:
            new["outputs"] = [
                {**one, "text": joined(one["text"]).splitlines(keepends=True)} if "text" in one else one
                for one in cell["outputs"]
            ]
        cells.append(new)
    return {**nb, "cells": cells}


# What the page's dataclass asks for.


def parameters_source(spec: PageSpec) -> str:
    """The parameters cell: name, type, default and help of each field, one a line."""
    hints = get_type_hints(spec.params, include_extras=True)
    return "\n".join(
        f"{one.name}: {hints[one.name].__origin__.__name__} = {_literal(one.default)}  # {_help(hints[one.name])}"
        for one in dataclasses.fields(spec.params)
    )


def _help(hint: Any) -> str:
    return next(str(each.description) for each in hint.__metadata__ if getattr(each, "description", None))


def _literal(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)


def setup_source(spec: PageSpec) -> str:
    """The setup cell: opens the page with every one of its parameters."""
    word = spec.name.partition("_")[2]
    names = "".join(f"    {one.name}={one.name},\n" for one in dataclasses.fields(spec.params))
    return f'from runbook.page import open_page\n\npage = open_page(\n    "{word}",\n{names})'


# The rules. Each yields what it found, in words that name the cell.


def byte_form(nb: Notebook) -> Iterator[str]:
    if nb.text != dumped(nb.json):
        yield "its bytes are not in canonical form (key order, indent 1, lines, newline at the end)"


def version(nb: Notebook) -> Iterator[str]:
    have = (nb.json.get("nbformat"), nb.json.get("nbformat_minor"))
    if have != (4, 5):
        yield f"nbformat is {have[0]}.{have[1]}, not 4.5"


def metadata(nb: Notebook) -> Iterator[str]:
    if nb.json.get("metadata") != METADATA:
        extra = sorted(set(nb.json.get("metadata", {})) - set(METADATA))
        yield f"its metadata is not just the kernel python3{': ' + ', '.join(extra) if extra else ''}"


def cell_keys(nb: Notebook) -> Iterator[str]:
    for cell in nb.cells:
        allowed = CELL_KEYS.get(cell["cell_type"])
        if allowed is None:
            yield f"cell {cell.get('id')} is of type {cell['cell_type']}"
        elif set(cell) != allowed:
            yield f"cell {cell.get('id')} has the keys {', '.join(sorted(set(cell) ^ allowed))} too much or too little"


def cell_metadata(nb: Notebook) -> Iterator[str]:
    for cell in nb.cells:
        if extra := set(cell["metadata"]) - ({"tags"} if cell["cell_type"] == "code" else set()):
            yield f"cell {cell.get('id')} has metadata {', '.join(sorted(extra))}"


def cell_tags(nb: Notebook) -> Iterator[str]:
    for cell in nb.code:
        if len(tags(cell)) != 1 or tags(cell)[0] not in TAGS:
            yield f"cell {cell.get('id')} has tags {tags(cell)}, not one of {', '.join(TAGS)}"


def no_injected_parameters(nb: Notebook) -> Iterator[str]:
    for cell in nb.cells:
        if _injected(cell):
            yield f"cell {cell.get('id')} holds parameters that papermill put there"


def cell_ids(nb: Notebook) -> Iterator[str]:
    ids = [str(cell.get("id")) for cell in nb.cells]
    for one in ids:
        if not WORDED.fullmatch(one) or RANDOM_ID.fullmatch(one):
            yield f"cell id {one!r} is not made of words"
    for one in sorted({one for one in ids if ids.count(one) > 1}):
        yield f"cell id {one!r} is there {ids.count(one)} times"


def ids_say_what(nb: Notebook) -> Iterator[str]:
    for cell in nb.cells:
        have = str(cell.get("id"))
        for tag in tags(cell):
            if tag == "check" and have != (wanted := f"{(_check_id(cell) or '?').lower()}-check"):
                yield f"check cell {have!r} should be called {wanted!r}"
            if tag in ("parameters", "setup", "gate") and have != tag:
                yield f"{tag} cell {have!r} should be called {tag!r}"
            if tag == "look" and not re.fullmatch(r".+-look(-\d)?", have):
                yield f"look cell {have!r} should be called ...-look"
        if cell["cell_type"] == "markdown" and not re.fullmatch(r"title|next|.+-why", have):
            yield f"text cell {have!r} should be called title, next or ...-why"


def order(nb: Notebook) -> Iterator[str]:
    ids = [str(cell.get("id")) for cell in nb.cells]
    if ids[:3] != ["title", "parameters", "setup"]:
        yield "it does not begin with title, parameters, setup"
    if ids[-2:] != ["gate", "next"]:
        yield "it does not end with gate, next"


def no_empty_cells(nb: Notebook) -> Iterator[str]:
    for cell in nb.cells:
        if not source(cell).strip():
            yield f"cell {cell.get('id')} is empty"


def title_is_a_heading(nb: Notebook) -> Iterator[str]:
    heads = [
        line for cell in nb.cells if cell["cell_type"] == "markdown" for line in source(cell).splitlines()
    ]
    tops = [line for line in heads if line.startswith("# ")]
    if not heads or tops != heads[:1]:
        yield "its first line is not its only heading of the first level"


def columns(nb: Notebook) -> Iterator[str]:
    for cell in nb.cells:
        longest = max((len(line) for line in source(cell).splitlines()), default=0)
        if longest > COLUMNS:
            yield f"cell {cell.get('id')} has a line of {longest} columns (at most {COLUMNS})"


def short_code(nb: Notebook) -> Iterator[str]:
    # The setup cell passes every parameter on, one a line; its text follows from the dataclass.
    for cell in nb.code:
        if "setup" not in tags(cell) and (count := len(source(cell).splitlines())) > LINES:
            yield f"cell {cell.get('id')} has {count} lines of code (at most {LINES})"


def plain_code(nb: Notebook) -> Iterator[str]:
    for cell in nb.code:
        where = f"cell {cell.get('id')}"
        if any(MAGIC.match(line) for line in source(cell).splitlines()):
            yield f"{where} has a magic or a shell escape"
            continue
        try:
            tree = ast.parse(source(cell))
        except SyntaxError as why:
            yield f"{where} is not Python: {why.msg}"
            continue
        for node in ast.walk(tree):
            yield from (f"{where} {word}" for word in _not_plain(node))


def _not_plain(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        yield "defines a function"
    elif isinstance(node, ast.ClassDef):
        yield "defines a class"
    elif isinstance(node, ast.Try):
        yield "catches exceptions"
    elif isinstance(node, ast.Name) and node.id in SHELL:
        yield f"uses {node.id}"
    elif isinstance(node, ast.Attribute) and node.attr in SHELL:
        yield f"uses {node.attr}"
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        roots = [one.name for one in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        yield from (f"uses {root}" for name in roots if (root := name.partition(".")[0]) in SHELL)


def is_a_page(nb: Notebook) -> Iterator[str]:
    if nb.spec is None or nb.spec.name != nb.name:
        yield f"no page in params.py is called {nb.name}"


def parameters_cell(nb: Notebook) -> Iterator[str]:
    cells = nb.tagged("parameters")
    if len(cells) != 1:
        yield f"it has {len(cells)} parameters cells"
    elif nb.spec and source(cells[0]) != (wanted := parameters_source(nb.spec)):
        have = source(cells[0]).splitlines()
        first = next(
            (line for line in wanted.splitlines() if line not in have), "other lines or another order"
        )
        yield f"its parameters cell is not what {nb.spec.params.__name__} in params.py asks for: {first}"


def setup_cell(nb: Notebook) -> Iterator[str]:
    cells = nb.tagged("setup")
    if len(cells) != 1:
        yield f"it has {len(cells)} setup cells"
    elif nb.spec and source(cells[0]) != setup_source(nb.spec):
        yield "its setup cell does not open its page with every parameter"


def every_check(nb: Notebook) -> Iterator[str]:
    have = [_check_id(cell) for cell in nb.tagged("check")]
    for cell, one in zip(nb.tagged("check"), have, strict=True):
        if one is None:
            yield f"cell {cell.get('id')} is not one page.check of one id"
    if nb.spec:
        wanted = [one.id for one in ALL if one.layer in nb.spec.layers]
        yield from (f"no cell checks {one}" for one in wanted if one not in have)
        yield from (f"{one} is no check of this page" for one in have if one and one not in wanted)
        yield from (f"{have.count(one)} cells check {one}" for one in wanted if have.count(one) > 1)


def one_gate(nb: Notebook) -> Iterator[str]:
    gates = nb.tagged("gate")
    if [source(cell) for cell in gates] != ["page.gate()"] or gates[0] is not nb.code[-1]:
        yield "its last code cell is not its one gate"


def counted(nb: Notebook) -> Iterator[str]:
    # nbval compares nothing in a cell without a count.
    have = [cell.get("execution_count") for cell in nb.code]
    if have != list(range(1, len(have) + 1)):
        yield f"its cells were not run once each in order: {have}"


def no_errors(nb: Notebook) -> Iterator[str]:
    for cell, one in _outputs(nb):
        if one["output_type"] == "error":
            yield f"cell {cell.get('id')} keeps an error: {one.get('ename')}"


def plain_outputs(nb: Notebook) -> Iterator[str]:
    for cell, one in _outputs(nb):
        if one["output_type"] not in ("stream", "error"):
            yield f"cell {cell.get('id')} has an output of type {one['output_type']}"
        elif one["output_type"] == "stream" and one.get("name") != "stdout":
            yield f"cell {cell.get('id')} wrote to {one.get('name')}"
        elif one["output_type"] == "stream" and CONTROL.search(joined(one["text"])):
            yield f"cell {cell.get('id')} has control characters in its output"
    for cell in nb.code:
        if len(cell.get("outputs", ())) > 1:
            yield f"cell {cell.get('id')} has {len(cell['outputs'])} outputs that should be one"


def outputs_there(nb: Notebook) -> Iterator[str]:
    for cell in nb.code:
        texts = [joined(one.get("text", "")) for one in cell.get("outputs", ())]
        if "parameters" in tags(cell):
            if texts:
                yield "its parameters cell has an output"
        elif not any(text.strip() for text in texts):
            yield f"cell {cell.get('id')} has no output"


def says_replay(nb: Notebook) -> Iterator[str]:
    for cell in nb.tagged("setup"):
        first = joined(cell["outputs"][0].get("text", "")) if cell.get("outputs") else ""
        if not first.startswith("REPLAY of the recorded machine "):
            yield "its first output does not say that a recording is replayed"


RULES: tuple[Callable[[Notebook], Iterator[str]], ...] = (
    byte_form,
    version,
    metadata,
    cell_keys,
    cell_metadata,
    cell_tags,
    no_injected_parameters,
    cell_ids,
    ids_say_what,
    order,
    no_empty_cells,
    title_is_a_heading,
    columns,
    short_code,
    plain_code,
    is_a_page,
    parameters_cell,
    setup_cell,
    every_check,
    one_gate,
    counted,
    no_errors,
    plain_outputs,
    outputs_there,
    says_replay,
)


def _outputs(nb: Notebook) -> Iterator[tuple[Cell, dict[str, Any]]]:
    for cell in nb.code:
        for one in cell.get("outputs", ()):
            yield cell, one


def _injected(cell: Cell) -> bool:
    return "injected-parameters" in tags(cell)


def _check_id(cell: Cell) -> str | None:
    found = re.fullmatch(r'page\.check\("([A-Z]+-\d{3})"\)', source(cell))
    return found.group(1) if found else None


def read(name: str, text: str) -> Notebook:
    """A notebook from its name and text."""
    return Notebook(name, text, json.loads(text))


def faults(nb: Notebook) -> list[str]:
    """Everything that is not as it should be."""
    return [f"{rule.__name__}: {found}" for rule in RULES for found in rule(nb)]


def fixed(nb: Notebook) -> str:
    """The canonical text of a notebook: what must not be there is dropped, what follows from params.py is written."""
    cells: list[Cell] = []
    for cell in nb.cells:
        if _injected(cell) or not source(cell).strip():
            continue
        keys = CELL_KEYS.get(cell["cell_type"], set(cell))
        new: Cell = {key: value for key, value in cell.items() if key in keys}
        new["source"] = source(cell).rstrip()
        code = cell["cell_type"] == "code"
        if cell["cell_type"] == "markdown":
            new["source"] = _wrapped(new["source"])
        new["metadata"] = {"tags": [one for one in tags(cell) if one in TAGS]} if code else {}
        if code:
            new["execution_count"] = cell.get("execution_count")
            new["outputs"] = _fixed_outputs(cell.get("outputs", ()))
            if nb.spec and tags(new) == ["parameters"]:
                new["source"] = parameters_source(nb.spec)
                new["outputs"] = []
            if nb.spec and tags(new) == ["setup"]:
                new["source"] = setup_source(nb.spec)
        cells.append(new)
    ran = [cell for cell in cells if cell["cell_type"] == "code"]
    if all(cell["execution_count"] is not None for cell in ran):
        for count, cell in enumerate(ran, 1):
            cell["execution_count"] = count
    return dumped({"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5})


def _wrapped(text: str) -> str:
    """Paragraphs with a line that is too long, filled again; all else as it is."""
    made: list[str] = []
    paragraph: list[str] = []
    fenced = False

    def ended() -> None:
        again = textwrap.wrap(" ".join(paragraph), COLUMNS, break_long_words=False, break_on_hyphens=False)
        long = any(len(line) > COLUMNS for line in paragraph)
        # A word that happens to begin a line must not turn it into a heading or a list.
        made.extend(again if long and not any(BLOCK.match(line) for line in again) else paragraph)
        paragraph.clear()

    for line in text.splitlines():
        fenced ^= line.startswith("```")
        if fenced or not line.strip() or BLOCK.match(line):
            ended()
            made.append(line)
        else:
            paragraph.append(line)
    ended()
    return "\n".join(made)


def _fixed_outputs(outputs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    kept = [one for one in outputs if one["output_type"] == "stream" and one.get("name") == "stdout"]
    text = "".join(joined(one["text"]) for one in kept)
    return [{"name": "stdout", "output_type": "stream", "text": text}] if text else []


def main(argv: Sequence[str] | None = None) -> int:
    """List faults of the notebooks, after fixing what can be fixed when asked to; 1 when some are left."""
    parser = argparse.ArgumentParser(description="The canonical form of committed notebooks.")
    parser.add_argument("notebooks", nargs="*", type=Path, default=sorted(NOTEBOOKS.glob("*.ipynb")))
    parser.add_argument("--fix", action="store_true", help="rewrite into the form")
    asked = parser.parse_args(argv)
    left = 0
    for path in asked.notebooks:
        nb = read(path.stem, path.read_text(encoding="utf-8"))
        if asked.fix and (text := fixed(nb)) != nb.text:
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"{path}: rewritten\n")
            nb = read(path.stem, text)
        found = faults(nb)
        left += len(found)
        sys.stdout.writelines(f"{path}: {one}\n" for one in found)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
