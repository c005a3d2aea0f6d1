"""The uv program: which one, and how it is asked."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runbook.errors import ActionFailed

# Variables of a Python that is active in the shell: uv would take that environment instead of the one it is told of.
FOREIGN = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME")


@dataclass(frozen=True)
class Ran:
    """One run: exit code, and what it printed on both streams in its order."""

    rc: int
    text: str


def program() -> str:
    """The uv beside our own interpreter, else the one on PATH.

    Raises:
        ActionFailed: there is none.
    """
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.exists() else shutil.which("uv")
    if not found:
        raise ActionFailed(
            "uv is not there", "uv beside the runbook's interpreter", "python3 bootstrap.py setup"
        )
    return found


def environment() -> dict[str, str]:
    """Ours without what names another Python; uv's own settings (index, proxy, cache, find-links) go through."""
    return {name: value for name, value in os.environ.items() if name not in FOREIGN}


def ask(words: Sequence[str], given: str = "") -> Ran:
    """One question to uv, ``given`` on its standard input.

    Raises:
        ActionFailed: there is no uv.
    """
    ran = subprocess.run(
        [program(), *words, "--color", "never", "--no-progress"],
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment(),
        check=False,
    )
    return Ran(ran.returncode, ran.stdout)
