"""``runbook abi``: what each library that links torch or CUDA lacks, as a table or as JSON. Nothing is loaded or installed."""

import json
import tempfile
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from runbook.checks import abi, readings
from runbook.errors import BadParameter, RunbookError
from runbook.parse import links as parse_links
from runbook.parse.links import Link, Links
from runbook.probe import Probe
from runbook.report import plain

WIDTH = 80
# Unpacking a wheel of vLLM and looking into it takes some seconds, on a slow disk more.
WHEELS_TIMEOUT_S = 600.0
LEGEND = (
    "whole     every library and symbol it needs is found where the loader looks",
    "not used  a file for another torch, CUDA or processor: its package loads another one",
)


class NotRead(RunbookError):
    """There is no verdict, for the files could not be read (exit code 3)."""

    exit_code = 3


def of_target(host: Probe) -> Links:
    """The links of the target environment.

    Raises:
        BadParameter: there is no such environment.
        NotRead: its files could not be read.
    """
    _need_target(host)
    found = readings.links(host)
    if found is None:
        raise NotRead(*readings.unread(host))
    return found


def of_wheels(host: Probe, wheels: Sequence[Path]) -> Links:
    """The links that the wheels would have in the target environment, which is not changed.

    Raises:
        BadParameter: no such environment, a path that is no wheel, or a recorded machine, which has no files.
        NotRead: a wheel could not be read.
    """
    if host.machine != "live":
        raise BadParameter(
            f"wheels beside {host.machine}",
            "a live machine: wheels are judged against its files",
            "leave one of the two out",
        )
    _need_target(host)
    for wheel in wheels:
        if wheel.suffix != ".whl" or not wheel.is_file():
            raise BadParameter(
                f"there is no file {wheel}" if not wheel.exists() else f"{wheel} is no wheel",
                "a file NAME-VERSION-TAGS.whl",
                "check the path, or: pip download --no-deps NAME==VERSION",
            )
    # Made here and not by the program, which is killed at its deadline and on Ctrl-C.
    with tempfile.TemporaryDirectory(prefix="runbook-abi-") as room:
        files = [str(one.resolve()) for one in wheels]
        argv = ["{own}/python", "-m", "runbook.binaries.before", "{site}", room, *files]
        ran = host.run(argv, WHEELS_TIMEOUT_S)
    found = parse_links.links(ran.out) if ran.ok else None
    if found is None:
        last = ran.err.strip().splitlines()[-1:]
        why = ["no end within the time there was"] if ran.timed_out else last
        raise NotRead(
            ": ".join(["the wheels could not be read", *why]),
            "wheels, and room for their libraries in the temporary folder",
            "download them again, or set TMPDIR",
        )
    if strange := sorted({one.machine for one in found.files if one.machine} - {found.machine}):
        raise BadParameter(
            f"the wheels hold libraries for {', '.join(strange)}",
            f"wheels for {found.machine}, as the target is",
            "download them on such a machine, or with pip download --platform",
        )
    return found


def _need_target(host: Probe) -> None:
    if not host.has_target:
        raise BadParameter(
            "there is no target environment to look at",
            "a Python environment",
            "name one with --target PYTHON, or build one: runbook run 03_python",
        )


def exit_code(found: Links) -> int:
    """0: nothing that torch, CUDA or their extensions need is missing. 1: something is."""
    return int(bool(abi.broken(found)))


def as_json(found: Links) -> str:
    """``[{file, role, whole, missing_libraries, missing: [{symbol, version, demangled}], ..., torch}]``."""
    rows = [
        {
            "file": one.file,
            "role": one.role,
            "whole": one.whole,
            "problem": one.problem,
            "missing_libraries": list(one.missing_libraries),
            "driver": list(one.driver),
            "missing_count": one.missing_count,
            "missing": [
                {"symbol": each.symbol, "version": each.version, "demangled": each.demangled}
                for each in one.missing
            ],
            "missing_versions": [
                {"library": library, "version": version, "found": path}
                for library, version, path in one.missing_versions
            ],
            "through": list(one.through),
            "torch": abi.releases((each.symbol for each in one.missing), one.machine),
        }
        for one in found.files
    ]
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"


def as_text(found: Links) -> str:
    """What they are judged against, then the files by package, each with what it lacks, then a line that sums up."""
    runtime = [
        f"{kind} {version}"
        for one in (found.libc, found.libstdcxx)
        if one
        for kind, version in one.newest
        if kind != "CXXABI"
    ]
    lines = [
        f"against torch {found.torch or 'none'}, CUDA {found.torch_cuda or 'none'}, {', '.join(runtime)}"
    ]
    for package, group in groupby(found.files, key=lambda one: one.package):
        members = list(group)
        alone = len(members) == 1 and "/" not in members[0].file
        lines += ["", *([] if alone else [package])]
        for one in members:
            name = one.file if alone else "  " + one.file.removeprefix(f"{package}/")
            lines.append(f"{name:50} {_state(one, found)}".rstrip())
            lines += [f"      {line}"[:400] for line in _lacks(one) if one.role != "other"]
    if not found.files:
        lines += ["", "nothing here links torch or CUDA"]
    bad = abi.broken(found)
    said = (
        f"{len(bad)} of {len(found.judged)} files lack something{' or cannot be read' if any(one.problem for one in bad) else ''}"
        if bad
        else f"all {len(found.judged)} judged files are whole"
    )
    driver = sorted({name for one in found.files for name in one.driver})
    lines += [
        "",
        *LEGEND,
        *([f"left to the driver, not on this machine: {', '.join(driver)}"] if driver else []),
        "",
        said,
    ]
    return "\n".join(map(plain, lines)) + "\n"


def _state(one: Link, found: Links) -> str:
    if one.role == "other":
        return "not used"
    if one.whole:
        return "whole"
    if one.problem:
        return "cannot be read"
    what = [
        *(["libraries"] if one.missing_libraries else []),
        *(["versions"] if one.missing_versions else []),
        *(
            [f"{one.missing_count} symbols" if one.missing_count > 1 else "1 symbol"]
            if one.missing_count
            else []
        ),
    ]
    text = "lacks " + ", ".join(what) if what else "broken through another"
    return f"{text}{'' if one in found.judged else ' (loaded on demand)'}"


def _lacks(one: Link) -> Iterable[str]:
    yield from ([f"damaged  {one.problem}"] if one.problem else [])
    yield from (f"library  {name}" for name in one.missing_libraries)
    yield from (
        f"version  {version} is not in {path or library}" for library, version, path in one.missing_versions
    )
    yield from (
        f"symbol   {each.demangled}{'@' + each.version if each.version else ''}" for each in one.missing
    )
    if one.missing_count > len(one.missing):
        yield f"         and {one.missing_count - len(one.missing)} more"
    if likely := abi.releases((each.symbol for each in one.missing), one.machine):
        yield f"torch    {likely} export them"
    if not (one.missing_libraries or one.missing_count or one.missing_versions):
        yield from (f"needs    {name}" for name in one.through[:3])
