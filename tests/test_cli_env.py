"""``runbook env`` from the command line on a small real stack: plan, build, verify, roll back, remove, adopt; both ways."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import wheels

from runbook import cli, pins, uv
from runbook.actions.builds import Builds
from runbook.workspace import Workspace

ROOT = Path(__file__).parents[1]
MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
NAME = "tiny"
MANIFEST = f"""
schema = "stack/1"
name = "{NAME}"
what = "two small packages."
why = "a target that is built in a second."
device = "cpu"
vllm = "0"
torch = "0"
python = ["{MINOR}"]
model = "tiny-qwen3"
distribution = "six"
flash_attn = "none"

[[pin]]
package = "glibc"
version = ">=2.17"
why = "Any Linux."
source = "https://peps.python.org/pep-0599/"
read = "2026-11-30"
"""
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    lines = (ROOT / "requirements" / "runbook.txt").read_text(encoding="utf-8").split("\n")
    rows: list[str] = []
    for name in ("six", "packaging"):
        start = next(at for at, line in enumerate(lines) if line.startswith(f"{name}=="))
        end = next(at for at in range(start + 1, len(lines)) if not lines[at].startswith("    --hash"))
        rows += lines[start:end]
    folder = tmp_path / "stacks" / NAME
    folder.mkdir(parents=True)
    (folder / "manifest.toml").write_text(MANIFEST, encoding="utf-8")
    (folder / f"py{MINOR.replace('.', '')}.txt").write_text("\n".join([*rows, ""]), encoding="utf-8")
    monkeypatch.setattr(pins, "STACKS", tmp_path / "stacks")
    monkeypatch.setattr(pins, "REHEARSAL", (NAME,))
    monkeypatch.setattr(pins, "MISSION", NAME)
    monkeypatch.setenv("RUNBOOK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("RUNBOOK_MACHINE", raising=False)
    monkeypatch.setenv("UV_OFFLINE", "0")
    monkeypatch.chdir(tmp_path)
    pins.stack.cache_clear()
    yield tmp_path / "home"
    pins.stack.cache_clear()


@pytest.fixture
def env(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """``runbook env WORDS``: exit code, stdout, stderr. Standard input is no terminal."""
    assert not home.exists()

    def ended(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["runbook", "env", *words])
        with Path(os.devnull).open(encoding="utf-8") as nothing:
            monkeypatch.setattr(sys, "stdin", nothing)
            with pytest.raises(SystemExit) as end:
                cli.main()
        code = end.value.code
        assert isinstance(code, int)
        return code, *capsys.readouterr()

    return ended


def builds(home: Path) -> Builds:
    return Builds(Workspace(home), NAME)


def site(home: Path) -> Path:
    current = builds(home).current()
    assert current is not None
    return current.site


def install(python: Path, *packages: str) -> None:
    subprocess.run(
        [uv.program(), "pip", "install", "-q", "--no-deps", "--python", python, *packages], check=True
    )


def test_nothing_is_touched_before_a_yes(env: Command, home: Path) -> None:
    code, out, _ = env("plan")
    assert code == 0
    assert "because    there is no finished target" in out
    assert "2 packages added" in out
    assert "undo       runbook env remove tiny" in out
    code, out, _ = env("build")
    assert code == 0
    assert out.rstrip().endswith("shown only; add --yes to do it")
    assert not home.exists()
    assert env("list") == (0, "no target is built yet: runbook env build\n", "")
    assert not home.exists()


def test_built_verified_changed_found_out_mended_and_gone_back(env: Command, home: Path) -> None:
    code, out, _ = env("build", "--yes")
    assert code == 0
    assert "every one as its package recorded it" in out
    first = builds(home).current()
    assert first is not None
    assert env("verify")[0] == 0
    code, out, _ = env("build", "--yes")
    assert (code, len(builds(home).all())) == (0, 1)
    assert "nothing    " in out

    install(first.python, "six==1.16.0", "idna==3.10")
    code, out, _ = env("verify")
    assert code == 1
    assert "not as locked: 2" in out
    code, out, _ = env("plan")
    assert code == 0
    assert "because    packages were changed since it was built: idna, six" in out
    assert "six 1.16.0 -> " in out
    assert "- idna 3.10" in out
    plan = json.loads(env("plan", "--format", "json")[1])
    assert {one["package"]: one["kind"] for one in plan["changes"]} == {"idna": "removed", "six": "swapped"}

    code, out, _ = env("build", "--yes")
    second = builds(home).current()
    assert code == 0
    assert second is not None
    assert second.name != first.name
    assert env("verify")[0] == 0
    assert env("verify", "--build", first.name)[0] == 1

    code, out, _ = env("rollback")
    assert "note       it is not as it was built: packages were changed" in out
    assert "shown only" in out
    code, out, _ = env("rollback", "--yes")
    assert code == 0
    assert builds(home).current() == first
    code, out, _ = env("rollback", "--yes")
    assert builds(home).current() == second
    code, out, _ = env("list")
    assert f"* tiny                 {second.name}" in out
    assert f"  tiny                 {first.name}" in out

    code, out, err = env("remove", f"tiny/{second.name}", "--yes")
    assert code == 2
    assert "is current" in err
    assert env("remove", f"tiny/{first.name}", "--yes")[0] == 0
    assert [one.name for one in builds(home).all()] == [second.name]
    code, out, err = env("rollback", "--yes")
    assert code == 2
    assert "no earlier build" in err
    assert env("remove", "tiny", "--yes")[0] == 0
    assert list((home / "targets").iterdir()) == []


def test_a_build_that_was_gone_back_to_is_kept(env: Command, home: Path, tmp_path: Path) -> None:
    """What a pipeline runs next must not undo a rollback."""
    env("build", "--yes")
    first = builds(home).current()
    lock = tmp_path / "stacks" / NAME / f"py{MINOR.replace('.', '')}.txt"
    old = lock.read_text(encoding="utf-8")
    lock.write_text(old[: old.index("packaging==")] or old[old.index("packaging==") :], encoding="utf-8")
    assert "because    the lock has changed" in env("plan")[1]
    env("build", "--yes")
    assert builds(home).current() != first
    env("rollback", "--yes")
    assert builds(home).current() == first
    assert "nothing    " in env("plan")[1]
    assert env("verify")[0] == 0
    code, out, _ = env("build", "--yes", "--again")
    assert code == 0
    assert "because    you asked for it" in out
    assert len(builds(home).all()) == 3


def test_edited_missing_and_stray_files_are_found(env: Command, home: Path) -> None:
    env("build", "--yes")
    path = site(home) / "six.py"
    text = path.read_text(encoding="utf-8")
    path.unlink()
    path.write_text(text.replace("import", "inport", 1), encoding="utf-8")  # as long as before
    (site(home) / "packaging" / "version.py").unlink()
    (site(home) / "sitecustomize.py").write_text("", encoding="utf-8")
    code, out, _ = env("verify", "--format", "json")
    found = json.loads(out)
    assert code == 1
    assert {(one["file"], one["kind"]) for one in found["faults"]} == {("six.py", "edited"), ("packaging/version.py", "gone")}  # fmt: skip
    assert found["strays"] == ["sitecustomize.py"]
    quick = json.loads(env("verify", "--quick", "--format", "json")[1])
    assert [one["file"] for one in quick["faults"]] == ["packaging/version.py"]
    assert not quick["by_hash"]


def test_adopt_says_how_far_and_touches_nothing(env: Command, home: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    subprocess.run([uv.program(), "venv", "-q", "--python", sys.executable, theirs], check=True)
    install(theirs / "bin" / "python", "six==1.16.0", "idna==3.10")
    before = sorted((str(path), path.lstat().st_mtime_ns) for path in theirs.rglob("*"))
    code, out, _ = env("adopt", str(theirs))
    assert code == 0
    assert "a virtual environment" in out
    assert "nearest    tiny" in out
    assert "six 1.16.0 -> " in out
    assert f"uv pip install --python {theirs / 'bin' / 'python'} --no-deps --require-hashes -r" in out
    found = json.loads(env("adopt", str(theirs), "--format", "json")[1])
    assert found["kind"] == "venv"
    assert found["stacks"][0]["extra"] == ["idna"]
    assert not home.exists()
    assert env("verify", "--target", str(theirs))[0] == 0
    assert env("verify", "--target", str(theirs), "--stack", NAME)[0] == 1
    assert env("plan", "--target", str(theirs))[0] == 0
    assert env("adopt", str(theirs), "--yes")[0] == 0
    assert site(home).exists()
    assert sorted((str(path), path.lstat().st_mtime_ns) for path in theirs.rglob("*")) == before
    target = builds(home).current()
    assert target is not None
    assert "a target the runbook built" in env("adopt", str(target.folder))[1]
    assert "changes    none" in env("adopt", str(target.folder))[1]
    assert "a system interpreter" in env("adopt", sys.base_prefix)[1]


def test_what_conda_owns_is_not_to_be_changed_in_place(env: Command, tmp_path: Path) -> None:
    """A virtual environment that looks like conda's: its folder of records is what tells them apart."""
    theirs = tmp_path / "theirs"
    subprocess.run([uv.program(), "venv", "-q", "--python", sys.executable, theirs], check=True)
    install(theirs / "bin" / "python", "six==1.16.0")
    (theirs / "conda-meta").mkdir()
    (theirs / "conda-meta" / "zlib-1.3.1-h4ab18f5_1.json").write_text("{}", encoding="utf-8")
    code, out, _ = env("adopt", str(theirs))
    assert code == 0
    assert "a conda environment" in out
    assert "conda      1 packages of conda's own" in out
    assert "in place   not advised: conda owns packages there" in out
    assert "uv pip install" not in out


