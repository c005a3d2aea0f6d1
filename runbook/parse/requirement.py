"""What installed packages ask of each other, from the ``Requires-Dist`` lines of their METADATA."""

from collections.abc import Mapping
from dataclasses import dataclass

from runbook.parse.python_env import normal, requires


@dataclass(frozen=True)
class Asked:
    """One requirement: ``have`` is the installed version (None: none), ``met`` None where it cannot be judged."""

    package: str
    asked: str
    have: str | None
    met: bool | None


def environment(minor: str, machine: str) -> dict[str, str]:
    """What markers are judged by: CPython ``minor`` (``3.11``) on Linux, ``machine`` as uname says (``x86_64``)."""
    return {
        "implementation_name": "cpython",
        "implementation_version": f"{minor}.0",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{minor}.0",
        "python_version": minor,
        "sys_platform": "linux",
        "extra": "",
    }


def judged(metadata: str | None, have: Mapping[str, str], where: Mapping[str, str]) -> tuple[Asked, ...]:
    """Each requirement that applies in the environment ``where``; lines that are no requirement are left out."""
    from packaging.markers import InvalidMarker, UndefinedComparison, UndefinedEnvironmentName  # noqa: PLC0415
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415 - slow; few commands need them

    found = []
    for line in requires(metadata):
        try:
            one = Requirement(line)
            if one.marker and not one.marker.evaluate(dict(where)):
                continue
        except (InvalidRequirement, InvalidMarker, UndefinedComparison, UndefinedEnvironmentName):
            continue
        version = have.get(normal(one.name))
        asked = str(one.specifier) or "any"
        found.append(Asked(normal(one.name), asked, version, _met(one.specifier, version)))
    return tuple(found)


def _met(specifier: object, version: str | None) -> bool | None:
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415

    if version is None:
        return False
    if not isinstance(specifier, SpecifierSet):
        return None
    try:
        return specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return None


def local_tag_only(one: Asked) -> bool:
    """True when ``==2.13.0+cpu`` was asked and 2.13.0 is there: the same release without, or with another, local tag."""
    pinned, _, tag = one.asked.removeprefix("==").partition("+")
    return (
        one.asked.startswith("==") and bool(tag) and one.have is not None and one.have.split("+")[0] == pinned
    )
