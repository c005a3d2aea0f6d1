"""Growth is told by the slope's interval against what there is; a record survives a kill."""

import dataclasses
import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.actions import soaking
from runbook.serving import soak
from runbook.serving.soak import LEAK, OK, OPEN, Stretch

GIB, MIB = 2**30, 2**20
ROOM = 24 * GIB
# Memory of a served tiny-qwen3.5 (0.32.0 on a CPU), each two seconds of a minute of load: MiB, as `runbook soak` wrote them.
REAL = Path(__file__).parents[1] / "data" / "soak" / "cpu-0.32.0.jsonl"


def stretch(at: float, rss: float | None, start: int = 0, seconds: float = 30.0) -> Stretch:
    return Stretch(
        at=at, seconds=seconds, requests=30, failed=0, tokens=9000, rss=rss, gpu=None, ours=76.0 * MIB,
        median_s=0.4, slowest_s=0.9, stalled_s=0.0, late_s=0.0, start=start,
    )  # fmt: skip


def run(minutes: float, per_hour: float, noise: float = 2 * MIB, seed: int = 1) -> list[Stretch]:
    """A server that grows by ``per_hour`` bytes, with noise of its own."""
    draw = random.Random(seed)  # noqa: S311 - made numbers
    times = [30.0 * at for at in range(1, int(minutes * 2) + 1)]
    return [stretch(at, 4 * GIB + per_hour * at / 3600 + draw.gauss(0, noise)) for at in times]


def verdict(rows: list[Stretch]) -> str:
    return soak.growth(soak.points(soak.settled(rows), "rss"), ROOM).verdict


def test_half_an_hour_without_growth_is_no_leak() -> None:
    assert verdict(run(30, 0.0)) == OK
    assert verdict(run(30, 0.0, noise=0.0)) == OK
    # 5 MiB an hour are 360 MiB in three days, of 24 GiB.
    assert verdict(run(30, 5 * MIB)) == OK


def test_a_leak_that_ends_the_service_is_one() -> None:
    found = soak.growth(soak.points(soak.settled(run(30, 512 * MIB)), "rss"), ROOM)
    assert found.verdict == LEAK
    assert "lasts 39" in found.says or "lasts 40" in found.says


def test_too_short_or_too_noisy_gives_no_verdict() -> None:
    assert verdict(run(2, 0.0)) == OPEN
    noisy = soak.growth(soak.points(soak.settled(run(10, 20 * MIB, noise=20 * MIB)), "rss"), ROOM)
    assert noisy.verdict == OPEN
    assert "times as long should tell" in noisy.says


def test_settling_is_no_growth() -> None:
    """A server that fills its arenas in the first minutes and then stands still."""
    rows = [
        dataclasses.replace(row, rss=(row.rss or 0) + min(row.at / 400, 1.0) * GIB) for row in run(30, 0.0)
    ]
    assert verdict(rows) == OK


def test_only_the_longest_life_is_judged() -> None:
    """A server that was started anew begins low again, which is no shrinking."""
    first = [dataclasses.replace(row, start=0) for row in run(10, 0.0)]
    second = [
        dataclasses.replace(row, at=row.at + 600, start=1, rss=(row.rss or 0) - GIB) for row in run(30, 0.0)
    ]
    assert {row.start for row in soak.settled([*first, *second])} == {1}
    assert verdict([*first, *second]) == OK
    assert soak.settled([]) == []


def test_readings_that_are_not_there_are_left_out() -> None:
    rows = [stretch(30.0 * at, None) for at in range(1, 60)]
    assert soak.points(rows, "rss") == []
    assert soak.growth([], ROOM).verdict == OPEN


def test_three_real_minutes_allow_no_verdict() -> None:
    _, rows = soaking.record(REAL)
    assert len(rows) == 47
    assert verdict(rows) == OPEN


@given(st.integers(0, 10**9), st.floats(0.0, 2.0))
def test_more_growth_never_looks_better(seed: int, gib_per_hour: float) -> None:
    rank = {OK: 0, OPEN: 1, LEAK: 2}
    small, large = (verdict(run(30, grown * GIB, seed=seed)) for grown in (gib_per_hour, gib_per_hour + 0.5))
    assert rank[small] <= rank[large]


ORDERS = soaking.Orders(3600.0, 1.0, 4, "never")


def test_a_record_that_was_cut_by_a_kill_is_read(tmp_path: Path) -> None:
    path = tmp_path / "soak.jsonl"
    rows = run(2, 0.0)
    lines = [json.dumps(one) for one in (dataclasses.asdict(ORDERS), *map(dataclasses.asdict, rows))]
    path.write_text("\n".join(lines)[:-9], encoding="utf-8")
    assert soaking.record(path) == (ORDERS, rows[:-1])


@pytest.mark.parametrize("text", [None, "", "{}\n", "[]\n", '{"seconds": 1}\n', "7\n"])
def test_what_is_no_record_is_none(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "soak.jsonl"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    assert soaking.record(path) == (None, [])


def test_days_fit_in_some_megabytes() -> None:
    line = json.dumps(dataclasses.asdict(stretch(1209600.123, 4023181312.0)))
    assert dataclasses.replace(ORDERS, seconds=soaking.MOST_HOURS * 3600.0).stretch_s == 60.0
    assert soaking.MOST_HOURS * 60 * (len(line) + 1) < 8 * MIB
    assert dataclasses.replace(ORDERS, seconds=90.0).stretch_s == 1.5
