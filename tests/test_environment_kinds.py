"""Environments as people bring them: vector rewards, info, factories, processes, masks, boxes, JAX suites."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import mo_gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import cvxmdp as cm
from cvxmdp.base.errors import ExperienceError, ModelError, SettingsError, SolverError, UtilityError
from environments import Counter

TREASURE = "deep-sea-treasure-v0"
STOPPED = """
import time
from cvxmdp.experience.environments.side_by_side import patience
with patience(2.0):
    print("begun", flush=True)
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
print("done")
"""


def uniformly(n: int, seed: int = 0):
    random = np.random.default_rng(seed)
    return lambda observations, inputs, begins: random.integers(0, n, len(inputs))


class Fuel(gymnasium.Env):
    """Three states in a row; going on costs fuel, which info tells under a name of its own."""

    observation_space = spaces.Discrete(3)
    action_space = spaces.Discrete(2)

    def __init__(self, burn: float = 2.0) -> None:
        self.burn = burn

    def reset(self, *, seed: int | None = None, options: Any = None):
        super().reset(seed=seed)
        self.place = 0
        return 0, {}

    def step(self, action):
        self.place += int(action and self.np_random.random() < 0.7)
        ends = self.place == 2
        return self.place, float(ends), ends, False, {"fuel used": self.burn * float(action)}


@pytest.fixture(scope="module")
def env() -> cm.GymnasiumEnv:
    return cm.GymnasiumEnv(mo_gymnasium.make(TREASURE), 0.95)


class TestVectorRewards:
    """MO-Gymnasium works as it is."""

    def test_parts_by_number(self, env) -> None:
        episodes = env.episodes(uniformly(4), 30, signals=("reward[0]", "reward[1]"), seed=0)
        alive = np.arange(episodes.actions.shape[1]) < episodes.lengths[:, None]
        assert (episodes.signals["reward[1]"][alive] == -1.0).all()
        assert (episodes.signals["reward[0]"] >= 0.0).all()

    def test_parts_by_name(self) -> None:
        env = cm.GymnasiumEnv(
            lambda: mo_gymnasium.make(TREASURE), 0.95, n_envs=3, rewards=("treasure", "time")
        )
        episodes = env.episodes(uniformly(4), 9, signals=("time", "reward[1]", "treasure"), seed=0)
        np.testing.assert_array_equal(episodes.signals["time"], episodes.signals["reward[1]"])
        with pytest.raises(ExperienceError, match="2 parts"):
            cm.GymnasiumEnv(mo_gymnasium.make(TREASURE), 0.95, rewards=("a", "b", "c"))

    def test_a_problem_is_learned(self, env) -> None:
        """Reach treasure, with a budget on time: nothing names a reward, and nothing needs one."""
        problem = cm.Problem(
            env,
            maximize=cm.linear("reward[0]"),
            subject_to={"time": cm.linear("reward[1]") >= -8.0},
        )
        assert problem.space.signal_names == ("reward[0]", "reward[1]")
        found = cm.solve(
            problem, cm.VRPDPG(6, 0.1, 0.1, 0.5, 20, 4, policy=cm.MLP(4)), seed=0, progress=False
        )
        assert found.constraint_status["time"] in ("satisfied", "violated", "open")
        assert "episode_return" not in found.history
        assert found.slack["time"] >= 8.0 - 20.0

    def test_the_whole_reward_is_no_signal(self, env) -> None:
        with pytest.raises(UtilityError, match=r"reward is a vector.*reward\[\d\]"):
            cm.Problem(env, maximize=cm.linear("reward"))

    def test_a_vector_that_nobody_announced(self) -> None:
        class Pair(Counter):
            def step(self, action):
                seen, _, *rest = super().step(action)
                return seen, [1.0, 2.0], *rest

        with pytest.raises(ExperienceError, match=r"a vector\. Name its parts"):
            cm.GymnasiumEnv(Pair, 0.9, n_envs=2).episodes(uniformly(2), 5, seed=0)
        named = cm.GymnasiumEnv(Pair, 0.9, n_envs=2, rewards=("one", "two"))
        assert named.episodes(uniformly(2), 5, signals=("two",), seed=0).signals["two"][0, 0] == 2.0
        wrong = cm.GymnasiumEnv(Pair, 0.9, n_envs=2, rewards=("one", "two", "three"))
        with pytest.raises(ExperienceError, match="expected 3 numbers"):
            wrong.episodes(uniformly(2), 5, signals=("two",), seed=0)


class TestInfoAndFactories:
    def test_an_entry_by_another_name(self) -> None:
        given = {"fuel": cm.from_info("fuel used"), "moved": lambda o, a, p, r, end: float(p > o)}
        for env in (
            cm.GymnasiumEnv(lambda: Fuel(), 0.9, n_envs=4, signals=given),
            cm.GymnasiumEnv(Fuel(), 0.9, signals=given),
        ):
            episodes = env.episodes(uniformly(2), 20, signals=("fuel", "moved"), seed=0)
            taken = np.arange(episodes.actions.shape[1]) < episodes.lengths[:, None]
            burnt = np.where(taken, episodes.signals["fuel"], 0.0)
            np.testing.assert_array_equal(burnt, np.where(taken, 2.0 * episodes.actions, 0.0))
        vector = gymnasium.vector.SyncVectorEnv([Fuel] * 3)
        renamed = cm.GymnasiumEnv(vector, 0.9, signals={"fuel": cm.from_info("fuel used")})
        assert (
            renamed.episodes(uniformly(2), 5, signals=("fuel",), seed=0).signals["fuel"].max()
            == 2.0
        )

    def test_a_missing_entry_is_named_with_its_key(self) -> None:
        env = cm.GymnasiumEnv(Fuel(), 0.9, signals={"fuel": cm.from_info("fuel")})
        with pytest.raises(ExperienceError, match=r"no info\['fuel'\].*fuel used"):
            env.episodes(uniformly(2), 5, signals=("fuel",), seed=0)
        with pytest.raises(ExperienceError, match="key of an entry"):
            cm.from_info(3)

    def test_factories_take_arguments_and_lanes(self) -> None:
        for made in (Fuel, lambda burn: Fuel(burn)):
            env = cm.GymnasiumEnv(made, 0.9, n_envs=2, burn=5.0)
            assert env.n_lanes == 2
            told = env.episodes(uniformly(2), 30, signals=("fuel used",), seed=0)
            assert told.signals["fuel used"].max() == 5.0
        with pytest.raises(ExperienceError, match="lambda: MyEnv"):
            cm.GymnasiumEnv(Fuel(), 0.9, n_envs=3)
        with pytest.raises(ExperienceError, match="got int"):
            cm.GymnasiumEnv(3, 0.9)
        for workers in (None, 1):
            with pytest.raises(ExperienceError, match="made None"):
                cm.GymnasiumEnv(lambda: None, 0.9, workers=workers)
        with pytest.raises(ExperienceError, match="rewards= takes names"):
            cm.GymnasiumEnv(Fuel(), 0.9, rewards="fuel")


class Slow(Counter):
    """Hangs in lane 3's episode, in code that nobody can interrupt from inside."""

    def reset(self, *, seed: int | None = None, options: Any = None):
        self.hangs = seed is not None and seed % 10 == 3
        return super().reset(seed=seed, options=options)

    def step(self, action):
        if self.hangs:
            import signal

            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
            time.sleep(600)
        return super().step(action)


