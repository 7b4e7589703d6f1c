"""Rules against runtimes on random networks: what would run sparse, what would not, and what would be wrong.

All in tfjs-tflite (operators and numbers, XNNPACK of 2023) and LiteRT.js (numbers, today's), every tenth on an emulated processor
(operators and numbers, today's). notebooks/studies/differential runs many more.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from differential import ENGINES, Engine, examine, jobs_of

from sparsetorch.runtime.worker import ModelJob

SEEDS = (*range(160), 1350)
"""1350: int8 weights, encoded behind an operator that splits the graph; the part before it gets the sparse hint all the same."""
EMULATED_EVERY = 10


@pytest.fixture(scope="module")
def networks() -> Iterator[tuple[list[ModelJob], Path]]:
    with jobs_of(SEEDS) as made:
        yield made


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_every_network_does_what_the_rules_say(engine: Engine, networks: tuple[list[ModelJob], Path]) -> None:
    jobs, folder = networks
    chosen = jobs[::EMULATED_EVERY] if engine.name == "emulated" else jobs
    outcomes = examine(engine, chosen, folder)
    kinds: Counter[str] = Counter()
    for outcome in outcomes:
        prediction = outcome.comparison.prediction
        assert prediction is not None
        kinds["unsafe" if prediction.unsafe else "taken" if prediction.taken else "not taken"] += 1
    assert {
        job.path.stem: one.comparison.disagreements
        for job, one in zip(chosen, outcomes, strict=True)
        if one.comparison.disagreements
    } == {}
    assert kinds.keys() == {"unsafe", "taken", "not taken"}  # the networks are of every kind
    assert kinds["taken"] >= len(chosen) // 5
