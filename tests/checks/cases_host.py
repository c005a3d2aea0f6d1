"""HOST-009 on: disks, kind of machine, cards, clock, proxies and limits; and what control groups say (HOST-004, HOST-007)."""

# ruff: noqa: S108 - paths that are asked about, never written to

from typing import Any

from host import FAIL, GPU, MISSING, NO_NODE, NODES, OK, ONE_NODE, SKIP, UNKNOWN, WARN, Case, Row, ran, table

from runbook.parse import mounts as parse_mounts
from runbook.probes import questions

GROUPS, MOUNTS, STATUS, LIMITS = (
    "read /proc/self/cgroup",
    "read /proc/self/mountinfo",
    "read /proc/self/status",
    "read /proc/self/limits",
)
# Lines of real mount tables: a version 2 machine, and one with a hierarchy a controller.
ROOT = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n"
V2 = ROOT + "38 31 0:29 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    ROOT
    + "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    + "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    + "40 31 0:37 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
)
# Docker with version 1 and no group namespace: the mount shows the container's own folder as its root.
V1_BOUND = (
    "500 490 0:50 / / rw - overlay overlay rw,lowerdir=/a:/b\n"
    "35 31 0:32 /docker/4f1e /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
)
MEMINFO = {"read /proc/meminfo": "MemAvailable: 123815168 kB\n"}
TOP = "read /sys/fs/cgroup"
SLICE = f"{TOP}/system.slice/vllm.service"
TWO_NODES = {NODES: ("/dev/nvidia0", "/dev/nvidia1")}

GROUP_LIMITS = [
    *table(
        "HOST-004",
        {**MEMINFO, MOUNTS: V2, GROUPS: "0::/system.slice/vllm.service\n", f"{SLICE}/memory.max": "max\n", f"{TOP}/system.slice/memory.max": "max\n", f"{TOP}/memory.max": None},
        Row("a service without a limit", OK, {}, {"cgroup limit (MiB)": "none"}),
        Row("the service has one", FAIL, {f"{SLICE}/memory.max": "4294967296\n"}, {"cgroup limit (MiB)": 4_096}),
        Row("the slice above has one", FAIL, {f"{SLICE}/memory.max": "8589934592\n", f"{TOP}/system.slice/memory.max": "4294967296\n"}, {"cgroup limit (MiB)": 4_096}),
        Row("version 1, a group of its own", FAIL, {MOUNTS: V1, GROUPS: "4:memory:/jobs/7\n0::/\n", f"{TOP}/memory/jobs/7/memory.limit_in_bytes": "9223372036854771712\n", f"{TOP}/memory/jobs/memory.limit_in_bytes": "2147483648\n", f"{TOP}/memory/memory.limit_in_bytes": "9223372036854771712\n"}, {"cgroup limit (MiB)": 2_048}),
        Row("version 1, the mount is the container's", FAIL, {MOUNTS: V1_BOUND, GROUPS: "4:memory:/docker/4f1e\n", f"{TOP}/memory/memory.limit_in_bytes": "2147483648\n"}, {"cgroup limit (MiB)": 2_048}),
        Row("a group above what is mounted", OK, {GROUPS: "0::/../../x\n"}, {"cgroup limit (MiB)": "none"}),
        Row("no group file system is mounted", UNKNOWN, {MOUNTS: ROOT}, {"cgroup limit (MiB)": None}, says="control group"),
        Row("a kernel without control groups", OK, {GROUPS: None}, {"cgroup limit (MiB)": "none"}),
    ),
    *table(
        "HOST-007",
        {STATUS: "Name:\tpython\nUid:\t0\t0\t0\t0\nCpus_allowed_list:\t0-15\n", MOUNTS: V2, GROUPS: "0::/\n", f"{TOP}/cpu.max": "max 100000\n"},
        Row("sixteen and no quota", OK, {}, {"cores allowed": 16, "quota (cores)": "none"}),
        Row("a list with gaps", OK, {STATUS: "Cpus_allowed_list:\t0-1,8,64-127\n"}, {"cores allowed": 67}),
        Row("pinned to one", WARN, {STATUS: "Cpus_allowed_list:\t3\n"}, {"cores allowed": 1}, says="one core"),
        Row("a quota of two", OK, {f"{TOP}/cpu.max": "200000 100000\n"}, {"quota (cores)": 2.0}),
        Row("a quota of one", WARN, {f"{TOP}/cpu.max": "100000 100000\n"}, {"cores allowed": 16, "quota (cores)": 1.0}, says="--cpus"),
        Row("half a core", FAIL, {f"{TOP}/cpu.max": "50000 100000\n"}, {"quota (cores)": 0.5}, says="less than one"),
        Row("the slice above allows half a core", FAIL, {GROUPS: "0::/a\n", f"{TOP}/a/cpu.max": "max 100000\n", f"{TOP}/cpu.max": "50000 100000\n"}, {"quota (cores)": 0.5}),
        Row("half a core, version 1", FAIL, {MOUNTS: V1, GROUPS: "1:cpu,cpuacct:/\n", f"{TOP}/cpu,cpuacct/cpu.cfs_quota_us": "50000\n", f"{TOP}/cpu,cpuacct/cpu.cfs_period_us": "100000\n"}, {"quota (cores)": 0.5}),
        Row("no quota, version 1", OK, {MOUNTS: V1, GROUPS: "1:cpu,cpuacct:/\n", f"{TOP}/cpu,cpuacct/cpu.cfs_quota_us": "-1\n"}, {"quota (cores)": "none"}),
        Row("no list", UNKNOWN, {STATUS: "Name:\tpython\n"}),
        Row("a list that is none", UNKNOWN, {STATUS: "Cpus_allowed_list:\t3-1\n"}),
        Row("no /proc", UNKNOWN, {STATUS: None}),
        Row("no group file system is mounted", UNKNOWN, {MOUNTS: ROOT}, says="quota"),
    ),
]  # fmt: skip

