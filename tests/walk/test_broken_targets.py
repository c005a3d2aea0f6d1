"""Targets that are really broken: the checks that should name the cause do, and on a whole target they say nothing."""

from pathlib import Path

import breaking
import pytest
import walking
from breaking import WAYS, Broken

EVERY = sorted({ident for way in WAYS for ident in way.named_by})


def test_a_whole_target_is_not_blamed(tmp_path: Path) -> None:
    target = breaking.whole(tmp_path / "whole", walking.OLD)
    findings = breaking.runbook(target, tmp_path / "home", *EVERY)
    assert {one["id"] for one in findings} >= set(EVERY)
    assert {
        one["id"]: breaking.words_of(one) for one in findings if one["verdict"] in ("fail", "unknown")
    } == {}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_the_cause_is_named(way: Broken, tmp_path: Path) -> None:
    target = breaking.whole(tmp_path / way.name, walking.OLD)
    way.apply(target)
    assert breaking.damage(target, way.dies), "it is not broken"
    findings = breaking.runbook(target, tmp_path / "home", *way.named_by)
    bad = {one["id"]: breaking.words_of(one) for one in findings if one["verdict"] in ("fail", "warn")}
    assert {ident: word for ident, word in way.named_by.items() if word not in bad.get(ident, "")} == {}, bad
