"""Set the runbook up on a machine that has Python and pip, then run it.

    python3 bootstrap.py run [arguments]       set up, then `runbook run [arguments]`
    python3 bootstrap.py test [arguments]      set up with the developers' tools, then all that CI checks;
                                               the arguments go to pytest
    python3 bootstrap.py setup [--dev]         set up only
    python3 bootstrap.py WORD [arguments]      set up, then `runbook WORD [arguments]`

It needs Linux, Python 3.10 to 3.13 and pip: no venv module, no ensurepip, no root. Everything it makes lies in two
folders beside this file, `.bootstrap/` (uv) and `.venv/` (the runbook and what it imports); remove both to start over.
All of it comes from the hashed locks in `requirements/`. A finished set-up is noted in `.venv/bootstrap-stamp`; while
that note still fits, a call goes straight to the command. The command replaces this process, so signals and exit codes
are its own. A set-up that cannot be done ends with exit code 2. Only `test`, as root where apt-get is, installs
something outside: Debian's chromium for the browser tests, if there is no chromium or chrome yet.

A mirror or proxy: pip's and uv's own settings (PIP_*, pip.conf, UV_*, uv.toml) hold. uv does not read pip's, so for
the set-up alone pip's index-url, extra-index-url and find-links are handed to uv, unless uv has an index setting of
its own; pip's cert, proxy, timeout and trusted-host are handed over where the matching variable is unset. They travel
in the environment only and are not printed, since such an address may hold a password. With pip's no-index (a folder of
wheels as find-links) uv stays off the network altogether.
"""

from __future__ import annotations  # SyntaxError? This Python is too old: use Python 3.10 to 3.13

import ast
import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = Path(__file__).resolve().parent
BOOTSTRAP = ROOT / ".bootstrap"
VENV = ROOT / ".venv"
STAMP = VENV / "bootstrap-stamp"
LOCKS = ROOT / "requirements"

OLDEST, NEWEST = (3, 10), (3, 13)
MACHINES = ("x86_64", "aarch64")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
TELL_EVERY_S = 15
TAIL_LINES = 8

# What CI checks, in this order; pytest comes after these, with the user's arguments.
CHECKS = (
    ("ruff", "check"),
    ("ruff", "format", "--check"),
    ("mypy", "--strict"),
    ("lint-imports",),
)

UV_INDEX_SETTINGS = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")
INDEX_FROM_PIP = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_OFFLINE",
}
NETWORK_FROM_PIP = {
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "trusted-host": "UV_INSECURE_HOST",
}


class SetupError(Exception):
    """The set-up cannot go on: what was seen, what it needs, what the user can do."""

    def __init__(self, seen: str, expected: str, do: str) -> None:
        super().__init__(f"seen:     {seen}\nexpected: {expected}\ndo:       {do}")


def say(text: str) -> None:
    """Print one line for people; standard output belongs to the command."""
    print(f"bootstrap: {text}", file=sys.stderr, flush=True)


def require_machine(version: tuple[int, int], system: str, machine: str) -> None:
    """Stop with a clear word on a Python, system or processor that the locks do not cover."""
    span = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
    if not OLDEST <= version <= NEWEST:
        raise SetupError(
            f"Python {version[0]}.{version[1]}, at {sys.executable}",
            f"Python {span}",
            "start it with another one, for example: python3.12 bootstrap.py run",
        )
    if system != "Linux" or machine not in MACHINES:
        raise SetupError(
            f"{system} on {machine}",
            f"Linux on {' or '.join(MACHINES)}",
            "run it on such a machine, or in a container or virtual machine of that kind",
        )


def without_passwords(text: str) -> str:
    """Blank the user part of every address in a tool's output."""
    return re.sub(r"://[^/\s]+@", "://****@", text)


