"""The files of the ledger as YAML has them, unchecked: what ``runbook explain`` needs of them at once."""

from pathlib import Path
from typing import Any

from runbook import entries
from runbook.errors import BadParameter

FOLDER = Path(__file__).parent


def files(folder: Path = FOLDER) -> list[Path]:
    """The files of entries, ``ARTICLE/LAYER.yaml``."""
    return sorted(folder.glob("[0-9][0-9][0-9]/*.yaml"))


def of(path: Path) -> list[dict[str, Any]]:
    """The entries of one file.

    Raises:
        BadParameter: it is no YAML, or no list of entries.
    """
    return entries.read(path, _called(path))


def explained_by(check_id: str) -> list[tuple[str, str, str]]:
    """(id, verdict, claim) of what a check has to do with, by id."""
    return sorted(
        (str(row["id"]), str(row["verdict"]), str(row["claim"]))
        for path in files()
        for row in of(path)
        if check_id in row.get("checks", ())
    )


def wrong(path: Path, entry: str, seen: str, expected: str) -> BadParameter:
    """The error for an entry of a file."""
    return BadParameter(f"{_called(path)}, {entry}: {seen}", expected, "mend that file")


def _called(path: Path) -> str:
    return f"claims {path.parent.name}/{path.name}"
