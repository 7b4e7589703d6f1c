"""Read, edit and write .tflite files; encode the zeros of their weights. Needs neither torch nor TensorFlow."""

from sparsetorch.tflite.decode import decode, densify_model
from sparsetorch.tflite.encode import EncodedTensor, encode
from sparsetorch.tflite.layouts import Layout, encode_csr, encode_levels, smallest_layout
from sparsetorch.tflite.model import Graph, Model, Operator, Signature, Tensor
from sparsetorch.tflite.read import from_bytes, load
from sparsetorch.tflite.sparse import densify
from sparsetorch.tflite.storage import VALUES, Storage, main_values
from sparsetorch.tflite.write import save, to_bytes

__all__ = [
    "VALUES",
    "EncodedTensor",
    "Graph",
    "Layout",
    "Model",
    "Operator",
    "Signature",
    "Storage",
    "Tensor",
    "decode",
    "densify",
    "densify_model",
    "encode",
    "encode_csr",
    "encode_levels",
    "from_bytes",
    "load",
    "main_values",
    "save",
    "smallest_layout",
    "to_bytes",
]
