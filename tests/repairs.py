"""Before and after a repair: the outputs of both graphs from the LiteRT interpreter, on random inputs."""

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from graphs import Net

from sparsetorch.tflite import Model, Operator, from_bytes, to_bytes
from sparsetorch.tflite.passes import PASSES, Note, repair


def outputs(model: Model, seed: int = 0) -> list[np.ndarray]:
    """What a model computes for seeded normal inputs."""
    interpreter = Interpreter(model_content=to_bytes(model), num_threads=1)
    interpreter.allocate_tensors()
    random = np.random.default_rng(seed)
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], random.normal(0, 1.5, detail["shape"]).astype(np.float32))
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def difference(before: Model, after: Model, seed: int = 0) -> float:
    """The largest difference of an output, relative to its largest value."""
    worst = 0.0
    for ours, theirs in zip(outputs(before, seed), outputs(after, seed), strict=True):
        assert ours.shape == theirs.shape
        assert np.isfinite(ours).all()
        worst = max(worst, float(np.abs(ours - theirs).max()) / (float(np.abs(ours).max()) or 1.0))
    return worst


class Repaired:
    """A graph after its repairs, which have been proved to keep the numbers and to be complete."""

    def __init__(self, net: Net, tolerance: float = 1e-5, passes: tuple = PASSES) -> None:
        before = from_bytes(to_bytes(net.model()))
        self.model = from_bytes(to_bytes(net.model()))
        self.notes: tuple[Note, ...] = repair(self.model, passes)
        self.error = max(difference(before, self.model, seed) for seed in (0, 1))
        assert self.error <= tolerance, self.error
        once = to_bytes(self.model)
        assert not any(note.applied for note in repair(self.model, passes))
        assert to_bytes(self.model) == once

    @property
    def operators(self) -> list[Operator]:
        return self.model.graphs[0].operators

    @property
    def names(self) -> list[str]:
        return [operator.name for operator in self.operators]

    @property
    def applied(self) -> list[str]:
        return [note.repair for note in self.notes if note.applied]

    @property
    def refused(self) -> list[str]:
        return [note.what for note in self.notes if not note.applied]

    def activation(self, index: int) -> int:
        return self.operators[index].options.fusedActivationFunction
