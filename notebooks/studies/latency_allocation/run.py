"""MobileNetV2 at the same zeros in total: all layers alike against latency-aware, timed in LiteRT.js under Node.js.

    sparsetorch runtime install wasm
    python notebooks/studies/latency_allocation/run.py

Measures the costs of each 1x1 shape and what the rest of the network takes (costs.json), shares 85 % zeros out, exports one file
for each way, and times them in turns in one process (results.csv). Targets are 5, 10 and 15 % below what the table gives the
network with all layers alike. Random weights: this is about time; loss is the estimate that the allocation goes by.
"""

import argparse
import csv
import statistics
import sys
import tempfile
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torchvision
from torch import nn

import sparsetorch
from sparsetorch import LatencyAware, Uniform
from sparsetorch.analysis.pointwise_layers import pointwise_layers
from sparsetorch.runtime import wasm
from sparsetorch.runtime.layer_costs import measure_costs, measure_rest
from sparsetorch.runtime.worker import ModelJob, Timing
from sparsetorch.sparsify.latency_allocation import norm_removed
from sparsetorch.sparsify.magnitude import magnitude_mask

HERE = Path(__file__).parent
SPARSITY, SHAPE = 0.85, (3, 224, 224)
COLUMNS = [
    "way", "zeros", "loss", "predicted_ms", "median_ms", "p10_ms", "p90_ms", "times_as_fast", "target_ms", "off_target",
    "off_target_without_drift", "runtime",
]  # fmt: skip


def write(network: nn.Module, sparsities: Mapping[str, float], path: Path) -> Path:
    """Export the network, each layer pruned by magnitude to its sparsity."""
    pruned = deepcopy(network)
    for name, sparsity in sparsities.items():
        weight = pruned.get_submodule(name).get_parameter("weight")
        weight.data.mul_(magnitude_mask(weight, sparsity))
    report = sparsetorch.export(pruned, path, SHAPE)
    assert report.verdict.eligible, report.verdict
    assert report.verdict.expected_spmm == len(sparsities)
    return path


def main() -> None:
    """Measure, share out, export, time, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    runs = parser.parse_args().runs
    torch.manual_seed(0)
    network = torchvision.models.mobilenet_v2().eval()
    layers = pointwise_layers(network, SHAPE)
    weights = {name: shape.weights for name, shape in layers.items()}
    shapes = {name: (shape.out_channels, shape.in_channels, 1, 1) for name, shape in layers.items()}
    alike = Uniform(first_layer_dense=False).allocate(shapes, SPARSITY)

    def loss(sparsities: Mapping[str, float]) -> float:
        return sum(weights[name] * norm_removed(sparsity) for name, sparsity in sparsities.items())

    with tempfile.TemporaryDirectory(prefix="sparsetorch-") as folder:
        files = {"alike": write(network, alike, Path(folder, "alike.tflite"))}
        table = measure_costs(
            layers,
            progress=lambda done, of: print(f"{done} of {of}", file=sys.stderr, flush=True),
        )
        table = replace(table, rest_ms=measure_rest(files["alike"], table))
        (HERE / "costs.json").write_text(table.to_json())
        aware = LatencyAware(str(HERE / "costs.json"))
        before = aware.predict_ms(alike)
        targets = {f"target {share:.0%}": (share, share * before) for share in (0.95, 0.9, 0.85)}
        chosen = {f"loss {ratio:g}x": replace(aware, loss_ratio=ratio) for ratio in (1.1, 1.25, 1.5)}
        chosen |= {way: replace(aware, target_ms=target) for way, (_, target) in targets.items()}
        ways = {"alike": alike}
        for way, distribution in chosen.items():
            distribution.check(shapes, SPARSITY)
            ways[way] = distribution.allocate(shapes, SPARSITY)
            files[way] = write(network, ways[way], Path(folder, f"{way}.tflite"))
        jobs = [ModelJob.read(file, sets=1) for file in files.values()]
        timed = wasm.run_litert(jobs, Path(folder), Timing(runs, 40))
    times = {way: [one[index] for one in timed.rounds] for index, way in enumerate(ways)}
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for way, sparsities in ways.items():
            median = statistics.median(times[way])
            gain = statistics.median(a / b for a, b in zip(times["alike"], times[way], strict=True))
            off = ["", "", ""]
            if way in targets:
                share, target = targets[way]
                off = [f"{target:.2f}", f"{median / target - 1:+.1%}", f"{1 / gain / share - 1:+.1%}"]
            writer.writerow(
                [
                    way,
                    round(sum(weights[name] * value for name, value in sparsities.items())),
                    f"{loss(sparsities) / loss(alike):.3f}",
                    f"{aware.predict_ms(sparsities):.2f}",
                    f"{median:.2f}",
                    *(f"{np.percentile(times[way], share):.2f}" for share in (10, 90)),
                    f"{gain:.3f}",
                    *off,
                    timed.version,
                ]
            )
    print((HERE / "results.csv").read_text())


if __name__ == "__main__":
    main()
