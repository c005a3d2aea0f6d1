"""Every check has a page that ships with the runbook, and the page asks the machine what the check asks it.

The questions are not listed here: each check is run against probes that write down what they are asked, a made-up GPU
machine and a made-up CPU one, healthy and with something amiss, and the recorded machines that come with the runbook.
"""

import contextlib
import re
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from runbook import pins, report
from runbook.checks import ALL, BY_ID
from runbook.checks.gpu_readings import PEERS
from runbook.errors import NotRecorded
from runbook.model import Check
from runbook.parse import binaries, checkpoint, kernel_log, nvidia, nvidia_xml
from runbook.probe import Ran, Reply
from runbook.probes import questions, replay

PAGES = sorted(report.EXPLAIN.glob("*.md"))
RETIRED: tuple[str, ...] = ()  # ids of checks that are gone; their pages stay and say when and why
HEADINGS = (
    "## What it means",
    "## See it yourself",
    "## Why it happens",
    "## Fix",
    "## Undo",
    "## Source",
)
WIDTH = 100
# In parts, so that this file names none itself.
REGISTRY_HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("files", "pythonhosted", "org"),
        ("conda", "anaconda", "org"),
        ("download", "pytorch", "org"),
        ("ghcr", "io"),
    )
)
IDS = [one.id for one in ALL]

# What a variable on a page stands for, in the words of a probe.
VARIABLES = ("own", "work", "disk", "python", "site", "prefix", "model", "port", "home", "stack")
# How a page writes what a check builds from a variable of the machine; of a list of folders, one at a time.
ENVIRONMENT = {
    "CUDA_HOME": "$CUDA_HOME",
    "CC": "$CC",
    "CXX": "$CXX",
    "LD_LIBRARY_PATH": "$folder",
    "PYTHONPATH": "$folder",
}
CONFIG = '{"model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"], "text_config": {}}'


# A machine with one control group hierarchy a controller, and one with a single hierarchy.
MOUNTINFO = (
    "".join(
        f"35 31 0:3 / /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}\n"
        for name in ("cpu", "memory", "pids")
    ),
    "38 31 0:29 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
)


# Two cards without NVLink on a machine with an IOMMU, and one that was cut up.
SMI_XML = tuple(
    f"<nvidia_smi_log><attached_gpus>2</attached_gpus>{card * 2}</nvidia_smi_log>"
    for card in (
        "<gpu><product_name>a</product_name></gpu>",
        "<gpu><mig_mode><current_mig>Enabled</current_mig></mig_mode><mig_devices><mig_device/></mig_devices></gpu>",
    )
)


# A quantised checkpoint that came from a hub.
EXAMINED = '{"origin": {"quantisation": "fp8"}, "tokenizer": {"class": "X"}, "hub": {"files": 1, "revisions": {"a": 1}}, "faults": []}'
# A vLLM of PTX alone, so that the driver's age matters.
CODE = '{"files": [{"file": "vllm/_C.abi3.so", "sass": [], "ptx": ["compute_80"], "isa": {"compute_80": "8.8"}}], "links": {}}'


