"""What a policy is worth, with bounds: coverage on models with known truth, methods, and mistakes."""

from __future__ import annotations

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

import cvxmdp as cm
from cvxmdp.base.errors import (
    ExperienceError,
    FileFormatError,
    PolicyError,
    ProblemError,
    UtilityError,
)
from cvxmdp.experience.concentration import Radius, VectorBound, bernstein_radius
from cvxmdp.experience.environments.simulated import ModelSimulator, actor_of
from cvxmdp.experience.episodes import summarise
from cvxmdp.experience.intervals import return_range
from cvxmdp.policies.mixtures import MixturePolicy
from environments import Counter, ModelEnv, SixTuple
from strategies import generator, random_model


@pytest.fixture(scope="module")
def mdp() -> cm.TabularMDP:
    """Five states, some episodes end."""
    model = cm.garnet(5, 2, 3, seed=1, discount=0.8)
    random = np.random.default_rng(0)
    signals = {"reward": random.random((5, 2)), "cost": random.random((5, 2)) - 0.5}
    return model.replace(transition=model.transition * 0.95, signals=signals)


@pytest.fixture(scope="module")
def policy(mdp) -> cm.TabularPolicy:
    return cm.TabularPolicy(np.random.default_rng(1).dirichlet(np.ones(2), size=5))


def everything(mdp, policy) -> cm.Problem:
    """A constraint for each kind of atom."""
    other = cm.occupancy_of(mdp, cm.uniform_policy(mdp))
    lipschitz = cm.concave(lipschitz=1.0)(lambda x: -jnp.sqrt(((x - other) ** 2).sum() + 1e-3))
    return cm.Problem(
        mdp,
        maximize=cm.linear("reward") - 2 * cm.linear("cost", per="step") + 1.0,
        subject_to={
            "cost": cm.linear("cost") <= 0.5,
            "l1": cm.distance(other, norm="l1") <= 1.0,
            "l2": cm.distance(other, norm="l2") <= 1.0,
            "square": cm.distance(other, norm="l2-squared") <= 1.0,
            "kl": cm.distance(other, norm="kl") <= 1.0,
            "ball": cm.distance(cm.ball(other, 0.1)) <= 1.0,
            "entropy": cm.entropy() >= 0.5,
            "pairs": cm.entropy(of="state-action") >= 0.5,
            "quadratic": cm.quadratic(weights=np.arange(5.0)) <= 5.0,
            "logs": cm.log_sum(cm.linear("reward"), "reward") >= -1.0,
            "worst": cm.minimum(cm.linear("reward"), 0.1 * cm.entropy()) >= 0.0,
            "own": lipschitz >= -9.0,
        },
    )


def truth_of(problem, policy) -> dict[str, float]:
    exact = problem.evaluate(policy)
    return {"objective": exact.objective, **exact.slack}


def test_bounds_cover_the_truth(mdp, policy) -> None:
    """All bounds together may fail in a tenth of the runs; 60 runs, seeded."""
    problem = everything(mdp, policy)
    truth = truth_of(problem, policy)
    failed = 0
    for seed in range(60):
        found = cm.evaluate(policy, mdp, 60, problem=problem, seed=seed, confidence=0.9, horizon=10)
        intervals = {"objective": found.objective, **found.slack}
        assert all(interval.proven for interval in intervals.values())
        assert len(found.assumes) == 1  # of the function of the test's own
        failed += any(not i.lower <= truth[name] <= i.upper for name, i in intervals.items())
    assert failed <= 6


def test_bounds_narrow_around_the_truth(mdp, policy) -> None:
    problem = everything(mdp, policy)
    truth = truth_of(problem, policy)
    widths = []
    for episodes in (400, 40_000):
        found = cm.evaluate(policy, mdp, episodes, problem=problem, seed=0, horizon=60)
        intervals = {"objective": found.objective, **found.slack}
        widths.append({name: i.upper - i.lower for name, i in intervals.items()})
        for name, interval in intervals.items():
            assert interval.lower <= interval.value <= interval.upper, name
            assert interval.lower <= truth[name] <= interval.upper, name
            spread = interval.upper - interval.lower
            assert abs(interval.value - truth[name]) <= max(spread / 2, 1e-3), name
    for name, wide in widths[0].items():
        assert widths[1][name] < wide / 3, name  # about 1/10, for entropies a logarithm more


