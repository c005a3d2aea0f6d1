"""The state of the cards from ``nvidia-smi -q -x``, for driver branches 418 to 610.

Names changed over the years (``power_readings`` became ``gpu_power_readings``, ``clocks_throttle_reasons`` became
``clocks_event_reasons``, absolute temperature limits became margins); both are read. What a card does not say is None:
nvidia-smi prints N/A, or that the functionality has been deprecated.
"""

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runbook.parse.numbers import decimal, whole

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

ARGV = ["nvidia-smi", "-q", "-x"]
NOT_SAID = frozenset(
    {
        "",
        "n/a",
        "[n/a]",
        "not supported",
        "[not supported]",
        "unknown",
        "none",
        "requested functionality has been deprecated",
    }
)
# What stands in the place of a value when the card does not answer (NVML's error strings).
SICK = ("GPU is lost", "GPU requires reset", "Unknown Error", "ERR!")
# The names of the clocks' limits, as the elements end: ..._reason_hw_thermal_slowdown.
REASONS = re.compile(r"clocks_(?:event|throttle)_reason_([a-z_]+)")
REPAIRS = ("channel_repair_pending", "tpc_repair_pending", "unrepairable_memory", "sram_threshold_exceeded")


@dataclass(frozen=True)
class Instance:
    """A MIG instance; memory in MiB is all that a process in it may use."""

    index: int | None
    gpu_instance: int | None
    compute_instance: int | None
    sm_count: int | None
    total_mib: int | None
    used_mib: int | None


@dataclass(frozen=True)
class Process:
    """A process that holds memory of a card; ``kind`` is C (compute), G (graphics) or both."""

    pid: int | None
    kind: str
    name: str
    used_mib: int | None


@dataclass(frozen=True)
class Card:
    """One card. Memory in MiB, temperatures in degrees Celsius, power in watts, ``width`` in PCIe lanes.

    ``bus`` is the PCI address as Linux writes it. ``ecc_*`` are uncorrectable errors since the driver was loaded and
    over the card's life. ``slowed`` names what holds the clocks back now. ``margin`` is how far the card is from the
    temperature at which it slows itself down. ``recovery`` is what the driver asks for: "None" or an action.
    ``repairs`` names repairs that wait and limits that were passed; ``sick`` is an error in the place of a value.
    """

    bus: str
    name: str
    architecture: str | None = None
    minor: int | None = None
    persistence: bool | None = None
    virtualization: str | None = None
    mig: str | None = None
    mig_pending: str | None = None
    instances: tuple[Instance, ...] = ()
    total_mib: int | None = None
    used_mib: int | None = None
    compute_mode: str | None = None
    ecc_volatile: int | None = None
    ecc_aggregate: int | None = None
    retired: int | None = None
    retirement_pending: bool | None = None
    remapped: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    repairs: tuple[str, ...] = ()
    recovery: str | None = None
    slowed: tuple[str, ...] | None = None
    temperature: int | None = None
    margin: int | None = None
    width: int | None = None
    width_max: int | None = None
    power_limit: float | None = None
    power_default: float | None = None
    fabric_state: str | None = None
    fabric_status: str | None = None
    fabric_health: str | None = None
    processes: tuple[Process, ...] = ()
    sick: str | None = None


@dataclass(frozen=True)
class Report:
    """The whole answer. ``cuda`` is the highest CUDA version the driver serves, not a toolkit; ``attached`` a count."""

    driver: str | None
    cuda: str | None
    attached: int | None
    cards: tuple[Card, ...]


