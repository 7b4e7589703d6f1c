"""One ONNX node as the lowerings see it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sparsetorch.preflight.builder import Builder


@dataclass(frozen=True)
class Node:
    """An operator of the default ONNX domain."""

    op: str
    inputs: tuple[str, ...]
    """Names; empty for an optional operand that is left out."""
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    """Strings decoded."""

    def has(self, index: int) -> bool:
        """Whether an optional operand is there."""
        return len(self.inputs) > index and bool(self.inputs[index])


Lowering = Callable[[Builder, Node], None]
"""Appends operators and defines the node's outputs; raises UnknownOperatorError before it appends, or right after."""
