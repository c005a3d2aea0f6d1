"""Edited copies about the Python of the target and its packages."""

import functools
import json
from collections.abc import Callable

from editing import NO_FILE, Edited, Said, replaced

from runbook.checks import python_paths
from runbook.checks.readings import BINARIES
from runbook.model import Verdict
from runbook.probes import questions

OK, FAIL, WARN = Verdict.OK, Verdict.FAIL, Verdict.WARN
CPU, GPU = "vllm-0.32.0-cpu", "vllm-0.19.1-cu128"
H200 = "h200-vllm-0.19.1"
DISTS, METADATA = "glob {site}/*.dist-info", "glob {site}/*.dist-info/METADATA"
NAMES = questions.run(python_paths.ARGV)
USER = "glob {home}/.local/lib/python3*/site-packages/*.dist-info"


def swapped(old: str, new: str) -> dict[str, Callable[[str], str]]:
    """One package at another version: in both lists that name it."""
    return {ask: replaced((f"/{old}.dist-info", f"/{new}.dist-info")) for ask in (DISTS, METADATA)}


def added(*names: str) -> dict[str, Callable[[str], str]]:
    """Packages that a later install brought."""

    def one(ending: str) -> Callable[[str], str]:
        return lambda text: "\n".join(
            sorted({*text.splitlines(), *(f"{{site}}/{name}.dist-info{ending}" for name in names)})
        )

    return {DISTS: one(""), METADATA: one("/METADATA")}


def together(*edits: dict[str, Callable[[str], str]]) -> dict[str, Callable[[str], str]]:
    """Edits of the same answers, one after the other."""

    def all_of(ask: str) -> Callable[[str], str]:
        return lambda text: functools.reduce(lambda done, edit: edit[ask](done), edits, text)

    return {ask: all_of(ask) for ask in edits[0]}


def facts(**changes: object) -> Callable[[str], str]:
    """An answer of a script with some keys changed."""
    return lambda text: json.dumps(json.loads(text) | changes, indent=1) + "\n"


EXTENSION = "flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so"


def with_flash_attn(text: str) -> str:
    """The libraries of the target and a flash-attn that fits them."""
    answer = json.loads(text)
    answer["links"]["files"].append(
        {"file": EXTENSION, "role": "extension", "needed": ["libc10.so", "libtorch.so"]}
    )
    answer["files"].append({"file": EXTENSION, "bytes": 410_000_000, "sass": ["sm_80", "sm_90"], "ptx": []})
    return json.dumps(answer) + "\n"


