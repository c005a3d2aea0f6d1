"""A live view of this workspace's server in a notebook: the tail of its log and small charts, refreshed while cells run.

Optional by construction: it shows the readings that the text and the checks are made of, no cell waits for it, and no
result exists only here. It is asked for with ``ui = "widgets"``.
"""

import html
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import ipywidgets
from IPython.display import display

from runbook.actions.gauging import Gauge
from runbook.actions.jobs import Job, Jobs, log_tail
from runbook.actions.launching import SERVED
from runbook.actions.server import NAME, api_key
from runbook.endpoint import Endpoint
from runbook.errors import RunbookError
from runbook.launch import HOST
from runbook.parse import vllm_log
from runbook.serving import live_chart
from runbook.serving.reading import Reading
from runbook.workspace import Workspace

EVERY_S = 1.0
LINES = 12
WIDTH = 160
JOIN_S = 10.0


class LiveView:
    """What the server is doing, until ``close``. A thread refreshes it; it ends with the kernel at the latest."""

    def __init__(self, work: Workspace) -> None:
        self.jobs = Jobs(work.jobs)
        self.head = ipywidgets.HTML()
        self.charts = ipywidgets.HTML()
        self.log = ipywidgets.HTML()
        self.box = ipywidgets.VBox([self.head, self.charts, self.log])
        self.box.add_class("runbook-live")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="live view", daemon=True)

    def show(self) -> None:
        """Display it and begin to refresh it."""
        self.refresh(None, ())
        display(self.box)  # type: ignore[no-untyped-call]
        self._thread.start()

    def close(self) -> None:
        """Refresh it for the last time and leave it as it is; may be called again."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(JOIN_S)

    def refresh(self, job: Job | None, rows: Sequence[Reading]) -> None:
        """Show that server and those readings."""
        if job is None:
            self.head.value = "<b>no server runs</b>"
            return  # charts and log of the last one stay
        age = time.time() - job.started
        self.head.value = f"<b>server</b> process {job.pid}, port {job.port}, up {age:.0f} s"
        self.charts.value = live_chart.svg(rows)
        lines = [vllm_log.plain(line)[:WIDTH] for line in log_tail(Path(job.log), LINES)]
        self.log.value = (
            "<pre style='font-size:11px;line-height:1.25;max-height:17em;overflow:auto'>"
            f"{html.escape(chr(10).join(lines))}</pre>"
        )

    def _run(self) -> None:
        gauge: Gauge | None = None
        watched = ""
        try:
            while True:
                last = self._stop.is_set()
                job = self.jobs.get(NAME)
                if gauge is not None and (job is None or job.marker != watched):
                    gauge.stop()
                    gauge = None
                if gauge is None and job is not None:
                    endpoint = Endpoint(f"http://{HOST}:{job.port}", SERVED, api_key(self.jobs.folder))
                    gauge = Gauge(endpoint, server=job.pid, every_s=EVERY_S).start()
                    watched = job.marker
                self.refresh(job, tuple(gauge.rows) if gauge is not None else ())
                if last:
                    return
                self._stop.wait(EVERY_S)
        except (RunbookError, OSError) as why:
            # Said where the reader looks: what a thread raises is seen by nobody.
            self.head.value = f"<b>the view ended:</b> {html.escape(str(why))}"
        finally:
            if gauge is not None:
                gauge.stop()
