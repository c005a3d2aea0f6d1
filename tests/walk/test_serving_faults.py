"""What goes wrong with a server that serves: each fault ends with the right finding in its time, and nothing is left.

One server of the pinned release is shared as long as it lives; a test that needs one takes what runs or starts it.
"""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import memory_group
import psutil
import pytest
import walking
from walking import OLD

from runbook import engine, pins
from runbook.actions import Context, looking
from runbook.actions.jobs import Job, Jobs, Owner
from runbook.actions.server import StartServer
from runbook.checks import ALL, BY_ID
from runbook.endpoint import Endpoint, Reply
from runbook.model import Finding, Verdict
from runbook.probes.live import LiveProbe
from runbook.serving import faults, state
from runbook.workspace import Workspace

CLIENTS, TOKENS = 4, 600
FOUND_S = 20.0
"""In how long a fault is to be named: an API server whose engine died takes some seconds to end."""

MEMORY_MIB = 1200  # the whole server needs some 2800


@dataclass(frozen=True)
class Served:
    """The server that runs, and how to talk to it."""

    work: Workspace
    job: Job
    api: Endpoint

    @property
    def engine(self) -> psutil.Process:
        return next(psutil.Process(pid) for pid, name in Jobs(self.work.jobs).processes() if "Engine" in name)

    def state(self) -> state.State:
        return state.judge(looking.look(self.work))

    def finding(self, check_id: str) -> Finding:
        host = LiveProbe(self.work, OLD, self.work.target_python(OLD))
        (found,) = engine.run([BY_ID[check_id]], ALL, host)
        return found

    def long_answer(self) -> Reply:
        """Not streamed: reading hundreds of chunks a second would keep this process from looking at the server."""
        return self.api.complete("hello", TOKENS, stream=False, extra_body={"ignore_eos": True})

    def running(self) -> float:
        seen = looking.counters(self.api)
        return -1.0 if seen is None else seen.running or 0.0


def context(home: Path) -> Context:
    work, stack = Workspace(home), pins.stack(OLD)
    return Context(
        work, stack, work.target_python(OLD), ours=True, model=stack.model, owner=Owner.of(), deadline_s=300
    )


@pytest.fixture(scope="module", autouse=True)
def _nothing_left(workspace: Path) -> Iterator[None]:
    yield
    Jobs(workspace / "jobs").stop_all()
    assert walking.gone(workspace, 5.0) < 5.0


@pytest.fixture
def served(workspace: Path, built: Path) -> Served:
    assert built == workspace
    StartServer(context(workspace)).apply(walking.tell)
    work = Workspace(workspace)
    job = Jobs(work.jobs).get("server")
    assert job is not None
    key = (work.jobs / "server.key").read_text(encoding="utf-8")
    return Served(work, job, Endpoint(f"http://127.0.0.1:{job.port}", "served", key))


@contextlib.contextmanager
def under_load(server: Served) -> Iterator[Callable[[], list[Reply]]]:
    """Clients that ask for one long answer after another; call what is given to have the last reply of each."""
    enough = threading.Event()

    def client() -> Reply:
        reply = server.long_answer()
        while not reply.error and not enough.is_set():
            reply = server.long_answer()
        return reply

    with ThreadPoolExecutor(CLIENTS) as pool:
        asked = [pool.submit(client) for _ in range(CLIENTS)]
        seen: list[float] = []

        def all_run() -> bool:
            ended = [one.result() for one in asked if one.done()]
            assert not ended, f"over before all ran together, {seen} of them at a time: {ended}"
            seen.append(server.running())
            return seen[-1] == CLIENTS

        def replies() -> list[Reply]:
            enough.set()
            return [one.result(60) for one in asked]

        try:
            walking.until(all_run, 30, "all requests run")
            yield replies
        finally:
            enough.set()


def runbook(home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "runbook", *words]
    env = walking.environment(home)
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=120)


def named(server: Served, reply: Reply, api: Endpoint | None = None) -> faults.Fault:
    found = looking.fault(reply, api or server.api, server.work)
    assert found is not None, reply
    walking.tell(f"{found.name}: {found.seen[:150]}")
    return found


