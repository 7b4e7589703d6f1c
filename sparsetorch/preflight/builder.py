"""A TFLite graph under construction, and the one rule of layout: what is 4-D is stored channels last.

ONNX is channels first, TFLite channels last. A 4-D value of shape (N, C, H, W) becomes a tensor (N, H, W, C); a value of any
other rank keeps its order. `Builder` holds both sides: the tensor of each ONNX value, and the shape that ONNX knows it by.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from sparsetorch.tflite.model import Graph, Operator, Tensor
from sparsetorch.tflite.passes.links import OP, TYPE, new_options

Array = npt.NDArray[Any]
Options = tuple[Any, int]
NO_OPTIONS: Options = (None, 0)
_LAST, _FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


class UnknownOperatorError(Exception):
    """An ONNX operator, or a use of one, that has no lowering."""


def channels_last(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape a value is stored in."""
    return tuple(shape[axis] for axis in _LAST) if len(shape) == 4 else tuple(shape)


def stored_axis(axis: int, rank: int) -> int:
    """Where an axis of an ONNX value is found in its tensor."""
    axis %= rank
    return _LAST.index(axis) if rank == 4 else axis


def _tensor(name: str, shape: tuple[int, ...], kind: int) -> Tensor:
    """With the empty quantization that TensorFlow's converter writes: it counts in the file's size."""
    fields = schema.TensorT(hasRank=True)
    return Tensor(name, shape, kind, quantization=schema.QuantizationParametersT(), fields=fields)


