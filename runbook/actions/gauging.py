"""Watch a server while something else goes on: ``/metrics`` and processes, read by a thread a few times a second.

    with Gauge(endpoint, server=job.pid, client=os.getpid()) as gauge:
        ...                               # load it
    limits.judge(launch, gauge.rows)

Memory is bounded: the newest readings lie in a ring. Each one is handed to ``seen`` as it comes, for a chart or a file.
``WatchLimits`` does nothing but watch, and names what binds the server meanwhile.
"""

import dataclasses
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from runbook import launch, measured
from runbook.actions import Context, Say
from runbook.actions.jobs import Job, Jobs
from runbook.actions.launching import SERVED
from runbook.actions.server import NAME, api_key
from runbook.checks import limits as machine
from runbook.endpoint import Endpoint
from runbook.errors import ActionFailed
from runbook.probes import ends
from runbook.probes.live import LiveProbe
from runbook.serving import limits, reading
from runbook.serving.reading import Reading
from runbook.workspace import Workspace

EVERY_S = 0.5
KEPT = 1200  # ten minutes at two a second
JOIN_S = 15.0
MIB = 2**20
FLAGS = ("--max-num-seqs", "--max-num-batched-tokens")


class Gauge:
    """A thread that reads until it is stopped; a page that does not come is a reading with ``missed`` set.

    ``server`` and ``client`` are pids whose trees of processes are watched, None where they are not on this machine.
    ``seen`` is called in the thread with each reading; what it raises ends the watching, and ``stop`` raises it again.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        server: int | None = None,
        client: int | None = None,
        every_s: float = EVERY_S,
        keep: int = KEPT,
        seen: Callable[[Reading], None] | None = None,
    ) -> None:
        self.rows: deque[Reading] = deque(maxlen=keep)
        self.failed: BaseException | None = None
        self._endpoint = endpoint
        self._server = Burn(server)
        self._client = Burn(client)
        self._every_s = every_s
        self._seen = seen
        self.ended = threading.Event()
        """Set when the watching is over, however that came: wait on it rather than sleep."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gauge", daemon=True)

    def start(self) -> "Gauge":
        """Begin to read."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Read once more, and end; may be called again."""
        self._stop.set()
        self._thread.join(JOIN_S)
        if self.failed is not None:
            failed, self.failed = self.failed, None
            raise failed

    def __enter__(self) -> "Gauge":  # noqa: PYI034 - Self came with Python 3.11
        """Begin to read."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        self.stop()

    def _run(self) -> None:
        try:
            while True:
                last = self._stop.is_set()
                self._once()
                if last:
                    return
                self._stop.wait(self._every_s)
        except BaseException as why:  # noqa: BLE001 - stop raises it where somebody hears it
            self.failed = why
        finally:
            self.ended.set()

    def _once(self) -> None:
        before = next((row for row in reversed(self.rows) if not row.missed), None)
        try:
            page = self._endpoint.metrics()
            row = reading.of(page, time.monotonic(), before)
        except ActionFailed as why:
            row = Reading(time.monotonic(), missed=why.seen)
        server, client = self._server.since(row.at), self._client.since(row.at)
        row = dataclasses.replace(
            row,
            server_cpu=server.cores,
            front_cpu=server.root_cores,
            server_rss_mib=server.rss_mib,
            client_cpu=client.cores,
        )
        self.rows.append(row)
        if self._seen is not None:
            self._seen(row)


@dataclasses.dataclass(frozen=True)
class Burnt:
    """What a tree of processes burnt since the look before, in cores' worth; ``root_cores`` is its first process alone."""

    cores: float | None = None
    root_cores: float | None = None
    rss_mib: float | None = None