class TestProcesses:
    def test_the_same_numbers_whoever_steps_a_lane(self) -> None:
        """A lambda of this file, in two processes and in this one."""
        runs = []
        for workers in (None, 2):
            with cm.GymnasiumEnv(lambda: Fuel(3.0), 0.9, n_envs=5, workers=workers) as env:
                rounds = [
                    env.episodes(uniformly(2, k), 20, signals=("reward", "fuel used"), seed=seed)
                    for k, seed in enumerate((7, None, 8))
                ]
            runs.append(rounds)
        for here, there in zip(*runs, strict=True):
            np.testing.assert_array_equal(here.inputs, there.inputs)
            np.testing.assert_array_equal(here.lengths, there.lengths)
            np.testing.assert_array_equal(here.signals["fuel used"], there.signals["fuel used"])

    def test_a_step_that_hangs_is_ended_and_its_seed_is_named(self) -> None:
        with cm.GymnasiumEnv(Slow, 0.9, n_envs=4, workers=2, step_seconds=0.5) as env:
            with pytest.raises(
                ExperienceError, match=r"within 0.5 seconds.*lane 3, seeded with 23"
            ):
                env.episodes(uniformly(2), 5, seed=20)
            processes = [worker.process for worker in env.env.workers]
        assert all(process.poll() is not None for process in processes)

    def test_a_process_that_is_stopped_is_no_step_that_hangs(self) -> None:
        """As by Ctrl-Z: ten minutes of it had ended a run as soon as it went on."""
        command = [sys.executable, "-c", STOPPED]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as one:
            assert one.stdout is not None
            assert one.stdout.readline() == "begun\n"
            one.send_signal(signal.SIGSTOP)
            time.sleep(2.2)
            one.send_signal(signal.SIGCONT)
            assert one.stdout.read() == "done\n"

    def test_errors_come_back_with_their_words(self) -> None:
        class Broken(Counter):
            def step(self, action):
                raise OSError("the disk of the simulator is full")

        with (
            cm.GymnasiumEnv(Broken, 0.9, n_envs=2, workers=1) as env,
            pytest.raises(ExperienceError, match=r"raised OSError.*lane 0, seeded with 4.*is full"),
        ):
            env.episodes(uniformly(2), 5, seed=4)
        with pytest.raises(TypeError, match="burn"):
            cm.GymnasiumEnv(lambda: Fuel(burn=1, burns=2), 0.9, workers=2)


