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
from sparsetorch.preflight.builder import Array, Builder
from sparsetorch.runtime import host, wasm
from sparsetorch.runtime.cache import runtimes_folder
from sparsetorch.runtime.worker import ModelJob, Timing, job_folder
from sparsetorch.tflite import Model, Tensor, encode, load, save
from sparsetorch.tflite.passes.links import OP, new_options
from sparsetorch.xnnpack import verify
from sparsetorch.xnnpack.layers import layers as layers_of

SPARSITIES = (0.7, 0.85, 0.95)
"""All above two thirds: below, XNNPACK runs a file of such layers densely."""
_FEW, _MANY = 1, 5
_GOES = 3


@dataclass(frozen=True)
class Effort:
    """How often each file is timed."""

    runs: int = 200
    warmup: int = 20


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


def measure_rest(path: Path, table: CostTable, effort: Effort | None = None) -> float:
    """What a network takes beside the layers of its table, in milliseconds: its time less what the table gives its layers.

    0 where the layers, timed alone, add up to more than the network takes, as they do on a busy machine.

    Args:
        path: the network's exported file, on the sparse path; its weights carry their module paths.
        table: as `measure_costs` made it.
        effort: rounds and warm-up; None: the defaults. The quietest of three goes counts.

    Raises:
        BadInputError: a file of another network, or one that the runtime would not run sparse.
        CannotObserveError: the runtime is not installed or fails.
    """
    effort = effort or Effort()
    model = load(path)
    found = {layer.module: layer.sparsity for layer in layers_of(model) if layer.module is not None}
    if lacking := [name for name in table.layers if name not in found]:
        raise BadInputError(
            f"{path}: found no weight of {lacking[0]}{f' and {len(lacking) - 1} others' * (len(lacking) > 1)}, needed a file "
            "that `sparsetorch export` made of this network"
        )
    if not (verdict := verify(model, ["wasm"])).eligible:
        raise BadInputError(
            f"{path} would not run on the sparse path ({verdict.expected_spmm} sparse convolutions expected), and its time "
            "says nothing about the rest; export the network pruned to two thirds or more (`sparsetorch export --sparsity 0.85`)"
        )
    with job_folder() as folder:
        job = ModelJob.read(path, sets=1)
        goes = [wasm.run_litert([job], folder, Timing(effort.runs, effort.warmup)) for _ in range(_GOES)]
    if failed := next((go.models[0].failure for go in goes if go.models[0].failure is not None), None):
        raise CannotObserveError(f"LiteRT.js does not run {path}: {failed}")
    whole = min(float(np.median([one[0] for one in go.rounds])) for go in goes)
    return max(whole - table.predict_ms({name: found[name] for name in table.layers}), 0.0)


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
    to = Builder()
    height, width, depth = shape.height, shape.width, shape.in_channels

    def convolution(source: Tensor, weight: Array, stride: int) -> Tensor:
        bias = random.normal(0.0, 0.1, len(weight)).astype(np.float32)
        options = new_options(
            "Conv2D", padding=schema.Padding.VALID, strideH=stride, strideW=stride, dilationHFactor=1, dilationWFactor=1
        )
        operands = [source, to.constant(weight.astype(np.float32)), to.constant(bias)]
        return to.add(OP.CONV_2D, operands, (1, height, width, len(weight)), options)

    to.input("input", (1, 3, 2 * height, 2 * width))
    padded = to.pad(to.value("input"), 1, 1, 1, 1)
    x = convolution(padded, random.normal(0.0, 0.3, (depth, 3, 3, 3)), 2)
    axes = to.constant(np.array([1, 2], np.int32))
    for _ in range(count):
        values = random.normal(0.0, 1.0, (shape.out_channels, 1, 1, depth)) / np.sqrt(depth)
        if sparsity is not None:
            order = np.argsort(np.abs(values), axis=None)
            values.ravel()[order[: int(np.ceil(sparsity * values.size))]] = 0.0
        pooled = [convolution(x, values, 1), axes]
        to.graph.outputs.append(
            to.add(OP.MEAN, pooled, (1, shape.out_channels), new_options("Reducer", keepDims=False))
        )
    model = Model([to.graph], description="one 1x1 convolution, timed")
    if sparsity is not None:
        encode(model)
    return model
