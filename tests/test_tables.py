"""The tables of published facts: every row has a source and a date, and the rules drawn from them hold on known cards."""

import datetime
import json
import re

import pytest

from runbook import pins, tables
from runbook.errors import BadParameter

NAMES = sorted(path.stem for path in tables.FOLDER.glob("*.json"))
REGISTRIES = ("pypi" + ".org", "pythonhosted" + ".org", "debian" + ".org")


@pytest.mark.parametrize("name", NAMES)
def test_each_row_says_where_it_is_from_and_when_it_was_read(name: str) -> None:
    for row in tables.rows(name):
        source = row["source"]
        assert source, row
        assert all(re.match(r"https?://|pkg:pypi/|docs/|measured", one) for one in ([source] if isinstance(source, str) else source)), row  # fmt: skip
        datetime.date.fromisoformat(row["read"])


@pytest.mark.parametrize("name", NAMES)
def test_a_table_says_what_it_holds_and_keeps_one_row_a_line(name: str) -> None:
    text = (tables.FOLDER / f"{name}.json").read_text(encoding="utf-8")
    assert json.loads(text)["what"].endswith(".")
    assert len(text.splitlines()) == len(tables.rows(name)) + 3
    assert not [host for host in REGISTRIES if host in text]


@pytest.mark.parametrize(
    ("said", "cap"),
    [
        ("RTX 4090", "8.9"),  # not 8.6, whatever the articles say
        ("NVIDIA GeForce RTX 4090", "8.9"),
        ("NVIDIA H200", "9.0"),
        ("h100", "9.0"),
        ("rtx5090", "12.0"),
        ("L4", "8.9"),
        ("3080", "8.6"),
        ("B200", "10.0"),
        ("sm_120", "12.0"),
        ("sm_90a", "9.0"),
        ("compute_80", "8.0"),
        ("12.1", "12.1"),
        (" 8.9 ", "8.9"),
    ],
)
def test_a_card_is_known_by_the_names_people_use(said: str, cap: str) -> None:
    assert tables.capability(said) == cap


@pytest.mark.parametrize("said", ["RTX 9090", "a potato", "", "sm_", "9", "sm_9\N{SUPERSCRIPT TWO}", "\0"])
def test_an_unknown_card_is_refused_with_what_to_do(said: str) -> None:
    with pytest.raises(BadParameter) as caught:
        tables.capability(said)
    assert "nvidia-smi" in caught.value.do


@pytest.mark.parametrize(
    ("target", "cap", "runs"),
    [
        ("sm_80", "8.0", True),
        ("sm_80", "8.9", True),
        ("sm_86", "8.0", False),
        ("sm_80", "9.0", False),
        ("sm_90", "9.0", True),
        ("sm_90a", "9.0", True),
        ("sm_100", "10.3", True),
        ("sm_100a", "10.3", False),
        ("sm_100f", "10.3", True),
        ("sm_120f", "12.1", True),
        ("sm_100f", "12.0", False),
        ("sm_86", "8.7", False),  # a Tegra part
        ("sm_87", "8.9", False),
        ("sm_87", "8.7", True),
        ("potato", "9.0", False),
    ],
)
def test_machine_code_runs_where_nvidia_says(target: str, cap: str, *, runs: bool) -> None:
    assert tables.code_runs(target, cap) is runs


@pytest.mark.parametrize(
    ("target", "cap", "compiles"),
    [
        ("compute_80", "9.0", True),
        ("compute_80", "7.5", False),
        ("compute_90a", "9.0", True),
        ("compute_90a", "10.0", False),
        ("compute_52", "12.0", True),
        ("compute_120", "12.1", True),
        ("compute_", "9.0", False),
    ],
)
def test_ptx_compiles_forward_only(target: str, cap: str, *, compiles: bool) -> None:
    assert tables.ptx_compiles(target, cap) is compiles


def test_native_code_is_preferred_to_ptx() -> None:
    assert tables.coverage(["sm_90"], ["compute_90"], "9.0") == tables.NATIVE
    assert tables.coverage(["sm_80"], ["compute_80"], "9.0") == tables.JIT
    assert tables.coverage(["sm_80"], [], "9.0") == tables.NONE
    assert tables.coverage([], [], "9.0") == tables.NONE


def test_drivers_and_toolkits() -> None:
    assert tables.driver_floor("12.8") == "525.60.13"
    assert tables.driver_floor("13") == "580.65.06"
    assert tables.driver_floor("9.2") is None
    assert tables.branch_cuda("580.159.04") == "13.0"
    assert tables.branch_cuda("581.1") is None
    assert tables.shipped_driver("12.8") == "570.26"
    assert tables.shipped_driver("13.0") == "580.65.06"
    assert tables.shipped_driver("77.0") is None
    assert tables.compat_package("13.0", 580) == "same"
    assert tables.compat_package("12.8", 580) == "no"
    assert tables.compat_package("12.8", 1) is None
    toolkit = tables.toolkit("12.8")
    assert toolkit
    assert "120" in toolkit["sm"]
    assert toolkit["gcc_max"] == 14


@pytest.mark.parametrize("name", pins.names())
def test_the_tables_and_the_stacks_agree(name: str) -> None:
    stack = pins.stack(name)
    torch = tables.torch(stack.torch)
    assert torch
    pin = stack.pin("torchvision")
    assert pin
    assert pin.version == torch["torchvision"]
    if stack.device == "cuda":
        vllm = tables.vllm(stack.vllm)
        assert vllm
        assert (vllm["torch"], tables.driver_floor(vllm["cuda"])) == (stack.torch, stack.driver_floor)


def test_what_is_not_listed_is_none() -> None:
    assert tables.torch("0.1") is None
    assert tables.vllm("0.0.1") is None
    assert tables.xid(99999) is None
    assert tables.cuda_error(-1) is None
    assert tables.toolkit("1.0") is None
    found = tables.xid(79)
    assert found
    assert "bus" in found["name"].lower()
    error = tables.cuda_error(803)
    assert error
    assert error["usual_cause"]
