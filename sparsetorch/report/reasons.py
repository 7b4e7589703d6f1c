"""The words of a verdict, as `verify` and `check` print them and the page shows them."""

from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape

from sparsetorch.xnnpack.verdict import Verdict


@dataclass(frozen=True)
class ReasonGroup:
    """Reasons with one rule and one fix."""

    rule: str
    required: str
    fix: str
    places: tuple[str, ...]
    """Where, by module or tensor, and what was found there."""

    @property
    def unsafe(self) -> bool:
        """Whether it makes numbers wrong, or keeps the file from loading."""
        return self.rule.startswith(("unsafe", "integer", "unpacked"))


def grouped_reasons(verdict: Verdict) -> list[ReasonGroup]:
    """The reasons, those with one rule and one fix together."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for reason in verdict.reasons:
        where = reason.module or reason.tensor
        place = f"{where} ({reason.operator}): {reason.found}" if where else reason.found
        groups.setdefault((reason.rule, reason.required, reason.fix), []).append(place)
    return [ReasonGroup(*key, tuple(places)) for key, places in groups.items()]


def print_targets(verdict: Verdict, console: Console) -> None:
    """One line for each target."""
    for name, target in verdict.targets.items():
        if target.eligible:
            console.print(f"[green]{name}: eligible[/], {verdict.expected_spmm} sparse matrix multiplications expected")
        else:
            word = "[bold white on red] UNSAFE [/]" if target.unsafe else "[red]not eligible[/]"
            console.print(f"{name}: {word} {escape(target.why_not or '')}")


def print_reasons(verdict: Verdict, console: Console) -> None:
    """A paragraph for each group of reasons."""
    groups = grouped_reasons(verdict)
    for group in groups:
        console.print(f"\n[bold]{escape(group.rule)}[/]: required {escape(group.required)}")
        for place in group.places:
            console.print(f"  found {escape(place)}")
        console.print(f"  fix   {escape(group.fix)}")
    if groups:
        console.print()
