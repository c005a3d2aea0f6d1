"""The load generator that vLLM brings, ``vllm bench serve``, in a child of the target's interpreter: several loads, one import."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from runbook.actions import Context
from runbook.actions.jobs import log_tail
from runbook.endpoint import Endpoint
from runbook.errors import ActionFailed
from runbook.probes.live import INSIDE, die_with_parent, target_env
from runbook.serving.load import Request

IMPORT_LIMIT_S = 180.0
GRACE_S = 5.0
ASK_EVERY_S = 1.0


@dataclass(frozen=True)
class Load:
    """One load to put on a server: ``rate`` and ``concurrency`` 0 mean no bound; lengths in tokens."""

    name: str
    number: int
    input_len: int
    output_len: int
    concurrency: int = 0
    rate: float = 0.0
    backend: str = "openai"
    logprobs: int = 0
    ignore_eos: bool = True
    seed: int = 0
    body: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Said:
    """What a generator said of one load; ``cores`` is what it burnt, None where one core is no bound for it."""

    seconds: float
    cores: float | None
    input_tokens: int
    requests: tuple[Request, ...]
    errors: Counter[str]


class Bench:
    """The child, from here to ``close``; ``pid`` is its process, for whoever watches what it burns."""

    def __init__(self, ctx: Context, endpoint: Endpoint, tokenizer: Path) -> None:
        self.log = ctx.work.logs / "bench.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        env = target_env(ctx.work, ctx.stack.name, ctx.python)
        env.update(OPENAI_API_KEY=endpoint.key, HF_HUB_OFFLINE="1")
        argv = [
            str(ctx.python), str(INSIDE / "bench_serve.py"), "--url", endpoint.url, "--model", endpoint.model,
            "--tokenizer", str(tokenizer),
        ]  # fmt: skip
        with self.log.open("wb") as log:
            self._child = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=env, start_new_session=True,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - the function is one system call, see there
            )  # fmt: skip
        self.pid = self._child.pid
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._reader = threading.Thread(target=self._read, args=(self._child.stdout,), daemon=True)
        self._reader.start()

    def close(self) -> None:
        """End the child and wait for it; may be called again."""
        if self._child.stdin is not None:
            with contextlib.suppress(OSError):  # its end of the pipe may be gone
                self._child.stdin.close()
        try:
            self._child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._child.wait()
        self._reader.join(GRACE_S)

    def ready(self) -> float:
        """Wait until the generator is imported; the seconds that took.

        Raises:
            ActionFailed: it could not be imported.
        """
        deadline = time.monotonic() + IMPORT_LIMIT_S
        late = f"it was not imported within {IMPORT_LIMIT_S:.0f} s"
        return float(self._answer(lambda: late if time.monotonic() > deadline else "")["import_s"])

    def put(self, load: Load, wrong: Callable[[], str] = lambda: "") -> Said:
        """Put one load on the server and wait for its end; ``wrong`` is asked now and then whether to give up, and why.

        Raises:
            ActionFailed: the generator broke, or was given up; a request that fails is no failure of the load.
        """
        assert self._child.stdin is not None  # noqa: S101 - it was opened above
        with contextlib.suppress(BrokenPipeError):  # its end is told by the answer that does not come
            self._child.stdin.write(json.dumps(asdict(load)).encode() + b"\n")
            self._child.stdin.flush()
        answer = self._answer(wrong)
        began = min((row[0] for row in answer["requests"]), default=0.0)
        requests = tuple(
            Request(sent - began, first, decode, tokens or 0, chunks, good=not error and first > 0)
            for sent, first, decode, _, tokens, chunks, error in answer["requests"]
        )
        errors = Counter(_last_line(row[6]) for row in answer["requests"] if row[6])
        errors.update(["no answer"] * (sum(not one.good for one in requests) - sum(errors.values())))
        return Said(
            answer["seconds"],
            answer["cpu_s"] / max(answer["seconds"], 1e-9),
            answer["input_tokens"],
            requests,
            errors,
        )

    def _answer(self, wrong: Callable[[], str]) -> dict[str, Any]:
        line = None
        while line is None:
            try:
                line = self._lines.get(timeout=ASK_EVERY_S)
            except queue.Empty:
                if why := wrong():
                    self.close()
                    raise ActionFailed(
                        f"the load was given up: {why}",
                        "a load that ends",
                        f"runbook status says what the server does; the generator's log is {self.log}",
                    ) from None
        answer: dict[str, Any] = json.loads(line) if line else {"error": self._last_words()}
        if "error" in answer:
            raise ActionFailed(f"vllm bench serve: {answer['error']}", "a load", f"read {self.log}")
        return answer

    def _last_words(self) -> str:
        return next(
            (line for line in reversed(log_tail(self.log)) if line.strip()), "it ended without a word"
        )

    def _read(self, pipe: IO[bytes]) -> None:
        with pipe:
            for line in pipe:
                self._lines.put(line)
        self._lines.put(b"")


def _last_line(text: str) -> str:
    """What a traceback ends with."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:160] if lines else ""
