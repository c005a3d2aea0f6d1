"""Where a service bends: the load from which more load brings more waiting instead of more tokens; and the chart of it."""

import html
from collections.abc import Sequence
from dataclasses import dataclass

from runbook.serving.load import Step, median_ms

GAIN = 0.2
"""Of what added load could bring at most, the part it must bring; below it the service has bent."""

WAITING = 0.5
"""Requests that wait in this share of the readings, wait persistently."""

BAR = 30


@dataclass(frozen=True)
class Knee:
    """``at`` is the last step that was worth its load, None while throughput still grew at the last; ``says`` tells why."""

    at: int | None
    says: str


def level(step: Step) -> float:
    """What was offered: requests a second, or requests at once."""
    return step.rate or float(step.concurrency)


def find(steps: Sequence[Step]) -> Knee:
    """The knee of loads in rising order.

    A step is worth its load when its tokens a second grow by at least a fifth of what the load grew by, over the best
    before it: twice the requests must bring 20 % more. The first that is not, ends the climb.
    """
    for at in range(1, len(steps)):
        before, now = steps[at - 1], steps[at]
        offered, brought = level(now) / level(before) - 1, now.tps / before.tps - 1 if before.tps else 0.0
        if brought >= GAIN * offered:
            continue
        old, new = median_ms(before, "e2e"), median_ms(now, "e2e")
        slower = f", a request takes {new / old:.2g} times as long" if old and new else ""
        waits = (
            f", requests wait in {now.waiting:.0%} of the readings"
            if now.waiting and now.waiting >= WAITING
            else ""
        )
        return Knee(at - 1, f"{named(before)} gives {before.tps:.4g} tokens/s; {named(now)} brings {brought:+.0%}{slower}{waits}")  # fmt: skip
    if not steps:
        return Knee(None, "no load was tried")
    last = steps[-1]
    return Knee(None, f"throughput still grows at {named(last)}, {last.tps:.4g} tokens/s")


def named(step: Step) -> str:
    """A level in words."""
    return f"{step.rate:g} requests/s" if step.rate else f"{step.concurrency} at once"


def table(steps: Sequence[Step], knee: Knee) -> list[str]:
    """A line a step: what came of it, and its latency as a bar; 80 columns."""
    rows = ["load             req/s  tok/s   TTFT   TPOT    e2e  median e2e, ms"]
    longest = max((median_ms(step, "e2e") or 0.0 for step in steps), default=0.0) or 1.0
    for at, step in enumerate(steps):
        e2e = median_ms(step, "e2e")
        figures = "".join(f"{_short(median_ms(step, what)):>7}" for what in ("ttft", "tpot"))
        bar = "#" * max(1, round((e2e or 0.0) / longest * (BAR - 6))) + ("  <- knee" if at == knee.at else "")
        rows.append(f"{named(step):15}{step.rps:7.3g}{step.tps:7.4g}{figures}{_short(e2e):>7}  {bar}"[:80])
    return rows


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def svg(steps: Sequence[Step], knee: Knee) -> str:
    """Median latency of a request over answers a second, each load a point, the knee marked; "" below two points."""
    points = [(step.rps, e2e, named(step)) for step in steps if (e2e := median_ms(step, "e2e")) is not None]
    if len(points) < 2:  # noqa: PLR2004 - a line
        return ""
    wide, high, left, bottom = 640, 360, 70, 50
    most_x, most_y = max(x for x, _, _ in points) * 1.1, max(y for _, y, _ in points) * 1.1

    def place(x: float, y: float) -> tuple[float, float]:
        return left + x / most_x * (wide - left - 20), high - bottom - y / most_y * (high - bottom - 30)

    spots = [place(x, y) for x, y, _ in points]
    marks = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#4c78a8"/>'
        f'<text x="{x + 6:.1f}" y="{y - 6:.1f}" font-size="11">{html.escape(words)}</text>'
        for (x, y), (_, _, words) in zip(spots, points, strict=True)
    ]
    lines = [
        f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in spots)}" fill="none" stroke="#4c78a8" stroke-width="2"/>',
        f'<path d="M{left},20 V{high - bottom} H{wide - 20}" fill="none" stroke="#333333"/>',
        f'<text x="{left - 8}" y="30" font-size="11" text-anchor="end">{most_y:.4g}</text>',
        f'<text x="{wide - 20}" y="{high - bottom + 16}" font-size="11" text-anchor="end">{most_x:.3g}</text>',
        f'<text x="{wide / 2:.0f}" y="{high - 12}" font-size="12" text-anchor="middle">answers a second</text>',
        f'<text x="18" y="{high / 2:.0f}" font-size="12" text-anchor="middle" transform="rotate(-90 18 {high / 2:.0f})">median time of a request, ms</text>',
    ]
    if knee.at is not None and (e2e := median_ms(steps[knee.at], "e2e")) is not None:
        x, _ = place(steps[knee.at].rps, e2e)
        lines.append(
            f'<path d="M{x:.1f},20 V{high - bottom}" stroke="#e45756" stroke-dasharray="5 4"/>'
            f'<text x="{x + 5:.1f}" y="{high - bottom - 8}" font-size="12" fill="#e45756">knee</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" font-family="sans-serif">'
        f"<title>{html.escape(knee.says)}</title>{''.join(lines)}{''.join(marks)}</svg>\n"
    )
