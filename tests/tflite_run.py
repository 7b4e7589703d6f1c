"""Run a TFLite model in the LiteRT interpreter of this machine, and compare two."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from ai_edge_litert.interpreter import Interpreter

from sparsetorch.tflite import Model, to_bytes

Array = npt.NDArray[np.float32]


def outputs(model: Model | bytes, *inputs: Array) -> list[Array]:
    """All outputs for the inputs given, in the order of the file."""
    interpreter = Interpreter(model_content=model if isinstance(model, bytes) else to_bytes(model), num_threads=1)
    interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def random_inputs(model: Model, seed: int = 0) -> list[Array]:
    """One normal array per input."""
    random = np.random.default_rng(seed)
    return [random.normal(size=tensor.shape).astype(np.float32) for tensor in model.graphs[0].inputs]


def difference(one: Model, two: Model, seeds: Sequence[int] = (0, 1)) -> float:
    """The largest |difference| of any output, relative to the largest |value| of that output; shapes must agree."""
    worst = 0.0
    for seed in seeds:
        inputs = random_inputs(one, seed)
        for ours, theirs in zip(outputs(one, *inputs), outputs(two, *inputs), strict=True):
            assert ours.shape == theirs.shape
            scale = float(np.abs(ours).max(initial=0.0)) or 1.0
            worst = max(worst, float(np.abs(ours.astype(np.float64) - theirs).max(initial=0.0)) / scale)
    return worst
