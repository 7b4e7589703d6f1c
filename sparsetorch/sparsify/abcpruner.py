"""ABCPruner: an artificial bee colony searches how many channels every layer keeps.

Lin et al., "Channel Pruning via Automatic Structure Search", IJCAI 2020 (arXiv 2001.08565). A structure is a list of tenths,
1 to 10 per layer: the share of channels kept. `food_sources` structures are held; in every cycle

1. each employed bee moves its structure in `changes` random layers: `x + r * (x - y)`, y another structure, r in [-1, 1], to
   whole tenths; the better of old and new stays;
2. onlookers do the same at structures drawn by fitness, with probability `.9 * fitness / best + .1` each, as many as there
   are structures;
3. a structure that has not gained for `limit` tries is left by a scout for a random one.

Fitness is the validation accuracy after a short training. Every random number comes from a stream of its own, by seed and
number of the evaluation, so that a search goes on from its state alone and ends where it would have ended.
"""

import dataclasses
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from sparsetorch.errors import BadInputError
from sparsetorch.sparsify.chex import ChannelAlgorithm

Structure = tuple[int, ...]
"""Tenths of its channels that every layer keeps, 1 to 10, in the order of the layers."""


@dataclass(frozen=True)
class ABCPruner(ChannelAlgorithm):
    """Search a structure before training, prune to it, train on. Among a layer's channels, those of largest norm stay.

    The schedule's sparsity is the least share of channels that a structure has to prune: one that prunes fewer loses tenths in
    random layers until it fits. Needs validation data with a metric; works with one process.
    """

    food_sources: int = 10
    """Structures held at a time."""
    changes: int = 2
    """Layers changed by one move."""
    limit: int = 5
    """Tries without gain after which a structure is left."""
    cycles: int = 10
    """Rounds of all bees."""
    max_tenths: int = 10
    """Most tenths of a layer's channels that a structure keeps."""
    fitness_epochs: int = 2
    """Epochs of training before a structure is judged."""
    fitness_batches: int | None = None
    """Batches of such an epoch; None: all of them."""
    monitor: str = "val_acc"
    """The metric that is the fitness, logged in validation; higher is better."""
    state_file: str | None = None
    """JSON file that the search is kept in and goes on from; None: abcpruner.json in the run's folder."""

    def __post_init__(self) -> None:
        for key in ("food_sources", "changes", "limit", "cycles", "fitness_epochs"):
            value = getattr(self, key)
            if isinstance(value, bool) or value < (2 if key == "food_sources" else 1):
                raise BadInputError(f"{key}: found {value!r}, needed at least {2 if key == 'food_sources' else 1}")
        if not 1 <= self.max_tenths <= 10:
            raise BadInputError(f"max_tenths: found {self.max_tenths!r}, needed 1 to 10")


@dataclass(frozen=True)
class Colony:
    """Where a search stands."""

    sources: tuple[Structure, ...] = ()
    fitness: tuple[float, ...] = ()
    tries: tuple[int, ...] = ()
    """Moves without gain, by source."""
    cycle: int = 0
    """Cycles completed; the first structures are not one."""
    phase: str = "first"
    """first, employed, onlooker or scout: what comes next."""
    index: int = 0
    """The source whose turn it is."""
    evaluations: int = 0
    best: Structure = ()
    best_fitness: float = -1.0

    def to_json(self) -> str:
        """As JSON."""
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """From `to_json`.

        Raises:
            BadInputError: where it is something else.
        """
        try:
            values: dict[str, Any] = json.loads(text)
            values["sources"] = tuple(map(tuple, values["sources"]))
            for key in ("fitness", "tries", "best"):
                values[key] = tuple(values[key])
            return cls(**values)
        except (ValueError, KeyError, TypeError) as error:
            raise BadInputError(
                f"abcpruner: found no state of a search in that file ({error}); remove it to start anew"
            ) from error


def random_structure(layers: int, max_tenths: int, draws: random.Random) -> Structure:
    """Tenths drawn evenly from 1 to `max_tenths`."""
    return tuple(draws.randint(1, max_tenths) for _ in range(layers))


