"""Readings of a server as three small charts in one SVG: tokens a second, requests, KV cache in use."""

from collections.abc import Callable, Sequence

from runbook.serving.reading import Reading

WIDTH, HEIGHT, GAP, TOP = 250, 90, 20, 18
COLOURS = ("#1f77b4", "#d62728")

Line = tuple[str, Callable[[Reading], float | None]]
PANELS: tuple[tuple[str, tuple[Line, ...]], ...] = (
    ("tokens/s", (("made", lambda row: row.gen_tps), ("read", lambda row: row.prompt_tps))),
    ("requests", (("running", lambda row: row.running), ("waiting", lambda row: row.waiting))),
    ("KV cache, % used", (("used", lambda row: None if row.kv_use is None else 100 * row.kv_use),)),
)


def svg(rows: Sequence[Reading]) -> str:
    """The charts over the time that ``rows`` span, oldest left; a value nobody could read leaves a gap."""
    whole = len(PANELS) * (WIDTH + GAP)
    panels = "".join(_panel(at, title, lines, rows) for at, (title, lines) in enumerate(PANELS))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="{HEIGHT + TOP + 4}" '
        f'font-family="sans-serif" font-size="11" role="img">{panels}</svg>'
    )


def _panel(at: int, title: str, lines: Sequence[Line], rows: Sequence[Reading]) -> str:
    left = at * (WIDTH + GAP)
    values = [[value(row) for row in rows] for _, value in lines]
    top = max((one for line in values for one in line if one is not None), default=0.0)
    legend = ", ".join(
        f'<tspan fill="{COLOURS[number]}">{name} {_last(values[number])}</tspan>'
        for number, (name, _) in enumerate(lines)
    )
    drawn = "".join(
        f'<polyline fill="none" stroke="{COLOURS[number]}" stroke-width="1.5" points="{piece}"/>'
        for number, line in enumerate(values)
        for piece in _pieces(line, rows, left, top)
    )
    frame = f'<rect x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#bbb"/>'
    return f'<text x="{left}" y="12">{title}: {legend} (top {top:.4g})</text>{frame}{drawn}'


def _last(values: Sequence[float | None]) -> str:
    return "-" if not values or values[-1] is None else f"{values[-1]:.4g}"


def _pieces(values: Sequence[float | None], rows: Sequence[Reading], left: float, top: float) -> list[str]:
    if not rows:
        return []
    began, span = rows[0].at, (rows[-1].at - rows[0].at) or 1.0
    pieces: list[list[str]] = [[]]
    for row, value in zip(rows, values, strict=True):
        if value is None:
            pieces.append([])
            continue
        x = left + WIDTH * (row.at - began) / span
        y = TOP + HEIGHT - (HEIGHT * value / top if top else 0.0)
        pieces[-1].append(f"{x:.1f},{y:.1f}")
    return [" ".join(piece) for piece in pieces if piece]
