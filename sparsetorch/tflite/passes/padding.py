"""PAD brought into the form that XNNPACK melts into a convolution: one PAD over H and W, read by that convolution alone.

XNNPACK 75db3c0 src/subgraph.c, xnn_subgraph_fusion: the padded value has one reader, a convolution without the SAME flag.
SAME is explicit padding at stride 1 only, and stays a flag otherwise, which no sparse cluster takes.

1. PADV2 with zero is PAD; 64-bit amounts become 32-bit ones, as the delegate asks. 2. PAD of nothing goes. 3. PAD of a PAD is
one PAD with the sums. 4. A PAD that several operators read is repeated for each convolution among them. 5. A strided layer
with SAME padding becomes PAD and VALID where SAME pads equally on both sides, as it does at odd sizes for kernel 3, or not at
all. At even sizes TensorFlow pads one pixel more below and on the right; XNNPACK's sparse kernels know symmetric padding
only, so that stays, with a note: the network has to be trained with symmetric padding.

All exact, bit for bit: the same zeros are added. (A PAD that the delegate does not melt costs a copy.)
"""

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from sparsetorch.tflite.model import Graph, Operator, Tensor
from sparsetorch.tflite.passes.contract import Outcome, Pass
from sparsetorch.tflite.passes.layers import own_padding
from sparsetorch.tflite.passes.links import (
    OP,
    TYPE,
    Links,
    become,
    bypass,
    changed_options,
    constant,
    insert_before,
    is_float,
    new_options,
    value,
)
from sparsetorch.tflite.passes.numbers import integers, scalar

_CONVOLUTIONS = frozenset({OP.CONV_2D, OP.DEPTHWISE_CONV_2D})
Amounts = np.ndarray[tuple[int, int], np.dtype[np.int64]]


def run(graph: Graph, outcome: Outcome) -> None:
    """Normalise every PAD, then every strided SAME."""
    for step in (_plain_pad, _merge, _one_reader_each, _explicit):
        links = Links(graph)
        for operator in list(graph.operators):
            if step(links, operator, outcome):
                links = Links(graph)


def amounts_of(operator: Operator) -> Amounts | None:
    """[[before, behind], ...] per dimension of a PAD with zeros of a float value; None otherwise."""
    if operator.code not in (OP.PAD, OP.PADV2) or not is_float(operator.inputs[0], operator.outputs[0]):
        return None
    numbers = integers(operator.inputs[1])
    if numbers is None or min(numbers, default=0) < 0:
        return None
    if operator.code == OP.PADV2 and scalar(operator.inputs[2]) != 0:
        return None
    return np.array(numbers, np.int64).reshape(-1, 2)


def _set_pad(graph: Graph, operator: Operator, source: Tensor, amounts: Amounts) -> None:
    name = f"{operator.outputs[0].name}/paddings"
    become(operator, OP.PAD, [source, constant(graph, amounts.astype(np.int32), name)], new_options("Pad"))


def _plain_pad(links: Links, operator: Operator, outcome: Outcome) -> bool:
    amounts = amounts_of(operator)
    if amounts is None:
        return False
    source, paddings = operator.inputs[:2]
    assert source is not None
    assert paddings is not None
    if not amounts.any():
        name = operator.name
        if bypass(links, operator):
            outcome.did(operator, f"{name} of nothing removed")
            return True
    elif operator.code == OP.PADV2 or paddings.type != TYPE.INT32:
        outcome.did(operator, "PAD with zeros and 32-bit amounts")
        _set_pad(links.graph, operator, source, amounts)
        return True
    return False


def _merge(links: Links, operator: Operator, outcome: Outcome) -> bool:
    before = links.producer(operator.inputs[0])
    outer, inner = amounts_of(operator), None if before is None else amounts_of(before)
    if before is None or outer is None or inner is None or before.inputs[0] is None:
        return False
    outcome.did(operator, f"merged with the {before.name} before it")
    _set_pad(links.graph, operator, before.inputs[0], inner + outer)
    return True


def _one_reader_each(links: Links, operator: Operator, outcome: Outcome) -> bool:
    amounts = amounts_of(operator)
    if amounts is None or amounts.shape != (4, 2) or amounts[[0, 3]].any() or operator.inputs[0] is None:
        return False
    result = operator.outputs[0]
    readers = links.readers(result)
    convolutions = [reader for reader in readers if reader.code in _CONVOLUTIONS and reader.inputs[0] is result]
    kept = 0 if links.is_output(result) or len(readers) > len(convolutions) else 1
    for number, reader in enumerate(convolutions[kept:]):
        copy = value(links.graph, result, result.shape, f"{result.name}/{number + 1}")
        repeated = Operator(operator.code, list(operator.inputs), [copy], operator.options, operator.options_type)
        insert_before(links.graph, reader, repeated)
        reader.inputs = [copy if tensor is result else tensor for tensor in reader.inputs]
        outcome.did(reader, f"{operator.name} repeated, so that this {reader.name} alone reads it")
    return len(convolutions) > kept


def _explicit(links: Links, operator: Operator, outcome: Outcome) -> bool:
    if operator.code not in _CONVOLUTIONS or operator.options.padding != schema.Padding.SAME:
        return False
    source, weight = operator.inputs[:2]
    if (operator.options.strideH, operator.options.strideW) == (1, 1) or weight is None or not is_float(source):
        return False
    assert source is not None
    (top, bottom), (left, right) = own_padding(operator)
    if (top, left) != (bottom, right):
        outcome.could_not(
            operator,
            f"SAME padding at stride {operator.options.strideH} and size {source.shape[1]}x{source.shape[2]} is top {top}, "
            f"right {right}, bottom {bottom}, left {left}, which no symmetric padding equals",
        )
        return False
    graph = links.graph
    if top or left:
        shape = (source.shape[0], source.shape[1] + 2 * top, source.shape[2] + 2 * left, source.shape[3])
        padded = value(graph, source, shape, f"{operator.outputs[0].name}/padded")
        amounts = constant(
            graph, np.array([[0, 0], [top] * 2, [left] * 2, [0, 0]], np.int32), f"{padded.name}/paddings"
        )
        insert_before(graph, operator, Operator(OP.PAD, [source, amounts], [padded], *new_options("Pad")))
        operator.inputs = [padded, *operator.inputs[1:]]
    operator.options = changed_options(operator, padding=schema.Padding.VALID)
    outcome.did(
        operator, f"SAME padding at stride {operator.options.strideH} made explicit: {top} and {left} on each side"
    )
    return True


PASS = Pass("padding", run)
