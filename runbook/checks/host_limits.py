"""HOST: how much memory, shared memory, files, cores and processes this process and its children may have."""

from runbook.checks import limits
from runbook.checks.limits import STATUS
from runbook.model import Answer, Evidence, Fix, Layer, Risk, Source, check, fail, ok, skip, unknown, warn
from runbook.parse import proc
from runbook.parse.numbers import whole
from runbook.probe import Probe

NODES = "/dev/nvidia[0-9]*"
VERBS = "/dev/infiniband/uverbs*"
LIMITS = "/proc/self/limits"
MEMINFO = "/proc/meminfo"
OVERCOMMIT = "/proc/sys/vm/overcommit_memory"
MEMORY_NEED_MIB = 6_000
SHM = "/dev/shm"  # noqa: S108 - asked about, never written to
# NCCL's documentation names 1 GB for a container.
SHM_WISH_MIB = 1_024
# vLLM 0.19.1 with several workers: one ring of 10 x 16 MiB from the engine to all of them, and NCCL beside it.
SHM_NEED_MIB = 160
FILES_WISH = 4_096
PROCESSES_WISH = 4_096
# Address space of a process that has done no more than import torch 2.10.0 (measured: VmPeak 4,786 MiB).
ADDRESS_NEED_MIB = 4_800
NCCL = Source(
    "NCCL: runtime issues, shared and pinned memory in containers",
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/runtime_and_mpi_issues.html",
    "2026-11-30",
)


def _shown(limit: int | None) -> str | int | None:
    return "unlimited" if limit == -1 else limit


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
    """The smaller of MemAvailable and the cgroup limit: the process's own group's or that of one above it."""
    free = proc.meminfo_mib(host.read_text(MEMINFO), "MemAvailable")
    if free is None:
        return unknown("MemAvailable is not in /proc/meminfo")
    limit = limits.memory_limit(host)
    shown = limit.value if limit.value is not None else ("none" if limit.known else None)
    seen = (
        Evidence("available (MiB)", free, f"read {MEMINFO}"),
        Evidence("cgroup limit (MiB)", shown, limit.origin),
        Evidence("needed (MiB)", MEMORY_NEED_MIB, "checks/host_limits.py"),
    )
    usable = free if limit.value is None else min(free, limit.value)
    if usable < MEMORY_NEED_MIB:
        return fail(
            *seen,
            fix=Fix(
                "Free memory, or raise the container's limit", ("docker run --memory 16g ...",), Risk.RESTART
            ),
        )
    return ok(*seen) if limit.known else unknown("the control group's limit could not be read", *seen)


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
    """``df`` of /dev/shm. One GPU needs no workers that share memory; several cannot do without."""
    found = proc.disk(host.run(["df", "-Pk", SHM]).out)
    gpus = len(host.glob(NODES))
    if found is None:
        return unknown("df gave no row for /dev/shm")
    seen = (
        Evidence("size (MiB)", found.total_mib, "run df -Pk /dev/shm"),
        Evidence("wished (MiB)", SHM_WISH_MIB, "checks/host_limits.py"),
        Evidence("GPUs", gpus, f"glob {NODES}"),
    )
    more = Fix("Start the container with more", ("docker run --ipc=host ...",), Risk.RESTART)
    if found.total_mib >= SHM_WISH_MIB:
        return ok(*seen)
    if gpus > 1 and found.total_mib < SHM_NEED_MIB:
        return fail(
            *seen, Evidence("one ring of vLLM's (MiB)", SHM_NEED_MIB, "checks/host_limits.py"), fix=more
        )
    return warn(*seen, fix=more, reason="one GPU works; several may not")


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
    have = proc.soft_limit(host.read_text(LIMITS), "Max open files")
    seen = (
        Evidence("soft limit", _shown(have), f"read {LIMITS}"),
        Evidence("wished", FILES_WISH, "checks/host_limits.py"),
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
        "Linux: control group v2, cpu.max",
        "https://docs.kernel.org/admin-guide/cgroup-v2.html",
        "2026-11-30",
    ),
)
def cores(host: Probe) -> Answer:
    """Affinity mask and CPU quota; a container with half a core's worth of time still counts every core."""
    found = limits.cores(host)
    if found.allowed is None or found.usable is None:
        return unknown("no Cpus_allowed_list in /proc/self/status")
    quota = found.quota if found.quota is not None else ("none" if found.quota_known else None)
    seen = (
        Evidence("cores allowed", found.allowed, found.origin_allowed),
        Evidence("quota (cores)", quota, found.origin_quota),
    )
    more = Fix("Give the container more time", ("docker run --cpus 8 ...",), Risk.RESTART)
    if found.usable < 1:
        return fail(
            *seen, fix=more, reason="less than one core's worth of time: every process is stopped in turn"
        )
    if found.usable <= 1:
        return warn(*seen, fix=more, reason="one core: expect slow answers")
    return (
        ok(*seen) if found.quota_known else unknown("the control group's CPU quota could not be read", *seen)
    )


