"""The live probe asks real processes, files and sockets; whatever they do is an answer, and nothing of it stays behind."""

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from runbook.errors import BadParameter
from runbook.probe import Ran
from runbook.probes import live, questions
from runbook.probes.live import SET_BUT_HIDDEN, LiveProbe, is_secret_name, parse_inside, target_env
from runbook.workspace import Workspace

SH = "/bin/sh"


@pytest.fixture
def work(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "work")


@pytest.fixture
def host(work: Workspace) -> LiveProbe:
    """This machine, with our own interpreter as the target."""
    return LiveProbe(work, "vllm-0.19.1-cpu", Path(sys.executable))


@pytest.fixture
def script(host: LiveProbe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ask a script of one's own inside the target."""
    monkeypatch.setattr(live, "INSIDE", tmp_path)

    def ask(text: str, timeout_s: float = 30.0, **args: str) -> dict[str, Any]:
        (tmp_path / "one.py").write_text(text, encoding="utf-8")
        return host.inside("one", args or None, timeout_s)

    return ask


def gone(pid: int) -> bool:
    """True when there is no such process, or only its exit code is left."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def until(true: Any, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


# Programs


def test_what_a_program_did(host: LiveProbe) -> None:
    ran = host.run([SH, "-c", "echo out; echo err >&2; exit 3"])
    assert ran == Ran((SH, "-c", "echo out; echo err >&2; exit 3"), 3, "out\n", "err\n")
    assert not ran.ok
    assert host.run([SH, "-c", ":"]).ok


def test_a_program_that_is_missing_is_an_answer(host: LiveProbe) -> None:
    ran = host.run(["no-such-program-anywhere", "--version"])
    assert (ran.missing, ran.ok, ran.timed_out, ran.rc, ran.out) == (True, False, False, 127, "")
    assert "No such file" in ran.err


@pytest.mark.parametrize("kind", ["a folder", "no permission", "no program"])
def test_what_cannot_be_started_is_an_answer(kind: str, host: LiveProbe, tmp_path: Path) -> None:
    path = tmp_path / "thing"
    if kind == "a folder":
        path.mkdir()
    else:
        path.write_text("not a program", encoding="utf-8")
        path.chmod(0o755 if kind == "no program" else 0o644)
    ran = host.run([str(path)])
    assert ran.missing
    assert ran.err


def test_no_shell_reads_the_words(host: LiveProbe, tmp_path: Path) -> None:
    ran = host.run(["printf", "%s", f"$(touch {tmp_path}/made); `id` | x"])
    assert ran.out == f"$(touch {tmp_path}/made); `id` | x"
    assert not (tmp_path / "made").exists()


def test_bytes_that_are_no_text_are_replaced(host: LiveProbe) -> None:
    assert host.run(["printf", r"a\377b"]).out == "a\ufffdb"


def test_words_are_in_english(host: LiveProbe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    assert host.run([SH, "-c", "echo $LC_ALL $LANG"]).out == "C C\n"


def test_a_program_that_reads_its_input_gets_none(host: LiveProbe) -> None:
    assert host.run(["cat"], timeout_s=10) == Ran(("cat",), 0, "", "")


def test_a_deadline_ends_the_program_and_all_it_started(host: LiveProbe, tmp_path: Path) -> None:
    text = f"sleep 600 & echo $! > {tmp_path}/child; trap '' TERM; echo begun; wait"
    started = time.monotonic()
    ran = host.run([SH, "-c", text], timeout_s=1.0)
    assert (ran.timed_out, ran.ok, ran.out) == (True, False, "begun\n")
    assert time.monotonic() - started < 20
    until(lambda: gone(int((tmp_path / "child").read_text(encoding="utf-8"))))


def test_a_deadline_holds_though_somebody_else_holds_the_pipe(host: LiveProbe, tmp_path: Path) -> None:
    text = f"setsid sleep 12 & echo $! > {tmp_path}/child; echo begun; sleep 600"
    started = time.monotonic()
    ran = host.run([SH, "-c", text], timeout_s=0.5)
    took = time.monotonic() - started
    psutil.Process(int((tmp_path / "child").read_text(encoding="utf-8"))).kill()
    assert ran.timed_out
    assert took < 8


# Files and environment


def test_files(host: LiveProbe, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x\xffy\n")
    assert host.read_text(str(tmp_path / "a")) == "x\ufffdy\n"
    assert host.read_text(str(tmp_path / "b")) is None
    assert host.read_text(str(tmp_path)) is None
    assert host.read_text("a\0b") is None
    assert host.read_text("/proc/self/mem") is None
    assert host.read_text("{site}/nothing/here") is None


def test_places(host: LiveProbe, work: Workspace) -> None:
    work.root.mkdir()
    (work.root / "one.json").write_text("{}", encoding="utf-8")
    assert host.read_text("{work}/one.json") == "{}"
    assert host.glob("{work}/*.json") == ("{work}/one.json",)
    assert host.run(["{own}/python", "-V"]).out.startswith("Python 3.")
    assert host.run(["{own}/python", "-V"]).argv == ("{own}/python", "-V")
    assert "{site}/pytest" in host.glob("{site}/pytest")
    assert host.resolve("{prefix}") == sys.prefix


def test_a_place_that_is_not_known_matches_no_file(work: Workspace) -> None:
    bare = LiveProbe(work)
    assert not bare.has_target
    assert bare.glob("{site}/*") == ()
    assert bare.read_text("{model}/config.json") is None
    assert bare.run(["{python}", "-V"]).missing
    assert bare.inside("py_facts")["rc"] == 127


def test_glob_is_sorted(host: LiveProbe, tmp_path: Path) -> None:
    for name in ("b", "c", "a"):
        (tmp_path / name).touch()
    assert host.glob(f"{tmp_path}/*") == tuple(f"{tmp_path}/{name}" for name in "abc")
    assert host.glob(f"{tmp_path}/x*") == ()


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "VLLM_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "PGPASSWORD",
        "my_passwd",
        "GOOGLE_APPLICATION_CREDENTIALS",
    ],
)
def test_a_secret_is_never_shown(name: str, host: LiveProbe, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_secret_name(name)
    assert host.env(name) is None
    monkeypatch.setenv(name, "sesame")
    assert host.env(name) == SET_BUT_HIDDEN
    monkeypatch.setenv(name, "")
    assert host.env(name) == SET_BUT_HIDDEN
    assert "sesame" not in questions.ask(host, f"env {name}")


def test_environment(host: LiveProbe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert host.env("CUDA_VISIBLE_DEVICES") == ""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert host.env("CUDA_VISIBLE_DEVICES") is None


# Inside the target


def test_the_last_object_counts(script: Any) -> None:
    assert script("print('hello'); print('{\"a\": 1}'); print('{\"b\": \"\u00e4\"}')") == {"b": "\u00e4"}


def test_arguments_come_in_order_and_resolved(script: Any, work: Workspace) -> None:
    answer = script(
        "import json, sys; print(json.dumps({'argv': sys.argv[1:]}))", path="{work}/m", device="cpu"
    )
    assert answer == {"argv": ["--device", "cpu", "--path", f"{work.root}/m"]}


@pytest.mark.parametrize(
    ("text", "error", "rc"),
    [
        ("", "the child ended without an answer (exit code 0)", 0),
        ("print('no json')", "the child ended without an answer (exit code 0)", 0),
        ("print('{\"a\": ')", "the child ended without an answer (exit code 0)", 0),
        ("print('[1]')", "the child ended without an answer (exit code 0)", 0),
        ("raise SystemExit(7)", "the child ended without an answer (exit code 7)", 7),
        ("def f(:", "the child ended without an answer (exit code 1)", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "the child ended without an answer (SIGSEGV)", -11),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "the child ended without an answer (SIGILL)", -4),
        ("import os; os.abort()", "the child ended without an answer (SIGABRT)", -6),
        ("import os, signal; os.kill(os.getpid(), signal.SIGRTMIN + 3)", "the child ended without an answer", -37),
        ("import sys; sys.stdout.buffer.write(b'\\xff\\xfe\\x00{')", "the child ended without an answer (exit code 0)", 0),
    ],
)  # fmt: skip
def test_a_child_without_an_answer_is_an_answer(text: str, error: str, rc: int, script: Any) -> None:
    answer = script(text)
    assert answer["error"].startswith(error)
    assert answer["rc"] == rc
    assert isinstance(answer["stderr"], str)


def test_a_crash_after_the_answer_takes_nothing_back(script: Any) -> None:
    text = "import os, signal; print('{\"a\": 1}', flush=True); os.kill(os.getpid(), signal.SIGSEGV)"
    assert script(text) == {"a": 1}


def test_a_child_that_hangs_is_an_answer_and_is_ended(script: Any, tmp_path: Path) -> None:
    answer = script(
        f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)",
        timeout_s=1.5,
    )
    assert answer["error"] == "no answer within 2 s"
    assert gone(int((tmp_path / "pid").read_text(encoding="utf-8")))


def test_what_it_said_last_is_kept(script: Any) -> None:
    answer = script("import sys; sys.stderr.write('x' * 5000 + 'the end'); raise SystemExit(1)")
    assert answer["stderr"].endswith("the end")
    assert len(answer["stderr"]) == 2000


def test_a_script_there_is_none_of_is_a_bug_in_words(host: LiveProbe) -> None:
    with pytest.raises(BadParameter, match=r"no script inside/nothing\.py"):
        host.inside("nothing")


def test_nothing_from_outside_gets_into_the_child(
    script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "json.py").write_text("raise SystemExit(99)", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "evil"))
    monkeypatch.setenv("PYTHONSTARTUP", str(tmp_path / "evil" / "json.py"))
    answer = script(
        "import json, os, sys; print(json.dumps({'path': [p for p in sys.path if 'evil' in p], 'names': [n for n in os.environ if n in ('PYTHONPATH', 'PYTHONSTARTUP')]}))"
    )
    assert answer == {"path": [], "names": []}


def test_caches_of_the_child_lie_in_the_workspace(work: Workspace) -> None:
    env = target_env(work, "vllm-0.19.1-cpu", Path("/target/bin/python"))
    for name in (
        "VLLM_CACHE_ROOT",
        "TORCHINDUCTOR_CACHE_DIR",
        "TRITON_CACHE_DIR",
        "FLASHINFER_WORKSPACE_BASE",
    ):
        assert env[name].startswith(str(work.root / "caches" / "vllm-0.19.1-cpu"))
    # As in an activated environment: FlashInfer runs ninja by its bare name.
    assert env["PATH"].startswith("/target/bin:")
    assert target_env(work, "vllm-0.19.1-cpu", None)["PATH"] == os.environ["PATH"]


def test_parse_inside_of_an_unknown_signal() -> None:
    assert "error" in parse_inside(Ran((), -250, "", ""), 1.0)


# No orphans

PARENT = """
import sys
from pathlib import Path
from runbook.probes import live
from runbook.probes.live import LiveProbe
from runbook.workspace import Workspace
folder = Path(sys.argv[1])
live.INSIDE = folder
LiveProbe(Workspace(folder / "work"), "s", Path(sys.executable)).{question}
"""
SLEEPER = "import os, time\nopen({pid!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"


@pytest.mark.parametrize(
    "question", ['inside("sleeper")', 'run([sys.executable, str(folder / "sleeper.py")], 600)']
)
def test_no_child_outlives_a_parent_that_was_killed(question: str, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    (tmp_path / "sleeper.py").write_text(SLEEPER.format(pid=str(pid)), encoding="utf-8")
    with subprocess.Popen([sys.executable, "-c", PARENT.format(question=question), str(tmp_path)]) as parent:
        until(lambda: pid.exists() and pid.read_text(encoding="utf-8"))
        child = int(pid.read_text(encoding="utf-8"))
        assert not gone(child)
        parent.send_signal(signal.SIGKILL)
        parent.wait(20)
    until(lambda: gone(child))


# The server


class Answers(http.server.BaseHTTPRequestHandler):
    """Says what it was asked."""

    def do_GET(self) -> None:
        self._say(b"")

    def do_POST(self) -> None:
        self._say(self.rfile.read(int(self.headers["content-length"])))

    def _say(self, body: bytes) -> None:
        status = 401 if self.path == "/v1/models" else 200
        text = json.dumps(
            {
                "method": self.command,
                "path": self.path,
                "body": body.decode(),
                "key": self.headers.get("authorization"),
            }
        )
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server(work: Workspace) -> Iterator[int]:
    """A server whose port stands in the state file."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as one:
        thread = threading.Thread(target=one.serve_forever, daemon=True)
        thread.start()
        work.jobs.mkdir(parents=True)
        (work.jobs / "server.json").write_text(json.dumps({"port": one.server_address[1]}), encoding="utf-8")
        yield int(one.server_address[1])
        one.shutdown()
        thread.join()


def test_requests(host: LiveProbe, server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")  # a proxy that is not there must not be asked
    monkeypatch.setenv("VLLM_API_KEY", "sesame")
    reply = host.http("GET", "/health")
    assert (reply.status, json.loads(reply.body)) == (
        200,
        {"method": "GET", "path": "/health", "body": "", "key": None},
    )
    assert json.loads(host.http("POST", "/v1/x", {"a": 1}).body)["body"] == '{"a":1}'
    assert host.http("GET", "/v1/models").status == 401
    assert host.resolve("{port}") == str(server)


@pytest.mark.parametrize("state", [None, "", "[]", "{}", '{"port": "x"}', '{"port": null}'])
def test_no_server_is_an_answer(state: str | None, host: LiveProbe, work: Workspace) -> None:
    if state is not None:
        work.jobs.mkdir(parents=True)
        (work.jobs / "server.json").write_text(state, encoding="utf-8")
    reply = host.http("GET", "/health")
    assert reply.status == 0
    assert "no server" in reply.body
    assert host.resolve("{port}") == "{port}"


@pytest.mark.parametrize(
    ("code", "number", "how"), [(3, None, "exit code 3"), (None, 9, "SIGKILL"), (None, 99, "signal 99")]
)
def test_of_a_server_that_ended_it_is_told_how(
    code: int | None, number: int | None, how: str, host: LiveProbe, work: Workspace
) -> None:
    work.jobs.mkdir(parents=True)
    end = {"reason": "exited", "exit_code": code, "signal": number, "seconds": 12.3}
    (work.jobs / "server.ended.json").write_text(json.dumps(end), encoding="utf-8")
    body = host.http("GET", "/health").body
    assert body == f"no server of this workspace is running (the last one: exited, {how}, after 12 s)"


def test_a_port_nobody_listens_on_is_an_answer(host: LiveProbe, work: Workspace) -> None:
    work.jobs.mkdir(parents=True)
    (work.jobs / "server.json").write_text('{"port": 1}', encoding="utf-8")
    reply = host.http("GET", "/health")
    assert reply.status == 0
    assert "ConnectError" in reply.body


def test_a_port_out_of_range_is_an_answer(host: LiveProbe, work: Workspace) -> None:
    work.jobs.mkdir(parents=True)
    (work.jobs / "server.json").write_text('{"port": 99999999}', encoding="utf-8")
    assert host.http("GET", "/health").status == 0


# A question as text


@pytest.mark.parametrize("question", ["", "run", "read", "ask me", "runs ls", "http"])
def test_text_that_is_no_question_is_refused(question: str, host: LiveProbe) -> None:
    with pytest.raises(BadParameter, match="is not a question"):
        questions.ask(host, question)


def test_questions_as_text(host: LiveProbe, server: int, tmp_path: Path) -> None:
    assert server
    assert questions.ask(host, "run no-such-program -x") == "no-such-program: no such program"
    assert questions.ask(host, "run sh -c 'echo a; exit 3'") == "a\n[exit code 3]"
    assert questions.ask(host, f"read {tmp_path}/none") == f"{tmp_path}/none: not there"
    assert questions.ask(host, f"glob {tmp_path}/none*") == f"{tmp_path}/none*: no match"
    assert questions.ask(host, "env NO_SUCH_VARIABLE") == "NO_SUCH_VARIABLE is not set"
    assert questions.ask(host, "http GET /health").startswith("HTTP 200\n")
    assert json.loads(questions.ask(host, "inside py_facts"))["version"] == ".".join(
        map(str, sys.version_info[:3])
    )
    assert os.environ  # nothing above may have cleared it
