"""The bug report is of the environment that was named, whatever made it and however broken its torch is."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from runbook import cli, collect
from runbook.errors import NotRecorded
from runbook.parse import nvidia
from runbook.probe import Ran, Reply
from runbook.probes import questions, replay
from runbook.probes.cached import CachedProbe
from runbook.probes.live import LiveProbe
from runbook.probes.record import RecordProbe, finish
from runbook.workspace import Workspace

GPU = "vllm-0.19.1-cu128"
H200 = "0, NVIDIA H200, 9.0, 580.159.04, 143771, 0, 0, Disabled\n"
BASE = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
SITE = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
VERSION_FILE = (
    "__version__ = '9.8.7+cu128'\ndebug = False\ncuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n"
)
# The form of vLLM 0.19.1 (vllm/collect_env.py): its sections and labels, in its order.
SECTIONS = ("System Info", "PyTorch Info", "Python Environment", "CUDA / GPU Info", "CPU Info", "Versions of relevant libraries", "vLLM Info", "Environment Variables")  # fmt: skip
LABELS = (
    "OS", "GCC version", "Clang version", "CMake version", "Libc version", "PyTorch version", "Is debug build",
    "CUDA used to build PyTorch", "ROCM used to build PyTorch", "Python version", "Python platform", "Is CUDA available",
    "CUDA runtime version", "CUDA_MODULE_LOADING set to", "GPU models and configuration", "Nvidia driver version",
    "cuDNN version", "HIP runtime version", "MIOpen runtime version", "Is XNNPACK available", "ROCM Version", "vLLM Version",
)  # fmt: skip


class Host:
    """A made-up machine: question -> answer, of which programs answer text or a ``Ran``; any other question is a gap."""

    machine, stack, has_target = "live", GPU, True

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def _answer(self, ask: str) -> Any:
        self.asked.append(ask)
        if ask not in self.answers:
            raise NotRecorded(f"no answer to: {ask}")
        return self.answers[ask]

    def run(self, argv: list[str], timeout_s: float = 20.0) -> Ran:  # noqa: ARG002 - nothing is waited for
        found: Ran | str = self._answer(questions.run(argv))
        return Ran(tuple(argv), 0, found, "") if isinstance(found, str) else found

    def read_text(self, path: str) -> str | None:
        found: str | None = self._answer(f"read {path}")
        return found

    def glob(self, pattern: str) -> tuple[str, ...]:
        return tuple(self._answer(f"glob {pattern}"))

    def env(self, name: str) -> str | None:
        found: str | None = self._answer(f"env {name}")
        return found

    def inside(
        self,
        script: str,
        args: dict[str, str] | None = None,
        timeout_s: float = 120.0,  # noqa: ARG002
    ) -> dict[str, Any]:
        found: dict[str, Any] = self._answer(questions.inside(script, args))
        return found

    def http(self, method: str, path: str, json: dict[str, Any] | None = None) -> Reply:
        raise NotImplementedError(f"{method} {path} {json}")


def line(report: str, label: str) -> str:
    """What follows a label on its line."""
    found = re.search(rf"(?m)^{re.escape(label)} *:[ ]?(.*)$", report)
    assert found, f"no line {label}"
    return found.group(1)


def pip_lines(report: str) -> list[str]:
    return [one.removeprefix("[pip3] ") for one in report.splitlines() if one.startswith("[pip3] ")]


def package(site: Path, name: str, version: str) -> None:
    """What an installer leaves of a package's metadata."""
    (site / f"{name.replace('-', '_')}-{version}.dist-info").mkdir(parents=True)


def torch_that_raises(site: Path, mark: Path) -> None:
    """A torch that cannot be imported, and says when somebody tries."""
    folder = site / "torch"
    folder.mkdir(parents=True)
    (folder / "version.py").write_text(VERSION_FILE, encoding="utf-8")
    (folder / "__init__.py").write_text(
        f"open({str(mark)!r}, 'w').close()\nraise ImportError('libcudart.so.12: cannot open shared object file')\n",
        encoding="utf-8",
    )
    package(site, "torch", "9.8.7")


def of(python: Path, tmp_path: Path, stack: str = GPU) -> str:
    """The report of a live machine, about this interpreter."""
    host = LiveProbe(Workspace(tmp_path / "work"), stack, python)
    return collect.report(CachedProbe(host), "named by --target")


