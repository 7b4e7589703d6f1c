"""The road from a module to a file: ONNX, TFLite, names, sparse encoding, verdict, numbers, rename.

The module is left as it is: weights, masks, mode and random state are not touched. A file appears under its name only
after it has been loaded, run and compared with PyTorch.
"""

import gzip
import math
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sparsetorch.errors import BadInputError, NotEligibleError, WrongNumbersError
from sparsetorch.exporter.names import name_weights
from sparsetorch.exporter.numeric_check import TOLERANCE, Reference, check_numbers, check_storage, reference
from sparsetorch.exporter.onnx_to_tflite import onnx_to_tflite
from sparsetorch.exporter.torch_to_onnx import torch_to_onnx
from sparsetorch.files import write_atomically
from sparsetorch.masking import permanent_copy
from sparsetorch.sparsify.magnitude import magnitude_mask
from sparsetorch.sparsify.mask import check_sparsity
from sparsetorch.sparsify.policy import Conv1x1
from sparsetorch.tflite import EncodedTensor, Model, Storage, decode, encode, from_bytes, to_bytes
from sparsetorch.tflite.passes import Note, repair
from sparsetorch.xnnpack import DEFAULT_TARGETS, TARGETS, Verdict, verify


@dataclass(frozen=True)
class ExportedFile:
    """A written file."""

    path: str
    bytes: int
    gzip_bytes: int
    errors: tuple[float, ...]
    """Per output, the largest difference from PyTorch relative to its largest value."""
    values: str = "float32"
    """What weights are stored as: `float32`, `float16` or `int8`."""


@dataclass(frozen=True)
class ExportReport:
    """What an export did."""

    model: ExportedFile
    dense_twin: ExportedFile | None
    """The same weights without sparse encoding."""
    encoded: tuple[EncodedTensor, ...]
    """Every weight, encoded or not, with the reason where not."""
    verdict: Verdict
    """On the file at `model`."""
    repairs: tuple[Note, ...]
    """How the converted graph was rewritten into an equal one, and what was left as it was."""
    refused: tuple[str, ...]
    """Why the file is dense although its weights hold zeros; empty where it is encoded or had nothing to encode."""

    @property
    def meant_sparse(self) -> bool:
        """Whether any weight was encoded, or would have been had it been safe."""
        return bool(self.refused) or any(tensor.encoding == "sparse" and tensor.pointwise for tensor in self.encoded)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python types, for `--json`: the fields of `verify --json`, `sizes`, `errors`, `files`, `refused`."""
        files = {"model": self.model} | ({} if self.dense_twin is None else {"dense_twin": self.dense_twin})
        return {
            **self.verdict.to_dict(),
            "files": {name: file.path for name, file in files.items()},
            "sizes": {name: {"raw": file.bytes, "gzip": file.gzip_bytes} for name, file in files.items()},
            "errors": {name: list(file.errors) for name, file in files.items()},
            "repairs": [asdict(note) for note in self.repairs],
            "refused": list(self.refused),
        }


def export(
    module: nn.Module,
    path: str | os.PathLike[str],
    input_shape: Sequence[int],
    *,
    dense_twin: bool | str | os.PathLike[str] = False,
    sparsity: float | None = None,
    storage: Storage | None = None,
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
        targets: what the verdict is about.
        progress: called with the name of every stage.

    Raises:
        BadInputError: an input that does not fit, a network that cannot be converted, a path that cannot be written.
        WrongNumbersError: the converted file differs from PyTorch; nothing is written then.
    """
    shape = _batched(input_shape)
    target = _writable(Path(path))
    twin = _twin_path(target, dense_twin)
    plain = permanent_copy(module).eval().cpu().float()
    if sparsity is not None:
        _prune_once(plain, sparsity)
    progress("PyTorch")
    expected = reference(plain, shape)
    with tempfile.TemporaryDirectory(prefix="sparsetorch-") as folder:
        progress("ONNX")
        torch_to_onnx(plain, shape, Path(folder, "model.onnx"))
        progress("TFLite")
        dense = from_bytes(onnx_to_tflite(Path(folder, "model.onnx")), "the converted model")
    progress("repairs")
    name_weights(dense.graphs[0], plain)
    repairs = repair(dense)
    progress("sparse encoding")
    chosen = Storage() if storage is None else storage
    sparse = dense.copy()
    encoded = tuple(encode(sparse, storage=chosen))
    refused = _unsafe(sparse)
    if refused:  # the values are stored small all the same
        sparse = dense.copy()
        encoded = tuple(encode(sparse, lambda tensor: False, chosen))
    progress("comparison with PyTorch")
    try:
        with tempfile.TemporaryDirectory(prefix="sparsetorch-") as folder:
            check_numbers(_trial(dense, Path(folder, "dense.tflite")), expected)
            twin_file = None if twin is None else _write(dense, twin, expected)
            model_file = _write(sparse, target, expected, chosen)
    except WrongNumbersError as error:
        applied = dict.fromkeys(note.repair for note in repairs if note.applied)
        raise WrongNumbersError(f"{error} Repairs that ran: {', '.join(applied) or 'none'}") from error
    return ExportReport(model_file, twin_file, encoded, verify(target, targets), repairs, refused)


