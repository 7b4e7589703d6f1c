"""The files that a measurement compares: what each is in words, and one network in every precision."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparsetorch.errors import BadInputError
from sparsetorch.exporter.outcome import encode_safely
from sparsetorch.latency.result import stored_as
from sparsetorch.runtime.prediction import computes_in_integers
from sparsetorch.runtime.worker import ModelJob
from sparsetorch.tflite import VALUES, Model, Storage, decode, load, main_values, save

INTEGER_LABEL = "dense int8, integer compute"


@dataclass(frozen=True)
class Variant:
    """A file to time."""

    job: ModelJob
    label: str


def read_variants(paths: Sequence[Path]) -> list[Variant]:
    """Files with what they are in words; their names where that does not tell them apart.

    Raises:
        BadInputError: no TFLite file, or inputs for which no values can be drawn.
    """
    jobs = [ModelJob.read(path, sets=1) for path in paths]
    labels = [label(job.model) for job in jobs]
    twice = {name for name, count in Counter(labels).items() if count > 1}
    return [
        Variant(job, f"{name}: {job.path.name}" if name in twice else name)
        for job, name in zip(jobs, labels, strict=True)
    ]


def label(model: Model) -> str:
    """`sparse float16`, `sparse int8-stored`, `dense float32`, `dense int8, integer compute`."""
    if computes_in_integers(model):
        return INTEGER_LABEL
    encoding = "sparse" if any(tensor.sparsity is not None for tensor in model.tensors) else "dense"
    return stored_as(encoding, main_values(model.tensors))


def dense_twin(path: Path) -> Path | None:
    """`X.dense.tflite` beside `X.tflite`, as `export --dense-twin` writes it; None where there is none."""
    if path.name.endswith(".dense.tflite"):
        return None
    twin = path.with_suffix(".dense.tflite")
    return twin if twin.is_file() else None


def write_precisions(
    path: Path, folder: Path, progress: Callable[[str], None] = lambda stage: None
) -> tuple[list[Path], list[str]]:
    """One network in every precision: dense float32, sparse float32, float16 and int8-stored, and dense integer int8.

    The last is calibrated on random images: its latency is real, its numbers are nobody's.

    Args:
        path: any float file of the network.
        folder: where to.
        progress: called with the name of every stage.

    Returns:
        the files, dense float32 first, and what is to be said of them.

    Raises:
        BadInputError: no TFLite file, or one that computes in integers.
    """
    model = load(path)
    if computes_in_integers(model):
        raise BadInputError(
            f"{path} computes in integers; give a float file, whose weights can be stored in every precision"
        )
    plain = decode(model)
    dense = folder / f"{path.stem}.dense-float32.tflite"
    save(plain, dense)
    made, notes = [dense], []
    for values in VALUES:
        progress(stored_as("sparse", values))
        encoded, _, refused = encode_safely(plain, Storage(values))
        if refused:
            notes.append(f"{stored_as('sparse', values)} is left out, devices would compute it wrongly: {refused[0]}")
            continue
        made.append(folder / f"{path.stem}.sparse-{values}.tflite")
        save(encoded, made[-1])
    progress(INTEGER_LABEL)
    try:
        made.append(_integer(dense, plain, folder))
        notes.append(f"{INTEGER_LABEL}: calibrated on random images, so its times count and its numbers do not")
    except BadInputError as error:
        notes.append(f"dense int8 with integer compute is left out: {error}")
    return made, notes


def _integer(dense: Path, plain: Model, folder: Path) -> Path:
    from sparsetorch.exporter.quantize import quantize

    shapes = [tensor.shape for tensor in plain.graphs[0].inputs]
    random = np.random.default_rng(0)
    images = [random.random(shapes[0]).astype(np.float32) for _ in range(4)]
    target = folder / f"{dense.stem.removesuffix('.dense-float32')}.dense-int8.tflite"
    quantize(dense, target, "full-int8", images=images)
    return target
