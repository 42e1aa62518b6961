"""ActorCritic with no settings: what it learns on tasks of several kinds, one table.

    python benchmarks/learners.py [--seeds 5] [--only WORDS ...] [--share 1.0]

Every task is learned by ``ActorCritic(steps)`` alone. Where there is a table, answers are evaluated exactly;
the distance to the optimum is in % of the range between it and the uniform policy; elsewhere by fresh episodes.
*Over* is the largest excess of a budget, in % of it. *Said* counts the words of the answers, for all
constraints and seeds. ``--share`` shortens all runs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import cvxmdp as cm
from hardware import hardware

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import two_queues


@dataclass(frozen=True)
class LearnerTask:
    """What is learned.

    Attributes:
        name: for the table.
        steps: of the simulator.
        problem: makes it.
        exact: the same problem over a table that is solved; None where there is none.
    """

    name: str
    steps: int
    problem: Callable[[], cm.Problem]
    exact: bool = False


def queues() -> cm.Problem:
    """Fair throughput under three budgets, played as a table."""
    return two_queues.problem(two_queues.table())


def explored_grid() -> cm.Problem:
    """Entropy on an 8x8 grid, hazards at most 2% of the time."""
    mdp = cm.gridworld(8, slip=0.1, discount=0.95, hazards=[18, 27, 36, 45])
    return cm.Problem(
        mdp, maximize=cm.entropy(), subject_to={"hazard": cm.linear("hazard", per="step") <= 0.02}
    )


def lava(budget: float) -> Callable[[], cm.Problem]:
    """MiniGrid's LavaGapS5: reach the goal, seldom by lava."""

    def make() -> Any:
        from minigrid.wrappers import ImgObsWrapper  # an optional package

        return ImgObsWrapper(gymnasium.make("MiniGrid-LavaGapS5-v0"))

    def problem() -> cm.Problem:
        told = {"lava": lambda o, a, p, r, end: float(end and r == 0)}
        env = cm.GymnasiumEnv(make, discount=1.0, horizon=100, signals=told, n_envs=8)
        return cm.Problem(
            env, maximize=cm.linear("reward"), subject_to={"lava": cm.linear("lava") <= budget}
        )

    return problem


def cart_pole() -> cm.Problem:
    """Balance, at most a fifth of the time left of the middle."""
    told = {"left": lambda o, a, p, r, end: float(p[0] < 0)}
    env = cm.GymnasiumEnv("CartPole-v1", discount=0.99, signals=told)
    return cm.Problem(
        env,
        maximize=cm.linear("reward", per="step"),
        subject_to={"left": cm.linear("left", per="step") <= 0.2},
    )


def acrobot() -> cm.Problem:
    """Swing up, with a budget on the torque that is spent."""
    told = {"torque": lambda o, a, p, r, end: float(a != 1)}
    env = cm.GymnasiumEnv("Acrobot-v1", discount=0.99, signals=told)
    return cm.Problem(
        env,
        maximize=cm.linear("reward"),
        subject_to={"torque": cm.linear("torque", per="step") <= 0.3},
    )


def treasure() -> cm.Problem:
    """MO-Gymnasium's deep sea treasure: the treasure, in few steps."""
    env = cm.GymnasiumEnv(
        "mo_gymnasium:deep-sea-treasure-v0", discount=0.98, rewards=("treasure", "time"), n_envs=8
    )
    return cm.Problem(
        env, maximize=cm.linear("treasure"), subject_to={"time": cm.linear("time") >= -12.0}
    )


TASKS = (
    LearnerTask("two queues, log_sum, three budgets", 1_000_000, queues, exact=True),
    LearnerTask("entropy on an 8x8 grid", 500_000, explored_grid, exact=True),
    LearnerTask("CartPole, a fifth left of the middle", 100_000, cart_pole),
    LearnerTask("LavaGapS5, lava at most 2%", 100_000, lava(0.02)),
    LearnerTask("Acrobot, a budget of torque", 200_000, acrobot),
    LearnerTask("deep sea treasure, a budget of time", 200_000, treasure),
)


@dataclass(frozen=True)
class Row:
    """One run: objective, excess in % of the budget, and its words."""

    objective: float
    over: float
    said: tuple[str, ...]
    seconds: float


def run(task: LearnerTask, seed: int, share: float) -> Row:
    """Learn once and look at what came of it."""
    problem, started = task.problem(), time.process_time()
    solver = cm.ActorCritic(max(1_000, int(share * task.steps)))
    found = cm.solve(problem, solver, seed=seed, progress=False)
    seconds = time.process_time() - started
    over = [
        max(0.0, -slack) / max(abs(problem.budgets[name]), 1e-12)
        for name, slack in found.slack.items()
    ]
    return Row(found.objective, 100 * max(over), tuple(found.constraint_status.values()), seconds)


def interval(values: np.ndarray) -> str:
    """Mean and the half width of its 95% interval."""
    if values.size < 2:
        return f"{values[0]:.4g}"
    half = 1.96 * values.std(ddof=1) / np.sqrt(values.size)
    return f"{values.mean():.4g} ± {half:.2g}"


def line(task: LearnerTask, rows: list[Row]) -> str:
    """A line of the table."""
    values, gap = np.array([row.objective for row in rows]), ""
    if task.exact:
        problem = task.problem()
        best = cm.solve(problem).objective
        base = problem.evaluate(cm.uniform_policy(problem.mdp)).objective
        gaps = 100 * (best - values) / (best - base)
        gap = f"{interval(gaps)}, worst {gaps.max():.2g}"
    words = Counter(word for row in rows for word in row.said)
    said = ", ".join(f"{count} {word}" for word, count in sorted(words.items()))
    cells = [
        task.name,
        f"{task.steps:,}",
        str(len(rows)),
        interval(values),
        gap,
        f"{np.mean([row.over for row in rows]):.2g}, worst {max(row.over for row in rows):.2g}",
        said,
        f"{np.mean([row.seconds for row in rows]):.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--only", nargs="*", default=[], help="tasks whose name has one of these words"
    )
    parser.add_argument("--share", type=float, default=1.0, help="of the steps")
    arguments = parser.parse_args()
    print(hardware())
    print(
        "| task | steps | seeds | objective | gap, % of the range | over, % of a budget | said | CPU s |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for task in TASKS:
        if arguments.only and not any(word in task.name for word in arguments.only):
            continue
        print(
            line(task, [run(task, seed, arguments.share) for seed in range(arguments.seeds)]),
            flush=True,
        )


if __name__ == "__main__":
    main()
