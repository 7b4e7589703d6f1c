"""What goes into a model and what comes out, as arrays: random inputs, and matching outputs of runtimes that name and order
them differently."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsetorch.errors import BadInputError
from sparsetorch.tflite.model import Model, Tensor

Array = npt.NDArray[Any]

SETS = 3
"""Random inputs a model is compared on: two in [0, 1) as images are, one normal as normalised images are."""


@dataclass(frozen=True)
class Slot:
    """One input or output of a model's first graph."""

    tensor: Tensor
    names: tuple[str, ...]
    """The tensor's name and, where the file has signatures, the name there: runtimes use either."""

    @property
    def scale(self) -> tuple[float, int]:
        """Scale and zero point of a quantized tensor; (1, 0) of others."""
        found = self.tensor.quantization
        scales = None if found is None else found.scale
        if scales is None or len(scales) != 1:
            return 1.0, 0
        points = found.zeroPoint
        return float(scales[0]), 0 if points is None or len(points) != 1 else int(points[0])


def inputs_of(model: Model) -> list[Slot]:
    """The inputs of the first graph, in its order."""
    return _slots(model, model.graphs[0].inputs, "inputs")


def outputs_of(model: Model) -> list[Slot]:
    """The outputs of the first graph, in its order."""
    return _slots(model, model.graphs[0].outputs, "outputs")


def _slots(model: Model, tensors: Sequence[Tensor], side: str) -> list[Slot]:
    named: dict[Tensor, str] = {}
    for signature in model.signatures:
        for name, tensor in getattr(signature, side):
            named.setdefault(tensor, name)
    return [Slot(tensor, tuple(dict.fromkeys([tensor.name, named.get(tensor, tensor.name)]))) for tensor in tensors]


def random_inputs(model: Model, sets: int = SETS) -> list[list[Array]]:
    """`sets` lists of one array per input: uniform in [0, 1), the last normal; integers over the range of small images.

    Raises:
        BadInputError: an input whose type has no numbers, or one without a fixed size.
    """
    random = np.random.default_rng(0)
    made = []
    for number in range(sets):
        normal = number == sets - 1 and sets > 1
        made.append([_random(slot.tensor, random, normal) for slot in inputs_of(model)])
    return made


def _random(tensor: Tensor, random: np.random.Generator, normal: bool) -> Array:
    kind = tensor.dtype
    if kind is None or kind.kind not in "fiub":
        raise BadInputError(f"input {tensor.name!r} is {tensor.type_name}: no random numbers of that type can be fed to it")
    if any(size < 1 for size in tensor.shape):
        raise BadInputError(f"input {tensor.name!r} has the shape {list(tensor.shape)}: it has no fixed size to run with")
    if kind.kind == "f":
        values = random.standard_normal(tensor.shape) if normal else random.random(tensor.shape)
        return values.astype(kind)
    if kind.kind == "b":
        return random.random(tensor.shape) < 0.5
    limits = np.iinfo(kind)
    low, high = (limits.min, limits.max) if kind.itemsize == 1 else (0, 9)  # wider integers are indices, mostly
    return random.integers(low, high, tensor.shape, kind, endpoint=True)


@dataclass(frozen=True)
class Output:
    """One output as a runtime wrote it."""

    name: str
    dtype: str
    file: Path


def read_outputs(slots: Sequence[Slot], outputs: Sequence[Output]) -> list[Array] | None:
    """The arrays in the order of `slots`, as real numbers, or None where they cannot be matched.

    By name where the runtime has the file's names, tensors' or signature's; by position otherwise.
    """
    if len(slots) != len(outputs):
        return None
    ordered = list(outputs)
    for place in (0, -1):
        wanted = [slot.names[place] for slot in slots]
        if len(set(wanted)) == len(wanted) and sorted(wanted) == sorted(output.name for output in outputs):
            by_name = {output.name: output for output in outputs}
            ordered = [by_name[name] for name in wanted]
            break
    arrays = []
    for slot, output in zip(slots, ordered, strict=True):
        values = np.fromfile(output.file, np.dtype(output.dtype))
        if values.size != int(np.prod(slot.tensor.shape)):
            return None
        scale, point = slot.scale
        arrays.append((values.astype(np.float64) - point) * scale)
    return arrays


def relative_error(found: Sequence[Array] | None, expected: Sequence[Array]) -> float:
    """Largest |difference| over outputs, each relative to its own largest |value|; infinite where something is missing."""
    if found is None or len(found) != len(expected):
        return float("inf")
    worst = 0.0
    for ours, theirs in zip(found, expected, strict=True):
        if ours.size == 0:
            continue
        scale = float(np.abs(theirs).max()) or 1.0
        error = float(np.abs(ours - theirs).max()) / scale
        worst = max(worst, error if np.isfinite(error) else float("inf"))
    return worst