@pytest.fixture
def uv_venv(tmp_path: Path) -> Path:
    """As ``uv venv`` makes it: without pip."""
    uv = Path(sys.executable).with_name("uv")
    words = [
        str(uv),
        "venv",
        "--quiet",
        "--offline",
        "--no-config",
        "--python",
        str(BASE),
        str(tmp_path / "uv"),
    ]
    subprocess.run(words, check=True, capture_output=True)
    return tmp_path / "uv" / "bin" / "python"


@pytest.fixture
def conda_prefix(tmp_path: Path) -> Path:
    """An interpreter that lies in a prefix of its own, with conda's records beside it; the records are made by hand."""
    prefix = tmp_path / "conda"
    library = prefix / "lib" / BASE.name
    library.mkdir(parents=True)
    (prefix / "bin").mkdir()
    shutil.copy2(BASE.resolve(), prefix / "bin" / BASE.name)
    (prefix / "bin" / "python").symlink_to(BASE.name)
    for entry in Path(sysconfig.get_path("stdlib")).iterdir():
        if entry.name != "site-packages":
            (library / entry.name).symlink_to(entry)
    for entry in Path(sys.base_prefix, "lib").glob("libpython*"):
        (prefix / "lib" / entry.name).symlink_to(entry)
    (library / "site-packages").mkdir()
    records = prefix / "conda-meta"
    records.mkdir()
    (records / "history").write_text("", encoding="utf-8")
    for name in (
        "numpy-2.2.6-py311h64a7726_0",
        "cuda-nvcc-12.8.93-hcdd1206_1",
        "cudnn-9.10.1.4-h7d33bf5_0",
        "xz-5.8.1-hbcc6ac9_2",
    ):
        (records / f"{name}.json").write_text("{}", encoding="utf-8")
    package(library / "site-packages", "numpy", "2.2.6")
    return prefix / "bin" / "python"


def test_a_uv_environment_without_pip_is_listed_itself(uv_venv: Path, tmp_path: Path) -> None:
    site = uv_venv.parent.parent / SITE
    package(site, "nvidia-nccl-cu12", "1.2.3.4")
    package(site, "numpy", "0.0.1")
    report = of(uv_venv, tmp_path)
    assert pip_lines(report) == ["numpy==0.0.1", "nvidia-nccl-cu12==1.2.3.4"]
    assert "virtual environment (uv " in line(report, "Kind of environment")
    assert report.startswith(f"Environment: {collect.redactor()(str(uv_venv))} (named by --target)")


