"""Post-training quantization of a float .tflite: integer computation, or int8 weights with ranges found at run time.

By the library ai-edge-quantizer, which edits the flatbuffer. Integer computation has no sparse path: this is for the dense twin,
as what a sparse file has to be compared with. An integer file keeps float32 inputs and outputs, so that it takes the place of
the float one.
"""

import importlib.util
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsetorch.errors import BadInputError
from sparsetorch.exporter.calibrate import Range, activation_ranges
from sparsetorch.exporter.interpreter import open_file, run, silenced
from sparsetorch.files import check_writable, write_atomically
from sparsetorch.tflite import Model, Signature, decode, load, save
from sparsetorch.tflite.encode import OUTPUT_AXIS
from sparsetorch.tflite.passes.links import constant
from sparsetorch.tflite.passes.numbers import floats
from sparsetorch.tflite.unique_names import make_names_unique

Array = npt.NDArray[Any]

MODES = ("full-int8", "dynamic-int8")
"""full-int8: integer weights and activations. dynamic-int8: integer weights, activations quantized while it runs."""
_MOST_LEFT_FLOAT = 64
_FAILED = re.compile(r"with op id (\d+)")


@dataclass(frozen=True)
class Quantized:
    """What a quantization did."""

    path: str
    bytes: int
    mode: str
    left_float: tuple[str, ...]
    """Operators, by the name of their result, that had to stay float32."""
    ranges: dict[str, Range]
    """Of every activation over the calibration images; empty for dynamic-int8."""


def quantize(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    mode: str = "full-int8",
    *,
    images: Iterable[Array] = (),
    percentile: float = 100.0,
    progress: Callable[[str], None] = lambda stage: None,
) -> Quantized:
    """Write a quantized copy of a float .tflite. Weights that are stored sparse or small are unpacked first.

    Args:
        source: a float file with one input.
        path: the file to write.
        mode: one of `MODES`.
        images: calibration images in the file's own layout (1, H, W, C); needed for full-int8.
        percentile: see `activation_ranges`.
        progress: called with the name of every stage.

    Raises:
        BadInputError: no TFLite file, calibration images that do not fit, a place that cannot be written, or a graph that the
            library cannot quantize.
    """
    if mode not in MODES:
        raise BadInputError(f"mode: found {mode!r}, needed one of {', '.join(MODES)}")
    if importlib.util.find_spec("ai_edge_quantizer") is None:
        raise BadInputError(
            "ai-edge-quantizer is not installed; needed: pip install 'sparsetorch[export]', in one call with the rest"
        )
    target = check_writable(Path(path))
    model = _prepared(decode(load(Path(source))))
    with tempfile.TemporaryDirectory(prefix="sparsetorch-") as folder:
        plain, made = Path(folder, "float.tflite"), Path(folder, "quantized.tflite")
        save(model, plain)
        ranges: dict[str, Range] = {}
        if mode == "full-int8":
            progress("calibration")
            ranges = activation_ranges(plain, images, percentile)
            if _lift_silent_filters(model, ranges):
                save(model, plain)
        progress("quantization")
        left = _quantize(model, plain, made, mode, ranges)
        progress("running the file")
        content = made.read_bytes()
        try:
            run(open_file(made), [np.zeros(tensor.shape, np.float32) for tensor in model.graphs[0].inputs])
        except (RuntimeError, ValueError) as error:
            raise BadInputError(f"the quantized file does not run: {str(error).splitlines()[0]}") from error
        write_atomically(target, content)
    return Quantized(str(target), len(content), mode, left, ranges)


def _prepared(model: Model) -> Model:
    """The library looks tensors up by name, and calibrates by signature."""
    graph = model.graphs[0]
    make_names_unique(graph)
    if not model.signatures:
        outputs = [(f"output_{index}", value) for index, value in enumerate(graph.outputs)]
        model.signatures = [Signature("serving_default", graph, [("input", graph.inputs[0])], list(outputs))]
    return model


