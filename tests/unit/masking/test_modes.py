"""Looking at a network must leave every module in the mode it was in: a frozen batch-norm stays frozen."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from sparsetorch.analysis.accounting import account
from sparsetorch.analysis.pointwise_layers import pointwise_layers
from sparsetorch.masking import evaluating
from sparsetorch.preflight.check import check
from sparsetorch.structured.feature_ranks import hrank_scores
from sparsetorch.structured.groups import channel_groups, guess_input_shape, prunable

SHAPE = (3, 8, 8)


def fine_tuned() -> nn.Sequential:
    """In training, but its first batch-norm frozen, as in fine-tuning."""
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 4),
    ]
    network = nn.Sequential(*layers).train()
    network[1].eval()
    return network


def ranks(network: nn.Module) -> dict[str, Tensor]:
    return hrank_scores(network, prunable(channel_groups(network, SHAPE)), [torch.rand(2, *SHAPE)])


@pytest.mark.parametrize(
    "look",
    [
        lambda network: account(network, SHAPE),
        lambda network: pointwise_layers(network, SHAPE),
        lambda network: channel_groups(network, SHAPE),
        lambda network: check(network, SHAPE),
        guess_input_shape,
        ranks,
    ],
    ids=["account", "pointwise_layers", "channel_groups", "check", "guess_input_shape", "hrank_scores"],
)
def test_modes_and_statistics_stay(look: Callable[[nn.Module], object]) -> None:
    network = fine_tuned()
    modes = [module.training for module in network.modules()]
    state = {name: value.clone() for name, value in network.state_dict().items()}
    look(network)
    assert [module.training for module in network.modules()] == modes
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())


def test_modes_come_back_after_an_error() -> None:
    network = fine_tuned()
    modes_inside: list[bool] = []

    def fail_while_evaluating() -> None:
        with evaluating(network):
            modes_inside.extend(module.training for module in network.modules())
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail_while_evaluating()
    assert not any(modes_inside)
    assert [module.training for module in network] == [True, False, *[True] * 7]
