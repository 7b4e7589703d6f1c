"""MobileNetV2 at the same zeros in total: all layers alike against latency-aware, timed in LiteRT.js under Node.js.

    python notebooks/studies/latency_allocation/run.py

Measures the costs of each 1x1 shape (costs.json), shares 85 % zeros out, writes one file for each way, and times them in turns in
one process. The target is a tenth below the time of the alike file, with the rest of the network taken from that file's time.
Random weights: this is about time; loss is the estimate that the allocation goes by. `sparsetorch runtime install wasm` first.
"""

import argparse
import csv
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "tests"))

from graphs import Net  # noqa: E402
from mobilenet_v2 import STAGES  # noqa: E402

from sparsetorch import LatencyAware, Uniform  # noqa: E402
from sparsetorch.analysis.layer_costs import LayerShape  # noqa: E402
from sparsetorch.runtime import wasm  # noqa: E402
from sparsetorch.runtime.layer_costs import Effort, measure_costs  # noqa: E402
from sparsetorch.runtime.worker import ModelJob, Timing  # noqa: E402
from sparsetorch.sparsify.latency_allocation import norm_removed  # noqa: E402
from sparsetorch.tflite import Model, encode, save  # noqa: E402
from sparsetorch.xnnpack import verify  # noqa: E402

SPARSITY = 0.85


def network(size: int, sparsities: Mapping[str, float], layers: dict[str, LayerShape]) -> Model:
    """MobileNetV2 1.0, its 1x1 convolutions at `sparsities`; what they are is put into `layers`."""
    net = Net()

    def pointwise(x, channels: int, activation: int = 0):  # noqa: ANN001, ANN202
        name = f"conv{len(layers)}"
        layers[name] = LayerShape(x.shape[3], channels, x.shape[1], x.shape[2])
        return net.pointwise(x, channels, sparsities.get(name, SPARSITY), activation=activation)

    x = net.stem(net.input(size, 3), 32)
    for expansion, width, count, first in STAGES:
        for index in range(count):
            y = x if expansion == 1 else pointwise(x, x.shape[3] * expansion, 3)
            y = pointwise(net.depthwise(y, stride=first if index == 0 else 1), width)
            x = net.binary(0, x, y) if y.shape == x.shape else y
    net.output(net.dense(net.mean(pointwise(x, 1280, 3)), 1000))
    model = net.model()
    encode(model)
    return model


def measure(
    size: int, ways: Mapping[str, Mapping[str, float]], folder: Path, runs: int
) -> tuple[dict[str, list[float]], str]:
    """Milliseconds by way, and the runtime."""
    jobs = []
    for way, sparsities in ways.items():
        model = network(size, sparsities, {})
        verdict = verify(model, ["wasm"])
        assert verdict.eligible and verdict.expected_spmm == len(sparsities)
        save(model, folder / f"{way}.tflite")
        jobs.append(ModelJob.read(folder / f"{way}.tflite", sets=1))
    result = wasm.run_litert(jobs, folder, Timing(runs, 10))
    return {way: [one[index] for one in result.rounds] for index, way in enumerate(ways)}, result.version


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--runs", type=int, default=100)
    args = parser.parse_args()
    layers: dict[str, LayerShape] = {}
    network(args.size, {}, layers)
    table = measure_costs(
        layers, effort=Effort(30, 5), progress=lambda done, of: print(f"{done} of {of}", file=sys.stderr, flush=True)
    )
    costs = HERE / "costs.json"
    costs.write_text(table.to_json())
    shapes = {name: (shape.out_channels, shape.in_channels, 1, 1) for name, shape in layers.items()}
    alike = Uniform(first_layer_dense=False).allocate(shapes, SPARSITY)
    ways = {"alike": alike}
    for ratio in (1.1, 1.25, 1.5):
        ways[f"loss {ratio:g}x"] = LatencyAware(str(costs), loss_ratio=ratio).allocate(shapes, SPARSITY)
    with tempfile.TemporaryDirectory(prefix="sparsetorch-") as name:
        first, _ = measure(args.size, {"alike": alike}, Path(name), args.runs)
        alike_ms = statistics.median(first["alike"])
        rest = max(alike_ms - LatencyAware(str(costs)).predict_ms(alike), 0.0)
        target = 0.9 * alike_ms
        aware = LatencyAware(str(costs), target_ms=target, rest_ms=rest)
        ways["target"] = aware.allocate(shapes, SPARSITY)
        times, version = measure(args.size, ways, Path(name), args.runs)
    weights = {name: shape.weights for name, shape in layers.items()}
    base = sum(weights[name] * norm_removed(value) for name, value in alike.items())
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ["way", "zeros", "loss", "predicted_ms", "median_ms", "p10_ms", "p90_ms", "ratio", "target_ms", "size", "runtime"]
        )
        for way, sparsities in ways.items():
            paired = statistics.median(a / b for a, b in zip(times["alike"], times[way], strict=True))
            writer.writerow(
                [
                    way,
                    round(sum(weights[name] * value for name, value in sparsities.items())),
                    f"{sum(weights[name] * norm_removed(value) for name, value in sparsities.items()) / base:.3f}",
                    f"{rest + LatencyAware(str(costs)).predict_ms(sparsities):.2f}",
                    f"{statistics.median(times[way]):.2f}",
                    *(f"{np.percentile(times[way], share):.2f}" for share in (10, 90)),
                    f"{paired:.3f}",
                    f"{target:.2f}" if way == "target" else "",
                    args.size,
                    version,
                ]
            )
    print((HERE / "results.csv").read_text())


if __name__ == "__main__":
    main()