def test_what_a_client_does_wrong_is_named_and_the_server_goes_on(served: Served) -> None:
    url, key = served.api.url, served.api.key
    wrong_name, no_key, other_key = (
        Endpoint(url, "qwen", key),
        Endpoint(url, "served"),
        Endpoint(url, "served", "x"),
    )
    asked: list[tuple[Endpoint, str, int, str]] = [
        (wrong_name, "hi", 4, faults.WRONG_MODEL),
        (no_key, "hi", 4, faults.NO_KEY),
        (other_key, "hi", 4, faults.WRONG_KEY),
        (Endpoint(url, "served", key), "hi " * 4000, 4, faults.CONTEXT),
        (Endpoint(url, "served", key), "hi", 99_999, faults.CONTEXT),
        (Endpoint(f"{url}/v1", "served", key), "hi", 4, faults.NOT_SERVED),
    ]
    for api, prompt, tokens, name in asked:
        with contextlib.closing(api.client):
            found = named(served, api.complete(prompt, tokens), api)
        assert found.name == name
        if name == faults.WRONG_MODEL:
            assert found.expected == "one of: served"
        if name == faults.CONTEXT:
            assert "2048 tokens" in found.expected
    with socket.socket() as closed:  # bound and not listening: refused for certain
        closed.bind(("127.0.0.1", 0))
        nobody = Endpoint(f"http://127.0.0.1:{closed.getsockname()[1]}", "served", key)
        refused = looking.fault(nobody.complete("hi", 4), nobody)
    assert refused is not None
    assert refused.name == faults.REFUSED
    assert Endpoint(url, "served", key).complete("hi", 4).error == ""
    assert served.state().name == state.IDLE
    assert served.finding("SERVE-019").verdict is Verdict.OK


def test_a_port_that_is_taken_is_told_before_anything_is_imported(served: Served, tmp_path: Path) -> None:
    for name in ("targets", "models"):
        (tmp_path / name).symlink_to(served.work.root / name)
    began = time.monotonic()
    ran = runbook(tmp_path, "serve", "--stack", OLD, "--port", str(served.job.port), "--detach")
    seconds = time.monotonic() - began
    walking.tell(f"port taken: {seconds:.1f} s: {ran.stderr.strip()[:150]}")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert f"port {served.job.port} is taken by " in ran.stderr
    assert Jobs(tmp_path / "jobs").processes() == []
    assert seconds < FOUND_S


def test_a_client_that_is_killed_takes_its_requests_with_it(served: Served) -> None:
    code = "import sys; from runbook.endpoint import Endpoint; Endpoint(*sys.argv[1:]).complete('hello', 1900, extra_body={'ignore_eos': True})"
    words = [sys.executable, "-c", code, served.api.url, "served", served.api.key]
    client = subprocess.Popen(words, cwd=walking.ROOT)
    try:
        walking.until(lambda: served.running() == 1, 30, "its request runs")
    finally:
        client.kill()
        client.wait(10)
    seconds = walking.until(lambda: served.running() == 0, 10, "its request is gone")
    walking.tell(f"aborted requests gone in {seconds:.1f} s")
    assert served.api.complete("hi", 4).error == ""
    assert served.state().name == state.IDLE


def test_a_server_that_is_stopped_is_stuck_and_goes_on_afterwards(served: Served) -> None:
    with under_load(served) as replies:
        assert served.state().name == state.BUSY
        for process in (served.engine, psutil.Process(served.job.pid)):
            process.suspend()
            try:
                began = time.monotonic()
                found, finding = served.state(), served.finding("SERVE-019")
                seconds = time.monotonic() - began
            finally:
                process.resume()
            walking.tell(f"stuck, named twice in {seconds:.1f} s: {found.why}")
            assert found.name == state.STUCK
            assert f"kill -CONT {process.pid}" in found.do
            assert finding.verdict is Verdict.FAIL
            assert seconds < FOUND_S
        assert {one.error for one in replies()} == {""}


def test_a_client_of_a_stopped_server_is_told_that_it_is_stuck(served: Served) -> None:
    served.engine.suspend()
    try:
        hurried = Endpoint(served.api.url, "served", served.api.key)
        hurried.client.timeout = 2.0
        reply = hurried.complete("hi", 4)
        found = named(served, reply)
    finally:
        served.engine.resume()
    assert found.name == faults.STUCK
    assert "(state T)" in found.seen
    walking.until(lambda: served.running() == 0, 20, "what was asked is done or given up")


