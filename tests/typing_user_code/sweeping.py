"""Seeds, steps and budgets in one call, and what comes of it."""

from pathlib import Path

import cvxmdp as cm

problem = cm.Problem(
    cm.gridworld(5, hazards=[7]),
    maximize=cm.entropy(),
    subject_to={"hazard": cm.linear("hazard", per="step") <= 0.02},
)
solver = cm.VRPDPG(
    iterations=100,
    primal_step=0.1,
    dual_step={"hazard": 0.1},
    momentum="square root",
    horizon=20,
    policy=cm.MLP(16),
)
runs = cm.sweep(
    problem,
    solver,
    over={"momentum": [0.1, 1.0], "budget/hazard": [0.02, 0.05]},
    seeds=range(4),
    folder=Path("sweep"),
)
for run in runs:
    print(run.seed, run.settings, run.solution.objective)
chosen = runs.best(tolerance=0.01)
page: Path = cm.report(runs, "report.html", title="A sweep")
