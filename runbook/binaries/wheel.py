"""The machine code in a wheel that is not installed: each library of it is unpacked alone, read, and thrown away."""

import re
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from runbook.binaries import code, tree
from runbook.errors import BadParameter

CHUNK = 1 << 20
# A wheel puts what belongs into site-packages at its root, or into one of these (PEP 427).
_DATA = re.compile(r"[^/]+\.data/(?:purelib|platlib)/")


def rows(path: Path) -> list[dict[str, Any]]:
    """Rows as ``python -m runbook.binaries`` prints them, named as they will be named in site-packages.

    Raises:
        BadParameter: it is no wheel, or a damaged one.
    """
    found: list[dict[str, Any]] = []
    cubins: dict[str, list[str | None]] = {}
    try:
        with zipfile.ZipFile(path) as wheel, tempfile.TemporaryDirectory() as folder:
            for member in wheel.infolist():
                name = _DATA.sub("", member.filename, count=1)
                last = name.rpartition("/")[2]
                if not (tree.is_library(last) or last.endswith(".cubin")):
                    continue
                file = Path(folder, "member")
                with wheel.open(member) as packed, file.open("wb") as plain:
                    while chunk := packed.read(CHUNK):
                        plain.write(chunk)
                if last.endswith(".cubin"):
                    cubins.setdefault(name[: -len(last)], []).append(code.cubin(str(file)))
                elif row := code.row(str(file), name, member.file_size):
                    found.append(row)
    except (OSError, zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as why:
        raise BadParameter(
            f"{path} cannot be read as a wheel: {why}",
            "a .whl file",
            "download it again: pip download --no-deps NAME==VERSION",
        ) from why
    found += [code.cubins_row(folder, targets) for folder, targets in cubins.items()]
    return sorted(found, key=lambda row: str(row["file"]))
