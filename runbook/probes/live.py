"""The machine we run on: subprocesses, files, environment, a target interpreter and a loopback server."""

import ctypes
import functools
import glob
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runbook.errors import BadParameter
from runbook.probe import Ran, Reply
from runbook.probes import ends
from runbook.workspace import Workspace, above

INSIDE = Path(__file__).parent.parent / "inside"
SECRET_NAMES = ("TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL")
SET_BUT_HIDDEN = "<set, not shown>"
PR_SET_PDEATHSIG = 1
GRACE_S = 2.0
_WHERE = "import sys,sysconfig;print(sys.prefix);print(sysconfig.get_path('purelib'))"


def is_secret_name(name: str) -> bool:
    """True when an environment variable of this name is taken to hold a secret."""
    return any(word in name.upper() for word in SECRET_NAMES)


@functools.cache
def die_with_parent() -> Callable[[], None]:
    """A ``preexec_fn`` by which the kernel kills the child when the thread that started it ends.

    A notebook kernel or ``runbook run`` that is killed with SIGKILL can clean nothing up; this leaves no orphan.
    libc is loaded here, before any fork: the function itself only makes one system call (prctl(2)).
    """
    libc = ctypes.CDLL(None)

    def set_death_signal() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    return set_death_signal


def target_env(work: Workspace, stack: str, python: Path | None) -> dict[str, str]:
    """The environment of every child of a target interpreter, checks and server alike.

    The interpreter's folder comes first on PATH, as in an activated environment: FlashInfer calls ``ninja`` by its bare
    name, and the target's wheels bring it (https://github.com/vllm-project/vllm/issues/49029).

    Compile caches go to a lasting folder of the workspace: by default Triton and inductor write to /tmp, and a start
    that loads its graph from cache looks for Triton kernels elsewhere than the start that compiled them
    (measured on an H200: 82 s and more of compiling again, although 2066 files lay on disk).
    """
    caches = work.caches(stack)
    env = dict(os.environ)
    for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONDONTWRITEBYTECODE", "MPLBACKEND"):
        env.pop(name, None)
    if python is not None:
        env["PATH"] = f"{python.parent}{os.pathsep}{env.get('PATH', os.defpath)}"
    env.update(
        PYTHONNOUSERSITE="1",
        PYTHONUNBUFFERED="1",
        NO_COLOR="1",
        VLLM_NO_USAGE_STATS="1",
        # Workers meet on this address; by default on the machine's outward one, which a closed network may not reach.
        VLLM_HOST_IP="127.0.0.1",
        DO_NOT_TRACK="1",
        VLLM_CACHE_ROOT=str(caches / "vllm"),
        TORCHINDUCTOR_CACHE_DIR=str(caches / "inductor"),
        TRITON_CACHE_DIR=str(caches / "triton"),
        FLASHINFER_WORKSPACE_BASE=str(caches),
    )
    return env


