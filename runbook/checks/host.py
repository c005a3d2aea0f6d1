"""HOST: kernel, C library, processor, memory and limits, against what the stack's wheels were built for."""

from runbook.checks.readings import need, stack_of
from runbook.model import Answer, Evidence, Fix, Layer, Risk, Source, check, fail, ok, skip, unknown, warn
from runbook.parse import proc
from runbook.parse.numbers import whole
from runbook.pins import at_least
from runbook.probe import Probe

MANYLINUX = Source(
    "PEP 600: manylinux_X_Y tags name a glibc floor", "https://peps.python.org/pep-0600/", "2026-11-30"
)
MEMORY_NEED_MIB = 6_000
SHM = "/dev/shm"  # noqa: S108 - asked about, never written to
SHM_WISH_MIB = 1_024
FILES_WISH = 4_096


@check(
    "HOST-001",
    layer=Layer.HOST,
    title="The machine is Linux on x86-64",
    why="The locks pin wheels for this platform only; elsewhere an installer would look for source and fail late.",
    source=MANYLINUX,
)
def platform(host: Probe) -> Answer:
    """``uname -sm``."""
    ran = host.run(["uname", "-srm"])
    words = ran.out.split()
    fields = 3
    if len(words) != fields:
        return unknown("uname gave no answer that can be read")
    system, release, arch = words
    seen = (
        Evidence("system", f"{system} {arch}", "run uname -srm"),
        Evidence("kernel", release, "run uname -srm"),
    )
    if (system, arch) == ("Linux", "x86_64"):
        return ok(*seen)
    return fail(
        *seen, fix=Fix("Run on a Linux x86-64 machine; the lock for this platform does not exist yet")
    )


@check(
    "HOST-002",
    layer=Layer.HOST,
    title="The C library is as new as the stack's wheels ask",
    why="pip refuses a wheel whose manylinux tag is newer than glibc, or worse, takes an older release without a word.",
    source=MANYLINUX,
)
def glibc(host: Probe) -> Answer:
    """``getconf GNU_LIBC_VERSION`` against the highest manylinux tag in the stack."""
    stack = stack_of(host)
    pin = stack.pin("glibc")
    have = proc.glibc(host.run(["getconf", "GNU_LIBC_VERSION"]).out)
    seen = Evidence("glibc", have, "run getconf GNU_LIBC_VERSION")
    if have is None or pin is None:
        return unknown("no glibc version could be read (musl systems such as Alpine have none)", seen)
    floor = pin.version.lstrip(">=")
    evidence = (seen, need("needed", floor, stack))
    if at_least(have, floor):
        return ok(*evidence)
    return fail(
        *evidence,
        fix=Fix(
            f"Use a distribution with glibc {floor} or newer, or a container that has it", risk=Risk.REBUILD
        ),
    )


