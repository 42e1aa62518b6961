"""Zero violation: pessimism as numbers, found automatically, and the theorem's."""

from __future__ import annotations

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.base.errors import SolverError
from cvxmdp.solvers import pdpg_work as work
from cvxmdp.solvers.contract import Task
from cvxmdp.solvers.pdpg_setting import PDPGSetting
from cvxmdp.solvers.pdpg_work import PDPGWork
from cvxmdp.theory import TheoryError
from test_pdpg_reaches import LISTED, budgets, costly_garnet, listed  # noqa: F401 (a fixture)


@pytest.fixture(scope="module")
def small() -> cm.Problem:
    return budgets(costly_garnet(6, 3, 3, seed=1, costs=2), 0.45)


@pytest.mark.parametrize("name", LISTED)
def test_auto_is_certified_feasible(name: str, listed: dict[str, cm.Problem]) -> None:  # noqa: F811
    problem = listed[name]
    solution = cm.solve(problem, cm.PDPG(iterations=500, pessimism="auto"))
    certificate = cm.certify(problem, solution)
    assert not certificate.repaired
    assert all(slack >= 0 for slack in certificate.slack.values())
    assert solution.stats["violation_proven_zero"]
    # Pessimism alone was enough, or next to nothing of the Slater point is better still.
    assert solution.stats.get("repair_share", 0.0) < 1e-4
    assert all(violation == 0 for violation in solution.violation.values())
    # the price is the distance to a proven bound, and small
    bound = certificate.upper if problem.sign > 0 else certificate.lower
    assert solution.stats["price"] == pytest.approx(abs(bound - solution.objective), abs=1e-6)
    assert certificate.relative_gap <= 1e-2
    assert f"at most {solution.stats['price']:.2g} from the best possible" in str(solution)


@pytest.mark.parametrize("sense", ["maximize", "minimize"])
def test_auto_is_the_smallest_up_to_two(sense: str, small: cm.Problem) -> None:
    utility = cm.linear("reward") if sense == "maximize" else -1 * cm.linear("reward")
    problem = cm.Problem(small.mdp, **{sense: utility}, subject_to=dict(small.constraints))
    settings = {"iterations": 60, "tolerance": None}  # few: so that something is missed
    found = cm.solve(problem, cm.PDPG(pessimism="auto", **settings))
    used = found.stats["pessimism"]
    assert max(used.values()) > 0
    assert found.stats["price"] >= 0
    assert not cm.certify(problem, found).repaired
    same = cm.solve(problem, cm.PDPG(pessimism=used, **settings))
    np.testing.assert_array_equal(same.occupancy, found.occupancy)
    half = {name: 0.5 * value for name, value in used.items()}
    less = cm.solve(problem, cm.PDPG(pessimism=half, **settings))
    assert max(less.violation.values()) > 0


