"""What the kernel log says of NVIDIA's cards: Xids, errors of NVSwitches, and cards the driver could not take.

The lines are the driver's own (``NVRM: ...``); the log's other lines are not looked at. Times are seconds since boot.
"""

import re
from dataclasses import dataclass

from runbook.parse.numbers import decimal, whole

DMESG = ["dmesg"]
# With the same time stamps as dmesg; -q leaves out its own remarks.
JOURNAL = ["journalctl", "-k", "-b", "-q", "--no-pager", "-o", "short-monotonic", "-n", "5000"]

_TIME = re.compile(r"^\s*\[\s*([0-9]{1,12}\.[0-9]{1,9})\]")
_BUS = r"(?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?)"
_XID = re.compile(rf"NVRM: (?:GPU at \S+: )?Xid \({_BUS}\): ([0-9]{{1,4}})\b")
_SXID = re.compile(rf"SXid \({_BUS}\): ([0-9]{{1,6}}), (Non-fatal|Fatal)")
_GPU = re.compile(rf"NVRM: (?:The NVIDIA )?GPU (?:at )?{_BUS}")
# A line that begins a report of several lines names the card; those that follow name the cause.
_CAUSES = (
    ("open", re.compile(r"requires use of the NVIDIA open kernel modules", re.IGNORECASE)),
    ("proprietary", re.compile(r"not supported by open\b|does not include the required GPU\b", re.IGNORECASE)),
    ("legacy", re.compile(r"supported through the NVIDIA [0-9.x]+ Legacy", re.IGNORECASE)),
    ("unsupported", re.compile(r"installed in this system is not supported by the", re.IGNORECASE)),
    ("firmware", re.compile(r"GFW_BOOT|Cannot initialize GSP firmware|failed to load firmware|GSP.*failed to boot", re.IGNORECASE)),
    ("bar", re.compile(r"PCI I/O region assigned to your NVIDIA device is invalid|BAR[0-9]? is 0M", re.IGNORECASE)),
    ("gone", re.compile(r"fallen off the bus and is not responding", re.IGNORECASE)),
    ("init", re.compile(r"RmInitAdapter failed|rm_init_adapter failed", re.IGNORECASE)),
)  # fmt: skip


@dataclass(frozen=True)
class Event:
    """An Xid of a card, or with ``switch`` an SXid of an NVSwitch; ``at`` is None in a log without time stamps."""

    code: int
    bus: str
    at: float | None
    switch: bool = False
    fatal: bool = False


@dataclass(frozen=True)
class Refusal:
    """A card the driver could not take or lost; ``bus`` is "" when the line names none."""

    cause: str
    bus: str
    line: str


def seconds(line: str) -> float | None:
    """The time stamp a line begins with."""
    found = _TIME.match(line)
    return decimal(found[1]) if found else None


def begins(text: str) -> float | None:
    """The first time stamp: far above zero when older lines were overwritten."""
    return next((at for line in text.splitlines() if (at := seconds(line)) is not None), None)


def is_log(text: str) -> bool:
    """Whether this is a kernel log at all: it has a time stamp, or a line of the driver's."""
    return "NVRM" in text or begins(text) is not None


def short(bus: str) -> str:
    """``0000:3b:00`` from any of the ways in which the driver writes an address."""
    return re.sub(r"^[0-9a-f]{4}(?=[0-9a-f]{4}:)", "", bus.lower()).partition(".")[0]


def events(text: str) -> tuple[Event, ...]:
    """Every Xid and SXid, in the order of the log."""
    found = []
    for line in text.splitlines():
        if one := _XID.search(line):
            found.append(Event(whole(one[2]) or 0, short(one[1]), seconds(line)))
        elif one := _SXID.search(line):
            found.append(
                Event(whole(one[2]) or 0, short(one[1]), seconds(line), switch=True, fatal=one[3] == "Fatal")
            )
    return tuple(found)


def refusals(text: str) -> tuple[Refusal, ...]:
    """Cards the driver could not take, one for each cause and card; a cause without a card keeps the last card named."""
    found: dict[tuple[str, str], Refusal] = {}
    bus = ""
    for line in text.splitlines():
        if "NVRM" not in line:
            continue
        if one := _GPU.search(line):
            bus = short(one[1])
        cause = next((name for name, words in _CAUSES if words.search(line)), "")
        if cause and not _XID.search(line):
            said = re.sub(r"^.*?NVRM:\s*", "", line).strip()
            found.setdefault((cause, bus), Refusal(cause, bus, said[:160]))
    return tuple(found.values())


def about_nvidia(text: str) -> str:
    """The lines a check may look at, and the time at which the log begins: its other lines are nobody's business."""
    start = begins(text)
    first = [] if start is None else [f"[{start:12.6f}] (other lines are left out)"]
    kept = [
        line for line in text.splitlines() if re.search(r"NVRM|nvidia|nvswitch|SXid", line, re.IGNORECASE)
    ]
    return "".join(f"{line}\n" for line in [*first, *kept])
