"""PyTorch to ONNX, static batch."""

import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from sparsetorch.errors import BadInputError


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
            f"{str(error).strip().splitlines()[0]}. Give the shape the network was made for with --input-shape C,H,W."
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
    return named


def torch_to_onnx(module: nn.Module, input_shape: tuple[int, ...], path: Path) -> None:
    """Write `module`, in evaluation mode and without masks, as an ONNX file with a fixed input shape.

    Args:
        module: a plain module; see `masking.permanent_copy`.
        input_shape: (N, C, H, W).
        path: where to write.

    Raises:
        BadInputError: where torch.export cannot trace the module.
    """
    image = torch.zeros(input_shape)
    names = [f"output_{index}" for index in range(len(run_outputs(module, image)))]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module,
                (image,),
                str(path),
                input_names=["input"],
                output_names=names,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    except Exception as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BadInputError(
            f"{type(module).__name__} cannot be traced into an ONNX graph: {first}. Control flow that depends on values, "
            "and calls outside torch, have to go from its forward."
        ) from error
