"""What small tools print, in the forms they are known to print it in; odd text gives nothing and never an exception."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.parse import system

TOPO = "\t\x1b[4mGPU0\tGPU1\tCPU Affinity\x1b[0m\nGPU0\t X \tNV18\t0-31\n"


def test_the_name_of_the_system() -> None:
    assert system.os_name('NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.1 LTS"\n') == "Ubuntu 24.04.1 LTS"
    assert system.os_name("ID=arch\nPRETTY_NAME=Arch\n") == "Arch"
    assert system.os_name("ID=arch\n") is None
    assert system.os_name(None) is None


@pytest.mark.parametrize(
    ("name", "text", "seen"),
    [
        ("gcc", "gcc (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright (C) 2022\n", "(Debian 12.2.0-14+deb12u1) 12.2.0"),
        ("gcc", "x86_64-conda-linux-gnu-gcc (conda-forge gcc 13.3.0-1) 13.3.0\n", "(conda-forge gcc 13.3.0-1) 13.3.0"),
        ("cmake", "cmake version 3.25.1\n\nCMake suite\n", "version 3.25.1"),
        ("gcc", "bash: no such thing", None),
        ("gcc", "", None),
    ],
)  # fmt: skip
def test_the_version_line_of_a_tool(name: str, text: str, seen: str | None) -> None:
    assert system.tool(name, text) == seen


def test_nvcc_is_told_with_its_build() -> None:
    assert system.nvcc_build("Cuda compilation tools, release 13.0, V13.0.88\n") == "13.0.88"
    assert system.nvcc_build("release 13.0") is None


@pytest.mark.parametrize(
    ("entry", "seen"),
    [
        ("nvidia_nccl_cu12-2.27.5.dist-info", ("nvidia-nccl-cu12", "2.27.5")),
        ("torch-2.10.0+cu128.dist-info", ("torch", "2.10.0+cu128")),
        ("PyJWT-2.6.0.egg-info", ("pyjwt", "2.6.0")),
        ("numpy-1.24.2-py3.11.egg-info", ("numpy", "1.24.2")),
        ("cryptography.egg-info", ("cryptography", "")),
        ("~umpy-2.2.6.dist-info", None),  # what pip leaves behind when it is interrupted
        ("torch", None),
        (".dist-info", None),
    ],
)
def test_a_package_by_the_name_of_its_metadata(entry: str, seen: tuple[str, str] | None) -> None:
    assert system.package(entry) == seen


def test_conda_names_its_files_name_version_build() -> None:
    found = system.conda_packages(
        (
            "{prefix}/conda-meta/pytorch-cuda-12.4-hc786d27_7.json",
            "{prefix}/conda-meta/numpy-2.2.6-py312h72c5963_0.json",
            "{prefix}/conda-meta/history",
            "{prefix}/conda-meta/odd.json",
        )
    )
    assert found == (("numpy", "2.2.6", "py312h72c5963_0"), ("pytorch-cuda", "12.4", "hc786d27_7"))


def test_a_card_loses_its_uuid_and_a_mig_slice_too() -> None:
    text = "GPU 0: NVIDIA H200 (UUID: GPU-aa11)\n  MIG 1g.18gb Device 0: (UUID: MIG-bb22)\n"
    assert system.without_uuids(text) == "GPU 0: NVIDIA H200\n  MIG 1g.18gb Device 0:\n"


def test_a_table_loses_its_underlines() -> None:
    assert system.without_escapes(TOPO).startswith("\tGPU0\tGPU1\tCPU Affinity\n")


@pytest.mark.parametrize(
    ("text", "name", "seen"),
    [
        ("debug = False\n", "debug", "False"),
        ("hip: Optional[str] = None\n", "hip", None),
        ("hip: Optional[str] = '6.3.42134'\n", "hip", "6.3.42134"),
        ("__version__: str\n__version__ = version = '0.19.1'\n", "__version__", "0.19.1"),
        ("__commit_id__ = commit_id = 'gb1388b1fb'\n", "__commit_id__", "gb1388b1fb"),
        ("__version__ = \n", "__version__", None),
        (None, "debug", None),
    ],
)
def test_what_a_version_file_assigns(text: str | None, name: str, seen: str | None) -> None:
    assert system.assigned(text, name) == seen


PARSERS: dict[str, Callable[[str], Any]] = {
    "os_name": system.os_name,
    "tool": lambda text: system.tool("gcc", text),
    "nvcc_build": system.nvcc_build,
    "package": system.package,
    "conda_packages": lambda text: system.conda_packages(text.splitlines()),
    "without_uuids": system.without_uuids,
    "without_escapes": system.without_escapes,
    "assigned": lambda text: system.assigned(text, "debug"),
}
PIECES = ("PRETTY_NAME=", '"', "gcc ", "release 1 V", "-", ".dist-info", ".egg-info", "-py3", ".json", "/", " (UUID: ", "\x1b[", "4m", "debug", " = ", "None", "\n", "²", "\x00", "٣")  # fmt: skip
ODD = st.one_of(st.text(), st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=30).map("".join))


@pytest.mark.parametrize("name", PARSERS)
@given(text=ODD)
def test_odd_text_is_no_exception(name: str, text: str) -> None:
    found = PARSERS[name](text)
    assert found is None or isinstance(found, str | tuple)
