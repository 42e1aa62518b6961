"""Column generation: the same answers as the convex program, certified; what it does with bad input."""

import io
import math
import signal
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.algorithms.columns import generation, interior_point
from cvxmdp.base.errors import SolverError
from cvxmdp.base.progress import Progress
from cvxmdp.certificates import evidence as search
from cvxmdp.certificates.claims import Claims
from cvxmdp.runs.run import Run
from cvxmdp.solvers.choice import choose_solver
from cvxmdp.solvers.contract import Task


def budgets(mdp: cm.TabularMDP, budget: float, names: tuple[str, ...]) -> dict[str, cm.Constraint]:
    return {name: cm.linear(name, per="step") <= budget for name in names}


def garnet_problem(budget: float = 0.4, n_states: int = 80, **settings: float) -> cm.Problem:
    names = ("a", "b", "c")
    mdp = cm.garnet(n_states, 4, 4, seed=7, signals=("reward", *names), **settings)
    return cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=budgets(mdp, budget, names))


def masked_problem() -> cm.Problem:
    mdp = cm.garnet(60, 4, 3, seed=9, ending=0.1, discount=0.97)
    actions = np.random.default_rng(0).random(mdp.actions.shape) < 0.6
    actions[:, 1] = True
    mdp = mdp.replace(actions=actions)
    return cm.Problem(
        mdp, minimize=cm.linear("cost"), subject_to={"reward": cm.linear("reward") >= 4.5}
    )


def goal_problem() -> cm.Problem:
    mdp = cm.gridworld(6, slip=0.1, discount=0.98, goal=35, hazards=[14, 15, 21])
    return cm.Problem(
        mdp, maximize=cm.linear("reward"), subject_to={"hazard": cm.linear("hazard") <= 0.05}
    )


LINEAR = {
    "three budgets": garnet_problem(),
    "discount near one": garnet_problem(n_states=50, discount=0.999),
    "no constraints": cm.Problem(garnet_problem().mdp, maximize=cm.linear("reward")),
    "slack constraint": garnet_problem(budget=0.9),
    "masked, endings, minimise": masked_problem(),
    "goal": goal_problem(),
}


def check_answer(problem: cm.Problem, solution: cm.Solution, tolerance: float) -> None:
    """The certificate is the solution's, is accepted, and is as tight as was asked."""
    certificate = cm.certify(solution.problem, solution)
    assert solution.status is cm.Status.OPTIMAL, solution.message
    assert certificate.relative_gap <= tolerance
    assert all(slack >= 0 for slack in certificate.slack.values())
    achieved = certificate.lower if problem.sense == "maximize" else certificate.upper
    assert solution.objective == pytest.approx(achieved, rel=1e-6, abs=1e-9)
    assert solution.has_policy
    evaluation = problem.evaluate(solution.policy)
    assert evaluation.objective == pytest.approx(solution.objective, rel=1e-9, abs=1e-9)
    for name, slack in evaluation.slack.items():
        assert slack >= -1e-12 * max(1.0, problem.mdp.max_mass), name


@pytest.mark.parametrize("name", LINEAR)
def test_linear_problems(name: str, tmp_path: object) -> None:
    problem = LINEAR[name]
    solution = cm.solve(problem, cm.ColumnGeneration(tolerance=1e-7))
    check_answer(problem, solution, 1e-7)
    exact = cm.solve(problem, cm.ConvexProgram())
    size = cm.certify(solution.problem, solution).size
    assert solution.objective == pytest.approx(exact.objective, abs=2e-7 * size)
    path = f"{tmp_path}/certificate.json"
    cm.certify(solution.problem, solution).save(path)
    assert cm.check(path, problem)


@cm.concave
def coverage(occupancy: jnp.ndarray) -> jnp.ndarray:
    return jnp.log(occupancy.sum(axis=1) + 1e-2).mean()


