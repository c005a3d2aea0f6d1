"""JupyterLab as a reader meets it: opened by ``runbook lab``, driven by clicks in a real browser, judged by what is shown."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from runbook.checks import ALL
from runbook.params import page_spec

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
URL = re.compile(r"http://127\.0\.0\.1:\d+/\S*\?token=\w+")
UP_S = 60
OPEN_MS = 60_000
LOOKS = 8
RUN_MS = 120_000
VERDICT = re.compile(r"(?m)^(OK|WARN|FAIL|SKIP|UNKNOWN)\s+([A-Z]+-\d{3})\s")
RECORDED = "cpu-2core"
# True once every code cell of the notebook in front has its number, or one of them shows an exception.
ENDED = """() => {
    const panel = [...document.querySelectorAll('.jp-NotebookPanel')].find(one => one.offsetParent !== null);
    const numbers = [...panel.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].map(one => one.textContent.trim());
    return panel.querySelector('[data-mime-type="application/vnd.jupyter.stderr"]') !== null
        || numbers.every(one => /^\\[\\d+\\]:$/.test(one));
}"""
FEWEST_COLOURS = 20
STOP_S = 30

# Without a browser these fail: `bootstrap.py test` installs one, and a page nobody opened must not look tested.
pytestmark = pytest.mark.browser


def environment(folder: Path, machine: str) -> dict[str, str]:
    """This process's environment with every folder that Jupyter or the runbook writes to under ``folder``."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("JUPYTER", "IPYTHON", "RUNBOOK"))
    }
    own = {
        "HOME": "home", "RUNBOOK_HOME": "work", "JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime", "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces", "IPYTHONDIR": "ipython",
    }  # fmt: skip
    made = {}
    for key, name in own.items():
        (folder / name).mkdir(exist_ok=True)
        made[key] = str(folder / name)
    return {**kept, **made, **({"RUNBOOK_MACHINE": machine} if machine else {})}


@contextmanager
def lab(folder: Path, machine: str = "") -> Iterator[str]:
    """``runbook lab`` on a copy of the package and the notebooks: its address. All that it started is gone afterwards."""
    tree = folder / "tree"
    ignored = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
    for name in ("runbook", "notebooks"):
        shutil.copytree(ROOT / name, tree / name, ignore=ignored)
    # A reader's settings, but for one: cells out of view are rendered too, so that all that was printed can be read.
    settings = folder / "settings" / "@jupyterlab" / "notebook-extension"
    settings.mkdir(parents=True)
    (settings / "tracker.jupyterlab-settings").write_text('{"windowingMode": "none"}', encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # -m takes the package from the copy; a marker in the environment finds whatever is left afterwards.
    with (folder / "lab.log").open("w", encoding="utf-8") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "runbook", "lab", "--no-browser", "--port", str(port)],
            cwd=tree, env=environment(folder, machine) | {"JUPYTERLAB_SETTINGS_DIR": str(folder / "settings")}, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        yield _address(server, folder / "lab.log")
    finally:
        server.terminate()
        try:
            server.wait(STOP_S)
        finally:
            left = _started_by(folder)
            for one in left:
                one.kill()
    assert not left, "JupyterLab ended and left processes behind"


def _address(server: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + UP_S
    while time.monotonic() < deadline:
        text = log.read_text(encoding="utf-8")
        if found := URL.search(text):
            return found.group()
        assert server.poll() is None, f"JupyterLab ended with {server.returncode}:\n{text}"
        time.sleep(0.1)
    pytest.fail(f"JupyterLab named no address within {UP_S} s:\n{log.read_text(encoding='utf-8')}")


def _started_by(folder: Path) -> list[psutil.Process]:
    """Processes that carry the environment of this test: the server, its kernels and what these started."""
    mine = []
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            if one.environ().get("JUPYTER_RUNTIME_DIR") == str(folder / "runtime"):
                mine.append(one)
    return mine


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """Where screenshots go: into the checkout only when asked to."""
    folder = (
        Path(__file__).parent / "screenshots" if os.environ.get("RUNBOOK_SCREENSHOTS") else tmp_path / "shots"
    )
    folder.mkdir(exist_ok=True)
    return folder


def opened(page: Page, heading: str) -> Locator:
    """The notebook in front, once its text is there and its kernel waits for work."""
    notebook = page.locator(".jp-NotebookPanel:visible")
    expect(notebook.get_by_role("heading", name=heading)).to_be_visible(timeout=OPEN_MS)
    expect(page.locator(".jp-StatusBar-TextItem", has_text="| Idle")).to_be_visible(timeout=OPEN_MS)
    return notebook


def click_menu(page: Page, menu: str, item: str) -> None:
    page.locator(".lm-MenuBar-itemLabel", has_text=re.compile(f"^{menu}$")).click()
    page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{item}$")).click()


def run_all(page: Page, notebook: Locator) -> str:
    """Clear what is committed, Run > Run All Cells, wait until the cells have run or one failed; all that was printed."""
    outputs = notebook.locator(".jp-OutputArea-output")
    # The first thing a reader sees is a recording, and the page says so.
    expect(outputs.first).to_contain_text("REPLAY of the recorded machine")
    click_menu(page, "Edit", "Clear Outputs of All Cells")
    expect(outputs).to_have_count(0)
    expect(notebook.locator(".jp-CodeCell .jp-InputPrompt", has_text=re.compile(r"\d"))).to_have_count(0)
    click_menu(page, "Run", "Run All Cells")
    page.wait_for_function(ENDED, timeout=RUN_MS)
    printed = "\n".join(outputs.all_text_contents())
    # JupyterLab shows both an exception and what was written to stderr under this type.
    wrong = notebook.locator('[data-mime-type="application/vnd.jupyter.stderr"]').all_text_contents()
    assert wrong == []
    return printed


def keep(page: Page, notebook: Locator, path: Path) -> None:
    """A picture of the whole notebook, high enough for every cell; it must show something."""
    panel = notebook.locator(".jp-WindowedPanel-outer")
    # JupyterLab renders the cells in view and guesses the height of the rest: each look makes the guess better.
    for _ in range(LOOKS):
        height = int(panel.evaluate("one => one.scrollHeight")) + 120
        page.set_viewport_size({"width": 1280, "height": height})
        panel.evaluate("one => one.scrollTo(0, 0)")
        if int(panel.evaluate("one => one.scrollHeight")) <= int(panel.evaluate("one => one.clientHeight")):
            break
    expect(notebook.locator(".jp-Cell").last).to_be_in_viewport()
    page.screenshot(path=path)
    page.set_viewport_size({"width": 1280, "height": 900})
    assert colours(path.read_bytes()) > FEWEST_COLOURS, f"{path} is blank"


def colours(png: bytes) -> int:
    """How many different bytes the picture's rows hold: a blank one has a handful, text with its soft edges hundreds."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    packed, at = b"", 8
    while at < len(png):
        size = int.from_bytes(png[at : at + 4], "big")
        packed += png[at + 8 : at + 8 + size] if png[at + 4 : at + 8] == b"IDAT" else b""
        at += size + 12
    return len(set(zlib.decompress(packed)))


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
        assert verdicts(printed) == dict.fromkeys(checks_of("00_start"), "ok")
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
