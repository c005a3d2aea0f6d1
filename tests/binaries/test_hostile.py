"""Files made to break their reader: it ends soon, says what is wrong, and takes neither the memory nor the disk."""

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import linked
import made
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made import ATTENTION, TORCH, container, elf, library, sass

from runbook.binaries import __main__ as program
from runbook.binaries import code, link, packed, symbols, tree, wheel
from runbook.binaries.loader import View
from runbook.binaries.symbols import BadElf, Library, Symbol, gnu_hash, sysv_hash
from runbook.errors import BadParameter

quick = settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def library_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small library with both kinds of hash table and a version."""
    folder = tmp_path_factory.mktemp("whole")
    script = folder / "versions"
    script.write_text("MADE_1 { global: one; two; };\n", encoding="utf-8")
    words = ("-Wl,--hash-style=both", f"-Wl,--version-script={script}")
    return linked.build(
        folder / "a.so",
        "extern int x(void); int one(void) { return x(); } int two(void) { return 2; }",
        *words,
    ).read_bytes()


def table(data: bytes, folder: Path, tag: int) -> int:
    path = folder / "whole.so"
    path.write_bytes(data)
    return Library(path)._at(tag)


def looked_at(path: Path) -> None:
    """All that is ever asked of a library."""
    found = Library(path)
    _ = found.asked_versions, found.versions, found.undefined(), list(found.asked_in_order())
    for name in (b"one", b"three"):
        found.defines(Symbol(name), gnu_hash(name))


@pytest.mark.parametrize("count", [0, 1, 0xFFFFFFFF])
def test_an_old_hash_table_that_leads_in_a_circle_ends(
    count: int, library_file: bytes, tmp_path: Path
) -> None:
    data = bytearray(library_file)
    at = table(library_file, tmp_path, symbols.DT_HASH)
    buckets, chain = struct.unpack_from("<II", data, at)
    struct.pack_into(f"<{buckets + chain}I", data, at + 8, *([1] * (buckets + chain)))
    struct.pack_into("<II", data, at, min(count, buckets), 0xFFFFFFFF)
    path = tmp_path / "a.so"
    path.write_bytes(data)
    found = Library(path)
    with pytest.raises(symbols.DAMAGE):
        list(found._old_candidates(b"nobody"))
    assert sysv_hash(b"nobody")


@pytest.mark.parametrize("buckets", [0, 1])
def test_a_new_hash_table_without_an_end_ends(buckets: int, library_file: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.so"
    # One word of the filter lets every name through; no link of the chain has the bit that ends it.
    hash_table = struct.pack("<IIIIQI", buckets, 1, 1, 6, 2**64 - 1, 1) + b"\2" * (8 * symbols.CHAIN)
    path.write_bytes(library_file + hash_table)
    found = Library(path)
    found._places[symbols.DT_GNU_HASH] = len(library_file)
    with pytest.raises((ZeroDivisionError, ValueError)):
        found.defines(Symbol(b"nobody"), gnu_hash(b"nobody"))


def test_versions_that_lead_in_a_circle_end(tmp_path: Path) -> None:
    path = linked.lacks_version(linked.base(tmp_path / "env"))
    data = bytearray(path.read_bytes())
    at = table(bytes(data), tmp_path, symbols.DT_VERNEED)
    first = struct.unpack_from("<I", data, at + 8)[0]
    struct.pack_into("<H", data, at + 2, 0xFFFF)
    struct.pack_into("<I", data, at + first + 12, 0)
    path.write_bytes(data)
    with pytest.raises(ValueError, match="circle"):
        _ = Library(path).asked_versions


@quick
@given(data=st.data())
def test_numbers_of_any_size_anywhere(
    data: st.DataObject, library_file: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whole words are overwritten with numbers that are too large, not single bytes."""
    odd = bytearray(library_file)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(odd) // 8 - 1)) * 8
        word = data.draw(st.sampled_from((0, 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)))
        struct.pack_into("<Q", odd, at, word)
    path = tmp_path_factory.getbasetemp() / "numbers.so"
    path.unlink(missing_ok=True)
    path.write_bytes(odd)
    began = time.process_time()
    with contextlib.suppress(BadElf, *symbols.DAMAGE):
        looked_at(path)
    row = code.row(str(path), "numbers.so", len(odd))
    assert row is None or row.get("problem") or row["sass"] or row["ptx"]
    assert time.process_time() - began < 2


