"""FLASH: what vLLM brings, which version a card takes, and what becomes of a flash-attn that lies in the way."""

import json
from typing import Any

from cases_target import BUNDLED, DISTS, FA_FILES, GPU_WHOLE, WHOLE, dists
from host import (
    CPU,
    FAIL,
    GPU,
    H200,
    MISSING,
    NO_NODE,
    OK,
    OLD_CPU,
    SKIP,
    SMI,
    UNKNOWN,
    WARN,
    Case,
    Row,
    ran,
    table,
)

from runbook.checks import flash_stray
from runbook.checks.readings import BINARIES
from runbook.probes import questions

FA2, FA3 = (path.removeprefix("{site}/") for path in FA_FILES)


def code(file: str, *targets: str, size: int = 1000) -> dict[str, Any]:
    """A row of machine code."""
    sass = [one for one in targets if one.startswith("sm_")]
    return {"file": file, "bytes": size, "sass": sass, "ptx": [one for one in targets if one not in sass]}


def libraries(*rows: dict[str, Any], links: tuple[dict[str, Any], ...] = ()) -> str:
    """The answer of ``python -m runbook.binaries``."""
    return json.dumps(
        {"files": list(rows), "links": {"files": list(links), "system": {"torch": "2.10.0+cu128"}}}
    )


# What the files of the 0.19.1 wheel hold (read with cuobjdump and with our own reader).
WHEEL = libraries(code(FA2, "sm_80", "compute_80"), code(FA3, "sm_90a"))
NONE_READ = libraries()


def card(cap: str) -> str:
    """An H200's row with another capability."""
    return H200.replace("9.0", cap)


PACKAGE, ROTARY, INTERFACE = (
    f"glob {one}" for one in (flash_stray.PACKAGE, flash_stray.ROTARY, flash_stray.INTERFACE)
)
LOOK = questions.run(flash_stray.LOOK)
# grep's lines of vllm/model_executor/layers/rotary_embedding/common.py in 0.19.1 and in 0.32.0.
ASKS_0_19 = '137:find_spec("flash_attn")\n138:flash_attn.ops.triton.rotary\n'
ASKS_0_32 = "127:is_cpu()\n128:suppress(\n130:flash_attn.ops.triton.rotary\n"
NOTHING_THERE = {PACKAGE: (), INTERFACE: (), "env PYTHONPATH": None}
THERE = {**NOTHING_THERE, PACKAGE: (flash_stray.PACKAGE,), LOOK: ASKS_0_19, ROTARY: (flash_stray.ROTARY,)}
VERSION_4 = dists(GPU, flash_attn_4="4.0.0b5")
VERSION_2 = dists(GPU, flash_attn="2.8.3")

EXTENSION = "flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so"
SOUND = {"file": EXTENSION, "role": "extension", "needed": ["libtorch.so"], "missing_libraries": [], "missing": [], "missing_count": 0, "missing_versions": [], "through": []}  # fmt: skip
SYMBOL = {"symbol": "_ZN3c105ErrorC2ENS_14SourceLocationESs", "version": "", "demangled": "c10::Error::Error(c10::SourceLocation, std::string)"}  # fmt: skip
LAME = {**SOUND, "missing": [SYMBOL], "missing_count": 3}
BUILT = libraries(code(EXTENSION, "sm_80", "sm_90", "compute_90"), links=(SOUND,))

MEMINFO, JOBS = "read /proc/meminfo", "env MAX_JOBS"
GROUPS = {"read /proc/self/cgroup": "0::/a\n", "read /proc/self/mountinfo": "38 31 0:29 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"}  # fmt: skip
LIMIT, QUOTA = "read /sys/fs/cgroup/a/memory.max", "read /sys/fs/cgroup/a/cpu.max"
BUILDER = {
    **GROUPS,
    MEMINFO: f"MemAvailable: {64 << 20} kB\n",
    JOBS: None,
    "read /proc/self/status": "Cpus_allowed_list:\t0-15\n",
    LIMIT: "max\n",
    QUOTA: "max 100000\n",
    "read /sys/fs/cgroup/memory.max": None,
    "read /sys/fs/cgroup/cpu.max": None,
}

