"""What a schedule will do in a training of a given length, known before its first step."""

import math
from dataclasses import dataclass

from sparsetorch.errors import BadInputError
from sparsetorch.sparsify.algorithm import Algorithm
from sparsetorch.sparsify.schedule import Schedule


@dataclass(frozen=True)
class Plan:
    """The updates to come."""

    schedule: Schedule
    """Resolved: every step is a number."""
    total_steps: float
    """Optimizer steps of the training; infinite where it has no end."""
    updates: int | None
    """How many times masks may change; None where the training has no end."""
    first_update: int | None
    last_update: int | None
    final_sparsity: float
    """The global sparsity that will have been reached."""

    def __str__(self) -> str:
        count = "updates without end" if self.updates is None else f"{self.updates} mask updates"
        where = "" if self.first_update is None else f", the first at step {self.first_update}"
        where += "" if self.last_update is None else f", the last at step {self.last_update}"
        return f"{count}{where} of {self.total_steps:g}; final sparsity {self.final_sparsity:.2%}"


def make_plan(schedule: Schedule, algorithm: Algorithm, total_steps: float) -> Plan:
    """Resolve a schedule and look ahead.

    Args:
        schedule: shares or steps.
        algorithm: one that starts sparse has its first mask before step 1.
        total_steps: optimizer steps of the training, infinite for one without an end.

    Raises:
        BadInputError: where a step lies beyond the training, or the final sparsity would not be reached.
    """
    resolved = schedule.resolve(total_steps)
    target = resolved.target_sparsity()
    if math.isinf(total_steps):
        return Plan(resolved, total_steps, None, None, None, target)
    # The first masks of an algorithm that starts sparse are no update.
    first_step = 1 if algorithm.starts_sparse else 0
    steps = [step for step in range(first_step, int(total_steps) + 1) if resolved.is_update_step(step)]
    reached = resolved.sparsity_at(steps[-1]) if steps else resolved.sparsity_at(0) if algorithm.starts_sparse else 0.0
    if reached < target:
        raise BadInputError(
            f"schedule: {len(steps)} mask updates fit into the {total_steps:g} optimizer steps of this training, which reach "
            f"a sparsity of {reached:.2%}; needed {target:.2%}. Train longer, or update earlier ({resolved})"
        )
    first, last = (steps[0], steps[-1]) if steps else (None, None)
    return Plan(resolved, total_steps, len(steps), first, last, reached)
