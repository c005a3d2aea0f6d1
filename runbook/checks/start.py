"""START: is the runbook itself in order, and is there room for what it will build?"""

import json
import re

from runbook.checks.host_disk import LASTING_MIB, TMP_NEED_MIB
from runbook.model import Answer, Evidence, Fix, Layer, Risk, Source, check, fail, ok, unknown, warn
from runbook.parse import proc
from runbook.probe import Probe

# A target, its wheels in uv's cache when that lies on another file system, a model and logs. The largest CPU target
# measured is 8.2 GB with bytecode; the CUDA target's wheels take about 10 GB.
DISK_NEED_MIB = 14_000
DISK_WISH_MIB = 25_000
# Where this stack's target stands already: logs and compile caches, and temporary files on the same disk.
BUILT_NEED_MIB = LASTING_MIB + TMP_NEED_MIB
# As requires-python in pyproject.toml; a test compares them.
OLDEST, NEWEST = (3, 10), (3, 13)


@check(
    "START-001",
    layer=Layer.START,
    title="The runbook runs on a Python it supports, with uv beside it",
    why="Targets are built with uv by the runbook's own environment; without it nothing can be built or repaired.",
    source=Source(
        "uv, installing packages into an environment",
        "https://docs.astral.sh/uv/pip/environments/",
        "2026-11-30",
    ),
)
def own_environment(host: Probe) -> Answer:
    """Ask both programs for their versions."""
    python, uv = host.run(["{own}/python", "-V"]), host.run(["{own}/uv", "--version"])
    seen = (
        Evidence("python", python.out.strip() or None, "run {own}/python -V"),
        Evidence("uv", uv.out.split(" (")[0].strip() or None, "run {own}/uv --version"),
    )
    found = re.search(r"Python (\d{1,3})\.(\d{1,3})\b", python.out, re.ASCII)
    if python.ok and uv.ok and (found is None or not uv.out.strip()):
        return unknown("a program answered without a version", *seen)
    if python.ok and uv.ok and found and OLDEST <= (int(found[1]), int(found[2])) <= NEWEST:
        return ok(*seen)
    return fail(*seen, fix=Fix("Set the runbook up again", ("python3 bootstrap.py setup",), Risk.NONE))


@check(
    "START-002",
    layer=Layer.START,
    title="The workspace's disk has room for a target, a model and logs",
    why="A disk that fills while wheels are unpacked leaves half an environment and an error that names a random file.",
    source=Source("measured: size of the stacks' targets on disk", "docs/measurements.md", "2026-11-30"),
)
def disk_room(host: Probe) -> Answer:
    """Free space where the workspace lies or will lie."""
    ask = ["df", "-Pk", "{disk}"]
    found = proc.disk(host.run(ask).out)
    if found is None:
        return unknown("df gave no row that can be read")
    if host.has_target:
        need, wish, fits = BUILT_NEED_MIB, DISK_NEED_MIB, "no other target fits beside this one"
    else:
        need, wish, fits = DISK_NEED_MIB, DISK_WISH_MIB, "one target fits; two do not"
    seen = (
        Evidence("free (MiB)", found.free_mib, "run df -Pk {disk}"),
        Evidence("on", found.mount, "run df -Pk {disk}"),
        Evidence("needed (MiB)", need, "checks/start.py"),
    )
    move = Fix("Put the workspace on a larger disk", ("export RUNBOOK_HOME=/larger/disk/runbook",), Risk.NONE)
    if found.free_mib < need:
        return fail(*seen, fix=move)
    if found.free_mib < wish:
        return warn(*seen, fix=move, reason=fits)
    return ok(*seen)


@check(
    "START-003",
    layer=Layer.START,
    title="No server or build of an earlier run is still there",
    why="A forgotten server holds GPU memory and its port, and the next start dies with an out-of-memory error.",
    source=Source(
        "papermill issue 601: a process outlives its notebook",
        "https://github.com/nteract/papermill/issues/601",
        "2026-11-30",
    ),
)
def nothing_left(host: Probe) -> Answer:
    """State files of jobs; a running one has a process behind it in /proc."""
    running: list[str] = []
    stale: list[str] = []
    for path in host.glob("{work}/jobs/*.json"):
        if path.endswith((".ended.json", ".boot.json")):
            continue
        try:
            state = json.loads(host.read_text(path) or "")
            alive = bool(host.glob(f"/proc/{int(state['pid'])}/stat"))
        except (ValueError, KeyError, TypeError):
            stale.append(path)
            continue
        (running if alive else stale).append(f"{state.get('name')} (pid {state['pid']})" if alive else path)
    seen = (
        Evidence("running", ", ".join(running) or "none", "glob {work}/jobs/*.json"),
        Evidence("stale state files", len(stale), "glob {work}/jobs/*.json"),
    )
    if running or stale:
        return warn(*seen, fix=Fix("Stop it and clear the state file", ("runbook stop",), Risk.RESTART))
    return ok(*seen)


CHECKS = (own_environment, disk_room, nothing_left)
