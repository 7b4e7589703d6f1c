"""Policies pick the layers they promise."""

from torch import nn
from torchvision.models import MobileNetV2

from sparsetorch import AllWeights, Conv1x1


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