@quick
@given(
    start=st.integers(0, 2**64 - 1),
    size=st.integers(0, 2**64 - 1),
    name=st.sampled_from((".nv_fatbin", *code.DATA)),
)
def test_a_section_that_lies_anywhere(
    start: int, size: int, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = bytearray(elf({".nv_fatbin": container(sass(90)), name: b"x" * 32}))
    index = 1 if name == ".nv_fatbin" else 2
    headers = struct.unpack_from("<Q", whole, 40)[0]
    struct.pack_into("<QQ", whole, headers + 64 * index + 24, start, size)
    path = tmp_path_factory.getbasetemp() / "section.so"
    path.write_bytes(whole)
    row = code.row(str(path), "section.so", len(whole))
    assert start + size <= len(whole) or (row or {}).get("problem")


def test_a_damaged_library_is_named_and_not_the_one_that_needs_it(tmp_path: Path) -> None:
    site = linked.base(tmp_path / "env")
    user, c10 = linked.plain(site), site / "torch/lib/libc10.so"
    data = bytearray(c10.read_bytes())
    at = table(bytes(data), tmp_path, symbols.DT_GNU_HASH)
    struct.pack_into("<I", data, at, 0)
    c10.write_bytes(data)
    rows = {row["file"]: row for row in link.links(site, [c10, user])["files"]}
    assert rows["torch/lib/libc10.so"]["role"] == "damaged"
    assert rows["ext/_C.so"]["through"] == ["torch/lib/libc10.so"]


def test_what_is_no_file_is_named_and_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = made.site(
        tmp_path / "site",
        {
            "good/a.so": ATTENTION,
            "empty/b.so": b"",
            "zeros/c.so": bytes(99),
            "text/d.so": b"INPUT(libc.so.6)",
        },
    )
    os.mkfifo(site / "good/pipe.so")
    os.mkfifo(site / "good/pipe.cubin")
    os.mkfifo(site / "pipe.pth")
    (site / "long.pth").write_text("a" * 9000 + "\n/\0\n", encoding="utf-8")
    (site / "torch").mkdir()
    os.mkfifo(site / "torch/version.py")
    (site / "good/loop.so").symlink_to("loop.so")
    (site / "good/folder.so").mkdir()
    (site / "good/folder.cubin").mkdir()
    assert program.main([str(site)]) == 0
    found = json.loads(capsys.readouterr().out)
    problems = {row["file"]: row["problem"] for row in found["files"] if "problem" in row}
    assert set(problems) == {"empty/b.so", "good/", "good/loop.so", "good/pipe.so", "zeros/c.so"}
    assert [row["file"] for row in found["files"] if row["sass"]] == ["good/a.so"], (
        "its neighbours hide nothing"
    )
    damaged = {row["file"] for row in found["links"]["files"] if row["role"] == "damaged"}
    assert damaged == set(problems) - {"good/"}


def test_a_folder_that_cannot_be_listed_is_named_and_asked_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site, cache = made.site(tmp_path / "site", {"a/b/x.so": ATTENTION}), tmp_path / "caches/binaries"
    for path in (site, *site.rglob("*")):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    whole = os.scandir

    def refused(path: Any) -> Any:
        if str(path).endswith("/b"):
            raise PermissionError(13, "Permission denied")
        return whole(path)

    monkeypatch.setattr(os, "scandir", refused)
    assert program.main([str(site), "--cache", str(cache)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["file"], row["problem"]) for row in found["files"]] == [("a/b/", "Permission denied")]
    monkeypatch.setattr(os, "scandir", whole)
    assert program.main([str(site), "--cache", str(cache)]) == 0
    assert [row["file"] for row in json.loads(capsys.readouterr().out)["files"]] == ["a/b/x.so"]


def test_many_libraries_do_not_use_up_the_open_files(tmp_path: Path) -> None:
    site = linked.base(tmp_path / "env")
    other = linked.build(tmp_path / "plain.so", "int one(void) { return 1; }").read_bytes()
    for index in range(80):
        (site / f"p{index}.so").write_bytes(other)
    argv = ["bash", "-c", 'ulimit -n 64; exec "$0" -m runbook.binaries "$1"', sys.executable, str(site)]
    ran = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    assert "problem" not in ran.stdout


def test_a_file_of_the_same_size_and_time_in_its_place_is_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An installer sets the time that the archive says."""
    site, cache = tmp_path / "site", tmp_path / "caches/binaries"
    one, two = (library(container(sass(target))) for target in (80, 90))
    for data in (one, two):
        made.site(site, {"a/_C.so": data})
        for path in (site, *site.rglob("*")):
            os.utime(path, (1_700_000_000, 1_700_000_000))
        assert program.main([str(site), "--cache", str(cache)]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert len(one) == len(two)
    assert (first["files"][0]["sass"], second["files"][0]["sass"]) == (["sm_80"], ["sm_90"])


anything = st.recursive(
    st.none() | st.integers(-1, 2**70) | st.sampled_from(("", "a", "\0", "\ud800", "../x.so")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("", "a", "\0", "../", "\ud800", "a/_C.so", "file", "basis", "files")),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@quick
@given(folders=anything, files=anything, links=anything)
def test_no_cache_whatsoever_breaks_the_answer(
    folders: Any, files: Any, links: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    site = tmp_path_factory.getbasetemp() / "cached"
    made.site(site, {"a/_C.so": TORCH})
    said, _ = program.answer(str(site), {"folders": folders, "files": files, "links": links})
    json.dumps(said)


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_a_cache_that_is_no_file(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site, cache = made.site(tmp_path / "site", {"a.so": ATTENTION}), tmp_path / "caches/binaries"
    assert program.main([str(site), "--cache", str(cache)]) == 0
    (kept,) = cache.iterdir()
    kept.unlink()
    os.mkfifo(kept) if kind == "pipe" else kept.mkdir()
    assert program.main([str(site), "--cache", str(cache)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == second
    assert [one.name for one in cache.iterdir()] == [kept.name], "no half of a file is left"


def test_two_calls_at_once_agree(tmp_path: Path) -> None:
    site, cache = made.site(tmp_path / "site", made.FILES), tmp_path / "caches/binaries"
    argv = [sys.executable, "-m", "runbook.binaries", str(site), "--cache", str(cache)]
    calls = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    answers = {call.communicate(timeout=60)[0] for call in calls}
    assert len(answers) == 1
    assert len(json.loads(answers.pop())["files"]) == 3
    assert len(list(cache.iterdir())) == 1


def test_a_wheel_that_unpacks_without_an_end_is_refused_before_it_does(tmp_path: Path) -> None:
    path = tmp_path / "bomb-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bomb, bomb.open("a/_C.so", "w") as member:
        for _ in range(packed.SMALL // (1 << 24) + 1):
            member.write(bytes(1 << 24))
    with pytest.raises(BadParameter, match="would unpack to"):
        wheel.rows(path)


@pytest.mark.parametrize("name", ["../../evil.so", "/etc/evil.so", "a/../../evil.so"])
def test_a_wheel_that_writes_elsewhere_is_refused(name: str, tmp_path: Path) -> None:
    path = made.wheel(tmp_path / "evil-1.0-py3-none-any.whl", {name: ATTENTION})
    with pytest.raises(BadParameter, match="outside site-packages"):
        wheel.rows(path)


def test_what_is_no_wheel_is_named_for_what_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.whl")
    (tmp_path / "folder.whl").mkdir()
    (tmp_path / "a.zip").write_bytes(b"PK")
    for name, says in {
        "pipe.whl": "no plain file", "folder.whl": "a folder", "a.zip": "not end in .whl", "none.whl": "no such file",
    }.items():  # fmt: skip
        with pytest.raises(BadParameter, match=says):
            wheel.rows(tmp_path / name)


@quick
@given(data=st.data())
def test_no_wheel_whatsoever_breaks_the_reader(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "odd.whl"
    whole = bytearray(
        made.wheel(path, {"a/_C.so": ATTENTION, "a/b.cubin": b"x", "c.so.1": TORCH}).read_bytes()
    )
    for _ in range(data.draw(st.integers(1, 5))):
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(bytes(whole[: data.draw(st.sampled_from((len(whole), len(whole) - 9, 40)))]))
    with contextlib.suppress(BadParameter):
        assert all(row["sass"] or row["ptx"] or row["problem"] for row in wheel.rows(path))


def test_a_list_of_cuda_libraries_that_is_no_pattern(tmp_path: Path) -> None:
    site = linked.base(tmp_path / "env")
    linked.build(
        site / "torch/lib/libtorch_global_deps.so",
        "",
        "-Wl,--no-as-needed",
        str(linked.build(site / "gone/libcudart.so.12", "")),
    )
    (site / "torch/__init__.py").write_text(
        'def _preload_cuda_deps():\n    x = {"a": "lib**", "b": "lib[]*.so"}\n', encoding="utf-8"
    )
    assert View(site).torch_loads


@pytest.mark.parametrize("words", [["arch", "--gpu", "h200"], ["abi", "made-1.0-py3-none-any.whl"]])
def test_an_interrupt_leaves_nothing(words: list[str], tmp_path: Path) -> None:
    """The reader is held at a pipe, so that the signal surely comes while it runs."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True, timeout=120
    )
    (site,) = (tmp_path / "venv/lib").glob("python*/site-packages")
    made.site(site, made.FILES)
    made.wheel(tmp_path / "made-1.0-py3-none-any.whl", {"a/_C.so": ATTENTION})
    (tmp_path / "temp").mkdir()
    (tmp_path / "work").mkdir()
    started = tmp_path / "started"
    os.mkfifo(started)
    # The reader's own interpreter says that it runs, and then waits until it is killed.
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys, signal\nif 'runbook.binaries' in ' '.join(sys.orig_argv) and 'reader' not in sys.argv:\n    open({str(started)!r}, 'w').write(str(__import__('os').getpid()))\n    signal.pause()\n",
        encoding="utf-8",
    )
    env = {
        **os.environ,
        "TMPDIR": str(tmp_path / "temp"),
        "RUNBOOK_HOME": str(tmp_path / "work"),
        "PYTHONPATH": str(tmp_path),
    }
    env.pop("RUNBOOK_MACHINE", None)
    argv = [sys.executable, "-m", "runbook", *words, "--target", str(tmp_path / "venv/bin/python")]
    call = subprocess.Popen(
        argv,
        cwd=tmp_path,
        env=env,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        # As a shell with a terminal starts it: a test run in the background would hand down an ignored Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - one thread
    )
    reader = int(started.read_text())
    call.send_signal(signal.SIGINT)
    _, said = call.communicate(timeout=60)
    assert (call.returncode, said) == (130, "interrupted\n")
    assert not Path(f"/proc/{reader}").exists()
    assert list((tmp_path / "temp").iterdir()) == []
    assert [one for one in (tmp_path / "work").rglob("*") if one.is_file()] == []


def test_names_of_libraries() -> None:
    assert not tree.is_spoilt(b"\x7fELF\x02\x01\x01\0")
    assert not tree.is_spoilt(b"!<arch>\n\0")
    assert tree.is_spoilt(bytes(8))
