"""DRIVER: the state of the cards: errors, heat, links, modes, and how several of them work together."""

from runbook import tables
from runbook.checks import gpu_readings
from runbook.checks.gpu_readings import NODES, XML_QUESTION, label, per_card
from runbook.model import Answer, Evidence, Fix, Layer, Risk, Source, check, fail, ok, skip, unknown, warn
from runbook.parse import kernel_log
from runbook.parse.kernel_log import Event
from runbook.parse.nvidia_xml import Card
from runbook.probe import Probe

SMI = "https://docs.nvidia.com/deploy/nvidia-smi/index.html"
READ = "2026-11-30"
# NVIDIA's buckets (Xid catalog) that ask nothing of the machine, and those that ask for the program alone.
NOTHING = ("IGNORE", "WORKFLOW_XID_45", "XID_154")
PROGRAM = ("RESTART_APP", "CHECK_APP", None)
SHOWN = 6
NO_ACTION = "None"
# Limits that are set by trouble. A power cap under load, an idle card and chosen clocks are ordinary.
HOT = {
    "hw_thermal_slowdown": "the card is too hot and halves its clocks or worse",
    "sw_thermal_slowdown": "the driver lowers the clocks to keep the card within its temperature",
    "hw_power_brake_slowdown": "the machine's power supply asked the card to slow down",
    "hw_slowdown": "heat or power halves the clocks or worse",
}
# Degrees Celsius below the limit at which a warm card is named before it slows itself down.
NEAR = 5
BROKEN = {
    "unrepairable_memory": "memory that cannot be repaired",
    "sram_threshold_exceeded": "more SRAM errors than NVIDIA's threshold",
}


def _each(host: Probe) -> tuple[Card, ...]:
    report = gpu_readings.cards(host)
    return report.cards if report else ()


def _said(name: str, value: str | float | None) -> Evidence:
    return Evidence(name, value, XML_QUESTION)


@check(
    "DRIVER-010",
    layer=Layer.DRIVER,
    title="No GPU error (Xid) waits for action",
    why="An Xid is the driver's own record of a fault; the number says whether to restart the program, reset the card or replace it.",
    source=Source(
        "NVIDIA: Xid catalog", "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html", READ
    ),
    requires=("DRIVER-001",),
)
def xids(host: Probe) -> Answer:
    """The kernel log by NVIDIA's buckets; where it may not be read, the recovery action that the driver names (from R565)."""
    cards = _each(host)
    actions = {kernel_log.short(card.bus): card.recovery for card in cards}
    log, origin = gpu_readings.kernel_log(host)
    if log is None:
        return _without_log(cards, origin)
    events = kernel_log.events(log)
    begin = Evidence("log begins at (s)", kernel_log.begins(log), origin)
    if not events:
        return ok(Evidence("Xid lines", 0, origin), begin)
    groups: dict[tuple[int, str, bool], list[Event]] = {}
    for one in events:
        groups.setdefault((one.code, one.bus, one.switch), []).append(one)
    # In a container the log speaks of all the machine's cards; when none of ours is missing, others are not our concern.
    all_here = len(cards) >= len(host.glob(NODES))
    judged = [(_weight(group[-1], actions, all_here=all_here), group) for group in groups.values()]
    judged.sort(key=lambda row: -row[0])
    seen = (*(_line(group, origin) for _, group in judged[:SHOWN]), begin)
    worst, group = judged[0]
    action = _action(group[-1])
    if worst == 0:
        return ok(*seen)
    if worst == 1:
        again = Fix(action, ("sudo dmesg | grep -E 'NVRM|SXid'",), Risk.RESTART)
        return warn(*seen, fix=again, reason=_why(group[-1]))
    return fail(*seen, fix=_reset(action, f"{group[-1].bus}.0"), reason=_why(group[-1]))