def _batched(input_shape: Sequence[int]) -> tuple[int, ...]:
    shape = tuple(input_shape)
    if len(shape) == 3:
        shape = (1, *shape)
    if len(shape) != 4 or any(not isinstance(size, int) or size < 1 for size in shape):
        raise BadInputError(f"input shape: found {tuple(input_shape)}, needed C,H,W or N,C,H,W, such as 3,224,224")
    return shape


def _writable(path: Path) -> Path:
    """Refuse a place that cannot be written before minutes are spent on it."""
    if path.is_dir():
        raise BadInputError(f"{path}: found a folder, needed the name of the file to write, such as model.tflite")
    if not path.parent.is_dir():
        raise BadInputError(f"{path}: its folder {path.parent} does not exist; make it first")
    if not os.access(path.parent, os.W_OK):
        raise BadInputError(f"{path}: its folder {path.parent} cannot be written")
    return path


def _twin_path(path: Path, dense_twin: bool | str | os.PathLike[str]) -> Path | None:
    if dense_twin is False:
        return None
    twin = path.with_name(f"{path.stem}.dense{path.suffix}") if dense_twin is True else Path(dense_twin)
    if twin == path:
        raise BadInputError(f"{path}: the dense twin has the name of the model itself")
    return _writable(twin)


def _prune_once(module: nn.Module, sparsity: float) -> None:
    check_sparsity(sparsity)
    layers = Conv1x1().select(module)
    if not layers:
        raise NotEligibleError(f"sparsity: {type(module).__name__} has no 1x1 convolution to prune")
    with torch.no_grad():
        for layer in layers.values():
            weight = layer.get_parameter("weight")
            weight.masked_fill_(~magnitude_mask(weight, sparsity), 0.0)


def _unsafe(model: Model) -> tuple[str, ...]:
    """Why the encoded model would compute wrong numbers on some target; empty where it is right on all.

    All targets that know the encoding are asked, not those of the verdict alone: a file travels.
    """
    verdict = verify(model, [name for name, target in TARGETS.items() if target.knows_densify])
    return tuple(dict.fromkeys(target.why_not or "" for target in verdict.targets.values() if target.unsafe))


def _write(model: Model, path: Path, expected: Reference, storage: Storage | None = None) -> ExportedFile:
    """Write beside `path`, load and compare that very file, then rename it into place.

    Values rounded to float16 or int8 differ from PyTorch by what the rounding costs, which is told and not judged. What is
    proven of such a file is that it computes what its rounded weights say.
    """
    content = to_bytes(model)
    values = "float32" if storage is None else storage.values
    rounded = storage is not None and (storage.values, storage.dense) != ("float32", "float32")
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        trial = Path(folder, "trial.tflite")
        trial.write_bytes(content)
        if rounded:
            check_storage(trial, _trial(decode(model), Path(folder, "plain.tflite")), expected.inputs)
        errors = check_numbers(trial, expected, math.inf if rounded else TOLERANCE)
    write_atomically(path, content)
    return ExportedFile(str(path), len(content), len(gzip.compress(content, 9, mtime=0)), tuple(errors), values)


def _trial(model: Model, path: Path) -> Path:
    path.write_bytes(to_bytes(model))
    return path
