"""Through the gap in the lava: a MiniGrid world learned with a budget on falling in, and nothing to set.

The agent sees the 7 by 7 cells in front of it. The objective is the (discounted) chance of reaching the goal;
the chance of stepping into lava is to stay below 2%.

    python examples/lava_gap.py [steps]
"""

from __future__ import annotations

import sys

import gymnasium
import minigrid.wrappers

import cvxmdp as cm

STEPS, DISCOUNT, BUDGET, JUDGES = 100_000, 0.99, 0.02, 1_000


def lava_gap() -> gymnasium.Env:
    """What is seen, as one row of numbers; the mission, which is a text, is left out."""
    env = minigrid.wrappers.ImgObsWrapper(gymnasium.make("MiniGrid-LavaGapS5-v0"))
    return gymnasium.wrappers.FlattenObservation(env)


def goal(before, action, after, reward: float, ended: bool) -> float:
    """Whether the step reached the goal."""
    return float(ended and reward > 0)


def lava(before, action, after, reward: float, ended: bool) -> float:
    """Whether it ended in the lava."""
    return float(ended and reward <= 0)


def run(steps: int = STEPS, seed: int = 0) -> tuple[cm.Solution, cm.PolicyEvaluation]:
    """Learn, then judge the policy by fresh episodes."""
    signals = {"goal": goal, "lava": lava}
    with cm.GymnasiumEnv(lava_gap, DISCOUNT, n_envs=8, signals=signals) as env:
        budget = {"lava": cm.linear("lava") <= BUDGET}
        problem = cm.Problem(env, maximize=cm.linear("goal"), subject_to=budget)
        found = cm.solve(problem, seed=seed, steps=steps)
        once = {"goal": (0.0, 1.0), "lava": (0.0, 1.0)}
        judged = cm.evaluate(
            found, env, JUDGES, seed=seed + 1, bounds=once, return_bounds=once, episode_limit=100
        )
    return found, judged


if __name__ == "__main__":
    for said in run(int(sys.argv[1]) if len(sys.argv) > 1 else STEPS):
        print(said, end="\n\n")
