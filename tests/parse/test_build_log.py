"""Logs of compiles as ninja, nvcc, g++ and setuptools print them: the first error is found, and warnings are none."""

import shutil
import subprocess
from pathlib import Path

import pytest

from runbook.parse import build_log

NVCC = "/usr/local/cuda/bin/nvcc --generate-dependencies-with-compile -I/x/csrc/cutlass/include -c /x/csrc/flash_attn/src/flash_bwd_hdim96_bf16_sm80.cu -o /x/flash_bwd_hdim96_bf16_sm80.o -Werror all-warnings"
CXX20 = "/t/torch/include/ATen/ATen.h:5:2: error: #error C++20 or later compatible compiler is required to use ATen."
WARNING = "/x/csrc/flash_attn/flash_api.cpp:12:3: warning: 'longlong4' is deprecated: error: no [-Wdeprecated-declarations]"
LINK = "/usr/bin/ld: cannot find -lcudart: No such file or directory"
FATAL = "nvcc fatal   : Unsupported gpu architecture 'compute_70'"
DIED = "nvcc error   : 'cicc' died due to signal 9 (Kill signal)"
GXX = "g++: fatal error: Killed signal terminated program cc1plus"
FULL = "/b/ccZ1.s: fatal error: error writing to /b/ccZ1.s: No space left on device"
TORCH = "RuntimeError: The detected CUDA version (12.8) mismatches the version that was used to compile\nPyTorch (13.0)."
ENDED = "RuntimeError: Error compiling objects for extension"
LATER = '/x/a.cu(3): error: identifier "foo" is undefined'


def log(*lines: str) -> str:
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (log(f"[1/73] {NVCC}", WARNING, CXX20, "FAILED: /x/y.o", LATER, ENDED), CXX20),
        (log(f"[1/73] {NVCC}", LATER, '1 error detected in the compilation of "/x/a.cu".', ENDED), LATER),
        (log(FATAL, ENDED), FATAL),
        (log("/usr/bin/ld: warning: x.o: missing .note", LINK, "collect2: error: ld returned 1 exit status"), LINK),
        (log(DIED, ENDED), DIED),
        (log(GXX, ENDED), GXX),
        (log("Traceback (most recent call last):", TORCH), "RuntimeError: The detected CUDA version (12.8) mismatches the version that was used to compile"),
        (log("Traceback", "ModuleNotFoundError: No module named 'wheel'"), "ModuleNotFoundError: No module named 'wheel'"),
        (log(f"[1/73] {NVCC}", WARNING), ""),
        ("", ""),
    ],
)  # fmt: skip
def test_the_first_error_is_the_compilers_and_not_the_last_of_the_noise(text: str, first: str) -> None:
    assert build_log.first_error(text) == first


@pytest.mark.parametrize(
    "text", [log("ninja: build stopped", DIED), log(GXX), "make: *** Killed", "c++: std::bad_alloc"]
)
def test_a_compiler_that_was_killed_is_seen(text: str) -> None:
    assert build_log.killed(text)
    assert not build_log.killed(log(CXX20, ENDED, FULL))


def test_a_full_disk_is_seen_whoever_says_so() -> None:
    assert build_log.disk_full(log(f"[1/73] {NVCC}", FULL, ENDED)) == FULL
    assert build_log.disk_full("OSError: [Errno 28] No space left on device")
    assert not build_log.disk_full(log(CXX20, DIED))


def test_progress_is_ninjas_last_counter_and_its_file() -> None:
    text = log("running build_ext", f"[1/73] {NVCC.replace('bwd', 'fwd')}", f"[2/73] {NVCC}", "noise [9/9] ")
    assert build_log.progress(text) == (2, 73)
    assert build_log.last_file(text) == "flash_bwd_hdim96_bf16_sm80.cu"
    assert build_log.progress("running build_ext") is None
    assert build_log.last_file("running build_ext") == ""


@pytest.mark.parametrize(
    ("vmstat", "kills"), [("oom_kill 3\n", 3), ("nr_free 1\noom_kill 0\nx 2", 0), ("", None), (None, None)]
)
def test_the_kernels_count_of_processes_killed_for_memory(vmstat: str | None, kills: int | None) -> None:
    assert build_log.oom_kills(vmstat) == kills


def test_a_real_compiler_says_it_in_a_way_that_is_read(tmp_path: Path) -> None:
    gxx = shutil.which("g++")
    if gxx is None:
        pytest.skip("no g++ here")
    source = tmp_path / "a.cpp"
    source.write_text("#include <no_such_header.h>\nint main() { return 0 }\n", encoding="utf-8")
    ran = subprocess.run(
        [gxx, "-c", str(source)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
    )
    assert ran.returncode
    assert build_log.first_error(ran.stderr).endswith("no_such_header.h: No such file or directory")
