"""One model in one engine against what the rules and the reference say."""

from collections.abc import Sequence
from dataclasses import dataclass

from sparsetorch.runtime.model_io import outputs_of, read_outputs, relative_error
from sparsetorch.runtime.observation import Counts
from sparsetorch.runtime.prediction import Prediction, computes_in_integers, count_operators, predict
from sparsetorch.runtime.reference import Reference
from sparsetorch.runtime.worker import ModelJob, ModelResult
from sparsetorch.xnnpack.revisions import Revision

FLOAT_TOLERANCE = 1e-4
"""Largest relative error of right numbers: sums in another order cost 1e-7 to 1e-6, a wrong layout 1e-2 and more."""
_NOISE_FACTOR, _MOST_NOISE = 4, 5e-3
"""Of a network that is sensitive to the order of its sums four times that is right (`Reference.noise`), up to half of what the
mildest wrong layout costs."""
INTEGER_TOLERANCE = 0.1
"""The same where integers are computed with: runtimes round differently, by a step or two in each layer."""


@dataclass(frozen=True)
class Comparison:
    """What an engine (a runtime with its XNNPACK) did with a model, and what was expected of it."""

    engine: str
    prediction: Prediction | None
    """What the rules of its revision say; None where it has no sparse path, whatever the model."""
    operators: dict[str, int]
    counts: Counts | None
    """None where the engine names no operators, or does not load the file."""
    error: float | None
    """Relative error; None where it does not load the file."""
    tolerance: float
    failure: str | None = None

    @property
    def right(self) -> bool:
        """Whether it loads the file and gives the reference's numbers."""
        return self.error is not None and self.error <= self.tolerance

    @property
    def disagreements(self) -> tuple[str, ...]:
        """Where it did otherwise than the rules say, in words."""
        found = []
        unsafe = self.prediction is not None and bool(self.prediction.unsafe)
        if not self.right and not unsafe:
            found.append(f"{self.engine}: {self.trouble}, where the rules expect right ones")
        if self.prediction is not None and self.right and unsafe:
            found.append(
                f"{self.engine}: right numbers (relative error {self.error:.1e}), where the rules expect wrong ones: "
                f"{self.prediction.unsafe[0]}"
            )
        if self.prediction is not None and self.counts is not None and self.counts != self.prediction.counts:
            found.append(f"{self.engine}: expected {self.prediction.counts}; seen {self.counts}")
        return tuple(found)

    @property
    def trouble(self) -> str:
        """What is wrong with the numbers, in words; empty where nothing is."""
        if self.right:
            return ""
        if self.failure is not None:
            return f"no numbers at all ({self.failure})"
        return f"wrong numbers (relative error {self.error:.1e}, allowed {self.tolerance:.0e})"


def compare(
    engine: str, job: ModelJob, reference: Reference, result: ModelResult, revision: Revision | None
) -> Comparison:
    """Hold one result against the reference and against the rules of `revision`.

    Args:
        engine: its name in messages.
        job: the model and its inputs.
        reference: what the outputs should be.
        result: what the engine gave.
        revision: the XNNPACK that the engine contains; None if it has no sparse path.
    """
    return Comparison(
        engine,
        None if revision is None else predict(job.model, revision),
        result.operators or {},
        None if result.operators is None else count_operators(result.operators),
        None if result.failure is not None else _error(job, reference, result),
        INTEGER_TOLERANCE if computes_in_integers(job.model) else _float_tolerance(reference),
        result.failure,
    )


def _float_tolerance(reference: Reference) -> float:
    return max(FLOAT_TOLERANCE, min(_NOISE_FACTOR * reference.noise, _MOST_NOISE))


def _error(job: ModelJob, reference: Reference, result: ModelResult) -> float:
    slots = outputs_of(job.model)
    found: Sequence[float] = [
        relative_error(read_outputs(slots, outputs), expected)
        for outputs, expected in zip(result.outputs, reference.outputs, strict=True)
    ]
    return max(found)
