"""JupyterLab as a reader meets it: opened by ``runbook lab``, driven by clicks in a real browser, judged by what is shown."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from labs import FEWEST_COLOURS, OPEN_MS, browsing, colours, keep, lab, opened, run_all
from playwright.sync_api import Browser

from runbook.checks import ALL
from runbook.checks.start import DISK_WISH_MIB
from runbook.params import page_spec

VERDICT = re.compile(r"(?m)^(OK|WARN|FAIL|SKIP|UNKNOWN)\s+([A-Z]+-\d{3})\s")
RECORDED = "cpu-2core"

# Without a browser these fail: `bootstrap.py test` installs one, and a page nobody opened must not look tested.
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """Where screenshots go: into the checkout only when asked to."""
    folder = (
        Path(__file__).parent / "screenshots" if os.environ.get("RUNBOOK_SCREENSHOTS") else tmp_path / "shots"
    )
    folder.mkdir(exist_ok=True)
    return folder


def verdicts(printed: str) -> dict[str, str]:
    """Check id -> verdict, from the verdict lines."""
    return {found.group(2): found.group(1).lower() for found in VERDICT.finditer(printed)}


def checks_of(name: str) -> set[str]:
    return {one.id for one in ALL if one.layer in page_spec(name).layers}


def test_two_pages_live(chromium: Browser, tmp_path: Path, shots: Path) -> None:
    with lab(tmp_path) as address, chromium.new_context(viewport={"width": 1280, "height": 900}) as context:
        page = context.new_page()
        page.goto(address)
        page.locator(".jp-DirListing-item", has_text="00_start.ipynb").dblclick(timeout=OPEN_MS)
        start = opened(page, "Start here")
        printed = run_all(page, start)
        assert "00_start on live" in printed
        room = "ok" if shutil.disk_usage(tmp_path).free >> 20 >= DISK_WISH_MIB else "warn"
        assert verdicts(printed) == {**dict.fromkeys(checks_of("00_start"), "ok"), "START-002": room}
        assert "00_start is ready" in printed
        keep(page, start, shots / "00_start-live.png")

        start.get_by_role("link", name="01 The host and its driver").click()
        host = opened(page, "The host and its driver")
        assert page.url.endswith("/01_host.ipynb")
        printed = run_all(page, host)
        assert set(verdicts(printed)) == checks_of("01_host")
        assert verdicts(printed)["HOST-001"] == "ok"
        assert "01_host is ready" in printed
        keep(page, host, shots / "01_host-live.png")


def test_replay(chromium: Browser, tmp_path: Path, shots: Path) -> None:
    machine = f"recorded:{RECORDED}"
    with (
        lab(tmp_path, machine) as address,
        chromium.new_context(viewport={"width": 1280, "height": 900}) as context,
    ):
        page = context.new_page()
        page.goto(address)
        page.locator(".jp-DirListing-item", has_text="00_start.ipynb").dblclick(timeout=OPEN_MS)
        start = opened(page, "Start here")
        printed = run_all(page, start)
        assert f"REPLAY of the recorded machine {RECORDED}" in " ".join(printed.split())
        assert "not your machine" in " ".join(printed.split())
        assert f"00_start on {machine}" in printed
        assert set(verdicts(printed)) == checks_of("00_start")
        assert "00_start is ready" in printed
        keep(page, start, shots / "00_start-replay.png")


def test_a_blank_picture_is_told(chromium: Browser, tmp_path: Path) -> None:
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    page.goto("data:text/html,<body style='background:white'>")
    page.screenshot(path=tmp_path / "blank.png")
    page.close()
    assert colours((tmp_path / "blank.png").read_bytes()) <= FEWEST_COLOURS
