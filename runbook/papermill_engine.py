"""papermill's engine with a journal; found under the name ``runbook`` through papermill's entry point.

papermill marks cells that never ran as completed after a kernel death or a timeout (seen with 2.7.0); this engine leaves
them pending, and writes each step's start and end to a journal at once.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nbclient.exceptions import CellExecutionError, DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, NotebookExecutionManager
from traitlets.config import Config

from runbook.journal import Journal


@contextmanager
def sockets() -> Iterator[Config]:
    """Where the kernel listens: Unix sockets in a folder of its own, since TCP ports can be reached by every user.

    A socket's path may have 107 characters (unix(7)); where the folder for temporary files is longer, it is TCP after all.
    """
    longest = 100
    with tempfile.TemporaryDirectory(prefix="kernel-") as folder:
        if len(os.fsencode(folder)) > longest:
            yield Config()
        else:
            yield Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/k"}})


class _Manager(NotebookExecutionManager):  # type: ignore[misc]
    """papermill's bookkeeping, told the truth about cells that were lost or never ran."""

    def __init__(
        self, journal: Journal, where: dict[str, str], said: Callable[[str], None], *args: Any, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.said = said
        self.journal = journal
        self.where = where
        self.began = 0.0

    def step_start(self, cell: Any, index: int) -> None:
        """A cell begins; only code cells are steps."""
        self.cell_start(cell, index)
        self.began = time.monotonic()
        if cell.cell_type == "code":
            self.journal.write("start", **self.where, step=cell.get("id", str(index)))

    def step_end(self, cell: Any, index: int, state: str) -> None:
        """A cell ended: ``done``, ``failed`` (it raised) or ``lost`` (kernel death, timeout, interruption)."""
        if state == "lost":
            cell.metadata.papermill["exception"] = True
            cell.metadata.papermill["status"] = self.FAILED
            self.nb.metadata.papermill["exception"] = True
            self.save()
        else:
            self.cell_complete(cell, cell_index=index)
        if cell.cell_type == "code":
            self.journal.write(
                "end",
                **self.where,
                step=cell.get("id", str(index)),
                state=state,
                duration_s=round(time.monotonic() - self.began, 3),
            )

    def notebook_complete(self, **kwargs: Any) -> None:
        """As papermill's, but what never ran stays pending."""
        pending = [cell for cell in self.nb.cells if cell.metadata.papermill["status"] == self.PENDING]
        super().notebook_complete(**kwargs)
        for cell in pending:
            cell.metadata.papermill["status"] = self.PENDING
        self.save()


class _Client(PapermillNotebookClient):  # type: ignore[misc]
    """papermill's client with a cell loop that tells a failed cell from a lost one."""

    def start_new_kernel_client(self, **kwargs: Any) -> Any:
        """As nbclient's, but a kernel that dies before it first answers is a dead kernel, not a RuntimeError of any kind."""
        try:
            return super().start_new_kernel_client(**kwargs)
        except RuntimeError as why:
            raise DeadKernelError(str(why)) from why

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        """As papermill's; what an action says while it works is passed on at once, since it may work for minutes."""
        if msg["msg_type"] == "stream" and "action" in cell.metadata.get("tags", ()):
            for line in msg["content"]["text"].splitlines():
                self.nb_man.said(line)
        return super().process_message(msg, cell, cell_index)

    def papermill_execute_cells(self) -> None:
        """Execute the cells in order; stop at the first that raises."""
        for index, cell in enumerate(self.nb.cells):
            self.nb_man.step_start(cell, index)
            try:
                self.execute_cell(cell, index)
            except CellExecutionError as why:
                self.nb_man.cell_exception(cell, cell_index=index, exception=why)
                self.nb_man.step_end(cell, index, "failed")
                return
            except BaseException:
                self.nb_man.step_end(cell, index, "lost")
                raise
            self.nb_man.step_end(cell, index, "done")


class JournalEngine(NBClientEngine):  # type: ignore[misc]
    """papermill's nbclient engine with a journal.

    Engine arguments: ``journal`` (a Journal, or the path of its file), ``where`` (fields for every event), ``said``
    (called with each line that an action cell prints) and ``execution_timeout`` (seconds a cell may run). Without a journal it writes events.jsonl beside the output.
    """

    @classmethod
    def execute_notebook(  # noqa: D102 - papermill's contract
        cls,
        nb: Any,
        kernel_name: str,
        output_path: str | None = None,
        progress_bar: bool | dict[str, Any] = True,
        log_output: bool = False,
        autosave_cell_every: int = 30,
        journal: Journal | str | None = None,
        where: dict[str, str] | None = None,
        said: Callable[[str], None] = lambda _: None,
        **kwargs: Any,
    ) -> Any:
        if not isinstance(journal, Journal):
            beside = Path(output_path).with_name("events.jsonl") if output_path else Path("events.jsonl")
            journal = Journal(Path(journal) if journal else beside)
        manager = _Manager(
            journal,
            where or {},
            said,
            nb,
            output_path=output_path,
            progress_bar=progress_bar,
            log_output=log_output,
            autosave_cell_every=autosave_cell_every,
        )
        manager.notebook_start()
        try:
            cls.execute_managed_notebook(manager, kernel_name, log_output=log_output, **kwargs)
        finally:
            manager.cleanup_pbar()
            manager.notebook_complete()
        return manager.nb

    @classmethod
    def execute_managed_notebook(  # noqa: D102 - papermill's contract
        cls,
        nb_man: Any,
        kernel_name: str,
        log_output: bool = False,
        stdout_file: Any = None,
        stderr_file: Any = None,
        start_timeout: int = 60,
        execution_timeout: int | None = None,
        **_: Any,
    ) -> Any:
        # What a kernel says outside its cells (at shutdown, say) belongs into a file, not between a reader's lines.
        with sockets() as config, nb_man.journal.path.with_name("kernels.log").open("ab") as log:
            client = _Client(
                nb_man,
                config=config,
                timeout=execution_timeout,
                startup_timeout=start_timeout,
                kernel_name=kernel_name,
                log_output=log_output,
                stdout_file=stdout_file,
                stderr_file=stderr_file,
            )
            return client.execute(stdout=log, stderr=log)
