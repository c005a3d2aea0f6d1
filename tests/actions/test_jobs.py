"""Jobs with real processes: whatever dies, in whatever way, nothing of a job may stay behind."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from runbook.actions import keeper
from runbook.actions.jobs import Job, Jobs, Owner, log_tail
from runbook.errors import ActionFailed, BadParameter, DeadlineExceeded, JobDied

ROOT = Path(__file__).parents[2]
SECRET = "sk-a-secret-that-must-not-be-written"  # noqa: S105 - made up

# A process that starts one in a new session, which starts another in yet another session. Each says "up" in the log.
TREE = """
import os, signal, sys
mode = sys.argv[1]
if "stubborn" in mode:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for generation in range(2):
    if os.fork() == 0:
        os.setsid()
    else:
        break
os.write(1, b"up\\n")
while True:
    signal.pause()
"""

# A process that starts a job; its owner is itself unless another one is named.
STARTER = """
import os, signal, sys
from pathlib import Path
from runbook.actions.jobs import Jobs, Owner
from runbook.errors import ActionFailed
folder, tree, owner = sys.argv[1:]
print("set", flush=True)
sys.stdin.readline()
try:
    job = Jobs(Path(folder)).start(
        "server", [sys.executable, "-S", tree, "tree"], env=dict(os.environ), cwd=Path("/"), grace_s=2,
        owner=Owner.parse(owner) if owner else Owner.of())
except ActionFailed as error:
    print("refused", error.seen, flush=True)
else:
    print("started", job.pid, flush=True)
signal.pause()
"""


def until(true: Callable[[], Any], seconds: float = 10) -> float:
    """Wait for a condition and return how long it took, in seconds."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds, "the condition did not come true in time"
        time.sleep(0.01)
    return time.monotonic() - began


def left(folder: Path, *, keepers: bool = True) -> list[int]:
    """Processes that carry the folder's mark, and keepers and starters of it, which have it in their command line."""
    found = []
    for process in psutil.process_iter(["environ", "cmdline"]):
        marked = (process.info["environ"] or {}).get("RUNBOOK_JOBS") == str(folder)
        keeping = keepers and str(folder) in (process.info["cmdline"] or [])
        if marked or keeping:
            found.append(process.pid)
    return found


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    jobs = Jobs(tmp_path / "jobs")
    yield jobs
    jobs.stop_all()
    until(lambda: not left(jobs.folder))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "tree.py"
    path.write_text(TREE)
    return path


def up(job: Job) -> bool:
    return log_tail(job.log).count("up") == 3


def start(jobs: Jobs, tree: Path, mode: str = "tree", **more: Any) -> Job:
    """Start the three generations and wait until all are up."""
    argv = [sys.executable, "-S", str(tree), mode]
    options: dict[str, Any] = {"env": dict(os.environ), "cwd": tree.parent, "owner": Owner.of(), "grace_s": 5}
    job = jobs.start("server", argv, **options | more)
    jobs.wait(job, lambda: up(job), deadline_s=10, every_s=0.02)
    assert len(left(jobs.folder, keepers=False)) == 3
    return job


def python(jobs: Jobs, code: str, name: str = "build", **more: Any) -> Job:
    options: dict[str, Any] = {"env": dict(os.environ), "cwd": Path("/"), "owner": Owner.of(), "grace_s": 5}
    return jobs.start(name, [sys.executable, "-S", "-c", code], **options | more)


SLEEP = "import signal; signal.pause()"


