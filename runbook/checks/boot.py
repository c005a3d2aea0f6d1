"""WARM: where the time of the start went, whether it compiled what lay compiled, and what was compiled afterwards."""

from runbook.checks import warm
from runbook.checks.readings import stack_of
from runbook.model import Answer, Cost, Evidence, Fix, Layer, Risk, Source, check, ok, skip, unknown, warn
from runbook.parse import boot_log, caches
from runbook.probe import Probe
from runbook.serving import boot

MOST_UNEXPLAINED = 0.1
MEASURED = Source("measured on an H200: starts by phase", "docs/measurements.md", "2026-11-30")
FROM_BOOT = f"read {warm.BOOT}"
LEDGER = Fix("See its phases beside earlier starts", ("runbook boot",), Risk.NONE)


def record(host: Probe) -> tuple[boot.Boot, int] | Answer:
    """The last start and how many of its kind came before it; an unknown when no record with phases is there."""
    facts = warm.boot(host)
    if facts is None:
        return unknown("no boot record: the server was not started by this runbook, or never became ready")
    found = boot.Boot.of(facts)
    if found is None or not isinstance(facts.get("earlier"), int):
        return unknown("the boot record has no phases: an older runbook wrote it")
    return found, int(facts["earlier"])


@check(
    "WARM-009",
    layer=Layer.WARM,
    title="The start's time is accounted for",
    why="A stretch that no line of the log explains is where a start hides a compile, a slow disk or a dead address.",
    source=MEASURED,
    cost=Cost.LIVE,
    needs_target=True,
    requires=("WARM-001",),
)
def accounted(host: Probe) -> Answer:
    """The share of the time to ready that no line explains, less what the clocks leave open."""
    found = record(host)
    if isinstance(found, Answer):
        return found
    start, _ = found
    if not start.phases or start.ready_s <= 0:
        return unknown("the boot record has no phases")
    longest = max(start.phases, key=lambda one: one.seconds)
    open_ = [one for one in start.phases if one.by == "nothing"]
    surely = max(0.0, boot.unexplained(start.phases) - sum(one.about_s for one in open_))
    seen = (
        Evidence("ready after (s)", start.ready_s, FROM_BOOT),
        Evidence("longest phase", f"{longest.name}, {longest.seconds:.1f} s", FROM_BOOT),
        Evidence("unexplained, at least (s)", round(surely, 1), FROM_BOOT),
    )
    if surely <= MOST_UNEXPLAINED * start.ready_s:
        return ok(*seen)
    most = max(open_, key=lambda one: one.seconds)
    return warn(*seen, fix=LEDGER, reason=f"{most.name}: {most.seconds:.1f} s")


@check(
    "WARM-010",
    layer=Layer.WARM,
    title="A start like one before compiled nothing again",
    why="Kernels that lie compiled on disk and are not found cost every start minutes, in silence.",
    source=MEASURED,
    cost=Cost.LIVE,
    needs_target=True,
    requires=("WARM-001",),
)
def from_cache(host: Probe) -> Answer:
    """Files the start wrote to the compile caches, when the same packages, flags and weights had been started before."""
    found = record(host)
    if isinstance(found, Answer):
        return found
    start, earlier = found
    made = caches.kernels(start.made)
    seen = (
        Evidence("earlier starts of its kind", earlier, FROM_BOOT),
        Evidence("kernels compiled", made, FROM_BOOT),
    )
    if not earlier:
        return skip("it is the first start with these packages, flags and weights", *seen)
    if not made:
        return ok(*seen)
    most = ", ".join(f"{number} {name}" for name, number in list(start.made.items())[:3])
    fix = Fix(
        "Keep the caches on a lasting disk, and fill them once", ("runbook prebuild --yes",), Risk.RESTART
    )
    return warn(*seen, fix=fix, reason=f"compiled again: {most}")


@check(
    "WARM-011",
    layer=Layer.WARM,
    title="Nothing was compiled after the server was ready",
    why="What is compiled while users wait makes the first request of each shape slow, and every figure taken then wrong.",
    source=Source(
        "measured on an H200: 11 kernels compiled after ready", "docs/measurements.md", "2026-11-30"
    ),
    cost=Cost.LIVE,
    needs_target=True,
    requires=("WARM-001",),
)
def after_ready(host: Probe) -> Answer:
    """Lines of the log after its first answered /health, and cache files newer than the boot record, written at that moment."""
    log = host.read_text(warm.LOG)
    ready = boot_log.ready_line(log or "")
    if log is None or ready is None:
        return unknown("the log does not show when the server was ready")
    folder = f"{{work}}/caches/{stack_of(host).name}/"
    ask = ["find", folder, "-type", "f", "-newer", warm.BOOT]
    ran = host.run(ask)
    inside = folder.removeprefix("{work}")
    made = caches.families(line.rpartition(inside)[2] for line in ran.out.splitlines() if inside in line)
    lines = boot_log.compile_lines(log, after=ready)
    seen = (
        Evidence("lines that tell of it", len(lines), f"read {warm.LOG}"),
        Evidence("kernels compiled", None if ran.missing else caches.kernels(made), f"run {' '.join(ask)}"),
    )
    if lines or caches.kernels(made):
        told = lines[0].partition(": ")[2][:80] if lines else ", ".join(list(made)[:3])
        fix = Fix("Let the warm-up pay for it before users come", ("runbook warm-up",), Risk.NONE)
        return warn(*seen, fix=fix, reason=f"the first request of a shape waited for it: {told}")
    return (
        unknown("there is no program 'find' to look at the caches with", *seen) if ran.missing else ok(*seen)
    )


CHECKS = (accounted, from_cache, after_ready)
