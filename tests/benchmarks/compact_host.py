"""Compact networks in the host's TFLite interpreter: size and time of the dense file against that of half the channels.

python tests/benchmarks/compact_host.py [NETWORK...]    prints a Markdown table

Half of the channels of every group are pruned at random (weights do not matter for time), the network is compacted, and both are
exported. The two files run in turn, so that what disturbs the machine disturbs both.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
import torchvision
from ai_edge_litert.interpreter import Interpreter
from channels import prune_random, randomise

import sparsetorch
from sparsetorch.structured.compact import compact
from sparsetorch.structured.groups import channel_groups, prunable

NETWORKS = ("resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "densenet121")
SHAPE = (3, 224, 224)


def compare(name: str, folder: Path, runs: int = 20) -> str:
    """One row of the table."""
    torch.manual_seed(0)
    network = randomise(getattr(torchvision.models, name)(weights=None))
    dense = folder / f"{name}.tflite"
    sparsetorch.export(network, dense, SHAPE)
    prune_random(network, prunable(channel_groups(network, SHAPE)), 0.5)
    smaller, report = compact(network, SHAPE)
    small = folder / f"{name}_compact.tflite"
    sparsetorch.export(smaller, small, SHAPE)
    seconds: dict[Path, list[float]] = {dense: [], small: []}
    made = {path: Interpreter(str(path), num_threads=1) for path in seconds}
    for path, interpreter in made.items():
        interpreter.allocate_tensors()
        detail = interpreter.get_input_details()[0]
        interpreter.set_tensor(detail["index"], np.random.default_rng(0).random(detail["shape"], np.float32))
        interpreter.invoke()
        del path
    for _ in range(runs):
        for path, interpreter in made.items():
            started = time.perf_counter()
            interpreter.invoke()
            seconds[path].append(time.perf_counter() - started)
    times = [1000 * statistics.median(values) for values in seconds.values()]
    sizes = [path.stat().st_size for path in seconds]
    return (
        f"| {name} | {report.parameters[0]:,} | {report.parameters[1]:,} | {sizes[0]:,} | {sizes[1]:,} | "
        f"{sizes[0] / sizes[1]:.2f} | "
        f"{times[0]:.1f} | {times[1]:.1f} | {times[0] / times[1]:.2f} | {report.difference:.1e} |"
    )


def main() -> None:
    columns = ("network", "parameters", "compact", "bytes", "compact", "ratio", "ms", "compact", "ratio", "difference")
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or NETWORKS:
            print(compare(name, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
