"""HOST: room and rights on every file system that an environment, its caches, weights and temporary files lie on."""

from dataclasses import dataclass

from runbook.checks.limits import MOUNTINFO, mounts
from runbook.checks.readings import stack_of
from runbook.model import Answer, Evidence, Fix, Layer, Risk, Source, check, fail, ok, unknown, warn
from runbook.parse import mounts as parse_mounts
from runbook.parse.mounts import Room
from runbook.probe import Probe
from runbook.probes import questions

WORKSPACE, WHEELS, WEIGHTS, TEMPORARY = "workspace", "wheels", "weights", "temporary files"
TMP = "/tmp"  # noqa: S108 - asked about, never written to
# Measured with du -m: 10,539 for the CUDA stack with bytecode, 8,360 and 6,352 for the CPU stacks; 74,081 files at most.
TARGET_MIB = {"cuda": 10_600, "cpu": 8_400}
TARGET_FILES = 75_000
# Where a target is there already: logs, compile caches.
LASTING_MIB = 1_000
# Qwen3.5-4B in bf16 (tensor bytes of its safetensors headers); the CPU stacks make a model of a few MB.
MODEL_MIB = {"cuda": 8_900, "cpu": 100}
TMP_NEED_MIB = 1_000
# What pip unpacks and a compile of flash-attn leaves lies there, where uv has its cache.
TMP_WISH_MIB = 10_000
# A socket's address holds 108 bytes with the final NUL (unix(7)); vLLM appends "/" and a UUID of 36 letters.
LONGEST_TMP = 70


@dataclass(frozen=True)
class Place:
    """What lies where: ``path`` as set, ``there`` the nearest folder above it that exists."""

    what: str
    path: str
    there: str


def _upwards(path: str) -> tuple[str, ...]:
    """The folders on the way down to an absolute path, or to one that begins with a placeholder; the path last."""
    if not path.startswith(("/", "{")):
        return ()
    parts = path.strip("/").split("/")
    down = ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
    return ("/", *(f"/{each}" for each in down if each)) if path.startswith("/") else tuple(down)


def _places(host: Probe) -> tuple[tuple[str, str], ...]:
    """Folders by the rules of uv, huggingface_hub and Python's tempfile; the workspace is the runbook's own."""
    caches = host.env("XDG_CACHE_HOME") or "{home}/.cache"
    hub = host.env("HF_HUB_CACHE")
    if not hub:
        named = host.env("HF_HOME")
        hub = f"{named or f'{caches}/huggingface'}/hub"
    return (
        (WORKSPACE, "{disk}"),
        (WHEELS, host.env("UV_CACHE_DIR") or f"{caches}/uv"),
        (WEIGHTS, hub),
        (TEMPORARY, host.env("TMPDIR") or TMP),
    )


def rooms(host: Probe) -> tuple[tuple[tuple[Place, Room], ...], str]:
    """Each place with what is free there, and the one question that told; empty when df's rows cannot be told apart.

    df is asked about every folder on the way to each place, whether it exists or not, so that the question does not
    change with what is there; it leaves out those that do not.
    """
    ways = {what: (path, _upwards(path)) for what, path in _places(host)}
    folders = tuple(dict.fromkeys(folder for _, way in ways.values() for folder in way))
    argv = [*parse_mounts.DF, *folders]
    exist = [folder for folder in folders if host.glob(folder)]
    free = parse_mounts.rooms(host.run(argv).out)
    if not exist or len(free) != len(exist):
        return (), questions.run(argv)
    by_folder = dict(zip(exist, free, strict=True))
    found = []
    for what, (path, way) in ways.items():
        there = [folder for folder in way if folder in by_folder]
        if there:
            found.append((Place(what, path, there[-1]), by_folder[there[-1]]))
    return tuple(found), questions.run(argv)


def _needs(what: str, device: str, *, built: bool, linked: bool) -> tuple[int, int]:
    """(needed, wished for) in MiB. Where uv's cache can be linked from, a wheel takes its room once, in the workspace."""
    target = TARGET_MIB[device]
    copies = 0 if linked else target
    return {
        WORKSPACE: (LASTING_MIB if built else target, MODEL_MIB[device] + (LASTING_MIB if built else target)),
        WHEELS: (0 if built else copies, copies),
        WEIGHTS: (0, MODEL_MIB[device]),
        TEMPORARY: (TMP_NEED_MIB, TMP_WISH_MIB),
    }[what]


