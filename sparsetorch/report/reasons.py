"""The words of a verdict, as `verify` and `check` print them."""

from rich.console import Console
from rich.markup import escape

from sparsetorch.xnnpack.verdict import Verdict


def print_targets(verdict: Verdict, console: Console) -> None:
    """One line for each target."""
    for name, target in verdict.targets.items():
        if target.eligible:
            console.print(f"[green]{name}: eligible[/], {verdict.expected_spmm} sparse matrix multiplications expected")
        else:
            word = "[bold white on red] UNSAFE [/]" if target.unsafe else "[red]not eligible[/]"
            console.print(f"{name}: {word} {escape(target.why_not or '')}")


def print_reasons(verdict: Verdict, console: Console) -> None:
    """The reasons, those with one rule and one fix together."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for reason in verdict.reasons:
        where = reason.module or reason.tensor
        place = f"{where} ({reason.operator}): {reason.found}" if where else reason.found
        groups.setdefault((reason.rule, reason.required, reason.fix), []).append(place)
    for (rule, required, fix), places in groups.items():
        console.print(f"\n[bold]{escape(rule)}[/]: required {escape(required)}")
        for place in places:
            console.print(f"  found {escape(place)}")
        console.print(f"  fix   {escape(fix)}")
    if groups:
        console.print()
