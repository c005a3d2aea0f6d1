"""The doctor does not live in the patient, and quick commands load nothing slow: seen in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOREIGN = {
    "torch",
    "vllm",
    "flash_attn",
    "transformers",
    "triton",
    "numba",
    "numpy",
    "openai",
    "huggingface_hub",
}
SLOW = {"IPython", "ipywidgets", "ipykernel", "jupyterlab", "jupyter_client", "papermill", "nbclient", "nbformat", "pydantic", "jinja2", "httpx", "junitparser"}  # fmt: skip
MACHINE = "recorded:cpu-2core"

CHILD = """
import json, sys
words, names = json.loads(sys.argv[1])
from runbook import cli
if words:
    sys.argv = ["runbook", *words]
    try:
        cli.main()
    except SystemExit as end:
        code = end.code
else:
    code = 0
print("\\nLOADED", json.dumps([code, sorted(name for name in names if name in sys.modules)]))
"""


def loaded(tmp_path: Path, words: list[str], names: set[str]) -> tuple[int, list[str], str]:
    """Exit code of a command, which of these modules it loaded, and what it printed."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("RUNBOOK_")}
    env["RUNBOOK_HOME"] = str(tmp_path / "home")
    argv = [sys.executable, "-c", CHILD, json.dumps([words, sorted(names)])]
    ended = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    out, _, last = ended.stdout.rpartition("LOADED ")
    code, have = json.loads(last)
    return code, have, out


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--version"],
        ["check", "--list"],
        ["explain", "CUDA-001"],
        ["model"],
        ["check", "--machine", MACHINE],
        ["check", "--machine", MACHINE, "--format", "json"],
        ["check", "HOST", "DRIVER", "CUDA"],
    ],
    ids=" ".join,
)
def test_a_quick_command_loads_nothing_slow(words: list[str], tmp_path: Path) -> None:
    code, have, _ = loaded(tmp_path, words, FOREIGN | SLOW)
    assert code in (0, 1, 3)
    assert have == []


def test_no_command_loads_what_it_examines(tmp_path: Path) -> None:
    for words in (["check", "--cost", "slow", "--machine", MACHINE], ["run", "--plan", "--machine", MACHINE]):
        assert loaded(tmp_path, words, FOREIGN | {"IPython", "ipywidgets"})[1] == []


def test_importing_the_package_loads_next_to_nothing() -> None:
    text = "import sys; before = set(sys.modules); import runbook; print(sorted(set(sys.modules) - before))"
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert [name for name in eval(ended.stdout) if name.startswith("runbook.")] == []  # noqa: S307 - our own list


# Loaded by papermill through its entry point while papermill itself is being imported, so never first.
BY_PAPERMILL = "runbook.papermill_engine"


def test_papermill_finds_the_engine() -> None:
    text = "from papermill.engines import papermill_engines; print(papermill_engines.get_engine('runbook').__name__)"
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert ended.stdout == "JournalEngine\n"


def test_every_module_can_be_imported_alone() -> None:
    """In an order of its own each, so that none works only because another was loaded first."""
    package = Path(__file__).parents[1] / "runbook"
    names = [
        ".".join(path.relative_to(package.parent).with_suffix("").parts)
        for path in sorted(package.rglob("*.py"))
        if "inside" not in path.parts and path.stem not in ("__main__", "__init__")
    ]
    text = """
import importlib, os, sys
import httpx, jinja2, jupyter_client, nbformat, packaging, psutil, pydantic.dataclasses, rich, typer  # slow, and none knows us
for name in sys.argv[1:]:
    if os.fork() == 0:
        try:
            importlib.import_module(name)
        except BaseException as why:
            print(name, repr(why), flush=True)
            os._exit(1)
        os._exit(0)
    os.wait()
"""
    alone = [name for name in names if name != BY_PAPERMILL]
    ended = subprocess.run([sys.executable, "-c", text, *alone], capture_output=True, text=True, check=True)
    assert ended.stdout == ""
    assert len(alone) > 30
