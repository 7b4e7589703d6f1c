"""What `verify --observe` shows of each runtime."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from sparsetorch.runtime.observation import Observation

_LOOK = (
    "The rules table (sparsetorch/xnnpack) needs a look for this file and this runtime: please report it with the file."
)


def print_observed(observed: Mapping[str, "Observation"], console: Console) -> None:
    """One paragraph a runtime: what was seen, of what was expected, and how right the numbers were."""
    for name, one in observed.items():
        console.print(f"\n[bold]Observed in {name}[/] ({escape(one.version)}): {_headline(one)}")
        if one.max_rel_error is not None:
            console.print(
                f"  numbers: largest relative error {one.max_rel_error:.1e} against the same weights stored densely"
            )
        for operator, count in one.operators.items():
            console.print(f"  {count:4d}  {escape(operator)}")
        for words in one.wrong:
            console.print(f"  [bold white on red] WRONG [/] {escape(words)}")
        for words in one.disagreements:
            console.print(f"  [red]not as predicted[/]: {escape(words)}")
        if one.disagreements:
            console.print(f"  {_LOOK}")
        for words in one.notes:
            console.print(f"  {escape(words)}")


def _headline(one: "Observation") -> str:
    if one.spmm is None or one.expected is None:
        return "[red]wrong numbers[/]" if one.wrong else "[yellow]cannot be observed here[/], the numbers are right"
    seen = f"{one.spmm} sparse matrix multiplications of {one.expected.spmm} expected"
    if one.taken:
        return f"[green]sparse path taken[/], {seen}"
    return f"[red]wrong numbers[/], {seen}" if one.wrong else f"[yellow]sparse path not taken[/], {seen}"
