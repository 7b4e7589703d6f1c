"""What every pass needs to read and edit a graph: who makes a value, who reads it, what a constant holds."""

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from sparsetorch.tflite.model import Graph, Operator, Tensor

OP = schema.BuiltinOperator
ACTIVATION = schema.ActivationFunctionType
FLOAT32 = schema.TensorType.FLOAT32

_KINDS = {np.dtype(np.float32): FLOAT32, np.dtype(np.int32): schema.TensorType.INT32}
Array = npt.NDArray[Any]


class Links:
    """Producers and readers of one graph, as it is now; ask for new ones after an edit."""

    def __init__(self, graph: Graph) -> None:
        self._producer = {output: operator for operator in graph.operators for output in operator.outputs}
        self._readers: dict[Tensor, list[Operator]] = {}
        for operator in graph.operators:
            for value in dict.fromkeys(value for value in operator.inputs if value is not None):
                self._readers.setdefault(value, []).append(operator)
        self._outputs = set(graph.outputs)

    def producer(self, tensor: Tensor | None) -> Operator | None:
        """The operator that computes a value; None for inputs and constants."""
        return None if tensor is None else self._producer.get(tensor)

    def readers(self, tensor: Tensor) -> list[Operator]:
        """The operators that read a value, in execution order."""
        return self._readers.get(tensor, [])

    def is_output(self, tensor: Tensor) -> bool:
        """Whether the graph returns it."""
        return tensor in self._outputs

    def only_reader(self, tensor: Tensor) -> Operator | None:
        """The one operator that reads a value which nothing else does and the graph does not return."""
        readers = self.readers(tensor)
        return readers[0] if len(readers) == 1 and not self.is_output(tensor) else None


def constant(tensor: Tensor | None) -> Array | None:
    """The values of a dense numeric constant; None for anything else."""
    if tensor is None or tensor.data is None or tensor.sparsity is not None or tensor.dtype is None:
        return None
    return tensor.array()


def float_constant(tensor: Tensor | None) -> Array | None:
    """The values of a dense float32 constant; None for anything else."""
    return constant(tensor) if tensor is not None and tensor.type == FLOAT32 else None


def new_constant(graph: Graph, name: str, values: Array) -> Tensor:
    """A new constant of `graph`, float32 or int32. Editing a constant means replacing it: others may share it."""
    array = np.ascontiguousarray(values)
    made = Tensor(name, tuple(array.shape), _KINDS[array.dtype], data=np.frombuffer(array.tobytes(), np.uint8))
    graph.tensors.append(made)
    return made


def new_value(graph: Graph, name: str, shape: Iterable[int]) -> Tensor:
    """A new computed float32 value of `graph`."""
    made = Tensor(name, tuple(shape))
    graph.tensors.append(made)
    return made


def scaled(graph: Graph, tensor: Tensor | None, factor: Array | float) -> Tensor | None:
    """A float32 constant times `factor`, under its old name; None stays None."""
    values = float_constant(tensor)
    if tensor is None or values is None:
        return tensor
    return new_constant(graph, tensor.name, (values.astype(np.float64) * factor).astype(np.float32))


def activation_of(operator: Operator) -> int:
    """The activation fused into an operator."""
    return int(getattr(operator.options, "fusedActivationFunction", ACTIVATION.NONE) or 0)


def is_linear(operator: Operator) -> bool:
    """Whether it is a float32 convolution or fully-connected layer with constant weights."""
    if operator.code not in (OP.CONV_2D, OP.DEPTHWISE_CONV_2D, OP.FULLY_CONNECTED) or len(operator.inputs) < 2:
        return False
    bias = operator.inputs[2] if len(operator.inputs) > 2 else None
    return float_constant(operator.inputs[1]) is not None and (bias is None or float_constant(bias) is not None)


def options(name: str, **fields: Any) -> tuple[Any, int]:
    """The schema's options object and its type number: `options("Conv2D", strideH=2)`."""
    made = getattr(schema, f"{name}OptionsT")()
    for key, value in fields.items():
        setattr(made, key, value)
    return made, getattr(schema.BuiltinOptions, f"{name}Options")


def change_options(operator: Operator, **fields: Any) -> None:
    """Set fields of an operator's options; the object itself may belong to copies of the model too, so it is replaced."""
    operator.options = copy.copy(operator.options)
    for key, value in fields.items():
        setattr(operator.options, key, value)


def per_channel(tensor: Tensor | None, like: Tensor) -> Array | None:
    """A float32 constant that is one number, or one per last dimension of `like`, as (channels,); None for anything else."""
    values = float_constant(tensor)
    if values is None or not like.shape:
        return None
    channels = like.shape[-1]
    if values.size == 1:
        return np.full(channels, values.reshape(-1)[0], np.float64)
    if values.size == channels and values.shape[-1] == channels:
        return values.reshape(-1).astype(np.float64)
    return None


def bypass(graph: Graph, operator: Operator, source: Tensor) -> bool:
    """Take a one-output operator out: its readers read `source`, a value of the same shape.

    Where the graph returns its result, the operator that makes `source` makes that instead: its name is a contract. False, and
    nothing done, where that cannot be.
    """
    result = operator.outputs[0]
    if any(output is result for output in graph.outputs):
        maker = Links(graph).producer(source)
        if maker is None or any(output is source for output in graph.outputs):
            return False
        maker.outputs = [result if value is source else value for value in maker.outputs]
        graph.replace_input(source, result)
        graph.operators.remove(operator)
        return True
    graph.replace_input(result, source)
    graph.operators.remove(operator)
    return True


def remove_unused(graph: Graph) -> int:
    """Remove operators whose results nobody reads, and tensors nobody mentions; how many operators went."""
    removed = 0
    while True:
        links = Links(graph)
        dead = [
            o for o in graph.operators if not any(links.readers(value) or links.is_output(value) for value in o.outputs)
        ]
        if not dead:
            break
        gone = set(map(id, dead))
        graph.operators = [operator for operator in graph.operators if id(operator) not in gone]
        removed += len(dead)
    mentioned = {id(value) for value in [*graph.inputs, *graph.outputs]}
    for operator in graph.operators:
        mentioned |= {id(value) for value in [*operator.inputs, *operator.outputs, *operator.intermediates]}
    graph.tensors = [tensor for tensor in graph.tensors if id(tensor) in mentioned]
    return removed


def make_names_unique(graph: Graph) -> None:
    """Give tensors that bear another's name one of their own; tools that look tensors up by name need that."""
    seen: dict[str, int] = {}
    for tensor in graph.tensors:
        count = seen.get(tensor.name, 0)
        seen[tensor.name] = count + 1
        if count:
            name = f"{tensor.name};{count}"
            while name in seen:
                count += 1
                name = f"{tensor.name};{count}"
            seen[name] = 1
            tensor.name = name
