"""What an export or an encoding comes to, and the rule that no file goes out which a device would compute wrongly."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sparsetorch.files import gzipped_size
from sparsetorch.tflite import EncodedTensor, Model, Storage, encode
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


def described(path: str, content: bytes, errors: Sequence[float], values: str) -> ExportedFile:
    """The record of a file's content."""
    return ExportedFile(path, len(content), gzipped_size(content), tuple(errors), values)


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
