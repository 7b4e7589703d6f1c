"""A report as terminal tables."""

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from sparsetorch.report.collect import Contents
from sparsetorch.report.headline import State, headline
from sparsetorch.report.terminal import make_console

_COLOURS = {
    State.OBSERVED: "green",
    State.ELIGIBLE: "green",
    State.PARTLY: "yellow",
    State.NOT: "red",
    State.UNSAFE: "bold red",
    State.WRONG: "bold red",
    State.UNKNOWN: "yellow",
}


def print_contents(contents: Contents) -> None:
    """Verdict, sizes, latency, accuracy and sparsity on standard output; the layers are `inspect`'s to show."""
    console = make_console()
    first = headline(contents)
    console.print(f"[bold]{escape(contents.model or contents.source)}[/]")
    console.print(f"[{_COLOURS[first.state]}]{escape(first.words)}[/]. {escape(first.detail)}")
    for note in contents.notes:
        console.print(escape(note))
    for table in (_sizes(contents), _latency(contents), _accuracy(contents)):
        if table is not None:
            console.print(table)


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("", "runtime", "file", "measured") else "right")
    return table


def _sizes(contents: Contents) -> Table | None:
    if not contents.sizes:
        return None
    table = _table("sizes", "", "bytes", "gzip")
    for size in contents.sizes:
        row = (size.label, f"{size.raw:,}", f"{size.gzip:,}")
        table.add_row(*(f"[bold]{cell}[/]" if size.is_file else cell for cell in row))
    return table


def _latency(contents: Contents) -> Table | None:
    if contents.bench is None:
        return None
    table = _table("latency", "runtime", "file", "median ms", "p10", "p90", "measured")
    for name, runtime in contents.bench.runtimes.items():
        for row in runtime.rows:
            times = (
                ("", "", "") if row.ms is None else tuple(f"{ms:.2f}" for ms in (row.ms.median, row.ms.p10, row.ms.p90))
            )
            table.add_row(escape(name), escape(row.label), *times, escape(row.in_words))
    return table


def _accuracy(contents: Contents) -> Table | None:
    if not contents.accuracy:
        return None
    table = _table("accuracy", "", "value")
    for name, value in contents.accuracy.items():
        table.add_row(escape(name), f"{value:.5g}")
    return table
