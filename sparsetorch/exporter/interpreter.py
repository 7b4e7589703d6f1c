"""Run a .tflite file on this machine, with LiteRT's interpreter, and compare two. Needs no torch."""

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparsetorch.errors import BadInputError, WrongNumbersError
from sparsetorch.tflite import Tensor

Array = npt.NDArray[Any]

STORAGE_TOLERANCE = 1e-5
"""Largest |difference| allowed between two files of equal numbers, relative to the largest |value|: the order of sums."""


def channels_last(image: Array) -> Array:
    """An NCHW image as NHWC; anything else as it is."""
    return np.ascontiguousarray(image.transpose(0, 2, 3, 1)) if image.ndim == 4 else image


def open_file(path: Path, keep_all: bool = False) -> Any:
    """LiteRT's interpreter for a file, one thread, tensors allocated.

    Args:
        path: the file.
        keep_all: keep every value that is computed. TFLite's own kernels then run: a delegate keeps what is inside to itself.

    Raises:
        RuntimeError, ValueError: LiteRT cannot load it.
    """
    with silenced(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that keeping all tensors takes memory, which is wanted then
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        kernels = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES if keep_all else OpResolverType.AUTO
        interpreter = Interpreter(
            str(path),
            num_threads=1,
            experimental_op_resolver_type=kernels,
            experimental_preserve_all_tensors=keep_all,
        )
        interpreter.allocate_tensors()
    return interpreter


def run(interpreter: Any, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of an open file, for its inputs in order."""
    for entry, value in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(entry["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def computed_values(interpreter: Any) -> Iterator[tuple[str, Array]]:
    """Name and value of every float32 tensor of a file that was opened with `keep_all` and has run."""
    for detail in interpreter.get_tensor_details():
        if detail["dtype"] == np.float32 and detail["name"]:
            try:
                yield detail["name"], interpreter.get_tensor(detail["index"])
            except ValueError:  # nothing was computed there
                continue


def random_inputs(tensors: Sequence[Tensor], count: int = 3) -> list[list[Array]]:
    """`count` sets of random values for a graph's inputs: two in [0, 1) as images are, then normal ones.

    8-bit integers cover their range, as quantized images do; wider ones are indices, mostly, and stay below 2.

    Raises:
        BadInputError: an input without a numeric type, or without a fixed size.
    """
    random = np.random.default_rng(0)

    def draw(tensor: Tensor, normal: bool) -> Array:
        if tensor.dtype is None:
            raise BadInputError(f"input {tensor.name!r} takes {tensor.type_name}, for which no values can be drawn")
        if any(size < 1 for size in tensor.shape):
            raise BadInputError(
                f"input {tensor.name!r} has the shape {list(tensor.shape)}: no fixed size to run it with"
            )
        if tensor.dtype.kind in "iu" and tensor.dtype.itemsize == 1:
            limits = np.iinfo(tensor.dtype)
            return random.integers(limits.min, limits.max, tensor.shape, tensor.dtype, endpoint=True)
        if tensor.dtype.kind != "f":
            return random.integers(0, 2, tensor.shape).astype(tensor.dtype)
        return (random.normal(size=tensor.shape) if normal else random.random(tensor.shape)).astype(tensor.dtype)

    return [[draw(tensor, number == count - 1) for tensor in tensors] for number in range(count)]


def relative_difference(found: Array, wanted: Array) -> float:
    """The largest |difference|, relative to the largest |value| wanted; infinite for another shape, and where either is NaN.

    Infinite values count as equal to themselves.
    """
    if found.shape != wanted.shape:
        return float("inf")
    ours, theirs = found.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.where(ours == theirs, 0.0, np.abs(ours - theirs))
    largest = float(np.abs(theirs[np.isfinite(theirs)]).max(initial=0.0)) or 1.0
    worst = float(apart.max(initial=0.0)) / largest
    return worst if np.isfinite(worst) else float("inf")


def compare_files(path: Path, other: Path, inputs: Sequence[Sequence[Array]]) -> list[float]:
    """Per output, the largest `relative_difference` of `path` from `other` over all inputs.

    Raises:
        WrongNumbersError: one of them does not run, or they have other outputs.
    """
    try:
        ours, theirs = open_file(path), open_file(other)
        pairs = [(run(ours, values), run(theirs, values)) for values in inputs]
    except (RuntimeError, ValueError) as error:
        raise WrongNumbersError(f"the file does not run: {str(error).splitlines()[0]}") from error
    for found, wanted in pairs:
        if [value.shape for value in found] != [value.shape for value in wanted]:
            raise WrongNumbersError("the file has other outputs than before")
    by_output = zip(*(map(relative_difference, found, wanted) for found, wanted in pairs), strict=True)
    return [max(differences) for differences in by_output]


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
