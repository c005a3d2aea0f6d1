"""Compare ``runbook/tables/{vllm,torch,torchvision,torchaudio}.json`` with the metadata that the index has of each release.

    python benchmarks/check_pairs.py

Prints every value that differs and how many releases were read; exit code 1 when one differs or could not be read.
"""

import re
import sys
from email.parser import HeaderParser
from typing import Any

from packaging.specifiers import SpecifierSet

from runbook import remote, tables
from runbook.errors import ActionFailed
from runbook.refresh import asked_of
from runbook.resolve import newest

PYTHONS = ("3.11", "3.12", "3.10", "3.9")
PLATFORM = "x86_64-manylinux_2_40"
# table, key of its version, field -> package that the release asks for
TABLES: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("vllm", "vllm", {"torch": "torch", "torchvision": "torchvision", "torchaudio": "torchaudio", "transformers": "transformers", "flashinfer": "flashinfer-python"}),
    ("torch", "torch", {"triton": "triton"}),
    ("torchvision", "version", {"torch": "torch"}),
    ("torchaudio", "version", {"torch": "torch"}),
)  # fmt: skip


def metadata(wheels: remote.Wheels, name: str, version: str) -> str | None:
    """Of the first Python that the release has a wheel for; None when it has none here."""
    for python in PYTHONS:
        try:
            ((_, place),) = newest([f"{name}=={version}"], python, PLATFORM)
        except ActionFailed:
            continue
        return wheels.metadata(place)
    return None


def differences(row: dict[str, Any], fields: dict[str, str], text: str) -> list[str]:
    """What the row says otherwise."""
    found = []
    bounds = HeaderParser().parsestr(text).get("Requires-Python", "")
    if row.get("python") and SpecifierSet(row["python"]) != SpecifierSet(bounds):
        found.append(f"python: table {row['python']}, metadata {bounds}")
    for field in fields.keys() & row.keys():
        said = str(row[field])
        wanted = SpecifierSet(said if re.match(r"[<>=!~]", said) else f"=={said}")
        asked = asked_of(text, fields[field], PYTHONS[0])
        if asked != wanted:
            found.append(f"{field}: table {said}, metadata {asked}")
    return found


def main() -> None:
    """Read and compare."""
    read, wrong = 0, 0
    with remote.opened() as wheels:
        for name, key, fields in TABLES:
            for row in tables.rows(name):
                text = metadata(wheels, name, row[key])
                told = ["not read"] if text is None else differences(row, fields, text)
                read += text is not None
                wrong += len(told)
                for each in told:
                    print(f"{name} {row[key]} {each}")
    print(f"{read} releases read, {wrong} values differ or could not be read")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
