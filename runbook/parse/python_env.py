"""Facts about a Python environment from its files, read as text: nothing is imported to learn its version."""

import ast
import re
from collections.abc import Iterable


def distributions(dist_infos: Iterable[str]) -> dict[str, str]:
    """Package -> version from paths of ``*.dist-info`` folders; names normalised (PEP 503)."""
    found = {}
    for path in dist_infos:
        match = re.fullmatch(r"(?:.*/)?([^/]+?)-([^/-]+)\.dist-info", path)
        if match:
            found[re.sub(r"[-_.]+", "-", match.group(1)).lower()] = match.group(2)
    return found


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
