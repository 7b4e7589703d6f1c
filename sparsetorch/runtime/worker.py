"""Give models to a runtime in another process, and read what it says.

A worker (JavaScript under Node, Python for LiteRT) gets a folder with `job.json`: the models, for each the files of its
inputs, how often to run. It answers on standard output, one JSON object a line:

    {"event": "version", "parts": {name: version}}
    {"event": "model", "model": 0, "init_ms": 12.3, "outputs": [[{name, dtype, file}]]}
     and where the runtime profiles: "operators": {name: count}, or "profile": "TFLite's summary of all runs"
    {"event": "failed", "model": 0, "message": "..."}
    {"event": "round", "round": 0, "ms": {"0": 1.23, "1": 0.98}}

A file that makes a runtime crash takes the process with it and nothing else: the models behind it go to a new one.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparsetorch.errors import CannotObserveError
from sparsetorch.exporter.interpreter import Array, random_inputs
from sparsetorch.process import ProcessFailedError, ProcessTimeoutError, lines
from sparsetorch.runtime.model_io import Output, inputs_of
from sparsetorch.runtime.profile import delegate_operators
from sparsetorch.tflite.model import Model
from sparsetorch.tflite.read import load

LOAD_LIMIT = 120.0
"""Seconds that a runtime may take over one model without a word: loading and a few runs."""
TOTAL_LIMIT = 3600.0


@dataclass
class ModelResult:
    """One model in one runtime."""

    init_ms: float | None = None
    """Loading and preparing, without reading the file."""
    operators: dict[str, int] | None = None
    outputs: list[list[Output]] = field(default_factory=list)
    """For each set of inputs, the outputs."""
    denormal: float | None = None
    """Share of denormal numbers among all computed values, where the worker looks at them."""
    failure: str | None = None


@dataclass
class WorkerResult:
    """All models in one runtime."""

    parts: dict[str, str]
    models: list[ModelResult]
    rounds: list[dict[int, float]]
    """For each round, milliseconds by model."""

    @property
    def version(self) -> str:
        """`LiteRT.js 2.5.3 (relaxed SIMD), Node.js 20.1.0`."""
        return ", ".join(f"{name} {version}" for name, version in self.parts.items())


@dataclass(frozen=True)
class ModelJob:
    """A model with the inputs to run it on."""

    path: Path
    model: Model
    inputs: list[list[Array]]

    @classmethod
    def read(cls, path: str | Path, sets: int = 3) -> "ModelJob":
        """A file with `sets` sets of random inputs.

        Raises:
            BadInputError: no TFLite file, or inputs for which no values can be drawn.
        """
        model = load(path)
        return cls(Path(path), model, random_inputs(model.graphs[0].inputs, sets))


@dataclass(frozen=True)
class Timing:
    """How to time: rounds of one run of each model, after a warm-up."""

    runs: int = 0
    warmup: int = 0
    threads: int = 1


@contextmanager
def job_folder() -> Iterator[Path]:
    """A folder for inputs and outputs, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="sparsetorch-") as folder:
        yield Path(folder)


def run_worker(
    words: Sequence[str | Path],
    jobs: Sequence[ModelJob],
    folder: Path,
    timing: Timing | None = None,
    *,
    extra: dict[str, Any] | None = None,
    environment: dict[str, str] | None = None,
    progress: Callable[[int], None] = lambda rounds: None,
    limit: float = LOAD_LIMIT,
) -> WorkerResult:
    """Run a worker over `jobs`; `words` is its command, to which the job file is added.

    Raises:
        CannotObserveError: the worker itself does not start.
    """
    result = WorkerResult({}, [ModelResult() for _ in jobs], [])
    waiting = list(range(len(jobs)))
    timing = timing or Timing()
    while waiting:
        job = _write_job(folder, [jobs[index] for index in waiting], timing, extra or {})
        done: set[int] = set()
        ending = ""
        try:
            for line in lines([*map(str, words), str(job)], silence=limit, total=TOTAL_LIMIT, environment=environment):
                _take(line, waiting, result, done, progress)
        except ProcessTimeoutError as error:
            ending = str(error)
        except ProcessFailedError as error:
            if not result.parts:
                last = error.errors.splitlines()[-1] if error.errors else "it said nothing"
                raise CannotObserveError(f"{Path(str(words[0])).name} ended with {error}: {last}") from error
            ending = f"the runtime crashed ({error})"
        left = [index for index in waiting if index not in done]
        if not left:
            if ending:  # it crashed while it was timing: no model is to blame for certain
                raise CannotObserveError(f"the runtime stopped while it was timing: {ending}")
            break
        if left[0] != waiting[0] and not timing.runs:
            waiting = (
                left  # what a model before it left behind may be to blame: once more, first in a process of its own
            )
            continue
        result.models[left[0]].failure = ending or "the runtime stopped without a word"
        waiting = left[1:]
        if timing.runs:
            result.rounds.clear()
            waiting = [index for index in range(len(jobs)) if result.models[index].failure is None]
    return result


def _write_job(folder: Path, jobs: Sequence[ModelJob], timing: Timing, extra: dict[str, Any]) -> Path:
    outputs = Path(tempfile.mkdtemp(prefix="outputs-", dir=folder))
    models = []
    for number, job in enumerate(jobs):
        sets = []
        for set_number, arrays in enumerate(job.inputs):
            inputs = []
            for at, (slot, array) in enumerate(zip(inputs_of(job.model), arrays, strict=True)):
                file = outputs / f"in-{number}-{set_number}-{at}.bin"
                file.write_bytes(array.tobytes())
                inputs.append(
                    {"names": slot.names, "dtype": array.dtype.name, "shape": list(array.shape), "file": str(file)}
                )
            sets.append(inputs)
        models.append({"path": str(job.path.absolute()), "inputs": sets})
    path = outputs / "job.json"
    fields = {"runs": timing.runs, "warmup": timing.warmup, "threads": timing.threads}
    path.write_text(json.dumps({"models": models, "outputs": str(outputs), **fields, **extra}))
    return path


def _take(line: str, waiting: list[int], result: WorkerResult, done: set[int], progress: Callable[[int], None]) -> None:
    if not line.startswith('{"event"'):
        return  # chatter of a library that writes to standard output
    event = json.loads(line)
    if event["event"] == "version":
        result.parts.update(event["parts"])
        return
    if event["event"] == "round":
        result.rounds.append({waiting[int(index)]: ms for index, ms in event["ms"].items()})
        progress(len(result.rounds))
        return
    index = waiting[event["model"]]
    model = result.models[index]
    done.add(index)
    if event["event"] == "failed":
        model.failure = event["message"]
        return
    model.init_ms, model.operators = event["init_ms"], event.get("operators")
    if "profile" in event:
        model.operators = delegate_operators(event["profile"], len(event["outputs"]))
    model.denormal = event.get("denormal")
    model.outputs = [
        [Output(one["name"], one["dtype"], Path(one["file"])) for one in one_set] for one_set in event["outputs"]
    ]
