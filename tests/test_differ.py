"""It worked yesterday: what changed is found, the likeliest cause stands first, and what was not read is not judged."""

import dataclasses
import functools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import wheels

import runbook
from runbook import connect, differ, snapshot
from runbook.differ import Comparison, compare
from runbook.probes import replay
from runbook.probes.live import LiveProbe
from runbook.snapshot import Code, Gpu, Package, Python, Server, Snapshot
from runbook.workspace import Workspace

SCHEMA = Path(runbook.__file__).parent / "schemas" / "diff.schema.json"
STARTS = Python("3.11.7 (main) [GCC]", "/venv/bin/python", "virtual environment")
# A machine on which everything could be read: any change of one field is one difference.
GOOD = Snapshot(
    taken="yesterday",
    machine="live",
    stack="vllm-0.19.1-cu128",
    python=STARTS,
    torch="2.10.0+cu128",
    vllm="0.19.1",
    packages={
        "torch": Package("2.10.0", "aaaa", "uv", None, ("triton",)),
        "triton": Package("3.6.0", "bbbb", "uv"),
        "vllm": Package("0.19.1", "cccc", "uv", None, ("torch", "idna")),
        "idna": Package("3.11", "dddd", "uv"),
        "zipp": Package("3.23.0", "eeee", "uv"),
    },
    code={"torch/lib/libtorch_cuda.so": Code(("sm_90",), ())},
    gpus=(Gpu("NVIDIA H200", "9.0", 143771),),
    system={"NVIDIA driver": "580.159.04", "glibc": "2.39"},
    toolkits={"nvcc on PATH": "13.0.88"},
    env={"LD_LIBRARY_PATH": None, "NCCL_DEBUG": None},
    server=Server("last started", {"--max-model-len": "32768"}),
)


def package(name: str, **changed: Any) -> Callable[[Snapshot], Snapshot]:
    def change(one: Snapshot) -> Snapshot:
        return dataclasses.replace(one, packages=one.packages | {name: dataclasses.replace(one.packages[name], **changed)})  # fmt: skip

    return change


def without(name: str) -> Callable[[Snapshot], Snapshot]:
    return lambda one: dataclasses.replace(
        one, packages={key: each for key, each in one.packages.items() if key != name}
    )


def field(**changed: Any) -> Callable[[Snapshot], Snapshot]:
    return lambda one: dataclasses.replace(one, **changed)


# From the most suspicious to the least: (what was done, the name of the difference, a word of its reason).
BY_SUSPICION: list[tuple[Callable[[Snapshot], Snapshot], str, str]] = [
    (field(gpus=(Gpu("NVIDIA H200", "9.0", 143771), Gpu("NVIDIA GeForce RTX 5090", "12.0", 32607))), "torch/lib/libtorch_cuda.so", "no machine code for sm_120 of B"),
    (package("triton", content="ffff"), "triton", "another build of it"),
    (package("torch", touched=2, changed=("torch/a.py",)), "torch", "wrote to it"),
    (package("vllm", version="0.19.0"), "vllm", "older release"),
    (package("triton", version="3.7.1"), "triton", "one release of it"),
    (field(system={"NVIDIA driver": "570.86.15", "glibc": "2.39"}), "NVIDIA driver", "PTX"),
    (field(env={"LD_LIBRARY_PATH": "/usr/local/cuda/lib64", "NCCL_DEBUG": None}), "LD_LIBRARY_PATH", "loader"),
    (field(imports={"sitecustomize.py": "recorded by no package"}), "sitecustomize.py", "imports"),
    (field(python=dataclasses.replace(STARTS, version="3.12.3 (main) [GCC]")), "Python", "one minor"),
    (field(server=Server("running", {"--max-model-len": "8192"})), "--max-model-len", "another way"),
    (without("idna"), "idna", "another package asks for it"),
    (field(env={"LD_LIBRARY_PATH": None, "NCCL_DEBUG": "INFO"}), "NCCL_DEBUG", "NCCL"),
    (package("idna", version="3.12"), "idna", "newer release"),
    (field(toolkits={"nvcc on PATH": None}), "nvcc on PATH", "run time"),
    (without("zipp"), "zipp", "no other package asks for it"),
]  # fmt: skip


