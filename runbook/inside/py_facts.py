"""Run by the target interpreter: what it is, from its own mouth. Prints one JSON object."""

import contextlib
import importlib.util
import json
import os
import platform
import re
import sys
import sysconfig
from pathlib import Path

# The interpreter a script is started with: in its first line, or in the second where that is a shell's (pip and uv write
# so when the path is long or holds a blank).
STARTED_WITH = re.compile(rb"""\A#!(?:/bin/sh\n'''exec' )?["']?(/[^\n"']*?/python[0-9.]*)["']?(?:[ \n]|\Z)""")


def bytecode_percent() -> int | None:
    """Share of the .py files of torch and vllm (top two levels) whose .pyc lies beside them; None without either."""
    have = total = 0
    for name in ("torch", "vllm"):
        spec = importlib.util.find_spec(name)
        folder = Path(spec.origin).parent if spec and spec.origin else None
        for source in [*folder.glob("*.py"), *folder.glob("*/*.py")] if folder else []:
            total += 1
            have += Path(importlib.util.cache_from_source(str(source))).exists()
    return round(100 * have / total) if total else None


def same_folder(one: Path, other: Path) -> bool:
    """True for one folder under two names too."""
    with contextlib.suppress(OSError):
        return one == other or one.samefile(other)
    return False


def strange_scripts() -> list[str]:
    """Scripts of this environment that start an interpreter elsewhere, as ``pip -> /old/bin/python``.

    A script holds the absolute path of the interpreter it was installed for. An interpreter that is no environment of
    its own shares its folder with the system's programs, about which this says nothing.
    """
    own = Path(sys.prefix) / "bin"
    if sys.prefix == sys.base_prefix and not (Path(sys.prefix) / "conda-meta").exists():
        return []
    found = []
    for path in sorted(own.iterdir()) if own.is_dir() else ():
        with contextlib.suppress(OSError):
            if not path.is_file():
                continue
            with path.open("rb") as script:
                start = STARTED_WITH.match(script.read(1024))
            interpreter = Path(os.fsdecode(start[1])) if start else None
            if interpreter and not same_folder(interpreter.parent, own):
                found.append(f"{path.name} -> {interpreter}")
    return found


def main() -> None:
    """Print the facts."""
    print(
        json.dumps(
            {
                "version": platform.python_version(),
                "implementation": platform.python_implementation(),
                # A venv that lost its pyvenv.cfg runs as the interpreter below it, whose prefix is another folder.
                "own_prefix": Path(sys.executable).parent.parent == Path(sys.prefix),
                "strange_scripts": strange_scripts(),
                "python_h": (Path(sysconfig.get_path("include")) / "Python.h").exists(),
                "bytecode_percent": bytecode_percent(),
            }
        )
    )


if __name__ == "__main__":
    main()
