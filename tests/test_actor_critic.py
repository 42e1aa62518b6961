"""The actor-critic: its measure, its critic, its multipliers, and what it learns with no settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.algorithms.actor_iteration import (
    ActorTrace,
    Critic,
    Scaled,
    generalised,
    mean_of,
    possible,
    rescaled,
)
from cvxmdp.algorithms.actor_multipliers import MOST_UNITS, Gains, Seen, first_dual, updated_dual
from cvxmdp.algorithms.actor_readings import MOST_CHANNELS, LaneSteps, readings_of
from cvxmdp.base.errors import ExperienceError, ProblemError, SettingsError
from cvxmdp.base.saved_trees import from_arrays
from cvxmdp.solvers.actor_critic_answer import Examination
from cvxmdp.solvers.actor_critic_work import ActorCriticWork
from cvxmdp.solvers.contract import Task
from strategies import grid_problem


class Corridor(gymnasium.Env[np.ndarray, int]):
    """Right is where the reward is, and far to the right is what it costs."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        slips = self.np_random.random() < 0.1
        self.place = int(np.clip(self.place + (1 if action and not slips else -1), -4, 4))
        return self._seen(), float(self.place > 0), False, False, {"cost": float(self.place > 2)}

    def _seen(self) -> np.ndarray:
        return np.array([self.place / 4.0], np.float32)


def corridor(kind: type[Corridor] = Corridor) -> cm.Problem:
    """Runs in batches of 256 share what is compiled for it."""
    env = cm.GymnasiumEnv(kind(), discount=0.9)
    return cm.Problem(
        env,
        maximize=cm.linear("reward", per="step"),
        subject_to={"cost": cm.linear("cost", per="step") <= 0.2},
    )


def test_channels_are_all_that_functions_look_at():
    problem, random = grid_problem(), np.random.default_rng(0)
    functions = (problem.objective_function, *problem.slack_functions.values())
    found = readings_of(functions, problem.shape, 0)
    assert found.channels == 9, "a hazard is one of nine states"
    x = problem.evaluate(cm.uniform_policy(problem.mdp)).occupancy + 0.1 * random.random(
        problem.shape
    )
    m = np.asarray(found.rewards).reshape(found.channels, -1) @ x.ravel()
    values = [float(one.value(x)) for one in functions]
    assert np.asarray(found.values(jnp.asarray(m, jnp.float32))) == pytest.approx(values, rel=1e-4)
    rewards, weights = found.shadow(jnp.asarray(m, jnp.float32))
    slopes = np.tensordot(np.asarray(weights), np.asarray(rewards), axes=1)
    for slope, function in zip(slopes, functions, strict=True):
        assert slope == pytest.approx(
            np.broadcast_to(function.gradient(x), x.shape), rel=1e-3, abs=1e-4
        )


def test_too_many_channels_make_one_for_each_function():
    problem = cm.Problem(cm.gridworld(12, discount=0.9), maximize=cm.entropy(of="state-action"))
    found = readings_of([problem.objective_function], problem.shape, 0)
    assert problem.shape[0] * problem.shape[1] > MOST_CHANNELS
    assert (found.channels, found.size) == (1, 12 * 12 * 4)


def test_signals_alone_need_no_features():
    with pytest.raises(ProblemError, match=r"no states\. Give features="):
        cm.Problem(cm.GymnasiumEnv(Corridor(), discount=0.9), maximize=cm.entropy())
    problem = corridor()
    assert problem.shape == (2, 2), "cost and reward"
    functions = (problem.objective_function, *problem.slack_functions.values())
    assert not readings_of(functions, problem.shape, 2).features


def steps_of(ended: list[float], over: list[float]) -> LaneSteps:
    columns = {name: np.zeros((len(ended), 1), np.float32) for name in LaneSteps._fields}
    columns |= {"ended": np.array(ended)[:, None], "over": np.array(over)[:, None]}
    return LaneSteps(**{name: jnp.asarray(column) for name, column in columns.items()})