CASES: list[Case] = [
    *table(
        "FLASH-001",
        {**NO_NODE, BINARIES: WHEEL},
        Row("bundled", OK, {BUNDLED: FA_FILES}, {"bundled files": "_vllm_fa2_C.abi3.so _vllm_fa3_C.abi3.so", "_vllm_fa2_C.abi3.so": "sm_80 compute_80", "_vllm_fa3_C.abi3.so": "sm_90a"}, stack=GPU),
        Row("bundled, code not read", OK, {BUNDLED: FA_FILES, BINARIES: ran(rc=1)}, {"bundled files": "_vllm_fa2_C.abi3.so _vllm_fa3_C.abi3.so"}, stack=GPU),
        Row("not bundled in a GPU stack", FAIL, {BUNDLED: (), DISTS: dists(GPU)}, {"bundled files": "none"}, stack=GPU, says="GPU wheel"),
        Row("no vLLM at all", FAIL, {BUNDLED: (), DISTS: dists(GPU, without=("vllm",))}, {"bundled files": "none"}, stack=GPU, says="VLLM-001"),
        Row("a CPU build needs none", OK, {BUNDLED: (), BINARIES: NONE_READ}, {"bundled files": "none", "stack computes on": "cpu"}),
    ),
    *table(
        "FLASH-004",
        {**GPU_WHOLE, BINARIES: WHEEL},
        Row("an H200", OK, {SMI: H200}, {"flash attention on 9.0": "FA3 (machine code)"}),
        Row("an A100", OK, {SMI: card("8.0")}, {"flash attention on 8.0": "FA2 (machine code)"}),
        Row("an RTX 4090", OK, {SMI: card("8.9")}, {"flash attention on 8.9": "FA2 (machine code)"}),
        Row("a B200: no version 4 for heads of 256", WARN, {SMI: card("10.0")}, {"flash attention on 10.0": "FA2 (from PTX)", "because (10.0)": "everything else takes version 2"}, says="PTX"),
        Row("an RTX 5090", WARN, {SMI: card("12.0")}, {"flash attention on 12.0": "FA2 (from PTX)"}, says="PTX"),
        Row("two cards, one of each", WARN, {SMI: H200 + card("12.0").replace("0, NVIDIA", "1, NVIDIA", 1)}, {"flash attention on 9.0": "FA3 (machine code)", "flash attention on 12.0": "FA2 (from PTX)"}),
        Row("older than any", WARN, {SMI: card("7.5")}, {"flash attention on 7.5": "none: another backend", "because (7.5)": "it needs 8.0"}),
        Row("its file is gone", FAIL, {SMI: H200, BINARIES: libraries(code(FA2, "sm_80", "compute_80"))}, {"flash attention on 9.0": "FA3 (no code for it)"}, says="GPU wheel"),
        Row("its file cannot be read", UNKNOWN, {SMI: H200, BINARIES: libraries({**code(FA3), "problem": "the file ends too early"})}, {"flash attention on 9.0": "FA3 (not read)"}),
        Row("no file was read", UNKNOWN, {SMI: H200, BINARIES: MISSING}, {"libraries read": None}),
        Row("a release that is not on record", UNKNOWN, {SMI: H200, DISTS: dists(GPU, vllm="0.20.0")}, says="0.20.0"),
        Row("no vLLM", SKIP, {SMI: H200, DISTS: dists(GPU, without=("vllm",))}, says="VLLM-001"),
        Row("no capability", UNKNOWN, {SMI: H200.replace("9.0", "[N/A]")}, says="510"),
        Row("a CPU stack", SKIP, {SMI: H200}, stack=CPU),
        stack=GPU,
    ),
    *table(
        "FLASH-005",
        NOTHING_THERE,
        Row("none", OK, GPU_WHOLE, {"flash-attn packages": "none", "module flash_attn": "none"}, stack=GPU),
        Row("none, CPU", OK, WHOLE, {"module flash_attn": "none"}),
        Row("version 4 brings no rotary module", FAIL, {**THERE, ROTARY: (), DISTS: VERSION_4}, {"flash-attn packages": "flash-attn-4 4.0.0b5", "flash_attn.ops.triton.rotary": False}, stack=GPU, says="No module named 'flash_attn.ops'"),
        Row("a folder that no package owns", FAIL, {**GPU_WHOLE, **THERE, ROTARY: ()}, {"flash-attn packages": "none", "module flash_attn": "{site}/flash_attn"}, stack=GPU),
        Row("version 4 on the CPU: 0.19.1 looks there too", FAIL, {**THERE, ROTARY: (), DISTS: dists(OLD_CPU, flash_attn_4="4.0.0b5")}, stack=OLD_CPU),
        Row("the one the articles build", WARN, {**THERE, DISTS: VERSION_2}, {"flash_attn.ops.triton.rotary": True, "rotary layer": "imports it when found"}, stack=GPU, says="computes nothing with it"),
        Row("0.32.0 goes on without", WARN, {**THERE, LOOK: ASKS_0_32, ROTARY: (), DISTS: dists(GPU, flash_attn_4="4.0.0b5")}, {"rotary layer": "imports it, and goes on without"}, stack=GPU),
        Row("0.32.0 on the CPU does not look", WARN, {**THERE, LOOK: ASKS_0_32, DISTS: dists(CPU, flash_attn="2.8.3")}, {"rotary layer": "does not import it on the CPU"}),
        Row("version 3 has a module of another name", OK, {**NOTHING_THERE, INTERFACE: (flash_stray.INTERFACE,), DISTS: dists(GPU, flash_attn_3="3.0.0b1")}, {"module flash_attn_interface": "{site}/flash_attn_interface.py"}, stack=GPU),
        Row("on PYTHONPATH", WARN, {**GPU_WHOLE, **NOTHING_THERE, LOOK: ASKS_0_19, ROTARY: (), "env PYTHONPATH": "/src/fa:", "glob /src/fa/flash_attn": ("/src/fa/flash_attn",)}, {"on PYTHONPATH": "/src/fa/flash_attn"}, stack=GPU),
        Row("a release that asks otherwise", UNKNOWN, {**GPU_WHOLE, **THERE, LOOK: ran(rc=1)}, stack=GPU, says="not ask for it in a way"),
        Row("an environment that shows no package", UNKNOWN, {DISTS: ()}),
    ),
    *table(
        "FLASH-006",
        {**GPU_WHOLE, SMI: H200},
        Row("fits", OK, {BINARIES: BUILT}, {EXTENSION: "finds all it needs", "code for 9.0": "native", "torch": "2.10.0+cu128"}),
        Row("of another torch", FAIL, {BINARIES: libraries(code(EXTENSION, "sm_90"), links=(LAME,))}, {EXTENSION: "undefined symbol c10::Error::Error(c10::SourceLocation, std::string) and 2 more"}, says="ImportError"),
        Row("of another CUDA", FAIL, {BINARIES: libraries(links=({**SOUND, "missing_libraries": ["libcudart.so.11.0"]},))}, {EXTENSION: "lacks libcudart.so.11.0"}),
        Row("no code for the card", WARN, {BINARIES: BUILT, SMI: card("7.5")}, {"code for 7.5": "none"}, says="7.5"),
        Row("no card to compare with", OK, {BINARIES: BUILT, SMI: MISSING}, {EXTENSION: "finds all it needs"}),
        Row("none is there", SKIP, {BINARIES: libraries(code(FA2, "sm_80"), links=({**SOUND, "file": FA2},))}, {"libraries read": 1}),
        Row("not read", UNKNOWN, {BINARIES: ran(timed_out=True)}),
        Row("an environment that shows no package", UNKNOWN, {DISTS: (), BINARIES: BUILT}),
        stack=GPU,
    ),
    *table(
        "FLASH-007",
        BUILDER,
        Row("16 cores and 64 GiB", OK, {}, {"compile jobs": 7, "memory they want (GiB)": 63, "memory limit (MiB)": "none"}),
        Row("a container with a limit its setup.py does not see", WARN, {LIMIT: str(16 << 30)}, {"compile jobs": 7, "available (GiB)": 16.0, "memory limit (MiB)": 16384}, says="MAX_JOBS=1"),
        Row("MAX_JOBS from an article", WARN, {JOBS: "16"}, {"compile jobs": 16, "memory they want (GiB)": 144}, says="MAX_JOBS=7"),
        Row("MAX_JOBS that fits", OK, {JOBS: "4"}, {"compile jobs": 4}),
        Row("MAX_JOBS that is no number", OK, {JOBS: "all"}, {"compile jobs": 7}),
        Row("not even one job fits", WARN, {MEMINFO: f"MemAvailable: {4 << 20} kB\n"}, {"compile jobs": 1}),
        Row("no meminfo", UNKNOWN, {MEMINFO: None}),
    ),
]  # fmt: skip
