"""From a .tflite file to linked objects. The constants stay views of the mapped file: nothing large is copied.

Whatever the bytes are, the answer is a `Model` or one `BadInputError`: the file may be empty, text, truncated or damaged.
"""

import math
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from sparsetorch.errors import BadInputError
from sparsetorch.tflite.bounds import check_bounds
from sparsetorch.tflite.model import Bytes, Graph, Model, Operator, Signature, Tensor

_IDENTIFIER = b"TFL3"
_AGAIN = "Copy or convert the model again."
_MOST_ELEMENTS = 2**31 - 1
"""In a tensor; TFLite counts them in 32 bits."""


def load(path: str | Path) -> Model:
    """Read a .tflite file.

    Args:
        path: the file. It is mapped, not read: do not overwrite it in place while the model is in use (`save` does not).

    Raises:
        BadInputError: missing, a directory, unreadable, or not a sound TFLite model.
    """
    path = Path(path)
    if path.is_dir():
        raise BadInputError(f"{path} is a directory; a .tflite file is needed.")
    try:
        with path.open("rb") as file:
            if path.stat().st_size == 0:  # cannot be mapped
                return from_bytes(b"", source=str(path))
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (FileNotFoundError, NotADirectoryError):
        raise BadInputError(f"{path} does not exist; give the path of a .tflite file.") from None
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror or error}.") from None
    return from_bytes(view, source=str(path))


def from_bytes(data: bytes | bytearray | memoryview, source: str = "the model") -> Model:
    """Read a model from memory.

    Args:
        data: the file's bytes; the model's constants are views of them.
        source: what to call the bytes in an error.

    Raises:
        BadInputError: not a sound TFLite model.
    """
    view = memoryview(data).cast("B")
    if not view:
        raise BadInputError(f"{source} is empty; a TFLite model is needed. {_AGAIN}")
    if bytes(view[4:8]) != _IDENTIFIER:
        start = bytes(view[:8])
        raise BadInputError(
            f"{source} is not a TFLite model: it begins with {start!r}, and bytes 4 to 8 must be {_IDENTIFIER!r}. "
            "Give a .tflite file."
        )
    try:
        check_bounds(view)
        raw = schema.ModelT.InitFromObj(schema.Model.GetRootAs(view, 0))
        return _Reader(raw, view, source).model()
    except BadInputError:
        raise
    except Exception as error:  # the generated accessors answer damage with whatever exception comes first
        raise BadInputError(
            f"{source} is a damaged TFLite model ({len(view)} bytes): {str(error) or type(error).__name__}. "
            f"It may be truncated. {_AGAIN}"
        ) from error


