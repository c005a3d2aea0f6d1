"""No parser raises, whatever it is given; text in which nothing can be read gives None or nothing."""

import math
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook.parse import (
    build_log,
    cgroup,
    engine_config,
    metrics,
    mounts,
    nvidia,
    proc,
    python_env,
    vllm_log,
)

PARSERS: dict[str, Callable[[str], Any]] = {
    "gpus": nvidia.gpus,
    "module_version": nvidia.module_version,
    "driver_cuda": nvidia.driver_cuda,
    "nvcc": nvidia.nvcc,
    "cpu_flags": proc.cpu_flags,
    "cpu_name": proc.cpu_name,
    "meminfo_mib": lambda text: proc.meminfo_mib(text, "MemAvailable"),
    "cgroup number": cgroup.number,
    "cgroup quota": cgroup.quota,
    "cgroup paths": cgroup.paths,
    "cgroup groups": lambda text: cgroup.groups(text, mounts.mounts(text), "memory"),
    "mounts": mounts.mounts,
    "rooms": mounts.rooms,
    "disk": proc.disk,
    "glibc": proc.glibc,
    "soft_limit": lambda text: proc.soft_limit(text, "Max open files"),
    "status": lambda text: proc.status(text, "Uid"),
    "listed": proc.listed,
    "os_release": proc.os_release,
    "modules": proc.modules,
    "pci_drivers": proc.pci_drivers,
    "pci_nvidia": proc.pci_nvidia,
    "distributions": lambda text: python_env.distributions(text.splitlines()),
    "torch_version": python_env.torch_version,
    "requires": python_env.requires,
    "pyvenv": python_env.pyvenv,
    "totals": metrics.totals,
    "plain": vllm_log.plain,
    "root_line": vllm_log.root_line,
    "kv_cache": vllm_log.kv_cache,
    "errors": vllm_log.errors,
    "engine_config": lambda text: engine_config.config(
        f"Initializing a V1 LLM engine (v1) with config: {text}"
    ),
    "build progress": build_log.progress,
    "build last_file": build_log.last_file,
    "build first_error": build_log.first_error,
    "build disk_full": build_log.disk_full,
    "build killed": build_log.killed,
    "oom_kills": build_log.oom_kills,
}
NOTHING: tuple[Any, ...] = (
    None,
    (),
    "",
    {},
    frozenset(),
    (None, None),
    vllm_log.KvCache(None, None, None),
    cgroup.Groups(0),
)

# Pieces of what the parsers look for, and numbers that are none.
PIECES = (
    "0", "1", "-1", "9" * 5000, "\N{SUPERSCRIPT TWO}", "\N{ARABIC-INDIC DIGIT THREE}", "1.2.3", ".", ",", "1,2,,3", "NaN", "1e999", "0x10", "\n", "\r\n", "\t", " ", "\0", "\x1b[31m", "\ud800",
    ", ", '"', "'", "{", "}", "[", "]", "=", ": ", "#", "\\", "0, x, 9.0, 580.1, 1, 1, 0, Disabled\n",
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  ", "CUDA Version: ", "release ", "flags\t: ", "model name : ", "MemAvailable: ", " kB", "max",
    "Filesystem 1024-blocks Used Available Capacity Mounted on\n", "/dev/vda 1 1 1 1% /", "/dev/vda ", "glibc ", "Max open files  ", "unlimited", "0::/", "4:memory:/a/", "..", "27 1 0:1 / / rw - cgroup2 c rw\n", "27 1 0:1 /a /b rw - cgroup c memory\n", " - ", "\\040", "\\777", "0-3", "1 1 1 ext4 /\n", "Uid:\t", "ID=", "nvidia 1 ", "0028\t10de2335\t", "zzzz\t10de",
    "/a-1.dist-info", "-.dist-info", "__version__ = ", "cuda: Optional[str] = ", "'2.10.0'", "{[]: 1}", "(" * 300, "-" * 3000, "'\\d'", "Requires-Dist: ", "; extra == 'x'", "version = ",
    "# TYPE a counter\n", 'a_total{b="c"} 1\n', "a{", "# HELP", "# EOF", "GPU KV cache size: ", " tokens", "Maximum concurrency for 1 tokens per request: ", "x", "attention block size to ",
    "(EngineCore pid=1) ", "ERROR 11-30 05:00:00 [a.py:1] ", "ValueError: ", "Error", ": error: ", "[rank0]: ",
)  # fmt: skip
woven = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
texts = st.one_of(
    woven,
    st.text(),
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=6)), max_size=6).map("".join),
)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(text=texts)
def test_no_parser_raises(text: str) -> None:
    for name, parse in PARSERS.items():
        try:
            found = parse(text)
        except Exception as why:
            raise AssertionError(f"{name}({text!r})") from why
        if isinstance(found, int | float):
            assert math.isfinite(found), (name, text)


