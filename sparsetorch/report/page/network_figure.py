"""The network as a picture: a row per operator, wires in lanes beside them, as version-control logs draw branches.

A value keeps its producer's lane until its last reader, so that no wire runs through an operator that does not read it; an
operator goes to the lane of its first input if nothing else reads that later, otherwise to the first free one. Wires that carry
channels-first values are thick and coloured: the sparse cluster is what they connect.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from sparsetorch.report.network import Role, Row
from sparsetorch.report.page.figure import TIMES, WIDTH, Figure, Table, text

_ROW, _REASON, _LEFT, _LANE = 30, 13, 16, 14
_MOST_LANES = 8
"""Lanes beyond are drawn in the last one: rather crossing wires than no room for names."""
_COLUMN_ROWS, _MOST_COLUMNS = 16, 3
_SHORT = {"CONV_2D": "conv", "DEPTHWISE_CONV_2D": "depthwise", "FULLY_CONNECTED": "fully connected"}


@dataclass(frozen=True)
class _Place:
    lane: int
    top: float
    height: float
    lines: tuple[str, ...]

    @property
    def x(self) -> float:
        return _LEFT + _LANE * min(self.lane, _MOST_LANES - 1)

    @property
    def y(self) -> float:
        return self.top + _ROW / 2


def lanes(rows: Sequence[Row]) -> list[int]:
    """The lane of each row, 0 at the left."""
    last_reader = {producer: index for index, row in enumerate(rows) for producer in row.producers}
    occupied: dict[int, int] = {}  # lane -> the row whose value is in it
    found: list[int] = []
    for index, row in enumerate(rows):
        for lane, owner in list(occupied.items()):
            if last_reader.get(owner, -1) <= index and owner not in row.producers:
                del occupied[lane]
        ending = [found[producer] for producer in row.producers if last_reader[producer] == index]
        taken = {lane for lane, owner in occupied.items() if last_reader[owner] > index}
        free = [lane for lane in ending if lane not in taken]
        lane = free[0] if free else next(lane for lane in range(len(rows) + 1) if lane not in occupied)
        for other in ending:
            occupied.pop(other, None)
        occupied[lane] = index
        found.append(lane)
    return found


def network_figure(rows: Sequence[Row]) -> Figure:
    """Draw a network."""
    places = _places(rows)
    left = max((place.x for place in places), default=_LEFT) + 14
    parts = [_band(row, place) for row, place in zip(rows, places, strict=True)]
    for index, row in enumerate(rows):
        parts += [_wire(places[producer], places[index], rows[producer]) for producer in row.producers]
    parts += [_operator(row, place, left) for row, place in zip(rows, places, strict=True)]
    height = places[-1].top + places[-1].height if places else _ROW
    operators = [row for row in rows if row.role is not Role.PORT]
    sparse = sum(row.role is Role.SPARSE for row in operators)
    broken = sum(row.role in (Role.BREAKER, Role.UNSAFE) for row in operators)
    return Figure(
        "network",
        "The network",
        f"{len(operators)} operators in execution order: {sparse} run as sparse matrix multiplications, "
        f"{sum(row.role in (Role.INSIDE, Role.ENTRY, Role.EXIT) for row in operators)} more in the sparse cluster, "
        f"{broken} with something that breaks it.",
        "".join(parts),
        height,
        _table(rows),
        cuts=_cuts(places),
    )


def _places(rows: Sequence[Row]) -> list[_Place]:
    places, top = [], 0.0
    for row, lane in zip(rows, lanes(rows), strict=True):
        told = [f"{reason.rule}: {reason.found}; needed {reason.required}" for reason in row.reasons]
        lines = tuple(line for words in told for line in textwrap.wrap(words, 52)[:3])
        height = _ROW + _REASON * len(lines) + (4 if lines else 0)
        places.append(_Place(lane, top, height, lines))
        top += height
    return places


def _cuts(places: Sequence[_Place]) -> tuple[float, ...]:
    columns = min(_MOST_COLUMNS, max(1, len(places) // _COLUMN_ROWS))
    height = places[-1].top + places[-1].height if places else 0.0
    wanted = [height * number / columns for number in range(1, columns)]
    return tuple(min((place.top for place in places), key=lambda top: abs(top - edge)) for edge in wanted)


def _band(row: Row, place: _Place) -> str:
    kind = {Role.BREAKER: "breaker-band", Role.UNSAFE: "unsafe-band"}.get(row.role)
    if kind is None and row.role in (Role.SPARSE, Role.INSIDE, Role.ENTRY, Role.EXIT):
        kind = "band"
    return (
        ""
        if kind is None
        else f'<rect class="{kind}" x="2" y="{place.top:g}" width="{WIDTH - 4}" height="{place.height + 0.5:g}"/>'
    )


def _wire(start: _Place, end: _Place, producer: Row) -> str:
    kind = "wire first" if producer.channels_first else "wire"
    path = f"M{start.x:g} {start.y:g}"
    if start.x == end.x:
        path += f"V{end.y:g}"
    elif end.top - start.top > _ROW and end.lane < start.lane:  # down its own lane, then over to the reader
        bend = end.y - _ROW * 0.8
        path += f"V{bend:g}C{start.x:g} {end.y - 6:g} {end.x:g} {bend + 6:g} {end.x:g} {end.y:g}"
    else:
        bend = start.y + _ROW * 0.8
        path += f"C{start.x:g} {bend - 6:g} {end.x:g} {start.y + 6:g} {end.x:g} {bend:g}V{end.y:g}"
    return f'<path class="{kind}" d="{path}"/>'


def _operator(row: Row, place: _Place, left: float) -> str:
    shape = TIMES.join(map(str, row.shape[1:] if len(row.shape) > 1 else row.shape))
    name = _short(row.operator)
    hint = "; ".join([f"{row.operator} {row.name}, {row.role}, output {list(row.shape)}", *place.lines])
    parts = [f"<g><title>{text(hint)}</title>", _mark(row, place)]
    parts.append(f'<text class="strong" x="{left:g}" y="{place.top + 13:g}">{text(name, 24)}</text>')
    parts.append(
        f'<text class="muted" x="{left:g}" y="{place.top + 25:g}">{text(row.name, 40 - 2 * int(left / 14), keep_end=True)}</text>'
    )
    parts.append(f'<text class="muted end" x="{WIDTH - 10}" y="{place.top + 25:g}">{text(shape, 16)}</text>')
    if row.sparsity:
        parts.append(_share(row.sparsity, place.top + 5, "sparse" if row.role is Role.SPARSE else "dense"))
    kind = "unsafe" if row.role is Role.UNSAFE else "breaker"
    for number, line in enumerate(place.lines):
        parts.append(
            f'<text class="{kind}" x="{left:g}" y="{place.top + _ROW + 8 + _REASON * number:g}">{text(line)}</text>'
        )
    return "".join(parts) + "</g>"


def _short(operator: str) -> str:
    word, _, rest = operator.partition(" ")
    kept = word if word in ("input", "output") else word.replace("_", " ").lower()
    return f"{_SHORT.get(word, kept)} {rest.replace('x', TIMES)}".strip()


def _share(sparsity: float, top: float, kind: str) -> str:
    """A small bar of the zeros, with the number before it."""
    width, right = 44, WIDTH - 10
    return (
        f'<text class="muted end" x="{right - width - 5}" y="{top + 8:g}">{sparsity:.0%}</text>'
        f'<rect class="track" x="{right - width}" y="{top:g}" width="{width}" height="8" rx="2"/>'
        f'<rect class="{kind}" x="{right - width}" y="{top:g}" width="{width * sparsity:.1f}" height="8" rx="2"/>'
    )


def _mark(row: Row, place: _Place) -> str:
    x, y, kind = place.x, place.y, row.role.value
    if row.role in (Role.BREAKER, Role.UNSAFE):
        triangle = f'<path class="{kind}" d="M{x:g} {y - 8:g}l8 14h-16z"/>'
        return f'{triangle}<text class="sign middle" x="{x:g}" y="{y + 4.5:g}">!</text>'
    if row.role is Role.ENTRY:
        return f'<path class="{kind}" d="M{x - 7:g} {y - 6:g}h14l-7 12z"/>'
    if row.role is Role.EXIT:
        return f'<path class="{kind}" d="M{x:g} {y - 7:g}l7 7l-7 7l-7 -7z"/>'
    if row.operator.startswith(("CONV_2D", "FULLY_CONNECTED")):
        return f'<rect class="{kind}" x="{x - 6:g}" y="{y - 6:g}" width="12" height="12" rx="3"/>'
    radius = 6 if row.operator.startswith("DEPTHWISE") else 4.5
    return f'<circle class="{kind}" cx="{x:g}" cy="{y:g}" r="{radius}"/>'


def _table(rows: Sequence[Row]) -> Table:
    return Table(
        ("number", "operator", "name", "output_shape", "role", "reads", "channels_first", "sparsity", "reasons"),
        [
            (
                number,
                row.operator,
                row.name,
                "x".join(map(str, row.shape)),
                row.role.value,
                " ".join(map(str, row.producers)),
                row.channels_first,
                row.sparsity,
                "; ".join(f"{reason.rule}: {reason.found}" for reason in row.reasons),
            )
            for number, row in enumerate(rows)
        ],
    )
