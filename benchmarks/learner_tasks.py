"""Tasks for learners: ten with a list of actions, five with continuous ones, concave ones with exact optima.

A *safe task* has a reward and a cost in every step. The sum of an episode's rewards is to be large, that of its
costs at most the budget in the mean; nothing is discounted. So the field of safe reinforcement learning states
them, and a PPO-Lagrangian can be asked, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, SupportsFloat

import gymnasium
import numpy as np

import cvxmdp as cm
from four_examples import examples
from pdpg import reference_grid

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import cart_pole
import cliff_walking
import frozen_lake
import inventory
import mountain_car
import taxi
import two_queues

# (observation, action, next observation, reward, ended) -> reward and cost of a step
Reading = Callable[[Any, Any, Any, Any, bool], tuple[float, float]]
LANES = 8


class Costly(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose steps have a reward and, in ``info``, a cost."""

    reward_space = None  # a number, whatever is inside

    def __init__(self, env: Any, reading: Reading) -> None:
        super().__init__(env)
        self.reading, self.before = reading, None

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self.before, info = self.env.reset(**arguments)
        return self.before, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take a step and read it."""
        after, given, ended, cut, info = self.env.step(action)
        reward, cost = self.reading(self.before, action, after, given, ended)
        self.before = after
        return after, float(reward), ended, cut, {**info, "cost": float(cost)}


@dataclass(frozen=True)
class SafeTask:
    """A reward, and a budget of the costs of an episode.

    Attributes:
        name: for the table and for the file of results.
        make: makes the environment; its rewards and costs are those of ``reading``.
        limit: steps of an episode, at most.
        budget: of its costs.
        steps: of the simulator.
        continuous: whether actions are vectors of numbers.
    """

    name: str
    make: Callable[[], Any]
    limit: int
    budget: float
    steps: int = 300_000
    continuous: bool = False

    def problem(self) -> cm.Problem:
        """For a learner of cvxmdp."""
        lanes = {"n_envs": LANES} if not self.continuous else {}
        env = cm.GymnasiumEnv(self.make, discount=1.0, horizon=self.limit, **lanes)
        budget = cm.linear("cost") <= self.budget
        return cm.Problem(env, maximize=cm.linear("reward"), subject_to={"cost": budget})


def _read(name: str, reading: Reading, *wrappers: Any) -> Callable[[], Any]:
    """Makes an environment of Gymnasium, MiniGrid or MO-Gymnasium that is read so."""

    def make() -> Any:
        env = gymnasium.make(
            name, disable_env_checker=True
        )  # it has no words for vectors of rewards
        for wrapper in wrappers:
            env = wrapper(env)
        return Costly(env, reading)

    return make


def _image(env: Any) -> Any:
    from minigrid.wrappers import ImgObsWrapper  # an optional package

    return gymnasium.wrappers.FlattenObservation(ImgObsWrapper(env))


def _listed_torques(env: Any) -> Any:
    """Five torques instead of an interval."""
    torques = np.linspace(-2.0, 2.0, 5, dtype=np.float32)
    listed = gymnasium.spaces.Discrete(5)
    return gymnasium.wrappers.TransformAction(env, lambda k: torques[[int(k)]], listed)


def _queues() -> Any:
    """Two queues: jobs served, at a cost of power."""
    env = gymnasium.wrappers.TimeLimit(two_queues.TwoQueues(), 200)
    return _Served(env)


class _Served(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Jobs served are rewards, and power is the cost."""

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        after, _, ended, cut, info = self.env.step(action)
        return after, info["served0"] + info["served1"], ended, cut, {"cost": info["power"]}