def test_values_are_bootstrapped_where_an_episode_is_cut_not_where_it_ends():
    work = ActorCriticWork(cm.ActorCritic(5_000, gae=0.5), Task(corridor(), None, 0))
    assert float(work.setup.sizes.kl) == pytest.approx(0.1), "no batch undoes what was learned"
    steps = steps_of([0, 1, 0, 0], [0, 1, 1, 0])
    random = np.random.default_rng(1)
    z, now, then = random.random((3, 4, 1, 2))
    found = np.asarray(generalised(work.setup, steps, z, now, then))
    discount, share = 0.9, 0.45
    expected = np.zeros((4, 1, 2))
    expected[3] = z[3] + discount * then[3] - now[3]
    expected[2] = z[2] + discount * then[2] - now[2]  # cut: what follows is worth something
    expected[1] = z[1] - now[1]  # ended: nothing follows
    expected[0] = z[0] + discount * then[0] - now[0] + share * expected[1]
    assert found == pytest.approx(expected, rel=1e-5)


def test_what_follows_a_cut_is_no_less_than_steps_can_give():
    z = jnp.array([[[0.0, -1.0]], [[0.5, -2.0]]])  # of two steps of one lane, two channels
    said = jnp.array([[[-3.0, -30.0]], [[2.0, -15.0]]])
    setup = ActorCriticWork(cm.ActorCritic(5_000), Task(corridor(), None, 0)).setup
    expected = np.array([[[0.0, -20.0]], [[2.0, -15.0]]])
    assert np.asarray(possible(setup, z, said)) == pytest.approx(expected)


def test_values_that_hardly_differ_keep_a_scale():
    """In single precision the mean of squares less the square of the mean is rounding."""
    targets = 200.0 + 0.02 * np.random.default_rng(0).standard_normal((64, 4, 1)).astype(np.float32)
    critic = Critic([(jnp.ones((1, 1)), jnp.zeros(1))], Scaled(jnp.zeros(1), jnp.zeros(1)))
    found = rescaled(critic, jnp.asarray(targets), jnp.ones((64, 4)), jnp.asarray(0))
    assert float(found.scaled.spread[0]) == pytest.approx(0.22, rel=0.05)


def test_a_policy_is_a_family_and_says_its_own_spread():
    with pytest.raises(SettingsError, match="got <class"):
        cm.ActorCritic(600, policy=cm.MLP)
    with pytest.raises(SettingsError, match=r"Gaussian\(64, 64, std=...\)"):
        cm.ActorCritic(600, policy=cm.Gaussian(8), std=0.3)


def test_multipliers_are_proportional_and_integral_in_units_of_what_pulls_equally():
    gains = Gains(*(jnp.asarray(value) for value in (0.01, 0.5, 0.0, 1e12, 4.0)))
    dual = first_dual(1)._replace(updates=jnp.asarray(9.0), noise=jnp.asarray([0.04]))
    nothing = jnp.zeros((2, 1, 2))
    given = (jnp.array([1.0, -0.3]), jnp.array([-0.3]), jnp.array([2.0, 0.5]))
    seen = Seen(*given, nothing, jnp.zeros(2), jnp.zeros((2, 1)), jnp.asarray(True))
    after, told = updated_dual(gains, dual, jnp.asarray(0.5), seen)
    unit = 4.0  # rms(A_0) / rms(A_1)
    error = -0.3 / np.sqrt(0.9 * 0.04)
    assert told.unit == pytest.approx([unit])
    assert after.integral == pytest.approx([-0.01 * unit * error])
    assert after.multipliers == pytest.approx([-0.51 * unit * error])
    step = jax.jit(lambda dual: updated_dual(gains, dual, jnp.asarray(0.5), seen)[0])
    for _ in range(5_000):
        after = step(after)
        if float(after.integral[0]) >= MOST_UNITS * unit * 0.999:
            break
    assert float(after.multipliers[0]) <= MOST_UNITS * unit * (1 + 1e-6)