def test_a_venv_is_listed_itself(tmp_path: Path) -> None:
    subprocess.run([str(BASE), "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    package(tmp_path / "venv" / SITE, "triton", "3.3.3")
    report = of(tmp_path / "venv" / "bin" / "python", tmp_path)
    assert pip_lines(report) == ["triton==3.3.3"]
    assert line(report, "Kind of environment").startswith("virtual environment (venv), base ")
    assert line(report, "PyTorch version") == "N/A (torch is not in this environment)"
    assert line(report, "vLLM Version") == "N/A (no vllm/_version.py; installed: none)"


def test_a_venv_with_the_systems_packages_shows_which_copy_is_hidden(tmp_path: Path) -> None:
    words = [str(BASE), "-m", "venv", "--without-pip", "--system-site-packages", str(tmp_path / "venv")]
    subprocess.run(words, check=True)
    beside = tmp_path / "beside"
    site = tmp_path / "venv" / SITE
    package(site, "numpy", "2.0.0")
    package(beside, "numpy", "1.0.0")
    torch_that_raises(beside, tmp_path / "tried")
    (site / "beside.pth").write_text(f"{beside}\n", encoding="utf-8")
    report = of(tmp_path / "venv" / "bin" / "python", tmp_path)
    shown = collect.redactor()(str(beside))
    assert "numpy==2.0.0" in pip_lines(report)
    assert f"numpy==1.0.0 (hidden: in {shown}, after the one above)" in pip_lines(report)
    assert "with the system packages" in line(report, "Kind of environment")
    assert (
        line(report, "PyTorch version") == "9.8.7+cu128"
    )  # found where an import would find it, outside {site}


def test_a_system_interpreter(tmp_path: Path) -> None:
    report = of(BASE, tmp_path)
    assert line(report, "Kind of environment") == "no virtual environment: an interpreter's own packages"
    text = subprocess.run(
        [str(BASE), "-c", "import sys; print(sys.version)"], capture_output=True, text=True, check=True
    )
    assert line(report, "Python version") == f"{text.stdout.strip()} (64-bit runtime)"


def test_the_users_own_packages_belong_to_a_system_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUSERBASE", str(tmp_path / "user"))
    package(tmp_path / "user" / SITE, "flash-attn", "2.8.3")
    assert "flash-attn==2.8.3" in pip_lines(of(BASE, tmp_path))
    subprocess.run([str(BASE), "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    assert pip_lines(of(tmp_path / "venv" / "bin" / "python", tmp_path)) == ["No relevant packages"]


def test_a_conda_environment(conda_prefix: Path, tmp_path: Path) -> None:
    report = of(conda_prefix, tmp_path)
    assert line(report, "Kind of environment") == "conda environment"
    assert pip_lines(report) == ["numpy==2.2.6"]
    listed = [one for one in report.splitlines() if one.startswith("[conda] ")]
    # A version of four parts looks like an address, and must not be taken for one.
    assert listed == [
        "[conda] cuda-nvcc==12.8.93 hcdd1206_1",
        "[conda] cudnn==9.10.1.4 h7d33bf5_0",
        "[conda] numpy==2.2.6 py311h64a7726_0",
    ]


def test_a_broken_torch_is_reported_and_never_imported(uv_venv: Path, tmp_path: Path) -> None:
    torch_that_raises(uv_venv.parent.parent / SITE, tmp_path / "tried")
    report = of(uv_venv, tmp_path)
    assert not (tmp_path / "tried").exists()
    assert line(report, "PyTorch version") == "9.8.7+cu128"
    assert line(report, "Is debug build") == "False"
    assert line(report, "CUDA used to build PyTorch") == "12.8"
    assert line(report, "ROCM used to build PyTorch") == "N/A"
    assert line(report, "Is CUDA available").startswith(
        ("not asked: torch is not imported", "False (there is no device")
    )
    assert (
        subprocess.run([str(uv_venv), "-c", "import torch"], capture_output=True, check=False).returncode == 1
    )
    assert (tmp_path / "tried").exists()


def test_a_torch_for_the_processor_needs_no_asking(uv_venv: Path, tmp_path: Path) -> None:
    folder = uv_venv.parent.parent / SITE / "torch"
    folder.mkdir()
    (folder / "version.py").write_text(
        "__version__ = '2.10.0+cpu'\ndebug = False\ncuda = None\nhip = None\n", encoding="utf-8"
    )
    report = of(uv_venv, tmp_path)
    assert line(report, "Is CUDA available") == "False (torch was built for the processor only)"
    assert line(report, "CUDA used to build PyTorch") == "None"


def test_an_interpreter_that_dies_is_said_to(tmp_path: Path) -> None:
    dead = tmp_path / "python"
    dead.write_text(
        "#!/bin/sh\necho 'error while loading shared libraries: libpython3.12.so.1.0' >&2\nexit 127\n",
        encoding="utf-8",
    )
    dead.chmod(0o755)
    report = of(dead, tmp_path)
    assert "exit code 127" in line(report, "Python version")
    assert "libpython3.12.so.1.0" in line(report, "Python version")
    assert pip_lines(report) == ["No relevant packages"]


def test_there_may_be_no_environment_at_all(tmp_path: Path) -> None:
    report = of(tmp_path / "gone" / "bin" / "python", tmp_path)
    assert report.startswith("Environment: none ")
    assert line(report, "PyTorch version") == "no environment to look at"
    assert pip_lines(report) == ["no environment to look at"]
    assert line(report, "OS") != "Could not collect"


def test_the_form_is_vllms(tmp_path: Path) -> None:
    report = of(BASE, tmp_path)
    heads = re.findall(r"(?m)^={30}\n +(.+)\n={30}$", report.replace("Versions of", " Versions of"))
    assert tuple(heads) == SECTIONS
    places = [re.search(rf"(?m)^{re.escape(label)} *:", report) for label in LABELS]
    assert all(places), [label for label, place in zip(LABELS, places, strict=True) if not place]
    starts = [place.start() for place in places if place]
    assert starts == sorted(starts)
    assert "\nGPU Topology:\n" in report


# Variables: which are shown, and what is kept back.


def test_variables_that_matter_are_shown_and_secrets_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    monkeypatch.setenv("VLLM_ATTENTION_BACKEND", "FLASH_ATTN\nsecond line")
    monkeypatch.setenv("VLLM_API_KEY", "s3cret-one")
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmn")
    monkeypatch.setenv("HF_ENDPOINT", "https://alice:s3cret-two@mirror.example/hf")
    monkeypatch.setenv("VLLM_S3_ENDPOINT", "https://s3cret-four@store.example")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret-three")
    monkeypatch.setenv("VLLM_HOST_IP", "10.1.2.3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8f2b54a1-1111-2222-3333-444455556666")
    report = of(BASE, tmp_path)
    shown = report.partition("Environment Variables")[2]
    assert "\nNCCL_P2P_DISABLE=1\n" in shown
    assert "\nVLLM_ATTENTION_BACKEND=FLASH_ATTN second line\n" in shown
    assert "\nVLLM_API_KEY=<set, not shown>\n" in shown
    assert "\nHF_ENDPOINT=https://<credentials>@mirror.example/hf\n" in shown
    assert "\nVLLM_S3_ENDPOINT=https://<credentials>@store.example\n" in shown
    assert "\nVLLM_HOST_IP=<ip>\n" in shown
    assert "\nCUDA_VISIBLE_DEVICES=GPU-<uuid>\n" in shown
    for secret in ("s3cret", "hf_abc", "AWS_SECRET", "8f2b54a1"):
        assert secret not in report


def test_the_list_of_names_holds_no_value(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is what a recording keeps, so a secret must not be able to come this way."""
    monkeypatch.setenv("CUDA_HOME", "/opt/cuda")
    monkeypatch.setenv("MY_SECRET", "torch")
    out = LiveProbe(Workspace(tmp_path)).run(collect.ENV_ARGV).out.split()
    assert "CUDA_HOME" in out
    assert not [name for name in out if "=" in name or name == "MY_SECRET"]


def test_home_host_and_user_are_replaced(
    uv_venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USER", "alicesmith")
    monkeypatch.setattr("socket.gethostname", lambda: "gpubox17")
    monkeypatch.setenv("TRITON_CACHE_DIR", "/scratch/alicesmith/gpubox17")
    report = of(uv_venv, tmp_path)
    assert report.startswith("Environment: ~/uv/bin/python ")
    assert "TRITON_CACHE_DIR=/scratch/<user>/<host>" in report
    assert "alicesmith" not in report


# A machine with cards, made up.


def gpu_machine(**changes: Any) -> dict[str, Any]:
    facts = {
        "version": "3.12.3 (main) [GCC 13]", "bits": 64, "platform": "Linux-6.8", "executable": "{prefix}/bin/python", "venv": True,
        "packages": [["{site}", ["torch-2.10.0.dist-info", "vllm-0.19.1.dist-info", "nvidia_cudnn_cu12-9.10.2.21.dist-info"]]],
        "torch_version": VERSION_FILE.replace("9.8.7", "2.10.0"), "vllm_version": "__version__ = version = '0.19.1'\n",
    }  # fmt: skip
    answers: dict[str, Any] = {
        "inside interpreter": facts,
        "run nvidia-smi -L": "GPU 0: NVIDIA H200 (UUID: GPU-aa)\nGPU 1: NVIDIA H200 (UUID: GPU-bb)\n",
        questions.run(nvidia.ARGV): H200,
        "run nvidia-smi topo -m": "\t\x1b[4mGPU0\tGPU1\x1b[0m\nGPU0\t X \tNV18\n",
        "run /sbin/ldconfig -p": "\tlibcudnn.so.9 (libc6,x86-64) => /usr/lib/libcudnn.so.9\n",
        "read /proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu\n",
        "glob /dev/nvidia[0-9]*": ("/dev/nvidia0",),
        "run uname -srm": "Linux 6.8.0 x86_64\n",
        "run nvcc --version": "Cuda compilation tools, release 12.8, V12.8.93\n",
    }
    return {**answers, **changes}


def reported(answers: Mapping[str, Any]) -> str:
    return collect.report(Host(answers), "made up", lambda text: text)


def test_cards_driver_and_topology() -> None:
    report = reported(gpu_machine())
    assert "GPU models and configuration : \nGPU 0: NVIDIA H200\nGPU 1: NVIDIA H200\n" in report
    assert line(report, "Nvidia driver version") == "580.159.04"
    assert line(report, "CUDA runtime version") == "12.8.93"
    assert (
        "nvidia-cudnn-cu12==9.10.2.21 (in this environment)\n/usr/lib/libcudnn.so.9 (in the loader's cache)\n"
        in report
    )
    assert "GPU Topology:\n  \tGPU0\tGPU1\n  GPU0\t X \tNV18\n" in report
    assert "Machine code in torch:\n  sm_70 sm_75 sm_80 sm_86 sm_90 sm_100 sm_120 (" in report
    assert line(report, "GCC version") == "not recorded"
    assert (
        line(report, "Is CUDA available")
        == "not asked: torch is not imported (runbook check TORCH --cost inside asks)"
    )


@pytest.mark.parametrize(
    ("arch", "wsl", "says"),
    [("x86_64", (), "False ("), ("x86_64", ("/dev/dxg",), "not asked"), ("aarch64", (), "not asked")],
)
def test_no_node_of_a_card_settles_the_question_where_there_must_be_one(
    arch: str, wsl: tuple[str, ...], says: str
) -> None:
    nodes = {"glob /dev/nvidia[0-9]*": (), "glob /dev/dxg": wsl, "run uname -srm": f"Linux 6.8.0 {arch}\n"}
    assert line(reported(gpu_machine(**nodes)), "Is CUDA available").startswith(says)


def test_a_torch_that_is_in_no_table_gets_no_list() -> None:
    answers = gpu_machine()
    answers["inside interpreter"]["torch_version"] = "__version__ = '2.10.0+cu199'\ncuda = '19.9'\n"
    assert "Machine code in torch:\n  not in the table of releases (" in reported(answers)


def test_a_driver_that_fails_leaves_its_words() -> None:
    failing = Ran((), 18, "Failed to initialize NVML: Driver/library version mismatch\n", "")
    report = reported(gpu_machine(**{"run nvidia-smi -L": failing, questions.run(nvidia.ARGV): failing}))
    assert "exit code 18: Failed to initialize NVML: Driver/library version mismatch" in line(
        report, "GPU models and configuration"
    )
    assert line(report, "Nvidia driver version").startswith("570.86.15 (the loaded kernel module")


def test_a_driver_that_hangs_is_asked_once() -> None:
    host = Host(gpu_machine(**{"run nvidia-smi -L": Ran((), -9, "", "", timed_out=True)}))
    report = collect.report(host, "made up", lambda text: text)
    assert "no answer in time" in line(report, "GPU models and configuration")
    assert [
        one for one in host.asked if one.startswith("run nvidia-smi") and one != "run nvidia-smi -L"
    ] == []


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"error": "killed", "rc": -9, "stderr": ""},
        {"version": 3, "bits": "x"},
        {"packages": [[1]]},
        {"bits": 1e999},
    ],
)
def test_an_odd_answer_of_the_interpreter_is_no_crash(odd: dict[str, Any]) -> None:
    answers = gpu_machine(
        **{"inside interpreter": odd, "glob {site}/*.dist-info": ("{site}/torch-2.2.0.dist-info",)}
    )
    answers["read {site}/torch/version.py"] = None
    answers["read {site}/vllm/_version.py"] = None
    report = reported(answers)
    assert pip_lines(report) == ["torch==2.2.0"]
    assert line(report, "Python version")


# Recordings.


@pytest.mark.parametrize("name", replay.names())
def test_every_recorded_machine_gives_a_report(name: str) -> None:
    recording = replay.load(name)
    for stack in (*recording.stacks, ""):
        report = collect.report(replay.ReplayProbe(recording, stack), "recorded", lambda text: text)
        assert len(re.findall(r"(?m)^={30}$", report)) == 2 * len(SECTIONS)


def test_what_a_recording_did_not_ask_is_said_to_be_so() -> None:
    report = reported({})
    assert (
        line(report, "OS") == line(report, "Python version") == line(report, "vLLM Version") == "not recorded"
    )


def test_a_recorded_report_reads_as_the_live_one(
    uv_venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``runbook record`` asks the report's questions too: then a replay leaves nothing open."""
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    torch_that_raises(uv_venv.parent.parent / SITE, tmp_path / "tried")
    live = LiveProbe(Workspace(tmp_path / "work"), GPU, uv_venv)
    folder = tmp_path / "machine"
    said = collect.report(CachedProbe(RecordProbe(live, folder)), "one way", lambda text: text)
    finish(folder, (GPU,))
    again = collect.report(replay.ReplayProbe(replay.load(str(folder)), GPU), "one way", lambda text: text)
    assert "not recorded" not in again
    assert "OMP_NUM_THREADS=4" in again

    def plain(text: str) -> list[str]:
        return RecordProbe(live, folder).redact(text).splitlines()

    assert plain(again) == plain(said)


# Which environment, and the command.


def test_the_first_python_on_path_that_is_not_ours(tmp_path: Path) -> None:
    for folder, names in (
        ("own/bin", ("python",)),
        ("a/bin", ("python3",)),
        ("b/bin", ("python3", "python")),
        ("c/bin", ()),
    ):
        (tmp_path / folder).mkdir(parents=True)
        for name in names:
            (tmp_path / folder / name).write_text("", encoding="utf-8")
            (tmp_path / folder / name).chmod(0o755)
    (tmp_path / "c/bin/python").write_text("not a program", encoding="utf-8")

    def first(*folders: str) -> str:
        search = os.pathsep.join(str(tmp_path / one) if one else "" for one in folders)
        found = collect.first_on_path(search, str(tmp_path / "own"))
        return found.removeprefix(f"{tmp_path}/")

    assert first("own/bin", "a/bin", "b/bin") == "a/bin/python3"
    assert first("", "b/bin", "a/bin") == "b/bin/python"
    assert first("own/bin", "c/bin", "gone") == ""


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Command]:
    monkeypatch.setenv("RUNBOOK_HOME", str(tmp_path / "home"))
    for name in ("RUNBOOK_MACHINE", "RUNBOOK_RECORD"):
        monkeypatch.delenv(name, raising=False)

    def ended(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["runbook", "collect", *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert isinstance(end.value.code, int)
        return end.value.code, *capsys.readouterr()

    yield ended
    assert not (tmp_path / "home").exists()


def test_the_command_names_the_environment_it_took(
    command: Command, uv_venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = command("--target", str(uv_venv))
    assert code == 0
    assert out.splitlines()[0].endswith("uv/bin/python (named by --target)")
    monkeypatch.setenv("PATH", f"{uv_venv.parent}{os.pathsep}{os.environ['PATH']}")
    code, out, _ = command()
    assert code == 0
    assert re.match(r"Environment: \S+/uv/bin/python \(first on PATH; ", out)
    code, out, _ = command("--stack", GPU)
    assert code == 0
    assert out.splitlines()[0] == f"Environment: none (the target of the stack {GPU} is not built)"


def test_the_command_loads_nothing_slow(tmp_path: Path) -> None:
    env = {**os.environ, "RUNBOOK_HOME": str(tmp_path / "home")}
    words = [sys.executable, "-X", "importtime", "-m", "runbook", "collect", "--target", str(BASE)]
    ended = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    loaded = {
        one.rpartition("|")[2].strip().partition(".")[0] for one in ended.stderr.splitlines() if "|" in one
    }
    assert "runbook" in loaded
    slow = {
        "torch",
        "vllm",
        "numpy",
        "httpx",
        "pydantic",
        "elftools",
        "jinja2",
        "IPython",
        "nbformat",
        "papermill",
    }
    assert loaded & slow == set()


def test_the_command_on_a_recording_says_that_it_is_one(command: Command) -> None:
    code, out, _ = command("--machine", "recorded:h200-vllm-0.19.1")
    assert code == 0
    assert out.startswith("REPLAY of the recorded machine h200-vllm-0.19.1")
    assert "[pip3] vllm==0.19.1\n" in out
    assert "GPU 0: NVIDIA H200" in out


def test_the_command_writes_a_file_or_says_why_not(command: Command, tmp_path: Path) -> None:
    code, out, _ = command("--machine", "recorded:cpu-2core", "--out", str(tmp_path / "report.txt"))
    assert (code, out) == (0, "")
    assert "PyTorch Info" in (tmp_path / "report.txt").read_text(encoding="utf-8")
    code, _, err = command("--machine", "recorded:cpu-2core", "--out", str(tmp_path / "no" / "report.txt"))
    assert code == 2
    assert "No such file or directory" in err


def test_a_target_that_is_no_program_is_refused(command: Command, tmp_path: Path) -> None:
    code, _, err = command("--target", str(tmp_path / "python"))
    assert code == 2
    assert "is not a program" in err
