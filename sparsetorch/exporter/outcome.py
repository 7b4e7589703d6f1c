"""What an export or an encoding comes to, and the rule that no file goes out which a device would compute wrongly."""

import contextlib
import gzip
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sparsetorch.exporter.interpreter import Array, check_storage
from sparsetorch.files import write_atomically
from sparsetorch.tflite import EncodedTensor, Model, Storage, decode, encode, to_bytes
from sparsetorch.tflite.passes import Note
from sparsetorch.xnnpack import TARGETS, Verdict, verify


@dataclass(frozen=True)
class ExportedFile:
    """A written file."""

    path: str
    bytes: int
    gzip_bytes: int
    errors: tuple[float, ...]
    """Per output, the largest difference from PyTorch (or the file encoded) relative to the largest value; of itself none."""
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
    original: ExportedFile | None = None
    """The file that was encoded; None for an export."""
    onnx_errors: tuple[float, ...] = ()
    """Per output, the largest difference of the ONNX graph from PyTorch; empty where there was none."""
    quantized: dict[str, Any] | None = None
    """Of a quantized file written beside it: what `sparsetorch quantize --json` says."""

    @property
    def meant_sparse(self) -> bool:
        """Whether any weight was encoded, or would have been had it been safe."""
        return bool(self.refused) or any(tensor.encoding == "sparse" and tensor.pointwise for tensor in self.encoded)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python types, for `--json`: the fields of `verify --json`, `sizes`, `errors`, `files`, `refused`."""
        named = {"original": self.original, "model": self.model, "dense_twin": self.dense_twin}
        files = {name: file for name, file in named.items() if file is not None}
        return {
            **self.verdict.to_dict(),
            "files": {name: file.path for name, file in files.items()},
            "sizes": {name: {"raw": file.bytes, "gzip": file.gzip_bytes} for name, file in files.items()},
            "errors": {name: list(file.errors) for name, file in files.items()},
            "onnx_errors": list(self.onnx_errors),
            "repairs": [asdict(note) for note in self.repairs],
            "refused": list(self.refused),
            "quantized": self.quantized,
        }


@contextlib.contextmanager
def as_file(model: Model) -> Iterator[Path]:
    """A model as a temporary file, for what wants one."""
    with tempfile.TemporaryDirectory(prefix="sparsetorch-") as folder:
        path = Path(folder, "model.tflite")
        path.write_bytes(to_bytes(model))
        yield path


def write_checked(
    model: Model, path: Path, storage: Storage, inputs: Sequence[Sequence[Array]], check: Callable[[Path], list[float]]
) -> ExportedFile:
    """Write a model under a trial name beside `path`, have that very file checked, then give it its name.

    Args:
        model: what to write.
        path: its name.
        storage: what its weights are stored as; where that rounds them, the file must compute what its rounded weights say.
        inputs: sets of inputs for that.
        check: gives the errors of a file, per output; raises where they are too large.

    Raises:
        WrongNumbersError: the file computes something else; nothing is written then.
    """
    content = to_bytes(model)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        trial = Path(folder, "trial.tflite")
        trial.write_bytes(content)
        if storage.rounds:
            with as_file(decode(model)) as plain:
                check_storage(trial, plain, inputs)
        errors = check(trial)
    write_atomically(path, content)
    return described(str(path), content, errors, storage.values)


def described(path: str, content: bytes, errors: Sequence[float], values: str) -> ExportedFile:
    """The record of a file's content."""
    return ExportedFile(path, len(content), len(gzip.compress(content, 9, mtime=0)), tuple(errors), values)


def encode_safely(
    dense: Model, storage: Storage, targets: Sequence[str] = (), leave_zeros_out: bool = True
) -> tuple[Model, tuple[EncodedTensor, ...], tuple[str, ...]]:
    """Encode a copy of `dense`, without leaving zeros out where that would make a device compute wrong numbers.

    Args:
        dense: not changed.
        storage: what weights are stored as.
        targets: where the file must load, beside all targets that know the encoding.
        leave_zeros_out: False stores every weight dense.

    Returns:
        the model, what became of each weight, and why zeros were not left out (empty where they were, or nothing had any).
    """
    model = dense.copy()
    encoded = encode(model, None if leave_zeros_out else lambda tensor: False, storage)
    refused = unsafe_reasons(model, targets)
    if refused:  # values are stored small all the same
        model = dense.copy()
        encoded = encode(model, lambda tensor: False, storage)
    return model, tuple(encoded), refused


def unsafe_reasons(model: Model, targets: Sequence[str] = ()) -> tuple[str, ...]:
    """Why the encoded model would compute wrong numbers, or not load, on some target; empty where it is right on all.

    All targets that know the encoding are asked, not those of the verdict alone: a file travels. Those given are asked as well.
    """
    knowing = [name for name, target in TARGETS.items() if target.knows_densify]
    verdict = verify(model, [*knowing, *targets])
    return tuple(dict.fromkeys(target.why_not or "" for target in verdict.targets.values() if target.unsafe))