def move(own: Structure, other: Structure, changes: int, max_tenths: int, draws: random.Random) -> Structure:
    """`own` with `changes` random layers moved along the difference to `other`, rounded to whole tenths in their range."""
    moved = list(own)
    for layer in draws.sample(range(len(own)), min(changes, len(own))):
        step = draws.uniform(-1.0, 1.0) * (own[layer] - other[layer])
        moved[layer] = min(max(round(own[layer] + step), 1), max_tenths)
    return tuple(moved)


def onlooker_probabilities(fitness: Sequence[float]) -> list[float]:
    """`.9 * fitness / best + .1`; all 1 where nothing has any fitness."""
    best = max(fitness)
    return [0.9 * value / best + 0.1 if best > 0 else 1.0 for value in fitness]


def advance(
    colony: Colony,
    settings: ABCPruner,
    layers: int,
    seed: int,
    fit: Callable[[Structure, random.Random], tuple[Structure, float]],
) -> Colony:
    """One evaluation further, or one decision that needs none.

    Args:
        colony: where the search stands.
        settings: numbers of the search.
        layers: how many there are.
        seed: of everything random.
        fit: makes a structure fit its constraint and gives it and its fitness.
    """
    draws = random.Random(seed * 1_000_003 + ((colony.cycle * 4 + _PHASES.index(colony.phase)) * 10_007 + colony.index))
    if colony.phase == "first":
        structure, fitness = fit(random_structure(layers, settings.max_tenths, draws), draws)
        grown = dataclasses.replace(
            colony,
            sources=(*colony.sources, structure),
            fitness=(*colony.fitness, fitness),
            tries=(*colony.tries, 0),
            evaluations=colony.evaluations + 1,
        )
        return _next(_remember(grown, structure, fitness), settings)
    if colony.phase == "scout":
        tired = max(range(len(colony.tries)), key=lambda i: colony.tries[i])
        if colony.tries[tired] < settings.limit:
            return _next(colony, settings)
        structure, fitness = fit(random_structure(layers, settings.max_tenths, draws), draws)
        return _next(_put(colony, tired, structure, fitness, gained=True), settings)
    place = colony.index
    if colony.phase == "onlooker":
        chances = onlooker_probabilities(colony.fitness)
        place = next(i for i in _endless(draws, len(chances)) if draws.random() < chances[i])
    other = draws.choice([i for i in range(len(colony.sources)) if i != place])
    tried = move(colony.sources[place], colony.sources[other], settings.changes, settings.max_tenths, draws)
    structure, fitness = fit(tried, draws)
    return _next(_put(colony, place, structure, fitness, gained=fitness > colony.fitness[place]), settings)


_PHASES = ("first", "employed", "onlooker", "scout")


def _endless(draws: random.Random, size: int) -> Any:
    while True:
        yield draws.randrange(size)


def _put(colony: Colony, place: int, structure: Structure, fitness: float, gained: bool) -> Colony:
    sources, values, tries = list(colony.sources), list(colony.fitness), list(colony.tries)
    if gained:
        sources[place], values[place], tries[place] = structure, fitness, 0
    else:
        tries[place] += 1
    changed = dataclasses.replace(
        colony,
        sources=tuple(sources),
        fitness=tuple(values),
        tries=tuple(tries),
        evaluations=colony.evaluations + 1,
    )
    return _remember(changed, structure, fitness)


def _remember(colony: Colony, structure: Structure, fitness: float) -> Colony:
    if fitness <= colony.best_fitness:
        return colony
    return dataclasses.replace(colony, best=structure, best_fitness=fitness)


def _next(colony: Colony, settings: ABCPruner) -> Colony:
    """The turn that comes after."""
    last = colony.phase == "scout" or colony.index + 1 >= settings.food_sources
    if not last:
        return dataclasses.replace(colony, index=colony.index + 1)
    following = {"first": "employed", "employed": "onlooker", "onlooker": "scout", "scout": "employed"}[colony.phase]
    cycle = colony.cycle + (colony.phase == "scout")
    return dataclasses.replace(colony, phase=following, index=0, cycle=cycle)


def is_over(colony: Colony, settings: ABCPruner) -> bool:
    """Whether all cycles are done."""
    return colony.cycle >= settings.cycles
