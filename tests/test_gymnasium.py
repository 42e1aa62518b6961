"""Episodes from Gymnasium environments: what counts, what does not, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import cvxmdp as cm
from cvxmdp.base.errors import ExperienceError, ProblemError
from cvxmdp.experience.episodes import Episodes, summarise
from environments import Counter, ModelEnv, Point, SixTuple, Trouble


def zeros(observations, states, begins):
    return np.zeros(len(states), dtype=int)


def play(env, horizon=20, signals=("reward", "cost"), **settings):
    return env.episodes(zeros, horizon, signals=signals, **settings)


@pytest.mark.parametrize(
    "make",
    [
        lambda mode: Counter(),
        lambda mode: SyncVectorEnv([Counter] * 5, autoreset_mode=mode),
    ],
    ids=["single", "vector"],
)
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
def test_steps_that_only_reset_are_never_counted(make, mode) -> None:
    env = cm.GymnasiumEnv(make(mode), 0.5)
    lengths = []
    for turn in range(8):
        batch = play(env, seed=3 if turn == 0 else None)
        for lane, length in enumerate(batch.lengths):
            lengths.append(int(length))
            # every step of the episode once, none of another
            np.testing.assert_array_equal(batch.inputs[lane, :length], np.arange(length))
            np.testing.assert_array_equal(
                batch.signals["cost"][lane, :length], np.arange(1, length + 1)
            )
            assert batch.terminated[lane] == (length % 2 == 0)
    assert len(set(lengths)) > 3
    assert env.steps == sum(lengths)


def test_the_same_seed_gives_the_same_run() -> None:
    def run(seed):
        with cm.GymnasiumEnv("FrozenLake-v1", 0.9, n_envs=3) as env:
            policy = cm.TabularPolicy(np.full((16, 4), 0.25)).seed(seed)
            act = lambda observations, states, begins: policy.predict(states)[0]  # noqa: E731
            batches = [env.episodes(act, 30, seed=seed), env.episodes(act, 30)]
        return [batch.inputs.tolist() for batch in batches]

    assert run(0) == run(0)
    assert run(0) != run(1)


def test_the_horizon_is_a_truncation() -> None:
    env = cm.GymnasiumEnv(SyncVectorEnv([Counter] * 4), 0.5)
    batch = play(env, horizon=1, seed=0)
    np.testing.assert_array_equal(batch.lengths, 1)
    assert not batch.terminated.any()
    sample = summarise(batch, 0.5, 2, n_states=10)
    np.testing.assert_array_equal(sample.tails, 0.5 / 0.5)
    np.testing.assert_array_equal(sample.mean()[0], [1.0, 0.0])


def test_six_values_and_other_numbers() -> None:
    mdp = cm.gridworld(2, discount=0.9, goal=3).with_signals(cost=np.arange(4.0))
    six = cm.GymnasiumEnv(SixTuple(mdp), 0.9)
    batch = play(six, seed=0)
    np.testing.assert_array_equal(batch.signals["cost"][0], batch.inputs[0].astype(float))
    shifted = cm.GymnasiumEnv(ModelEnv(mdp, limit=5, start=7), 0.9)
    assert (shifted.n_states, shifted.n_actions) == (4, 4)
    assert set(np.unique(play(shifted, seed=0).inputs)) <= {0, 1, 2, 3}


def test_tuples_of_discrete_spaces_are_states() -> None:
    env = cm.GymnasiumEnv("Blackjack-v1", 0.9)
    assert env.n_states == 32 * 11 * 2
    batch = env.episodes(zeros, 5, seed=0)
    total, dealer, ace = np.unravel_index(batch.inputs[0, 0], (32, 11, 2))
    assert 2 <= total <= 21
    assert 1 <= dealer <= 10
    assert ace in (0, 1)
    vector = cm.GymnasiumEnv("Blackjack-v1", 0.9, n_envs=3)
    assert vector.episodes(zeros, 5, seed=0).inputs.shape[0] == 3
    env.close()
    vector.close()


def test_boxes_go_through_features() -> None:
    bins = cm.UniformBins([-2.4, -3, -0.2, -3], [2.4, 3, 0.2, 3], 4)
    with cm.GymnasiumEnv("CartPole-v1", 0.9, features=bins, n_envs=4) as env:
        seen = []

        def act(observations, states, begins):
            seen.append(states)
            return zeros(observations, states, begins)

        batch = env.episodes(act, 30, seed=0)
    assert batch.inputs.shape[2] == 4
    assert max(states.max() for states in seen) < bins.size
    sample = summarise(batch, 0.9, 2, features=bins)
    assert sample.mean().shape == (256, 2)
    np.testing.assert_allclose(
        sample.mean().sum(), ((1 - 0.9 ** batch.lengths.astype(float)) / 0.1).mean()
    )
    dense = cm.RandomFourier(4, 10, seed=0)
    assert summarise(batch, 0.9, 2, features=dense).mean().shape == (10, 2)


class Picture(Counter):
    """Observations with a shape, of a kind that is told."""

    def __init__(self, space) -> None:
        self.observation_space = space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        _, *rest = super().step(action)
        return self.observation_space.sample(), *rest


@pytest.mark.parametrize(
    ("space", "n_states", "shape"),
    [
        (gymnasium.spaces.Box(0, 255, (4, 3), np.uint8), None, (4, 3)),
        (gymnasium.spaces.MultiDiscrete([3, 2], start=[1, 0]), 6, (2,)),
        (gymnasium.spaces.MultiBinary(3), 8, (3,)),
        (
            gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(3), gymnasium.spaces.Discrete(4)]),
            12,
            (2,),
        ),
    ],
    ids=["box", "multi-discrete", "multi-binary", "tuple"],
)
def test_features_see_observations_in_their_shape(space, n_states, shape) -> None:
    def total(observation):
        assert observation.shape == shape
        return jnp.array([1.0, observation.sum()])

    for lanes in (1, 3):
        make = lambda: Picture(space)  # noqa: E731
        inner = make() if lanes == 1 else SyncVectorEnv([make] * lanes)
        env = cm.GymnasiumEnv(inner, 0.9, features=cm.FeatureFunction(total, 2))
        batch = play(env, signals=(), seed=0)
        assert batch.inputs.shape[2:] == shape
        assert summarise(batch, 0.9, 2, features=env.features).mean().shape == (2, 2)
        if n_states is not None:
            table = cm.GymnasiumEnv(inner, 0.9)
            assert table.n_states == n_states
            assert play(table, signals=(), seed=0).inputs.max() < n_states


def test_a_vector_environment_of_its_own_make() -> None:
    bins = cm.UniformBins([-2.4, -3, -0.2, -3], [2.4, 3, 0.2, 3], 2)
    inner = gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="vector_entry_point")
    env = cm.GymnasiumEnv(inner, 0.9, features=bins)
    for _ in range(2):
        batch = play(env, horizon=60, signals=("reward",), seed=0)
        assert (batch.lengths < 20).all()  # always pushed to the left
        assert batch.terminated.all()
    inner.close()


def test_a_number_in_quotes_is_no_reward() -> None:
    with pytest.raises(ExperienceError, match=r"gave the signal 'reward' as .*'1'.* at step 3"):
        play(cm.GymnasiumEnv(Trouble("written reward"), 0.9), seed=0)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("raises", r"raised OSError at step 3 of an episode.*: the simulator is gone"),
        ("nan", r"gave the observation \[ ?0\. +nan\] at step 3 of an episode; NaN"),
        ("outside", r"gave the observation \[77\] at step 3 of an episode, outside its own space"),
        ("box", r"gave the observation \[0\. +1\.5\] at step 3 of an episode, outside its own box"),
        ("hangs", r"gave no answer within 0\.05 seconds at step 3 of an episode.*step_seconds="),
        ("info", r"gave no info\['cost'\] at step 3.*absent=\{'cost': 0\.0\}"),
        ("reward", r"gave the signal 'reward' as inf at step 3"),
        ("tuple", r"gave 4 values for a step; expected"),
    ],
)
@pytest.mark.parametrize("lanes", [1, 2])
def test_trouble_in_an_episode(kind, message, lanes) -> None:
    if kind == "tuple" and lanes == 2:
        message = "raised ValueError at step 3"
    inner = Trouble(kind) if lanes == 1 else SyncVectorEnv([lambda: Trouble(kind)] * lanes)
    features = cm.UniformBins([-1, -1], [1, 1], 2) if kind in ("nan", "box") else None
    seconds = 0.05 if kind == "hangs" else 600.0
    env = cm.GymnasiumEnv(inner, 0.9, features=features, step_seconds=seconds)
    with pytest.raises(ExperienceError, match=message):
        play(env, seed=0)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("two rewards", r"gave the reward .*\[1\.0, 2\.0\].* at step 3.*Name its parts"),
        ("word", r"gave terminated as .*'False'.* at step 3 of an episode; expected true or false"),
        ("text", r"gave an observation at step 3 of an episode that is not what its space says"),
    ],
)
@pytest.mark.parametrize("told", [False, True])
def test_answers_of_another_type_are_no_answers(kind, message, told, monkeypatch) -> None:
    monkeypatch.setattr(gymnasium, "make", lambda name: Trouble(kind))
    env = (
        cm.GymnasiumEnv("CliffWalking-v1", 0.9, n_envs=2)  # several of them side by side
        if told
        else cm.GymnasiumEnv(Trouble(kind), 0.9)
    )
    with pytest.raises(ExperienceError, match=message):
        play(env, seed=0)


class Masked(Counter):
    """Forbids the second action on odd steps."""

    def action_masks(self) -> np.ndarray:
        return np.array([True, self.age % 2 == 0])


def test_actions_that_are_forbidden_are_not_taken() -> None:
    def ones(observations, states, begins):
        return np.ones(1, dtype=int)

    with pytest.raises(ExperienceError, match=r"forbids action 1 at step 1 .* are \[1, 0\]"):
        cm.GymnasiumEnv(Masked(), 0.9).episodes(ones, 20, seed=3)
    assert play(cm.GymnasiumEnv(Masked(), 0.9), seed=3).lengths[0] > 1


def test_what_was_made_here_is_closed(monkeypatch) -> None:
    closed = []
    mdp = cm.gridworld(2, discount=0.9, goal=3).with_signals(cost=1.0 + np.zeros(4))

    class Watched(ModelEnv):
        def close(self):
            closed.append(self)

    gymnasium.register("cvxmdp/Watched-v0", lambda: Watched(mdp), disable_env_checker=True)
    try:
        env = cm.GymnasiumEnv("cvxmdp/Watched-v0", 0.9, n_envs=1)
        with pytest.raises(ExperienceError, match=r"gave no info\['price'\]"):
            env.episodes(zeros, 5, signals=("price",), seed=0)
        assert len(closed) == 1
        with pytest.raises(ZeroDivisionError):
            cm.GymnasiumEnv("cvxmdp/Watched-v0", 0.9).episodes(lambda *_: 1 / 0, 5, seed=0)
        assert len(closed) == 17  # sixteen at a time where nothing else is said
    finally:
        del gymnasium.registry["cvxmdp/Watched-v0"]
    given = Watched(mdp)
    with pytest.raises(ExperienceError, match="gave no info"):
        cm.GymnasiumEnv(given, 0.9).episodes(zeros, 5, signals=("price",), seed=0)
    assert given not in closed  # its owner's


def test_missing_entries_can_have_a_value() -> None:
    env = cm.GymnasiumEnv(Trouble("info"), 0.9, absent={"cost": -1.0})
    assert play(env, seed=0).signals["cost"][0, 3] == -1.0


def test_wrong_spaces_and_settings() -> None:
    several = Counter()
    several.action_space = gymnasium.spaces.MultiDiscrete([2, 3])
    with pytest.raises(ExperienceError, match=r"has actions MultiDiscrete.*Discrete space"):
        cm.GymnasiumEnv(several, 0.9)
    with pytest.raises(ProblemError, match=r"CartPole-v1.*are no states. Give features="):
        cm.Problem(cm.GymnasiumEnv("CartPole-v1", 0.9), maximize=cm.entropy())
    nested = Counter()
    nested.observation_space = gymnasium.spaces.Dict(a=gymnasium.spaces.Discrete(2))
    with pytest.raises(ExperienceError, match=r"with the entries 'a'.*FlattenObservation"):
        cm.GymnasiumEnv(nested, 0.9)
    with pytest.raises(
        ExperienceError, match=r"expected a Gymnasium environment, its id, or a function.*got int"
    ):
        cm.GymnasiumEnv(3, 0.9)
    with pytest.raises(ExperienceError, match="n_envs=2 goes with an id"):
        cm.GymnasiumEnv(Counter(), 0.9, n_envs=2)


@pytest.mark.filterwarnings("ignore:.*out of date")
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("Taxi-v3", "Write 'Taxi-v4'"),
        ("FrozenLake-v0", "Write 'FrozenLake-v1'"),
        ("CliffWalking-v77", "Write 'CliffWalking-v1'"),
        ("FrozenLakes-v1", "Did you mean 'FrozenLake-v1'"),
        ("of_nobody/Lake-v1", "Gymnasium cannot make 'of_nobody/Lake-v1'"),
    ],
)
def test_ids_that_are_none_name_one_that_is(asked, said) -> None:
    with pytest.raises(ExperienceError, match=said):
        cm.GymnasiumEnv(asked, 0.9)
    with pytest.raises(ExperienceError, match=said):
        cm.from_gymnasium_table(asked, 0.9)
    with pytest.raises(ExperienceError, match=said):
        cm.record_episode(cm.TabularPolicy(np.ones((1, 1))), asked, seed=0)


class Quiet(Counter):
    """Its info has a cost on steps, not where an episode begins."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed, options=options)[0], {}

    def step(self, action):
        *seen, _ = super().step(action)
        return *seen, {"cost": 1.0}


