"""Execute the committed notebooks again on a recorded machine and write them back in canonical form.

``python tests/notebooks/refresh.py [PAGE ...]``. This is the only way by which outputs get into a committed notebook.
A page that raises is not written.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from canonical import NOTEBOOKS, faults, fixed, read
from papermill.exceptions import PapermillExecutionError
from papermill.execute import execute_notebook

from runbook.params import PAGES, PageSpec, page_spec

MACHINE = "recorded:cpu-2core"
# What a reader's terminal, clock and language would change.
PLAIN = {
    "NO_COLOR": "1",
    "COLUMNS": "80",
    "LINES": "24",
    "TZ": "UTC",
    "LC_ALL": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "TQDM_DISABLE": "1",
}


def environment(home: Path, machine: str = MACHINE, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment in which committed outputs are made and compared; the workspace is an empty folder."""
    kept = {
        key: value
        for key, value in base.items()
        if not key.startswith("RUNBOOK_") and key != "PYTHONWARNINGS"
    }
    return {**kept, **PLAIN, "RUNBOOK_MACHINE": machine, "RUNBOOK_HOME": str(home)}


def refreshed(spec: PageSpec, source: Path, folder: Path) -> str:
    """The canonical text of one page, executed in ``folder`` with the environment of this process.

    Raises:
        PapermillExecutionError: a cell of the page raised.
    """
    # Brought into form before as well: a parameters cell that is behind its dataclass must not be executed.
    before, after = folder / f"{spec.name}.in.ipynb", folder / f"{spec.name}.ipynb"
    before.write_text(fixed(read(spec.name, source.read_text(encoding="utf-8"))), encoding="utf-8")
    execute_notebook(
        before, after, engine_name="runbook", kernel_name="python3", cwd=str(folder), progress_bar=False,
        execution_timeout=spec.cell_deadline_s, journal=str(folder / "events.jsonl"),
        where={"page": spec.name},
    )  # fmt: skip
    return fixed(read(spec.name, after.read_text(encoding="utf-8")))


def main(argv: Sequence[str] | None = None) -> int:
    """Refresh the pages that are named, or all; 1 when a page raised or is not in canonical form."""
    parser = argparse.ArgumentParser(description="Execute the committed notebooks again and write them back.")
    parser.add_argument("pages", nargs="*", help="pages such as 04_torch; all when none is named")
    parser.add_argument("--machine", default=MACHINE, help=f"the recorded machine (default {MACHINE})")
    parser.add_argument("--folder", type=Path, default=NOTEBOOKS, help="the folder of the notebooks")
    asked = parser.parse_args(argv)
    specs = [page_spec(name) for name in asked.pages] or list(PAGES)
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.update(environment(Path(scratch) / "work", asked.machine))
        for spec in specs:
            path = asked.folder / f"{spec.name}.ipynb"
            began = time.monotonic()
            try:
                text = refreshed(spec, path, Path(scratch))
            except PapermillExecutionError as why:
                sys.stdout.write(
                    f"{path}: not written: cell {why.cell_index} raised {why.ename}: {why.evalue}\n"
                )
                wrong += 1
                continue
            state = "as before" if text == path.read_text(encoding="utf-8") else "rewritten"
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"{path}: {state} ({time.monotonic() - began:.1f} s)\n")
            found = faults(read(spec.name, text))
            sys.stdout.writelines(f"  {one}\n" for one in found)
            wrong += len(found)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
