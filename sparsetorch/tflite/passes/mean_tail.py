"""MEAN with keep_dims and 1x1 convolutions behind it, up to the outputs, becomes MEAN and FULLY_CONNECTED.

Such a tail takes MEAN's role as the exit of a sparse cluster away: runtimes fail to load the file, or compute garbage, because
the mean's shape is in channels-first order there (XNNPACK 75db3c0 src/subgraph.c, src/subgraph/static-reduce.c; seen in
ai-edge-litert 2.1 and 2.3 and in LiteRT.js). A mean that drops H and W is a clean exit.

A tail is everything behind the mean, as long as no value in it has more than one pixel: a squeeze-excite gate, which is
multiplied with a map again, is none. In it, [N,1,1,C] becomes [N,C]: a 1x1 convolution without stride or groups is a
fully-connected layer with the same numbers, unary operators and sums stay, RESHAPE between the two shapes goes, and before
anything else, and before an output, a RESHAPE gives the four dimensions back.

Exact over the reals; a fully-connected kernel may add in another order than a convolution (relative 1e-7).
"""

from dataclasses import dataclass, field

from sparsetorch.tflite.model import Graph, Operator, Tensor
from sparsetorch.tflite.passes.contract import Outcome, Pass
from sparsetorch.tflite.passes.elementwise import BINARY, UNARY
from sparsetorch.tflite.passes.layers import is_padded
from sparsetorch.tflite.passes.links import (
    OP,
    Links,
    become,
    changed_options,
    fused_activation,
    index_of,
    insert_before,
    is_float,
    new_options,
    remove,
    reshape,
    value,
)
from sparsetorch.tflite.passes.numbers import floats, integers, per_channel, set_constant

_EXITS = frozenset({OP.MEAN, OP.SUM, OP.DEPTH_TO_SPACE})


@dataclass
class Tail:
    """What lies behind a mean."""

    mean: Operator
    inside: list[Operator] = field(default_factory=list)
    """Operators that are rewritten, in execution order."""
    leaving: list[tuple[Operator, Tensor]] = field(default_factory=list)
    """Operators outside and which value of the tail they read: that needs its four dimensions back."""
    values: set[Tensor] = field(default_factory=set)


def run(graph: Graph, outcome: Outcome) -> None:
    """Rewrite every tail that holds a convolution, or an elementwise operator right behind a mean with four dimensions."""
    links = Links(graph)
    for operator in list(graph.operators):
        if not _is_global_mean(operator):
            continue
        tail = _follow(links, operator)
        if tail is None or not _is_wrong(links, tail):
            continue
        outcome.did(
            operator, f"{operator.name} and the 1x1 layers behind it: MEAN without keep_dims and FULLY_CONNECTED"
        )
        _rewrite(links, tail)
        links = Links(graph)


def _is_global_mean(operator: Operator) -> bool:
    if operator.code != OP.MEAN or not is_float(operator.inputs[0], operator.outputs[0]):
        return False
    axes, source = integers(operator.inputs[1]), operator.inputs[0]
    assert source is not None
    return axes is not None and len(source.shape) == 4 and sorted(axis % 4 for axis in axes) == [1, 2]


def flat_shape(tensor: Tensor) -> tuple[int, int] | None:
    """[N, C] of a value with one pixel per image: [N, C], [N, 1, 1, C] or [N, C, 1, 1]; None for any other."""
    shape = tensor.shape
    if len(shape) == 2:
        return shape[0], shape[1]
    if len(shape) != 4 or (shape[1:3] != (1, 1) and shape[2:] != (1, 1)):
        return None
    return shape[0], shape[1] * shape[3]


def _channels_last(tensor: Tensor | None) -> bool:
    return tensor is not None and (len(tensor.shape) == 2 or (len(tensor.shape) == 4 and tensor.shape[1:3] == (1, 1)))


def _follow(links: Links, mean: Operator) -> Tail | None:
    """The tail behind a mean, or None where its values meet a map again."""
    tail = Tail(mean, values={mean.outputs[0]})
    for operator in links.graph.operators[index_of(links.graph, mean) + 1 :]:
        read = [tensor for tensor in operator.inputs if tensor in tail.values]
        if not read:
            continue
        if any(_has_extent(tensor) for tensor in (*operator.inputs, *operator.outputs)):
            return None
        if _fits_inside(operator, tail.values):
            tail.inside.append(operator)
            tail.values.add(operator.outputs[0])
        else:
            tail.leaving += [(operator, tensor) for tensor in dict.fromkeys(read) if tensor is not None]
    return tail if _stays_behind(links, tail) else None


def _has_extent(tensor: Tensor | None) -> bool:
    return tensor is not None and tensor.data is None and len(tensor.shape) == 4 and flat_shape(tensor) is None


def _stays_behind(links: Links, tail: Tail) -> bool:
    """Whether nothing that leaves the tail comes back into a map: then the mean is the end of the network's body."""
    reached: set[Tensor] = set()
    waiting = [operator for operator, _ in tail.leaving]
    while waiting:
        operator = waiting.pop()
        for tensor in operator.outputs:
            if tensor in reached:
                continue
            reached.add(tensor)
            if _has_extent(tensor) or operator.code in _EXITS:
                return False
            waiting += links.readers(tensor)
    return True


