"""Numbers as drawings: SVG without style and script, which `console.css` gives its colours.  Pure.

Whatever is shown of a store is escaped here: row keys are hostile bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup, escape

from omidpy.base.words.printable import printable
from omidpy.model import FIRST_WORLD_TIMESTAMP
from omidpy.reports.texts import brief, key_text

WIDTH: Final = 1040
LABEL_WIDTH: Final = 96
BEHIND_S: Final = 26 * 3600.0
"""Rows that are healed up to a moment at most so long ago are not behind: a night and two hours."""
MAX_STRIPES: Final = 360
"""Ranges that are drawn apart; more of them are drawn several in one, by the worst among them."""


def _text(value: object) -> Markup:
    return escape(printable(str(value)))


def _svg(kind: str, height: float, title: str, body: str) -> Markup:
    # What has words keeps its shape; what has none fills whatever place it gets.
    fit = "xMidYMid" if "axed" in kind else "none"
    return Markup(  # noqa: S704 - its parts are escaped, or numbers
        f'<svg class="drawing {kind}" preserveAspectRatio="{fit}" role="img" '
        f'viewBox="0 0 {WIDTH} {height:g}"><title>{_text(title)}</title>{body}</svg>'
    )


def _rectangle(
    x: float, y: float, width: float, height: float, *, kind: str, title: str = ""
) -> str:
    inside = f"<title>{_text(title)}</title>" if title else ""
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" '
        f'height="{max(height, 0):.1f}">{inside}</rect>'
    )


def _word(x: float, y: float, value: object, *, kind: str = "", anchor: str = "start") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{_text(value)}</text>'
    )


def health_of(watermark: int, *, now_ms: int) -> str:
    """Say how far rows are healed: `fresh`, `behind`, `never`, or `counted`: nobody can tell."""
    if not watermark:
        return "never"
    if watermark < FIRST_WORLD_TIMESTAMP:
        return "counted"
    return "fresh" if now_ms / 1000 - watermark / 1e9 <= BEHIND_S else "behind"


_WORST: Final = ("never", "behind", "counted", "fresh")


def key_space(ranges: Sequence[Mapping[str, Any]], *, now_ms: int) -> Markup:
    """Draw how far the rows of a table are healed, from its first key to its last.

    Args:
        ranges: As `healed_ranges` has them.  Each is as wide as another: nobody counts their rows.
        now_ms: What their age is told by.
    """
    if not ranges:
        ranges = [{"start": "", "end": "", "watermark": 0}]
    body = []
    count = min(len(ranges), MAX_STRIPES)
    width = WIDTH / count
    for number in range(count):
        together = ranges[number * len(ranges) // count : (number + 1) * len(ranges) // count]
        worst = min(together, key=lambda one: int(one["watermark"]))
        kind = health_of(worst["watermark"], now_ms=now_ms)
        start = key_text(together[0]["start"], empty="start")
        end = key_text(together[-1]["end"], empty="end")
        healed = _healed(worst["watermark"], now_ms=now_ms)
        more = f"; the worst of {len(together)} ranges" if len(together) > 1 else ""
        gap = 1 if width > 4 else 0
        title = f"[{start}, {end}): {healed}{more}"
        body.append(_rectangle(number * width, 0, width - gap, 22, kind=kind, title=title))
    return _svg(
        "key-space", 22, f"{len(ranges)} ranges of rows from first key to last", "".join(body)
    )


def _healed(watermark: int, *, now_ms: int) -> str:
    if not watermark:
        return "no compaction has passed here"
    if watermark < FIRST_WORLD_TIMESTAMP:
        return f"healed up to {watermark}"
    return f"healed up to {brief(max(now_ms / 1000 - watermark / 1e9, 0))} ago"


def bars(rows: Sequence[tuple[str, float]], *, title: str) -> Markup:
    """Draw named numbers as lying bars, a line of a table each: name, bar and number."""
    most = max((value for _, value in rows), default=0) or 1
    body = []
    for name, value in rows:
        bar = _rectangle(0, 2, max(100 * value / most, 0.3), 12, kind="bar") if value else ""
        body.append(
            f'<tr><th scope="row">{_text(name)}</th><td><svg class="drawing" viewBox="0 0 100 16" '
            f'preserveAspectRatio="none" aria-hidden="true">{bar}</svg></td>'
            f'<td class="n">{value:,.0f}</td></tr>'
        )
    rows_ = "".join(body)
    return Markup(  # noqa: S704 - its parts are escaped, or numbers
        f'<table class="bars" aria-label="{_text(title)}"><tbody>{rows_}</tbody></table>'
    )


def columns(labels: Sequence[str], series: Mapping[str, Sequence[float]], *, title: str) -> Markup:
    """Draw series of numbers as groups of standing columns, with a legend."""
    height, left, foot = 180, 56, 22
    most = max((value for values in series.values() for value in values), default=0) or 1
    slot = (WIDTH - left - 40) / max(len(labels), 1)
    width = min(0.8 * slot / max(len(series), 1), 18)
    body = [_axis(left, height, most)]
    for place, (name, values) in enumerate(series.items()):
        for number, value in enumerate(values):
            tall = (height - 10) * value / most
            x = left + (number + 0.5) * slot + (place - len(series) / 2) * width
            told = f"{labels[number]}: {value:,.0f} {name}"
            body.append(
                _rectangle(x, height - tall, width - 1, tall, kind=f"series-{place}", title=told)
            )
    every = -(-len(labels) * LABEL_WIDTH // (WIDTH - left))
    body += [
        _word(left + (number + 0.5) * slot, height + 16, labels[number], anchor="middle")
        for number in range(0, len(labels), every)
    ]
    legend = 0.0
    for place, name in enumerate(series):
        body.append(_rectangle(left + legend, height + foot + 6, 10, 10, kind=f"series-{place}"))
        body.append(_word(left + legend + 16, height + foot + 15, name))
        legend += 40 + 8 * len(name)
    return _svg("columns axed", height + foot + 24, title, "".join(body))


def line(
    values: Sequence[float], *, title: str, height: int = 56, has_axis: bool = False
) -> Markup:
    """Draw two numbers or more in the order of time as a line, the area below it shaded."""
    left = 56 if has_axis else 0
    most = max(values) or 1
    step = (WIDTH - left) / (len(values) - 1)
    points = [
        (left + number * step, height - 2 - (height - 8) * value / most)
        for number, value in enumerate(values)
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    body = _axis(left, height - 2, most) if has_axis else ""
    body += (
        f'<polygon class="area" points="{left},{height - 2} {path} {WIDTH},{height - 2}"/>'
        f'<polyline class="stroke" points="{path}"/>'
    )
    return _svg("line axed" if has_axis else "line", height + 6 * has_axis, title, body)


def _axis(left: float, height: float, most: float) -> str:
    lines = []
    for part in (0.0, 0.5, 1.0):
        y = height - (height - 10) * part
        lines.append(f'<line class="grid" x1="{left}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(_word(left - 8, y + 4, _short(most * part), anchor="end"))
    return "".join(lines)


def _short(value: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= 10 * size:
            return f"{value / size:.0f}{unit}"
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"
