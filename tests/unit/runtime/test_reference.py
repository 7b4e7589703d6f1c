"""What the numbers of a file have to be, and how much the order of sums alone changes them."""

from pathlib import Path

import numpy as np
from graphs import OP, Net, classifier, options

from sparsetorch.runtime.reference import references
from sparsetorch.runtime.worker import ModelJob
from sparsetorch.tflite import Model, encode, save
from sparsetorch.tflite.model import Tensor


def cancelling() -> Model:
    """A classifier whose outputs are differences of large sums, all but equal."""

    def tail(net: Net, x: Tensor) -> Tensor:
        random = np.random.default_rng(0)
        row = random.normal(0, 1e4, 64)
        rows = row + random.normal(0, 1e-2, (2, 64))
        sums = net.add(
            OP.FULLY_CONNECTED,
            [net.mean(x), net.constant(rows.astype(np.float32)), net.bias(2)],
            (1, 2),
            options("FullyConnected"),
        )
        difference = net.constant(np.array([[1, -1]], np.float32))
        return net.add(OP.FULLY_CONNECTED, [sums, difference, net.bias(1)], (1, 1), options("FullyConnected"))

    return classifier(tail=tail)


def noise(model: Model, folder: Path) -> float:
    encode(model)
    save(model, folder / "model.tflite")
    (reference,) = references([ModelJob.read(folder / "model.tflite")], folder)
    assert reference.failure is None
    return reference.noise


def test_noise_is_small_for_a_usual_network_and_large_for_one_that_cancels(tmp_path: Path) -> None:
    assert noise(classifier(), tmp_path) < 1e-5
    assert noise(cancelling(), tmp_path) > 1e-5
