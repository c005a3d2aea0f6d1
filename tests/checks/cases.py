"""Every table of cases: the modules ``cases_*.py`` beside this one."""

import importlib
from pathlib import Path

from host import Case

ALL: list[Case] = [
    case
    for path in sorted(Path(__file__).parent.glob("cases_*.py"))
    for case in importlib.import_module(path.stem).CASES
]
