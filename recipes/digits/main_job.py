"""The whole road on scikit-learn's digits: train dense and sparse, export, verify, and one summary at the end.

    python recipes/digits/main_job.py [FOLDER]

Every step is an ordinary `sparsetorch` command, shown as it runs, in a process of its own. The file is run in WebAssembly where
that runtime is installed (`sparsetorch runtime install wasm`). Exit code 0 if the sparse network is eligible for arm64 and wasm,
and took the sparse path there.
"""

import json
import os
import resource
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.table import Table

from sparsetorch.files import first_free, write_json
from sparsetorch.report.terminal import make_console
from sparsetorch.runtime.catalogue import ENTRIES, state

RECIPES = Path(os.path.relpath(Path(__file__).parent))
TARGETS = ("arm64", "wasm")


def sparsetorch(command: str, *words: str | Path, result: Path, allowed: tuple[int, ...] = (0,)) -> dict[str, Any]:
    """Run one command, show it, and return what it wrote with --json."""
    told = ["sparsetorch", command, *map(str, words)]
    print(f"\n$ {shlex.join(told)}", flush=True)
    done = subprocess.run([sys.executable, "-m", *told, "--json", str(result)], check=False)
    if done.returncode not in allowed:
        raise SystemExit(done.returncode)
    content: dict[str, Any] = json.loads(result.read_text())
    return content


def train(name: str, folder: Path) -> tuple[dict[str, Any], float]:
    """Train a recipe of this folder; its summary, and the test accuracy in percent."""
    recipe, run_dir = RECIPES / f"{name}.yaml", folder / name
    summary = sparsetorch("fit", "--config", recipe, "--run_dir", run_dir, result=folder / f"{name}.fit.json")
    words = ("--config", recipe, "--ckpt_path", summary["checkpoint"], "--quiet")
    tested = sparsetorch("test", *words, result=folder / f"{name}.test.json")
    return summary, 100 * float(tested["metrics"]["test_acc"])


def main(folder: Path) -> int:
    """Drive the road and print the summary. Returns the exit code."""
    started = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    dense, dense_accuracy = train("dense", folder)
    sparse, sparse_accuracy = train("rigl_90", folder)
    model = folder / "digits.tflite"
    words = ("--checkpoint", dense["checkpoint"], "-o", folder / "baseline.tflite")
    baseline = sparsetorch("export", *words, result=folder / "baseline.export.json")
    words = ("--checkpoint", sparse["checkpoint"], "-o", model, "--dense-twin")
    exported = sparsetorch("export", *words, result=folder / "export.json")
    words = tuple(word for target in TARGETS for word in ("--target", target))
    wasm = state(ENTRIES["wasm"])
    words += ("--observe", "wasm") if wasm.ready else ()
    verdict = sparsetorch("verify", model, *words, result=folder / "verify.json", allowed=(0, 3))
    results = ["--results", folder / "verify.json", "--results", folder / "rigl_90.test.json"]
    latency = []
    if wasm.ready:
        words = (model, "--runtime", "wasm", "--plot", folder / "latency.svg")
        measured = sparsetorch("bench", *words, result=folder / "bench.json")
        latency = measured["runtimes"]["wasm"]["rows"]
        results += ["--results", folder / "bench.json"]
    page = folder / "report.html"
    words = (folder / "rigl_90", "--model", model, *results, "-o", page, "--quiet")
    sparsetorch("report", *words, result=folder / "report.json")

    summary = {
        "test_accuracy": {"dense": dense_accuracy, "sparse": sparse_accuracy},
        "sparsity": sparse["sparsity"]["total"],
        "non_zero_parameters": {"dense": dense["parameters"]["non_zero"], "sparse": sparse["parameters"]["non_zero"]},
        "sizes": {"dense": baseline["sizes"]["model"], **exported["sizes"]},
        "targets": verdict["targets"],
        "expected_spmm": verdict["expected_spmm"],
        "observed": verdict.get("observed", {}),
        "not_observed": wasm.missing,
        "latency": latency,
        "report": str(page),
        "seconds": round(time.monotonic() - started, 1),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024),
        "files": {"dense": baseline["files"]["model"], **exported["files"]},
    }
    write_json(str(folder / "summary.json"), summary)
    show(summary, folder)
    return 0 if verdict["eligible"] else 3


def show(summary: dict[str, Any], folder: Path) -> None:
    """The summary as tables."""
    console = make_console(soft_wrap=False, width=110)
    accuracy, parameters = summary["test_accuracy"], summary["non_zero_parameters"]
    networks = Table("network", "test accuracy", "zeros in 1x1 convolutions", "non-zero parameters")
    networks.add_row("dense", f"{accuracy['dense']:.2f} %", "0.0 %", f"{parameters['dense']:,}")
    networks.add_row(
        "RigL",
        f"{accuracy['sparse']:.2f} %",
        f"{summary['sparsity']:.1%}".replace("%", " %"),
        f"{parameters['sparse']:,}",
    )
    files = Table("file", "holds", "raw bytes", "gzip bytes")
    holds = {
        "dense": "dense network",
        "dense_twin": "RigL network, stored dense",
        "model": "RigL network, sparse-encoded",
    }
    for name, text in holds.items():
        size = summary["sizes"][name]
        files.add_row(Path(summary["files"][name]).name, text, f"{size['raw']:,}", f"{size['gzip']:,}")
    for table in (networks, files):
        for column in table.columns[-2:]:
            column.justify = "right"
        console.print(table)
    for name, target in summary["targets"].items():
        spmm = f"eligible for XNNPACK's sparse path, {summary['expected_spmm']} sparse matrix products expected"
        console.print(f"{name}: {spmm if target['eligible'] else 'not eligible: ' + str(target['why_not'])}")
    for name, seen in summary["observed"].items():
        console.print(
            f"{name}: observed in {seen['version']}: {seen['spmm']} sparse matrix products of {seen['expected']['spmm']}, "
            f"largest relative error {seen['max_rel_error']:.0e}"
        )
    for row in summary["latency"]:
        console.print(
            f"wasm: {row['label']}: median {row['ms']['median']:.3f} ms. {row['in_words']}".rstrip(". ") + "."
        )
    if summary["not_observed"]:
        console.print(f"Not observed: {summary['not_observed']}")
    console.print(
        f"{summary['seconds']:.0f} s, at most {summary['peak_mib']:,} MiB in one process. All files: {folder}"
    )
    console.print(f"A page to look at: {summary['report']}")


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else first_free(Path("runs/digits_main_job"))))
