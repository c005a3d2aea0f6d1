"""The live view of page 08, as a reader sees it: a real server, a real JupyterLab, a real browser."""

import re
from pathlib import Path

import pytest
import walking
from labs import OPEN_MS, browsing, keep, lab, opened, run_all
from playwright.sync_api import expect

pytestmark = pytest.mark.browser
READY_MS = 240_000
MOVED = "() => document.querySelectorAll('.runbook-live polyline').length >= 5"


def test_the_view_lives_while_cells_run(home: Path, built: Path, tmp_path: Path) -> None:
    assert home == built
    parameters = {"stack": walking.OLD, "apply": True, "ui": "widgets", "out_dir": str(tmp_path / "out")}
    with (
        lab(tmp_path, home=built, pages={"08_warmup": parameters}) as address,
        browsing() as chromium,
        chromium.new_context(viewport={"width": 1280, "height": 900}) as context,
    ):
        page = context.new_page()
        page.goto(address)
        page.locator(".jp-DirListing-item", has_text="08_warmup.ipynb").dblclick(timeout=OPEN_MS)
        notebook = opened(page, "Warm-up")
        view = notebook.locator(".runbook-live")

        def look() -> None:
            # While the start's cell still runs: a process, and its log.
            expect(view).to_contain_text(re.compile(r"process \d+, port \d+, up \d+ s"), timeout=OPEN_MS)
            expect(view.locator("pre")).to_contain_text(re.compile(r"\w{4,}"), timeout=OPEN_MS)
            # And once it answers, lines: tokens made and read, running, waiting, cache in use.
            page.wait_for_function(MOVED, timeout=READY_MS)

        printed = run_all(page, notebook, look)
        assert "08_warmup is ready" in printed
        expect(view).to_contain_text("no server runs")
        keep(page, notebook, tmp_path / "08_warmup-live.png")
