"""DRIVER: whether the kernel has NVIDIA's modules, and whether they took every card."""

from runbook.checks import gpu_readings
from runbook.checks.gpu_readings import MODULE, MODULES, NODES, PCI, SYSTEM, PciGpu, pci_gpus
from runbook.checks.readings import GPU_QUESTION, NO_GPU
from runbook.model import Answer, Evidence, Fix, Layer, Risk, Source, check, fail, ok, skip, unknown, warn
from runbook.parse import kernel_log, nvidia, proc
from runbook.probe import Probe

# Where distributions put the module: DKMS, Ubuntu's ready-made ones, openSUSE and Arch, Red Hat's kmod packages.
BUILT = (
    "/lib/modules/*/updates/dkms/nvidia.ko*", "/lib/modules/*/kernel/nvidia-*/nvidia.ko*", "/lib/modules/*/kernel/drivers/video/nvidia.ko*",
    "/lib/modules/*/extra/nvidia.ko*", "/lib/modules/*/extra/nvidia*/nvidia.ko*",
)  # fmt: skip
TRIED = "/var/lib/dkms/nvidia/*/build/make.log"
SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
PARAMS = "/proc/driver/nvidia/params"
EVERYBODY = 0o006
THE_GROUP = 0o060
# A GPU has three regions of memory: registers, its memory's window, and a small one.
REGIONS = 3
# A log that begins later than this has lost the lines of the driver's start.
FIRST_SECONDS = 60.0


@check(
    "DRIVER-007",
    layer=Layer.DRIVER,
    title="The kernel modules that CUDA needs are loaded, and their device files may be opened",
    why="nvidia-smi needs only the first of them: without nvidia_uvm it is content, and every CUDA program ends with error 999.",
    source=Source(
        "NVIDIA MIG guide: device nodes of a machine",
        "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/device-nodes-and-capabilities.html",
        "2026-11-30",
    ),
)
def modules_loaded(host: Probe) -> Answer:
    """/proc/modules and the files under /dev; when the module is missing, which of the usual reasons it is."""
    listed, nodes = pci_gpus(host), host.glob(NODES)
    if not nodes and not listed:
        return skip(NO_GPU, Evidence("NVIDIA on PCI", None if listed is None else 0, PCI))
    loaded = proc.modules(host.read_text(MODULES)) or frozenset()
    runs = nvidia.module_version(host.read_text(MODULE)) is not None or "nvidia" in loaded
    files = host.glob("/dev/nvidia*")
    seen = (
        Evidence("nvidia", "loaded" if runs else "not loaded", f"read {MODULES}"),
        Evidence("nvidia_uvm", "loaded" if "nvidia_uvm" in loaded else "not loaded", f"read {MODULES}"),
        *(Evidence(name, "there" if name in files else "missing", "glob /dev/nvidia*") for name in ("/dev/nvidiactl", "/dev/nvidia-uvm")),
    )  # fmt: skip
    if not runs and "/dev/nvidiactl" not in files:
        return _not_loaded(host, listed or (), seen)
    if "/dev/nvidiactl" not in files:
        pass_in = Fix("Pass the GPU into the container, or make the device files", ("docker run --gpus all ...", "sudo nvidia-modprobe -c 0 -u"))  # fmt: skip
        return fail(*seen, fix=pass_in, reason="the module runs, and the device files are not here")
    if "/dev/nvidia-uvm" not in files:
        return _no_uvm(host, seen)
    return _permissions(host, seen)


def _no_uvm(host: Probe, seen: tuple[Evidence, ...]) -> Answer:
    maker = host.glob("/usr/bin/nvidia-modprobe")
    seen = (
        *seen,
        Evidence("nvidia-modprobe", maker[0] if maker else "not there", "glob /usr/bin/nvidia-modprobe"),
    )
    load = Fix("Load it and make its files", ("sudo modprobe nvidia_uvm", "sudo nvidia-modprobe -c 0 -u", "docker run --gpus all ..."))  # fmt: skip
    if maker:
        return warn(
            *seen, fix=load, reason="nvidia-modprobe makes it at the first CUDA program, where it may"
        )
    return fail(*seen, fix=load, reason="cuInit ends with 999, and torch says 'CUDA unknown error'")


