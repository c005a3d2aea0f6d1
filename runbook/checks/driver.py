"""DRIVER: the NVIDIA kernel module, its user-space half, and whether all ways of counting GPUs agree."""

import re

from runbook import tables
from runbook.checks import gpu_readings
from runbook.checks.gpu_readings import MODULE, NODES, PCI, SYSTEM, PciGpu, first_line, pci_gpus
from runbook.checks.readings import GPU_QUESTION, NO_GPU, gpus, stack_of
from runbook.model import Answer, Evidence, Fix, Layer, Risk, Source, check, fail, ok, skip, unknown, warn
from runbook.parse import nvidia, proc
from runbook.parse.numbers import whole
from runbook.probe import Probe, Ran

BUSY_MIB = 1_024
NO_ECC = ("[N/A]", "N/A", "[Not Supported]")
NOT_OURS = "Windows' driver serves the card here, and Windows' tools show its state"
GPU_FILES = "/proc/driver/nvidia/gpus/*/information"


@check(
    "DRIVER-001",
    layer=Layer.DRIVER,
    title="Every NVIDIA GPU on the PCI bus has a device node",
    why="A card without its node is invisible to CUDA, whatever is installed above.",
    source=Source(
        "NVIDIA driver README: the device files",
        "https://download.nvidia.com/XFree86/Linux-x86_64/580.65.06/README/faq.html",
        "2026-11-30",
    ),
)
def nodes(host: Probe) -> Answer:
    """PCI functions of vendor 10de against /dev/nvidiaN. NVSwitches are 10de too, so fewer nodes than functions is no fault."""
    listed = proc.pci_nvidia(host.read_text("/proc/bus/pci/devices"))
    found = host.glob(NODES)
    seen = (
        Evidence("NVIDIA on PCI", None if listed is None else len(listed), PCI),
        Evidence("device nodes", len(found), f"glob {NODES}"),
    )
    if found:
        return ok(*seen)
    if not listed and gpu_readings.is_wsl(host):
        nodes = host.glob("/dev/dxg")
        windows = Evidence("Windows' device", nodes[0] if nodes else "not there", "glob /dev/dxg")
        return ok(windows) if nodes else skip(f"no /dev/dxg under WSL: {NO_GPU}", windows)
    if listed is None:
        return skip(f"no PCI list and no device node: {NO_GPU}", *seen)
    if not listed:
        return skip(NO_GPU, *seen)
    return fail(
        *seen,
        fix=Fix(
            "Install the driver, or pass the GPU into the container",
            ("sudo apt-get install nvidia-driver-580-server", "docker run --gpus all ..."),
            Risk.REBOOT,
        ),
    )


# What nvidia-smi says when it cannot work (its manual: return values), and what that asks for; the last fits all.
SAYS = (
    ("version mismatch", Fix("Load the module that fits the library; a reboot does both", ("sudo reboot",), Risk.REBOOT)),
    (
        "fallen off the bus|GPU is lost|Unable to determine the device handle",
        Fix("Read the kernel log for the Xid, then restart the machine, cold if it comes back", ("sudo dmesg | grep NVRM", "sudo reboot"), Risk.REBOOT),
    ),
    ("No devices were found", Fix("The module runs and took no card; the kernel log says why", ("sudo dmesg | grep NVRM", "runbook check DRIVER-008"))),
    ("couldn't communicate", Fix("The module is not loaded", ("runbook check DRIVER-007", "sudo modprobe nvidia"))),
    (
        "Failed to initialize NVML: Unknown Error",
        Fix("In a container that worked before: the host reloaded its device rules; start it again", ("docker restart CONTAINER",), Risk.RESTART),
    ),
    ("", Fix("Load the module that fits the library; a reboot does both", ("sudo reboot",), Risk.REBOOT)),
)  # fmt: skip


def _complaint(ran: Ran) -> str:
    """The line that says what is wrong; other cards' rows may stand before it."""
    for line in (ran.out + ran.err).splitlines():
        if any(words and re.search(words, line) for words, _ in SAYS):
            return line.strip()[:160]
    return first_line(ran)


