"""From linked objects to a .tflite file. Positions are counted here and nowhere else.

Every tensor that is listed or used is written; a constant's bytes are written once per bytes object, so tensors that
shared a buffer still do, unless one of them was given new bytes. Data starts at multiples of 16 bytes, as the schema
asks (`force_align: 16`) and the generated Python does not.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from sparsetorch.errors import BadInputError
from sparsetorch.files import write_atomically
from sparsetorch.tflite.model import Bytes, Graph, Model, Operator, Signature, Tensor

_ALIGNMENT = 16
_LARGEST = 2**31 - 1  # flatbuffers count in 32-bit signed offsets
_LARGEST_SHARED = 65536  # bytes; looking larger vectors up costs more than they could save


class _Buffer:
    """A schema Buffer whose bytes are placed without a copy and with the alignment that the schema asks for."""

    def __init__(self, data: Bytes | None) -> None:
        self.data = data

    def Pack(self, builder: Any) -> Any:  # noqa: N802 - called by the generated code
        vector = None
        if self.data is not None:
            builder.StartVector(1, self.data.size, _ALIGNMENT)
            builder.head = builder.Head() - self.data.size
            builder.Bytes[builder.head : builder.head + self.data.size] = self.data.data.cast("B")
            builder.vectorNumElems = self.data.size
            vector = builder.EndVector()
        schema.BufferStart(builder)
        if vector is not None:
            schema.BufferAddData(builder, vector)
        return schema.BufferEnd(builder)


class _Buffers:
    """Bytes objects in order of first use. Number 0 is the schema's empty buffer, which means `no data`."""

    def __init__(self) -> None:
        self.packed = [_Buffer(None)]
        self._numbers: dict[int, int] = {}

    def number(self, data: Bytes | None) -> int:
        if data is None:
            return 0
        if id(data) not in self._numbers:
            self._numbers[id(data)] = len(self.packed)
            self.packed.append(_Buffer(data))
        return self._numbers[id(data)]

    @property
    def size(self) -> int:
        return sum(_ALIGNMENT + buffer.data.size for buffer in self.packed if buffer.data is not None)


