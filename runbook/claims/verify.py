"""Every probe that can run here, and what became of each claim's verdict."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from runbook.claims.ledger import RELEASE, Claim
from runbook.claims.probes.base import Outcome, Probe, Reading, cannot
from runbook.claims.target import Environment

AT_ONCE = 2  # interpreters: each is busy on one core for some seconds and takes about a GiB
OURS = "runbook"
"""Where a probe is asked that needs no target: data of ours, recorded machines, the server of the workspace."""


@dataclass(frozen=True)
class Asked:
    """One probe in one place, and its answer; ``place`` is a target or ``runbook``."""

    claim: Claim
    place: str
    probe: Probe
    reading: Reading


def verify(
    claims: Sequence[Claim],
    ours: Environment,
    targets: Sequence[Environment],
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Asked, ...]:
    """Ask every probe: those about the runbook's own data once, the others in each target they are meant for.

    ``ours`` is this machine without a target. ``say`` hears what is being asked.
    """
    say(f"{OURS}: own data, recorded machines and the server of this workspace")
    asked = [
        Asked(one, OURS, probe, probe.judge(ours))
        for one in claims
        for probe in one.probes
        if not probe.needs_target
    ]
    meant = [list(_meant(claims, target)) for target in targets]
    for target, probes in zip(targets, meant, strict=True):
        say(f"{target.name}: vLLM {target.vllm or 'not there'}, {len(probes)} probes")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        # Read to its end, so that an error of a thread is one of ours.
        list(pool.map(_ask, targets, meant))
    for target, probes in zip(targets, meant, strict=True):
        asked += [Asked(one, target.name, probe, _reading(probe, target)) for one, probe in probes]
    return tuple(asked)


def _ask(target: Environment, probes: Sequence[tuple[Claim, Probe]]) -> None:
    """Start the target's interpreter, once for all of its probes."""
    target.ask(question for _, probe in probes for question in probe.questions() if target.vllm)


def _meant(claims: Iterable[Claim], target: Environment) -> Iterable[tuple[Claim, Probe]]:
    """The probes that are about such a target; one without vLLM is taken for the pinned release, to say that it cannot be asked."""
    version = target.vllm or RELEASE
    for one in claims:
        for probe in one.probes:
            if probe.needs_target and probe.is_for(version, target.device):
                yield one, probe


def _reading(probe: Probe, target: Environment) -> Reading:
    if not target.vllm:
        return cannot(type(probe).__name__, "vLLM is not installed there", "")
    return probe.judge(target)


def outcome(asked: Iterable[Asked]) -> Outcome:
    """Of several readings: drifted over stands over cannot-run; elsewhere where there is none."""
    have = {one.reading.outcome for one in asked}
    order = (Outcome.DRIFTED, Outcome.STANDS, Outcome.CANNOT_RUN)
    return next((one for one in order if one in have), Outcome.ELSEWHERE)


def exit_code(asked: Sequence[Asked]) -> int:
    """0 when all that ran stands, 1 when something drifted, 3 when nothing could run, here or in one of the targets."""
    by_place: dict[str, list[Asked]] = {}
    for one in asked:
        by_place.setdefault(one.place, []).append(one)
    found = {outcome(each) for each in by_place.values()}
    return 1 if Outcome.DRIFTED in found else 0 if found == {Outcome.STANDS} else 3
