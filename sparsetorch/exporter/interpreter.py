"""Run a .tflite file on this machine, with LiteRT's interpreter, and compare two. Needs no torch."""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsetorch.errors import BadInputError, WrongNumbersError

Array = npt.NDArray[Any]

STORAGE_TOLERANCE = 1e-5
"""Largest |difference| allowed between two files of equal numbers, relative to the largest |value|: the order of sums."""


def channels_last(image: Array) -> Array:
    """An NCHW image as NHWC; anything else as it is."""
    return np.ascontiguousarray(image.transpose(0, 2, 3, 1)) if image.ndim == 4 else image


def run_file(path: Path, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a file, for its inputs in order.

    Raises:
        RuntimeError, ValueError: LiteRT cannot load or run it.
    """
    with silenced():
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(str(path), num_threads=1)
        interpreter.allocate_tensors()
    for entry, value in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(entry["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def random_inputs(path: Path, count: int = 3) -> list[list[Array]]:
    """`count` sets of random inputs for a file: two in [0, 1) as images are, then normal ones; integers below 2.

    Raises:
        BadInputError: LiteRT does not load the file.
    """
    try:
        with silenced():
            from ai_edge_litert.interpreter import Interpreter

            details = Interpreter(str(path), num_threads=1).get_input_details()
    except (RuntimeError, ValueError) as error:
        raise BadInputError(
            f"{path}: LiteRT does not load it ({str(error).splitlines()[0]}), so nothing can be compared"
        ) from None
    random = np.random.default_rng(0)

    def draw(detail: dict[str, Any], normal: bool) -> Array:
        shape, dtype = tuple(detail["shape"]), np.dtype(detail["dtype"])
        if dtype.kind != "f":
            return random.integers(0, 2, shape).astype(dtype)
        return (random.normal(size=shape) if normal else random.random(shape)).astype(dtype)

    return [[draw(detail, number == count - 1) for detail in details] for number in range(count)]


def compare_files(path: Path, other: Path, inputs: Sequence[Sequence[Array]]) -> list[float]:
    """Per output, the largest |difference| of `path` from `other` over all inputs, relative to the largest |value| of `other`.

    Raises:
        WrongNumbersError: one of them does not run, or they have other outputs.
    """
    errors: list[float] = []
    for values in inputs:
        try:
            found, wanted = run_file(path, values), run_file(other, values)
        except (RuntimeError, ValueError) as error:
            raise WrongNumbersError(f"the file does not run: {str(error).splitlines()[0]}") from error
        if [value.shape for value in found] != [value.shape for value in wanted]:
            raise WrongNumbersError("the file has other outputs than before")
        errors = errors or [0.0] * len(found)
        for index, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
            scale = float(np.abs(theirs.astype(np.float64)).max(initial=0.0)) or 1.0
            finite = bool(np.isfinite(ours.astype(np.float64)).all())
            difference = float(np.abs(ours.astype(np.float64) - theirs).max(initial=0.0)) / scale
            errors[index] = max(errors[index], difference if finite else float("inf"))
    return errors


def check_storage(path: Path, plain: Path, inputs: Sequence[Sequence[Array]]) -> None:
    """Compare a file with the same numbers stored as plain float32: sparse encoding and small types change nothing.

    Args:
        path: the file.
        plain: the same model after `tflite.decode`.
        inputs: sets of inputs.

    Raises:
        WrongNumbersError: a difference beyond the rounding of sums.
    """
    worst = max(compare_files(path, plain, inputs), default=0.0)
    if not worst <= STORAGE_TOLERANCE:
        raise WrongNumbersError(
            f"the encoded file differs from its own weights stored plainly by {worst:.1e} (relative; allowed "
            f"{STORAGE_TOLERANCE:.0e}). Nothing was written."
        )


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Hide what C++ code writes to standard error: the interpreter announces its delegate there."""
    sys.stderr.flush()
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)
