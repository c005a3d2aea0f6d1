"""Leftovers: a guilty machine and an innocent one of real folders, and nothing outside our workspace is ever removed."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import wheels

from runbook import cache_facts, connect, leftovers
from runbook.errors import NotRecorded
from runbook.leftovers import Found, Leftover
from runbook.probe import Ran
from runbook.probes.live import LiveProbe
from runbook.workspace import CURRENT, Workspace

CPU, OLD = "vllm-0.32.0-cpu", "vllm-0.19.1-cpu"
SYSTEM = ("/usr/local", "/etc/ld.so.conf", "/var/lib/dpkg", "/usr/lib/")
HOSTILE = "a $(touch pwned) '; rm -rf x; \n\x1b[31m"


class Box(LiveProbe):
    """This machine, but for the system's folders, which lie under a folder of the test: real finds, globs and files."""

    def __init__(self, root: Path, work: Workspace, target: Path | None = None, stack: str = CPU) -> None:
        super().__init__(work, stack, target)
        self.root = root

    def _in(self, path: str) -> str:
        return f"{self.root}{path}" if path.startswith(SYSTEM) else path

    def run(self, argv: list[str], timeout_s: float = 20.0) -> Ran:
        ran = super().run([self._in(word) for word in argv], timeout_s)
        return Ran(
            tuple(argv), ran.rc, ran.out.replace(str(self.root), ""), ran.err, ran.missing, ran.timed_out
        )

    def read_text(self, path: str) -> str | None:
        return super().read_text(self._in(path))

    def glob(self, pattern: str) -> tuple[str, ...]:
        return tuple(path.removeprefix(str(self.root)) for path in super().glob(self._in(pattern)))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home and /tmp of the test's own, and no variable that leads a cache elsewhere."""
    for name in ("VLLM_CACHE_ROOT", "XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_HOME", "FLASHINFER_WORKSPACE_BASE", "CUDA_HOME", "CUDA_PATH"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    place = tmp_path / "home"
    (tmp_path / "tmp").mkdir()
    place.mkdir()
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return place


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "usr" / "local").mkdir(parents=True)
    return tmp_path / "root"


