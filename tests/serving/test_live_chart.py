"""The small charts of the live view: well-formed, true to the readings, and honest about what was not read."""

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from runbook.serving import live_chart
from runbook.serving.live_chart import HEIGHT, TOP
from runbook.serving.reading import Reading

SVG = "{http://www.w3.org/2000/svg}"
SHARE = st.none() | st.floats(0, 1)
MANY = st.none() | st.floats(0, 1e6)


def lines(rows: list[Reading]) -> list[list[tuple[float, float]]]:
    """The points of each line drawn."""
    tree = ElementTree.fromstring(live_chart.svg(rows))  # noqa: S314 - our own
    drawn = [one.attrib["points"].split() for one in tree.iter(f"{SVG}polyline")]
    return [[tuple(map(float, point.split(","))) for point in one] for one in drawn]  # type: ignore[misc]


def test_a_line_goes_through_its_readings() -> None:
    rows = [Reading(0.0, running=0), Reading(5.0, running=4), Reading(10.0, running=2)]
    (line,) = lines(rows)
    heights = [TOP + HEIGHT - y for _, y in line]
    assert heights == [0, HEIGHT, HEIGHT / 2]
    assert line[1][0] - line[0][0] == line[2][0] - line[1][0]


def test_what_was_not_read_is_a_gap_and_not_zero() -> None:
    rows = [Reading(0.0, kv_use=0.5), Reading(1.0, missed="refused"), Reading(2.0, kv_use=0.25)]
    assert [len(line) for line in lines(rows)] == [1, 1]
    assert "used 25 " in live_chart.svg(rows).replace("</tspan>", " ")
    assert "used -" in live_chart.svg(rows[:2])


def test_no_readings_draw_no_line() -> None:
    assert lines([]) == []


@given(st.lists(st.tuples(MANY, MANY, SHARE), max_size=30))
def test_every_point_lies_within_its_frame(
    values: list[tuple[float | None, float | None, float | None]],
) -> None:
    rows = [
        Reading(float(at), gen_tps=tokens, running=running, kv_use=share)
        for at, (tokens, running, share) in enumerate(values)
    ]
    for line in lines(rows):
        assert all(TOP - 0.1 <= y <= TOP + HEIGHT + 0.1 for _, y in line)