def test_a_lane_that_begins_owes_no_signals() -> None:
    vector = SyncVectorEnv([Quiet] * 2)
    problem = cm.Problem(cm.GymnasiumEnv(vector, 0.9), minimize=cm.linear("cost"))
    assert cm.solve(problem, cm.ActorCritic(500), seed=0, progress=False).policy is not None


def test_a_reset_without_info_is_not_taken_apart() -> None:
    class Old(Trouble):
        def reset(self, *, seed=None, options=None):
            return np.zeros(2)

    with pytest.raises(ExperienceError, match=r"Old: a reset gave array\(\[0\., 0\.\]\); expected"):
        play(cm.GymnasiumEnv(Old("box"), 0.9, features=cm.UniformBins([-1, -1], [1, 1], 2)), seed=0)


def test_an_info_of_none_has_no_entries() -> None:
    class Silent(Counter):
        def step(self, action):
            return *super().step(action)[:4], None

    with pytest.raises(ExperienceError, match=r"Silent gave no info\['price'\] at step 0"):
        play(cm.GymnasiumEnv(Silent(), 0.9), signals=("price",), seed=0)


class Overwritten(Point):
    """Every observation, reward and entry of ``info`` is one array of the class, written into at every step."""

    reward_space = gymnasium.spaces.Box(0.0, 1.0, (2,))
    seen, reward = np.zeros(1), np.zeros(2)
    copies = False

    def reset(self, *, seed: int | None = None, options: Any = None):
        self.seen[:], info = super().reset(seed=seed)
        return self._given(self.seen), info

    def step(self, action):
        self.seen[:], reward, *flags, info = super().step(action)
        self.reward[:] = reward, info["left"]
        return self._given(self.seen), self._given(self.reward), *flags, info

    def _given(self, numbers: np.ndarray) -> np.ndarray:
        return numbers.copy() if self.copies else numbers


