"""Learning by counting and planning: what is explored, what is answered, where, and after a stop."""

from __future__ import annotations

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm
from cvxmdp.algorithms.optimism import explorer, meeting, optimist, standard_errors
from cvxmdp.experience.tallies import StepCounter
from cvxmdp.models.estimate import estimated_model
from cvxmdp.solvers.choice import choose_solver
from cvxmdp.solvers.counted_plans import answered, shadow_reward
from cvxmdp.solvers.playing import ModelGround


def chain(n: int = 14) -> cm.Problem:
    """One of two actions goes on, the other back to the start, and only the end pays; moving costs."""
    transition, reward, moves = np.zeros((n, 2, n)), np.zeros((n, 2)), np.zeros((n, 2))
    for state in range(n):
        on = state % 2
        transition[state, on, min(state + 1, n - 1)] = 0.9
        transition[state, on, state] += 0.1
        transition[state, 1 - on, 0] = 1.0
        moves[state, on] = 1.0
    reward[n - 1, (n - 1) % 2] = 1.0
    mdp = cm.TabularMDP(transition, 0, 0.95, signals={"reward": reward, "moves": moves})
    budget = {"moves": cm.linear("moves", per="step") <= 0.8}
    return cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=budget)


def played(problem: cm.Problem, steps: int, seed: int = 0) -> cm.Solution:
    return cm.solve(problem, cm.ModelBased(steps), seed=seed)


@pytest.fixture(scope="module")
def learned() -> cm.Solution:
    return played(chain(), 20_000)


def test_a_deep_chain_is_found_out_and_the_budget_kept(learned) -> None:
    best = cm.solve(learned.problem).objective
    # a random walk meets the end once in 2^13 tries: who does not look for it never gets a reward
    assert learned.objective >= 0.98 * best
    assert learned.violation["moves"] <= 0.01 * 0.8 * 20
    assert learned.stats["samples"] <= 20_000
    model = learned.stats["model"]
    assert model.counts.total == learned.stats["samples"]
    assert model.counts.tried.all()
    assert set(learned.stats["standard_error"]) == {"moves"}
    assert learned.stats["while_learning"]["played"] == model.counts.initial.sum()
    assert len(learned.history["objective"]) == len(learned.history["recorded"])


def test_a_random_walk_does_not_find_it() -> None:
    """The same experience without anybody who looks: the explorer is what makes the difference."""
    problem = chain()
    ground = ModelGround(problem.mdp, 0)
    uniform = np.full((1, *problem.mdp.shape), 0.5)
    tally = ground.counter.nothing()
    for number in range(20):
        tally = ground.add(tally, ground.play(uniform, np.ones(1), 60, number))
    assert not ground.counter.counts(tally.merged()).tried.all()


def test_counts_are_those_of_a_model_that_is_estimated_from_the_same_steps() -> None:
    """``from_transitions`` and the tally agree, cut and ended episodes included."""
    truth = cm.garnet(4, 2, 3, seed=3, discount=0.9)
    truth = truth.replace(transition=truth.transition * 0.9)
    ground = ModelGround(truth, 1)
    episodes = ground.play(np.full((1, 4, 2), 0.5), np.ones(1), 12, 0)
    counts = ground.counter.counts(ground.add(ground.counter.nothing(), episodes).merged())
    rows: dict[str, list] = {name: [] for name in ("state", "action", "next_state", "terminated")}
    ends = []
    for lane, length in enumerate(episodes.lengths):
        for step in range(length):
            last = step == length - 1
            after = episodes.last[lane] if last else episodes.inputs[lane, step + 1]
            ended = bool(last and episodes.terminated[lane])
            values = (episodes.inputs[lane, step], episodes.actions[lane, step], after, ended)
            for column, value in zip(rows.values(), values, strict=True):
                column.append(value)
            ends.append(lane)
    other = cm.from_transitions({**rows, "episode": ends}, 0.9, n_states=4, n_actions=2).counts
    assert (counts.outcomes != other.outcomes).nnz == 0
    np.testing.assert_array_equal(counts.initial, other.initial)
    assert 0 < episodes.terminated.sum() < len(episodes.terminated)