def test_a_violation_that_was_given_up_is_not_allowed_again():
    gains = Gains(*(jnp.asarray(value) for value in (0.01, 0.5, 0.5, 1e12, 4.0)))
    dual, nothing = first_dual(1), jnp.zeros((2, 1, 2))

    def go(dual, progress, slack):
        given = (jnp.array([1.0, slack]), jnp.array([slack]), jnp.array([2.0, 0.5]))
        seen = Seen(*given, nothing, jnp.zeros(2), jnp.zeros((2, 1)), jnp.asarray(True))
        return updated_dual(gains, dual, jnp.asarray(progress), seen)[0]

    for progress in (0.01, 0.02, 0.03, 0.04, 0.05):
        dual = go(dual, progress, -1.0)
    assert dual.multipliers == pytest.approx([0.5 * 4.0 * 10.0], rel=0.2), "over the line"
    # The line falls from 0.9 at a tenth of the run to zero at a half; after 0.3 was reached, from there.
    dual = dual._replace(integral=jnp.zeros(1))
    assert go(dual, 0.1, -0.79).multipliers == 0.0
    there = dual
    for _ in range(20):
        there = go(there, 0.1, -0.3)
    there = there._replace(integral=jnp.zeros(1))
    assert go(there, 0.3, -0.149).multipliers == 0.0
    assert go(there, 0.3, -0.39).multipliers > 0.0
    assert go(dual, 0.3, -0.39).multipliers == 0.0, "where less was never reached it is on the line"


@pytest.mark.parametrize(("count", "mean"), [(1, 0.0), (3, 2.0), (4, 3.0), (8, 6.5)])
def test_multipliers_are_means_over_the_last_quarter_of_short_runs_too(count, mean):
    rows = {"objective": np.zeros(count), "multipliers": np.arange(count)[:, None]}
    assert ActorCriticWork._multipliers(None, None, rows) == [mean]


def test_the_measure_is_that_of_the_policy():
    """A policy that hardly moves is measured: by the running mean, within a few standard errors."""
    problem = grid_problem()
    # Episodes end before they are cut: a critic that learns nothing does not know what would follow.
    problem = problem.with_model(problem.mdp.replace(transition=0.7 * problem.mdp.transition))
    solver = cm.ActorCritic(60_000, batch=256, epochs=8, learning_rate=1e-9, memory=1_000)
    found = cm.solve(problem, solver, seed=0, progress=False)
    exact = problem.evaluate(found.policy)
    assert found.history["objective"][-1] == pytest.approx(exact.objective, abs=0.01)
    assert found.history["slack"]["hazard"][-1] == pytest.approx(exact.slack["hazard"], abs=0.004)


def test_a_simulator_is_learned_with_no_settings_and_says_what_it_is(tmp_path):
    problem = corridor()
    found = cm.solve(problem, seed=0, steps=16_000, folder=tmp_path / "run")
    assert "ActorCritic: steps 16,000, batch 256" in found.stats["chosen"]
    assert found.stats["answer"] in ("last", "averaged")
    assert found.constraint_status["cost"] in ("satisfied", "open")
    # Always to the right has 0.87, at a cost of 0.69; at random it is 0.3 and 0.06.
    assert found.objective > 0.7
    assert found.slack["cost"] > -0.02
    episodes = found.history["episodes"]
    assert (found.history["episodes_over"]["cost"] <= episodes).all()
    # A policy file is enough to act, normaliser included.
    found.policy.save(tmp_path / "policy.safetensors")
    again = cm.load_policy(tmp_path / "policy.safetensors")
    seen = np.array([[-0.5], [0.75]], np.float32)
    assert again.probabilities(seen) == pytest.approx(found.policy.probabilities(seen))
    # More steps and another budget, from the folder.
    solver = cm.ActorCritic(10_000)
    more = cm.solve(problem.with_budget("cost", 0.15), solver, seed=1, start=tmp_path / "run")
    assert "critic" in more.stats["start"]
    assert more.slack["cost"] > -0.05


