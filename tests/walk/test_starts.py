"""Starts that hang end at their deadline with what they did and where they stand; one that comes up is told and kept."""

import json
import threading
from pathlib import Path

import pytest
import walking
from walking import OLD

from runbook import pins
from runbook.actions import Context, ledger, server, watching
from runbook.actions.jobs import Jobs, Owner
from runbook.actions.server import StartServer, StopServer
from runbook.checks import BY_ID
from runbook.errors import DeadlineExceeded
from runbook.model import Verdict
from runbook.probes.live import LiveProbe
from runbook.serving.boot import Boot
from runbook.workspace import Workspace

HANG = "import time\n\n\ndef wait():\n    time.sleep(3600)\n\n\nwait()\n"


def context(home: Path, deadline_s: int, python: Path | None = None) -> Context:
    work, stack = Workspace(home), pins.stack(OLD)
    return Context(
        work,
        stack,
        python or work.target_python(OLD),
        ours=python is None,
        model="tiny-qwen3",
        owner=Owner.of(),
        deadline_s=deadline_s,
    )


def hanging(home: Path, folder: Path) -> Path:
    """An interpreter of the target whose server waits for ever in ``import torch``."""
    (folder / "torch.py").write_text(HANG)
    wrapper = folder / "bin" / "python"
    wrapper.parent.mkdir()
    real = Workspace(home).target_python(OLD)
    wrapper.write_text(
        f'#!/bin/sh\ncase "$*" in *api_server*) export PYTHONPATH={folder};; esac\nexec {real} "$@"\n'
    )
    wrapper.chmod(0o755)
    return wrapper


def test_an_interrupt_just_after_the_start_leaves_nothing(home: Path, built: Path) -> None:
    assert built == home

    def say(line: str) -> None:
        assert line.startswith("started as process ")
        assert walking.server(home) is not None
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        StartServer(context(home, 60)).apply(say)
    assert walking.left(home) == []


def test_a_hang_in_an_import_is_named_by_its_stack(home: Path, built: Path, tmp_path: Path) -> None:
    assert built == home
    said: list[str] = []
    with pytest.raises(DeadlineExceeded) as why:
        StartServer(context(home, 12, hanging(home, tmp_path))).apply(said.append)
    assert "at the end it did: nothing for " in why.value.seen
    assert "wait (torch.py:5)" in why.value.seen
    (place,) = [word.rstrip(";") for word in why.value.do.split() if word.rstrip(";").endswith(".stacks.txt")]
    assert "wait (torch.py:5)" in Path(place).read_text(encoding="utf-8")
    assert any("it waits for something" in line for line in said), said
    walking.gone(home)


def test_a_start_that_was_stopped_is_not_taken_for_work(home: Path, built: Path) -> None:
    assert built == home
    ctx, said, stopped = context(home, 12), list[str](), threading.Event()

    def stop_it(line: str) -> None:
        said.append(line)
        if line.startswith("started as process"):
            job = Jobs(ctx.work.jobs).get("server")
            assert job
            for process in watching.tree(job.keeper_pid):
                process.suspend()
            stopped.set()

    with pytest.raises(DeadlineExceeded) as why:
        StartServer(ctx).apply(stop_it)
    assert stopped.is_set()
    assert "stopped by a signal (state T): kill -CONT" in "\n".join(said)
    assert "find out who stopped it" in why.value.do
    walking.gone(home)


def test_a_start_is_told_and_kept(home: Path, built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert built == home
    monkeypatch.setattr(server, "SAY_EVERY_S", 2.0)
    ctx, said = context(home, 300), list[str]()
    before = len(ledger.read(ctx.work))
    try:
        StartServer(ctx).apply(said.append)
        host = LiveProbe(ctx.work, OLD, ctx.python)
        judged = {ident: BY_ID[ident].judge(host).verdict for ident in ("WARM-009", "WARM-010", "WARM-011")}
    finally:
        StopServer(ctx).apply(said.append)
    told = [line for line in said if " cores" in line]
    assert told, said
    assert not any("waits for something" in line for line in said), said
    record = json.loads((ctx.work.jobs / "server.boot.json").read_text(encoding="utf-8"))
    boot = Boot.of(record)
    assert boot is not None
    assert sum(one.seconds for one in boot.phases) == pytest.approx(boot.ready_s, abs=0.3)
    assert {"imports", "engine process", "weights", "engine", "listening"} <= {
        one.name for one in boot.phases
    }
    assert boot.made == {}  # the stack starts eagerly
    rows = ledger.read(ctx.work)
    assert (len(rows), rows[-1].server) == (min(before + 1, ledger.MOST_ROWS), boot.server)
    assert judged["WARM-009"] is Verdict.OK
    assert judged["WARM-010"] in (Verdict.OK, Verdict.SKIP)
    assert judged["WARM-011"] is Verdict.OK
    walking.gone(home)
