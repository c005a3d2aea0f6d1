"""Wheels made on the spot and real environments that uv installs them into: torch in a second, without a network."""

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from runbook import uv


def made(folder: Path, name: str, version: str, files: Mapping[str, str], *, needs: Sequence[str] = (), script: str = "") -> Path:  # fmt: skip
    """A wheel of pure files; ``script`` is a program that starts it."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    head = [
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        *(f"Requires-Dist: {each}\n" for each in needs),
    ]
    whole = {
        **files,
        f"{info}/METADATA": "".join(head),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        **({f"{info}/entry_points.txt": f"[console_scripts]\n{script} = {name}:main\n"} if script else {}),
    }
    rows = [f"{path},sha256={_digest(text)},{len(text.encode())}" for path, text in whole.items()]
    whole[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""])
    path = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for inner, text in whole.items():
            wheel.writestr(inner, text)
    return path


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def torch(folder: Path, version: str = "2.10.0", cuda: str = "12.8", extra: str = "") -> Path:
    """A wheel called torch with the version file that the real one has."""
    tag = f"+cu{cuda.replace('.', '')}"
    text = f"__version__ = '{version}{tag}'\ndebug = False\ncuda: Optional[str] = '{cuda}'\nhip = None\n"
    return made(folder, "torch", version, {"torch/__init__.py": f"x = 1\n{extra}", "torch/version.py": text}, needs=["sympy", "triton; platform_system == 'Windows'", "opt-einsum; extra == 'opt-einsum'"], script="torchrun")  # fmt: skip


def environment(folder: Path, *wheels: Path) -> Path:
    """A virtual environment with these wheels in it, installed by the real uv from a folder; its interpreter."""
    env = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    # A cache of its own: a wheel of the same name and version with other files must not come from an earlier test.
    env |= {"UV_CACHE_DIR": str(folder.with_name(f"{folder.name}.cache")), "UV_NO_CONFIG": "1"}
    subprocess.run(
        [uv.program(), "venv", "-q", "--python", sys.executable, "--no-project", str(folder)],
        check=True,
        env=env,
    )
    python = folder / "bin" / "python"
    links = [word for wheel in wheels for word in ("--find-links", str(wheel.parent))]
    pins = [f"{name}=={version}" for name, version in (wheel.name.split("-")[:2] for wheel in wheels)]
    subprocess.run([uv.program(), "pip", "install", "-q", "--no-index", "--no-deps", "--python", str(python), *links, *pins], check=True, env=env)  # fmt: skip
    return python


def site(python: Path) -> Path:
    """Where its packages lie."""
    return next((python.parent.parent / "lib").glob("python3.*/site-packages"))