def test_a_package_of_yours_that_would_no_longer_fit_is_named(env: Command, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    subprocess.run([uv.program(), "venv", "-q", "--python", sys.executable, theirs], check=True)
    own = wheels.made(tmp_path / "kept", "mine", "1.0", {"mine.py": ""}, needs=["six<1.17", "idna>=3"])
    install(theirs / "bin" / "python", "six==1.16.0", str(own))
    _, out, _ = env("adopt", str(theirs))
    assert "mine 1.0 asks for six<1.17, the lock has" in out
    assert "idna" not in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["plan", "--stack", "nope"], "no stack 'nope'"),
        (["build", "--stack", "nope"], "no stack 'nope'"),
        (["verify"], "has no current target"),
        (["verify", "--build", "x"], "no build 'x' of tiny"),
        (["verify", "--build", "x", "--target", "y"], "--target beside --build"),
        (["rollback"], "no earlier build"),
        (["rollback", "--to", "x"], "no build 'x' of tiny"),
        (["remove", "tiny"], "has no build"),
        (["remove", "tiny/x"], "no build 'x' of tiny"),
        (["remove", "../x"], "no stack '..'"),
        (["adopt", "/no/such/folder"], "neither an interpreter nor the folder"),
        (["adopt", "/bin/true"], "did not say where its packages are"),
        (["plan", "--target", "/no/such"], "neither an interpreter"),
    ],
    ids=" ".join,
)
def test_bad_input_is_refused_and_leaves_nothing(
    words: list[str], says: str, env: Command, home: Path
) -> None:
    code, _, err = env(*words)
    assert code == 2, err
    assert says in err
    assert "expected:" in err
    assert not (home / "targets").exists()


def test_a_terminal_is_asked(home: Path) -> None:
    """At a terminal a yes can be typed, and a no changes nothing."""
    driver = (
        f"import sys; from pathlib import Path; from runbook import cli, pins; pins.STACKS = Path({str(pins.STACKS)!r}); "
        f"pins.REHEARSAL = ({NAME!r},); pins.MISSION = {NAME!r}; sys.argv = ['runbook', 'env', 'build']; cli.main()"
    )
    for answer, there in (("n\n", False), ("y\n", True)):
        ours, its = pty.openpty()
        with subprocess.Popen([sys.executable, "-c", driver], stdin=its, stdout=its, stderr=its) as child:
            os.close(its)
            os.write(ours, answer.encode())
            shown = b""
            while True:
                try:
                    piece = os.read(ours, 4096)
                except OSError:  # Linux' way to say that the other side is closed
                    break
                if not piece:
                    break
                shown += piece
            child.wait(60)
        os.close(ours)
        assert b"go ahead?" in shown
        assert (builds(home).current() is not None) is there
