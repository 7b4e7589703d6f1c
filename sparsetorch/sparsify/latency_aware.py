"""A distribution that puts zeros where they buy time, by a measured table of costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sparsetorch.analysis.layer_costs import CostTable, check_covers
from sparsetorch.errors import BadInputError
from sparsetorch.sparsify.distribution import Distribution
from sparsetorch.sparsify.latency_allocation import Bounds, LayerCost, fastest, least_loss, milliseconds
from sparsetorch.sparsify.mask import check_sparsity


@dataclass(frozen=True)
class LatencyAware(Distribution):
    """Sparsities by what a zero buys: layers of many pixels become sparser than others, at the same zeros in total.

    With `target_ms`, the least loss that meets the target at the schedule's sparsity; without, the fastest whose loss is at most
    `loss_ratio` of the least. How loss is estimated: `sparsetorch.sparsify.latency_allocation`. The policy must pick 1x1
    convolutions of the table only.
    """

    costs: str
    """JSON file that `sparsetorch costs` wrote for this network and input size."""
    target_ms: float | None = None
    """Milliseconds for the layers together and `rest_ms`."""
    rest_ms: float | None = None
    """What the rest of the network takes: stem, depthwise layers, classifier. None: what the table says (`sparsetorch costs
    --network`), 0 where it was not measured."""
    loss_ratio: float = 1.1
    """Without a target: estimated loss allowed, over that of all layers alike sparse."""
    lowest: float = 0.0
    """Least sparsity of a layer."""
    highest: float = 0.98
    """Largest sparsity of a layer."""
    sensitivity: dict[str, float] = field(default_factory=dict)
    """Loss of a weight by module path, against 1 for layers that are not named."""

    def __post_init__(self) -> None:
        Bounds(self.lowest, self.highest)
        least = {"loss_ratio": self.loss_ratio - 1.0, "rest_ms": self.rest_ms or 0.0, **self.sensitivity}
        for name, value in least.items():
            if value < 0.0:
                raise BadInputError(f"distribution: {name} is too small")
        if self.target_ms is not None and self.target_ms <= (self.rest_ms or 0.0):
            raise BadInputError(
                f"target_ms: found {self.target_ms:g}, needed more than rest_ms, {self.rest_ms or 0.0:g}"
            )

    @cached_property
    def table(self) -> CostTable:
        """The table of costs, read once."""
        return CostTable.read(self.costs)

    @property
    def rest(self) -> float:
        """Milliseconds of the rest of the network."""
        told = self.table.rest_ms if self.rest_ms is None else self.rest_ms
        return told or 0.0

    def allocate(
        self, shapes: Mapping[str, Sequence[int]], sparsity: float, *, first_layer: str | None = None
    ) -> dict[str, float]:
        """Sparsity per layer; see `Distribution.allocate`.

        While a gradual schedule is still at sparsities at which the target cannot be met, layers are as fast as they can be.
        """
        check_sparsity(sparsity)
        layers = self._layers(shapes)
        bounds = Bounds(min(self.lowest, sparsity), max(self.highest, sparsity))
        return dict(zip(shapes, self._solve(layers, sparsity, bounds), strict=True))

    def check(self, shapes: Mapping[str, Sequence[int]], sparsity: float) -> None:
        """The table has to hold these layers, and the target has to be met within the bounds."""
        layers = self._layers(shapes)
        if self.target_ms is not None and self.target_ms <= self.rest:
            raise BadInputError(
                f"target_ms: found {self.target_ms:g} ms, needed more than {self.rest:g} ms, what the rest of the network takes"
            )
        least_loss(layers, sparsity, Bounds(self.lowest, self.highest), at_most_ms=self._allowed())

    def predict_ms(self, sparsities: Mapping[str, float]) -> float:
        """What the table says that layers at these sparsities take, with `rest_ms`."""
        check_covers(self.table, {name: _shape(self.table, name) for name in sparsities})
        return self.rest + self.table.predict_ms(sparsities)

    def _allowed(self) -> float | None:
        return None if self.target_ms is None else self.target_ms - self.rest

    def _solve(self, layers: Sequence[LayerCost], sparsity: float, bounds: Bounds) -> list[float]:
        allowed = self._allowed()
        if allowed is None:
            return fastest(layers, sparsity, bounds, loss_ratio=self.loss_ratio)
        quickest = fastest(layers, sparsity, bounds)
        if milliseconds(layers, quickest) >= allowed:
            return quickest
        return least_loss(layers, sparsity, bounds, at_most_ms=allowed)

    def _layers(self, shapes: Mapping[str, Sequence[int]]) -> list[LayerCost]:
        check_covers(self.table, shapes)
        unknown = [name for name in self.sensitivity if name not in self.table.layers]
        if unknown:
            raise BadInputError(f"sensitivity: {', '.join(unknown)} is no layer of the table {self.costs}")
        made = []
        for name in shapes:
            fixed, slope = self.table.line_of(name)
            weights = self.table.layers[name].weights
            made.append(LayerCost(name, weights, slope, fixed, self.sensitivity.get(name, 1.0)))
        return made


def _shape(table: CostTable, name: str) -> tuple[int, int]:
    shape = table.layers.get(name)
    if shape is None:
        raise BadInputError(f"costs: the layer {name} is not in the table")
    return shape.out_channels, shape.in_channels
