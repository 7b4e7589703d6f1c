"""Run a file where the sparse path can be seen, and say what was seen: `verify --observe`.

A file counts as proven in a runtime that names its operators if these are the ones that the rules of its XNNPACK revision
expect, every sparse-encoded 1x1 convolution runs as SPMM, and the outputs are the reference's.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sparsetorch.errors import BadInputError, UsageError
from sparsetorch.runtime import android, emulated, emulated_arm64, host, wasm
from sparsetorch.runtime.comparison import Comparison, compare
from sparsetorch.runtime.observation import Observation
from sparsetorch.runtime.prediction import encoded_pointwise, predict
from sparsetorch.runtime.reference import Reference, references
from sparsetorch.runtime.worker import ModelJob, WorkerResult, job_folder
from sparsetorch.xnnpack.revisions import XNNPACK_2023_06, XNNPACK_2026_08, Revision
from sparsetorch.xnnpack.verdict import Verdict


@dataclass(frozen=True)
class Run:
    """What one engine gave, and the rules that it goes by (None: it has no sparse path)."""

    engine: str
    result: WorkerResult
    revision: Revision | None


def _host(job: ModelJob, folder: Path) -> list[Run]:
    return [Run("LiteRT on this computer", host.run([job], folder), None)]


def _wasm(job: ModelJob, folder: Path) -> list[Run]:
    runs = [Run("tfjs-tflite", wasm.observe_operators([job], folder), XNNPACK_2023_06)]
    if wasm.litert_takes(job.model):
        runs.append(Run("LiteRT.js", wasm.run_litert([job], folder), XNNPACK_2026_08))
    return runs


def _emulated(job: ModelJob, folder: Path) -> list[Run]:
    return [Run("LiteRT emulated", emulated.observe_operators([job], folder), XNNPACK_2026_08)]


def _emulated_arm64(job: ModelJob, folder: Path) -> list[Run]:
    return [Run("LiteRT emulated on ARM", emulated_arm64.observe_operators([job], folder), XNNPACK_2026_08)]


def _android(job: ModelJob, folder: Path) -> list[Run]:
    return [Run("benchmark_model", android.observe_operators([job], folder), XNNPACK_2026_08)]


_RUNTIMES: dict[str, Callable[[ModelJob, Path], list[Run]]] = {
    "host": _host,
    "wasm": _wasm,
    "emulated": _emulated,
    "emulated-arm64": _emulated_arm64,
    "android": _android,
}
RUNTIMES = tuple(_RUNTIMES)
"""Names for `--observe`."""


def find_runtimes(names: Sequence[str]) -> tuple[str, ...]:
    """The names asked for, each once.

    Raises:
        UsageError: an unknown name.
    """
    unknown = [name for name in names if name not in _RUNTIMES]
    if unknown:
        raise UsageError(f"unknown runtime {', '.join(map(repr, unknown))}. Runtimes: {', '.join(RUNTIMES)}.")
    return tuple(dict.fromkeys(names))


def observe(
    path: str | Path, runtimes: Sequence[str], progress: Callable[[str], None] = lambda runtime: None
) -> dict[str, Observation]:
    """Run a file in each runtime on random inputs.

    Args:
        path: the file.
        runtimes: names out of `RUNTIMES`.
        progress: called with the name of each runtime when its turn comes.

    Raises:
        BadInputError: the file cannot be read, or does not run on this computer.
        CannotObserveError: a runtime is missing; the message says what installs it.
        UsageError: an unknown runtime.
    """
    names = find_runtimes(runtimes)
    job = ModelJob.read(path)
    with job_folder() as folder:
        (reference,) = references([job], folder)
        if reference.failure is not None:
            raise BadInputError(
                f"{path}: LiteRT does not run it on this computer ({reference.failure}): nothing to compare with"
            )
        found = {}
        for name in names:
            progress(name)
            found[name] = _observation(name, job, reference, _RUNTIMES[name](job, folder))
        return found


def _observation(name: str, job: ModelJob, reference: Reference, runs: Sequence[Run]) -> Observation:
    comparisons = [compare(run.engine, job, reference, run.result.models[0], run.revision) for run in runs]
    naming = next((one for one in comparisons if one.counts is not None), None)
    errors = {one.engine: _finite(one.error) for one in comparisons}
    observation = Observation(
        version="; ".join(run.result.version for run in runs),
        taken=None,
        spmm=None,
        operators={},
        max_rel_error=None if None in errors.values() else max(error for error in errors.values() if error is not None),
        errors=errors,
        expected=None,
        counts=None,
        wrong=tuple(f"{one.engine}: {one.trouble}{_as_expected(one)}" for one in comparisons if not one.right),
        disagreements=tuple(words for one in comparisons for words in one.disagreements),
        notes=_notes(name, job, comparisons),
    )
    if naming is None or naming.counts is None or naming.prediction is None:
        return observation
    spmm = naming.counts.spmm
    encoded = encoded_pointwise(job.model, naming.prediction.revision)
    return replace(
        observation,
        taken=spmm > 0 and spmm >= encoded and not observation.wrong,
        spmm=spmm,
        operators=naming.operators,
        expected=naming.prediction.counts,
        counts=naming.counts,
    )


def _notes(name: str, job: ModelJob, comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    if name == "host":
        why = "XNNPACK switches it off on x86 with AVX" if host.has_avx() else "this interpreter names no operators"
        return (f"the sparse path cannot be observed here: {why}; --observe wasm or --observe emulated can show it",)
    if name == "wasm":
        notes = (
            [] if len(comparisons) > 1 else ["LiteRT.js takes float32, int32 and uint8 inputs only and did not run it"]
        )
        old, new = (predict(job.model, revision) for revision in (XNNPACK_2023_06, XNNPACK_2026_08))
        if old.taken != new.taken:
            today, then = ("takes", "does not") if new.taken else ("does not take", "does")
            notes.append(
                f"by the rules today's XNNPACK {today} the sparse path and that of 2023, which names its operators in "
                f"WebAssembly, {then}: --observe emulated shows today's"
            )
        return tuple(notes)
    return ()


def _as_expected(one: Comparison) -> str:
    return f", as the rules expect: {one.prediction.unsafe[0]}" if one.prediction and one.prediction.unsafe else ""


def _finite(error: float | None) -> float | None:
    return error if error is not None and math.isfinite(error) else None


def exit_code(verdict: Verdict) -> int:
    """What `verify --observe` ends with.

    4: wrong numbers, or not what the rules say. 3: not eligible. 5: eligible, and a runtime asked for could not show the path
    taken. 0: eligible, and taken wherever it was looked for.
    """
    found = verdict.observed.values()
    if any(one.wrong or one.disagreements for one in found):
        return 4
    if not verdict.eligible:
        return 3
    return 0 if all(one.taken for one in found) else 5
