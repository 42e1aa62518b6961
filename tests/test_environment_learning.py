"""Learning in environments: the algorithm is the one for tables, and what it is given is what happened."""

from __future__ import annotations

import signal
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

import cvxmdp as cm
from cvxmdp.algorithms.recursion import iteration
from cvxmdp.base.errors import (
    ExperienceError,
    PolicyError,
    ProblemError,
    SolverError,
    UtilityError,
)
from cvxmdp.experience.trajectories import Experience
from cvxmdp.runs.run import Run
from cvxmdp.solvers.contract import Task
from cvxmdp.solvers.environment_work import learn
from environments import JaxModel, JaxPoint, ModelEnv, Point, SixTuple, Trouble
from strategies import quickly

HORIZON = 12


@pytest.fixture(scope="module")
def mdp() -> cm.TabularMDP:
    model = cm.gridworld(3, slip=0.2, discount=0.8, goal=8, goal_reward=1.0, hazards=[4])
    return model.with_signals(cost=model.signal("hazard"))


def solver(**settings) -> cm.VRPDPG:
    given = {
        "iterations": 60,
        "primal_step": 0.2,
        "dual_step": 1.0,
        "momentum": 0.3,
        "horizon": HORIZON,
        "batch_size": 8,
        "evaluate_every": 20,
    }
    return cm.VRPDPG(**{**given, **settings})


def problem_of(source, **more) -> cm.Problem:
    return cm.Problem(
        source,
        maximize=cm.linear("reward") + 0.1 * cm.entropy(),
        subject_to={
            "cost": cm.linear("cost", per="step") <= 0.05,
            "spread": cm.distance(np.full((9, 4), 0.1), norm="l2") <= 3.0,
            **more,
        },
    )


@pytest.mark.parametrize("policy", [cm.Table(), cm.MLP(5)], ids=str)
def test_the_recursion_on_experience_is_that_on_a_table(mdp, policy) -> None:
    """The same trajectories, once as those of a model and once as experience: the same iterates."""
    settings = solver(policy=policy, baseline=True)
    known, played = problem_of(mdp), problem_of(cm.GymnasiumEnv(ModelEnv(mdp), 0.8))
    work, played_work = (settings.prepare(Task(one, seed=0)) for one in (known, played))
    learning, other = work.learning, played_work.learning
    assert other.shape == (9 + 2, 4)
    carry, state = played_work.first().carry, work.first().carry.state
    signals = np.stack([mdp.signal("reward"), mdp.signal("cost")], axis=2)
    step = quickly(iteration)
    for t in range(12):
        numbers = learning.model.numbers(work.begun[0], t, 8, HORIZON)
        state, evidence = step(learning, state, numbers)
        tau = jax.tree.map(np.asarray, evidence.trajectories)
        seen = signals[tau.states, tau.actions] * tau.alive[..., None]
        cut = np.ones(8, np.float32)
        given = Experience(
            tau.states, tau.actions, tau.alive, tau.states, seen.astype(np.float32), cut
        )
        carry, _, trace = learn(other, carry, None, given, 20)
        now = carry.state
        np.testing.assert_allclose(now.multipliers, state.multipliers, rtol=2e-4, atol=1e-6)
        np.testing.assert_allclose(now.occupancy[:9], state.occupancy, rtol=2e-4, atol=1e-5)
        for mine, theirs in zip(
            jax.tree.leaves(now.params), jax.tree.leaves(state.params), strict=True
        ):
            np.testing.assert_allclose(mine, theirs, rtol=2e-3, atol=2e-4)
        # the rows of the signals add up to the returns
        for row, name in ((9, "reward"), (10, "cost")):
            total = np.vdot(mdp.signal(name), np.asarray(now.occupancy)[:9])
            np.testing.assert_allclose(now.occupancy[row].sum(), total, atol=1e-4)
    assert np.isfinite(trace.episode_objective).all()


