"""Masks: exact counts, ties by index."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sparsetorch.sparsify.magnitude import Magnitude, magnitude_mask, shrink
from sparsetorch.sparsify.mask import keep_top, number_kept, random_mask, sparsity_of
from sparsetorch.sparsify.pattern import Unstructured


def test_eight_weights_by_hand() -> None:
    weight = torch.tensor([0.1, -0.9, 0.3, -0.2, 0.0, 0.8, -0.4, 0.05])
    # Half of eight: 0.9, 0.8, 0.4 and 0.3 stay.
    assert magnitude_mask(weight, 0.5).tolist() == [False, True, True, False, False, True, True, False]


def test_equal_scores_are_kept_in_the_order_of_their_index() -> None:
    assert keep_top(torch.tensor([1.0, 2.0, 1.0, 1.0, 0.0]), 3).tolist() == [True, True, True, False, False]
    assert keep_top(torch.ones(2, 3), 4).tolist() == [[True, True, True], [True, False, False]]


@given(
    values=st.lists(st.integers(-3, 3), min_size=1, max_size=200),  # few values: ties everywhere
    sparsity=st.floats(0, 0.999),
)
def test_a_magnitude_mask_keeps_exactly_n_minus_round_s_n(values: list[int], sparsity: float) -> None:
    weight = torch.tensor(values, dtype=torch.float32)
    mask = magnitude_mask(weight, sparsity)
    assert int(mask.sum()) == len(values) - round(sparsity * len(values)) == number_kept(len(values), sparsity)
    kept, dropped = weight[mask].abs(), weight[~mask].abs()
    assert kept.numel() == 0 or dropped.numel() == 0 or kept.min() >= dropped.max()


@given(size=st.integers(1, 500), share=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_a_random_mask_has_an_exact_count_and_is_the_same_everywhere(size: int, share: float, seed: int) -> None:
    count = int(share * size)
    one = random_mask((size,), count, torch.Generator().manual_seed(seed))
    two = random_mask((size,), count, torch.Generator().manual_seed(seed))
    assert int(one.sum()) == count
    assert torch.equal(one, two)


def test_a_count_that_cannot_be_is_refused() -> None:
    for count in (-1, 4):
        with pytest.raises(ValueError, match="needed 0 to 3"):
            keep_top(torch.ones(3), count)
        with pytest.raises(ValueError, match="needed 0 to 3"):
            random_mask((3,), count, torch.Generator())


@given(values=st.lists(st.integers(-2, 2), min_size=1, max_size=64), first=st.floats(0, 0.9), second=st.floats(0, 0.99))
def test_magnitude_never_brings_a_pruned_entry_back(values: list[int], first: float, second: float) -> None:
    weight = torch.tensor(values, dtype=torch.float32)
    mask = magnitude_mask(weight, first)
    # The pruned entries are given the largest values: they must not win.
    trained = torch.where(mask, weight, 100.0)
    after = Magnitude().update(mask, trained, None, second, 0.5, Unstructured())
    assert not bool((after & ~mask).any())
    assert int(after.sum()) == min(int(mask.sum()), number_kept(len(values), second))


def test_shrink_by_hand() -> None:
    mask = torch.tensor([True, True, False, True])
    weight = torch.tensor([0.5, 0.1, 9.0, 0.0])
    assert shrink(mask, weight, 0.5, Unstructured()).tolist() == [True, True, False, False]


def test_only_exact_zeros_count() -> None:
    assert sparsity_of(torch.tensor([0.0, -0.0, 1e-45, 1.0])) == 0.5