class LiveProbe:
    """This machine. ``target`` is an interpreter to examine; ``model`` the checkpoint folder in use."""

    machine = "live"

    def __init__(
        self, work: Workspace, stack: str = "", target: Path | None = None, model: Path | None = None
    ) -> None:
        self.work = work
        self.stack = stack
        self.target = target
        self.model = model

    @property
    def has_target(self) -> bool:
        """True when the target interpreter exists."""
        return self.target is not None and self.target.exists()

    @functools.cached_property
    def places(self) -> dict[str, str]:
        """What each placeholder stands for on this machine; those without an answer are left out."""
        places = {
            "{work}": str(self.work.root),
            "{home}": os.environ.get("HOME", ""),
            "{own}": str(Path(sys.executable).parent),
            "{disk}": str(above(self.work.root)),
        }
        if self.model is not None:
            places["{model}"] = str(self.model)
        if self.target is not None:
            places["{python}"] = str(self.target)
            if self.has_target:
                ran = self._spawn(
                    [str(self.target), "-I", "-c", _WHERE],
                    20.0,
                    target_env(self.work, self.stack, self.target),
                )
                if ran.ok:
                    places["{prefix}"], places["{site}"] = ran.out.splitlines()[:2]
        return {name: place for name, place in places.items() if place}

    def resolve(self, text: str) -> str:
        """``text`` with placeholders replaced; one that has no answer here stays and matches no file."""
        for name in ("{work}", "{home}", "{own}", "{disk}", "{model}", "{python}", "{prefix}", "{site}"):
            if name in text:
                text = text.replace(name, self.places.get(name, name))
        # Not a place that stays: every start of a server takes another port.
        return text.replace("{port}", str(self._server_port() or "{port}")) if "{port}" in text else text

    def _server_port(self) -> int | None:
        try:
            port = json.loads((self.work.jobs / "server.json").read_text(encoding="utf-8"))["port"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return port if isinstance(port, int) else None

    def _server_end(self) -> str:
        """How the last one ended, by its end record."""
        try:
            end = json.loads((self.work.jobs / "server.ended.json").read_text(encoding="utf-8"))
            how = f"exit code {end['exit_code']}" if end["signal"] is None else _signal_name(end["signal"])
            return f"the last one: {end['reason']}, {how}, after {end['seconds']:.0f} s"
        except (OSError, ValueError, KeyError, TypeError):
            return "jobs/server.json names no port"

    def run(self, argv: list[str], timeout_s: float = 20.0) -> Ran:
        """Run a program without a shell, killed at its deadline."""
        ran = self._spawn(
            [self.resolve(word) for word in argv], timeout_s, {**os.environ, "LC_ALL": "C", "LANG": "C"}
        )
        return Ran(tuple(argv), ran.rc, ran.out, ran.err, ran.missing, ran.timed_out)

    def _spawn(self, argv: list[str], timeout_s: float, env: dict[str, str], stdin: str = "") -> Ran:
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
                text=True,
                errors="replace",
                start_new_session=True,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - the function is one system call, see there
            )
        except OSError as why:
            return Ran(tuple(argv), 127, "", str(why), missing=True)
        try:
            out, err = child.communicate(stdin, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            try:
                out, err = child.communicate(timeout=GRACE_S)
            except subprocess.TimeoutExpired as still:
                # A grandchild in a session of its own holds the pipes; it is not waited for.
                out, err = (_text(part) for part in (still.stdout, still.stderr))
                for pipe in (child.stdout, child.stderr):
                    if pipe:
                        pipe.close()
            return Ran(tuple(argv), child.wait(), out, err, timed_out=True)
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise
        return Ran(tuple(argv), child.returncode, out, err)

    def read_text(self, path: str) -> str | None:
        """The text of a file, or None; of a large log its two ends (see ``probes/ends.py``)."""
        try:
            place = Path(self.resolve(path))
            # A pipe of that name would keep us waiting for ever.
            return None if place.is_fifo() else ends.text(place)
        except (OSError, ValueError):
            return None

    def glob(self, pattern: str) -> tuple[str, ...]:
        """Matching paths, sorted, written with the placeholder that begins the pattern."""
        real = self.resolve(pattern)
        found = sorted(glob.glob(real, recursive=True))  # noqa: PTH207 - Path.glob takes no absolute pattern
        for name, place in self.places.items():
            if pattern.startswith(name):
                found = [name + path[len(place) :] for path in found]
        return tuple(found)

    def env(self, name: str) -> str | None:
        """An environment variable; of one whose name speaks of a secret only whether it is set, of a proxy no credentials."""
        value = os.environ.get(name)
        if value is not None and name.lower().endswith("_proxy"):
            # user:password@ before the host, with or without a scheme, and passwords may hold an @ of their own.
            value = re.sub(r"^(\w+://)?.*@", r"\1<credentials>@", value)
        return SET_BUT_HIDDEN if value is not None and is_secret_name(name) else value

    def inside(
        self, script: str, args: dict[str, str] | None = None, timeout_s: float = 120.0
    ) -> dict[str, Any]:
        """The JSON object of ``inside/<script>.py``, run by the target interpreter; a broken child is an answer."""
        path = INSIDE / f"{script}.py"
        if not path.exists():
            raise BadParameter(
                f"there is no script inside/{script}.py", "a script of the package", "check the name"
            )
        if not self.has_target:
            return {"error": f"no target interpreter at {self.target}", "rc": 127, "stderr": ""}
        words = [
            word for key, value in sorted((args or {}).items()) for word in (f"--{key}", self.resolve(value))
        ]
        env = target_env(self.work, self.stack, self.target)
        key = self.read_text("{work}/jobs/server.key")
        if key:
            env["VLLM_API_KEY"] = key
        ran = self._spawn([str(self.target), str(path), *words], timeout_s, env)
        return parse_inside(ran, timeout_s)

    def http(self, method: str, path: str, json: dict[str, Any] | None = None) -> Reply:
        """One request, without a key, to the server whose state file is ``jobs/server.json``; status 0 when there is none."""
        import httpx  # noqa: PLC0415 - a quarter of a second that static checks need not pay

        port = self._server_port()
        if port is None:
            return Reply(0, f"no server of this workspace is running ({self._server_end()})")
        try:
            reply = httpx.request(
                method,
                f"http://127.0.0.1:{port}{path}",
                json=json,
                timeout=120.0,
                trust_env=False,
            )
        except httpx.HTTPError as why:
            return Reply(0, f"{type(why).__name__}: {why}")
        return Reply(reply.status_code, reply.text)


def _text(part: str | bytes | None) -> str:
    """What a timed-out child had said: bytes even in text mode (Python issue 87597)."""
    return part.decode(errors="replace") if isinstance(part, bytes) else part or ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def parse_inside(ran: Ran, timeout_s: float) -> dict[str, Any]:
    """The JSON object a script printed last, or what kept it from printing one."""
    if ran.timed_out:
        return {"error": f"no answer within {timeout_s:.0f} s", "rc": ran.rc, "stderr": ran.err[-2000:]}
    lines = [line for line in ran.out.splitlines() if line.startswith("{")]
    try:
        answer = json.loads(lines[-1])
    except (IndexError, ValueError):
        name = _signal_name(-ran.rc) if ran.rc < 0 else f"exit code {ran.rc}"
        return {
            "error": f"the child ended without an answer ({name})",
            "rc": ran.rc,
            "stderr": ran.err[-2000:],
        }
    return (
        answer
        if isinstance(answer, dict)
        else {"error": "not a JSON object", "rc": ran.rc, "stderr": ran.err[-2000:]}
    )
