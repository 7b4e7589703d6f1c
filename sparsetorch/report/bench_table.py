"""What `sparsetorch bench` shows: a bar while it measures, a table for each runtime."""

import contextlib
from collections.abc import Callable, Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from sparsetorch.latency.result import BenchResult, RuntimeResult, to_ship
from sparsetorch.report.terminal import make_console


@contextlib.contextmanager
def bench_progress(quiet: bool, runs: int) -> Iterator[Callable[[str, int], None]]:
    """A progress bar for each runtime on a terminal, a line when each begins elsewhere; on standard error."""
    console = Console(stderr=True, highlight=False)
    if quiet:
        yield lambda stage, rounds: None
        return
    if not console.is_terminal:
        seen: set[str] = set()

        def tell(stage: str, rounds: int) -> None:
            if stage not in seen:
                seen.add(stage)
                console.print(f"measuring: {stage}")

        yield tell
        return
    with Progress(TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} rounds"),
                  TimeRemainingColumn(), console=console, transient=True) as bar:  # fmt: skip
        tasks: dict[str, TaskID] = {}

        def update(stage: str, rounds: int) -> None:
            if stage not in tasks:
                for other in tasks.values():
                    bar.update(other, visible=False)
                tasks[stage] = bar.add_task(stage, total=runs)
            bar.update(tasks[stage], completed=rounds)

        yield update


def print_bench(result: BenchResult) -> None:
    """A table for each runtime, what to ship there, and every note; on standard output."""
    console = make_console()
    for name, runtime in result.runtimes.items():
        if runtime.missing is not None:
            console.print(f"[bold]{name}[/]: [yellow]not measured[/], {escape(runtime.missing)}")
            continue
        console.print(_table(name, runtime, result))
        chosen = to_ship(runtime.rows)
        if chosen is not None:
            console.print(
                f"To ship for {name}: [bold]{escape(chosen.label)}[/], {chosen.bytes:,} bytes, the smallest of the fastest."
            )
        for note in runtime.notes:
            console.print(f"  {escape(note)}")
    for note in result.notes:
        console.print(f"[yellow]{escape(note)}[/]")


def _table(name: str, runtime: RuntimeResult, result: BenchResult) -> Table:
    threads = f"{runtime.threads} thread{'' if runtime.threads == 1 else 's'}"
    title = f"{name}: {runtime.version}; {threads}; {result.runs} runs after {result.warmup}; {result.processor}"
    table = Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("file", overflow="fold")
    for heading in ("bytes", "load ms", "median ms", "p10", "p90"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column(f"against {escape(result.reference or 'nothing')}", overflow="fold")
    for row in runtime.rows:
        times = [""] * 3 if row.ms is None else [f"{ms:.2f}" for ms in (row.ms.median, row.ms.p10, row.ms.p90)]
        load = "" if row.init_ms is None else f"{row.init_ms:.0f}"
        colour = "red" if row.failure else "green" if row.ratio and row.ratio.low > 1 else "default"
        table.add_row(escape(row.label), f"{row.bytes:,}", load, *times, f"[{colour}]{escape(row.in_words)}[/]")
    return table
