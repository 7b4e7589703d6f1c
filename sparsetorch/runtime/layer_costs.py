"""Measure what 1x1 convolutions cost, densely and at several sparsities, in LiteRT.js under Node.js.

A file holds a stem, then the convolution several times side by side, each with its own weights and bias and a MEAN behind it.
Times of files with few and with many of them differ by the convolutions alone (and a MEAN each, the same at any sparsity):
stem and the call of the runtime fall out. Only these two share a process, and take
turns: what many models leave in caches and memory would move the times more than sparsity does; each file counts with its lower
quartile, which a busy machine moves less than the median.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from sparsetorch.analysis.layer_costs import CostTable, LayerShape, LayerTimes
from sparsetorch.errors import BadInputError, CannotObserveError
from sparsetorch.files import write_atomically
from sparsetorch.runtime import host, wasm
from sparsetorch.runtime.cache import runtimes_folder
from sparsetorch.runtime.worker import ModelJob, Timing, job_folder
from sparsetorch.tflite import Graph, Model, Operator, Tensor, encode, save
from sparsetorch.xnnpack import verify

SPARSITIES = (0.7, 0.85, 0.95)
"""All above two thirds: below, XNNPACK runs a file of such layers densely."""
_FEW, _MANY = 1, 5
_OPS = schema.BuiltinOperator


@dataclass(frozen=True)
class Effort:
    """How often each file is timed."""

    runs: int = 40
    warmup: int = 5


def measure_costs(
    layers: Mapping[str, LayerShape],
    *,
    effort: Effort | None = None,
    cache: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> CostTable:
    """Time every different shape once, dense and at `SPARSITIES`.

    Args:
        layers: by module path.
        effort: rounds and warm-up; None: the defaults.
        cache: folder for what was measured, one file per runtime version and processor; None: beside the runtimes.
        progress: called with the number of shapes done and of all.

    Raises:
        BadInputError: no layers.
        CannotObserveError: the runtime is not installed or fails.
    """
    if not layers:
        raise BadInputError("costs: found no 1x1 convolution that XNNPACK could run sparse, needed at least one")
    effort = effort or Effort()
    shapes = list(dict.fromkeys(layers.values()))
    folder = cache or runtimes_folder() / "costs"
    store = folder / f"{wasm.folder_name()}-{effort.runs}.json"
    known = _read_store(store)
    version, found = "", []
    for number, shape in enumerate(shapes):
        progress(number, len(shapes))
        key = f"{host.processor()} {shape}"
        if key not in known:
            version, times = _measure(shape, effort)
            known[key] = {
                "version": version,
                "dense_ms": times.dense_ms,
                "sparse_ms": {str(s): ms for s, ms in times.sparse_ms.items()},
            }
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(store, json.dumps(known, indent=1).encode())
        one = known[key]
        version = one["version"]
        found.append(LayerTimes(shape, one["dense_ms"], {float(s): ms for s, ms in one["sparse_ms"].items()}))
    progress(len(shapes), len(shapes))
    return CostTable(version, host.processor(), dict(layers), tuple(found))


def _read_store(path: Path) -> dict[str, Any]:
    """What was measured before; a damaged file is measured again."""
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError):
        return {}


def _measure(shape: LayerShape, effort: Effort) -> tuple[str, LayerTimes]:
    version, dense = _each(shape, None, effort)
    return version, LayerTimes(shape, dense, {sparsity: _each(shape, sparsity, effort)[1] for sparsity in SPARSITIES})


def _each(shape: LayerShape, sparsity: float | None, effort: Effort) -> tuple[str, float]:
    """The runtime's version, and milliseconds of one convolution."""
    with job_folder() as folder:
        jobs = []
        for count in (_FEW, _MANY):
            path = folder / f"{count}.tflite"
            model = layer_model(shape, count, sparsity)
            if sparsity is not None and not verify(model, ["wasm"]).eligible:
                raise BadInputError(
                    f"costs: {shape} at {sparsity:g} would not run sparse: too few weights for its zeros"
                )
            save(model, path)
            jobs.append(ModelJob.read(path, sets=1))
        result = wasm.run_litert(jobs, folder, Timing(effort.runs, effort.warmup))
    failed = [one.failure for one in result.models if one.failure is not None]
    if failed:
        raise CannotObserveError(f"LiteRT.js does not run a 1x1 convolution of {shape}: {failed[0]}")
    few, many = (float(np.percentile([one[index] for one in result.rounds], 25)) for index in range(len(jobs)))
    return result.version, max(many - few, 0.0) / (_MANY - _FEW)


def layer_model(shape: LayerShape, count: int, sparsity: float | None) -> Model:
    """The file that is timed: `count` times the convolution, dense, or encoded at `sparsity`."""
    random = np.random.default_rng(0)
    graph = Graph([], [], [], [], "main")

    def constant(name: str, values: np.ndarray) -> Tensor:
        made = Tensor(
            name, values.shape, schema.TensorType.INT32 if values.dtype == np.int32 else schema.TensorType.FLOAT32
        )
        made.data = np.frombuffer(values.tobytes(), np.uint8)
        return made

    def floats(name: str, values: np.ndarray) -> Tensor:
        return constant(name, values.astype(np.float32))

    def add(code: int, inputs: list[Tensor | None], sizes: tuple[int, ...], options: object, kind: int) -> Tensor:
        result = Tensor(f"value{len(graph.operators)}", sizes)
        graph.operators.append(Operator(code, inputs, [result], options, kind))
        return result

    height, width, depth = shape.height, shape.width, shape.in_channels
    source = Tensor("input", (1, 2 * height, 2 * width, 3))
    padding = constant("paddings", np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32))
    kinds = schema.BuiltinOptions
    x = add(_OPS.PAD, [source, padding], (1, 2 * height + 2, 2 * width + 2, 3), schema.PadOptionsT(), kinds.PadOptions)
    stem = floats("stem", random.normal(0.0, 0.3, (depth, 3, 3, 3)))
    bias = floats("stem.bias", random.normal(0.0, 0.1, depth))
    x = add(_OPS.CONV_2D, [x, stem, bias], (1, height, width, depth), _convolution(2), kinds.Conv2DOptions)
    axes = constant("axes", np.array([1, 2], np.int32))
    for number in range(count):
        values = random.normal(0.0, 1.0, (shape.out_channels, 1, 1, depth)) / np.sqrt(depth)
        if sparsity is not None:
            order = np.argsort(np.abs(values), axis=None)
            values.ravel()[order[: int(np.ceil(sparsity * values.size))]] = 0.0
        inputs: list[Tensor | None] = [
            x,
            floats(f"weight{number}", values),
            floats(f"bias{number}", random.normal(0.0, 0.1, shape.out_channels)),
        ]
        y = add(_OPS.CONV_2D, inputs, (1, height, width, shape.out_channels), _convolution(1), kinds.Conv2DOptions)
        sizes = (1, shape.out_channels)
        graph.outputs.append(add(_OPS.MEAN, [y, axes], sizes, schema.ReducerOptionsT(), kinds.ReducerOptions))
    graph.inputs.append(source)
    model = Model([graph], description="one 1x1 convolution, timed")
    if sparsity is not None:
        encode(model)
    return model


def _convolution(stride: int) -> schema.Conv2DOptionsT:
    made = schema.Conv2DOptionsT()
    made.padding = schema.Padding.VALID
    made.strideH = made.strideW = stride
    made.dilationHFactor = made.dilationWFactor = 1
    return made
