"""Rows of machine code: what has the right shape is taken over, what has another is left out, and nothing raises."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook.parse import binaries
from runbook.parse.binaries import Binary, Unit

ROW: dict[str, Any] = {
    "file": "vllm/_C.abi3.so",
    "bytes": 465634600,
    "sass": ["sm_80", "sm_90a"],
    "ptx": ["compute_80"],
    "isa": {"compute_80": "8.8"},
    "units": [[14, ["sm_80"], ["compute_80"]], [2, ["sm_90a"], []]],
}
READ = Binary(
    "vllm/_C.abi3.so",
    465634600,
    ("sm_80", "sm_90a"),
    ("compute_80",),
    {"compute_80": "8.8"},
    (Unit(14, ("sm_80",), ("compute_80",)), Unit(2, ("sm_90a",), ())),
)
ODD: tuple[Any, ...] = (
    None,
    "x",
    -1,
    1.5,
    True,
    [],
    {},
    [None],
    ["sm_", 7],
    {"compute_80": 8},
    [[1, 2]],
    [[0, [], []]],
    [[True, [], []]],
)


def text(*rows: Any) -> str:
    return json.dumps({"files": list(rows)})


def test_a_row_is_read() -> None:
    assert binaries.binaries(text(ROW)) == (READ,)


@pytest.mark.parametrize("key", list(ROW))
@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_a_part_of_another_shape_is_left_out(key: str, odd: Any) -> None:
    found = binaries.binaries(text({**ROW, key: odd}, ROW))
    assert found is not None
    assert found[-1] == READ
    for one in found:
        assert one.size >= 0
        assert all(target.startswith("sm_") for target in one.sass)
        assert all(unit.count > 0 for unit in one.units)


@pytest.mark.parametrize("key", [key for key in ROW if key != "file"])
def test_a_part_that_is_not_there_is_left_out(key: str) -> None:
    found = binaries.binaries(text({name: value for name, value in ROW.items() if name != key}))
    assert found is not None
    assert found[0].file == ROW["file"]


@pytest.mark.parametrize(
    "target",
    [
        "sm_",
        "sm_9",
        "sm_9000",
        "sm_90b",
        "SM_90",
        "sm_90a ",
        "compute_90",
        "sm_\N{SUPERSCRIPT TWO}0",
        "sm_\N{ARABIC-INDIC DIGIT NINE}0",
        90,
    ],
)
def test_what_is_no_target_is_left_out(target: Any) -> None:
    assert (binaries.binaries(text({**ROW, "sass": [target]})) or ())[0].sass == ()


@pytest.mark.parametrize(
    "odd",
    [
        "",
        "{",
        "[]",
        "null",
        "7",
        '{"files": 7}',
        '{"files": {}}',
        '{"rows": []}',
        "[" * 100_000,
        "usage: python -m runbook.binaries",
    ],
)
def test_what_is_no_answer_is_none(odd: str) -> None:
    assert binaries.binaries(odd) is None


def test_an_environment_without_machine_code_is_empty_and_not_none() -> None:
    assert binaries.binaries('{"files": []}') == ()


@pytest.mark.parametrize(
    ("file", "package"),
    [
        ("torch/lib/libtorch_cuda.so", "torch"),
        ("nvidia/cublas/lib/libcublas.so.12", "nvidia/cublas"),
        (
            "flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so",
            "flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so",
        ),
        ("nvidia/strange.so", "nvidia"),
        ("flashinfer_cubin/cubins/", "flashinfer_cubin"),
    ],
)
def test_the_package_of_a_file(file: str, package: str) -> None:
    assert Binary(file, 1, (), ()).package == package


odd_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(("sm_90a", "compute_80", "8.8")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from((*ROW, "files", "problem", "cubins", "compute_80")), inner, max_size=5
        )
    ),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    answer=odd_json,
    rows=st.lists(
        st.dictionaries(st.sampled_from((*ROW, "problem", "cubins")), odd_json, max_size=8), max_size=3
    ),
)
def test_no_answer_raises(answer: Any, rows: list[Any]) -> None:
    binaries.binaries(json.dumps(answer))
    for one in binaries.binaries(text(*rows)) or ():
        assert one.file
        hash(one)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(odd=st.text())
def test_no_text_raises(odd: str) -> None:
    assert binaries.binaries(odd) is None or json.loads(odd)
