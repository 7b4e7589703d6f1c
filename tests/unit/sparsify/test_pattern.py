"""Patterns: blocks and groups worked by hand, and exact counts for every algorithm and pattern."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetorch import NM, SET, SNFS, Block, Magnitude, RigL, Static, Unstructured
from sparsetorch.errors import BadInputError
from sparsetorch.sparsify.algorithm import Algorithm
from sparsetorch.sparsify.mask import number_kept
from sparsetorch.sparsify.pattern import Pattern


def test_a_block_is_consecutive_output_channels_at_one_input_channel() -> None:
    # Three output channels in blocks of two: rows 0 and 1 together, row 2 alone in a shorter block.
    weight = torch.tensor([[1.0, 5.0], [2.0, 0.0], [4.0, 6.0]])
    block = Block(2)
    assert block.pool(weight).tolist() == [3.0, 5.0, 4.0, 6.0]
    kept = block.select(block.pool(weight), 0.5)
    assert kept.tolist() == [False, True, False, True]
    assert block.spread(kept, weight).tolist() == [[False, True], [False, True], [False, True]]


def test_blocks_treat_every_kernel_position_apart() -> None:
    weight = torch.arange(2 * 3 * 2 * 2).reshape(2, 3, 2, 2).float()
    pooled = Block(2).pool(weight)
    assert torch.equal(pooled, (weight[0] + weight[1]).reshape(-1))


def test_two_of_four_by_hand() -> None:
    weight = torch.tensor([[4.0, 1.0, 3.0, 2.0, 1.0, 1.0, 1.0, 1.0]])
    mask = Magnitude().update(torch.ones(1, 8, dtype=torch.bool), weight, None, 0.5, 1.0, NM(2, 4))
    assert mask.int().tolist() == [[1, 0, 1, 0, 1, 1, 0, 0]]  # ties by index in the second group


def test_groups_run_along_input_channels_at_each_kernel_position() -> None:
    weight = torch.zeros(1, 4, 1, 2)
    weight[0, :, 0, 0] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    weight[0, :, 0, 1] = torch.tensor([4.0, 3.0, 2.0, 1.0])
    nm = NM(1, 4)
    mask = nm.spread(nm.select(nm.pool(weight), 0.75), weight)
    assert mask.nonzero().tolist() == [[0, 0, 0, 1], [0, 3, 0, 0]]


def test_an_update_of_two_of_four_grows_only_where_a_group_has_room() -> None:
    mask = torch.tensor([[1, 1, 0, 0, 1, 1, 0, 0]], dtype=torch.bool)
    weight = torch.tensor([[0.1, 5.0, 0.0, 0.0, 6.0, 7.0, 0.0, 0.0]])
    growth = torch.tensor([[0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 9.0, 9.0]])  # the largest gradients lie in the full group
    after = RigL(drop_fraction=0.25, annealing="constant").update(mask, weight, growth, 0.5, 0.0, NM(2, 4))
    assert after.int().tolist() == [[0, 1, 0, 1, 1, 1, 0, 0]]


shapes = st.one_of(
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 3), st.integers(1, 3)),
)
grouped = st.tuples(st.integers(1, 6), st.sampled_from([4, 8, 12]), st.integers(1, 2), st.integers(1, 2))
ALGORITHMS = [Magnitude(), RigL(), SET(), SNFS(), Static(), RigL(drop_fraction=1.0, annealing="constant")]
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def tied(shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype) -> torch.Tensor:
    """Few different values, so that ties are everywhere."""
    return torch.randint(-2, 3, shape, generator=generator).to(dtype)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=repr)
@pytest.mark.parametrize("pattern", [Unstructured(), Block(2), Block(4)], ids=repr)
@settings(max_examples=500, deadline=None)
@given(
    shape=shapes,
    sparsity=st.floats(0, 0.999),
    progress=st.floats(0, 1),
    seed=st.integers(0, 2**31),
    dtype=st.sampled_from(DTYPES),
)
def test_the_count_is_exact_for_every_algorithm_and_pattern(
    algorithm: Algorithm,
    pattern: Pattern,
    shape: tuple[int, ...],
    sparsity: float,
    progress: float,
    seed: int,
    dtype: torch.dtype,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = tied(shape, generator, dtype)
    mask = pattern.random(weight, sparsity if algorithm.starts_sparse else 0.0, generator)
    growth = tied(shape, generator, dtype).abs()
    after = algorithm.update(mask, weight, growth, sparsity, progress, pattern)
    assert after.dtype == torch.bool
    assert after.shape == weight.shape
    units = pattern.pool(after.float()) > 0
    assert int(units.sum()) == number_kept(units.numel(), sparsity)
    assert pattern.is_reached(after, sparsity)
    assert torch.equal(pattern.spread(units, weight), after)  # whole units only


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=repr)
@settings(max_examples=500, deadline=None)
@given(
    shape=grouped,
    n=st.integers(1, 4),
    progress=st.floats(0, 1),
    seed=st.integers(0, 2**31),
    dtype=st.sampled_from(DTYPES),
)
def test_every_group_of_four_keeps_exactly_n(
    algorithm: Algorithm, shape: tuple[int, ...], n: int, progress: float, seed: int, dtype: torch.dtype
) -> None:
    pattern, sparsity = NM(n, 4), 1 - n / 4
    generator = torch.Generator().manual_seed(seed)
    weight = tied(shape, generator, dtype)
    mask = pattern.random(weight, sparsity if algorithm.starts_sparse else 0.0, generator)
    after = algorithm.update(mask, weight, tied(shape, generator, dtype).abs(), sparsity, progress, pattern)
    assert (pattern.pool(after).reshape(-1, 4).sum(dim=1) == n).all()


@settings(max_examples=500, deadline=None)
@given(
    shape=grouped, pattern=st.sampled_from([Unstructured(), Block(2), Block(3), NM(2, 4)]), seed=st.integers(0, 2**31)
)
def test_spread_undoes_pool(shape: tuple[int, ...], pattern: Pattern, seed: int) -> None:
    like = torch.zeros(shape)
    units = pattern.pool(like)
    chosen = torch.rand(units.shape, generator=torch.Generator().manual_seed(seed)) > 0.5
    assert torch.equal(pattern.pool(pattern.spread(chosen, like).float()) > 0, chosen)


def test_a_layer_that_does_not_fit_is_named() -> None:
    with pytest.raises(
        BadInputError, match=r"stem has 3 input channels \(shape \(8, 3, 3, 3\)\), needed a multiple of 4"
    ):
        NM(2, 4).check_fits("stem", (8, 3, 3, 3), 0.5)
    with pytest.raises(BadInputError, match=r"fc is to be 0\.9 sparse, but 2:4 sparsity is 0\.5"):
        NM(2, 4).check_fits("fc", (8, 4), 0.9)
    NM(2, 4).check_fits("stem", (8, 3, 3, 3), 0.0)  # a layer that stays dense has no groups
    with pytest.raises(BadInputError, match="found 5:4"):
        NM(5, 4)
    with pytest.raises(BadInputError, match="size: found 0"):
        Block(0)