def test_nothing_differs_from_itself() -> None:
    found = compare(GOOD, dataclasses.replace(GOOD, taken="today"))
    assert (found.differences, found.gaps, found.kept_back, found.exit_code) == ((), (), (), 0)


@pytest.mark.parametrize(("change", "name", "why"), BY_SUSPICION)
def test_each_change_is_found_with_its_reason_whichever_side_has_it(change: Callable[[Snapshot], Snapshot], name: str, why: str) -> None:  # fmt: skip
    found = compare(GOOD, change(GOOD))
    assert name in [one.name for one in found.differences]
    assert why in " ".join(one.why for one in found.differences if one.name == name)
    assert found.exit_code == 1
    assert {one.name for one in compare(change(GOOD), GOOD).differences} == {
        one.name for one in found.differences
    }


def test_the_list_above_is_the_order_in_which_they_are_shown() -> None:
    found = [one for change, name, _ in BY_SUSPICION for one in compare(GOOD, change(GOOD)).differences if one.name == name]  # fmt: skip
    assert [one.rank for one in found] == sorted(one.rank for one in found)
    at_once = GOOD
    for change in (
        without("zipp"),
        package("vllm", version="0.19.0"),
        field(system={}),
        package("torch", content="f"),
    ):
        at_once = change(at_once)
    assert [one.name for one in compare(GOOD, at_once).differences] == ["torch", "vllm", "NVIDIA driver", "glibc", "zipp"]  # fmt: skip


def test_an_interpreter_that_does_not_start_hides_nothing_and_comes_first() -> None:
    broken = dataclasses.replace(GOOD, python=Python("", "", "", "exit code 127"), packages={}, code={}, torch=None, vllm=None, gaps={"target": "its interpreter does not start"})  # fmt: skip
    found = compare(GOOD, broken)
    assert [one.name for one in found.differences] == ["the interpreter"]
    assert ("target", "B: its interpreter does not start") in found.gaps


@pytest.mark.parametrize("section", ["packages", "code", "gpus", "system", "toolkits", "env", "imports", "damage", "conda", "hidden"])  # fmt: skip
def test_a_gap_is_never_a_difference_and_never_green(section: str) -> None:
    empty: object = () if section == "gpus" else {}
    gappy = field(**{section: empty, "gaps": {section: "not recorded"}})(GOOD)
    found = compare(GOOD, gappy)
    assert found.differences == ()
    assert found.gaps == ((section, "B: not recorded"),)
    assert found.exit_code == 3


def test_a_single_fact_that_was_not_recorded_is_no_difference() -> None:
    some = dataclasses.replace(
        GOOD, system={"NVIDIA driver": "580.159.04"}, gaps={"system.glibc": "not recorded"}
    )
    assert compare(some, GOOD).differences == ()


def test_values_that_are_not_kept_are_told_and_not_called_equal() -> None:
    one = field(env={"VLLM_HOST_IP": "<ip>", "HF_TOKEN": "<set, not shown>"})(GOOD)
    found = compare(one, one)
    assert found.kept_back == ("HF_TOKEN", "VLLM_HOST_IP")
    gone = compare(one, field(env={"VLLM_HOST_IP": "<ip>", "HF_TOKEN": None})(GOOD))
    assert [one.name for one in gone.differences] == ["HF_TOKEN"]


def test_twelve_libraries_of_another_cuda_are_one_entry() -> None:
    older = {
        f"nvidia-cu{name}-cu12": Package("12.8", "x", "uv")
        for name in ("blas", "fft", "rand", "solver", "sparse")
    }
    newer = {name.removesuffix("-cu12"): Package("13.0", "y", "uv") for name in older}
    one, two = (dataclasses.replace(GOOD, packages=GOOD.packages | extra) for extra in (older, newer))
    text = shown(compare(one, two))
    assert "  1  nvidia-cublas-cu12 12.8 -> nvidia-cublas 13.0; nvidia-cufft-cu12 12.8 ->" in text
    assert "  2  " not in text


def shown(found: Comparison, *, everything: bool = True) -> str:
    return differ.as_text(("yesterday", "now"), (GOOD, GOOD), found, everything=everything)