def jax_chain() -> object:
    """Four states in gymnax's protocol: one action goes on, the other back; the last state pays."""

    class Chain:
        num_actions, num_states, name = 2, 4, "chain"

        def reset(self, key):
            return jnp.asarray(0), jnp.asarray(0)

        def step(self, key, state, action):
            after = jnp.where(action == 1, jnp.minimum(state + 1, 3), 0)
            return after, after, (state == 3) * (action == 1) * 1.0, jnp.asarray(False), {}

    return Chain()


def counted(outcomes: np.ndarray) -> cm.TabularMDP:
    states = outcomes.shape[1] - 1
    shape = (states, outcomes.shape[0] // states)
    counter = StepCounter(np.ones(shape, dtype=bool), (), {})
    counts = counter.counts(counter.nothing())
    full = type(counts)(
        sp.csr_array(outcomes), counts.available, np.array([1] + [0] * (states - 1))
    )
    return estimated_model(full, 0.9)


def test_the_explorer_goes_where_nobody_went_and_says_how_likely_that_is() -> None:
    # state 0: action 0 stays, action 1 goes to state 1, where action 1 was never tried
    model = counted(np.array([[50, 0, 0], [0, 50, 0], [0, 50, 0], [0, 0, 0]]))
    table = explorer(model, 60)
    np.testing.assert_array_equal(table, [[0.0, 1.0], [0.0, 1.0]])
    assert meeting(model, 60) == pytest.approx(0.9)  # one step away
    known = counted(np.array([[50, 0, 0], [0, 50, 0], [0, 50, 0], [0, 9, 0]]))
    assert meeting(known, 60) == pytest.approx(0.9)  # nine tries are few
    often = counted(np.array([[50, 0, 0], [0, 50, 0], [0, 50, 0], [0, 10, 0]]))
    assert meeting(often, 60) == 0.0


def test_an_optimist_prefers_what_may_be_better() -> None:
    # both actions of state 0 reached the good state half of the time; one of them was seldom tried
    model = counted(np.array([[200, 200, 0], [10, 10, 0], [0, 400, 0], [0, 400, 0]]))
    reward = np.array([[0.0, 0.0], [1.0, 1.0]])
    plan = np.array([[1.0, 0.0], [1.0, 0.0]])
    assert optimist(model, reward, plan)[0] == 1


def test_an_optimist_tries_a_pair_again_that_was_unlucky_at_first() -> None:
    # action 1 of state 0 reached the good state once in 18 tries; a third would beat the plan's quarter
    model = counted(np.array([[300, 100, 0], [17, 1, 0], [400, 0, 0], [400, 0, 0]]))
    reward, plan = np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([[1.0, 0.0], [1.0, 0.0]])
    assert optimist(model, reward, plan)[0] == 1
    often = counted(np.array([[300, 100, 0], [170, 10, 0], [400, 0, 0], [400, 0, 0]]))
    assert optimist(often, reward, plan)[0] == 0  # by now it is known to be worse


@pytest.mark.parametrize("kind", ["max-min", "l1", "sum of shortfalls"])
def test_a_plan_is_the_best_for_its_own_shadow_reward_at_kinks_too(kind: str) -> None:
    """The optimist follows it: the slope of one part alone would send it after that part."""
    mdp = cm.garnet(8, 3, 3, seed=4, discount=0.9, signals=("first", "second", "cost"))
    first, second = cm.linear("first", per="step"), cm.linear("second", per="step")
    target = cm.TabularPolicy(np.random.default_rng(0).dirichlet(np.ones(3), 8))
    asked = {
        "max-min": cm.minimum(first, second),
        "l1": -cm.distance(target, norm="l1"),
        "sum of shortfalls": cm.minimum(first - 0.75, 0.0) + cm.minimum(second - 0.75, 0.0),
    }[kind]
    problem = cm.Problem(
        mdp, maximize=asked, subject_to={"cost": cm.linear("cost", per="step") <= 0.4}
    )
    answer = answered(problem)
    reward = shadow_reward(problem, answer)
    best = cm.solve(cm.Problem(mdp, maximize=cm.linear(reward))).objective
    assert np.vdot(reward, answer.occupancy) == pytest.approx(best, abs=1e-6)


def test_standard_errors_are_those_of_repeated_experience() -> None:
    """Against the spread over 200 estimates of the same size."""
    problem = chain(4)
    mdp, uniform = problem.mdp, np.full(problem.mdp.shape, 0.5)
    random, reward = np.random.default_rng(0), problem.mdp.signal("reward")
    rows = np.hstack([mdp.transition.toarray(), np.zeros((8, 1))])
    found, errors = [], []
    for _ in range(200):
        outcomes = np.array([random.multinomial(400, row) for row in rows])
        model = counted(outcomes)
        model = model.replace(initial=0, discount=0.95, counts=model.counts)
        x = cm.occupancy_of(model, uniform)
        found.append(np.vdot(reward, x))
        errors.append(standard_errors(model, uniform, reward[None])[0])
    assert np.mean(errors) == pytest.approx(np.std(found), rel=0.2)


def test_environments_with_discrete_observations_are_chosen_for_and_say_why() -> None:
    pytest.importorskip("gymnasium")
    signals = {"fall": lambda o, a, p, r, end: float(end and r == 0)}
    env = cm.GymnasiumEnv("FrozenLake-v1", 0.9, signals=signals, n_envs=8, bounds={"fall": (0, 1)})
    problem = cm.Problem(
        env, maximize=cm.linear("reward"), subject_to={"falls": cm.linear("fall") <= 0.3}
    )
    found = cm.solve(problem, seed=0, steps=6_000)
    assert found.stats["solver"] == "ModelBased"
    assert "16 states can be counted" in found.stats["chosen"]
    assert "fresh episodes" in found.message
    counts = found.stats["model"].counts
    assert counts.signals["fall"].bounds == (0.0, 1.0)
    assert counts.signals["reward"].bounds is None
    truth = cm.from_gymnasium_table("FrozenLake-v1", 0.9, signals=signals)
    exact = cm.Problem(truth, maximize=cm.linear("reward"), subject_to=problem.constraints)
    assert exact.evaluate(found.policy).objective >= 0.9 * cm.solve(exact).objective
    # the estimate is one of the true model: 6,000 draws, four standard errors
    seen = counts.tried
    wrong = np.abs(found.stats["model"].dense_transition() - truth.dense_transition()).max(axis=2)
    assert (wrong[seen] <= 4 * 0.5 / np.sqrt(counts.visits[seen])).all()


def test_what_steps_are_for_is_said() -> None:
    problem = chain(3)
    with pytest.raises(cm.SettingsError, match=r"this is a model.*ModelBased\(steps=100\)"):
        cm.solve(problem, seed=0, steps=100)
    with pytest.raises(cm.SettingsError, match=r"steps=100 goes without a solver"):
        cm.solve(problem, cm.ConvexProgram(), steps=100)
    for steps in (0, -1, 2.5, True, "many"):
        with pytest.raises(cm.SettingsError, match="steps is how long to play"):
            cm.ModelBased(steps)
    with pytest.raises(cm.SettingsError, match="confidence is a probability"):
        cm.ModelBased(100, confidence=95)
    endless = cm.Problem(chain(3).mdp.replace(discount=0.9), maximize=cm.linear("reward"))
    ends = endless.mdp.replace(transition=0.9 * endless.mdp.transition, discount=1.0)
    with pytest.raises(cm.SettingsError, match=r"learns with a discount below 1; here is total"):
        cm.solve(endless.with_model(ends), cm.ModelBased(100), seed=0)
    pytest.importorskip("gymnasium")
    fourier = cm.RandomFourier(4, 20, seed=0)
    env = cm.GymnasiumEnv("CartPole-v1", 0.9, features=fourier)
    waves = cm.Problem(env, maximize=cm.linear("reward"))
    assert isinstance(choose_solver(waves, 100)[0], cm.ActorCritic)
    with pytest.raises(cm.SettingsError, match=r"less than one step in each of 16 lanes"):
        cm.solve(waves, cm.ModelBased(9), seed=0)
    with pytest.raises(cm.SettingsError, match=r"ModelBased counts states"):
        cm.solve(waves, cm.ModelBased(100), seed=0)


def test_an_environment_is_gone_on_with_the_same_bits(tmp_path) -> None:
    pytest.importorskip("gymnasium")

    def learned_in(**more: object) -> cm.Solution:
        env = cm.GymnasiumEnv("FrozenLake-v1", 0.8, n_envs=4)
        problem = cm.Problem(env, maximize=cm.linear("reward"))
        return cm.solve(problem, cm.ModelBased(800), seed=3, **more)

    whole = learned_in()
    learned_in(folder=tmp_path / "run", time_limit=1e-6)
    again = learned_in(folder=tmp_path / "run")
    np.testing.assert_array_equal(again.policy.probabilities(), whole.policy.probabilities())
    assert again.objective == whole.objective


def test_an_environment_in_jax_is_played() -> None:
    env = cm.JaxEnv(jax_chain(), 0.9, n_envs=8, bounds={"reward": (0, 1)})
    found = cm.solve(cm.Problem(env, maximize=cm.linear("reward")), seed=0, steps=1_500)
    assert found.stats["solver"] == "ModelBased"
    best = 0.9**3 / (
        1 - 0.9
    )  # three steps to the end of the chain, and a reward in every step there
    assert found.objective == pytest.approx(best, rel=0.02)  # cut where a thousandth is left


def test_bins_are_counted_as_if_they_were_states() -> None:
    pytest.importorskip("gymnasium")
    bins = cm.UniformBins([-2.4, -3.0, -0.25, -3.0], [2.4, 3.0, 0.25, 3.0], [1, 1, 6, 6])
    env = cm.GymnasiumEnv("CartPole-v1", 0.95, features=bins, n_envs=8)
    found = played(cm.Problem(env, maximize=cm.linear("reward")), 4_000)
    uniform = cm.evaluate(np.full((36, 2), 0.5), env, 50, seed=0, problem=found.problem)
    assert found.objective > uniform.objective.value


def test_few_steps_one_state_and_unreachable_budgets_have_answers() -> None:
    assert played(chain(3), 20).has_policy  # fewer than the first plan waits for
    assert played(chain(3), 5).stats["samples"] == 5
    one = cm.TabularMDP(np.ones((1, 2, 1)), 0, 0.9, signals={"reward": [[1.0, 2.0]]})
    assert played(cm.Problem(one, maximize=cm.linear("reward")), 500).objective == pytest.approx(20)
    moves = chain(3).with_budget("moves", -1.0)
    found = played(moves, 2_000)
    assert found.violation["moves"] > 0
    zero = cm.TabularMDP(np.ones((1, 1, 1)), 0, 0.0, signals={"reward": [[0.0]]})
    assert played(cm.Problem(zero, maximize=cm.linear("reward")), 100).objective == 0.0


def river() -> cm.Problem:
    """Three states; swimming up takes effort and may fail, and the reward is at the far end."""
    transition, reward, effort = np.zeros((3, 2, 3)), np.zeros((3, 2)), np.zeros((3, 2))
    for state in range(3):
        transition[state, 0, max(state - 1, 0)] = 1.0
        transition[state, 1, min(state + 1, 2)] += 0.6
        transition[state, 1, state] += 0.4
    effort[:, 1], reward[2, 1] = 1.0, 1.0
    mdp = cm.TabularMDP(transition, 0, 0.9, signals={"reward": reward, "effort": effort})
    budget = {"effort": cm.linear("effort", per="step") <= 0.7}
    return cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=budget)


