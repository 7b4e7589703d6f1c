"""What a run left in its folder, read back. Any file may be missing; one that is there and damaged is an error."""

import csv
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparsetorch.errors import BadInputError

_TOTAL = "total"


@dataclass(frozen=True)
class Series:
    """One quantity over optimizer steps."""

    steps: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Run:
    """A training run."""

    folder: Path
    summary: Mapping[str, Any] = field(default_factory=dict)
    """summary.json."""
    sparsity: Mapping[str, Series] = field(default_factory=dict)
    """Module path -> share of zeros over steps, from sparsity.csv, or else from metrics.csv; `total` is all of them."""
    metrics: Mapping[str, Series] = field(default_factory=dict)
    """Logged metric -> its values, from metrics.csv; without those of single layers."""
    config: str | None = None
    """config.yaml as it is."""


def read_run(folder: Path) -> Run:
    """Read a run folder.

    Raises:
        BadInputError: it is none, or a file in it cannot be understood.
    """
    if not (folder / "summary.json").is_file() and not (folder / "metrics.csv").is_file():
        raise BadInputError(
            f"{folder}: found neither summary.json nor metrics.csv, needed the folder of a run that `sparsetorch fit` made"
        )
    summary = read_json(folder / "summary.json") if (folder / "summary.json").is_file() else {}
    logged = _columns(folder / "metrics.csv")
    layers = {name.removeprefix("sparsity/"): series for name, series in logged.items() if name.startswith("sparsity/")}
    if layers and "sparsity" in logged:
        layers[_TOTAL] = logged["sparsity"]
    recorded = _history(folder / "sparsity.csv")
    config = folder / "config.yaml"
    return Run(
        folder,
        summary,
        recorded or layers,
        {name: series for name, series in logged.items() if "/" not in name},
        config.read_text(errors="replace") if config.is_file() else None,
    )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object.

    Raises:
        BadInputError: unreadable, or something else.
    """
    try:
        found = json.loads(path.read_text(), parse_constant=lambda name: None)  # NaN and infinities are no numbers
    except (OSError, ValueError, RecursionError) as error:
        raise BadInputError(f"{path}: cannot be read as JSON ({error})") from None
    if not isinstance(found, dict):
        raise BadInputError(f"{path}: found a JSON {type(found).__name__}, needed an object")
    return found


def _lines(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    try:
        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInputError(f"{path}: cannot be read as CSV ({error})") from None


def _columns(path: Path) -> dict[str, Series]:
    """Each column of Lightning's CSV over its `step`, without the rows where it has no value."""
    found: dict[str, list[tuple[float, float]]] = {}
    for number, line in enumerate(_lines(path)):
        step = _float(line.get("step"), number)
        for name, value in line.items():
            if name not in (None, "step", "epoch") and isinstance(value, str) and value.strip():
                found.setdefault(name, []).append((step, _float(value, math.nan)))
    return {name: _series(points) for name, points in found.items()}


def _history(path: Path) -> dict[str, Series]:
    found: dict[str, list[tuple[float, float]]] = {}
    for line in _lines(path):
        try:
            found.setdefault(line["layer"], []).append((float(line["step"]), float(line["sparsity"])))
        except (KeyError, TypeError, ValueError):
            raise BadInputError(f"{path}: found {line}, needed the columns step, layer and sparsity") from None
    return {name: _series(points) for name, points in found.items()}


def _series(points: list[tuple[float, float]]) -> Series:
    kept = [(step, value) for step, value in points if math.isfinite(step) and math.isfinite(value)]
    return Series(tuple(step for step, _ in kept), tuple(value for _, value in kept))


def _float(value: Any, otherwise: float) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float(otherwise)