DEFAULTS = ("{disk}", "{home}", "{home}/.cache", "{home}/.cache/uv", "{home}/.cache/huggingface", "{home}/.cache/huggingface/hub", "/", "/tmp")  # fmt: skip
PLACES = {f"env {name}": None for name in ("XDG_CACHE_HOME", "HF_HUB_CACHE", "HF_HOME", "UV_CACHE_DIR", "TMPDIR")} | {f"glob {path}": (path,) for path in DEFAULTS}  # fmt: skip


def ask(*folders: str) -> str:
    return questions.run([*parse_mounts.DF, *folders])


DF = ask(*DEFAULTS)
HEAD = "   Avail    Inodes    IFree Type  Mounted on\n"


def df(*rows: tuple[int, str], inodes: str = "16777216 16138709", kind: str = "ext4") -> str:
    """What GNU df prints; free space in GiB."""
    return HEAD + "".join(f"{free << 20} {inodes} {kind} {mount}\n" for free, mount in rows)


def one(free: int, rows: int = 8, **more: str) -> str:
    return df(*[(free, "/")] * rows, **more)


def four(
    work: tuple[int, str], cache: tuple[int, str], hub: tuple[int, str], tmp: tuple[int, str], **more: str
) -> str:
    """Rows for ``DF`` in which the home folder is where the hub's cache is."""
    return df(work, hub, hub, cache, hub, hub, (60, "/"), tmp, **more)


def long_tmp(letters: int) -> dict[str, Any]:
    """A TMPDIR of so many letters."""
    path = f"/{'x' * (letters - 1)}"
    return {"env TMPDIR": path, f"glob {path}": (path,), ask(*DEFAULTS[:-1], path): one(60)}