@functools.lru_cache(maxsize=4)
def report(text: str) -> Report | None:
    """The cards, or None when the text is no such document; warnings before it are passed over.

    Kept for the same text: eleven checks read one answer.
    """
    start = re.search(r"<\?xml|<nvidia_smi_log\b", text)
    if start is None:
        return None
    from xml.etree.ElementTree import ParseError, fromstring  # noqa: PLC0415 - 8 ms that other questions need not pay

    body = re.sub(r"(?s)<supported_clocks>.*?</supported_clocks>", "", text[start.start() :])
    body = re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd]", "", body)
    # A command line may hold & and <, and nvidia-smi writes it as it is.
    body = re.sub(
        r"(?s)(<process_name>)(.*?)(</process_name>)", lambda one: one[1] + _escaped(one[2]) + one[3], body
    )
    try:
        root = fromstring(body)  # noqa: S314 - the answer of a local program, and no entity is expanded beyond expat's limit
    except (ParseError, ValueError):
        return None
    if root.tag != "nvidia_smi_log":
        return None
    return Report(
        _version(_text(root, "driver_version")),
        _version(_text(root, "cuda_version")),
        whole(_text(root, "attached_gpus") or ""),
        tuple(_card(one) for one in root.findall("gpu")),
    )


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _card(gpu: "Element") -> Card:
    power = next(
        (found for tag in ("gpu_power_readings", "power_readings") if (found := gpu.find(tag)) is not None),
        gpu,
    )
    action, reset = _raw(gpu, "gpu_recovery_action"), "gpu_reset_status/"
    if _said(action) is None and action.lower() != "none":
        # Before branch 565 two flags said it.
        flags = {
            "Drain and Reset": _flag(gpu, f"{reset}drain_and_reset_recommended"),
            "Reset": _flag(gpu, f"{reset}reset_required"),
        }
        action = next(
            (name for name, is_set in flags.items() if is_set), "None" if False in flags.values() else ""
        )
    retired = [
        whole(_raw(gpu, f"retired_pages/{kind}/retired_count"))
        for kind in ("multiple_single_bit_retirement", "double_bit_retirement")
    ]
    remapped = [whole(_raw(gpu, f"remapped_rows/remapped_row_{kind}")) for kind in ("corr", "unc")]
    blocks = [one for one in gpu if re.fullmatch(r"clocks_(?:event|throttle)_reasons", one.tag)]
    return Card(
        bus=address(gpu.get("id", "") or _raw(gpu, "pci/pci_bus_id")),
        name=_text(gpu, "product_name") or "unnamed",
        architecture=_text(gpu, "product_architecture"),
        minor=whole(_raw(gpu, "minor_number")),
        persistence=_flag(gpu, "persistence_mode"),
        virtualization=_text(gpu, "gpu_virtualization_mode/virtualization_mode"),
        mig=_text(gpu, "mig_mode/current_mig"),
        mig_pending=_text(gpu, "mig_mode/pending_mig"),
        instances=tuple(_instance(one) for one in gpu.findall("mig_devices/mig_device")),
        total_mib=_mib(gpu, "fb_memory_usage/total"),
        used_mib=_mib(gpu, "fb_memory_usage/used"),
        compute_mode=_text(gpu, "compute_mode"),
        ecc_volatile=_uncorrectable(gpu.find("ecc_errors/volatile")),
        ecc_aggregate=_uncorrectable(gpu.find("ecc_errors/aggregate")),
        retired=_sum(retired),
        retirement_pending=_either(
            _flag(gpu, "retired_pages/pending_retirement"), _flag(gpu, "retired_pages/pending_blacklist")
        ),
        remapped=_sum(remapped),
        remap_pending=_flag(gpu, "remapped_rows/remapped_row_pending"),
        remap_failed=_flag(gpu, "remapped_rows/remapped_row_failure"),
        repairs=tuple(
            name for name in REPAIRS if any(_is(one.text) for one in gpu.findall(f"ecc_errors//{name}"))
        ),
        recovery=action or None,
        slowed=_slowed(blocks[0]) if blocks else None,
        temperature=_number(gpu, "temperature/gpu_temp"),
        margin=_margin(gpu),
        width=_lanes(gpu, "pci/pci_gpu_link_info/link_widths/current_link_width"),
        width_max=_lanes(gpu, "pci/pci_gpu_link_info/link_widths/max_link_width"),
        power_limit=_watts(power, "current_power_limit")
        or _watts(power, "enforced_power_limit")
        or _watts(power, "power_limit"),
        power_default=_watts(power, "default_power_limit"),
        fabric_state=_text(gpu, "fabric/state"),
        fabric_status=_text(gpu, "fabric/status"),
        fabric_health=_text(gpu, "fabric/health/summary"),
        processes=tuple(_process(one) for one in gpu.findall("processes/process_info")),
        sick=next(
            (
                words
                for words in SICK
                if any(words in (one.text or "") for one in gpu.iter() if one.tag != "process_name")
            ),
            None,
        ),
    )