def run_quietly(
    what: str, argv: Sequence[str], environ: Mapping[str, str], *, keep: Sequence[int] = ()
) -> str:
    """Run a tool to its end and return its output; say that it is still at it now and then.

    Args:
        what: the work in words, for the lines printed.
        argv: the command.
        environ: its whole environment.
        keep: descriptors that the tool holds on to. With the lock's among them, the lock outlives a killed bootstrap
            until the tool that it left running ends.
    """
    started = time.monotonic()
    with subprocess.Popen(
        argv,
        cwd=ROOT,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=keep,
    ) as tool:
        while True:
            try:
                output, _ = tool.communicate(timeout=TELL_EVERY_S)
            except subprocess.TimeoutExpired:
                say(f"{what}: still at it after {time.monotonic() - started:.0f} s")
            else:
                break
    if tool.returncode:
        tail = "\n".join(without_passwords(output).strip().splitlines()[-TAIL_LINES:])
        raise SetupError(
            f"{what}: exit code {tool.returncode}, and it said:\n{tail}",
            "exit code 0",
            "if that names the network, a time-out or an index: check that the package index is reachable from here "
            "(a mirror or proxy set for pip is used for uv too), then give the same command again; it goes on from here",
        )
    say(f"{what}: done in {time.monotonic() - started:.1f} s")
    return output


