"""Edited copies about the machine itself."""

import re

from editing import NO_FILE, NO_PROGRAM, Edited, Said

from runbook.model import Verdict
from runbook.parse import mounts
from runbook.probes import questions

OK, WARN, FAIL = Verdict.OK, Verdict.WARN, Verdict.FAIL
CPU, GPU = "vllm-0.32.0-cpu", "vllm-0.19.1-cu128"
DF = questions.run([*mounts.DF, "{disk}", "{home}", "{home}/.cache", "{home}/.cache/uv", "{home}/.cache/huggingface", "{home}/.cache/huggingface/hub", "/", "/tmp"])  # noqa: S108 # fmt: skip
# Inside a container with a group namespace the process's own group is the root of what it sees.
NAMESPACE = {"read /proc/self/cgroup": "0::/\n"}
V2 = "38 31 0:29 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate\n"


def limits(text: str) -> str:
    """What a batch system or a container sets: few files, an hour of processor time, 4 GB of addresses, 64 KiB locked."""
    for name, soft in (("open files", "1024"), ("cpu time", "3600"), ("address space", "4096000000"), ("locked memory", "65536")):  # fmt: skip
        text = re.sub(rf"(?m)^(Max {name}\s+)\S+", rf"\g<1>{soft}", text)
    return text


def in_a_container(table: str) -> str:
    """The mount table with the root on overlay and version 2's groups, which the parent may mount elsewhere."""
    rest = [line for line in table.splitlines() if " - cgroup" not in line and line.split()[4] != "/"]
    return (
        "500 490 0:50 / / rw,relatime - overlay overlay rw,lowerdir=/l1,upperdir=/u,workdir=/w\n"
        + "\n".join([*rest, V2])
    )