def _without_log(cards: tuple[Card, ...], origin: str) -> Answer:
    seen = (
        Evidence("kernel log", f"not readable: {origin}", "run dmesg"),
        *per_card("asks for", [_asked(card) for card in cards]),
    )
    waiting = [card for card in cards if card.recovery not in (None, NO_ACTION)]
    if waiting:
        return fail(
            *seen,
            fix=_reset(str(waiting[0].recovery), waiting[0].bus),
            reason=f"the driver asks for: {waiting[0].recovery}",
        )
    if cards and all(card.recovery == NO_ACTION for card in cards):
        return ok(*seen)
    return unknown(
        "the kernel log may not be read, and this driver names no recovery action (it does from branch 565)",
        *seen,
    )


def _asked(card: Card) -> str | None:
    return "no action" if card.recovery == NO_ACTION else card.recovery


def _weight(one: Event, actions: dict[str, str | None], *, all_here: bool) -> int:
    """0: nothing to do. 1: for the program, or the driver asks for nothing any more. 2: the card or the machine needs something."""
    if one.switch:
        return 2 if one.fatal else 1
    bucket = (tables.xid(one.code) or {}).get("bucket")
    if bucket in NOTHING:
        return 0
    is_elsewhere = bool(actions) and all_here and one.bus not in actions
    return 1 if bucket in PROGRAM or is_elsewhere or actions.get(one.bus) == NO_ACTION else 2


def _line(group: list[Event], origin: str) -> Evidence:
    last = group[-1]
    kind = "SXid" if last.switch else "Xid"
    name = "" if last.switch else (tables.xid(last.code) or {}).get("name") or "no name known"
    when = "" if last.at is None else f", last at {last.at:.0f} s"
    return Evidence(
        f"{kind} {last.code} of {last.bus}", f"{len(group)} x{when}{': ' if name else ''}{name}", origin
    )


def _action(one: Event) -> str:
    if one.switch:
        return "Restart the fabric manager; when it comes back, have the NVSwitch looked at"
    return (tables.xid(one.code) or {}).get("action") or "Look the number up in NVIDIA's catalog"


def _why(one: Event) -> str:
    if one.switch:
        return f"SXid {one.code}: an NVSwitch reported {'a fatal' if one.fatal else 'an'} error"
    row = tables.xid(one.code) or {}
    return f"Xid {one.code}: {row.get('for_serving') or row.get('meaning') or row.get('name') or 'not in the table'}"


def _reset(text: str, card: str | None) -> Fix:
    """The command that the action names; ``card`` is the bus address of the one in question."""
    look = ("sudo dmesg | grep NVRM", "nvidia-smi -q | grep -i 'recovery action'")
    said = text.lower()
    if "fabric manager" in said:
        return Fix(text, (*look, "sudo systemctl restart nvidia-fabricmanager"), Risk.REBOOT)
    if "reset" in said:
        return Fix(text, (*look, f"sudo nvidia-smi --gpu-reset -i {card or 0}"), Risk.REBOOT)
    return Fix(text, (*look, "sudo reboot") if "restart" in said or "reboot" in said else look, Risk.REBOOT)


