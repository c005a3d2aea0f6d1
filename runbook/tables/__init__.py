"""What NVIDIA, PyTorch and vLLM publish about what fits what, as rows with source and date; files beside this one.

Each file is ``{"what": ..., "rows": [...]}``, one row a line; a value nobody publishes is left out, never guessed.
A file is read when it is first asked about: most questions need none.
"""

import functools
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from packaging.version import Version

from runbook.errors import BadParameter

FOLDER = Path(__file__).parent
# Machine code for these does not run on other parts of the same major number, nor theirs here (CUDA programming guide,
# binary compatibility: the rule holds for desktop parts only).
TEGRA = frozenset({"5.3", "6.2", "7.2", "8.7"})
NATIVE, JIT, NONE = "native", "ptx-jit", "none"


@functools.cache
def rows(name: str) -> tuple[dict[str, Any], ...]:
    """The rows of one table, such as ``cards`` or ``xid``."""
    return tuple(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["rows"])


def _row(name: str, **key: Any) -> dict[str, Any] | None:  # noqa: ANN401 - a key of any JSON type
    return next(
        (row for row in rows(name) if all(row.get(field) == value for field, value in key.items())), None
    )


def _plain(name: str) -> str:
    words = re.sub(r"[^a-z0-9]+", " ", name.lower().replace("nvidia", "").replace("geforce", ""))
    return re.sub(r"(?<=[a-z])(?=[0-9])", " ", words).strip()


def card(name: str) -> dict[str, Any] | None:
    """The card of that name, as nvidia-smi prints it or as people say it (``RTX 4090``, ``H200``); None when unknown.

    A name that several cards share is answered only when all of them have one compute capability.
    """
    wanted = _plain(name)
    exact = [
        row
        for row in rows("cards")
        if wanted in {_plain(each) for each in (*row.get("names", ()), row["id"])}
    ]
    words = set(wanted.split())
    found = exact or [row for row in rows("cards") if words and any(words <= set(_plain(each).split()) for each in (*row.get("names", ()), row["id"]))]  # fmt: skip
    return found[0] if found and len({row["cc"] for row in found}) == 1 else None


def visible_memory(card: str, total_mib: int | None = None) -> int | None:
    """Bytes that cudaMemGetInfo calls total on a card of the table, where that was read; None where it was not.

    With ``total_mib``, only where nvidia-smi printed just that total.
    """
    row = _row("gpu_memory", card=card)
    return None if row is None or total_mib not in (None, row["total_mib"]) else int(row["visible_bytes"])


def visible_share() -> float:
    """How much of nvidia-smi's total a program sees, on the card where both were read."""
    row = rows("gpu_memory")[0]
    return float(row["visible_bytes"] / (row["total_mib"] << 20))


def capability(gpu: str) -> str:
    """``RTX 4090``, ``sm_89``, ``sm_90a`` or ``8.9`` -> ``8.9``.

    Raises:
        BadParameter: neither a capability nor a card of the table.
    """
    text = gpu.strip()
    if found := re.fullmatch(r"(?:sm_|compute_)?(\d{1,2})(\d)[af]?", text, re.ASCII):
        return f"{found[1]}.{found[2]}"
    if re.fullmatch(r"\d{1,2}\.\d", text, re.ASCII):
        return text
    row = card(text)
    if row is None:
        words = _plain(text).split()
        near = sorted({each for row in rows("cards") for each in row.get("names", ()) if set(words) & set(_plain(each).split())})  # fmt: skip
        raise BadParameter(
            f"no card {gpu!r} is known, or several that differ bear the name",
            f"a card as nvidia-smi names it{' such as ' + ', '.join(near[:4]) if near else ''}, or a capability such as sm_120",
            "name the capability: nvidia-smi --query-gpu=name,compute_cap --format=csv",
        )
    return str(row["cc"])


def code_runs(target: str, cap: str) -> bool:
    """True when machine code for ``target`` (``sm_80``, ``sm_90a``, ``sm_100f``) runs on a card of ``cap`` (``9.0``).

    Same major number and an equal or higher minor one; an ``a`` target on its own capability only, an ``f`` target on
    its family (CUDA programming guide, compute capabilities).
    """
    found = re.fullmatch(r"sm_(\d{1,2})(\d)([af]?)", target, re.ASCII)
    if not found:
        return False
    code, kind = f"{found[1]}.{found[2]}", found[3]
    if kind == "a":
        return code == cap
    if kind == "f":
        family = _row("families", target=target)
        return cap in family["runs_on"] if family else code == cap
    if code != cap and TEGRA & {code, cap}:
        return False
    major, minor = cap.split(".")
    return found[1] == major and int(found[2]) <= int(minor)


