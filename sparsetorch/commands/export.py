"""Convert a checkpoint, or any PyTorch network, to a .tflite whose sparse 1x1 convolutions are stored compressed.

The file is loaded, run and compared with PyTorch before it gets its name. A network that a sparse-path runtime would
compute wrongly is written dense, with the reasons.

examples:
  sparsetorch export --checkpoint runs/digits/rigl_90/checkpoints/last.ckpt -o digits.tflite --dense-twin
  sparsetorch export --model torchvision.models:mobilenet_v2 --weights w.pt --input-shape 3,224,224 -o mobilenet.tflite
  sparsetorch export --checkpoint last.ckpt -o small.tflite --values int8            # int8-stored weights, float32 compute
  sparsetorch export --checkpoint last.ckpt -o phone.tflite --preset export/arm64-float16.yaml
  sparsetorch export --model net.py:make --model-args '{"width": 0.5}' --input-shape 3,96,96 --sparsity 0.85 -o try.tflite

exit codes: 0 written, and eligible on every asked target if its weights are sparse; 1 bad input or failure; 2 usage;
            3 written, but its zeros gain nothing on some asked target (says why); 4 numbers differ, nothing written
"""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from sparsetorch.errors import BadInputError, UsageError
from sparsetorch.exporter.preset import Preset, load_preset
from sparsetorch.report.terminal import is_quiet, stages
from sparsetorch.tflite.storage import VALUES, Storage
from sparsetorch.xnnpack import TARGETS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    source = parser.add_argument_group("what to convert (one of the two)")
    source.add_argument("--checkpoint", metavar="C", type=Path, help="checkpoint of a `sparsetorch fit` run")
    source.add_argument("--config", metavar="X.yaml", type=Path, help="its recipe, for a checkpoint from elsewhere")
    source.add_argument(
        "--model", metavar="M", help="dotted.path:callable or file.py:callable that returns an nn.Module"
    )
    source.add_argument("--model-args", metavar="JSON", help="keyword arguments of the callable")
    source.add_argument("--weights", metavar="W.pt", type=Path, help="state dict to load into it, masked or plain")
    source.add_argument(
        "--input-shape", metavar="C,H,W", type=input_shape, help="of one input; a checkpoint remembers its own"
    )
    source.add_argument(
        "--sparsity", metavar="S", type=float, help="prune the 1x1 convolutions in one shot, to try things"
    )
    output = parser.add_argument_group("what to write")
    output.add_argument("-o", "--output", metavar="OUT.tflite", type=Path, required=True)
    output.add_argument(
        "--preset", metavar="export/P.yaml", type=Path, help="what to write for one target; flags override it"
    )
    output.add_argument(
        "--dense-twin", action="store_true", default=None, help="also write OUT.dense.tflite: same weights, not encoded"
    )
    output.add_argument(
        "--values",
        choices=VALUES,
        help="how weights are stored; they are computed with as float32 in any case (default: float32)",
    )
    output.add_argument(
        "--dense-values", choices=VALUES, help="the same for weights that stay dense (default: as --values)"
    )
    output.add_argument(
        "--clusters", metavar="K", type=int, help="most distinct non-zero values of a weight: compresses better"
    )
    output.add_argument(
        "--split",
        action="store_true",
        default=None,
        help="split large fully-connected layers, for one-byte indices: smaller, and a few more operators",
    )
    output.add_argument(
        "--target",
        metavar="T",
        action="append",
        choices=list(TARGETS),
        help=f"what the verdict is about; may be repeated; of {', '.join(TARGETS)} (default: arm64 and wasm)",
    )


def input_shape(text: str) -> tuple[int, ...]:
    """`3,224,224` or `3x224x224` as numbers."""
    try:
        return tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"found {text!r}, needed C,H,W such as 3,224,224") from None


def _chosen(args: argparse.Namespace) -> Preset:
    """The preset, with the flags that were given in its place."""
    preset = Preset() if args.preset is None else load_preset(args.preset)
    given = {key: getattr(args, key) for key in ("values", "dense_values", "clusters", "split", "dense_twin")}
    given["targets"] = tuple(args.target) if args.target else None
    return dataclasses.replace(preset, **{key: value for key, value in given.items() if value is not None})


def _quantize(args: argparse.Namespace, mode: str, quiet: bool) -> dict[str, Any]:
    """The quantized dense file beside the one exported."""
    from sparsetorch.commands import quantize

    parser = argparse.ArgumentParser()
    quantize.add_arguments(parser)  # the defaults of that command
    beside = args.output.with_name(f"{args.output.stem}.int8{args.output.suffix}")
    chosen = parser.parse_args([str(args.output), "-o", str(beside), "--mode", mode])
    chosen.checkpoint, chosen.config = args.checkpoint, args.config
    return quantize.quantize_file(chosen, quiet)


def run(args: argparse.Namespace) -> int:
    """Export; see the module's description."""
    if (args.checkpoint is None) == (args.model is None):
        raise UsageError("needed either --checkpoint C or --model M")
    if args.checkpoint is not None and (args.weights is not None or args.model_args is not None):
        raise UsageError("--weights and --model-args go with --model, not with --checkpoint")
    preset = _chosen(args)
    if preset.quantize == "full-int8" and args.checkpoint is None:
        raise UsageError("this preset calibrates on the data of a checkpoint's recipe; give --checkpoint C")
    # Everything that can be wrong with the words is said before torch is loaded, which takes seconds.
    from sparsetorch.exporter.pipeline import export
    from sparsetorch.exporter.source import load_checkpoint, load_factory

    shape = args.input_shape
    if args.checkpoint is not None:
        module, recorded = load_checkpoint(args.checkpoint, args.config)
        shape = shape or recorded
        name = args.checkpoint
    else:
        module = load_factory(args.model, args.model_args, args.weights)
        name = args.model
    if shape is None:
        raise BadInputError(f"{name}: the shape of its input is not known; give it with --input-shape C,H,W")
    from sparsetorch.report.export_table import tell

    quiet = is_quiet(args)
    with stages(quiet) as progress:
        report = export(
            module,
            args.output,
            shape,
            dense_twin=preset.dense_twin,
            sparsity=args.sparsity,
            storage=Storage(preset.values, preset.dense_values, preset.clusters, preset.split),
            encode=preset.encode,
            targets=preset.targets,
            progress=progress,
        )
    if preset.quantize is not None:
        report = dataclasses.replace(report, quantized=_quantize(args, preset.quantize, quiet))
    return tell(report, args, "export", "PyTorch")
