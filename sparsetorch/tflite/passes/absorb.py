"""Where a factor, or a factor and a shift, can go: into the weights that compute a value, or into those that use it.

`absorb_above(x, s, t)` plans the edits after which the same operators compute s x + t at x; `absorb_below(y, s, t)` plans
those after which the graph, given y, behaves as if s y + t stood there. A factor travels through operators that commute with
it:

* any factor: PAD (zeros stay zeros), MEAN, SUM and AVERAGE_POOL_2D over H and W, RESIZE_BILINEAR and _NEAREST_NEIGHBOR, one
  operand of a MUL; both operands of an ADD or SUB upwards;
* a positive factor: RELU, LEAKY_RELU, MAX_POOL_2D (f(s x) = s f(x) for s > 0);
* a factor equal for all channels: RESHAPE, TRANSPOSE, DEPTH_TO_SPACE, SPACE_TO_DEPTH.

All of that is exact over the reals; float32 rounds each value once more at most. A shift is never carried through another
operator.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sparsetorch.tflite.model import Operator, Tensor
from sparsetorch.tflite.passes.layers import (
    LAYERS,
    Parameters,
    fits,
    parameters,
    scale_inputs,
    scale_outputs,
    write_parameters,
)
from sparsetorch.tflite.passes.links import ACTIVATION, OP, Links, fused_activation
from sparsetorch.tflite.passes.numbers import Wide

_LINEAR = frozenset(
    {OP.PAD, OP.MEAN, OP.SUM, OP.AVERAGE_POOL_2D, OP.RESIZE_BILINEAR, OP.RESIZE_NEAREST_NEIGHBOR, OP.SQUEEZE}
)
_POSITIVE = frozenset({OP.RELU, OP.LEAKY_RELU, OP.MAX_POOL_2D})
_MIXING = frozenset({OP.RESHAPE, OP.TRANSPOSE, OP.DEPTH_TO_SPACE, OP.SPACE_TO_DEPTH, OP.SQUEEZE})
_NOTHING: Wide = np.zeros(1)


@dataclass
class Plan:
    """New parameters of the layers that take a factor up."""

    links: Links
    layers: dict[Operator, Parameters]

    def apply(self) -> None:
        """Make the edits."""
        for operator, made in self.layers.items():
            write_parameters(self.links.graph, operator, made)

    @property
    def names(self) -> str:
        """The operators that take it up, for a note."""
        return ", ".join(dict.fromkeys(operator.name for operator in self.layers)) or "nothing"

    def add(self, operator: Operator, made: Parameters | str) -> str | None:
        if isinstance(made, str):
            return made
        if not fits(made):
            return f"the weights of {operator.name} would overflow"
        self.layers[operator] = made
        return None

    def now(self, operator: Operator) -> Parameters | str:
        return self.layers.get(operator) or parameters(operator)


def absorb(
    links: Links,
    above: tuple[Tensor, Wide, Wide] | None,
    below: tuple[Tensor, Wide, Wide] | None,
    skipping: Sequence[Operator] = (),
) -> Plan | str:
    """Plan edits upwards, downwards or both, or say why they cannot be made.

    Args:
        links: of the graph.
        above: a value, and the factor and shift that its computation shall take up. Only one operator may read the value.
        below: a value, and the factor and shift that its readers shall take up.
        skipping: operators that read `below`'s value and go away.
    """
    plan = Plan(links, {})
    if above is not None:
        tensor, scale, shift = above
        why = _above(plan, tensor, scale, shift)
        if why is not None:
            return why
    if below is not None:
        tensor, scale, shift = below
        why = _below(plan, tensor, scale, shift, skipping)
        if why is not None:
            return why
    return plan


def _above(plan: Plan, tensor: Tensor, scale: Wide, shift: Wide) -> str | None:
    links = plan.links
    if links.only_reader(tensor) is None:
        return f"{tensor.name} is also used elsewhere"
    producer = links.producer(tensor)
    if producer is None:
        return f"{tensor.name} comes from outside the graph"
    if producer.code in LAYERS:
        found = plan.now(producer)
        return found if isinstance(found, str) else plan.add(producer, scale_outputs(producer, found, scale, shift))
    if shift.any():
        return f"a shift does not pass through {producer.name}"
    return _refusal(producer, scale) or _above_through(plan, producer, scale)


def _above_through(plan: Plan, producer: Operator, scale: Wide) -> str | None:
    operands = [operand for operand in producer.inputs[: 2 if producer.code in _TWO else 1] if operand is not None]
    if producer.code == OP.MUL:
        whys = []
        for operand in operands:
            trial = Plan(plan.links, dict(plan.layers))
            why = "it is constant" if operand.data is not None else _channels(operand, scale)
            why = why or _above(trial, operand, scale, _NOTHING)
            if why is None:
                plan.layers = trial.layers
                return None
            whys.append(why)
        return "; ".join(dict.fromkeys(whys))
    for operand in operands:
        why = _channels(operand, scale) or _above(plan, operand, scale, _NOTHING)
        if why is not None:
            return why
    return None


def _channels(tensor: Tensor, scale: Wide) -> str | None:
    if scale.size == 1 or (tensor.shape and tensor.shape[-1] == scale.size):
        return None
    return f"{tensor.name} has another number of channels"


_TWO = frozenset({OP.MUL, OP.ADD, OP.SUB})


def _refusal(operator: Operator, scale: Wide) -> str | None:
    """Why a factor does not pass through an operator."""
    positive = bool((scale > 0).all())
    activation = fused_activation(operator)
    if activation != ACTIVATION.NONE and not (activation == ACTIVATION.RELU and positive):
        return f"{operator.name} has a fused activation"
    if operator.code in _POSITIVE and not positive:
        return f"a factor that is not positive does not pass through {operator.name}"
    if operator.code in _MIXING and scale.size != 1:
        return f"factors that differ between channels do not pass through {operator.name}"
    if operator.code in (OP.MEAN, OP.SUM) and scale.size != 1 and len(operator.outputs[0].shape) != 4:
        return f"factors that differ between channels do not pass through {operator.name}"
    if operator.code in _LINEAR | _POSITIVE | _MIXING | _TWO:
        return None
    return f"a factor does not pass through {operator.name}"


def _below(plan: Plan, tensor: Tensor, scale: Wide, shift: Wide, skipping: Sequence[Operator] = ()) -> str | None:
    links = plan.links
    if links.is_output(tensor):
        return f"{tensor.name} is an output of the graph"
    readers = [reader for reader in links.readers(tensor) if reader not in skipping]
    if not readers:
        return f"nothing uses {tensor.name}"
    for reader in readers:
        if reader.inputs.count(tensor) != 1 or (reader.inputs[0] is not tensor and reader.code not in _TWO):
            return f"{reader.name} reads {tensor.name} as another operand"
        if reader.code in LAYERS:
            found = plan.now(reader)
            why = found if isinstance(found, str) else plan.add(reader, scale_inputs(reader, found, scale, shift))
        elif shift.any():
            why = f"a shift does not pass through {reader.name}"
        elif reader.code in (OP.ADD, OP.SUB):
            why = f"a factor of one operand does not pass through {reader.name}"
        else:
            result = reader.outputs[0]
            why = _refusal(reader, scale) or _channels(result, scale) or _below(plan, result, scale, _NOTHING)
        if why is not None:
            return why
    return None
