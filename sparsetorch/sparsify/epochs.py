"""A schedule given in epochs, as papers do: its steps are turned into optimizer steps once a training's epochs are known."""

import dataclasses
from dataclasses import dataclass
from typing import Any, NoReturn, Self

from sparsetorch.errors import BadInputError
from sparsetorch.sparsify.schedule import FOREVER, Schedule, StepList


@dataclass(frozen=True)
class InEpochs(Schedule):
    """Any schedule, its steps read as epochs: `InEpochs(ConstantSparsity(0.7, end_step=180, update_every=2))`.

    Shares of the training (floats) stay shares. An update at epoch n comes after the last optimizer step of the first n epochs.
    """

    schedule: Schedule
    """Whose `begin_step`, `end_step`, `update_every` or `steps` count epochs."""

    def in_steps(self, steps_per_epoch: float) -> Schedule:
        """The schedule in optimizer steps."""

        def steps(value: Any) -> Any:
            return (
                value
                if value is None or isinstance(value, float) or value == FOREVER
                else round(value * steps_per_epoch)
            )

        if isinstance(self.schedule, StepList):
            pairs = [(step if 0 < step < 1 else steps(int(step)), sparsity) for step, sparsity in self.schedule.steps]
            return dataclasses.replace(self.schedule, steps=pairs)
        fields = {key: steps(getattr(self.schedule, key)) for key in ("begin_step", "end_step", "update_every")}
        changed: Schedule = dataclasses.replace(
            self.schedule, **fields | {"update_every": max(fields["update_every"], 1)}
        )  # type: ignore[type-var]
        return changed

    def target_sparsity(self) -> float:
        """That of the schedule."""
        return self.schedule.target_sparsity()

    def sparsity_at(self, step: int) -> float:
        """Not known before `in_steps`."""
        self._not_yet()

    def is_update_step(self, step: int) -> bool:
        """Not known before `in_steps`."""
        self._not_yet()

    def progress(self, step: int) -> float:
        """Not known before `in_steps`."""
        self._not_yet()

    def resolve(self, total_steps: float) -> Self:
        """Not possible before `in_steps`."""
        self._not_yet()

    def _not_yet(self) -> NoReturn:
        raise BadInputError(
            "InEpochs: the optimizer steps of an epoch are not known yet; call in_steps(steps_per_epoch) first"
        )