@check(
    "DRIVER-002",
    layer=Layer.DRIVER,
    title="nvidia-smi answers and lists a GPU",
    why="It speaks to the driver the way CUDA does; while it fails, nothing above can work.",
    source=Source("NVIDIA: nvidia-smi", "https://docs.nvidia.com/deploy/nvidia-smi/index.html", "2026-11-30"),
    requires=("DRIVER-001",),
)
def smi(host: Probe) -> Answer:
    """The query used everywhere else, once for its exit code."""
    ran = host.run(nvidia.ARGV)
    found = nvidia.gpus(ran.out)
    if ran.ok and found:
        return ok(Evidence("GPUs", len(found), GPU_QUESTION), Evidence("first", found[0].name, GPU_QUESTION))
    seen = Evidence(
        "nvidia-smi said", "nvidia-smi is not on PATH" if ran.missing else _complaint(ran), GPU_QUESTION
    )
    if ran.missing:
        tools = Fix(
            "Install the driver's tools; into a container they come with the utility capability",
            (
                "sudo apt-get install nvidia-utils-580-server",
                "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",
            ),
        )
        return fail(seen, fix=tools)
    if "not a valid field to query" in ran.out + ran.err:
        newer = Fix(
            "Install driver and tools of one branch, 535 or newer",
            ("sudo apt-get install nvidia-driver-580-server",),
            Risk.REBOOT,
        )
        return fail(
            seen,
            fix=newer,
            reason="the nvidia-smi on PATH is older than branch 510 and cannot name a compute capability",
        )
    if ran.timed_out:
        return unknown(
            "nvidia-smi did not answer in time; a hanging driver does this, a slow first load too", seen
        )
    return fail(seen, fix=next(one for words, one in SAYS if re.search(words, ran.out + ran.err)))


@check(
    "DRIVER-003",
    layer=Layer.DRIVER,
    title="The kernel module and the user-space library are of one version",
    why="After an upgrade without a reboot they differ, and every CUDA call ends in 'Driver/library version mismatch'.",
    source=Source(
        "NVIDIA driver README: module and library must match",
        "https://download.nvidia.com/XFree86/Linux-x86_64/580.65.06/README/installdriver.html",
        "2026-11-30",
    ),
    requires=("DRIVER-001",),
)
def one_version(host: Probe) -> Answer:
    """/proc/driver/nvidia/version against the name of the library file that the loader takes; no program is needed."""
    if gpu_readings.is_wsl(host):
        return skip(NOT_OURS, Evidence("system", "WSL", SYSTEM))
    module = Evidence("module", nvidia.module_version(host.read_text(MODULE)), f"read {MODULE}")
    found = gpu_readings.library(host)
    file: tuple[Evidence, ...] = ()
    if found is not None and found[1] is not None:
        library = Evidence("library", found[1], found[2])
        file = (Evidence("file", found[0], found[2]),)
    else:
        # NVML refuses to start when the two differ, so a version it names is the module's own.
        named = gpus(host)
        library = Evidence("library", named[0].driver if named else None, GPU_QUESTION)
    seen = (module, library, *file)
    if module.value is None:
        return unknown("no module names its version; DRIVER-007 says whether one is loaded", *seen)
    if library.value is None:
        return unknown(
            "no library of the driver lies where the loader looks, and nvidia-smi names no version", *seen
        )
    if module.value == library.value:
        return ok(*seen)
    return fail(
        *seen,
        fix=Fix(
            "Reboot, so that the new module is loaded; start containers again", ("sudo reboot",), Risk.REBOOT
        ),
        reason="every CUDA call and nvidia-smi itself end in a version mismatch (CUDA error 803)",
    )


