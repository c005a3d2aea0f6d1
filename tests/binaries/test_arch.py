"""``runbook arch``: one table of files by cards, as text for people and as JSON of a fixed form for programs."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import made
import pytest
from made import ATTENTION, FILES, TORCH, VLLM, container, elf, library, ptx, sass

from runbook import arch, cli
from runbook.checks import arch as rules
from runbook.checks import readings
from runbook.errors import BadParameter
from runbook.parse.binaries import Binary, Unit
from runbook.probe import Ran

HOPPER = {"9.0": ["H200"]}
CORE = Binary("torch/lib/libtorch_cuda.so", 1, ("sm_90",), ())


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """An interpreter whose site-packages hold made-up libraries."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True, timeout=120
    )
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    made.site(site, FILES)
    return tmp_path / "venv" / "bin" / "python"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a call, in this process."""
    sys.argv = ["runbook", "arch", *words]
    with pytest.raises(SystemExit) as end:
        cli.main()
    seen = capsys.readouterr()
    return int(end.value.code or 0), seen.out, seen.err


@pytest.fixture(autouse=True)
def _workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNBOOK_HOME", str(tmp_path / "work"))
    monkeypatch.delenv("RUNBOOK_MACHINE", raising=False)
    monkeypatch.setattr(sys, "argv", ["runbook"])


def test_the_json_has_the_promised_form(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(
        capsys,
        "--target",
        str(target),
        "--gpu",
        "H200",
        "--gpu",
        "RTX 4090",
        "--gpu",
        "sm_120",
        "--format",
        "json",
    )
    assert json.loads(out) == [
        {"file": "torch/lib/libtorch_cuda.so", "sass": ["sm_80", "sm_90", "sm_90a"], "ptx": [], "gpus": {"sm_90": "native", "sm_89": "native", "sm_120": "none"}},
        {"file": "vllm/_C.abi3.so", "sass": ["sm_80", "sm_90"], "ptx": ["compute_80"], "gpus": {"sm_90": "native", "sm_89": "native", "sm_120": "ptx-jit"}},
        {"file": "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", "sass": ["sm_80"], "ptx": ["compute_80"], "gpus": {"sm_90": "ptx-jit", "sm_89": "native", "sm_120": "ptx-jit"}},
    ]  # fmt: skip
    assert code == 1, "torch has none for sm_120"


def test_the_table_says_what_each_file_is_on_each_card(
    target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "--target", str(target), "--gpu", "H200", "--gpu", "l4")
    assert code == 0
    assert (
        out
        == """\
sm_90    H200
sm_89    l4

                                                            sm_90     sm_89
torch
  lib/libtorch_cuda.so                                      native    native
vllm
  _C.abi3.so                                                native+1  native
  vllm_flash_attn/_vllm_fa2_C.abi3.so                       ptx-jit   native

native   holds machine code (SASS) that this card runs
ptx-jit  holds PTX only: the driver compiles it when it is first used
none     'no kernel image is available for execution on the device'
+N       native, but N of its source files were compiled to PTX only

