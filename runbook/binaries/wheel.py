"""The machine code in a wheel that is not installed: each library of it is unpacked alone, read, and thrown away."""

import re
import tempfile
from pathlib import Path
from typing import Any

from runbook.binaries import code, packed, tree
from runbook.errors import BadParameter

CHUNK = 1 << 20
# A wheel puts what belongs into site-packages at its root, or into one of these (PEP 427).
_DATA = re.compile(r"[^/]+\.data/(?:purelib|platlib)/")


def _is_wanted(name: str) -> bool:
    last = name.rpartition("/")[2]
    return tree.is_library(last) or last.endswith(".cubin")


def rows(path: Path) -> list[dict[str, Any]]:
    """Rows as ``python -m runbook.binaries`` prints them, named as they will be named in site-packages.

    Raises:
        BadParameter: it is no wheel, or a damaged one.
    """
    found: list[dict[str, Any]] = []
    cubins: dict[str, list[str | None]] = {}
    try:
        with packed.opened(path) as wheel, tempfile.TemporaryDirectory(prefix="runbook-arch-") as folder:
            for member in packed.members(wheel, _is_wanted):
                name = _DATA.sub("", member.filename, count=1)
                last = name.rpartition("/")[2]
                file = Path(folder, "member")
                with wheel.open(member) as source, file.open("wb") as plain:
                    while chunk := source.read(CHUNK):
                        plain.write(chunk)
                if last.endswith(".cubin"):
                    cubins.setdefault(name[: -len(last)], []).append(code.cubin(str(file)))
                elif row := code.row(str(file), name, member.file_size):
                    found.append(row)
    except packed.BadWheel as why:
        raise BadParameter(
            f"{path} cannot be read as a wheel: {why}",
            "a file NAME-VERSION-TAGS.whl",
            "check the path, or download it again: pip download --no-deps NAME==VERSION",
        ) from why
    found += [code.cubins_row(folder, targets) for folder, targets in cubins.items()]
    return sorted(found, key=lambda row: str(row["file"]))
