"""bootstrap.py without a network: its words, its translation of pip's settings, its stamp and its lock."""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

import bootstrap

LOCKS = Path(__file__).parents[1] / "requirements"
MIRROR = "https://bob:s3cr3t@mirror.example/simple"


def pins(lock: str) -> set[str]:
    return set(re.findall(r"^[a-z0-9].*?(?= \\$)", (LOCKS / lock).read_text(encoding="utf-8"), re.MULTILINE))


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of its own, so that no test touches the real .venv."""
    (tmp_path / "requirements").mkdir()
    for name in ("runbook.txt", "dev.txt", "uv.txt"):
        (tmp_path / "requirements" / name).write_text("uv==1.2.3\n", encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text("", encoding="utf-8")
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "LOCKS", tmp_path / "requirements")
    monkeypatch.setattr(bootstrap, "BOOTSTRAP", tmp_path / ".bootstrap")
    monkeypatch.setattr(bootstrap, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(bootstrap, "STAMP", tmp_path / ".venv" / "bootstrap-stamp")
    return tmp_path


class Tools:
    """Stands in for uv: notes what it was asked, makes what `uv venv` makes, fails where told."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fails = ""

    def __call__(
        self, what: str, argv: Sequence[str], environ: Mapping[str, str], *, keep: Sequence[int] = ()
    ) -> str:
        assert keep
        assert environ is not None
        verb = next(word for word in ("venv", "sync", "install") if word in argv)
        self.asked.append(f"{verb} {Path(argv[-1]).stem}" if verb == "sync" else verb)
        if verb == self.fails:
            raise bootstrap.SetupError(what, "", "")
        if verb == "venv":
            python = Path(argv[-1]) / "bin" / "python"
            python.parent.mkdir(parents=True, exist_ok=True)
            python.unlink(missing_ok=True)
            python.symlink_to(sys.executable)
        return ""

    def take(self) -> list[str]:
        asked, self.asked = self.asked, []
        return asked