DISKS = [
    *table(
        "HOST-009",
        {**PLACES, **NO_NODE, DF: one(60)},
        Row("one disk with room", OK, {}, {"free on / (MiB)": 61_440, "for workspace, wheels, weights, temporary files (MiB)": "2000 to 11200"}),
        Row("room for what is there, not for another model", WARN, {DF: one(5)}, says="another build"),
        Row("one disk that is full", FAIL, {DF: one(1)}, {"free on / (MiB)": 1_024}, says="too little for workspace, wheels"),
        Row("a GPU stack wants more", WARN, {**ONE_NODE, DF: one(20)}, {"for workspace, wheels, weights, temporary files (MiB)": "2000 to 28800"}, stack=GPU),
        Row("uv's cache on another disk", WARN, {DF: four((60, "/data"), (60, "/"), (60, "/"), (60, "/"))}, {"free on /data (MiB)": 61_440, "for wheels, weights, temporary files (MiB)": "1000 to 18500"}, says="stored twice"),
        Row("a small /tmp in memory", FAIL, {DF: four((60, "/"), (60, "/"), (60, "/"), (0, "/tmp"), kind="tmpfs")}, {"free on /tmp (MiB)": 0}, says="temporary files"),
        Row("a /tmp in which no wheel of pip's fits", WARN, {DF: four((60, "/"), (60, "/"), (60, "/"), (4, "/tmp"))}, {"for temporary files (MiB)": "1000 to 10000"}),
        Row("few inodes left", WARN, {DF: one(60, inodes="100000 50000")}, {"free inodes on /": 50_000}),
        Row("btrfs counts none", OK, {DF: one(60, inodes="0 0", kind="btrfs")}),
        Row("a mount with a blank in its name", OK, {DF: df(*[(60, "/my disk")] * 8)}, {"free on /my disk (MiB)": 61_440}),
        Row("variables name other places", OK, {"env UV_CACHE_DIR": "/c/uv", "glob /c/uv": (), "glob /c": ("/c",), "env HF_HOME": "/hf", "glob /hf/hub": (), "glob /hf": (), "env TMPDIR": "/scratch/", "glob /scratch": ("/scratch",), ask("{disk}", "/", "/c", "/c/uv", "/hf", "/hf/hub", "/scratch"): one(60, 4)}, {"free on / (MiB)": 61_440}),
        Row("a cache that is not there yet", OK, {"glob {home}/.cache/uv": (), DF: one(60, 7)}),
        Row("no home folder", UNKNOWN, {"glob {home}": (), "glob {home}/.cache": (), "glob {home}/.cache/uv": (), "glob {home}/.cache/huggingface": (), "glob {home}/.cache/huggingface/hub": (), DF: one(60, 3)}),
        Row("a relative TMPDIR", UNKNOWN, {"env TMPDIR": "tmp", ask(*DEFAULTS[:-2]): one(60, 6)}),
        Row("one row is missing", UNKNOWN, {DF: ran(one(60, 7), 1, "df: /tmp: Permission denied")}),
        Row("a df without --output", UNKNOWN, {DF: ran(rc=1, err="df: unrecognized option: output")}),
        Row("no df", UNKNOWN, {DF: MISSING}),
    ),
    *table(
        "HOST-010",
        {**PLACES, DF: one(60), MOUNTS: ROOT, "env VLLM_RPC_BASE_PATH": None},
        Row("one disk", OK, {}, {"workspace on": "/", "temporary files": "/tmp", "mounted noexec": "neither", "vLLM's sockets in": "/tmp (4 letters)"}),
        Row("/tmp is mounted noexec", WARN, {DF: four((60, "/"), (60, "/"), (60, "/"), (60, "/tmp")), MOUNTS: ROOT + "44 27 0:40 / /tmp rw,nosuid,noexec - tmpfs tmpfs rw\n"}, {"mounted noexec": "temporary files"}, says="cannot be loaded"),
        Row("the workspace is mounted noexec", FAIL, {DF: four((60, "/my disk"), (60, "/"), (60, "/"), (60, "/")), MOUNTS: ROOT + "44 27 0:40 / /my\\040disk rw,noexec - xfs /dev/vdb rw\n"}, {"workspace on": "/my disk", "mounted noexec": "workspace"}, says="elsewhere"),
        Row("the later mount hides the earlier", OK, {MOUNTS: "20 1 0:1 / / rw,noexec - rootfs rootfs rw\n" + ROOT}),
        Row("a TMPDIR too long for a socket", FAIL, long_tmp(71), says="107 letters"),
        Row("the longest there may be", OK, long_tmp(70)),
        Row("sockets elsewhere", OK, {**long_tmp(71), "env VLLM_RPC_BASE_PATH": "/run/v"}, {"vLLM's sockets in": "/run/v (6 letters)"}),
        Row("TMPDIR names nothing", WARN, {"env TMPDIR": "/gone", "glob /gone": (), ask(*DEFAULTS[:-1], "/gone"): one(60, 7)}, says="mkdir"),
        Row("a long TMPDIR that names nothing", WARN, {**long_tmp(71), f"glob /{'x' * 70}": (), ask(*DEFAULTS[:-1], f"/{'x' * 70}"): one(60, 7)}, {"vLLM's sockets in": "/tmp (4 letters)"}),
        Row("the root as TMPDIR", OK, {"env TMPDIR": "/", ask(*DEFAULTS[:-1]): one(60, 7)}, {"temporary files": "/"}),
        Row("no mount table", UNKNOWN, {MOUNTS: None}),
        Row("no df", UNKNOWN, {DF: MISSING}),
    ),
]  # fmt: skip

