"""Write a .tflite file again with the zeros of its weights left out, whoever made it: Keras, TFMOT, another converter.

The graph is repaired on the way where an equal one takes XNNPACK's sparse path. The new file is loaded, run and compared with
the one that came before it gets its name. Where a device would compute the encoded graph wrongly, its zeros stay in.

examples:
  sparsetorch encode pruned.tflite -o sparse.tflite
  sparsetorch encode pruned.tflite -o small.tflite --values int8          # int8-stored weights, float32 compute
  sparsetorch encode pruned.tflite -o sparse.tflite --no-repair --json -

exit codes: 0 written, and eligible on every asked target if its weights are sparse; 1 bad input or failure; 2 usage;
            3 written, but its zeros gain nothing on some asked target (says why); 4 numbers differ, nothing written
"""

import argparse
from pathlib import Path

from sparsetorch.report.terminal import is_quiet, stages
from sparsetorch.tflite.storage import VALUES, Storage
from sparsetorch.xnnpack import DEFAULT_TARGETS
from sparsetorch.xnnpack.targets import find_targets


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    parser.add_argument("file", metavar="IN.tflite", type=Path, help="the model to encode")
    parser.add_argument("-o", "--output", metavar="OUT.tflite", type=Path, required=True)
    parser.add_argument("--values", choices=VALUES, default="float32", help="how weights are stored (default: float32)")
    parser.add_argument(
        "--dense-values", choices=VALUES, help="the same for weights that stay dense (default: as --values)"
    )
    parser.add_argument(
        "--clusters", metavar="K", type=int, help="most distinct non-zero values of a weight: compresses better"
    )
    parser.add_argument(
        "--split",
        action="store_true",
        help="split large fully-connected layers, for one-byte indices: smaller, and a few more operators",
    )
    parser.add_argument("--no-repair", action="store_true", help="leave the graph as it is")
    parser.add_argument(
        "--target", metavar="T", action="append", help="what the verdict is about (default: arm64 and wasm)"
    )


def run(args: argparse.Namespace) -> int:
    """Encode; see the module's description."""
    targets = tuple(target.name for target in find_targets(args.target or DEFAULT_TARGETS))
    from sparsetorch.exporter.encode_file import encode
    from sparsetorch.report.export_table import tell

    with stages(is_quiet(args)) as progress:
        report = encode(
            args.file,
            args.output,
            storage=Storage(args.values, args.dense_values, args.clusters, args.split),
            repairs=not args.no_repair,
            targets=targets,
            progress=progress,
        )
    return tell(report, args, "encode", "the file as it came")
