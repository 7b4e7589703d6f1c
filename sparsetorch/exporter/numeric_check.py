"""Does the file compute what the PyTorch module computes? Asked of the file itself, loaded by the LiteRT interpreter."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sparsetorch.errors import WrongNumbersError
from sparsetorch.exporter.interpreter import channels_last, run_file
from sparsetorch.exporter.torch_to_onnx import run_outputs

Array = npt.NDArray[np.float32]

TOLERANCE = 1e-4
"""Largest |difference| allowed, relative to the largest |value| of the output. float32 gives about 1e-6."""


@dataclass(frozen=True)
class Reference:
    """Inputs and the outputs that PyTorch computes for them, as NCHW arrays."""

    inputs: tuple[Array, ...]
    outputs: tuple[tuple[Array, ...], ...]
    """Per input, the outputs in order."""


def reference(module: nn.Module, input_shape: tuple[int, ...], count: int = 3) -> Reference:
    """Run `module` on `count` random inputs: two in [0, 1) as images are, one normal as normalised images are.

    The global random state is neither read nor changed.
    """
    generator = torch.Generator().manual_seed(0)
    images = [torch.rand(input_shape, generator=generator) for _ in range(count - 1)]
    images.append(torch.randn(input_shape, generator=generator))
    outputs = [tuple(value.float().numpy() for value in run_outputs(module, image)) for image in images]
    return Reference(tuple(image.numpy() for image in images), tuple(outputs))


def check_numbers(path: Path, expected: Reference, tolerance: float = TOLERANCE) -> list[float]:
    """Compare a .tflite with PyTorch.

    Args:
        path: the file.
        expected: inputs and outputs of PyTorch.
        tolerance: largest relative |difference| allowed; infinite to measure alone.

    Returns:
        Per output, the largest |difference| over all inputs, relative to the largest |value| PyTorch gives.

    Raises:
        WrongNumbersError: naming the outputs that differ, or that the file does not run.
    """
    errors = [0.0] * len(expected.outputs[0])
    for image, outputs in zip(expected.inputs, expected.outputs, strict=True):
        try:
            found = run_file(path, [channels_last(image)])
        except (RuntimeError, ValueError) as error:
            raise WrongNumbersError(f"the converted file does not run: {str(error).splitlines()[0]}") from error
        if len(found) != len(outputs):
            raise WrongNumbersError(f"the converted file has {len(found)} outputs, the PyTorch module {len(outputs)}")
        for index, (theirs, ours) in enumerate(zip(found, outputs, strict=True)):
            errors[index] = max(errors[index], _relative_error(theirs, ours))
    wrong = {index: error for index, error in enumerate(errors) if not error <= tolerance}
    if wrong:
        told = ", ".join(f"output {index} by {error:.1e}" for index, error in wrong.items())
        raise WrongNumbersError(
            f"the converted file differs from PyTorch: {told} (relative; allowed {tolerance:.0e}). Nothing was written."
        )
    return errors


def check_onnx(path: Path, expected: Reference) -> list[float]:
    """Compare an ONNX file with PyTorch, so that a difference further down the road is known to be the converter's.

    Returns:
        Per output, as `check_numbers`.

    Raises:
        WrongNumbersError: naming the outputs that differ.
    """
    import onnxruntime  # comes with onnx2tf

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    errors = [0.0] * len(expected.outputs[0])
    for image, outputs in zip(expected.inputs, expected.outputs, strict=True):
        for index, (found, wanted) in enumerate(zip(session.run(None, {name: image}), outputs, strict=True)):
            scale = float(np.abs(wanted).max(initial=0.0)) or 1.0
            errors[index] = max(
                errors[index], float(np.abs(found.astype(np.float64) - wanted).max(initial=0.0)) / scale
            )
    wrong = {index: error for index, error in enumerate(errors) if not error <= TOLERANCE}
    if wrong:
        told = ", ".join(f"output {index} by {error:.1e}" for index, error in wrong.items())
        raise WrongNumbersError(f"the ONNX graph differs from PyTorch: {told} (relative; allowed {TOLERANCE:.0e})")
    return errors


def _relative_error(found: Array, expected: Array) -> float:
    """Infinite where the shapes cannot be matched."""
    channels_last = np.moveaxis(expected, 1, -1) if expected.ndim > 2 else expected
    if found.shape == channels_last.shape:
        expected = channels_last
    elif found.shape != expected.shape:
        return float("inf")
    scale = float(np.abs(expected).max(initial=0.0)) or 1.0
    return float(np.abs(found.astype(np.float64) - expected).max(initial=0.0)) / scale