def test_feasibility_in_a_sentence(mdp, policy) -> None:
    value = cm.Problem(mdp, maximize=cm.linear("cost")).evaluate(policy).objective

    def found(budget):
        problem = cm.Problem(
            mdp, maximize=cm.entropy(), subject_to={"cost": cm.linear("cost") <= budget}
        )
        return cm.evaluate(policy, mdp, 4_000, problem=problem, seed=0)

    proven, open_one, broken = (found(value + shift) for shift in (0.5, 0.0, -0.5))
    assert (proven.feasible, open_one.feasible, broken.feasible) == ("proven", "open", "disproven")
    assert proven.statement == "Proven with confidence 0.95: the policy satisfies every constraint."
    assert "neither proven nor disproven" in open_one.statement
    assert "'cost' (slack at least -" in open_one.statement
    assert "the policy violates 'cost'" in broken.statement
    assert proven.statement in str(proven)
    assert "empirical Bernstein" in str(proven)


def test_truncation_is_inside_the_bounds(mdp, policy) -> None:
    """Cut after two steps, most of the return is hidden: the bounds must say so, at any n."""
    problem = cm.Problem(mdp, maximize=cm.linear("reward"))
    truth = problem.evaluate(policy).objective
    found = cm.evaluate(policy, mdp, 20_000, problem=problem, seed=0, horizon=2)
    assert found.objective.value < truth - 0.5
    assert found.objective.lower <= truth <= found.objective.upper
    assert found.truncation == pytest.approx(0.8**2 / 0.2)
    assert found.truncated > 15_000
    env = ModelEnv(mdp, limit=2)
    other = cm.evaluate(policy, env, 1_000, problem=problem, seed=0, bounds={"reward": (0.0, 1.0)})
    assert other.objective.value < truth - 0.5
    assert other.objective.lower <= truth <= other.objective.upper
    assert other.truncation > 0.9 * 0.8**2 / 0.2


def test_an_episode_limit_is_a_promise(mdp, policy) -> None:
    problem = cm.Problem(mdp, minimize=cm.distance(cm.uniform_policy(mdp)))
    settings = {"problem": problem, "seed": 0}
    loose = cm.evaluate(policy, ModelEnv(mdp, limit=8), 200, **settings)
    tight = cm.evaluate(policy, ModelEnv(mdp, limit=8), 200, episode_limit=8, **settings)
    assert tight.truncation == pytest.approx(0.8**8 / 0.2)
    assert tight.truncation < loose.truncation
    assert tight.assumes == ("the environment cuts no episode before 8 steps",)
    assert loose.assumes == ()
    assert tight.objective.lower <= problem.evaluate(policy).objective <= tight.objective.upper
    assert tight.objective.upper < loose.objective.upper
    with pytest.raises(ExperienceError, match="was cut after 8 steps, although episode_limit="):
        cm.evaluate(policy, ModelEnv(mdp, limit=8), 200, episode_limit=9, **settings)


@pytest.mark.parametrize("kind", ["single", "vector", "six"])
def test_an_environment_agrees_with_its_model(mdp, policy, kind) -> None:
    problem = cm.Problem(
        mdp,
        maximize=cm.linear("reward"),
        subject_to={
            "cost": cm.linear("cost") <= 1.0,
            "near": cm.distance(cm.uniform_policy(mdp)) <= 2.0,
        },
    )
    truth = truth_of(problem, policy)
    env = {
        "single": ModelEnv(mdp),
        "six": SixTuple(mdp),
        "vector": SyncVectorEnv([lambda: ModelEnv(mdp)] * 6),
    }[kind]
    bounds = {"reward": (0.0, 1.0), "cost": (-0.5, 0.5)}
    found = cm.evaluate(policy, env, 301, problem=problem, seed=0, bounds=bounds)
    assert found.episodes == 301
    intervals = {"objective": found.objective, **found.slack}
    for name, interval in intervals.items():
        assert interval.proven
        assert interval.lower <= truth[name] <= interval.upper
        # five standard errors of 300 episodes with a standard deviation of 1.5 are 0.43
        assert interval.value == pytest.approx(truth[name], abs=0.5)
    again = cm.evaluate(policy, env, 301, problem=problem, seed=0, bounds=bounds)
    assert again.objective == found.objective