def _lift_silent_filters(model: Model, ranges: dict[str, Range]) -> int:
    """Let the biases of filters without weights, which pruning leaves, fit into 32 bits; how many filters were touched.

    A bias is stored in steps of weight scale times input scale, and the scale of a filter of zeros is as good as 0. One weight of
    such a filter is raised to where the bias takes half of the 31 bits: at most 3e-5 of the bias at the output, far below one
    step of an int8 output.
    """
    lifted = 0
    graph = model.graphs[0]
    for layer in graph.operators:
        axis = OUTPUT_AXIS.get(layer.code)
        if axis is None or len(layer.inputs) < 3 or layer.inputs[0] is None:
            continue
        weights, bias = floats(layer.inputs[1]), floats(layer.inputs[2])
        found, weight = ranges.get(layer.inputs[0].name), layer.inputs[1]
        if weights is None or bias is None or found is None or weight is None:
            continue
        step = max(found.high, 0.0) - min(found.low, 0.0)
        needed = 2 * 127 * np.abs(bias) / 2.0**31 / max(step / 255, 1e-12)
        filters = np.moveaxis(weights.copy(), axis, 0).reshape(len(bias), -1)
        silent = np.abs(filters).max(axis=1) < needed
        if silent.any():
            largest = np.abs(filters).argmax(axis=1)
            filters[silent, largest[silent]] = needed[silent]
            shape = np.moveaxis(weights, axis, 0).shape
            values = np.ascontiguousarray(np.moveaxis(filters.reshape(shape), 0, axis))
            layer.inputs[1] = constant(graph, values, weight.name)
            if not graph.consumers(weight):
                graph.tensors = [tensor for tensor in graph.tensors if tensor is not weight]
            lifted += int(silent.sum())
    if lifted:
        make_names_unique(graph)
    return lifted


def _quantize(model: Model, source: Path, target: Path, mode: str, ranges: dict[str, Range]) -> tuple[str, ...]:
    """Quantize all that can be; an operator whose bias does not fit 32 bits stays float32, and is named."""
    from ai_edge_quantizer import qtyping, quantizer, recipe

    left: list[str] = []
    while True:
        with silenced():
            tool = quantizer.Quantizer(str(source))
            tool.load_quantization_recipe(
                recipe.static_wi8_ai8() if mode == "full-int8" else recipe.dynamic_wi8_afp32()
            )
            never = recipe.AlgorithmName.NO_QUANTIZE
            if mode == "full-int8":
                for edge in (qtyping.TFLOperationName.INPUT, qtyping.TFLOperationName.OUTPUT):
                    tool.update_quantization_recipe(regex=".*", operation_name=edge, algorithm_key=never)
            for name in left:
                every = qtyping.TFLOperationName.ALL_SUPPORTED
                tool.update_quantization_recipe(regex=re.escape(name), operation_name=every, algorithm_key=never)
            try:
                result = tool.quantize(_statistics(model, ranges) if mode == "full-int8" else None)
            except Exception as error:
                failed = _FAILED.search(f"{error} {error.__cause__}")
                operator = None if failed is None else model.graphs[0].operators[int(failed.group(1))]
                if operator is None or operator.outputs[0].name in left or len(left) >= _MOST_LEFT_FLOAT:
                    raise BadInputError(
                        f"this graph cannot be quantized to {mode}: {str(error).splitlines()[0]}"
                    ) from error
                left.append(operator.outputs[0].name)
                continue
            target.write_bytes(bytes(result.quantized_model))
            return tuple(left)


def _statistics(model: Model, ranges: dict[str, Range]) -> dict[str, dict[str, Array]]:
    """Ranges in the library's own form: an array of the tensor's rank."""
    ranks = {tensor.name: len(tensor.shape) for tensor in model.graphs[0].tensors}
    form = {name: (1,) * ranks[name] for name in ranges if name in ranks}
    return {
        name: {
            "min": np.full(form[name], ranges[name].low, np.float32),
            "max": np.full(form[name], ranges[name].high, np.float32),
        }
        for name in form
    }