def test_a_start_from_a_problem_with_other_constraints_is_the_policy_as_it_was():
    env = cm.GymnasiumEnv(Corridor(), discount=0.9)

    def about(**budgets):
        return cm.Problem(env, maximize=cm.linear("reward"), subject_to=budgets)

    cost, gain = cm.linear("cost") <= 0.2, cm.linear("reward") >= 0.1
    solver, seen = cm.ActorCritic(2_000, batch=256, memory=1), np.linspace(-1, 1, 9)[:, None]
    earlier = cm.solve(about(cost=cost, gain=gain), solver, seed=0)
    still = replace(solver, steps=256, learning_rate=1e-12)
    for budgets in ({}, {"price": cost, "use": gain}, {"gain": gain, "cost": cost}):
        found = cm.solve(about(**budgets), still, seed=1, start=earlier)
        assert found.stats["start"] == "parameters of the policy"
        before, after = (one.policy.probabilities(seen) for one in (earlier, found))
        # It is what its own scale of observations made it; 256 more move that scale a little.
        np.testing.assert_allclose(after, before, atol=0.01)
    # A learner that scales by the box sees the same policy.
    other = cm.VRPDPG(
        1, horizon=4, primal_step=1e-7, dual_step=1e-7, momentum=0.1, policy=cm.MLP(64, 64)
    )
    for start in (earlier, earlier.policy):
        found = cm.solve(about(price=cost), other, seed=1, start=start)
        after = found.policy.probabilities(seen)
        np.testing.assert_allclose(after, earlier.policy.probabilities(seen), atol=1e-4)


def test_a_cost_that_is_rarely_seen_is_not_satisfied_by_a_hundred_episodes_without_it():
    """It was seen while learning; a mean of a batch hides it, and eight of eight such answers were wrong."""

    class Rare(Corridor):
        def step(self, action):
            cost = float(action and self.np_random.random() < 0.004)
            return self._seen(), float(action), True, False, {"cost": cost}

    env = cm.GymnasiumEnv(Rare, 0.9, n_envs=16)
    limit = {"cost": cm.linear("cost") <= 0.003}
    problem = cm.Problem(env, maximize=cm.linear("reward"), subject_to=limit)
    for seed in range(2):
        found = cm.solve(problem, cm.ActorCritic(4_000, check=100), seed=seed)
        assert found.policy.probabilities(np.zeros(1))[1] > 0.8
        assert found.constraint_status["cost"] == "open"


def test_a_short_run_is_looked_at_in_a_few_episodes():
    """Of 70 steps each: it took twenty times as many steps as the run, repairs included."""
    problem = corridor()
    found = cm.solve(problem, cm.ActorCritic(500), seed=0)
    assert found.stats["evaluation_episodes"] * 70 <= 500
    assert problem.environment.steps < 2_000
    assert (found.constraint_status["cost"], found.stats["repairs"]) == ("open", 0)
    assert found.findings == ()


@pytest.mark.parametrize("kind", ["stepped", "compiled"])
def test_a_run_that_was_stopped_ends_with_the_same_bits(kind, tmp_path):
    problem = corridor() if kind == "stepped" else grid_problem()
    solver = cm.ActorCritic(4_000, batch=256)
    whole = cm.solve(problem, solver, seed=3)
    stopped = cm.solve(problem, solver, seed=3, folder=tmp_path, time_limit=1e-6)
    assert stopped.status is cm.Status.TIME_LIMIT
    ended = cm.solve(problem, solver, seed=3, folder=tmp_path)
    assert ended.objective == whole.objective
    for mine, theirs in zip(
        jax.tree.leaves(ended.stats["params"]), jax.tree.leaves(whole.stats["params"]), strict=True
    ):
        assert np.array_equal(mine, theirs)


