"""The files of the ledger as YAML has them, unchecked: what ``runbook explain`` needs of them at once."""

from pathlib import Path
from typing import Any

import yaml

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
    try:
        rows = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as why:
        raise wrong(path, "", " ".join(str(why).split()), "YAML") from why
    if not isinstance(rows, list) or not all(isinstance(one, dict) for one in rows):
        raise wrong(path, "", "it holds no list of entries", "a list, each entry with an id")
    return rows


def explained_by(check_id: str) -> list[tuple[str, str, str]]:
    """(id, verdict, claim) of what a check has to do with, by id."""
    return sorted(
        (str(row["id"]), str(row["verdict"]), str(row["claim"]))
        for path in files()
        for row in of(path)
        if check_id in row.get("checks", ())
    )


def wrong(path: Path, entry: str, seen: str, expected: str) -> BadParameter:
    """The error for a file, or for one entry of it."""
    where = f"{path.parent.name}/{path.name}" + (f", {entry}" if entry else "")
    return BadParameter(f"claims {where}: {seen}", expected, "mend that file")