@check(
    "HOST-003",
    layer=Layer.HOST,
    title="The processor has the instructions that vLLM's CPU build uses",
    why="Without them the extension ends with 'Illegal instruction' and no Python traceback.",
    source=Source(
        "vLLM: CPU installation, supported instruction sets",
        "https://docs.vllm.ai/en/stable/getting_started/installation/cpu/",
        "2026-11-30",
    ),
)
def instructions(host: Probe) -> Answer:
    """``/proc/cpuinfo`` flags: AVX2 at least, AVX-512 for the quick kernels."""
    cpuinfo = host.read_text("/proc/cpuinfo")
    flags = proc.cpu_flags(cpuinfo)
    if not flags:
        return unknown("no flags line in /proc/cpuinfo")
    useful = [name for name in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16") if name in flags]
    seen = (
        Evidence("processor", proc.cpu_name(cpuinfo), "read /proc/cpuinfo"),
        Evidence("has", " ".join(useful) or "none of them", "read /proc/cpuinfo"),
    )
    if stack_of(host).device != "cpu":
        return skip("the stack computes on a GPU", *seen)
    if "avx2" not in flags:
        return fail(*seen, fix=Fix("Use a machine with AVX2 (x86-64-v3), or a GPU stack"))
    if "avx512f" not in flags:
        return warn(*seen, reason="AVX2 only: it works, without the AVX-512 kernels and so slower")
    return ok(*seen)


@check(
    "HOST-004",
    layer=Layer.HOST,
    title="There is memory for the server, in the machine and in this cgroup",
    why="The kernel kills the engine without a traceback when the cgroup's limit is reached, however much the machine has.",
    source=Source(
        "Linux: control group v2, memory.max",
        "https://docs.kernel.org/admin-guide/cgroup-v2.html",
        "2026-11-30",
    ),
)
def memory(host: Probe) -> Answer:
    """The smaller of MemAvailable and the cgroup limit."""
    free = proc.meminfo_mib(host.read_text("/proc/meminfo"), "MemAvailable")
    limit = proc.cgroup_limit_mib(host.read_text("/sys/fs/cgroup/memory.max"))
    if limit is None:
        limit = proc.cgroup_limit_mib(host.read_text("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
    if free is None:
        return unknown("MemAvailable is not in /proc/meminfo")
    usable = min(free, limit) if limit is not None else free
    seen = (
        Evidence("available (MiB)", free, "read /proc/meminfo"),
        Evidence(
            "cgroup limit (MiB)", limit if limit is not None else "none", "read /sys/fs/cgroup/memory.max"
        ),
        Evidence("needed (MiB)", MEMORY_NEED_MIB, "checks/host.py"),
    )
    if usable < MEMORY_NEED_MIB:
        return fail(
            *seen,
            fix=Fix(
                "Free memory, or raise the container's limit", ("docker run --memory 16g ...",), Risk.RESTART
            ),
        )
    return ok(*seen)


@check(
    "HOST-005",
    layer=Layer.HOST,
    title="Shared memory is large enough for several workers",
    why="Workers exchange tensors there; Docker's default of 64 MB ends in a bus error under tensor parallelism.",
    source=Source(
        "vLLM: --shm-size or --ipc=host for containers",
        "https://docs.vllm.ai/en/stable/deployment/docker/",
        "2026-11-30",
    ),
)
def shared_memory(host: Probe) -> Answer:
    """``df`` of /dev/shm."""
    found = proc.disk(host.run(["df", "-Pk", SHM]).out)
    if found is None:
        return unknown("df gave no row for /dev/shm")
    seen = (
        Evidence("size (MiB)", found.total_mib, "run df -Pk /dev/shm"),
        Evidence("wished (MiB)", SHM_WISH_MIB, "checks/host.py"),
    )
    if found.total_mib < SHM_WISH_MIB:
        return warn(
            *seen,
            fix=Fix("Start the container with more", ("docker run --ipc=host ...",), Risk.RESTART),
            reason="one GPU works; several may not",
        )
    return ok(*seen)


@check(
    "HOST-006",
    layer=Layer.HOST,
    title="A process may open enough files",
    why="Each connection and each shard is an open file; under load the server refuses clients at the limit.",
    source=Source(
        "getrlimit(2): RLIMIT_NOFILE", "https://man7.org/linux/man-pages/man2/getrlimit.2.html", "2026-11-30"
    ),
)
def open_files(host: Probe) -> Answer:
    """The soft limit in /proc/self/limits."""
    have = proc.open_files_limit(host.read_text("/proc/self/limits"))
    seen = (
        Evidence("soft limit", "unlimited" if have == -1 else have, "read /proc/self/limits"),
        Evidence("wished", FILES_WISH, "checks/host.py"),
    )
    if have is None:
        return unknown("no 'Max open files' in /proc/self/limits", *seen)
    if have != -1 and have < FILES_WISH:
        return warn(
            *seen, fix=Fix("Raise it in the shell that starts the server", ("ulimit -n 65536",), Risk.RESTART)
        )
    return ok(*seen)


@check(
    "HOST-007",
    layer=Layer.HOST,
    title="More than one processor core may be used",
    why="The API server, the engine and the client each keep a core busy; on one core they starve each other.",
    source=Source(
        "GNU coreutils: nproc",
        "https://www.gnu.org/software/coreutils/manual/html_node/nproc-invocation.html",
        "2026-11-30",
    ),
)
def cores(host: Probe) -> Answer:
    """``nproc`` counts the cores this process may use, not those of the machine."""
    usable = whole(host.run(["nproc"]).out)
    if usable is None:
        return unknown("nproc gave no number")
    seen = Evidence("usable cores", usable, "run nproc")
    return ok(seen) if usable > 1 else warn(seen, reason="one core: expect slow answers")


@check(
    "HOST-008",
    layer=Layer.HOST,
    title="lscpu is there for vLLM's CPU build",
    why="The engine asks it for cores and NUMA nodes; without it both CPU releases die at start.",
    source=Source("measured on both CPU stacks", "docs/measurements.md", "2026-11-30"),
)
def lscpu(host: Probe) -> Answer:
    """``lscpu --version``; small container images often lack it."""
    ran = host.run(["lscpu", "--version"])
    seen = Evidence("lscpu", None if ran.missing else ran.out.strip(), "run lscpu --version")
    if stack_of(host).device != "cpu":
        return skip("the stack computes on a GPU", seen)
    if ran.ok:
        return ok(seen)
    return fail(seen, fix=Fix("Install it", ("sudo apt-get install util-linux",), Risk.NONE))


CHECKS = (platform, glibc, instructions, memory, shared_memory, open_files, cores, lscpu)