VERSION, INIT = "read /proc/version", GROUPS
DOCKERENV, PODMAN = "glob /.dockerenv", "glob /run/.containerenv"
VENDOR, PRODUCT = "read /sys/class/dmi/id/sys_vendor", "read /sys/class/dmi/id/product_name"
OVERLAY = "500 490 0:50 / / rw - overlay overlay rw,lowerdir=/a:/b\n"
NO_MARKS = {DOCKERENV: (), PODMAN: (), INIT: "0::/init.scope\n", MOUNTS: ROOT}
WSL_LIB = "glob /usr/lib/wsl/lib/libcuda.so*"
PCI, MODULES = "read /proc/bus/pci/devices", "read /proc/modules"


def pci(*drivers: str) -> str:
    """The PCI list of a box with an H200 a driver, in 18 columns as the kernel prints them."""
    rows = ["0000\t80860d57" + "\t0" * 15 + "\t"]
    rows += [f"{0x30 + 8 * n:04x}\t10de2335" + "\t0" * 15 + f"\t{name}" for n, name in enumerate(drivers)]
    return "\n".join(rows) + "\n"


LOCKDOWN, ENFORCED = "read /sys/kernel/security/lockdown", "read /sys/module/module/parameters/sig_enforce"
NVIDIA_MODULE = "nvidia_uvm 1830912 0 - Live 0x0 (O)\nnvidia 14299136 2 nvidia_uvm, Live 0x0 (O)\n"
DOCKER = "glob /usr/bin/docker"
ENGINES = {
    DOCKER: ("/usr/bin/docker",), "glob /usr/local/bin/docker": (), "glob /snap/bin/docker": (), "glob /usr/bin/podman": (),
    "glob /run/containerd/containerd.sock": (),
}  # fmt: skip
CTK, DAEMON = "glob /usr/bin/nvidia-ctk", "read /etc/docker/daemon.json"
SPEC, SPEC_TEXT = "glob /var/run/cdi/*.yaml", "read /var/run/cdi/nvidia.yaml"
TOOLKIT = {
    CTK: ("/usr/bin/nvidia-ctk",), "glob /usr/bin/nvidia-container-runtime-hook": (), "glob /usr/local/nvidia/toolkit/nvidia-ctk": (),
    DAEMON: '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}',
    "glob /etc/cdi/*.yaml": (), SPEC: (), "glob /etc/cdi/*.json": (), "glob /var/run/cdi/*.json": (),
    "read /proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue\n",
}  # fmt: skip
SEVEN = "containerEdits:\n  mounts:\n  - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.{}\n"