class Copied(Overwritten):
    copies = True


class OverwrittenVector(SyncVectorEnv):
    """Without the copies that Gymnasium makes."""

    def __init__(self, copies: bool) -> None:
        super().__init__([Point] * 3, copy=copies)


def test_simulators_may_write_into_what_they_gave() -> None:
    def played(env: Any, **more: Any) -> Episodes:
        source = cm.GymnasiumEnv(env, 0.9, **more)
        names = ("reward[0]", "reward[1]", "moved") if more else ("reward",)
        return source.episodes(lambda *_: np.ones(3, dtype=int), 9, signals=names, seed=0)

    told = {"moved": lambda o, a, p, r, end: float(p[0] - o[0])}
    lanes = [played(env, n_envs=3, signals=told) for env in (Overwritten, Copied)]
    vectors = [played(OverwrittenVector(copies)) for copies in (False, True)]
    assert lanes[0].signals["moved"].any()
    for one, other in (lanes, vectors):
        np.testing.assert_array_equal(one.inputs, other.inputs)
        for name, numbers in one.signals.items():
            np.testing.assert_array_equal(numbers, other.signals[name])


@pytest.mark.parametrize("shape", [(3,), (3, 2), (6,)])
@pytest.mark.parametrize("lanes", [1, 2])
def test_an_observation_of_another_shape_is_said(shape, lanes) -> None:
    class Changing(Counter):
        observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2, 3))

        def reset(self, *, seed: int | None = None, options: Any = None):
            return np.zeros((2, 3)), super().reset(seed=seed)[1]

        def step(self, action):
            _, *rest = super().step(action)
            # Lanes of one class begin with lengths of their own: in one of them it may be the second step.
            return np.zeros(shape if self.age == 2 else (2, 3)), *rest

    env = cm.GymnasiumEnv(Changing, 0.9, n_envs=lanes)
    said = rf"Changing gave an observation of shape {re.escape(str(shape))} at step 1 .* says \(2, 3\)$"
    with pytest.raises(ExperienceError, match=said):
        env.episodes(lambda *_: np.zeros(lanes, dtype=int), 9, seed=3)


def test_a_dictionary_in_info_is_no_signal_and_its_entries_are_said() -> None:
    class Nested(Counter):
        def step(self, action):
            *answer, _ = super().step(action)
            return *answer, {"costs": {"noise": 1.0, "heat": 0.0}}

    with pytest.raises(
        ExperienceError, match=r"not a number, but has the entries 'noise', 'heat': a wrapper"
    ):
        play(cm.GymnasiumEnv(Nested, 0.9, n_envs=2), signals=("costs",), seed=0)
