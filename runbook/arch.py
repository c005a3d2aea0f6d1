"""``runbook arch``: how each library with GPU code serves each card, as one table or as JSON. Nothing is loaded."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from runbook import tables
from runbook.checks import arch, readings
from runbook.errors import BadParameter, RunbookError
from runbook.parse import binaries
from runbook.parse.binaries import Binary
from runbook.probe import Probe
from runbook.report import plain
from runbook.tables import JIT, NATIVE, NONE

WIDTH = 80
CELL = 10
AT_ONCE = 4
LEGEND = (
    "native   holds machine code (SASS) that this card runs",
    "ptx-jit  holds PTX only: the driver compiles it when it is first used",
    "none     'no kernel image is available for execution on the device'",
    "+N       native, but N of its source files were compiled to PTX only",
)

Cards = Mapping[str, Sequence[str]]


def cards(host: Probe, named: Sequence[str]) -> Cards:
    """Capability -> names: of the cards named with --gpu, else of those in the machine.

    Raises:
        BadParameter: a name that is not known, or no card here and none named.
    """
    found: dict[str, list[str]] = {}
    for name in named:
        names = found.setdefault(tables.capability(name), [])
        names += [name] if name not in names else []
    if found:
        return found
    present = arch.capabilities(host)
    if not present:
        seen = "a card here prints no compute capability" if present is None else "no GPU to compare with"
        raise BadParameter(
            f"{seen} on this machine",
            "a card, by name or compute capability",
            'add --gpu "RTX 4090", or --gpu sm_120',
        )
    return present


def of_target(host: Probe) -> tuple[Binary, ...]:
    """The files of the target environment.

    Raises:
        BadParameter: there is no such environment.
        RunbookError: its files could not be read (exit code 3).
    """
    if not host.has_target:
        raise BadParameter(
            "there is no target environment to look at",
            "a Python environment",
            "name one with --target PYTHON, or build one: runbook env build",
        )
    files = readings.binaries(host)
    if files is None:
        raise NotRead(*readings.unread(host))
    return files


class NotRead(RunbookError):
    """There is no verdict, for the files could not be read (exit code 3)."""

    exit_code = 3


def of_wheels(paths: Iterable[Path]) -> tuple[Binary, ...]:
    """The files in wheels that are not installed.

    Raises:
        BadParameter: a path that is no wheel.
    """
    from runbook.binaries import wheel  # noqa: PLC0415 - zipfile, for this way only

    return binaries.rows_of([row for path in paths for row in wheel.rows(path)])


def exit_code(files: Sequence[Binary], asked: Cards, *, whole: bool) -> int:
    """0: every core file has code for every card. 1: one has none. 3: one could not be read.

    The core is what every start loads (``tables/kernels.json``): torch's CUDA libraries, vLLM's ``_C`` and ``_moe_C``.
    ``whole``: an environment and not single wheels, so none of torch's there is a 1 too.
    """
    found = arch.core(files)
    if any(one.problem for one in found):
        return 3
    if whole and not arch.core(files, "torch"):
        return 1
    return int(any(arch.serves(one, cap) == NONE for one in found for cap in asked))


def as_json(files: Iterable[Binary], asked: Cards) -> str:
    """``[{file, sass, ptx, gpus: {sm_90: native}}]``; ``problem`` as well where a file could not be read, and no gpus then."""
    rows = []
    for one in files:
        row: dict[str, object] = {"file": one.file, "sass": list(one.sass), "ptx": list(one.ptx)}
        if one.problem:
            row |= {"gpus": {}, "problem": one.problem}
        else:
            row["gpus"] = {arch.sm(cap): arch.serves(one, cap) for cap in asked}
        rows.append(row)
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"


def as_text(files: Sequence[Binary], asked: Cards) -> str:
    """The cards, a table of the files by package for every four of them, what the words mean, and torch and vLLM in short."""
    lines = [f"{arch.sm(cap):8} {_cut(', '.join(names), WIDTH - 9)}" for cap, names in asked.items()]
    caps = list(asked)
    for start in range(0, len(caps), AT_ONCE):
        lines += ["", *_block(files, caps[start : start + AT_ONCE])]
    if not files:
        lines += ["", "no library with GPU code was found"]
    unread = [
        f"not read {_middle(plain(one.file), WIDTH - 11 - len(why))}: {why}"
        for one in files
        if (why := _cut(one.problem, 40))
    ]
    return "\n".join((*lines, "", *LEGEND, "", *unread, *_verdicts(files, asked))) + "\n"


def _block(files: Sequence[Binary], caps: Sequence[str]) -> list[str]:
    room = WIDTH - CELL * len(caps)
    lines = [" " * room + "".join(f"{arch.sm(cap):{CELL}}" for cap in caps)]
    for package, group in groupby(files, key=lambda one: one.package):
        lines.append(plain(package) if package != (members := list(group))[0].file else "")
        for one in members:
            inner = plain(one.file.removeprefix(f"{package}/") or "./")
            name = inner + (f" ({one.cubins} programs)" if one.cubins else "")
            cells = (
                "could not be read" if one.problem else "".join(f"{_cell(one, cap):{CELL}}" for cap in caps)
            )
            lines.append(f"  {_middle(name, room - 3):{room - 2}}{cells}")
    return [line.rstrip() for line in lines if line]


def _cell(one: Binary, cap: str) -> str:
    how = arch.serves(one, cap)
    slow = arch.compiled(one, cap) if how == NATIVE else 0
    return f"{how}+{slow}" if slow and arch.core([one]) else how


def _verdicts(files: Sequence[Binary], asked: Cards) -> list[str]:
    """For each card how torch and vLLM are served by the files that every start loads."""
    parts = {name: arch.core(files, of) for name, of in (("torch", "torch"), ("vLLM", "vllm"))}
    return [
        f"{arch.sm(cap):8} {', '.join(f'{name}: {_core(found, cap)}' for name, found in parts.items())}"
        for cap in asked
    ]


def _core(found: Sequence[Binary], cap: str) -> str:
    if any(one.problem for one in found):
        return "not read"
    how = {arch.serves(one, cap) for one in found}
    return next((each for each in (NONE, JIT, NATIVE) if each in how), "not there")


def _cut(words: str, width: int) -> str:
    return words if len(words) <= width else f"{words[: width - 3]}..."


def _middle(name: str, width: int) -> str:
    """A path cut in its middle: begin and end say most."""
    if len(name) <= width:
        return name
    head = (width - 3) // 3
    return f"{name[:head]}...{name[len(name) - (width - 3 - head) :]}"