CARDS = [
    *table(
        "HOST-011",
        {**NO_MARKS, VERSION: "Linux version 6.8.0-60-generic (buildd@x) #63 SMP\n", "read /proc/cpuinfo": "flags : fpu avx2\n", VENDOR: "Supermicro\n", PRODUCT: "SYS-421GE\n", WSL_LIB: ()},
        Row("bare", OK, {}, {"kernel": "6.8.0-60-generic", "container": "no sign of one", "virtual machine": "no", "maker": "Supermicro SYS-421GE"}),
        Row("a virtual machine", OK, {"read /proc/cpuinfo": "flags : fpu avx2 hypervisor\n", VENDOR: "Amazon EC2\n", PRODUCT: "p5.48xlarge\n"}, {"virtual machine": "yes", "maker": "Amazon EC2 p5.48xlarge"}),
        Row("Docker", OK, {DOCKERENV: ("/.dockerenv",), MOUNTS: OVERLAY}, {"container": "/.dockerenv"}),
        Row("Docker by its groups", OK, {INIT: "4:memory:/docker/4f1e\n"}, {"container": "docker"}),
        Row("a service named for Docker is none", OK, {INIT: "0::/system.slice/docker.service\n"}, {"container": "no sign of one"}),
        Row("Kubernetes by its groups", OK, {INIT: "0::/kubepods/besteffort/pod1/4f1e\n"}, {"container": "kubepods"}),
        Row("a machine whose disk was a container's", OK, {DOCKERENV: ("/.dockerenv",)}, {"container": "no sign of one"}),
        Row("Arm has no such flag", OK, {"read /proc/cpuinfo": "Features : fp asimd\n", VENDOR: None, PRODUCT: None}, {"virtual machine": None, "maker": "not told"}),
        Row("WSL 2", WARN, {VERSION: "Linux version 5.15.167.4-microsoft-standard-WSL2 (root@x)\n", WSL_LIB: ("/usr/lib/wsl/lib/libcuda.so",)}, {"Windows' driver": "/usr/lib/wsl/lib/libcuda.so"}, says=".wslconfig"),
        Row("WSL 1", FAIL, {VERSION: "Linux version 4.4.0-19041-Microsoft (Microsoft@Microsoft.com)\n"}, says="--set-version"),
        Row("no /proc", UNKNOWN, {VERSION: None}),
    ),
    *table(
        "HOST-012",
        {PCI: pci("nvidia", "nvidia"), MODULES: NVIDIA_MODULE},
        Row("NVIDIA's own", OK, {}, {"held by": "nvidia", "nouveau loaded": False}),
        Row("nouveau has it", FAIL, {PCI: pci("nouveau"), MODULES: "nouveau 3096576 4 - Live 0x0\n"}, {"held by": "nouveau", "nouveau loaded": True}, says="blacklist nouveau"),
        Row("its successor has it", FAIL, {PCI: pci("NovaCore"), MODULES: "nova_core 3096576 0 - Live 0x0\n"}, {"held by": "NovaCore"}),
        Row("nouveau is loaded and holds nothing yet", FAIL, {PCI: pci(""), MODULES: "nouveau 3096576 0 - Live 0x0\n"}, {"held by": "no driver"}),
        Row("nouveau beside NVIDIA's", OK, {MODULES: NVIDIA_MODULE + "nouveau 3096576 0 - Live 0x0\n"}, {"nouveau loaded": True}),
        Row("nobody has it", OK, {PCI: pci(""), MODULES: "ext4 1 1 - Live 0x0\n"}, {"held by": "no driver"}),
        Row("passed to a virtual machine", FAIL, {PCI: pci("vfio-pci", "vfio-pci")}, says="2 of 2"),
        Row("one of two is passed on", WARN, {PCI: pci("nvidia", "vfio-pci")}, {"held by": "nvidia vfio-pci"}, says="1 of 2"),
        Row("nothing holds it and modules cannot be read", UNKNOWN, {PCI: pci(""), MODULES: None}),
        Row("no card", SKIP, {PCI: pci()}),
        Row("no PCI list", SKIP, {PCI: None}, says="can be seen"),
    ),
    *table(
        "HOST-013",
        {PCI: pci("nvidia"), MODULES: NVIDIA_MODULE, LOCKDOWN: "none [integrity] confidentiality\n", ENFORCED: "N\n"},
        Row("loaded under lockdown", OK, {}, {"nvidia loaded": True, "lockdown": "integrity", "sig_enforce": "N"}),
        Row("not loaded, and only signed ones are taken", WARN, {PCI: pci(""), MODULES: "ext4 1 1 - Live 0x0\n"}, {"nvidia loaded": False}, says="mokutil --import"),
        Row("signatures enforced without lockdown", WARN, {PCI: pci(""), MODULES: "", LOCKDOWN: "[none] integrity confidentiality\n", ENFORCED: "Y\n"}, {"lockdown": "none", "sig_enforce": "Y"}),
        Row("not loaded, and any module is taken", OK, {PCI: pci(""), MODULES: "ext4 1 1 - Live 0x0\n", LOCKDOWN: "[none] integrity confidentiality\n"}, {"nvidia loaded": False}),
        Row("neither can be read", UNKNOWN, {PCI: pci(""), MODULES: "ext4 1 1 - Live 0x0\n", LOCKDOWN: None, ENFORCED: None}),
        Row("no list of modules", UNKNOWN, {PCI: pci(""), MODULES: None, LOCKDOWN: "[none] integrity\n"}, {"nvidia loaded": None}),
        Row("no card", SKIP, {PCI: pci()}),
    ),
    *table(
        "HOST-014",
        {**ENGINES, **TOOLKIT, **NO_MARKS, **ONE_NODE},
        Row("Docker with NVIDIA's runtime", OK, {}, {"engines": "docker", "toolkit": "/usr/bin/nvidia-ctk", "runtime in Docker's settings": True}),
        Row("no toolkit", WARN, {CTK: (), DAEMON: None}, {"toolkit": "not there"}, says="nvidia-container-toolkit"),
        Row("nobody told Docker", WARN, {DAEMON: '{"log-driver": "json-file"}'}, {"runtime in Docker's settings": False}, says="runtime configure"),
        Row("settings that are no JSON", WARN, {DAEMON: "{"}),
        Row("a CDI description instead", OK, {DAEMON: None, SPEC: ("/var/run/cdi/nvidia.yaml",), SPEC_TEXT: SEVEN.format("580.159.04")}, {"CDI descriptions": "/var/run/cdi/nvidia.yaml"}),
        Row("a description of the driver before", WARN, {SPEC: ("/var/run/cdi/nvidia.yaml",), SPEC_TEXT: SEVEN.format("570.86.15")}, {"driver loaded": "580.159.04", "driver in /var/run/cdi/nvidia.yaml": "570.86.15"}, says="cdi generate"),
        Row("a description that names no library", OK, {SPEC: ("/var/run/cdi/nvidia.yaml",), SPEC_TEXT: "cdiVersion: 0.5.0\n"}),
        Row("no engine", SKIP, {DOCKER: ()}, says="no container engine"),
        Row("no GPU", SKIP, NO_NODE),
        Row("inside a container", SKIP, {PODMAN: ("/run/.containerenv",), MOUNTS: OVERLAY}, says="on its host"),
        stack=GPU,
    ),
]  # fmt: skip

