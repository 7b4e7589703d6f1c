"""Where a converted graph parts from PyTorch: the first layer whose output no module of the network has.

Converters fold batch-norm and activations into a layer, so what a convolution of the file gives is the output of some module
behind it: the batch-norm, or the activation. A layer is right if any module has its output.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from ai_edge_litert import schema_py_generated as schema
from torch import nn

from sparsetorch.exporter.interpreter import channels_last, computed_values, open_file, relative_difference, run
from sparsetorch.tflite import load
from sparsetorch.xnnpack.layers import module_of

Array = npt.NDArray[Any]

_ACTIVATION = schema.ActivationFunctionType
_FUSED = {
    _ACTIVATION.RELU: lambda value: np.maximum(value, 0),
    _ACTIVATION.RELU6: lambda value: np.clip(value, 0, 6),
    _ACTIVATION.RELU_N1_TO_1: lambda value: np.clip(value, -1, 1),
}
_CLOSE = 1e-3
"""Relative difference up to which two values are the same."""


def first_difference(module: nn.Module, path: Path, image: Array) -> str | None:
    """Name the first convolution or linear layer of a file that computes what no module of the network does.

    Args:
        module: plain, in evaluation mode.
        path: the file, its weights named `<module path>.weight`.
        image: NCHW.

    Returns:
        a sentence, or None where every named layer agrees (the difference comes behind the last of them).
    """
    known = _module_outputs(module, image)
    interpreter = open_file(path, keep_all=True)
    run(interpreter, [channels_last(image)])
    values = dict(computed_values(interpreter))
    for index, operator in enumerate(load(path).graphs[0].operators):
        weight = operator.inputs[1] if len(operator.inputs) > 1 else None
        where = None if weight is None else module_of(weight.name)
        value = values.get(operator.outputs[0].name)
        if where is None or value is None:
            continue
        fused = _FUSED.get(getattr(operator.options, "fusedActivationFunction", 0), lambda value: value)
        nearest = min((relative_difference(value, fused(other)) for other in known), default=float("inf"))
        if nearest > _CLOSE:
            return f"the first layer that differs is {where} (operator {index}, {operator.name}), by {nearest:.1e}"
    return None


def _module_outputs(module: nn.Module, image: Array) -> list[Array]:
    """What every module gives for one image, channels last."""
    found: list[Array] = []

    def keep(_: nn.Module, __: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor):
            value = output.detach().float().numpy()
            found.append(np.moveaxis(value, 1, -1) if value.ndim == 4 else value.copy())

    handles = [inner.register_forward_hook(keep) for inner in module.modules()]
    try:
        with torch.no_grad():
            module(torch.from_numpy(image))
    finally:
        for handle in handles:
            handle.remove()
    return found
