"""Run by the target interpreter: what it is, from its own mouth. Prints one JSON object."""

import importlib.util
import json
import platform
import sys
import sysconfig
from pathlib import Path


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


def main() -> None:
    """Print the facts."""
    print(
        json.dumps(
            {
                "version": platform.python_version(),
                "implementation": platform.python_implementation(),
                # A copied venv keeps the first one's path in pyvenv.cfg and scripts; its own executable then lies elsewhere.
                "own_prefix": Path(sys.executable).parent.parent == Path(sys.prefix),
                "python_h": (Path(sysconfig.get_path("include")) / "Python.h").exists(),
                "bytecode_percent": bytecode_percent(),
            }
        )
    )


if __name__ == "__main__":
    main()
