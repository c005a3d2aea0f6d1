"""HOST: what kind of machine this is, and what stands between an NVIDIA card and its driver or a container."""

import json
import re

from runbook.checks.limits import OWN_GROUPS, mounts
from runbook.model import Answer, Evidence, Fix, Layer, Risk, Source, check, fail, ok, skip, unknown, warn
from runbook.parse import mounts as parse_mounts
from runbook.parse import nvidia, proc
from runbook.probe import Probe

PCI = "/proc/bus/pci/devices"
MODULES = "/proc/modules"
MODULE = "/proc/driver/nvidia/version"
VERSION = "/proc/version"
DMI = ("/sys/class/dmi/id/sys_vendor", "/sys/class/dmi/id/product_name")
LOCKDOWN = "/sys/kernel/security/lockdown"
ENFORCED = "/sys/module/module/parameters/sig_enforce"
DAEMON = "/etc/docker/daemon.json"
NODES = "/dev/nvidia[0-9]*"
MARKS = ("/.dockerenv", "/run/.containerenv")
ENGINES = ("/usr/bin/docker", "/usr/local/bin/docker", "/snap/bin/docker", "/usr/bin/podman", "/run/containerd/containerd.sock")  # fmt: skip
TOOLKIT = (
    "/usr/bin/nvidia-ctk",
    "/usr/bin/nvidia-container-runtime-hook",
    "/usr/local/nvidia/toolkit/nvidia-ctk",
)
SPECS = ("/etc/cdi/*.yaml", "/var/run/cdi/*.yaml", "/etc/cdi/*.json", "/var/run/cdi/*.json")
# Drivers that take an NVIDIA card away from NVIDIA's: the kernel's own, and the stub that passes it to a virtual machine.
OTHERS = {"nouveau": "nouveau", "nova_core": "nova_core", "NovaCore": "nova_core", "vfio-pci": "vfio-pci"}


def container(host: Probe) -> str:
    """By what sign this is a container; "" for none.

    A disk image made from a container's keeps the mark file, so a root file system that is a whole disk speaks against it.
    """
    root = parse_mounts.at(mounts(host), "/")
    disk = root is not None and root.source.startswith("/dev/") and root.root == "/"
    there = [path for path in MARKS if host.glob(path)]
    marks = [] if disk else there
    named = re.search(r"(docker)[-/]|(kubepods)|(libpod)|(lxc)", host.read_text(OWN_GROUPS) or "")
    return marks[0] if marks else (next(filter(None, named.groups())) if named else "")


@check(
    "HOST-011",
    layer=Layer.HOST,
    title="The machine is plain Linux: a machine, a virtual machine or a container, and not WSL",
    why="Who owns the driver, the limits and the memory depends on it, and so does every fix on the pages to come.",
    source=Source(
        "NVIDIA: CUDA on WSL user guide",
        "https://docs.nvidia.com/cuda/wsl-user-guide/index.html",
        "2026-11-30",
    ),
)
def kind(host: Probe) -> Answer:
    """The kernel's own words, signs of a container, and the processor's hypervisor flag."""
    text = host.read_text(VERSION) or ""
    if not text.startswith("Linux version "):
        return unknown("/proc/version does not say which kernel this is")
    inside = container(host)
    flags = proc.cpu_flags(host.read_text("/proc/cpuinfo"))
    maker = " ".join(filter(None, ((host.read_text(path) or "").strip() for path in DMI)))
    virtual = "yes" if "hypervisor" in flags else ("no" if "fpu" in flags else None)
    seen = (
        Evidence("kernel", text.split()[2], f"read {VERSION}"),
        Evidence("container", inside or "no sign of one", f"read {OWN_GROUPS}"),
        Evidence("virtual machine", virtual, "read /proc/cpuinfo"),
        Evidence("maker", maker or "not told", f"read {DMI[0]}"),
    )
    if "microsoft" not in text.lower():
        return ok(*seen)
    library = host.glob("/usr/lib/wsl/lib/libcuda.so*")
    evidence = (*seen, Evidence("Windows' driver", library[0] if library else "not there", "glob /usr/lib/wsl/lib/libcuda.so*"))  # fmt: skip
    if "wsl2" not in text.lower():
        return fail(
            *evidence,
            fix=Fix("Convert it, in a Windows shell", ("wsl --set-version DISTRIBUTION 2",), Risk.RESTART),
            reason="WSL 1 has no GPU and no Linux kernel",
        )
    return warn(
        *evidence,
        fix=Fix("Set memory= in %UserProfile%\\.wslconfig, then restart", ("wsl --shutdown",), Risk.RESTART),
        reason="WSL: install no NVIDIA driver in it, it is Windows'; half the memory by default; vLLM does not pin memory",
    )


