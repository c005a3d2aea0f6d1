"""``runbook abi``: what the audit of an environment prints, and its exit codes."""

import json
from typing import Any

import cases_abi
import pytest
from host import GPU, Host

from runbook import abi
from runbook.errors import BadParameter

GOOD = Host(cases_abi.GOOD, GPU)


def host(*rows: dict[str, Any]) -> Host:
    return Host(cases_abi.said(*rows), GPU)


def test_a_whole_environment_ends_with_0() -> None:
    found = abi.of_target(GOOD)
    text = abi.as_text(found)
    assert abi.exit_code(found) == 0
    assert "all 4 judged files are whole" in text
    assert "left to the driver, not on this machine: libcuda.so.1" in text
    assert "Node::name" not in text  # of a file for another torch nothing is said but that
    assert "addon_torch24-cpu.so" in text


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (cases_abi.NO_CUDART, ("lacks libraries", "library  libcudart.so.12")),
        (cases_abi.OLD_VISION, ("lacks 13 symbols", "symbol   torch::autograd::Node::name() const", "and 11 more", "torch    2.4.1 to 2.6.0 export them")),
        (cases_abi.NEEDS_INT, ("lacks 1 symbol", "2.4.1 to 2.9.1")),
        (cases_abi.NEW_CXX, ("lacks versions", "version  GLIBCXX_3.4.32 is not in /opt/conda/lib/libstdc++.so.6")),
        (cases_abi.OLD_JIT, ("symbol   __nvJitLinkCreate_12_8@libnvJitLink.so.12",)),
        (cases_abi.CUT, ("cannot be read", "damaged  cut short")),
        (cases_abi.BEHIND, ("broken through another", "needs    torchaudio/libtorchaudio.so")),
    ],
    ids=["library", "symbols", "symbol", "version", "versioned", "damaged", "through"],
)  # fmt: skip
def test_what_is_lacking_is_said_and_ends_with_1(row: dict[str, Any], says: tuple[str, ...]) -> None:
    found = abi.of_target(host(cases_abi.VLLM, row))
    text = abi.as_text(found)
    assert abi.exit_code(found) == 1
    assert [words for words in says if words not in text] == []
    assert "1 of 2 files lack something" in text
    told = {one["file"]: one for one in json.loads(abi.as_json(found))}
    assert told[row["file"]]["whole"] is False
    assert told["vllm/_C.abi3.so"]["whole"] is (row["file"] != "vllm/_C.abi3.so")


def test_json_names_each_symbol_and_its_releases() -> None:
    (told,) = json.loads(abi.as_json(abi.of_target(host(cases_abi.NEEDS_INT))))
    assert told["missing"][0]["symbol"] == cases_abi.CHECK_INT
    assert told["torch"] == "2.4.1 to 2.9.1"


def test_what_torch_and_vllm_do_without_ends_with_0() -> None:
    found = abi.of_target(host(cases_abi.VLLM, *cases_abi.FFMPEG, cases_abi.RDMA))
    assert abi.exit_code(found) == 0
    assert "library  libavcodec.so.58" in abi.as_text(found)


def test_no_file_at_all() -> None:
    assert "nothing here links torch or CUDA" in abi.as_text(abi.of_target(host()))


def test_no_verdict_without_a_reading() -> None:
    with pytest.raises(abi.NotRead) as caught:
        abi.of_target(Host(cases_abi.UNREAD[0], GPU))
    assert caught.value.exit_code == 3
    with pytest.raises(BadParameter):
        abi.of_target(Host({}, GPU, has_target=False))
