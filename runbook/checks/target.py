"""What several checks of PY need to know about a target environment."""

from collections.abc import Sequence

from runbook.parse import python_env
from runbook.probe import Probe

PYVENV = "{prefix}/pyvenv.cfg"
VERSION = ["{python}", "-V"]
FEW = 4
"""How many names of a list are shown."""


def target_minor(host: Probe) -> str | None:
    """``3.11``: from ``pyvenv.cfg`` when there is one, else from the interpreter's mouth."""
    config = python_env.pyvenv(host.read_text(PYVENV))
    written = python_env.python_minor(config.get("version_info") or config.get("version"))
    if written:
        return written
    ran = host.run(VERSION)
    return python_env.python_minor(ran.out) if ran.ok else None


def some(names: Sequence[str]) -> str:
    """The first few of them, and how many more."""
    return ", ".join(names[:FEW]) + (f" and {len(names) - FEW} more" if len(names) > FEW else "")