def curved() -> dict[str, cm.Problem]:
    """Concave problems on one small grid, with a budget each."""
    mdp = cm.gridworld(5, slip=0.1, discount=0.9, hazards=[7, 11, 17])
    hazard = {"hazard": cm.linear("hazard", per="step") <= 0.05}
    drift = 0.5 * cm.uniform_policy(mdp).probabilities() + 0.5 * np.eye(4)[2]
    target = cm.occupancy_of(mdp, drift)
    corners = [np.eye(25)[state] for state in (4, 20, 24)]
    masked = mdp.replace(actions=np.arange(100).reshape(25, 4) % 7 != 0)
    fair = cm.minimum(*(cm.linear(corner) for corner in corners))
    return {
        "entropy": cm.Problem(mdp, maximize=cm.entropy(), subject_to=hazard),
        "entropy, masked": cm.Problem(masked, maximize=cm.entropy(), subject_to=hazard),
        "entropy and reward, with endings": cm.Problem(
            cm.garnet(40, 3, 3, seed=1, ending=0.1),
            maximize=cm.entropy() + cm.linear("reward", per="step"),
            subject_to={"cost": cm.linear("cost", per="step") <= 0.3},
        ),
        "pairs": cm.Problem(mdp, maximize=cm.entropy(of="state-action"), subject_to=hazard),
        "kl": cm.Problem(mdp, minimize=cm.distance(target, norm="kl"), subject_to=hazard),
        "entropy as a constraint": cm.Problem(
            mdp,
            maximize=cm.linear(corners[2]),
            subject_to={"explore": cm.entropy() >= 2.5, **hazard},
        ),
        "squares": cm.Problem(
            mdp, minimize=cm.distance(target, norm="l2-squared"), subject_to=hazard
        ),
        "l2": cm.Problem(mdp, minimize=cm.distance(target, norm="l2"), subject_to=hazard),
        "near": cm.Problem(
            mdp,
            maximize=cm.linear(corners[2]),
            subject_to={"near": cm.distance(target, norm="l2") <= 0.8, **hazard},
        ),
        "minimum": cm.Problem(mdp, maximize=fair, subject_to=hazard),
        "logarithms": cm.Problem(mdp, maximize=cm.log_sum(*corners), subject_to=hazard),
        "quadratic": cm.Problem(
            mdp,
            maximize=cm.linear(corners[2]) - cm.quadratic(0.1 * np.eye(100)),
            subject_to=hazard,
        ),
        "custom": cm.Problem(mdp, maximize=coverage, subject_to=hazard),
    }


CURVED = curved()


@pytest.mark.parametrize("name", CURVED)
def test_concave_problems(name: str, tmp_path: object) -> None:
    problem = CURVED[name]
    solution = cm.solve(problem, cm.ColumnGeneration(tolerance=2e-2))
    check_answer(problem, solution, 2e-2)
    certificate = cm.certify(solution.problem, solution)
    if name != "custom":
        exact = cm.solve(problem, cm.ConvexProgram()).objective
        assert certificate.lower - 1e-7 <= exact <= certificate.upper + 1e-7
    else:
        assert certificate.assumes
    certificate.save(f"{tmp_path}/certificate.json")
    assert cm.check(f"{tmp_path}/certificate.json", problem)


def test_entropy_to_a_tight_gap() -> None:
    problem = CURVED["entropy and reward, with endings"]
    solution = cm.solve(problem, cm.ColumnGeneration(tolerance=1e-4))
    check_answer(problem, solution, 1e-4)
    exact = cm.solve(problem, cm.ConvexProgram())
    assert solution.multipliers["cost"] == pytest.approx(exact.multipliers["cost"], abs=0.02)


def test_a_concave_problem_that_is_infeasible() -> None:
    mdp = CURVED["entropy"].mdp
    problem = cm.Problem(
        mdp,
        maximize=cm.linear("hazard"),
        subject_to={"explore": cm.entropy() >= math.log(25) + 0.1},
    )
    solution = cm.solve(problem, cm.ColumnGeneration(tolerance=1e-2))
    assert solution.status is cm.Status.INFEASIBLE
    assert cm.certify(solution.problem, solution).conflict == ("explore",)


