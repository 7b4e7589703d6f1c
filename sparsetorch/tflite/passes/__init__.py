"""Repairs of a TFLite graph: each file rewrites one thing into an equal one that XNNPACK's sparse path takes.

`repair(model)` runs them all, to a fixed point. Needs neither torch nor TensorFlow.
"""

from sparsetorch.tflite.model import Model
from sparsetorch.tflite.passes.activations import Clamps, FuseActivation, HardSwish
from sparsetorch.tflite.passes.constants import FoldConstants
from sparsetorch.tflite.passes.depth_to_space import ChannelOrder, DepthToSpace
from sparsetorch.tflite.passes.hard_sigmoid import HardSigmoid
from sparsetorch.tflite.passes.layout import Layout
from sparsetorch.tflite.passes.padding import ExplicitPadding, MergePadding
from sparsetorch.tflite.passes.pipeline import Note, Pass, PassError, run_passes
from sparsetorch.tflite.passes.pooling import Depthwise, GlobalPool
from sparsetorch.tflite.passes.tails import Tails

ALL: tuple[Pass, ...] = (
    DepthToSpace(),  # before Layout, which would take its TRANSPOSE apart
    ChannelOrder(),
    Layout(),
    MergePadding(),
    ExplicitPadding(),
    Depthwise(),
    GlobalPool(),
    Clamps(),
    HardSwish(),  # before FoldConstants, which would fold its 1/6 away
    FoldConstants(),
    HardSigmoid(),
    FuseActivation(),
    Tails(),
)


def repair(model: Model) -> tuple[Note, ...]:
    """Run all passes on `model`, in place; see `run_passes`."""
    return run_passes(model, ALL)


__all__ = ["ALL", "Note", "Pass", "PassError", "repair", "run_passes"]