sm_90    torch: native, vLLM: native
sm_89    torch: native, vLLM: native
"""
    )


def test_no_file_is_loaded_and_nothing_but_what_is_kept_is_written(
    target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path for path in (tmp_path / "venv").rglob("*") if "__pycache__" not in path.parts)
    run(capsys, "--target", str(target), "--gpu", "H200")
    assert (
        sorted(path for path in (tmp_path / "venv").rglob("*") if "__pycache__" not in path.parts) == before
    )
    assert not (tmp_path / "work").exists(), "there was no workspace, and a look makes none"


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"torch/lib/libtorch_cuda.so": TORCH, "vllm/_C.abi3.so": VLLM}, 0),
        ({"torch/lib/libtorch_cuda.so": TORCH}, 0),
        ({"torch/lib/libtorch_cuda.so": TORCH, "vllm/_C.abi3.so": library(container(sass(80)))}, 1),
        ({"torch/lib/libtorch_cuda.so": library(container(sass(80), ptx(80)))}, 0),
        ({"torch/lib/libtorch_cuda.so": TORCH, "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so": library(container(sass(120)))}, 0),
        ({"vllm/_C.abi3.so": VLLM}, 1),
        ({}, 1),
        ({"torch/lib/libtorch_cuda.so": TORCH[:-100]}, 3),
    ],
    ids=["both", "torch alone", "vLLM has none", "torch of PTX", "an attention kernel that is not taken", "no torch", "nothing", "damaged"],
)  # fmt: skip
def test_the_exit_code_is_about_what_every_start_loads(
    files: dict[str, bytes], code: int, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (site,) = target.parents[1].glob("lib/python*/site-packages")
    for name in FILES:
        (site / name).unlink()
    made.site(site, files)
    assert run(capsys, "--target", str(target), "--gpu", "H200")[0] == code
    assert run(capsys, "--target", str(target), "--gpu", "H200", "--format", "json")[0] == code


def test_wheels_are_read_before_they_are_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = elf({".text": b"\0"}, machine=190, flags=0x600640A, abi=65)
    wheels = [
        made.wheel(tmp_path / "torch-2.whl", {"torch/lib/libtorch_cuda.so": TORCH, "torch/lib/libc.so": elf({".text": b"\xc3"}), "torch/a.py": b""}),
        made.wheel(tmp_path / "vllm-1.whl", {"vllm-1.data/platlib/vllm/_C.abi3.so": VLLM}),
        made.wheel(tmp_path / "cubins-1.whl", {"cubins/a.cubin": program, "cubins/b.cubin": program}),
    ]  # fmt: skip
    code, out, _ = run(capsys, *map(str, wheels), "--gpu", "H200", "--format", "json")
    assert code == 0
    assert {row["file"]: row["gpus"]["sm_90"] for row in json.loads(out)} == {
        "torch/lib/libtorch_cuda.so": "native",
        "vllm/_C.abi3.so": "native",
        "cubins/": "none",
    }
    assert run(capsys, str(wheels[0]), "--gpu", "sm_120")[0] == 1
    assert run(capsys, str(wheels[2]), "--gpu", "sm_120")[0] == 0, (
        "no file of torch's or vLLM's core is in it"
    )


def damaged(path: Path) -> Path:
    """A wheel whose middle was overwritten."""
    made.wheel(path, {"torch/lib/libtorch_cuda.so": TORCH})
    data = bytearray(path.read_bytes())
    data[60:90] = bytes(30)
    path.write_bytes(bytes(data))
    return path


def test_bad_input_ends_with_2_and_says_what_to_do(
    target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "page.whl").write_text("<html>404</html>")
    bad: dict[str, tuple[str, ...]] = {
        "no card": ("--gpu", "RTX 9090", "--target", str(target)),
        "--gpu sm_120": ("--target", str(target)),
        "is not a program": ("--target", str(tmp_path / "none"), "--gpu", "h200"),
        "no target environment": ("--gpu", "h200"),
        "one of the two": (str(tmp_path / "page.whl"), "--target", str(target), "--gpu", "h200"),
        "page.whl cannot be read": (str(tmp_path / "page.whl"), "--gpu", "h200"),
        "none.whl cannot be read": (str(tmp_path / "none.whl"), "--gpu", "h200"),
        "damaged.whl cannot be read": (str(damaged(tmp_path / "damaged.whl")), "--gpu", "h200"),
        "Invalid value": ("--target", str(target), "--gpu", "h200", "--format", "xml"),
    }
    for says, words in bad.items():
        code, out, err = run(capsys, *words)
        assert (code, out) == (2, ""), says
        assert says in err
        assert "do: " in err


def test_a_file_that_cannot_be_read_is_in_the_json_without_a_verdict() -> None:
    damaged_file = Binary("torch/lib/libtorch_cuda.so", 1, (), (), problem="cut short")
    (row,) = json.loads(arch.as_json([damaged_file], HOPPER))
    assert row == {"file": damaged_file.file, "sass": [], "ptx": [], "gpus": {}, "problem": "cut short"}
    assert "could not be read" in arch.as_text([damaged_file], HOPPER)
    assert "torch: not read" in arch.as_text([damaged_file], HOPPER)


def many(count: int) -> list[Binary]:
    names = [
        f"package_{index // 7:02}/a/rather/long/way/down/to/a/library/that/has/a/long/name_{index}.abi3.so"
        for index in range(count)
    ]
    return [Binary(name, 1, ("sm_80",), (), units=(Unit(999, ("sm_80",), ()),)) for name in names]


@pytest.mark.parametrize(
    "caps",
    [
        ["9.0"],
        ["7.5", "8.0", "8.9", "9.0"],
        ["7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0"],
    ],
)
def test_it_is_80_columns_wide_with_60_files_and_any_number_of_cards(caps: list[str]) -> None:
    text = arch.as_text(
        [*many(60), CORE],
        {
            cap: [f"{index} NVIDIA RTX PRO 6000 Blackwell Server Edition" for index in range(8)]
            for cap in caps
        },
    )
    assert max(map(len, text.splitlines())) <= 80
    assert all(text.count(f"name_{index}.abi3.so") == -(-len(caps) // 4) for index in range(60))
    assert not [line for line in text.splitlines() if line != line.rstrip()]


def test_cards_of_one_capability_share_a_column() -> None:
    class NoHost:
        pass

    host: Any = NoHost()
    assert arch.cards(host, ["RTX 4090", "L4", "sm_90"]) == {"8.9": ["RTX 4090", "L4"], "9.0": ["sm_90"]}


def test_it_answers_for_a_recorded_machine_and_says_that_it_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The question is the one that the checks put, so a recording with it answers; its GPUs are the default."""
    folder = tmp_path / "machine"
    (folder / "answers").mkdir(parents=True)
    (folder / "machine.toml").write_text(
        'name = "machine"\nwhat = "a test"\nrecorded = "2026-11-30"\nstacks = ["vllm-0.19.1-cu128"]\n'
    )
    smi = "0, NVIDIA H200, 9.0, 580.159.04, 143771, 0, 0, Disabled\n"
    answers = {
        ("", "glob /dev/nvidia[0-9]*"): "/dev/nvidia0\n",
        ("", readings.GPU_QUESTION): smi,
        ("vllm-0.19.1-cu128", readings.BINARIES): json.dumps(
            {"files": [{"file": CORE.file, "bytes": 1, "sass": ["sm_90"], "ptx": []}]}
        ),
    }
    index = []
    for number, ((stack, ask), text) in enumerate(answers.items()):
        (folder / "answers" / f"{number}.txt").write_text(text)
        index.append({"ask": ask, "stack": stack, "file": f"{number}.txt"})
    (folder / "index.json").write_text(json.dumps(index))
    code, out, _ = run(capsys, "--machine", f"recorded:{folder}")
    assert code == 0
    assert "sm_90    0 NVIDIA H200" in out
    assert "recorded" in out.splitlines()[0]
    assert json.loads(run(capsys, "--machine", f"recorded:{folder}", "--format", "json")[1])[0]["gpus"] == {
        "sm_90": "native"
    }
    (folder / "index.json").write_text(json.dumps(index[:-1]))
    code, out, err = run(capsys, "--machine", f"recorded:{folder}")
    assert (code, out) == (3, ""), "a gap in a recording is no verdict"
    assert "runbook.binaries" in err


