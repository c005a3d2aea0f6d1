"""FLASH: what vLLM does with a flash-attn that lies in its way, whether that one loads, and what building one would take."""

from runbook.checks.limits import cores, memory_limit
from runbook.checks.readings import (
    BINARIES,
    DIST_INFO,
    GPU_QUESTION,
    binaries,
    distributions,
    gpus,
    links,
    stack_of,
)
from runbook.model import Answer, Evidence, Fix, Layer, Risk, Source, check, fail, ok, skip, unknown, warn
from runbook.parse import attention, numbers, proc
from runbook.parse.binaries import Binary
from runbook.parse.links import Link
from runbook.probe import Probe
from runbook.tables import NONE, coverage

PACKAGE = "{site}/flash_attn"
ROTARY = f"{PACKAGE}/ops/triton/rotary.py"
INTERFACE = "{site}/flash_attn_interface.py"
COMMON = "{site}/vllm/model_executor/layers/rotary_embedding/common.py"
WORDS = ('find_spec("flash_attn")', "flash_attn.ops.triton.rotary", "is_cpu()", "suppress(")
LOOK = ["grep", "-n", "-o", *(part for word in WORDS for part in ("-e", word)), COMMON]
OUT = Fix(
    "Remove it from the serving environment; a trainer that wants it gets an environment of its own",
    ("uv pip uninstall --python {python} flash-attn flash-attn-3 flash-attn-4",),
    Risk.REBUILD,
    undo="uv pip install it again",
)
JOB_GIB = 9  # flash-attention's setup.py counts 8 to 9 GB a job with four nvcc threads


def _found(host: Probe) -> tuple[list[str], list[Evidence]] | None:
    """Paths by which flash_attn can be imported, and the readings; None when nothing at all was found in the target."""
    have = distributions(host)
    if not have:
        return None
    names = [f"{name} {version}" for name, version in sorted(have.items()) if name.startswith("flash-attn")]
    places = [*host.glob(PACKAGE), *host.glob(INTERFACE)]
    seen = [
        Evidence("flash-attn packages", ", ".join(names) or "none", f"glob {DIST_INFO}"),
        Evidence("module flash_attn", " ".join(host.glob(PACKAGE)) or "none", f"glob {PACKAGE}"),
        Evidence(
            "module flash_attn_interface", " ".join(host.glob(INTERFACE)) or "none", f"glob {INTERFACE}"
        ),
    ]
    value = host.env("PYTHONPATH")
    for folder in (value or "").split(":"):
        if folder:
            path = f"{folder.rstrip('/')}/flash_attn"
            outside = host.glob(path)
            places += outside
            seen += [Evidence("on PYTHONPATH", outside[0], f"glob {path}")] if outside else []
    return places, seen


@check(
    "FLASH-005",
    layer=Layer.FLASH,
    title="No flash-attn that can be found ends vLLM's start",
    why="Each rotary layer imports flash_attn.ops.triton.rotary where a flash_attn is found: flash-attn-4 has no such module.",
    source=Source(
        "vLLM issue 42675: with flash-attn-4, no module named flash_attn.ops",
        "https://github.com/vllm-project/vllm/issues/42675",
        "2026-11-30",
    ),
    needs_target=True,
)
def does_not_end_the_start(host: Probe) -> Answer:
    """What the installed vLLM asks for (read in its source) against what lies there."""
    looked = _found(host)
    if looked is None:
        return unknown("no package at all was found in the target, so nothing can be said of one")
    places, seen = looked
    if not [place for place in places if place.endswith("flash_attn")]:
        return ok(*seen)
    stack = stack_of(host)
    ran = host.run(LOOK)
    asks = {
        "find_spec": 'find_spec("flash_attn")' in ran.out,
        "import_module": "flash_attn.ops.triton.rotary" in ran.out and "find_spec" not in ran.out,
    }
    origin = "run " + " ".join(LOOK)
    if not any(asks.values()):
        return unknown("vLLM's rotary layer does not ask for it in a way that is on record", *seen)
    if asks["import_module"] and "is_cpu()" in ran.out and stack.device == "cpu":
        return warn(*seen, Evidence("rotary layer", "does not import it on the CPU", origin), fix=OUT)
    has_rotary = bool(host.glob(ROTARY)) or any(not place.startswith("{site}") for place in places)
    forgives = asks["import_module"] and "suppress(" in ran.out
    seen += [
        Evidence(
            "rotary layer",
            "imports it when found" if not forgives else "imports it, and goes on without",
            origin,
        ),
        Evidence("flash_attn.ops.triton.rotary", has_rotary, f"glob {ROTARY}"),
    ]
    if not has_rotary and not forgives:
        return fail(*seen, fix=OUT, reason="the engine ends with: No module named 'flash_attn.ops'")
    return warn(*seen, fix=OUT, reason="vLLM imports it and, on CUDA, computes nothing with it")


