"""inside/owners.py over small environments that are made here: what RECORD files say against what lies there."""

import base64
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runbook.probes.live import INSIDE

MINOR = f"python{sys.version_info.major}.{sys.version_info.minor}"


class Environment:
    """A venv of the interpreter at hand without any package."""

    def __init__(self, root: Path) -> None:
        self.python = root / "bin" / "python"
        self.site = root / "lib" / MINOR / "site-packages"
        self.python.parent.mkdir()
        self.site.mkdir(parents=True)
        base = Path(sys.executable).resolve()
        self.python.symlink_to(base)
        (root / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")

    def install(self, name: str, version: str, files: dict[str, str]) -> None:
        """Files, and the RECORD of them."""
        info = self.site / f"{name}-{version}.dist-info"
        info.mkdir()
        rows = [
            f"{info.name}/RECORD,,",
            f"../../../bin/{name},sha256=x,1",
            f"{name}/__pycache__/a.cpython-311.pyc,,",
        ]
        for path, text in files.items():
            (self.site / path).parent.mkdir(parents=True, exist_ok=True)
            (self.site / path).write_text(text, encoding="utf-8")
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            word = f'"{path}"' if "," in path else path
            rows.append(f"{word},sha256={digest},{len(text.encode())}")
        (info / "INSTALLER").write_text("pip\n", encoding="utf-8")
        (info / "RECORD").write_text("\n".join(rows) + "\n", encoding="utf-8")

    def facts(self) -> dict[str, Any]:
        """What the script prints."""
        argv = [str(self.python), "-I", str(INSIDE / "owners.py")]
        ended = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
        found: dict[str, Any] = json.loads(ended.stdout)
        return found


@pytest.fixture
def made(tmp_path: Path) -> Environment:
    """Two packages, whole."""
    one = Environment(tmp_path)
    one.install(
        "alpha",
        "1.0",
        {"alpha/__init__.py": "x = 1\n", "alpha/_C.abi3.so": "machine code", "alpha/a, b.txt": "data"},
    )
    one.install("beta", "2.0", {"beta.py": "y = 2\n"})
    return one


def test_whole(made: Environment) -> None:
    found = made.facts()
    assert 0 <= found.pop("seconds") < 10
    assert found == {
        "distributions": 2,
        "files": 6,
        "installers": {"pip": 2},
        "unrecorded": [],
        "missing": [],
        "resized": [],
        "shared": [],
        "unowned": [],
    }


def test_a_deleted_library_is_named(made: Environment) -> None:
    (made.site / "alpha" / "_C.abi3.so").unlink()
    (made.site / "alpha" / "a, b.txt").unlink()
    (row,) = made.facts()["missing"]
    assert row == {
        "distribution": "alpha 1.0",
        "files": 2,
        "code": 1,
        "first": ["alpha/_C.abi3.so", "alpha/a, b.txt"],
    }


def test_a_changed_file_is_named(made: Environment) -> None:
    (made.site / "beta.py").write_text("y = 2  # edited\n", encoding="utf-8")
    (row,) = made.facts()["resized"]
    assert (row["distribution"], row["first"]) == ("beta 2.0", ["beta.py"])


def test_two_owners_of_different_contents(made: Environment) -> None:
    made.install(
        "alpha_cpu", "1.1", {"alpha/__init__.py": "x = 1  # other\n", "alpha/_C.abi3.so": "machine code"}
    )
    found = made.facts()
    (row,) = found["shared"]
    # The equal library is nobody's trouble, and the size that no longer fits alpha is that of the later install.
    assert row == {
        "owners": ["alpha 1.0", "alpha_cpu 1.1"],
        "files": 1,
        "code": 1,
        "first": ["alpha/__init__.py"],
    }
    assert found["resized"] == []


def test_what_nobody_recorded(made: Environment) -> None:
    (made.site / "flash_attn").mkdir()
    (made.site / "flash_attn" / "__init__.py").touch()
    (made.site / "sitecustomize.py").touch()
    (made.site / "own.pth").touch()
    (made.site / "notes").mkdir()
    (made.site / "README.txt").touch()
    (made.site / "__pycache__").mkdir()
    assert made.facts()["unowned"] == ["flash_attn", "own.pth", "sitecustomize.py"]


def test_a_package_without_record(made: Environment) -> None:
    (made.site / "beta-2.0.dist-info" / "RECORD").unlink()
    found = made.facts()
    assert found["unrecorded"] == ["beta 2.0"]
    assert found["unowned"] == ["beta.py"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        ",,\n",
        '"',
        "a,b",
        "x\0y,,3\n",
        "alpha/__init__.py,sha256=x,\N{SUPERSCRIPT TWO}\n",
        "a,b,c,d,e\n",
        "\ufffd" * 200,
    ],
)
def test_an_odd_record_is_survived(made: Environment, text: str) -> None:
    (made.site / "beta-2.0.dist-info" / "RECORD").write_text(text, encoding="utf-8")
    assert made.facts()["distributions"] == 2


def test_tests_and_data_are_no_code(made: Environment) -> None:
    made.install("gamma", "3", {"gamma/tests/test_a.py": "", "gamma/lib.so.12": "", "gamma/data.json": ""})
    for path in ("tests/test_a.py", "lib.so.12", "data.json"):
        (made.site / "gamma" / path).unlink()
    (row,) = made.facts()["missing"]
    assert (row["files"], row["code"], row["first"][0]) == (3, 1, "gamma/lib.so.12")


def test_scripts_of_a_moved_environment(made: Environment, tmp_path: Path) -> None:
    """What PY-005 goes by: py_facts names scripts that start another interpreter."""
    scripts = {
        "good": f"#!{made.python}\n",
        "long": f"#!/bin/sh\n'''exec' \"{made.python}\" \"$0\" \"$@\"\n' '''\n",
        "pip": "#!/old/venv/bin/python3.11\nimport sys\n",
        "sh-pip": "#!/bin/sh\n'''exec' '/old venv/bin/python' \"$0\" \"$@\"\n' '''\n",
        "shell": "#!/bin/sh\necho\n",
        "by-env": "#!/usr/bin/env python\n",
        "binary": "\x7fELF\n#!/old/bin/python\n",
    }
    for name, text in scripts.items():
        (made.python.parent / name).write_text(text, encoding="utf-8")
    os.mkfifo(made.python.parent / "pipe")
    argv = [str(made.python), "-I", str(INSIDE / "py_facts.py")]
    found = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout)
    assert found["strange_scripts"] == ["pip -> /old/venv/bin/python3.11", "sh-pip -> /old venv/bin/python"]
    assert tmp_path.exists()