@check(
    "DRIVER-011",
    layer=Layer.DRIVER,
    title="No card waits for a reset or a repair of its memory",
    why="A card with a failed or exhausted repair meets the same bad cell again, under load and in the middle of an answer.",
    source=Source(
        "NVIDIA: error recovery and response flags",
        "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/error-recovery-and-response-flags.html",
        READ,
    ),
    requires=("DRIVER-002",),
)
def repairs(host: Probe) -> Answer:
    """Recovery action, remapped rows, retired pages, ECC counts of the card's life."""
    cards = _each(host)
    if not cards:
        return gpu_readings.not_read(host)
    columns: tuple[tuple[str, list[str | int | None]], ...] = (
        ("asks for", [_asked(card) for card in cards]),
        ("rows remapped", [card.remapped for card in cards]),
        ("pages retired", [card.retired for card in cards]),
        ("uncorrectable, ever", [card.ecc_aggregate for card in cards]),
    )
    seen = [
        one
        for what, values in columns
        if any(value is not None for value in values)
        for one in per_card(what, values)
    ]
    bad = [words for index, card in enumerate(cards) for words in _bad(card, label(index))]
    waiting = [words for index, card in enumerate(cards) for words in _waiting(card, label(index))]
    commands = ("nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT", "sudo nvidia-smi --gpu-reset -i 0")
    if bad:
        return fail(*seen, fix=Fix("Drain the machine, reset the card, and have it replaced if it comes back", commands, Risk.REBOOT), reason="; ".join(bad[:3]))  # fmt: skip
    if waiting:
        return warn(*seen, fix=Fix("Reset it when nothing runs on it: until then it works", commands, Risk.REBOOT), reason="; ".join(waiting[:3]))  # fmt: skip
    if not all(_answers(card) for card in cards):
        if any(_answers(card) for card in cards):
            return unknown("a card says neither what it asks for nor what it counted", *seen)
        return skip(
            "these cards have no ECC, and this driver names no recovery action (it does from branch 565)",
            _said("cards", len(cards)),
        )
    return ok(*seen)


def _bad(card: Card, name: str) -> list[str]:
    """What must be dealt with before the card is used."""
    return [
        *([f"{name} answers '{card.sick}'"] if card.sick else []),
        *([f"{name} asks for: {card.recovery}"] if card.recovery not in (None, NO_ACTION) else []),
        *([f"{name} has no spare row left for a bad one"] if card.remap_failed else []),
        *(f"{name} has {BROKEN[one]}" for one in card.repairs if one in BROKEN),
    ]


def _waiting(card: Card, name: str) -> list[str]:
    """What the next reset repairs; NVIDIA: until then unaffected programs run on and new ones may start."""
    is_pending = card.remap_pending or card.retirement_pending
    return [
        *(f"{name}: {one.replace('_', ' ')}" for one in card.repairs if one not in BROKEN),
        *([f"{name} replaces a bad row at its next reset"] if is_pending else []),
    ]


def _answers(card: Card) -> bool:
    return any(
        value is not None for value in (card.recovery, card.remap_failed, card.retired, card.ecc_aggregate)
    )


@check(
    "DRIVER-012",
    layer=Layer.DRIVER,
    title="No card is slowed by heat or by its power supply",
    why="A slowed card answers correctly at half the speed; under tensor parallelism it sets the pace of all the others.",
    source=Source(
        "NVIDIA NVML: reasons that hold clocks back",
        "https://docs.nvidia.com/deploy/nvml-api/api/group__nvmlClocksEventReasons.html",
        READ,
    ),
    requires=("DRIVER-002",),
)
def cool(host: Probe) -> Answer:
    """The clock limits that are active now, and the distance to the temperature at which the card slows itself down."""
    cards = _each(host)
    if not cards:
        return gpu_readings.not_read(host)
    seen = (
        *per_card("degrees", [card.temperature for card in cards]),
        *per_card("degrees to its limit", [card.margin for card in cards]),
        *per_card(
            "held back by",
            [None if card.slowed is None else ", ".join(card.slowed) or "nothing" for card in cards],
        ),
    )
    hot: list[str] = []
    for index, card in enumerate(cards):
        name = label(index)
        active = [one for one in HOT if one in (card.slowed or ())]
        hot += [f"{name}: {HOT[one]}" for one in active[:1]]
        if not active and card.margin is not None and card.margin <= NEAR:
            hot.append(f"{name} is {card.margin} degrees below the limit at which it slows itself down")
    if hot:
        cooling = Fix("Look at fans, air flow, filters and power leads; watch it under load", ("nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER", "nvidia-smi dmon -s pc"))  # fmt: skip
        return warn(*seen, fix=cooling, reason="; ".join(hot[:3]))
    if any(card.slowed is None for card in cards):
        return unknown("a card does not say what holds its clocks back", *seen)
    return ok(*seen)


