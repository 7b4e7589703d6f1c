"""What goes into a model and what comes out of it, for runtimes that name and order inputs and outputs differently."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparsetorch.exporter.interpreter import Array, relative_difference
from sparsetorch.tflite.model import Model, Tensor


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
    """The largest `relative_difference` over all outputs; infinite where something is missing."""
    if found is None or len(found) != len(expected):
        return float("inf")
    return max(map(relative_difference, found, expected), default=0.0)
