"""Exact versions that an installed package asks for: what torch says about the libraries it was built with."""

import re

from runbook.parse.python_env import normal, requires

_EXACT = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?\s*\(?\s*==\s*([0-9][^\s;,)]*)", re.ASCII)


def pinned(metadata: str | None) -> dict[str, str]:
    """Package -> version of each ``==`` among the ``Requires-Dist`` lines without an extra; of two for one package the first."""
    found: dict[str, str] = {}
    for line in requires(metadata):
        if exact := _EXACT.match(line):
            found.setdefault(normal(exact[1]), exact[2])
    return found


def asked(metadata: str | None, package: str) -> str | None:
    """The version specifiers of a package among the requirements: ``==2.10.0``, ``""`` for any; None when it asks for none."""
    for line in requires(metadata):
        found = re.match(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?\s*\(?([^;)]*)", line, re.ASCII)
        if found and normal(found[1]) == package:
            return found[2].strip()
    return None


def meets(version: str, specifiers: str) -> bool | None:
    """Whether a version meets specifiers, local tag aside and pre-releases counted; None when either cannot be read."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415 - 12 ms that other checks need not pay
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415

    try:
        return SpecifierSet(specifiers).contains(Version(version.split("+", maxsplit=1)[0]), prereleases=True)
    except (InvalidSpecifier, InvalidVersion, ValueError):
        return None


def parts(version: str) -> tuple[int, ...]:
    """``9.10.2.21`` -> (9, 10, 2, 21); what is no number ends it."""
    found = re.match(r"\d{1,9}(?:\.\d{1,9})*", version, re.ASCII)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def cudnn(number: object) -> str | None:
    """The version in cuDNN's own number: 91002 is ``9.10.2``; releases up to 8 count in hundreds (8902 is ``8.9.2``)."""
    text = str(number) if isinstance(number, int) else ""
    found = re.fullmatch(r"(\d)(\d)(\d\d)|(\d{1,2})(\d\d)(\d\d)", text, re.ASCII)
    return ".".join(str(int(part)) for part in found.groups() if part) if found else None


def libraries(record: str | None) -> tuple[str, ...]:
    """Paths of shared libraries in a wheel's RECORD, relative to site-packages."""
    lines = (line.split(",", 1)[0] for line in (record or "").splitlines())
    return tuple(sorted(path for path in lines if re.search(r"\.so(?:\.\d+)*$", path, re.ASCII)))
