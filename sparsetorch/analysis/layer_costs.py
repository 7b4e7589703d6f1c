"""What the 1x1 convolutions of a network cost on one runtime: the table that latency-aware allocation goes by.

A table is measured by `sparsetorch costs` (`sparsetorch.runtime.layer_costs`) and kept as JSON. Needs no torch and no
runtime.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sparsetorch.errors import BadInputError

_TRUSTED = 2.5
"""Largest ratio of a layer's time per product to the median of all layers."""


@dataclass(frozen=True)
class LayerShape:
    """A 1x1 convolution with what it is run on."""

    in_channels: int
    out_channels: int
    height: int
    """Of its output, in pixels."""
    width: int

    @property
    def weights(self) -> int:
        """How many it has, without the bias."""
        return self.in_channels * self.out_channels


@dataclass(frozen=True)
class LayerTimes:
    """Times of one shape, in milliseconds of one inference."""

    shape: LayerShape
    dense_ms: float
    """Stored densely, off the sparse path."""
    sparse_ms: dict[float, float]
    """By sparsity, on the sparse path."""

    def line(self) -> tuple[float, float]:
        """Fixed milliseconds, and milliseconds per non-zero weight: least squares, neither below 0.

        A sparse product's work is its non-zeros; what rearranging inputs costs is the same at any sparsity.
        """
        kept = np.array([self.shape.weights * (1.0 - sparsity) for sparsity in self.sparse_ms])
        times = np.array(list(self.sparse_ms.values()))
        slope, fixed = np.polyfit(kept, times, 1)
        if slope <= 0.0:
            return float(times.mean()), 0.0
        if fixed < 0.0:
            return 0.0, float((kept * times).sum() / (kept * kept).sum())
        return float(fixed), float(slope)


@dataclass(frozen=True)
class CostTable:
    """Every 1x1 convolution of a network with its times, and where they were measured."""

    runtime: str
    """Runtime and version."""
    processor: str
    layers: dict[str, LayerShape]
    """By module path."""
    times: tuple[LayerTimes, ...]
    """One for each different shape."""
    rest_ms: float | None = None
    """What the network takes beside these layers; None where the whole network was not timed."""

    def of(self, name: str) -> LayerTimes:
        """The times of a layer."""
        return next(one for one in self.times if one.shape == self.layers[name])

    def line_of(self, name: str) -> tuple[float, float]:
        """A layer's fixed milliseconds, and milliseconds per non-zero weight, within `_TRUSTED` of what its pixels suggest.

        A weight's work is one product a pixel. A slope far off that of most layers is noise of the measurement; a layer taken as
        free would be left dense, and be the slowest of all.
        """
        each = float(np.median([one.line()[1] / (one.shape.height * one.shape.width) for one in self.times]))
        fixed, slope = self.of(name).line()
        usual = each * self.layers[name].height * self.layers[name].width
        return fixed, min(max(slope, usual / _TRUSTED), usual * _TRUSTED)

    def predict_ms(self, sparsities: Mapping[str, float]) -> float:
        """Milliseconds of these layers together, by module path, each at its sparsity."""
        lines = {name: self.line_of(name) for name in sparsities}
        return sum(
            fixed + slope * self.layers[name].weights * (1.0 - sparsities[name])
            for name, (fixed, slope) in lines.items()
        )

    def to_json(self) -> str:
        """As text that `read` takes."""
        return json.dumps(self.to_dict(), indent=1)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        times = [
            {**asdict(one), "sparse_ms": {f"{sparsity:g}": ms for sparsity, ms in one.sparse_ms.items()}}
            for one in self.times
        ]
        layers = {name: asdict(shape) for name, shape in self.layers.items()}
        return {
            "runtime": self.runtime,
            "processor": self.processor,
            "layers": layers,
            "times": times,
            "rest_ms": self.rest_ms,
        }

    @classmethod
    def read(cls, path: str | Path) -> "CostTable":
        """The table in a file.

        Raises:
            BadInputError: no such file, or not a table.
        """
        needed = "needed a cost table, as `sparsetorch costs -o FILE.json` writes it"
        try:
            found = json.loads(Path(path).read_text())
            times = tuple(
                LayerTimes(
                    LayerShape(**one["shape"]),
                    float(one["dense_ms"]),
                    {float(sparsity): float(ms) for sparsity, ms in one["sparse_ms"].items()},
                )
                for one in found["times"]
            )
            layers = {name: LayerShape(**shape) for name, shape in found["layers"].items()}
            rest = found.get("rest_ms")
            rest_ms = None if rest is None else float(rest)
            table = cls(str(found["runtime"]), str(found["processor"]), layers, times, rest_ms)
        except OSError as error:
            raise BadInputError(f"{path} cannot be read: {error.strerror}; {needed}") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInputError(f"{path}: found {type(error).__name__} ({error}), {needed}") from None
        lacking = [name for name, shape in layers.items() if shape not in {one.shape for one in times}]
        if lacking or any(len(one.sparse_ms) < 2 for one in times):
            raise BadInputError(
                f"{path}: found no times, or times at one sparsity, for {lacking or 'a shape'}; {needed}"
            )
        return table


def check_covers(table: CostTable, shapes: Mapping[str, Sequence[int]]) -> None:
    """Refuse a table of another network.

    Raises:
        BadInputError: a layer that is not in it, or has other channels there.
    """
    for name, shape in shapes.items():
        found = table.layers.get(name)
        if found is None:
            raise BadInputError(
                f"costs: the layer {name} is not in the table, which has {len(table.layers)} layers; measure this network "
                "(`sparsetorch costs`), and let the policy pick 1x1 convolutions only"
            )
        if tuple(shape)[:2] != (found.out_channels, found.in_channels):
            raise BadInputError(
                f"costs: layer {name} is {tuple(shape)}, and {found.out_channels}x{found.in_channels} in the table; measure "
                "this network"
            )