MACHINES = [
    Edited(
        "cpu-numpy-swapped", "cpu-2core", CPU, "2 cores, 24 GiB, no GPU, numpy of another release",
        ("a later pip install put numpy 2.4.6 in the place of 2.3.5",),
        swapped("numpy-2.3.5", "numpy-2.4.6"),
        {"PY-003": FAIL},
    ),
    Edited(
        "h200-numpy-swapped", H200, GPU, "one H200, numpy and transformers of other releases",
        ("a later pip install put numpy 2.4.6 in the place of 2.2.6, and transformers 5.3.0 in that of 5.24.0; uv pip check says what it says on such a target",),
        {
            **together(swapped("numpy-2.2.6", "numpy-2.4.6"), swapped("transformers-5.24.0", "transformers-5.3.0")),
            "read {site}/transformers-5.3.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: transformers\nVersion: 5.3.0\nRequires-Dist: numpy>=1.17\n",
            "run '{own}/uv' pip check --python '{python}' --color never": Said("", 1, "Checked 179 packages in 12ms\nFound 1 incompatibility\nThe package `numba` requires `numpy<2.3,>=1.24`, but `2.4.6` is installed\n"),
        },
        {"PY-003": FAIL, "PY-004": FAIL, "PY-008": FAIL, "PY-015": FAIL},
    ),
    Edited(
        "h200-phantom-python", H200, GPU, "one H200; python is one interpreter and pip another's",
        (
            "python and python3 are a virtual environment's, pip is the system's",
            "PYTHONPATH is set, and the user site holds a torch that Python 3.12 would find",
            "vLLM is there as an editable checkout too",
            "the environment was moved: its scripts start an interpreter elsewhere",
        ),
        {
            NAMES: "python|/opt/venv/bin/python|/usr/bin/python3.12|venv|\npython3|/opt/venv/bin/python3|/usr/bin/python3.12|venv|\npip|/usr/bin/pip|||#!/usr/bin/python3\npip3|/usr/bin/pip3|||#!/usr/bin/python3\n",
            "env PYTHONPATH": "/opt/old/site-packages",
            "glob /opt/old/site-packages/flash_attn": "",
            "glob /opt/old/site-packages/flash_attn_interface.py": "",
            "glob /opt/old/site-packages/vllm/__init__.py": "",
            "glob /opt/old/site-packages/vllm.py": "",
            "read {prefix}/pyvenv.cfg": NO_FILE,
            "run '{python}' -V": "Python 3.12.3\n",
            USER: "{home}/.local/lib/python3.12/site-packages/torch-2.4.0.dist-info",
            "glob {site}/*.pth": lambda text: "\n".join(sorted([*text.splitlines(), "{site}/__editable__.vllm-0.19.2.dev1.pth"])),
            "read {site}/__editable__.vllm-0.19.2.dev1.pth": "/workspace/vllm\n",
            "glob /workspace/vllm": "/workspace/vllm",
            "glob {site}/vllm/__init__.py": "{site}/vllm/__init__.py",
            "inside py_facts": facts(strange_scripts=["pip -> /old/bin/python"]),
        },
        {"PY-002": WARN, "PY-005": FAIL, "PY-010": FAIL, "PY-011": FAIL},
    ),
    Edited(
        "h200-wrong-python", H200, GPU, "one H200; the target was made with Python 3.14, the runbook with 3.9",
        ("pyvenv.cfg says 3.14.0", "the runbook's interpreter says 3.9.18, and no other is on PATH"),
        {
            "read {prefix}/pyvenv.cfg": replaced(("3.12.3", "3.14.0")),
            "run '{own}/python' -V": "Python 3.9.18\n",
            **{f"run python3.{minor} -V": Said("", 127, "No such file or directory", missing=True) for minor in (10, 11, 12, 13)},
        },
        {"START-001": FAIL, "PY-001": FAIL, "PY-003": Verdict.UNKNOWN, "PY-005": FAIL, "PY-017": FAIL},
    ),
    Edited(
        "h200-conda-and-leftovers", H200, GPU, "one H200; conda and pip in one environment, an install cut short",
        (
            "conda-meta lists numpy 1.26.4 and conda itself",
            "two records of transformers, a folder that pip had renamed, an old pynvml beside nvidia-ml-py",
            "RECORD's files: vllm/_C.abi3.so is missing",
            "Python.h is not there, and 40 % of the modules are compiled",
        ),
        {
            **added("transformers-4.41.2", "pynvml-11.5.3", "nvidia_ml_py-13.595.45"),
            "glob {prefix}/conda-meta/*.json": "{prefix}/conda-meta/conda-24.5.0-py312h06a4308_0.json\n{prefix}/conda-meta/numpy-1.26.4-py312h08b1b3b_0.json",
            "glob {site}/~*": "{site}/~umpy",
            "inside owners": facts(missing=[{"distribution": "vllm 0.19.1", "files": 1, "code": 1, "first": ["vllm/_C.abi3.so"]}]),
            "inside py_facts": facts(python_h=False, bytecode_percent=40),
        },
        {"PY-003": WARN, "PY-006": FAIL, "PY-007": WARN, "PY-012": FAIL, "PY-013": FAIL, "PY-016": FAIL, "PY-018": FAIL},
    ),
    Edited(
        "h200-conda-activated", H200, GPU, "one H200; a conda environment, activated, with a flash-attn built for its torch",
        (
            "python and pip of PATH are the environment's",
            "conda-meta lists numpy 2.2.6, which dist-info lists too",
            "flash-attn 2.8.3 is installed, and its extension finds all it needs and has code for 9.0",
        ),
        {
            **added("flash_attn-2.8.3"),
            NAMES: "python|/opt/conda/envs/serve/bin/python|/opt/conda/envs/serve/bin/python3.12||\npython3|/opt/conda/envs/serve/bin/python3|/opt/conda/envs/serve/bin/python3.12||\npip|/opt/conda/envs/serve/bin/pip|||#!/opt/conda/envs/serve/bin/python3.12\n",
            "glob {prefix}/conda-meta/*.json": "{prefix}/conda-meta/numpy-2.2.6-py312h72c5963_0.json",
            "read {site}/flash_attn-2.8.3.dist-info/METADATA": "Metadata-Version: 2.1\nName: flash_attn\nVersion: 2.8.3\nRequires-Dist: torch\nRequires-Dist: einops\n",
            "glob {site}/flash_attn": "{site}/flash_attn",
            "glob {site}/flash_attn/ops/triton/rotary.py": "{site}/flash_attn/ops/triton/rotary.py",
            BINARIES: with_flash_attn,
        },
        {"PY-003": WARN, "PY-009": OK, "PY-012": OK, "FLASH-002": WARN, "FLASH-005": WARN, "FLASH-006": OK},
    ),
]  # fmt: skip