def _permissions(host: Probe, seen: tuple[Evidence, ...]) -> Answer:
    """What the driver sets on its files (README of the driver: DeviceFileMode), against this process's groups."""
    params = host.read_text(PARAMS)
    mode, group = nvidia.parameter(params, "DeviceFileMode"), nvidia.parameter(params, "DeviceFileGID")
    if mode is None or nvidia.parameter(params, "ModifyDeviceFiles") != 1 or mode & EVERYBODY == EVERYBODY:
        return ok(*seen)
    ours = proc.identity(host.read_text("/proc/self/status"))
    seen = (*seen, Evidence("device files", f"mode {mode:04o}, group {group}", f"read {PARAMS}"))
    if ours is None:
        return unknown("the files are not for everybody, and this process's groups could not be read", *seen)
    user, groups = ours
    if user == 0 or (mode & THE_GROUP == THE_GROUP and group in groups):
        return ok(*seen)
    join = Fix("Join the group of the device files and log in again", (f"getent group {group}", "sudo usermod -aG GROUP $USER"), Risk.RESTART)  # fmt: skip
    return fail(
        *seen, fix=join, reason="only their owner and group may open them, and this user is in neither"
    )


def _not_loaded(host: Probe, listed: tuple[PciGpu, ...], seen: tuple[Evidence, ...]) -> Answer:
    """Which reason: nouveau holds the card, no module for this kernel, an unsigned one under Secure Boot, or none of them."""
    if any(one.driver == "nouveau" for one in listed):
        seen = (*seen, Evidence("card held by", "nouveau", PCI))
        instead = Fix("Keep nouveau from loading, then reboot", ("echo 'blacklist nouveau' | sudo tee /etc/modprobe.d/no-nouveau.conf", "sudo update-initramfs -u && sudo reboot"), Risk.REBOOT)  # fmt: skip
        return fail(*seen, fix=instead, reason="nouveau holds the card, so nvidia cannot")
    kernel = next(iter(host.run(["uname", "-srm"]).out.split()[1:2]), "")
    built = [path for pattern in BUILT for path in host.glob(pattern)]
    kernels = sorted({path.split("/")[3] for path in built})
    seen = (*seen, Evidence("kernel", kernel, SYSTEM), Evidence("nvidia.ko for", ", ".join(kernels) or "no kernel", f"glob {BUILT[0]}"))  # fmt: skip
    if not built:
        tried = host.glob(TRIED)
        seen = (*seen, Evidence("build logs", len(tried), f"glob {TRIED}"))
        if tried:
            again = Fix("Read why the build failed; often a kernel newer than the driver, or no headers", (f"tail -n 30 {tried[-1]}", "sudo apt-get install linux-headers-$(uname -r)"))  # fmt: skip
            return fail(*seen, fix=again, reason="a build of the module was tried and left none")
        install = Fix("Install the driver, or pass the GPU into the container", ("sudo apt-get install nvidia-driver-580-server-open", "docker run --gpus all ..."), Risk.REBOOT)  # fmt: skip
        return fail(*seen, fix=install, reason="no NVIDIA module is installed")
    if kernel not in kernels:
        build = Fix("Build it for the running kernel", ("sudo apt-get install linux-headers-$(uname -r)", "sudo dkms autoinstall", "sudo modprobe nvidia"), Risk.REBUILD)  # fmt: skip
        return fail(*seen, fix=build, reason="the module was built for another kernel than the one that runs")
    secure = host.read_text(SECURE_BOOT)
    if secure is not None and secure.endswith("\x01"):
        seen = (*seen, Evidence("Secure Boot", "on", f"read {SECURE_BOOT}"))
        sign = Fix("Enrol the key that signed the module, or switch Secure Boot off in the firmware", ("sudo mokutil --import /var/lib/shim-signed/mok/MOK.der", "sudo reboot"), Risk.REBOOT)  # fmt: skip
        return fail(
            *seen,
            fix=sign,
            reason="a module for this kernel is there; Secure Boot refuses one whose key is not enrolled",
        )
    return fail(*seen, fix=Fix("Load it, and read what the kernel says", ("sudo modprobe nvidia", "sudo dmesg | tail -n 20")), reason="a module for this kernel is there and is not loaded")  # fmt: skip


