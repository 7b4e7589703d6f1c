"""The learning rate by hand."""

import pytest
import torch

from sparsetorch.errors import BadInputError
from sparsetorch.models import WarmupCosine


def test_up_along_a_line_and_down_along_a_cosine() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=2.0)
    schedule = WarmupCosine(optimizer, total=8, warmup=4)
    rates = []
    for _ in range(9):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    half = 2**0.5 / 2
    assert rates == pytest.approx([0.5, 1.0, 1.5, 2.0, 2.0, 1 + half, 1.0, 1 - half, 0.0])


def test_a_warmup_that_never_ends_is_refused() -> None:
    with pytest.raises(BadInputError, match="warmup: found 8, needed 0 to 7"):
        WarmupCosine(torch.optim.SGD([torch.zeros(1)], lr=1.0), total=8, warmup=8)
