"""One workspace for all tests of this folder, so that each target is built once; everything here is slow."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import walking


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever lies in this folder starts real servers."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``$RUNBOOK_TEST_HOME`` when set, which keeps the targets between test runs, else a new folder."""
    named = os.environ.get("RUNBOOK_TEST_HOME")
    home = Path(named) if named else tmp_path_factory.mktemp("workspace")
    home.mkdir(parents=True, exist_ok=True)
    return home.resolve()


@pytest.fixture
def home(workspace: Path) -> Iterator[Path]:
    """The workspace, with no process of it before and none after, whatever a test did."""
    assert walking.left(workspace) == []
    yield workspace
    remaining = walking.left(workspace)
    for line in remaining:
        os.kill(int(line.partition(" ")[0]), 9)
    assert remaining == []


@pytest.fixture(scope="session")
def built(workspace: Path) -> Path:
    """The workspace with the target of the pinned release and its model in it."""
    out = walking.fresh(workspace / "runs" / "built")
    command = [sys.executable, "-m", "runbook", "run", "03", "07", "--stack", walking.OLD, "--out", str(out)]
    done = subprocess.run(
        command, env=walking.environment(workspace), capture_output=True, text=True, check=False, timeout=1800
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return workspace