DATE, SYNCED, CHRONY = (
    "run date +%s",
    "glob /run/systemd/timesync/synchronized",
    "glob /run/chrony/chronyd.pid",
)
PROXIES = {
    f"env {name}": None
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY")
}
HTTP, NO = "env http_proxy", "env no_proxy"
PROXY = "http://bob:hunter2@proxy.example:3128"

AROUND = [
    *table(
        "HOST-015",
        {**NO_NODE, DATE: "1796083200\n", SYNCED: (), CHRONY: ()},
        Row("the first of December 2026", OK, {}, {"today": "2026-12-01", "kept by": "nobody seen"}),
        Row("kept by systemd", OK, {SYNCED: ("/run/systemd/timesync/synchronized",)}, {"kept by": "timesync"}),
        Row("kept by chrony", OK, {CHRONY: ("/run/chrony/chronyd.pid",)}, {"kept by": "chrony"}),
        Row("the day before the facts, in another time zone", OK, {DATE: "1795910400\n"}, {"today": "2026-11-29"}),
        Row("a board without a battery", FAIL, {DATE: "0\n"}, {"today": "1970-01-01"}, says="set-ntp"),
        Row("two days behind", FAIL, {DATE: "1795824000\n"}, {"today": "2026-11-28"}),
        Row("far ahead", WARN, {DATE: "4102444800\n"}, {"today": "2100-01-01"}, says="years ahead"),
        Row("beyond every calendar", UNKNOWN, {DATE: f"{'9' * 18}\n"}),
        Row("no number", UNKNOWN, {DATE: "Mon Nov 30\n"}),
        Row("no date", UNKNOWN, {DATE: MISSING}),
    ),
    *table(
        "HOST-016",
        PROXIES,
        Row("none set", OK, {}, {"proxy for plain HTTP": "none"}),
        Row("a proxy, and this machine not exempt", WARN, {HTTP: PROXY}, {"proxy for plain HTTP": "http_proxy", "not through it": "nothing"}, says="127.0.0.1 and localhost not exempt"),
        Row("capitals do too", WARN, {"env ALL_PROXY": "socks5://proxy:1080"}, {"proxy for plain HTTP": "all_proxy"}),
        Row("exempt in both spellings", OK, {HTTP: PROXY, NO: "example.com, localhost,127.0.0.1"}, {"not through it": "127.0.0.1 example.com localhost"}),
        Row("only one spelling", WARN, {HTTP: PROXY, NO: "localhost"}, says="127.0.0.1 not exempt"),
        Row("a range, which httpx does not read", WARN, {HTTP: PROXY, NO: "localhost,127.0.0.0/8"}, says="range"),
        Row("everything exempt", OK, {HTTP: PROXY, "env NO_PROXY": "*"}, {"not through it": "*"}),
        Row("small letters win, and empty is not set", OK, {HTTP: "", "env HTTP_PROXY": PROXY}, {"proxy for plain HTTP": "none"}),
    ),
]  # fmt: skip

