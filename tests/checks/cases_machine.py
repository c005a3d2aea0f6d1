"""START, HOST, DRIVER, CUDA: what follows from readings of the machine alone."""

from host import (
    FAIL,
    GPU,
    H200,
    MISSING,
    NO_NODE,
    OK,
    ONE_NODE,
    SKIP,
    SMI,
    UNKNOWN,
    WARN,
    Case,
    Row,
    ran,
    table,
)

PYTHON, UV = "run '{own}/python' -V", "run '{own}/uv' --version"
DF = "run df -Pk '{disk}'"
DF_HEAD = "Filesystem     1024-blocks     Used Available Capacity Mounted on\n"
JOBS = "glob {work}/jobs/*.json"
SERVER = "read {work}/jobs/server.json"
STATE = '{"name": "server", "pid": 4711, "port": 8000}'


def df(free_mib: int, mount: str = "/") -> str:
    return f"{DF_HEAD}/dev/vda {264_212_084} 1 {free_mib * 1024} 38% {mount}\n"


START = [
    *table(
        "START-001",
        {PYTHON: "Python 3.11.7\n", UV: "uv 0.13.9 (x86_64-unknown-linux-gnu)\n"},
        Row("both answer", OK, {}, {"python": "Python 3.11.7", "uv": "uv 0.13.9"}),
        Row("uv is not there", FAIL, {UV: MISSING}, {"uv": None}, says="Set the runbook up again"),
        Row("uv cannot run here", FAIL, {UV: ran(rc=126, err="cannot execute binary file")}),
        Row("the python does not start", FAIL, {PYTHON: ran(rc=-11)}, {"python": None}),
        Row("the python hangs", FAIL, {PYTHON: ran(rc=-9, timed_out=True)}),
        Row("a Python that is too old", FAIL, {PYTHON: "Python 3.9.18\n"}, {"python": "Python 3.9.18"}),
        Row("a Python that is too new", FAIL, {PYTHON: "Python 3.14.0\n"}),
        Row("the oldest there may be", OK, {PYTHON: "Python 3.10.0\n"}),
        Row("no version in the answer", UNKNOWN, {PYTHON: "hello\n"}, says="without a version"),
        Row("no version of uv", UNKNOWN, {UV: "\n"}, {"uv": None}),
    ),
    *table(
        "START-002",
        {},
        Row("64 GB free", OK, {DF: df(64_692)}, {"free (MiB)": 64_692, "on": "/"}),
        Row("room for one target", WARN, {DF: df(20_000)}, {"free (MiB)": 20_000}, says="two do not", built=False),
        Row("nearly full", FAIL, {DF: df(3_000, "/var/my disk")}, {"free (MiB)": 3_000, "on": "/var/my disk"}, built=False),
        Row("one MiB too little", FAIL, {DF: df(13_999)}, {"needed (MiB)": 14_000}, built=False),
        Row("just enough for one", WARN, {DF: df(14_000)}, built=False),
        Row("just enough for two", OK, {DF: df(25_000)}, built=False),
        Row("the target is there: room for logs", WARN, {DF: df(13_999)}, {"needed (MiB)": 2_000}, says="no other target"),
        Row("the target is there, and room for another", OK, {DF: df(14_000)}),
        Row("the target is there, and no room for logs", FAIL, {DF: df(1_999)}),
        Row("full: Available is 0", FAIL, {DF: df(0)}, {"free (MiB)": 0}),
        Row("df cannot stat it", UNKNOWN, {DF: ran(rc=1, err="df: /x: No such file or directory")}),
        Row("df is not there", UNKNOWN, {DF: MISSING}),
        Row("another df's form", UNKNOWN, {DF: "Filesystem Size Used\n/dev/vda 252G 39G\n"}),
    ),
    *table(
        "START-003",
        {JOBS: (), "glob /proc/4711/stat": ("/proc/4711/stat",)},
        Row("no state files", OK, {}, {"running": "none", "stale state files": 0}),
        Row(
            "records of a server that ended",
            OK,
            {JOBS: ("{work}/jobs/server.boot.json", "{work}/jobs/server.ended.json")},
            {"running": "none", "stale state files": 0},
        ),
        Row(
            "a server runs",
            WARN,
            {JOBS: ("{work}/jobs/server.json",), SERVER: STATE},
            {"running": "server (pid 4711)", "stale state files": 0},
            says="Stop it",
        ),
        Row(
            "its process is gone",
            WARN,
            {JOBS: ("{work}/jobs/server.json",), SERVER: STATE, "glob /proc/4711/stat": ()},
            {"running": "none", "stale state files": 1},
        ),
        Row("a torn state file", WARN, {JOBS: ("{work}/jobs/server.json",), SERVER: '{"name": "se'}, {"stale state files": 1}),
        Row("a state file of another form", WARN, {JOBS: ("{work}/jobs/server.json",), SERVER: "[]"}, {"stale state files": 1}),
        Row("it vanished meanwhile", WARN, {JOBS: ("{work}/jobs/server.json",), SERVER: None}, {"stale state files": 1}),
    ),
]  # fmt: skip

