"""A network looked at in evaluation mode, and left as it was."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; afterwards every module has its own mode again.

    `module.train(mode)` would not do: it sets all inner modules alike, and a batch-norm that is frozen in evaluation mode would
    start to learn.
    """
    modes: list[tuple[Any, bool]] = [(inner, inner.training) for inner in module.modules()]
    try:
        module.eval()
        yield
    finally:
        for inner, training in modes:
            inner.training = training
