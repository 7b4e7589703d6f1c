"""Encode a .tflite file that something else has made: Keras, TFMOT, another converter. Needs neither torch nor TensorFlow."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from sparsetorch.errors import BadInputError, WrongNumbersError
from sparsetorch.exporter.interpreter import Array, compare_files, open_file, random_inputs
from sparsetorch.exporter.outcome import ExportReport, described, encode_safely
from sparsetorch.exporter.staged import StagedFiles, as_file
from sparsetorch.files import check_writable
from sparsetorch.tflite import Storage, decode, load, main_values
from sparsetorch.tflite.passes import repair
from sparsetorch.tflite.sense import expect_sense
from sparsetorch.xnnpack import DEFAULT_TARGETS, verify

_TOLERANCE = 1e-4
"""Largest |difference| from the file as it came, where values are not rounded."""


def encode(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    storage: Storage | None = None,
    repairs: bool = True,
    targets: Sequence[str] = DEFAULT_TARGETS,
    progress: Callable[[str], None] = lambda stage: None,
) -> ExportReport:
    """Write a .tflite file again with the zeros of its float weights left out.

    Weights that are stored sparse, or as float16 or int8 constants, are unpacked first. Operators that this package does not
    know are kept as they are.

    Args:
        source: the file to encode.
        path: the file to write.
        storage: what weights are stored as; None: float32.
        repairs: rewrite the graph into an equal one that XNNPACK's sparse path takes, where that can be done.
        targets: what the verdict is about. One that does not know DENSIFY gets a dense file.
        progress: called with the name of every stage.

    Raises:
        BadInputError: no TFLite file, one that LiteRT does not run, or a path that cannot be written.
        WrongNumbersError: the new file computes something else; nothing is written then.
    """
    source, target = Path(source), Path(path)
    check_writable(target)
    progress("reading")
    before = load(source)
    chosen = Storage() if storage is None else storage
    with expect_sense(source):
        plain = decode(before)
        progress("repairs")
        notes = repair(plain) if repairs else ()
        progress("sparse encoding")
        model, encoded, refused = encode_safely(plain, chosen, targets)
        inputs = random_inputs(before.graphs[0].inputs)
    progress("comparison with the file as it came")
    try:
        open_file(source)
    except (RuntimeError, ValueError) as error:
        first = str(error).splitlines()[0]
        raise BadInputError(f"{source}: LiteRT does not load it ({first}), so nothing can be compared") from None
    if chosen.rounds:  # nothing else would tell a wrong repair from what rounding costs
        with as_file(plain) as repaired:
            _check(repaired, source, inputs)
    check = compare_files if chosen.rounds else _check
    came = described(str(source), source.read_bytes(), (), main_values(before.tensors))  # before it may be written over
    with StagedFiles() as files:
        written = files.write(model, target, chosen, inputs, lambda file: check(file, source, inputs))
    return ExportReport(written, None, encoded, verify(target, targets), notes, refused, came)


def _check(path: Path, source: Path, inputs: Sequence[Sequence[Array]]) -> list[float]:
    errors = compare_files(path, source, inputs)
    if not max(errors, default=0.0) <= _TOLERANCE:
        raise WrongNumbersError(
            f"{source}: encoded, it differs from what it was by {max(errors):.1e} (relative; allowed {_TOLERANCE:.0e}). "
            "Nothing was written."
        )
    return errors