UNAME, GETCONF, CPUINFO = "run uname -srm", "run getconf GNU_LIBC_VERSION", "read /proc/cpuinfo"
MEMINFO, MAX, LIMIT_V1 = (
    "read /proc/meminfo",
    "read /sys/fs/cgroup/memory.max",
    "read /sys/fs/cgroup/memory/memory.limit_in_bytes",
)
SHM, LIMITS, LSCPU = "run df -Pk /dev/shm", "read /proc/self/limits", "run lscpu --version"
OS = "read /etc/os-release"
# The process is in the root group of version 2, or of version 1; cases_host.py has groups below it.
GROUPS, MOUNTS = "read /proc/self/cgroup", "read /proc/self/mountinfo"
IN_ROOT_GROUP = {GROUPS: "0::/\n", MOUNTS: "38 31 0:29 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", MAX: None}
OLD_GROUP = {
    GROUPS: "4:memory:/\n",
    MOUNTS: "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
}
XEON = "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Processor\nflags\t\t: fpu sse2 avx avx2 avx512f avx512_vnni amx_bf16\n"
LIMITS_TEXT = (
    "Limit                     Soft Limit           Hard Limit           Units\nMax open files            "
)

HOST = [
    *table(
        "HOST-001",
        {},
        Row("Linux x86_64", OK, {UNAME: "Linux 6.18.44-fc-v657 x86_64\n"}, {"system": "Linux x86_64", "kernel": "6.18.44-fc-v657"}),
        Row("Arm", FAIL, {UNAME: "Linux 6.8.0-1015-nvidia aarch64\n"}, {"system": "Linux aarch64"}, says="no lock of them yet"),
        Row("a Mac", FAIL, {UNAME: "Darwin 24.5.0 arm64\n"}, {"system": "Darwin arm64"}),
        Row("no uname", UNKNOWN, {UNAME: MISSING}),
        Row("uname says more than asked", UNKNOWN, {UNAME: "Linux 6.1 #1 SMP x86_64\n"}),
    ),
    *table(
        "HOST-002",
        {**NO_NODE, OS: 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\n'},
        Row("Debian 12", OK, {GETCONF: "glibc 2.36\n"}, {"system": "Debian GNU/Linux 12 (bookworm)", "glibc": "2.36", "needed": "2.31"}),
        Row("Ubuntu 18.04", FAIL, {GETCONF: "glibc 2.27\n"}, {"glibc": "2.27", "needed": "2.31"}, says="glibc 2.31"),
        Row("2.4 is older than 2.31", FAIL, {GETCONF: "glibc 2.4\n"}),
        Row("2.100 is newer than 2.31", OK, {GETCONF: "glibc 2.100\n"}),
        Row("the other stack asks less", OK, {GETCONF: "glibc 2.28\n"}, {"needed": "2.28"}, stack="vllm-0.19.1-cpu"),
        Row("Alpine", FAIL, {OS: 'NAME="Alpine Linux"\nID=alpine\n', GETCONF: ran(rc=1, err="getconf: GNU_LIBC_VERSION: unknown variable")}, {"system": "Alpine Linux"}, says="musl"),
        Row("no version, and not known as musl", UNKNOWN, {GETCONF: ran(rc=1, err="getconf: GNU_LIBC_VERSION: unknown variable")}, says="musl"),
        Row("no os-release", OK, {OS: None, GETCONF: "glibc 2.36\n"}, {"system": None}),
        Row("no getconf", UNKNOWN, {GETCONF: MISSING}),
    ),
    *table(
        "HOST-003",
        NO_NODE,
        Row("AVX-512", OK, {CPUINFO: XEON}, {"processor": "Intel(R) Xeon(R) Processor", "has": "avx2 avx512f avx512_vnni amx_bf16"}),
        Row("AVX2 only", WARN, {CPUINFO: "model name : AMD EPYC 7B13\nflags : fpu avx avx2\n"}, {"has": "avx2"}),
        Row("too old", FAIL, {CPUINFO: "model name : QEMU Virtual CPU\nflags : fpu sse2 avx\n"}, {"has": "none of them"}),
        Row("avx512f without avx2 in the list", FAIL, {CPUINFO: "flags : fpu avx512f\n"}),
        Row("a GPU stack", SKIP, {CPUINFO: XEON}, stack=GPU, says="GPU"),
        Row("masked", UNKNOWN, {CPUINFO: None}),
        Row("no flags line", UNKNOWN, {CPUINFO: "processor : 0\nmodel name : x\n"}),
    ),
    *table(
        "HOST-004",
        IN_ROOT_GROUP,
        Row("no limit", OK, {MEMINFO: "MemTotal: 25000000 kB\nMemAvailable:   23815168 kB\n"}, {"available (MiB)": 23_257, "cgroup limit (MiB)": "none"}),
        Row("v2 says max", OK, {MEMINFO: "MemAvailable: 23815168 kB\n", MAX: "max\n"}, {"cgroup limit (MiB)": "none"}),
        Row("v1 says near infinity", OK, {MEMINFO: "MemAvailable: 23815168 kB\n", **OLD_GROUP, LIMIT_V1: "9223372036854771712\n"}, {"cgroup limit (MiB)": "none"}),
        Row("a small machine", FAIL, {MEMINFO: "MemAvailable: 2048000 kB\n"}, {"available (MiB)": 2_000}),
        Row("a big machine, a small v2 cgroup", FAIL, {MEMINFO: "MemAvailable: 123815168 kB\n", MAX: "2147483648\n"}, {"cgroup limit (MiB)": 2_048}),
        Row("a big machine, a small v1 cgroup", FAIL, {MEMINFO: "MemAvailable: 123815168 kB\n", **OLD_GROUP, LIMIT_V1: "2147483648\n"}, {"cgroup limit (MiB)": 2_048}),
        Row("a cgroup that is large enough", OK, {MEMINFO: "MemAvailable: 123815168 kB\n", MAX: "17179869184\n"}, {"cgroup limit (MiB)": 16_384}),
        Row("a limit of nothing", FAIL, {MEMINFO: "MemAvailable: 123815168 kB\n", MAX: "0\n"}, {"cgroup limit (MiB)": 0}),
        Row("an old kernel", UNKNOWN, {MEMINFO: "MemTotal: 25000000 kB\nMemFree: 1 kB\n"}),
        Row("no /proc", UNKNOWN, {MEMINFO: None}),
    ),
    *table(
        "HOST-005",
        NO_NODE,
        Row("half the memory", OK, {SHM: f"{DF_HEAD}tmpfs 24731708 0 24731708 0% /dev/shm\n"}, {"size (MiB)": 24_152}),
        Row("Docker's default", WARN, {SHM: f"{DF_HEAD}shm 65536 0 65536 0% /dev/shm\n"}, {"size (MiB)": 64}, says="--ipc=host"),
        Row("exactly as wished", OK, {SHM: f"{DF_HEAD}shm 1048576 0 1048576 0% /dev/shm\n"}, {"size (MiB)": 1_024}),
        Row("none mounted", UNKNOWN, {SHM: ran(rc=1, err="df: /dev/shm: No such file or directory")}),
    ),
    *table(
        "HOST-006",
        {},
        Row("20000", OK, {LIMITS: f"{LIMITS_TEXT}20000                20000                files\n"}, {"soft limit": 20_000}),
        Row("unlimited", OK, {LIMITS: f"{LIMITS_TEXT}unlimited            unlimited            files\n"}, {"soft limit": "unlimited"}),
        Row("the default of many shells", WARN, {LIMITS: f"{LIMITS_TEXT}1024                 1048576              files\n"}, {"soft limit": 1_024}, says="ulimit -n"),
        Row("one below", WARN, {LIMITS: f"{LIMITS_TEXT}4095                 4095                 files\n"}),
        Row("no such line", UNKNOWN, {LIMITS: "Max cpu time unlimited\n"}),
        Row("not readable", UNKNOWN, {LIMITS: None}),
    ),
    *table(
        "HOST-008",
        NO_NODE,
        Row("there", OK, {LSCPU: "lscpu from util-linux 2.38.1\n"}, {"lscpu": "lscpu from util-linux 2.38.1"}),
        Row("not there", FAIL, {LSCPU: MISSING}, {"lscpu": None}, says="util-linux"),
        Row("broken", FAIL, {LSCPU: ran(rc=127, err="error while loading shared libraries: libsmartcols.so.1")}),
        Row("a GPU stack", SKIP, {LSCPU: MISSING}, stack=GPU),
    ),
]  # fmt: skip

PCI, NVRM = "read /proc/bus/pci/devices", "read /proc/driver/nvidia/version"
# Columns of /proc/bus/pci/devices: bus and devfn, vendor and device. 0x10de2335 is an H200.
PCI_CARD = "0000\t80860d57\t0\n0028\t10de2335\t1f\tnvidia\n"
PCI_SOUND = "0000\t80860d57\t0\n0029\t10de22ba\t1f\tsnd_hda_intel\n"
VISIBLE = "env CUDA_VISIBLE_DEVICES"
MODULE = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (root@host)\nGCC version:  gcc version 13.3.0\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Tue Sep 16 04:46:04 UTC 2025\n"
TWO = H200 + "1, NVIDIA H200, 9.0, 580.159.04, 143771, 0, 0, Disabled\n"

DRIVER = [
    *table(
        "DRIVER-001",
        {UNAME: "Linux 6.18.44-fc-v657 x86_64\n"},
        Row("card and node", OK, {PCI: PCI_CARD, **ONE_NODE}, {"NVIDIA on PCI": 1, "device nodes": 1}),
        Row("no PCI list in a container, but a node", OK, {PCI: None, **ONE_NODE}, {"NVIDIA on PCI": None, "device nodes": 1}),
        Row("card without node", FAIL, {PCI: PCI_CARD, **NO_NODE}, {"NVIDIA on PCI": 1, "device nodes": 0}, says="Install the driver"),
        Row("no card", SKIP, {PCI: "0000\t80860d57\t0\n", **NO_NODE}, {"NVIDIA on PCI": 0}),
        Row("only the card's sound function", SKIP, {PCI: PCI_SOUND, **NO_NODE}, {"NVIDIA on PCI": 0}),
        Row("nothing to see", SKIP, {PCI: None, **NO_NODE}),
    ),
    *table(
        "DRIVER-002",
        {},
        Row("an H200", OK, {SMI: H200}, {"GPUs": 1, "first": "NVIDIA H200"}),
        Row("two", OK, {SMI: TWO}, {"GPUs": 2}),
        Row("module not loaded", FAIL, {SMI: ran("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n", rc=9)}, {"nvidia-smi said": "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running."}),
        Row("upgraded, not rebooted", FAIL, {SMI: ran("Failed to initialize NVML: Driver/library version mismatch\n", rc=18)}, {"nvidia-smi said": "Failed to initialize NVML: Driver/library version mismatch"}, says="reboot"),
        Row("no devices", FAIL, {SMI: "No devices were found\n"}, {"nvidia-smi said": "No devices were found"}),
        Row("not on PATH", FAIL, {SMI: MISSING}, {"nvidia-smi said": "nvidia-smi is not on PATH"}),
        Row("too old for the question", FAIL, {SMI: ran('Field "compute_cap" is not a valid field to query.\n', rc=2)}, {"nvidia-smi said": 'Field "compute_cap" is not a valid field to query.'}, says="older than branch 510"),
        Row("silent", FAIL, {SMI: ran(rc=255)}, {"nvidia-smi said": "nothing"}),
        Row("hangs", UNKNOWN, {SMI: ran(rc=-9, timed_out=True)}, says="in time"),
    ),
    *table(
        "DRIVER-004",
        {SMI: TWO},
        Row("not set", OK, {VISIBLE: None}, {"CUDA_VISIBLE_DEVICES": "not set", "GPUs": 2}),
        Row("one of two", OK, {VISIBLE: "1"}, {"CUDA_VISIBLE_DEVICES": "'1'"}),
        Row("both, with a space", OK, {VISIBLE: "0, 1"}),
        Row("by UUID", OK, {VISIBLE: "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"}),
        Row("a MIG slice", OK, {VISIBLE: "MIG-8932f937-d72c-4106-c12f-20bd9faed9f6"}),
        Row("empty hides all", FAIL, {VISIBLE: ""}, {"CUDA_VISIBLE_DEVICES": "''"}, says="clear it"),
        Row("a card that is not there", FAIL, {VISIBLE: "0,2"}),
        Row("minus one", FAIL, {VISIBLE: "-1"}),
        Row("NVIDIA_VISIBLE_DEVICES' word", FAIL, {VISIBLE: "all"}),
        Row("a digit that is no number", FAIL, {VISIBLE: "\N{SUPERSCRIPT TWO}"}),
    ),
    *table(
        "DRIVER-005",
        {"run nvidia-smi -q -x": MISSING},
        Row("free", OK, {SMI: H200}, {"GPU 0 used (MiB)": 0}),
        Row("a desktop's share", OK, {SMI: H200.replace(" 0, 0,", " 412, 0,")}, {"GPU 0 used (MiB)": 412}),
        Row("a server is on it", WARN, {SMI: H200.replace(" 0, 0,", " 130497, 0,")}, {"GPU 0 used (MiB)": 130_497}, says="See who holds it"),
        Row("one of two is taken", WARN, {SMI: TWO.replace("143771, 0, 0, Disabled\n1", "143771, 130497, 0, Disabled\n1")}, {"GPU 0 used (MiB)": 130_497, "GPU 1 used (MiB)": 0}),
        Row("not said", UNKNOWN, {SMI: H200.replace(" 0, 0,", " [N/A], 0,")}, {"GPU 0 used (MiB)": None}),
        Row("no answer", UNKNOWN, {SMI: MISSING}),
    ),
    *table(
        "DRIVER-006",
        {},
        Row("none", OK, {SMI: H200}, {"GPU 0 uncorrectable": "0"}),
        Row("a card without ECC", OK, {SMI: H200.replace(" 0, 0,", " 0, [N/A],")}, {"GPU 0 uncorrectable": "[N/A]"}),
        Row("three", FAIL, {SMI: H200.replace(" 0, 0,", " 0, 3,")}, {"GPU 0 uncorrectable": "3"}, says="Drain"),
        Row("the second card", FAIL, {SMI: TWO[: len(H200)] + TWO[len(H200) :].replace(" 0, 0,", " 0, 1,")}, {"GPU 0 uncorrectable": "0", "GPU 1 uncorrectable": "1"}),
        Row("a card that cannot say", UNKNOWN, {SMI: H200.replace(" 0, 0,", " 0, [GPU requires reset],")}, {"GPU 0 uncorrectable": "[GPU requires reset]"}),
        Row("no answer", UNKNOWN, {SMI: MISSING}),
    ),
]  # fmt: skip

NVCC, HOME, TOOLKITS = "run nvcc --version", "env CUDA_HOME", "glob /usr/local/cuda-[0-9]*"
RELEASE = (
    "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release {0}, V{0}.88\nBuild cuda_{0}\n"
)
PATHS, CXX = "env LD_LIBRARY_PATH", "env CXX"
GXX = "g++ (Debian 12.2.0-14+deb12u1) 12.2.0"
A100 = H200.replace("H200", "A100-SXM4-80GB").replace("9.0", "8.0")

CUDA = [
    *table(
        "CUDA-001",
        {},
        Row("new enough", OK, {SMI: H200}, {"driver": "580.159.04", "needed": "525.60.13"}, stack=GPU),
        Row("exactly the floor", OK, {SMI: H200.replace("580.159.04", "525.60.13")}, stack=GPU),
        Row("one build too old", FAIL, {SMI: H200.replace("580.159.04", "525.60.11")}, {"driver": "525.60.11"}, stack=GPU, says="Install driver 525.60.13 or newer"),
        Row("CUDA 11's driver", FAIL, {SMI: H200.replace("580.159.04", "515.105.01")}, stack=GPU),
        Row("no version said", UNKNOWN, {SMI: H200.replace("580.159.04", "[N/A]")}, {"driver": None}, stack=GPU),
        Row("a CPU stack", SKIP, {SMI: H200}),
    ),
    *table(
        "CUDA-002",
        {NVCC: MISSING, HOME: None, TOOLKITS: ()},
        Row("none at all", OK, {}, {"nvcc on PATH": "none", "CUDA_HOME": "not set", "under /usr/local": "none"}),
        Row("one, on PATH", OK, {NVCC: RELEASE.format("13.0"), TOOLKITS: ("/usr/local/cuda-13", "/usr/local/cuda-13.0")}, {"nvcc on PATH": "13.0", "under /usr/local": "13.0"}),
        Row("one, by both names", OK, {NVCC: RELEASE.format("12.8"), HOME: "/usr/local/cuda", "run /usr/local/cuda/bin/nvcc --version": RELEASE.format("12.8")}, {"nvcc of CUDA_HOME": "12.8"}),
        Row("two names, two toolkits", FAIL, {NVCC: RELEASE.format("13.0"), HOME: "/usr/local/cuda-12.8", "run /usr/local/cuda-12.8/bin/nvcc --version": RELEASE.format("12.8")}, {"nvcc on PATH": "13.0", "nvcc of CUDA_HOME": "12.8"}, says="Make both name one"),
        Row("CUDA_HOME leads nowhere", FAIL, {HOME: "/opt/cuda", "run /opt/cuda/bin/nvcc --version": MISSING}, {"nvcc of CUDA_HOME": "none"}, says="Point CUDA_HOME"),
        Row("two side by side", WARN, {NVCC: RELEASE.format("13.0"), TOOLKITS: ("/usr/local/cuda-12.8", "/usr/local/cuda-13.0")}, {"under /usr/local": "12.8 13.0"}, says="side by side"),
        Row("a copy put aside is no toolkit", OK, {TOOLKITS: ("/usr/local/cuda-12.8", "/usr/local/cuda-12.8.bak", "/usr/local/cuda-12.8-samples")}, {"under /usr/local": "12.8"}),
        Row("an nvcc that does not answer", UNKNOWN, {NVCC: ran(rc=1, err="nvcc fatal   : Unknown option")}),
    ),
    *table(
        "CUDA-003",
        {},
        Row("not set", OK, {PATHS: None}, {"LD_LIBRARY_PATH": "not set", "CUDA libraries there": 0}),
        Row("the driver's own folder", OK, {PATHS: "/usr/local/nvidia/lib64", "glob /usr/local/nvidia/lib64/lib*.so.*": ("/usr/local/nvidia/lib64/libcuda.so.1", "/usr/local/nvidia/lib64/libnvidia-ml.so.1")}, {"CUDA libraries there": 0}),
        Row("a system toolkit", WARN, {PATHS: "/usr/local/cuda/lib64/:/opt/x", "glob /usr/local/cuda/lib64/lib*.so.*": ("/usr/local/cuda/lib64/libcudart.so.12", "/usr/local/cuda/lib64/libcublasLt.so.12", "/usr/local/cuda/lib64/libz.so.1"), "glob /opt/x/lib*.so.*": ()}, {"CUDA libraries there": 2, "first": "libcublasLt.so.12"}, says="Start the server without it"),
        Row("a lone cuDNN", WARN, {PATHS: "/opt/cudnn", "glob /opt/cudnn/lib*.so.*": ("/opt/cudnn/libcudnn_ops.so.9",)}, {"first": "libcudnn_ops.so.9"}),
    ),
    *table(
        "CUDA-004",
        {},
        Row("an H200", OK, {SMI: H200}, {"compute capability": "9.0"}, stack=GPU),
        Row("8.6 code on an 8.9 card", OK, {SMI: H200.replace("9.0", "8.9")}, stack=GPU),
        Row("a V100", FAIL, {SMI: H200.replace("H200", "V100").replace("9.0", "7.0")}, {"compute capability": "7.0"}, stack=GPU, says="7.0"),
        Row("one of two", FAIL, {SMI: H200 + A100.replace("8.0", "6.1").replace("0, NVIDIA", "1, NVIDIA", 1)}, {"compute capability": "6.1 9.0"}, stack=GPU, says="6.1"),
        Row("a card of the future", FAIL, {SMI: H200.replace("9.0", "13.0")}, stack=GPU),
        Row("not said", UNKNOWN, {SMI: H200.replace("9.0", "[N/A]")}, stack=GPU),
        Row("a CPU stack", SKIP, {SMI: H200}),
    ),
    *table(
        "CUDA-005",
        {CXX: None},
        Row("g++", OK, {"run g++ --version": f"{GXX}\nCopyright\n"}, {"compiler": GXX}),
        Row("another by name", OK, {CXX: "clang++", "run clang++ --version": "Debian clang version 14.0.6\n"}, {"compiler": "Debian clang version 14.0.6"}),
        Row("none", FAIL, {"run g++ --version": MISSING}, {"compiler": None}, says="Install one"),
        Row("CXX leads nowhere, though g++ is there", FAIL, {CXX: "g++-15", "run g++-15 --version": MISSING, "run g++ --version": GXX}),
        Row("it cannot run", FAIL, {"run g++ --version": ran(rc=1)}, {"compiler": ""}),
    ),
    *table(
        "CUDA-006",
        {**ONE_NODE, NVCC: MISSING},
        Row("Triton's kernels are planned", OK, {}, {"nvcc": "none", "--gdn-prefill-backend": "triton"}, stack=GPU),
        Row("FlashInfer's, with nvcc", OK, {NVCC: RELEASE.format("13.0")}, {"nvcc": "13.0", "--gdn-prefill-backend": "auto"}, stack=GPU, manifest=(('flag = "--gdn-prefill-backend"', 'flag = "--other"'),)),
        Row("FlashInfer's, without nvcc", WARN, {}, {"nvcc": "none", "--gdn-prefill-backend": "auto"}, stack=GPU, says="Triton", manifest=(('flag = "--gdn-prefill-backend"', 'flag = "--other"'),)),
        Row("a CPU stack", SKIP, {}),
        Row("no GPU", SKIP, NO_NODE, stack=GPU),
    ),
]  # fmt: skip

CASES: list[Case] = [*START, *HOST, *DRIVER, *CUDA]