class Asked:
    """A machine that is made up, answers what a check expects, and remembers every question put to it."""

    machine = "live"
    has_target = True

    def __init__(self, stack: str, *, amiss: bool = False) -> None:
        self.stack = stack
        self.amiss = amiss
        self.gpu = pins.stack(stack).device == "cuda"
        self.questions: list[str] = []

    def run(self, argv: list[str], timeout_s: float = 20.0) -> Ran:
        assert timeout_s > 0
        self.questions.append(questions.run(argv))
        gpu_row = "0, NVIDIA H200, 9.0, 580.159.04, 143771, 0, 0, Disabled" if self.gpu else ""
        says = {
            ("{own}/python", "-V"): "Python 3.9.2" if self.amiss else "Python 3.12.1",
            tuple(nvidia.ARGV): gpu_row,
            tuple(binaries.ARGV): CODE,
            tuple(checkpoint.ARGV): EXAMINED,
            tuple(nvidia_xml.ARGV): SMI_XML[self.amiss] if self.gpu else "",
            tuple(PEERS): " \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n",
            tuple(kernel_log.DMESG): "[    0.000000] NVRM: GPU 0000:00:06.0: RmInitAdapter failed!\n"
            * self.gpu,
            ("nproc",): "2",
            ("sh", "-c", "command -v nvcc"): "/usr/local/cuda/bin/nvcc",
        }
        return Ran(
            tuple(argv), 0, says.get(tuple(argv), "release 13.0"), "", missing=argv[0].startswith("python3")
        )

    def read_text(self, path: str) -> str | None:
        self.questions.append(f"read {path}")
        return {
            "{model}/config.json": CONFIG,
            "{work}/jobs/server.json": '{"name": "server", "pid": 1}',
            "{prefix}/pyvenv.cfg": "version_info = 3.12.1",
            "/proc/meminfo": "MemAvailable: 20000000 kB",
            "/proc/self/cgroup": "0::/a\n" if self.amiss else "4:memory:/a\n3:pids:/\n1:cpu:/\n",
            "/proc/self/mountinfo": MOUNTINFO[self.amiss],
            "/proc/version": f"Linux version 6.8.0{'-microsoft-standard-WSL2' * self.amiss} (a@b)",
            "/proc/bus/pci/devices": f"0030\t10de2335{chr(9) * 16}" if self.gpu else None,
            "/proc/sys/vm/overcommit_memory": "2" if self.amiss else "0",
        }.get(path)

    def glob(self, pattern: str) -> tuple[str, ...]:
        self.questions.append(f"glob {pattern}")
        if pattern == "/dev/nvidia[0-9]*":
            return ("/dev/nvidia0",) if self.gpu and not self.amiss else ()
        if pattern == "{site}/*.dist-info":
            stack = pins.stack(self.stack)
            return (f"{{site}}/{stack.distribution.replace('-', '_')}-{stack.vllm}.dist-info",)
        if pattern in ("{site}/vllm/__init__.py", "{site}/flash_attn"):
            return (pattern,)
        if pattern == "{site}/*.pth":
            return ("{site}/__editable__.vllm-0.19.2.pth",)
        return ("{work}/jobs/server.json",) if pattern == "{work}/jobs/*.json" else ()

    def env(self, name: str) -> str | None:
        self.questions.append(f"env {name}")
        # Set to its own name, so that a question built from it reads as it does on a page.
        return ENVIRONMENT.get(name, f"${name}") if self.amiss else None

    def inside(
        self, script: str, args: dict[str, str] | None = None, timeout_s: float = 120.0
    ) -> dict[str, Any]:
        assert timeout_s > 0
        self.questions.append(questions.inside(script, args))
        return {"error": "made up"} if self.amiss else dict.fromkeys(("version", "own_prefix", "gpus"), 0)

    def http(self, method: str, path: str, json: dict[str, Any] | None = None) -> Reply:
        self.questions.append(questions.http(method, path, json))
        return Reply(200, "{}")


class Listening(replay.ReplayProbe):
    """A recorded machine that remembers what it was asked; ``_find`` is where every question arrives."""

    def __init__(self, recording: replay.Recording, stack: str) -> None:
        super().__init__(recording, stack)
        self.questions: list[str] = []
        self.values: dict[str, str] = {}

    def _find(self, ask: str) -> replay.Entry:
        self.questions.append(by_variable(ask, self.values))
        return super()._find(ask)

    def env(self, name: str) -> str | None:
        value = super().env(name)
        if name in ENVIRONMENT:
            folders = [part.rstrip("/") for part in (value or "").split(":")]
            self.values |= {folder: ENVIRONMENT[name] for folder in folders if folder}
        return value


def by_variable(question: str, values: dict[str, str]) -> str:
    """The question with the machine's values as their variables, where one is a word or begins a path."""
    for value, written in values.items():
        question = re.sub(rf"(?<= ){re.escape(value)}(?=[ /]|$)", written, question)
    return question


def hosts() -> list[Any]:
    made_up: list[Any] = [Asked(name, amiss=amiss) for name in pins.names() for amiss in (False, True)]
    for name in replay.names():
        recording = replay.load(name)
        if recording.edited_from:
            continue  # asks what its parent asks, or what only its edit leads to
        made_up += [Listening(recording, stack) for stack in recording.stacks or ("",)]
    return made_up


# How a machine without a node of a card is told from one under Windows; asked to choose the stack. HOST-011 teaches it.
FOR_THE_STACK = {"glob /dev/dxg", "glob /usr/lib/wsl/lib/libcuda.so.1"}


def asked(check: Check) -> set[str]:
    """The questions of a check over all hosts. An answer the judge cannot use ends it early on that host only."""
    found: set[str] = set()
    for host in hosts():
        with contextlib.suppress(NotRecorded, KeyError, TypeError, ValueError, IndexError, AttributeError):
            check.judge(host)
        stack = host.stack or "no-stack"
        found |= {question.replace(f"/{stack}/", "/{stack}/") for question in host.questions}
    return found - FOR_THE_STACK


