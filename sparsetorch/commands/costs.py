"""Measure what each 1x1 convolution of a network costs, densely and at several sparsities: what `LatencyAware` goes by.

Every different shape is timed once in LiteRT.js under Node.js (`sparsetorch runtime install wasm`), 3 to 4 s each, and
kept beside the runtimes for other networks. With --network, the network's exported file is timed as well, so that a target can
be given for the network as a whole. Times are those of this machine, as quiet as it is. A recipe then says:

  sparsity:
    distribution:
      class_path: sparsetorch.LatencyAware
      init_args: {costs: costs.json, target_ms: 8.0}

examples:
  sparsetorch costs --model torchvision.models:mobilenet_v2 --input-shape 3,224,224 -o costs.json
  sparsetorch costs --model torchvision.models:mobilenet_v2 --input-shape 3,224,224 --runs 500 -o costs.json --json -
  sparsetorch export --model torchvision.models:mobilenet_v2 --input-shape 3,224,224 --sparsity 0.85 -o sparse.tflite
  sparsetorch costs --model torchvision.models:mobilenet_v2 --input-shape 3,224,224 --network sparse.tflite -o costs.json

exit codes: 0 measured; 1 bad input; 2 usage; 5 the runtime is not there
"""

import argparse
from dataclasses import replace
from pathlib import Path

from sparsetorch.analysis.layer_costs import CostTable
from sparsetorch.commands.export import input_shape
from sparsetorch.errors import UsageError
from sparsetorch.files import check_writable, write_atomically, write_json
from sparsetorch.report.terminal import is_quiet, make_console, stages


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    parser.add_argument(
        "--model", metavar="M", required=True, help="dotted.path:callable or file.py:callable that returns an nn.Module"
    )
    parser.add_argument("--model-args", metavar="JSON", help="keyword arguments of the callable")
    parser.add_argument("--input-shape", metavar="C,H,W", type=input_shape, required=True, help="of one input")
    parser.add_argument(
        "--network", metavar="FILE.tflite", type=Path, help="the network, exported sparse: what its other layers take"
    )
    parser.add_argument("--runtime", choices=["wasm"], default="wasm", help="where to measure (default: wasm)")
    parser.add_argument("--runs", type=int, default=200, help="timed runs of each file (default: 200)")
    parser.add_argument("-o", "--output", metavar="FILE.json", type=Path, required=True, help="the table to write")


def run(args: argparse.Namespace) -> int:
    """Measure, write and tell.

    Raises:
        BadInputError: a network that cannot be made or run.
        CannotObserveError: no runtime.
        UsageError: no runs.
    """
    from sparsetorch.analysis.pointwise_layers import pointwise_layers
    from sparsetorch.exporter.source import load_factory
    from sparsetorch.runtime.layer_costs import Effort, measure_costs, measure_rest

    if args.runs < 1:
        raise UsageError(f"--runs: found {args.runs}, needed at least 1")
    check_writable(args.output)
    layers = pointwise_layers(load_factory(args.model, args.model_args), args.input_shape)
    with stages(is_quiet(args)) as stage:
        table = measure_costs(
            layers, effort=Effort(args.runs), progress=lambda done, of: stage(f"timing: {done} of {of} shapes")
        )
        if args.network is not None:
            stage("timing: the whole network")
            table = replace(table, rest_ms=measure_rest(args.network, table, Effort(args.runs)))
    write_atomically(args.output, table.to_json().encode())
    if args.json is not None:
        write_json(args.json, table.to_dict())
    if not is_quiet(args):
        _print(table)
    return 0


def _print(table: CostTable) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    shown = Table(box=SIMPLE_HEAD, pad_edge=False, title=f"{table.runtime}; {table.processor}", title_justify="left")
    sparsities = list(table.times[0].sparse_ms)
    for heading in ("layer", "channels", "pixels", "dense ms", *(f"{sparsity:.0%}" for sparsity in sparsities)):
        shown.add_column(heading, justify="left" if heading == "layer" else "right")
    for name, shape in table.layers.items():
        times = table.of(name)
        shown.add_row(
            name,
            f"{shape.in_channels} to {shape.out_channels}",
            f"{shape.height}x{shape.width}",
            f"{times.dense_ms:.3f}",
            *(f"{ms:.3f}" for ms in times.sparse_ms.values()),
        )
    console = make_console(soft_wrap=False)
    console.print(shown)
    if table.rest_ms is not None:
        console.print(f"The rest of the network takes {table.rest_ms:.2f} ms.")
        if table.rest_ms == 0.0:
            console.print(
                "Layers, timed alone, add up to more than the whole network takes: the machine was busy. Measure again before "
                "a target goes by this table."
            )
