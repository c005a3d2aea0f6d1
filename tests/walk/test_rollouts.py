"""``runbook rollout`` against one real server: what is right is found right, and the traps of a reload show."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import walking
from walking import OLD

from runbook.actions.rollouts import own
from runbook.endpoint import Endpoint
from runbook.workspace import Workspace

CHINESE = "你好，世界。真的！是吗？"  # noqa: RUF001 - the marks are the subject


def said(home: Path, *words: str, text: str = "", **env: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "runbook", *words]
    env = {**walking.environment(home), **env}
    return subprocess.run(argv, env=env, input=text, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture
def served(home: Path, built: Path) -> Endpoint:
    """A server with what rollouts need; the folder's ``home`` sees to it that none outlives the test."""
    assert built == home
    words = ("--stack", OLD, "--profile", "rl-rollout", "--detach", "--port", "0")
    began = said(home, "serve", *words, "--", "--max-num-seqs", "16")
    assert began.returncode == 0, began.stdout + began.stderr
    return own(Workspace(home))[0]


def test_ready_for_rollouts_and_every_trap_of_a_reload(home: Path, served: Endpoint, tmp_path: Path) -> None:
    try:
        done = said(home, "rollout", "--samples", "4", "--tokens", "8", "--format", "json")
        answer: dict[str, Any] = json.loads(done.stdout)
        verdicts = {one["id"]: one["verdict"] for one in answer["findings"]}
        walking.tell(json.dumps({"ready": answer["ready"], "lines": answer["lines"]}, indent=1))
        assert (verdicts["SERVE-021"], verdicts["SERVE-023"]) == ("ok", "ok"), done.stdout
        assert verdicts["SERVE-022"] in ("ok", "warn"), done.stdout
        assert done.returncode == 0
        assert answer["ready"].startswith("yes")
        facts = json.loads((home / "jobs" / "server.rollout.json").read_text(encoding="utf-8"))
        # vLLM keeps the prefix cache over a reload: that answer is neither the old weights' nor the new ones'.
        answers = {name: one["tokens"] for name, one in facts["reload"]["answers"].items()}
        assert facts["reload"]["stale_hits"] > 0
        assert answers["fresh"] != answers["before"] == answers["back"]
        assert answers["stale"] != answers["fresh"]
        # A platform without sleep mode: it pauses, a request waits, and nothing else changes.
        assert facts["sleep"]["asleep"]
        assert facts["sleep"]["held"]
        # With a salt of its own each, nothing of a group's prompt is found; without, most is.
        found = {row["arm"]: row["hits"] / row["queries"] for row in facts["throughput"]["rows"]}
        assert found["n requests, nothing shared"] == 0 < found["n in one request"]

        # The same server as somebody else's: asked, not touched.
        words = ("--url", served.url, "--model", "served", "--key-env", "ROLLOUT_KEY", "--format", "json")
        elsewhere = said(home, "rollout", "--quick", *words, ROLLOUT_KEY=served.key)
        there = {one["id"]: one["verdict"] for one in json.loads(elsewhere.stdout)["findings"]}
        assert (list(there), there["SERVE-021"]) == (["SERVE-021", "SERVE-022"], "ok"), elsewhere.stdout

        # What docs/rollouts.md says of the key: these do not ask for it.
        body = {"model": "served", "prompt": "x", "max_tokens": 1}
        replies = [httpx.get(f"{served.url}/is_sleeping", trust_env=False)]
        replies.append(httpx.post(f"{served.url}/invocations", json=body, timeout=60.0, trust_env=False))
        replies.append(httpx.post(f"{served.url}/v1/completions", json=body, timeout=60.0, trust_env=False))
        assert [one.status_code for one in replies] == [200, 200, 401]

        other = said(home, "rollout", "--new-weights", str(home / "models" / "tiny-qwen3.5"))
        assert other.returncode == 2
        assert "differ in type or shape from the served ones" in other.stderr
        file = tmp_path / "prompts.txt"
        file.write_text(f"{CHINESE}\nplain\n", encoding="utf-8")
        effect = said(
            home, "normalize-prompt", str(file), "--effect", "--ask", "--stack", OLD, "--format", "json"
        )
        counted = json.loads(effect.stdout)
        assert (counted["prompts"], counted["changed"], counted["answers"]) == (2, 4, 1)
        assert counted["before"] > counted["after"] > 0  # bytes of this tokenizer: three for a mark, then one

        # What the action guards against: a path that does not load is an error 500 and a dead engine at the next prompt.
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(tmp_path / "nothing")}}
        failed = httpx.post(f"{served.url}/collective_rpc", json=body, timeout=60.0, trust_env=False)
        assert failed.status_code == 500
        assert served.complete("one more", 4).error
        again = said(home, "rollout", "--quick")
        assert again.returncode == 1, again.stdout
    finally:
        assert said(home, "stop").returncode == 0
    alone = said(home, "rollout", "--quick")
    assert (alone.returncode, "no server of this workspace runs" in alone.stderr) == (1, True)
    filtered = said(home, "normalize-prompt", "-", text=CHINESE)
    assert (filtered.returncode, filtered.stdout) == (0, "你好,世界.真的!是吗?")
