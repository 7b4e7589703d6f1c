"""ONNX to TFLite without a converter: seconds less, no TensorFlow, and close enough to say what the real file will be.

Each ONNX node becomes the operators that onnx2tf and TensorFlow's converter would leave; the repairs of
`sparsetorch.tflite.passes` do the rest, as they do for a real export. A node that has no lowering becomes one opaque operator of
its name: it ends the sparse cluster, as an operator unknown to XNNPACK would, and the verdict names it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sparsetorch.errors import BadInputError
from sparsetorch.preflight import elementwise, layers, pooling, shapes
from sparsetorch.preflight.builder import Array, Builder, UnknownOperatorError
from sparsetorch.preflight.node import Lowering, Node
from sparsetorch.tflite.model import Model
from sparsetorch.tflite.passes.links import TYPE

LOWERINGS: Mapping[str, Lowering] = {
    **layers.LOWERINGS, **elementwise.LOWERINGS, **pooling.LOWERINGS, **shapes.LOWERINGS,
}  # fmt: skip
# Of onnx.TensorProto: FLOAT, INT64, INT32, BOOL. The package belongs to the export extra and is imported where it is needed.
_KINDS = {1: TYPE.FLOAT32, 7: TYPE.INT32, 6: TYPE.INT32, 9: TYPE.BOOL}


def lower(path: Path) -> tuple[Model, tuple[str, ...]]:
    """A .tflite model that computes what an ONNX file does.

    Args:
        path: with fixed shapes; float32.

    Returns:
        the model, not repaired and not encoded, its values named after nothing, and what is opaque in it: each with its reason.

    Raises:
        BadInputError: a shape in it is not fixed.
    """
    import onnx
    from onnx import numpy_helper, shape_inference

    content = shape_inference.infer_shapes(onnx.load(str(path)))
    graph, to = content.graph, Builder()
    to.constants = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    kinds: dict[str, int] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        to.shapes[value.name] = _shape(value)
        kinds[value.name] = _KINDS.get(value.type.tensor_type.elem_type, TYPE.FLOAT32)
    for value in graph.input:
        if value.name not in to.constants:
            to.input(value.name, to.shapes[value.name])
    opaque = []
    for raw in graph.node:
        if all(name in to.constants for name in raw.input if name):
            to.constants.update(_evaluated(raw, to.constants))
            continue
        why = _lower_node(to, _node(raw), kinds)
        if why is not None:
            opaque.append(f"{raw.op_type}: {why}")
    to.graph.outputs = [to.value(one.name) for one in graph.output]
    return Model([to.graph]), tuple(dict.fromkeys(opaque))


def _lower_node(to: Builder, node: Node, kinds: Mapping[str, int]) -> str | None:
    """Why the node is opaque, or None."""
    before = len(to.graph.operators)
    try:
        if node.op not in LOWERINGS:
            raise UnknownOperatorError("not known here")
        LOWERINGS[node.op](to, node)
        return None
    except UnknownOperatorError as error:
        del to.graph.operators[before:]
        outputs = [name for name in node.outputs if name and name in to.shapes]
        to.opaque(node.op, node.inputs, outputs, [kinds[name] for name in outputs])
        return str(error)


def _shape(value: Any) -> tuple[int, ...]:
    sizes = value.type.tensor_type.shape.dim
    if any(not size.HasField("dim_value") for size in sizes):
        raise BadInputError(f"the shape of {value.name} is not fixed; TFLite files have fixed sizes")
    return tuple(size.dim_value for size in sizes)


def _node(raw: Any) -> Node:
    import onnx

    attributes = {one.name: onnx.helper.get_attribute_value(one) for one in raw.attribute}
    plain = {key: value.decode() if isinstance(value, bytes) else value for key, value in attributes.items()}
    return Node(raw.op_type, tuple(raw.input), tuple(raw.output), plain)


def _evaluated(raw: Any, constants: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a node whose operands are all constant."""
    from onnx.reference import ReferenceEvaluator

    feeds = {name: constants[name] for name in raw.input if name}
    results = ReferenceEvaluator(raw).run(None, feeds)
    return {name: np.asarray(value) for name, value in zip(raw.output, results, strict=True) if name}
