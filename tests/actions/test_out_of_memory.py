"""A job that runs into a limit of memory is told from one that somebody killed, and the limit is named."""

import json
import subprocess
import sys
from pathlib import Path

import memory_group
import pytest

ROOT = Path(__file__).parents[2]
MIB = 200

# Starts a job whose child takes memory without end, and prints how that is judged.
RUNS = """
import dataclasses, json, os, sys
from pathlib import Path
from runbook.actions import looking
from runbook.actions.jobs import Jobs, Owner
from runbook.serving import state
from runbook.workspace import Workspace

folder, script = sys.argv[1:]
jobs = Jobs(Path(folder) / "jobs")
job = jobs.start("server", ["bash", "-c", script], env=dict(os.environ), cwd=Path("/"), owner=Owner.of(), grace_s=2)
assert jobs.join(job, 60)
found = state.judge(looking.look(Workspace(Path(folder))))
print(json.dumps({"end": dataclasses.asdict(jobs.ended("server")), "name": found.name, "why": found.why}))
"""
TAKES = f"""{sys.executable} -S -c 'kept = []
while True: kept.append(bytearray(1 << 20))'"""


def judged(tmp_path: Path, script: str, *before: str) -> dict[str, object]:
    command = [*before, sys.executable, "-c", RUNS, str(tmp_path), script]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, object] = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize("script", [f"exec {TAKES}", f"{TAKES}; echo the engine died; exit 0"], ids=["itself", "its child"])  # fmt: skip
def test_a_limit_of_the_control_group(script: str, tmp_path: Path) -> None:
    with memory_group.limited(MIB) as before:
        if before is None:
            pytest.skip("no control group can be made here")
        found = judged(tmp_path, script, *before)
    assert found["name"] == "dead"
    assert (
        f"out of memory: the kernel killed 1 of its processes; limit of its control group {MIB} MiB"
        in str(found["why"])
    )
    end = found["end"]
    assert isinstance(end, dict)
    assert end["oom_kills"] == 1
    assert (end["signal"], end["exit_code"]) in ((9, None), (None, 0))


def test_a_limit_of_address_space(tmp_path: Path) -> None:
    found = judged(tmp_path, TAKES, "sh", "-c", f'ulimit -v {1 << 20}; exec "$@"', "sh")
    assert found["name"] == "dead"
    assert "out of memory: MemoryError" in str(found["why"])
    end = found["end"]
    assert isinstance(end, dict)
    assert end["exit_code"] == 1
    assert not end["oom_kills"]


def test_a_job_that_somebody_killed_had_memory_enough(tmp_path: Path) -> None:
    found = judged(tmp_path, "kill -KILL $$")
    assert "killed from outside" in str(found["why"])
    assert "out of memory" not in str(found["why"])
