"""The library and the one-file version of Algorithm 1 compute the same numbers, step by step."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.algorithms.recursion import initial_state, iteration, noted_of, trace_of
from cvxmdp.base.precision import double_precision, on_device
from cvxmdp.paper.tracking import tracking_problem
from cvxmdp.solvers.learning import read_learning, targets_of
from cvxmdp.solvers.vr_pdpg_settings import settings_for
from strategies import generator, quickly, random_model

ITERATIONS = 30
BOUND, START = 3.0, 0.7
UNITS = 5


@quickly
def step(learning, state, numbers):
    following, evidence = iteration(learning, state, numbers)
    return following, trace_of(learning, noted_of(learning, following, evidence))


def load_onefile() -> ModuleType:
    path = Path(__file__).parent.parent / "examples" / "vr_pdpg_onefile.py"
    spec = importlib.util.spec_from_file_location("vr_pdpg_onefile", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


onefile = load_onefile()


FAMILIES = {"table": (onefile.table, cm.Table()), "network": (onefile.mlp, cm.MLP(UNITS))}


class Case(NamedTuple):
    problem: cm.Problem
    horizon: int


def first_params(case: Case, family: str) -> Any:
    """theta_0: zeros, or a network that is far enough from uniform for its gradient to matter."""
    bound, random = FAMILIES[family][1].bind(case.problem.mdp), generator(4)
    with double_precision():
        if family == "table":
            return bound.init(jax.random.key(0))
        form = jax.eval_shape(bound.init, jax.random.key(0))
        return on_device(jax.tree.map(lambda leaf: random.normal(0, 0.5, leaf.shape), form))


def tracking() -> Case:
    return Case(tracking_problem("8x8-traj2"), 14)


def slippery() -> Case:
    mdp = cm.gridworld(
        3, slip=0.3, discount=0.9, goal=8, goal_reward=10.0, step_reward=-0.1, hazards=[4]
    )
    middle = {"hazard": cm.linear("hazard") <= 0.2}
    return Case(cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=middle), 20)


def three_constraints() -> Case:
    mdp = random_model(generator(5), n_states=4, n_actions=3, endings=True, mask=True)
    problem = cm.Problem(
        mdp,
        maximize=cm.entropy(of="state-action"),
        subject_to={
            "cost": cm.linear("cost") <= 0.5,
            "near uniform": cm.distance(cm.uniform_policy(mdp), norm="l2-squared") <= 0.1,
            "fair": cm.log_sum("reward", "cost") >= -1.0,
        },
    )
    return Case(problem, 6)


def no_constraint() -> Case:
    mdp = random_model(generator(6), n_states=4, n_actions=2, endings=True, mask=False)
    return Case(cm.Problem(mdp, maximize=cm.entropy()), 5)


CASES = {
    "tracking, early termination": tracking,
    "slip and early termination": slippery,
    "three constraints, mask": three_constraints,
    "no constraint": no_constraint,
}


def library_steps(case: Case, uniforms: np.ndarray, momentum: float, family: str = "table"):
    """The library's states and traces, in float64."""
    problem, n = case.problem, len(case.problem.constraints)
    with double_precision():
        solver = cm.VRPDPG(
            1,
            0.05,
            0.2,
            momentum,
            case.horizon,
            dual_bound=BOUND,
            initial_multiplier=START,
            policy=FAMILIES[family][1],
        )
        learning = read_learning(settings_for(solver, problem), problem, np.zeros(n))
        # As a step gives it: a state with other types would be compiled for once more.
        state = on_device(initial_state(learning, first_params(case, family), jnp.full(n, START)))
        for numbers in uniforms:
            state, trace = step(learning, state, numbers[None])
            yield jax.tree.map(np.asarray, (state, trace))


def onefile_steps(case: Case, uniforms: np.ndarray, momentum: float, family: str = "table"):
    """The one-file version's steps, with the functions evaluated by NumPy."""
    problem, mdp = case.problem, case.problem.mdp

    def pair(function):
        return function.extended().value, function.extended().gradient

    return onefile.vr_pdpg(
        onefile.tables(mdp.dense_transition(), mdp.initial, mdp.discount, mdp.actions),
        pair(problem.objective_function),
        [pair(slack) for slack in problem.slack_functions.values()],
        uniforms,
        iterations=len(uniforms),
        horizon=case.horizon,
        primal_step=0.05,
        dual_step=0.2,
        momentum=momentum,
        dual_bound=BOUND,
        initial_multiplier=START,
        family=FAMILIES[family][0],
        start=flat(first_params(case, family)),
    )