def test_the_end_says_what_is_proven_of_the_true_model(tmp_path) -> None:
    problem = river()
    found = played(problem, 20_000)
    assert "Of the true model, with confidence 0.95 (20,000 rows, 6 pairs, 0 never tried)" in str(
        found
    )
    best = cm.solve(problem).objective
    assert (
        found.stats["true_objective"] <= found.objective <= best + 1e-9 <= found.stats["true_bound"]
    )
    assert found.stats["true_slack"]["effort"] <= found.slack["effort"]
    estimate = problem.with_model(found.stats["model"])
    found.stats["certificate"].save(tmp_path / "certificate.json")
    assert cm.check(tmp_path / "certificate.json", estimate)
    careful = cm.solve(estimate, cautious=0.95)  # a plan that is proven, from the same counts
    assert careful.status is cm.Status.CAUTIOUS
    assert problem.evaluate(careful.policy).slack["effort"] >= 0


@pytest.mark.slow
def test_safe_learning_plays_only_what_is_proven() -> None:
    problem = river()
    lazy = np.tile([0.9, 0.1], (3, 1))  # hardly any effort, and hardly any reward
    solver = cm.ModelBased(8_000, safe=True)
    found = cm.solve(problem, solver, seed=0, start=lazy)
    assert found.stats["while_learning"]["violated"] == 0  # by exact occupancies
    assert min(found.history["played_slack"]["effort"]) >= 0
    assert found.slack["effort"] >= 0
    before, best = problem.evaluate(lazy).objective, cm.solve(problem).objective
    assert found.objective >= before + 0.5 * (best - before)
    careless = played(problem, 8_000)
    assert careless.stats["while_learning"]["violated"] > 0  # what the others pay for learning
    with pytest.raises(cm.SettingsError, match=r"safe=True begins with a policy .* give start="):
        cm.solve(problem, solver, seed=0)
    pytest.importorskip("gymnasium")
    signals = {"fall": lambda o, a, p, r, end: float(end and r == 0)}
    env = cm.GymnasiumEnv("FrozenLake-v1", 0.9, signals=signals, n_envs=2)
    lake = cm.Problem(
        env, maximize=cm.linear("reward"), subject_to={"falls": cm.linear("fall") <= 0.3}
    )
    with pytest.raises(cm.SettingsError, match=r"needs the range of 'fall'.*bounds=\{'fall'"):
        cm.solve(lake, cm.ModelBased(100, safe=True), seed=0, start=np.full((16, 4), 0.25))
    with pytest.raises(cm.PolicyError, match=r"start is a policy for \(3, 2\)"):
        cm.solve(lake, cm.ModelBased(100), seed=0, start=lazy)


