"""Beyond Algorithm 1: barriers that are not left, exploration, natural steps, settings from the problem."""

from __future__ import annotations

import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import cvxmdp as cm
from cvxmdp.algorithms.directions import fisher_of, natural_of_network, natural_of_table
from cvxmdp.algorithms.safe_steps import Border, border_of, kept_inside, slopes
from cvxmdp.atoms.shapes.separating import separated
from cvxmdp.base.errors import CvxmdpWarning, SettingsError
from cvxmdp.problems.while_learning import domain_of
from cvxmdp.solvers.contract import Task
from cvxmdp.solvers.start import exploring_start
from cvxmdp.solvers.vr_pdpg_settings import settings_for
from cvxmdp.solvers.vr_pdpg_words import warn_of_lies
from strategies import small_problem

TRACKED = cm.VRPDPG(50, 0.1, 0.3, 0.3, 10)


def barrier_problem(size: int = 4, budget: float = 0.5, weight: float = 0.1) -> cm.Problem:
    """Reach the far corner past hazards."""
    goal = size * size - 1
    mdp = cm.gridworld(
        size, slip=0.1, discount=0.9, hazards=[size + 1, size + 2], rewards={goal: 1}
    )
    safe = cm.log_barrier(cm.linear("hazard") <= budget)
    return cm.Problem(mdp, maximize=cm.linear("reward") + weight * safe)


def test_an_objective_is_what_is_separated_of_it_and_the_rest():
    mdp = cm.garnet(6, 3, 2, discount=0.9, seed=0)
    a, b = (np.random.default_rng(k).uniform(0.5, 1, (6, 3)) for k in range(2))
    written = cm.entropy() + 2.0 * (cm.log_sum(a, b) + 0.5 * cm.sqrt(cm.linear(a))) + 3.0
    problem = cm.Problem(mdp, maximize=written)
    rest, logs, weights = separated(problem.objective_function)
    assert sorted(weights) == [1.0, 2.0, 2.0]
    x = cm.occupancy_of(mdp, cm.uniform_policy(mdp))
    total = rest.value(x) + sum(w * log.value(x) for w, log in zip(weights, logs, strict=True))
    assert total == pytest.approx(problem.objective_function.value(x), rel=1e-12)
    arguments = np.array([log.parts[0].value(x) for log in logs])
    border = Border(arguments, np.zeros(3), np.zeros(3))
    found = np.asarray(slopes(logs, np.array(weights), border))
    gradient = rest.gradient(x) + sum(
        slope * log.parts[0].gradient(x) for slope, log in zip(found, logs, strict=True)
    )
    np.testing.assert_allclose(gradient, problem.objective_function.gradient(x), rtol=1e-5)


def test_the_noise_of_an_argument_is_that_of_its_recursion():
    """Numbers u_t = (1 - a) u_{t-1} + a x_t have the standard deviation that their changes say."""
    (log,) = separated(barrier_problem().objective_function)[1]
    reward = np.asarray(log.parts[0].gradient(np.zeros((16, 4))))
    at = np.unravel_index(np.argmin(reward), reward.shape)
    rng, alpha, u, changes, inside = np.random.default_rng(0), 0.3, 0.0, jnp.zeros(1), []
    noises, before = [], np.zeros((16, 4))
    step = jax.jit(lambda now, before, changes, t: border_of((log,), now, before, changes, t, 0.3))
    for t in range(3_000):
        u = (1 - alpha) * u + alpha * rng.normal(0, 0.2)
        now = np.zeros((16, 4))
        now[at] = u
        border = step(now, before, changes, t)
        before, changes = now, border.changes
        inside.append(float(border.inside[0]))
        noises.append(float(border.noise[0]))
    spread = np.std(inside[100:])
    assert np.sqrt(np.mean(np.square(noises[100:]))) == pytest.approx(spread, rel=0.1)