def text_of(ident: str) -> str:
    return (report.EXPLAIN / f"{ident}.md").read_text(encoding="utf-8")


def sections(ident: str) -> dict[str, str]:
    parts = re.split(r"(?m)^(## .+)$", text_of(ident))
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def block_of(ident: str) -> str:
    return "\n".join(re.findall(r"(?ms)^```sh\n(.+?)^```", sections(ident)["## See it yourself"]))


def shell(ident: str) -> str:
    """The commands of "See it yourself", in a probe's words."""
    return in_words_of_a_probe(block_of(ident))


def in_words_of_a_probe(code: str) -> str:
    """Commands without quotes and comments, a probe's placeholders for the page's variables."""
    code = re.sub(r"(?m)(^|\s)#.*$", "", code).replace("\\\n", " ")
    code = re.sub(r"[\"']", "", code)
    # ${NAME:-word} is $NAME where that is set and the word elsewhere: the commands put both questions.
    fallback = r"\$\{(\w+):-([^${}\s]+)\}"
    code = "\n".join(dict.fromkeys((re.sub(fallback, r"$\1", code), re.sub(fallback, r"\2", code))))
    for name in VARIABLES:
        code = re.sub(rf"\$\{{?{name}\b\}}?", f"{{{name}}}", code)
    return re.sub(r" +", " ", code)


def shown(question: str, code: str) -> bool:
    """Whether the commands put that question."""
    kind, _, rest = question.partition(" ")
    words = code.split()
    if kind == "run":
        return re.sub(r"[\"']", "", rest) in code
    if kind in ("read", "glob"):
        path = re.sub(r"/proc/\d+/", "/proc/$pid/", rest)
        return any(path == word.rstrip(";)") or fnmatchcase(path, word) for word in words) or path in code
    if kind == "env":
        return f"printenv {rest}" in code
    if kind == "http":
        return f"http://127.0.0.1:{{port}}{rest.partition(' ')[2]}" in code
    script, *pairs = rest.split()
    flags = [f"--{pair.partition('=')[0]}" for pair in pairs]
    # A page shows one device or model of several; which flags there are is what it must get right.
    return f"inside/{script}.py" in code and all(flag in code for flag in flags)


def prose(text: str) -> list[str]:
    """Lines outside code blocks."""
    lines, code = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            code = not code
        elif not code:
            lines.append(line)
    return lines


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "runbook", *words], capture_output=True, text=True, check=False, timeout=60,
        cwd=Path(__file__).parents[1],
    )  # fmt: skip


@pytest.mark.parametrize("ident", IDS)
def test_every_check_has_a_page(ident: str) -> None:
    assert report.explain_page(ident), f"write runbook/explain/{ident}.md"


def test_every_page_belongs_to_a_check_or_to_a_retired_one() -> None:
    assert not set(RETIRED) & set(IDS)
    assert {page.stem for page in PAGES} == {*IDS, *RETIRED}


@pytest.mark.parametrize("ident", IDS)
def test_the_page_is_headed_by_the_title_of_the_check(ident: str) -> None:
    assert text_of(ident).splitlines()[0] == f"# {ident}: {BY_ID[ident].title}"


@pytest.mark.parametrize("ident", IDS)
def test_the_sections_are_there_in_order_and_none_is_empty(ident: str) -> None:
    assert re.findall(r"(?m)^##? .+$", "\n".join(prose(text_of(ident))))[1:] == list(HEADINGS)
    assert all(body.strip() for body in sections(ident).values())


@pytest.mark.parametrize("ident", IDS)
def test_the_source_of_the_check_is_on_the_page(ident: str) -> None:
    source = BY_ID[ident].source
    body = sections(ident)["## Source"]
    assert source.url in body.split()
    assert source.read in body
    assert source.title in " ".join(body.split())


@pytest.mark.parametrize("ident", IDS)
def test_the_page_puts_the_questions_that_the_check_puts(ident: str) -> None:
    found = asked(BY_ID[ident])
    assert found, "no question was seen; the made-up machines of this file must answer what the check needs"
    code = shell(ident)
    assert [question for question in sorted(found) if not shown(question, code)] == []


