"""Where the pages lie, and which raw readings they show."""

import ast
import json
import shutil
from pathlib import Path

from runbook.workspace import Workspace


def folder() -> Path:
    """The folder of the pages: in a checkout beside the package, installed inside it."""
    here = Path(__file__).parent
    beside = here.parent / "notebooks"
    return beside if (beside / "00_start.ipynb").exists() else here / "notebooks"


def editable(work: Workspace) -> Path:
    """The pages where a reader may change and run them: the checkout's, or a copy in the workspace of installed ones."""
    pages = folder()
    if pages.parent != Path(__file__).parent:
        return pages
    copy = work.root / "notebooks"
    shutil.copytree(pages, copy, dirs_exist_ok=True)
    return copy


def looks() -> tuple[str, ...]:
    """The questions of all ``page.look`` cells, so that a recording can open every page."""
    found: dict[str, None] = {}
    for path in sorted(folder().glob("[0-9]*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if "look" not in cell["metadata"].get("tags", ()):
                continue
            for node in ast.walk(ast.parse("".join(cell["source"]))):
                if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                    found[str(node.args[0].value)] = None
    return tuple(found)