def ptx_compiles(target: str, cap: str) -> bool:
    """True when PTX for ``target`` (``compute_80``) can be compiled for a card of ``cap``: equal or higher, suffixes as above."""
    found = re.fullmatch(r"compute_(\d{1,2})(\d)([af]?)", target, re.ASCII)
    if not found:
        return False
    if found[3]:
        return code_runs(target.replace("compute_", "sm_"), cap)
    major, minor = (int(part) for part in cap.split("."))
    return (int(found[1]), int(found[2])) <= (major, minor)


def coverage(sass: list[str], ptx: list[str], cap: str) -> str:
    """How a file serves a card: ``native``, ``ptx-jit`` or ``none``."""
    if any(code_runs(target, cap) for target in sass):
        return NATIVE
    return JIT if any(ptx_compiles(target, cap) for target in ptx) else NONE


def driver_floor(cuda: str) -> str | None:
    """Lowest driver for programs of this CUDA's major release; ``cuda`` is ``12.8`` or ``13``."""
    row = _row("driver_floors", cuda_major=int(cuda.split(".", maxsplit=1)[0]))
    return None if row is None else str(row["driver"])


def branch_cuda(driver: str) -> str | None:
    """Highest CUDA version a driver such as ``580.159.04`` serves, by its branch; None for an unlisted branch."""
    row = _row("driver_branches", branch=int(driver.split(".", maxsplit=1)[0]))
    return None if row is None else str(row["cuda"])


def shipped_driver(toolkit: str) -> str | None:
    """The driver a toolkit (``12.8`` or ``12.8.1``) was shipped with; of several point releases the first."""
    exact = [row for row in rows("toolkit_drivers") if row["toolkit"] == toolkit or row["toolkit"].startswith(f"{toolkit}.")]  # fmt: skip
    return str(exact[-1]["driver"]) if exact and exact[-1].get("driver") else None


def toolkit(release: str) -> dict[str, Any] | None:
    """What nvcc of a release such as ``12.8`` can do: ``sm``, ``gcc_max``, ``clang_below``."""
    return _row("toolkits", toolkit=release)


def compat_package(cuda: str, branch: int) -> str | None:
    """Whether the cuda-compat package of ``13.0`` may be used on a driver branch: yes, no, same; None when unlisted."""
    row = _row("compat_packages", cuda=cuda)
    return None if row is None else row["on_branch"].get(str(branch))


def torch(version: str) -> dict[str, Any] | None:
    """What goes with a torch release (local tag ignored): torchvision, torchaudio, triton, cudnn, nccl, arch_list."""
    return _row("torch", torch=version.split("+", maxsplit=1)[0])


def vllm(version: str) -> dict[str, Any] | None:
    """What goes with a vLLM release (local tag ignored): torch, cuda, transformers, flashinfer, glibc."""
    return _row("vllm", vllm=version.split("+", maxsplit=1)[0])


def torch_with(symbols: Iterable[str]) -> tuple[str, ...]:
    """Releases of torch, oldest first, that export all of these C++ names, as far as the names are known; () for unknown ones."""
    wanted = set(symbols)
    found = [row["torch"] for row in rows("torch_symbols") if row["symbol"] in wanted]
    return tuple(one for one in found[0] if all(one in each for each in found)) if found else ()


def cuda_package(library: str) -> str | None:
    """The package that holds a CUDA library such as ``libcudart.so.12``; None when unlisted."""
    row = _row("cuda_packages", library=library)
    return str(row["package"]) if row else None


def xid(code: int) -> dict[str, Any] | None:
    """What an Xid means and what NVIDIA says to do."""
    return _row("xid", xid=code)


def cuda_error(code: int) -> dict[str, Any] | None:
    """What a CUDA error code means and what usually causes it."""
    return _row("cuda_errors", code=code)


def pci_device(device: str) -> dict[str, Any] | None:
    """What a PCI device id of NVIDIA's such as ``2335`` is: ``kind`` (gpu, nvswitch), ``generation``, ``kernel_modules``."""
    number = int(device, 16)
    found = (row for row in rows("pci_generations") if int(row["from"], 16) <= number <= int(row["to"], 16))
    return next(found, None)