def test_steps_turn_back_outside_and_are_shortened_inside():
    direction = {"theta": jnp.array([3.0, 4.0])}
    own = {"theta": jnp.array([[-1.0, 0.0], [0.0, 2.0]])}
    wide = Border(jnp.array([2.0, 9.0]), jnp.array([0.5, 0.5]), jnp.zeros(2))
    turned, length = kept_inside(direction, own, wide, 1.0)
    np.testing.assert_allclose(turned["theta"], [3.0, 4.0])
    assert length == pytest.approx(0.5 * (2.0 - 2 * 0.5) / 3.0)  # phi_0 loses 3 a unit
    _, unhurt = kept_inside(direction, own, wide, 0.1)
    assert unhurt == pytest.approx(0.1)
    out = Border(jnp.array([-0.1, 0.4]), jnp.array([0.5, 0.5]), jnp.zeros(2))
    turned, length = kept_inside(direction, own, out, 1.0)
    np.testing.assert_allclose(turned["theta"], [-5.0, 0.0])  # as long as before, up phi_0 alone
    assert length == 1.0


def test_a_start_that_explores_is_inside_and_tries_everything():
    problem = barrier_problem(budget=0.2)
    family, (argument,) = cm.Table().bind(problem.space), domain_of(problem)
    never = np.zeros((16, 4))
    never[:, 0] = 1.0  # up, against the wall
    given = family.from_probabilities(never)
    for params in (None, given):
        found = exploring_start(Task(problem, seed=0), family, params)
        policy = family.deploy(found)
        assert argument.value(cm.occupancy_of(problem.mdp, policy)) > 0
        assert policy.probabilities()[0].min() > 0.01
    roomy = barrier_problem(budget=9.0)
    assert exploring_start(Task(roomy, seed=0), family, None) is None  # the uniform policy will do


def test_a_barrier_is_learned_without_leaving_it_and_without_settings():
    problem = barrier_problem()
    best = cm.solve(problem).objective
    sweep = cm.sweep(problem, cm.VRPDPG(600), seeds=range(4), progress=False)
    for run in sweep:
        found = run.solution
        assert best - found.objective < 0.05 * best
        assert found.stats["while_learning"]["violated"] == 0
        assert "Settings from the problem: horizon 38, batches of 10" in found.message


@pytest.mark.long
def test_every_seed_learns_the_barrier_from_any_feasible_start():
    """The paper's first example on 8x8: 20 seeds, three starts, to within 5% of the range."""
    hazards = [10, 11, 14, 18, 21, 29, 30, 37, 43, 44, 51, 53]
    mdp = cm.gridworld(8, slip=0.1, discount=0.95, hazards=hazards, rewards={63: 1.0})
    barrier = cm.log_barrier(cm.linear("hazard") <= 1.0)
    problem = cm.Problem(mdp, maximize=cm.linear("reward") + 0.1 * barrier)
    idle = cm.solve(cm.Problem(mdp, minimize=cm.linear("hazard"))).policy
    worst = {"cost": cm.linear("hazard") <= 0.95}
    reckless = cm.solve(cm.Problem(mdp, maximize=cm.linear("hazard"), subject_to=worst)).policy
    best = cm.solve(problem).objective
    for start in (None, idle, reckless):
        sweep = cm.sweep(problem, cm.VRPDPG(3_000), seeds=range(20), progress=False, start=start)
        for run in sweep:
            assert best - run.solution.objective < 0.05 * best
            assert run.solution.stats["while_learning"]["violated"] == 0


def test_settings_that_are_given_are_the_papers():
    problem = small_problem()
    found = settings_for(TRACKED, problem)
    assert (found.primal_step, found.momentum, found.horizon, found.batch_size) == (0.1, 0.3, 10, 1)
    assert (found.primal_decay, found.dual_decay, found.explore, found.iterate) == (0, 0, 0, "last")
    assert not found.baseline
    assert not found.safe
    assert found.trust is None
    assert found.chosen == ""
    assert found.dual_bound.min() > 10  # wide


