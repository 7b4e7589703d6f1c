"""Say before training whether the trained network will take XNNPACK's sparse path, and how large its file will be.

The network is traced to ONNX and lowered to TFLite in seconds, without a converter; its layers get zeros where the plan says;
then the same repairs, encoding and rules run as in an export. Which layers, how much of each and in which shape comes from the
recipe's `sparsity:` section, else it is every 1x1 convolution alike. Each reason names the module, what was found, what is
required, and a fix; for each cluster it says which sparsity over which layers the two-thirds rule needs.

examples:
  sparsetorch check --config recipes/digits/rigl_90.yaml
  sparsetorch check --config recipe.yaml --sparsity 0.7                 # the recipe's layers, another sparsity
  sparsetorch check --model torchvision.models:mobilenet_v3_small --input-shape 3,224,224 --values int8
  sparsetorch check --model net.py:make --model-args '{"width": 0.5}' --input-shape 3,96,96 --json - --quiet

exit codes: 0 the trained network would be eligible on every asked target; 1 bad input or failure; 2 usage; 3 not eligible
"""

import argparse
from pathlib import Path

from sparsetorch.commands.export import input_shape
from sparsetorch.errors import BadInputError, UsageError
from sparsetorch.files import write_json
from sparsetorch.report.terminal import is_quiet, stages
from sparsetorch.tflite.storage import VALUES
from sparsetorch.xnnpack import DEFAULT_TARGETS, TARGETS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    source = parser.add_argument_group("what is going to be trained (one of the two)")
    source.add_argument("--config", metavar="X.yaml", type=Path, help="its recipe")
    source.add_argument(
        "--model", metavar="M", help="dotted.path:callable or file.py:callable that returns an nn.Module"
    )
    source.add_argument("--model-args", metavar="JSON", help="keyword arguments of the callable")
    source.add_argument(
        "--input-shape", metavar="C,H,W", type=input_shape, help="of one input; a recipe whose data is here knows it"
    )
    plan = parser.add_argument_group("what it will end in")
    plan.add_argument(
        "--sparsity",
        metavar="S",
        type=float,
        help="at the end, over the layers that are pruned (default: the recipe's, else 0.85)",
    )
    plan.add_argument(
        "--values", choices=VALUES, default="float32", help="how weights will be stored (default: float32)"
    )
    plan.add_argument(
        "--target",
        metavar="T",
        action="append",
        choices=list(TARGETS),
        help=f"where it is to run; may be repeated; of {', '.join(TARGETS)} (default: {' and '.join(DEFAULT_TARGETS)})",
    )


def run(args: argparse.Namespace) -> int:
    """Check; see the module's description for what is returned.

    Raises:
        BadInputError: what is given cannot be used.
        UsageError: both or neither of --config and --model.
    """
    if (args.config is None) == (args.model is None):
        raise UsageError("needed either --config X.yaml or --model M")
    if args.config is not None and args.model_args is not None:
        raise UsageError("--model-args goes with --model, not with --config")
    # Everything that can be wrong with the words is said before torch is loaded, which takes seconds.
    from sparsetorch.exporter.source import load_factory, load_recipe
    from sparsetorch.preflight.check import check
    from sparsetorch.preflight.pruning import PruningPlan
    from sparsetorch.report.check_table import print_check

    plan, shape = PruningPlan(), args.input_shape
    if args.config is not None:
        module, training, recorded = load_recipe(args.config)
        plan = plan if training is None else PruningPlan.of(training)
        shape = shape or recorded
    else:
        module = load_factory(args.model, args.model_args)
    name = args.model or str(args.config)
    if shape is None:
        raise BadInputError(f"{name}: the shape of its input is not known; give it with --input-shape C,H,W")
    with stages(is_quiet(args)) as progress:
        progress("network")
        report = check(
            module,
            shape,
            sparsity=args.sparsity,
            plan=plan,
            values=args.values,
            targets=args.target or DEFAULT_TARGETS,
            progress=progress,
        )
    if args.json:
        write_json(args.json, report.to_dict())
    if not is_quiet(args):
        print_check(report, name)
    return 0 if report.eligible else 3
