"""The main job in one go: what `make demo` runs."""

from __future__ import annotations

from pathlib import Path

import cvxmdp as cm
import safe_exploration
from cvxmdp.base.text_tables import text_table
from cvxmdp.paper import tracking_problem
from cvxmdp.paper.reproduce import reproduce

OUT = Path("out") / "demo"


def heading(text: str) -> None:
    print(f"\n{text}\n{'=' * len(text)}")


def show(solution: cm.Solution) -> None:
    """A solution, and the proof of how good it is."""
    print(solution)
    print("\nCertificate\n-----------")
    print(cm.certify(solution.problem, solution))


def main() -> None:
    heading("The paper's 8x8 tracking problem: reach the goal, stay near the expert")
    problem = tracking_problem("8x8-traj2", budget=0.01)
    solution = cm.solve(problem)
    show(solution)
    print("\nThe policy, where it goes:\n")
    print(problem.mdp.render(solution.policy))

    heading("Safe exploration: see as much as possible, spend little time in hazards")
    problem = safe_exploration.problem(budget=0.05)
    solution = cm.solve(problem)
    show(solution)
    print("\nThe grid (S start, ! hazard) and the policy's likeliest moves:\n")
    print(problem.mdp.render(solution.policy))

    heading("Learning it from samples: the paper's 8x8 experiment in short (about half a minute)")
    found = reproduce("8x8", OUT, quick=True)
    header, rows = found.table
    print(
        "Recommended settings: return (97.4 is the best possible) / tracking error by iterations\n"
    )
    print("\n".join(text_table(header, [row for row in rows if row[1].startswith("ours")])))
    print("\nA finding: the steps that the paper prints, its baselines, and what it published\n")
    print("\n".join(text_table(header, [row for row in rows if not row[1].startswith("ours")])))
    print("\nAll of it, in full: make reproduce. What it says: docs/results/experiments.md")
    print(f"The report, to open in a browser: {found.reports[0]}")


if __name__ == "__main__":
    main()