class Masked(Counter):
    """Forbids action 1 after an odd number of steps, by info."""

    def _info(self, info):
        return {**info, "action_mask": np.array([1, self.age % 2 == 0], dtype=np.int8)}

    def reset(self, *, seed: int | None = None, options: Any = None):
        observation, info = super().reset(seed=seed)
        return observation, self._info(info)

    def step(self, action):
        *answer, info = super().step(action)
        return *answer, self._info(info)


class TestMasks:
    @pytest.mark.parametrize("kind", ["single", "side by side", "vector"])
    def test_masks_are_read(self, kind) -> None:
        env = {
            "single": lambda: cm.GymnasiumEnv(Masked(), 0.9),
            "side by side": lambda: cm.GymnasiumEnv(Masked, 0.9, n_envs=3),
            "vector": lambda: cm.GymnasiumEnv(gymnasium.vector.SyncVectorEnv([Masked] * 3), 0.9),
        }[kind]()
        env.reset(0)
        assert env.masks.all()
        lanes = np.zeros(env.n_lanes, dtype=int)
        env.step(lanes, ("reward",), lanes > 0, "now")
        assert env.masks[:, 0].all()
        assert not env.masks[:, 1].any()

    def test_masks_of_the_wrong_form(self) -> None:
        class Odd(Masked):
            def _info(self, info):
                return {"action_mask": np.ones(3)}

        class Nothing(Masked):
            def _info(self, info):
                return {"action_mask": np.zeros(2)}

        with pytest.raises(ExperienceError, match="each of 2 actions"):
            cm.GymnasiumEnv(Odd(), 0.9).reset(0)
        with pytest.raises(ExperienceError, match="without any action"):
            cm.GymnasiumEnv(Nothing(), 0.9).reset(0)

    def test_what_a_method_forbids_is_an_error(self) -> None:
        class Method(Counter):
            def action_masks(self):
                return [True, self.age % 2 == 0]

        env = cm.GymnasiumEnv(Method(), 0.9)
        with pytest.raises(ExperienceError, match="forbids action 1"):
            env.episodes(lambda o, i, b: np.ones(len(i), int), 9, seed=3)