def test_without_bounds_a_signal_gets_a_labelled_bootstrap(mdp, policy) -> None:
    problem = cm.Problem(
        mdp, maximize=cm.linear("reward"), subject_to={"cost": cm.linear("cost") <= 9.0}
    )
    found = cm.evaluate(policy, ModelEnv(mdp), 200, problem=problem, seed=0)
    assert not found.objective.proven
    assert found.objective.method == "bootstrap (1,000 resamples, not a proof)"
    assert found.feasible == "open"
    assert "that is a bootstrap, not a proof" in found.statement


def test_what_the_environment_was_promised_need_not_be_said_again() -> None:
    env = cm.GymnasiumEnv("CliffWalking-v1", discount=0.9, bounds={"reward": (-100, -1)})
    problem = cm.Problem(env, maximize=cm.linear("reward"))
    found = cm.evaluate(lambda _: 0, env, problem=problem, episodes=4, horizon=5, seed=0)
    assert "Bernstein" in str(found)
    with pytest.raises(ExperienceError, match="the policy first"):
        cm.evaluate(problem, env, episodes=4, seed=0)


def test_the_bootstrap_covers_about_as_often_as_it_says(mdp, policy, monkeypatch) -> None:
    """An approximation: asked for 0.9 it should not fall below 0.8 in 20 runs."""
    monkeypatch.setattr("cvxmdp.experience.intervals.RESAMPLES", 200)
    own = cm.concave(lambda x: jnp.log(x.sum(axis=1) + 1.0).sum())
    problem = cm.Problem(mdp, maximize=own)
    truth = problem.evaluate(policy).objective
    inside = 0
    for seed in range(20):
        found = cm.evaluate(policy, mdp, 100, problem=problem, seed=seed, confidence=0.9)
        assert not found.objective.proven
        inside += found.objective.lower <= truth <= found.objective.upper
    assert inside >= 16


def test_a_mixture_draws_one_policy_per_episode(mdp) -> None:
    left, right = np.tile([1.0, 0.0], (5, 1)), np.tile([0.0, 1.0], (5, 1))
    mean = (cm.occupancy_of(mdp, left) + cm.occupancy_of(mdp, right)) / 2
    mixture = MixturePolicy(cm.policy_of(mdp, mean).probabilities(), np.stack([left, right]))
    problem = cm.Problem(mdp, maximize=cm.linear("reward"))
    found = cm.evaluate(mixture, mdp, 20_000, problem=problem, seed=0)
    truth = problem.evaluate_occupancy(mean).objective
    assert found.objective.lower <= truth <= found.objective.upper
    np.testing.assert_allclose(found.occupancy, mean, atol=0.05)


class Elsewhere:
    """A policy trained elsewhere: only predict."""

    def __init__(self, batched: bool) -> None:
        self.batched = batched
        self.seeded: list[int] = []

    def set_random_seed(self, seed: int) -> None:
        self.seeded.append(seed)

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        if self.batched:
            return np.asarray(observation) % 2, None
        return {0: 0, 1: 1, 2: 0, 3: 1, 4: 0}[int(observation)], None


@pytest.mark.parametrize("batched", [True, False])
def test_any_policy_with_predict(mdp, batched) -> None:
    table = np.eye(2)[np.arange(5) % 2]
    problem = cm.Problem(mdp, maximize=cm.linear("reward"))
    truth = problem.evaluate(table).objective
    theirs = Elsewhere(batched)
    for source, settings in ((mdp, {}), (ModelEnv(mdp), {"bounds": {"reward": (0, 1)}})):
        found = cm.evaluate(theirs, source, 500, problem=problem, seed=0, **settings)
        assert found.objective.lower <= truth <= found.objective.upper
        assert found.objective.value == pytest.approx(truth, abs=0.4)
    assert len(theirs.seeded) == 2


