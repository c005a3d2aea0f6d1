"""Parameters of pages: names, types and ranges are refused in words; command-line words become the right types."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.errors import BadParameter
from runbook.model import Layer
from runbook.params import (
    PAGES,
    Build,
    Common,
    Model,
    PageSpec,
    Server,
    from_words,
    names,
    page_spec,
    validated,
)

SERVING = page_spec("09_serving")
ids = [one.name for one in PAGES]


def test_pages_cover_every_layer_once() -> None:
    layers = [layer for one in PAGES for layer in one.layers]
    assert layers == list(Layer)
    assert ids == sorted(ids)


@pytest.mark.parametrize("spec", PAGES, ids=ids)
def test_a_page_has_three_names(spec: PageSpec) -> None:
    number, _, word = spec.name.partition("_")
    assert (
        page_spec(number)
        is page_spec(word)
        is page_spec(spec.name)
        is page_spec(f"{spec.name}.ipynb")
        is spec
    )


@pytest.mark.parametrize("name", ["", "4", "Torch", "04_", "_torch", "04_torch.py", "../04_torch", "99"])
def test_no_other_names(name: str) -> None:
    with pytest.raises(BadParameter, match="no page") as refused:
        page_spec(name)
    assert "04_torch" in refused.value.expected


@pytest.mark.parametrize("spec", PAGES, ids=ids)
def test_defaults_are_good(spec: PageSpec) -> None:
    made = validated(spec, {})
    assert dataclasses.asdict(made) == {one.name: one.default for one in dataclasses.fields(spec.params)}
    assert names(spec)[:5] == ("machine", "stack", "target", "out_dir", "strict")
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.strict = False  # type: ignore[misc]


@pytest.mark.parametrize(
    ("given_", "needles"),
    [
        ({"strict": 1}, ["strict=1", "boolean", "True"]),
        ({"strict": "true"}, ["strict='true'"]),
        ({"strict": None}, ["strict=None"]),
        ({"machine": "mars"}, ["machine='mars'", "recorded:NAME"]),
        ({"machine": "recorded:"}, ["machine='recorded:'"]),
        ({"machine": 1}, ["machine=1"]),
        ({"out_dir": "here"}, ["out_dir='here'", "folder for findings"]),
        ({"out_dir": "/a\n/b"}, ["out_dir="]),
        ({"deadline_s": 9}, ["deadline_s=9", "10", "900"]),
        ({"deadline_s": 7201}, ["deadline_s=7201", "7200"]),
        ({"deadline_s": 60.0}, ["deadline_s=60.0", "integer"]),
        ({"deadline_s": "60"}, ["deadline_s='60'", "integer"]),
        ({"deadline_s": True}, ["deadline_s=True"]),
        ({"apply": "yes"}, ["apply='yes'"]),
        ({"keep_server": 0}, ["keep_server=0"]),
        ({"stack": None}, ["stack=None"]),
        ({"model": ["x"]}, ["model=['x']"]),
        ({"modle": "x"}, ["modle", "one of machine, stack"]),
        ({"a": 1, "b": 2}, ["a, b"]),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(given_: dict[str, Any], needles: list[str]) -> None:
    with pytest.raises(BadParameter) as refused:
        validated(SERVING, given_)
    assert refused.value.exit_code == 2
    for needle in needles:
        assert needle in str(refused.value)
    assert SERVING.name in refused.value.seen
    assert refused.value.expected
    assert refused.value.do


@pytest.mark.parametrize("given_", [{"deadline_s": 10}, {"deadline_s": 7200}, {"machine": "live"}, {"machine": "recorded:a b/c"}, {"out_dir": ""}, {"out_dir": "/a b"}, {"model": "Qwen/Qwen3.5-4B"}, {"strict": False, "apply": True, "keep_server": True}], ids=str)  # fmt: skip
def test_what_fits(given_: dict[str, Any]) -> None:
    made = validated(SERVING, given_)
    assert {name: getattr(made, name) for name in given_} == given_


@pytest.mark.parametrize(("cls", "more"), [(Common, set()), (Build, {"apply"}), (Model, {"apply", "model"}), (Server, {"apply", "model", "profile", "deadline_s", "keep_server", "ui"})])  # fmt: skip
def test_each_kind_of_page_adds_to_the_one_below(cls: type[Common], more: set[str]) -> None:
    assert {one.name for one in dataclasses.fields(cls)} == {
        "machine",
        "stack",
        "target",
        "out_dir",
        "strict",
    } | more


def test_words() -> None:
    words = {
        "strict": "False",
        "deadline_s": "60",
        "model": "60",
        "keep_server": "TRUE",
        "target": "",
        "nothing": "x",
    }
    assert from_words(SERVING, words) == {
        "strict": False,
        "deadline_s": 60,
        "model": "60",
        "keep_server": True,
        "target": "",
    }
    assert from_words(page_spec("00"), words) == {"strict": False, "target": ""}


@pytest.mark.parametrize(("words", "expected"), [({"strict": "1"}, "true or false"), ({"strict": ""}, "true or false"), ({"deadline_s": "1e3"}, "a whole number"), ({"deadline_s": "0x10"}, "a whole number"), ({"deadline_s": ""}, "a whole number")])  # fmt: skip
def test_words_that_are_none(words: dict[str, str], expected: str) -> None:
    with pytest.raises(BadParameter) as refused:
        from_words(SERVING, words)
    assert refused.value.expected == expected


@given(st.dictionaries(st.sampled_from(names(SERVING)), st.text(max_size=12), max_size=4))
def test_any_words_are_taken_or_refused(words: dict[str, str]) -> None:
    refused: BadParameter | None = None
    made: Common | None = None
    try:
        made = validated(SERVING, from_words(SERVING, words))
    except BadParameter as why:
        refused = why
    assert isinstance(made, Server) or (refused is not None and refused.seen != "" and refused.expected != "")
