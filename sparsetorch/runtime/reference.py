"""The numbers that a runtime has to give: those of the same weights stored densely, in LiteRT's own kernels on this computer.

Without sparse encoding and without XNNPACK no error of the sparse path, of the encoding or of DENSIFY can be in both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sparsetorch.exporter.interpreter import Array
from sparsetorch.runtime import host
from sparsetorch.runtime.model_io import outputs_of, read_outputs
from sparsetorch.runtime.worker import ModelJob
from sparsetorch.tflite import decode, save


@dataclass(frozen=True)
class Reference:
    """Outputs of one model for each set of inputs, or why there are none."""

    outputs: list[list[Array]]
    denormal: float = 0.0
    """Share of denormal numbers among all values that the model computes, of the worst set: they are slow everywhere."""
    failure: str | None = None


def references(jobs: Sequence[ModelJob], folder: Path) -> list[Reference]:
    """Run every model, decoded, on its inputs.

    Raises:
        BadInputError: damaged sparsity metadata.
        CannotObserveError: LiteRT does not start.
    """
    decoded = [
        ModelJob(folder / f"decoded-{number}.tflite", decode(job.model), job.inputs) for number, job in enumerate(jobs)
    ]
    for job in decoded:
        save(job.model, job.path)
    made = []
    for job, found in zip(decoded, host.run_plain(decoded, folder).models, strict=True):
        outputs = [read_outputs(outputs_of(job.model), one) for one in found.outputs]
        whole = [one for one in outputs if one is not None]
        if found.failure is not None or len(whole) != len(job.inputs):
            made.append(Reference([], failure=found.failure or "its outputs do not have the file's shapes"))
        else:
            made.append(Reference(whole, found.denormal or 0.0))
    return made
