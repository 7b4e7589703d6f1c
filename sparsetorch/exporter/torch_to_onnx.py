"""PyTorch to ONNX, static batch."""

import contextlib
import gc
import importlib.util
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from sparsetorch.errors import BadInputError
from sparsetorch.exporter.conversion_errors import tracing_failure

_NEEDED = ("onnx", "onnxscript")
_LARGEST = 2**31
"""Bytes; what a flatbuffer, and so a .tflite, can hold."""


def run_outputs(module: nn.Module, image: Tensor) -> list[Tensor]:
    """The outputs of `module` in order, whatever it returns: a tensor, a list or tuple, or a dictionary of them.

    Raises:
        BadInputError: where the input's shape does not fit the module, or an output is no tensor.
    """
    return list(_named_outputs(module, image).values())


def output_names(module: nn.Module, input_shape: tuple[int, ...]) -> list[str]:
    """What the outputs are called: the keys of a dictionary, fields of a named tuple, else output_0, output_1, ..."""
    return list(_named_outputs(module, torch.zeros(input_shape)))


def _named_outputs(module: nn.Module, image: Tensor) -> dict[str, Tensor]:
    try:
        with torch.no_grad():
            result = module(image)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise BadInputError(
            f"{type(module).__name__} does not run on an input of shape {tuple(image.shape)}: "
            f"{str(error).strip().splitlines()[0]}. Give the shape the network was made for with --input-shape C,H,W; "
            "an exported network takes one float32 input of that shape."
        ) from error
    if isinstance(result, dict):
        named = {str(key): value for key, value in result.items()}
    elif isinstance(result, tuple) and hasattr(result, "_asdict"):
        named = dict(result._asdict())
    else:
        parts = list(result) if isinstance(result, list | tuple) else [result]
        named = {f"output_{index}": value for index, value in enumerate(parts)}
    values = list(named.values())
    if not values or not all(isinstance(value, Tensor) for value in values):
        kinds = ", ".join(type(value).__name__ for value in values) or "nothing"
        raise BadInputError(
            f"{type(module).__name__} returns {kinds}; needed a tensor, or a list or dictionary of tensors"
        )
    if found := next((name for name, value in named.items() if value.is_complex()), None):
        raise BadInputError(f"{type(module).__name__}: {found} is complex; return its real and imaginary parts instead")
    return named


def check_size(module: nn.Module) -> None:
    """Refuse a network that no .tflite can hold, before time is spent on it.

    Raises:
        BadInputError: float32 weights of 2 GiB or more.
    """
    size = 4 * sum(parameter.numel() for parameter in module.parameters())
    if size >= _LARGEST:
        raise BadInputError(
            f"{type(module).__name__}: found {size / 1e9:.1f} GB of float32 weights; a .tflite holds less than "
            f"{_LARGEST / 1e9:.1f} GB"
        )


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """The tracer writes pages about what it could not trace; the error says it in one sentence."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """The tracer makes objects by the million, and a seventh of its time went into looking for cycles among them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def torch_to_onnx(module: nn.Module, input_shape: tuple[int, ...], path: Path) -> None:
    """Write `module`, in evaluation mode and without masks, as an ONNX file with a fixed input shape.

    Args:
        module: a plain module; see `masking.permanent_copy`.
        input_shape: (N, C, H, W).
        path: where to write.

    Raises:
        BadInputError: where torch.export cannot trace the module, a size in its outputs depends on values, or onnx is missing.
        OSError: where the file cannot be written.
    """
    if missing := [name for name in _NEEDED if importlib.util.find_spec(name) is None]:
        raise BadInputError(
            f"{missing[0]} is not installed; needed: pip install 'sparsetorch[export]', in one call with the rest"
        )
    image = torch.zeros(input_shape)
    names = [f"output_{index}" for index in range(len(run_outputs(module, image)))]
    try:
        with _silent(), _without_garbage_collection():
            program = torch.onnx.export(
                module,
                (image,),
                str(path),
                input_names=["input"],
                output_names=names,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    except OSError:
        raise
    except Exception as error:
        with _silent():
            told = tracing_failure(module, image, error)
        raise BadInputError(told) from error
    for name, value in zip(names, program.model.graph.outputs, strict=True):  # type: ignore[union-attr]
        if value.shape is None or not all(isinstance(size, int) for size in value.shape):
            raise BadInputError(
                f"{type(module).__name__}: the size of {name} depends on the values of the input; TFLite files have fixed sizes. "
                "Return all values and a mask, and choose among them outside the network."
            )
