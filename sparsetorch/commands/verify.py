"""Say whether XNNPACK would run a .tflite file on its sparse path, on which targets, and if not, everything that keeps it off.

A static answer from the rules of named XNNPACK revisions: nothing is run, unless --observe asks for it. Each reason names the
operator, the PyTorch module (where the file's tensors are named after modules), what was found, what is required, and a fix.
UNSAFE is worse than slow: the file would give wrong numbers, or not load, on devices that take the sparse path, while this
computer shows right ones.

--observe runs the file in a real runtime that takes the sparse path, counts the operators that ran, and compares the outputs with
those of the same weights stored densely. A runtime that is missing is named with the command that installs it.

examples:
  sparsetorch verify model.tflite
  sparsetorch verify model.tflite --target arm64 --target x86
  sparsetorch verify model.tflite --observe wasm --observe emulated
  sparsetorch verify model.tflite --json - --quiet | jq '.reasons[] | [.module, .rule, .fix]'

exit codes: 0 every asked target is eligible, and every observed runtime took the path; 1 not a TFLite file, or a damaged one;
            2 usage; 3 not eligible, or unsafe; 4 observed otherwise than predicted, or wrong numbers; 5 cannot be observed here
"""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from sparsetorch.files import write_json
from sparsetorch.report.terminal import is_quiet, make_console, stages
from sparsetorch.xnnpack import DEFAULT_TARGETS, TARGETS, Verdict, verify
from sparsetorch.xnnpack.targets import find_targets

if TYPE_CHECKING:
    from rich.table import Table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    known = "; ".join(f"{target.name}: {target.description}" for target in TARGETS.values())
    parser.add_argument("file", metavar="FILE.tflite", help="the model")
    parser.add_argument(
        "--target",
        action="append",
        metavar="T",
        help=f"where it is to run; may be repeated (default: {' and '.join(DEFAULT_TARGETS)}). {known}",
    )
    parser.add_argument(
        "--observe",
        action="append",
        metavar="R",
        default=[],
        help="run it there and look; may be repeated: host, wasm, emulated, emulated-arm64, android "
        "(see `sparsetorch runtime list`)",
    )


def run(args: argparse.Namespace) -> int:
    """Verify one file, and observe it where asked; see the module's description for what is returned.

    Raises:
        BadInputError: the file cannot be read.
        CannotObserveError: a runtime that was asked for is missing.
        UsageError: an unknown target or runtime.
    """
    targets = tuple(target.name for target in find_targets(args.target or DEFAULT_TARGETS))
    verdict = verify(args.file, targets)
    if args.observe:
        verdict = _observe(verdict, args)
    if args.json:
        write_json(args.json, verdict.to_dict())
    if not is_quiet(args):
        _print(verdict)
    if args.observe:
        from sparsetorch.runtime.observe import exit_code

        return exit_code(verdict)
    return 0 if verdict.eligible else 3


def _observe(verdict: Verdict, args: argparse.Namespace) -> Verdict:
    from sparsetorch.runtime.observe import find_runtimes, observe

    find_runtimes(args.observe)
    with stages(is_quiet(args)) as stage:
        return replace(verdict, observed=observe(args.file, args.observe, lambda name: stage(f"observing in {name}")))


def _print(verdict: Verdict) -> None:
    from rich.markup import escape

    from sparsetorch.report.reasons import print_reasons, print_targets

    console = make_console()
    if verdict.layers:
        console.print(_layer_table(verdict))
    for cluster in verdict.clusters:
        console.print(
            f"Cluster from {escape(cluster.entry or 'no entry')} to {escape(cluster.exit or 'no exit')}: "
            f"{cluster.convs_1x1} 1x1 convolutions, {cluster.zeros} of {cluster.params} weights zero "
            f"({cluster.sparsity:.1%}; more than 66.7 % needed)."
        )
    print_targets(verdict, console)
    print_reasons(verdict, console)
    console.print(f"Rules of {verdict.revision}. A prediction{'.' if verdict.observed else '; nothing was run.'}")
    if verdict.observed:
        from sparsetorch.report.observed import print_observed

        print_observed(verdict.observed, console)


def _layer_table(verdict: Verdict) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(verdict.file or "model"), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("layer", overflow="fold")
    for heading in ("shape", "sparsity", "encoding", "kernel", "bytes", "dense"):
        table.add_column(heading, justify="right", no_wrap=True)
    for layer in verdict.layers:
        table.add_row(
            escape(layer.module or layer.tensor),
            "x".join(map(str, layer.shape)),
            f"{layer.sparsity:.1%}",
            f"{layer.encoding} {layer.values}",
            "" if layer.kernel_block is None or layer.encoding == "dense" else f"SpMM {layer.kernel_block}",
            f"{layer.bytes:,}",
            f"{layer.dense_bytes:,}",
        )
    stored, dense = (sum(sizes) for sizes in zip(*((x.bytes, x.dense_bytes) for x in verdict.layers), strict=True))
    table.add_section()
    table.add_row("all", "", "", "", "", f"{stored:,}", f"{dense:,}")
    return table
