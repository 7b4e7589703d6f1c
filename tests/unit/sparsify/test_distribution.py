"""Distributions: the published ERK table to the last digit, and the global budget met for any shapes."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsetorch import ER, ERK, Uniform
from sparsetorch.errors import BadInputError
from sparsetorch.sparsify.mask import number_kept

LENET = {"fc1": (300, 784), "fc2": (100, 300), "fc3": (10, 100)}


@pytest.mark.parametrize(
    ("sparsity", "layers", "non_zeros"),
    [
        (0.8, (0.837759, 0.530638, 0.0), (38160, 14081, 1000)),
        (0.9, (0.920432, 0.769811, 0.0), (18715, 6906, 1000)),
        (0.95, (0.961516, 0.888666, 0.081493), (9052, 3341, 919)),
        (0.98, (0.984606, 0.955466, 0.632597), (3621, 1337, 368)),
    ],
)
def test_erk_on_lenet_300_100(sparsity: float, layers: tuple[float, ...], non_zeros: tuple[int, ...]) -> None:
    found = ERK().allocate(LENET, sparsity)
    assert tuple(round(value, 6) for value in found.values()) == layers
    kept = tuple(number_kept(math.prod(LENET[name]), value) for name, value in found.items())
    # The published counts round the density to a count; a mask rounds the sparsity: one entry apart at most.
    assert all(abs(ours - theirs) <= 1 for ours, theirs in zip(kept, non_zeros, strict=True))


def test_erk_by_hand() -> None:
    # Two layers of 4x4 (ratio 8/16) and 2x2 (ratio 4/4), 20 weights, half to go: eps * (0.5 * 16 + 1 * 4) = 10,
    # eps = 10/12, so the densities are 5/12 and 5/6.
    found = ERK().allocate({"a": (4, 4), "b": (2, 2)}, 0.5)
    assert found == pytest.approx({"a": 7 / 12, "b": 1 / 6}, abs=1e-12)


def test_er_ignores_the_kernel() -> None:
    shapes = {"a": (8, 8, 3, 3), "b": (8, 8, 1, 1)}
    er, erk = ER().allocate(shapes, 0.5), ERK().allocate(shapes, 0.5)
    assert er["a"] == pytest.approx(er["b"])
    assert erk["a"] > erk["b"]


def test_layers_with_the_same_ratio_go_dense_together() -> None:
    shapes = {"big": (100, 100), "b": (2, 5), "c": (2, 5)}
    found = ERK().allocate(shapes, 0.2)
    assert (found["b"], found["c"]) == (0.0, 0.0)
    assert found["big"] == pytest.approx(0.2 * 10_020 / 10_000)


def test_uniform_keeps_the_first_layer_dense_and_no_other_in_its_place() -> None:
    shapes = {"stem": (8, 3, 3, 3), "a": (8, 8, 1, 1), "b": (8, 8, 1, 1)}
    assert Uniform().allocate(shapes, 0.9) == {"stem": 0.0, "a": 0.9, "b": 0.9}
    assert Uniform(first_layer_dense=False).allocate(shapes, 0.9) == dict.fromkeys(shapes, 0.9)
    # A policy that left the stem out: the network's first layer is not among the shapes.
    chosen = {name: shapes[name] for name in ("a", "b")}
    assert Uniform().allocate(chosen, 0.9, first_layer="stem") == {"a": 0.9, "b": 0.9}


shapes_of = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=4),
    st.one_of(
        st.tuples(st.integers(1, 64), st.integers(1, 64)),
        st.tuples(st.integers(1, 64), st.integers(1, 64), st.sampled_from([1, 3, 5]), st.sampled_from([1, 3, 5])),
    ),
    min_size=1,
    max_size=8,
)


@given(shapes=shapes_of, sparsity=st.floats(0, 0.999), distribution=st.sampled_from([ERK(), ER(), ERK(power=0.5)]))
def test_the_budget_is_met_and_every_sparsity_is_one(
    shapes: dict[str, tuple[int, ...]], sparsity: float, distribution: ERK | ER
) -> None:
    found = distribution.allocate(shapes, sparsity)
    assert list(found) == list(shapes)
    assert all(-1e-9 <= value < 1.0 for value in found.values())
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    zeros = sum(found[name] * sizes[name] for name in shapes)
    assert zeros == pytest.approx(sparsity * sum(sizes.values()), rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("distribution", [Uniform(), ERK(), ER()])
@pytest.mark.parametrize("sparsity", [1.0, -0.1])
def test_a_sparsity_outside_its_range_is_refused(distribution: Uniform | ERK | ER, sparsity: float) -> None:
    with pytest.raises(BadInputError, match="needed a share of zeros"):
        distribution.allocate(LENET, sparsity)
