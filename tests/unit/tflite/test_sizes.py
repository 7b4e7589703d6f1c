"""Bytes of MobileNetV2 1.0 (1000 classes, 1x1 convolutions pruned to 85 %) in every storage, and what they must not exceed."""

import pytest
from mobilenet_v2 import mobilenet_v2

from sparsetorch.tflite import Storage, encode, to_bytes
from sparsetorch.xnnpack import verify


@pytest.mark.parametrize(
    ("values", "classifier_sparsity", "largest"),
    [
        ("float32", 0.0, 7_300_324),  # TensorFlow's EXPERIMENTAL_SPARSITY
        ("float16", 0.0, 3_946_504),  # the same with float16
        ("int8", 0.0, 2_400_000),
        ("int8", 0.85, 1_600_000),
    ],
)
def test_mobilenet_v2_at_85_percent(values: str, classifier_sparsity: float, largest: int) -> None:
    model = mobilenet_v2(classifier_sparsity)
    encode(model, storage=Storage(values, split=classifier_sparsity > 0))
    size = len(to_bytes(model))
    print(f"{values}, classifier {classifier_sparsity:.0%}: {size:,} B")
    assert size <= largest
    assert verify(model).expected_spmm == 34