def test_gymnasium_by_id_and_a_solution(tmp_path) -> None:
    lake = cm.from_gymnasium_table("FrozenLake-v1", 0.9)
    solution = cm.solve(cm.Problem(lake, maximize=cm.linear("reward")))
    found = cm.evaluate(solution, "FrozenLake-v1", 400, seed=0, bounds={"reward": (0, 1)})
    assert found.objective.lower <= solution.objective <= found.objective.upper
    assert found.source == "FrozenLake-v1"
    found.save(tmp_path / "found.json")
    loaded = cm.PolicyEvaluation.load(tmp_path / "found.json")
    assert loaded.objective == found.objective
    assert str(loaded) == str(found)
    assert "rests on these promises: 'reward' lies between 0 and 1 at every step." in str(found)
    (tmp_path / "bad.json").write_text("[]")
    with pytest.raises(FileFormatError, match="does not hold an evaluation"):
        cm.PolicyEvaluation.load(tmp_path / "bad.json")


def test_features_without_a_model() -> None:
    bins = cm.UniformBins([-2.4, -3, -0.2, -3], [2.4, 3, 0.2, 3], [2, 1, 6, 1])
    env = cm.GymnasiumEnv("CartPole-v1", 0.9, features=bins, n_envs=4)
    tilted = np.zeros((2, 1, 6, 1))
    tilted[:, :, [0, 5]] = 1.0
    table = np.tile([0.5, 0.5], (bins.size, 1))
    found = cm.evaluate(
        table,
        env,
        80,
        seed=0,
        maximize=cm.entropy(),
        subject_to={"tilt": cm.linear(tilted.ravel(), per="step") <= 0.9},
    )
    env.close()
    assert found.occupancy.shape == (12, 2)
    assert found.objective.proven
    assert found.feasible == "proven"
    dense = cm.RandomFourier(4, 5, seed=0)
    with cm.GymnasiumEnv("CartPole-v1", 0.9, features=dense) as env:

        class Right:
            def predict(self, observation):
                assert observation.shape == (4,)
                return 1, None

        target = np.zeros((5, 2))
        found = cm.evaluate(Right(), env, 20, seed=0, minimize=cm.distance(target))
        assert found.objective.proven
        assert found.objective.lower <= found.objective.value <= found.objective.upper


def test_bounds_on_whole_returns() -> None:
    """A reward that is received once: the width of the interval is that of the return."""
    lake = cm.from_gymnasium_table("FrozenLake-v1", 0.95)
    problem = cm.Problem(lake, maximize=cm.linear("reward"))
    solution = cm.solve(problem)
    promises = {"bounds": {"reward": (0, 1)}, "return_bounds": {"reward": (0, 1)}}
    found = cm.evaluate(solution, "FrozenLake-v1", 300, seed=0, **promises)
    assert 0.0 < found.objective.lower <= solution.objective <= found.objective.upper < 0.4
    # without the first promise, cut episodes count with the least and the most of a whole return
    loose = cm.evaluate(
        solution, "FrozenLake-v1", 300, seed=0, return_bounds={"reward": (0, 1)}, horizon=50
    )
    assert loose.objective.proven
    assert loose.objective.lower <= solution.objective <= loose.objective.upper
    with pytest.raises(ExperienceError, match="the return of 'reward' was seen between"):
        cm.evaluate(solution, "FrozenLake-v1", 30, seed=0, return_bounds={"reward": (0, 1e-9)})


