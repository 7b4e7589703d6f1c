"""CHEX by hand: leverage scores, residuals, counts under one threshold, draws without replacement."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetorch.errors import BadInputError
from sparsetorch.sparsify.chex import (
    CHEX,
    channel_counts,
    gram,
    leverage_scores,
    regrow_share,
    residual_norms,
    sample_channels,
)
from sparsetorch.sparsify.pattern import Unstructured

THREE = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
"""Columns (1, 0), (0, 1), (1, 1). X.T X has eigenvalues 3, 1, 0 with vectors (1, 1, 2), (1, -1, 0), (1, 1, -1)."""


def test_leverage_is_the_squared_row_of_the_top_singular_vectors() -> None:
    one = leverage_scores(gram(THREE), 1)
    assert one.tolist() == pytest.approx([1 / 6, 1 / 6, 4 / 6])
    two = leverage_scores(gram(THREE), 2)
    assert two.tolist() == pytest.approx([1 / 6 + 1 / 2, 1 / 6 + 1 / 2, 4 / 6])
    diagonal = leverage_scores(gram(torch.diag(torch.tensor([1.0, 3.0, 2.0]))), 2)
    assert diagonal.tolist() == pytest.approx([0.0, 1.0, 1.0])


def test_leverage_is_that_of_a_singular_value_decomposition() -> None:
    torch.manual_seed(0)
    x = torch.randn(40, 12, dtype=torch.float64)
    for count in (1, 5, 11, 12):
        right = torch.linalg.svd(x).Vh[:count]
        torch.testing.assert_close(leverage_scores(gram(x), count), right.square().sum(dim=0))


def test_beyond_the_rank_leverage_stops_at_the_rank() -> None:
    # Fan-in 2, three channels: the third singular vector belongs to no direction of the columns.
    assert leverage_scores(gram(THREE), 3).tolist() == pytest.approx([2 / 3, 2 / 3, 2 / 3])
    assert leverage_scores(torch.zeros(3, 3, dtype=torch.float64), 2).tolist() == [0.0, 0.0, 0.0]


def test_a_residual_is_what_the_kept_columns_do_not_span() -> None:
    x = torch.tensor([[1.0, 3.0, 0.0, 2.0], [0.0, 4.0, 2.0, 0.0]])
    kept = torch.tensor([True, False, False, False])
    assert residual_norms(gram(x), kept).tolist() == pytest.approx([0.0, 4.0, 2.0, 0.0])
    both = torch.tensor([True, False, False, True])  # (1, 0) and (2, 0): dependent
    assert residual_norms(gram(x), both).tolist() == pytest.approx([0.0, 4.0, 2.0, 0.0])
    everything = torch.tensor([True, False, True, False])
    assert residual_norms(gram(x), everything).tolist() == pytest.approx([0.0, 0.0, 0.0, 0.0], abs=1e-7)
    nothing = torch.zeros(4, dtype=torch.bool)
    assert residual_norms(gram(x), nothing).tolist() == pytest.approx([1.0, 5.0, 2.0, 2.0])


def test_a_residual_is_that_of_a_projection() -> None:
    torch.manual_seed(0)
    x = torch.randn(30, 12, dtype=torch.float64)
    kept = torch.rand(12) < 0.5
    q = torch.linalg.qr(x[:, kept]).Q
    expected = (x - q @ (q.T @ x)).norm(dim=0)
    torch.testing.assert_close(residual_norms(gram(x), kept), expected, rtol=1e-8, atol=1e-7)


def test_draws_follow_the_softmax_without_replacement() -> None:
    score = torch.log(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    candidates = torch.tensor([True, True, True, False])
    first = torch.zeros(4)
    pairs = torch.zeros(4)
    draws = 6000
    for seed in range(draws):
        first += sample_channels(score, candidates, 1, torch.Generator().manual_seed(seed))
        pairs += sample_channels(score, candidates, 2, torch.Generator().manual_seed(seed))
    assert first[3] == pairs[3] == 0
    assert (first[:3] / draws).tolist() == pytest.approx([1 / 6, 2 / 6, 3 / 6], abs=0.02)
    # Of two: P(0) = 1/6 + 2/6 * 1/4 + 3/6 * 1/3, and so on.
    two = [1 / 6 + 2 / 6 / 4 + 3 / 6 / 3, 2 / 6 + 1 / 6 * 2 / 5 + 3 / 6 * 2 / 3, 3 / 6 + 1 / 6 * 3 / 5 + 2 / 6 * 3 / 4]
    assert (pairs[:3] / draws).tolist() == pytest.approx(two, abs=0.02)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 30), st.integers(0, 1000), st.floats(0, 1e6))
def test_a_draw_has_exactly_the_number_asked_and_none_of_the_kept(size: int, seed: int, spread: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    score = torch.rand(size, generator=generator) * spread  # a softmax of these is 0 almost everywhere
    candidates = torch.rand(size, generator=generator) < 0.5
    count = int(torch.randint(int(candidates.sum()) + 1, (1,), generator=generator))
    drawn = sample_channels(score, candidates, count, torch.Generator().manual_seed(seed))
    assert int(drawn.sum()) == count
    assert not bool((drawn & ~candidates).any())
    again = sample_channels(score, candidates, count, torch.Generator().manual_seed(seed))
    assert torch.equal(drawn, again)


def test_more_than_there_are_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="count: found 2, needed at most 1"):
        sample_channels(torch.ones(3), torch.tensor([True, False, False]), 2, torch.Generator())


def test_one_threshold_over_all_gammas_decides_how_many_each_layer_keeps() -> None:
    scores = {"a": torch.tensor([0.9, 0.1]), "b": torch.tensor([0.5, 0.4, 0.3, 0.2])}
    assert channel_counts(scores, 0.5) == {"a": 1, "b": 2}
    assert channel_counts(scores, 1 / 6) == {"a": 1, "b": 4}
    assert channel_counts(scores, 0.0) == {"a": 2, "b": 4}


def test_equal_gammas_prune_every_layer_alike() -> None:
    scores = {"a": torch.ones(4), "b": torch.ones(8), "c": torch.ones(2)}
    assert channel_counts(scores, 0.5) == {"a": 2, "b": 4, "c": 1}
    assert channel_counts({"a": torch.zeros(4), "b": torch.zeros(8)}, 0.75) == {"a": 1, "b": 2}


def test_every_layer_keeps_a_channel_and_the_total_stays_exact() -> None:
    scores = {"a": torch.tensor([1.0, 2.0, 3.0]), "b": torch.tensor([0.1, 0.2, 0.3])}
    assert channel_counts(scores, 0.5) == {"a": 2, "b": 1}
    with pytest.raises(BadInputError, match="keeps 1, but the 2 layers or groups need 2"):
        channel_counts(scores, 0.8)


def test_a_floor_keeps_a_share_of_every_layer_and_the_total_stays_exact() -> None:
    scores = {"a": torch.arange(1.0, 9.0) + 10, "b": torch.arange(1.0, 9.0), "c": torch.arange(1.0, 5.0)}
    assert channel_counts(scores, 0.5) == {"a": 8, "b": 1, "c": 1}
    assert channel_counts(scores, 0.5, floor=0.25) == {"a": 7, "b": 2, "c": 1}
    assert channel_counts(scores, 0.5, floor=0.5) == {"a": 4, "b": 4, "c": 2}
    with pytest.raises(BadInputError, match=r"needs? 10, at least one each and the floor of 0\.5"):
        channel_counts(scores, 0.6, floor=0.5)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=8), st.floats(0, 0.95), st.integers(0, 100))
def test_counts_are_exact_for_any_scores(sizes: list[int], sparsity: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = {str(i): torch.randint(0, 4, (size,), generator=generator).float() for i, size in enumerate(sizes)}
    wanted = sum(sizes) - round(sparsity * sum(sizes))
    if wanted < len(sizes):
        return
    counts = channel_counts(scores, sparsity)
    assert sum(counts.values()) == wanted
    assert all(1 <= counts[name] <= score.numel() for name, score in scores.items())


def test_the_regrow_factor_falls_along_a_cosine_to_nothing() -> None:
    # The paper's recipe for ResNet-50 at 1 GFLOP: d0 0.3 until epoch 180.
    assert regrow_share(0.3, 0.0) == pytest.approx(0.3)
    assert regrow_share(0.3, 60 / 180) == pytest.approx(0.3 * (1 + math.cos(math.pi / 3)) / 2) == pytest.approx(0.225)
    assert regrow_share(0.3, 0.5) == pytest.approx(0.15)
    assert regrow_share(0.3, 1.0) == 0.0


def test_a_fifth_of_the_channels_regrows_by_default_as_in_the_authors_code() -> None:
    assert CHEX() == CHEX(regrow_fraction=0.2, structure="batch_norm", regrow="orthogonal")


def test_settings_outside_their_range_name_the_key() -> None:
    with pytest.raises(BadInputError, match=r"regrow_fraction: found 1\.5"):
        CHEX(regrow_fraction=1.5)
    with pytest.raises(BadInputError, match=r"floor: found 1\.0, needed a share in \[0, 1\)"):
        CHEX(floor=1.0)
    with pytest.raises(BadInputError, match="structure: found 'l2'"):
        CHEX(structure="l2")  # type: ignore[arg-type]
    with pytest.raises(BadInputError, match="regrow: found 'random'"):
        CHEX(regrow="random")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="works on channel groups"):
        CHEX().update(torch.ones(1), torch.ones(1), None, 0.5, 0.0, Unstructured())
