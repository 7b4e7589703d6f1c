"""`sparsetorch.bench`: time files against each other in real runtimes.

All files of a runtime share one process and take turns after a warm-up, and another one begins each round: a busy spell of the
machine hits all alike. In its turn a file runs twice and the second run counts, so that what one file leaves in the caches is not
another's. Loading, first runs and steady runs stay apart. What is compared is medians, with a confidence interval.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from sparsetorch.errors import BadInputError, CannotObserveError, UsageError
from sparsetorch.latency.result import BenchResult, RuntimeResult, Timed
from sparsetorch.latency.statistics import ratio, summary
from sparsetorch.latency.variants import Variant, dense_twin, read_variants, write_precisions
from sparsetorch.runtime import android, chromium, host, wasm
from sparsetorch.runtime.reference import denormal_share
from sparsetorch.runtime.worker import ModelJob, Timing, WorkerResult, job_folder
from sparsetorch.tflite import decode, load, save

DEFAULT_RUNTIMES = ("host", "wasm")
MUCH_DENORMAL = 0.01
"""Share of denormal numbers above which times say more about them than about the network."""
_VISITS = 5


@dataclass(frozen=True)
class _Runtime:
    run: Callable[..., WorkerResult]
    has_sparse_path: Callable[[], bool]
    threads: int | None = None
    """The only number of threads that it has; None: as many as it is told."""
    note: str | None = None


def _visits(jobs: Sequence[ModelJob], folder: Path, timing: Timing, progress: Callable[[int], None]) -> WorkerResult:
    """benchmark_model times one file and gives the average: files take turns by the visit."""
    each = Timing(-(-timing.runs // _VISITS), timing.warmup, timing.threads)
    result = android.observe_operators(jobs, folder, each)
    for visit in range(1, _VISITS):
        progress(timing.runs * visit // _VISITS)
        result.rounds += android.observe_operators(jobs, folder, each).rounds
    progress(timing.runs)
    return result


_RUNTIMES: Mapping[str, _Runtime] = {
    "host": _Runtime(host.run, lambda: not host.has_avx()),
    "wasm": _Runtime(wasm.run_litert, lambda: True, threads=1),
    "chromium": _Runtime(chromium.run_litert, lambda: True),
    "android": _Runtime(
        _visits,
        lambda: True,
        note=f"each time is an average of benchmark_model's; files take turns in {_VISITS} visits",
    ),
}
RUNTIMES = tuple(_RUNTIMES)
"""Names that `bench` knows."""


def bench(
    files: Sequence[str | Path] | str | Path,
    runtimes: Sequence[str] = DEFAULT_RUNTIMES,
    *,
    runs: int = 60,
    warmup: int = 5,
    threads: int = 1,
    reference: str | Path | None = None,
    all_precisions: bool = False,
    progress: Callable[[str, int], None] = lambda stage, rounds: None,
) -> BenchResult:
    """Time .tflite files in each runtime.

    Args:
        files: one or more. A file's dense twin, `X.dense.tflite`, comes along by itself.
        runtimes: names out of `RUNTIMES`. One that is missing is said in the result, not raised.
        runs: timed runs of each file.
        warmup: runs before.
        threads: of the runtime; one that cannot have them is told in its notes.
        reference: the file that others are compared with; None: the first one's dense twin, or else the first. A lone sparse file
            without a twin is compared with itself, decoded.
        all_precisions: time the first file's network in every precision instead of the files.
        progress: called with a stage (a runtime's name) and the rounds done.

    Raises:
        BadInputError: a file that cannot be read, or several to be stored in every precision.
        UsageError: an unknown runtime, no runs, no threads.
    """
    paths = [Path(file) for file in ([files] if isinstance(files, str | Path) else files)]
    names = _checked(paths, runtimes, runs, warmup, threads)
    notes: list[str] = []
    with _chosen(paths, reference, all_precisions, notes, progress) as (variants, compared), job_folder() as folder:
        notes += _denormals(variants, folder)
        timing = Timing(runs, warmup, threads)
        found = {name: _measure(name, variants, compared, folder, timing, progress) for name in names}
        label = None if compared is None else variants[compared].label
        return BenchResult(runs, warmup, threads, host.processor(), label, found, version("sparsetorch"), tuple(notes))


def _checked(paths: Sequence[Path], runtimes: Sequence[str], runs: int, warmup: int, threads: int) -> tuple[str, ...]:
    unknown = [name for name in runtimes if name not in _RUNTIMES]
    if unknown:
        raise UsageError(f"unknown runtime {', '.join(map(repr, unknown))}. Runtimes: {', '.join(RUNTIMES)}.")
    if not paths:
        raise UsageError("found no file, needed at least one .tflite")
    for name, value, least in (("runs", runs, 1), ("warmup", warmup, 0), ("threads", threads, 1)):
        if value < least:
            raise UsageError(f"{name}: found {value}, needed at least {least}")
    return tuple(dict.fromkeys(runtimes))


@contextmanager
def _chosen(
    paths: Sequence[Path],
    reference: str | Path | None,
    all_precisions: bool,
    notes: list[str],
    progress: Callable[[str, int], None],
) -> Iterator[tuple[list[Variant], int | None]]:
    """The files to time, and which one is the reference (None for a single file)."""
    with tempfile.TemporaryDirectory(prefix="sparsetorch-") as folder:
        files = list(paths)
        first = None if reference is None else Path(reference)
        if all_precisions:
            if len(files) > 1 or first is not None:
                raise UsageError(
                    "all precisions: found several files, needed one; its dense float32 form is the reference"
                )
            files, told = write_precisions(files[0], Path(folder), lambda stage: progress(stage, 0))
            notes += told
        else:
            first = first or dense_twin(files[0]) or _decoded(files, Path(folder), notes)
        ordered = [*([first] if first is not None else []), *files]
        unique = list({path.resolve(): path for path in ordered}.values())
        variants = read_variants(unique)
        yield variants, 0 if len(variants) > 1 else None


def _decoded(files: Sequence[Path], folder: Path, notes: list[str]) -> Path | None:
    """The weights of a lone sparse file, stored densely; None for several files, or a dense one."""
    model = load(files[0])
    if len(files) > 1 or all(tensor.sparsity is None for tensor in model.tensors):
        return None
    notes.append("there is no dense twin beside the file: the reference is the same weights, decoded")
    target = folder / f"{files[0].stem}.decoded.tflite"
    save(decode(model), target)
    return target


def _denormals(variants: Sequence[Variant], folder: Path) -> list[str]:
    """What is to be said about denormal numbers in the first file: all are meant to be one network."""
    share = denormal_share(variants[0].job, folder)
    if share <= MUCH_DENORMAL:
        return []
    return [
        f"{share:.0%} of the computed values are denormal numbers, which processors handle up to a hundred times as "
        "slowly: these times say nothing about a trained network. Untrained ones need realistic batch-norm statistics."
    ]


def _measure(
    name: str,
    variants: Sequence[Variant],
    compared: int | None,
    folder: Path,
    timing: Timing,
    progress: Callable[[str, int], None],
) -> RuntimeResult:
    runtime = _RUNTIMES[name]
    notes = [] if runtime.note is None else [runtime.note]
    if runtime.threads is not None and timing.threads != runtime.threads:
        notes.append(f"LiteRT.js under Node.js runs on one thread; asked for {timing.threads}")
        timing = Timing(timing.runs, timing.warmup, runtime.threads)
    if not runtime.has_sparse_path():
        notes.append(
            "this processor has AVX, where XNNPACK has no sparse path: what sparsity gains cannot be observed here"
        )
    progress(name, 0)
    try:
        result = runtime.run([one.job for one in variants], folder, timing, lambda rounds: progress(name, rounds))
    except CannotObserveError as error:
        return RuntimeResult("", runtime.has_sparse_path(), missing=str(error))
    rows = tuple(_row(index, variants, compared, result) for index in range(len(variants)))
    return RuntimeResult(result.version, runtime.has_sparse_path(), rows, tuple(notes), threads=timing.threads)


def _row(index: int, variants: Sequence[Variant], compared: int | None, result: WorkerResult) -> Timed:
    model, variant = result.models[index], variants[index]
    size = variant.job.path.stat().st_size
    times = [times[index] for times in result.rounds if index in times]
    if model.failure is not None or not times:
        why = model.failure or "it gave no times"
        return Timed(str(variant.job.path), variant.label, size, model.init_ms, failure=f"does not run: {why}")
    found = None
    if compared is not None and compared != index:
        both = [one for one in result.rounds if compared in one and index in one]
        found = ratio([one[compared] for one in both], [one[index] for one in both]) if both else None
    return Timed(
        str(variant.job.path),
        variant.label,
        size,
        model.init_ms,
        summary(times),
        found,
        dict(model.operators or {}),
    )


def nothing_observed(result: BenchResult) -> str | None:
    """Why a measurement answers nothing, or None: no runtime ran, or sparse files ran only where there is no sparse path."""
    ran = [runtime for runtime in result.runtimes.values() if any(row.ms for row in runtime.rows)]
    if not ran:
        return (
            "; ".join(f"{name}: {runtime.missing}" for name, runtime in result.runtimes.items() if runtime.missing)
            or None
        )
    sparse = any(row.label.startswith("sparse") for runtime in ran for row in runtime.rows)
    if sparse and not any(runtime.shows_sparse_path for runtime in ran):
        return "what sparsity gains cannot be observed here: no runtime with a sparse path was measured; try --runtime wasm"
    return None


def check_ran(result: BenchResult) -> None:
    """Raise where a file did not run.

    Raises:
        BadInputError: with the file, the runtime and its message.
    """
    for name, runtime in result.runtimes.items():
        for row in runtime.rows:
            if row.failure is not None:
                raise BadInputError(f"{row.file} in {name} {row.failure}")
