"""Who writes and who reads each value of a graph, and the few edits that all passes are made of.

A `Links` is a snapshot: after an edit, take a new one. Every edit keeps the graph's output tensors, and those that signatures
name, the same objects: a pass may change what computes an output, never which tensor it is.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from sparsetorch.tflite.model import Graph, Operator, Tensor

OP, TYPE, ACTIVATION = schema.BuiltinOperator, schema.TensorType, schema.ActivationFunctionType


class Links:
    """A snapshot of a graph's wiring."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producers: dict[Tensor, Operator] = {}
        self._readers: dict[Tensor, list[Operator]] = {}
        self._outputs = set(graph.outputs)
        for operator in graph.operators:
            for tensor in operator.outputs:
                self.producers[tensor] = operator
            for read in dict.fromkeys(tensor for tensor in operator.inputs if tensor is not None):
                self._readers.setdefault(read, []).append(operator)

    def producer(self, tensor: Tensor | None) -> Operator | None:
        """The operator that computes `tensor`; None for constants and graph inputs."""
        return None if tensor is None else self.producers.get(tensor)

    def readers(self, tensor: Tensor) -> list[Operator]:
        """The operators that read `tensor`, each once, in execution order."""
        return self._readers.get(tensor, [])

    def is_output(self, tensor: Tensor) -> bool:
        """Whether the graph returns `tensor`."""
        return tensor in self._outputs

    def only_reader(self, tensor: Tensor) -> Operator | None:
        """The one operator that reads `tensor`, once, if the graph does not return it; else None."""
        readers = self.readers(tensor)
        if len(readers) != 1 or self.is_output(tensor) or readers[0].inputs.count(tensor) != 1:
            return None
        return readers[0]


def is_float(*tensors: Tensor | None) -> bool:
    """Whether all are float32 without quantization: what the passes know how to change."""
    return all(tensor is not None and tensor.type == TYPE.FLOAT32 for tensor in tensors)


def fused_activation(operator: Operator) -> int:
    """The activation that is part of an operator; NONE where it has no such option."""
    return int(getattr(operator.options, "fusedActivationFunction", 0) or 0)


def changed_options(operator: Operator, **fields: Any) -> Any:
    """A copy of an operator's options with some fields replaced: copies of a model share the original."""
    made = type(operator.options)()
    made.__dict__.update(operator.options.__dict__)
    for key, value in fields.items():
        setattr(made, key, value)
    return made


def new_options(name: str, **fields: Any) -> tuple[Any, int]:
    """The schema's options object and its type number: `new_options("Reshape", newShape=[1, 8])`."""
    made = getattr(schema, f"{name}OptionsT")()
    for key, value in fields.items():
        setattr(made, key, value)
    return made, getattr(schema.BuiltinOptions, f"{name}Options")


def become(operator: Operator, code: int, inputs: list[Tensor | None], options: tuple[Any, int] = (None, 0)) -> None:
    """Turn an operator into another one at the same place, which writes the same values."""
    operator.code, operator.inputs, operator.version, operator.custom_code = code, inputs, 1, None
    operator.options, operator.options_type = options
    operator.intermediates = []
    operator.fields = schema.OperatorT()


def constant(graph: Graph, values: npt.NDArray[Any], name: str) -> Tensor:
    """A new constant."""
    values = np.ascontiguousarray(values)
    kind = {"float32": TYPE.FLOAT32, "int32": TYPE.INT32}[values.dtype.name]
    made = Tensor(name, values.shape, kind, np.frombuffer(values.tobytes(), np.uint8))
    graph.tensors.append(made)
    return made


def value(graph: Graph, like: Tensor, shape: Iterable[int], name: str) -> Tensor:
    """A new computed tensor of the type of `like`."""
    made = Tensor(name, tuple(int(size) for size in shape), like.type)
    graph.tensors.append(made)
    return made


def insert_before(graph: Graph, operator: Operator, new: Operator) -> None:
    """Put `new` right before `operator`."""
    graph.operators.insert(index_of(graph, operator), new)


def insert_after(graph: Graph, operator: Operator, new: Operator) -> None:
    """Put `new` right behind `operator`."""
    graph.operators.insert(index_of(graph, operator) + 1, new)


def index_of(graph: Graph, operator: Operator) -> int:
    """The position of an operator."""
    return next(index for index, other in enumerate(graph.operators) if other is operator)


def remove(graph: Graph, operator: Operator) -> None:
    """Take an operator out of the list."""
    del graph.operators[index_of(graph, operator)]


def bypass(links: Links, operator: Operator) -> bool:
    """Take out an operator whose result equals its first input; False where the graph's own tensors forbid it.

    A result that the graph returns stays that tensor: whoever computes the input writes it instead, if nobody else reads the
    input.
    """
    graph, source, result = links.graph, operator.inputs[0], operator.outputs[0]
    assert source is not None
    if not links.is_output(result) and source.shape == result.shape:
        remove(graph, operator)
        graph.replace_input(result, source)
        return True
    return _write_through(links, operator)


def _write_through(links: Links, operator: Operator) -> bool:
    graph, source, result = links.graph, operator.inputs[0], operator.outputs[0]
    producer = links.producer(source)
    if producer is None or source is None or source.shape != result.shape or links.only_reader(source) is not operator:
        return False
    remove(graph, operator)
    producer.outputs = [result if tensor is source else tensor for tensor in producer.outputs]
    return True


def reshape(graph: Graph, source: Tensor, shape: Iterable[int], name: str) -> Operator:
    """A RESHAPE of `source`, not yet in the operators' list."""
    sizes = [int(size) for size in shape]
    wanted = constant(graph, np.array(sizes, np.int32), f"{name}/shape")
    return Operator(
        OP.RESHAPE, [source, wanted], [value(graph, source, sizes, name)], *new_options("Reshape", newShape=sizes)
    )
