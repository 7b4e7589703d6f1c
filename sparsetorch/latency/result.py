"""What `sparsetorch bench` measured, as plain values, and back from its JSON."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sparsetorch.errors import BadInputError
from sparsetorch.latency.statistics import Ratio, Summary, in_words

KIND = "sparsetorch bench"
"""What the JSON's `kind` says."""


def stored_as(encoding: str, values: str) -> str:
    """`sparse float16`; `sparse int8-stored`, since it computes in float."""
    return f"{encoding} {values}" + ("-stored" if values == "int8" else "")


@dataclass(frozen=True)
class Timed:
    """One file in one runtime."""

    file: str
    label: str
    """What it is in a word or two: `sparse float16`."""
    bytes: int
    init_ms: float | None = None
    """Loading and preparing, apart from every run."""
    ms: Summary | None = None
    """Milliseconds of one inference; None where it did not run."""
    ratio: Ratio | None = None
    """Against the reference; None for the reference itself, and where there is none."""
    operators: Mapping[str, int] = field(default_factory=dict)
    """XNNPACK operator -> how often it runs in one inference, where the runtime names them."""
    failure: str | None = None

    @property
    def in_words(self) -> str:
        """What the measurement says of it."""
        if self.failure is not None:
            return self.failure
        return "" if self.ratio is None else in_words(self.ratio)


@dataclass(frozen=True)
class RuntimeResult:
    """All files in one runtime."""

    version: str
    shows_sparse_path: bool
    """Whether this runtime on this processor has a sparse path: without one, no difference proves nothing."""
    rows: tuple[Timed, ...] = ()
    notes: tuple[str, ...] = ()
    missing: str | None = None
    """Why nothing was measured, and what to do."""
    threads: int | None = None
    """Those that it had; None where nothing was measured."""


@dataclass(frozen=True)
class BenchResult:
    """A whole measurement."""

    runs: int
    warmup: int
    threads: int
    processor: str
    reference: str | None
    """Label of the file that others are compared with; None where there is one file."""
    runtimes: Mapping[str, RuntimeResult]
    version: str
    """Of this package."""
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, each row's statement in words among them."""
        fields = {"kind": KIND, **asdict(self), "runtimes": {}}
        for name, runtime in self.runtimes.items():
            rows = [{**asdict(row), "in_words": row.in_words} for row in runtime.rows]
            fields["runtimes"][name] = {**asdict(runtime), "rows": rows}
        return fields

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], where: str) -> "BenchResult":
        """From what `to_dict` made and JSON kept.

        Raises:
            BadInputError: it is something else.
        """
        try:
            return cls(
                int(fields["runs"]),
                int(fields["warmup"]),
                int(fields["threads"]),
                str(fields["processor"]),
                None if fields["reference"] is None else str(fields["reference"]),
                {str(name): _runtime(value) for name, value in fields["runtimes"].items()},
                str(fields["version"]),
                tuple(map(str, fields["notes"])),
            )
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise BadInputError(
                f"{where}: no result of `sparsetorch bench --json` ({type(error).__name__}: {error}); measure again."
            ) from error


def _runtime(fields: Mapping[str, Any]) -> RuntimeResult:
    return RuntimeResult(
        str(fields["version"]),
        bool(fields["shows_sparse_path"]),
        tuple(map(_row, fields["rows"])),
        tuple(map(str, fields["notes"])),
        None if fields["missing"] is None else str(fields["missing"]),
        None if fields["threads"] is None else int(fields["threads"]),
    )


def _row(fields: Mapping[str, Any]) -> Timed:
    ms, found = fields["ms"], fields["ratio"]
    return Timed(
        str(fields["file"]),
        str(fields["label"]),
        int(fields["bytes"]),
        None if fields["init_ms"] is None else _number(fields["init_ms"]),
        None
        if ms is None
        else Summary(_number(ms["median"]), _number(ms["p10"]), _number(ms["p90"]), int(ms["count"])),
        None if found is None else Ratio(*(_number(found[key]) for key in ("value", "low", "high"))),
        {str(name): int(count) for name, count in fields["operators"].items()},
        None if fields["failure"] is None else str(fields["failure"]),
    )


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"found {value!r}, needed a number of at least 0")
    return number


def to_ship(rows: Sequence[Timed]) -> Timed | None:
    """The smallest of the files that are not measurably slower than the fastest; None where nothing is measurably faster.

    Not measurably slower: the confidence intervals of their ratios overlap.
    """
    gains = [(row, row.ratio) for row in rows if row.ratio is not None]
    fastest = max((found for _, found in gains), key=lambda found: found.value, default=None)
    if fastest is None or fastest.low <= 1.0:
        return None
    return min((row for row, found in gains if found.high >= fastest.low), key=lambda row: row.bytes)
