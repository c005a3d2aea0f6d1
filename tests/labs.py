"""JupyterLab for tests that open pages in a real browser: started by ``runbook lab``, driven by clicks, pictures kept."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

ROOT = Path(__file__).parents[1]
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
# True once every code cell of the notebook in front has its number, or one of them shows an exception.
ENDED = """() => {
    const panel = [...document.querySelectorAll('.jp-NotebookPanel')].find(one => one.offsetParent !== null);
    const numbers = [...panel.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].map(one => one.textContent.trim());
    return panel.querySelector('[data-mime-type="application/vnd.jupyter.stderr"]') !== null
        || numbers.every(one => /^\\[\\d+\\]:$/.test(one));
}"""
FEWEST_COLOURS = 20
STOP_S = 30


def environment(folder: Path, machine: str, home: Path | None = None) -> dict[str, str]:
    """This process's environment with every folder that Jupyter or the runbook writes to under ``folder``.

    ``home`` is another workspace than the empty one there.
    """
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
    named = {"RUNBOOK_MACHINE": machine, "RUNBOOK_HOME": str(home) if home else ""}
    return {**kept, **made, **{key: value for key, value in named.items() if value}}


def with_parameters(path: Path, values: dict[str, Any]) -> None:
    """Write other values into a notebook's parameters cell, as a reader would by hand."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    cell = next(one for one in notebook["cells"] if "parameters" in one["metadata"].get("tags", ()))
    for name, value in values.items():
        cell["source"], found = _replaced(cell["source"], name, value)
        assert found == 1, f"{path.name} has no parameter {name}"
    path.write_text(json.dumps(notebook), encoding="utf-8")


def _replaced(lines: list[str], name: str, value: object) -> tuple[list[str], int]:
    swapped = [re.sub(rf"^({name}: \w+ = )[^#\n]*", rf"\g<1>{value!r}  ", line) for line in lines]
    return swapped, sum(new != old for new, old in zip(swapped, lines, strict=True))


@contextmanager
def lab(
    folder: Path, machine: str = "", home: Path | None = None, pages: dict[str, dict[str, Any]] | None = None
) -> Iterator[str]:
    """``runbook lab`` on a copy of the package and the notebooks: its address. All that it started is gone afterwards.

    ``pages`` gives notebooks other parameters than the committed ones.
    """
    tree = folder / "tree"
    ignored = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
    for name in ("runbook", "notebooks"):
        shutil.copytree(ROOT / name, tree / name, ignore=ignored)
    for name, values in (pages or {}).items():
        with_parameters(tree / "notebooks" / f"{name}.ipynb", values)
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
            cwd=tree, env=environment(folder, machine, home) | {"JUPYTERLAB_SETTINGS_DIR": str(folder / "settings")}, start_new_session=True,
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


@contextmanager
def browsing() -> Iterator[Browser]:
    """A browser of its own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def opened(page: Page, heading: str) -> Locator:
    """The notebook in front, once its text is there and its kernel waits for work."""
    notebook = page.locator(".jp-NotebookPanel:visible")
    expect(notebook.get_by_role("heading", name=heading)).to_be_visible(timeout=OPEN_MS)
    expect(page.locator(".jp-StatusBar-TextItem", has_text="| Idle")).to_be_visible(timeout=OPEN_MS)
    return notebook


def click_menu(page: Page, menu: str, item: str) -> None:
    page.locator(".lm-MenuBar-itemLabel", has_text=re.compile(f"^{menu}$")).click()
    page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{item}$")).click()


def run_all(page: Page, notebook: Locator, meanwhile: Callable[[], None] = lambda: None) -> str:
    """Clear what is committed, Run > Run All Cells, wait until the cells have run or one failed; all that was printed.

    ``meanwhile`` looks at the page while the cells run.
    """
    outputs = notebook.locator(".jp-OutputArea-output")
    # The first thing a reader sees is a recording, and the page says so.
    expect(outputs.first).to_contain_text("REPLAY of the recorded machine")
    click_menu(page, "Edit", "Clear Outputs of All Cells")
    expect(outputs).to_have_count(0)
    expect(notebook.locator(".jp-CodeCell .jp-InputPrompt", has_text=re.compile(r"\d"))).to_have_count(0)
    click_menu(page, "Run", "Run All Cells")
    meanwhile()
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
