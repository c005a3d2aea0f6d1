"""DRIVER: the kernel modules, the counts of the cards and their state, from readings of an H200 and changes to them."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from host import FAIL, GPU, H200, MISSING, NODES, OK, SKIP, SMI, UNKNOWN, WARN, Case, Row, ran, table

from runbook.checks.gpu_readings import LINKS, LISTING, PEERS, XML_QUESTION
from runbook.parse import kernel_log
from runbook.probes import questions

XML = XML_QUESTION
PCI, MODULES, MODULE, PARAMS, STATUS = (
    "read /proc/bus/pci/devices",
    "read /proc/modules",
    "read /proc/driver/nvidia/version",
    "read /proc/driver/nvidia/params",
    "read /proc/self/status",
)
UNAME, FILES, MAKER, GPU_FILES = (
    "run uname -srm",
    "glob /dev/nvidia*",
    "glob /usr/bin/nvidia-modprobe",
    "glob /proc/driver/nvidia/gpus/*/information",
)
DMESG, JOURNAL = questions.run(kernel_log.DMESG), questions.run(kernel_log.JOURNAL)
TOPO, ACCESS, LIST = questions.run(LINKS), questions.run(PEERS), questions.run(LISTING)
IOMMU, ASKED, VISIBLE, PATHS = (
    "glob /sys/class/iommu/*",
    "env NVIDIA_VISIBLE_DEVICES",
    "env CUDA_VISIBLE_DEVICES",
    "env LD_LIBRARY_PATH",
)
LINUX, WSL = "Linux 6.8.0-48-generic x86_64\n", "Linux 5.15.153.1-microsoft-standard-WSL2 x86_64\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (root@host)\nGCC version:  gcc version 13.3.0\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Tue Sep 16 04:46:04 UTC 2025\n"
LOADED = "nvidia_uvm 1830912 0 - Live 0x0000000000000000 (O)\nnvidia 14299136 1 nvidia_uvm, Live 0x0000000000000000 (O)\n"
TWO = H200 + H200.replace("0, NVIDIA", "1, NVIDIA", 1)
ALL_FILES = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


def pci(*cards: tuple[str, str]) -> str:
    """Lines of the bus: (device id, driver)."""
    zeros = "\t".join(["0"] * 14)
    return "0000\t80860d57\t0\t" + zeros + "\t\n" + "".join(f"{8 * (place + 6):04x}\t10de{device}\t1d\t{zeros}\t{driver}\n" for place, (device, driver) in enumerate(cards))  # fmt: skip


BUS = pci(("2335", "nvidia"))
ON_BUS: dict[str, Any] = {PCI: BUS, NODES: ("/dev/nvidia0",), UNAME: LINUX}
SAID = (Path(__file__).parents[1] / "data" / "nvidia" / "h200-x2.xml").read_text(encoding="utf-8")


def smi(*pairs: tuple[str, str], cards: int = 1, edited: int = 9, text: str = SAID) -> str:
    """What two H200s said, ``cards`` of them left, with other texts in elements (``path/of/element``) of the first ones."""
    parts = text.split("\t<gpu ")
    text = "\t<gpu ".join(parts[: cards + 1]).removesuffix("</nvidia_smi_log>\n") + (
        "" if cards > 1 else "</nvidia_smi_log>\n"
    )
    text = text if text.rstrip().endswith("</nvidia_smi_log>") else text + "</nvidia_smi_log>\n"
    for path, new in pairs:
        names = path.split("/")
        opening = r".*?".join(rf"<{name}>" for name in names)
        text, count = re.subn(rf"(?s)({opening}).*?(</{names[-1]}>)", rf"\g<1>{new}\g<2>", text, count=edited)
        assert count, path
    return text


def without(*elements: str, cards: int = 1) -> str:
    """The same without some elements, as older drivers print it."""
    text = smi(cards=cards)
    for name in elements:
        text, count = re.subn(rf"(?s)\s*<{name}>.*?</{name}>", "", text)
        assert count, name
    return text


INSTANCE = (
    "<mig_device><index>{0}</index><gpu_instance_id>{0}</gpu_instance_id><compute_instance_id>0</compute_instance_id>"
    "<device_attributes><shared><multiprocessor_count>16</multiprocessor_count></shared></device_attributes>"
    "<fb_memory_usage><total>16384 MiB</total><used>9 MiB</used></fb_memory_usage></mig_device>"
)
MIG_ON = (("mig_mode/current_mig", "Enabled"), ("mig_mode/pending_mig", "Enabled"))
NO_XML: list[Row] = [
    Row("nvidia-smi is gone", UNKNOWN, {XML: MISSING}, says="not on PATH"),
    Row("it hangs", UNKNOWN, {XML: ran(rc=-9, timed_out=True)}, says="in time"),
    Row("it fails", UNKNOWN, {XML: ran("Unable to determine the device handle for GPU0: 0000:00:06.0: Unknown Error\n", rc=15)}, says="exit code 15"),
    Row("the report is cut short", UNKNOWN, {XML: smi()[:9000]}),
    Row("no card in it", UNKNOWN, {XML: "<nvidia_smi_log><attached_gpus>0</attached_gpus></nvidia_smi_log>"}),
]  # fmt: skip


def cards_table(check_id: str, base: dict[str, Any], *rows: Row) -> list[Case]:
    """Cases of a check that judges the report; every one of them is unknown without it."""
    return table(check_id, base, *rows, *NO_XML, stack=GPU)


CACHE = "run /sbin/ldconfig -p"
CACHED = "\tlibnvidia-ml.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1\n\tlibnvidia-ml.so.1 (libc6) => /usr/lib/i386-linux-gnu/libnvidia-ml.so.1\n"
IN_LIB = "glob /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.*"
HERE = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so."
EMPTY: dict[str, Any] = {
    "glob /usr/lib*/libnvidia-ml.so.*": (), "glob /usr/lib/*-linux-gnu/libnvidia-ml.so.*": (),
    "glob /usr/lib*/libcuda.so.*": (), "glob /usr/lib/*-linux-gnu/libcuda.so.*": (),
}  # fmt: skip
FOLDER = "/usr/local/nvidia/lib64"
MISMATCH = ran(
    "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.159\n", rc=18
)

AGREEING = [
    *table(
        "DRIVER-001",
        {PCI: "", NODES: (), UNAME: WSL},
        Row("WSL with its device", OK, {"glob /dev/dxg": ("/dev/dxg",)}, {"Windows' device": "/dev/dxg"}),
        Row("WSL without a card", SKIP, {"glob /dev/dxg": ()}, says="under WSL"),
    ),
    *table(
        "DRIVER-002",
        {},
        Row("one card of two is lost", FAIL, {SMI: ran(H200 + "Unable to determine the device handle for GPU1: 0000:00:07.0: Unknown Error\n", rc=15)}, {"nvidia-smi said": "Unable to determine the device handle for GPU1: 0000:00:07.0: Unknown Error"}, says="Xid"),
        Row("no card was taken", FAIL, {SMI: ran("No devices were found\n", rc=6)}, says="DRIVER-008"),
        Row("no module", FAIL, {SMI: ran("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", rc=9)}, says="DRIVER-007"),
        Row("a container that lost its devices", FAIL, {SMI: ran("Failed to initialize NVML: Unknown Error\n", rc=255)}, says="docker restart"),
    ),
    *table(
        "DRIVER-003",
        {UNAME: LINUX, PATHS: None, CACHE: CACHED, MODULE: OPEN.format("580.159.04"), IN_LIB: (HERE + "1", HERE + "580.159.04")},
        Row("both of one release", OK, {}, {"module": "580.159.04", "library": "580.159.04", "file": HERE + "1"}),
        Row("closed module", OK, {MODULE: CLOSED.format("580.159.04")}, {"module": "580.159.04"}),
        Row("upgraded, not restarted: nvidia-smi fails and is not asked", FAIL, {MODULE: OPEN.format("580.126.09"), SMI: MISMATCH}, {"module": "580.126.09", "library": "580.159.04"}, says="Reboot"),
        Row("a patched module of another point release", FAIL, {MODULE: OPEN.format("570.124.06"), IN_LIB: (HERE + "1", HERE + "570.124.04")}, {"library": "570.124.04"}),
        Row("the container's path comes first", OK, {PATHS: FOLDER, f"glob {FOLDER}/lib*.so.*": (f"{FOLDER}/libnvidia-ml.so.1", f"{FOLDER}/libnvidia-ml.so.580.159.04"), IN_LIB: (HERE + "1", HERE + "550.54.14")}, {"file": f"{FOLDER}/libnvidia-ml.so.1"}),
        Row("files of two releases, the link is the old one", FAIL, {IN_LIB: (HERE + "1", HERE + "550.54.14", HERE + "580.159.04"), f"run readlink -f {HERE}1": HERE + "550.54.14\n"}, {"library": "550.54.14"}),
        Row("no NVML: a compute-only container's libcuda", FAIL, {CACHE: "\tlibcuda.so.1 (libc6,x86-64) => /usr/lib64/libcuda.so.1\n", **EMPTY, "glob /usr/lib64/libcuda.so.*": ("/usr/lib64/libcuda.so.1", "/usr/lib64/libcuda.so.550.54.14")}, {"library": "550.54.14"}),
        Row("a compat libcuda says nothing of the driver", UNKNOWN, {CACHE: "\tlibcuda.so.1 (libc6,x86-64) => /usr/local/cuda/compat/libcuda.so.1\n", **EMPTY, "glob /usr/local/cuda/compat/libcuda.so.*": ("/usr/local/cuda/compat/libcuda.so.1", "/usr/local/cuda/compat/libcuda.so.580.82.07"), SMI: MISSING}, {"library": None}),
        Row("no file is found and nvidia-smi works", OK, {CACHE: MISSING, **EMPTY, SMI: H200}, {"library": "580.159.04"}),
        Row("no file is found and nvidia-smi does not work", UNKNOWN, {CACHE: MISSING, **EMPTY, SMI: MISMATCH}, {"library": None}),
        Row("no module", UNKNOWN, {MODULE: None}, says="DRIVER-007"),
        Row("WSL", SKIP, {UNAME: WSL}),
    ),
    *table(
        "DRIVER-004",
        {SMI: TWO},
        Row("a MIG slice, for the vLLM that counts", FAIL, {VISIBLE: "MIG-8932f937-d72c-4106-c12f-20bd9faed9f6"}, says="invalid literal"),
        Row("a card's UUID, for the vLLM that counts", FAIL, {VISIBLE: "GPU-8932f937,1"}, says="by index"),
        Row("an index, for the vLLM that counts", OK, {VISIBLE: "1"}),
        Row("one card twice", FAIL, {VISIBLE: "0,0"}, says="each once"),
        stack=GPU,
    ),
    *table(
        "DRIVER-005",
        {SMI: H200.replace(" 0, 0,", " 130497, 0,")},
        Row("a program holds it", WARN, {XML: smi(("processes", "<process_info><pid>7</pid><type>C</type><process_name>/home/x/venv/bin/python a.py --key=1</process_name><used_memory>130488 MiB</used_memory></process_info>"))}, {"held on GPU 0": "130488 MiB by python (pid 7)"}, says="somebody else's"),
        Row("a program without a name", WARN, {XML: smi(("processes", "<process_info><pid>7</pid><type>C</type><process_name></process_name><used_memory>9 MiB</used_memory></process_info>"))}, {"held on GPU 0": "9 MiB by a program without a name (pid 7)"}),
        Row("nobody to be seen", WARN, {XML: smi()}, says="from within a container"),
        Row("no report", WARN, {XML: MISSING}, says="cannot be seen"),
    ),
    *table(
        "DRIVER-009",
        {PCI: pci(("2335", "nvidia"), ("2335", "nvidia")), NODES: ("/dev/nvidia0", "/dev/nvidia1"), GPU_FILES: ("a", "b"), SMI: TWO, ASKED: None, UNAME: LINUX},
        Row("two everywhere", OK, {}, {"on PCI": 2, "held by the driver": 2, "device files": 2, "nvidia-smi": 2, "NVIDIA_VISIBLE_DEVICES": "not set"}),
        Row("a container with one of two", OK, {NODES: ("/dev/nvidia1",), GPU_FILES: ("b",), SMI: H200, ASKED: "1"}, {"on PCI": 2, "nvidia-smi": 1}),
        Row("a container by UUID", OK, {NODES: ("/dev/nvidia1",), SMI: H200, ASKED: "GPU-8932f937"}),
        Row("switches are no cards", OK, {PCI: pci(("2335", "nvidia"), ("2335", "nvidia"), ("22a3", "nvidia-nvswitch"), ("22a3", ""))}, {"on PCI": 2}),
        Row("no PCI list", OK, {PCI: None}, {"on PCI": None}),
        Row("one fell off and the list ends", FAIL, {SMI: ran("Unable to determine the device handle for GPU0000:0B:00.0: Unknown Error\n", rc=15)}, {"nvidia-smi": 0, "nvidia-smi said": "Unable to determine the device handle for GPU0000:0B:00.0: Unknown Error"}, says="fell off the bus"),
        Row("one fell off and the rest is listed", FAIL, {SMI: H200}, {"device files": 2, "nvidia-smi": 1}),
        Row("a GPU is lost", FAIL, {SMI: ran(TWO + "GPU is lost. Reboot the system to recover this GPU\n", rc=15)}),
        Row("nvidia-smi fails altogether", SKIP, {SMI: MISMATCH}, says="DRIVER-002"),
        Row("nvidia-smi is not there", SKIP, {SMI: MISSING}),
        Row("a privileged container sees more than it was given", WARN, {ASKED: "0"}, says="started for 1 GPUs and sees 2"),
        Row("a card without its file", WARN, {NODES: ("/dev/nvidia0",)}, says="CUDA cannot open"),
        Row("a card given to a guest", WARN, {PCI: pci(("2335", "nvidia"), ("2335", "nvidia"), ("2335", "vfio-pci"))}, says="vfio-pci"),
        Row("WSL", SKIP, {UNAME: WSL}),
    ),
]  # fmt: skip

KO = "/lib/modules/{}/updates/dkms/nvidia.ko.zst"
BUILT = {f"glob {pattern}": () for pattern in ("/lib/modules/*/updates/dkms/nvidia.ko*", "/lib/modules/*/kernel/nvidia-*/nvidia.ko*", "/lib/modules/*/kernel/drivers/video/nvidia.ko*", "/lib/modules/*/extra/nvidia.ko*", "/lib/modules/*/extra/nvidia*/nvidia.ko*")}  # fmt: skip
DKMS, LOGS = "glob /lib/modules/*/updates/dkms/nvidia.ko*", "glob /var/lib/dkms/nvidia/*/build/make.log"
SECURE = "read /sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
NOT_LOADED: dict[str, Any] = {MODULE: None, MODULES: "ext4 1 0 - Live 0x0\n", FILES: (), NODES: (), **BUILT, LOGS: (), SECURE: None}  # fmt: skip
GROUP_ONLY = "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 44\nDeviceFileMode: 432\n"
ME = "Name:\tpython\nUid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\nGroups:\t{}\n"
REFUSED = (
    "[    5.499014] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.105.08\n"
    "[    5.559842] NVRM: The NVIDIA GPU 0000:02:00.0 (PCI ID: 10de:2b85)\n{}"
    "[    5.559858] NVRM: GPU 0000:02:00.0: RmInitAdapter failed! (0x22:0x56:884)\n"
)
REGION = "0x{:016x} 0x{:016x} 0x{:016x}\n"
RESOURCE = "read /sys/bus/pci/devices/0000:02:00.0/resource"
REGIONS = REGION.format(0xF0000000, 0xF0FFFFFF, 0x40200) + REGION.format(0x4000000000, 0x47FFFFFFFF, 0x14220C) + REGION.format(0, 0, 0) + REGION.format(0x4800000000, 0x4801FFFFFF, 0x14220C)  # fmt: skip

TAKEN = [
    *table(
        "DRIVER-007",
        {**ON_BUS, MODULES: LOADED, MODULE: OPEN.format("580.159.04"), FILES: ALL_FILES, PARAMS: "DeviceFileMode: 438\nModifyDeviceFiles: 1\n"},
        Row("all there", OK, {}, {"nvidia": "loaded", "nvidia_uvm": "loaded", "/dev/nvidiactl": "there", "/dev/nvidia-uvm": "there"}),
        Row("a container that cannot see the module list", OK, {MODULES: None}, {"nvidia": "loaded", "nvidia_uvm": "not loaded"}),
        Row("no card", SKIP, {PCI: "0000\t80860d57\t0\n", NODES: ()}),
        Row("no PCI list and no file", SKIP, {PCI: None, NODES: ()}),
        Row("no uvm in a container", FAIL, {FILES: ALL_FILES[:2], MAKER: ()}, {"/dev/nvidia-uvm": "missing"}, says="999"),
        Row("no uvm yet, and a tool that makes it", WARN, {FILES: ALL_FILES[:2], MAKER: ("/usr/bin/nvidia-modprobe",)}, says="nvidia-modprobe makes it"),
        Row("the module runs, the container was not given the card", FAIL, {FILES: (), NODES: ()}, says="--gpus all"),
        Row("files for a group, and the user is in it", OK, {PARAMS: GROUP_ONLY, STATUS: ME.format("4 44")}, {"device files": "mode 0660, group 44"}),
        Row("files for a group, and the user is not", FAIL, {PARAMS: GROUP_ONLY, STATUS: ME.format("4 27")}, says="Join the group"),
        Row("files for a group, and the user is root", OK, {PARAMS: GROUP_ONLY, STATUS: ME.format("").replace("Uid:\t1000\t1000", "Uid:\t0\t0")}),
        Row("files for a group, and no word of the user", UNKNOWN, {PARAMS: GROUP_ONLY, STATUS: None}),
        Row("udev sets the mode", OK, {PARAMS: GROUP_ONLY.replace("Files: 1", "Files: 0")}),
        Row("nothing installed", FAIL, NOT_LOADED, {"nvidia": "not loaded", "nvidia.ko for": "no kernel"}, says="no NVIDIA module is installed"),
        Row("a build that failed", FAIL, {**NOT_LOADED, LOGS: ("/var/lib/dkms/nvidia/550.54/build/make.log",)}, says="a build of the module was tried"),
        Row("built for another kernel", FAIL, {**NOT_LOADED, DKMS: (KO.format("6.8.0-47-generic"),)}, {"kernel": "6.8.0-48-generic", "nvidia.ko for": "6.8.0-47-generic"}, says="dkms autoinstall"),
        Row("Secure Boot refuses it", FAIL, {**NOT_LOADED, DKMS: (KO.format("6.8.0-48-generic"),), SECURE: "\x06\0\0\0\x01"}, {"Secure Boot": "on"}, says="mokutil"),
        Row("not loaded, nothing in the way", FAIL, {**NOT_LOADED, DKMS: (KO.format("6.8.0-48-generic"),), SECURE: "\x06\0\0\0\0"}, says="modprobe nvidia"),
        Row("nouveau holds the card", FAIL, {**NOT_LOADED, PCI: pci(("2335", "nouveau"))}, {"card held by": "nouveau"}, says="blacklist"),
    ),
    *table(
        "DRIVER-008",
        {**ON_BUS, MODULE: OPEN.format("580.159.04"), SMI: H200},
        Row("an H200 and the open module", OK, {}, {"module": "open 580.159.04", "cards": "Hopper", "nvidia-smi lists": "1 of 1"}),
        Row("an H200 and the proprietary one", OK, {MODULE: CLOSED.format("580.159.04")}, {"module": "proprietary 580.159.04"}),
        Row("a card too new for the table", OK, {PCI: pci(("3fff", "nvidia"))}, {"cards": "device 3fff"}),
        Row("no PCI list", OK, {PCI: None}, {"cards": "not listed"}),
        Row("no card", SKIP, {PCI: "", NODES: ()}),
        Row("Blackwell and the proprietary module", FAIL, {PCI: pci(("2b85", "nvidia")), MODULE: CLOSED.format("580.159.04")}, {"cards": "Blackwell"}, says="needs the open kernel module"),
        Row("Grace Hopper and the proprietary module", FAIL, {PCI: pci(("2342", "nvidia")), MODULE: CLOSED.format("560.35.03")}, {"cards": "Grace Hopper"}),
        Row("Volta and the open module", FAIL, {PCI: pci(("1db6", "nvidia")), MODULE: OPEN.format("580.159.04")}, says="Turing and later only"),
        Row("Volta and the proprietary module", OK, {PCI: pci(("1db6", "nvidia")), MODULE: CLOSED.format("580.159.04")}, {"cards": "Volta"}),
        Row("Pascal and a branch that dropped it", FAIL, {PCI: pci(("1b80", "nvidia")), MODULE: CLOSED.format("590.48.01")}, says="580 was the last"),
        Row("the log says that the open module is needed", FAIL, {SMI: "No devices were found\n", PCI: None, DMESG: REFUSED.format("               NVRM: installed in this system requires use of the NVIDIA open kernel modules.\n")}, {"card 0000:02:00": "installed in this system requires use of the NVIDIA open kernel modules."}, says="needs the open"),
        Row("the log says that the card has no room", FAIL, {SMI: ran("No devices were found\n", rc=6), DMESG: REFUSED.format(""), RESOURCE: REGION.format(0xF0000000, 0xF0FFFFFF, 0x40200) + REGION.format(0, 0, 0) * 5}, {"memory regions with an address": 1}, says="Above 4G"),
        Row("the card cannot be started", FAIL, {SMI: ran("No devices were found\n", rc=6), DMESG: REFUSED.format(""), RESOURCE: REGIONS}, {"memory regions with an address": 3}, says="could not start the card"),
        Row("the card's firmware does not come up", FAIL, {SMI: "", DMESG: REFUSED.format("[    5.6] NVRM: gpuWaitForGfwBootComplete_TU102: failed to wait for GFW_BOOT: (progress 0x3)\n")}, says="Cut the power"),
        Row("one card of two is missing and the log is silent", OK, {PCI: pci(("2335", "nvidia"), ("2335", "nvidia")), NODES: ("/dev/nvidia0", "/dev/nvidia1"), DMESG: "[    0.000000] Linux\n[    1.0] NVRM: loading\n"}, {"nvidia-smi lists": "1 of 2", "refusals in the kernel log": 0}),
        Row("one is missing and the log has lost the start", UNKNOWN, {NODES: ("/dev/nvidia0", "/dev/nvidia1"), DMESG: "[99999.000000] usb 1-1\n"}, says="no longer holds"),
        Row("one is missing and the log may not be read", UNKNOWN, {SMI: MISMATCH, DMESG: ran(rc=1, err="dmesg: read kernel buffer failed: Operation not permitted\n"), JOURNAL: MISSING}, says="Operation not permitted"),
    ),
]  # fmt: skip

XID = "[ {0}] NVRM: Xid (PCI:0000:00:06): {1}, pid=4242, name=python3, words\n"
START = "[    0.000000] Linux version 6.8.0\n[    0.669332] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04\n"
DENIED = {DMESG: ran(rc=1, err="dmesg: read kernel buffer failed: Operation not permitted\n"), JOURNAL: ran(rc=1, err="No journal files were opened due to insufficient permissions.\n")}  # fmt: skip
OLD = ("gpu_recovery_action",)
SWITCHES, MANAGER = "glob /dev/nvidia-nvswitch[0-9]*", "read /run/nvidia-fabricmanager/nv-fabricmanager.pid"
NO_FABRIC = (("fabric/state", "N/A"), ("fabric/status", "N/A"))
LINKED = "\t\x1b[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\nGPU0\t X \tNV18\t0-31\t0\t\tN/A\nGPU1\tNV18\t X \t0-31\t0\t\tN/A\n\nLegend:\n\n  X    = Self\n"
REACHED = " \t\x1b[4mGPU0\tGPU1\t\x1b[0m\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n"


def changed(change: Callable[[str], str], cards: int = 2) -> str:
    """The report of several cards with a change to the last one."""
    head, mark, last = smi(cards=cards).rpartition("\t<gpu ")
    return head + mark + change(last)


HEALTH = [
    *table(
        "DRIVER-010",
        {XML: smi(), DMESG: START, NODES: ("/dev/nvidia0",)},
        Row("no Xid", OK, {}, {"Xid lines": 0, "log begins at (s)": 0.0}),
        Row("a line that only speaks of them", OK, {DMESG: START + "[ 2.0] NVRM: Xid reporting is on\n"}, {"Xid lines": 0}),
        Row("events that ask for nothing", OK, {DMESG: START + XID.format("9.5", 45) * 3 + XID.format("9.6", 43)}, {"Xid 45 of 0000:00:06": "3 x, last at 10 s: Preemptive cleanup due to previous errors"}),
        Row("a program's fault", WARN, {DMESG: START + XID.format("9.5", 31)}, says="Restart the application"),
        Row("a number no table has", WARN, {DMESG: START + XID.format("9.5", 4711)}, says="not in the table"),
        Row("fallen off the bus", FAIL, {XML: MISSING, DMESG: START + XID.format("3611.4", 79)}, {"Xid 79 of 0000:00:06": "1 x, last at 3611 s: GPU has fallen off the bus"}, says="sudo reboot"),
        Row("a memory error, and the driver wants a reset", FAIL, {XML: smi(("gpu_recovery_action", "Reset")), DMESG: START + XID.format("3.4", 95)}, says="--gpu-reset -i 0000:00:06.0"),
        Row("a memory error, and the card was reset since", WARN, {DMESG: START + XID.format("3.4", 95)}, says="Xid 95"),
        Row("the worst comes first", FAIL, {XML: without(*OLD), DMESG: START + XID.format("3.4", 31) + XID.format("3.5", 119) + XID.format("3.6", 45)}, says="Xid 119"),
        Row("another card of the machine, not this container's", WARN, {XML: without(*OLD), DMESG: START + XID.format("3.4", 79).replace("00:06", "3b:00")}, {"Xid 79 of 0000:3b:00": "1 x, last at 3 s: GPU has fallen off the bus"}),
        Row("another card, and one of ours is missing", FAIL, {NODES: ("/dev/nvidia0", "/dev/nvidia1"), DMESG: START + XID.format("3.4", 79).replace("00:06", "3b:00")}),
        Row("an old form of the line", FAIL, {XML: without(*OLD), DMESG: "NVRM: Xid (0000:00:06): 62, 0cb5(2d50) 8503a06c\n"}, {"Xid 62 of 0000:00:06": "1 x: Internal microcontroller halt"}),
        Row("a switch's fatal error", FAIL, {DMESG: START + "[ 9.1] nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 12028, Fatal, Link 32 egress\n"}, {"SXid 12028 of 0000:c3:00": "1 x, last at 9 s"}, says="fabric manager"),
        Row("a switch's smaller error", WARN, {DMESG: START + "[ 9.1] nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20009, Non-fatal, Link 28 RX\n"}),
        Row("only the journal may be read", FAIL, {XML: without(*OLD), **DENIED, JOURNAL: "[    3.400000] box kernel: NVRM: Xid (PCI:0000:00:06): 109, pid=1\n"}, {"Xid 109 of 0000:00:06": "1 x, last at 3 s: Context switch timeout"}),
        Row("no log, and the driver asks for nothing", OK, DENIED, {"kernel log": "not readable: dmesg: dmesg: read kernel buffer failed: Operation not permitted", "GPU 0 asks for": "no action"}),
        Row("no log, and the driver asks for a reset", FAIL, {**DENIED, XML: smi(("gpu_recovery_action", "Drain and Reset"))}, says="Drain and Reset"),
        Row("no log, and a driver that names no action", UNKNOWN, {**DENIED, XML: without(*OLD)}, says="565"),
        Row("no log and no report", UNKNOWN, {DMESG: MISSING, JOURNAL: MISSING, XML: MISSING}),
        Row("an empty log", UNKNOWN, {DMESG: "", JOURNAL: "", XML: MISSING}),
        stack=GPU,
    ),
    *cards_table(
        "DRIVER-011",
        {XML: smi()},
        Row("a sound card", OK, {}, {"GPU 0 asks for": "no action", "GPU 0 rows remapped": 0, "GPU 0 uncorrectable, ever": 0}),
        Row("two that say the same", OK, {XML: smi(cards=2)}, {"GPU 0-1 asks for": "no action"}),
        Row("rows that were replaced long ago", OK, {XML: smi(("remapped_rows/remapped_row_unc", "2"), ("aggregate/dram_uncorrectable", "5"))}, {"GPU 0 rows remapped": 2, "GPU 0 uncorrectable, ever": 5}),
        Row("a GeForce", OK, {XML: smi(("remapped_rows", "N/A"), ("ecc_errors", "<volatile><dram_uncorrectable>N/A</dram_uncorrectable></volatile>"))}, {"GPU 0 asks for": "no action"}),
        Row("a GeForce with an old driver", SKIP, {XML: without(*OLD, "remapped_rows", "ecc_errors", "retired_pages")}, says="565"),
        Row("a row waits", WARN, {XML: smi(("remapped_rows/remapped_row_pending", "Yes"))}, says="next reset"),
        Row("a page waits", WARN, {XML: smi(("retired_pages/pending_retirement", "Yes"))}, says="next reset"),
        Row("a page waits, as old drivers say it", WARN, {XML: smi(("retired_pages/pending_blacklist", "Yes"))}),
        Row("a channel waits for repair", WARN, {XML: smi(("ecc_errors/channel_repair_pending", "Yes"))}, says="channel repair pending"),
        Row("no spare row", FAIL, {XML: smi(("remapped_rows/remapped_row_failure", "Yes"))}, says="no spare row"),
        Row("memory beyond repair", FAIL, {XML: smi(("ecc_errors/unrepairable_memory", "Yes"))}),
        Row("too many SRAM errors", FAIL, {XML: smi(("aggregate/sram_threshold_exceeded", "Yes"))}, says="threshold"),
        Row("a reset is asked for", FAIL, {XML: smi(("gpu_recovery_action", "Reset"))}, {"GPU 0 asks for": "Reset"}, says="asks for: Reset"),
        Row("a reset is asked for, as drivers before 565 say it", FAIL, {XML: smi(("gpu_recovery_action", "x")).replace("<gpu_recovery_action>x</gpu_recovery_action>", "<gpu_reset_status><reset_required>Yes</reset_required><drain_and_reset_recommended>No</drain_and_reset_recommended></gpu_reset_status>")}, {"GPU 0 asks for": "Reset"}),
        Row("one of two is lost", FAIL, {XML: changed(lambda card: card.replace("<gpu_temp>35 C", "<gpu_temp>GPU is lost"))}, says="GPU 1 answers 'GPU is lost'"),
        Row("one of two says nothing", UNKNOWN, {XML: changed(lambda _: 'id="00000000:00:07.0"><product_name>x</product_name></gpu></nvidia_smi_log>')}),
    ),
    *cards_table(
        "DRIVER-012",
        {XML: smi()},
        Row("idle", OK, {}, {"GPU 0 degrees": 36, "GPU 0 degrees to its limit": 53, "GPU 0 held back by": "gpu_idle"}),
        Row("busy at its power limit", OK, {XML: smi(("clocks_event_reason_gpu_idle", "Not Active"), ("clocks_event_reason_sw_power_cap", "Active"))}, {"GPU 0 held back by": "sw_power_cap"}),
        Row("held by nothing", OK, {XML: smi(("clocks_event_reason_gpu_idle", "Not Active"))}, {"GPU 0 held back by": "nothing"}),
        Row("an older driver's names", OK, {XML: smi().replace("clocks_event_reason", "clocks_throttle_reason")}, {"GPU 0 held back by": "gpu_idle"}),
        Row("too hot", WARN, {XML: smi(("clocks_event_reason_hw_slowdown", "Active"), ("clocks_event_reason_hw_thermal_slowdown", "Active"))}, says="too hot"),
        Row("too hot, in an older driver's names", WARN, {XML: smi(("clocks_event_reason_hw_thermal_slowdown", "Active")).replace("clocks_event_reason", "clocks_throttle_reason")}),
        Row("the power supply", WARN, {XML: smi(("clocks_event_reason_hw_power_brake_slowdown", "Active"))}, says="power supply"),
        Row("the driver slows it", WARN, {XML: smi(("clocks_event_reason_sw_thermal_slowdown", "Active"))}),
        Row("the second card", WARN, {XML: changed(lambda card: card.replace("hw_thermal_slowdown>Not Active", "hw_thermal_slowdown>Active"))}, says="GPU 1"),
        Row("near its limit, by margin", WARN, {XML: smi(("temperature/gpu_temp_tlimit", "2 C"))}, {"GPU 0 degrees to its limit": 4}, says="4 degrees below"),
        Row("near its limit, by temperature", WARN, {XML: smi(("temperature", "<gpu_temp>92 C</gpu_temp><gpu_temp_slow_threshold>95 C</gpu_temp_slow_threshold>"))}, {"GPU 0 degrees to its limit": 3}),
        Row("it does not say", UNKNOWN, {XML: without("clocks_event_reasons")}, {"GPU 0 held back by": None}),
    ),
    *cards_table(
        "DRIVER-013",
        {XML: smi()},
        Row("sixteen", OK, {}, {"GPU 0 lanes": "16 of 16"}),
        Row("a slower generation while idle", OK, {XML: smi(("pcie_gen/current_link_gen", "1"))}),
        Row("four", WARN, {XML: smi(("link_widths/current_link_width", "4x"))}, {"GPU 0 lanes": "4 of 16"}, says="GPU 0"),
        Row("the second of two", WARN, {XML: changed(lambda card: card.replace("<current_link_width>16x", "<current_link_width>8x"))}, {"GPU 1 lanes": "8 of 16"}),
        Row("a guest that is not told", SKIP, {XML: smi(("link_widths/current_link_width", "N/A"), ("link_widths/max_link_width", "N/A"))}),
        Row("one of two tells", UNKNOWN, {XML: changed(lambda card: card.replace("<current_link_width>16x", "<current_link_width>N/A"))}),
    ),
    *cards_table(
        "DRIVER-014",
        {XML: smi()},
        Row("on", OK, {}, {"GPU 0 persistence": True}),
        Row("off", WARN, {XML: smi(("persistence_mode", "Disabled"))}, {"GPU 0 persistence": False}, says="nvidia-persistenced"),
        Row("Windows' driver", SKIP, {XML: smi(("persistence_mode", "N/A"))}),
        Row("one of two tells", UNKNOWN, {XML: changed(lambda card: card.replace("<persistence_mode>Enabled", "<persistence_mode>N/A"))}),
    ),
    *cards_table(
        "DRIVER-015",
        {XML: smi()},
        Row("all its watts", OK, {}, {"GPU 0 watts": "700 of 700"}),
        Row("more than the default", OK, {XML: smi(("gpu_power_readings/current_power_limit", "720.00 W"))}),
        Row("half of them", WARN, {XML: smi(("gpu_power_readings/current_power_limit", "350.00 W"))}, {"GPU 0 watts": "350 of 700"}, says="-pl 700"),
        Row("half of them, in an older driver's names", WARN, {XML: smi(("gpu_power_readings", "<power_limit>200.00 W</power_limit><default_power_limit>350.00 W</default_power_limit><enforced_power_limit>200.00 W</enforced_power_limit>")).replace("gpu_power_readings>", "power_readings>")}, {"GPU 0 watts": "200 of 350"}),
        Row("a card without a limit", SKIP, {XML: smi(("gpu_power_readings/current_power_limit", "N/A"), ("gpu_power_readings/default_power_limit", "N/A"))}),
        Row("one of two tells", UNKNOWN, {XML: changed(lambda card: re.sub(r"<(current|default)_power_limit>700.00 W", r"<\1_power_limit>N/A", card))}),
    ),
    *cards_table(
        "DRIVER-016",
        {XML: smi()},
        Row("default", OK, {}, {"GPU 0 compute mode": "Default"}),
        Row("one process", WARN, {XML: smi(("compute_mode", "Exclusive_Process"))}, says="one process a card"),
        Row("none", FAIL, {XML: smi(("compute_mode", "Prohibited"))}, says="-c DEFAULT"),
        Row("none on the second", FAIL, {XML: changed(lambda card: card.replace("<compute_mode>Default", "<compute_mode>Prohibited"))}),
        Row("not said", UNKNOWN, {XML: smi(("compute_mode", "N/A"))}),
        Row("not said by the second", UNKNOWN, {XML: changed(lambda card: card.replace("<compute_mode>Default", "<compute_mode>N/A"))}),
    ),
    *cards_table(
        "DRIVER-017",
        {XML: smi()},
        Row("off", OK, {}, {"GPU 0 MIG": "Disabled"}),
        Row("not possible", OK, {XML: smi(("mig_mode/current_mig", "N/A"), ("mig_mode/pending_mig", "N/A"))}, {"GPU 0 MIG": "not possible"}),
        Row("on and empty", FAIL, {XML: smi(*MIG_ON)}, {"GPU 0 MIG": "Enabled"}, says="no device"),
        Row("on and empty on the second of two", FAIL, {XML: changed(lambda card: card.replace("_mig>Disabled", "_mig>Enabled"))}, says="-i 1"),
        Row("one instance", OK, {XML: smi(*MIG_ON, ("mig_devices", INSTANCE.format(3))), LIST: "GPU 0: NVIDIA H200 (UUID: GPU-x)\n  MIG 1g.18gb     Device  0: (UUID: MIG-x)\n"}, {"instance 0": "1g.18gb, 16384 MiB, 9 in use, 16 SMs"}),
        Row("two instances", WARN, {XML: smi(*MIG_ON, ("mig_devices", INSTANCE.format(3) + INSTANCE.format(4))), LIST: "GPU 0: x\n  MIG 1c.2g.35gb  Device  0: (UUID: a)\n  MIG 1g.18gb     Device  1: (UUID: b)\n"}, {"instance 0": "1c.2g.35gb, 16384 MiB, 9 in use, 16 SMs", "instance 1": "1g.18gb, 16384 MiB, 9 in use, 16 SMs"}, says="2 instances"),
        Row("an instance without a name", OK, {XML: smi(*MIG_ON, ("mig_devices", INSTANCE.format(3))), LIST: MISSING}, {"instance 0": "profile not named, 16384 MiB, 9 in use, 16 SMs"}),
        Row("to be switched on at the next reset", WARN, {XML: smi(("mig_mode/pending_mig", "Enabled"))}, says="becomes Enabled"),
    ),
    *cards_table(
        "DRIVER-018",
        {XML: smi()},
        Row("ready", OK, {}, {"GPU 0 fabric": "Completed Success"}),
        Row("being set up", FAIL, {XML: smi(("fabric/state", "In Progress"), ("fabric/status", "N/A"))}, {"GPU 0 fabric": "In Progress"}, says="802"),
        Row("not begun", FAIL, {XML: smi(("fabric/state", "Not Started"), ("fabric/status", "N/A"))}),
        Row("failed", FAIL, {XML: smi(("fabric/status", "Insufficient Resources"))}, says="Insufficient Resources"),
        Row("degraded", WARN, {XML: smi(("health/summary", "Limited Capacity"))}, says="less than its full"),
        Row("Completed, no more said", UNKNOWN, {XML: smi(("fabric/status", "N/A"))}),
        Row("one of two reports one", UNKNOWN, {XML: changed(lambda card: re.sub(r"<state>Completed", "<state>N/A", card))}),
        Row("a card without a fabric", SKIP, {XML: smi(*NO_FABRIC), SWITCHES: ()}, {"NVSwitches": 0}),
        Row("an older driver, no switch", SKIP, {XML: without("fabric"), SWITCHES: ()}),
        Row("A100s with their manager", OK, {XML: smi(*NO_FABRIC), SWITCHES: ("/dev/nvidia-nvswitch0",), MANAGER: "1234\n"}, {"fabric manager": "process 1234"}),
        Row("A100s without it", WARN, {XML: smi(*NO_FABRIC), SWITCHES: ("/dev/nvidia-nvswitch0",), MANAGER: None}, says="no fabric manager"),
    ),
    *cards_table(
        "DRIVER-019",
        {XML: smi(cards=2), TOPO: LINKED, ACCESS: REACHED, IOMMU: ()},
        Row("NVLink", OK, {}, {"links": "NV18", "peer access": "OK"}),
        Row("NVLink, and an IOMMU for other devices", OK, {IOMMU: ("/sys/class/iommu/dmar0",)}),
        Row("PCIe without an IOMMU", OK, {TOPO: LINKED.replace("NV18", "PIX")}, {"links": "PIX"}),
        Row("PCIe under an IOMMU", WARN, {TOPO: LINKED.replace("NV18", "PHB"), IOMMU: ("/sys/class/iommu/ivhd0",)}, {"IOMMUs": 1}, says="ACS"),
        Row("GeForce cards", WARN, {TOPO: LINKED.replace("NV18", "PHB"), ACCESS: REACHED.replace("OK\t", "GNS\t")}, {"peer access": "GNS"}, says="these GPUs do not"),
        Row("switched off", WARN, {ACCESS: REACHED.replace("OK\t", "DR\t")}, says="switched off"),
        Row("a state that is new", WARN, {ACCESS: REACHED.replace("OK\t", "ZZ\t")}, says="not a state that is known"),
        Row("one card", SKIP, {XML: smi()}, {"cards": 1}),
        Row("no table", UNKNOWN, {ACCESS: MISSING}, {"peer access": None}),
        Row("another table", UNKNOWN, {ACCESS: "GPU0\tGPU1\n"}),
    ),
    *cards_table(
        "DRIVER-020",
        {XML: smi(cards=2)},
        Row("two of a kind", OK, {}, {"GPU 0-1 is": "NVIDIA H200, 143771 MiB"}),
        Row("two kinds", WARN, {XML: changed(lambda card: card.replace("NVIDIA H200", "NVIDIA H100 80GB HBM3").replace("<total>143771 MiB", "<total>81559 MiB"))}, {"GPU 1 is": "NVIDIA H100 80GB HBM3, 81559 MiB"}, says="one server for each kind"),
        Row("one name, two sizes", WARN, {XML: changed(lambda card: card.replace("<total>143771 MiB", "<total>81559 MiB"))}),
        Row("one card", SKIP, {XML: smi()}),
        Row("a card that does not say", UNKNOWN, {XML: changed(lambda card: card.replace("<total>143771 MiB", "<total>N/A"))}),
    ),
]  # fmt: skip

CASES: list[Case] = [*AGREEING, *TAKEN, *HEALTH]
