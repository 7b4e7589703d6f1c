"""Ranges of activations: what a float .tflite computes for calibration images. Needs no torch."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsetorch.errors import BadInputError
from sparsetorch.exporter.interpreter import computed_values, open_file, run
from sparsetorch.tflite import load

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Range:
    """Of one activation."""

    low: float
    high: float


def activation_ranges(path: Path, images: Iterable[Array], percentile: float = 100.0) -> dict[str, Range]:
    """The range of every float32 value that a file computes, by tensor name.

    Args:
        path: a float .tflite with one input.
        images: calibration images in the file's own layout, one batch as the file has it each.
        percentile: 100 takes the smallest and largest value of all images; 99.9 leaves out a thousandth at either end of
            each image's values and averages over images, so that a few outliers do not cost everything else its precision.

    Raises:
        BadInputError: no image, one that does not fit, or a percentile outside (50, 100].
    """
    if not 50.0 < percentile <= 100.0:
        raise BadInputError(f"percentile: found {percentile!r}, needed more than 50 and at most 100")
    interpreter = open_file(path, keep_all=True)
    (entry,) = interpreter.get_input_details()
    computed = {tensor.name for tensor in load(path).tensors if tensor.data is None}
    lows: dict[str, list[float]] = {}
    highs: dict[str, list[float]] = {}
    for image in images:
        if tuple(image.shape) != tuple(entry["shape"]):
            raise BadInputError(
                f"calibration: found an image of {tuple(image.shape)}, the file takes {tuple(entry['shape'])}"
            )
        run(interpreter, [image.astype(np.float32)])
        for name, values in computed_values(interpreter):
            if name in computed and values.size:
                low, high = np.percentile(values, [100.0 - percentile, percentile])
                lows.setdefault(name, []).append(float(low))
                highs.setdefault(name, []).append(float(high))
    if not lows:
        raise BadInputError("calibration: found no image, needed at least one")
    if percentile == 100.0:
        return {name: Range(min(lows[name]), max(highs[name])) for name in lows}
    return {name: Range(float(np.mean(lows[name])), float(np.mean(highs[name]))) for name in lows}
