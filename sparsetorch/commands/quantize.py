"""Quantize a float .tflite after training: integer computation (full-int8), or int8 weights alone (dynamic-int8).

Integer computation has no sparse path: this is for the dense twin, as what a sparse file is compared with. Calibration images
come from the data of the checkpoint's recipe (its training split) or from a NumPy file; with a checkpoint the accuracy before
and after is measured on its test split.

examples:
  sparsetorch quantize digits.dense.tflite -o digits.int8.tflite --checkpoint runs/digits/rigl_90/checkpoints/last.ckpt
  sparsetorch quantize model.tflite -o model.int8.tflite --images calibration.npy --percentile 99.9
  sparsetorch quantize model.tflite -o model.dynamic.tflite --mode dynamic-int8

exit codes: 0 written; 1 bad input or failure; 2 usage
"""

import argparse
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sparsetorch.errors import BadInputError, UsageError
from sparsetorch.files import write_json
from sparsetorch.report.terminal import is_quiet, make_console, stages

_MODES = ("full-int8", "dynamic-int8")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    parser.add_argument(
        "file", metavar="IN.tflite", type=Path, help="a float model, such as the dense twin of an export"
    )
    parser.add_argument("-o", "--output", metavar="OUT.tflite", type=Path, required=True)
    parser.add_argument("--mode", choices=_MODES, default="full-int8", help="default: full-int8")
    parser.add_argument("--checkpoint", metavar="C", type=Path, help="whose recipe names the data")
    parser.add_argument("--config", metavar="X.yaml", type=Path, help="the recipe, for a checkpoint from elsewhere")
    parser.add_argument(
        "--images", metavar="X.npy", type=Path, help="calibration images (N, C, H, W), as the network gets them"
    )
    parser.add_argument("--count", metavar="N", type=int, default=100, help="most calibration images (default: 100)")
    parser.add_argument(
        "--percentile",
        metavar="P",
        type=float,
        default=100.0,
        help="of activations kept in range (default: 100, smallest to largest)",
    )


def run(args: argparse.Namespace) -> int:
    """Quantize; see the module's description."""
    if args.mode == "full-int8" and (args.checkpoint is None) == (args.images is None):
        raise UsageError("full-int8 needs calibration images: either --checkpoint C or --images X.npy")
    if args.count < 1:
        raise UsageError(f"--count: found {args.count}, needed at least 1")

    result = quantize_file(args, is_quiet(args))
    if args.json is not None:
        write_json(args.json, result)
    return 0


def quantize_file(args: argparse.Namespace, quiet: bool) -> dict[str, Any]:
    """Quantize as the arguments say, print what came out unless `quiet`, and return it for JSON."""
    from sparsetorch.exporter.quantize import quantize

    data = None
    if args.checkpoint is not None:
        from sparsetorch.exporter.source import load_data

        data = load_data(args.checkpoint, args.config)
    with stages(quiet) as progress:
        images = list(_images(args, data)) if args.mode == "full-int8" else []
        made = quantize(args.file, args.output, args.mode, images=images, percentile=args.percentile, progress=progress)
        accuracy: dict[str, float] = {}
        if data is not None:
            from sparsetorch.exporter.accuracy import top1

            progress("accuracy before and after")
            for name, path in (("before", args.file), ("after", args.output)):
                accuracy[name], accuracy["images"] = top1(path, data.test_dataloader())
    result = asdict(made) | {
        "source": str(args.file),
        "source_bytes": args.file.stat().st_size,
        "accuracy": accuracy or None,
    }
    if not quiet:
        _print(result)
    return result


def _images(args: argparse.Namespace, data: Any) -> Iterable[Any]:
    """Calibration images in the layout of the file, (1, H, W, C)."""
    import numpy as np

    if args.images is not None:
        try:
            array = np.load(args.images)
        except (OSError, ValueError) as error:
            raise BadInputError(f"{args.images}: is no NumPy file of numbers ({str(error).splitlines()[0]})") from error
        if array.ndim != 4:
            raise BadInputError(f"{args.images}: found the shape {array.shape}, needed (N, C, H, W)")
        batches: Iterable[Any] = [array]
    else:
        import torch

        torch.manual_seed(0)  # the order of the training data: the same file every time
        batches = (batch[0] for batch in data.train_dataloader())
    count = 0
    for batch in batches:
        for image in np.asarray(batch):
            if count == args.count:
                return
            yield np.ascontiguousarray(image.transpose(1, 2, 0)[None]).astype(np.float32)
            count += 1


def _print(result: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = make_console()
    table = Table("file", "bytes", "top-1", title="sparsetorch quantize", title_justify="left")
    accuracy = result["accuracy"] or {}

    def share(name: str) -> str:
        return f"{accuracy[name]:.2%}" if name in accuracy else ""

    table.add_row(escape(result["source"]), f"{result['source_bytes']:,}", share("before"))
    table.add_row(f"{escape(result['path'])} ({result['mode']})", f"{result['bytes']:,}", share("after"))
    console.print(table)
    if accuracy:
        console.print(f"Accuracy over {accuracy['images']} images.")
    if result["ranges"]:
        widest = sorted(result["ranges"].items(), key=lambda item: item[1]["low"] - item[1]["high"])[:5]
        console.print(
            "Widest activations: " + "; ".join(f"{escape(n)} {r['low']:.3g} to {r['high']:.3g}" for n, r in widest)
        )
    for name in result["left_float"]:
        console.print(f"  stays float32: {escape(name)} (its bias does not fit 32 bits at these ranges)")
    if result["mode"] == "full-int8":
        console.print("Integer computation: XNNPACK has no sparse path for this file.")
