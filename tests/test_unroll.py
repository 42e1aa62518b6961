"""Finite horizons: the unrolled model against backward recursion."""

from __future__ import annotations

import hypothesis
import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.base.errors import ModelError
from strategies import generator, random_model, seeds


@hypothesis.settings(max_examples=15)
@hypothesis.given(seeds)
def test_the_best_return_is_that_of_backward_recursion(seed: int) -> None:
    random = generator(seed)
    mdp = random_model(random)
    horizon = int(random.integers(1, 6))
    best = np.zeros(mdp.n_states)
    for _ in range(horizon):
        following = (mdp.transition @ best).reshape(mdp.actions.shape)
        choices = np.where(mdp.actions, mdp.signal("reward") + mdp.discount * following, -np.inf)
        best = choices.max(axis=1)
    unrolled = mdp.unroll(horizon)
    solution = cm.solve(cm.Problem(unrolled, maximize=cm.linear("reward")))
    assert solution.objective == pytest.approx(float(mdp.initial @ best), abs=1e-7)


def test_occupancies_are_those_of_the_first_steps() -> None:
    mdp = cm.gridworld(3, slip=0.2, discount=0.9, goal=8)
    horizon = 4
    unrolled = mdp.unroll(horizon)
    assert unrolled.n_states == horizon * 9
    policy = np.tile(cm.uniform_policy(mdp).probabilities(), (horizon, 1))
    x = cm.occupancy_of(unrolled, policy).reshape(horizon, 9, 4)
    distribution = mdp.initial
    for time in range(horizon):
        np.testing.assert_allclose(x[time].sum(axis=1), 0.9**time * distribution, atol=1e-14)
        pairs = distribution[:, None] * cm.uniform_policy(mdp).probabilities()
        distribution = mdp.transition.T @ pairs.ravel()


def test_names_signals_and_masks_are_kept() -> None:
    mdp = random_model(generator(1), mask=True).replace(note="estimated model (of a test)")
    unrolled = mdp.unroll(3)
    assert unrolled.state_names is not None
    assert unrolled.state_names[mdp.n_states] == "0@1"
    np.testing.assert_array_equal(unrolled.actions[mdp.n_states :][: mdp.n_states], mdp.actions)
    np.testing.assert_array_equal(unrolled.signal("cost")[-mdp.n_states :], mdp.signal("cost"))
    np.testing.assert_array_equal(unrolled.ending[-mdp.n_states :], np.where(mdp.actions, 1.0, 0.0))
    assert unrolled.note == mdp.note


def test_bad_horizons() -> None:
    mdp = cm.gridworld(2)
    with pytest.raises(ModelError, match="at least 1 step; got 0"):
        mdp.unroll(0)
    with pytest.raises(ModelError, match=r"a whole number of steps; got 2\.5"):
        mdp.unroll(2.5)  # type: ignore[arg-type]
