"""Libraries made by the compiler are judged, then really loaded: verdict and first name must be the dynamic loader's.

Each environment is a site-packages folder with a torch of some functions. A child of this interpreter does what
``import torch`` does (libtorch_global_deps for all to see, then torch._C) and loads the extension with every symbol bound.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import linked
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runbook.binaries import link
from runbook.binaries.loader import View
from runbook.binaries.symbols import BadElf, Library, Symbol, gnu_hash, sysv_hash

LOADS = """
import ctypes, os, sys
site, path, *first = sys.argv[1:]
try:
    ctypes.CDLL(f"{site}/torch/lib/libtorch_global_deps.so", mode=ctypes.RTLD_GLOBAL)
    ctypes.CDLL(f"{site}/torch/_C.made.so", mode=os.RTLD_NOW)
    for one in (*first, path):
        ctypes.CDLL(one, mode=os.RTLD_NOW)
except OSError as why:
    print(why)
"""


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return linked.base(tmp_path_factory.mktemp("base") / "env")


def copied(made_once: Path, prefix: Path) -> Path:
    shutil.copytree(made_once.parents[2], prefix, symlinks=True)
    return prefix / made_once.relative_to(made_once.parents[2])


@pytest.fixture
def site(made_once: Path, tmp_path: Path) -> Path:
    return copied(made_once, tmp_path / "env")


MADE: list[tuple[Callable[[Path], Path], str]] = [
    (linked.plain, ""),
    (linked.lacks_symbol, "c10_gone"),
    (linked.data_before_calls, "z_data"),
    (linked.weak_may_lack, ""),
    (linked.not_what_others_have_loaded, "torch_private"),
    (linked.what_is_global, ""),
    (linked.lacks_library, "libgone.so.3"),
    (linked.lacks_library_below, "libdeep.so"),
    (linked.runpath_is_not_inherited, "libdeep.so"),
    (linked.rpath_is_inherited, ""),
    (linked.lacks_version, "NEW_2"),
    (linked.versioned_symbol_moved, "moved"),
    (linked.old_hash_table_only, "old_three"),
    (linked.loaded_by_its_package, ""),
    (linked.python_of_the_interpreter, ""),
    (linked.another_processor_is_passed_over, ""),
]


def links(site: Path, kept: object = None) -> dict[str, Any]:
    return link.links(site, sorted(path for path in site.rglob("*.so*") if path.is_file()), kept)


EMPTY: dict[str, Any] = {
    name: []
    for name in ("missing_libraries", "missing_versions", "missing", "driver", "through", "loaded_first")
} | {"missing_count": 0}


def by_file(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The rows by name, with what is left out because it is empty."""
    return {row["file"]: EMPTY | row for row in found["files"]}


def rows(site: Path) -> dict[str, dict[str, Any]]:
    return by_file(links(site))


def first_lack(row: dict[str, Any], every: dict[str, dict[str, Any]]) -> str:
    for below in row["through"]:
        other = every.get(below, {"missing_libraries": []})
        if other["missing_libraries"]:
            return str(other["missing_libraries"][0])
    if row["missing_libraries"]:
        return str(row["missing_libraries"][0])
    if row["missing_versions"]:
        return str(row["missing_versions"][0]["version"])
    return str(row["missing"][0]["symbol"]) if row["missing"] else ""


