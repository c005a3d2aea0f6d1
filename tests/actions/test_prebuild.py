"""Bytecode that is missing, stale or there; caches that are carried, and archives that must be refused."""

import dataclasses
import io
import json
import os
import py_compile
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from runbook import pins
from runbook.actions import Context, carrying
from runbook.actions.jobs import Jobs, Owner
from runbook.actions.prebuild import Prebuild, without_bytecode
from runbook.errors import ActionFailed, BadParameter
from runbook.workspace import Workspace

STACK = "vllm-0.19.1-cpu"


def context(home: Path, python: str = sys.executable, model: str = "tiny-qwen3") -> Context:
    return Context(
        Workspace(home),
        pins.stack(STACK),
        Path(python),
        ours=True,
        model=model,
        owner=Owner.of(),
        deadline_s=60,
    )


def filled(home: Path) -> Path:
    """A workspace whose stack has caches."""
    folder = Workspace(home).caches(STACK)
    for name, text in (("inductor/ab/c.so", "code"), ("inductor/ab/c.cpp", "source"), ("vllm/modelinfos/x.json", "{}")):  # fmt: skip
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if name.endswith(".so") else 0o644)
        os.utime(path, (1_700_000_000.5, 1_700_000_000.5))
    (folder / "vllm" / "x.lock").touch()
    return home


