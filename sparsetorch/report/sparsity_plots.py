"""Plots of a sparse training: the zeros over time, and where they ended up. PNG to look at, SVG to print.

Over time, layers run through `cividis`, which reads the same with red-green blindness and in grey; bars take two blues of
the Okabe-Ito palette and a grey. Matplotlib is imported when a plot is drawn, and draws with Agg, without a display.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparsetorch.report.sparsity_history import SparsityHistory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, SKY, GREY = "#0072B2", "#56B4E9", "#D9D9D9"
_NAME_LENGTH = 44


def write_plots(history: SparsityHistory, folder: Path) -> list[Path]:
    """Write `sparsity_over_time` and `sparsity_per_layer`, each as .png and .svg.

    Args:
        history: at least one point.
        folder: where to; must exist.

    Returns:
        the four paths.
    """
    import matplotlib

    written = []
    # With a salt of its own, the same plot is the same SVG.
    with matplotlib.rc_context(
        {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "sparsetorch"}
    ):
        for name, draw in (("sparsity_over_time", draw_over_time), ("sparsity_per_layer", draw_per_layer)):
            figure = draw(history)
            for suffix in ("png", "svg"):
                path = folder / f"{name}.{suffix}"
                figure.savefig(path, dpi=150, metadata={"Date": None} if suffix == "svg" else None)
                written.append(path)
    return written


def draw_over_time(history: SparsityHistory) -> "Figure":
    """Sparsity, churn and exploration over optimizer steps: a thin line per layer, a thick one for all together."""
    import matplotlib
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 7.5), layout="constrained")
    panels = figure.subplots(3, 1, sharex=True)
    depth = Normalize(1, max(len(history.layers), 2))
    colours = matplotlib.colormaps["cividis"]
    labels = (
        ("sparsity", "zeros\n(% of weights)"),
        ("churn", "exchanged by an update\n(% of non-zero weights)"),
        ("exploration", "ever non-zero\n(% of weights)"),
    )
    for panel, (quantity, label) in zip(panels, labels, strict=True):
        values = 100.0 * history.series(quantity).numpy()
        # The first point is the start, which is no update: it exchanges nothing.
        begin = 1 if quantity == "churn" and len(history.steps) > 1 else 0
        steps = history.steps[begin:]
        # Churn belongs to an update; the others hold until the next one.
        marker = "o" if quantity == "churn" and len(steps) <= 60 else ""
        style: dict[str, Any] = (
            {"marker": marker, "markersize": 3} if quantity == "churn" else {"drawstyle": "steps-post"}
        )
        for index in range(len(history.layers)):
            panel.plot(steps, values[begin:, index], color=colours(depth(index + 1)), linewidth=0.9, alpha=0.8, **style)
        panel.plot(steps, values[begin:, -1], color="black", linewidth=2.2, label="all layers", **style)
        panel.set_ylabel(label)
        panel.grid(axis="y", color=GREY, linewidth=0.6)
        _fit_percent(panel, float(values.max(initial=0.0)))
    panels[0].legend(loc="lower right", frameon=True, framealpha=0.9, edgecolor="none")
    panels[0].set_title("Sparsity over time", loc="left")
    panels[-1].set_xlabel("optimizer step")
    if len(history.layers) > 1:
        bar = figure.colorbar(ScalarMappable(depth, colours), ax=panels, shrink=0.5, aspect=30, pad=0.02)
        bar.set_label("layer, from input to output")
        bar.set_ticks(sorted({1, (len(history.layers) + 1) // 2, len(history.layers)}))
    return figure


def _fit_percent(panel: Any, largest: float) -> None:
    """From 0 to a little above the largest value; percent never need more than 100."""
    panel.set_ylim(0, min(max(1.12 * largest, 1.0), 103.0))


def draw_per_layer(history: SparsityHistory) -> "Figure":
    """A bar per layer, divided into weights never non-zero, non-zero once and zero at the end, and non-zero at the end."""
    from matplotlib.figure import Figure

    names = [*history.layers, "all layers"]
    zeros = 100.0 * history.series("sparsity")[-1]
    never = 100.0 - 100.0 * history.series("exploration")[-1]
    figure = Figure(figsize=(8.0, 1.5 + 0.24 * len(names)), layout="constrained")
    panel = figure.subplots()
    places = range(len(names))
    parts = (
        ("zero from start to end", never, BLUE),
        ("zero now, not always", zeros - never, SKY),
        ("non-zero", 100.0 - zeros, GREY),
    )
    left = 0.0 * zeros
    for label, width, colour in parts:
        panel.barh(places, width.tolist(), left=left.tolist(), color=colour, height=0.72, label=label)
        left = left + width
    for place, value in zip(places, zeros.tolist(), strict=True):
        panel.text(101.0, place, f"{value:.1f} %", va="center", ha="left")
    panel.set_yticks(places, [_shorten(name) for name in names])
    panel.get_yticklabels()[-1].set_fontweight("bold")
    panel.set_ylim(len(names) - 0.4, -0.6)
    panel.set_xlim(0, 100)
    panel.set_xlabel("share of the layer's weights (%)")
    panel.text(101.0, -0.75, "zeros", va="bottom", ha="left")
    panel.spines["left"].set_visible(False)
    panel.tick_params(axis="y", length=0)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(f"Sparsity per layer after step {history.steps[-1]:,}", x=0.01, ha="left", fontsize=11)
    return figure


def _shorten(name: str) -> str:
    """A module path that leaves room for the bars: its end tells layers apart, so its beginning goes."""
    return name if len(name) <= _NAME_LENGTH else f"...{name[3 - _NAME_LENGTH :]}"
