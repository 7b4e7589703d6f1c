"""What `sparsetorch sensitivity` shows: a table, and a plot as .png and .svg."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from sparsetorch.analysis.sensitivity import Curve
from sparsetorch.report.terminal import make_console


def print_sensitivity(
    curves: Sequence[Curve], baseline: float, metric: str, recommended: Mapping[str, float] | None, unit: str
) -> None:
    """A row per unit, a column per sparsity, and the recommendation."""
    table = Table(title=f"{metric} with one {unit} pruned ({baseline:.4f} with none)", title_justify="left")
    table.add_column(unit, overflow="fold")
    table.add_column("weights" if unit == "layer" else "channels", justify="right")
    for sparsity in curves[0].sparsities if curves else ():
        table.add_column(f"{sparsity:.0%}", justify="right")
    if recommended is not None:
        table.add_column("recommended", justify="right")
    for curve in curves:
        cells = [f"{accuracy:.4f}" for accuracy in curve.accuracies]
        cells += [] if recommended is None else [f"{recommended[curve.name]:.1%}"]
        table.add_row(escape(curve.name), f"{curve.size:,}", *cells)
    console = make_console(soft_wrap=False)
    console.print(table)


def write_sensitivity_plot(curves: Sequence[Curve], baseline: float, metric: str, folder: Path) -> list[Path]:
    """`sensitivity.png` and `.svg`: a line per unit, early ones dark, late ones bright; the baseline dashed."""
    import matplotlib
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

    written: list[Path] = []
    with matplotlib.rc_context(
        {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "sparsetorch"}
    ):
        figure = Figure(figsize=(8.0, 5.0), layout="constrained")
        axes = figure.subplots()
        depth = Normalize(0, max(len(curves) - 1, 1))
        colours = matplotlib.colormaps["cividis"]
        for place, curve in enumerate(curves):
            share = [0.0, *(100 * sparsity for sparsity in curve.sparsities)]
            axes.plot(share, [baseline, *curve.accuracies], color=colours(depth(place)), label=curve.name, marker=".")
        axes.axhline(baseline, color="grey", linestyle="--", linewidth=1)
        axes.set_xlabel("sparsity of this one (%)")
        axes.set_ylabel(metric)
        if len(curves) <= 24:
            axes.legend(fontsize=6, loc="lower left", ncols=2, frameon=False)
        for suffix in ("png", "svg"):
            path = folder / f"sensitivity.{suffix}"
            figure.savefig(path, dpi=150, metadata={"Date": None} if suffix == "svg" else None)
            written.append(path)
    return written
