"""Rows of links: what has the right shape is taken over, what has another is left out, and nothing raises."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook.parse import links
from runbook.parse.links import Link, Links, Missing, Provider

ROW: dict[str, Any] = {
    "file": "vllm/_C.abi3.so",
    "role": "extension",
    "machine": "x86_64",
    "needed": ["libc10.so", "libcudart.so.12", "libcublasLt.so.13"],
    "missing_libraries": ["libcudart.so.12"],
    "driver": ["libcuda.so.1"],
    "asked": 257,
    "missing_count": 5,
    "missing": [{"symbol": "_ZN2at1aEv", "version": "V_1", "demangled": "at::a()"}, {"symbol": "b"}],
    "missing_versions": [
        {"library": "libstdc++.so.6", "version": "GLIBCXX_3.4.32", "in": "/lib/libstdc++.so.6"}
    ],
    "through": ["torch/lib/libtorch_cuda.so"],
    "strings": "new",
    "highest": {"GLIBC": "2.29", "GLIBCXX": "3.4.22", "LIBOWN": "9"},
}
SYSTEM: dict[str, Any] = {
    "machine": "x86_64",
    "torch": "2.10.0+cu128",
    "torch_cuda": "12.8",
    "strings": "new",
    "libc.so.6": {"path": "/lib/libc.so.6", "GLIBC": "2.36"},
    "libstdc++.so.6": {},
}
READ = Link(
    "vllm/_C.abi3.so",
    "extension",
    ("libc10.so", "libcudart.so.12", "libcublasLt.so.13"),
    ("libcudart.so.12",),
    (Missing("_ZN2at1aEv", "V_1", "at::a()"), Missing("b", "", "b")),
    5,
    (("libstdc++.so.6", "GLIBCXX_3.4.32", "/lib/libstdc++.so.6"),),
    ("libcuda.so.1",),
    ("torch/lib/libtorch_cuda.so",),
    257,
    "new",
    "x86_64",
    (("GLIBC", "2.29"), ("GLIBCXX", "3.4.22")),
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
    [[]],
    [{}],
    {"GLIBC": 7},
    [{"symbol": 1}],
    {"path": []},
)


def text(*rows: Any, **system: Any) -> str:
    return json.dumps({"files": [], "links": {"files": list(rows), "system": SYSTEM | system}})


def read(said: str) -> Links:
    found = links.links(said)
    assert found is not None
    return found


def test_an_answer_is_read() -> None:
    provider = Provider("/lib/libc.so.6", (("GLIBC", "2.36"),))
    assert read(text(ROW)) == Links((READ,), "2.10.0+cu128", "12.8", "new", "x86_64", provider, None)
    assert (READ.package, READ.whole, READ.judged) == ("vllm", False, True)
    assert READ.majors == {12, 13}


@pytest.mark.parametrize("key", list(ROW))
@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_a_part_of_another_shape_is_left_out(key: str, odd: Any) -> None:
    assert read(text({**ROW, key: odd}, ROW)).files[-1] == READ


@pytest.mark.parametrize("key", list(SYSTEM))
@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_a_system_of_another_shape_is_left_out(key: str, odd: Any) -> None:
    assert read(text(ROW, **{key: odd})).files == (READ,)


@pytest.mark.parametrize(
    "said",
    [
        "",
        "[]",
        "{}",
        '{"links": []}',
        '{"links": {"files": []}}',
        '{"links": {"files": {}, "system": {}}}',
        "[" * 5000,
    ],
)
def test_what_is_no_answer_is_none(said: str) -> None:
    assert links.links(said) is None


@pytest.mark.parametrize(
    ("file", "package"),
    [
        ("torch/lib/libc10.so", "torch"),
        ("flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so", "flash_attn_2_cuda"),
        ("torchvision.libs/libpng16.so", "torchvision.libs"),
    ],
)
def test_whose_file_it_is(file: str, package: str) -> None:
    assert Link(file, "extension").package == package


@pytest.mark.parametrize(
    ("library", "ours"),
    [
        ("libtorch_cpu.so", True),
        ("libc10_cuda.so", True),
        ("libcudart.so.12", True),
        ("libcudart.e8e8b82a.so.12", True),
        ("libcublasLt-1a2b3c4d.so.11", True),
        ("libnccl.so.2", True),
        ("libcurl.so.4", False),
        ("libcupsfilters.so.1", False),
        ("libavcodec.so.58", False),
        ("libc.so.6", False),
    ],
)
def test_torchs_and_cudas_libraries_are_known_by_name(library: str, *, ours: bool) -> None:
    assert links.is_torch_or_cuda(library) is ours


odd_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*ROW, *SYSTEM, "links", "files", "system", "symbol"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(
    st.one_of(
        st.text(max_size=60),
        odd_json.map(lambda value: json.dumps({"links": {"files": [value], "system": value}})),
    )
)
def test_odd_text_never_raises(said: str) -> None:
    found = links.links(said)
    for one in found.files if found else ():
        assert one.whole in (True, False)
        assert one.majors >= frozenset()