MACHINES = [
    Edited(
        "cpu-memory-taken",
        "cpu-2core",
        CPU,
        "2 cores, 24 GiB of which 2 GiB are free, no GPU",
        ("MemAvailable is 2000 MiB",),
        {
            "read /proc/meminfo": lambda text: re.sub(
                r"(?m)^(MemAvailable:\s+)\d+", rf"\g<1>{2000 * 1024}", text
            )
        },
        {"HOST-004": FAIL, "FLASH-007": WARN},
    ),
    Edited(
        "cpu-disk-full",
        "cpu-2core",
        CPU,
        "2 cores, 24 GiB, no GPU, its disk nearly full and mounted noexec",
        ("512 MiB are free", "the root file system is mounted noexec"),
        {
            DF: lambda text: re.sub(r"(?m)^\s*\d+(?= .* /$)", "  524288", text),
            "read /proc/self/mountinfo": lambda text: re.sub(
                r"(?m)^(\S+ \S+ \S+ \S+ / )rw", r"\1rw,noexec", text
            ),
        },
        {"HOST-009": FAIL, "HOST-010": FAIL},
    ),
    Edited(
        "cpu-alpine-old",
        "cpu-2core",
        CPU,
        "2 cores of an old processor, Alpine Linux, no GPU",
        ("the system is Alpine", "the processor has no AVX2"),
        {
            "read /etc/os-release": 'NAME="Alpine Linux"\nID=alpine\nVERSION_ID=3.22.1\nPRETTY_NAME="Alpine Linux v3.22"\n',
            "run getconf GNU_LIBC_VERSION": Said(rc=1, err="getconf: GNU_LIBC_VERSION: unknown variable\n"),
            "read /proc/cpuinfo": lambda text: re.sub(r" avx(?:2|512\w*)\b", "", text),
        },
        {"HOST-002": FAIL, "HOST-003": FAIL},
    ),
    Edited(
        "cpu-arm",
        "cpu-2core",
        CPU,
        "2 cores of an Arm server, no GPU",
        ("uname says aarch64",),
        {"run uname -srm": "Linux 6.8.0-1015-aws aarch64\n"},
        {"HOST-001": FAIL},
    ),
    Edited(
        "cpu-wsl",
        "cpu-2core",
        CPU,
        "2 cores, WSL 2, no GPU",
        ("the kernel is WSL's", "the clock stands in 2001", "a proxy is set"),
        {
            "read /proc/version": "Linux version 5.15.167.4-microsoft-standard-WSL2 (root@f9c826d3017f) (gcc (GCC) 11.2.0, GNU ld (GNU Binutils) 2.37) #1 SMP Tue Nov 5 00:21:55 UTC 2024\n",
            "glob /usr/lib/wsl/lib/libcuda.so*": "",
            "run date +%s": "1000000000\n",
            "env http_proxy": "http://proxy.example:3128\n",
        },
        {"HOST-011": WARN, "HOST-015": FAIL, "HOST-016": WARN},
    ),
    Edited(
        "h200-x2-in-a-tight-container",
        "h200-x2-torch-2.11",
        GPU,
        "2 x NVIDIA H200 in a container with Docker's defaults and a batch system's limits",
        (
            "64 MB of shared memory",
            "the group has half a core, 4 GiB and 1024 processes",
            "ulimits of a batch system",
            "strict overcommit",
        ),
        {
            **NAMESPACE,
            "read /proc/self/mountinfo": in_a_container,
            "glob /.dockerenv": "/.dockerenv",
            "run df -Pk /dev/shm": "Filesystem     1024-blocks  Used Available Capacity Mounted on\nshm                  65536     0     65536       0% /dev/shm\n",
            "read /sys/fs/cgroup/memory.max": "4294967296\n",
            "read /sys/fs/cgroup/cpu.max": "50000 100000\n",
            "read /sys/fs/cgroup/pids.max": "1024\n",
            "read /proc/self/limits": limits,
            "read /proc/sys/vm/overcommit_memory": "2\n",
            "read /proc/meminfo": lambda text: re.sub(
                r"(?m)^(Committed_AS:\s+)\d+",
                r"\g<1>10240000",
                re.sub(r"(?m)^(CommitLimit:\s+)\d+", r"\g<1>132000000", text),
            ),
        },
        {
            "HOST-004": FAIL,
            "HOST-005": FAIL,
            "HOST-006": WARN,
            "HOST-007": FAIL,
            "HOST-017": WARN,
            "HOST-018": WARN,
            "HOST-019": FAIL,
            "HOST-020": WARN,
            "TORCH-007": WARN,
            "FLASH-007": WARN,
        },
    ),
    Edited(
        "h200-x2-docker",
        "h200-x2-torch-2.11",
        GPU,
        "2 x NVIDIA H200 with Docker and NVIDIA's container toolkit",
        ("Docker and the toolkit are installed and configured",),
        {
            "glob /usr/bin/docker": "/usr/bin/docker",
            "glob /usr/bin/nvidia-ctk": "/usr/bin/nvidia-ctk",
            "glob /usr/bin/nvidia-container-runtime-hook": "/usr/bin/nvidia-container-runtime-hook",
            "glob /usr/local/nvidia/toolkit/nvidia-ctk": "",
            "read /etc/docker/daemon.json": '{"runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}}}\n',
            **{
                f"glob {folder}/cdi/*.{kind}": ""
                for folder in ("/etc", "/var/run")
                for kind in ("yaml", "json")
            },
        },
        {"HOST-014": OK},
    ),
    Edited(
        "h200-x2-docker-no-toolkit",
        "h200-x2-torch-2.11",
        GPU,
        "2 x NVIDIA H200 with Docker, without NVIDIA's container toolkit",
        ("Docker is installed",),
        {
            "glob /usr/bin/docker": "/usr/bin/docker",
            "glob /usr/bin/nvidia-ctk": "",
            "glob /usr/bin/nvidia-container-runtime-hook": "",
            "glob /usr/local/nvidia/toolkit/nvidia-ctk": "",
            "read /etc/docker/daemon.json": NO_FILE,
            **{
                f"glob {folder}/cdi/*.{kind}": ""
                for folder in ("/etc", "/var/run")
                for kind in ("yaml", "json")
            },
        },
        {"HOST-014": WARN},
    ),
    Edited(
        "h200-x2-nouveau",
        "h200-x2-torch-2.11",
        "vllm-0.32.0-cpu",  # what a machine without a card gets
        "2 x NVIDIA H200 held by nouveau, under secure boot",
        ("nouveau holds the cards, NVIDIA's module is not loaded", "the kernel is in lockdown"),
        {
            "read /proc/bus/pci/devices": lambda text: re.sub(
                r"(?m)^(\S+\t10de.*)\tnvidia$", r"\1\tnouveau", text
            ),
            "read /proc/modules": "nouveau 3096576 2 - Live 0x0000000000000000\n",
            "read /proc/driver/nvidia/version": NO_FILE,
            "read /sys/kernel/security/lockdown": "none [integrity] confidentiality\n",
            "read /sys/module/module/parameters/sig_enforce": "N\n",
            "glob {work}/jobs/*.json": "",
            "glob {model}/*": "",
            "glob /dev/dxg": "",
            "glob /dev/nvidia[0-9]*": "",
            "glob /dev/nvidia*": "",
            "run nvidia-smi --query-gpu=index,name,compute_cap,driver_version,memory.total,memory.used,ecc.errors.uncorrected.volatile.total,mig.mode.current --format=csv,noheader,nounits": NO_PROGRAM,
        },
        {"START-003": Verdict.OK, "HOST-012": FAIL, "HOST-013": WARN, "DRIVER-001": FAIL, "DRIVER-007": FAIL},
        target=False,
    ),
]
