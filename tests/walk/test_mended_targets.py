"""Targets that are really broken are brought back by plan and yes, verified, and gone back from to what they were."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import breaking
import pytest
import walking
from breaking import WAYS, Broken, Target

from runbook import pins
from runbook.workspace import Workspace

READ_UP_TO = 1 << 20
# A way takes a minute and a half: one always, all five when asked.
CHOSEN = [way for way in WAYS if way.name == "torch" or os.environ.get("RUNBOOK_TEST_ALL")]
SAID = {"torchvision": "torchvision 0.28.0 -> 0.25.0", "numpy": "numpy 2.3.5 -> ", "torch": "torch 2.13.0 -> 2.10.0", "flash-attn": "- flash-attn 2.6.2", "deleted": "because"}  # fmt: skip


def env(home: Path, *words: str, code: int = 0) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "runbook", "env", *words],
        env=walking.environment(home),
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran.stdout


def digest(folder: Path) -> str:
    """Names, inodes, modes, times and sizes of everything in a tree, links as links, and the bytes of all files up to 1 MB."""
    summed = hashlib.sha256()
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted([*names, *folders]):
            path = Path(place, name)
            found = path.lstat()
            summed.update(
                f"{path} {found.st_ino} {found.st_mode} {found.st_size} {found.st_mtime_ns}\n".encode()
            )
            if path.is_symlink():
                summed.update(os.fsencode(path.readlink()))
            elif path.is_file() and found.st_size <= READ_UP_TO:
                summed.update(path.read_bytes())
    return summed.hexdigest()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A workspace with a whole target that the command line built; where there is nothing it says so and ends with 0."""
    home = tmp_path_factory.mktemp("mended")
    assert "because    there is no finished target" in env(home, "plan", "--stack", walking.OLD)
    assert "shown only" in env(home, "build", "--stack", walking.OLD)
    assert not (home / "targets").exists()
    env(home, "build", "--stack", walking.OLD, "--yes")
    yield home
    env(home, "remove", walking.OLD, "--yes")
    assert list((home / "targets").iterdir()) == []


def current(home: Path) -> Target:
    return Target(Workspace(home).target_python(walking.OLD), pins.stack(walking.OLD))


@pytest.mark.parametrize("way", CHOSEN, ids=lambda way: way.name)
def test_brought_back_verified_and_gone_back_from(way: Broken, target: Path) -> None:
    broken = current(target)
    way.apply(broken)
    assert breaking.damage(broken, way.dies), "it is not broken"
    before = digest(broken.python.parents[1])
    found: dict[str, Any] = json.loads(
        env(target, "verify", "--stack", walking.OLD, "--format", "json", code=1)
    )
    assert not found["whole"]

    shown = env(target, "plan", "--stack", walking.OLD)
    assert SAID[way.name] in shown
    env(target, "build", "--stack", walking.OLD, "--yes")
    mended = current(target)
    assert mended.python != broken.python
    assert json.loads(env(target, "verify", "--stack", walking.OLD, "--format", "json"))["whole"]
    if way.name != "flash-attn":  # which a whole target does not have
        assert breaking.damage(mended, way.dies) == ""
    assert digest(broken.python.parents[1]) == before

    env(target, "rollback", "--stack", walking.OLD, "--yes")
    assert current(target).python == broken.python
    assert digest(broken.python.parents[1]) == before
    env(target, "rollback", "--stack", walking.OLD, "--yes")
    assert current(target).python == mended.python
    env(target, "remove", f"{walking.OLD}/{broken.python.parents[1].name}", "--yes")
    assert not broken.python.exists()