class _Reader:
    def __init__(self, raw: Any, view: memoryview, source: str) -> None:
        self.raw, self.view, self.source = raw, view, source
        self.buffers = [self._buffer(buffer) for buffer in raw.buffers or []]

    def bad(self, what: str) -> NoReturn:
        raise BadInputError(f"{self.source} is a damaged TFLite model: {what}. {_AGAIN}")

    def pick(self, values: list[Any], index: int, what: str) -> Any:
        if not 0 <= index < len(values):
            self.bad(f"{what} number {index} is asked for, and there are {len(values)}")
        return values[index]

    def _buffer(self, raw: Any) -> Bytes | None:
        if raw.offset > 1:  # models over 2 GB keep their bytes behind the flatbuffer
            if raw.offset + raw.size > len(self.view):
                self.bad(f"a buffer claims bytes {raw.offset} to {raw.offset + raw.size} of {len(self.view)}")
            return np.frombuffer(self.view, np.uint8, raw.size, raw.offset)
        if raw.data is None or isinstance(raw.data, int):
            return None
        return np.asarray(raw.data, np.uint8)

    def model(self) -> Model:
        raw = self.raw
        if not raw.subgraphs:
            self.bad("it has no graph")
        graphs = [self._graph(graph) for graph in raw.subgraphs]
        signatures = [self._signature(signature, graphs) for signature in raw.signatureDefs or []]
        metadata = [
            (_text(entry.name), self.pick(self.buffers, entry.buffer, "buffer")) for entry in raw.metadata or []
        ]
        old = [self.pick(self.buffers, int(index), "buffer") for index in _indices(raw.metadataBuffer)]
        description = _text(raw.description)
        raw.subgraphs = raw.buffers = raw.operatorCodes = raw.signatureDefs = raw.metadata = raw.metadataBuffer = None
        return Model(graphs, signatures, metadata, old, description, raw.version, raw)

    def _graph(self, raw: Any) -> Graph:
        tensors = [self._tensor(tensor) for tensor in raw.tensors or []]

        def named(index: Any) -> Tensor:
            tensor: Tensor = self.pick(tensors, int(index), "tensor")
            return tensor

        operators = [self._operator(operator, named) for operator in raw.operators or []]
        inputs, outputs = ([named(index) for index in _indices(value)] for value in (raw.inputs, raw.outputs))
        name = _text(raw.name)
        raw.tensors = raw.operators = raw.inputs = raw.outputs = None
        return Graph(tensors, inputs, outputs, operators, name, raw)

    def _tensor(self, raw: Any) -> Tensor:
        name = _text(raw.name) or ""
        shape = tuple(int(size) for size in _indices(raw.shape))
        if any(size < 0 for size in shape):
            more = ", ..." if len(shape) > 8 else ""
            self.bad(f"tensor {name!r} has the shape [{', '.join(map(str, shape[:8]))}{more}]")
        if math.prod(shape) > _MOST_ELEMENTS:
            self.bad(f"tensor {name!r} claims more than {_MOST_ELEMENTS:,} elements")
        data = self.pick(self.buffers, raw.buffer, "buffer")
        tensor = Tensor(name, shape, raw.type, data, raw.quantization, raw.sparsity, raw)
        if data is not None and data.size == 0 and tensor.dense_bytes != 0:
            tensor.data = data = None  # some writers give computed tensors an empty buffer of their own
        size = tensor.dense_bytes
        if data is not None and raw.sparsity is None and size is not None and data.size != size:
            self.bad(
                f"tensor {name!r} holds {data.size} bytes, and {tensor.type_name} of shape {list(shape)} takes {size}"
            )
        raw.shape = raw.name = raw.quantization = raw.sparsity = None
        return tensor

    def _operator(self, raw: Any, named: Callable[[Any], Tensor]) -> Operator:
        code = self.pick(self.raw.operatorCodes or [], raw.opcodeIndex, "operator code")
        # Old files have the deprecated 8-bit field alone; new ones fill both, up to the 8-bit field's last value.
        builtin = max(code.builtinCode, code.deprecatedBuiltinCode)
        operator = Operator(
            builtin,
            [None if index == -1 else named(index) for index in _indices(raw.inputs)],
            [named(index) for index in _indices(raw.outputs)],
            raw.builtinOptions,
            raw.builtinOptionsType,
            code.version,
            _text(code.customCode),
            [named(index) for index in _indices(raw.intermediates)],
            raw,
        )
        if raw.largeCustomOptionsOffset > 1:
            start, size = raw.largeCustomOptionsOffset, raw.largeCustomOptionsSize
            if start + size > len(self.view):
                self.bad(f"operator {operator.name} claims options at bytes {start} to {start + size}")
            raw.customOptions = np.frombuffer(self.view, np.uint8, size, start)
            raw.largeCustomOptionsOffset = raw.largeCustomOptionsSize = 0
        raw.inputs = raw.outputs = raw.intermediates = raw.builtinOptions = None
        return operator

    def _signature(self, raw: Any, graphs: list[Graph]) -> Signature:
        graph: Graph = self.pick(graphs, raw.subgraphIndex, "graph")

        def arguments(entries: Any) -> list[tuple[str | None, Tensor]]:
            return [
                (_text(entry.name), self.pick(graph.tensors, entry.tensorIndex, "tensor")) for entry in entries or []
            ]

        return Signature(_text(raw.signatureKey), graph, arguments(raw.inputs), arguments(raw.outputs))


def _indices(values: Any) -> Any:
    # An absent vector unpacks to None, an empty one to an array, and to the number 0 in some schema versions.
    return [] if values is None or isinstance(values, int) else values


def _text(value: bytes | str | None) -> str | None:
    # Names are meant to be UTF-8; anything else must survive a round trip.
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
