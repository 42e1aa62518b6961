"""Solutions: tables and pictures for every status, the choice of a solver, and wrong arguments."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.base.errors import CvxmdpError, MissingExtraError, ProblemError, SolverError
from test_convex_program import ending_model

MDP = cm.garnet(6, 3, 3, seed=0, discount=0.9)


def exploration(mdp: cm.TabularMDP = MDP, name: str = "cost") -> cm.Problem:
    budget = cm.linear("cost", per="step") <= 0.6
    return cm.Problem(mdp, maximize=cm.entropy(), subject_to={name: budget})


def solution_with(status: cm.Status, problem: cm.Problem) -> cm.Solution:
    if not status.has_policy:
        return cm.Solution.without_policy(problem, status)
    multipliers = dict.fromkeys(problem.constraints, 0.5)
    return cm.Solution.of_policy(problem, cm.uniform_policy(problem.mdp), status, multipliers)


# Tables


@pytest.mark.parametrize("status", cm.Status, ids=lambda status: status.name)
def test_every_status_can_be_shown(status: cm.Status) -> None:
    solution = solution_with(status, exploration())
    text, html = str(solution), solution._repr_html_()
    for shown in (text, html):
        assert status.value in shown
        assert "entropy()" in shown
        assert "nan" not in shown
    assert status.name.lower() in repr(solution)
    assert text.startswith(status.name.capitalize().replace("_", " "))


@pytest.mark.parametrize(
    "solver", [cm.ConvexProgram(), cm.PDPG(), cm.ColumnGeneration()], ids=lambda s: type(s).__name__
)
@pytest.mark.parametrize(
    "objective", [cm.linear("hazard"), -cm.entropy()], ids=["linear", "convex"]
)
def test_an_infeasible_solution_says_what_to_ask_next(
    solver: object, objective: cm.Utility
) -> None:
    mdp = cm.gridworld(3, slip=0.2, hazards=[4])
    never = {"hazard": cm.linear("hazard") <= -0.1}
    solution = cm.solve(cm.Problem(mdp, minimize=objective, subject_to=never), solver)
    assert solution.status is cm.Status.INFEASIBLE
    text = str(solution)
    assert text.count("Infeasible") == 1
    assert "no policy satisfies" in text.lower()
    # Either the conflict itself, or where to find it.
    assert "slack of 'hazard' is at most" in text or "cm.slater(problem)" in text
    assert "cm.certify(problem, solution)" in text
    assert "cm.certify(problem, solution)" in solution._repr_html_()
    assert f"{objective!r} = -\n" in text
    assert "inf" not in text.replace("Infeasible", "")


def test_the_table_reads_as_it_should() -> None:
    # discount 0.8; quit at least 0.4: see test_a_problem_with_termination. One episode: the policy
    # works with probability 1 / 1.4 and then goes on with 1/2: 1 / (1 - 0.5 / 1.4) = 14/9 steps, and
    # quits in 0.4 / 1.4 of them, 4/9.
    constraint = cm.linear("quit") >= 0.4
    problem = cm.Problem(
        ending_model(), maximize=cm.linear("work"), subject_to={"quit enough": constraint}
    )
    lines = str(cm.solve(problem)).splitlines()
    assert lines[0] == "Optimal: The certified relative gap is at most 1e-12."
    assert lines[2] == 'maximize linear("work") = 1'
    assert lines[3] == "2 of 2 rows end episodes (0.5 to 1)."
    assert lines[5].split() == ["constraint", "requires", "value", "slack", "multiplier"]
    assert lines[6].startswith('quit enough  linear("quit") >= 0.4    0.4')
    assert lines[6].endswith("1.666667")
    assert lines[7] == (
        "  discounted sum 0.4 (budget 0.4); per step 0.08 (budget 0.08) of 5 steps, of which 1.4 are taken: "
        f"share of the steps taken {0.4 / 1.4:.7g}; "
        f"undiscounted per episode {4 / 9:.7g}"
    )
    assert "chosen because the model is known" in lines[-1]


def test_budgets_per_step_are_shown_in_both_units() -> None:
    solution = cm.solve(exploration(MDP.replace(discount=0.75)))
    units = next(line for line in str(solution).splitlines() if "discounted sum" in line)
    assert "(budget 2.4)" in units
    assert "(budget 0.6)" in units
    total = float(np.vdot(MDP.signal("cost"), solution.occupancy))
    assert f"discounted sum {total:.7g}" in units
    assert f"per step {0.25 * total:.7g}" in units
    assert "per episode" not in units  # these never end


def test_no_undiscounted_sum_where_episodes_may_go_on_forever() -> None:
    # State 0 can end or go to state 1, which never ends.
    transition = np.zeros((2, 2, 2))
    transition[0, 1, 1] = transition[1, :, 1] = 1.0
    mdp = cm.TabularMDP(transition, 0, 0.9, signals={"cost": np.ones((2, 2))})
    stay = cm.Problem(
        mdp, maximize=cm.linear("cost"), subject_to={"cost": cm.linear("cost") <= 20.0}
    )
    leave = cm.Problem(
        mdp, minimize=cm.linear("cost"), subject_to={"cost": cm.linear("cost") <= 20.0}
    )
    assert "undiscounted" not in str(cm.solve(stay))
    assert "undiscounted per episode 1" in str(cm.solve(leave))


@pytest.mark.parametrize(
    "constraint",
    [
        cm.entropy() >= 0.1,
        cm.linear("cost") + 1.0 <= 20.0,
        cm.linear("cost") + cm.linear("reward", per="step") <= 20.0,
        0 * cm.linear("cost") <= 1.0,
        cm.linear("cost") - cm.entropy() <= 20.0,
    ],
    ids=["entropy", "constant added", "mixed units", "constant", "sum with entropy"],
)
def test_constraints_without_a_common_unit_have_no_line_for_it(constraint: cm.Constraint) -> None:
    problem = cm.Problem(MDP, maximize=cm.linear("reward"), subject_to={"c": constraint})
    assert "discounted sum" not in str(cm.solve(problem))


def test_a_problem_without_constraints_has_no_table() -> None:
    solution = cm.solve(cm.Problem(MDP, maximize=cm.linear("reward")))
    assert "constraint" not in str(solution)
    assert "<table>" not in solution._repr_html_()


def test_html_escapes_what_users_write() -> None:
    mdp = MDP.with_signals(**{"<i>": np.ones(6)})
    problem = cm.Problem(
        mdp,
        maximize=cm.linear("<i>") + cm.entropy(),
        subject_to={"<b>bold</b> & co": cm.linear("<i>") <= 100.0},
    )
    html = cm.solve(problem)._repr_html_()
    assert "<b>bold" not in html
    assert "<i>" not in html
    assert "&lt;b&gt;bold&lt;/b&gt; &amp; co" in html
    assert html.count("<td>") >= 5


def test_solutions_travel_to_other_processes() -> None:
    solution = cm.solve(exploration())
    other = pickle.loads(pickle.dumps(solution))
    assert str(other) == str(solution)
    assert (other.occupancy == solution.occupancy).all()


def test_violation_is_the_negative_part_of_slack() -> None:
    problem = exploration().with_budget("cost", 0.1)
    solution = solution_with(cm.Status.ITERATION_LIMIT, problem)
    assert solution.slack["cost"] < 0
    assert solution.violation == {"cost": -solution.slack["cost"]}


# Pictures


@pytest.fixture
def goal_grid() -> cm.TabularMDP:
    grid = cm.gridworld(4, discount=0.9, goal=15, walls=[5], hazards=[9])
    return grid.with_signals(cost=grid.signal("hazard"))


@pytest.mark.parametrize("model", ["grid", "no grid", "one state"])
def test_plot_writes_a_file_and_returns_the_figure(
    model: str, goal_grid: cm.TabularMDP, tmp_path: object
) -> None:
    one_state = cm.TabularMDP(np.ones((1, 1, 1)), 0, 0.5, signals={"cost": [0.1]})
    mdp = {"grid": goal_grid, "no grid": MDP, "one state": one_state}[model]
    path = tmp_path / "solution.png"
    figure = cm.solve(exploration(mdp)).plot(path)
    assert path.read_bytes().startswith(b"\x89PNG")
    titles = [axes.get_title() for axes in figure.axes]
    assert any("entropy()" in title for title in titles)
    assert "budgets used, as a share of each" in titles


def test_arrows_lie_on_visited_cells_of_the_grid_only(goal_grid: cm.TabularMDP) -> None:
    from matplotlib.quiver import Quiver

    solution = cm.solve(cm.Problem(goal_grid, maximize=cm.linear("reward")))
    figure = solution.plot()
    arrows = [part for part in figure.axes[0].get_children() if isinstance(part, Quiver)]
    drawn = {(int(y), int(x)) for arrow in arrows for x, y in arrow.XY}
    visited = np.flatnonzero(solution.occupancy.sum(axis=1) > 1e-6)
    assert drawn == {divmod(int(state), 4) for state in visited}


@pytest.mark.parametrize(
    ("cells", "named"),
    [
        ({"hazards": [5], "walls": [6], "goal": 11}, ["start", "goal", "hazard", "wall"]),
        ({}, ["start"]),
    ],
)
def test_the_marks_of_a_grid_are_explained_below_it(cells: dict, named: list[str]) -> None:
    mdp = cm.gridworld((3, 4), slip=0.1, **cells)
    figure = cm.solve(cm.Problem(mdp, maximize=cm.entropy())).plot()
    figure.draw_without_rendering()
    axes = figure.axes[0]
    legend = axes.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == [*named, "policy (longer: likelier)"]
    shown, grid = legend.get_window_extent(), axes.patch.get_window_extent()
    assert shown.y1 <= grid.y0
    assert figure.bbox.containsx(shown.x0)
    assert figure.bbox.containsx(shown.x1)


def test_names_with_dollars_are_not_formulas(tmp_path: object) -> None:
    mdp = MDP.with_signals(**{"$x^$": np.ones(6)})
    problem = cm.Problem(
        mdp,
        maximize=cm.linear("$x^$"),
        subject_to={"in $ per hour, not $ per day_{": cm.linear("$x^$") <= 100.0},
    )
    cm.solve(problem).plot(tmp_path / "dollars.png")
    assert (tmp_path / "dollars.png").stat().st_size > 1000


def test_an_infinite_slack_can_be_drawn(tmp_path: object) -> None:
    barrier = cm.log_barrier(cm.linear("cost") <= 0.01) >= -5.0
    problem = cm.Problem(MDP, maximize=cm.entropy(), subject_to={"barrier": barrier})
    solution = solution_with(cm.Status.INACCURATE, problem)
    assert solution.slack["barrier"] == -math.inf
    solution.plot(tmp_path / "infinite.png")
    assert "-inf" in str(solution)


def test_nothing_to_plot_is_an_error() -> None:
    with pytest.raises(CvxmdpError, match=r"nothing to plot: No policy satisfies"):
        solution_with(cm.Status.INFEASIBLE, exploration()).plot()


def test_missing_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"cvxmdp\[report\]"):
        solution_with(cm.Status.OPTIMAL, exploration()).plot()


# solve()


def test_the_choice_of_a_solver_is_told() -> None:
    chosen = cm.solve(exploration())
    assert "ConvexProgram" in chosen.stats["solver"]
    assert "the model is known" in chosen.stats["chosen"]
    assert "chosen because the model is known" in str(chosen)
    given_solver = cm.solve(exploration(), cm.ConvexProgram())
    assert "chosen" not in given_solver.stats
    assert given_solver.objective == chosen.objective


@pytest.mark.parametrize("solver", ["ConvexProgram", 3, len], ids=["name", "number", "function"])
def test_a_solver_is_a_solver_object(solver: object) -> None:
    with pytest.raises(SolverError, match=r"solver object such as ConvexProgram\(\); got"):
        cm.solve(exploration(), solver)


def test_a_class_in_place_of_a_solver_object() -> None:
    with pytest.raises(SolverError, match=r"write ConvexProgram\(\)"):
        cm.solve(exploration(), cm.ConvexProgram)


def test_solve_takes_a_problem() -> None:
    with pytest.raises(ProblemError, match="solve takes a Problem; got TabularMDP"):
        cm.solve(MDP)