@check(
    "HOST-012",
    layer=Layer.HOST,
    title="No other driver holds the NVIDIA card",
    why="While nouveau has it, NVIDIA's module cannot take it; a card that is passed to a virtual machine is gone as well.",
    source=Source(
        "NVIDIA driver README: interaction with the nouveau driver",
        "https://download.nvidia.com/XFree86/Linux-x86_64/580.65.06/README/commonproblems.html",
        "2026-11-30",
    ),
)
def free_card(host: Probe) -> Answer:
    """The driver column of the PCI list, and loaded modules."""
    drivers = proc.pci_drivers(host.read_text(PCI))
    loaded = proc.modules(host.read_text(MODULES))
    if not drivers:
        return skip(
            "no NVIDIA card on the PCI bus that can be seen"
            if drivers is None
            else "no NVIDIA card on the PCI bus"
        )
    seen = (
        Evidence("held by", " ".join(sorted({name or "no driver" for name in drivers})), f"read {PCI}"),
        Evidence(
            "nouveau loaded",
            None if loaded is None else bool({"nouveau", "nova_core"} & loaded),
            f"read {MODULES}",
        ),
    )
    if passed := [name for name in drivers if name == "vfio-pci"]:
        give = Fix("Take it out of the virtual machine's settings, or use another card", risk=Risk.REBOOT)
        every = len(passed) == len(drivers)
        why = f"{len(passed)} of {len(drivers)} cards reserved for virtual machines"
        return fail(*seen, fix=give, reason=why) if every else warn(*seen, fix=give, reason=why)
    held = [name for name in drivers if name in OTHERS]
    if not held and loaded is None and not any(drivers):
        return unknown(f"{MODULES} cannot be read, and no driver holds the card", *seen)
    ban = Fix(
        "Forbid it, build the boot image again, and reboot",
        (
            "printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' | sudo tee /etc/modprobe.d/no-nouveau.conf",
            "sudo update-initramfs -u || sudo dracut --force",
            "sudo reboot",
        ),
        Risk.REBOOT,
        "sudo rm /etc/modprobe.d/no-nouveau.conf, then the same two commands",
    )
    taken = bool(held) or (
        "nvidia" not in drivers and bool({"nouveau", "nova_core"} & (loaded or frozenset()))
    )
    return fail(*seen, fix=ban) if taken else ok(*seen)


@check(
    "HOST-013",
    layer=Layer.HOST,
    title="The kernel has loaded NVIDIA's module, or would load one without a signature",
    why="Under secure boot a module that DKMS built is refused until its key is enrolled, and nothing says so to the user.",
    source=Source(
        "Linux: kernel lockdown, unsigned modules",
        "https://man7.org/linux/man-pages/man7/kernel_lockdown.7.html",
        "2026-11-30",
    ),
)
def signatures(host: Probe) -> Answer:
    """Lockdown and sig_enforce are what secure boot comes to; both are plain text. They matter only while no module is loaded."""
    drivers = proc.pci_drivers(host.read_text(PCI))
    if not drivers:
        return skip("no NVIDIA card on the PCI bus that can be seen")
    loaded = proc.modules(host.read_text(MODULES))
    lockdown = re.search(r"\[(\w+)\]", host.read_text(LOCKDOWN) or "")
    enforced = (host.read_text(ENFORCED) or "").strip()
    there = "nvidia" in drivers or "nvidia" in (loaded or frozenset())
    seen = (
        Evidence("nvidia loaded", there if there or loaded is not None else None, f"read {MODULES}"),
        Evidence("lockdown", lockdown.group(1) if lockdown else "not told", f"read {LOCKDOWN}"),
        Evidence("sig_enforce", enforced if enforced in ("Y", "N") else "not told", f"read {ENFORCED}"),
    )
    if there:
        return ok(*seen)
    strict = enforced == "Y" or bool(lockdown and lockdown.group(1) in ("integrity", "confidentiality"))
    if strict:
        enrol = Fix(
            "Enrol the key that DKMS signs with, or install modules your distribution signed",
            ("sudo mokutil --import /var/lib/dkms/mok.pub", "sudo reboot"),
            Risk.REBOOT,
            "sudo mokutil --delete /var/lib/dkms/mok.pub",
        )
        return warn(*seen, fix=enrol, reason="no module is loaded, and the kernel takes signed ones only")
    if loaded is None or (lockdown is None and enforced != "N"):
        return unknown("neither lockdown nor sig_enforce could be read", *seen)
    return ok(*seen)


