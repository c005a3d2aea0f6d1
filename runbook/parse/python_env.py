"""Facts about a Python environment from its files, read as text: nothing is imported to learn its version."""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass


def normal(name: str) -> str:
    """A package's name as PEP 503 writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(dist_infos: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """(package, version) of each ``*.dist-info`` path, in order; a package that left two folders comes twice."""
    found = []
    for path in dist_infos:
        match = re.fullmatch(r"(?:.*/)?([^/]+?)-([^/-]+)\.dist-info", path)
        if match:
            found.append((normal(match.group(1)), match.group(2)))
    return tuple(found)


def distributions(dist_infos: Iterable[str]) -> dict[str, str]:
    """Package -> version from paths of ``*.dist-info`` folders; names normalised (PEP 503)."""
    return dict(installed(dist_infos))


def torch_version(text: str | None) -> tuple[str | None, str | None]:
    """(version with its local tag, CUDA version it was built for) of ``torch/version.py``."""
    return _literal(text, "__version__"), _literal(text, "cuda")


def _literal(text: str | None, name: str) -> str | None:
    found = re.search(rf"(?m)^{name}(?:\s*:[^=]+)?\s*=\s*(.+)$", text or "")
    if not found:
        return None
    try:
        value = ast.literal_eval(found.group(1).strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, str) else None


def requires(metadata: str | None) -> tuple[str, ...]:
    """The ``Requires-Dist`` lines of a METADATA file that hold without an extra."""
    lines = re.findall(r"(?m)^Requires-Dist:\s*(.+)$", metadata or "")
    return tuple(line.strip() for line in lines if not re.search(r"\bextra\s*==", line))


def pyvenv(text: str | None) -> dict[str, str]:
    """Keys of a ``pyvenv.cfg``."""
    pairs = [line.split("=", 1) for line in (text or "").splitlines() if "=" in line]
    return {key.strip(): value.strip() for key, value in pairs}


def python_minor(text: str | None) -> str | None:
    """``3.11`` of ``3.11.7`` or of ``Python 3.11.7``."""
    found = re.match(r"(?:Python )?([0-9]{1,2}\.[0-9]{1,3})(?![0-9])", text or "")
    return found.group(1) if found else None


@dataclass(frozen=True)
class OnPath:
    """What a shell starts for a name: its path, the file behind links, what starts it, whether it lies in a venv."""

    name: str
    path: str
    real: str
    venv: bool
    shebang: str

    @property
    def folder(self) -> str:
        """Where it lies."""
        return self.path.rpartition("/")[0]

    @property
    def interpreter(self) -> str:
        """The Python its first line names: a path, or a bare name behind ``env``; "" when it names none."""
        words = self.shebang.removeprefix("#!").split()
        if words and words[0].endswith("/env"):
            words = [word for word in words[1:] if not word.startswith("-")]
        named = words[0] if words else ""
        return named if named.rpartition("/")[2].startswith("python") else ""


def on_path(text: str | None) -> tuple[OnPath, ...]:
    """Rows ``name|path|real path|venv or nothing|first line or nothing``."""
    rows = [line.split("|", 4) for line in (text or "").splitlines()]
    return tuple(
        OnPath(name, path, real, venv == "venv", first.strip())
        for name, path, real, venv, first in (row for row in rows if len(row) == 5)  # noqa: PLR2004 - see the docstring
        if name and path.startswith(("/", "{"))  # a recording has a placeholder where somebody's folder was
    )


def conda_packages(paths: Iterable[str]) -> dict[str, str]:
    """Package -> version of ``conda-meta/NAME-VERSION-BUILD.json`` files."""
    found = {}
    for path in paths:
        match = re.fullmatch(r"(?:.*/)?([^/]+)-([^/-]+)-([^/-]+)\.json", path)
        if match:
            found[normal(match.group(1))] = match.group(2)
    return found


def path_file(text: str | None) -> tuple[tuple[str, ...], bool]:
    """(folders a ``.pth`` file adds, whether it runs code before all packages by ``sys.path.insert``)."""
    lines = [line.strip() for line in (text or "").splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    code = [line for line in lines if line.startswith(("import ", "import\t"))]
    return tuple(line for line in lines if line not in code), any("sys.path.insert" in line for line in code)


def half_renamed(paths: Iterable[str]) -> tuple[str, ...]:
    """What pip calls a package while it replaces it: ``~umpy`` of ``numpy``; its folder stays when it is interrupted."""
    names = {path.rpartition("/")[2] for path in paths}
    return tuple(sorted(name for name in names if name.startswith("~")))