@check(
    "DRIVER-004",
    layer=Layer.DRIVER,
    title="CUDA_VISIBLE_DEVICES hides no GPU by accident",
    why="An empty or wrong value makes torch report no GPU on a healthy machine.",
    source=Source(
        "CUDA programming guide: environment variables",
        "https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html",
        "2026-11-30",
    ),
    requires=("DRIVER-002",),
)
def visible(host: Probe) -> Answer:
    """The variable against the indices nvidia-smi lists, and names against what the stack's vLLM understands."""
    value = host.env("CUDA_VISIBLE_DEVICES")
    indices = {one.index for one in gpus(host)}
    seen = (
        Evidence(
            "CUDA_VISIBLE_DEVICES", "not set" if value is None else repr(value), "env CUDA_VISIBLE_DEVICES"
        ),
        Evidence("GPUs", len(indices), GPU_QUESTION),
    )
    if value is None:
        return ok(*seen)
    words = [word.strip() for word in value.split(",")]
    names = [word for word in words if word.startswith(("GPU-", "MIG-"))]
    wrong = [word for word in words if word not in names and whole(word) not in indices]
    if wrong or len(set(words)) < len(words):
        return fail(
            *seen, fix=Fix("Name GPUs that exist, each once, or clear it", ("unset CUDA_VISIBLE_DEVICES",))
        )
    stack = stack_of(host)
    if names and stack.device == "cuda" and tables.takes_device_names(stack.vllm) is False:
        by_index = Fix(
            "Name GPUs by index; give a container one MIG instance with NVIDIA_VISIBLE_DEVICES instead",
            (
                "nvidia-smi -L",
                "export CUDA_VISIBLE_DEVICES=0",
                "docker run -e NVIDIA_VISIBLE_DEVICES=MIG-... ...",
            ),
        )
        why = f"CUDA takes such names; vLLM {stack.vllm} reads each as a number and ends with ValueError: invalid literal for int()"
        return fail(*seen, fix=by_index, reason=why)
    return ok(*seen)


@check(
    "DRIVER-005",
    layer=Layer.DRIVER,
    title="The GPUs are free",
    why="vLLM takes its share of the whole card; memory that somebody else holds makes the start fail.",
    source=Source(
        "vLLM: gpu_memory_utilization is a share of the whole card",
        "https://docs.vllm.ai/en/stable/configuration/conserving_memory/",
        "2026-11-30",
    ),
    requires=("DRIVER-002",),
)
def free(host: Probe) -> Answer:
    """memory.used of each GPU."""
    found = gpus(host)
    used = [one.used_mib for one in found]
    seen = tuple(Evidence(f"GPU {one.index} used (MiB)", one.used_mib, GPU_QUESTION) for one in found)
    if not used or None in used:
        return unknown("memory.used could not be read", *seen)
    if any(each > BUSY_MIB for each in used if each is not None):
        holders = _holders(host)
        return warn(
            *seen,
            *holders,
            fix=Fix("See who holds it", ("nvidia-smi", "runbook stop"), Risk.NONE),
            reason="a server of ours or somebody else's is on it"
            if holders
            else "memory is held by processes that cannot be seen from here, as from within a container",
        )
    return ok(*seen)


def _holders(host: Probe) -> tuple[Evidence, ...]:
    """The largest holders of memory, by program: a command line may hold anybody's paths and names."""
    report = gpu_readings.cards(host)
    found = [(one.used_mib or 0, index, one) for index, card in enumerate(report.cards if report else ()) for one in card.processes]  # fmt: skip
    found.sort(key=lambda row: (-row[0], row[1], row[2].pid or 0))
    return tuple(
        Evidence(
            f"held on GPU {index}",
            f"{mib} MiB by {_program(one.name)} (pid {one.pid})",
            gpu_readings.XML_QUESTION,
        )
        for mib, index, one in found[:4]
    )


def _program(name: str) -> str:
    words = name.split()
    return words[0].rpartition("/")[2] if words else "a program without a name"


@check(
    "DRIVER-006",
    layer=Layer.DRIVER,
    title="No GPU has counted uncorrectable memory errors since its driver was loaded",
    why="A card with such errors computes wrong results or falls off the bus under load.",
    source=Source(
        "NVIDIA: GPU memory error management",
        "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html",
        "2026-11-30",
    ),
    requires=("DRIVER-002",),
)
def ecc(host: Probe) -> Answer:
    """Volatile uncorrectable ECC counts; cards without ECC print [N/A]."""
    found = gpus(host)
    seen = tuple(
        Evidence(f"GPU {one.index} uncorrectable", one.ecc_uncorrected, GPU_QUESTION) for one in found
    )
    counts = [0 if one.ecc_uncorrected in NO_ECC else whole(one.ecc_uncorrected) for one in found]
    if any(counts):
        replace = Fix(
            "Drain the machine and reset or replace the card",
            ("nvidia-smi -q -d ECC,ROW_REMAPPER",),
            Risk.REBOOT,
        )
        return fail(*seen, fix=replace)
    if not counts or None in counts:
        return unknown("a card answers with words instead of a count, as one that needs a reset does", *seen)
    return ok(*seen)