def test_start_from_pdpg() -> None:
    problem = CURVED["entropy"]
    start = cm.solve(problem, cm.PDPG(iterations=200, tolerance=None))
    solution = cm.solve(problem, cm.ColumnGeneration(tolerance=1e-2), start=start)
    check_answer(problem, solution, 1e-2)
    cold = cm.solve(problem, cm.ColumnGeneration(tolerance=1e-2))
    assert solution.stats["iterations"] <= cold.stats["iterations"]


def test_bounds_only_get_better_and_enclose_the_optimum() -> None:
    problem = LINEAR["three budgets"]
    solution = cm.solve(problem, cm.ColumnGeneration())
    upper, lower = solution.history["upper"], solution.history["lower"]
    exact = cm.solve(problem, cm.ConvexProgram()).objective
    assert len(upper) == solution.stats["iterations"]
    assert (np.diff(upper[np.isfinite(upper)]) <= 0).all()
    assert (np.diff(lower[np.isfinite(lower)]) >= 0).all()
    assert (upper >= exact - 1e-9).all()
    assert (lower <= exact + 1e-9).all()


def test_bounds_of_a_minimisation_are_in_the_users_sign() -> None:
    solution = cm.solve(masked_problem(), cm.ColumnGeneration())
    assert (solution.history["lower"] <= solution.history["upper"]).all()
    assert solution.history["lower"][-1] <= solution.objective + 1e-9


def test_the_mixture_on_request() -> None:
    problem = LINEAR["three budgets"]
    solution = cm.solve(problem, cm.ColumnGeneration(mixture=True))
    weights, policies = zip(*solution.stats["mixture"], strict=True)
    assert sum(weights) == pytest.approx(1.0)
    mixed = sum(w * cm.occupancy_of(problem.mdp, p) for w, p in solution.stats["mixture"])
    np.testing.assert_allclose(mixed, solution.occupancy, atol=1e-7)
    assert len(policies) <= len(problem.constraints) + 1
    assert "mixture" not in cm.solve(problem, cm.ColumnGeneration()).stats


def test_few_columns_are_enough() -> None:
    problem = LINEAR["three budgets"]
    solution = cm.solve(problem, cm.ColumnGeneration(columns=8))
    check_answer(problem, solution, 1e-6)
    assert solution.stats["columns"] <= 8


def test_infeasible_problems_end_with_the_proof(tmp_path: object) -> None:
    problem = garnet_problem(budget=0.02)
    solution = cm.solve(problem, cm.ColumnGeneration())
    assert solution.status is cm.Status.INFEASIBLE
    assert not solution.has_policy
    certificate = cm.certify(solution.problem, solution)
    assert certificate.infeasible
    assert certificate.conflict
    assert "proven" in solution.message
    certificate.save(f"{tmp_path}/proof.json")
    assert cm.check(f"{tmp_path}/proof.json", problem)


def test_constraints_that_contradict_each_other_only_together() -> None:
    mdp = cm.garnet(50, 3, 3, seed=1)
    best = cm.solve(cm.Problem(mdp, maximize=cm.linear("reward"))).objective
    problem = cm.Problem(
        mdp,
        maximize=cm.linear("cost"),
        subject_to={
            "much": cm.linear("reward") >= 0.9 * best,
            "little": cm.linear("reward") <= 0.8 * best,
        },
    )
    solution = cm.solve(problem, cm.ColumnGeneration())
    assert solution.status is cm.Status.INFEASIBLE
    assert set(cm.certify(solution.problem, solution).conflict) == {"much", "little"}


