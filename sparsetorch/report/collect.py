"""Everything that a report says, gathered from a run folder or a .tflite file. Needs neither torch nor TensorFlow."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sparsetorch.errors import BadInputError
from sparsetorch.files import gzipped_size
from sparsetorch.latency.result import KIND, BenchResult, stored_as
from sparsetorch.report.network import Row, rows
from sparsetorch.report.run_folder import Run, read_json, read_run
from sparsetorch.tflite import VALUES, Model, Storage, decode, encode, load, main_values, to_bytes
from sparsetorch.tflite.sense import expect_sense
from sparsetorch.xnnpack import DEFAULT_TARGETS, Verdict, verify

_MOST_BYTES, _MOST_GROWTH = 128 << 20, 100
"""A network whose weights take more, or so many times the file, unpacked is not stored in other precisions to see their sizes."""


@dataclass(frozen=True)
class Size:
    """Bytes of one way to store the network."""

    label: str
    values: str
    """`float32`, `float16` or `int8`."""
    encoding: str
    """`sparse` or `dense`."""
    raw: int
    gzip: int
    is_file: bool = False
    """Whether it is the reported file; the others were encoded from it in memory."""


@dataclass(frozen=True)
class Observed:
    """What one runtime showed, as `verify --observe --json` keeps it."""

    version: str
    taken: bool | None
    spmm: int | None
    max_rel_error: float | None
    wrong: tuple[str, ...] = ()
    disagreements: tuple[str, ...] = ()


@dataclass(frozen=True)
class Contents:
    """What a report shows."""

    source: str
    """The run folder or file that it is about."""
    model: str | None = None
    """The .tflite file."""
    verdict: Verdict | None = None
    network: tuple[Row, ...] = ()
    sizes: tuple[Size, ...] = ()
    run: Run | None = None
    observed: Mapping[str, Observed] = field(default_factory=dict)
    bench: BenchResult | None = None
    accuracy: Mapping[str, float] = field(default_factory=dict)
    """Last value of each metric; those of `sparsetorch test` before those of training."""
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        run = self.run
        return {
            "source": self.source,
            "model": self.model,
            "verdict": None if self.verdict is None else self.verdict.to_dict(),
            "observed": {name: asdict(one) for name, one in self.observed.items()},
            "network": [{**asdict(row), "role": row.role.value} for row in self.network],
            "sizes": [asdict(size) for size in self.sizes],
            "bench": None if self.bench is None else self.bench.to_dict(),
            "accuracy": dict(self.accuracy),
            "run": None
            if run is None
            else {
                "summary": dict(run.summary),
                "sparsity": {name: asdict(series) for name, series in run.sparsity.items()},
                "metrics": {name: asdict(series) for name, series in run.metrics.items()},
            },
            "notes": list(self.notes),
        }


def collect(
    source: Path,
    model: Path | None = None,
    results: Sequence[Path] = (),
    targets: Sequence[str] = DEFAULT_TARGETS,
    progress: Callable[[str], None] = lambda stage: None,
) -> Contents:
    """Gather what there is.

    Args:
        source: a run folder, or a .tflite file.
        model: the exported file of a run; None: the only one in its folder, or one whose dense twin lies beside it.
        results: JSON of `verify --observe`, `bench` and `test`. Those in the run folder are found by themselves.
        targets: what the verdict is about.
        progress: called with the name of every stage.

    Raises:
        BadInputError: neither a run folder nor a .tflite file, or a file among them that cannot be understood.
        UsageError: an unknown target.
    """
    notes: list[str] = []
    run = None
    if source.is_dir():
        progress("run folder")
        run = read_run(source)
        model = model or _exported(source, notes)
    elif not source.exists():
        raise BadInputError(f"{source} does not exist; give the folder of a run or a .tflite file")
    else:
        model = model or source
    contents = Contents(str(source), run=run, notes=tuple(notes), accuracy=_metrics(run))
    if model is not None:
        contents = _with_model(contents, model, targets, progress)
    return _with_results(contents, source, results)


def _exported(folder: Path, notes: list[str]) -> Path | None:
    found = sorted(path for path in folder.glob("*.tflite") if not path.name.endswith(".dense.tflite"))
    if len(found) > 1:
        twins = [path for path in found if path.with_suffix(".dense.tflite").is_file()]
        chosen = twins[0] if len(twins) == 1 else None
        told = f"; this is {chosen.name}, which has a dense twin" if chosen else "; name one by --model"
        notes.append(f"The folder holds {len(found)} .tflite files{told}.")
        return chosen
    if not found:
        notes.append(
            "No exported file in the folder, so there is no verdict: `sparsetorch export --checkpoint "
            "RUN_DIR/checkpoints/last.ckpt -o RUN_DIR/model.tflite --dense-twin` makes one."
        )
    return found[0] if found else None


def _with_model(contents: Contents, path: Path, targets: Sequence[str], progress: Callable[[str], None]) -> Contents:
    progress("verdict")
    verdict = verify(path, targets)
    model = load(path)
    with expect_sense(path):
        progress("operators")
        network = tuple(rows(model, verdict.reasons))
        progress("sizes in every precision")
        content = path.read_bytes()
        sizes, notes = _sizes(model, content), contents.notes
        if len(sizes) == 1:
            notes = (*notes, "Sizes in other precisions are left out: unpacked, the weights take too much memory.")
    return replace(contents, model=str(path), verdict=verdict, network=network, sizes=sizes, notes=notes)


def _sizes(model: Model, content: bytes) -> tuple[Size, ...]:
    """The file itself, and what the same network takes in every precision, dense and sparse."""
    values = main_values(model.tensors)
    is_sparse = any(tensor.sparsity is not None for tensor in model.tensors)
    encoding = "sparse" if is_sparse else "dense"
    found = [Size(f"this file: {stored_as(encoding, values)}", values, encoding, *_measure(content), is_file=True)]
    unpacked = sum(tensor.dense_bytes or 0 for tensor in model.tensors if tensor.data is not None)
    if unpacked > min(_MOST_BYTES, _MOST_GROWTH * len(content)):
        return tuple(found)
    plain = decode(model)
    for kind in ("dense", "sparse"):
        for stored in VALUES:
            if (kind, stored) == (encoding, values):
                continue
            made = plain.copy()
            encode(made, (lambda tensor: False) if kind == "dense" else None, Storage(stored))
            found.append(Size(stored_as(kind, stored), stored, kind, *_measure(to_bytes(made))))
    return tuple(sorted(found, key=lambda size: -size.raw))


def _measure(content: bytes) -> tuple[int, int]:
    return len(content), gzipped_size(content)


def _metrics(run: Run | None) -> dict[str, float]:
    found: dict[str, float] = {}
    if run is not None:
        found.update({name: series.values[-1] for name, series in run.metrics.items() if series.values})
        summary = run.summary.get("metrics")
        if isinstance(summary, dict):
            found.update(_numbers(summary))
    return {
        name: value
        for name, value in found.items()
        if name not in ("sparsity", "churn", "dropped", "grown", "exploration")
    }


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {str(name): float(value) for name, value in values.items() if isinstance(value, int | float)}


def _with_results(contents: Contents, source: Path, results: Sequence[Path]) -> Contents:
    found = sorted(source.glob("*.json")) if source.is_dir() else []
    for path in found:
        if path.name != "summary.json":
            contents, _ = _with_result(contents, read_json(path), path)
    for path in results:
        contents, known = _with_result(contents, read_json(path), path)
        if not known:
            raise BadInputError(
                f"{path}: found {', '.join(sorted(read_json(path))[:6]) or 'an empty object'}, needed the JSON of "
                "`sparsetorch verify --observe`, `bench` or `test`"
            )
    return contents


def _with_result(contents: Contents, fields: dict[str, Any], path: Path) -> tuple[Contents, bool]:
    """With one JSON taken in, and whether it is known."""
    if fields.get("kind") == KIND:
        return replace(contents, bench=BenchResult.from_dict(fields, str(path))), True
    if "targets" in fields and "layers" in fields:
        return _with_observed(contents, fields, path), True
    if isinstance(fields.get("metrics"), dict) and "run_dir" not in fields:
        return replace(contents, accuracy={**_numbers(fields["metrics"]), **contents.accuracy}), True
    return contents, False


def _with_observed(contents: Contents, fields: dict[str, Any], path: Path) -> Contents:
    named = Path(str(fields.get("file"))).name
    if contents.model is None or named != Path(contents.model).name:
        note = f"{path.name} is about {named}, which is not the file of this report: left out."
        return replace(contents, notes=(*contents.notes, note))
    try:
        observed = {
            str(name): Observed(
                str(one["version"]),
                None if one["taken"] is None else bool(one["taken"]),
                None if one["spmm"] is None else int(one["spmm"]),
                None if one["max_rel_error"] is None else float(one["max_rel_error"]),
                tuple(map(str, one.get("wrong", ()))),
                tuple(map(str, one.get("disagreements", ()))),
            )
            for name, one in fields.get("observed", {}).items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadInputError(f"{path}: its `observed` cannot be understood ({type(error).__name__}: {error})") from error
    return replace(contents, observed={**contents.observed, **observed})