class Starter:
    """A process of its own that starts a job when told to ``go``."""

    def __init__(self, jobs: Jobs, tree: Path, owner: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", STARTER, str(jobs.folder), str(tree), owner],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_a_job_starts_is_found_and_stops(jobs: Jobs, tree: Path) -> None:
    job = start(jobs, tree, port=8123, fingerprint={"model": "tiny"})
    assert jobs.get("server") == job
    assert Jobs(jobs.folder).running() == [job]  # as another process sees it
    assert jobs.ended("server") is None
    assert (job.port, job.fingerprint, job.pgid, job.owner) == (
        8123,
        {"model": "tiny"},
        job.pid,
        Owner.of().text(),
    )
    assert os.getsid(job.pid) == job.pid != os.getsid(job.keeper_pid) == job.keeper_pid
    assert psutil.Process(job.pid).environ()["SPT_NOENV"] == "1"
    assert jobs.stop("server") is True
    assert left(jobs.folder) == []
    assert jobs.get("server") is None
    assert jobs.running() == []
    assert not (jobs.folder / "server.json").exists()
    ended = jobs.ended("server")
    assert ended is not None
    assert (ended.reason, ended.signal, ended.exit_code, ended.marker) == ("stopped", 15, None, job.marker)
    assert ended.text().startswith("stopped (SIGTERM) after ")


def test_stopping_twice_is_harmless(jobs: Jobs, tree: Path) -> None:
    assert jobs.stop("server") is False
    start(jobs, tree)
    assert jobs.stop("server") is True
    assert jobs.stop("server") is False
    assert jobs.stop_all() == []


def test_two_stops_at_once_leave_the_grace_period_alone(jobs: Jobs) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(15, lambda *_: (time.sleep(0.5), sys.exit(7)))\nprint('up', flush=True)\nsignal.pause()"
    )
    job = python(jobs, code)
    jobs.wait(job, lambda: "up" in log_tail(job.log), deadline_s=10, every_s=0.02)
    threads = [threading.Thread(target=jobs.stop, args=("build",)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    ended = jobs.ended("build")
    assert ended is not None
    assert (ended.reason, ended.exit_code) == ("stopped", 7)


def test_a_second_start_is_refused(jobs: Jobs, tree: Path) -> None:
    job = start(jobs, tree)
    with pytest.raises(ActionFailed, match=rf"runs already, as process {job.pid}\n.*\n.*runbook stop"):
        python(jobs, SLEEP, "server")
    assert jobs.get("server") == job
    jobs.stop("server")
    assert python(jobs, SLEEP, "server").marker != job.marker
    assert jobs.ended("server") is None


def test_of_two_starts_at_once_one_wins(jobs: Jobs, tree: Path) -> None:
    starters = [Starter(jobs, tree, Owner.of().text()) for _ in range(2)]
    assert [starter.line() for starter in starters] == ["set", "set"]
    for starter in starters:
        starter.go()
    lines = sorted(starter.line() for starter in starters)
    assert [line.split()[0] for line in lines] == ["refused", "started"]
    for starter in starters:
        starter.kill()
    job = jobs.get("server")  # it outlives the process that started it, because its owner is another one
    assert job is not None
    assert lines[1] == f"started {job.pid}"


@pytest.mark.parametrize(
    ("argv", "cwd", "reason"),
    [
        (["no-such-command-anywhere"], "/", "No such file or directory: 'no-such-command-anywhere'"),
        (["/"], "/", "Permission denied"),
        ([sys.executable], "/no/such/folder", "No such file or directory: '/no/such/folder'"),
    ],
)
def test_a_command_that_cannot_be_executed(jobs: Jobs, argv: list[str], cwd: str, reason: str) -> None:
    with pytest.raises(ActionFailed, match=reason):
        jobs.start("build", argv, env={"VLLM_API_KEY": SECRET}, cwd=Path(cwd), owner=Owner.of())
    assert jobs.get("build") is None
    assert jobs.ended("build") is None
    until(lambda: not left(jobs.folder))
    python(jobs, SLEEP)  # the name is free again


def test_names_commands_and_owners_that_do_not_fit(jobs: Jobs) -> None:
    with pytest.raises(BadParameter):
        python(jobs, SLEEP, "../escape")
    with pytest.raises(BadParameter):
        jobs.start("build", [], env={}, cwd=Path("/"), owner=Owner.of())
    with pytest.raises(BadParameter):
        jobs.start("build", ["x\udc80"], env={}, cwd=Path("/"), owner=Owner.of())
    with pytest.raises(BadParameter):
        Owner.parse("12")
    with pytest.raises(ActionFailed):
        Owner.of(2**22 + 1)  # above the largest pid there can be
    with pytest.raises(ActionFailed, match="is gone"):
        python(jobs, SLEEP, owner=Owner(os.getpid(), 1))


def test_an_owner_is_one_process_and_not_a_zombie() -> None:
    me = Owner.of()
    assert me.alive()
    assert Owner.parse(me.text()) == me
    assert not Owner(me.pid, me.started + 1).alive()
    with subprocess.Popen([sys.executable, "-S", "-c", SLEEP]) as process:
        child = Owner.of(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not child.alive()


def test_waiting_until_ready(jobs: Jobs) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = f"import socket, time; time.sleep(0.3); s = socket.create_server(('127.0.0.1', {port})); time.sleep(60)"
    job = python(jobs, code, port=port)

    def answers() -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    assert 0.2 < jobs.wait(job, answers, deadline_s=10, every_s=0.05) < 5


def test_a_death_is_noticed_at_once_and_explained(jobs: Jobs) -> None:
    code = "import sys, time; time.sleep(0.3); print('ValueError: no room', flush=True); print(); sys.exit(3)"
    job = python(jobs, code)
    began = time.monotonic()
    with pytest.raises(JobDied) as caught:
        jobs.wait(job, lambda: False, deadline_s=60, every_s=30)
    assert time.monotonic() - began < 5
    assert caught.value.root == "ValueError: no room"
    assert caught.value.log == job.log == str(jobs.folder / "build.log")
    assert "exited (exit code 3) after" in caught.value.seen
    ended = jobs.ended("build")
    assert ended is not None
    assert (ended.reason, ended.exit_code, ended.signal) == ("exited", 3, None)


def test_the_root_line_is_chosen_by_the_caller_from_this_run_only(jobs: Jobs) -> None:
    dead = python(jobs, "print('OutOfMemory in the run before')")
    until(lambda: jobs.ended("build"))
    with pytest.raises(JobDied):
        jobs.wait(dead, lambda: True, deadline_s=10)  # an answer of somebody else's server does not count
    job = python(jobs, "print('RuntimeError: the cause'); print('noise')")
    seen: list[str] = []

    def root(text: str) -> str | None:
        seen.append(text)
        return next((line for line in text.splitlines() if "Error" in line), None)

    with pytest.raises(JobDied) as caught:
        jobs.wait(job, lambda: False, deadline_s=10, root_line=root)
    assert caught.value.root == "RuntimeError: the cause"
    assert seen == ["RuntimeError: the cause\nnoise"]
    assert log_tail(jobs.folder / "build.previous.log") == ["OutOfMemory in the run before"]


def test_a_deadline_stops_nothing(jobs: Jobs) -> None:
    job = python(jobs, "import time; print('loading weights', flush=True); time.sleep(60)")
    until(lambda: log_tail(job.log))
    began = time.monotonic()
    with pytest.raises(DeadlineExceeded, match="loading weights"):
        jobs.wait(job, lambda: False, deadline_s=0.3, every_s=0.1)
    assert 0.3 <= time.monotonic() - began < 3
    assert jobs.get("build") == job


def test_the_owner_is_killed(jobs: Jobs, tree: Path) -> None:
    starter = Starter(jobs, tree)
    starter.go()
    assert (starter.line(), starter.line().split()[0]) == ("set", "started")
    job = jobs.get("server")
    assert job is not None
    until(lambda: up(job))
    starter.kill()
    seconds = until(lambda: not left(jobs.folder), 5)
    print(f"{seconds:.3f} s from the death of the owner to the last process gone")  # noqa: T201 - shown with -rP
    ended = jobs.ended("server")
    assert ended is not None
    assert (ended.reason, ended.signal) == ("owner gone", 15)


def test_a_start_nobody_waits_for_runs_nothing(jobs: Jobs, tree: Path) -> None:
    jobs.folder.mkdir()
    lock = os.open(jobs.folder / "server.lock", os.O_RDWR | os.O_CREAT)
    spec: keeper.Spec = {
        "name": "server",
        "marker": "server.0",
        "folder": str(jobs.folder),
        "argv": [sys.executable, "-S", str(tree), "tree"],
        "env": {},
        "cwd": "/",
        "log": str(jobs.folder / "server.log"),
        "owner": Owner.of().text(),  # alive all the time
        "port": None,
        "fingerprint": {},
        "grace_s": 5,
        "lock": lock,
        "scratch": None,
        "oom": "",
    }
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-I", "-S", keeper.__file__, "server", str(jobs.folder)]
    subprocess.run(command, input=json.dumps(spec).encode(), stdout=writer, pass_fds=(lock,), check=True)
    os.close(lock)
    os.close(writer)
    until(lambda: jobs.ended("server"))
    until(lambda: not left(jobs.folder))


def test_the_keeper_idles_through_the_grace_period(jobs: Jobs, tree: Path) -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", SLEEP]) as owner:
        job = start(jobs, tree, "stubborn", owner=Owner.of(owner.pid), grace_s=0.8)
        watching = psutil.Process(job.keeper_pid)
        owner.kill()
    busy = [0.0]

    def gone() -> bool:
        try:
            times = watching.cpu_times()
        except psutil.NoSuchProcess:
            return True
        busy.append(times.user + times.system)
        return False

    assert until(gone) > 0.5
    assert max(busy) < 0.4


def test_the_keeper_is_killed(jobs: Jobs, tree: Path) -> None:
    job = start(jobs, tree)
    os.kill(job.keeper_pid, signal.SIGKILL)
    until(lambda: jobs.get("server") is None)  # the kernel kills the child
    assert len(left(jobs.folder)) == 2  # its descendants are in sessions of their own
    assert jobs.stop_all() == ["server"]
    assert left(jobs.folder) == []
    assert jobs.stop("server") is False
    assert not (jobs.folder / "server.json").exists()


def test_a_start_sweeps_what_a_killed_keeper_left(jobs: Jobs, tree: Path) -> None:
    job = start(jobs, tree)
    os.kill(job.keeper_pid, signal.SIGKILL)
    until(lambda: jobs.get("server") is None)
    old = left(jobs.folder)
    assert len(old) == 2
    new = python(jobs, SLEEP, "server")
    assert left(jobs.folder, keepers=False) == [new.pid]


def test_strays_without_a_state_file_are_found(jobs: Jobs, tree: Path) -> None:
    job = start(jobs, tree)
    os.kill(job.keeper_pid, signal.SIGKILL)
    until(lambda: jobs.get("server") is None)
    (jobs.folder / "server.json").unlink()
    assert jobs.stop_all() == ["server"]
    assert left(jobs.folder) == []


@pytest.mark.parametrize("mode", ["tree", "stubborn"])
def test_the_child_is_killed(jobs: Jobs, tree: Path, mode: str) -> None:
    job = start(jobs, tree, mode)
    os.kill(job.pid, signal.SIGKILL)
    until(lambda: not left(jobs.folder), 5)
    ended = jobs.ended("server")
    assert ended is not None
    assert (ended.reason, ended.signal) == ("exited", 9)


def test_a_stubborn_job_is_killed_after_its_grace(jobs: Jobs, tree: Path) -> None:
    start(jobs, tree, "stubborn", grace_s=0.5)
    began = time.monotonic()
    assert jobs.stop("server") is True
    assert 0.5 <= time.monotonic() - began < 4
    assert left(jobs.folder) == []
    ended = jobs.ended("server")
    assert ended is not None
    assert (ended.reason, ended.signal) == ("stopped", 9)


def test_a_stop_may_hurry_a_job_with_a_long_grace(jobs: Jobs, tree: Path) -> None:
    start(jobs, tree, "stubborn", grace_s=600)
    began = time.monotonic()
    assert jobs.stop("server", grace_s=0.2) is True
    assert time.monotonic() - began < 4
    assert left(jobs.folder) == []
    assert jobs.ended("server") is not None  # the keeper did it, it was not killed


@pytest.mark.parametrize("who", ["child", "everything", "keeper"])
def test_what_is_suspended_is_stopped_all_the_same(jobs: Jobs, tree: Path, who: str) -> None:
    job = start(jobs, tree)
    pids = {"child": [job.pid], "keeper": [job.keeper_pid], "everything": left(jobs.folder)}[who]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    assert jobs.stop("server") is True
    assert time.monotonic() - began < 4  # less than the grace: SIGTERM was acted upon
    assert left(jobs.folder) == []
    ended = jobs.ended("server")
    assert ended is not None
    assert ended.signal == 15


def test_orphans_that_end_are_reaped_while_the_job_runs(jobs: Jobs) -> None:
    code = (
        "import os, time\n"
        "for _ in range(20):\n"
        "    if os.fork() == 0:\n"
        "        if os.fork() == 0: time.sleep(0.1)\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
        "print('up', flush=True); time.sleep(60)"
    )
    job = python(jobs, code)
    jobs.wait(job, lambda: "up" in log_tail(job.log), deadline_s=10, every_s=0.02)
    until(lambda: [child.pid for child in psutil.Process(job.keeper_pid).children()] == [job.pid])


def test_without_pidfd(jobs: Jobs, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "old.py"
    old.write_text(
        f"import os, runpy; del os.pidfd_open; runpy.run_path({keeper.__file__!r}, run_name='__main__')"
    )
    monkeypatch.delattr(os, "pidfd_open")
    monkeypatch.setattr(keeper, "__file__", str(old))
    with subprocess.Popen([sys.executable, "-S", "-c", SLEEP]) as owner:
        start(jobs, tree, owner=Owner.of(owner.pid))
        owner.kill()
    until(lambda: not left(jobs.folder), 5)
    ended = jobs.ended("server")
    assert ended is not None
    assert ended.reason == "owner gone"
    start(jobs, tree)
    assert jobs.stop("server") is True
    assert left(jobs.folder) == []


def test_a_stale_state_file_whose_pids_were_reused(jobs: Jobs) -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", SLEEP]) as innocent:
        job = python(jobs, SLEEP)
        state = json.loads((jobs.folder / "build.json").read_text())
        jobs.stop("build")
        state |= {"pid": innocent.pid, "pgid": innocent.pid, "keeper_pid": innocent.pid}
        (jobs.folder / "build.json").write_text(json.dumps(state))
        assert jobs.get("build") is None
        assert jobs.running() == []
        assert jobs.stop("build") is False
        assert not (jobs.folder / "build.json").exists()
        (jobs.folder / "build.json").write_text(json.dumps(state))
        assert jobs.stop_all() == []
        assert python(jobs, SLEEP).pid != job.pid
        assert innocent.poll() is None
        innocent.kill()


@pytest.mark.parametrize(
    "junk",
    [b"", b'{"name": "build", "mar', b"[]", b"\xff\xfe\x00", b'{"name": "other"}', b"9" * 5000],
)
def test_a_state_file_that_is_none(jobs: Jobs, junk: bytes) -> None:
    jobs.folder.mkdir()
    (jobs.folder / "folder.json").mkdir()
    (jobs.folder / "Not a name.json").write_bytes(junk)
    state = jobs.folder / "build.json"
    state.write_bytes(junk)
    (jobs.folder / "build.ended.json").write_bytes(junk)
    assert jobs.get("build") is None
    assert jobs.ended("build") is None
    assert jobs.running() == []
    assert jobs.stop("build") is False
    assert jobs.stop_all() == []
    assert state.read_bytes() == junk  # not ours to delete
    job = python(jobs, SLEEP)
    assert jobs.running() == [job]


def test_a_state_file_that_breaks_while_the_job_runs(jobs: Jobs, tree: Path) -> None:
    start(jobs, tree)
    (jobs.folder / "server.json").write_text("{")
    assert jobs.get("server") is None
    assert jobs.stop_all() == ["server"]
    until(lambda: not left(jobs.folder))


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path / "none")
    assert (jobs.get("a"), jobs.running(), jobs.ended("a"), jobs.stop("a"), jobs.stop_all()) == (
        None,
        [],
        None,
        False,
        [],
    )
    assert not jobs.folder.exists()


def test_folders_do_not_meddle_with_each_other(jobs: Jobs, tmp_path: Path) -> None:
    job = python(jobs, SLEEP)
    other = Jobs(tmp_path / "job")
    assert other.stop("build") is False
    assert other.stop_all() == []
    assert jobs.get("build") == job


def test_a_secret_in_the_environment_is_written_nowhere(jobs: Jobs) -> None:
    code = f"import os, time; assert os.environ['VLLM_API_KEY'] == {SECRET[::-1]!r}[::-1]; print('up', flush=True); time.sleep(60)"
    job = python(jobs, code, env=os.environ | {"VLLM_API_KEY": SECRET})
    jobs.wait(job, lambda: "up" in log_tail(job.log), deadline_s=10, every_s=0.02)

    def files() -> list[Path]:
        return [path for path in jobs.folder.rglob("*") if SECRET.encode() in path.read_bytes()]

    assert files() == []
    assert not any(SECRET in word for pid in left(jobs.folder) for word in psutil.Process(pid).cmdline())
    jobs.stop("build")
    assert (jobs.folder / "build.ended.json").exists()
    assert files() == []


def test_spaces_and_other_scripts_in_paths(tmp_path: Path) -> None:
    folder = tmp_path / "arbeits platz ünï 模型"
    folder.mkdir()
    jobs = Jobs(folder / "jobs")
    script = folder / "tree.py"
    script.write_text(TREE)
    job = start(jobs, script)
    assert jobs.get("server") == job
    assert job.argv[2] == str(script)
    assert jobs.stop_all() == ["server"]
    assert left(jobs.folder) == []


def test_a_flood_in_the_log_hurts_nobody(jobs: Jobs) -> None:
    code = (
        "import os, time; line = b'x' * 1023 + b'\\n'\n"
        "for _ in range(50): os.write(1, line * 1024)\n"
        "os.write(1, b'the end\\n'); time.sleep(60)"
    )
    job = python(jobs, code)
    jobs.wait(job, lambda: log_tail(job.log, 1) == ["the end"], deadline_s=20, every_s=0.02)
    assert Path(job.log).stat().st_size > 50 * 2**20
    began = time.monotonic()
    tail = log_tail(job.log)
    assert time.monotonic() - began < 0.5
    assert (len(tail), tail[-1], len(tail[0])) == (20, "the end", 1023)
    assert psutil.Process(job.keeper_pid).memory_info().rss < 64 * 2**20
    assert jobs.stop("build") is True


def test_the_tail_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert log_tail(log) == []
    log.write_bytes(b"")
    assert log_tail(log) == []
    log.write_bytes(b"one\ntwo\nthr\xffee")
    assert log_tail(log) == ["one", "two", "thr\ufffdee"]
    assert log_tail(log, 2) == ["two", "thr\ufffdee"]
    assert log_tail(log, 20, 9) == ["thr\ufffdee"]  # "wo" is the end of a line only
    assert log_tail(log, 20, 3) == ["\ufffdee"]
    log.write_bytes(b"10%\r20%\r30%\r\ndone\n")
    assert log_tail(log, 2) == ["30%", "done"]
    log.write_bytes(b"y" * 10**6)
    assert log_tail(log, 20, 100) == ["y" * 100]


@pytest.mark.parametrize("attempt", range(10))
def test_random_deaths_leave_nothing(jobs: Jobs, tree: Path, attempt: int) -> None:
    seed = random.SystemRandom().randrange(2**32)
    dice = random.Random(seed)  # noqa: S311 - not for secrets
    victim = dice.choice(["owner", "keeper", "child"]) if attempt else "owner"
    moment = dice.uniform(0, 0.5)
    print(f"seed {seed}: {victim} after {moment:.3f} s")  # noqa: T201 - shown when the test fails
    starter = Starter(jobs, tree)
    assert starter.line() == "set"
    starter.go()
    time.sleep(moment)  # the random moment itself
    job = jobs.get("server")
    if victim != "owner" and job is not None:
        os.kill(job.keeper_pid if victim == "keeper" else job.pid, signal.SIGKILL)
    if victim == "keeper":
        until(lambda: jobs.get("server") is None)
        jobs.stop_all()
    starter.kill()
    until(lambda: not left(jobs.folder), 5)


@pytest.mark.parametrize(
    ("code", "stays"), [("pass", True), ("raise SystemExit(3)", False), ("import os; os.abort()", False)]
)
def test_the_scratch_folder_stays_after_a_good_end_only(
    jobs: Jobs,
    tmp_path: Path,
    code: str,
    stays: bool,  # noqa: FBT001 - a column of the table
) -> None:
    scratch = tmp_path / "scratch"
    (scratch / "inner").mkdir(parents=True)
    job = python(jobs, code, scratch=scratch)
    assert jobs.join(job, 10)
    assert scratch.exists() is stays
    assert jobs.ended("build") is not None


def test_the_scratch_folder_of_a_stopped_job_goes_and_joining_a_live_one_waits(
    jobs: Jobs, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    job = python(jobs, SLEEP, scratch=scratch)
    assert not jobs.join(job, 0.1)
    assert jobs.stop("build")
    assert jobs.join(job, 0)
    assert not scratch.exists()
