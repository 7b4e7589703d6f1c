"""The road from a module to a file: ONNX, TFLite, names, repairs, sparse encoding, verdict, numbers, rename.

The module is left as it is: weights, masks, mode and random state are not touched. A file appears under its name only
after it has been loaded, run and compared with PyTorch.
"""

import math
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

from sparsetorch.errors import BadInputError, NotEligibleError, WrongNumbersError
from sparsetorch.exporter.interpreter import channels_last
from sparsetorch.exporter.locate import first_difference
from sparsetorch.exporter.names import name_model
from sparsetorch.exporter.numeric_check import TOLERANCE, Reference, check_numbers, check_onnx, reference
from sparsetorch.exporter.onnx_to_tflite import Converter
from sparsetorch.exporter.outcome import ExportReport, encode_safely
from sparsetorch.exporter.staged import StagedFiles, as_file
from sparsetorch.exporter.torch_to_onnx import check_size, torch_to_onnx
from sparsetorch.files import check_writable, disk_errors
from sparsetorch.masking import permanent_copy
from sparsetorch.sparsify.magnitude import magnitude_mask
from sparsetorch.sparsify.mask import check_sparsity
from sparsetorch.sparsify.policy import Conv1x1
from sparsetorch.tflite import Model, Storage, from_bytes
from sparsetorch.tflite.passes import Note, repair
from sparsetorch.tflite.unique_names import make_names_unique
from sparsetorch.xnnpack import DEFAULT_TARGETS, verify


def export(
    module: nn.Module,
    path: str | os.PathLike[str],
    input_shape: Sequence[int],
    *,
    dense_twin: bool | str | os.PathLike[str] = False,
    sparsity: float | None = None,
    storage: Storage | None = None,
    encode: bool = True,
    targets: Sequence[str] = DEFAULT_TARGETS,
    progress: Callable[[str], None] = lambda stage: None,
) -> ExportReport:
    """Convert `module` to a .tflite whose sparse 1x1 convolution weights are stored compressed.

    Args:
        module: a PyTorch network or LightningModule, masked or not; taken in evaluation mode.
        path: the file to write.
        input_shape: (C, H, W), or (N, C, H, W); the batch is fixed, at 1 by default.
        dense_twin: also write the same weights without sparse encoding, for comparison and for runtimes that do not
            know DENSIFY: True puts it beside `path` as NAME.dense.tflite.
        sparsity: prune the 1x1 convolutions by magnitude in one shot first, to try things; accuracy is not looked at.
        storage: what weights are stored as; None: float32. The dense twin is float32 always.
        encode: leave zeros out; False writes a dense file.
        targets: what the verdict is about.
        progress: called with the name of every stage.

    Raises:
        BadInputError: an input that does not fit, a network that cannot be converted, a path that cannot be written.
        WrongNumbersError: the converted file differs from PyTorch; nothing is written then.
    """
    shape = batched(input_shape)
    target = check_writable(Path(path))
    twin = _twin_path(target, dense_twin)
    check_size(module)
    plain = permanent_copy(module).eval().cpu().float()
    if sparsity is not None:
        prune_once(plain, sparsity)
    progress("PyTorch")
    expected = reference(plain, shape)
    with tempfile.TemporaryDirectory(prefix="sparsetorch-") as folder, Converter() as converter:
        onnx = Path(folder, "model.onnx")
        progress("ONNX")
        with disk_errors(onnx):
            torch_to_onnx(plain, shape, onnx)
        onnx_errors = check_onnx(onnx, expected)
        progress("TFLite")
        (content,) = converter.convert(onnx)
    dense = from_bytes(content, "the converted model")
    progress("repairs")
    name_model(dense, plain, shape)
    converted = dense.copy()
    repairs = repair(dense)
    make_names_unique(dense.graphs[0])
    progress("sparse encoding")
    chosen = Storage() if storage is None else storage
    sparse, encoded, refused = encode_safely(dense, chosen, leave_zeros_out=encode)
    progress("comparison with PyTorch")
    inputs = [[channels_last(image)] for image in expected.inputs]
    try:
        with StagedFiles() as files:
            twin_file = None
            if twin is not None:
                twin_file = files.write(dense, twin, Storage(), inputs, lambda file: check_numbers(file, expected))
            elif chosen.rounds:  # nothing else would tell a wrong conversion from what rounding costs
                with as_file(dense) as file:
                    check_numbers(file, expected)
            # What rounding costs is told and not judged.
            allowed = math.inf if chosen.rounds else TOLERANCE
            model_file = files.write(
                sparse, target, chosen, inputs, lambda file: check_numbers(file, expected, allowed)
            )
    except WrongNumbersError as error:
        raise WrongNumbersError(f"{error} {_cause(plain, converted, expected, repairs)}") from error
    return ExportReport(
        model_file, twin_file, encoded, verify(target, targets), repairs, refused, onnx_errors=tuple(onnx_errors)
    )


def batched(input_shape: Sequence[int]) -> tuple[int, ...]:
    """(N, C, H, W) of what a user gives, N 1 where it is left out.

    Raises:
        BadInputError: anything else.
    """
    shape = tuple(input_shape)
    if len(shape) == 3:
        shape = (1, *shape)
    if len(shape) != 4 or any(not isinstance(size, int) or size < 1 for size in shape):
        raise BadInputError(f"input shape: found {tuple(input_shape)}, needed C,H,W or N,C,H,W, such as 3,224,224")
    return shape


def _twin_path(path: Path, dense_twin: bool | str | os.PathLike[str]) -> Path | None:
    if dense_twin is False:
        return None
    twin = path.with_name(f"{path.stem}.dense{path.suffix}") if dense_twin is True else Path(dense_twin)
    if twin == path:
        raise BadInputError(f"{path}: the dense twin has the name of the model itself")
    return check_writable(twin)


def prune_once(module: nn.Module, sparsity: float) -> None:
    """Prune a plain network's 1x1 convolutions by magnitude, in place.

    Raises:
        BadInputError: a sparsity outside [0, 1).
        NotEligibleError: no such layer.
    """
    check_sparsity(sparsity)
    layers = Conv1x1().select(module)
    if not layers:
        raise NotEligibleError(f"sparsity: {type(module).__name__} has no 1x1 convolution to prune")
    with torch.no_grad():
        for layer in layers.values():
            weight = layer.get_parameter("weight")
            weight.masked_fill_(~magnitude_mask(weight, sparsity), 0.0)


def _cause(module: nn.Module, converted: Model, expected: Reference, repairs: tuple[Note, ...]) -> str:
    """Where the numbers went wrong: in a repair, or in which layer of what the converter made."""
    with as_file(converted) as file:
        try:
            check_numbers(file, expected)
        except WrongNumbersError:
            told = first_difference(module, file, expected.inputs[-1])
            return f"In what the converter made, {told or 'every layer agrees: it is what follows the last one'}."
    applied = ", ".join(dict.fromkeys(note.repair for note in repairs if note.applied))
    return f"What the converter made is right; a repair ({applied or 'none ran'}) or the encoding is not: please report it."