def test_core_files_are_those_of_the_table() -> None:
    names = [
        "torch/lib/libtorch_cuda.so",
        "torch/lib/libtorch_nvshmem.so",
        "vllm/_C.abi3.so",
        "vllm/_flashmla_C.abi3.so",
        "vllm/_moe_C.abi3.so",
    ]
    files = [Binary(name, 1, (), ()) for name in names]
    assert [one.file for one in rules.core(files)] == [names[0], names[2], names[4]]
    assert [one.file for one in rules.core(files, "vllm")] == [names[2], names[4]]


def test_a_wheel_with_a_library_of_no_interest_unpacks_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    whole = zipfile.ZipFile.open

    def watched(self: zipfile.ZipFile, member: Any, *rest: Any, **more: Any) -> Any:
        opened.append(member.filename)
        return whole(self, member, *rest, **more)

    path = made.wheel(tmp_path / "a.whl", {"a/x.py": b"", "a/big.bin": bytes(100), "a/_C.so": ATTENTION})
    monkeypatch.setattr(zipfile.ZipFile, "open", watched)
    assert [one.file for one in arch.of_wheels([path])] == ["a/_C.so"]
    assert opened == ["a/_C.so"]


def test_no_card_here_and_none_named() -> None:
    class NoGpu:
        machine = "live"

        def run(self, *_: Any) -> Any:
            return Ran((), 127, "", "", missing=True)

    host: Any = NoGpu()
    with pytest.raises(BadParameter) as caught:
        arch.cards(host, [])
    assert "--gpu" in caught.value.do