class Builder:
    """The graph so far. Values are asked for by their ONNX names."""

    def __init__(self) -> None:
        self.graph = Graph([], [], [], [], "main")
        self.constants: dict[str, Array] = {}
        """Channels first, as ONNX has them."""
        self.shapes: dict[str, tuple[int, ...]] = {}
        """Of every computed value, as ONNX has it."""
        self._values: dict[str, Tensor] = {}
        self._shared: dict[tuple[tuple[int, ...], int, bytes], Tensor] = {}
        self._count = 0

    def shape(self, name: str) -> tuple[int, ...]:
        """The ONNX shape of any value."""
        return self.constants[name].shape if name in self.constants else self.shapes[name]

    def value(self, name: str) -> Tensor:
        """The tensor of a value, computed or constant."""
        if name in self._values:
            return self._values[name]
        if name not in self.constants:
            raise UnknownOperatorError(f"value {name} is computed by nothing")
        array = self.constants[name]
        return self.constant(array.transpose(_LAST) if array.ndim == 4 else array, name)

    def define(self, name: str, tensor: Tensor) -> None:
        """Say which tensor holds an ONNX value.

        Raises:
            UnknownOperatorError: its shape is not the one that ONNX says; the lowering does not fit this use.
        """
        if tensor.shape != channels_last(self.shapes[name]):
            raise UnknownOperatorError(
                f"{name}: lowered to {list(tensor.shape)}, needed {list(channels_last(self.shapes[name]))}"
            )
        self._values[name] = tensor

    def numbers(self, name: str) -> Array:
        """The values of a constant operand.

        Raises:
            UnknownOperatorError: it is computed.
        """
        if name not in self.constants:
            raise UnknownOperatorError(f"its operand {name} is computed, needed a constant")
        return self.constants[name]

    def input(self, name: str, shape: Sequence[int]) -> None:
        """An input of the network, float32."""
        self.shapes[name] = tuple(shape)
        tensor = self.tensor(channels_last(shape), name=name)
        self.graph.inputs.append(tensor)
        self._values[name] = tensor

    def tensor(self, shape: Sequence[int], kind: int = TYPE.FLOAT32, name: str | None = None) -> Tensor:
        """A new computed tensor."""
        self._count += 1
        made = _tensor(name or f"value_{self._count}", tuple(int(size) for size in shape), kind)
        self.graph.tensors.append(made)
        return made

    def constant(self, values: Any, name: str | None = None) -> Tensor:
        """A constant, of 32 bits; equal ones without a name are one, as converters have it."""
        array = np.asarray(values)
        kinds = {
            "f": (np.float32, TYPE.FLOAT32),
            "i": (np.int32, TYPE.INT32),
            "u": (np.int32, TYPE.INT32),
            "b": (np.bool_, TYPE.BOOL),
        }
        if array.dtype.kind not in kinds:
            raise UnknownOperatorError(f"a constant of type {array.dtype}")
        stored, kind = kinds[array.dtype.kind]
        array = np.ascontiguousarray(array.astype(stored, copy=False)).reshape(array.shape)
        data = np.frombuffer(array.tobytes(), np.uint8)
        key = (array.shape, kind, data.tobytes()) if name is None else None
        if key is not None and key in self._shared:
            return self._shared[key]
        self._count += 1
        made = _tensor(name or f"constant_{self._count}", array.shape, kind)
        made.data = data
        self.graph.tensors.append(made)
        if key is not None:
            self._shared[key] = made
        return made

    def add(
        self,
        code: int,
        inputs: Sequence[Tensor | None],
        shape: Sequence[int],
        options: Options = NO_OPTIONS,
        kind: int = TYPE.FLOAT32,
        version: int = 1,
    ) -> Tensor:
        """Append an operator with one output of a shape in TFLite's order, and return that."""
        result = self.tensor(shape, kind)
        self.graph.operators.append(Operator(code, list(inputs), [result], *options, version))
        return result

    def reshape(self, source: Tensor, shape: Sequence[int]) -> Tensor:
        """RESHAPE, or nothing where the shape is that already."""
        sizes = [int(size) for size in shape]
        if tuple(sizes) == source.shape:
            return source
        wanted = self.constant(np.array(sizes, np.int32))
        return self.add(OP.RESHAPE, [source, wanted], sizes, new_options("Reshape", newShape=sizes), source.type)

    def transpose(self, source: Tensor, order: Sequence[int]) -> Tensor:
        """TRANSPOSE, or nothing where the order is that already."""
        if list(order) == list(range(len(order))):
            return source
        shape = [source.shape[axis] for axis in order]
        axes = self.constant(np.array(order, np.int32))
        return self.add(OP.TRANSPOSE, [source, axes], shape, new_options("Transpose"), source.type)

    def pad(self, source: Tensor, top: int, left: int, bottom: int, right: int, fill: float = 0.0) -> Tensor:
        """PAD of H and W, with `fill` PADV2; nothing where nothing is added."""
        if not any((top, left, bottom, right)):
            return source
        n, h, w, c = source.shape
        amounts = self.constant(np.array([[0, 0], [top, bottom], [left, right], [0, 0]], np.int32))
        shape = (n, h + top + bottom, w + left + right, c)
        if fill == 0.0:
            return self.add(OP.PAD, [source, amounts], shape, new_options("Pad"))
        return self.add(OP.PADV2, [source, amounts, self.constant(np.float32(fill))], shape, new_options("PadV2"))

    def as_first(self, source: Tensor) -> Tensor:
        """A 4-D tensor in ONNX's order; others are."""
        return self.transpose(source, _FIRST) if len(source.shape) == 4 else source

    def as_last(self, source: Tensor) -> Tensor:
        """A tensor in ONNX's order, stored as values are."""
        return self.transpose(source, _LAST) if len(source.shape) == 4 else source

    def opaque(self, name: str, inputs: Sequence[str], outputs: Sequence[str], kinds: Sequence[int]) -> None:
        """An operator that nothing is known of: no runtime takes it, and it ends a sparse cluster."""
        results = [self.tensor(channels_last(self.shapes[one]), kind) for one, kind in zip(outputs, kinds, strict=True)]
        computed: list[Tensor | None] = [self.value(one) for one in inputs if one]
        self.graph.operators.append(Operator(schema.BuiltinOperator.CUSTOM, computed, results, custom_code=name))
        for one, tensor in zip(outputs, results, strict=True):
            self._values[one] = tensor