@pytest.mark.parametrize("kind", ["policy", "array", "slater", "solution"])
def test_starts(kind: str) -> None:
    problem = LINEAR["three budgets"]
    start = {
        "policy": lambda: cm.uniform_policy(problem.mdp),
        "array": lambda: cm.uniform_policy(problem.mdp).probabilities(),
        "slater": lambda: cm.slater(problem),
        "solution": lambda: cm.solve(problem, cm.ConvexProgram()),
    }[kind]()
    solution = cm.solve(problem, cm.ColumnGeneration(), start=start)
    check_answer(problem, solution, 1e-6)
    if kind == "solution":  # its policy and multipliers are optimal: next to nothing is left to do
        cold = cm.solve(problem, cm.ColumnGeneration())
        assert solution.stats["oracle_calls"] < cold.stats["oracle_calls"] / 2


def test_a_system_beyond_all_numbers_leads_nowhere_in_silence(capfd):
    huge = np.array([[np.inf, 1.0], [1.0, 0.0]])
    assert np.isnan(interior_point._solved(huge, np.ones(2))).all()
    assert capfd.readouterr() == ("", "")
    singular = np.array([[1.0, 1.0], [1.0, 1.0]])
    np.testing.assert_allclose(interior_point._solved(singular, np.array([2.0, 2.0])), 1.0)