def test_auto_halves_what_was_more_than_enough(
    small: cm.Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A first run that misses by far more than the others: what it missed is no measure of what is needed.
    asked, finish = [], PDPGWork.finish

    def first_is_bad(self, state, rows, status):
        asked.append(np.asarray(self.compiled.pessimism).max())
        if asked[-1] > 0:
            return finish(self, state, rows, status)
        best = cm.solve(cm.Problem(self.problem.mdp, maximize=cm.linear("reward"))).policy
        return cm.Solution.of_policy(self.problem, best, cm.Status.ITERATION_LIMIT, {})

    monkeypatch.setattr(PDPGWork, "finish", first_is_bad)
    solution = cm.solve(small, cm.PDPG(pessimism="auto", iterations=300, tolerance=None))
    assert asked[0] == 0
    assert asked.pop() == 0  # the run without pessimism is repaired as well, and compared
    assert (
        asked.pop() == asked[-2]
    )  # the last try was too little, and the one before it is finished again
    assert max(solution.stats["pessimism"].values()) == asked[-2]
    assert asked[2:] == pytest.approx(asked[1] * 0.5 ** np.arange(1, len(asked) - 1))
    assert len(asked) > 4
    assert solution.stats["violation_proven_zero"]


def test_auto_costs_nothing_where_nothing_is_violated(small: cm.Problem) -> None:
    loose = cm.Problem(
        small.mdp,
        maximize=cm.linear("reward"),
        subject_to={"loose": cm.linear("cost 0", per="step") <= 0.99},
    )
    solution = cm.solve(loose, cm.PDPG(pessimism="auto"))
    assert solution.stats["pessimism"] == {"loose": 0.0}
    assert solution.stats["price"] <= 1e-5


def test_auto_without_constraints(small: cm.Problem) -> None:
    free = cm.Problem(small.mdp, maximize=cm.linear("reward"))
    assert cm.solve(free, cm.PDPG(pessimism="auto")).stats["violation_proven_zero"]


def test_auto_is_feasible_even_where_pessimism_is_not_enough(small: cm.Problem) -> None:
    # Multipliers that are kept too small ask in vain: the answer is then mixed with the Slater point.
    solver = cm.PDPG(pessimism="auto", dual_bound=0.01, iterations=100, tolerance=None)
    solution = cm.solve(small, solver)
    assert max(solution.violation.values()) == 0
    assert not cm.certify(small, solution).repaired
    assert solution.stats["repair_share"] > 0
    assert "Slater" in solution.message


def test_auto_compiles_once(small: cm.Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, run_chunk = [], work.run_piece

    def counted(*arguments):
        answer = run_chunk(*arguments)
        sizes.append(run_chunk.count)
        return answer

    monkeypatch.setattr(work, "run_piece", counted)
    solver = cm.PDPG(pessimism="auto", iterations=60, check_every=15, tolerance=None)
    solution = cm.solve(small, solver)
    assert max(solution.stats["pessimism"].values()) > 0
    assert len(sizes) > 4
    assert len(set(sizes)) == 1


# Numbers


def test_numbers_ask_for_that_much_slack(small: cm.Problem) -> None:
    asked = {"cost 0": 0.02, "cost 1": 0.0}
    solution = cm.solve(small, cm.PDPG(pessimism=asked))
    same = small.with_budget("cost 0", 0.43)
    assert solution.slack["cost 0"] >= 0.02 - 1e-5
    optimum = cm.solve(same, cm.ConvexProgram())
    assert solution.objective == pytest.approx(optimum.objective, rel=1e-4)
    assert solution.stats["pessimism"] == asked
    # history and slack speak of the problem itself, not of the harder one
    assert solution.history["slack"]["cost 0"][-1] == pytest.approx(0.02, abs=1e-3)
    for name, multiplier in optimum.multipliers.items():
        assert solution.multipliers[name] == pytest.approx(multiplier, abs=0.05 * multiplier + 0.05)


def test_the_box_of_the_multipliers_grows_with_pessimism(small: cm.Problem) -> None:
    # C_{0,delta} = 1 + (M - f) / (xi - delta) of theorem zero
    room = cm.slater(small)
    setting = PDPGSetting(cm.PDPG(), Task(small))
    pessimism = 0.5 * np.array(list(room.margins.values()))
    plain = np.array(list(room.dual_bound.values()))
    np.testing.assert_allclose(setting.widened(np.zeros(2)), plain)
    np.testing.assert_allclose(setting.widened(pessimism) - 1.0, 2.0 * (plain - 1.0))


@pytest.mark.parametrize(
    ("pessimism", "message"),
    [
        (-0.1, "not negative"),
        (np.inf, "finite"),
        ({"cost 0": 0.1}, "not given for the constraint 'cost 1'"),
        ({"cost 0": 0.1, "cost 2": 0.1}, "no constraint"),
        (0.9, "at most.*proven"),
        ([0.1, 0.1], "a number"),
    ],
    ids=["negative", "infinite", "missing", "unknown", "more than there is", "list"],
)
def test_wrong_numbers(pessimism, message: str, small: cm.Problem) -> None:
    with pytest.raises(SolverError, match=message):
        cm.solve(small, cm.PDPG(pessimism=pessimism))


def test_wrong_word() -> None:
    with pytest.raises(SolverError, match="'auto', 'theory', numbers; got 'some'"):
        cm.PDPG(pessimism="some")


# The theorem's


@pytest.mark.parametrize("family", [cm.Direct(), cm.Table()], ids=str)
def test_theory_names_the_iterations_it_needs(family, small: cm.Problem) -> None:
    solver = cm.PDPG(pessimism="theory", policy=family, direction="vanilla")
    with pytest.raises(TheoryError, match="for 2,000 iterations; it needs about") as raised:
        cm.solve(small, solver)
    assert raised.value.iterations_needed > 2_000


def test_theory_is_theorem_zero(small: cm.Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    # No T that can be run has a solution, so the equation's is replaced; the rest is real.
    asked = []

    def stand_in(constants, iterations):
        asked.append((constants, iterations))
        return 0.01

    monkeypatch.setattr("cvxmdp.solvers.pdpg_setting.theory_pessimism", stand_in)
    settings = {"pessimism": "theory", "direction": "vanilla", "iterations": 200}
    solution = cm.solve(small, cm.PDPG(policy=cm.Direct(), **settings))
    assert solution.stats["pessimism"] == {"cost 0": 0.01, "cost 1": 0.01}
    ((constants, iterations),) = asked
    assert iterations == 200
    assert constants.discount == small.mdp.discount
    with pytest.raises(SolverError, match="Direct"):
        cm.solve(small, cm.PDPG(**settings))


@pytest.mark.parametrize("sense", ["maximize", "minimize"])
def test_auto_is_never_worse_than_the_repair_of_the_plain_run(
    sense: str, small: cm.Problem
) -> None:
    utility = small.utility if sense == "maximize" else -small.utility
    problem = cm.Problem(small.mdp, **{sense: utility}, subject_to=small.constraints)
    for iterations in (20, 60, 300):
        settings = {"iterations": iterations, "tolerance": None}
        repair = cm.certify(problem, cm.solve(problem, cm.PDPG(**settings)))
        found = cm.solve(problem, cm.PDPG(pessimism="auto", **settings))
        plain = repair.lower if sense == "maximize" else repair.upper
        assert problem.sign * (found.objective - plain) >= -1e-9 * abs(plain)
        assert found.stats["violation_proven_zero"]
        assert min(found.slack.values()) >= 0
