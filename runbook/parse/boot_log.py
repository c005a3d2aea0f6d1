"""Facts from the log of a vLLM server about its start: what was done when, for how long, and what was compiled.

Two kinds of clock are in it. Most lines carry a stamp of a whole second without a year, in local time; some say in words
how long they took. Wordings were read in the sources of vLLM 0.19.1 and 0.32.0 and seen in their logs, on a CPU and on
an H200 (``docs/measurements.md``).
"""

import datetime
import re
from dataclasses import dataclass

from runbook.parse import vllm_log
from runbook.parse.numbers import decimal

# Work that a cache would have spared. A graph, a kernel or a function that is loaded from one is not among it.
_COMPILES = re.compile(
    r"Compiling a graph for compile range|Start(?:ing torch\.compile| compiling function)|torch\.compile took"
    r"|Compiling model again|Cache the graph of compile range|saved AOT compiled function"
    r"|Compile and warming up model for size|Dynamo bytecode transform time"
    r"|is JIT-compiled|during inference: .*latency spike|JIT kernel warmup starting"
    r"|[Aa]utotuning (?:process starts|kernel )|Triton autotuning for function|Running FlashInfer autotune|\bAUTOTUNE "
    r"|Warming up (?:Qwen GDN Triton|CuTeDSL)|DeepGEMM warmup|recompile_limit"
    r"|\[\d+/\d+\] \S*(?:nvcc|g\+\+|c\+\+|gcc|cc1plus|ptxas)\b"
)


def compile_lines(log: str, after: int = 0) -> tuple[str, ...]:
    """Lines that tell of compiling, just-in-time kernels or autotuning, each as "NUMBER: text", counted from 1.

    Only lines behind line ``after``.
    Silence is no proof: FlashInfer and Triton compile without a line unless a later release watches them, so look at
    new files of the caches as well.
    """
    return tuple(
        f"{number}: {vllm_log.plain(line)}"
        for number, line in enumerate(log.splitlines(), 1)
        if number > after and _COMPILES.search(line)
    )


@dataclass(frozen=True)
class Step:
    """The line that ends a part of a start.

    ``at`` is its time (naive, local, of no particular year), within ``fine_s`` seconds after which it was written;
    ``took_s`` is what the line says of the part's length; ``end`` is the size of the log in bytes up to the line's end.
    """

    name: str
    end: int
    at: datetime.datetime
    fine_s: float
    took_s: float | None


# In the order of a start. Where several lines end a part (a loader and a runner both speak of weights), the last does.
_ENDS: tuple[tuple[str, "re.Pattern[str]"], ...] = (
    ("imports", re.compile(r"█.*\bversion \d|vLLM (?:API )?server version \d")),
    ("inspection", re.compile(r"Resolved architectures?:")),
    ("engine process", re.compile(r"Initializing a V1 LLM engine")),
    ("device", re.compile(r"Starting to load model")),
    ("weights", re.compile(r"Model loading took [\d.]+ GiB(?: memory)? and ([\d.]+) s|Loading weights took ([\d.]+) s|Initializing model took ([\d.]+) s")),
    ("torch.compile", re.compile(r"torch\.compile took ([\d.]+) s in total")),
    ("first run", re.compile(r"Initial profiling/warmup run took ([\d.]+) s")),
    ("KV cache", re.compile(r"Available KV cache memory:|KV cache size: [\d,]+ tokens")),
    ("graphs", re.compile(r"Graph capturing finished in ([\d.]+) secs?")),
    ("warm-up run", re.compile(r"Warming up done\.")),
    ("engine", re.compile(r"init engine \(.*\) took ([\d.]+) s")),
    ("API server", re.compile(r"Starting vLLM (?:API )?server(?: \d+)? on ")),
)  # fmt: skip
PARTS = tuple(name for name, _ in _ENDS)
_READY = re.compile(r'"GET /health HTTP/1\.\d" 200|Application startup complete\.')
_STAMP = re.compile(r"\b(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)\b(?:,(\d{3}))?")
_GLOG = re.compile(r"^\[?[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6,9})")
LEAP_YEAR = 2024  # so that 29 February is a date


def stamp(line: str) -> tuple[datetime.datetime, float] | None:
    """When a line was written (naive, local, of no particular year), and how fine its clock is in seconds; None without a stamp."""
    found = _GLOG.search(line) or _STAMP.search(line[:160])
    if found is None:
        return None
    month, day, hour, minute, second = (int(found[group]) for group in range(1, 6))
    fraction = found[6]
    try:
        at = datetime.datetime(  # noqa: DTZ001 - the log names no zone
            LEAP_YEAR, month, day, hour, minute, second, int((fraction or "0")[:6].ljust(6, "0"))
        )
    except ValueError:
        return None
    return at, 1.0 if fraction is None else 0.001


def steps(log: str) -> tuple[Step, ...]:
    """The ends of the parts of a start that the log tells of, in the order they were written.

    Of several processes that say the same (one a GPU), the last one to say it ends the part. What was logged after the
    server was ready is not looked at.
    """
    found: dict[str, Step] = {}
    end = 0
    for line in log.splitlines(keepends=True):
        end += len(line.encode())
        if _READY.search(line):
            break
        for name, pattern in _ENDS:
            match = pattern.search(line)
            when = stamp(line) if match else None
            if match and when and not (name == "imports" and name in found):
                took = next((decimal(group) for group in match.groups() if group), None)
                found[name] = Step(name, end, when[0], when[1], took)
    if "warm-up run" in found:  # the CPU's runner compiles inside it, and says where it begins and ends
        found = {name: one for name, one in found.items() if name not in {"torch.compile", "first run"}}
    return tuple(sorted(found.values(), key=lambda one: one.end))


def ready_line(log: str) -> int | None:
    """The number, from 1, of the first line that shows the server ready: its own word of a /health answered, or of its start."""
    return next((number for number, line in enumerate(log.splitlines(), 1) if _READY.search(line)), None)


def last_stamp(log: str) -> tuple[datetime.datetime, float] | None:
    """The last stamp before the server was ready; None when no line has one."""
    lines = log.splitlines()[: ready_line(log)]
    return next((found for line in reversed(lines) if (found := stamp(line))), None)


@dataclass(frozen=True)
class Said:
    """What a log says of caches and kernels: ``loaded`` and ``compiled`` count graphs, ``backend`` is the gated-delta-net's."""

    loaded: int
    compiled: int
    folder: str
    backend: str


def said(log: str) -> Said:
    """Graphs loaded from a cache and compiled, the folder of torch.compile's cache, and the kernel chosen for gated delta nets."""
    folder = re.search(r"Using cache directory: (\S+) for vLLM's torch\.compile", log)
    backend = re.search(r"Using (\S+(?: \S+)?) GDN prefill kernel", log)
    return Said(
        len(
            re.findall(
                r"Directly load (?:the compiled graph\(s\) for compile range|AOT compilation from path)", log
            )
        ),
        len(re.findall(r"Compiling a graph for compile range", log)),
        folder[1] if folder else "",
        backend[1] if backend else "",
    )
