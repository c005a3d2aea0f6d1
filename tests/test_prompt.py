"""``normalize_prompt``: four marks and nothing else, and what is said of it."""

# ruff: noqa: RUF001 - full-width marks are the subject

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.prompt import MARKS, changes, normalize_prompt

WIDE = "，。！？：；、（）「」《》￥～"
TEXTS = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from(WIDE)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("你好，世界。真的！是吗？", "你好,世界.真的!是吗?"),
        ("价格：￥100；（含税）、见《合同》", "价格：￥100；（含税）、见《合同》"),
        ("plain, already. yes! no?", "plain, already. yes! no?"),
        ("3．14", "3．14"),  # FULLWIDTH FULL STOP is another character than the ideographic one
        ("", ""),
    ],
)
def test_four_marks_become_half_width_and_the_rest_stays(before: str, after: str) -> None:
    assert normalize_prompt(before) == after


def test_nfc_leaves_the_marks_alone_so_the_tokenizer_sees_them() -> None:
    assert all(unicodedata.normalize("NFC", mark) == mark for mark in MARKS)


@given(TEXTS)
def test_twice_is_as_once_and_the_length_is_kept(text: str) -> None:
    once = normalize_prompt(text)
    assert normalize_prompt(once) == once
    assert len(once) == len(text)
    assert not MARKS.keys() & set(once)
    assert all(a == b or MARKS[a] == b for a, b in zip(text, once, strict=True))


@given(TEXTS)
def test_what_is_counted_is_what_changes(text: str) -> None:
    found = changes(text)
    assert found.total == sum(a != b for a, b in zip(text, normalize_prompt(text), strict=True))
    assert changes(normalize_prompt(text)).replaced == {}
    assert changes(normalize_prompt(text)).left == found.left


def test_marks_of_the_kind_that_stay_are_told() -> None:
    found = changes("一，二：三（四）。五：六")
    assert found.replaced == {"，": 1, "。": 1}
    assert found.left == {"：": 2, "（": 1, "）": 1}