@check(
    "DRIVER-009",
    layer=Layer.DRIVER,
    title="PCI, device files and nvidia-smi count the same GPUs",
    why="A card that fell off the bus keeps its device file; a server that expects it waits, or starts on fewer cards than planned.",
    source=Source(
        "NVIDIA: nvidia-smi, return values",
        "https://docs.nvidia.com/deploy/nvidia-smi/index.html",
        "2026-11-30",
    ),
    requires=("DRIVER-001",),
)
def counted(host: Probe) -> Answer:
    """Device files against nvidia-smi; what PCI and the driver list besides is a container's business unless it is bare."""
    if gpu_readings.is_wsl(host):
        return skip(NOT_OURS, Evidence("system", "WSL", SYSTEM))
    nodes, listed, driven = host.glob(NODES), pci_gpus(host), host.glob(GPU_FILES)
    ran, asked = host.run(nvidia.ARGV), host.env("NVIDIA_VISIBLE_DEVICES")
    here = len(nvidia.gpus(ran.out))
    seen = (
        Evidence("on PCI", None if listed is None else len(listed), PCI),
        Evidence("held by the driver", len(driven), f"glob {GPU_FILES}"),
        Evidence("device files", len(nodes), f"glob {NODES}"),
        Evidence("nvidia-smi", here, GPU_QUESTION),
        Evidence(
            "NVIDIA_VISIBLE_DEVICES",
            "not set" if asked is None else repr(asked),
            "env NVIDIA_VISIBLE_DEVICES",
        ),
    )
    is_lost = _says_lost(ran)
    if here == 0 and not is_lost:
        return skip("nvidia-smi lists none at all, which DRIVER-002 judges", *seen)
    if is_lost or here < len(nodes):
        cold = Fix("Note the Xid in the kernel log, drain the machine, restart it cold", ("sudo dmesg | grep -i xid", "sudo poweroff"), Risk.REBOOT)  # fmt: skip
        said = (Evidence("nvidia-smi said", _complaint(ran), GPU_QUESTION),) if is_lost else ()
        return fail(
            *seen,
            *said,
            fix=cold,
            reason="a card that has a device file does not answer: it fell off the bus or hangs",
        )
    return _by_intention(here, nodes, listed, asked, seen)


def _by_intention(
    here: int,
    nodes: tuple[str, ...],
    listed: tuple[PciGpu, ...] | None,
    asked: str | None,
    seen: tuple[Evidence, ...],
) -> Answer:
    words = [word.strip() for word in (asked or "").split(",")]
    if all(whole(word) is not None for word in words) and len(set(words)) != here:
        given = Fix("Start the container with the cards it is meant to have", ("docker run --gpus '\"device=0,1\"' ...",), Risk.RESTART)  # fmt: skip
        return warn(
            *seen,
            fix=given,
            reason=f"the container was started for {len(set(words))} GPUs and sees {here}, as a privileged one does",
        )
    elsewhere = [one for one in listed or () if one.driver not in ("", "nvidia")]
    if here > len(nodes):
        make = Fix("Make the missing device files", ("sudo nvidia-modprobe -c 0 -c 1",))
        return warn(
            *seen,
            fix=make,
            reason="nvidia-smi lists cards whose device file is not here: CUDA cannot open those",
        )
    if elsewhere and asked is None:
        back = Fix("Give the card back to the driver if it is meant for CUDA", ("lspci -nnk -d 10de:",))
        return warn(*seen, fix=back, reason=f"{len(elsewhere)} NVIDIA card is held by {elsewhere[0].driver}")
    return ok(*seen)


def _says_lost(ran: Ran) -> bool:
    return bool(re.search(SAYS[1][0], ran.out + ran.err))


CHECKS = (nodes, smi, one_version, visible, free, ecc, counted)