def _instance(one: "Element") -> Instance:
    return Instance(
        whole(_raw(one, "index")),
        whole(_raw(one, "gpu_instance_id")),
        whole(_raw(one, "compute_instance_id")),
        whole(_raw(one, "device_attributes/shared/multiprocessor_count")),
        _mib(one, "fb_memory_usage/total"),
        _mib(one, "fb_memory_usage/used"),
    )


def _process(one: "Element") -> Process:
    return Process(
        whole(_raw(one, "pid")), _raw(one, "type"), _raw(one, "process_name"), _mib(one, "used_memory")
    )


def address(text: str) -> str:
    """``00000000:00:06.0`` -> ``0000:00:06.0``, as Linux writes it; other text as it is, in small letters."""
    found = re.fullmatch(
        r"(?:[0-9a-f]{4})?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-9a-f])?)", text.strip().lower()
    )
    return found[1] if found else text.strip().lower()


def _raw(node: "Element", path: str) -> str:
    return (node.findtext(path) or "").strip()


def _said(text: str) -> str | None:
    return None if text.lower() in NOT_SAID else text


def _text(node: "Element", path: str) -> str | None:
    return _said(_raw(node, path))


def _version(text: str | None) -> str | None:
    return text if text and re.fullmatch(r"\d{1,9}(?:\.\d{1,9})+", text, re.ASCII) else None


def _is(text: str | None) -> bool | None:
    return {
        "yes": True,
        "enabled": True,
        "active": True,
        "no": False,
        "disabled": False,
        "not active": False,
    }.get((text or "").strip().lower())


def _flag(node: "Element", path: str) -> bool | None:
    return _is(node.findtext(path))


def _either(*flags: bool | None) -> bool | None:
    known = [one for one in flags if one is not None]
    return any(known) if known else None


def _sum(counts: list[int | None]) -> int | None:
    known = [one for one in counts if one is not None]
    return sum(known) if known else None


def _number(node: "Element", path: str) -> int | None:
    found = re.fullmatch(r"(-?)([0-9]{1,6}) C", _raw(node, path))
    return None if found is None else int(found[1] + found[2])


def _mib(node: "Element", path: str) -> int | None:
    return whole(_raw(node, path).removesuffix("MiB"))


def _watts(node: "Element", path: str) -> float | None:
    return decimal(_raw(node, path).removesuffix("W").strip())


def _lanes(node: "Element", path: str) -> int | None:
    return whole(_raw(node, path).removesuffix("x"))


def _slowed(block: "Element") -> tuple[str, ...] | None:
    named = [(found[1], _is(one.text)) for one in block if (found := REASONS.fullmatch(one.tag))]
    return (
        tuple(name for name, is_active in named if is_active)
        if any(state is not None for _, state in named)
        else None
    )


def _margin(gpu: "Element") -> int | None:
    """Degrees left before the card slows itself down: from absolute limits, or from margins (Ada, Hopper and later)."""
    now, limit = _number(gpu, "temperature/gpu_temp"), _number(gpu, "temperature/gpu_temp_slow_threshold")
    if now is not None and limit is not None:
        return limit - now
    left, slow = (
        _number(gpu, "temperature/gpu_temp_tlimit"),
        _number(gpu, "temperature/gpu_temp_slow_tlimit_threshold"),
    )
    return None if left is None else left - (slow or 0)


def _uncorrectable(block: "Element | None") -> int | None:
    """Errors that ECC could not repair: ``*_uncorrectable*`` from Ampere on, ``double_bit/total`` before."""
    if block is None:
        return None
    counts = [whole((one.text or "").strip()) for one in block if "uncorrectable" in one.tag]
    return _sum([*counts, whole(_raw(block, "double_bit/total"))])
