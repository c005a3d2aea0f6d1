import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import refresh
from broken import edited
from canonical import NOTEBOOKS, faults, read


@pytest.fixture(autouse=True)
def _same_environment() -> Iterator[None]:
    """``refresh.main`` changes this process's environment, as a command may; afterwards it is as it was."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def test_a_stripped_page_gets_its_outputs_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    committed = (NOTEBOOKS / "00_start.ipynb").read_text(encoding="utf-8")
    path = tmp_path / "00_start.ipynb"
    path.write_text(committed.replace("REPLAY", "PLAY"), encoding="utf-8")
    assert refresh.main(["00_start", "--folder", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith(f"{path}: rewritten")
    assert path.read_text(encoding="utf-8") == committed
    assert faults(read("00_start", path.read_text(encoding="utf-8"))) == []


def test_a_page_that_is_not_ready_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = edited(tmp_path, "old-arm", {"run uname -srm": "Linux 6.1.0 aarch64\n"})
    path = tmp_path / "01_host.ipynb"
    shutil.copyfile(NOTEBOOKS / "01_host.ipynb", path)
    before = path.read_bytes()
    assert refresh.main(["01_host", "--machine", machine, "--folder", str(tmp_path)]) == 1
    assert "not written" in (said := capsys.readouterr().out)
    assert "LayerNotReady: 01_host is not ready: HOST-001" in said
    assert path.read_bytes() == before
