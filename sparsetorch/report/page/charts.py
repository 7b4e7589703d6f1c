"""Bars and lines as SVG, drawn at a phone's width so that their text stays readable there."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparsetorch.report.page.figure import WIDTH, text

_RIGHT = 10


@dataclass(frozen=True)
class Bar:
    """One horizontal bar, with its name above it or before it."""

    label: str
    value: float
    shown: str
    """The value with its unit."""
    kind: str = "dense"
    """A class of `colours.FIGURE_RULES`."""
    low: float | None = None
    high: float | None = None
    """Ends of an error bar."""
    group: str = ""
    """A heading above the first bar of each group."""


def bars(items: Sequence[Bar], most: float | None = None, compact: bool = False) -> tuple[str, float]:
    """SVG elements and their height.

    Args:
        items: from top to bottom.
        most: the value of a full bar; None: the largest.
        compact: name, bar and value in one line, for many bars.
    """
    largest = most or max((item.high or item.value for item in items), default=0.0) or 1.0
    parts, top, group = [], 0.0 if compact else 4.0, ""
    start, width, height = (150.0, 150.0, 9.0) if compact else (8.0, WIDTH - 18.0, 11.0)
    for item in items:
        if item.group != group:
            group = item.group
            parts.append(f'<text class="strong" x="8" y="{top + 16:g}">{text(group, 56)}</text>')
            top += 24
        if compact:
            parts.append(
                f'<text class="muted end" x="{start - 6:g}" y="{top + 10:g}">{text(item.label, 25, keep_end=True)}</text>'
            )
            parts.append(f'<text class="muted end" x="{WIDTH - 6}" y="{top + 10:g}">{text(item.shown)}</text>')
            line = top + 2
        else:
            parts.append(f'<text x="{start:g}" y="{top + 11:g}">{text(item.label, 34, keep_end=True)}</text>')
            parts.append(
                f'<text class="strong end" x="{WIDTH - _RIGHT}" y="{top + 11:g}">{text(item.shown, 28)}</text>'
            )
            line = top + 16
        parts.append(_bar(item, start, line, width, height, largest))
        top += 16 if compact else 38
    return "".join(parts), top + 4


def _bar(item: Bar, start: float, top: float, width: float, height: float, largest: float) -> str:
    def place(value: float) -> float:
        return start + width * min(max(value / largest, 0.0), 1.0)

    across = place(item.value) - start
    drawn = (
        f'<rect class="track" x="{start:g}" y="{top:g}" width="{width:g}" height="{height:g}" rx="2"/>'
        f'<rect class="{item.kind}" x="{start:g}" y="{top:g}" width="{across:.1f}" height="{height:g}" rx="2"/>'
    )
    if item.low is None or item.high is None:
        return drawn
    low, high, middle = place(item.low), place(item.high), top + height / 2
    ends = f"M{low:.1f} {middle - 4:g}v8M{high:.1f} {middle - 4:g}v8"
    return f'{drawn}<path class="whisker" d="M{low:.1f} {middle:g}H{high:.1f}{ends}"/>'


@dataclass(frozen=True)
class Line:
    """One line of a chart."""

    x: Sequence[float]
    y: Sequence[float]
    kind: str
    """A class of `colours.FIGURE_RULES`."""
    steps: bool = False
    """Whether a value holds until the next one."""


def line_chart(lines: Sequence[Line], x_label: str, y_label: str, percent: bool = True) -> tuple[str, float]:
    """SVG elements and their height. The y axis begins at 0, or at the smallest value where that is not a share."""
    left, top, width, height = 44.0, 24.0, WIDTH - 56.0, 170.0
    points = [(x, y) for line in lines for x, y in zip(line.x, line.y, strict=True) if math.isfinite(y)]
    x_low, x_high = min((x for x, _ in points), default=0.0), max((x for x, _ in points), default=1.0)
    y_low, y_high = 0.0, max((y for _, y in points), default=1.0)
    if not percent:
        y_low = min(0.0, min((y for _, y in points), default=0.0))
    y_high = y_high if y_high > y_low else y_low + 1.0
    x_high = x_high if x_high > x_low else x_low + 1.0
    ticks = nice_ticks(y_low, y_high)
    y_high = max(y_high, ticks[-1])

    def place(x: float, y: float) -> tuple[float, float]:
        return left + width * (x - x_low) / (x_high - x_low), top + height * (1 - (y - y_low) / (y_high - y_low))

    parts = [f'<text class="muted" x="8" y="13">{text(y_label)}</text>']
    for tick in ticks:
        _, y = place(x_low, tick)
        shown = f"{100 * tick:.3g} %" if percent else f"{tick:.3g}"
        parts.append(f'<path class="grid" d="M{left:g} {y:.1f}h{width:g}"/>')
        parts.append(f'<text class="muted end" x="{left - 5:g}" y="{y + 3.5:.1f}">{shown}</text>')
    for tick in nice_ticks(x_low, x_high, 5):
        x, _ = place(tick, y_low)
        parts.append(f'<text class="muted middle" x="{x:.1f}" y="{top + height + 15:g}">{tick:,.6g}</text>')
    parts.append(f'<path class="axis" d="M{left:g} {top + height:g}h{width:g}"/>')
    parts.append(f'<text class="muted end" x="{WIDTH - 12}" y="{top + height + 30:g}">{text(x_label)}</text>')
    parts += [f'<path class="{line.kind}" d="{_path(line, place)}"/>' for line in lines]
    return "".join(parts), top + height + 38


def _path(line: Line, place: Callable[[float, float], tuple[float, float]]) -> str:
    path, before = [], None
    for x, y in zip(line.x, line.y, strict=True):
        if not math.isfinite(y):
            continue
        across, down = place(x, y)
        if before is None:
            path.append(f"M{across:.1f} {down:.1f}")
        elif line.steps:
            path.append(f"H{across:.1f}V{down:.1f}")
        else:
            path.append(f"L{across:.1f} {down:.1f}")
        before = y
    return "".join(path)


def nice_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """At most `most` multiples of 1, 2 or 5 times a power of ten within [low, high]."""
    span = high - low
    power = 10.0 ** math.floor(math.log10(span / max(most - 1, 1)))
    step = next(
        (
            power * factor
            for factor in (1, 2, 5, 10, 20)
            if math.floor(high / (power * factor)) - math.ceil(low / (power * factor)) < most
        ),
        power * 50,
    )
    return [
        round(number * step, 12) for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    ]