def test_dense_features_are_measured_as_bins_are() -> None:
    """One-hot vectors and numbers of bins are two ways to write the same experience."""
    random = np.random.default_rng(0)
    places = random.integers(0, 6, (4, 7))
    actions = random.integers(0, 3, (4, 7))
    alive = np.ones((4, 7), np.float32)
    signals = random.normal(size=(4, 7, 2)).astype(np.float32)
    cut = np.zeros(4, np.float32)
    bins = Experience(places, actions, alive, jnp.asarray(places), jnp.asarray(signals), cut)
    dense = bins._replace(features=jax.nn.one_hot(places, 6))
    numbers = jnp.asarray(random.normal(size=(2, 4, 7)), jnp.float32)
    reward = jnp.asarray(random.normal(size=(8, 3)), jnp.float32)
    measured = bins.measure(numbers, (8, 3))
    np.testing.assert_allclose(measured, dense.measure(numbers, (8, 3)), atol=1e-6)
    np.testing.assert_allclose(bins.along(reward), dense.along(reward), atol=1e-6)
    # <reward, what is measured> is the sum of the rewards along the way
    total = (numbers * bins.along(reward)).sum(axis=(1, 2)) / 4
    np.testing.assert_allclose((measured * reward).sum(axis=(1, 2)), total, rtol=1e-4)


SOURCES = {
    "single": lambda mdp: cm.GymnasiumEnv(ModelEnv(mdp), 0.8),
    "vector": lambda mdp: cm.GymnasiumEnv(SyncVectorEnv([lambda: ModelEnv(mdp)] * 8), 0.8),
    "six": lambda mdp: cm.GymnasiumEnv(SixTuple(mdp), 0.8),
    "jax": lambda mdp: compiled(mdp),
}


@lru_cache
def compiled(mdp: cm.TabularMDP) -> cm.JaxEnv:
    """One environment for all tests: programs are compiled for an environment, not for its kind."""
    return cm.JaxEnv(JaxModel(mdp), 0.8)


@pytest.mark.parametrize("source", SOURCES)
def test_learns_what_the_model_says(mdp, source) -> None:
    """From every kind of source: the policy is evaluated in the model, near the exact optimum."""
    limits = {"cost": cm.linear("cost", per="step") <= 0.05}
    exact = cm.solve(cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=limits))
    problem = cm.Problem(SOURCES[source](mdp), maximize=cm.linear("reward"), subject_to=limits)
    chosen = solver(iterations=400, horizon=30, baseline=True, dual_step=3.0)
    found = cm.solve(problem, chosen, seed=0)
    truth = exact.problem.evaluate(found.policy)
    assert truth.objective >= 0.85 * exact.objective
    assert truth.slack["cost"] >= -0.01
    # what it says of itself, from episodes, is near the truth
    assert found.objective == pytest.approx(truth.objective, abs=0.08)
    assert found.slack["cost"] == pytest.approx(truth.slack["cost"], abs=0.02)
    np.testing.assert_allclose(found.occupancy[:9], truth.occupancy, atol=0.15)
    count = found.stats["evaluation_episodes"]
    assert count >= 100
    assert f"estimates from {count:,} episodes" in found.message
    interval = found.slack_interval["cost"]
    assert interval.lower <= truth.slack["cost"] <= interval.upper
    curve = found.history["objective"]
    assert curve[-1] > curve[0]
    assert len(curve) == len(found.history["iteration"]) == 20
    assert "evaluate(solution" in str(found)


def test_the_same_problem_agrees_in_gymnasium_and_in_jax() -> None:
    bins = cm.UniformBins(-1.0, 1.0, 8)
    environments = (
        cm.GymnasiumEnv(SyncVectorEnv([Point] * 16), 0.9, features=bins),
        cm.JaxEnv(JaxPoint(), 0.9, features=bins, n_envs=1_000),
    )
    found = []
    for environment in environments:
        problem = cm.Problem(
            environment,
            maximize=cm.entropy(),
            subject_to={"left": cm.linear("left", per="step") <= 0.4},
        )
        chosen = solver(
            policy=cm.MLP(16),
            iterations=80,
            primal_step=0.1,
            horizon=25,
            batch_size=16,
            baseline=True,
            primal_decay=0.25,
            dual_decay=0.25,
        )
        found.append([cm.solve(problem, chosen, seed=seed) for seed in range(2)])
    objectives = [[one.objective for one in every] for every in found]
    slacks = [[one.slack["left"] for one in every] for every in found]
    # random numbers differ, so single runs do: by about 0.05 and 0.08 (standard deviation)
    assert np.mean(objectives[0]) == pytest.approx(np.mean(objectives[1]), abs=0.2)
    assert np.mean(slacks[0]) == pytest.approx(np.mean(slacks[1]), abs=0.3)
    # one policy means the same in both
    one = found[0][0].policy
    first, second = (
        cm.evaluate(one, environment, 1_000, seed=1, problem=found[0][0].problem, horizon=30)
        for environment in environments
    )
    assert first.objective.value == pytest.approx(second.objective.value, abs=0.05)
    # the means of 1,000 episodes each: their difference has a standard deviation of about 0.014
    assert first.slack["left"].value == pytest.approx(second.slack["left"].value, abs=0.05)


