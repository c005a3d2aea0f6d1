"""Logs of servers that did what was asked, for measuring how often a triage blames a healthy one.

``python benchmarks/healthy_logs.py --home H --out FOLDER [--stack S] [--only NAME ...]``: real starts of the real server
from the targets of the workspace H, one at a time. Every reply must be the one its client expects and the server must
end as its row says, else no log is written. Prints a row for each as JSON; what is replaced in them is in ``scrubbed``.
"""

import argparse
import contextlib
import datetime
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import httpx

from runbook import launch, pins
from runbook.actions import Context, ports, watching
from runbook.actions.jobs import Owner
from runbook.actions.launching import SERVED
from runbook.actions.model_files import MakeModel, folder_of
from runbook.endpoint import Endpoint, Reply
from runbook.probes.live import die_with_parent, target_env
from runbook.workspace import Workspace

OLD, NEW = "vllm-0.19.1-cpu", "vllm-0.32.0-cpu"
READY_S, STOP_S, IDLE_S = 600, 60.0, 30.0
HOST_NAME, HOME, WORK = "gpu-box", "/home/user", "/srv/runbook"
KEPT = 28_000
"""Bytes of the beginning and of the end of a log too long to be kept whole."""


@dataclass(frozen=True)
class Situation:
    """One log.

    ``without`` are flags and variables of the stack's own command that are left out. ``ends``: "TERM" to the server's
    process, "TERM-all" to all of its processes as systemd does, "INT" as Ctrl-C in a terminal, "running" for a log that
    is read while it serves, "again" for two starts into one log. ``through`` is what the lines pass on their way into the
    file. ``entry``: "module", "serve" for ``vllm serve MODEL``, "serve --model" for the old habit.
    """

    stack: str
    name: str
    flags: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    clients: tuple[str, ...] = ("few",)
    ends: str = "TERM"
    through: str = "file"
    without: tuple[str, ...] = ()
    entry: str = "module"

    @property
    def file(self) -> str:
        """The name of its log."""
        return f"{self.stack}-{self.name}.log"