@check(
    "DRIVER-013",
    layer=Layer.DRIVER,
    title="Each card has all its PCIe lanes",
    why="On fewer lanes weights load slower, and cards without NVLink pass each layer's results through a narrower door.",
    source=Source("NVIDIA: nvidia-smi, link width", SMI, READ),
    requires=("DRIVER-002",),
)
def lanes(host: Probe) -> Answer:
    """Current width against the widest that card and slot allow. The generation is not judged: it drops when a card idles."""
    cards = _each(host)
    if not cards:
        return gpu_readings.not_read(host)
    seen = per_card(
        "lanes", [f"{card.width} of {card.width_max}" if _has_width(card) else None for card in cards]
    )
    if not any(_has_width(card) for card in cards):
        return skip("no card names its link, as in some virtual machines", *seen)
    narrow = [
        label(index)
        for index, card in enumerate(cards)
        if _has_width(card) and (card.width or 0) < (card.width_max or 0)
    ]
    if narrow:
        seat = Fix(
            "Check the slot's wiring, riser and seat; some slots and cloud machines never give more",
            ("sudo lspci -vv -d 10de: | grep -E 'LnkCap|LnkSta'",),
        )
        return warn(*seen, fix=seat, reason=f"fewer lanes than it could have: {', '.join(narrow[:4])}")
    if not all(_has_width(card) for card in cards):
        return unknown("a card does not name its link", *seen)
    return ok(*seen)


def _has_width(card: Card) -> bool:
    return card.width is not None and card.width_max is not None


@check(
    "DRIVER-014",
    layer=Layer.DRIVER,
    title="The driver keeps its state of each card while nobody uses it",
    why="Otherwise the first program after a pause waits for the card to start again, seconds for each card, and settings such as a power limit are forgotten.",
    source=Source(
        "NVIDIA: driver persistence",
        "https://docs.nvidia.com/deploy/driver-persistence/persistence-daemon.html",
        READ,
    ),
    requires=("DRIVER-002",),
)
def persistent(host: Probe) -> Answer:
    """Persistence mode, which the daemon sets too."""
    cards = _each(host)
    if not cards:
        return gpu_readings.not_read(host)
    seen = per_card("persistence", [card.persistence for card in cards])
    if all(card.persistence is None for card in cards):
        return skip("persistence is a matter of Linux' own driver, and no card names it", *seen)
    if any(card.persistence is False for card in cards):
        daemon = Fix("Start the persistence daemon (on the host, for containers)", ("sudo systemctl enable --now nvidia-persistenced", "sudo nvidia-smi -pm 1"))  # fmt: skip
        return warn(*seen, fix=daemon, reason="each first start pays for bringing the card up")
    if any(card.persistence is None for card in cards):
        return unknown("a card does not name its persistence mode", *seen)
    return ok(*seen)


@check(
    "DRIVER-015",
    layer=Layer.DRIVER,
    title="No card's power limit is below its default",
    why="Prefill is bound by power: a card capped at half its watts needs longer for the first token, and no log says so.",
    source=Source("NVIDIA: nvidia-smi, power limits", SMI, READ),
    requires=("DRIVER-002",),
)
def full_power(host: Probe) -> Answer:
    """The limit in force against the card's default."""
    cards = _each(host)
    if not cards:
        return gpu_readings.not_read(host)
    seen = per_card(
        "watts",
        [
            f"{card.power_limit:g} of {card.power_default:g}"
            if card.power_limit and card.power_default
            else None
            for card in cards
        ],
    )
    told = [(index, card) for index, card in enumerate(cards) if card.power_limit and card.power_default]
    if not told:
        return skip("no card names a power limit", *seen)
    capped = [(index, card) for index, card in told if (card.power_limit or 0) < (card.power_default or 0)]
    if capped:
        index, card = capped[0]
        lift = Fix(
            "Lift it if nobody meant it, or take it as this machine's measure",
            (f"sudo nvidia-smi -i {index} -pl {card.power_default:g}",),
        )
        return warn(*seen, fix=lift, reason=f"{len(capped)} of {len(cards)} cards are capped")
    if len(told) < len(cards):
        return unknown("a card names no power limit", *seen)
    return ok(*seen)