def flat(params: Any) -> np.ndarray:
    """Parameters one after the other, as the one-file version has them."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])


def both(name: str, momentum: float, family: str):
    case = CASES[name]()
    uniforms = generator(1).random((ITERATIONS, 1 + 2 * case.horizon))
    ours = onefile_steps(case, uniforms, momentum, family)
    theirs = library_steps(case, uniforms, momentum, family)
    return list(zip(ours, theirs, strict=True))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("momentum", [0.3, 1.0])
@pytest.mark.parametrize("name", CASES)
def test_same_numbers_step_by_step(name, momentum, family):
    for expected, (state, trace) in both(name, momentum, family):
        near = {"rtol": 1e-9, "atol": 1e-10}
        np.testing.assert_allclose(flat(state.params), expected.params, **near)
        np.testing.assert_allclose(state.occupancy, expected.occupancy, **near)
        for function, gradient in enumerate(expected.gradients):
            mine = jax.tree.map(lambda leaf, k=function: leaf[k], state.gradients)
            np.testing.assert_allclose(flat(mine), gradient, **near)
        np.testing.assert_allclose(state.multipliers, expected.multipliers, **near)
        np.testing.assert_allclose(trace.recursive_slack, expected.slack, **near)
        np.testing.assert_allclose(trace.weight_max, expected.weight, **near)
        assert trace.episode_length == expected.episode.size


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ["slip and early termination", "three constraints, mask"])
def test_the_comparison_sees_endings_weights_and_moving_multipliers(name, family):
    case = CASES[name]()
    uniforms = generator(1).random((ITERATIONS, 1 + 2 * case.horizon))
    steps = list(onefile_steps(case, uniforms, 0.3, family))
    lengths = {step.episode.size for step in steps}
    assert len(lengths) > 2
    assert max(step.weight for step in steps[2:]) > 1.01
    assert np.ptp([step.multipliers for step in steps], axis=0).min() > 1e-3


def test_a_network_of_the_one_file_starts_near_uniform_like_the_library():
    states, actions, units = 50, 4, 400
    ours = onefile.first_network(states, actions, units, generator(0))
    mdp = random_model(generator(7), n_states=states, n_actions=actions, endings=False, mask=False)
    theirs = flat(cm.MLP(units).bind(mdp).init(jax.random.key(0)))
    assert ours.shape == theirs.shape
    ends = np.cumsum([states * units, units, units * actions])
    for mine, other in zip(np.split(ours, ends), np.split(theirs, ends), strict=True):
        # The standard error of a standard deviation from n normal numbers is about 1 / sqrt(2 n) of it.
        assert mine.std() == pytest.approx(other.std(), rel=5 / np.sqrt(mine.size), abs=1e-12)
    policy = onefile.mlp(ours, np.ones((states, actions), bool))
    np.testing.assert_allclose(policy.chances, 1 / actions, atol=0.02)


def test_the_published_functions_are_the_library_ones():
    problem = tracking().problem
    occupancy = generator(2).normal(size=problem.mdp.actions.shape)
    target = targets_of(problem)["near the expert"]
    for mine, theirs in [
        (onefile.linear(problem.mdp.signal("reward")), problem.objective_function),
        (onefile.near(target, 0.01), problem.slack_functions["near the expert"]),
    ]:
        assert mine[0](occupancy) == pytest.approx(float(theirs.value(occupancy)), rel=1e-12)
        np.testing.assert_allclose(mine[1](occupancy), theirs.gradient(occupancy), rtol=1e-12)


def test_a_generator_gives_the_numbers_it_would_give_at_once():
    case = slippery()
    numbers = generator(3).random((5, 1 + 2 * case.horizon))
    given = list(onefile_steps(case, numbers, 0.3))
    mdp, problem = case.problem.mdp, case.problem
    functions = [problem.objective_function, *problem.slack_functions.values()]
    pairs = [(function.value, function.gradient) for function in functions]
    drawn = onefile.vr_pdpg(
        onefile.tables(mdp.dense_transition(), mdp.initial, mdp.discount),
        pairs[0],
        pairs[1:],
        generator(3),
        iterations=5,
        horizon=case.horizon,
        primal_step=0.05,
        dual_step=0.2,
        momentum=0.3,
        dual_bound=BOUND,
        initial_multiplier=START,
    )
    for first_step, second_step in zip(given, drawn, strict=True):
        np.testing.assert_array_equal(first_step.params, second_step.params)


def test_the_script_learns_and_prints_a_table(capsys):
    steps = onefile.main(iterations=1_500)
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 1 + 6
    mean_return = float(rows[-1].split()[3])
    assert mean_return > 97.0
    assert steps[-1].slack[0] > 0
