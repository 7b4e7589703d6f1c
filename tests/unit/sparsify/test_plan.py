"""What is said before training is what then happens."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsetorch import ConstantSparsity, Magnitude, PolynomialDecay, RigL, Static, StepList, ThreeStep
from sparsetorch.errors import BadInputError
from sparsetorch.sparsify.plan import make_plan


def test_rigl_by_hand() -> None:
    plan = make_plan(ConstantSparsity(0.9, update_every=100), RigL(), 1000)
    assert (plan.updates, plan.first_update, plan.last_update, plan.final_sparsity) == (8, 100, 750, 0.9)
    assert str(plan) == "8 mask updates, the first at step 100, the last at step 750 of 1000; final sparsity 90.00%"


def test_gradual_magnitude_by_hand() -> None:
    plan = make_plan(PolynomialDecay(0.8, begin_step=0, end_step=25, update_every=10), Magnitude(), 30)
    assert (plan.updates, plan.first_update, plan.last_update) == (4, 0, 25)


def test_one_shot_is_one_update_before_the_first_step() -> None:
    plan = make_plan(ConstantSparsity(0.8, end_step=0), Magnitude(), 30)
    assert (plan.updates, plan.first_update, plan.last_update, plan.final_sparsity) == (1, 0, 0, 0.8)


def test_the_three_step_recipe_prunes_in_the_middle_third() -> None:
    plan = make_plan(ThreeStep(0.8, update_every=10), Magnitude(), 300)
    assert (plan.first_update, plan.last_update, plan.final_sparsity) == (100, 200, 0.8)


def test_a_training_without_an_end_has_updates_without_end() -> None:
    plan = make_plan(ConstantSparsity(0.9, end_step=-1), Static(), math.inf)
    assert (plan.updates, plan.final_sparsity) == (None, 0.9)
    assert str(plan).startswith("updates without end")


@pytest.mark.parametrize(
    ("schedule", "total", "told"),
    [
        (PolynomialDecay(0.9, end_step=500), 400, "end_step: found 500, but the training has only 400 optimizer steps"),
        (StepList([[100, 0.5], [500, 0.9]]), 400, "steps: found step 500, but the training has only 400"),
        (PolynomialDecay(0.9), math.inf, "the training has no end"),
    ],
)
def test_a_target_out_of_reach_is_refused(schedule: object, total: float, told: str) -> None:
    with pytest.raises(BadInputError, match=told):
        make_plan(schedule, Magnitude(), total)  # type: ignore[arg-type]


@given(st.integers(1, 400), st.integers(1, 50), st.floats(0, 0.99), st.floats(0, 1), st.floats(0, 1))
def test_every_plan_that_is_made_ends_on_the_target(
    total: int, every: int, target: float, begin: float, end: float
) -> None:
    begin, end = sorted((begin, end))
    plan = make_plan(PolynomialDecay(target, begin_step=begin, end_step=end, update_every=every), Magnitude(), total)
    assert plan.final_sparsity == target
    assert plan.last_update is not None
    assert plan.schedule.sparsity_at(plan.last_update) == target