def test_a_repair_begins_where_a_budget_is_exceeded_and_never_makes_it_worse():
    problem = grid_problem().with_budget("hazard", 0.0005)
    work = ActorCriticWork(cm.ActorCritic(12_800, batch=256), Task(problem, None, 0))
    state, found = work.first(), []
    while work.where(state)[0] < work.where(state)[1]:
        before = int(state.repairs)
        state, _ = work.advance(state, work.mark(state))
        found += [state] * (int(state.repairs) > before)
    assert found, "so few steps do not keep so small a budget"
    first = found[0]
    exceeded = problem.evaluate(work.policy(first.best.policy)).slack["hazard"]
    assert exceeded < 0
    assert first.learner.dual.extra == pytest.approx([-exceeded], rel=1e-5)
    assert work.where(first) == (50, 55), "a tenth is played again"
    assert float(work.setup.left(50)) == pytest.approx(0.3)
    assert float(work.setup.left(54)) == pytest.approx(0.06)
    answer = work.finish(state, {}, cm.Status.ITERATION_LIMIT)
    assert -answer.slack["hazard"] / 0.0005 == pytest.approx(float(state.best.short), abs=1e-9)
    assert state.best.short <= first.best.short
    assert answer.stats["samples"] == (50 + 5 * int(state.repairs)) * 256


def test_what_a_start_takes_over():
    problem = grid_problem()
    first = cm.solve(problem, cm.ActorCritic(8_000), seed=0)
    work = ActorCriticWork(cm.ActorCritic(8_000), Task(problem, first, 1))
    learner = work.first().learner
    kept = from_arrays(first.stats["learner"], learner._replace(returns=np.zeros((0, 0))))
    for mine, theirs in zip(
        jax.tree.leaves(learner.critic), jax.tree.leaves(kept.critic), strict=True
    ):
        assert np.array_equal(mine, theirs)
    assert np.array_equal(learner.dual.multipliers, kept.dual.multipliers)
    measured = np.asarray(mean_of(learner.measured, work.setup.longest))
    assert np.isfinite(measured).all()
    assert measured.any()
    assert learner.dual.allowance == pytest.approx(0.0), "no violation is allowed again"
    other = ActorCriticWork(cm.ActorCritic(8_000, cm.MLP(16)), Task(problem, first, 1))
    same = other.policy(other.first().learner.actor).probabilities()
    assert np.abs(same - first.policy.probabilities()).max() < 0.05, (
        "of another network, the policy"
    )
    table = cm.solve(problem).policy
    imitated = ActorCriticWork(cm.ActorCritic(8_000), Task(problem, table, 1)).first().learner
    assert np.abs(work.policy(imitated.actor).probabilities() - table.probabilities()).max() < 0.05


def test_an_answer_is_no_worse_than_the_policy_it_began_with():
    problem = grid_problem().with_budget("hazard", 0.9)
    solver, best = cm.ActorCritic(2_048, batch=256), cm.solve(problem).policy
    good = ActorCriticWork(solver, Task(problem, best, 0)).first()
    work = ActorCriticWork(solver, Task(problem, None, 0))
    poor = work.first().learner
    assert work._better(good._replace(learner=poor)).which == 3, "nothing learned is better"
    assert work._better(good).which < 2, "nothing is lost"
    kept = poor.kept._replace(actor=good.best.policy)
    lost = good._replace(learner=poor._replace(kept=kept), best=work.first().best)
    assert work._better(lost).which == 2, "what was learned and lost again"
    found = good.best._replace(done=np.int32(8))
    assert work._better(good._replace(learner=poor, best=found)).which < 2, (
        "an answer, not the first"
    )
    tight = Examination(problem.with_budget("hazard", 0.01), 2_048, 10, 100, 0, 0)
    safe = cm.TabularPolicy(np.tile([1.0, 0.0, 0.0, 0.0], (9, 1)))
    assert tight.better([safe, safe, best]) < 2, "what breaks a budget is no better"


