"""Readings about NVIDIA cards that several checks share: what PCI, the driver, nvidia-smi and the kernel log say."""

from collections.abc import Sequence
from dataclasses import dataclass

from runbook import tables
from runbook.checks import libraries
from runbook.model import Answer, Evidence, unknown
from runbook.parse import kernel_log as parse_log
from runbook.parse import loader, nvidia, nvidia_xml
from runbook.parse.nvidia_xml import Report
from runbook.probe import Probe, Ran
from runbook.probes import questions

PCI = "read /proc/bus/pci/devices"
NODES = "/dev/nvidia[0-9]*"
MODULE = "/proc/driver/nvidia/version"
MODULES = "/proc/modules"
XML_QUESTION = questions.run(nvidia_xml.ARGV)
LINKS = ["nvidia-smi", "topo", "-m"]
PEERS = ["nvidia-smi", "topo", "-p2p", "r"]
LISTING = ["nvidia-smi", "-L"]
SYSTEM = "run uname -srm"
NVML = "libnvidia-ml.so.1"
DEFAULT_FOLDERS = ("/usr/lib*/libnvidia-ml.so.*", "/usr/lib/*-linux-gnu/libnvidia-ml.so.*")


@dataclass(frozen=True)
class PciGpu:
    """A GPU on the PCI bus; ``driver`` is the kernel driver that holds it, ``generation`` None for an id no table has."""

    bus: str
    device: str
    driver: str
    generation: str | None
    modules: str
    last_branch: int | None


def is_wsl(host: Probe) -> bool:
    """True under Windows' Linux, whose cards come through /dev/dxg and a driver of Windows'."""
    return "microsoft" in host.run(["uname", "-srm"]).out.lower()


def pci_gpus(host: Probe) -> tuple[PciGpu, ...] | None:
    """GPUs on the bus, NVSwitches and the cards' other functions left out; None when there is no list."""
    listed = nvidia.pci_functions(host.read_text("/proc/bus/pci/devices"))
    if listed is None:
        return None
    found = []
    for one in listed:
        row = tables.pci_device(one.device) or {}
        if row.get("kind") != "nvswitch" and one.driver != "nvidia-nvswitch":
            found.append(PciGpu(one.bus, one.device, one.driver, row.get("generation"), row.get("kernel_modules", ""), row.get("last_branch")))  # fmt: skip
    return tuple(found)


def cards(host: Probe) -> Report | None:
    """What ``nvidia-smi -q -x`` says; None when it is missing, fails, or prints something else."""
    ran = host.run(nvidia_xml.ARGV)
    return nvidia_xml.report(ran.out) if ran.ok else None


def not_read(host: Probe) -> Answer:
    """The unknown of a check that has no such report."""
    ran = host.run(nvidia_xml.ARGV)
    if ran.missing:
        return unknown("nvidia-smi is not on PATH")
    if ran.timed_out:
        return unknown("nvidia-smi -q -x did not answer in time, as with a driver that hangs")
    return unknown(f"nvidia-smi -q -x gave no report that can be read (exit code {ran.rc})", Evidence("said", first_line(ran), XML_QUESTION))  # fmt: skip


def first_line(ran: Ran) -> str:
    """What a program said first, short enough for a finding."""
    lines = (ran.out + ran.err).strip().splitlines()
    return lines[0][:160] if lines else "nothing"


def label(index: int) -> str:
    """How evidence names a card: by its place in the list, as nvidia-smi does."""
    return f"GPU {index}"


def per_card(what: str, values: Sequence[str | float | None]) -> tuple[Evidence, ...]:
    """One reading of each card; one line for all of them when they say the same."""
    if len(values) > 1 and all(value == values[0] for value in values):
        return (Evidence(f"GPU 0-{len(values) - 1} {what}", values[0], XML_QUESTION),)
    return tuple(
        Evidence(f"{label(index)} {what}", value, XML_QUESTION) for index, value in enumerate(values)
    )


def kernel_log(host: Probe) -> tuple[str | None, str]:
    """The kernel log and the question that gave it, or None and why there is none."""
    ran = host.run(parse_log.DMESG)
    if ran.ok and parse_log.is_log(ran.out):
        return ran.out, questions.run(parse_log.DMESG)
    journal = host.run(parse_log.JOURNAL)
    if journal.ok and parse_log.is_log(journal.out):
        return journal.out, questions.run(parse_log.JOURNAL)
    return None, "dmesg: no such program" if ran.missing else f"dmesg: {first_line(ran)}"


def library(host: Probe) -> tuple[str, str | None, str] | None:
    """The driver's library that a program gets: path, version, question; None when there is none.

    NVML's where there is one: it comes with each driver and never with a cuda-compat package, whose libcuda is meant
    to differ from the kernel module. The loader's order (ld.so(8)): LD_LIBRARY_PATH, its cache, the usual folders.
    """
    for folder, files in libraries.on_path(host).items():
        if f"{folder}/{NVML}" in files:
            return f"{folder}/{NVML}", _version(host, f"{folder}/{NVML}", files), f"glob {folder}/lib*.so.*"
    for path in (libraries.cache(host) or {}).get(NVML, ()):
        files = host.glob(f"{loader.folder(path)}/libnvidia-ml.so.*")
        if path in files:
            return path, _version(host, path, files), f"glob {loader.folder(path)}/libnvidia-ml.so.*"
    for pattern in DEFAULT_FOLDERS:
        files = host.glob(pattern)
        for path in files:
            if loader.name(path) == NVML:
                return path, _version(host, path, files), f"glob {pattern}"
    cuda = next((one for one in libraries.libcuda(host) if one.kind == "driver"), None)
    return None if cuda is None else (cuda.path, cuda.version, cuda.origin)


def _version(host: Probe, path: str, files: tuple[str, ...]) -> str | None:
    beside = [each for each in files if loader.folder(each) == loader.folder(path) and loader.name(each).startswith("libnvidia-ml.so.")]  # fmt: skip
    versions = {loader.version(each) for each in beside} - {None}
    if len(versions) == 1:
        return next(iter(versions))
    # Files of several releases side by side: only the link knows which of them is meant.
    ran = host.run(["readlink", "-f", path])
    return loader.version(ran.out.strip()) if ran.ok else None


def mig_profiles(host: Probe) -> tuple[str, ...]:
    """Profiles of the MIG instances in the order of the list; the XML names none."""
    ran = host.run(LISTING)
    return nvidia.mig_names(ran.out) if ran.ok else ()


def topology(host: Probe, argv: list[str]) -> tuple[frozenset[str], str]:
    """What stands between any two cards in a table of ``nvidia-smi topo``, and the question; empty when not read."""
    ran = host.run(argv)
    table = nvidia.matrix(ran.out) if ran.ok else ()
    cells = {cell for row, line in enumerate(table) for column, cell in enumerate(line) if row != column}
    return frozenset(cells), questions.run(argv)