LINE = "{:<26}{:<21}{:<21}units\n"


def ulimits(**soft: str) -> str:
    """/proc/self/limits with every line unlimited but those named, by the last word of the line's name."""
    names = ("cpu time", "file size", "data size", "processes", "locked memory", "address space")
    return "".join(
        LINE.format(f"Max {name}", soft.get(name.split()[0], "unlimited"), "unlimited") for name in names
    )


USER = "Name:\tpython\nUid:\t1000\t1000\t1000\t1000\nCpus_allowed_list:\t0-1\n"
OVERCOMMIT, PIDS = "read /proc/sys/vm/overcommit_memory", f"{TOP}/pids.max"

LIMITED = [
    *table(
        "HOST-005",
        {"run df -Pk /dev/shm": "Filesystem 1024-blocks Used Available Capacity Mounted on\nshm 65536 0 65536 0% /dev/shm\n", **TWO_NODES},
        Row("Docker's default and two GPUs", FAIL, {}, {"GPUs": 2, "size (MiB)": 64}, says="--ipc=host"),
        Row("512 MB and two GPUs", WARN, {"run df -Pk /dev/shm": "h\nshm 524288 0 524288 0% /dev/shm\n"}, {"GPUs": 2}),
        Row("enough for two GPUs", OK, {"run df -Pk /dev/shm": "h\nshm 8388608 0 8388608 0% /dev/shm\n"}, {"GPUs": 2}),
    ),
    *table(
        "HOST-017",
        {LIMITS: ulimits(), **TWO_NODES, "glob /dev/infiniband/uverbs*": ()},
        Row("two GPUs and no limit", OK, {}, {"soft limit (bytes)": "unlimited", "GPUs": 2}),
        Row("two GPUs and a container's limit", WARN, {LIMITS: ulimits(locked="65536")}, {"soft limit (bytes)": 65_536}, says="memlock=-1"),
        Row("one GPU", SKIP, {**ONE_NODE, LIMITS: ulimits(locked="65536")}, says="NCCL is not used"),
        Row("one GPU with an RDMA card", WARN, {**ONE_NODE, LIMITS: ulimits(locked="8388608"), "glob /dev/infiniband/uverbs*": ("/dev/infiniband/uverbs0",)}, {"RDMA devices": 1}),
        Row("no such line", UNKNOWN, {LIMITS: "Max cpu time unlimited\n"}),
    ),
    *table(
        "HOST-018",
        {LIMITS: ulimits(), STATUS: USER, MOUNTS: V2, GROUPS: "0::/\n", PIDS: "max\n"},
        Row("no limit", OK, {}, {"soft limit of the user": "unlimited", "control group": "none"}),
        Row("a user who may have 256", WARN, {LIMITS: ulimits(processes="256")}, {"soft limit of the user": 256}, says="256 in all"),
        Row("root may have more", OK, {LIMITS: ulimits(processes="256"), STATUS: USER.replace("1000", "0")}, {"soft limit of the user": "root is exempt"}),
        Row("a pod with 1024", WARN, {PIDS: "1024\n", STATUS: USER.replace("1000", "0")}, {"control group": 1_024}, says="--pids-limit"),
        Row("a slice above with 1024", WARN, {GROUPS: "0::/user.slice\n", f"{TOP}/user.slice/pids.max": "9999\n", PIDS: "1024\n"}, {"control group": 1_024}),
        Row("both are ample", OK, {LIMITS: ulimits(processes="96364"), PIDS: "32768\n"}, {"soft limit of the user": 96_364, "control group": 32_768}),
        Row("no such line", UNKNOWN, {LIMITS: "Max cpu time unlimited\n"}),
        Row("no Uid", UNKNOWN, {STATUS: "Name:\tpython\n"}),
        Row("no group file system is mounted", UNKNOWN, {MOUNTS: ROOT}, {"control group": None}),
    ),
    *table(
        "HOST-019",
        {LIMITS: ulimits()},
        Row("none", OK, {}, {"address space": "unlimited", "cpu time": "unlimited"}),
        Row("4 GB of addresses", FAIL, {LIMITS: ulimits(address="4096000000")}, {"address space": 4_096_000_000}, says="failed to map segment"),
        Row("no address at all", FAIL, {LIMITS: ulimits(address="0")}),
        Row("64 GB of addresses", WARN, {LIMITS: ulimits(address="68719476736")}, says="address space limited"),
        Row("an hour of processor time", WARN, {LIMITS: ulimits(cpu="3600")}, {"cpu time": 3_600}, says="cpu time limited"),
        Row("small files and little data", WARN, {LIMITS: ulimits(file="1000", data="2000")}, says="data size and file size limited"),
        Row("a line is missing", UNKNOWN, {LIMITS: "Max cpu time              unlimited            unlimited\n"}),
        Row("no /proc", UNKNOWN, {LIMITS: None}),
    ),
    *table(
        "HOST-020",
        {OVERCOMMIT: "0\n"},
        Row("the default", OK, {}, {"vm.overcommit_memory": 0}),
        Row("always", OK, {OVERCOMMIT: "1\n"}),
        Row("strict, with room", WARN, {OVERCOMMIT: "2\n", "read /proc/meminfo": "CommitLimit: 61440000 kB\nCommitted_AS: 10240000 kB\n"}, {"still to be promised (MiB)": 50_000}, says="strict"),
        Row("strict, and nearly all promised", FAIL, {OVERCOMMIT: "2\n", "read /proc/meminfo": "CommitLimit: 12288000 kB\nCommitted_AS: 10240000 kB\n"}, {"still to be promised (MiB)": 2_000}, says="overcommit_memory=0"),
        Row("strict, more promised than allowed", FAIL, {OVERCOMMIT: "2\n", "read /proc/meminfo": "CommitLimit: 10240000 kB\nCommitted_AS: 12288000 kB\n"}, {"still to be promised (MiB)": -2_000}),
        Row("strict, and no figures", UNKNOWN, {OVERCOMMIT: "2\n", "read /proc/meminfo": "MemTotal: 1 kB\n"}),
        Row("a mode of the future", UNKNOWN, {OVERCOMMIT: "3\n"}),
        Row("no /proc", UNKNOWN, {OVERCOMMIT: None}),
    ),
]  # fmt: skip

CASES: list[Case] = [*GROUP_LIMITS, *DISKS, *CARDS, *AROUND, *LIMITED]