@pytest.mark.parametrize("seed", range(8))
def test_no_trajectory_leaves_the_range_of_returns(seed: int) -> None:
    mdp = random_model(generator(seed))
    mdp = mdp.with_signals(cost=generator(seed).standard_normal(mdp.actions.shape))
    least, most = return_range(mdp, mdp.signal("cost"))
    act = actor_of(cm.uniform_policy(mdp), mdp.n_actions, seed)
    batch = ModelSimulator(mdp).episodes(act, 3_000, 40, np.random.default_rng(seed))
    sample = summarise(batch, mdp.discount, mdp.n_actions, n_states=mdp.n_states)
    returns = sample.inner(mdp.signal("cost"))[sample.terminated | (sample.tails < 1e-3)]
    if returns.size:
        room = 1e-2 * np.abs(mdp.signal("cost")).max() * mdp.max_mass
        assert least - room <= returns.min()
        assert returns.max() <= most + room
    assert most <= max(mdp.signal("cost").max(), 0) * mdp.max_mass * (1 + 1e-6) + 1e-6


def test_the_range_of_returns_is_reached() -> None:
    """A corridor with one prize: whoever is lucky gets it at once, the unlucky never."""
    mdp = cm.gridworld((1, 3), slip=0.3, goal=2, goal_reward=1.0, discount=0.5)
    paid = np.zeros((3, 4))
    paid[1, 2] = 1.0  # stepping to the right from the middle
    assert return_range(mdp, paid)[0] == pytest.approx(0.0, abs=1e-6)
    # right, right, and pushed back at each second try: 0.5 + 0.5^3 + ... at most, and staying pays more
    assert return_range(mdp, paid)[1] == pytest.approx(0.5 / (1 - 0.5), rel=1e-2)


def test_the_inequalities_themselves() -> None:
    """Their closed forms, and the width they promise."""
    values = np.array([0.0, 1.0] * 50)
    log = np.log(2 / 0.05)
    expected = np.sqrt(2 * values.var(ddof=1) * log / 100) + 7 * log / (3 * 99)
    assert bernstein_radius(values, 1.0, 0.05) == pytest.approx(expected)
    vectors = VectorBound(400, Radius(5.0, 5.0), True, 9)
    found = vectors.radius(0.1)
    assert found.l2 == pytest.approx(5 * (1 + np.sqrt(np.log(10))) / 20)
    assert found.l1 == pytest.approx(5 * (3 + np.sqrt(2 * np.log(10))) / 20)


def test_mistakes(mdp, policy) -> None:
    problem = cm.Problem(mdp, maximize=cm.linear("reward"))
    with pytest.raises(ExperienceError, match="give seed="):
        cm.evaluate(policy, mdp, 10, problem=problem)
    with pytest.raises(ExperienceError, match="at least 2; got 1"):
        cm.evaluate(policy, mdp, 1, problem=problem, seed=0)
    with pytest.raises(ExperienceError, match="between 0 and 1; got 1"):
        cm.evaluate(policy, mdp, 10, problem=problem, seed=0, confidence=1)
    with pytest.raises(ProblemError, match="what is to be evaluated"):
        cm.evaluate(policy, mdp, 10, seed=0)
    with pytest.raises(ProblemError, match="not both"):
        cm.evaluate(policy, mdp, 10, seed=0, problem=problem, maximize=cm.entropy())
    with pytest.raises(ExperienceError, match="give discount="):
        cm.evaluate(policy, ModelEnv(mdp), 10, seed=0, maximize=cm.entropy())
    with pytest.raises(ExperienceError, match=r"seen between .* outside the bounds"):
        cm.evaluate(
            policy, ModelEnv(mdp), 10, problem=problem, seed=0, bounds={"reward": (0.0, 1e-3)}
        )
    with pytest.raises(ExperienceError, match=r"expected a pair \(smallest, largest\)"):
        cm.evaluate(policy, ModelEnv(mdp), 10, problem=problem, seed=0, bounds={"reward": 1})
    with pytest.raises(UtilityError, match="needs a model, and an environment has none"):
        cm.evaluate(
            policy,
            ModelEnv(mdp),
            10,
            seed=0,
            discount=0.8,
            minimize=cm.distance(cm.uniform_policy(mdp)),
        )
    with pytest.raises(ExperienceError, match=r"Counter gave no info\['price'\] at step 0"):
        cm.evaluate(
            cm.TabularPolicy(np.full((10, 2), 0.5)),
            Counter(),
            10,
            seed=0,
            discount=0.8,
            maximize=cm.linear("price"),
        )


