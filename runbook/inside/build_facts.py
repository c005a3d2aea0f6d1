"""Run by the target interpreter: what an extension would be built against here. Prints one JSON object.

``tools`` are the packages a build without isolation must find in this environment, with their versions, None for one
that is not there; ``--path FOLDER`` is looked into first, as PYTHONPATH would be. setuptools reads their metadata for
``setup_requires``, so a ``ninja`` on PATH without a package does not count.
"""

import argparse
import importlib.metadata
import json
import sys
import sysconfig
from pathlib import Path

TOOLS = ("setuptools", "wheel", "ninja", "packaging", "psutil")


def version(package: str) -> str | None:
    """The version of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def main() -> None:
    """Print the facts, or why torch does not load."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--path", default="")
    path = parser.parse_args().path
    if path:
        sys.path.insert(0, path)
    try:
        import torch

        abi = bool(torch._C._GLIBCXX_USE_CXX11_ABI)  # noqa: SLF001 - setup.py of flash-attn and cpp_extension read it there
    except Exception as why:
        print(json.dumps({"error": f"{type(why).__name__}: {why}"}))
        return
    include = Path(sysconfig.get_path("include"))
    print(
        json.dumps(
            {
                "torch": torch.__version__,
                "cuda": torch.version.cuda,
                "cxx11_abi": abi,
                "tag": f"cp{sys.version_info.major}{sys.version_info.minor}",
                "python_h": str(include) if (include / "Python.h").exists() else None,
                "tools": {name: version(name) for name in TOOLS},
            }
        )
    )


if __name__ == "__main__":
    main()
