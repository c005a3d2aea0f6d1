"""Data files that are a list of entries in YAML."""

from pathlib import Path
from typing import Any

import yaml

from runbook.errors import BadParameter


def read(path: Path, called: str) -> list[dict[str, Any]]:
    """The entries of one file, unchecked; ``called`` is how an error names it.

    Raises:
        BadParameter: it is no YAML, or no list of entries.
    """
    try:
        rows = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as why:
        raise BadParameter(f"{called}: {' '.join(str(why).split())}", "YAML", "mend that file") from why
    if not isinstance(rows, list) or not all(isinstance(one, dict) for one in rows):
        raise BadParameter(
            f"{called}: it holds no list of entries", "a list, each entry with its fields", "mend that file"
        )
    return rows