def _nvidia_runtime(text: str | None) -> bool:
    """True when Docker's configuration names NVIDIA's runtime."""
    try:
        found = json.loads(text or "")
    except (ValueError, RecursionError):
        return False
    runtimes = found.get("runtimes") if isinstance(found, dict) else None
    return isinstance(runtimes, dict) and "nvidia" in runtimes


def _stale(host: Probe, specs: list[str]) -> tuple[Evidence, ...]:
    """The loaded driver and the first CDI description that names another; empty when all fit or none can be told."""
    module = nvidia.module_version(host.read_text(MODULE)) if specs else None
    for path in specs if module else ():
        found = sorted(set(re.findall(r"libcuda\.so\.(\d+\.[\d.]*\d)", host.read_text(path) or "")))
        if found and module not in found:
            loaded = Evidence("driver loaded", module, f"read {MODULE}")
            return loaded, Evidence(f"driver in {path}", " ".join(found), f"read {path}")
    return ()


@check(
    "HOST-014",
    layer=Layer.HOST,
    title="Containers on this machine can be given the GPU",
    why="Without NVIDIA's toolkit 'docker run --gpus all' ends with 'could not select device driver'.",
    source=Source(
        "NVIDIA Container Toolkit: installation and configuration",
        "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html",
        "2026-11-30",
    ),
)
def toolkit(host: Probe) -> Answer:
    """Engines and the toolkit as files; a CDI description must be of the driver that is loaded."""
    engines = [path for path in ENGINES if host.glob(path)]
    sign = container(host)
    if not host.glob(NODES) or sign or not engines:
        if sign:
            return skip(f"this is a container ({sign}): the toolkit belongs on its host")
        return skip(
            "no container engine on this machine" if not engines else "no GPU that a container could be given"
        )
    tools = [path for path in TOOLKIT if host.glob(path)]
    specs = [path for pattern in SPECS for path in host.glob(pattern)]
    named = _nvidia_runtime(host.read_text(DAEMON))
    seen = (
        Evidence(
            "engines", " ".join(sorted({path.rsplit("/", 1)[1] for path in engines})), f"glob {engines[0]}"
        ),
        Evidence("toolkit", tools[0] if tools else "not there", f"glob {TOOLKIT[0]}"),
        Evidence("runtime in Docker's settings", named, f"read {DAEMON}"),
        Evidence("CDI descriptions", " ".join(specs) or "none", f"glob {SPECS[0]}"),
    )
    if not tools:
        install = Fix(
            "Install the toolkit (its repository: see the source), then configure the engine",
            (
                "sudo apt-get install nvidia-container-toolkit",
                "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker",
            ),
            Risk.RESTART,
        )
        return warn(
            *seen,
            fix=install,
            reason="the runbook itself runs without containers; docker run --gpus will not",
        )
    if not named and not specs:
        configure = Fix(
            "Configure the engine",
            ("sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker",),
            Risk.RESTART,
        )
        return warn(*seen, fix=configure, reason="the toolkit is there and no engine was told")
    if stale := _stale(host, specs):
        path = stale[-1].name.removeprefix("driver in ")
        renew = Fix(
            "Describe the devices again", (f"sudo nvidia-ctk cdi generate --output={path}",), Risk.NONE
        )
        return warn(
            *seen,
            *stale,
            fix=renew,
            reason="the description is of another driver: its libraries are not found",
        )
    return ok(*seen)


CHECKS = (kind, free_card, signatures, toolkit)