def takes_device_names(version: str) -> bool | None:
    """Whether a vLLM release takes GPU-... and MIG-... in CUDA_VISIBLE_DEVICES; None when nobody looked."""
    have = Version(version)
    found = (
        row for row in rows("vllm_devices") if Version(row["vllm_from"]) <= have <= Version(row["vllm_to"])
    )
    return next((bool(row["takes_uuid"]) for row in found), None)


def vllm_flags() -> dict[str, dict[str, Any]]:
    """Flags that other releases of vLLM had, by name: ``became``, ``since``, ``now``."""
    return {str(row["flag"]): row for row in rows("vllm_flags")}


def attention(version: str, rule: str) -> tuple[dict[str, Any], ...]:
    """Rules of one kind (``order``, ``backend``, ``flash``, ``gdn``, ``cpu``) by which a vLLM release picks its kernels."""
    release = version.partition("+")[0]
    return tuple(row for row in rows("attention_backends") if release in row["vllm"] and row["rule"] == rule)


def ptx_cuda(isa: str) -> str | None:
    """The first CUDA version whose driver compiles this version of the PTX language (``8.8``); None when unlisted."""
    row = _row("ptx_isa", isa=isa)
    return None if row is None else str(row["cuda"])


def kernels(role: str) -> tuple[dict[str, Any], ...]:
    """Files a start depends on, of one role: ``core``, ``attention`` (``of`` a backend, for ``cc``) or ``nvidia`` (with ``must``)."""
    return tuple(row for row in rows("kernels") if row["role"] == role)


def attention_kernels(version: str, cap: str) -> tuple[str, str] | None:
    """(backend, pattern of the file with its kernels) that a vLLM release takes on a card; None when nobody looked.

    The pattern is "" for kernels that are compiled on the machine. The model is taken to be one that the first backend
    serves: its head size and number format can lead to another.
    """
    order = next((row for row in attention(version, "order") if _of(row["cc"], cap)), None)
    if order is None:
        return None
    served = {row["name"] for row in attention(version, "backend") if _within(cap, row)}
    first = next((name for name in order["backends"] if name in served), "")
    if first == "FLASH_ATTN":
        flash = next(row for row in attention(version, "flash") if _of(row["cc"], cap))
        return f"FlashAttention {flash['version']}", flash["file"] if flash["file"].endswith(".so") else ""
    files = (row["file"] for row in kernels("attention") if row["of"] == first and _of(row["cc"], cap))
    return first, next(files, "")


def _of(said: str, cap: str) -> bool:
    """``9.0`` is that capability, ``10`` every one of that major number, "" all."""
    return said in {"", cap, cap.partition(".")[0]}


def _within(cap: str, row: dict[str, Any]) -> bool:
    return Version(row.get("cc_from", "0")) <= Version(cap) <= Version(row.get("cc_to", "99"))


def jit_tools(compiler: str) -> dict[str, Any] | None:
    """What a compiler that works at run time (``flashinfer``, ``triton``) needs on PATH: ``needs`` groups of names, ``why``."""
    return _row("jit_tools", compiler=compiler)


def flash_attn_release(release: str) -> dict[str, Any]:
    """What building a release of flash-attn takes: steps, targets, memory of a job, core seconds of an object.

    Raises:
        BadParameter: nobody looked at that release.
    """
    minor = ".".join(release.split(".")[:2])
    row = _row("flash_attn", rule="release", release=minor)
    if row is None:
        known = ", ".join(f"{one['release']}.x" for one in rows("flash_attn") if one["rule"] == "release")
        raise BadParameter(
            f"flash-attn {release} was never built with this runbook",
            known,
            "take one of these: --release 2.8.3",
        )
    return row


def flash_attn_options() -> dict[str, dict[str, Any]]:
    """What its sources can leave out, by name: ``macro``."""
    return {str(row["name"]): row for row in rows("flash_attn") if row["rule"] == "option"}


def flash_attn_pair(release: str, torch: str) -> dict[str, Any] | None:
    """Why a release of flash-attn does not compile against a torch: ``error`` and what ``works``; None when nothing is on record."""
    minor, have = ".".join(release.split(".")[:2]), Version(torch).release
    found = (row for row in rows("flash_attn") if row["rule"] == "pair" and minor in row["releases"])
    return next((row for row in found if Version(row["torch_from"]).release <= have), None)
