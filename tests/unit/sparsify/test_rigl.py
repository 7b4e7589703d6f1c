"""RigL: the drop fraction's published values, one update worked by hand, and the invariants of every update."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sparsetorch import SET, RigL, Static
from sparsetorch.errors import BadInputError
from sparsetorch.sparsify.pattern import Unstructured
from sparsetorch.sparsify.rigl import annealed_drop_fraction, drop_and_grow


@pytest.mark.parametrize(("step", "expected"), [(100, 0.299868), (3750, 0.15), (7500, 0.0)])
def test_the_cosine_gives_the_published_values(step: int, expected: float) -> None:
    assert round(annealed_drop_fraction(0.3, step / 7500), 6) == expected


def test_linear_and_constant_annealing() -> None:
    assert annealed_drop_fraction(0.4, 0.25, "linear") == pytest.approx(0.3)
    assert annealed_drop_fraction(0.4, 0.99, "constant") == 0.4


def test_one_update_by_hand() -> None:
    # Active: 0, 1, 2, 3. A fraction of 0.5 drops two: the zero at 2, then the 0.1 at 0. Of what is not kept (0, 2, 4, 5,
    # 6, 7), the two largest gradients are those of 5 (0.9) and 0 (0.8): 0 comes straight back, 5 is new.
    mask = torch.tensor([1, 1, 1, 1, 0, 0, 0, 0], dtype=torch.bool)
    weight = torch.tensor([0.1, -0.7, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0])
    gradient = torch.tensor([0.8, 5.0, 0.1, 5.0, 0.2, 0.9, 0.3, 0.0])
    after = drop_and_grow(mask, weight, gradient, 0.5, 0.5, Unstructured())
    assert after.tolist() == [True, True, False, True, False, True, False, False]


def test_an_active_zero_does_not_tie_with_an_inactive_one() -> None:
    mask = torch.tensor([False, True, True])
    weight = torch.tensor([0.0, 0.0, 1.0])
    after = drop_and_grow(mask, weight, torch.zeros(3), 0.0, 1 / 3, Unstructured())
    assert after.tolist() == [False, True, True]


def test_the_number_dropped_is_cut_off_not_rounded() -> None:
    mask = torch.ones(10, dtype=torch.bool)
    mask[7:] = False
    weight = torch.arange(1.0, 11.0)
    growth = torch.zeros(10)
    growth[9] = 1.0
    after = drop_and_grow(mask, weight, growth, 0.28, 0.3, Unstructured())  # int(7 * 0.28) = int(1.96) = 1
    assert after.tolist() == [False, True, True, True, True, True, True, False, False, True]


weights = st.lists(st.integers(-2, 2), min_size=1, max_size=100)


@given(values=weights, sparsity=st.floats(0, 0.99), fraction=st.floats(0, 1), seed=st.integers(0, 10_000))
def test_every_update_keeps_the_count_and_the_largest(
    values: list[int], sparsity: float, fraction: float, seed: int
) -> None:
    weight = torch.tensor(values, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    n = weight.numel()
    active = n - round(sparsity * n)
    mask = torch.zeros(n, dtype=torch.bool)
    mask[torch.randperm(n, generator=generator)[:active]] = True
    growth = torch.randint(0, 3, (n,), generator=generator).float()
    after = drop_and_grow(mask, weight, growth, fraction, sparsity, Unstructured())
    assert int(after.sum()) == active
    n_drop = int(active * fraction)
    assert int((mask & ~after).sum()) == int((after & ~mask).sum()) <= n_drop
    survivors = weight[mask & after].abs()
    dropped = weight[mask & ~after].abs()
    if dropped.numel() and 0 < survivors.numel() == active - n_drop:  # nothing dropped came straight back
        assert dropped.max() <= survivors.min()
    grown, passed_over = growth[after & ~mask], growth[~after]
    assert grown.numel() == 0 or passed_over.numel() == 0 or grown.min() >= passed_over.max()


def test_a_rising_sparsity_drops_more_than_it_grows() -> None:
    mask = torch.ones(10, dtype=torch.bool)
    after = drop_and_grow(mask, torch.arange(1.0, 11.0), torch.zeros(10), 0.2, 0.5, Unstructured())
    assert int(after.sum()) == 5


def test_rigl_and_set_differ_in_their_growth_alone_and_static_never_changes() -> None:
    assert (RigL.growth, SET.growth, Static.growth) == ("gradient", "random", None)
    mask, weight, growth = torch.tensor([True, False]), torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    update = {"sparsity": 0.5, "progress": 0.0, "pattern": Unstructured()}
    one = RigL(drop_fraction=1.0).update(mask, weight, growth, **update)
    assert torch.equal(one, SET(drop_fraction=1.0).update(mask, weight, growth, **update))
    assert one.tolist() == [False, True]
    assert Static().update(mask, weight, None, **update) is mask


def test_bad_settings_are_refused() -> None:
    with pytest.raises(BadInputError, match=r"drop_fraction: found 1\.5"):
        RigL(drop_fraction=1.5)
    with pytest.raises(BadInputError, match="annealing: found 'cubic'"):
        RigL(annealing="cubic")  # type: ignore[arg-type]