def really(site: Path, path: Path, row: dict[str, Any]) -> str:
    """What the loader says, "" for nothing."""
    first = [str(path.parent / name) for name in row["loaded_first"]]
    ran = subprocess.run(
        [sys.executable, "-c", LOADS, str(site), str(path), *first],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return ran.stdout.strip()


@pytest.mark.parametrize(("make", "lack"), MADE, ids=[make.__name__ for make, _ in MADE])
def test_the_verdict_is_the_loaders(site: Path, make: Callable[[Path], Path], lack: str) -> None:
    path = make(site)
    every = rows(site)
    row = every["ext/_C.so"]
    says = really(site, path, row)
    assert first_lack(row, every) == lack
    assert (lack in says) if lack else not says, says


def test_a_library_that_an_extension_carries_is_judged_too(site: Path) -> None:
    """libmiddle is neither torch's nor CUDA's; it lacks a library, and that breaks the extension."""
    linked.runpath_is_not_inherited(site)
    found = rows(site)
    assert found["ext/libmiddle.so"]["role"] == "extension"
    assert found["ext/libmiddle.so"]["missing_libraries"] == ["libdeep.so"]
    assert found["ext/_C.so"]["through"] == ["ext/libmiddle.so"]


def test_a_library_of_the_driver_is_not_missing(site: Path) -> None:
    driver = linked.build(site / "ext/libcuda.so.1", "int cuInit(int a) { return a; }")
    linked.build(
        site / "ext/_C.so",
        "extern int cuInit(int); int go(void) { return cuInit(0); }",
        *linked.c10(site),
        str(driver),
    )
    driver.unlink()
    row = rows(site)["ext/_C.so"]
    assert (row["missing_libraries"], row["missing_count"], row["driver"]) == ([], 0, ["libcuda.so.1"])


def test_a_library_found_through_the_environment(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = linked.build(site / "ext/libelse.so", "int other(void) { return 1; }")
    path = linked.build(
        site / "ext/_C.so",
        "extern int other(void); int go(void) { return other(); }",
        *linked.c10(site),
        str(other),
    )
    (site / "far").mkdir()
    other.rename(site / "far/libelse.so")
    before = links(site)
    assert by_file(before)["ext/_C.so"]["missing_libraries"] == ["libelse.so"]
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{site}/none:{site}/far")
    after = by_file(links(site, before))["ext/_C.so"]
    assert after["missing_libraries"] == []
    assert really(site, path, after) == ""


def test_torch_loads_cuda_of_the_nvidia_packages(site: Path) -> None:
    """libcudart that nothing points to is found, for torch's own list names its package; the loader agrees once it is loaded."""
    cuda = linked.build(site / "nvidia/made_runtime/lib/libcudart.so.12", "int cudaMade(void) { return 1; }")
    linked.build(site / "torch/lib/libtorch_global_deps.so", "", "-Wl,--no-as-needed", str(cuda))
    linked.build(
        site / "ext/_C.so",
        "extern int cudaMade(void); int go(void) { return cudaMade(); }",
        *linked.c10(site),
        str(cuda),
    )
    (site / "torch/version.py").write_text(
        "__version__ = '2.10.0+cu128'\ncuda: Optional[str] = '12.8'\n", encoding="utf-8"
    )
    assert rows(site)["ext/_C.so"]["missing_libraries"] == ["libcudart.so.12"]
    text = 'def _preload_cuda_deps(err=None):\n    libs = [\n        ("made_runtime", "libcudart.so.*[0-9]"),\n    ]\n\ndef other():\n'
    (site / "torch/__init__.py").write_text(text, encoding="utf-8")
    found = rows(site)
    assert found["ext/_C.so"]["missing_libraries"] == []
    assert found["torch/lib/libtorch_global_deps.so"]["missing_libraries"] == []
    assert found["nvidia/made_runtime/lib/libcudart.so.12"]["role"] == "torch"


@pytest.mark.parametrize(
    ("name", "torch", "cuda", "other"),
    [
        ("addon_torch26-cpu.so", "2.10.0+cu128", "12.8", True),
        ("addon_torch210-cuda.so", "2.10.0+cu128", "12.8", False),
        ("addon_torch210-cuda.so", "2.10.0", "", True),
        ("libbitsandbytes_cuda118.so", "2.10.0+cu128", "12.8", True),
        ("libbitsandbytes_cuda128.so", "2.10.0+cu128", "12.8", False),
        ("_cutlass_ir.cu12.cpython-311-x86_64-linux-gnu.so", "2.10.0+cu128", "12.8", False),
        ("_cutlass_ir.cu13.cpython-311-x86_64-linux-gnu.so", "2.10.0+cu128", "12.8", True),
        ("_vllm_fa2_C.abi3.so", "2.10.0+cu128", "12.8", False),
        ("libtorch_cuda.so", "2.10.0+cu128", "12.8", False),
        ("flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so", "2.10.0+cu128", "12.8", False),
    ],
)
def test_a_file_says_by_its_name_that_it_is_for_another_build(
    name: str, torch: str, cuda: str, *, other: bool
) -> None:
    assert link._is_for_other(name, torch, cuda) is other


def test_what_was_kept_serves_until_a_file_changes(site: Path, tmp_path: Path) -> None:
    far = linked.build(tmp_path / "far/libfar.so", "int far(void) { return 1; }")
    linked.build(
        site / "ext/_C.so",
        "extern int far(void); int go(void) { return far(); }",
        *linked.c10(site),
        str(far),
        f"-Wl,-rpath,{far.parent}",
    )
    for path in (*site.rglob("*"), far, far.parent):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    kept = json.loads(json.dumps(links(site)))
    assert links(site, kept) is kept
    far.unlink()
    changed = links(site, kept)
    assert changed is not kept
    assert by_file(changed)["ext/_C.so"]["missing_libraries"] == ["libfar.so"]
    odd: list[object] = [None, [], {}, {"basis": 3}, {"basis": {**kept["basis"], "format": -1}}]
    for strange in odd:
        assert links(site, strange)["files"] == changed["files"]


def test_a_file_of_this_moment_is_read_again(site: Path) -> None:
    linked.plain(site)
    kept = links(site)
    assert links(site, kept) is not kept


def test_a_library_beside_the_environment_is_seen(site: Path, tmp_path: Path) -> None:
    linked.build(
        tmp_path / "src/mine/_C.so",
        "extern int c10_gone(int); int go(void) { return c10_gone(1); }",
        *linked.c10(site),
    )
    (site / "mine.pth").write_text(f"import os\n# no\n{tmp_path}/src\n", encoding="utf-8")
    row = rows(site)[f"{tmp_path}/src/mine/_C.so"]
    assert [one["symbol"] for one in row["missing"]] == ["c10_gone"]


def test_a_damaged_library_is_named(site: Path) -> None:
    path = linked.plain(site)
    path.write_bytes(path.read_bytes()[:9000])
    (site / "ext/empty.so").write_bytes(b"")
    (site / "ext/notes.so").write_text("GROUP ( libc.so.6 )", encoding="utf-8")
    found = rows(site)
    assert found["ext/_C.so"]["role"] == found["ext/empty.so"]["role"] == "damaged"
    assert "cut short" in found["ext/_C.so"]["problem"]
    assert "ext/notes.so" not in found


def test_names_are_hashed_as_the_linker_hashes_them() -> None:
    assert (gnu_hash(b"printf"), sysv_hash(b"printf")) == (
        0x156B2BB8,
        0x077905A6,
    )  # the worked example of the ELF literature
    assert gnu_hash(b"") == 5381
    long = b"x" * 3000
    value = 5381
    for letter in long:
        value = (value * 33 + letter) % 2**32
    assert gnu_hash(long) == value


@given(st.binary(max_size=300))
def test_the_quick_hash_is_the_hash(name: bytes) -> None:
    value = 5381
    for letter in name:
        value = (value * 33 + letter) % 2**32
    assert gnu_hash(name) == value


def test_every_export_of_a_real_library_is_found_and_no_other(site: Path) -> None:
    """libc's exports as ``nm`` lists them: each is found, and none of them with letters added."""
    libc = View(site).loaded["libc.so.6"]
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", libc.path], capture_output=True, text=True, check=True, timeout=60
    )
    names = {
        line.split()[-1].partition("@")[0].encode()
        for line in listed.stdout.splitlines()
        # One @ marks an old version, which only those get who ask for it.
        if line.split()[-2] in "TWiV" and ("@" not in line or "@@" in line)
    }
    assert len(names) > 2000
    assert [name for name in names if not libc.defines(Symbol(name), gnu_hash(name))] == []
    assert [name for name in names if libc.defines(Symbol(name + b"__no"), gnu_hash(name + b"__no"))] == []
    printf = gnu_hash(b"printf")
    assert libc.defines(Symbol(b"printf", b"GLIBC_2.2.5"), printf) or libc.machine != "x86_64"
    assert not libc.defines(Symbol(b"printf", b"GLIBC_9.9"), printf)


def test_a_name_in_words() -> None:
    assert link.demangled(b"_ZN3c104cuda9SetDeviceEab") == "c10::cuda::SetDevice(signed char, bool)"
    assert link.demangled(b"_Znonsense") == "_Znonsense"
    assert link.demangled(b"ncclCommShrink") == "ncclCommShrink"


@pytest.fixture(scope="module")
def whole(made_once: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    site = copied(made_once, tmp_path_factory.mktemp("odd") / "env")
    path = linked.lacks_version(site)
    return site, path.read_bytes()


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_damage_raises(whole: tuple[Path, bytes], data: st.DataObject) -> None:
    """Bytes of a good library changed at will: a row, a problem, or nothing, and an end within a moment."""
    site, good = whole
    odd = bytearray(good)
    for _ in range(data.draw(st.integers(1, 6))):
        # Headers, the dynamic section and the tables all lie in the first and last few thousand bytes.
        at = data.draw(st.integers(0, len(odd) - 1))
        odd[at] = data.draw(st.sampled_from((0, 1, 2, 0x7F, 0x80, 0xFF)))
    cut = data.draw(st.sampled_from((len(odd), len(odd) // 2, 70, 4)))
    path = site / "ext/_C.so"
    path.unlink()  # an open map of the earlier one keeps its own
    path.write_bytes(bytes(odd[:cut]))
    for row in link.links(site, [path])["files"]:
        assert row["file"]
    with contextlib.suppress(BadElf):
        Library(path)


@pytest.mark.parametrize("conda", [True, False])
def test_the_interpreters_own_path_serves_its_extensions(site: Path, *, conda: bool) -> None:
    """An interpreter of conda has an RPATH, so libraries beside it are found; one with a RUNPATH helps nobody but itself."""
    prefix = site.parents[2]
    own = linked.build(prefix / "lib/libown.so", "int own(void) { return 1; }")
    code = "extern int own(void); int go(void) { return own(); }"
    path = linked.build(site / "ext/_C.so", code, *linked.c10(site), str(own))
    tags = "--disable-new-dtags" if conda else "--enable-new-dtags"
    python = linked.program(prefix / "bin" / site.parent.name, f"-Wl,{tags}", "-Wl,-rpath,$ORIGIN/../lib")
    lib = site / "torch/lib"
    ran = subprocess.run(
        [python, lib / "libtorch_global_deps.so", site / "torch/_C.made.so", path],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert rows(site)["ext/_C.so"]["missing_libraries"] == ([] if conda else ["libown.so"])
    assert ("libown.so: cannot open" in ran.stdout) is not conda, ran.stdout
