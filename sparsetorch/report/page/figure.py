"""A figure of the page: an SVG drawing, what it shows, and its numbers as CSV, both to download."""

import base64
import csv
import io
import itertools
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from sparsetorch.report.page.colours import resolved_rules

WIDTH = 360
"""Units of a drawing's width: one to a pixel on a phone, so that its text is as large as it says."""
TIMES = "\N{MULTIPLICATION SIGN}"


def text(value: object, longest: int | None = None, keep_end: bool = False) -> str:
    """Escaped for SVG and HTML, without the characters that XML cannot hold.

    Args:
        value: anything; file and tensor names may hold anything.
        longest: characters to keep; more are replaced by an ellipsis.
        keep_end: cut the beginning, where ends tell names apart.
    """
    plain = "".join(" " if unicodedata.category(character)[0] == "C" else character for character in str(value))
    if longest is not None and len(plain) > longest:
        plain = f"…{plain[1 - longest :]}" if keep_end else f"{plain[: longest - 1]}…"
    return escape(plain)


@dataclass(frozen=True)
class Table:
    """Numbers behind a figure."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[object]]

    def to_csv(self) -> str:
        """With a heading. A name that a spreadsheet would take for a formula gets an apostrophe."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([_cell(value) for value in row] for row in self.rows)
        return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return "" if value is None else value


@dataclass(frozen=True)
class Figure:
    """A drawing with its numbers."""

    name: str
    """File name without ending, and its anchor on the page."""
    title: str
    summary: str
    """What it shows, in a sentence: its text alternative."""
    body: str
    """SVG elements, styled by the classes of `colours`."""
    height: float
    table: Table
    width: float = WIDTH
    cuts: tuple[float, ...] = ()
    """Heights at which the page may cut the drawing into columns."""

    @property
    def views(self) -> list[tuple[float, float]]:
        """(top, height) of each column."""
        edges = [0.0, *self.cuts, self.height]
        return [(top, bottom - top) for top, bottom in itertools.pairwise(edges)]

    def standalone(self) -> str:
        """A whole SVG file in light colours."""
        size = f'width="{self.width:g}" height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size}><title>{text(self.title)}</title><style>{resolved_rules()}</style>'
            f'<rect class="paper" width="100%" height="100%"/>{self.body}</svg>'
        )

    @property
    def svg_link(self) -> str:
        """The SVG file as a link that needs no network."""
        return _link("image/svg+xml", self.standalone())

    @property
    def csv_link(self) -> str:
        """The numbers as a link that needs no network."""
        return _link("text/csv;charset=utf-8", self.table.to_csv())


def _link(kind: str, content: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content.encode(errors='replace')).decode()}"
