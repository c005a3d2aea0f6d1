"""A log of any size is read in bounded memory, and what explains it is in what was read."""

from pathlib import Path

import pytest

from runbook.probes import ends
from runbook.probes.live import LiveProbe
from runbook.workspace import Workspace

MOST = 64 * 1024


def log(folder: Path, *parts: str) -> Path:
    path = folder / "server.log"
    path.write_bytes("".join(parts).encode())
    return path


CALM = "INFO a line of a log that says nothing\n" * 20_000


def test_a_small_log_is_read_whole(tmp_path: Path) -> None:
    assert ends.text(log(tmp_path, "one\r\ntwo\rthree\n"), MOST) == "one\ntwo\nthree\n"


def test_a_log_as_large_as_allowed_is_read_whole(tmp_path: Path) -> None:
    assert ends.text(log(tmp_path, "x" * MOST), MOST) == "x" * MOST


def test_of_a_large_log_both_ends_and_the_first_error_are_read(tmp_path: Path) -> None:
    path = log(tmp_path, "first words\n", CALM, "RuntimeError: the first\n", CALM, "ValueError: a later one\n", CALM, "last words\n")  # fmt: skip
    text = ends.text(path, MOST)
    assert text.startswith("first words\n")
    assert text.endswith("last words\n")
    assert "\nRuntimeError: the first\n" in text
    assert "ValueError" not in text
    assert len(text) < MOST + ends.EXCERPT + 200
    left_out = path.stat().st_size - MOST
    assert (
        f"\n[runbook: of {left_out} bytes between, {ends.EXCERPT} around the first error were read]\n" in text
    )


def test_a_large_log_without_an_error_says_so(tmp_path: Path) -> None:
    text = ends.text(log(tmp_path, CALM, CALM), MOST)
    assert ", 0 around the first error were read]" in text
    assert len(text) < MOST + 200


def test_an_error_across_two_parts_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "PART", 4096)
    head = "h" * (MOST // 2)
    text = ends.text(log(tmp_path, head, "i" * (4096 - 3), "\nMemoryError\n", CALM), MOST)
    assert "MemoryError" in text


def test_other_files_are_read_whole(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("x" * (MOST * 200))
    assert len(ends.text(tmp_path / "tokenizer.json", MOST)) == MOST * 200


def test_a_probe_reads_a_log_that_way(tmp_path: Path) -> None:
    log(tmp_path, "first words\n" + CALM * 12)
    size = (tmp_path / "server.log").stat().st_size
    assert size > ends.MOST
    text = LiveProbe(Workspace(tmp_path)).read_text("{work}/server.log")
    assert text is not None
    assert len(text) < ends.MOST + 200
