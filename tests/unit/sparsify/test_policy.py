"""Policies pick the layers they promise."""

import pytest
from torch import nn
from torchvision.models import MobileNetV2

from sparsetorch import AllWeights, ByName, Conv1x1
from sparsetorch.errors import BadInputError


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),  # 0: stem
        nn.BatchNorm2d(8),
        nn.Conv2d(8, 16, 1),  # 2: pointwise
        nn.Conv2d(16, 16, 3, padding=1, groups=16),  # 3: depthwise
        nn.Conv2d(16, 16, 1, groups=2),  # 4: grouped pointwise
        nn.Conv2d(16, 16, 1, stride=2),  # 5: strided pointwise
        nn.Conv2d(16, 16, 1, padding=1),  # 6: padded pointwise
        nn.Conv2d(16, 16, 1, padding="same"),  # 7: pointwise, 'same' pads nothing
        nn.Conv2d(16, 32, 3, padding=1, groups=16),  # 8: depthwise with multiplier 2
        nn.Flatten(),
        nn.Linear(32, 10),  # 10
    )


def test_all_weights_leaves_out_batch_norm_and_depthwise() -> None:
    assert list(AllWeights().select(network())) == ["0", "2", "4", "5", "6", "7", "10"]


def test_conv1x1_picks_what_xnnpack_can_run_as_a_sparse_product() -> None:
    assert list(Conv1x1().select(network())) == ["2", "7"]


def test_conv1x1_on_mobilenet_v2_is_all_34_pointwise_convolutions() -> None:
    assert len(Conv1x1().select(MobileNetV2())) == 34


def test_by_name_includes_and_excludes_paths_and_expressions() -> None:
    net = network()
    assert list(ByName(include=["2", "10"]).select(net)) == ["2", "10"]
    assert list(ByName(exclude=["0", r"1\d"]).select(net)) == ["2", "4", "5", "6", "7"]
    assert list(ByName(exclude=["7"], of=Conv1x1()).select(net)) == ["2"]
    nested = nn.Sequential(net, nn.Linear(10, 3))
    assert list(ByName(include=["1"]).select(nested)) == ["1"]
    assert list(ByName(include=["0"], exclude=["0.0"], of=Conv1x1() | ByName(include=["0.0"])).select(nested)) == [
        "0.2",
        "0.7",
    ]


def test_policies_compose() -> None:
    net = network()
    assert list((AllWeights() & Conv1x1()).select(net)) == ["2", "7"]
    assert list((Conv1x1() | ByName(include=["10"])).select(net)) == ["2", "7", "10"]


def test_a_name_that_matches_nothing_lists_the_near_ones() -> None:
    net = nn.ModuleDict({"encoder": nn.Linear(2, 2), "classifier": nn.Linear(2, 2)})
    with pytest.raises(BadInputError, match=r"include: 'clasifier' matches no layer .* near it: classifier"):
        ByName(include=["clasifier"]).select(net)
    with pytest.raises(BadInputError, match=r"exclude: .* is no regular expression"):
        ByName(
            exclude=[
                "(",
            ]
        ).select(net)