@contextlib.contextmanager
def only_one() -> Iterator[int]:
    """Hold the set-up's lock; yields its descriptor."""
    BOOTSTRAP.mkdir(exist_ok=True)
    with (BOOTSTRAP / "lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another set-up is at work here; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle.fileno()


# --- uv, by pip ------------------------------------------------------------------------------------------------------


def uv_version() -> str:
    """The version of uv that the lock pins."""
    found = re.match(r"uv==(\S+)", (LOCKS / "uv.txt").read_text(encoding="utf-8"))
    if found is None:
        raise SetupError(
            "no pin in requirements/uv.txt", "uv==VERSION on its first line", "restore it from git"
        )
    return found[1]


def base_python() -> str:
    """This interpreter, or the one that its virtual environment (perhaps our own) was made from."""
    if sys.prefix == sys.base_prefix:
        return sys.executable
    return str(Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}"))


def python_with_pip() -> str:
    """An interpreter that has pip: this one, else the one that its virtual environment was made from."""
    for python in dict.fromkeys((sys.executable, base_python())):
        probe = [python, "-c", "import importlib.util as u; raise SystemExit(u.find_spec('pip') is None)"]
        if subprocess.run(probe, cwd="/", check=False).returncode == 0:
            return python
    raise SetupError(
        f"no pip in {sys.executable}",
        "a Python that can say: python3 -m pip --version",
        "install pip (Debian and Ubuntu: apt-get install python3-pip; Fedora and RHEL: dnf install python3-pip), "
        "or start bootstrap.py with a Python that has it",
    )


def pip_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The user's environment, less the pip settings that do not go with `pip install --target`."""
    return {
        **environ,
        "PIP_USER": "0",
        "PIP_REQUIRE_VIRTUALENV": "0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
    }


def ensure_uv(lock: int) -> Path:
    """Fetch the pinned uv into `.bootstrap/` unless it is there."""
    version = uv_version()
    home = BOOTSTRAP / f"uv-{version}"
    uv = home / "bin" / "uv"
    if uv.is_file():
        return uv
    partial = home.with_suffix(".tmp")
    for leftover in (home, partial):
        shutil.rmtree(leftover, ignore_errors=True)
    argv = [python_with_pip(), "-m", "pip", "install", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    argv += ["--target", str(partial), "-r", str(LOCKS / "uv.txt")]
    run_quietly(f"fetching uv {version} with pip", argv, pip_environ(os.environ), keep=[lock])
    partial.rename(home)
    return uv


# --- pip's settings, for uv ------------------------------------------------------------------------------------------


def read_pip_config(listing: str) -> dict[str, str]:
    """The settings in `pip config list`, by name; as in pip, `install.` beats `global.` and the environment beats both."""
    found: dict[str, str] = {}
    for section in ("global.", "install.", ":env:."):
        for line in listing.splitlines():
            name, equals, value = line.partition("=")
            if equals and name.startswith(section):
                with contextlib.suppress(ValueError, SyntaxError):
                    found[name[len(section) :]] = str(ast.literal_eval(value))
    return found


def uv_has_index(environ: Mapping[str, str]) -> bool:
    """Whether the user told uv itself where packages are, by a variable or in a uv.toml."""
    if any(environ.get(name) for name in UV_INDEX_SETTINGS):
        return True
    home = Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    files = [home / "uv" / "uv.toml", Path("/etc/xdg/uv/uv.toml"), Path("/etc/uv/uv.toml")]
    files.append(Path(environ.get("UV_CONFIG_FILE", "")))
    return any(
        re.search("index|find-links", file.read_text(encoding="utf-8")) for file in files if file.is_file()
    )


def is_missing_folder(value: str) -> bool:
    """Whether a setting names a file or folder that is not there, which pip passes over and uv does not."""
    path = value.removeprefix("file://")
    return path.startswith("/") and not Path(path).exists()


def uv_settings(pip: Mapping[str, str], environ: Mapping[str, str], *, own_index: bool) -> dict[str, str]:
    """What uv must be told of pip's settings, as environment variables.

    Every file is checked against the lock's hashes, so it may come from whichever index has it, as with pip.
    """
    table = dict(NETWORK_FROM_PIP)
    if not own_index:
        table.update(INDEX_FROM_PIP)
    told: dict[str, str] = {}
    for name, variable in table.items():
        values = [value for value in pip.get(name, "").split() if not is_missing_folder(value)]
        if values and variable not in environ:
            told[variable] = ("," if variable == "UV_FIND_LINKS" else " ").join(values)
    if "UV_INDEX" in told and "UV_INDEX_STRATEGY" not in environ:
        told["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return told


def uv_environ() -> dict[str, str]:
    """The user's environment, with pip's settings told to uv, and without downloads of a Python."""
    pip: dict[str, str] = {}
    with contextlib.suppress(SetupError):
        argv = [python_with_pip(), "-m", "pip", "config", "list"]
        listing = subprocess.run(
            argv, cwd=ROOT, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        pip = read_pip_config(listing.stdout)
    told = uv_settings(pip, os.environ, own_index=uv_has_index(os.environ))
    if told:
        say(f"pip's settings handed to uv as {', '.join(sorted(told))}")
    return {**os.environ, **told, "UV_PYTHON_DOWNLOADS": "never"}


# --- the environment -------------------------------------------------------------------------------------------------


def lock_of(profile: str) -> Path:
    """The lock of a profile: `runbook` or `dev`."""
    return LOCKS / f"{profile}.txt"


def place() -> str:
    """What a virtual environment is bound to: its folder and its Python."""
    bound_to = f"{ROOT}\n{os.path.realpath(base_python())}\n{sys.version}"
    return hashlib.sha256(bound_to.encode()).hexdigest()[:16]


def stamp(profile: str) -> str:
    """The note of a finished set-up: the profile, what the environment is bound to, and what went into it."""
    content = hashlib.sha256(lock_of(profile).read_bytes() + (ROOT / "pyproject.toml").read_bytes())
    return f"{profile} {place()} {content.hexdigest()[:32]}"


def read_stamp() -> str:
    """The note in `.venv`; empty where there is none, or where its Python is gone."""
    if not os.access(VENV / "bin" / "python", os.X_OK):
        return ""
    try:
        return STAMP.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def profile_for(asked: str, noted: str) -> str:
    """The profile to set up: an environment with the developers' tools keeps them."""
    return "dev" if noted.startswith("dev ") else asked


def is_ready(asked: str) -> bool:
    """Whether `.venv` is what the locks and pyproject.toml say, for that profile or a larger one."""
    noted = read_stamp()
    return noted != "" and noted == stamp(profile_for(asked, noted))


def set_up(asked: str) -> None:
    """Bring `.venv` to what the lock says, unless its stamp says that it is so already."""
    if is_ready(asked):
        return
    started = time.monotonic()
    with only_one() as lock:
        if is_ready(asked):
            return
        uv = str(ensure_uv(lock))
        environ = uv_environ()
        noted = read_stamp()
        profile = profile_for(asked, noted)
        STAMP.unlink(missing_ok=True)
        if f" {place()} " not in noted:
            argv = [uv, "venv", "--clear", "--python", base_python(), str(VENV)]
            run_quietly(f"making .venv with Python {platform.python_version()}", argv, environ, keep=[lock])
        python = ["--python", str(VENV / "bin" / "python")]
        # Compiled once here: where Python may not write bytecode, every command would pay for it again (0.9 s, not 0.3).
        strict = ["--require-hashes", "--no-build", "--compile-bytecode"]
        argv = [uv, "pip", "sync", *python, *strict, str(lock_of(profile))]
        run_quietly(f"installing requirements/{profile}.txt", argv, environ, keep=[lock])
        argv = [
            uv,
            "pip",
            "install",
            *python,
            "--no-deps",
            "--no-build-isolation",
            "--offline",
            "-e",
            str(ROOT),
        ]
        run_quietly("installing the runbook itself", argv, {**environ, "UV_REQUIRE_HASHES": "0"}, keep=[lock])
        fresh = STAMP.with_suffix(".tmp")
        fresh.write_text(stamp(profile) + "\n", encoding="utf-8")
        fresh.replace(STAMP)
    say(f"set up in {time.monotonic() - started:.1f} s")


def ensure_browser() -> None:
    """Give the browser tests a chromium: install Debian's as root, else say what is missing."""
    if any(shutil.which(name) for name in BROWSERS):
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        try:
            run_quietly("apt-get update", ["apt-get", "update"], environ)
            argv = ["apt-get", "install", "-y", "--no-install-recommends", "chromium"]
            run_quietly("installing chromium with apt-get", argv, environ)
        except SetupError as error:
            say(f"chromium could not be installed\n{error}")
        else:
            return
    say("no chromium on PATH: the browser tests will fail; install it (Debian: apt-get install chromium)")


# --- the commands ----------------------------------------------------------------------------------------------------


def become(argv: Sequence[str]) -> NoReturn:
    """Let a command of `.venv` take this process's place."""
    program = VENV / "bin" / argv[0]
    if not program.is_file():
        raise SetupError(
            f"no {argv[0]} command in .venv",
            "one, put there by the set-up",
            "rm -r .venv, then the same command again",
        )
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(program, [str(program), *argv[1:]])  # noqa: S606  (no shell is wanted)


def run_checks(arguments: Sequence[str]) -> NoReturn:
    """Run all that CI checks and stop at the first failure, with its exit code."""
    ensure_browser()
    os.chdir(ROOT)
    for check in CHECKS:
        say(" ".join(check))
        code = subprocess.run([VENV / "bin" / check[0], *check[1:]], check=False).returncode
        if code:
            say(f"{' '.join(check)}: failed with exit code {code}")
            sys.exit(code)
    say("pytest")
    become(["pytest", *arguments])


def main(arguments: Sequence[str]) -> NoReturn:
    """Set up, then do as told."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        sys.exit(0 if arguments else 2)
    word, rest = arguments[0], arguments[1:]
    try:
        require_machine(sys.version_info[:2], platform.system(), platform.machine())
        set_up("dev" if word == "test" or (word == "setup" and "--dev" in rest) else "runbook")
        if word == "setup":
            sys.exit(0)
        if word == "test":
            run_checks(rest)
        become(["runbook", *arguments])
    except SetupError as error:
        say(f"stopped\n{error}")
        sys.exit(2)
    except OSError as error:
        told = SetupError(
            str(error), "a whole checkout, in a folder that may be written to", "put that right first"
        )
        say(f"stopped\n{told}")
        sys.exit(2)
    except KeyboardInterrupt:
        say("stopped by the keyboard; the next call takes it up again")
        sys.exit(130)


if __name__ == "__main__":
    main(sys.argv[1:])
