"""Measure how accuracy falls with sparsity, one layer or channel group at a time, and recommend sparsities for a budget.

The network is not trained again. Results go to a folder: sensitivity.json, .png, .svg, and recommendation.yaml, a
`distribution:` section for a recipe. A run that was stopped goes on where it stopped.

  sparsetorch sensitivity --checkpoint runs/digits/dense/checkpoints/last.ckpt --budget 0.8
  sparsetorch sensitivity --checkpoint last.ckpt --by channels --levels 0.25,0.5,0.75 --batches 20 -o where_to_prune
"""

import argparse
import hashlib
import json
import logging
import warnings
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.progress import Progress

from sparsetorch.errors import BadInputError
from sparsetorch.files import write_atomically, write_json
from sparsetorch.report.terminal import is_quiet


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.add_argument("--checkpoint", required=True, type=Path, help="checkpoint of a trained network")
    parser.add_argument("--config", type=Path, help="its recipe; by default the one recorded in the checkpoint")
    parser.add_argument("--data-args", help='JSON object of data arguments to change, such as \'{"root": "DATA"}\'')
    parser.add_argument(
        "--by", choices=("layers", "channels"), default="layers", help="prune weights of layers, or channel groups"
    )
    parser.add_argument("--levels", default="0.3,0.5,0.7,0.8,0.9,0.95", help="sparsities, with commas")
    parser.add_argument("--budget", type=float, default=None, help="total sparsity to recommend sparsities for")
    parser.add_argument("--metric", default="val_acc", help="validation metric, higher is better (default: val_acc)")
    parser.add_argument("--batches", type=int, default=None, help="validation batches to use; by default all")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=None,
        help="folder; by default sensitivity_layers or sensitivity_channels of the run",
    )


def run(args: argparse.Namespace) -> int:
    """Measure, recommend, write.

    Raises:
        BadInputError: files, data or settings that do not fit.
    """
    from sparsetorch.analysis.sensitivity import check_levels, curves_of, measure, recommend
    from sparsetorch.report.sensitivity_report import print_sensitivity, write_sensitivity_plot

    try:
        asked_levels = [float(word) for word in args.levels.split(",") if word]
    except ValueError as error:
        raise BadInputError(
            f"--levels: found {args.levels!r}, needed numbers with commas, such as 0.3,0.6,0.9"
        ) from error
    levels = check_levels(asked_levels)
    units, sizes, evaluate = _load(args)
    folder = args.output or args.checkpoint.resolve().parent.parent / f"sensitivity_{args.by}"
    asked = {
        "checkpoint": hashlib.sha256(args.checkpoint.read_bytes()).hexdigest(),
        "by": args.by,
        "metric": args.metric,
        "batches": args.batches,
    }
    state = folder / "sensitivity.json"
    known = _known(state, asked)
    folder.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True)
    with Progress(console=console, disable=args.quiet or not console.is_terminal, transient=True) as bar:
        total = 1 + len(units) * len(levels)
        task = bar.add_task("sensitivity", total=total, completed=min(len(known), total))
        for key, accuracy in measure(units, levels, evaluate, known):
            known[key] = accuracy
            write_atomically(state, (json.dumps({"asked": asked, "accuracies": known}, indent=1) + "\n").encode())
            bar.update(task, advance=1, description=f"sensitivity: {key}")
    curves = curves_of(sizes, levels, known)
    recommended, loss = (None, None) if args.budget is None else recommend(curves, known["baseline"], args.budget)
    result: dict[str, Any] = {
        "asked": asked,
        "accuracies": known,
        "baseline": known["baseline"],
        "units": [
            {"name": c.name, "size": c.size, "sparsities": c.sparsities, "accuracies": c.accuracies} for c in curves
        ],
        "budget": args.budget,
        "recommended": recommended,
        "loss_each": loss,
    }
    write_atomically(state, (json.dumps(result, indent=1) + "\n").encode())
    write_sensitivity_plot(curves, known["baseline"], args.metric, folder)
    if recommended is not None:
        write_atomically(folder / "recommendation.yaml", _recipe_section(recommended, args).encode())
    if not is_quiet(args):
        print_sensitivity(
            curves,
            known["baseline"],
            args.metric,
            recommended,
            args.by.removesuffix("s").replace("channel", "channel group"),
        )
        print(f"{folder}: sensitivity.json, sensitivity.png" + ("" if recommended is None else ", recommendation.yaml"))
    if args.json is not None:
        write_json(args.json, result)
    return 0


def _recipe_section(recommended: dict[str, float], args: argparse.Namespace) -> str:
    section = {
        "distribution": {
            "class_path": "sparsetorch.PerLayer",
            "init_args": {"sparsities": {name: round(value, 4) for name, value in recommended.items()}},
        }
    }
    what = "weights" if args.by == "layers" else "channels (with the pattern sparsetorch.Channel)"
    return f"# For a schedule that ends at a sparsity of {args.budget:g} of the {what}.\n" + yaml.safe_dump(
        section, sort_keys=False
    )


def _known(state: Path, asked: dict[str, Any]) -> dict[str, float]:
    """Accuracies of an earlier run with the same questions."""
    if not state.is_file():
        return {}
    try:
        earlier = json.loads(state.read_text())
        known: dict[str, float] = earlier["accuracies"]
        same = earlier["asked"] == asked
    except (ValueError, KeyError, TypeError) as error:
        raise BadInputError(
            f"{state}: holds no results of a sensitivity analysis; remove it, or give another --output"
        ) from error
    if not same:
        raise BadInputError(
            f"{state}: holds results of another checkpoint or of other settings ({earlier['asked']}); remove it, or give another "
            "--output"
        )
    return known


def _load(args: argparse.Namespace) -> Any:
    """The units, their sizes, and how accuracy is measured."""
    import pytorch_lightning as pl

    from sparsetorch.analysis.sensitivity import group_unit, layer_unit
    from sparsetorch.exporter.source import load_checkpoint, load_data
    from sparsetorch.masking.masks import weight_parameter
    from sparsetorch.sparsify.policy import AllWeights
    from sparsetorch.structured.groups import channel_groups, prunable

    module, shape = load_checkpoint(args.checkpoint, args.config)
    if not isinstance(module, pl.LightningModule):
        raise BadInputError(
            f"{args.checkpoint}: found a {type(module).__name__}, needed a LightningModule, which can validate"
        )
    try:
        changed = json.loads(args.data_args or "{}")
    except json.JSONDecodeError as error:
        raise BadInputError(f"--data-args: found {args.data_args!r}, needed a JSON object ({error.msg})") from error
    data = load_data(args.checkpoint, args.config, changed)
    if args.by == "layers":
        layers = AllWeights().select(module)
        units = {name: layer_unit(layer) for name, layer in layers.items()}
        sizes = {name: weight_parameter(layer).numel() for name, layer in layers.items()}
    else:
        groups = prunable(channel_groups(module, shape))
        units = {group.name: group_unit(module, group) for group in groups}
        sizes = {group.name: group.channels for group in groups}
    logging.getLogger("pytorch_lightning.utilities.rank_zero").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    judge = pl.Trainer(
        limit_val_batches=1.0 if args.batches is None else args.batches,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        devices=1,
    )

    def evaluate() -> float:
        (metrics,) = judge.validate(module, datamodule=data, verbose=False)
        if args.metric not in metrics:
            raise BadInputError(f"--metric: found only {', '.join(sorted(metrics)) or 'none'}, not {args.metric!r}")
        return float(metrics[args.metric])

    return units, sizes, evaluate