class TestSpaces:
    def test_dict_observations_are_named(self) -> None:
        class Parts(Counter):
            observation_space = spaces.Dict({"speed": spaces.Box(0, 1), "gear": spaces.Discrete(5)})

        with pytest.raises(
            ExperienceError, match=r"'gear', 'speed'.*FlattenObservation|'speed', 'gear'"
        ):
            cm.GymnasiumEnv(Parts(), 0.9)

    def test_boxes_of_actions_pass_and_are_refused_by_solvers_of_lists(self) -> None:
        env = cm.GymnasiumEnv("Pendulum-v1", 0.99, n_envs=2)
        low, high = env.action_box
        assert (low, high) == (-2.0, 2.0)
        pushes = [np.full((2, 1), push) for push in (5.0, 2.0)]
        seen = [
            env.episodes(lambda o, i, b, push=push: push, 5, seed=0).signals["reward"]
            for push in pushes
        ]
        np.testing.assert_array_equal(*seen)  # cut to the box
        problem = cm.Problem(env, maximize=cm.linear("reward"))
        for solver in (cm.VRPDPG(5), cm.ModelBased(steps=100)):
            with pytest.raises(SolverError, match="takes vectors of numbers"):
                cm.solve(problem, solver, seed=0)
        with pytest.raises(ExperienceError, match="finite borders"):
            cm.GymnasiumEnv(
                gymnasium.wrappers.TransformAction(
                    gymnasium.make("Pendulum-v1"), lambda a: a, spaces.Box(-np.inf, np.inf, (1,))
                ),
                0.9,
            )

    @pytest.mark.parametrize(
        "space",
        [
            spaces.MultiDiscrete([2, 3]),
            spaces.MultiBinary(2),
            spaces.Box(0.0, np.inf, (1,)),
        ],
    )
    def test_other_actions_are_refused_with_the_wrapper_that_helps(self, space) -> None:
        class Other(Counter):
            action_space = space

            def step(self, action):
                assert self.action_space.contains(np.asarray(action, self.action_space.dtype))
                return super().step(1)

        with pytest.raises(ExperienceError, match="Wrap it: gymnasium") as refused:
            cm.GymnasiumEnv(Other(), 0.9)
        written = str(refused.value).partition("Wrap it: ")[2].rstrip(".")
        known = {"gymnasium": gymnasium, "np": np, "env": Other()}
        env = cm.GymnasiumEnv(eval(written, known), 0.9)
        last = np.zeros((1, 1)) if env.action_box else np.array([env.n_actions - 1])
        assert env.episodes(lambda o, i, b: last, 5, seed=0).lengths.min() > 0

    def test_velocity_tasks(self) -> None:
        """The cost of Safety-Gymnasium's velocity tasks is a function of info: x_velocity above a threshold."""
        env = cm.GymnasiumEnv(
            lambda: gymnasium.wrappers.TransformReward(gymnasium.make("Hopper-v5"), lambda r: r),
            1.0,
            n_envs=1,
            signals={"speed": cm.from_info("x_velocity"), "fast": fast},
        )
        assert env.horizon.limit == 1_000
        episodes = env.episodes(
            lambda o, i, b: np.ones((1, 3)), 20, signals=("speed", "fast"), seed=0
        )
        steps = episodes.signals["speed"][0, : episodes.lengths[0]]
        assert np.isfinite(steps).all()


def fast(before, action, after, reward, ended) -> float:
    return float(after[5] > 0.7402)


class TestWholeEpisodes:
    """discount=1: sums over episodes of at most so many steps."""

    def test_a_limit_is_needed_and_used(self) -> None:
        with pytest.raises(ModelError, match="give horizon="):
            cm.GymnasiumEnv(Fuel(), 1.0)
        assert cm.GymnasiumEnv("CartPole-v1", 1.0).horizon.limit == 500
        env = cm.GymnasiumEnv(Fuel, 1.0, horizon=6, n_envs=8)
        assert env.default_horizon() == 6
        assert env.episodes(uniformly(2), 50, seed=0).lengths.max() <= 6
        assert "at most 6 steps" in repr(env)

    def test_learned_and_evaluated_without_a_tail(self) -> None:
        env = cm.GymnasiumEnv(Fuel, 1.0, horizon=6, n_envs=8)
        limit = {"fuel": cm.linear("fuel used", per="episode") <= 7.0}
        problem = cm.Problem(env, maximize=cm.linear("reward"), subject_to=limit)
        found = cm.solve(problem, cm.VRPDPG(10, batch_size=8), seed=0, progress=False)
        assert found.stats["truncation_bias"] == 0.0
        assert "sum over at most 6 steps" in str(found)
        judged = cm.evaluate(found, env, 50, seed=1, bounds={"reward": (0, 1), "fuel used": (0, 2)})
        assert judged.truncation == 0.0
        assert judged.slack["fuel"].lower >= 7.0 - 12.0
        with pytest.raises(SettingsError, match="plans with a discount"):
            cm.solve(problem, cm.ModelBased(steps=100), seed=0)


