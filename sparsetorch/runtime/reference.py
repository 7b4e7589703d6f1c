"""The numbers that a runtime has to give: those of this computer's LiteRT without XNNPACK.

Its own kernels unpack sparse weights and never take the sparse path, on any processor, so an error of that path cannot be in
both.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sparsetorch.errors import BadInputError
from sparsetorch.runtime.model_io import Array, outputs_of, read_outputs
from sparsetorch.runtime.worker import ModelJob, run_worker

HOST_WORKER = (sys.executable, "-m", "sparsetorch.runtime.host_worker")


@dataclass(frozen=True)
class Reference:
    """Outputs of one model for each set of inputs, or why there are none."""

    outputs: list[list[Array]]
    denormal: float = 0.0
    """Share of denormal numbers among all values that the model computes, of the worst set."""
    failure: str | None = None


def references(jobs: Sequence[ModelJob], folder: Path) -> list[Reference]:
    """Run every model on its inputs."""
    result = run_worker(list(HOST_WORKER), jobs, folder, extra={"delegate": False, "denormals": True})
    made = []
    for job, found in zip(jobs, result.models, strict=True):
        outputs = [read_outputs(outputs_of(job.model), one) for one in found.outputs]
        whole = [one for one in outputs if one is not None]
        if found.failure is not None or len(whole) != len(job.inputs):
            made.append(Reference([], failure=found.failure or "its outputs do not have the file's shapes"))
        else:
            made.append(Reference(whole, found.denormal or 0.0))
    return made


def reference(job: ModelJob, folder: Path) -> Reference:
    """Run one model.

    Raises:
        BadInputError: it does not run here.
    """
    (found,) = references([job], folder)
    if found.failure is not None:
        raise BadInputError(f"{job.path}: LiteRT does not run it on this computer ({found.failure}), so nothing can be compared")
    return found