def test_compiled_and_played_are_the_same_environment(mdp) -> None:
    """Episodes that Python drives, and those of the compiled source, have the same distribution."""
    environment = cm.JaxEnv(JaxModel(mdp), 0.8, n_envs=2_000)
    uniform = cm.uniform_policy(mdp)
    truth = cm.occupancy_of(mdp, uniform)
    found = cm.evaluate(uniform, environment, 2_000, seed=0, maximize=cm.linear("reward"))
    np.testing.assert_allclose(found.occupancy, truth, atol=0.08)
    source = environment.source(("reward", "cost"), False)
    rows = np.cumsum(np.full((9, 4), 0.25), axis=1)

    class Uniform:
        def rows(self):
            return lambda state: jnp.asarray(rows)[state]

    numbers = source.numbers(jnp.array([1, 2], jnp.uint32), 0, 2_000, 40)
    experience = source.trajectories(Uniform(), numbers, 40)
    masses = experience.alive * 0.8 ** jnp.arange(40)
    measured = np.asarray(experience.measure(masses[None], (11, 4))[0])
    np.testing.assert_allclose(measured[:9], truth, atol=0.08)
    np.testing.assert_allclose(measured[10].sum(), np.vdot(mdp.signal("cost"), truth), atol=0.05)


def test_truncation_is_told_from_termination(mdp) -> None:
    for source in (
        cm.JaxEnv(JaxModel(mdp, limit=5), 0.8),
        cm.GymnasiumEnv(ModelEnv(mdp, limit=5), 0.8),
    ):
        problem = cm.Problem(source, maximize=cm.linear("reward"))
        found = cm.solve(problem, solver(iterations=5), seed=0)
        assert 0 < found.stats["truncated"] < 1
        assert 0 < found.stats["truncation_bias"] <= 0.8**5 / 0.2 + 1e-9
        assert "cut, which hides at most" in found.message
    ended = cm.Problem(cm.GymnasiumEnv(ModelEnv(mdp), 0.8), maximize=cm.linear("reward"))
    found = cm.solve(ended, solver(iterations=3, horizon=400), seed=0)
    assert found.stats["truncated"] == 0
    assert "cut" not in found.message


@pytest.mark.parametrize("source", ["single", "jax"])
def test_same_seed_same_run_and_resumed_with_the_same_bits(mdp, tmp_path, source) -> None:
    def run(seed, **more):
        problem = problem_of(SOURCES[source](mdp))
        return cm.solve(problem, solver(iterations=30, evaluate_every=10, **more), seed=seed)

    first, again, other = run(0), run(0), run(1)
    np.testing.assert_array_equal(first.stats["params"], again.stats["params"])
    assert (first.stats["params"] != other.stats["params"]).any()
    assert first.objective == again.objective
    # in a folder, stopped after a chunk and continued
    problem = problem_of(SOURCES[source](mdp))
    work = solver(iterations=30, evaluate_every=10).prepare(Task(problem, seed=0))
    half = Run(work)
    for _ in range(3):
        half.advance()
    rest = Run(work)
    rest.restore(half.dump())
    while not rest.finished:
        rest.advance()
    found = rest.solution()
    assert found.status is first.status
    np.testing.assert_array_equal(found.stats["params"], first.stats["params"])
    np.testing.assert_array_equal(found.history["objective"], first.history["objective"])
    np.testing.assert_array_equal(found.history["weight_max"], first.history["weight_max"])


def test_sweeps_of_environments(mdp, tmp_path) -> None:
    for source in ("single", "jax"):
        problem = cm.Problem(SOURCES[source](mdp), maximize=cm.linear("reward"))
        folder = tmp_path / source
        over = {"primal_step": [0.1, 0.3]}
        swept = cm.sweep(problem, solver(iterations=20), over=over, seeds=range(2), folder=folder)
        assert len(swept) == 4
        alone = cm.solve(problem, solver(iterations=20, primal_step=0.1), seed=0)
        assert swept[0].solution.objective == pytest.approx(alone.objective, abs=1e-5)
    played = cm.Problem(SOURCES["single"](mdp), maximize=cm.linear("reward"))
    with pytest.raises(cm.SettingsError, match="lanes=8: runs take turns"):
        cm.sweep(played, solver(), seeds=range(2), lanes=8)


