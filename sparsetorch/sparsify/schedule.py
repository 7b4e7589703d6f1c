"""When, and how sparse at which step: Zhu & Gupta, "To prune, or not to prune" (2017), arXiv 1710.01878.

Steps count optimizer steps: step t is the moment after the t-th update of the weights, and 0 is before the first.
A schedule owns the steps at which masks may change, `begin_step <= t <= end_step` every `update_every` steps, both ends
included. The last update is at `end_step` itself even where `update_every` does not divide the range, so that the final
sparsity is always reached exactly.

`begin_step` and `end_step` may be a step (an int), or a share of the training (a float in [0, 1]); `resolve` turns shares
into steps once the length of the training is known. Left out, `end_step` is 0.75 of it.
"""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from sparsetorch.errors import BadInputError
from sparsetorch.sparsify.mask import check_sparsity

DEFAULT_END = 0.75
"""The default `end_step` as a share of the training (RigL's own default; the rest fine-tunes with a fixed mask)."""

FOREVER = -1
"""`end_step` of a schedule that goes on to the end of the training."""


class Schedule(ABC):
    """When masks may change, and how sparse they are then."""

    @abstractmethod
    def sparsity_at(self, step: int) -> float:
        """The sparsity, a share of all entries, that holds from `step` on."""

    @abstractmethod
    def is_update_step(self, step: int) -> bool:
        """Whether masks may change after optimizer step `step`."""

    @abstractmethod
    def progress(self, step: int) -> float:
        """How far `step` is through the schedule, 0.0 to 1.0."""

    @abstractmethod
    def resolve(self, total_steps: float) -> Self:
        """The same schedule for a training of `total_steps` optimizer steps, every step a whole number."""

    @abstractmethod
    def target_sparsity(self) -> float:
        """The sparsity at the end of the schedule, known before `resolve`."""


@dataclass(frozen=True)
class _Steps(Schedule):
    """A schedule from `begin_step` to `end_step`, both included, every `update_every` steps."""

    begin_step: int | float = dataclasses.field(default=0, kw_only=True)
    """First step at which masks may change: a step (int) or a share of the training (float)."""
    end_step: int | float | None = dataclasses.field(default=None, kw_only=True)
    """Last step at which masks may change, included: a step, a share, -1 for the end of the training, None for 0.75."""
    update_every: int = dataclasses.field(default=100, kw_only=True)
    """Optimizer steps between two changes of the masks."""

    def __post_init__(self) -> None:
        if isinstance(self.update_every, bool) or self.update_every < 1:
            raise BadInputError(f"update_every: found {self.update_every!r}, needed at least 1 optimizer step")
        for key in ("begin_step", "end_step"):
            step = getattr(self, key)
            if isinstance(step, float) and step.is_integer() and (key, step) != ("end_step", 1.0):
                # A parser may read the 9000 of a YAML as 9000.0. The one number that can be both, 1.0, is all of the training
                # where a schedule ends, and the first step where it begins.
                step = int(step)
                object.__setattr__(self, key, step)
            if step is None or (key == "end_step" and step == FOREVER):
                continue
            if isinstance(step, float) and not 0.0 <= step <= 1.0:
                raise BadInputError(
                    f"{key}: found {step!r}, needed a step (a whole number) or a share of the training in [0, 1]"
                )
            if step < 0:
                raise BadInputError(f"{key}: found {step!r}, needed a step of at least 0")
        if self.resolved and self._end < self.begin_step:
            raise BadInputError(f"end_step: found {self.end_step!r}, needed at least begin_step ({self.begin_step!r})")

    @property
    def resolved(self) -> bool:
        """Whether both ends are steps."""
        return isinstance(self.begin_step, int) and isinstance(self.end_step, int)

    @property
    def _end(self) -> float:
        if self.end_step is None or isinstance(self.end_step, float):
            raise BadInputError(
                f"end_step: found {self.end_step!r}, which depends on the length of the training; "
                "give a step, or call resolve(total_steps) first"
            )
        return math.inf if self.end_step == FOREVER else self.end_step

    def resolve(self, total_steps: float) -> Self:
        """The same schedule in steps, for a training of `total_steps` optimizer steps.

        Raises:
            BadInputError: where a share is asked of an endless training, or a step lies beyond the end of it.
        """
        if math.isinf(total_steps) and any(
            isinstance(step, float) or step is None for step in (self.begin_step, self.end_step)
        ):
            raise BadInputError(
                "end_step: the training has no end (max_epochs and max_steps are -1), so a share of it means nothing; "
                "give begin_step and end_step as whole numbers of steps"
            )

        def steps(value: int | float | None) -> int:
            if value is None:
                return round(DEFAULT_END * total_steps)
            return round(value * total_steps) if isinstance(value, float) else value

        begin, end = steps(self.begin_step), steps(self.end_step)
        for key, step in (("begin_step", begin), ("end_step", end)):
            if step > total_steps:
                raise BadInputError(
                    f"{key}: found {step}, but the training has only {total_steps:g} optimizer steps, so the schedule "
                    f"would never complete. Needed at most {total_steps:g}: train longer, lower {key}, "
                    "or give it as a share such as 0.75."
                )
        if end == FOREVER and not math.isinf(total_steps):
            end = int(total_steps)
        return dataclasses.replace(self, begin_step=begin, end_step=end)

    def is_update_step(self, step: int) -> bool:
        """Whether masks may change after optimizer step `step`. `end_step` is included."""
        if step < self.begin_step or step > self._end:
            return False
        return step == self._end or (step - int(self.begin_step)) % self.update_every == 0

    def progress(self, step: int) -> float:
        """How far `step` is from `begin_step` (0.0) to `end_step` (1.0), clipped to that range."""
        if step <= self.begin_step:
            return 0.0
        length = self._end - self.begin_step
        return 0.0 if math.isinf(length) else min((step - self.begin_step) / length, 1.0)


