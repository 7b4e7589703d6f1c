"""Accuracy of a .tflite classifier on batches of images and labels."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from sparsetorch.errors import BadInputError
from sparsetorch.exporter.interpreter import channels_last, open_file, run


def top1(path: Path, batches: Iterable[tuple[Any, Any]], limit: int | None = None) -> tuple[float, int]:
    """The share of images whose largest output is that of their label, and how many were looked at.

    Args:
        path: a file with one image input (batch 1) and its logits or probabilities (1, classes) as first output.
        batches: pairs of images (N, C, H, W) and class indices (N,), tensors or arrays.
        limit: most images; None: all.

    Raises:
        BadInputError: an output that is no row of classes, or no image at all.
    """
    interpreter = open_file(path)
    result = interpreter.get_output_details()[0]
    if len(result["shape"]) != 2 or result["shape"][0] != 1:
        raise BadInputError(
            f"{path}: its output has the shape {list(result['shape'])}, needed (1, classes) to count hits"
        )
    hits = seen = 0
    for images, labels in batches:
        for image, label in zip(np.asarray(images), np.asarray(labels), strict=True):
            if seen == limit:
                return hits / seen, seen
            scores = run(interpreter, [channels_last(image[None]).astype(np.float32)])[0]
            hits += int(scores.argmax() == label)
            seen += 1
    if not seen:
        raise BadInputError("accuracy: found no image")
    return hits / seen, seen
