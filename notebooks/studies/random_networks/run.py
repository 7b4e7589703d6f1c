"""Random small networks of users' blocks down the whole road, many more than the tests do.

    OMP_NUM_THREADS=1 python notebooks/studies/random_networks/run.py --count 200

Each is exported in one of the three precisions with its dense twin; results.csv says what came out.
"""

import argparse
import csv
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))

from converted import AlreadyConverted
from random_networks import SIZE, random_network

import sparsetorch
from sparsetorch.errors import SparsetorchError
from sparsetorch.exporter import pipeline
from sparsetorch.exporter.onnx_to_tflite import convert_all
from sparsetorch.exporter.pipeline import prune_once
from sparsetorch.exporter.torch_to_onnx import torch_to_onnx

COLUMNS = ["seed", "values", "status", "error_dense", "error", "eligible", "spmm", "repairs", "bytes_dense", "bytes"]
BATCH = 20
FIRST_SEED = 1000
"""Seeds below are the tests'."""


def convert(seeds: list[int], folder: Path) -> dict[int, bytes]:
    """The converter's graphs of many networks, TensorFlow loaded once."""
    for seed in seeds:
        network = random_network(seed)
        prune_once(network, 0.85)
        torch_to_onnx(network, (1, 3, SIZE, SIZE), folder / f"{seed}.onnx")
    return dict(zip(seeds, convert_all([folder / f"{seed}.onnx" for seed in seeds])))


def row(seed: int, converted: bytes, folder: Path) -> dict[str, object]:
    """One network: `export` with its conversion done already."""
    pipeline.torch_to_onnx = lambda *_: None
    pipeline.check_onnx = lambda *_: []
    pipeline.Converter = AlreadyConverted(converted)
    values = ("float32", "float16", "int8")[seed % 3]
    try:
        report = sparsetorch.export(
            random_network(seed), folder / "m.tflite", (3, SIZE, SIZE), sparsity=0.85,
            storage=sparsetorch.Storage(values), dense_twin=True,
        )  # fmt: skip
    except SparsetorchError as error:
        return {"seed": seed, "values": values, "status": f"{type(error).__name__}: {error}"}
    assert report.dense_twin is not None
    unsafe = any(target.unsafe for target in report.verdict.targets.values())
    return {
        "seed": seed,
        "values": values,
        "status": "UNSAFE" if unsafe else "written dense: unsafe" if report.refused else "right",
        "error_dense": f"{max(report.dense_twin.errors):.1e}",
        "error": f"{max(report.model.errors):.1e}",
        "eligible": report.verdict.eligible,
        "spmm": report.verdict.expected_spmm,
        "repairs": " ".join(dict.fromkeys(note.repair for note in report.repairs if note.applied)),
        "bytes_dense": report.dense_twin.bytes,
        "bytes": report.model.bytes,
    }


def main() -> None:
    """Run, write results.csv, print a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results.csv")
    told = parser.parse_args()
    rows: list[dict[str, object]] = []
    started = time.monotonic()
    for first in range(FIRST_SEED, FIRST_SEED + told.count, BATCH):
        seeds = list(range(first, min(first + BATCH, FIRST_SEED + told.count)))
        real = pipeline.torch_to_onnx, pipeline.check_onnx, pipeline.Converter
        with tempfile.TemporaryDirectory() as folder:
            converted = convert(seeds, Path(folder))
            rows += [row(seed, converted[seed], Path(folder)) for seed in seeds]
        pipeline.torch_to_onnx, pipeline.check_onnx, pipeline.Converter = real
        with told.output.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, restval="")
            writer.writeheader()
            writer.writerows(rows)
        right = sum(one["status"] != "UNSAFE" and "Error" not in str(one["status"]) for one in rows)
        eligible = sum(bool(one.get("eligible")) for one in rows)
        print(f"{len(rows)} networks, {right} right, {eligible} eligible, {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
