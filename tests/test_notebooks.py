"""What notebooks and terminals show of results: text in full, pictures by themselves, no pages of numbers."""

from __future__ import annotations

import numpy as np
import pytest

import cvxmdp as cm

PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def problem() -> cm.Problem:
    mdp = cm.gridworld(4, slip=0.1, goal=15, hazards=[5, 6])
    limit = cm.linear("hazard", per="step") <= 0.02
    return cm.Problem(mdp, maximize=cm.entropy(), subject_to={"hazard": limit})


@pytest.fixture(scope="module")
def solution(problem: cm.Problem) -> cm.Solution:
    return cm.solve(problem)


def results(problem: cm.Problem, solution: cm.Solution) -> dict[str, object]:
    certificate = cm.certify(problem, solution)
    return {
        "problem": problem,
        "solution": solution,
        "evaluation": problem.evaluate(solution),
        "episodes": cm.evaluate(solution, problem.mdp, 20, seed=0),
        "certificate": certificate,
        "check": cm.check(certificate, problem),
        "slater": cm.slater(problem),
        "frontier": cm.frontier(problem, "hazard", n=3),
        "nearest": cm.solve(problem.with_budget("hazard", -1.0)).nearest,
        "policy": solution.policy,
        "deterministic": cm.deterministic(problem),
        "sensitivity": solution.gradient("budget/hazard"),
        "probed": cm.check_utility(problem.utility, problem.mdp),
    }


def test_every_result_is_shown(problem: cm.Problem, solution: cm.Solution) -> None:
    for name, result in results(problem, solution).items():
        html = result._repr_html_()
        assert html.startswith("<"), name
        assert "array(" not in html, name
        assert "<script" not in html, name


def test_nothing_prints_pages_of_numbers(problem: cm.Problem, solution: cm.Solution) -> None:
    large = {**solution.stats, "kept": np.zeros((40, 40)), "parts": [np.zeros(99)] * 3}
    shown = cm.Solution(
        problem,
        solution.status,
        solution.objective,
        solution.slack,
        solution.multipliers,
        solution.policy,
        solution.occupancy,
        history={"objective": np.arange(1000.0), "slack": {"hazard": np.zeros(1000)}},
        stats=large,
    )
    for text in (
        repr(shown.stats),
        str(shown.history),
        repr(problem.evaluate(solution)),
        repr(cm.evaluate(solution, problem.mdp, 20, seed=0)),
    ):
        assert "array([" not in text
        assert len(text) < 2000
    assert "<array of shape (40, 40)>" in repr(shown.stats)
    assert shown.stats["kept"].shape == (40, 40)


def test_names_are_no_markup(problem: cm.Problem) -> None:
    hostile = {"<b>": cm.linear("hazard") <= 0.0001, "x": cm.entropy() >= 2.5}
    other = cm.Problem(problem.mdp, maximize=cm.linear("reward"), subject_to=hostile)
    assert "<b>" not in other._repr_html_()


def test_a_grid_with_a_horizon_has_a_picture() -> None:
    grid = cm.gridworld(3, slip=0.1, horizon=4, goal=8)
    figure = cm.solve(cm.Problem(grid, maximize=cm.linear("reward"))).plot()
    (colours,) = [axes for axes in figure.axes if axes.get_ylabel()]
    assert colours.get_ylabel() == "share of time"
    assert any(type(child).__name__ == "Quiver" for child in figure.axes[0].get_children())


def test_pictures_show_themselves(problem: cm.Problem, solution: cm.Solution) -> None:
    pytest.importorskip("matplotlib")
    for picture in (solution.plot(), cm.frontier(problem, "hazard", [0.01, 0.02]).plot()):
        assert picture._repr_png_().startswith(PNG)


def test_a_budget_that_is_used_up_has_a_bar(solution: cm.Solution) -> None:
    pytest.importorskip("matplotlib")
    figure = solution.plot()
    (bars,) = [axes for axes in figure.axes if "budgets" in axes.get_title()]
    (bar,) = bars.patches
    assert bar.get_width() == pytest.approx(1.0, abs=1e-6)
    # No half of the picture is empty: the bars take what they need, below the grid.
    figure.draw_without_rendering()
    below, grid = bars.get_window_extent(), figure.axes[0].get_window_extent()
    assert below.y1 <= grid.y0
    assert below.height < 0.35 * figure.bbox.height