@dataclass(frozen=True)
class PolynomialDecay(_Steps):
    """`s(t) = s_f + (s_i - s_f) * (1 - progress) ** power`: many weights go early, few late. TFMOT's class of that name.

    Example: 0 to 0.9 over 10 000 steps is .2439 at step 1000, .520312 at 2500, .7875 at 5000, .885938 at 7500.
    """

    final_sparsity: float
    """Sparsity at `end_step` and after, in [0, 1)."""
    initial_sparsity: float = 0.0
    """Sparsity at `begin_step` and before, in [0, 1)."""
    power: float = 3.0
    """Exponent: 1 is linear, 3 is the paper's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sparsity(self.final_sparsity, "final_sparsity")
        check_sparsity(self.initial_sparsity, "initial_sparsity")
        if not self.power > 0:
            raise BadInputError(f"power: found {self.power!r}, needed more than 0")

    def sparsity_at(self, step: int) -> float:
        """The sparsity that holds from `step` on."""
        if step >= self._end:
            return self.final_sparsity
        left = (1.0 - self.progress(step)) ** self.power
        return self.final_sparsity + (self.initial_sparsity - self.final_sparsity) * left

    def target_sparsity(self) -> float:
        """The final sparsity."""
        return self.final_sparsity


@dataclass(frozen=True)
class ConstantSparsity(_Steps):
    """One sparsity throughout: dynamic sparse training (RigL) from the start, or one-shot pruning at `begin_step`.

    `end_step=-1` goes on to the end of the training.
    """

    sparsity: float
    """The sparsity, in [0, 1)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sparsity(self.sparsity, "sparsity")

    def sparsity_at(self, step: int) -> float:
        """`sparsity`, at every step."""
        return self.sparsity

    def target_sparsity(self) -> float:
        """The sparsity."""
        return self.sparsity


@dataclass(frozen=True)
class ThreeStep(PolynomialDecay):
    """The three-step recipe as one schedule: train dense, prune along `PolynomialDecay`, fine-tune at constant sparsity.

    Three thirds of the training by default, as in TensorFlow's "Build fast, sparse on-device models" (2021); a network
    needs about three times the steps of a dense training for it.
    """

    begin_step: int | float = dataclasses.field(default=1 / 3, kw_only=True)
    """Where pruning begins: a step (int) or a share of the training (float)."""
    end_step: int | float | None = dataclasses.field(default=2 / 3, kw_only=True)
    """Where pruning ends and fine-tuning begins, included."""


@dataclass(frozen=True)
class StepList(Schedule):
    """A list of sparsities, each from its own step on: `StepList([[1000, 0.5], [2000, 0.8]])`."""

    steps: Sequence[Sequence[float]]
    """Pairs of a step (a whole number, or a share of the training below 1) and the sparsity that holds from it on."""

    def __post_init__(self) -> None:
        if not self.steps or any(len(pair) != 2 for pair in self.steps):
            raise BadInputError(
                f"steps: found {self.steps!r}, needed pairs of a step and a sparsity, such as [[1000, 0.5]]"
            )
        for step, sparsity in self.steps:
            check_sparsity(sparsity, "steps")
            if step < 0:
                raise BadInputError(f"steps: found step {step!r}, needed at least 0")
        order = [step for step, _ in self.steps]
        mixed = len({step < 1 for step in order if step}) > 1  # steps and shares compare only once resolved
        if order != sorted(set(order)) and not mixed:
            raise BadInputError(f"steps: found the steps {order}, needed each later than the one before")

    def sparsity_at(self, step: int) -> float:
        """The sparsity that holds from `step` on; 0 before the first of the list."""
        held = [sparsity for begin, sparsity in self.steps if begin <= step]
        return held[-1] if held else 0.0

    def is_update_step(self, step: int) -> bool:
        """The listed steps."""
        return any(begin == step for begin, _ in self.steps)

    def progress(self, step: int) -> float:
        """How far `step` is from the first listed step to the last."""
        first, last = self.steps[0][0], self.steps[-1][0]
        return min(max((step - first) / (last - first), 0.0), 1.0) if last > first else float(step >= last)

    def resolve(self, total_steps: float) -> Self:
        """The same list with every share turned into a step.

        Raises:
            BadInputError: for a step beyond the training, or a share of an endless one.
        """
        resolved = []
        for step, sparsity in self.steps:
            share = isinstance(step, float) and step < 1.0
            if share and math.isinf(total_steps):
                raise BadInputError(f"steps: found the share {step!r} of a training without an end; give a step")
            number = round(step * total_steps) if share else int(step)
            if number > total_steps:
                raise BadInputError(
                    f"steps: found step {number}, but the training has only {total_steps:g} optimizer steps; "
                    "train longer, or lower it"
                )
            resolved.append((number, sparsity))
        return dataclasses.replace(self, steps=tuple(resolved))

    def target_sparsity(self) -> float:
        """The last sparsity of the list."""
        return self.steps[-1][1]
