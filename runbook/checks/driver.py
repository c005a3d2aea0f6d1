"""DRIVER: the NVIDIA kernel module, its user-space half, and whether all ways of counting GPUs agree."""

from runbook.checks.readings import GPU_QUESTION, NO_GPU, gpus
from runbook.model import Answer, Evidence, Fix, Layer, Risk, Source, check, fail, ok, skip, unknown, warn
from runbook.parse import nvidia, proc
from runbook.parse.numbers import whole
from runbook.probe import Probe

PCI = "read /proc/bus/pci/devices"
MODULE = "/proc/driver/nvidia/version"
NODES = "/dev/nvidia[0-9]*"
BUSY_MIB = 1_024
NO_ECC = ("[N/A]", "N/A", "[Not Supported]")


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
    said = "nvidia-smi is not on PATH" if ran.missing else (ran.out + ran.err).strip().splitlines()[:1]
    seen = Evidence(
        "nvidia-smi said", said if isinstance(said, str) else (said[0] if said else "nothing"), GPU_QUESTION
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
    return fail(
        seen,
        fix=Fix("Load the module that fits the library; a reboot does both", ("sudo reboot",), Risk.REBOOT),
    )


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
    requires=("DRIVER-002",),
)
def one_version(host: Probe) -> Answer:
    """/proc/driver/nvidia/version against what the library reports."""
    module = nvidia.module_version(host.read_text(MODULE))
    found = gpus(host)
    library = found[0].driver if found else None
    seen = (Evidence("module", module, f"read {MODULE}"), Evidence("library", library, GPU_QUESTION))
    if module is None or library is None:
        return unknown("one of the two versions could not be read", *seen)
    return (
        ok(*seen)
        if module == library
        else fail(*seen, fix=Fix("Reboot, so that the new module is loaded", ("sudo reboot",), Risk.REBOOT))
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
    """The variable against the indices nvidia-smi lists; UUIDs and MIG names are taken as they are."""
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
    wrong = [word for word in words if not word.startswith(("GPU-", "MIG-")) and whole(word) not in indices]
    if wrong:
        return fail(
            *seen, fix=Fix("Name GPUs that exist, or clear it", ("unset CUDA_VISIBLE_DEVICES",), Risk.NONE)
        )
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
        return warn(
            *seen,
            fix=Fix("See who holds it", ("nvidia-smi", "runbook stop"), Risk.NONE),
            reason="a server of ours or somebody else's is on it",
        )
    return ok(*seen)


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


CHECKS = (nodes, smi, one_version, visible, free, ecc)