# Why the driver did not take a card, and what to do about it.
REFUSED = {
    "open": ("this generation needs the open kernel module", Fix("Install the open kind of the same branch", ("sudo apt-get install nvidia-driver-580-server-open", "sudo reboot"), Risk.REBOOT)),
    "proprietary": ("the open kernel module serves Turing and later only", Fix("Install the proprietary kind; branch 580 is the last for these cards", ("sudo apt-get install nvidia-driver-580-server", "sudo reboot"), Risk.REBOOT)),
    "legacy": ("the card is older than this branch serves", Fix("Use another card: no branch that still serves it runs this stack")),
    "unsupported": ("this branch does not know the card", Fix("Install a branch that serves it: 580 for the oldest cards, the newest one for a new card", ("sudo apt-get install nvidia-driver-580-server-open",), Risk.REBOOT)),
    "firmware": ("the card's own firmware does not come up", Fix("Cut the power for a minute (a reboot is not enough), check seat and power leads, else have it replaced", ("sudo poweroff",), Risk.REBOOT)),
    "bar": ("the firmware of the machine gave the card no address space", Fix("Switch on 'Above 4G decoding' and 'Resizable BAR' in the machine's firmware settings", ("sudo systemctl reboot --firmware-setup",), Risk.REBOOT)),
    "gone": ("the card no longer answers on the bus", Fix("Restart cold; if it happens again check power, cooling and seat", ("sudo poweroff",), Risk.REBOOT)),
    "init": ("the driver could not start the card", Fix("Power the machine off and on; update the driver; then suspect slot and power", ("sudo dmesg | grep NVRM", "sudo poweroff"), Risk.REBOOT)),
}  # fmt: skip


@check(
    "DRIVER-008",
    layer=Layer.DRIVER,
    title="The driver has refused no card",
    why="A card of the wrong generation for the module, or one that cannot be started, is missing later without a word: 'No devices were found'.",
    source=Source(
        "NVIDIA driver installation guide: kernel modules",
        "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/610/kernel-modules.html",
        "2026-11-30",
    ),
)
def accepted(host: Probe) -> Answer:
    """Kind and branch of the module against the cards' generations, then the kernel log when nvidia-smi lists fewer cards."""
    listed, nodes = pci_gpus(host), host.glob(NODES)
    if not nodes and not listed:
        return skip(NO_GPU, Evidence("NVIDIA on PCI", None if listed is None else 0, PCI))
    text = host.read_text(MODULE)
    version, is_open = nvidia.module_version(text), nvidia.is_open_module(text)
    names = sorted({one.generation or f"device {one.device}" for one in listed or ()})
    seen: tuple[Evidence, ...] = (
        Evidence("module", None if is_open is None else f"{'open' if is_open else 'proprietary'} {version}", f"read {MODULE}"),
        Evidence("cards", ", ".join(names) or "not listed", PCI),
    )  # fmt: skip
    for one in listed or ():
        if is_open is not None and one.modules == ("proprietary" if is_open else "open"):
            return fail(
                *seen, fix=REFUSED[one.modules][1], reason=f"{one.generation}: {REFUSED[one.modules][0]}"
            )
        if version and one.last_branch and int(version.split(".")[0]) > one.last_branch:
            return fail(
                *seen,
                fix=REFUSED["proprietary"][1],
                reason=f"branch {one.last_branch} was the last for {one.generation}",
            )
    here, expected = len(nvidia.gpus(host.run(nvidia.ARGV).out)), len(nodes) or len(listed or ())
    seen = (*seen, Evidence("nvidia-smi lists", f"{here} of {expected}", GPU_QUESTION))
    if here >= expected:
        return ok(*seen)
    return _from_the_log(host, seen)


def _from_the_log(host: Probe, seen: tuple[Evidence, ...]) -> Answer:
    log, origin = gpu_readings.kernel_log(host)
    if log is None:
        return unknown(
            f"a card is missing, and the kernel log, which says why, could not be read ({origin})", *seen
        )
    found = sorted(kernel_log.refusals(log), key=lambda one: list(REFUSED).index(one.cause))
    if not found:
        start = kernel_log.begins(log)
        seen = (*seen, Evidence("refusals in the kernel log", 0, origin))
        if start is not None and start <= FIRST_SECONDS:
            return ok(*seen)
        return unknown(
            "a card is missing, and the kernel log no longer holds the time of the driver's start", *seen
        )
    first, cause = found[0], found[0].cause
    if cause == "init" and first.bus:
        path = f"/sys/bus/pci/devices/{first.bus}.0/resource"
        regions = proc.memory_regions(host.read_text(path))
        cause = "bar" if regions is not None and regions < REGIONS else "init"
        seen = (*seen, Evidence("memory regions with an address", regions, f"read {path}"))
    lines = tuple(
        Evidence(f"card {one.bus or 'not named'}", one.line, origin)
        for one in found
        if one.cause == first.cause
    )
    return fail(*seen, *lines, fix=REFUSED[cause][1], reason=REFUSED[cause][0])


CHECKS = (modules_loaded, accepted)
