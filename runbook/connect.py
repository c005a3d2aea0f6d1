"""From a machine's name to a probe of it; with page and cli the only reader of $RUNBOOK_MACHINE."""

import os
from pathlib import Path

from runbook import pins, workspace
from runbook.errors import BadParameter
from runbook.probe import Probe
from runbook.probes import replay
from runbook.probes.cached import CachedProbe
from runbook.probes.live import LiveProbe
from runbook.probes.record import RecordProbe

RECORD_VARIABLE = "RUNBOOK_RECORD"


def machine_in_force(machine: str) -> str:
    """``auto`` resolved: $RUNBOOK_MACHINE, else live."""
    return (os.environ.get("RUNBOOK_MACHINE") or "live") if machine == "auto" else machine


def probe(
    machine: str, stack: str, target: str, work: workspace.Workspace, model: Path | None = None
) -> Probe:
    """A probe of a machine and of a target environment on it. ``stack`` may be ``auto``.

    With $RUNBOOK_RECORD a live machine's answers are written into that folder as well.

    Raises:
        BadParameter: there is no such machine, stack or interpreter, or the stack is a drill.
    """
    machine = machine_in_force(machine)
    if machine.startswith("recorded:"):
        if target:
            raise BadParameter(
                f"target {target!r} beside {machine}",
                "no target: a recording has its own",
                "leave one of the two out",
            )
        recording = replay.load(machine.removeprefix("recorded:"))
        return replay.ReplayProbe(recording, _stack(replay.ReplayProbe(recording), stack))
    if machine != "live":
        raise BadParameter(
            f"no machine {machine!r}",
            "live, or recorded:NAME",
            f"recorded machines: {', '.join(replay.names())}",
        )
    name = _stack(LiveProbe(work), stack)
    python = interpreter(target) if target else work.target_python(name)
    live = LiveProbe(work, name, python, model or work.models / pins.stack(name).model.replace("/", "--"))
    folder = os.environ.get(RECORD_VARIABLE)
    return RecordProbe(live, Path(folder)) if folder else live


def after_a_walk(host: Probe) -> CachedProbe:
    """The host for what is asked when the pages are done: a recording keeps their answers about the server's state.

    That state is the last stack's by then.
    """
    if isinstance(host, RecordProbe):
        host.settled = "{work}/jobs"
    return cached(host)


def _stack(host: Probe, name: str) -> str:
    return pins.stacks_for(host)[0] if name == "auto" else pins.buildable(name).name


def interpreter(target: str) -> Path:
    """The interpreter a user named, absolute but not resolved: its path inside a venv is what makes it that venv's.

    Raises:
        BadParameter: it is not a program.
    """
    python = Path(target).expanduser().absolute()
    if not python.is_file() or not os.access(python, os.X_OK):
        raise BadParameter(
            f"target {target!r} is not a program",
            "the path of a Python interpreter, such as /path/venv/bin/python",
            "check the path",
        )
    return python


def banner(host: Probe) -> str:
    """What a replay says first; "" for a live machine."""
    return host.recording.banner() if isinstance(host, replay.ReplayProbe) else ""


def places(host: Probe) -> dict[str, str]:
    """What the placeholders stand for on a live machine; a recording holds nobody's folders."""
    real = host.host if isinstance(host, CachedProbe) else host
    return real.places if isinstance(real, LiveProbe) else {}


def cached(host: Probe) -> CachedProbe:
    """The same host, each question asked once."""
    return CachedProbe(host)
