"""What a warm-up looks at besides its requests: the log and the caches since a moment, and what a server was started to serve."""

import dataclasses
import json
import os
from pathlib import Path

import pytest

from runbook import pins
from runbook.actions import Context
from runbook.actions.jobs import Job, Owner
from runbook.actions.warming import Watch, _sees, _served
from runbook.endpoint import Endpoint
from runbook.serving import warm
from runbook.workspace import Workspace

STACK = "vllm-0.32.0-cpu"
OLD = "(EngineCore pid=5) INFO 11-30 05:56:30 [monitor.py:48] torch.compile took 20.11 s in total\n"
NEW = "(EngineCore pid=5) INFO 11-30 06:01:02 [monitor.py:48] torch.compile took 3.20 s in total\n"
CALM = '(APIServer pid=4) INFO:     127.0.0.1:43492 - "POST /v1/completions HTTP/1.1" 200 OK\n'


@pytest.fixture
def ctx(tmp_path: Path) -> Context:
    work = Workspace(tmp_path)
    return Context(work, pins.stack(STACK), tmp_path / "python", True, "tiny", Owner.of(), 10)  # noqa: FBT003


def job(log: Path, *argv: str) -> Job:
    return Job("server", "server.1", 1, 2, 2, 8000, str(log), ("python", *argv), 0.0, "1:1", {}, 1, 2, 10.0)


def test_only_what_was_compiled_since_counts(ctx: Context, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(OLD + CALM, encoding="utf-8")
    caches = ctx.work.caches(STACK)
    kernel = caches / "triton" / "abc" / "chunk_fwd_kernel_o.cubin"
    kernel.parent.mkdir(parents=True)
    kernel.write_bytes(b"")
    os.utime(kernel, (1, 1))
    watch = Watch(ctx, job(log))
    watch.begin()
    assert (watch.lines(), watch.made()) == ((), {})
    with log.open("a", encoding="utf-8") as file:
        file.write(CALM + NEW)
    kernel.with_name("other_kernel.cubin").write_bytes(b"")
    lines = watch.lines()
    assert lines is not None
    assert lines == ("2: torch.compile took 3.20 s in total",)
    assert watch.made() == {"Triton other_kernel": 1}


def test_a_server_elsewhere_shows_neither(ctx: Context) -> None:
    watch = Watch(ctx, None)
    watch.begin()
    assert (watch.lines(), watch.made()) == (None, None)


@pytest.mark.parametrize(
    ("config", "flags", "sees"),
    [
        ({"vision_config": {}}, (), True),
        ({}, (), False),
        ({"vision_config": {}}, ("--language-model-only",), False),
        ({"vision_config": {}}, ("--limit-mm-per-prompt", '{"image": 0, "video": 0}'), False),
        ({"vision_config": {}}, ("--limit-mm-per-prompt", '{"image": 2}'), True),
        (None, (), False),
    ],
)
def test_images_are_tried_only_where_they_are_served(
    tmp_path: Path, config: dict[str, object] | None, flags: tuple[str, ...], *, sees: bool
) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert _sees(("python", "--model", str(tmp_path), *flags)) is sees


def test_what_a_command_says_of_what_is_served(tmp_path: Path) -> None:
    nobody = Endpoint("http://127.0.0.1:9", "m")
    one = job(tmp_path / "log", "--max-num-seqs", "4", "--tool-call-parser", "hermes")
    assert _served(nobody, one) == warm.Served(2048, 4, tools=True, images=False)
    assert _served(nobody, dataclasses.replace(one, argv=("python",))).max_num_seqs == warm.MOST_AT_ONCE
    assert _served(nobody, None) == warm.Served(2048, 8, tools=True, images=False)