PARSED = ("--reasoning-parser", "qwen3", "--enable-auto-tool-choice", "--tool-call-parser")
SAMPLED = '{"temperature": 0.5, "top_k": 5}'
COMPILED = ("--enforce-eager", "TORCH_COMPILE_DISABLE")
TWO_CORES = {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}
OWN_FORMAT = {"VLLM_LOGGING_CONFIG_PATH": "{scratch}/logging.json"}
LOGGING = {
    "version": 1,
    "formatters": {"own": {"format": "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"screen": {"class": "logging.StreamHandler", "formatter": "own"}},
    "loggers": {"vllm": {"handlers": ["screen"], "level": "INFO"}},
}
QUOTED = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. What does it mean?",
    'Traceback (most recent call last):\n  File "a.py", line 1\nImportError: libcudart.so.12: cannot open shared object file',
    "ValueError: No available memory for the cache blocks.",
)

SITUATIONS = (
    Situation(OLD, "few-requests"),
    Situation(NEW, "few-requests"),
    Situation(OLD, "load-still-running", clients=("few", "load"), ends="running"),
    Situation(NEW, "load-still-running", clients=("few", "load"), ends="running"),
    Situation(OLD, "ctrl-c", ("--reasoning-parser", "qwen3"), clients=("stream",), ends="INT"),
    Situation(NEW, "ctrl-c", ("--reasoning-parser", "qwen3"), clients=("stream",), ends="INT"),
    Situation(OLD, "client-mistakes", clients=("few", "mistakes")),
    Situation(NEW, "client-mistakes", clients=("few", "mistakes")),
    Situation(OLD, "restarted-one-log", ("--seed", "7"), clients=("few", "probes"), ends="again"),
    Situation(NEW, "restarted-one-log", ("--seed", "7"), clients=("few", "probes"), ends="again"),
    Situation(OLD, "debug-level", env={"VLLM_LOGGING_LEVEL": "DEBUG"}),
    Situation(NEW, "debug-level", env={"VLLM_LOGGING_LEVEL": "DEBUG"}),
    Situation(OLD, "terminal-colour", clients=("few", "stream"), ends="INT", through="terminal"),
    Situation(NEW, "terminal-colour", clients=("few", "stream"), ends="INT", through="terminal"),
    Situation(OLD, "client-leaves", ("--enable-log-requests",), clients=("leaves",), ends="running"),
    Situation(NEW, "client-leaves", ("--enable-log-requests",), clients=("leaves",)),
    Situation(OLD, "tools-and-reasoning", (*PARSED, "hermes"), clients=("tools", "stream")),
    Situation(NEW, "tools-and-reasoning", (*PARSED, "qwen3_coder"), clients=("tools", "stream")),
    Situation(OLD, "no-prefix-cache-two-at-once", ("--no-enable-prefix-caching", "--max-num-seqs", "2"), clients=("load",)),
    Situation(NEW, "prefix-cache-two-at-once", ("--enable-prefix-caching", "--max-num-seqs", "2"), clients=("load",)),
    Situation(OLD, "key-on-the-command-line", ("--api-key", "{key}"), clients=("few", "probes")),
    Situation(OLD, "idle", clients=("few", "idle"), ends="TERM-all"),
    Situation(NEW, "idle", clients=("few", "idle"), ends="TERM-all"),
    Situation(OLD, "compose-prefix", ("--max-model-len", "4096"), clients=("load",), ends="running", through="compose"),
    Situation(NEW, "compose-prefix", ("--max-model-len", "auto"), clients=("load",), through="compose"),
    Situation(OLD, "journal-prefix", ("--disable-log-stats",), clients=("probes", "few"), ends="TERM-all", through="journal"),
    Situation(NEW, "journal-prefix", ("--disable-log-stats",), clients=("probes", "few"), ends="TERM-all", through="journal"),
    Situation(NEW, "kubernetes-stamps", ("--disable-uvicorn-access-log",), clients=("probes", "few"), ends="running", through="kubernetes"),
    Situation(OLD, "float32-two-names", ("--dtype", "float32", "--served-model-name", "qwen", "qwen-tiny"), clients=("few",)),
    Situation(NEW, "another-name", ("--dtype", "bfloat16", "--served-model-name", "qwen"), clients=("few",)),
    Situation(OLD, "compiles", clients=("few",), without=COMPILED),
    Situation(NEW, "compiles", clients=("few",), without=COMPILED),
    Situation(OLD, "vllm-serve", entry="serve", clients=("few",), ends="INT"),
    Situation(OLD, "vllm-serve-model-flag", entry="serve --model", clients=("few",)),
    Situation(NEW, "vllm-serve", entry="serve", clients=("few",), ends="INT"),
    Situation(OLD, "vllm-serve-two-api-servers", ("--api-server-count", "2"), entry="serve", clients=("few", "load")),
    Situation(OLD, "deprecated-flag-unknown-variable", ("--calculate-kv-scales",), {"VLLM_USE_V1": "1", "VLLM_ATTENTION_BACKEND": "TORCH_SDPA"}),
    Situation(NEW, "deprecated-flag-unknown-variable", ("--disable-cascade-attn",), {"VLLM_USE_V1": "1", "VLLM_ATTENTION_BACKEND": "TORCH_SDPA"}),
    Situation(OLD, "cache-nearly-full", ("--num-gpu-blocks-override", "64", "--max-num-seqs", "4"), {"VLLM_LOG_STATS_INTERVAL": "2"}, ("long",)),
    Situation(OLD, "two-workers", ("--tensor-parallel-size", "2"), TWO_CORES, ("few", "stream")),
    Situation(OLD, "logging-not-configured", env={"VLLM_CONFIGURE_LOGGING": "0"}),
    Situation(NEW, "own-log-format", env=OWN_FORMAT, clients=("few", "load")),
    Situation(OLD, "log-prefix-stderr", ("--uvicorn-log-level", "warning"), {"VLLM_LOGGING_PREFIX": "[qwen-a] ", "VLLM_LOGGING_STREAM": "ext://sys.stderr"}, ("few", "load")),
    Situation(NEW, "uvicorn-debug", ("--uvicorn-log-level", "debug"), clients=("few",)),
    Situation(OLD, "quoted-errors", ("--enable-log-requests",), {"VLLM_LOGGING_LEVEL": "DEBUG"}, ("quotes",)),
    Situation(NEW, "quoted-errors", ("--enable-log-requests",), {"VLLM_LOGGING_LEVEL": "DEBUG"}, ("quotes",)),
    Situation(OLD, "dummy-weights", ("--load-format", "dummy", "--seed", "3")),
    Situation(NEW, "sampling-overridden", ("--override-generation-config", SAMPLED, "--no-async-scheduling")),
    Situation(OLD, "stopped-while-it-serves", clients=("few", "stays")),
)  # fmt: skip


_ENDLESS = {"ignore_eos": True}


class Unhealthy(Exception):
    """The situation did not come about, or the server did not do what was asked; says what was seen."""


class Client:
    """Who asks a server. Each method without an underscore is a kind of client, and fails when a reply is not what it must be."""

    def __init__(self, url: str, model: str, key: str) -> None:
        self.model = model
        self.api = Endpoint(url, model, key)
        self.http = httpx.Client(
            base_url=url,
            trust_env=False,
            timeout=60,
            headers={"Authorization": f"Bearer {key}"},
            # vLLM 0.19.1 resets a kept connection after it has refused a request with 400.
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    def none(self) -> None:
        """Nobody asks."""

    def few(self) -> None:
        """Some completions and chats, one after the other."""
        for text in ("Hello", "The capital of France is"):
            _good(self.api.complete(text, 16, stream=False))
        for _ in range(3):
            _good(self.api.chat(_said("Say hello."), 24, stream=False))
        self._get("/v1/models")

    def stream(self) -> None:
        """Streamed answers, one after the other."""
        for _ in range(3):
            _good(self.api.complete("Once upon a time", 64))
            _good(self.api.chat(_said("Tell a story."), 64))

    def load(self) -> None:
        """Forty requests, eight at a time."""
        with ThreadPoolExecutor(8) as pool:
            for reply in pool.map(lambda n: self.api.complete(f"{n} " * (n + 1), 48), range(40)):
                _good(reply)

    def long(self) -> None:
        """Four long answers at once."""
        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(self.api.complete, str(n), 1800, extra_body=_ENDLESS) for n in range(4)]
            for one in asked:
                _good(one.result())

    def stays(self) -> None:
        """A client whose answer is under way when the server is stopped."""
        asked = {"max_tokens": 1900, "extra_body": _ENDLESS}
        threading.Thread(target=self.api.complete, args=("hello",), kwargs=asked, daemon=True).start()
        _until(lambda: self.api.metrics().total("vllm:num_requests_running") == 1, "its request runs")

    def quotes(self) -> None:
        """Requests with error messages in their texts, asked about by a client."""
        for text in QUOTED:
            _good(self.api.chat(_said(text), 1, stream=False))
            _good(self.api.complete(text, 1))

    def probes(self) -> None:
        """What an orchestrator and a collector of metrics ask."""
        for _ in range(4):
            for path in ("/health", "/metrics", "/v1/models", "/version"):
                self._get(path)

    def leaves(self) -> None:
        """A client that goes away in the middle of a streamed answer; the next is served."""
        asked = {
            "model": self.model,
            "prompt": "hello",
            "max_tokens": 1500,
            "stream": True,
            "ignore_eos": True,
        }
        with self.http.stream("POST", "/v1/completions", json=asked) as reply:
            next(reply.iter_lines())
        _until(
            lambda: self.api.metrics().total("vllm:num_requests_running") == 0,
            "the request of who left is gone",
        )
        _good(self.api.complete("hi", 8))

    def tools(self) -> None:
        """Chats that offer a tool, and one that wants JSON of a schema."""
        schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        tool = {"type": "function", "function": {"name": "weather", "parameters": schema}}
        for _ in range(3):
            _good(self.api.chat(_said("Weather in Oslo?"), 32, tools=[tool], tool_choice="auto"))
        shape = {"type": "json_schema", "json_schema": {"name": "city", "schema": schema}}
        _good(self.api.chat(_said("Which city?"), 64, stream=False, response_format=shape))

    def idle(self) -> None:
        """Nobody asks for a while; the time itself is what is waited for."""
        time.sleep(IDLE_S)

    def mistakes(self) -> None:
        """Requests that are the client's fault: each must be refused, and the next one served."""
        many = {"model": self.model, "messages": _said("hi"), "max_tokens": 99_999}
        asked: Sequence[tuple[str, Mapping[str, object], int]] = (
            ("/v1/completions", {"model": self.model, "prompt": "hi " * 4000, "max_tokens": 4}, 400),
            ("/v1/chat/completions", many, 400),
            ("/v1/chat/completions", {**many, "model": "gpt-4"}, 404),
            ("/v1/completions", {"model": self.model, "prompt": "hi", "temperature": -3}, 400),
            ("/v1/chat/completions", {"model": self.model}, 400),
            ("/v2/generate", {"prompt": "hi"}, 404),
        )
        for path, body, status in asked:
            reply = self.http.post(path, json=body)
            if reply.status_code != status:
                raise Unhealthy(f"{path} answered {reply.status_code}, not {status}: {reply.text[:300]}")
        _good(self.api.complete("hi", 8))

    def _get(self, path: str) -> str:
        reply = self.http.get(path)
        if reply.status_code != httpx.codes.OK:
            raise Unhealthy(f"{path} answered {reply.status_code}: {reply.text[:300]}")
        return reply.text


def _said(text: str) -> list[dict[str, object]]:
    return [{"role": "user", "content": text}]


def _good(reply: Reply) -> None:
    if reply.error:
        raise Unhealthy(f"a request failed: {reply.error}")


def _until(true: Callable[[], object], what: str, within_s: float = STOP_S) -> None:
    began = time.monotonic()
    while not true():
        if time.monotonic() - began > within_s:
            raise Unhealthy(f"not within {within_s:g} s: {what}")
        time.sleep(0.1)


class Server:
    """One start of the real server."""

    def __init__(self, ctx: Context, one: Situation, scratch: Path, key: str, out: int) -> None:
        self.port = ports.free(launch.HOST)
        planned = tuple(each for each in launch.flags(ctx.stack) if each.flag not in one.without)
        model = str(folder_of(ctx))
        words = launch.argv(ctx.stack, str(ctx.python), model, SERVED, self.port, planned=planned)
        env = target_env(ctx.work, ctx.stack.name, ctx.python) | {"HF_HUB_OFFLINE": "1", "VLLM_API_KEY": key}
        env |= {each.name: each.value for each in launch.variables(ctx.stack) if each.name not in one.without}
        if one.through == "terminal":
            env.pop("NO_COLOR")
        if one.entry != "module":
            env["PYTHONPATH"] = str(_distribution(scratch, ctx.stack))
            given = words[words.index("--model") :]
            words = [str(ctx.python), str(ctx.python.with_name("vllm")), "serve"]
            words += given if one.entry == "serve --model" else given[1:]
        self.process = subprocess.Popen(
            [*words, *(each.replace("{key}", key) for each in one.flags)],
            env={**env, **{name: text.replace("{scratch}", str(scratch)) for name, text in one.env.items()}},
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=die_with_parent(),  # noqa: PLW1509 - it makes one system call
        )

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://{launch.HOST}:{self.port}"

    def ready(self) -> None:
        """Wait until it answers.

        Raises:
            Unhealthy: it ended, or took too long.
        """

        def answers() -> bool:
            if self.process.poll() is not None:
                raise Unhealthy(f"the server ended with {self.process.returncode}")
            with contextlib.suppress(httpx.HTTPError):
                return httpx.get(f"{self.url}/health", trust_env=False, timeout=5).is_success
            return False

        _until(answers, "the server is ready", READY_S)

    def stop(self, how: str) -> int:
        """Its exit code, once nothing of it is left.

        Raises:
            Unhealthy: it had ended before, or did not end when it was told to.
        """
        if self.process.poll() is not None:
            raise Unhealthy(f"the server had ended with {self.process.returncode}")
        below = watching.tree(self.process.pid)
        if how in ("INT", "TERM-all"):
            os.killpg(self.process.pid, signal.SIGINT if how == "INT" else signal.SIGTERM)
        else:
            self.process.terminate()
        _until(lambda: self.process.poll() is not None, "the server has ended")
        _until(lambda: not any(each.is_running() for each in below), "its processes have ended")
        return int(self.process.returncode)

    def kill(self) -> None:
        """Whatever is left of it, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def _distribution(scratch: Path, stack: pins.Stack) -> Path:
    """A folder with which ``vllm serve`` finds the version of "vllm", a name that the distribution of a CPU build has not."""
    info = scratch / f"vllm-{stack.vllm}+cpu.dist-info"
    info.mkdir(exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {stack.vllm}+cpu\n"
    (info / "METADATA").write_text(text, encoding="utf-8")
    return scratch


def _now(form: str) -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime(form)


STAMPS: Mapping[str, Callable[[], str]] = {
    "compose": lambda: "vllm-1  | ",
    "journal": lambda: _now(f"%b %d %H:%M:%S {HOST_NAME} vllm[1734]: "),
    "kubernetes": lambda: _now("%Y-%m-%dT%H:%M:%S.%f000Z "),
}


@contextlib.contextmanager
def receiver(through: str, log: Path) -> Iterator[int]:
    """What a server writes to: the log, a terminal whose screen becomes the log, or a pipe that marks each line."""
    with log.open("ab", buffering=0) as file:
        if through == "file":
            yield file.fileno()
            return
        read, write = os.openpty() if through == "terminal" else os.pipe()
        with os.fdopen(read, "rb", buffering=0 if through == "terminal" else -1) as source:
            thread = threading.Thread(target=_passed, args=(source, file, STAMPS.get(through)))
            thread.start()
            try:
                yield write
            finally:
                os.close(write)
                thread.join()


def _passed(source: BinaryIO, file: BinaryIO, stamp: Callable[[], str] | None) -> None:
    with contextlib.suppress(OSError):  # a terminal's way to say that nobody writes to it any more
        if stamp is None:
            while some := source.read(65536):
                file.write(some)
        else:
            file.writelines(stamp().encode() + line for line in source)


def log_of(ctx: Context, one: Situation, scratch: Path, key: str) -> tuple[bytes, list[int]]:
    """Bring a situation about: what was written, and the exit code of each start.

    Raises:
        Unhealthy: it was not what the row says.
    """
    log = scratch / f"{one.name}.log"
    (scratch / "logging.json").write_text(json.dumps(LOGGING), encoding="utf-8")
    codes: list[int] = []
    for _ in range(2 if one.ends == "again" else 1):
        with receiver(one.through, log) as out:
            server = Server(ctx, one, scratch, key, out)
            try:
                server.ready()
                asked = dict(zip(one.flags, one.flags[1:], strict=False))
                client = Client(server.url, asked.get("--served-model-name", SERVED), key)
                for kind in one.clients:
                    getattr(client, kind)()
                if one.ends == "running":
                    return log.read_bytes(), codes
                codes.append(server.stop(one.ends))
            finally:
                server.kill()
    return log.read_bytes(), codes


def scrubbed(raw: bytes, work: Workspace, scratch: Path, key: str) -> str:
    """The log with the machine's folders and name and the key replaced, and the middle left out of one that is too long."""
    text = raw.decode(errors="replace")
    shown = {
        str(scratch): f"{WORK}/logs",
        str(work.targets.resolve()): f"{WORK}/targets",
        str(work.root): WORK,
        str(Path.home()): HOME,
        key: "[key]",
    }
    for real, name in shown.items():
        text = text.replace(real, name)
    text = re.sub(rf"(?<![\w./-]){re.escape(socket.gethostname())}(?![\w./-])", HOST_NAME, text)
    if len(text) <= 2 * KEPT:
        return text
    lines = text.splitlines(keepends=True)
    first, last = _up_to(lines, KEPT), _up_to(lines[::-1], KEPT)
    left_out = len(lines) - first - last
    return "".join([*lines[:first], f"[{left_out} lines are left out here: see README.md]\n", *lines[-last:]])


def _up_to(lines: Sequence[str], most: int) -> int:
    size = 0
    for count, line in enumerate(lines):
        size += len(line)
        if size > most:
            return count
    return len(lines)


def main() -> None:
    """Make the logs that are asked for and print a row about each as JSON; exit code 1 when one did not come about."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, help="a workspace with the targets in it", required=True)
    parser.add_argument("--out", type=Path, help="the folder for the logs", required=True)
    parser.add_argument("--stack", choices=(OLD, NEW), action="append", help="of this stack only")
    parser.add_argument("--only", action="append", help="situations of this name only")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    work, failed = Workspace(asked.home.resolve()), False
    for one in SITUATIONS:
        if one.stack not in (asked.stack or (OLD, NEW)) or one.name not in (asked.only or [one.name]):
            continue
        stack, began, key = pins.stack(one.stack), time.monotonic(), secrets.token_urlsafe(24)
        python = work.target_python(one.stack)
        ctx = Context(work, stack, python, ours=True, model=stack.model, owner=Owner.of(), deadline_s=READY_S)
        MakeModel(ctx).apply(lambda line: print(line, file=sys.stderr))
        with tempfile.TemporaryDirectory(prefix="healthy-", dir=work.root) as name:
            try:
                raw, codes = log_of(ctx, one, Path(name), key)
            except (Unhealthy, httpx.HTTPError) as why:
                failed = True
                print(f"{one.file}: {why}", file=sys.stderr)
                tail = (Path(name) / f"{one.name}.log").read_text(encoding="utf-8", errors="replace")
                print(tail[-3000:], file=sys.stderr)
                continue
            text = scrubbed(raw, work, Path(name), key)
        (asked.out / one.file).write_text(text, encoding="utf-8", newline="")
        row = {"file": one.file, "bytes": len(text), "lines": text.count("\n"), "exit": codes}
        row |= {word: len(re.findall(rf"(?i)\b{word}\b", text)) for word in ("warning", "error", "traceback")}
        print(json.dumps(row | {"seconds": round(time.monotonic() - began, 1)}), flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