def test_a_barrier_is_nearly_flat_at_first_for_policies_that_are_outside():
    mdp = cm.gridworld(3, discount=0.9, rewards={8: 1.0}, hazards=[4])
    barrier = cm.log_barrier(cm.linear("hazard") <= 1.0)
    problem = cm.Problem(mdp, maximize=cm.linear("reward") + 0.1 * barrier)
    work = ActorCriticWork(cm.ActorCritic(100 * 256), Task(problem, None, 0))
    setup, outside = work.setup, work.first().learner.outside
    assert outside == pytest.approx(np.zeros(1)), "one logarithm, nothing known yet"
    m = setup.readings.rewards.reshape(2, -1) @ np.where(np.arange(36) // 4 == 4, 0.75, 0.0)
    m = jnp.asarray(m, jnp.float32)
    assert np.asarray(setup.readings.inside(m)) == pytest.approx([-2.0])

    def slope(outside: float, done: float) -> float:
        """Of the barrier, along hazards."""
        _, weights = setup.loosened(jnp.array([outside]), jnp.asarray(done)).shadow(m)
        return -float(np.asarray(weights).min())

    assert slope(2.01, 0) == pytest.approx(0.1 / 201.0), "a hundred times as far outside"
    assert slope(2.01, 25) == pytest.approx(0.1 / np.sqrt(201.0 * 0.01), rel=1e-4)
    assert slope(2.01, 50) == pytest.approx(0.1 / 0.01), "the tangent at 0.01"
    assert slope(0.01, 0) == slope(-3.0, 0) == pytest.approx(0.1 / 0.01), "who is not outside"


def test_what_is_hardly_ever_seen_is_no_logarithm_and_said():
    """Below 0.01 learning goes on along the logarithm's tangent; the answer's objective is the true one."""
    mdp = cm.gridworld(3, discount=0.9, rewards={8: 1.0}, hazards=[4])
    problem = cm.Problem(mdp, maximize=cm.log_sum("reward", "hazard"))
    for chance, said in ((0.001, ["objective at its border"]), (0.25, [])):
        rarely = np.tile([chance, chance, chance, 1.0 - 3 * chance], (9, 1))
        task = Task(problem, cm.TabularPolicy(rarely), 0)
        work = ActorCriticWork(cm.ActorCritic(2_048), task)
        state = work.first()
        state = state._replace(best=state.best._replace(done=np.int32(1)))
        curve = np.linspace(-4.0, -3.0, 60).clip(-4.0, -3.5)
        names = {*ActorTrace._fields, "entropy"} - {"objective", "sample", "steps"}
        of_constraints = ("slack", "multipliers", "noise", "unit", "over", "excess", "deepest")
        rows = {name: np.ones((60, 0) if name in of_constraints else 60) for name in names}
        found = work.finish(state, {"objective": curve, **rows}, cm.Status.ITERATION_LIMIT)
        assert [finding.what for finding in found.findings] == said


def test_images_and_wrong_settings_are_refused():
    class Screen(Corridor):
        observation_space = gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8)

    screen = cm.Problem(cm.GymnasiumEnv(Screen(), discount=0.9), maximize=cm.linear("reward"))
    with pytest.raises(SettingsError, match=r"images of shape \(64, 64, 3\).*EquinoxModule"):
        cm.solve(screen, cm.ActorCritic(1_000), seed=0)
    with pytest.raises(SettingsError, match=r"images of shape \(64, 64, 3\)"):
        cm.solve(screen, cm.VRPDPG(10, policy=cm.MLP(8)), seed=0)
    for wrong in ({"steps": 0}, {"steps": 10, "gae": 1.5}, {"steps": 10, "clip": -0.1}):
        with pytest.raises(SettingsError, match="must be"):
            cm.ActorCritic(**wrong)


def test_a_signal_that_is_no_number_ends_the_run_with_what_was_learned():
    class Breaks(Corridor):
        count = 0

        def step(self, action: int) -> Any:
            Breaks.count += 1
            seen, reward, *rest = super().step(action)
            return seen, np.nan if Breaks.count > 6_000 else reward, *rest

    with pytest.raises(ExperienceError, match="'reward' as nan") as caught:
        cm.solve(corridor(Breaks), cm.ActorCritic(10_000, batch=256), seed=0)
    assert caught.value.solution.has_policy
