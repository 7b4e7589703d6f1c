"""The numbers that a runtime has to give: those of the same weights stored densely, in LiteRT's own kernels on this computer.

Without sparse encoding and without XNNPACK no error of the sparse path, of the encoding or of DENSIFY can be in both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sparsetorch.exporter.interpreter import Array
from sparsetorch.runtime import host
from sparsetorch.runtime.model_io import outputs_of, read_outputs, relative_error
from sparsetorch.runtime.worker import ModelJob, ModelResult
from sparsetorch.tflite import decode, save


@dataclass(frozen=True)
class Reference:
    """Outputs of one model for each set of inputs, or why there are none."""

    outputs: list[list[Array]]
    failure: str | None = None
    noise: float = 0.0
    """Relative difference between these and the outputs of XNNPACK's dense kernels: what another order of the same sums costs
    this network. Networks whose activations grow from layer to layer cancel them at the end, and have much of it."""


def references(jobs: Sequence[ModelJob], folder: Path) -> list[Reference]:
    """Run every model, decoded, on its inputs.

    Raises:
        BadInputError: damaged sparsity metadata.
        CannotObserveError: LiteRT does not start.
    """
    decoded = _decoded(jobs, folder)
    made = []
    plain, dense = host.run_plain(decoded, folder).models, host.run(decoded, folder).models
    for job, found, again in zip(decoded, plain, dense, strict=True):
        outputs = [read_outputs(outputs_of(job.model), one) for one in found.outputs]
        whole = [one for one in outputs if one is not None]
        if found.failure is not None or len(whole) != len(job.inputs):
            made.append(Reference([], failure=found.failure or "its outputs do not have the file's shapes"))
        else:
            made.append(Reference(whole, noise=_noise(job, whole, again)))
    return made


def denormal_share(job: ModelJob, folder: Path) -> float:
    """Share of denormal numbers among all values that a model computes; 0 where it does not run.

    Raises:
        BadInputError: damaged sparsity metadata.
        CannotObserveError: LiteRT does not start.
    """
    return host.run_plain(_decoded([job], folder), folder, denormals=True).models[0].denormal or 0.0


def _decoded(jobs: Sequence[ModelJob], folder: Path) -> list[ModelJob]:
    made = [
        ModelJob(folder / f"decoded-{number}.tflite", decode(job.model), job.inputs) for number, job in enumerate(jobs)
    ]
    for job in made:
        save(job.model, job.path)
    return made


def _noise(job: ModelJob, expected: list[list[Array]], again: ModelResult) -> float:
    """0 where the second run says nothing."""
    if again.failure is not None or len(again.outputs) != len(expected):
        return 0.0
    slots = outputs_of(job.model)
    errors = [
        relative_error(read_outputs(slots, one), wanted) for one, wanted in zip(again.outputs, expected, strict=True)
    ]
    return max(errors, default=0.0)
