"""A server that cannot come up: the walk says why in one line, ends with the documented code and leaves nothing behind."""

import datetime
import json
from pathlib import Path

import walking
from walking import OLD, Running

ROOT_LINE = "ValueError: too many values to unpack (expected 2)"
SHADOWS = ("Engine core initialization failed", "See root cause above")


def ran(home: Path, *words: str) -> tuple[int, Running]:
    """A walk to its end, its exit code, and nothing left."""
    run = walking.start(home, walking.fresh(home / "runs" / "fault"), *words, "--stack", OLD)
    with walking.killed_at_last(run):
        code = run.ended()
        walking.gone(home)
    walking.whole(run.out)
    return code, run


def page_end(run: Running, page: str) -> dict[str, object]:
    """The journal's row of a page's end."""
    (row,) = [each for each in run.new_rows() if each["event"] == "page-end" and each["page"] == page]
    return row


def test_the_root_line_of_a_start_that_dies(home: Path, built: Path) -> None:
    assert built == home
    # Page 07 would stop this walk: MODEL-008 knows the pair. Its gate is passed over to see what a start says.
    code, run = ran(home, "07", "08", "--keep-going", "-p", "model=tiny-qwen3.5")
    text = run.text()
    assert code == 1, text
    failed = {row["id"] for row in walking.findings(run.out) if row["verdict"] == "fail"}
    assert "MODEL-008" in failed, failed
    row = page_end(run, "08_warmup")
    assert row["state"] == "action failed"
    said = str(row["said"])
    assert said.startswith("JobDied: ")
    for words in (said, text):
        assert ROOT_LINE in words
        assert str(home / "jobs" / "server.log") in words
        assert not any(shadow in words for shadow in SHADOWS)
    # It ended when the server did, not when the deadline of 900 s came.
    ended = json.loads((home / "jobs" / "server.ended.json").read_text(encoding="utf-8"))
    assert (ended["reason"], ended["exit_code"]) == ("exited", 1)
    assert datetime.datetime.fromisoformat(str(row["at"])).timestamp() - ended["ended"] < 20
    log = (run.out / "logs" / f"08_warmup@{OLD}.log").read_text(encoding="utf-8")
    assert ROOT_LINE in log
    assert {row["verdict"] for row in walking.findings(run.out) if row["layer"] == "WARM"} == {"unknown"}


def test_a_deadline_too_short(home: Path, built: Path) -> None:
    assert built == home
    code, run = ran(home, "08", "-p", "deadline_s=10")
    assert code == 3, run.text()
    row = page_end(run, "08_warmup")
    assert row["state"] == "no verdict"
    for words in (str(row["said"]), run.text()):
        assert "DeadlineExceeded: " in words
        assert "last words: " in words
        assert "expected: ready within 10 s" in words
        assert str(home / "jobs" / "server.log") in words
        assert "it has been stopped" in words
    ended = json.loads((home / "jobs" / "server.ended.json").read_text(encoding="utf-8"))
    assert ended["reason"] == "stopped"
    assert 10 <= ended["seconds"] < 40


def test_a_model_that_is_none(home: Path, built: Path, tmp_path: Path) -> None:
    assert built == home
    for model, seen in ((str(tmp_path), f"no config.json in {tmp_path}"), ("qwen", "no model 'qwen'")):
        out = walking.fresh(home / "runs" / "fault")
        run = walking.start(home, out, "07", "08", "--stack", OLD, "-p", f"model={model}")
        with walking.killed_at_last(run):
            assert run.ended(60) == 2, run.text()
        assert seen in run.text()
        assert "do: " in run.text()
        assert not out.exists()  # refused before anything was begun
