"""What `sparsetorch inspect` shows."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from sparsetorch.report.terminal import make_console


def print_contents(found: dict[str, Any]) -> None:
    """Print layers, operators and sizes on standard output."""
    console = make_console()
    table = Table("layer", title=escape(found["file"]), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.columns[0].overflow = "fold"
    table.add_column("operators", overflow="fold")
    for heading in ("shape", "sparsity", "stored as", "bytes", "dense"):
        table.add_column(heading, justify="right", no_wrap=True)
    for layer in found["layers"]:
        table.add_row(
            escape(layer["module"] or layer["tensor"]),
            " ".join(layer["operators"]),
            "x".join(map(str, layer["shape"])),
            f"{layer['sparsity']:.1%}",
            f"{layer['encoding']} {layer['values']}",
            f"{layer['bytes']:,}",
            f"{layer['dense_bytes']:,}",
        )
    total = found["totals"]
    table.add_section()
    table.add_row(
        "all",
        "",
        f"{total['parameters']:,}",
        f"{total['sparsity']:.1%}",
        "",
        f"{total['bytes']:,}",
        f"{total['dense_bytes']:,}",
    )
    console.print(table)
    console.print("Operators: " + ", ".join(f"{escape(name)} {count}" for name, count in found["operators"].items()))
    console.print(f"File: {found['size']['raw']:,} bytes, {found['size']['gzip']:,} with gzip.")