def _fits_inside(operator: Operator, values: set[Tensor]) -> bool:
    """Whether an operator means the same for [N, C] as for the shape it works on."""
    result, source = operator.outputs[0], operator.inputs[0]
    if len(operator.outputs) != 1 or not is_float(result) or source is None or flat_shape(result) is None:
        return False
    if operator.code in UNARY:
        return source.shape == result.shape
    if operator.code == OP.RESHAPE:
        return flat_shape(source) == flat_shape(result)
    if operator.code == OP.SOFTMAX:
        return _channels_last(result)
    if operator.code in (OP.CONV_2D, OP.FULLY_CONNECTED):
        return source in values and _is_dense(operator, source)
    if operator.code in BINARY and len(operator.inputs) == 2 and _channels_last(result):
        return all(
            tensor is not None
            and (
                per_channel(tensor, result) is not None
                if tensor not in values
                else _channels_last(tensor) and len(tensor.shape) == len(result.shape)
            )
            for tensor in operator.inputs
        )
    return False


def _is_dense(operator: Operator, source: Tensor) -> bool:
    weight = floats(operator.inputs[1])
    if weight is None or not _channels_last(source) or not _channels_last(operator.outputs[0]):
        return False
    if operator.code == OP.FULLY_CONNECTED:
        return weight.ndim == 2 and weight.shape[1] == source.shape[-1]
    return weight.shape[1:] == (1, 1, source.shape[3]) and not is_padded(operator)


def _is_wrong(links: Links, tail: Tail) -> bool:
    """Not so where nothing gets better: a mean whose readers only count elements, or one that has dropped H and W already."""
    kept = tail.mean.outputs[0]
    if any(operator.code == OP.CONV_2D for operator in tail.inside):
        return True
    if not tail.mean.options.keepDims:
        return False
    return links.is_output(kept) or not all(_counts(reader) for reader in links.readers(kept))


def _counts(operator: Operator) -> bool:
    """Whether an operator takes its input as a list of numbers, whatever its dimensions."""
    return operator.code == OP.RESHAPE or (operator.code == OP.FULLY_CONNECTED and not operator.options.keepNumDims)


def _rewrite(links: Links, tail: Tail) -> None:
    graph = links.graph
    flat: dict[Tensor, Tensor] = {}
    for operator in [tail.mean, *tail.inside]:
        result = operator.outputs[0]
        shape = flat_shape(result)
        assert shape is not None
        if operator.code == OP.RESHAPE and operator.inputs[0] is not None and result.shape != shape:
            flat[result] = flat[operator.inputs[0]]
            remove(graph, operator)
            continue
        flat[result] = result if result.shape == shape else value(graph, result, shape, f"{result.name}/flat")
        operator.outputs = [flat[result]]
        if operator is tail.mean:
            operator.options = changed_options(operator, keepDims=False)
        else:
            _flatten(graph, operator, flat)
    for operator, tensor in tail.leaving:
        _leave(graph, operator, tensor, flat[tensor])
    for output in graph.outputs:
        if flat.get(output, output) is not output:
            _restore(graph, output, flat[output])


def _flatten(graph: Graph, operator: Operator, flat: dict[Tensor, Tensor]) -> None:
    """Let an operator work on two dimensions."""
    if operator.code == OP.CONV_2D:
        weight, old = floats(operator.inputs[1]), operator.inputs[1]
        assert weight is not None
        assert old is not None
        set_constant(graph, operator, 1, weight.reshape(weight.shape[0], -1), old.name)
        options = new_options("FullyConnected", fusedActivationFunction=fused_activation(operator))
        become(operator, OP.FULLY_CONNECTED, operator.inputs, options)
    elif operator.code == OP.FULLY_CONNECTED:
        operator.options = changed_options(operator, keepNumDims=False)
    for index, tensor in enumerate(operator.inputs if operator.code in BINARY else ()):
        values = floats(tensor)
        if values is not None and values.ndim > 2 and tensor is not None:
            set_constant(graph, operator, index, values.reshape(1, -1), tensor.name)
    operator.inputs = [tensor if tensor is None else flat.get(tensor, tensor) for tensor in operator.inputs]


def _leave(graph: Graph, operator: Operator, tensor: Tensor, flat: Tensor) -> None:
    """Connect an operator outside with a value of the tail."""
    replacement = flat
    if flat is not tensor and not _counts(operator):
        made = reshape(graph, flat, tensor.shape, f"{tensor.name}/4d")
        insert_before(graph, operator, made)
        replacement = made.outputs[0]
    operator.inputs = [replacement if read is tensor else read for read in operator.inputs]


def _restore(graph: Graph, output: Tensor, flat: Tensor) -> None:
    """A graph output keeps its four dimensions."""
    made = reshape(graph, flat, output.shape, output.name)
    graph.tensors.remove(made.outputs[0])
    made.outputs = [output]
    graph.operators.append(made)


PASS = Pass("mean_tail", run)
