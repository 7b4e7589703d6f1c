"""What sparsity gains in latency: three networks in every precision, in WebAssembly (Node.js and Chromium) and on the host.

    sparsetorch runtime install wasm chromium
    OMP_NUM_THREADS=1 python notebooks/studies/latency/run.py --output notebooks/studies/latency

Random weights with calibrated batch-norm, one-shot magnitude 85 % over the 1x1 convolutions, 224 px, one thread. Writes results.csv,
README.md and a plot for each network.
"""

import argparse
import csv
import runpy
import tempfile
from pathlib import Path

import torch
import torchvision

import sparsetorch
from sparsetorch.latency.result import BenchResult
from sparsetorch.report.page.figures import latency_figure

SPARSITY, PIXELS = 0.85, 224
GOALS = {"mobilenet_v2": 2.0, "mobilenet_v3_small": 1.6, "efficientnet_b0": 1.7}
"""How many times as fast as dense float32 the sparse float32 file has to be in Chromium."""
calibrated = runpy.run_path(str(Path(__file__).parents[1] / "model_matrix" / "run.py"))["calibrated"]


def measure(name: str, runs: int) -> BenchResult:
    """Export one network and time it in every precision."""
    torch.manual_seed(0)
    network = calibrated(getattr(torchvision.models, name)(), PIXELS)
    with tempfile.TemporaryDirectory() as folder:
        report = sparsetorch.export(network, Path(folder, f"{name}.tflite"), (3, PIXELS, PIXELS), sparsity=SPARSITY)
        return sparsetorch.bench(report.model.path, ["wasm", "chromium", "host"], runs=runs, all_precisions=True)


def readme(results: dict[str, BenchResult]) -> str:
    """The tables as Markdown."""
    first = next(iter(results.values()))
    lines = [
        "# Latency in every precision",
        "",
        f"Random weights with calibrated batch-norm, one-shot magnitude {SPARSITY:.0%} over the 1x1 convolutions, {PIXELS} px, one "
        "thread; made by `run.py`, all numbers in `results.csv`. Files take turns, the second of two runs counts; ratios are of medians, "
        "against dense float32 in the same runtime, with a 95 % block-bootstrap interval. The processor has AVX: on the host "
        "XNNPACK has no sparse path, and sparse files run as fast as dense ones. Dense int8 computes in integers and was calibrated on "
        "random images: its times count, its numbers do not.",
        "",
        f"{first.processor}, a virtual machine of two cores: absolute times drift, ratios less. {first.runs} runs "
        f"after {first.warmup}; sparsetorch {first.version}; torch {torch.__version__}.",
        "",
    ]
    for name, result in results.items():
        lines += [f"## {name}", "", "| runtime | file | bytes | load, ms | median, ms | p10 | p90 | against dense float32 |", "|---|---|---|---|---|---|---|---|"]
        for runtime in result.runtimes.values():
            for row in runtime.rows:
                assert row.ms is not None, row.failure
                load = "" if row.init_ms is None else f"{row.init_ms:.0f}"
                lines.append(
                    f"| {runtime.version} | {row.label} | {row.bytes:,} | {load} | {row.ms.median:.2f} | {row.ms.p10:.2f} | {row.ms.p90:.2f} | {row.in_words} |"
                )
        lines += ["", f"![{name}]({name}.svg)", ""]
    lines += ["## Goals", "", "| network | goal in Chromium, sparse float32 | measured |", "|---|---|---|"]
    for name, result in results.items():
        row = next(row for row in result.runtimes["chromium"].rows if row.label == "sparse float32")
        lines.append(f"| {name} | {GOALS[name]} | {row.in_words} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent)
    parser.add_argument("--runs", type=int, default=150)
    told = parser.parse_args()
    results = {}
    for name in GOALS:
        print(name, flush=True)
        results[name] = measure(name, told.runs)
        (told.output / f"{name}.svg").write_text(latency_figure(results[name]).standalone())
    with (told.output / "results.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        for number, (name, result) in enumerate(results.items()):
            table = latency_figure(result).table
            if number == 0:
                writer.writerow(["model", *table.columns])
            writer.writerows([name, *row] for row in table.rows)
    (told.output / "README.md").write_text(readme(results))


if __name__ == "__main__":
    main()
