"""One file of each kind as this version writes it, for later ones to read: ``python tests/files/keep.py``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

import cvxmdp as cm

PROBLEM = """\
maximize = "entropy()"

[model]
kind = "gridworld"
size = 3
slip = 0.1
discount = 0.9
hazards = [4]

[subject_to]
hazard = 'linear("hazard", per="step") <= 0.05'
"""
SWEEP = """\
problem = "problem.toml"
seeds = 1

[solver]
name = "PDPG"
iterations = 5

[over]
"budget/hazard" = [0.05, 0.1]
"""


def walk() -> cm.TabularMDP:
    """A log of two states, counted."""
    random = np.random.default_rng(0)
    state, action = random.integers(0, 2, 400), random.integers(0, 2, 400)
    after = np.where(random.random(400) < 0.3 + 0.4 * action, 1 - state, state)
    log = {"state": state, "action": action, "next_state": after, "moved": 1.0 * (after != state)}
    return cm.from_transitions(
        {**log, "terminated": np.zeros(400, bool)},
        discount=0.9,
        initial=0,
        bounds={"moved": (0, 1)},
    )


def write(folder: Path) -> None:
    """Everything, into ``folder``."""
    grid = cm.gridworld(3, slip=0.1, discount=0.9, hazards=[4])
    budget = {"hazard": cm.linear("hazard", per="step") <= 0.05}
    problem = cm.Problem(grid, maximize=cm.entropy(), subject_to=budget)
    solution = cm.solve(problem)
    never = cm.Problem(
        grid,
        maximize=cm.entropy(),
        subject_to={"hazard": cm.linear("hazard", per="step") >= 1.0},
    )
    finite = cm.Problem(
        cm.gridworld(3, slip=0.1, goal=8, horizon=5),
        maximize=cm.linear("reward"),
    )
    counted = cm.Problem(walk(), maximize=cm.linear("moved"))
    network = cm.solve(problem, cm.PDPG(iterations=5, policy=cm.MLP(8), iterate="last"), seed=0)

    folder.mkdir(parents=True)
    grid.save(folder / "model.safetensors")
    counted.mdp.save(folder / "counted.safetensors")
    solution.policy.save(folder / "policy.safetensors")
    network.policy.save(folder / "network.safetensors")
    cm.solve(finite).policy.save(folder / "timed.safetensors")
    problem.save(folder / "problem")
    solution.save(folder / "solution")
    for name, case in {"optimal": problem, "infeasible": never, "counted": counted}.items():
        cm.certify(case, cm.solve(case)).save(folder / f"certificate-{name}.json")
    cm.evaluate(solution.policy, problem=problem, episodes=20, seed=0).save(
        folder / "evaluation.json"
    )
    (folder / "problem.toml").write_text(PROBLEM, "utf-8")
    (folder / "sweep.toml").write_text(SWEEP, "utf-8")
    for command in (["solve", "problem.toml", "-o", "run"], ["sweep", "sweep.toml", "-o", "sweep"]):
        subprocess.run([sys.executable, "-m", "cvxmdp", *command], cwd=folder, check=True)


if __name__ == "__main__":
    write(Path(__file__).parent / cm.__version__)