class _Fast(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Costs 1 while the speed exceeds a limit, as in the velocity tasks of Safety-Gymnasium."""

    def __init__(self, env: Any, limit: float, planar: bool) -> None:
        super().__init__(env)
        self.limit, self.planar = limit, planar

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        after, reward, ended, cut, info = self.env.step(action)
        ahead = info["x_velocity"]
        speed = float(np.hypot(ahead, info["y_velocity"])) if self.planar else ahead
        return after, reward, ended, cut, {"cost": float(speed > self.limit)}


def _velocity(body: str, limit: float) -> SafeTask:
    """At most 25 of 1,000 steps faster than the limit."""

    def make() -> Any:
        return _Fast(gymnasium.make(f"{body}-v4"), limit, planar=body == "Ant")

    return SafeTask(f"{body} velocity", make, 1_000, 25.0, 3_000_000, continuous=True)


_LAVA = _read("minigrid:MiniGrid-LavaGapS5-v0", lambda o, a, p, r, end: (r, end and r == 0), _image)
LISTED = (
    SafeTask(
        "CartPole, left of the middle",
        _read("CartPole-v1", lambda o, a, p, r, end: (r, p[0] < 0)),
        500,
        100.0,
    ),
    SafeTask(
        "Acrobot, torque", _read("Acrobot-v1", lambda o, a, p, r, end: (r, a != 1)), 500, 60.0
    ),
    SafeTask(
        "Pendulum of five torques, torque",
        _read("Pendulum-v1", lambda o, a, p, r, end: (r, abs(int(a) - 2) / 2), _listed_torques),
        200,
        50.0,
    ),
    SafeTask("LavaGapS5, lava", _LAVA, 100, 0.02),
    SafeTask(
        "Dynamic-Obstacles-5x5, collisions",
        _read(
            "minigrid:MiniGrid-Dynamic-Obstacles-5x5-v0",
            lambda o, a, p, r, end: (max(r, 0.0), r < 0),
            _image,
        ),
        100,
        0.1,
    ),
    SafeTask(
        "deep sea treasure, time",
        _read("mo_gymnasium:deep-sea-treasure-v0", lambda o, a, p, r, end: (r[0], -r[1])),
        100,
        12.0,
    ),
    SafeTask(
        "resource gathering, deaths",
        _read("mo_gymnasium:resource-gathering-v0", lambda o, a, p, r, end: (r[1] + r[2], -r[0])),
        100,
        0.1,
    ),
    SafeTask(
        "four rooms, the third kind",
        _read("mo_gymnasium:four-room-v0", lambda o, a, p, r, end: (r[0] + r[1], r[2])),
        200,
        0.5,
    ),
    SafeTask(
        "FrozenLake 4x4, holes",
        _read("FrozenLake-v1", lambda o, a, p, r, end: (r, end and r == 0)),
        100,
        0.2,
    ),
    SafeTask("two queues, power", _queues, 200, 80.0),
)
# A budget so tight that standing still is the easy answer.
TIGHT = (SafeTask("LavaGapS5, lava at most 0.5%", _LAVA, 100, 0.005, 1_000_000),)
VELOCITY = tuple(
    _velocity(body, limit)
    for body, limit in (
        ("Hopper", 0.7402),
        ("HalfCheetah", 3.2096),
        ("Swimmer", 0.2282),
        ("Walker2d", 2.3415),
        ("Ant", 2.6222),
    )
)


@dataclass(frozen=True)
class ConcaveTask:
    """A problem over a table, whose optimum is known, or over an environment.

    Attributes:
        name: for the table and for the file of results.
        problem: makes it.
        steps: of the simulator.
        origin: the policy that gaps are measured from, where the uniform one is worth nothing.
    """

    name: str
    problem: Callable[[], cm.Problem]
    steps: int
    origin: Any = None


def explored_grid() -> cm.Problem:
    """Entropy on an 8x8 grid, hazards at most 2% of the time."""
    mdp = cm.gridworld(8, slip=0.1, discount=0.95, hazards=[18, 27, 36, 45])
    hazard = cm.linear("hazard", per="step") <= 0.02
    return cm.Problem(mdp, maximize=cm.entropy(), subject_to={"hazard": hazard})


def imitation() -> cm.Problem:
    """Cliff walking: near the demonstrator, but for his trips along the edge."""
    mdp = cm.from_gymnasium_table(
        cliff_walking.NAME, cliff_walking.DISCOUNT, signals=cliff_walking.SIGNALS
    )
    seen = cm.occupancy_of(mdp, cliff_walking.demonstrator())
    return cm.Problem(mdp, minimize=cm.distance(seen, norm="l2"), subject_to=cliff_walking.BUDGETS)


def lake() -> cm.Problem:
    """Frozen lake: reach the goal, fall seldom."""
    mdp = frozen_lake.model()
    return cm.Problem(mdp, maximize=frozen_lake.OBJECTIVE, subject_to=frozen_lake.BUDGETS)


def near_the_expert() -> cm.Problem:
    """Mountain car: reach the flag near a driver who knows the way."""
    recorded, _ = mountain_car.record(0)
    near = cm.distance(recorded, norm="l2") <= mountain_car.NEAR
    road = mountain_car.road(8)
    return cm.Problem(road, maximize=cm.linear("flag"), subject_to={"near": near})


def budgeted_grid() -> cm.Problem:
    """The paper's first example on 8x8 with its hazards in a budget instead of a barrier."""
    hazard = cm.linear("hazard") <= 1.0
    return cm.Problem(reference_grid(), maximize=cm.linear("reward"), subject_to={"hazard": hazard})


CONCAVE = (
    ConcaveTask(
        "two queues, log_sum, three budgets",
        lambda: two_queues.problem(two_queues.table()),
        1_000_000,
    ),
    ConcaveTask("entropy on an 8x8 grid", explored_grid, 500_000),
)
WORKED = (
    ConcaveTask("cliff walking, imitation in l2", imitation, 300_000),
    ConcaveTask(
        "taxi, proportional fairness", lambda: taxi.problems(taxi.model())["proportional"], 300_000
    ),
    ConcaveTask(
        "inventory, fairness with promises",
        lambda: inventory.problems(inventory.model())["fairness, promises"],
        300_000,
    ),
    ConcaveTask("frozen lake, falls", lake, 300_000),
    ConcaveTask(
        "cart pole, see much", lambda: cart_pole.explore(cart_pole.sources(64)["JAX"]), 300_000
    ),
    ConcaveTask("mountain car, near the expert", near_the_expert, 300_000),
)
PAPER = (
    *(
        ConcaveTask(
            f"{example.name}, {example.instance}",
            partial(getattr, example, "problem"),
            300_000,
            example.start,
        )
        for example in examples()
    ),
    ConcaveTask("1 with a budget, 8x8", budgeted_grid, 300_000),
)