def test_settings_from_the_problem_by_hand():
    mdp = cm.gridworld(4, slip=0.1, discount=0.9, hazards=[5, 6], rewards={15: 3.0})
    limits = {"hazard": cm.linear("hazard", per="step") <= 0.03}
    problem = cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=limits)
    found = settings_for(cm.VRPDPG(100), problem)
    slack = problem.evaluate(cm.uniform_policy(mdp)).slack["hazard"]
    pull = 3.0 / 0.1  # per step of the hazard
    assert found.dual_step == pytest.approx([0.04 * pull / abs(slack)])
    assert found.dual_bound == pytest.approx([100 * pull])
    assert found.horizon == 38  # 0.9^38 = 0.018
    assert found.trust == pytest.approx(0.1)
    assert (found.iterate, found.batch_size, found.explore) == ("half", 10, 1.0)
    given = settings_for(cm.VRPDPG(100, horizon=7, explore=0.0, batch_size=2), problem)
    assert (given.horizon, given.explore, given.batch_size) == (7, 0.0, 2)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"safe": True}, "this objective adds none"),
        ({"direction": "up"}, "direction must be one of"),
        ({"explore": -1.0}, "explore must be"),
        ({"safe": "yes"}, "safe must be"),
    ],
)
def test_wrong_departures_are_named(settings, said):
    with pytest.raises(SettingsError, match=said):
        settings_for(replace(TRACKED, **settings), small_problem())


@pytest.mark.slow
def test_without_settings_a_network_learns_too():
    problem = small_problem()
    found = cm.solve(problem, cm.VRPDPG(200, policy=cm.MLP(8)), seed=0)
    assert found.objective > found.history["objective"][0]


