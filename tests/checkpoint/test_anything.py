"""Files with anything in any place: the examination ends with an answer that is JSON, and with no exception."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runbook.checkpoint import examine
from runbook.parse.checkpoint import checkpoint

NAMES = ("config.json", "tokenizer_config.json", "generation_config.json", tiny.INDEX)
ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint in shards; without a template, whose rendering takes a child each time."""
    found = tiny.make(tmp_path_factory.mktemp("checkpoints"))["sharded"]
    (found / "chat_template.jinja").unlink()
    return found


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in list(inner)[:60]:
        yield from places(each, (*path, key))


def with_odd(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    """The same value with another at that place."""
    if not path:
        return odd
    found = copy.deepcopy(value)
    at = found
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = odd
    return found


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_anything_in_any_place(data: st.DataObject, folder: Path) -> None:
    name = data.draw(st.sampled_from(NAMES))
    sound = (folder / name).read_text(encoding="utf-8")
    value = json.loads(sound)
    path = data.draw(st.sampled_from(list(places(value))))
    try:
        (folder / name).write_text(json.dumps(with_odd(value, path, data.draw(ODD))), encoding="utf-8")
        assert checkpoint(examine.as_json(examine.facts(folder))) is not None
    finally:
        (folder / name).write_text(sound, encoding="utf-8")


@pytest.mark.parametrize(
    "name",
    [*NAMES, "tokenizer.json", "adapter_config.json", "hf_quant_config.json", "special_tokens_map.json"],
)
@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": 1e999}', "{}", "[]", "null", "\ufeff{}", '{"quantization": []}', '{"model": {"vocab": {"a": 0}, "merges": [1, "a", ["a"], [[], {}]], "type": "BPE"}}'])  # fmt: skip
def test_any_file_for_any_file(name: str, text: str, folder: Path) -> None:
    sound = (folder / name).read_bytes() if (folder / name).exists() else None
    try:
        (folder / name).write_text(text, encoding="utf-8")
        assert checkpoint(examine.as_json(examine.facts(folder))) is not None
    finally:
        if sound is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(sound)