def test_interruption_keeps_the_best_certified_answer(
    keyboard: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = LINEAR["three budgets"]
    step = generation.Generation.step

    def interrupted(self: generation.Generation) -> None:
        if len(self.trail.upper) == 7:
            signal.raise_signal(signal.SIGINT)
        step(self)

    monkeypatch.setattr(generation.Generation, "step", interrupted)
    solution = cm.solve(problem, cm.ColumnGeneration())
    assert solution.status is cm.Status.INTERRUPTED
    assert solution.stats["iterations"] == 8
    certificate = cm.certify(solution.problem, solution)
    assert 1e-6 < certificate.relative_gap < 1.0
    assert solution.evidence is not None
    own = Claims.of(problem).prove(solution.evidence)
    assert own is not None
    assert solution.history["upper"][-1] == pytest.approx(own.upper)
    assert certificate.upper <= own.upper + 1e-9
    exact = cm.solve(problem, cm.ConvexProgram()).objective
    assert certificate.lower <= exact <= certificate.upper


@pytest.mark.parametrize("kind", ["three budgets", "entropy"])
def test_a_state_that_was_saved_goes_on_with_the_same_bits(kind: str) -> None:
    problem = LINEAR[kind] if kind in LINEAR else CURVED[kind]
    work = cm.ColumnGeneration().prepare(Task(problem))
    whole, half = Run(work), Run(cm.ColumnGeneration().prepare(Task(problem)))
    for _ in range(6):
        half.advance()
    rest = Run(cm.ColumnGeneration().prepare(Task(problem)))
    rest.restore(half.dump())
    for run in (whole, rest):
        while not run.finished:
            run.advance()
    first, second = whole.solution(), rest.solution()
    assert first.status is second.status
    assert first.stats["iterations"] == second.stats["iterations"]
    np.testing.assert_array_equal(first.occupancy, second.occupancy)
    for name in ("upper", "lower", "columns"):
        np.testing.assert_array_equal(first.history[name], second.history[name])


def test_out_of_memory_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = LINEAR["three budgets"]
    step = generation.Generation.step

    def exhausted(self: generation.Generation) -> None:
        if len(self.trail.upper) == 8:
            raise MemoryError
        step(self)

    monkeypatch.setattr(generation.Generation, "step", exhausted)
    solution = cm.solve(problem, cm.ColumnGeneration())
    assert solution.status is cm.Status.INTERRUPTED
    assert "Out of memory" in solution.message
    assert cm.certify(solution.problem, solution).lower > -math.inf


def test_running_out_of_iterations_is_said() -> None:
    solution = cm.solve(LINEAR["three budgets"], cm.ColumnGeneration(iterations=5))
    assert solution.status is cm.Status.ITERATION_LIMIT
    assert math.isfinite(solution.stats["certified_gap"])


def test_a_budget_at_the_edge_is_not_called_optimal_nor_infeasible_without_proof() -> None:
    mdp = cm.garnet(30, 3, 3, seed=2)
    least = cm.solve(cm.Problem(mdp, minimize=cm.linear("cost")), cm.ConvexProgram()).objective
    problem = cm.Problem(
        mdp, maximize=cm.linear("reward"), subject_to={"cost": cm.linear("cost") <= least - 1e-12}
    )
    solution = cm.solve(problem, cm.ColumnGeneration(iterations=60))
    known = (cm.Status.INACCURATE, cm.Status.ITERATION_LIMIT)
    assert solution.status in known or "(proven)" in solution.message
    assert solution.status is not cm.Status.OPTIMAL
    assert "slack" in solution.message


@pytest.mark.parametrize("tolerance", [0.0, -1.0, 1.0, math.nan, "tight"])
def test_bad_tolerances(tolerance: object) -> None:
    with pytest.raises(SolverError, match="tolerance"):
        cm.ColumnGeneration(tolerance=tolerance)  # type: ignore[arg-type]


@pytest.mark.parametrize("setting", [{"iterations": 0}, {"columns": 4}, {"iterations": 2.5}])
def test_bad_settings(setting: dict[str, int]) -> None:
    with pytest.raises(SolverError, match="whole number"):
        cm.ColumnGeneration(**setting)


def test_a_tolerance_beyond_float64() -> None:
    with pytest.raises(SolverError, match="float64"):
        cm.solve(LINEAR["three budgets"], cm.ColumnGeneration(tolerance=1e-14))


def test_a_discount_next_to_one() -> None:
    problem = LINEAR["no constraints"]
    close = cm.Problem(problem.mdp.replace(discount=1 - 1e-12), maximize=cm.linear("reward"))
    solution = cm.solve(close, cm.ColumnGeneration())
    assert solution.status is cm.Status.OPTIMAL
    assert cm.certify(close, solution).relative_gap <= 1e-6


def test_progress_is_shown_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    cm.solve(LINEAR["three budgets"], cm.ColumnGeneration(), progress=True)
    assert "ColumnGeneration" in capsys.readouterr().err


def test_large_problems_are_decomposed_and_small_ones_are_not() -> None:
    large = cm.garnet(2_100, 5, 2, seed=0)
    linear = cm.Problem(large, maximize=cm.linear("reward"))
    assert isinstance(choose_solver(linear)[0], cm.ColumnGeneration)
    assert isinstance(choose_solver(LINEAR["three budgets"])[0], cm.ConvexProgram)
    assert isinstance(choose_solver(CURVED["entropy"])[0], cm.ConvexProgram)
    assert isinstance(choose_solver(CURVED["custom"])[0], cm.PDPG)
    larger = cm.Problem(cm.garnet(4_100, 5, 2, seed=0), maximize=cm.entropy())
    solver, reason = choose_solver(larger)
    assert isinstance(solver, cm.ColumnGeneration)
    assert "20,500 pairs" in reason
    assert "chosen" in cm.solve(linear).stats


@pytest.mark.parametrize("name", ["three budgets", "goal"])
def test_slater_points_and_certificates_of_large_models(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = LINEAR[name]
    small, proven = cm.slater(problem), cm.certify(problem, cm.uniform_policy(problem.mdp))
    monkeypatch.setattr(search, "PROGRAM_LIMIT", 10)
    large, found = cm.slater(problem), cm.certify(problem, cm.uniform_policy(problem.mdp))
    assert large.margin == pytest.approx(small.margin, rel=1e-3)
    assert large.margin <= small.margin_bound + 1e-12
    assert large.margin_bound >= small.margin - 1e-12
    assert found.upper == pytest.approx(proven.upper, rel=1e-3)
    assert found.upper >= proven.upper - 1e-3 * proven.size


class Terminal(io.StringIO):
    """Standard error as a terminal is."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "patience", "shown"),
    [(Terminal, 0.0, True), (Terminal, 1e9, False), (io.StringIO, 0.0, False)],
    ids=["long", "soon done", "no terminal"],
)
@pytest.mark.parametrize("large", [True, False], ids=["columns", "gradient"])
def test_a_long_search_for_a_proof_shows_where_it_is(
    large: bool, stream: type, patience: float, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = garnet_problem() if large else CURVED["custom"]
    monkeypatch.setattr(search, "PROGRAM_LIMIT", 10 if large else search.PROGRAM_LIMIT)
    monkeypatch.setattr(search, "PATIENCE", patience)
    monkeypatch.setattr("sys.stderr", stream())
    cm.certify(problem, cm.uniform_policy(problem.mdp))
    text = sys.stderr.getvalue()
    assert ("looking for a proof" in text) == shown
    assert ("gap" in text) == (shown and large)
    assert text.endswith("\n") == shown  # the line is ended, so that what follows begins a new one


def test_under_a_spinner_there_is_no_second_progress_line(monkeypatch: pytest.MonkeyPatch) -> None:
    console = pytest.importorskip("rich.console")
    monkeypatch.setattr("sys.stderr", Terminal())
    assert Progress("work", 10).show
    with console.Console(stderr=True, force_terminal=True).status("proving"):
        assert not Progress("work", 10).show


def test_large_infeasible_problems_are_proven_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "PROGRAM_LIMIT", 10)
    room = cm.slater(garnet_problem(budget=0.02))
    assert room.infeasible
    assert room.conflict


# Domains that the uniform policy is outside of, and optima of zero


def barrier_model() -> tuple[cm.TabularMDP, np.ndarray]:
    mdp = cm.garnet(20, 3, 3, discount=0.9, seed=1)
    cost = np.zeros((20, 3))
    cost[:, 0], cost[:, 1] = 1.0, 0.5
    return mdp, cost


@pytest.mark.parametrize("held", [False, True])
def test_a_barrier_whose_domain_the_uniform_policy_is_outside_of(held: bool) -> None:
    mdp, cost = barrier_model()
    other = np.where(cost == 0.5, 0.6, cost)
    barrier = 0.5 * cm.log_barrier(cm.linear(cost) <= 4)
    constraints = {"other": cm.linear(other) >= 4.2} if held else {}
    problem = cm.Problem(mdp, maximize=cm.linear("reward") + barrier, subject_to=constraints)
    exact, columns = cm.solve(problem), cm.solve(problem, cm.ColumnGeneration(tolerance=1e-5))
    assert exact.status is columns.status is cm.Status.OPTIMAL
    assert columns.objective == pytest.approx(exact.objective, rel=1e-5)
    assert cm.certify(problem, exact).relative_gap < 1e-6
    if held:
        room = cm.slater(problem)
        assert room.exists
        assert room.dual_bound is not None
        assert all(math.isfinite(bound) for bound in room.dual_bound.values())
        assert cm.solve(problem, cm.PDPG()).status is cm.Status.OPTIMAL


def test_a_barrier_as_a_constraint() -> None:
    mdp = cm.garnet(5, 3, 3, discount=0.9, seed=1)
    cost = np.random.default_rng(1).random((5, 3))
    written = {"barrier": cm.log_barrier(cm.linear(cost) <= 5) >= 0}
    problem = cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=written)
    exact, columns = cm.solve(problem), cm.solve(problem, cm.ColumnGeneration())
    assert exact.status is columns.status is cm.Status.OPTIMAL
    assert columns.objective == pytest.approx(exact.objective, rel=1e-5)


@pytest.mark.parametrize("held", [False, True])
def test_an_empty_domain_is_proven(held: bool) -> None:
    mdp, _ = barrier_model()
    barrier = cm.log_barrier(cm.linear(np.ones((20, 3))) <= 5)
    constraints = {"reward": cm.linear("reward") >= -1000} if held else {}
    problem = cm.Problem(mdp, maximize=barrier, subject_to=constraints)
    solution = cm.solve(problem, cm.ColumnGeneration())
    assert solution.status is cm.Status.INFEASIBLE
    assert solution.message.startswith("The objective is infinite for every policy")


@pytest.mark.parametrize("kind", ["ball", "box"])
def test_a_set_that_can_be_reached(kind: str) -> None:
    mdp = cm.garnet(5, 3, 3, discount=0.9, seed=1)
    x = cm.occupancy_of(mdp, np.full((5, 3), 1 / 3))
    target = cm.ball(x, 0.5) if kind == "ball" else cm.box(0.8 * x, 1.2 * x)
    problem = cm.Problem(mdp, minimize=cm.distance(target, norm="l2"))
    for solver in (cm.ConvexProgram(), cm.ColumnGeneration()):
        solution = cm.solve(problem, solver)
        assert solution.status is cm.Status.OPTIMAL
        assert solution.objective == pytest.approx(0.0, abs=1e-9)


def test_rewards_in_billionths_end_optimal() -> None:
    mdp, random = cm.garnet(8, 3, 3, discount=0.95, seed=1), np.random.default_rng(1)
    reward, cost = 1e-8 * random.random((2, 8, 3))
    problem = cm.Problem(
        mdp, maximize=cm.linear(reward), subject_to={"cost": cm.linear(cost) <= 0.9e-7}
    )
    solution = cm.solve(problem, cm.ColumnGeneration())
    assert solution.status is cm.Status.OPTIMAL
    assert cm.certify(problem, solution).relative_gap < 1e-6


@pytest.mark.long
def test_columns_that_creep_leave_a_small_model_to_one_program_also_after_a_stop() -> None:
    mdp = cm.garnet(6, 3, 3, discount=0.95, seed=0)
    target = cm.TabularPolicy(np.random.default_rng(1).dirichlet(np.ones(3), 6))
    problem = cm.Problem(
        mdp,
        maximize=0.1 * cm.linear("reward") - cm.distance(target, norm="l1"),
        subject_to={"cost": cm.linear("cost", per="step") <= 0.45},
    )
    whole, half = (Run(cm.ColumnGeneration().prepare(Task(problem))) for _ in range(2))
    for _ in range(6):
        half.advance()
    rest = Run(cm.ColumnGeneration().prepare(Task(problem)))
    rest.restore(half.dump())
    for run in (whole, rest):
        while not run.finished:
            run.advance()
    first, second = whole.solution(), rest.solution()
    assert first.status is second.status is cm.Status.OPTIMAL
    assert first.stats["solver"].startswith("ColumnGeneration, then ConvexProgram")
    assert first.stats["iterations"] == second.stats["iterations"]


def test_masters_that_cannot_be_solved_leave_a_small_model_to_one_program() -> None:
    # Margins of 1e4 on a budget of 3e-13: no column is inside, and the interior point ends nowhere.
    mdp = cm.TabularMDP(np.full((2, 1, 2), 0.5), [0.3, 0.7], 1.0 - 1e-8)
    only = cm.TabularPolicy(np.ones((2, 1)))
    near = cm.distance(cm.occupancy_of(mdp, only), norm="l2-squared") <= 3e-13
    never = cm.square(cm.distance(only, norm="l2") + 0.1) <= -0.01
    problem = cm.Problem(
        mdp, maximize=cm.linear([[1.0], [2.0]]), subject_to={"never": never, "near": near}
    )
    solution = cm.solve(problem, cm.ColumnGeneration(tolerance=1e-4, iterations=100))
    assert solution.status is cm.Status.INFEASIBLE
    assert solution.stats["iterations"] < 10


def test_stopped_before_the_first_step_the_answer_is_a_column_of_its_own() -> None:
    """Without constraints there is none to begin with: what was guessed from nothing broke a proven bound."""
    mdp = cm.garnet(30, 3, 3, discount=0.95, seed=5)
    problem = cm.Problem(mdp, minimize=cm.linear("reward"))
    found = cm.solve(problem, cm.ColumnGeneration(), time_limit=1e-9)
    assert (found.status, found.stats["iterations"]) == (cm.Status.TIME_LIMIT, 0)
    assert found.stats["columns"] == 1
    assert found.objective == pytest.approx(problem.evaluate(found.policy).objective, rel=1e-9)