def test_a_log_that_cannot_be_written_stops_no_answer(served: Served) -> None:
    log = Path(served.job.log)
    limits = {
        process: process.rlimit(psutil.RLIMIT_FSIZE)
        for process in (psutil.Process(served.job.pid), served.engine)
    }
    try:
        for process, (_, hard) in limits.items():
            process.rlimit(psutil.RLIMIT_FSIZE, (log.stat().st_size, hard))
        for _ in range(3):
            assert served.api.complete("hi", 4).error == ""
        size = log.stat().st_size
        assert served.api.complete("hi", 4).error == ""
        assert log.stat().st_size == size  # no line could be written, so it was a limit indeed
        finding = served.finding("SERVE-020")
    finally:
        for process, before in limits.items():
            process.rlimit(psutil.RLIMIT_FSIZE, before)
    assert finding.verdict is Verdict.WARN
    assert "ulimit -f" in finding.reason
    assert served.api.complete("hi", 4).error == ""
    assert served.finding("SERVE-020").verdict is not Verdict.FAIL


def test_stop_ends_a_stopped_server(served: Served) -> None:
    psutil.Process(served.job.pid).suspend()
    served.engine.suspend()
    began = time.monotonic()
    ran = runbook(served.work.root, "stop")
    walking.tell(
        f"a stopped server: {ran.stdout.strip()} ({time.monotonic() - began:.1f} s with the command)"
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("stopped: server (")
    assert ran.stdout.endswith("; 0 left\n")
    assert Jobs(served.work.jobs).processes() == []
    assert served.state().name == state.STOPPED
    assert runbook(served.work.root, "status").returncode == 3


@pytest.mark.parametrize("victim", ["the API server", "the engine"])
def test_a_server_killed_under_load_is_told_from_every_side(served: Served, victim: str) -> None:
    with under_load(served) as replies:
        (served.engine if victim == "the engine" else psutil.Process(served.job.pid)).kill()
        began = time.monotonic()
        every = replies()
        told = {named(served, one).name for one in every}
        named_s = time.monotonic() - began
    assert told == {faults.DIED}
    assert Jobs(served.work.jobs).join(served.job, FOUND_S)
    walking.tell(f"{victim} killed: named in {named_s:.1f} s, all gone in {time.monotonic() - began:.1f} s")
    found, finding = served.state(), served.finding("SERVE-019")
    assert (found.name, finding.verdict) == (state.DEAD, Verdict.FAIL)
    end = Jobs(served.work.jobs).ended("server")
    assert end is not None
    if victim == "the engine":
        assert (end.exit_code, end.signal) == (0, None)  # so no restart "on failure" would help
        assert "EngineCore died unexpectedly" in found.why
    else:
        assert end.signal == signal.SIGKILL
        assert "SIGKILL" in found.why
        assert "killed from outside" in found.why
    ran = runbook(served.work.root, "status", "--format", "json")
    assert ran.returncode == 1
    row = json.loads(ran.stdout)["jobs"][0]
    assert (row["name"], row["state"], row["alive"]) == ("server", state.DEAD, False)
    assert walking.gone(served.work.root, 5.0) < 5.0


STARTS = """
import sys
from pathlib import Path
from runbook import pins
from runbook.actions import Context
from runbook.actions.jobs import Owner
from runbook.actions.server import StartServer
from runbook.errors import JobDied
from runbook.workspace import Workspace
work, stack = Workspace(Path(sys.argv[1])), pins.stack(sys.argv[2])
ctx = Context(work, stack, work.target_python(stack.name), True, stack.model, Owner.of(), 300)
try:
    StartServer(ctx).apply(lambda line: None)
except JobDied as why:
    print(why.seen)
"""


def test_a_server_without_memory_is_told_which_limit_it_met(workspace: Path, built: Path) -> None:
    assert built == workspace
    Jobs(workspace / "jobs").stop_all()
    words = [sys.executable, "-c", STARTS, str(workspace), OLD]
    narrow = ["sh", "-c", f'ulimit -v {MEMORY_MIB << 10}; exec "$@"', "sh"]
    env, began = walking.environment(workspace), time.monotonic()
    with memory_group.limited(MEMORY_MIB) as group:
        ran = subprocess.run(
            [*(group or narrow), *words],
            env=env, cwd=walking.ROOT, capture_output=True, text=True, check=False, timeout=180,
        )  # fmt: skip
        seen = looking.look(Workspace(workspace))
    walking.tell(f"{time.monotonic() - began:.1f} s: {ran.stdout.strip()[:200]}")
    judged = state.judge(seen)
    walking.tell(judged.why)
    assert ran.returncode == 0, ran.stderr
    assert judged.name == state.DEAD
    assert "out of memory" in judged.why
    if group is not None:
        assert "of its processes for lack of memory" in ran.stdout
        assert f"limit of its control group {MEMORY_MIB} MiB" in judged.why
    assert walking.gone(workspace, 5.0) < 5.0