@dataclass(frozen=True)
class Limits:
    max_steps_in_episode: int = 7


jax.tree_util.register_dataclass(Limits, ["max_steps_in_episode"], [])


class NewGymnax:
    """Of the shape of gymnax 1.x: step gives six values and knows the limit of time, step_env neither."""

    num_actions = 2
    num_states = 4
    default_params: ClassVar = Limits()

    def reset_env(self, key, params):
        return jnp.int32(0), jnp.int32(0)

    reset = reset_env

    def step_env(self, key, state, action, params):
        place = jnp.minimum(state + action * jax.random.bernoulli(key, 0.3), 3).astype(jnp.int32)
        return place, place, jnp.array([1.0, -1.0]) * action, place == 3, {"cost": 1.0 * action}

    def step(self, key, state, action, params):
        seen, state, reward, ended, info = self.step_env(key, state, action, params)
        return seen, state, reward, ended, jnp.array(False), info


class Six(NewGymnax):
    """Six values from step_env, too, with a limit of its own."""

    def reset_env(self, key, params):
        return jnp.int32(0), (jnp.int32(0), 0)

    reset = reset_env

    def step_env(self, key, state, action, params):
        seen, place, reward, ended, info = super().step_env(key, state[0], action, params)
        return seen, (place, state[1] + 1), reward, ended, state[1] + 1 >= 5, info

    step = step_env


def test_wrappers_that_make_a_number_of_a_vector_of_rewards() -> None:
    class First(gymnasium.Wrapper):
        reward_space = None

        def step(self, action):
            seen, rewards, *rest = self.env.step(action)
            return seen, float(rewards[0]), *rest

    def sea() -> gymnasium.Env:
        return mo_gymnasium.make("deep-sea-treasure-v0")

    weights = np.array([1.0, 0.1])
    for make in (lambda: First(sea()), lambda: mo_gymnasium.wrappers.LinearReward(sea(), weights)):
        env = cm.GymnasiumEnv(make, discount=0.9, n_envs=2)
        assert env.reward_names == ()
        told = env.episodes(lambda o, i, b: np.ones(len(i), int), 3, seed=0).signals["reward"]
        assert told.shape == (2, 1), "the treasure just below ends it"
    assert cm.GymnasiumEnv(sea, discount=0.9).reward_names == ("reward[0]", "reward[1]")


class TestJaxSuites:
    @pytest.mark.parametrize(("kind", "limit"), [(NewGymnax, 7), (Six, 5)])
    def test_six_values_and_limits_of_time(self, kind, limit) -> None:
        env = cm.JaxEnv(kind(), 0.9, n_envs=32)
        never = env.episodes(lambda o, i, b: np.zeros(len(i), int), 20, signals=("cost",), seed=0)
        assert (never.lengths == limit).all()
        assert not never.terminated.any()
        always = env.episodes(lambda o, i, b: np.ones(len(i), int), 20, signals=("cost",), seed=0)
        assert always.terminated.any()
        assert always.lengths.max() <= limit

    def test_learned_with_parts_of_the_reward(self) -> None:
        env = cm.JaxEnv(NewGymnax(), 1.0, rewards=("gain", "loss"))
        assert env.horizon.limit == 7
        limit = {"loss": cm.linear("loss") >= -3.0}
        problem = cm.Problem(env, maximize=cm.linear("gain"), subject_to=limit)
        found = cm.solve(problem, cm.VRPDPG(60, batch_size=8), seed=0, progress=False)
        assert found.objective == pytest.approx(3.0 - found.slack["loss"], abs=1e-4)
        with pytest.raises(ExperienceError, match="names 3 parts"):
            cm.JaxEnv(NewGymnax(), 0.9, rewards=("a", "b", "c"))