@pytest.fixture
def tools(tree: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    tools = Tools()
    monkeypatch.setattr(bootstrap, "run_quietly", tools)
    monkeypatch.setattr(bootstrap, "ensure_uv", lambda _lock: tree / "uv")
    monkeypatch.setattr(bootstrap, "uv_environ", dict)
    return tools


class TestWords:
    @pytest.mark.parametrize("version", [(3, 9), (3, 14), (2, 7)])
    def test_another_python_is_named_with_the_span(self, version: tuple[int, int]) -> None:
        with pytest.raises(bootstrap.SetupError) as caught:
            bootstrap.require_machine(version, "Linux", "x86_64")
        seen, expected, do = str(caught.value).splitlines()
        assert seen == f"seen:     Python {version[0]}.{version[1]}, at {sys.executable}"
        assert expected == "expected: Python 3.10 to 3.13"
        assert do.startswith("do:       start it with another one")

    @pytest.mark.parametrize(
        ("system", "machine"), [("Darwin", "arm64"), ("Windows", "AMD64"), ("Linux", "riscv64")]
    )
    def test_another_system_is_named(self, system: str, machine: str) -> None:
        with pytest.raises(
            bootstrap.SetupError, match=f"{system} on {machine}\nexpected: Linux on x86_64 or aarch64"
        ):
            bootstrap.require_machine((3, 12), system, machine)

    @pytest.mark.parametrize("version", [(3, 10), (3, 11), (3, 12), (3, 13)])
    @pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
    def test_what_the_locks_cover_passes(self, version: tuple[int, int], machine: str) -> None:
        bootstrap.require_machine(version, "Linux", machine)

    def test_a_python_too_old_for_the_syntax_shows_the_span(self) -> None:
        # Python 3.6 stops at this line with a SyntaxError, and prints the line.
        line = next(
            line for line in Path(bootstrap.__file__).read_text().splitlines() if "__future__" in line
        )
        assert "use Python 3.10 to 3.13" in line

    def test_no_pip_says_how_to_get_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        without = shutil.which("false")
        assert without is not None
        monkeypatch.setattr(sys, "executable", without)
        monkeypatch.setattr(bootstrap, "base_python", lambda: without)
        with pytest.raises(bootstrap.SetupError, match=r"no pip in .*\n.*\n.*apt-get install python3-pip"):
            bootstrap.python_with_pip()

    def test_an_error_is_three_lines_and_exit_code_2(
        self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("platform.system", lambda: "Darwin")
        with pytest.raises(SystemExit) as caught:
            bootstrap.main(["run"])
        out, err = capfd.readouterr()
        assert caught.value.code == 2
        assert out == ""
        assert [line.split(":")[0] for line in err.splitlines()] == ["bootstrap", "seen", "expected", "do"]

    def test_a_file_error_is_told_likewise(
        self, tree: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(bootstrap, "BOOTSTRAP", tree / "absent" / "folder")
        with pytest.raises(SystemExit) as caught:
            bootstrap.main(["setup"])
        assert caught.value.code == 2
        assert "seen:     [Errno 2] No such file or directory" in capfd.readouterr().err

    @pytest.mark.parametrize(("arguments", "code"), [([], 2), (["--help"], 0), (["-h"], 0)])
    def test_help_is_the_docstring(
        self, arguments: list[str], code: int, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as caught:
            bootstrap.main(arguments)
        assert caught.value.code == code
        assert "python3 bootstrap.py run" in capfd.readouterr().out

    def test_a_failed_tool_is_quoted_without_passwords(self) -> None:
        script = f"print('first'); print('looking at {MIRROR}'); raise SystemExit(3)"
        with pytest.raises(bootstrap.SetupError) as caught:
            bootstrap.run_quietly("fetching", [sys.executable, "-c", script], os.environ)
        text = str(caught.value)
        assert "fetching: exit code 3" in text
        assert "https://****@mirror.example/simple" in text
        assert "s3cr3t" not in text
        assert "index is reachable" in text

    def test_a_long_step_says_that_it_is_still_at_it(
        self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(bootstrap, "TELL_EVERY_S", 0.05)
        argv = [sys.executable, "-c", "import time; time.sleep(0.3); print('out')"]
        assert bootstrap.run_quietly("waiting", argv, os.environ) == "out\n"
        out, err = capfd.readouterr()
        assert out == ""
        assert "waiting: still at it after" in err
        assert re.search(r"waiting: done in \d+\.\d s\n$", err)


class TestPipSettings:
    def test_environment_beats_install_beats_global(self) -> None:
        listing = (
            ":env:.index-url='c'\nglobal.index-url='a'\ninstall.index-url='b'\n"
            "global.find-links='/wheels\\n/more'\nnot a setting\nglobal.broken='\n"
        )
        assert bootstrap.read_pip_config(listing) == {"index-url": "c", "find-links": "/wheels\n/more"}

    def test_a_mirror_is_handed_over(self) -> None:
        assert bootstrap.uv_settings({"index-url": MIRROR}, {}, own_index=False) == {
            "UV_DEFAULT_INDEX": MIRROR
        }

    def test_several_indexes_are_searched_as_pip_does(self, tmp_path: Path) -> None:
        pip = {
            "extra-index-url": "https://a.example\nhttps://b.example",
            "find-links": f"{tmp_path} https://c.example",
        }
        assert bootstrap.uv_settings(pip, {}, own_index=False) == {
            "UV_INDEX": "https://a.example https://b.example",
            "UV_INDEX_STRATEGY": "unsafe-best-match",
            "UV_FIND_LINKS": f"{tmp_path},https://c.example",
        }

    def test_a_folder_that_is_not_there_is_passed_over(self, tmp_path: Path) -> None:
        gone = tmp_path / "gone"
        pip = {"extra-index-url": f"file://{gone}/simple", "find-links": str(gone)}
        assert bootstrap.uv_settings(pip, {}, own_index=False) == {}

    def test_uvs_own_index_wins_and_the_network_settings_still_go(self, tmp_path: Path) -> None:
        bundle = tmp_path / "ca.pem"
        bundle.touch()
        pip = {
            "index-url": MIRROR,
            "no-index": "1",
            "cert": str(bundle),
            "default-timeout": "60",
            "proxy": "p.example:1",
        }
        assert bootstrap.uv_settings(pip, {"UV_HTTP_TIMEOUT": "5"}, own_index=True) == {
            "SSL_CERT_FILE": str(bundle),
            "ALL_PROXY": "p.example:1",
        }

    def test_no_index_keeps_uv_off_the_network(self, tmp_path: Path) -> None:
        pip = {"no-index": "true", "find-links": str(tmp_path)}
        assert bootstrap.uv_settings(pip, {}, own_index=False) == {
            "UV_OFFLINE": "true",
            "UV_FIND_LINKS": str(tmp_path),
        }

    @pytest.mark.parametrize("name", bootstrap.UV_INDEX_SETTINGS)
    def test_a_uv_variable_counts_as_uvs_own_index(self, name: str, tmp_path: Path) -> None:
        assert bootstrap.uv_has_index({name: "https://a.example", "XDG_CONFIG_HOME": str(tmp_path)})

    @pytest.mark.parametrize(
        ("text", "own"), [("[[index]]\nurl = 'x'\n", True), ("offline = false\n", False)]
    )
    def test_a_uv_toml_counts_where_it_names_an_index(self, text: str, own: bool, tmp_path: Path) -> None:  # noqa: FBT001
        (tmp_path / "uv").mkdir()
        (tmp_path / "uv" / "uv.toml").write_text(text, encoding="utf-8")
        assert bootstrap.uv_has_index({"XDG_CONFIG_HOME": str(tmp_path)}) is own
        assert bootstrap.uv_has_index({"UV_CONFIG_FILE": str(tmp_path / "uv" / "uv.toml")}) is own

    def test_only_the_names_are_printed(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        pip = tmp_path / "python"
        pip.write_text(f"#!/bin/sh\necho \"global.index-url='{MIRROR}'\"\n", encoding="utf-8")
        pip.chmod(0o755)
        monkeypatch.setattr(bootstrap, "python_with_pip", lambda: str(pip))
        monkeypatch.setattr(bootstrap, "uv_has_index", lambda _environ: False)
        monkeypatch.delenv("UV_DEFAULT_INDEX", raising=False)
        environ = bootstrap.uv_environ()
        assert environ["UV_DEFAULT_INDEX"] == MIRROR
        assert environ["UV_PYTHON_DOWNLOADS"] == "never"
        out, err = capfd.readouterr()
        assert out == ""
        assert "UV_DEFAULT_INDEX" in err
        assert "s3cr3t" not in err
        assert "mirror.example" not in err

    def test_pip_settings_that_forbid_a_target_are_set_aside(self) -> None:
        environ = bootstrap.pip_environ({"PIP_USER": "1", "PIP_REQUIRE_VIRTUALENV": "1", "PIP_PROXY": "p"})
        assert (environ["PIP_USER"], environ["PIP_REQUIRE_VIRTUALENV"], environ["PIP_PROXY"]) == (
            "0",
            "0",
            "p",
        )


class TestStamp:
    def test_the_second_call_does_nothing(self, tools: Tools) -> None:
        bootstrap.set_up("runbook")
        assert tools.take() == ["venv", "sync runbook", "install"]
        bootstrap.set_up("runbook")
        assert tools.take() == []

    @pytest.mark.parametrize("name", ["pyproject.toml", "requirements/runbook.txt"])
    def test_a_change_is_taken_up_in_place(self, name: str, tree: Path, tools: Tools) -> None:
        bootstrap.set_up("runbook")
        tools.take()
        (tree / name).write_text("changed\n", encoding="utf-8")
        bootstrap.set_up("runbook")
        assert tools.take() == ["sync runbook", "install"]

    def test_the_developers_tools_are_added_and_kept(self, tree: Path, tools: Tools) -> None:
        bootstrap.set_up("runbook")
        bootstrap.set_up("dev")
        assert tools.take()[3:] == ["sync dev", "install"]
        bootstrap.set_up("runbook")
        assert tools.take() == []
        (tree / "pyproject.toml").write_text("changed\n", encoding="utf-8")
        bootstrap.set_up("runbook")
        assert tools.take() == ["sync dev", "install"]

    @pytest.mark.parametrize("step", ["venv", "sync", "install"])
    def test_an_interrupted_set_up_starts_afresh(self, step: str, tools: Tools) -> None:
        tools.fails = step
        with pytest.raises(bootstrap.SetupError):
            bootstrap.set_up("runbook")
        assert not bootstrap.is_ready("runbook")
        tools.fails = ""
        tools.take()
        bootstrap.set_up("runbook")
        assert tools.take() == ["venv", "sync runbook", "install"]
        assert bootstrap.is_ready("runbook")

    def test_a_failed_change_does_not_leave_the_old_stamp(self, tree: Path, tools: Tools) -> None:
        bootstrap.set_up("runbook")
        before = (tree / "pyproject.toml").read_text(encoding="utf-8")
        (tree / "pyproject.toml").write_text("changed\n", encoding="utf-8")
        tools.fails = "sync"
        with pytest.raises(bootstrap.SetupError):
            bootstrap.set_up("runbook")
        (tree / "pyproject.toml").write_text(before, encoding="utf-8")
        assert not bootstrap.is_ready("runbook")

    def test_another_python_or_folder_makes_another_environment(
        self, tree: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bootstrap.set_up("runbook")
        tools.take()
        monkeypatch.setattr(bootstrap, "base_python", lambda: "/elsewhere/bin/python3")
        bootstrap.set_up("runbook")
        assert tools.take() == ["venv", "sync runbook", "install"]
        monkeypatch.setattr(bootstrap, "ROOT", tree / ".")
        assert bootstrap.is_ready("runbook")
        shutil.copy(tree / "pyproject.toml", tree / "requirements")
        monkeypatch.setattr(bootstrap, "ROOT", tree / "requirements")
        assert not bootstrap.is_ready("runbook")

    def test_a_python_that_is_gone_makes_another_environment(self, tree: Path, tools: Tools) -> None:
        bootstrap.set_up("runbook")
        tools.take()
        python = tree / ".venv" / "bin" / "python"
        python.unlink()
        python.symlink_to(tree / "gone")
        bootstrap.set_up("runbook")
        assert tools.take() == ["venv", "sync runbook", "install"]

    def test_the_command_takes_this_process_over(
        self, tree: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ran: list[list[str]] = []

        def execv(_program: Path, argv: list[str]) -> None:
            ran.append(argv)
            raise SystemExit(0)

        monkeypatch.setattr(os, "execv", execv)
        bootstrap.set_up("runbook")
        with pytest.raises(SystemExit) as caught:
            bootstrap.main(["check", "--list"])
        assert caught.value.code == 2  # the stand-in made no runbook command
        program = tree / ".venv" / "bin" / "runbook"
        program.touch()
        with pytest.raises(SystemExit) as caught:
            bootstrap.main(["check", "--list"])
        assert caught.value.code == 0
        assert ran == [[str(program), "check", "--list"]]
        assert tools.take() == ["venv", "sync runbook", "install"]

    @pytest.mark.parametrize(("failing", "ran"), [("", 5), ("mypy", 3)])
    def test_the_checks_stop_at_the_first_failure(
        self, failing: str, ran: int, tree: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(bootstrap, "ensure_browser", lambda: None)
        bootstrap.set_up("dev")
        log = tree / "log"
        for name in ("ruff", "mypy", "lint-imports", "pytest"):
            program = tree / ".venv" / "bin" / name
            code = 4 if name == failing else 0
            program.write_text(f'#!/bin/sh\necho "{name} $*" >> {log}\nexit {code}\n', encoding="utf-8")
            program.chmod(0o755)
        script = (
            "import bootstrap, pathlib\n"
            f"bootstrap.ROOT = pathlib.Path({str(tree)!r}); bootstrap.VENV = bootstrap.ROOT / '.venv'\n"
            "bootstrap.ensure_browser = lambda: None\n"
            "bootstrap.run_checks(['-k', 'word'])"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=Path(bootstrap.__file__).parent, check=False
        )
        lines = log.read_text(encoding="utf-8").splitlines()
        assert done.returncode == (4 if failing else 0)
        assert len(lines) == ran
        assert lines[0] == "ruff check"
        assert lines[-1] == ("mypy --strict" if failing else "pytest -k word")
        assert tools.take()[0] == "venv"


class TestLock:
    @staticmethod
    def is_held(folder: Path) -> bool:
        with (folder / "lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def test_it_is_held_and_let_go(self, tree: Path) -> None:
        with bootstrap.only_one():
            assert self.is_held(tree / ".bootstrap")
        assert not self.is_held(tree / ".bootstrap")

    @staticmethod
    def wait_until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def test_a_tool_left_running_by_a_killed_set_up_holds_it(self, tree: Path) -> None:
        note = tree / "pid"
        script = (
            "import bootstrap, os, pathlib\n"
            f"bootstrap.ROOT = pathlib.Path({str(tree)!r}); bootstrap.BOOTSTRAP = bootstrap.ROOT / '.bootstrap'\n"
            "with bootstrap.only_one() as lock:\n"
            f"    bootstrap.run_quietly('x', ['sh', '-c', 'echo $$ > {note}; exec sleep 60'], os.environ, keep=[lock])\n"
        )
        with subprocess.Popen([sys.executable, "-c", script], cwd=Path(bootstrap.__file__).parent) as killed:
            self.wait_until(lambda: note.is_file() and note.read_text(encoding="utf-8").endswith("\n"))
            killed.kill()
        tool = int(note.read_text(encoding="utf-8"))
        try:
            assert self.is_held(tree / ".bootstrap")
        finally:
            os.kill(tool, signal.SIGKILL)
        self.wait_until(lambda: not self.is_held(tree / ".bootstrap"))


class TestLocks:
    @pytest.mark.parametrize("lock", ["uv.txt", "runbook.txt", "dev.txt"])
    def test_every_pin_has_hashes_and_none_an_address_or_a_local_build(self, lock: str) -> None:
        text = (LOCKS / lock).read_text(encoding="utf-8")
        assert "://" not in text
        assert "file:" not in text
        assert pins(lock)
        for entry in re.split(r"\n(?=\S)", text.strip()):
            pin, *hashes = entry.splitlines()
            assert re.match(r"[a-z0-9-]+==[^\s+]+ ", pin)
            assert hashes
            assert all("--hash=sha256:" in line for line in hashes)

    def test_the_three_agree(self) -> None:
        assert pins("uv.txt") < pins("runbook.txt") < pins("dev.txt")
        assert f"uv=={bootstrap.uv_version()}" in pins("uv.txt")

    def test_what_builds_the_runbook_is_locked(self) -> None:
        build = (LOCKS / "build.in").read_text(encoding="utf-8").split()
        assert set(build) <= pins("runbook.txt")
        pyproject = (LOCKS.parent / "pyproject.toml").read_text(encoding="utf-8")
        required = re.search(r'^requires = \["(hatchling==[^"]+)"\]', pyproject, re.MULTILINE)
        assert required is not None
        assert required[1] in build
