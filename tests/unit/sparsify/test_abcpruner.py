"""The bee colony by hand, and a search that can stop at any evaluation."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetorch import ABCPruner
from sparsetorch.errors import BadInputError
from sparsetorch.sparsify.abcpruner import (
    Colony,
    Structure,
    advance,
    is_over,
    move,
    onlooker_probabilities,
    random_structure,
)


class Told(random.Random):
    """Draws what it is told."""

    def __init__(self, layers: list[int], factors: list[float]) -> None:
        super().__init__(0)
        self.layers, self.factors = layers, iter(factors)

    def sample(self, population: Any, k: int) -> Any:  # type: ignore[override]
        assert list(population) == [0, 1, 2]
        assert k == len(self.layers)
        return self.layers

    def uniform(self, a: float, b: float) -> float:
        assert (a, b) == (-1.0, 1.0)
        return next(self.factors)


def test_the_defaults_are_the_papers() -> None:
    given = ABCPruner(food_sources=10, changes=2, limit=5, cycles=10, max_tenths=10, fitness_epochs=2)
    assert ABCPruner() == given


def test_onlookers_prefer_fitness_and_leave_nothing_out() -> None:
    assert onlooker_probabilities([0.5, 1.0, 0.25]) == pytest.approx([0.55, 1.0, 0.325])
    assert onlooker_probabilities([0.0, 0.8]) == pytest.approx([0.1, 1.0])
    assert onlooker_probabilities([0.0, 0.0]) == [1.0, 1.0]


def test_every_layer_the_last_too_is_moved_and_drawn() -> None:
    draws = random.Random(0)
    moved = [move((5, 5, 5), (1, 1, 1), 2, 10, draws) for _ in range(50)]
    assert all(any(structure[layer] != 5 for structure in moved) for layer in range(3))
    drawn = [random_structure(3, 10, draws) for _ in range(300)]
    assert all({structure[layer] for structure in drawn} == set(range(1, 11)) for layer in range(3))


def test_a_move_goes_along_the_difference_in_two_layers() -> None:
    # 8 + .5 * (8 - 2) = 11, at most 10; 4 - .6 * (4 - 9) = 7; the third layer stays.
    assert move((8, 4, 5), (2, 9, 1), 2, 10, Told([0, 1], [0.5, -0.6])) == (10, 7, 5)
    # 2 + 1 * (2 - 9) = -5, at least 1; at most `max_tenths`.
    assert move((2, 4, 5), (9, 9, 1), 2, 6, Told([0, 2], [1.0, 0.75])) == (1, 4, 6)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 12), st.integers(1, 10), st.integers(1, 4), st.integers(0, 10**6))
def test_structures_stay_in_range_and_moves_change_few_layers(layers: int, most: int, changes: int, seed: int) -> None:
    draws = random.Random(seed)
    one, other = random_structure(layers, most, draws), random_structure(layers, most, draws)
    moved = move(one, other, changes, most, draws)
    assert all(1 <= tenths <= most for tenths in (*one, *other, *moved))
    assert sum(a != b for a, b in zip(one, moved, strict=True)) <= changes


def fitness(structure: Structure, _draws: random.Random) -> tuple[Structure, float]:
    """Best at 3, 7, 5, 9 tenths."""
    return structure, 1 / (1 + sum(abs(a - b) for a, b in zip(structure, (3, 7, 5, 9), strict=True)))


def search(bees: ABCPruner, colony: Colony, until: int | None = None) -> Colony:
    while not is_over(colony, bees) and (until is None or colony.evaluations < until):
        colony = advance(colony, bees, 4, 0, fitness)
    return colony


def test_a_search_finds_more_than_chance() -> None:
    goal = random_structure(15, 10, random.Random(7))

    def near(structure: Structure, _draws: random.Random) -> tuple[Structure, float]:
        return structure, 1 / (1 + sum(abs(a - b) for a, b in zip(structure, goal, strict=True)))

    for seed in range(3):
        colony, bees = Colony(), ABCPruner(cycles=40)
        while not is_over(colony, bees):
            colony = advance(colony, bees, 15, seed, near)
        assert 10 * 81 <= colony.evaluations <= 10 * 81 + 40  # ten first ones, cycles of twice ten, and scouts
        draws = random.Random(seed)
        by_chance = max(near(random_structure(15, 10, draws), draws)[1] for _ in range(colony.evaluations))
        assert colony.best_fitness > by_chance


def test_a_source_that_does_not_gain_is_left_by_a_scout() -> None:
    bees = ABCPruner(food_sources=2, limit=2, cycles=3)
    colony = Colony(((5,) * 4, (6,) * 4), (0.9, 0.9), (2, 0), phase="scout", best=(5,) * 4, best_fitness=0.9)
    left = advance(colony, bees, 4, 0, lambda structure, _: (structure, 0.1))
    assert left.tries == (0, 0)
    assert left.fitness == (0.1, 0.9)
    assert (left.best_fitness, left.best) == (0.9, (5,) * 4)  # the best is remembered all the same
    assert (left.phase, left.cycle) == ("employed", 1)
    patient = advance(Colony(**{**vars(colony), "tries": (1, 0)}), bees, 4, 0, fitness)
    assert (patient.sources, patient.evaluations) == (colony.sources, 0)


def test_only_a_gain_replaces_a_source() -> None:
    bees = ABCPruner(food_sources=2)
    colony = Colony(((5,) * 4, (6,) * 4), (0.5, 0.5), (3, 0), phase="employed", best=(5,) * 4, best_fitness=0.5)
    worse = advance(colony, bees, 4, 0, lambda structure, _: (structure, 0.5))
    assert (worse.sources, worse.tries) == (colony.sources, (4, 0))
    better = advance(colony, bees, 4, 0, lambda _s, _d: ((1, 2, 3, 4), 0.6))
    assert (better.sources[0], better.tries, better.best_fitness) == ((1, 2, 3, 4), (0, 0), 0.6)


@pytest.mark.parametrize("stop", [1, 7, 10, 11, 23, 60])
def test_a_search_stopped_anywhere_goes_on_from_its_file(stop: int) -> None:
    bees = ABCPruner(cycles=4)
    halfway = search(bees, Colony(), until=stop)
    assert search(bees, Colony.from_json(halfway.to_json())) == search(bees, Colony())


def test_what_is_no_state_and_settings_out_of_range_are_refused() -> None:
    with pytest.raises(BadInputError, match="found no state of a search"):
        Colony.from_json("{}")
    with pytest.raises(BadInputError, match="food_sources: found 1, needed at least 2"):
        ABCPruner(food_sources=1)
    with pytest.raises(BadInputError, match="max_tenths: found 11"):
        ABCPruner(max_tenths=11)