@check(
    "DRIVER-016",
    layer=Layer.DRIVER,
    title="Every card takes programs, and more than one",
    why="vLLM's engine, its test of peer access and a trainer beside it are processes of their own: in an exclusive mode the second of them gets 'devices are busy or unavailable'.",
    source=Source("NVIDIA: nvidia-smi, compute mode", SMI, READ),
    requires=("DRIVER-002",),
)
def open_to_all(host: Probe) -> Answer:
    """Compute mode: Default, Exclusive_Process (and the retired Exclusive_Thread), Prohibited."""
    cards = _each(host)
    if not cards:
        return gpu_readings.not_read(host)
    seen = per_card("compute mode", [card.compute_mode for card in cards])
    modes = {card.compute_mode for card in cards}
    reset = Fix("Set it back", ("sudo nvidia-smi -c DEFAULT",))
    if "Prohibited" in modes:
        return fail(*seen, fix=reset, reason="no CUDA program may use the card")
    if modes & {"Exclusive_Process", "Exclusive_Thread"}:
        return warn(
            *seen, fix=reset, reason="one process a card: a single engine works, anything beside it does not"
        )
    if modes == {"Default"}:
        return ok(*seen)
    return unknown("a card names no compute mode that is known", *seen)


@check(
    "DRIVER-017",
    layer=Layer.DRIVER,
    title="Cards are whole, or their MIG instances are there to be used",
    why="In MIG mode a card without instances shows no device at all, and with several a process gets one: its memory is what vLLM may have.",
    source=Source(
        "NVIDIA MIG guide: device names and enumeration",
        "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/mig-device-names.html",
        READ,
    ),
    requires=("DRIVER-002",),
)
def instances(host: Probe) -> Answer:
    """MIG mode now and after the next reset, the instances with their memory, and their profiles from ``nvidia-smi -L``."""
    cards = _each(host)
    if not cards:
        return gpu_readings.not_read(host)
    seen = list(per_card("MIG", [card.mig or "not possible" for card in cards]))
    empty = [index for index, card in enumerate(cards) if card.mig == "Enabled" and not card.instances]
    if empty:
        make = Fix(
            "Make instances, or switch MIG off (nothing may run on the card)",
            (f"sudo nvidia-smi mig -i {empty[0]} -lgip", f"sudo nvidia-smi -i {empty[0]} -mig 0"),
            Risk.RESTART,
        )
        return fail(
            *seen, fix=make, reason="MIG is on and nothing is cut out: CUDA finds no device on this card"
        )
    changing = [card for card in cards if card.mig and card.mig_pending and card.mig != card.mig_pending]
    if changing:
        reset = Fix(
            "Reset the card, or take the change back", ("sudo nvidia-smi --gpu-reset -i 0",), Risk.RESTART
        )
        return warn(
            *seen, fix=reset, reason=f"MIG becomes {changing[0].mig_pending} at the next reset of the card"
        )
    every = [one for card in cards for one in card.instances]
    if not every:
        return ok(*seen)
    profiles = gpu_readings.mig_profiles(host)
    for place, one in enumerate(every[:8]):
        profile = profiles[place] if place < len(profiles) else "profile not named"
        seen.append(
            _said(
                f"instance {place}",
                f"{profile}, {one.total_mib} MiB, {one.used_mib} in use, {one.sm_count} SMs",
            )
        )
    if len(every) == 1:
        return ok(*seen)
    choose = Fix(
        "Give each server one instance, by container; sizes are planned with the instance's memory",
        ("nvidia-smi -L", "docker run -e NVIDIA_VISIBLE_DEVICES=MIG-... ..."),
    )
    return warn(
        *seen,
        fix=choose,
        reason=f"{len(every)} instances, and a process gets one of them, the first unless told otherwise",
    )


