"""The contents of a .tflite file as plain values. Needs neither torch nor TensorFlow."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sparsetorch.files import gzipped_size
from sparsetorch.tflite import Model, Tensor, load
from sparsetorch.tflite.model import element_count
from sparsetorch.tflite.sense import expect_sense
from sparsetorch.xnnpack.layers import layers, unpack_sources, weight_of


def file_contents(path: Path) -> dict[str, Any]:
    """Sizes, operators and weights of a .tflite file.

    Raises:
        BadInputError: no sound .tflite file.
    """
    model = load(path)
    with expect_sense(path):
        found = _layers(model)
    content = path.read_bytes()
    return {
        "file": str(path),
        "kind": "tflite",
        "size": {"raw": len(content), "gzip": gzipped_size(content)},
        "operators": dict(Counter(operator.name for graph in model.graphs for operator in graph.operators)),
        "inputs": [_value(tensor) for tensor in model.graphs[0].inputs],
        "outputs": [_value(tensor) for tensor in model.graphs[0].outputs],
        "layers": found,
        "totals": totals(found),
    }


def totals(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Parameters, zeros, their share, and bytes of all layers."""
    parameters = sum(layer["parameters"] for layer in found)
    zeros = sum(layer["zeros"] for layer in found)
    return {
        "parameters": parameters,
        "zeros": zeros,
        "sparsity": zeros / parameters if parameters else 0.0,
        "bytes": sum(layer["bytes"] for layer in found),
        "dense_bytes": sum(layer["dense_bytes"] for layer in found),
    }


def _layers(model: Model) -> list[dict[str, Any]]:
    operators: dict[str, list[str]] = {}
    for graph in model.graphs:
        sources = unpack_sources(graph)
        for operator in graph.operators:
            packed = sources.get(operator.outputs[0]) if operator.outputs else None
            weight = packed if packed is not None else weight_of(operator, sources)
            if weight is not None:
                operators.setdefault(weight.name, []).append(operator.name)
    found = []
    for layer in layers(model):
        parameters = element_count(layer.shape)
        described = asdict(layer) | {"shape": list(layer.shape), "parameters": parameters}
        found.append(
            described | {"zeros": round(layer.sparsity * parameters), "operators": operators.get(layer.tensor, [])}
        )
    return found


def _value(tensor: Tensor) -> dict[str, Any]:
    return {"tensor": tensor.name, "shape": list(tensor.shape), "type": tensor.type_name}
