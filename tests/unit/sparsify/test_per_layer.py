"""`Global` and `PerLayer`: thresholds and budgets by hand, floors, and maps that cannot be."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetorch import Global, PerLayer
from sparsetorch.errors import BadInputError

SHAPES = {"a": (10, 10), "b": (20, 10), "c": (10, 10)}


def test_global_is_one_threshold_by_hand() -> None:
    scores = {"a": torch.tensor([1.0, 2.0, 3.0, 4.0]), "b": torch.tensor([5.0, 6.0, 0.5, 0.1])}
    # Half of eight: 6, 5, 4, 3 stay.
    assert Global(floor=0.0).allocate_by_score(scores, 0.5) == {"a": 0.5, "b": 0.5}
    # At 75 %: 6 and 5 would stay; the floor keeps the 4 of layer a, so the 5 goes.
    assert Global(floor=0.0).allocate_by_score(scores, 0.75) == {"a": 0.75, "b": 0.75}


@settings(max_examples=500, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=6), sparsity=st.floats(0, 0.95), seed=st.integers(0, 2**31)
)
def test_global_meets_the_budget_exactly_and_empties_no_layer(sizes: list[int], sparsity: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = {str(i): torch.randint(0, 4, (n,), generator=generator).float() for i, n in enumerate(sizes)}
    total = sum(sizes)
    if total - round(sparsity * total) < len(sizes):
        with pytest.raises(BadInputError, match="floor"):
            Global(floor=0.0).allocate_by_score(scores, sparsity)
        return
    found = Global(floor=0.0).allocate_by_score(scores, sparsity)
    kept = [n - round(found[str(i)] * n) for i, n in enumerate(sizes)]
    assert sum(kept) == total - round(sparsity * total)
    assert min(kept) >= 1


@settings(max_examples=300, deadline=None)
@given(
    sizes=st.lists(st.integers(2, 60), min_size=1, max_size=6),
    sparsity=st.floats(0, 0.9),
    floor=st.floats(0, 0.5),
    seed=st.integers(0, 2**31),
)
def test_global_keeps_every_floor_and_of_the_rest_the_largest(
    sizes: list[int], sparsity: float, floor: float, seed: int
) -> None:
    """The definition, entry by entry: first the largest of every layer up to its floor, then the largest of what is left."""
    generator = torch.Generator().manual_seed(seed)
    scores = {str(i): torch.rand(n, generator=generator) * 10 ** (3 * (i % 3)) for i, n in enumerate(sizes)}
    floors = [max(1, math.ceil(floor * n)) for n in sizes]
    wanted = sum(sizes) - round(sparsity * sum(sizes))
    if sum(floors) > wanted:
        return
    rest = sorted(
        ((value, i) for i, n in enumerate(sizes) for value in sorted(scores[str(i)].tolist())[: n - floors[i]]),
        reverse=True,
    )
    kept = list(floors)
    for _, i in rest[: wanted - sum(floors)]:
        kept[i] += 1
    found = Global(floor=floor).allocate_by_score(scores, sparsity)
    assert [n - round(found[str(i)] * n) for i, n in enumerate(sizes)] == kept


def test_per_layer_gives_the_rest_to_the_others() -> None:
    # 400 weights, 50 %: 200 zeros, of which a takes 90; b and c share 110 of 300.
    found = PerLayer({"a": 0.9}).allocate(SHAPES, 0.5)
    assert found == pytest.approx({"a": 0.9, "b": 110 / 300, "c": 110 / 300})


def test_a_gradual_schedule_scales_the_named_layers_first() -> None:
    assert PerLayer({"a": 0.9}).allocate(SHAPES, 0.1) == pytest.approx({"a": 0.4, "b": 0.0, "c": 0.0})


@pytest.mark.parametrize(
    ("sparsities", "told"),
    [
        ({"a": 0.9, "b": 0.9, "c": 0.9}, "past the 200 of 400 that the schedule's sparsity 0.5 allows"),
        ({"a": 0.1, "b": 0.1, "c": 0.1}, "short of the 200"),
        ({"aa": 0.5}, "'aa' is no layer that the policy picks; near it: a"),
    ],
)
def test_a_map_that_cannot_be_is_refused(sparsities: dict[str, float], told: str) -> None:
    with pytest.raises(BadInputError, match=told):
        PerLayer(sparsities).check(SHAPES, 0.5)


def test_a_sparsity_of_the_map_outside_its_range_names_the_layer() -> None:
    with pytest.raises(BadInputError, match=r"sparsities\.a: found 1\.0"):
        PerLayer({"a": 1.0})
