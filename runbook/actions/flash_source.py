"""The sources of a flash-attn build: fetched by pip from the index in force, or given as an sdist or a folder.

They are unpacked or copied into the build folder; what the user gave is not written to.
"""

import re
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from runbook import uv
from runbook.errors import ActionFailed, BadParameter
from runbook.probes.live import die_with_parent

CUTLASS = "csrc/cutlass/include/cutlass/cutlass.h"
SETUP = "setup.py"
OF_AMD = "/csrc/composable_kernel/"
# pip reads settings of its own; what is set for uv only is handed on (uv's documentation, environment variables).
FROM_UV = {
    "PIP_INDEX_URL": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"),
    "PIP_FIND_LINKS": ("UV_FIND_LINKS",),
    "PIP_NO_INDEX": ("UV_NO_INDEX", "UV_OFFLINE"),
}


def release_of(source: Path) -> str:
    """The release of an sdist, by its name, or of a source folder, by its package.

    Raises:
        BadParameter: it is neither.
    """
    if source.is_file() and (
        found := re.fullmatch(r"flash[_-]attn-(\d[\w.]*?)\.(?:tar\.gz|tgz)", source.name)
    ):
        return found[1]
    init = source / "flash_attn" / "__init__.py"
    if init.is_file() and (
        found := re.search(r'(?m)^__version__ = "(\d[\w.]*)"', init.read_text(encoding="utf-8"))
    ):
        return found[1]
    raise BadParameter(
        f"--source {source} is no source of flash-attn",
        "flash_attn-RELEASE.tar.gz, or a folder with setup.py and flash_attn/__init__.py",
        "fetch one where there is a network: pip download --no-deps --no-binary :all: flash-attn==2.8.3",
    )


def fetch(release: str, python: Path, folder: Path, env: Mapping[str, str], log: Path) -> Path:
    """The sdist from the index, by the target's interpreter with a pip on its PYTHONPATH.

    pip asks setup.py for the metadata, which imports torch; so the target's own interpreter is taken, without isolation.

    Raises:
        ActionFailed: it could not be fetched.
    """
    asks = {
        name: value
        for name, given in FROM_UV.items()
        if name not in env and (value := next((env[one] for one in given if env.get(one)), ""))
    }
    argv = [str(python), "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--progress-bar", "off", "-d", str(folder), f"flash-attn=={release}"]  # fmt: skip
    quietly(
        argv, {**env, **asks, "FLASH_ATTENTION_SKIP_CUDA_BUILD": "TRUE"}, folder, log, "fetching the sources"
    )
    found = sorted(folder.glob("flash*attn-*.tar.gz"))
    if not found:
        raise ActionFailed(f"pip left no sdist in {folder}", "flash_attn-RELEASE.tar.gz", f"read {log}")
    return found[0]


def quietly(argv: Sequence[str], env: Mapping[str, str], cwd: Path, log: Path, what: str) -> None:
    """Run a short command, its output into the log.

    Raises:
        ActionFailed: it did not end with 0; carries its last lines.
    """
    with log.open("a", encoding="utf-8") as out:
        ran = subprocess.run(
            argv,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=dict(env),
            cwd=cwd,
            check=False,
            preexec_fn=die_with_parent(),
        )
    if ran.returncode:
        lines = [
            line.strip()
            for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
            if line.strip()
        ]
        raise ActionFailed(
            f"{what} ended with {ran.returncode}: " + " | ".join(line[:200] for line in lines[-3:]),
            "the index in force serves it, or the sources and tools are given",
            f"read {log}; without a network: --source SDIST, and UV_FIND_LINKS=FOLDER for the build tools",
        )


def by_uv(words: Sequence[str], log: Path, what: str) -> None:
    """One call of uv, with its own settings (index, proxy, find-links); output into the log.

    Raises:
        ActionFailed: it did not end with 0.
    """
    argv = [uv.program(), *words, "--color", "never", "--no-progress"]
    quietly(argv, uv.environment(), log.parent, log, what)


def lay_out(source: Path, place: Path) -> Path:
    """Unpack or copy the sources below ``place``; returns the folder with setup.py.

    Raises:
        BadParameter: the archive is damaged, or cutlass is not in it.
    """
    if source.is_dir():
        ignore = shutil.ignore_patterns(".git", "build", "dist", "*.egg-info", "__pycache__")
        folder = Path(shutil.copytree(source, place / "src", ignore=ignore, symlinks=True))
    else:
        try:
            _unpack(source, place)
        except (tarfile.TarError, EOFError, OSError) as why:
            raise BadParameter(
                f"{source} cannot be unpacked: {why}", "a whole sdist", "fetch it again"
            ) from why
        folder = next((path.parent for path in place.glob(f"*/{SETUP}")), place)
    if not (folder / SETUP).is_file() or not (folder / CUTLASS).is_file():
        raise BadParameter(
            f"{source} has no {CUTLASS if (folder / SETUP).is_file() else SETUP}",
            "an sdist, or a clone with its submodules",
            "git submodule update --init csrc/cutlass",
        )
    return folder


def _unpack(source: Path, place: Path) -> None:
    def wanted(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
        # AMD's kernels: more than half of the files, and nothing of a build for CUDA reads them.
        return None if OF_AMD in f"{member.name}/" else tarfile.data_filter(member, folder)

    with tarfile.open(source) as archive:
        archive.extractall(place, filter=wanted)  # noqa: S202 - the filter is Python's own for data


def narrow(folder: Path, archs: Sequence[str]) -> None:
    """Rewrite the targets in a setup.py that does not read FLASH_ATTN_CUDA_ARCHS: those of ``archs`` and no other.

    Release 2.6.3 always compiles for sm_80, and for sm_90 where nvcc knows it.

    Raises:
        ActionFailed: its lines are not as expected.
    """
    path = folder / SETUP
    text = path.read_text(encoding="utf-8")
    pair = re.compile(
        r'( *)cc_flag\.append\("-gencode"\)\n *cc_flag\.append\("arch=compute_(80|90),code=sm_\2"\)\n'
    )
    found = [match[2] for match in pair.finditer(text)]
    if found != ["80", "90"]:
        raise ActionFailed(
            f"{SETUP} of this release sets its targets in lines that are not known ({found})",
            "the lines of 2.6.3",
            "take --release 2.8.3, which reads FLASH_ATTN_CUDA_ARCHS",
        )

    def written(match: re.Match[str]) -> str:
        # All in the place of the first, which stands at the top level; the second is below a condition about nvcc.
        flags = [flag for one in archs for flag in ("-gencode", f"arch=compute_{one},code=sm_{one}")]
        return f"{match[1]}cc_flag += {flags if match[2] == '80' else []!r}\n"

    path.write_text(pair.sub(written, text), encoding="utf-8")