@check(
    "DRIVER-018",
    layer=Layer.DRIVER,
    title="The NVLink fabric is ready",
    why="On machines with NVSwitches CUDA starts on no card, not even on one alone, before the fabric manager has finished: error 802, 'system not yet initialized'.",
    source=Source(
        "NVIDIA NVML: state of the fabric",
        "https://docs.nvidia.com/deploy/nvml-api/api/structnvmlGpuFabricInfo__t.html",
        READ,
    ),
    requires=("DRIVER-002",),
)
def fabric(host: Probe) -> Answer:
    """State and status that each card reports: they can be read in a container, where no service can be seen."""
    cards = _each(host)
    if not cards:
        return gpu_readings.not_read(host)
    told = [card for card in cards if card.fabric_state]
    seen = per_card(
        "fabric",
        [
            " ".join(word for word in (card.fabric_state, card.fabric_status, card.fabric_health) if word)
            or None
            for card in cards
        ],
    )
    start = Fix(
        "Start the fabric manager of the driver's very version on the host; a virtual machine waits for its partition",
        ("sudo systemctl enable --now nvidia-fabricmanager", "sudo systemctl status nvidia-fabricmanager", "nvidia-smi -q | grep -A 2 Fabric"),
        Risk.RESTART,
    )  # fmt: skip
    if not told:
        return _switches(host, start)
    if len(told) < len(cards):
        return unknown("one card reports a fabric and another does not", *seen)
    return _registered(told, seen, start)


def _registered(told: list[Card], seen: tuple[Evidence, ...], start: Fix) -> Answer:
    waiting = [card for card in told if card.fabric_state != "Completed"]
    if waiting:
        return fail(
            *seen,
            fix=start,
            reason=f"the fabric is {waiting[0].fabric_state}: CUDA programs end with error 802 until it is Completed",
        )
    broken = [card for card in told if card.fabric_status not in (None, "Success")]
    if broken:
        return fail(*seen, fix=start, reason=f"the fabric could not be set up: {broken[0].fabric_status}")
    if any(card.fabric_health not in (None, "Healthy") for card in told):
        return warn(*seen, fix=start, reason="the fabric works with less than its full bandwidth or routes")
    if any(card.fabric_status is None for card in told):
        return unknown("the fabric is Completed, and no card says whether with success", *seen)
    return ok(*seen)


def _switches(host: Probe, start: Fix) -> Answer:
    """Ampere's cards report no fabric; there the NVSwitches' device files and the manager's process file tell."""
    pattern, path = "/dev/nvidia-nvswitch[0-9]*", "/run/nvidia-fabricmanager/nv-fabricmanager.pid"
    found = host.glob(pattern)
    switches = Evidence("NVSwitches", len(found), f"glob {pattern}")
    if not found:
        return skip("no card reports a fabric, and there is no NVSwitch", switches)
    runs = host.read_text(path)
    seen = (
        switches,
        Evidence(
            "fabric manager",
            "not running here" if runs is None else f"process {runs.strip()[:20]}",
            f"read {path}",
        ),
    )
    if runs is not None and runs.strip():
        return ok(*seen)
    return warn(
        *seen, fix=start, reason="NVSwitches are there and no fabric manager runs where it could be seen"
    )


# How topo names a pair without NVLink, and a pair that may not access each other's memory.
REFUSALS = {
    "CNS": "the chipset does not support it", "GNS": "these GPUs do not support it", "TNS": "the topology does not support it",
    "NS": "it is not supported", "DR": "it is switched off", "U": "the driver does not know",
}  # fmt: skip


