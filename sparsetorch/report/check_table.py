"""What `sparsetorch check` shows: the verdict to come, the two-thirds rule as a plan, sizes."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sparsetorch.preflight.check import CheckReport
from sparsetorch.preflight.two_thirds import ClusterPlan
from sparsetorch.report.reasons import print_reasons, print_targets
from sparsetorch.report.terminal import make_console

_MOST_NAMES = 8


def print_check(report: CheckReport, name: str) -> None:
    """On standard output."""
    console = make_console()
    shape = "x".join(map(str, report.input_shape))
    console.print(
        f"[bold]{escape(name)}[/], input {shape}: {report.sparsity:.1%} zeros planned over {len(report.pruned_layers)} layers, "
        f"stored as {report.values}"
    )
    for plan in report.clusters:
        _print_plan(plan, console)
    if not report.clusters:
        console.print("No cluster: no sparsity makes a 1x1 convolution of this network run sparse. See the reasons.")
    console.print(_size_table(report))
    for reason in report.refused:
        console.print(f"[bold red]Would be written dense:[/] {escape(reason)}")
    for one in report.opaque:
        console.print(f"Not known here, taken for an operator that XNNPACK does not have: {escape(one)}")
    print_targets(report.verdict, console)
    print_reasons(report.verdict, console)
    console.print(
        f"Rules of {report.verdict.revision}. A prediction in {report.seconds:.1f} s, without the converter; "
        "`export` and `verify` have the last word."
    )


def _print_plan(plan: ClusterPlan, console: Console) -> None:
    word = "[green]enough[/]" if plan.is_enough else "[red]too few[/]"
    console.print(
        f"Cluster of {len(plan.layers)} 1x1 convolutions, {escape(plan.layers[0])} to {escape(plan.layers[-1])}: "
        f"{plan.planned_zeros:,} of {plan.params:,} weights zero as planned ({plan.planned_sparsity:.1%}), "
        f"{plan.required_zeros:,} needed: {word}."
    )
    pruned = len(plan.layers) - len(plan.not_pruned)
    share = plan.prunable / plan.params
    if plan.needed_sparsity is None:
        console.print(
            f"  The policy prunes {pruned} of them with {share:.1%} of the weights: [red]no sparsity over those is enough[/]."
        )
    else:
        console.print(
            f"  The policy prunes {pruned} of them with {share:.1%} of the weights: at least "
            f"[bold]{plan.needed_sparsity:.3f}[/] over those (0.8 to 0.9 is worth it)."
        )
    if plan.not_pruned:
        more = len(plan.not_pruned) - _MOST_NAMES
        told = ", ".join(plan.not_pruned[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
        console.print(f"  Not pruned: {escape(told)}")


def _size_table(report: CheckReport) -> Table:
    table = Table(title="the file to come", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("weights")
    for heading in ("bytes", "of dense float32", "sparse products", "eligible"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_row("dense float32", f"{report.dense_bytes:,}", "100.0%", "0", "")
    for values, file in report.files.items():
        share = f"{file.bytes / report.dense_bytes:.1%}"
        table.add_row(values, f"{file.bytes:,}", share, str(file.expected_spmm), "yes" if file.eligible else "no")
    return table
