"""Padding in the form that XNNPACK fuses: one PAD of zeros right before a VALID layer.

- PAD after PAD is one PAD with the sums: both put zeros around.
- PADV2 with the constant 0 is PAD.
- PAD before a SAME layer at stride 1 whose own padding is symmetric: the layer becomes VALID and the PAD takes its share.
- A SAME layer at stride 2 pads by a share that depends on the size, more at the end than at the start where the total is odd.
  Where it comes out equal on both sides it is written as PAD + VALID; XNNPACK takes explicit padding of 1 (3x3) or 2 (5x5) on
  all sides. Where it does not, no rewriting makes it fit: PyTorch's `padding=1` would have; Keras' SAME does not.

All exact: the same numbers are multiplied and summed.
"""

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from sparsetorch.tflite.model import Graph, Operator, Tensor
from sparsetorch.tflite.passes.editing import (
    OP,
    Array,
    Links,
    change_options,
    constant,
    float_constant,
    new_constant,
    new_value,
    options,
)
from sparsetorch.tflite.passes.pipeline import Note, Pass

SAME, VALID = schema.Padding.SAME, schema.Padding.VALID
_LAYERS = frozenset({OP.CONV_2D, OP.DEPTHWISE_CONV_2D})


class MergePadding(Pass):
    """PAD after PAD becomes one; PADV2 with 0 becomes PAD."""

    name = "merge-padding"

    def requires(self, graph: Graph) -> bool:
        """Any padding."""
        return any(operator.code in (OP.PAD, OP.PADV2) for operator in graph.operators)

    def run(self, graph: Graph) -> list[Note]:
        """Rewrite every one."""
        notes = []
        for pad in list(graph.operators):
            if pad.code == OP.PADV2 and len(pad.inputs) == 3:
                value = float_constant(pad.inputs[2])
                if value is not None and value.size == 1 and float(value.reshape(-1)[0]) == 0.0:
                    pad.code, pad.inputs = OP.PAD, pad.inputs[:2]
                    pad.options, pad.options_type = options("Pad")
                    notes.append(Note(self.name, pad.outputs[0].name, "PADV2 with 0 became PAD"))
            amounts = _amounts(pad)
            links = Links(graph)
            before = links.producer(pad.inputs[0]) if amounts is not None else None
            inner = None if before is None else _amounts(before)
            if amounts is None or before is None or inner is None or inner.shape != amounts.shape:
                continue
            total = (amounts + inner).astype(np.int32)
            pad.inputs = [before.inputs[0], new_constant(graph, f"{pad.outputs[0].name}/paddings", total)]
            notes.append(Note(self.name, pad.outputs[0].name, "PAD after PAD became one PAD"))
        return notes


class ExplicitPadding(Pass):
    """SAME at stride 2, equal on both sides, becomes PAD + VALID; and PAD before SAME at stride 1 one PAD before VALID."""

    name = "explicit-padding"

    def requires(self, graph: Graph) -> bool:
        """Any layer with SAME padding."""
        return any(operator.code in _LAYERS and operator.options.padding == SAME for operator in graph.operators)

    def run(self, graph: Graph) -> list[Note]:
        """Rewrite every one that can be, and say which strided ones cannot."""
        notes = []
        for layer in [o for o in graph.operators if o.code in _LAYERS and o.options.padding == SAME]:
            links, source, weight = Links(graph), layer.inputs[0], layer.inputs[1]
            if source is None or weight is None or len(source.shape) != 4:
                continue
            strided = layer.options.strideH > 1 or layer.options.strideW > 1
            before = links.producer(source)
            if not strided and (before is None or before.code != OP.PAD):
                continue  # XNNPACK makes explicit padding of SAME at stride 1 by itself
            sides = [_same(source.shape[1 + axis], weight.shape[1 + axis], *_steps(layer, axis)) for axis in (0, 1)]
            if any(start != end for start, end in sides):
                if strided:
                    notes.append(Note(self.name, layer.outputs[0].name, _why_not(sides), applied=False))
                continue
            if any(start for start, _ in sides):
                _pad_before(graph, layer, source, sides)
            change_options(layer, padding=VALID)
            notes.append(
                Note(self.name, layer.outputs[0].name, f"SAME padding of {layer.name} became PAD before VALID")
            )
        return notes


def _amounts(operator: Operator) -> Array | None:
    """(rank, 2) elements before and after, of a PAD with constant amounts."""
    if operator.code != OP.PAD or len(operator.inputs) != 2:
        return None
    found = constant(operator.inputs[1])
    return None if found is None or found.ndim != 2 else found


def _steps(layer: Operator, axis: int) -> tuple[int, int]:
    chosen = layer.options
    if axis == 0:
        return chosen.strideH, chosen.dilationHFactor
    return chosen.strideW, chosen.dilationWFactor


def _same(size: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """TensorFlow's SAME: as many outputs as ceil(size / stride), the odd pixel at the end."""
    reach = (kernel - 1) * dilation + 1
    total = max((-(-size // stride) - 1) * stride + reach - size, 0)
    return total // 2, total - total // 2


def _why_not(sides: list[tuple[int, int]]) -> str:
    start, end = next(side for side in sides if side[0] != side[1])
    return (
        f"SAME padding at stride 2 is {start} before and {end} after here, and XNNPACK's sparse path takes equal sides only; "
        "train with padding = kernel // 2 (PyTorch's symmetric padding)"
    )


def _pad_before(graph: Graph, layer: Operator, source: Tensor, sides: list[tuple[int, int]]) -> None:
    amounts = np.array([(0, 0), *sides, (0, 0)], np.int32)
    height, width = (source.shape[1 + axis] + sum(sides[axis]) for axis in (0, 1))
    name = f"{layer.outputs[0].name}/pad"
    padded = new_value(graph, name, (source.shape[0], height, width, source.shape[3]))
    paddings = new_constant(graph, f"{name}/paddings", amounts)
    pad = Operator(OP.PAD, [source, paddings], [padded], *options("Pad"))
    graph.operators.insert(graph.operators.index(layer), pad)
    layer.inputs[0] = padded