def tree(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """An environment with three sources: compiled, never compiled, changed since."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "t")], check=True)
    (site,) = (tmp_path / "t").glob("lib/python*/site-packages")
    for name in ("compiled", "never", "changed"):
        (site / f"{name}.py").write_text("x = 1\n")
    for name in ("compiled", "changed"):
        py_compile.compile(str(site / f"{name}.py"))
    (site / "changed.py").write_text("x = 22\n")
    return tmp_path / "t"


def test_which_files_lack_bytecode(target: Path) -> None:
    (site,) = target.glob("lib/python*/site-packages")
    assert {path.stem for path in without_bytecode(site)} == {"never", "changed"}
    (site / "broken.py").write_text("x = \n")
    said: list[str] = []
    action = Prebuild(context(target.parent, str(target / "bin" / "python")))
    assert "3 files of the target lack it" in action.plan()[0]
    done = action.apply(said.append)
    # The one that cannot be compiled is not counted as done, and fails nothing.
    assert (done.bytecode, done.compiled, done.proven) == (2, {}, True)
    assert {path.stem for path in without_bytecode(site)} == {"broken"}
    assert action.apply(said.append).bytecode == 0


def test_a_target_of_the_users_is_left_alone(target: Path) -> None:
    ctx = context(target.parent, str(target / "bin" / "python"))
    theirs = dataclasses.replace(ctx, ours=False)
    assert "left as it is" in Prebuild(theirs).plan()[0]
    assert Prebuild(theirs).apply(lambda _: None).bytecode == 0


def test_what_is_missing_is_said_before_anything_starts(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadParameter, match="no target"):
        Prebuild(context(tmp_path, "/nowhere/bin/python")).plan()
    python = str(target / "bin" / "python")
    compiling = ("--no-enforce-eager",)
    with pytest.raises(BadParameter, match=r"no config\.json with a tokenizer"):
        Prebuild(context(tmp_path, python, "Qwen/Qwen3.5-4B"), own=compiling).plan()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ActionFailed, match="g\\+\\+"):
        Prebuild(context(tmp_path, python), own=compiling).plan()


def test_small_files_of_a_fetch_under_way_are_enough(tmp_path: Path, target: Path) -> None:
    part = tmp_path / "models" / "Qwen--Qwen3.5-4B.part"
    part.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json"):
        (part / name).write_text("{}")
    action = Prebuild(context(tmp_path, str(target / "bin" / "python"), "Qwen/Qwen3.5-4B"))
    ctx, whole = action.small()
    assert (ctx.model, whole) == (str(part), False)


def test_it_will_not_run_beside_a_server(tmp_path: Path, target: Path) -> None:
    ctx = context(tmp_path, str(target / "bin" / "python"))
    jobs = Jobs(ctx.work.jobs)
    job = jobs.start("server", ["sleep", "60"], env=dict(os.environ), cwd=tmp_path, owner=ctx.owner)
    try:
        for refused in (lambda: Prebuild(ctx).plan(), lambda: carrying.pack(ctx, tmp_path / "x", print)):
            with pytest.raises(ActionFailed, match=f"a server runs, as process {job.pid}"):
                refused()
    finally:
        jobs.stop("server")


def test_caches_are_carried_whole(tmp_path: Path) -> None:
    archive, said = tmp_path / "caches.tar.gz", list[str]()
    carrying.pack(context(filled(tmp_path / "a")), archive, said.append)
    there = context(tmp_path / "b")
    old = there.work.caches(STACK) / "triton" / "old.cubin"
    old.parent.mkdir(parents=True)
    old.touch()
    carrying.unpack(there, archive, said.append)
    folder = there.work.caches(STACK)
    assert tree(folder) == {
        "inductor/ab/c.so": "code",
        "inductor/ab/c.cpp": "source",
        "vllm/modelinfos/x.json": "{}",
    }
    assert (folder / "inductor/ab/c.so").stat().st_mtime == 1_700_000_000.5
    assert os.access(folder / "inductor/ab/c.so", os.X_OK)
    assert [path.name for path in folder.parent.iterdir()] == [STACK]
    assert any(line.startswith("root was ") for line in said)
    assert not list(tmp_path.glob("*.part"))


def rewritten(archive: Path, edit: Callable[[dict[str, object]], object]) -> None:
    """The archive with another manifest."""
    with tarfile.open(archive) as old:
        members = [(one, old.extractfile(one)) for one in old]
        texts = [(one, file.read()) for one, file in members if file]
    about = json.loads(texts[0][1])
    edit(about)
    texts[0] = (texts[0][0], json.dumps(about).encode())
    with tarfile.open(archive, "w:gz") as new:
        for one, text in texts:
            one.size = len(text)
            new.addfile(one, io.BytesIO(text))


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("stack", "vllm-0.32.0-cpu", "for stack vllm-0.32.0-cpu"),
        ("packages", "0" * 16, "for packages 0000"),
        ("python", "python3.9", "for python python3.9"),
        ("machine", "aarch64", "for machine aarch64"),
        ("card", ["AMD EPYC", "0"], "for card AMD EPYC, 0"),
        ("files", 7, "3 files instead of 7"),
        ("bytes", 3, "more than its manifest names"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(tmp_path: Path, field: str, value: object, says: str) -> None:
    archive = tmp_path / "caches.tar.gz"
    carrying.pack(context(filled(tmp_path / "a")), archive, lambda _: None)
    rewritten(archive, lambda about: about.update({field: value}))
    there = context(filled(tmp_path / "b"))
    before = tree(there.work.root)
    with pytest.raises(BadParameter, match=says):
        carrying.unpack(there, archive, lambda _: None)
    assert tree(there.work.root) == before


def hostile(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.mark.parametrize(
    "member",
    [
        hostile("caches/../../escaped"),
        hostile("/escaped"),
        hostile("elsewhere/x"),
        hostile("caches/link", tarfile.SYMTYPE, "/etc/passwd"),
        hostile("caches/hard", tarfile.LNKTYPE, "caches/inductor/ab/c.so"),
        hostile("caches/fifo", tarfile.FIFOTYPE),
        hostile("caches/inductor/ab/c.so"),
        hostile("caches"),
    ],
    ids=lambda one: f"{one.name} {one.type!r}",
)
def test_an_archive_that_would_reach_out_is_refused(tmp_path: Path, member: tarfile.TarInfo) -> None:
    plain, bad = tmp_path / "plain.tar", tmp_path / "caches.tar.gz"
    carrying.pack(context(filled(tmp_path / "a")), bad, lambda _: None)
    plain.write_bytes(subprocess.run(["gzip", "-dc", str(bad)], capture_output=True, check=True).stdout)
    with tarfile.open(plain, "a") as archive:
        archive.addfile(member)
    bad.write_bytes(subprocess.run(["gzip", "-c", str(plain)], capture_output=True, check=True).stdout)
    home = tmp_path / "b"
    with pytest.raises(BadParameter, match="nothing was changed"):
        carrying.unpack(context(home), bad, lambda _: None)
    assert not (tmp_path / "escaped").exists()
    assert list(home.rglob("*")) in ([], [home / "caches"])


@pytest.mark.parametrize("keep", [0, 5, 200, -30])
def test_a_torn_archive_changes_nothing(tmp_path: Path, keep: int) -> None:
    archive = tmp_path / "caches.tar.gz"
    carrying.pack(context(filled(tmp_path / "a")), archive, lambda _: None)
    archive.write_bytes(archive.read_bytes()[:keep])
    there = context(filled(tmp_path / "b"))
    before = tree(there.work.root)
    with pytest.raises(BadParameter):
        carrying.unpack(there, archive, lambda _: None)
    assert tree(there.work.root) == before


def test_a_kill_between_the_two_renames_is_mended(tmp_path: Path) -> None:
    archive = tmp_path / "caches.tar.gz"
    there = context(filled(tmp_path / "a"))
    carrying.pack(there, archive, lambda _: None)
    folder = there.work.caches(STACK)
    folder.rename(folder.with_name(f"{STACK}.old"))
    archive.write_bytes(b"no archive")
    with pytest.raises(BadParameter):
        carrying.unpack(there, archive, lambda _: None)
    assert (folder / "inductor/ab/c.so").read_text() == "code"


def test_nothing_to_pack(tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match="nothing lies in"):
        carrying.pack(context(tmp_path), tmp_path / "x.tar.gz", lambda _: None)
    with pytest.raises(BadParameter, match="there is no file"):
        carrying.unpack(context(tmp_path), tmp_path / "x.tar.gz", lambda _: None)


def test_flashinfers_compilers_are_looked_for_when_its_kernels_are_asked_for(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = dataclasses.replace(
        context(tmp_path, str(target / "bin" / "python")), stack=pins.stack("vllm-0.19.1-cu128")
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    action = Prebuild(gpu, own=("--gdn-prefill-backend", "flashinfer"))
    with pytest.raises(ActionFailed, match=r"not found: nvcc, ninja, c\+\+"):
        action.plan()
