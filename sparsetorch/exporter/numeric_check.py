"""Does the file compute what the PyTorch module computes? Asked of the file itself, loaded by the LiteRT interpreter."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sparsetorch.errors import WrongNumbersError
from sparsetorch.exporter.interpreter import channels_last, open_file, relative_difference, run
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
    try:
        interpreter = open_file(path)
        found = [run(interpreter, [channels_last(image)]) for image in expected.inputs]
    except (RuntimeError, ValueError) as error:
        raise WrongNumbersError(f"the converted file does not run: {str(error).splitlines()[0]}") from error
    return _compare(found, expected, tolerance, "the converted file", _difference)


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
    found = [session.run(None, {name: image}) for image in expected.inputs]
    return _compare(found, expected, TOLERANCE, "the ONNX graph", relative_difference)


def _compare(
    found: Sequence[Sequence[Array]],
    expected: Reference,
    tolerance: float,
    what: str,
    difference: Callable[[Array, Array], float],
) -> list[float]:
    """Per output, the largest difference over all inputs.

    Raises:
        WrongNumbersError: more outputs or fewer, or a difference beyond the tolerance; NaN is one.
    """
    counts = {len(values) for values in found}
    if counts != {len(expected.outputs[0])}:
        raise WrongNumbersError(f"{what} has {counts.pop()} outputs, the PyTorch module {len(expected.outputs[0])}")
    errors = [
        max(difference(values[index], wanted[index]) for values, wanted in zip(found, expected.outputs, strict=True))
        for index in range(len(expected.outputs[0]))
    ]
    wrong = {index: error for index, error in enumerate(errors) if not error <= tolerance}
    if wrong:
        told = ", ".join(f"output {index} by {error:.1e}" for index, error in wrong.items())
        raise WrongNumbersError(
            f"{what} differs from PyTorch: {told} (relative; allowed {tolerance:.0e}). Nothing was written."
        )
    return errors


def _difference(found: Array, wanted: Array) -> float:
    """Of a .tflite, which has maps channels last where PyTorch has them channels first."""
    last = np.moveaxis(wanted, 1, -1) if wanted.ndim > 2 else wanted
    return relative_difference(found, last if found.shape == last.shape else wanted)
