"""Give the weights of a converted graph the names that its author knows: the module paths of the PyTorch network.

Converters lose names. They fold batch norm into the convolution before it, which scales every filter and keeps its
direction, so a weight is recognised by its filters: each equals one of the PyTorch layer's up to a factor.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from torch import nn

from sparsetorch.exporter.torch_to_onnx import output_names
from sparsetorch.sparsify.policy import is_depthwise, weight_layers
from sparsetorch.tflite import Graph, Model, Signature, Tensor
from sparsetorch.tflite.unique_names import make_names_unique
from sparsetorch.xnnpack.layers import module_of

Array = npt.NDArray[np.float32]

_ALIGNED = 0.9999
"""Cosine above which two filters are the same up to a factor (float32 rounding is below 1e-6)."""


def name_model(model: Model, module: nn.Module, input_shape: tuple[int, ...]) -> None:
    """Name weights, values, inputs and outputs of a converted model, in place.

    Args:
        model: converted from `module`, not repaired yet.
        module: plain, without masks.
        input_shape: (N, C, H, W).
    """
    graph = model.graphs[0]
    name_weights(graph, module)
    name_values(graph)
    # Callers name inputs and outputs by the signature: a dictionary's keys stay its outputs' names.
    inputs = [("input" if len(graph.inputs) == 1 else f"input_{i}", value) for i, value in enumerate(graph.inputs)]
    outputs = list(zip(output_names(module, input_shape), graph.outputs, strict=False))
    model.signatures = [Signature("serving_default", graph, list(inputs), list(outputs))]


def name_weights(graph: Graph, module: nn.Module) -> dict[str, str]:
    """Rename the weight tensors of convolutions and fully-connected layers to `<module path>.weight`.

    Args:
        graph: converted from `module`.
        module: plain, without masks.

    Returns:
        The old name of every renamed tensor by its new one. A weight without a match keeps its name.
    """
    known = {
        f"{path}.weight": _in_tflite_layout(layer)
        for path, layer in weight_layers(module).items()
        if not isinstance(layer, nn.Conv1d | nn.Conv3d)
    }
    renamed = {}
    for tensor in _weights(graph):
        filters = _filters(tensor)
        for name, candidate in known.items():
            if candidate.shape == filters.shape and _aligned(candidate, filters):
                renamed[name] = tensor.name
                tensor.name = name
                del known[name]
                break
    return renamed


def name_values(graph: Graph) -> None:
    """Name computed values by the layer they come from: `features.3.conv.0/RELU6`; those behind no layer keep their names.

    Converters name them after functions of their own, which nobody can find in a network. Inputs and outputs keep their names.
    """
    kept = {id(tensor) for tensor in [*graph.inputs, *graph.outputs]}
    behind: dict[int, str] = {}
    for operator in graph.operators:
        weight = operator.inputs[1] if len(operator.inputs) > 1 else None
        module = None if weight is None else module_of(weight.name)
        if module is None:
            module = next((behind[id(value)] for value in operator.inputs if id(value) in behind), None)
        for value in operator.outputs:
            if module is not None:
                behind[id(value)] = module
                if id(value) not in kept:
                    value.name = f"{module}/{operator.name}"
    make_names_unique(graph)


def _weights(graph: Graph) -> Iterator[Tensor]:
    """The constant float32 weights in the order of the operators, each once."""
    seen: set[int] = set()
    for operator in graph.operators:
        if operator.name not in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
            continue
        weight = operator.inputs[1]
        if weight is not None and weight.data is not None and weight.type_name == "float32" and id(weight) not in seen:
            seen.add(id(weight))
            yield weight


def _filters(weight: Tensor) -> Array:
    """One row per output channel."""
    values = weight.array()
    if values.ndim == 4 and values.shape[0] == 1:  # depthwise [1, kh, kw, O], or a convolution with a single filter
        return (
            np.moveaxis(values, -1, 0).reshape(values.shape[-1], -1) if values.shape[-1] > 1 else values.reshape(1, -1)
        )
    return values.reshape(values.shape[0], -1)


def _in_tflite_layout(layer: nn.Module) -> Array:
    """The layer's filters, one row per output channel, entries in the order (kh, kw, I) of TFLite."""
    weight: Array = layer.get_parameter("weight").detach().float().cpu().numpy()
    if weight.ndim == 4:
        weight = weight.reshape(len(weight), -1) if is_depthwise(layer) else weight.transpose(0, 2, 3, 1)
    return weight.reshape(len(weight), -1)


def _aligned(ours: Array, theirs: Array) -> bool:
    """Whether every filter of `theirs` that is not zero is a multiple of the same filter of `ours`."""
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    live = np.linalg.norm(theirs, axis=1) > 0
    cosines = np.abs(np.einsum("ij,ij->i", ours, theirs))
    return bool(np.all(cosines[live] >= _ALIGNED * norms[live]) and np.all(norms[live] > 0))