@pytest.fixture
def work(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "work")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with torch 2.10.0+cu128 and triton 3.6.0."""
    folder = tmp_path_factory.mktemp("target")
    triton = wheels.made(folder / "dist", "triton", "3.6.0", {"triton/__init__.py": ""})
    return wheels.environment(folder / "venv", wheels.torch(folder / "dist"), triton)


def write(path: Path, text: str = "x" * 1000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def found(*hosts: LiveProbe) -> Found:
    return leftovers.find([connect.cached(host) for host in hosts])


def of_kind(one: Found, kind: str) -> list[Leftover]:
    return [each for each in one.leftovers if each.kind == kind]


def toolkit(root: Path, release: str) -> Path:
    write(root / "usr" / "local" / f"cuda-{release}" / "bin" / "nvcc", "#!/bin/sh\n")
    return root / "usr" / "local" / f"cuda-{release}"


# The machine.


def test_a_clean_machine_has_nothing_left(home: Path, root: Path, work: Workspace, python: Path) -> None:
    toolkit(root, "12.8")
    (root / "usr" / "local" / "cuda").symlink_to("cuda-12.8")
    (root / "usr" / "local" / "cuda-12").symlink_to("cuda-12.8")
    write(root / "etc" / "ld.so.conf.d" / "libc.conf", "/usr/local/lib\n")
    write(root / "etc" / "ld.so.conf.d" / "arch.conf", "# ours\n/usr/local/lib/x86_64-linux-gnu\n")
    write(home / ".local" / "lib" / "python3.11" / "site-packages" / "rich-14.0.dist-info" / "METADATA")
    write(home / ".cache" / "pip" / "x")
    one = found(Box(root, work, python))
    assert (one.leftovers, one.gaps) == ((), ())
    assert leftovers.as_text(one) == "nothing was left that this can find\n"


def test_the_toolkit_that_a_build_does_not_take_is_left_over_with_its_size(
    root: Path, work: Workspace
) -> None:
    for release in ("12.4", "12.10", "12.9"):
        toolkit(root, release)
    write(root / "usr" / "local" / "cuda-12.4" / "lib64" / "libcudart.so.12", "y" * (3 << 20))
    write(root / "usr" / "local" / "cuda-12.9" / "bin" / "cuda-uninstaller")
    write(root / "var" / "lib" / "dpkg" / "info" / "cuda-toolkit-12-4.list")
    two = {one.what: one for one in of_kind(found(Box(root, work)), "toolkit")}
    assert set(two) == {"/usr/local/cuda-12.4", "/usr/local/cuda-12.9"}  # 12.10 is the newest of them
    assert two["/usr/local/cuda-12.4"].size == (3 << 20) + len("#!/bin/sh\n")
    assert two["/usr/local/cuda-12.4"].commands[0] == "sudo apt-get purge cuda-toolkit-12-4"
    assert two["/usr/local/cuda-12.4"].undo == "sudo apt-get install cuda-toolkit-12-4"
    assert two["/usr/local/cuda-12.9"].commands == ("sudo /usr/local/cuda-12.9/bin/cuda-uninstaller",)


def test_the_toolkit_that_the_link_names_stays(root: Path, work: Workspace) -> None:
    toolkit(root, "12.4")
    toolkit(root, "13.0")
    (root / "usr" / "local" / "cuda").symlink_to("cuda-12")
    (root / "usr" / "local" / "cuda-12").symlink_to("cuda-12.4")
    write(root / "usr" / "local" / "cuda-12.4" / "bin" / "nvcc")
    assert [one.what for one in of_kind(found(Box(root, work)), "toolkit")] == ["/usr/local/cuda-13.0"]


def test_a_link_to_a_toolkit_that_is_gone_is_told_with_the_way_back(root: Path, work: Workspace) -> None:
    (root / "usr" / "local" / "cuda").symlink_to("/nowhere/cuda-11.8")
    (one,) = of_kind(found(Box(root, work)), "link")
    assert one.made_by == "leads to /nowhere/cuda-11.8, which is gone"
    assert (one.commands, one.undo) == (
        ("sudo rm /usr/local/cuda",),
        "sudo ln -s /nowhere/cuda-11.8 /usr/local/cuda",
    )


def test_an_entry_of_the_loader_for_a_gone_folder_is_cut_by_a_command_that_does_just_that(root: Path, work: Workspace) -> None:  # fmt: skip
    toolkit(root, "12.8")
    gone, there = "/usr/local/cuda-11.8/targets/x.y+z/lib", "/usr/local/cuda-12.8"
    mixed = write(root / "etc" / "ld.so.conf.d" / "mixed.conf", f"{there}\n{gone}\n{gone}64\n")
    write(root / "etc" / "ld.so.conf.d" / "alone.conf", f"# made by hand\n{gone}  # old\n")
    rows = {one.what: one for one in of_kind(found(Box(root, work)), "loader entry")}
    assert set(rows) == {f"/etc/ld.so.conf.d/mixed.conf: {gone}", f"/etc/ld.so.conf.d/mixed.conf: {gone}64", f"/etc/ld.so.conf.d/alone.conf: {gone}"}  # fmt: skip
    assert rows[f"/etc/ld.so.conf.d/alone.conf: {gone}"].commands == ("sudo rm /etc/ld.so.conf.d/alone.conf", "sudo ldconfig")  # fmt: skip
    sed = shlex.split(rows[f"/etc/ld.so.conf.d/mixed.conf: {gone}"].commands[0])
    subprocess.run([*sed[1:-1], str(mixed)], check=True)
    assert mixed.read_text(encoding="utf-8") == f"{there}\n{gone}64\n"


# Other packages.


def test_torch_in_the_user_site_and_in_the_system_site_is_told_by_version(home: Path, root: Path, work: Workspace, python: Path) -> None:  # fmt: skip
    user = home / ".local" / "lib" / "python3.11" / "site-packages"
    write(user / "torch-2.3.1.dist-info" / "METADATA")
    write(user / "vllm-0.5.0.dist-info" / "METADATA")
    write(
        root
        / "usr"
        / "local"
        / "lib"
        / "python3.11"
        / "dist-packages"
        / "flash_attn-2.6.3.dist-info"
        / "METADATA"
    )
    one = found(Box(root, work, python))
    (site,) = of_kind(one, "user site")
    assert site.made_by == "torch 2.3.1, vllm 0.5.0"
    assert site.commands == ("python3.11 -m pip uninstall torch vllm",)
    assert site.undo == "python3.11 -m pip install --user torch==2.3.1 vllm==0.5.0"
    assert site.size == 2000
    (system,) = of_kind(one, "system site")
    assert system.commands == ("sudo python3.11 -m pip uninstall flash-attn",)


def test_where_the_system_is_what_is_looked_at_its_packages_are_not_left_over(root: Path, work: Workspace) -> None:  # fmt: skip
    write(
        root / "usr" / "local" / "lib" / "python3.11" / "dist-packages" / "torch-2.3.1.dist-info" / "METADATA"
    )
    assert of_kind(found(Box(root, work)), "system site") == []


def test_conda_and_pip_with_two_versions_of_one_package(root: Path, work: Workspace, tmp_path: Path) -> None:
    mine = wheels.environment(tmp_path / "conda", wheels.torch(tmp_path / "dist"))
    meta = mine.parent.parent / "conda-meta"
    write(meta / "pytorch-2.3.1-py3.11_cuda12.1_0.json")
    write(meta / "zlib-1.2.13-h5eee18b_1.json")
    (one,) = of_kind(found(Box(root, work, mine)), "conda beside pip")
    assert one.made_by == "conda 2.3.1, pip 2.10.0"
    (meta / "pytorch-2.3.1-py3.11_cuda12.1_0.json").rename(meta / "pytorch-2.10.0-py3.11_cuda12.8_0.json")
    assert of_kind(found(Box(root, work, mine)), "conda beside pip") == []


# Caches.


def kernel(folder: Path, name: str, version: str) -> Path:
    """An entry as Triton 3.6.0 writes it."""
    write(
        folder / name / "k.json",
        json.dumps({"hash": "00", "arch": "sm90", "triton_version": version, "name": "k"}),
    )
    write(folder / name / "__grp__k.json", json.dumps({"child_paths": {}}))
    return write(folder / name / "k.cubin").parent


def graph(folder: Path, env: Path | str, torch: str) -> Path:
    """An entry as vLLM 0.19.1 and 0.32.0 write it: torch's release and files of the environment, in a pickle's bytes."""
    place = f"{env}/lib/python3.11/site-packages/vllm/_custom_ops.py"
    folder.mkdir(parents=True)
    (folder / "model").write_bytes(b"\x80\x04\x8c" + bytes([len(place) % 256]) + place.encode() + b"\0\n# torch version: " + torch.encode() + b"\n")  # fmt: skip
    return folder


def test_kernels_of_another_triton_are_picked_out_by_a_command_that_leaves_the_others(home: Path, root: Path, work: Workspace, python: Path) -> None:  # fmt: skip
    cache = home / ".triton" / "cache"
    old = [kernel(cache, name, "3.1.0") for name in ("AAA", HOSTILE)]
    new = kernel(cache, "CCC", "3.6.0")
    untold = write(cache / "DDD" / "__triton_launcher.so").parent
    (one,) = of_kind(found(Box(root, work, python)), "triton cache")
    assert one.made_by == "triton 3.1.0, which no environment looked at holds"
    assert one.size == sum(path.stat().st_size for folder in old for path in folder.iterdir())
    assert not one.ours
    subprocess.run(["sh", "-c", one.commands[0]], cwd=home, check=True)
    assert [path.exists() for path in (*old, new, untold)] == [False, False, True, True]
    assert not (home / "pwned").exists()


def test_compiled_graphs_are_judged_by_the_torch_and_the_environment_they_name(home: Path, root: Path, work: Workspace, python: Path, tmp_path: Path) -> None:  # fmt: skip
    env = python.parent.parent
    compiled = home / ".cache" / "vllm" / "torch_compile_cache"
    graph(compiled / "torch_aot_compile" / "good", env, "2.10.0+cu128")
    old = graph(compiled / "torch_aot_compile" / "old", env, "2.9.0+cu128")
    gone = graph(compiled / "0123456789", "/nowhere/venv", "2.10.0+cu128")
    write(compiled / "torch_aot_compile" / "silent" / "model", "nothing is told here")
    inductor = tmp_path / "tmp" / "torchinductor_me"
    graph(inductor / "fxgraph", "/nowhere/venv", "2.9.0+cu128")
    one = found(Box(root, work, python))
    assert {each.what: each.made_by for each in of_kind(one, "vllm cache")} == {
        str(old): "torch 2.9.0+cu128, which no environment looked at holds",
        str(gone): "an environment that is gone: /nowhere/venv",
    }
    assert [each.what for each in of_kind(one, "inductor cache")] == [str(inductor)]


def test_a_cache_that_one_of_several_environments_made_is_not_left_over(home: Path, root: Path, work: Workspace, python: Path, tmp_path: Path) -> None:  # fmt: skip
    other = wheels.environment(tmp_path / "other", wheels.torch(tmp_path / "dist", "2.9.0", "12.8"))
    graph(home / ".cache" / "vllm" / "torch_compile_cache" / "aa", python.parent.parent, "2.9.0+cu128")
    assert of_kind(found(Box(root, work, python)), "vllm cache")
    assert not of_kind(found(Box(root, work, python), Box(root, work, other)), "vllm cache")


def test_flashinfer_of_a_release_that_is_nowhere_installed(
    home: Path, root: Path, work: Workspace, python: Path
) -> None:
    write(home / ".cache" / "flashinfer" / "0.6.6" / "90a" / "cached_ops" / "x" / "x.so")
    write(home / ".cache" / "flashinfer" / "cubins" / "y.cubin")
    (one,) = of_kind(found(Box(root, work, python)), "flashinfer cache")
    assert one.what == str(home / ".cache" / "flashinfer" / "0.6.6")
    assert "335 s" in one.undo


def test_without_an_environment_only_makers_that_are_gone_are_told(
    home: Path, root: Path, work: Workspace
) -> None:
    kernel(home / ".triton" / "cache", "AAA", "3.1.0")
    gone = graph(home / ".cache" / "vllm" / "torch_compile_cache" / "aa", "/nowhere/venv", "2.9.0+cu128")
    one = found(Box(root, work))
    assert [each.what for each in one.leftovers if "cache" in each.kind] == [str(gone)]
    assert "caches" in dict(one.gaps)


def test_variables_that_lead_a_cache_elsewhere_are_followed(root: Path, work: Workspace, python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    kernel(tmp_path / "mine", "AAA", "3.1.0")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "mine"))
    assert [one.what for one in of_kind(found(Box(root, work, python)), "triton cache")] == [str(tmp_path / "mine" / "AAA")]  # fmt: skip


# What is ours.


def built(work: Workspace, stack: str, name: str = "1", version: str = "2.10.0") -> Path:
    """A build of a stack with torch, as far as this asks: its interpreter and its packages."""
    folder = work.targets / stack / name
    site = folder / "lib" / "python3.11" / "site-packages"
    write(site / f"torch-{version}.dist-info" / "METADATA")
    write(site / "torch" / "version.py", f"__version__ = '{version}+cu128'\ncuda = '12.8'\n")
    write(folder / "bin" / "python", "#!/bin/sh\n")
    return folder


def test_of_our_caches_go_those_of_stacks_without_a_build_and_of_builds_that_are_gone(home: Path, root: Path, work: Workspace) -> None:  # fmt: skip
    build = built(work, CPU)
    (work.targets / CPU / CURRENT).symlink_to("1")
    good = graph(work.caches(CPU) / "vllm" / "torch_compile_cache" / "good", build, "2.10.0+cu128")
    old = graph(
        work.caches(CPU) / "vllm" / "torch_compile_cache" / "old", work.targets / CPU / "0", "2.10.0+cu128"
    )
    unused = write(work.caches(OLD) / "inductor" / "x" / "y.so")
    binaries = write(work.root / "caches" / "binaries" / "f.json")
    theirs = kernel(home / ".triton" / "cache", "AAA", "3.1.0")
    users = graph(home / ".cache" / "vllm" / "torch_compile_cache" / "aa", "/nowhere/venv", "2.9.0+cu128")
    one = found(Box(root, work))
    ours = {each.what for each in one.leftovers if each.ours}
    assert ours == {str(old), str(work.caches(OLD))}
    assert {str(path) for path in leftovers.remove(work, one)} == ours
    assert [path.exists() for path in (good, binaries, theirs, users)] == [True] * 4
    assert [path.exists() for path in (old, unused)] == [False, False]
    assert [each for each in found(Box(root, work)).leftovers if each.ours] == []


def test_where_nothing_is_ours_nothing_is_removed(
    home: Path, root: Path, work: Workspace, python: Path
) -> None:
    kernel(home / ".triton" / "cache", "AAA", "3.1.0")
    one = found(Box(root, work, python))
    assert one.leftovers
    assert leftovers.remove(work, one) == []
    assert (home / ".triton" / "cache" / "AAA").exists()
    assert not work.root.exists()


def test_a_cache_of_ours_that_is_a_link_goes_as_a_link(root: Path, work: Workspace, tmp_path: Path) -> None:
    precious = write(tmp_path / "precious" / "vllm" / "x")
    (work.root / "caches").mkdir(parents=True)
    work.caches(OLD).symlink_to(tmp_path / "precious")
    leftovers.remove(work, found(Box(root, work)))
    assert precious.exists()


# Reading a cache.


def rows(kind: str, *places: Path) -> list[dict[str, object]]:
    words = [sys.executable, "-m", "runbook.cache_facts", kind, *map(str, places)]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    answer: list[dict[str, object]] = json.loads(ran.stdout)["rows"]
    return answer


def test_a_file_under_two_names_is_counted_once_and_a_link_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "big" / "x", "x" * 5000)
    a = tmp_path / "a"
    write(a / "one", "x" * 3000)
    os.link(a / "one", a / "two")
    (a / "three").symlink_to(tmp_path / "big")
    (a / "loop").symlink_to(a)
    (one,) = rows("tree", a)
    links = sum((a / name).lstat().st_size for name in ("three", "loop"))
    assert one["bytes"] == 3000 + links


def test_odd_entries_of_a_cache_are_read_or_left(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    os.mkfifo(write(cache / "pipe" / "k.txt").parent / "k.json")
    write(cache / "garbage" / "k.json", '{"triton_version": 3')
    write(cache / "long" / "k.json", '"triton_version": "' + "9" * 500 + '"')
    kernel(cache, os.fsdecode(b"\xff\n\x1b[2J"), "3.1.0")
    write(cache / "a file")
    found = {os.path.basename(str(row["path"])): row["made_by"] for row in rows("triton", cache)}  # noqa: PTH119 - a name of any bytes
    assert found == {"pipe": [], "garbage": [], "long": [], os.fsdecode(b"\xff\n\x1b[2J"): ["triton 3.1.0"]}


@pytest.mark.parametrize("words", [[], ["nothing", "/tmp"], ["triton"]])  # noqa: S108 - no file is made there
def test_a_wrong_question_is_refused(words: Sequence[str]) -> None:
    assert cache_facts.main(list(words)) == 2


# Faces.


def test_commands_survive_hostile_names_and_the_text_stays_on_its_lines(home: Path, root: Path, work: Workspace, python: Path) -> None:  # fmt: skip
    folder = graph(home / ".cache" / "vllm" / "torch_compile_cache" / HOSTILE, "/nowhere/venv", "2.9.0")
    one = found(Box(root, work, python))
    assert all(line.isprintable() for line in leftovers.as_text(one).splitlines())
    (row,) = [
        each for each in json.loads(leftovers.as_json(one))["leftovers"] if each["kind"] == "vllm cache"
    ]
    subprocess.run(["sh", "-c", row["commands"][0]], cwd=home, check=True)
    assert not folder.exists()
    assert not (home / "pwned").exists()


def test_what_a_recording_does_not_hold_was_not_looked_at(work: Workspace) -> None:
    host = connect.probe("recorded:h200-vllm-0.19.1", "auto", "", work)
    one = leftovers.find([connect.cached(host)])
    assert one.leftovers == ()
    with pytest.raises(NotRecorded):
        host.glob("{home}/.triton/cache")
    assert dict(one.gaps)["{home}/.triton/cache"] == "not recorded"
    assert "nothing was left that this can find\nnot looked at: " in leftovers.as_text(one)