class Burn:
    """CPU time and memory of a process and all it started, from look to look. ``root`` may be None or gone."""

    def __init__(self, root: int | None) -> None:
        self._root = root
        self._at: float | None = None
        self._cpu: dict[tuple[int, float], float] = {}

    def since(self, now: float) -> Burnt:
        """What was burnt since the last call; cores are None at the first."""
        if self._root is None:
            return Burnt()
        cpu: dict[tuple[int, float], float] = {}
        resident, root = 0, None
        try:
            first = psutil.Process(self._root)
            tree = [first, *first.children(recursive=True)]
        except psutil.Error:
            return Burnt()
        for process in tree:
            try:
                with process.oneshot():
                    times, name = process.cpu_times(), (process.pid, process.create_time())
                    resident += process.memory_info().rss
            except psutil.Error:  # children come and go
                continue
            cpu[name] = times.user + times.system
            if process.pid == self._root:
                root = name
        before, then = self._cpu, self._at
        self._cpu, self._at = cpu, now
        if then is None or now <= then:
            return Burnt(rss_mib=resident / MIB)
        # One that was not there before has burnt all of its time since.
        spent = {name: used - before.get(name, 0.0) for name, used in cpu.items()}
        return Burnt(
            sum(spent.values()) / (now - then),
            spent[root] / (now - then) if root in spent else None,
            resident / MIB,
        )


class WatchLimits:
    """Watch a server for some seconds and name the limit that binds it under the load it has; nothing is sent but GETs.

    Without ``endpoint`` it is this workspace's own server, and the limit is written down for the checks. ``facts`` holds it
    afterwards.
    """

    def __init__(self, ctx: Context, endpoint: Endpoint | None = None, seconds: float = 20.0) -> None:
        self.ctx = ctx
        self.seconds = seconds
        self.facts: dict[str, Any] = {}
        self._endpoint = endpoint

    def plan(self) -> list[str]:
        """What is read."""
        return [
            f"read      /metrics for {self.seconds:.0f} s, {1 / EVERY_S:.0f} times a second; nothing is sent"
        ]

    def apply(self, say: Say) -> None:
        """Watch it.

        Raises:
            ActionFailed: there is no server, or /metrics gave nothing.
        """
        job = None if self._endpoint else Jobs(self.ctx.work.jobs).get(NAME)
        server = self._endpoint or own(self.ctx.work, job)
        start = launched(self.ctx, server, job)
        say(f"watching for {self.seconds:.0f} s")
        with Gauge(server, server=job.pid if job else None) as gauge:
            gauge.ended.wait(self.seconds)
        found = limits.judge(start, gauge.rows)
        self.facts = limits.as_facts(found)
        if job is not None:
            measured.write(self.ctx.work, "limits", job.marker, self.facts)
        say(f"{found.name}: {found.says}")


def own(work: Workspace, job: Job | None) -> Endpoint:
    """This workspace's server as a client sees it.

    Raises:
        ActionFailed: none runs.
    """
    if job is None:
        raise ActionFailed("no server of this workspace runs", "one that runs", "runbook serve")
    return Endpoint(f"http://{launch.HOST}:{job.port}", SERVED, api_key(work.jobs))


def launched(ctx: Context, server: Endpoint, job: Job | None) -> limits.Launch:
    """How a server was started, by its command and log where it is ours, and by what it exports.

    Raises:
        ActionFailed: /metrics gave nothing.
    """
    flags = {flag: value for flag in FLAGS if job and (value := launch_value(job.argv, flag))}
    log = ends.text(Path(job.log)) if job else ""
    cores = None
    if job is not None and ctx.stack.device == "cpu":
        cores = machine.cores(LiveProbe(ctx.work)).usable
    return limits.launch(flags, server.metrics(), log, max_model_len(server), cores)


def launch_value(argv: Sequence[str], flag: str) -> str:
    """The last value of a flag in a command, as ``--flag value`` or ``--flag=value``; "" where it is not there."""
    found = ""
    for number, word in enumerate(argv):
        if word == flag and number + 1 < len(argv):
            found = argv[number + 1]
        elif word.startswith(f"{flag}="):
            found = word.partition("=")[2]
    return found


def max_model_len(server: Endpoint) -> int | None:
    """The longest sequence that the server says it takes; None where it does not say."""
    _, body = server.get("/v1/models")
    try:
        rows = {str(one["id"]): one.get("max_model_len") for one in json.loads(body)["data"]}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    told = rows.get(server.model)
    return told if isinstance(told, int) and told > 0 else None