class Clumsy(ModelEnv):
    """Raises in its n-th episode."""

    episodes_left = 100

    def reset(self, **arguments):
        Clumsy.episodes_left -= 1
        if Clumsy.episodes_left < 0:
            raise RuntimeError("lost the connection")
        return super().reset(**arguments)


def test_an_environment_that_fails_leaves_what_was_learned(mdp, tmp_path) -> None:
    Clumsy.episodes_left = 100
    problem = cm.Problem(cm.GymnasiumEnv(Clumsy(mdp), 0.8), maximize=cm.linear("reward"))
    with pytest.raises(
        ExperienceError,
        match=r"raised RuntimeError when it was reset \(lane 0, seeded with \d+\): lost",
    ) as caught:
        cm.solve(problem, solver(), seed=0)
    kept = caught.value.solution
    assert kept.status is cm.Status.FAILED
    assert kept.stats["iterations"] == 12  # 100 episodes are 12 whole batches of 8
    assert kept.policy.probabilities().shape == (9, 4)
    # the same through a folder: once the environment works again, the run goes on from its checkpoint
    Clumsy.episodes_left = 8 * 45
    first = cm.sweep(problem, solver(), seeds=[0], folder=tmp_path / "runs", checkpoint_seconds=0.0)
    assert first[0].solution.status is cm.Status.FAILED
    Clumsy.episodes_left = 10**6
    second = cm.sweep(problem, solver(), seeds=[0], folder=tmp_path / "runs")
    assert (
        Clumsy.episodes_left > 10**6 - 8 * 20 - 200
    )  # the first 40 iterations were not played again
    fresh = cm.solve(problem, solver(), seed=0)
    np.testing.assert_array_equal(second[0].solution.stats["params"], fresh.stats["params"])


class Impatient(ModelEnv):
    """Somebody presses Ctrl-C in its n-th episode."""

    episodes_left = 0

    def reset(self, **arguments):
        Impatient.episodes_left -= 1
        if Impatient.episodes_left == 0:
            signal.raise_signal(signal.SIGINT)
        return super().reset(**arguments)


