"""Phases that add up, what is left unexplained, and how a start is held against earlier ones."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.parse import boot_log
from runbook.parse.boot_log import PARTS
from runbook.serving.boot import (
    Arrival,
    Boot,
    Moment,
    Phase,
    account,
    by_arrival,
    by_stamps,
    compared,
    unexplained,
)

DATA = Path(__file__).parents[1] / "data"
H200 = (DATA / "boot" / "h200-0.19.1.log").read_text(encoding="utf-8")


def phases(text: str, ready_s: float) -> dict[str, float]:
    moments = by_stamps(boot_log.steps(text), boot_log.last_stamp(text), ready_s)
    return {one.name: round(one.seconds, 1) for one in account(moments, ready_s)}


def test_an_h200s_start() -> None:
    found = phases(H200, 178.9)
    assert found == {
        "imports": 6.9,
        "inspection": 12.0,
        "engine process": 6.0,
        "device": 3.0,
        "weights": 1.0,
        "before torch.compile": 1.0,
        "torch.compile": 29.0,
        "first run": 105.0,
        "KV cache": 10.0,
        "graphs": 3.0,
        "engine": 0.0,
        "API server": 2.0,
        "listening": 0.0,
    }


def test_a_compile_on_a_cpu_is_seen() -> None:
    text = (DATA / "boot" / "0.32.0-cpu-compiles.log").read_text(encoding="utf-8")
    found = phases(text, 91.5)
    assert found["warm-up run"] == max(found.values())
    assert 45 < found["warm-up run"] < 52


def test_a_line_that_is_missing_leaves_its_stretch_unexplained() -> None:
    text = "\n".join(line for line in H200.splitlines() if "Resolved architecture" not in line)
    found = account(by_stamps(boot_log.steps(text), boot_log.last_stamp(text), 178.9), 178.9)
    (gap,) = [one for one in found if "inspection" in one.name]
    assert gap.by == "nothing"
    assert gap.seconds == pytest.approx(18.0, abs=0.1)
    assert unexplained(found) == pytest.approx(19.0, abs=0.1)


def test_a_silence_that_the_words_do_not_cover_is_unexplained() -> None:
    """The log says a compile took 29.02 s; if the stretch had been 129 s, a hundred are not the compile's."""
    text = H200.replace("torch.compile took 29.02 s", "torch.compile took 9.02 s")
    found = account(by_stamps(boot_log.steps(text), boot_log.last_stamp(text), 178.9), 178.9)
    assert [one.seconds for one in found if one.name == "before torch.compile"] == [pytest.approx(20.98)]


def test_a_log_without_times_explains_nothing() -> None:
    found = account(by_stamps((), None, 30.0), 30.0)
    assert [(one.by, one.seconds) for one in found] == [("nothing", 30.0)]


def test_over_a_new_year() -> None:
    text = "INFO 12-31 23:59:50 [a] █ █ version 0.19.1\nINFO 01-01 00:00:10 [a] Resolved architecture: X\nINFO 01-01 00:00:10 [a] x\n"
    found = phases(text, 25.0)
    assert found["imports"] == pytest.approx(5.0, abs=1.0)
    assert found["inspection"] == 20.0


def test_lines_are_timed_by_when_they_came() -> None:
    text = (DATA / "logs" / "final-q3-eager.log").read_text(encoding="utf-8")
    steps = boot_log.steps(text)
    arrived = [Arrival(step.end, 0.8 + at, 1.2 + at) for at, step in enumerate(steps)]
    found = account(by_arrival(steps, arrived), 12.0)
    assert [one.name for one in found] == [*(step.name for step in steps), "listening"]
    assert found[1].seconds == pytest.approx(1.0)
    assert all(one.about_s <= 0.401 for one in found)
    assert len(by_arrival(steps, arrived[:3])) == 3


@given(
    st.lists(
        st.tuples(
            st.sampled_from(PARTS), st.floats(-10, 400), st.floats(0, 1), st.none() | st.floats(0, 500)
        ),
        max_size=14,
    ),
    st.floats(0.1, 300),
)
def test_whatever_the_log_says_the_phases_add_up(
    rows: list[tuple[str, float, float, float | None]], ready_s: float
) -> None:
    found = account([Moment(*row) for row in rows], ready_s)
    assert sum(one.seconds for one in found) == pytest.approx(ready_s)
    assert all(one.seconds >= 0 for one in found)
    assert 0 <= unexplained(found) <= ready_s * (1 + 1e-9)


def boot(ready_s: float, number: int = 0, kind: str = "a", **phases: float) -> Boot:
    rows = tuple(Phase(name, seconds, 0.1, "lines") for name, seconds in phases.items())
    return Boot("2026-11-30T00:00:00+00:00", f"server.{number}", "s", "m", {"flags": kind}, ready_s, rows)


EARLIER = [boot(40.0, 1, imports=30.0, weights=10.0), *(boot(20.0 + n / 10, 10 + n, imports=10.0, weights=10.0) for n in range(6))]  # fmt: skip


def test_the_first_of_its_kind_has_nothing_to_be_compared_with() -> None:
    for before in ([], [boot(9.0, 2, "other")]):
        found = compared(boot(20.0), before)
        assert (found.earlier, found.usual_s) == (0, None)
        assert "first start" in found.words


def test_a_slower_start_names_its_phase_and_its_chance() -> None:
    found = compared(boot(31.0, imports=21.0, weights=10.0), EARLIER)
    assert (found.earlier, found.slower_than) == (6, 6)
    assert found.grown == ("imports", 11.0)
    assert "every one of 6 earlier" in found.words
    assert "once in 7" in found.words
    assert "most in imports (+11.0 s)" in found.words


def test_a_usual_start_is_not_blamed() -> None:
    found = compared(boot(20.25, imports=10.2, weights=10.0), EARLIER)
    assert (found.earlier, found.slower_than) == (6, 3)
    assert "every one" not in found.words


def test_it_is_not_compared_with_itself() -> None:
    last = boot(50.0, 99)
    assert compared(last, [*EARLIER, last]).earlier == 6


def test_a_row_is_read_as_it_was_written() -> None:
    one = replace(boot(20.04, imports=10.004), made={"inductor": 3})
    again = Boot.of(one.row())
    assert again is not None
    assert again.phases[0].seconds == 10.0
    assert replace(again, phases=()) == replace(one, phases=(), ready_s=20.0)


@pytest.mark.parametrize("row", [{}, {"at": 1}, {**boot(1.0).row(), "phases": 7}, {**boot(1.0).row(), "made": None}, {**boot(1.0).row(), "ready_s": "x"}])  # fmt: skip
def test_what_is_no_row(row: dict[str, object]) -> None:
    assert Boot.of(row) is None