@pytest.mark.parametrize("name", PARSERS)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "lorem ipsum dolor sit amet",
        "<html><body>502 Bad Gateway</body></html>",
        "\ufffd\ufffd\ufffd",
        "Traceback (most recent call last):\n",
    ],
)
def test_nothing_is_read_where_nothing_is(name: str, text: str) -> None:
    found = PARSERS[name](text)
    assert found in NOTHING or (name == "plain" and found == text.rstrip())


# Each was once taken for a number, or ended in an exception.
ODD: list[tuple[str, str]] = [
    ("gpus", "\N{SUPERSCRIPT TWO}, a, 9.0, 580.1, 1, 1, 0, Disabled"),
    ("gpus", "9" * 5000 + ", a, 9.0, 580.1, 1, 1, 0, Disabled"),
    ("gpus", "a\0b"),
    ("gpus", '"' + "a" * 140_000 + '",'),
    ("cgroup number", "\N{SUPERSCRIPT TWO}"),
    ("cgroup number", "9" * 5000),
    ("disk", "h\na \N{SUPERSCRIPT TWO} 1 \N{SUPERSCRIPT TWO} 1 /"),
    ("meminfo_mib", f"MemAvailable: {'9' * 5000} kB"),
    ("soft_limit", f"Max open files {'9' * 5000}"),
    ("cgroup quota", "\N{SUPERSCRIPT TWO} 100000"),
    ("cgroup quota", "100000 0"),
    ("cgroup quota", f"{'9' * 5000} 100000"),
    ("cgroup paths", "\N{SUPERSCRIPT TWO}:memory:/a"),
    ("listed", "0-\N{SUPERSCRIPT TWO}"),
    ("listed", "3-1"),
    ("listed", "0,,1"),
    ("listed", f"0-{'9' * 5000}"),
    ("rooms", "h\n1 1 1 ext4 /\n- - - ext4 /x"),
    ("mounts", "27 1 254:0 / / rw"),
    ("pci_drivers", "zzzz\t10de2335\t0"),
    ("kv_cache", "KV cache size: , tokens"),
    ("kv_cache", "Maximum concurrency for 2 tokens per request: 1.2.3x"),
    ("kv_cache", "Maximum concurrency for 2 tokens per request: .x"),
    ("kv_cache", f"KV cache size: {'9' * 5000} tokens"),
    ("torch_version", "__version__ = {[]: 1}"),
    ("torch_version", "__version__ = " + "-" * 100_000 + "1"),
    ("torch_version", "__version__ = " + "(" * 5000 + "1"),
    ("torch_version", "__version__ = '\0'"),
    ("totals", 'a{b="c} 1'),
    ("totals", "# TYPE a counter\na_total 1\na_total{"),
]


@pytest.mark.parametrize(("name", "text"), ODD, ids=[f"{name} {text[:24]!r}" for name, text in ODD])
def test_odd_numbers_are_not_read(name: str, text: str) -> None:
    assert PARSERS[name](text) in NOTHING


def test_a_long_line_takes_no_time() -> None:
    """A log line of a megabyte, of what the patterns nearly match: a pattern that tries every split of it would not end this year."""
    started = time.monotonic()
    for text in (
        "(a" * 500_000,
        "a." * 500_000,
        "a" * 1_000_000 + ": error:",
        "\x1b[" * 500_000,
        "[rank" * 200_000,
        "(A pid=1) " * 100_000,
    ):
        for parse in (vllm_log.root_line, vllm_log.errors, vllm_log.plain, vllm_log.kv_cache):
            parse(text)
    assert time.monotonic() - started < 60