@check(
    "DRIVER-019",
    layer=Layer.DRIVER,
    title="The cards reach each other's memory directly",
    why="Without peer access every layer of a tensor-parallel model goes through the processor's memory; with a wrong one NCCL hangs.",
    source=Source(
        "NCCL: troubleshooting, GPU-to-GPU communication",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
        READ,
    ),
    requires=("DRIVER-002",),
)
def peers(host: Probe) -> Answer:
    """``nvidia-smi topo`` twice, and whether an IOMMU stands between cards that talk over PCIe. Asked with several cards only."""
    cards = _each(host)
    if not cards:
        return gpu_readings.not_read(host)
    if len(cards) == 1:
        return skip("there is one card", _said("cards", 1))
    links, links_question = gpu_readings.topology(host, gpu_readings.LINKS)
    access, access_question = gpu_readings.topology(host, gpu_readings.PEERS)
    seen: tuple[Evidence, ...] = (
        Evidence("links", ", ".join(sorted(links)) or None, links_question),
        Evidence("peer access", ", ".join(sorted(access)) or None, access_question),
    )
    if not access:
        return unknown("nvidia-smi topo gave no table of peer access", *seen)
    refused = sorted(access - {"OK"})
    if refused:
        without = Fix(
            "One card, or tensor parallelism over the processor's memory; NVLink or another slot where it can be had",
            ("nvidia-smi topo -p2p r", "NCCL_P2P_DISABLE=1 vllm serve ..."),
        )
        return warn(
            *seen,
            fix=without,
            reason=f"{refused[0]}: {REFUSALS.get(refused[0], 'not a state that is known')}",
        )
    units = host.glob("/sys/class/iommu/*")
    if units and not all(link.startswith("NV") for link in links):
        seen = (*seen, Evidence("IOMMUs", len(units), "glob /sys/class/iommu/*"))
        bare = Fix(
            "On bare metal switch the IOMMU off, or ACS on the bridges; first see whether the bandwidth is what it should be",
            (
                "cat /proc/cmdline",
                "sudo lspci -vvv | grep -i acsctl",
                "NCCL_DEBUG=INFO NCCL_P2P_DISABLE=1 vllm serve ...",
            ),
            Risk.REBOOT,
        )
        return warn(
            *seen,
            fix=bare,
            reason="an IOMMU is on and cards talk over PCIe: with ACS their traffic takes a detour, or is lost",
        )
    return ok(*seen)


@check(
    "DRIVER-020",
    layer=Layer.DRIVER,
    title="The cards are of one kind",
    why="Tensor parallelism cuts each layer evenly: the slowest card sets the pace and the smallest one the number of tokens that fit.",
    source=Source(
        "vLLM 0.19.1: the fewest KV blocks of all workers count",
        "pkg:pypi/vllm@0.19.1#vllm/v1/core/kv_cache_utils.py",
        READ,
    ),
    requires=("DRIVER-002",),
)
def alike(host: Probe) -> Answer:
    """Name and memory of each card."""
    cards = _each(host)
    if not cards:
        return gpu_readings.not_read(host)
    seen = per_card("is", [f"{card.name}, {card.total_mib} MiB" for card in cards])
    if len(cards) == 1:
        return skip("there is one card", *seen)
    if any(card.total_mib is None or card.name == "unnamed" for card in cards):
        return unknown("a card names neither itself nor its memory", *seen)
    if len({(card.name, card.total_mib) for card in cards}) > 1:
        pick = Fix(
            "Start one server for each kind",
            ("CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0 vllm serve ...",),
        )
        return warn(
            *seen,
            fix=pick,
            reason="cards differ; CUDA numbers the fastest first unless told to follow the bus",
        )
    return ok(*seen)


CHECKS = (xids, repairs, cool, lanes, persistent, full_power, open_to_all, instances, fabric, peers, alike)
