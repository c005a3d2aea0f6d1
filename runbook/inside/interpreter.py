"""Run by the target interpreter: its version, where it looks for packages, what metadata and version files lie there.

Only small modules of the standard library are imported, so that it answers where torch does not. Prints one JSON object.
"""

from __future__ import annotations  # a target may be older than the runbook's own Python

import json
import os
import platform
import site
import sys

LONGEST = 5_000  # characters of a version file; torch's has 400, vLLM's 800


def metadata(folder: str) -> list[str]:
    """Names of the metadata folders (of old: files) in one folder of ``sys.path``; none when it cannot be listed."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - importing pathlib doubles the time of this child
    except OSError:
        return []
    return sorted(name for name in names if name.endswith((".dist-info", ".egg-info")))


def at_once(path: str, flags: int) -> int:
    """Open without waiting: a pipe of that name reads as empty."""
    return os.open(path, flags | os.O_NONBLOCK)


def text_of(places: list[str], name: str) -> str | None:
    """The file of that name in the first of these folders that has it, which is where an import would find it."""
    for folder in places:
        try:
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace", opener=at_once) as file:  # noqa: PTH118 - as above
                return file.read(LONGEST)
        except OSError:
            continue
    return None


def user_site() -> list[str]:
    """The user's own packages: this child is started without them, a ``python`` from the shell is not.

    A venv has them only together with the system's packages (module ``site`` reads the same key of pyvenv.cfg).
    """
    if sys.prefix != sys.base_prefix:
        try:
            with open(os.path.join(sys.prefix, "pyvenv.cfg"), encoding="utf-8") as file:  # noqa: PTH118, PTH123 - as above
                text = file.read().lower().replace(" ", "")
        except OSError:
            text = ""
        if "include-system-site-packages=true" not in text:
            return []
    return [site.getusersitepackages()]


def main() -> None:
    """Print the facts."""
    places = [one for one in sys.path[1:] if one] + user_site()
    found = [(one, metadata(one)) for one in dict.fromkeys(places)]
    print(
        json.dumps(
            {
                "version": sys.version.replace("\n", " "),
                "bits": sys.maxsize.bit_length() + 1,
                "platform": platform.platform(),
                "executable": sys.executable,
                "venv": sys.prefix != sys.base_prefix,
                "packages": [[one, names] for one, names in found if names],
                "torch_version": text_of(places, "torch/version.py"),
                "vllm_version": text_of(places, "vllm/_version.py"),
            }
        )
    )


if __name__ == "__main__":
    main()