@check(
    "FLASH-006",
    layer=Layer.FLASH,
    title="A separate flash-attn fits this torch and these cards",
    why="Built for another torch its import ends in 'undefined symbol', and vLLM's start with it.",
    source=Source(
        "flash-attention issue 1644: undefined symbol after a torch upgrade",
        "https://github.com/Dao-AILab/flash-attention/issues/1644",
        "2026-11-30",
    ),
    needs_target=True,
)
def fits(host: Probe) -> Answer:
    """Its extension's undefined symbols, and its machine code, as read from the file."""
    have = distributions(host)
    if not have:
        return unknown("no package at all was found in the target, so nothing can be said of one")
    read, code = links(host), binaries(host)
    if read is None or code is None:
        return unknown("the libraries of the target could not be read")
    files = [one for one in read.files if _is_flash(one.file)]
    if not files:
        return skip("no extension of a separate flash-attn is in the target", Evidence("libraries read", len(read.files), BINARIES))  # fmt: skip
    broken = [one for one in files if not one.whole]
    seen = [Evidence(one.file, "finds all it needs" if one.whole else _lacks(one), BINARIES) for one in files]
    seen.append(Evidence("torch", read.torch or None, BINARIES))
    if broken:
        return fail(*seen, fix=OUT, reason=f"importing it ends in an ImportError: {_lacks(broken[0])}")
    caps = sorted({one.compute_cap for one in gpus(host) if one.compute_cap}, key=attention.split)
    by_file = [one for one in code if _is_flash(one.file)]
    none = [f"{cap}: {one.file}" for cap in caps for one in by_file if _serves(one, cap) == NONE]
    seen += [Evidence(f"code for {cap}", " ".join(_serves(one, cap) for one in by_file) or "none", GPU_QUESTION) for cap in caps]  # fmt: skip
    if none:
        return warn(*seen, fix=OUT, reason=f"no machine code for {none[0]}")
    return ok(*seen)


def _is_flash(file: str) -> bool:
    """``flash_attn_2_cuda*.so``, ``flash_attn_3/_C.so`` and the like; vLLM's own lie under ``vllm/``."""
    return file.startswith("flash_attn")


def _serves(one: Binary, cap: str) -> str:
    return coverage(list(one.sass), list(one.ptx), cap)


def _lacks(one: Link) -> str:
    """The first thing a library does not find."""
    if one.missing:
        more = f" and {one.missing_count - 1} more" if one.missing_count > 1 else ""
        return f"undefined symbol {one.missing[0].demangled or one.missing[0].symbol}{more}"
    names = (*one.missing_libraries, *(name for name, _, _ in one.missing_versions), *one.through)
    return f"lacks {names[0]}" if names else "lacks something"


@check(
    "FLASH-007",
    layer=Layer.FLASH,
    title="If flash-attn were built here, its compile jobs would fit into memory",
    why="Too many jobs wake the OOM killer: the build ends after minutes with a bare 'exit status 9' or 'Killed'.",
    source=Source(
        "flash-attention: setup.py, NinjaBuildExtension (9 GB a job)",
        "https://github.com/Dao-AILab/flash-attention/blob/main/setup.py",
        "2026-11-30",
    ),
)
def build_fits(host: Probe) -> Answer:
    """Jobs (MAX_JOBS, else what its setup.py makes of cores and free memory) x 9 GiB against memory and its limit."""
    free = proc.meminfo_mib(host.read_text("/proc/meminfo"), "MemAvailable")
    if free is None:
        return unknown("MemAvailable was not found in /proc/meminfo")
    limit, have = memory_limit(host), cores(host)
    given = host.env("MAX_JOBS")
    asked = numbers.whole(given or "")
    count = have.allowed or 1
    # As its setup.py counts: half the cores, and the machine's free memory, whatever a container may use of it.
    jobs = asked or max(1, min(count // 2, free // (JOB_GIB * 1024)))
    usable = free if limit.value is None else min(free, limit.value)
    seen = (
        Evidence("MAX_JOBS", given or "not set", "env MAX_JOBS"),
        Evidence("cores", have.allowed, have.origin_allowed),
        Evidence("compile jobs", jobs, "MAX_JOBS, or setup.py of flash-attn"),
        Evidence("memory they want (GiB)", jobs * JOB_GIB, "setup.py of flash-attn: 9 GB a job"),
        Evidence("available (GiB)", round(usable / 1024, 1), "read /proc/meminfo"),
        Evidence("memory limit (MiB)", limit.value if limit.value is not None else "none", limit.origin),
    )
    if jobs * JOB_GIB * 1024 <= usable:
        return ok(*seen)
    most = max(1, usable // (JOB_GIB * 1024))
    fix = Fix("This stack needs no such build; where another does, allow fewer jobs", (f"MAX_JOBS={most} NVCC_THREADS=1 uv pip install --no-build-isolation flash-attn",), Risk.NONE)  # fmt: skip
    return warn(*seen, fix=fix, reason="a build with that many jobs can be killed for memory")


CHECKS = (does_not_end_the_start, fits, build_fits)
