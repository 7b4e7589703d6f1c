"""Rules against runtimes, for many random networks at once."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from random_sparse import RandomSparseNet

from sparsetorch.runtime import emulated, emulated_arm64, wasm
from sparsetorch.runtime.comparison import Comparison, compare
from sparsetorch.runtime.reference import references
from sparsetorch.runtime.worker import ModelJob, WorkerResult
from sparsetorch.tflite import save
from sparsetorch.xnnpack.revisions import XNNPACK_2023_06, XNNPACK_2026_08, Revision


@dataclass(frozen=True)
class Engine:
    """A runtime with the revision whose rules it goes by."""

    name: str
    run: Callable[[Sequence[ModelJob], Path], WorkerResult]
    revision: Revision


ENGINES = (
    Engine("tfjs-tflite", wasm.observe_operators, XNNPACK_2023_06),
    Engine("LiteRT.js", wasm.run_litert, XNNPACK_2026_08),
    Engine("emulated", emulated.observe_operators, XNNPACK_2026_08),
)
ARM64 = Engine("emulated on ARM", emulated_arm64.observe_operators, XNNPACK_2026_08)


@dataclass(frozen=True)
class Outcome:
    """One network in one engine."""

    comparison: Comparison
    version: str


@contextmanager
def jobs_of(seeds: Sequence[int]) -> Iterator[tuple[list[ModelJob], Path]]:
    """The networks of these seeds as files, and a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="sparsetorch-") as name:
        folder = Path(name)
        for seed in seeds:
            save(RandomSparseNet(seed).model(), folder / f"{seed}.tflite")
        yield [ModelJob.read(folder / f"{seed}.tflite", sets=2) for seed in seeds], folder


def examine(engine: Engine, jobs: Sequence[ModelJob], folder: Path) -> list[Outcome]:
    """Run all of them in one engine, and hold each against the rules and the reference."""
    result = engine.run(jobs, folder)
    expected = references(jobs, folder)
    outcomes = []
    for job, reference, found in zip(jobs, expected, result.models, strict=True):
        assert reference.failure is None, f"{job.path.stem}: {reference.failure}"
        outcomes.append(Outcome(compare(engine.name, job, reference, found, engine.revision), result.version))
    return outcomes


def seen(outcome: Outcome) -> str:
    """What was found. An engine without names shows only whether its numbers are right."""
    found = outcome.comparison
    if not found.right:
        return "unsafe"
    if found.counts is None:
        return "right"
    return "taken" if found.counts.spmm else "not taken"
