"""``runbook serve`` with a real server: left running it answers to the line that was printed; in front, Ctrl-C ends it all.

The profile is one with parsers, so that what the plan says of thinking and tools is seen to hold: the checkpoint's
template is made one that does not think by default, as those of the small sizes.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import walking
from walking import OLD

from runbook.actions.jobs import Jobs

SERVE = [sys.executable, "-m", "runbook", "serve"]


def said(home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "runbook", *words]
    env = walking.environment(home)
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=300)


def quiet_by_default(home: Path, folder: Path) -> Path:
    """The tiny checkpoint with a template that thinks only when it is asked to."""
    trained = home / "models" / "tiny-qwen3"
    folder.mkdir()
    for one in trained.iterdir():
        (folder / one.name).write_bytes(one.read_bytes())
    template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
    thinks = "enable_thinking is defined and not enable_thinking"
    assert thinks in template
    other = template.replace(thinks, "not (enable_thinking is defined and enable_thinking)")
    (folder / "chat_template.jinja").write_text(other, encoding="utf-8")
    return folder


def message(line: str, **more: object) -> dict[str, Any]:
    """What a shell makes of the curl line that was printed, with more in the body."""
    body = line.rpartition(" -d ")[2]
    fuller = shlex.quote(json.dumps({**json.loads(shlex.split(body)[0]), **more}))
    command = line.replace(body, fuller)
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    answer: dict[str, Any] = json.loads(ran.stdout)["choices"][0]["message"]
    return answer


def test_left_running_it_answers_as_planned_and_stop_ends_it(home: Path, built: Path, tmp_path: Path) -> None:
    assert built == home
    model = quiet_by_default(home, tmp_path / "quiet")
    words = ["serve", str(model), "--stack", OLD, "--profile", "throughput", "--detach", "--port", "0"]
    began = said(home, *words)
    assert began.returncode == 0, began.stdout + began.stderr
    job = Jobs(home / "jobs").get("server")
    assert job is not None
    # Process 1 owns it: the command that started it is gone, and it is not.
    assert job.owner.startswith("1:")
    line = next(each.removeprefix("ask").strip() for each in began.stdout.splitlines() if each.startswith("ask "))  # fmt: skip
    assert (home / "jobs" / "server.key").read_text(encoding="utf-8") not in began.stdout
    # P01, and its cure: the parser knows that this template does not think.
    plain = message(line)
    assert plain["content"]
    assert not plain["reasoning"]
    asked = message(line, chat_template_kwargs={"enable_thinking": True})
    assert asked["reasoning"]
    checked = said(home, "check", "SERVE-011", "SERVE-012", "--cost", "live", "--stack", OLD, "--model", str(model), "--format", "json")  # fmt: skip
    verdicts = {row["id"]: row["verdict"] for row in json.loads(checked.stdout)}
    assert {key: verdicts[key] for key in ("SERVE-011", "SERVE-012")} == {"SERVE-011": "ok", "SERVE-012": "ok"}, checked.stdout  # fmt: skip
    again = said(home, *words)
    assert again.returncode == 0, again.stderr
    assert f"already running as process {job.pid}" in again.stdout
    other = said(home, *words, "--", "--max-model-len", "512")
    assert (other.returncode, f"as process {job.pid} on port {job.port}" in other.stderr) == (1, True), other
    stopped = said(home, "stop")
    assert stopped.returncode == 0, stopped.stderr
    assert walking.left(home) == []


def test_in_front_an_interrupt_ends_the_server_too(home: Path, built: Path) -> None:
    assert built == home
    process = subprocess.Popen(
        [*SERVE, "--stack", OLD, "--port", "0"], env=walking.environment(home), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
        preexec_fn=walking.as_in_a_terminal,  # noqa: PLW1509 - the tests have one thread
    )  # fmt: skip
    try:
        walking.until(lambda: walking.server(home) is not None, 60, "its server is started")
        os.killpg(process.pid, signal.SIGINT)
        text, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait(30)
    assert process.returncode == 130, text
    assert text.endswith("interrupted\n")
    walking.gone(home)
