"""A soak of a server that leaks, stands still or dies is told as such; one that was killed goes on where it stood.

The server is ``tests/answering.py``, which can do all that; a real vLLM is soaked in docs/measurements.md.
"""

import dataclasses
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import answering
import httpx
import pytest

from runbook import pins
from runbook.actions import Context, soaking
from runbook.actions.jobs import Job, Jobs, Owner
from runbook.actions.soaking import Orders, Soak
from runbook.checks.soak import stays_up
from runbook.engine import judge
from runbook.errors import ActionFailed, BadParameter
from runbook.model import Finding, Verdict
from runbook.probes.live import LiveProbe
from runbook.workspace import Workspace

STACK = "vllm-0.32.0-cpu"
QUICK = Orders(seconds=14.0, rate=10.0, concurrency=4, restart="never")


@pytest.fixture
def ctx(tmp_path: Path) -> Context:
    work = Workspace(tmp_path / "home")
    work.jobs.mkdir(parents=True)
    return Context(work, pins.stack(STACK), Path(sys.executable), True, "tiny-qwen3.5", Owner.of(), 60)  # noqa: FBT003


@contextmanager
def serving(ctx: Context, *words: str) -> Iterator[Job]:
    """The stand-in as the workspace's server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    jobs = Jobs(ctx.work.jobs)
    argv = [sys.executable, answering.__file__, "--port", str(port), *words]
    job = jobs.start(
        "server", argv, env=dict(os.environ), cwd=ctx.work.root, owner=Owner.of(), port=port, grace_s=1
    )
    try:
        jobs.wait(job, lambda: answers(port), deadline_s=20)
        (ctx.work.jobs / "server.boot.json").write_text(json.dumps({"server": job.marker}), encoding="utf-8")
        yield job
    finally:
        jobs.stop("server")
    assert jobs.processes() == []


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def finding(ctx: Context) -> tuple[Finding, dict[str, Any]]:
    one = judge(dataclasses.replace(stays_up, needs_target=False), LiveProbe(ctx.work, STACK), {})
    return one, {each.name: each.value for each in one.evidence}


def test_a_planted_leak_is_found_and_a_clean_run_is_not_blamed(ctx: Context) -> None:
    told: dict[str, tuple[Finding, dict[str, Any]]] = {}
    for name, words in (("leaky", ("--leak", "2.5")), ("clean", ())):
        with serving(ctx, *words):
            Soak(ctx, QUICK).apply(lambda _: None)
            told[name] = finding(ctx)
    one, seen = told["leaky"]
    assert one.verdict is Verdict.FAIL, one
    assert "the memory there is lasts" in one.reason
    one, seen = told["clean"]
    assert one.verdict in (Verdict.OK, Verdict.UNKNOWN), one
    assert "no verdict about memory yet" in one.reason or one.verdict is Verdict.OK
    assert (seen["failed"], seen["deaths"]) == (0, 0)
    # At ten a second for 14 s and a little; the last few may be under way when it ends.
    assert 100 <= seen["requests"] <= 160
    assert seen["tokens"] > 0


def test_a_server_that_stands_still_or_dies_is_told(ctx: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soaking, "READ_EVERY_S", 0.2)
    monkeypatch.setattr("runbook.checks.soak.STALL_S", 1.0)
    short = dataclasses.replace(QUICK, seconds=3.0)
    with serving(ctx, "--stand-after", "8"):
        Soak(ctx, short).apply(lambda _: None)
        one, seen = finding(ctx)
    assert one.verdict is Verdict.FAIL
    assert "no token came" in one.reason
    assert seen["longest standstill (s)"] > 1.0
    with serving(ctx, "--die-after", "8"):
        said: list[str] = []
        Soak(ctx, dataclasses.replace(short, seconds=30.0)).apply(said.append)
        one, seen = finding(ctx)
    assert one.verdict is Verdict.FAIL
    assert "it died 1 time(s), at last: exited (exit code 3)" in one.reason
    assert seen["minutes of load"] < 0.2
    assert "the server died after" in said[-1]


def test_one_that_was_cut_short_goes_on(ctx: Context) -> None:
    with serving(ctx):
        path = ctx.work.jobs / "server.soak.jsonl"
        soak = Soak(ctx, dataclasses.replace(QUICK, seconds=6.0))
        with pytest.raises(KeyboardInterrupt):
            soak.apply(interrupting(path))
        one, _ = finding(ctx)
        assert (one.verdict, "interrupted" in one.reason) == (Verdict.UNKNOWN, True)
        _, before = soaking.record(path)
        assert 0 < before[-1].at < 6.0
        # What a kill leaves: half a line.
        with path.open("a", encoding="utf-8") as file:
            file.write('{"at": 99')
        Soak(ctx, QUICK, resume=True).apply(lambda _: None)
        orders, rows = soaking.record(path)
        assert orders is not None
        assert orders.seconds == 6.0
        assert rows[: len(before)] == before
        assert rows[-1].at >= 6.0
        assert rows[-1].start == before[-1].start + 1
        with pytest.raises(BadParameter, match="ran to its end"):
            Soak(ctx, QUICK, resume=True)
    assert threading.active_count() == 1


def interrupting(path: Path) -> Any:
    """Ctrl-C when the record has its first line; said lines come once a stretch at most."""

    def say(_: str) -> None:
        if len(path.read_text(encoding="utf-8").splitlines()) > 1:
            raise KeyboardInterrupt

    return say


def test_nothing_to_soak_or_to_resume(ctx: Context) -> None:
    with pytest.raises(ActionFailed, match="no server"):
        Soak(ctx, QUICK).apply(lambda _: None)
    with pytest.raises(BadParameter, match="no soak to resume"):
        Soak(ctx, QUICK, resume=True)
