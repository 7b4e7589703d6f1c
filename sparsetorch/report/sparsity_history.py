"""What the updates of a sparse training did, as numbers: a row per layer and mask update, bounded in length."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

QUANTITIES = ("sparsity", "dropped", "grown", "churn", "exploration")
"""Columns: share of zeros; entries dropped; entries grown; share of the active entries exchanged; share ever active."""
TOTAL = "total"
"""The name of the last row of every point: all masked layers together."""


@dataclass
class SparsityHistory:
    """Points in order of steps. Past `capacity` points, every second one is left out, the first and last never."""

    layers: list[str] = field(default_factory=list)
    """Module paths of the masked layers."""
    capacity: int = 1000
    """Most points that are kept."""
    steps: list[int] = field(default_factory=list)
    """Optimizer step of each point."""
    points: list[Tensor] = field(default_factory=list)
    """Per point (layers + 1, 5), float64: `QUANTITIES` of each layer, and of all together in the last row."""

    def add(self, step: int, rows: Sequence[Sequence[float]]) -> None:
        """Append a point: a row of `QUANTITIES` per layer, then the total's."""
        self.steps.append(step)
        self.points.append(torch.tensor(rows, dtype=torch.float64))
        if len(self.steps) > self.capacity:
            keep = sorted({*range(0, len(self.steps), 2), len(self.steps) - 1})
            self.steps = [self.steps[index] for index in keep]
            self.points = [self.points[index] for index in keep]

    def series(self, quantity: str) -> Tensor:
        """One quantity over all points: (points, layers + 1), the total in the last column."""
        return torch.stack(self.points)[:, :, QUANTITIES.index(quantity)]

    def to_csv(self) -> str:
        """`step,layer,` and the quantities: a line per point and layer, and one for the total."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["step", "layer", *QUANTITIES])
        for step, point in zip(self.steps, self.points, strict=True):
            for name, (sparsity, dropped, grown, churn, exploration) in zip(
                [*self.layers, TOTAL], point.tolist(), strict=True
            ):
                writer.writerow(
                    [step, name, f"{sparsity:.8g}", int(dropped), int(grown), f"{churn:.8g}", f"{exploration:.8g}"]
                )
        return text.getvalue()

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain types, for a checkpoint."""
        points = torch.stack(self.points) if self.points else torch.empty(0)
        return {"layers": list(self.layers), "steps": list(self.steps), "points": points}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self.layers, self.steps = list(state["layers"]), list(state["steps"])
        self.points = list(state["points"].unbind()) if self.steps else []
