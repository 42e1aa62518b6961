"""The paper's numerical experiment: reach the goal while tracking a reference trajectory.

An n x n grid without slip, start upper left, goal lower right. Every step pays -0.2; the step that
enters the goal pays +100 instead and ends the episode. The constraint keeps the occupancy near the
expert's, whose trajectory is one of two per grid size (``data/trajectories.json``, read off the
authors' published code). The paper's eq. (exp_tracking) prints g = |x - x_e| <= d_0; as a constraint
g >= 0 it is d_0 - |x - x_e| >= 0. The paper's text uses the norm, the authors' published runs half
its square; both are available.
"""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from cvxmdp.atoms import distance, linear
from cvxmdp.base.errors import ProblemError, did_you_mean
from cvxmdp.models import TabularMDP, gridworld
from cvxmdp.problems.problem import Problem

INSTANCES = ("8x8-traj1", "8x8-traj2", "20x20-traj1", "20x20-traj2")


@lru_cache(maxsize=1)
def _published() -> dict[str, Any]:
    text = files("cvxmdp.paper").joinpath("data", "trajectories.json").read_text("utf-8")
    return dict(json.loads(text)["instances"])


def _instance(name: str) -> dict[str, Any]:
    if name not in INSTANCES:
        raise ProblemError(f"unknown instance {name!r}. {did_you_mean(name, INSTANCES)}")
    return dict(_published()[name])


def tracking_model(instance: str) -> TabularMDP:
    """The grid of an instance, with the signals "reward" and "hazard" (nowhere)."""
    described = _instance(instance)
    size = described["size"]
    paid: dict[str, Any] = {"goal_reward": 100.0, "step_reward": -0.2}
    return gridworld(size, discount=described["discount"], goal=size * size - 1, **paid)


def expert_trajectory(instance: str) -> list[tuple[int, int]]:
    """The reference trajectory: pairs of state and action; the step after the last enters the goal."""
    return [(int(state), int(action)) for state, action in _instance(instance)["expert"]]


def expert_occupancy(instance: str) -> np.ndarray:
    """The discounted occupancy of the reference trajectory, shape (S, A)."""
    described = _instance(instance)
    occupancy = np.zeros((described["size"] ** 2, 4))
    for step, (state, action) in enumerate(described["expert"]):
        occupancy[state, action] += described["discount"] ** step
    return occupancy


def tracking_problem(instance: str, *, budget: float = 0.01, norm: str = "half-squared") -> Problem:
    """Maximise the return while staying near the expert, the paper's eq. (exp_tracking).

    Args:
        instance: one of ``INSTANCES``.
        budget: d_0.
        norm: "half-squared" as in the published runs, or "l2" as in the paper's text.
    """
    if norm not in ("half-squared", "l2"):
        raise ProblemError(f'norm must be "half-squared" or "l2"; got {norm!r}')
    expert = expert_occupancy(instance)
    near = (
        distance(expert, norm="l2") if norm == "l2" else 0.5 * distance(expert, norm="l2-squared")
    )
    return Problem(
        tracking_model(instance),
        maximize=linear("reward"),
        subject_to={"near the expert": near <= budget},
    )
