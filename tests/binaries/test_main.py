"""What is kept between two calls is never believed when it is not true any more."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import made
import pytest
from made import ATTENTION, FILES, TORCH, container, elf, library, sass

from runbook.binaries import __main__ as program
from runbook.binaries import code, tree

OLD = 1_700_000_000


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site-packages folder whose files are some years old."""
    folder = made.site(tmp_path / "site", FILES)
    age(folder)
    return folder


def age(folder: Path, when: int = OLD) -> None:
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (when, when))


def asked(site: Path, cache: Path | None, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert program.main([str(site), *(["--cache", str(cache)] if cache else [])]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def files(answer: dict[str, Any]) -> dict[str, list[str]]:
    return {row["file"]: row["sass"] for row in answer["files"]}


def test_the_answer_has_a_row_for_each_library_with_machine_code(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = asked(site, None, capsys)
    assert files(answer) == {
        "torch/lib/libtorch_cuda.so": ["sm_80", "sm_90", "sm_90a"],
        "vllm/_C.abi3.so": ["sm_80", "sm_90"],
        "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so": ["sm_80"],
    }
    assert answer["files"][2] == {
        "file": "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so",
        "bytes": len(ATTENTION),
        "sass": ["sm_80"],
        "ptx": ["compute_80"],
        "isa": {"compute_80": "8.8"},
        "units": [[1, ["sm_80"], ["compute_80"]]],
    }


def test_a_second_call_reads_no_library(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "work" / "caches" / "binaries"
    (tmp_path / "work").mkdir()
    first = asked(site, cache, capsys)
    (kept,) = cache.iterdir()
    written = kept.stat().st_mtime_ns
    monkeypatch.setattr(code, "row", lambda *_: pytest.fail("a library was read again"))
    monkeypatch.setattr(tree, "_listed", lambda *_: pytest.fail("a folder was listed again"))
    assert asked(site, cache, capsys) == first
    assert kept.stat().st_mtime_ns == written


def replace(path: Path) -> None:
    path.write_bytes(library(container(sass(120))))


def replace_and_keep_its_time(path: Path) -> None:
    """As a package manager does that keeps the time in the archive; the size is another."""
    replace(path)
    os.utime(path, (OLD, OLD))


def remove(path: Path) -> None:
    path.unlink()


def add(path: Path) -> None:
    replace(path.with_name("_new_C.so"))


def add_a_package(path: Path) -> None:
    made.site(path.parents[1], {"flash_attn/deep/er/flash_attn_2_cuda.so": ATTENTION})


def remove_a_package(path: Path) -> None:
    shutil.rmtree(path.parent)


def move_a_package(path: Path) -> None:
    path.parent.rename(path.parent.with_name("vllm_old"))


@pytest.mark.parametrize(
    "change",
    [replace, replace_and_keep_its_time, remove, add, add_a_package, remove_a_package, move_a_package],
)
def test_a_change_is_seen(
    change: Any, site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "caches" / "binaries"
    before = asked(site, cache, capsys)
    change(site / "vllm" / "_C.abi3.so")
    after = asked(site, cache, capsys)
    assert after != before
    assert after == asked(site, None, capsys)
    assert after == asked(site, cache, capsys)


def test_a_change_within_the_same_tick_is_seen(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was written a moment ago may be written again and keep its time."""
    cache = tmp_path / "caches" / "binaries"
    path = site / "vllm" / "_C.abi3.so"
    path.write_bytes(library(container(sass(80))))
    now = path.stat().st_mtime_ns
    asked(site, cache, capsys)
    path.write_bytes(library(container(sass(90))))
    os.utime(path, ns=(now, now))
    assert files(asked(site, cache, capsys))["vllm/_C.abi3.so"] == ["sm_90"]


@pytest.mark.parametrize(
    "kept",
    ["", "{", "[]", "null", '{"reader": 0}', "\x00\xff", '{"reader": 1, "site": 7}',
     '{"reader": READER, "site": "SITE", "folders": 1, "files": []}',
     '{"reader": READER, "site": "SITE", "folders": {"": [1, 2, 3]}, "files": {"vllm/_C.abi3.so": 7, "torch/lib/libtorch_cuda.so": [SIZE, TIME], "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so": [1, 2, "x"]}}',
     '{"reader": READER, "site": "SITE", "folders": {"": null}, "files": {}, "links": 3}'],
)  # fmt: skip
def test_what_is_damaged_is_not_believed_and_written_anew(
    kept: str, site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "caches" / "binaries"
    whole = asked(site, cache, capsys)
    (path,) = cache.iterdir()
    good = path.read_text()
    path.write_text(
        kept.replace("READER", str(program.READER))
        .replace("SITE", str(site))
        .replace("SIZE", str(len(TORCH)))
        .replace("TIME", str(OLD * 10**9)),
        encoding="utf-8",
    )
    assert asked(site, cache, capsys) == whole
    assert json.loads(path.read_text()) == json.loads(good)


def test_nothing_is_left_where_there_is_no_workspace(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked(site, tmp_path / "no" / "caches" / "binaries", capsys)
    assert not (tmp_path / "no").exists()


def refused() -> int:
    raise OSError(11, "Resource temporarily unavailable")


@pytest.mark.parametrize("how", ["no more processes", "the child is killed", "the child breaks"])
def test_what_a_child_cannot_do_is_done_here(
    how: str, site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = asked(site, None, capsys)
    here, whole = os.getpid(), code.row

    def row(path: str, name: str, size: int) -> dict[str, Any] | None:
        if os.getpid() != here and how == "the child is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if os.getpid() != here:
            raise MemoryError
        return whole(path, name, size)

    if how == "no more processes":
        monkeypatch.setattr(os, "fork", refused)
    else:
        monkeypatch.setattr(code, "row", row)
    assert asked(site, None, capsys) == expected


def test_two_environments_do_not_share_what_is_kept(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache, other = tmp_path / "caches" / "binaries", made.site(tmp_path / "other", {"a.so": ATTENTION})
    first = asked(site, cache, capsys)
    assert files(asked(other, cache, capsys)) == {"a.so": ["sm_80"]}
    assert asked(site, cache, capsys) == first
    assert len(list(cache.iterdir())) == 2


def test_programs_of_one_folder_are_one_row(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "caches" / "binaries"
    programs = {
        f"flashinfer_cubin/cubins/{name}.cubin": elf({".text": b"\0"}, machine=190, flags=flags, abi=65)
        for name, flags in (("a", 0x6006402), ("b", 0x600640A), ("c", 0x600670A))
    }
    made.site(site, programs)
    age(site)
    row = {
        "file": "flashinfer_cubin/cubins/",
        "sass": ["sm_100", "sm_100a", "sm_103a"],
        "ptx": [],
        "cubins": 3,
    }
    assert asked(site, cache, capsys)["files"][0] == row
    assert asked(site, cache, capsys)["files"][0] == row
    (site / "flashinfer_cubin/cubins/d.cubin").write_bytes(b"<html>")
    found = asked(site, cache, capsys)["files"][0]
    assert (found["cubins"], found["problem"]) == (4, "1 of its files are no program for a GPU")


def test_a_library_that_cannot_be_read_has_a_row_that_says_so(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = site / "torch/lib/libtorch_cuda.so"
    path.write_bytes(path.read_bytes()[:-100])
    row = asked(site, None, capsys)["files"][0]
    assert (row["file"], row["sass"]) == ("torch/lib/libtorch_cuda.so", [])
    assert row["problem"].startswith("cut short")


def test_links_to_elsewhere_are_followed_for_files_only(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """uv can install by symlinks; a folder that is one may lead in a circle."""
    store = made.site(tmp_path / "store", {"x.so": ATTENTION})
    (site / "linked").mkdir()
    (site / "linked" / "x.so").symlink_to(store / "x.so")
    (site / "linked" / "circle").symlink_to(site)
    (site / "linked" / "gone.so").symlink_to(store / "gone.so")
    assert [name for name in files(asked(site, None, capsys)) if name.startswith("linked")] == ["linked/x.so"]


@pytest.mark.parametrize(
    "argv", [[], ["/no/such/folder"], ["/", "--cash", "x"], ["/", "--cache"], ["/", "x", "y", "z"]]
)
def test_bad_arguments_end_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(argv) == 2
    assert "usage" in capsys.readouterr().err


def test_a_cache_that_cannot_be_written_spoils_nothing(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "caches").write_text("a file where a folder belongs")
    assert program.main([str(site), "--cache", str(tmp_path / "caches" / "binaries")]) == 0
    seen = capsys.readouterr()
    assert json.loads(seen.out)["files"]
    assert "not kept" in seen.err


def test_as_a_program_it_reads_nothing_it_does_not_need(site: Path, tmp_path: Path) -> None:
    argv = [
        sys.executable,
        "-X",
        "importtime",
        "-m",
        "runbook.binaries",
        str(site),
        "--cache",
        str(tmp_path / "caches" / "b"),
    ]
    for _ in range(2):
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert json.loads(done.stdout)["files"]
    assert not loaded & {"runbook.binaries.code", "elftools", "pydantic", "packaging", "torch", "argparse"}