@pytest.mark.parametrize("episodes", [4, 100, 400])
def test_interrupted_keeps_what_there_is(mdp, episodes, keyboard) -> None:
    Impatient.episodes_left = episodes
    problem = cm.Problem(cm.GymnasiumEnv(Impatient(mdp), 0.8), maximize=cm.linear("reward"))
    found = cm.solve(problem, solver(), seed=0)
    assert found.status is cm.Status.INTERRUPTED
    assert found.stats["iterations"] == -(-episodes // 8)  # the iteration is finished
    assert np.isfinite(found.objective)
    assert found.policy.probabilities().shape == (9, 4)
    assert Impatient.episodes_left == -(-episodes % 8)  # nothing is played after it


@pytest.mark.parametrize("kind", ["raises", "nan", "outside", "info", "reward", "tuple"])
def test_trouble_in_the_middle_is_an_error_that_says_what(kind) -> None:
    features = cm.UniformBins([-1, -1], [1, 1], 2) if kind == "nan" else None
    source = cm.GymnasiumEnv(Trouble(kind), 0.8, features=features)
    problem = cm.Problem(source, maximize=cm.linear("reward") - cm.linear("cost"))
    with pytest.raises(ExperienceError, match="Trouble") as caught:
        cm.solve(problem, solver(), seed=0)
    assert caught.value.solution is None  # nothing had been learned


def test_wrong_use_is_refused_before_anything_is_played(mdp) -> None:
    source = cm.GymnasiumEnv(ModelEnv(mdp), 0.8)
    problem = cm.Problem(
        source, maximize=cm.linear("reward"), subject_to={"c": cm.linear("cost") <= 1}
    )
    for attempt in (
        lambda: cm.solve(problem),
        lambda: cm.solve(problem, cm.PDPG()),
        lambda: cm.solve(problem, cm.ConvexProgram()),
        lambda: cm.solve(problem, cm.ColumnGeneration()),
        lambda: cm.certify(problem, np.full((9, 4), 0.25)),
        lambda: cm.slater(problem),
        lambda: cm.frontier(problem, "c"),
        lambda: problem.evaluate(np.full((9, 4), 0.25)),
    ):
        with pytest.raises(
            ProblemError, match=r"needs a model, and .*ModelEnv.* only shows episodes"
        ):
            attempt()
    with pytest.raises(SolverError, match="needs a seed"):
        cm.solve(problem, solver())
    with pytest.raises(UtilityError, match="needs a model"):
        cm.Problem(source, minimize=cm.distance(cm.uniform_policy(mdp), norm="l2"))
    box = cm.GymnasiumEnv(Point(), 0.9, features=cm.RandomFourier(1, 4, seed=0))
    with pytest.raises(PolicyError, match="a table needs states"):
        cm.solve(cm.Problem(box, maximize=cm.linear("reward")), solver(), seed=0)
    with pytest.raises(ProblemError, match=r"are no states\. Give features="):
        cm.Problem(cm.GymnasiumEnv(Point(), 0.9), maximize=cm.entropy())
    with pytest.raises(ExperienceError, match="has no method 'step'"):
        cm.JaxEnv(type("Nothing", (), {"reset": lambda self, key: 0})(), 0.9)
    bins = cm.UniformBins(-1, 1, 4)
    compiled = cm.Problem(cm.JaxEnv(JaxPoint(), 0.9, features=bins), maximize=cm.linear("lefd"))
    with pytest.raises(ExperienceError, match=r"gives no info\['lefd'\]. Did you mean 'left'"):
        cm.solve(compiled, solver(), seed=0)
    played = cm.Problem(cm.GymnasiumEnv(Point(), 0.9, features=bins), maximize=cm.linear("lefd"))
    with pytest.raises(ExperienceError, match=r"gave no info\['lefd'\]"):
        cm.solve(played, solver(policy=cm.MLP(3)), seed=0)


def shifted() -> ModelEnv:
    """States and actions that are counted from 2."""
    return ModelEnv(cm.gridworld(2, goal=3).with_signals(cost=np.zeros(4)), start=2)


@pytest.mark.parametrize(
    ("make", "policy"),
    [
        (lambda: cm.GymnasiumEnv(Point(), 0.9, features=cm.UniformBins(-1, 1, 6)), cm.Table()),
        (lambda: cm.GymnasiumEnv(Point(), 0.9, features=cm.UniformBins(-1, 1, 6)), cm.MLP(4)),
        (
            lambda: cm.GymnasiumEnv(Point(), 0.9, features=cm.RandomFourier(1, 5, seed=0)),
            cm.MLP(4, inputs=cm.RandomFourier(1, 7, seed=1)),
        ),
        (lambda: cm.GymnasiumEnv("Blackjack-v1", 0.9), cm.Table()),
        (lambda: cm.GymnasiumEnv(shifted(), 0.9), cm.Table()),
    ],
    ids=["bins", "network", "features", "tuple", "shifted"],
)
def test_policies_act_on_observations_and_are_saved(make, policy, tmp_path) -> None:
    environment = make()
    problem = cm.Problem(environment, maximize=cm.linear("reward"))
    found = cm.solve(problem, solver(iterations=4, policy=policy), seed=0)
    env = environment.env.envs[0] if hasattr(environment.env, "envs") else environment.env
    observation, _ = env.reset(seed=3)
    found.policy.seed(0)
    action, nothing = found.policy.predict(observation)
    assert nothing is None
    assert int(action) in range(environment.n_actions)
    found.policy.save(tmp_path / "policy.safetensors")
    loaded = cm.load_policy(tmp_path / "policy.safetensors").seed(0)
    np.testing.assert_array_equal(loaded.predict(observation)[0], action)
    np.testing.assert_allclose(
        loaded.probabilities(observation), found.policy.probabilities(observation)
    )
    with pytest.warns(cm.CvxmdpWarning, match="another policy"):
        loaded.predict(observation, deterministic=True)
    bounds = cm.evaluate(loaded, environment, 30, seed=0, problem=problem)
    assert bounds.episodes == 30
    more = cm.solve(problem, solver(iterations=2, policy=policy), start=found, seed=1)
    assert np.isfinite(more.objective)


@pytest.mark.parametrize("iterate", ["uniform", "half"])
@pytest.mark.parametrize("source", ["single", "jax"])
def test_a_mixture_of_iterates(mdp, tmp_path, iterate, source) -> None:
    """One of several policies per episode: its occupancy is the mean of theirs."""
    environment = SOURCES[source](mdp)
    problem = cm.Problem(environment, maximize=cm.linear("reward"))
    settings = solver(iterations=60, evaluate_every=5, iterate=iterate)
    found = cm.solve(problem, settings, seed=0)
    members = found.policy.members
    # All, or half of 40 that are spread evenly, however often the run is evaluated.
    assert len(members) == (60 if iterate == "uniform" else 20)
    each = [cm.occupancy_of(mdp, member.table) for member in members]
    truth = np.mean(each, axis=0)
    assert found.objective == pytest.approx(np.vdot(mdp.signal("reward"), truth), abs=0.12)
    found.policy.save(tmp_path / "mixture.safetensors")
    loaded = cm.load_policy(tmp_path / "mixture.safetensors")
    played = cm.evaluate(loaded, environment, 1_500, seed=1, problem=problem)
    np.testing.assert_allclose(played.occupancy, truth, atol=0.15)
    first = found.policy.seed(0).predict(0, episode_start=True)[0]
    assert loaded.seed(0).predict(0, episode_start=True)[0] == first
    assert loaded.predict(np.zeros(5, dtype=int), episode_start=True)[0].shape == (5,)
    with pytest.raises(PolicyError, match="a mixture over episodes has no probabilities"):
        loaded.probabilities(0)


def test_networks_are_mixed_and_saved_too(tmp_path) -> None:
    environment = cm.JaxEnv(JaxPoint(), 0.9, features=cm.UniformBins(-1, 1, 6))
    problem = cm.Problem(environment, maximize=cm.linear("reward"))
    settings = solver(policy=cm.MLP(4), iterations=10, evaluate_every=5, iterate="half")
    found = cm.solve(problem, settings, seed=0)
    found.policy.save(tmp_path / "mixture.safetensors")
    loaded = cm.load_policy(tmp_path / "mixture.safetensors")
    place = np.array([[0.1], [0.5]])
    for ours, theirs in zip(found.policy.members, loaded.members, strict=True):
        np.testing.assert_allclose(ours.probabilities(place), theirs.probabilities(place))


def test_pessimism_from_a_confidence_bound(mdp) -> None:
    tight = {"cost": cm.linear("cost", per="step") <= 0.05}
    problem = cm.Problem(
        cm.JaxEnv(JaxModel(mdp), 0.8), maximize=cm.linear("reward"), subject_to=tight
    )
    chosen = solver(iterations=300, horizon=30, baseline=True, dual_step=3.0, pessimism="auto")
    found = cm.solve(problem, chosen, seed=0)
    assert found.stats["slack_at_least"]["cost"] >= 0
    assert found.stats["pessimism"]["cost"] >= 0
    truth = cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=tight).evaluate(found.policy)
    assert truth.slack["cost"] >= 0
    assert "fresh episodes" in found.message


