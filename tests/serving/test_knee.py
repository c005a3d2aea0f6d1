"""Where more load brings no more tokens, and a chart that shows it."""

import xml.etree.ElementTree as ET

import pytest
from loads import level, step

from runbook.serving import knee


def test_the_last_step_worth_its_load_is_the_knee() -> None:
    steps = [level(1, 40, 0.4), level(2, 70, 0.45), level(4, 96, 0.6), level(8, 99.2, 1.2)]
    found = knee.find(steps)
    assert found.at == 2
    assert found.says == "4 at once gives 96 tokens/s; 8 at once brings +3%, a request takes 2 times as long"


@pytest.mark.parametrize("tps", [49.6, 80.0])
def test_no_knee_while_it_is_worth_it(tps: float) -> None:
    found = knee.find([level(1, 40, 0.4), level(2, tps, 0.5)])
    assert found.at is None
    assert "still grows" in found.says


def test_close_levels_are_held_against_what_they_could_bring() -> None:
    assert knee.find([level(8, 400, 0.4), level(10, 480, 0.45)]).at is None
    assert knee.find([level(8, 400, 0.4), level(10, 408, 0.5)]).at == 0


def test_one_load_or_none_has_no_knee() -> None:
    assert knee.find([]).at is None
    assert knee.find([level(1, 40, 0.4)]).at is None


def test_persistent_waiting_is_said() -> None:
    steps = [level(1, 40, 0.4), step(waiting=0.9, concurrency=2, requests=level(2, 41, 0.8).requests)]
    assert "requests wait in 90% of the readings" in knee.find(steps).says


def test_an_open_load_is_named_by_its_rate() -> None:
    slow, fast = (step(rate=rate, concurrency=0) for rate in (2.0, 4.0))
    assert knee.find([slow, fast]).at == 0
    assert knee.named(fast) == "4 requests/s"


def test_the_chart_and_the_table_mark_the_knee() -> None:
    steps = [level(1, 40, 0.4), level(2, 70, 0.45), level(4, 72, 0.9)]
    found = knee.find(steps)
    drawn = ET.fromstring(knee.svg(steps, found))  # noqa: S314 - our own
    texts = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("knee") == 1
    assert {"1 at once", "2 at once", "4 at once"} <= set(texts)
    rows = knee.table(steps, found)
    assert [("<- knee" in row) for row in rows] == [False, False, True, False]
    assert max(map(len, rows)) <= 80
    assert knee.svg(steps[:1], found) == ""