@check(
    "HOST-009",
    layer=Layer.HOST,
    title="Every file system has room for what will lie on it: wheels, weights, the workspace, temporary files",
    why="The disk that fills is rarely the one that was looked at: uv's cache, the hub's and TMPDIR lie where variables say.",
    source=Source(
        "uv: caching, the cache directory", "https://docs.astral.sh/uv/concepts/cache/", "2026-11-30"
    ),
)
def room(host: Probe) -> Answer:
    """One ``df`` for all places; what lies on one file system is added up, and its free space counted once."""
    found, ask = rooms(host)
    if {place.what for place, _ in found} != {WORKSPACE, WHEELS, WEIGHTS, TEMPORARY}:
        return unknown(
            "df gave no row for one of the folders, or a variable names none", Evidence("asked", ask, ask)
        )
    device = stack_of(host).device
    mount = {place.what: free.mount for place, free in found}
    linked = mount[WHEELS] == mount[WORKSPACE]
    seen, full, tight = [], [], []
    for where in dict.fromkeys(mount.values()):
        here = [(place.what, free) for place, free in found if free.mount == where]
        free = here[0][1]
        needs = [_needs(what, device, built=host.has_target, linked=linked) for what, _ in here]
        need, wish = sum(each[0] for each in needs), sum(each[1] for each in needs)
        names = ", ".join(what for what, _ in here)
        seen.append(Evidence(f"free on {where} (MiB)", free.free_mib, ask))
        seen.append(Evidence(f"for {names} (MiB)", f"{need} to {wish}", "checks/host_disk.py"))
        short = free.free_inodes is not None and free.free_inodes < TARGET_FILES and WORKSPACE in names
        if short:
            seen.append(Evidence(f"free inodes on {where}", free.free_inodes, ask))
        if free.free_mib < need or (short and not host.has_target):
            full.append(names)
        elif free.free_mib < wish or short:
            tight.append(names)
    move = Fix(
        "Point what needs the room to a larger disk",
        (
            "export RUNBOOK_HOME=/larger/runbook UV_CACHE_DIR=/larger/uv",
            "export HF_HOME=/larger/huggingface TMPDIR=/larger/tmp",
        ),
        Risk.NONE,
    )
    if full:
        return fail(*seen, fix=move, reason=f"too little for {'; '.join(full)}")
    if tight:
        return warn(
            *seen, fix=move, reason=f"little for {'; '.join(tight)}: another build or model will not fit"
        )
    if not linked:
        beside = Fix("Put uv's cache beside the workspace", ("export UV_CACHE_DIR=/same/disk/uv",), Risk.NONE)
        return warn(
            *seen,
            fix=beside,
            reason="uv's cache lies on another disk: every wheel is copied, and stored twice",
        )
    return ok(*seen)


@check(
    "HOST-010",
    layer=Layer.HOST,
    title="Libraries may be loaded from the workspace, and the folder for temporary files can be used",
    why="On a file system mounted noexec no library can be mapped, and a TMPDIR that is too long stops vLLM's sockets.",
    source=Source(
        "mount(8): noexec, and mmap(2): PROT_EXEC on such a file system",
        "https://man7.org/linux/man-pages/man2/mmap.2.html",
        "2026-11-30",
    ),
)
def usable(host: Probe) -> Answer:
    """Mount options of both places, and the length of the folder vLLM makes its sockets in."""
    found, ask = rooms(host)
    table = mounts(host)
    by_what = {place.what: (place, parse_mounts.at(table, free.mount)) for place, free in found}
    work, tmp = by_what.get(WORKSPACE), by_what.get(TEMPORARY)
    if work is None or tmp is None or work[1] is None or tmp[1] is None:
        return unknown("one of the folders is on no mount that can be told", Evidence("asked", ask, ask))
    there = tmp[0].there == (tmp[0].path.rstrip("/") or "/")
    # Python's tempfile, by which vLLM goes, passes over a TMPDIR that is not there.
    sockets = host.env("VLLM_RPC_BASE_PATH") or (tmp[0].path if there else TMP)
    closed = [what for what, one in ((WORKSPACE, work[1]), (TEMPORARY, tmp[1])) if "noexec" in one.options]
    seen = (
        Evidence("workspace on", work[1].place, ask),
        Evidence("temporary files", tmp[0].path, "env TMPDIR"),
        Evidence("mounted noexec", " and ".join(closed) or "neither", f"read {MOUNTINFO}"),
        Evidence("vLLM's sockets in", f"{sockets} ({len(sockets)} letters)", "env VLLM_RPC_BASE_PATH"),
    )
    if WORKSPACE in closed:
        move = Fix("Put the workspace elsewhere", ("export RUNBOOK_HOME=/other/disk/runbook",), Risk.NONE)
        return fail(*seen, fix=move, reason="no library of a target can be loaded from there")
    if len(sockets) > LONGEST_TMP:
        return fail(
            *seen,
            fix=Fix("Name a shorter folder for the sockets", ("export VLLM_RPC_BASE_PATH=/tmp",), Risk.NONE),
            reason=f"a socket's path may have 107 letters, of which vLLM adds 37: {LONGEST_TMP} are left",
        )
    if not there:
        return warn(
            *seen, fix=Fix("Make the folder that TMPDIR names", ('mkdir -p "$TMPDIR"',), Risk.NONE),
            reason="it is not there: Python takes /tmp instead, and other programs fail",
        )  # fmt: skip
    if closed:
        other = Fix(
            "Name a folder that is not", ('export TMPDIR="$HOME/tmp"; mkdir -p "$TMPDIR"',), Risk.NONE
        )
        return warn(
            *seen,
            fix=other,
            reason="what is compiled into it cannot be loaded: caches left at their defaults",
        )
    return ok(*seen)


CHECKS = (room, usable)