class Pushed:
    """A point on a line, pushed by as much as one likes within a box, written in JAX."""

    def action_space(self, params: object) -> gymnasium.spaces.Box:
        return gymnasium.spaces.Box(-2.0, 1.0, (1, 1))

    default_params = Limits()

    def reset(self, key, params):
        return jnp.zeros(2), jnp.zeros(())

    def step(self, key, state, action, params):
        place = jnp.clip(state + 0.1 * action[0, 0] + 0.02 * jax.random.normal(key), -1.0, 1.0)
        seen = jnp.stack([place, place**2])
        return seen, place, place, jnp.array(False), {"size": jnp.abs(action).sum()}


class TimeStep(NamedTuple):
    """As NAVIX has them."""

    observation: jax.Array
    reward: jax.Array
    age: jax.Array
    key: jax.Array
    info: dict[str, jax.Array]

    def is_termination(self) -> jax.Array:
        return self.observation[0] >= 3

    def is_truncation(self) -> jax.Array:
        return (self.age >= 9) & ~self.is_termination()


class Stepping:
    """Ends at 3, is cut after nine steps; the key is part of a time step."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(0.0, 3.0, (1,))
    max_steps = 9

    def reset(self, key: jax.Array) -> TimeStep:
        return TimeStep(jnp.zeros(1), jnp.zeros(()), jnp.int32(0), key, {"tired": jnp.zeros(())})

    def step(self, before: TimeStep, action: jax.Array) -> TimeStep:
        key, mine = jax.random.split(before.key)
        place = before.observation + action * jax.random.bernoulli(mine, 0.5)
        reward = (place[0] >= 3).astype(float)
        return TimeStep(place, reward, before.age + 1, key, {"tired": action.astype(float)})


def test_environments_that_go_from_time_step_to_time_step() -> None:
    env = cm.JaxEnv(Stepping(), 1.0, n_envs=32)
    assert env.horizon.limit == 9, "its own"
    never = env.episodes(lambda o, i, b: np.zeros(len(i), int), 20, signals=("tired",), seed=0)
    assert (never.lengths == 9).all()
    assert not never.terminated.any()
    problem = cm.Problem(
        env, maximize=cm.linear("reward"), subject_to={"tired": cm.linear("tired") <= 8.0}
    )
    found = cm.solve(problem, cm.ActorCritic(4_000, batch=320), seed=0, progress=False)
    assert found.history["objective"][-3:].mean() > 0.75, "at random it is a third"


class TestJaxBoxes:
    def problem(self) -> cm.Problem:
        told = {
            "right": lambda o, a, p, r, end: p[0] > 0.5,
            "moved": lambda o, a, p, r, end: jnp.abs(p[0] - o[0]),
            "force": cm.from_info("size"),
        }
        env = cm.JaxEnv(Pushed(), 0.9, horizon=20, n_envs=16, signals=told)
        budget = {"right": cm.linear("right", per="step") <= 0.3}
        return cm.Problem(env, maximize=cm.linear("reward", per="step"), subject_to=budget)

    def test_learned_inside_compiled_code(self) -> None:
        problem = self.problem()
        assert "actions in a box of shape (1, 1)" in repr(problem.environment)
        found = cm.solve(problem, cm.ActorCritic(20_000, batch=320), seed=0, progress=False)
        early, late = found.history["objective"][:5].mean(), found.history["objective"][-5:].mean()
        assert late > early + 0.2
        assert found.slack["right"] > -0.1
        action, _ = found.policy.predict(np.zeros(2, np.float32))
        assert -2.0 <= action.item() <= 1.0

    def test_signals_are_functions_of_a_step_and_entries_of_info(self) -> None:
        env = self.problem().environment
        asked = np.full((16, 1, 1), 7.0)  # outside of the box: cut to it
        names = ("right", "moved", "force")
        found = env.episodes(lambda o, i, b: asked, 12, signals=names, seed=0)
        assert found.signals["force"] == pytest.approx(1.0)
        assert found.signals["moved"][:, 0] == pytest.approx(0.1, abs=0.1)
        assert found.signals["right"][:, 0].max() == 0.0
        assert found.signals["right"][:, -1].min() == 1.0
        with pytest.raises(SolverError, match="takes vectors of numbers"):
            cm.solve(self.problem(), cm.VRPDPG(10), seed=0)
