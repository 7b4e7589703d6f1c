"""All repairs and the encoder on random graphs: the same numbers, and a second run changes nothing."""

import numpy as np
import pytest
from random_graphs import RandomNet
from repairs import difference

from sparsetorch.tflite import encode, from_bytes, to_bytes
from sparsetorch.tflite.passes import PASSES, repair

GRAPHS, GROUPS = 240, 8


@pytest.mark.parametrize("group", range(GROUPS))
def test_the_numbers_stay(group: int) -> None:
    seen: set[str] = set()
    for seed in range(group, GRAPHS, GROUPS):
        model = RandomNet(seed).model(pieces=5 + seed % 6)
        before = from_bytes(to_bytes(model))
        seen.update(note.repair for note in repair(model) if note.applied)
        once = to_bytes(model)
        assert not any(note.applied for note in repair(model)), seed
        assert to_bytes(model) == once, seed
        encode(model)
        assert difference(before, model, seed) <= 1e-4, seed
    assert seen == {single.name for single in PASSES} - {"dead_code"}  # which is quiet


def test_they_are_not_trivial() -> None:
    counts = [len(RandomNet(seed).model(pieces=5 + seed % 6).graphs[0].operators) for seed in range(0, GRAPHS, 5)]
    assert np.median(counts) > 12