def test_what_stands_under_a_logarithm_is_a_slack_of_the_plan() -> None:
    """It keeps its standard error where it can; where the estimate has no room at all, it gets the most."""
    mdp = cm.garnet(6, 3, 3, discount=0.9, seed=1)
    least = cm.solve(cm.Problem(mdp, minimize=cm.linear("cost"))).objective

    def learned(budget: float) -> tuple[cm.Solution, float]:
        barrier = cm.log_barrier(cm.linear("cost") <= budget)
        problem = cm.Problem(mdp, maximize=cm.linear("reward") + 0.01 * barrier)
        solution = cm.solve(problem, cm.ModelBased(steps=300), seed=0)
        estimate = solution.stats["model"]
        assert solution.stats["standard_error"] == {}
        x = cm.occupancy_of(estimate, solution.policy)
        return solution, budget - float((estimate.signal("cost") * x).sum())

    solution, room = learned(1.3 * least)
    assert np.isfinite(solution.objective)
    assert (
        room > 0.05 * least
    )  # without a margin it would be next to nothing, for a barrier this weak
    solution, room = learned(0.9 * least)
    assert solution.objective == -np.inf
    most = cm.solve(cm.Problem(solution.stats["model"], minimize=cm.linear("cost"))).objective
    assert room == pytest.approx(0.9 * least - most, abs=1e-6)