@check(
    "HOST-017",
    layer=Layer.HOST,
    title="Memory may be locked without limit where several GPUs or RDMA need it",
    why="NCCL and the network card's driver pin their buffers; at the limit the first collective fails to register memory.",
    source=NCCL,
)
def locked_memory(host: Probe) -> Answer:
    """The soft limit of locked memory; one GPU without an RDMA card pins through the driver, which asks no limit."""
    have = proc.soft_limit(host.read_text(LIMITS), "Max locked memory")
    gpus, cards = len(host.glob(NODES)), len(host.glob(VERBS))
    seen = (
        Evidence("soft limit (bytes)", _shown(have), f"read {LIMITS}"),
        Evidence("GPUs", gpus, f"glob {NODES}"),
        Evidence("RDMA devices", cards, f"glob {VERBS}"),
    )
    if gpus <= 1 and not cards:
        return skip("one GPU or none, and no RDMA device: NCCL is not used", *seen)
    if have is None:
        return unknown("no 'Max locked memory' in /proc/self/limits", *seen)
    if have == -1:
        return ok(*seen)
    return warn(
        *seen,
        fix=Fix(
            "Start the container without this limit", ("docker run --ulimit memlock=-1 ...",), Risk.RESTART
        ),
        reason="NCCL asks for no limit in containers; with RDMA registration fails at this one",
    )


@check(
    "HOST-018",
    layer=Layer.HOST,
    title="Enough processes and threads may be started",
    why="At the limit a start dies with 'can't start new thread' or 'Resource temporarily unavailable', often in OpenBLAS.",
    source=Source(
        "getrlimit(2): RLIMIT_NPROC", "https://man7.org/linux/man-pages/man2/getrlimit.2.html", "2026-11-30"
    ),
)
def processes(host: Probe) -> Answer:
    """Soft limit of the user (root is exempt) and pids.max of the control groups; every thread counts."""
    user = proc.soft_limit(host.read_text(LIMITS), "Max processes")
    uid = whole((proc.status(host.read_text(STATUS), "Uid") or "").split("\t")[0])
    group = limits.process_limit(host)
    shown = group.value if group.value is not None else ("none" if group.known else None)
    seen = (
        Evidence("soft limit of the user", "root is exempt" if uid == 0 else _shown(user), f"read {LIMITS}"),
        Evidence("control group", shown, group.origin),
        Evidence("wished", PROCESSES_WISH, "checks/host_limits.py"),
    )
    if user is None or uid is None:
        return unknown("no 'Max processes' in /proc/self/limits, or no Uid in /proc/self/status", *seen)
    counts = [each for each in (None if uid == 0 or user == -1 else user, group.value) if each is not None]
    if counts and min(counts) < PROCESSES_WISH:
        return warn(
            *seen,
            fix=Fix(
                "Raise both for whoever starts the server",
                ("ulimit -u 65536", "docker run --pids-limit -1 ..."),
                Risk.RESTART,
            ),
            reason=f"{min(counts)} in all, threads counted one by one",
        )
    return ok(*seen) if group.known else unknown("the control group's limit could not be read", *seen)


