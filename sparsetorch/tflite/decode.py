"""A model with its weights as plain constants again: the dense twin, and the same in float32 throughout."""

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from sparsetorch.tflite.model import Graph, Model, Operator, Tensor
from sparsetorch.tflite.sparse import densify
from sparsetorch.tflite.storage import restore

_DENSIFY, _DEQUANTIZE = schema.BuiltinOperator.DENSIFY, schema.BuiltinOperator.DEQUANTIZE
_STORED = frozenset({schema.TensorType.FLOAT16, schema.TensorType.INT8})


def densify_model(model: Model) -> Model:
    """The dense twin: the same numbers, every sparse tensor dense, no DENSIFY. `model` stays as it is.

    Raises:
        BadInputError: damaged sparsity metadata.
    """
    twin = model.copy()
    for graph in twin.graphs:
        for operator in [operator for operator in graph.operators if operator.code == _DENSIFY]:
            weight = operator.inputs[0]
            if weight is None or weight.data is None:
                continue
            if weight.sparsity is not None:
                weight.data = np.frombuffer(np.ascontiguousarray(densify(weight)).tobytes(), np.uint8)
                weight.sparsity = None
            if weight.quantization is None:  # its scales stand at the result alone
                weight.quantization = operator.outputs[0].quantization
            _take_out(twin, graph, operator, weight)
    return twin


def decode(model: Model) -> Model:
    """The same numbers as float32 constants: no DENSIFY, and no DEQUANTIZE of a constant. `model` stays as it is.

    Raises:
        BadInputError: damaged sparsity metadata, or values that DEQUANTIZE does not know.
    """
    plain = densify_model(model)
    for graph in plain.graphs:
        for operator in [operator for operator in graph.operators if operator.code == _DEQUANTIZE]:
            weight = operator.inputs[0]
            if weight is None or weight.data is None or weight.type not in _STORED:
                continue
            values = restore(weight.array(), weight)
            made = Tensor(
                weight.name, weight.shape, data=np.frombuffer(np.ascontiguousarray(values).tobytes(), np.uint8)
            )
            graph.tensors.append(made)
            _take_out(plain, graph, operator, made)
            if not graph.consumers(weight) and not any(output is weight for output in graph.outputs):
                graph.tensors = [tensor for tensor in graph.tensors if tensor is not weight]
    return plain


def _take_out(model: Model, graph: Graph, operator: Operator, weight: Tensor) -> None:
    """Remove an operator that unpacks a constant; everything reads `weight` in place of its result."""
    output = operator.outputs[0]
    graph.replace_input(output, weight)
    graph.outputs = [weight if value is output else value for value in graph.outputs]
    graph.operators.remove(operator)
    graph.tensors = [tensor for tensor in graph.tensors if tensor is not output]
    for signature in model.signatures:
        signature.outputs = [(name, weight if value is output else value) for name, value in signature.outputs]