def test_what_does_not_fit_together(mdp, policy) -> None:
    problem = cm.Problem(mdp, maximize=cm.linear("reward"))
    with pytest.raises(ExperienceError, match=r"5 states and 2 actions, Counter has 10 and 2"):
        cm.evaluate(policy, Counter(), 10, problem=problem, seed=0)
    with pytest.raises(PolicyError, match="for 5 states and 2 actions; there are 10 and 2 here"):
        cm.evaluate(policy, Counter(), 10, maximize=cm.entropy(), discount=0.5, seed=0)
    impossible = cm.Problem(
        mdp, maximize=cm.linear("reward"), subject_to={"cost": cm.linear("cost") <= -99.0}
    )
    with pytest.raises(PolicyError, match="this solution has no policy"):
        cm.evaluate(cm.solve(impossible), mdp, 10, seed=0)


def test_masked_actions_are_refused(mdp) -> None:
    mask = np.ones((5, 2), dtype=bool)
    mask[:, 1] = False

    class Wrong:
        def predict(self, observation):
            return np.ones(np.shape(observation), dtype=int), None

    with pytest.raises(
        ExperienceError, match=r"takes action 1 in state .*, where it is not available"
    ):
        cm.evaluate(Wrong(), mdp.replace(actions=mask), 10, seed=0, maximize=cm.linear("reward"))


def test_gymnasiums_own_environments() -> None:
    """Others than those of the examples, through the same door."""
    for name, n_states, n_actions in (("Taxi-v4", 500, 6), ("CliffWalking-v1", 48, 4)):
        env = gymnasium.make(name)
        found = cm.evaluate(
            np.full((n_states, n_actions), 1 / n_actions),
            env,
            3,
            seed=0,
            discount=0.9,
            maximize=cm.linear("reward"),
            bounds={"reward": (-100.0, 20.0)},
        )
        env.close()
        assert found.objective.lower < found.objective.value < found.objective.upper


def test_options_of_release_0_1_are_refused_by_name(mdp, policy) -> None:
    with pytest.raises(cm.SettingsError, match=r"time_limit was .* cvxmdp 0\.1; .*episode_limit"):
        cm.evaluate(policy, mdp, 10, seed=0, time_limit=3)
    with pytest.raises(cm.SettingsError, match=r"horizon was .* cvxmdp 0\.1; .*episode_limit"):
        cm.demonstrations([], mdp, horizon=3)


def test_what_was_cut_is_said_of_the_episodes_played_and_of_the_intervals_shown(
    mdp, policy
) -> None:
    """A bootstrap sees nothing of what lies behind a cut, and does not say that it allows for it."""
    problem = cm.Problem(mdp, maximize=cm.linear("reward"))
    truth = problem.evaluate(policy).objective
    env = ModelEnv(mdp, limit=3)
    found = cm.evaluate(policy, env, 300, problem=problem, seed=0, horizon=50)
    assert not found.objective.lower <= truth <= found.objective.upper
    assert "were cut, after at most 3 steps" in str(found)
    assert "a bootstrap does not see" in str(found)
    assert "allow for" not in str(found)
    sure = cm.evaluate(policy, env, 300, problem=problem, seed=0, bounds={"reward": (0.0, 1.0)})
    assert "which the bounds allow for." in str(sure)


def test_where_a_policy_is_played_need_not_be_said_twice(mdp, policy):
    problem = cm.Problem(mdp, maximize=cm.linear("reward"))
    named = cm.evaluate(policy, mdp, 20, problem=problem, seed=0)
    assert cm.evaluate(policy, problem=problem, episodes=20, seed=0).objective == named.objective
    with pytest.raises(ExperienceError, match="where is it to be played"):
        cm.evaluate(policy, episodes=20, seed=0, maximize=cm.linear("reward"))