class _SharingBuilder(flatbuffers.Builder):
    """Writes equal vectors of numbers once: the zero points of int8 weights, eight bytes a channel, and shapes."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._written: dict[tuple[str, bytes], int] = {}

    def CreateNumpyVector(self, x: Any) -> int:  # noqa: N802  # overrides
        """A vector of numbers; small ones are looked up first."""
        if x.dtype.kind not in "if" or x.nbytes > _LARGEST_SHARED:
            return int(super().CreateNumpyVector(x))
        key = (x.dtype.str, x.tobytes())
        if key not in self._written:
            self._written[key] = int(super().CreateNumpyVector(x))
        return self._written[key]


def to_bytes(model: Model) -> bytes:
    """The file's bytes.

    Raises:
        BadInputError: the model would pass 2 GiB, the limit of a flatbuffer.
    """
    raw = schema.ModelT(model.version)
    raw.externalBufferGroups, raw.externalBuffers = model.fields.externalBufferGroups, model.fields.externalBuffers
    raw.description = _name(model.description)
    raw.operatorCodes, buffers = [], _Buffers()
    numbers: dict[tuple[int, str | None, int], int] = {}
    tables = [_listed(graph) for graph in model.graphs]
    raw.subgraphs = [
        _pack_graph(graph, tensors, buffers, raw.operatorCodes, numbers)
        for graph, tensors in zip(model.graphs, tables, strict=True)
    ]
    if model.signatures:
        raw.signatureDefs = [_pack_signature(signature, model, tables) for signature in model.signatures]
    if model.metadata:
        raw.metadata = [_metadata(name, buffers.number(data)) for name, data in model.metadata]
    if model.metadata_buffers:
        raw.metadataBuffer = [buffers.number(data) for data in model.metadata_buffers]
    raw.buffers = buffers.packed
    if buffers.size > _LARGEST:
        raise BadInputError(f"the model would take {buffers.size} bytes; a TFLite file holds at most {_LARGEST}.")
    builder = _SharingBuilder(buffers.size + 65536)
    builder.Finish(raw.Pack(builder), b"TFL3")
    return bytes(memoryview(builder.Bytes)[builder.Head() :])


def save(model: Model, path: str | Path) -> int:
    """Write a file whole or not at all, and return its size in bytes. An existing file is replaced.

    Raises:
        BadInputError: the place cannot be written, or the model is too large.
    """
    data = to_bytes(model)
    write_atomically(path, data)
    return len(data)


def _listed(graph: Graph) -> dict[Tensor, int]:
    """Every tensor of a graph and its position: the listed ones first, then those that only operators know."""
    found: dict[Tensor, int] = {}

    def add(tensors: Iterable[Tensor | None]) -> None:
        for tensor in tensors:
            if tensor is not None:
                found.setdefault(tensor, len(found))

    add(graph.tensors)
    add(graph.inputs)
    for operator in graph.operators:
        add(operator.inputs)
        add(operator.outputs)
        add(operator.intermediates)
    add(graph.outputs)
    return found


def _pack_graph(
    graph: Graph,
    tensors: dict[Tensor, int],
    buffers: _Buffers,
    codes: list[Any],
    numbers: dict[tuple[int, str | None, int], int],
) -> Any:
    raw = schema.SubGraphT()
    raw.debugMetadataIndex = graph.fields.debugMetadataIndex
    raw.name = _name(graph.name)
    raw.tensors = [_pack_tensor(tensor, buffers) for tensor in tensors]
    raw.inputs, raw.outputs = ([tensors[tensor] for tensor in side] for side in (graph.inputs, graph.outputs))
    raw.operators = [_pack_operator(operator, tensors, codes, numbers) for operator in graph.operators]
    return raw


def _pack_tensor(tensor: Tensor, buffers: _Buffers) -> Any:
    raw = _shallow(tensor.fields, schema.TensorT())
    raw.name, raw.shape, raw.type = _name(tensor.name), np.array(tensor.shape, np.int32), tensor.type
    raw.quantization, raw.sparsity, raw.buffer = tensor.quantization, tensor.sparsity, buffers.number(tensor.data)
    return raw


def _pack_operator(
    operator: Operator, tensors: dict[Tensor, int], codes: list[Any], numbers: dict[tuple[int, str | None, int], int]
) -> Any:
    key = (operator.code, operator.custom_code, operator.version)
    if key not in numbers:
        numbers[key] = len(codes)
        code = schema.OperatorCodeT()
        code.builtinCode, code.customCode, code.version = operator.code, _name(operator.custom_code), operator.version
        code.deprecatedBuiltinCode = min(operator.code, schema.BuiltinOperator.PLACEHOLDER_FOR_GREATER_OP_CODES)
        codes.append(code)
    raw = _shallow(operator.fields, schema.OperatorT())
    raw.opcodeIndex = numbers[key]
    raw.inputs = [-1 if tensor is None else tensors[tensor] for tensor in operator.inputs]
    raw.outputs = [tensors[tensor] for tensor in operator.outputs]
    raw.intermediates = [tensors[tensor] for tensor in operator.intermediates] or None
    raw.builtinOptions, raw.builtinOptionsType = operator.options, operator.options_type
    return raw


def _pack_signature(signature: Signature, model: Model, tables: list[dict[Tensor, int]]) -> Any:
    index = next(number for number, graph in enumerate(model.graphs) if graph is signature.graph)
    raw = schema.SignatureDefT()
    raw.signatureKey, raw.subgraphIndex = _name(signature.key), index
    raw.inputs = [_argument(name, tables[index][tensor]) for name, tensor in signature.inputs]
    raw.outputs = [_argument(name, tables[index][tensor]) for name, tensor in signature.outputs]
    return raw


def _argument(name: str | None, index: int) -> Any:
    raw = schema.TensorMapT()
    raw.name, raw.tensorIndex = _name(name), index
    return raw


def _metadata(name: str | None, buffer: int) -> Any:
    raw = schema.MetadataT()
    raw.name, raw.buffer = _name(name), buffer
    return raw


def _shallow(source: Any, target: Any) -> Any:
    target.__dict__.update(source.__dict__)
    return target


def _name(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogateescape")