def test_the_short_list_leaves_out_the_tail_and_says_so() -> None:
    bad = without("zipp")(package("vllm", version="0.19.0")(GOOD))
    short, whole = (shown(compare(GOOD, bad), everything=each) for each in (False, True))
    assert "zipp" not in short
    assert "less suspicious, shown by --all: 1 package" in short
    assert "- zipp 3.23.0" in whole


HOSTILE = ("\x1b[31mred\n\n", "\u202eabc", "a" * 5000, "\udcff")


def test_hostile_names_and_values_stay_in_their_lines() -> None:
    bad = dataclasses.replace(
        GOOD,
        env=GOOD.env | {"LD_PRELOAD": "\n".join(HOSTILE)},
        packages=GOOD.packages | {f"x{name}": Package(name) for name in HOSTILE},
        imports={name: name for name in HOSTILE},
    )
    text = shown(compare(GOOD, bad))
    assert all(line.isprintable() for line in text.splitlines())
    assert max(map(len, text.splitlines())) <= 80
    json.loads(differ.as_json(("a", "b"), (GOOD, bad), compare(GOOD, bad)))


@functools.cache
def recorded(name: str) -> Snapshot:
    host = connect.probe(f"recorded:{name}", "auto", "", Workspace(Path("/nowhere")))
    return snapshot.take(connect.cached(host), "then")


# An edited machine against its parent, and what the first difference is.
EDITED = {
    "rtx5090-old-torch": ("torch/lib/libtorch_cuda.so", "no machine code for sm_120 of B"),
    "rtx5090-cu128": ("GPUs", "other kernels"),
    "h200-driver-470": ("NVIDIA driver", "which CUDA runs"),
    "h200-conda-and-leftovers": ("vllm 0.19.1", "not as the installer left them"),
    "h200-system-cuda-on-path": ("LD_LIBRARY_PATH", "the loader looks there first"),
}


@pytest.mark.parametrize("name", EDITED)
def test_what_was_edited_into_a_recorded_machine_comes_first(name: str) -> None:
    first = compare(recorded("h200-vllm-0.19.1"), recorded(name)).differences[0]
    assert first.name == EDITED[name][0]
    assert EDITED[name][1] in first.why


@pytest.mark.parametrize("name", replay.names())
def test_every_recorded_machine_compares_with_any_other_in_80_columns(name: str) -> None:
    sides = recorded(name), recorded("h200-x2-torch-2.11")
    found = compare(*sides)
    text = differ.as_text((name, "other"), sides, found, everything=True)
    assert max(map(len, text.splitlines())) <= 80
    whole = json.loads(differ.as_json((name, "other"), sides, found))
    jsonschema.validate(whole, json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert whole["same"] is (not found.differences)
    assert compare(sides[0], sides[0]).differences == ()


def test_real_environments_whose_torch_was_swapped_edited_and_rebuilt(tmp_path: Path) -> None:
    good = wheels.environment(tmp_path / "good", wheels.torch(tmp_path / "one"))
    swapped = wheels.environment(tmp_path / "swapped", wheels.torch(tmp_path / "two", "2.11.0", "13.0"))
    rebuilt = wheels.environment(tmp_path / "rebuilt", wheels.torch(tmp_path / "three", extra="z = 3\n"))

    def of(python: Path) -> Snapshot:
        return snapshot.take(
            connect.cached(LiveProbe(Workspace(tmp_path), "vllm-0.32.0-cpu", python)), "now", redact=str
        )

    before = of(good)
    assert compare(before, of(good)).exit_code == 0
    assert compare(before, of(swapped)).differences[0].text == "torch 2.10.0+cu128 -> 2.11.0+cu130"
    assert compare(before, of(rebuilt)).differences[0].why.startswith("the same version with other files")
    module = wheels.site(good) / "torch" / "version.py"
    text = module.read_text(encoding="utf-8")
    module.unlink()
    module.write_text(text + "more = 1\n", encoding="utf-8")
    later = time.time() + 60
    os.utime(module, (later, later))
    (found,) = compare(before, of(good)).differences
    assert (found.section, found.name) == ("files", "torch 2.10.0")
    assert found.b == "1 of another size, such as torch/version.py"
