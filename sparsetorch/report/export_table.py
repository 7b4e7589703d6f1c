"""What `sparsetorch export` shows: stages while it works, sizes and the verdict when it is done."""

import argparse
import sys
from collections import Counter

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sparsetorch.exporter.outcome import ExportReport
from sparsetorch.files import write_json
from sparsetorch.report.terminal import is_quiet, make_console

_WORTH_A_LINE = 0.3
"""Share of zeros above which a layer other than a 1x1 convolution that stays dense is told."""


def tell(report: ExportReport, args: argparse.Namespace, command: str, reference: str) -> int:
    """Print and write what a command did, as its arguments ask; its exit code, 3 where zeros gain nothing on some target."""
    if not is_quiet(args):
        print_report(report, command, reference)
    if args.json is not None:
        write_json(args.json, report.to_dict())
    kept_off = [name for name, target in report.verdict.targets.items() if not target.eligible]
    if not (report.meant_sparse and kept_off):
        return 0
    print(
        f"sparsetorch {command}: {args.output} is written, but its zeros gain no time on {', '.join(kept_off)}; "
        f"`sparsetorch verify {args.output}` says why",
        file=sys.stderr,
    )
    return 3


def print_report(report: ExportReport, command: str, reference: str) -> None:
    """Sizes, numeric errors against `reference`, encoded layers, and a verdict per target; on standard output."""
    console = make_console()
    table = Table(
        "file",
        "weights",
        "raw",
        "gzip",
        f"difference from {reference}",
        title=f"sparsetorch {command}",
        title_justify="left",
    )
    table.columns[0].overflow = "fold"
    for column in table.columns[2:]:
        column.justify = "right"
    for file in (report.original, report.model, report.dense_twin):
        if file is not None:
            error = f"{max(file.errors):.1e}" if file.errors else ""
            table.add_row(escape(file.path), file.values, f"{file.bytes:,}", f"{file.gzip_bytes:,}", error)
    console.print(table)
    _print_repairs(console, report)
    for title, tensors in (
        ("1x1 convolutions", [tensor for tensor in report.encoded if tensor.pointwise]),
        ("other layers", [tensor for tensor in report.encoded if not tensor.pointwise and tensor.sparsity > 0]),
    ):
        encoded = sum(tensor.encoding == "sparse" for tensor in tensors)
        zeros = sum(tensor.sparsity * tensor.dense_bytes for tensor in tensors)
        size = sum(tensor.dense_bytes for tensor in tensors)
        if size:
            console.print(
                f"{title}: {encoded} of {len(tensors)} sparse-encoded, {zeros / size:.1%} of their weights are zero."
            )
    for tensor in report.encoded:
        if tensor.encoding != "sparse" and tensor.sparsity > (0 if tensor.pointwise else _WORTH_A_LINE):
            console.print(f"  {escape(tensor.name)} ({tensor.sparsity:.1%}) stays dense: {escape(tensor.reason or '')}")
    if report.refused:
        console.print(
            "[bold red]Written dense:[/] sparse-encoded, this network would compute wrong numbers on devices."
        )
        for reason in report.refused:
            console.print(f"  {escape(reason)}")
    if not report.meant_sparse:
        console.print("Nothing to encode: no 1x1 convolution would get smaller. XNNPACK runs this file dense.")
        return
    for name, target in report.verdict.targets.items():
        told = f"eligible, {report.verdict.expected_spmm} sparse matrix products" if target.eligible else "not eligible"
        console.print(f"{name}: {told}" + ("" if target.eligible else f": {escape(target.why_not or '')}"))


def _print_repairs(console: Console, report: ExportReport) -> None:
    """A line per pass that ran, and one per thing that was left."""
    counts = Counter(note.repair for note in report.repairs if note.applied)
    if counts:
        told = ", ".join(f"{name} {count}x" for name, count in counts.items())
        console.print(f"Repairs, each an equal graph: {told}.")
    for note in report.repairs:
        if not note.applied:
            console.print(f"  {note.operator} {escape(note.tensor)} left as it is: {escape(note.what)}")
