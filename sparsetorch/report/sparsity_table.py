"""The table that `sparsetorch fit` ends with: what every layer costs, dense and sparse."""

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from sparsetorch.analysis import Account
from sparsetorch.report.terminal import make_console

_COLUMNS = ("layer", "shape", "weights", "non-zero", "sparsity", "of MACs", "MACs", "sparse MACs", "bytes")


def accounting_table(account: Account) -> Table:
    """A row per layer, totals at the bottom.

    MACs are multiply-accumulates for one input; `of MACs` is the layer's share of those of all layers; a dash where the
    forward was not run. Bytes are those of the weight in the exported float32 file.
    """
    table = Table(title="what it costs", title_justify="left", show_footer=True)
    total = account.dense_macs
    owned = [layer for layer in account.layers if layer.shared_with is None]
    weights, non_zero = sum(layer.parameters for layer in owned), sum(layer.non_zero for layer in owned)
    footer = (
        "all layers",
        "",
        f"{weights:,}",
        f"{non_zero:,}",
        f"{(weights - non_zero) / weights if weights else 0.0:.2%}",
        "-" if total is None else "100.0%",
        _short(total),
        _short(account.sparse_macs),
        f"{account.bytes:,}",
    )
    for name, last in zip(_COLUMNS, footer, strict=True):
        plain = name in ("layer", "shape")
        table.add_column(
            name, footer=last, justify="left" if plain else "right", overflow="fold", no_wrap=name != "layer"
        )
    for layer in account.layers:
        table.add_row(
            escape(layer.module or "(the network itself)"),
            _shape(layer.shape),
            f"{layer.parameters:,}",
            f"{layer.non_zero:,}",
            f"{layer.sparsity:.2%}",
            _share(layer.dense_macs, total),
            _short(layer.dense_macs),
            _short(layer.sparse_macs),
            f"{layer.bytes:,}" if layer.shared_with is None else "shared",
        )
    return table


def print_accounting(account: Account) -> None:
    """Print the table on standard output; wide enough to keep its columns where that is no terminal."""
    console = make_console(soft_wrap=False)
    console.print(accounting_table(account))


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _share(part: int | None, whole: int | None) -> str:
    return "-" if part is None or not whole else f"{part / whole:.1%}"


def _short(count: int | None) -> str:
    """Three or four digits and a unit: 118.0 M."""
    if count is None:
        return "-"
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.4g} {unit}" if count < 1000 * size else f"{count / size:,.0f} {unit}"
    return str(count)