@pytest.mark.parametrize("ident", [one.id for one in ALL if one.cost.value != "static"])
def test_a_page_of_a_costly_check_says_how_to_ask_it(ident: str) -> None:
    asks_inside = any(question.startswith("inside ") for question in asked(BY_ID[ident]))
    assert f"runbook check {ident}" in shell(ident) or not asks_inside


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_variables_of_the_commands_are_set_on_the_page(page: Path) -> None:
    """What is pasted must run: each variable of the runbook's words is set in the block before it is used."""
    if page.stem in RETIRED:
        return
    body = sections(page.stem)["## See it yourself"]
    for name in VARIABLES:
        if re.search(rf"\${name}\b", body):
            assert re.search(rf"(?m)^{name}=", body), f"${name} is never set"


@pytest.mark.parametrize("ident", IDS)
def test_the_commands_are_ones_a_shell_can_read(ident: str) -> None:
    ran = subprocess.run(
        ["bash", "-n"], input=block_of(ident), capture_output=True, text=True, check=False, timeout=20
    )
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_lines_are_short_and_no_registry_is_named(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    title, *rest = prose(text)
    assert title.startswith("# ")
    long = [line for line in rest if len(line) > WIDTH and not re.fullmatch(r"\s*https?://\S+", line)]
    assert long == []
    assert [host for host in REGISTRY_HOSTS if host in text] == []
    assert len(text.splitlines()) <= 45, "a page is read under time pressure"


@pytest.mark.parametrize(
    ("question", "code", "answer"),
    [
        ("run nvcc --version", "nvcc --version", True),
        ("run nvcc --version", "nvcc -V", False),
        ("read /proc/cpuinfo", "grep flags /proc/cpuinfo", True),
        ("read /proc/cpuinfo", "cat /proc/meminfo", False),
        ("read {site}/vllm-0.19.1.dist-info/METADATA", "grep x {site}/vllm*.dist-info/METADATA", True),
        ("env CXX", "printenv CXX", True),
        ("env CXX", "echo $CXX", False),
        ("http GET /health", "curl -i http://127.0.0.1:{port}/health", True),
        ("http GET /health", "curl -i http://127.0.0.1:{port}/version", False),
        ("inside torch_matmul device=cpu", "python runbook/inside/torch_matmul.py --device cuda", True),
        ("inside torch_matmul device=cpu", "python runbook/inside/torch_matmul.py", False),
    ],
)
def test_the_comparison_itself_tells_right_from_wrong(question: str, code: str, *, answer: bool) -> None:
    assert shown(question, code) is answer


@pytest.mark.parametrize(
    ("question", "written"),
    [
        ("run /opt/bin/g++ --version", "run $CXX --version"),
        ("run /opt/cuda/bin/nvcc --version", "run $CUDA_HOME/bin/nvcc --version"),
        ("glob /opt/lib64/lib*.so.*", "glob $folder/lib*.so.*"),
        ("glob /opt/cuda-[0-9]*", "glob /opt/cuda-[0-9]*"),
        ("read /proc/opt/cuda/version", "read /proc/opt/cuda/version"),
    ],
)
def test_a_value_of_the_machine_reads_as_its_variable(question: str, written: str) -> None:
    values = {
        "/opt/bin/g++": "$CXX",
        "/opt/cuda": "$CUDA_HOME",
        "/opt/lib": "$folder",
        "/opt/lib64": "$folder",
    }
    assert by_variable(question, values) == written


@pytest.mark.parametrize(
    ("question", "code", "answer"),
    [
        ("run $CXX --version", '"${CXX:-g++}" --version', True),
        ("run g++ --version", '"${CXX:-g++}" --version', True),
        ("run $CXX --version", "g++ --version", False),
        ("run g++ --version", '"$CXX" --version', False),
        ("run clang --version", '"${CXX:-g++}" --version', False),
    ],
)
def test_a_variable_with_a_word_in_its_place_is_both(question: str, code: str, *, answer: bool) -> None:
    assert shown(question, in_words_of_a_probe(code)) is answer


def test_explain_prints_the_page() -> None:
    ran = run("explain", "HOST-008")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, text_of("HOST-008"), "")


def test_explain_adds_what_is_said_about_it_and_takes_small_letters() -> None:
    ran = run("explain", "torch-005")
    page, _, said = ran.stdout.partition("\n## What is said about it\n")
    assert page == text_of("TORCH-005")
    assert "C040  partly: Three checks of torch" in said


def test_an_unknown_id_is_bad_input_and_says_what_to_do() -> None:
    ran = run("explain", "TORCH-999")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "'TORCH-999'" in ran.stderr
    assert "expected: an id such as" in ran.stderr
    assert "do: runbook check --list" in ran.stderr