def test_the_natural_direction_of_a_table_is_that_of_its_fisher_matrix():
    rng = np.random.default_rng(0)
    chances = rng.dirichlet(np.full(3, 5.0), size=4)
    visits = np.array([1.0, 2.0, 0.5, 0.7])
    advantage = rng.normal(size=(4, 3))
    advantage -= (chances * advantage).sum(axis=1, keepdims=True)
    gradient = visits[:, None] * chances * advantage  # of the Lagrangian, exactly
    occupancy = visits[:, None] * chances
    found = np.asarray(natural_of_table(gradient, np.log(chances), occupancy))
    for s in range(4):
        fisher = visits[s] * (np.diag(chances[s]) - np.outer(chances[s], chances[s]))
        np.testing.assert_allclose(fisher @ found[s], gradient[s], atol=1e-6)
    np.testing.assert_allclose(found, advantage, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("missing", [0, 2])
def test_the_natural_direction_of_a_network_solves_its_equations(missing):
    mdp = cm.gridworld(2, discount=0.9)
    family = cm.MLP(3).bind(mdp.space())
    available = np.arange(4) >= np.where(np.arange(4) < 2, missing, 0)[:, None]  # in two states all
    family = replace(family, actions=available)
    params = family.init(jax.random.key(0))
    states, masses = jnp.arange(4), jnp.array([1.0, 0.5, 2.0, 0.3])
    flat, unflatten = ravel_pytree(params)
    jacobian = jax.jacobian(lambda p: family.logits(unflatten(p), states))(flat)  # (4, A, d)
    chances = jnp.exp(family.log_probabilities(params, states))
    fisher = np.zeros((flat.size, flat.size))
    for s in range(4):
        own = np.diag(chances[s]) - np.outer(chances[s], chances[s])
        fisher += float(masses[s]) * np.asarray(jacobian[s]).T @ own @ np.asarray(jacobian[s])
    ascent = fisher @ np.random.default_rng(1).normal(size=flat.size)
    unit = ascent / np.linalg.norm(ascent)
    damped = fisher + 0.01 * (unit @ fisher @ unit) * np.eye(flat.size)
    found = natural_of_network(family, params, unflatten(jnp.asarray(ascent)), states, masses)
    flat_found = np.asarray(ravel_pytree(found)[0])
    exact = np.linalg.solve(damped, ascent)
    cosine = flat_found @ exact / np.linalg.norm(flat_found) / np.linalg.norm(exact)
    assert cosine > 0.95
    assert flat_found @ ascent > 0


@pytest.mark.slow
@pytest.mark.parametrize("policy", [cm.Table(), cm.MLP(8)], ids=str)
def test_natural_steps_learn(policy):
    problem = small_problem()
    settings = {"iterations": 150, "primal_step": 0.1, "momentum": 1.0, "batch_size": 8}
    solver = cm.VRPDPG(**settings, dual_step=0.1, horizon=10, direction="natural", policy=policy)
    found = cm.solve(problem, solver, seed=0)
    assert found.objective > found.history["objective"][0] + 1.0


def test_the_weights_say_how_curved_the_policy_is():
    """log w of a step of length e in one direction has the mean square e^2 v'F v."""
    rng = np.random.default_rng(0)
    scores = rng.normal(0, 3.0, size=20_000)  # of whole episodes along v
    weights = np.exp(-0.01 * scores)
    found = fisher_of(jnp.asarray(50.0), jnp.asarray(weights), 0.01, 1)
    assert float(found) == pytest.approx(9.0, rel=0.05)  # the first measurement replaces the guess


def test_a_recursive_slack_of_the_wrong_sign_is_said():
    rng, at = np.random.default_rng(0), np.arange(400)
    true, said = -0.07 + 0.02 * rng.normal(size=400), 0.19 + 0.1 * rng.normal(size=400)
    history = {"recorded": at + 1, "played": at, "played_slack": {"cost": true}}
    with pytest.warns(CvxmdpWarning, match=r"'cost' was \+0\.\d+ .* policies -0\.0\d+: the multi"):
        warn_of_lies({**history, "recursive_slack": {"cost": said}}, ["cost"], 0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        noise = said - said.mean() + 0.001
        warn_of_lies({**history, "recursive_slack": {"cost": noise}}, ["cost"], 0.3)
        warn_of_lies({**history, "recursive_slack": {"cost": true}}, ["cost"], 0.3)


def test_a_border_nearer_than_the_noise_of_a_batch_is_said():
    mdp = cm.TabularMDP(np.ones((1, 2, 1)), [1.0], 0.9, signals={"cost": [[1.0, 0.0]]})
    cost = cm.linear("cost", per="step")
    said = []
    for budget in (0.05, 50.0):
        barrier = 1e-4 * cm.log_barrier(cost <= budget)
        found = cm.solve(cm.Problem(mdp, maximize=cost + barrier), cm.VRPDPG(300), seed=0)
        said.append("with batch_size=40 that costs half as much" in found.message)
    assert said == [True, False]


@pytest.mark.parametrize("momentum", [0.3, 1.0])
def test_what_lies_beyond_a_horizon_of_200_gives_a_slack_the_wrong_sign(momentum):
    """37% of the cost is not seen, and a budget of 70% looks kept when nothing but the cost is taken."""
    mdp = cm.TabularMDP(np.ones((1, 2, 1)), [1.0], 0.995, signals={"cost": [[1.0, 0.0]]})
    cost = cm.linear("cost", per="step")
    problem = cm.Problem(mdp, maximize=cost, subject_to={"cost": cost <= 0.7})
    given = cm.VRPDPG(
        600, primal_step=0.03, dual_step=1.0, momentum=momentum, horizon=200, batch_size=2
    )
    with pytest.warns(CvxmdpWarning, match=r"37% of every discounted sum lies beyond the horizon"):
        found = cm.solve(problem, given, seed=0)
    late = found.history["recorded"] > 300
    assert found.history["recursive_slack"]["cost"][late].mean() > 0.05
    assert found.slack["cost"] < -0.03
    chosen = cm.VRPDPG(600, momentum=momentum)
    sure = cm.solve(problem, chosen, seed=1)
    believed = sure.history["recursive_slack"]["cost"][late].mean()
    assert believed == pytest.approx(sure.slack["cost"], abs=0.03)  # what they see is what is
