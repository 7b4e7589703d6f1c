"""`TrainingCheck`: says when a sparse training starts whether it will end on XNNPACK's sparse path."""

import importlib.util
import sys

import pytorch_lightning as pl
from torch import nn

from sparsetorch.callbacks.input_shape import input_shape_of
from sparsetorch.callbacks.sparse_training import SparseTraining

_NEEDED = ("onnx", "onnxscript", "ai_edge_litert")


class TrainingCheck(pl.Callback):
    """Runs `sparsetorch.check` once when `fit` starts, and prints one line where the plan would not reach the sparse path.

    It never stops a training, and touches neither weights nor random numbers. It says why in a few words where it cannot look:
    packages of the exporter are missing, the input's shape is not known, or the network cannot be traced.
    """

    told: str | None = None
    """The line; None before the start of `fit`, and on an eligible plan."""

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Check, on one process."""
        training = next((one for one in trainer.callbacks if isinstance(one, SparseTraining)), None)  # type: ignore[attr-defined]
        if training is None or not trainer.is_global_zero:
            return
        self.told = _line(trainer, pl_module, training)
        if self.told is not None:
            print(f"check: {self.told}", file=sys.stderr, flush=True)


def _line(trainer: pl.Trainer, module: pl.LightningModule, training: SparseTraining) -> str | None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        return f"skipped ({missing[0]} is not installed)"
    shape = input_shape_of(trainer, module)
    if shape is None or len(shape) != 3:
        return "skipped (the shape of one image is not known)"
    return check_line(module, shape, training)


def check_line(module: nn.Module, shape: tuple[int, ...], training: SparseTraining) -> str | None:
    """What is wrong with a plan, in one line; None where nothing is. Never raises an Exception.

    Args:
        module: about to be trained; not changed.
        shape: (C, H, W).
        training: the plan.
    """
    from sparsetorch.preflight.check import check
    from sparsetorch.preflight.pruning import PruningPlan

    try:
        report = check(module, shape, plan=PruningPlan.of(training))
    except Exception as error:  # a training that works must not end here, whatever cannot be traced
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        return f"skipped ({first})"
    if report.eligible:
        return None
    return f"the trained network will not take XNNPACK's sparse path: {report.hint} (`sparsetorch check` says more)"
