"""Accuracy of a .tflite classifier on batches of images and labels."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from sparsetorch.errors import BadInputError
from sparsetorch.exporter.interpreter import silenced


def top1(path: Path, batches: Iterable[tuple[Any, Any]], limit: int | None = None) -> tuple[float, int]:
    """The share of images whose largest output is that of their label, and how many were looked at.

    Args:
        path: a file with one image input (batch 1) and its logits or probabilities (1, classes) as first output.
        batches: pairs of images (N, C, H, W) and class indices (N,), tensors or arrays.
        limit: most images; None: all.

    Raises:
        BadInputError: an output that is no row of classes, or no image at all.
    """
    with silenced():
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(str(path), num_threads=1)
        interpreter.allocate_tensors()
    (entry,) = interpreter.get_input_details()
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
            interpreter.set_tensor(
                entry["index"], np.ascontiguousarray(image.transpose(1, 2, 0)[None]).astype(np.float32)
            )
            interpreter.invoke()
            hits += int(interpreter.get_tensor(result["index"]).argmax() == label)
            seen += 1
    if not seen:
        raise BadInputError("accuracy: found no image")
    return hits / seen, seen