@check(
    "HOST-019",
    layer=Layer.HOST,
    title="No limit on address space, data, file size or processor time is set",
    why="Batch systems set them for a shell; a server then fails to map a library, or is killed after so many seconds.",
    source=Source(
        "getrlimit(2): RLIMIT_AS, RLIMIT_DATA, RLIMIT_FSIZE, RLIMIT_CPU",
        "https://man7.org/linux/man-pages/man2/getrlimit.2.html",
        "2026-11-30",
    ),
)
def ulimits(host: Probe) -> Answer:
    """Soft limits that are unlimited on most systems; CUDA reserves far more addresses than memory."""
    text = host.read_text(LIMITS)
    names = ("Max address space", "Max data size", "Max file size", "Max cpu time")
    found = {name: proc.soft_limit(text, name) for name in names}
    seen = tuple(Evidence(name[4:], _shown(value), f"read {LIMITS}") for name, value in found.items())
    if None in found.values():
        return unknown("/proc/self/limits lacks one of the lines", *seen)
    bound = [name[4:] for name, value in found.items() if value != -1]
    lift = Fix(
        "Lift them in the shell that starts the server",
        ("ulimit -v unlimited -d unlimited -f unlimited -t unlimited",),
        Risk.RESTART,
    )
    space = found["Max address space"] or 0
    if 0 <= space < ADDRESS_NEED_MIB << 20:
        return fail(
            *seen,
            Evidence("needed by an import of torch (MiB)", ADDRESS_NEED_MIB, "checks/host_limits.py"),
            fix=lift,
            reason="libraries fail with 'failed to map segment from shared object'",
        )
    return warn(*seen, fix=lift, reason=f"{' and '.join(bound)} limited") if bound else ok(*seen)


@check(
    "HOST-020",
    layer=Layer.HOST,
    title="The kernel promises more memory than there is, as the libraries expect",
    why="With strict accounting a reservation that is never touched counts too, and fails while memory is free.",
    source=Source(
        "Linux: overcommit accounting", "https://docs.kernel.org/mm/overcommit-accounting.html", "2026-11-30"
    ),
)
def overcommit(host: Probe) -> Answer:
    """vm.overcommit_memory; 2 is strict, and then CommitLimit less Committed_AS is what may still be promised."""
    mode = whole(host.read_text(OVERCOMMIT) or "")
    seen = (Evidence("vm.overcommit_memory", mode, f"read {OVERCOMMIT}"),)
    strict = 2
    if mode is None or mode > strict:
        return unknown(f"{OVERCOMMIT} holds no mode", *seen)
    if mode != strict:
        return ok(*seen)
    meminfo = host.read_text(MEMINFO)
    limit, used = proc.meminfo_mib(meminfo, "CommitLimit"), proc.meminfo_mib(meminfo, "Committed_AS")
    if limit is None or used is None:
        return unknown("no CommitLimit or Committed_AS in /proc/meminfo", *seen)
    room = limit - used
    evidence = (*seen, Evidence("still to be promised (MiB)", room, f"read {MEMINFO}"))
    heuristic = Fix("Go back to the kernel's default", ("sudo sysctl vm.overcommit_memory=0",), Risk.NONE)
    if room < MEMORY_NEED_MIB:
        return fail(
            *evidence, Evidence("needed (MiB)", MEMORY_NEED_MIB, "checks/host_limits.py"), fix=heuristic
        )
    return warn(*evidence, fix=heuristic, reason="strict accounting: a fork of a large process counts twice")


CHECKS = (
    memory, shared_memory, open_files, cores, locked_memory, processes, ulimits, overcommit,
)  # fmt: skip