@pytest.mark.parametrize("seed", [15, 33, 39])
def test_short_runs_stay_inside_a_barrier_of_the_truth(seed: int) -> None:
    """With one standard error the true argument was negative here, and the objective minus infinity."""
    mdp = cm.garnet(5, 2, 3, seed=seed, discount=0.9)
    least = cm.solve(cm.Problem(mdp, minimize=cm.linear("cost"))).objective
    budget = least * float(np.random.default_rng(seed).uniform(1.05, 1.5))
    barrier = cm.log_barrier(cm.linear("cost") <= budget)
    problem = cm.Problem(mdp, maximize=cm.linear("reward") + 0.01 * barrier)
    assert np.isfinite(cm.solve(problem, cm.ModelBased(steps=400), seed=seed).objective)


class Rare(gymnasium.Env):
    """What pays costs something, once in 250 episodes of one step."""

    observation_space = gymnasium.spaces.Discrete(1)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        cost = float(action and self.np_random.random() < 0.004)
        return 0, float(action), True, False, {"cost": cost}


def test_a_cost_that_is_rarely_seen_is_not_satisfied_by_a_hundred_episodes_without_it() -> None:
    """It was counted while learning, and may happen again: 12 of 20 such answers were wrong."""
    for seed in range(6):
        env = cm.GymnasiumEnv(Rare, 0.9, n_envs=16)
        limit = {"cost": cm.linear("cost") <= 0.003}
        problem = cm.Problem(env, maximize=cm.linear("reward"), subject_to=limit)
        found = cm.solve(problem, cm.ModelBased(2_000), seed=seed)
        assert 0.003 - 0.004 * found.policy.probabilities(0)[1] < 0.002
        assert found.constraint_status["cost"] == "open"
        # What never cost anything where the policy goes is as sure as before.
        never = problem.with_budget("cost", 0.0)
        assert (
            cm.solve(never, cm.ModelBased(2_000), seed=seed).constraint_status["cost"] != "violated"
        )