def test_networks_from_equinox_see_observations() -> None:
    eqx = pytest.importorskip("equinox")
    module = eqx.nn.MLP(1, 2, 8, 1, key=jax.random.key(0))
    environment = cm.JaxEnv(JaxPoint(), 0.9, features=cm.UniformBins(-1, 1, 6))
    problem = cm.Problem(environment, maximize=cm.linear("reward"))
    found = cm.solve(problem, solver(policy=cm.EquinoxModule(module), iterations=40), seed=0)
    assert found.history["objective"][-1] > found.history["objective"][0]
    with pytest.raises(PolicyError, match="is code, which is not written to files"):
        found.policy.save("nowhere.safetensors")


def test_a_report_of_what_was_learned(mdp, tmp_path) -> None:
    found = cm.solve(problem_of(compiled(mdp)), solver(), seed=0)
    counts, slack = found.stats["while_learning"], found.history["played_slack"]["cost"]
    assert (counts["played"], counts["looked_at"]) == (60, 3)
    assert found.stats["sum_while_learning"]["cost"] == pytest.approx(20 * -slack[slack < 0].sum())
    assert "(by 3 groups of their episodes)" in str(found)
    page = cm.report(found, tmp_path / "report.html")
    assert "JaxModel" in page.read_text() or page.exists()
    figure = found.plot(str(tmp_path / "picture.png"))
    assert figure is not None
