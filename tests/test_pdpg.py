"""PDPG: its steps and settings, its errors, what it returns, how it starts, stops and compiles."""

from __future__ import annotations

import signal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import cvxmdp as cm
from cvxmdp.base.compiling import let_go
from cvxmdp.base.errors import PolicyError, ProblemError, SolverError
from cvxmdp.certificates.certify import Certifier
from cvxmdp.models import compiled_systems as dynamics_module
from cvxmdp.runs import run as driver
from cvxmdp.solvers import pdpg_work as work
from strategies import coverage, generator, random_policy
from test_pdpg_reaches import budgets, gap, listed  # noqa: F401 (a fixture)


@pytest.fixture(scope="module")
def small() -> cm.Problem:
    """Six states, one budget that binds: the optimum mixes two policies."""
    return budgets(cm.garnet(6, 3, 3, seed=1, discount=0.9), 0.4)


# Step rules


@pytest.mark.parametrize(
    ("settings", "reached"),
    [
        ({"primal_step": 1.0, "dual_step": 1.0}, 2e-2),
        ({"primal_step": 0.5, "dual_step": 0.5, "direction": "vanilla"}, 2e-2),
        ({"primal_step": cm.Normalised(0.1), "dual_step": {"cost": 0.5}}, 1e-2),
        ({"primal_step": optax.adam(0.05), "dual_step": 0.5}, 1e-2),
    ],
    ids=["constant", "paper", "normalised", "adam"],
)
def test_step_rules(settings: dict, reached: float, small: cm.Problem) -> None:
    solution = cm.solve(small, cm.PDPG(**settings))
    assert gap(small, solution) <= reached
    assert solution.status is cm.Status.ITERATION_LIMIT


def test_two_steps_of_the_paper_by_hand() -> None:
    # One state, two arms, discount 0: x = pi, and the softmax gradient of <r, pi> is pi * (r - <r, pi>).
    mdp = cm.TabularMDP(
        np.ones((1, 2, 1)), 0, 0.0, signals={"reward": [[1.0, 0.0]], "cost": [[1.0, 0.0]]}
    )
    problem = cm.Problem(
        mdp, maximize=cm.linear("reward"), subject_to={"cost": cm.linear("cost") <= 0.25}
    )
    solver = cm.PDPG(
        iterations=2, primal_step=0.3, dual_step=2.0, dual_bound=5.0, direction="vanilla",
        initial_multiplier=0.1, iterate="average", tolerance=None,
    )  # fmt: skip
    found = cm.solve(problem, solver)
    gradient = 0.5 * 0.5 * (1 - 0.1)  # at pi = (1/2, 1/2), reward 1 - mu
    first = 1.0 / (1.0 + np.exp(-2 * 0.3 * gradient))  # the logits move by +-0.3 * gradient
    assert found.history["objective"] == pytest.approx([0.5, first], abs=1e-14)
    assert found.history["slack"]["cost"] == pytest.approx([-0.25, 0.25 - first], abs=1e-14)
    # from the same iterate: mu_1 = 0.1 + 2 * 0.25
    assert found.history["multipliers"]["cost"] == pytest.approx([0.1, 0.6], abs=1e-14)
    assert found.history["gradient_norm"][0] == pytest.approx(np.sqrt(2) * gradient, abs=1e-14)
    assert found.policy.probabilities(0)[0] == pytest.approx((0.5 + first) / 2, abs=1e-14)


def test_a_box_of_zero_is_the_problem_without_its_budget(small: cm.Problem) -> None:
    free = cm.Problem(small.mdp, maximize=small.utility)
    solution = cm.solve(small, cm.PDPG(iterations=60, dual_bound=0.0, iterate="last"))
    assert solution.objective == pytest.approx(cm.solve(free).objective, rel=1e-3)
    assert solution.multipliers == {"cost": 0.0}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"primal_step": "fast"}, "auto"),
        ({"primal_step": -1.0, "dual_step": 1.0}, "positive"),
        ({"primal_step": True, "dual_step": 1.0}, "got True"),
        ({"primal_step": cm.Normalised(0.0), "dual_step": 1.0}, "positive"),
        ({"dual_step": 1.0}, "auto"),
        ({"direction": "steepest"}, "natural"),
        ({"iterate": "first"}, "half"),
        ({"iterations": 0}, "iterations"),
        ({"iterations": 2.5}, "iterations"),
        ({"check_every": 0}, "check_every"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"policy": cm.Table}, r"write Table\(\)"),
        ({"policy": "table"}, "family"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_wrong_settings_are_refused_at_once(settings: dict, message: str) -> None:
    with pytest.raises(SolverError, match=message):
        cm.PDPG(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"primal_step": 1.0}, "dual_step"),
        ({"primal_step": 1.0, "dual_step": -1.0}, "not negative"),
        ({"primal_step": 1.0, "dual_step": {"costs": 1.0}}, "Did you mean 'cost'"),
        ({"dual_bound": {}}, "not given for the constraint 'cost'"),
        ({"initial_multiplier": np.nan}, "finite"),
        ({"policy": cm.MLP(4)}, "seed"),
    ],
    ids=["no dual step", "negative", "unknown name", "missing name", "nan", "no seed"],
)
def test_settings_that_do_not_fit_the_problem(
    settings: dict, message: str, small: cm.Problem
) -> None:
    with pytest.raises(SolverError, match=message):
        cm.solve(small, cm.PDPG(**settings))


# Runs that go wrong


@pytest.mark.parametrize("step", [1e8, 1e300])
def test_a_diverging_run_says_so(step: float, small: cm.Problem) -> None:
    with pytest.raises(SolverError, match=r"iteration \d+.*too large.*try a tenth"):
        cm.solve(small, cm.PDPG(primal_step=step, dual_step=1.0))


def test_a_constant_step_that_leaves_the_domain_says_so(listed: dict[str, cm.Problem]) -> None:  # noqa: F811
    solver = cm.PDPG(primal_step=2000.0, dual_step=1.0, iterations=200)
    with pytest.raises(SolverError, match=r"iteration \d+: the objective is -inf.*barrier"):
        cm.solve(listed["safe learning"], solver)


def test_a_start_outside_the_domain_says_so(listed: dict[str, cm.Problem]) -> None:  # noqa: F811
    problem = listed["safe learning"]
    with pytest.raises(SolverError, match=r"iteration 0: the objective is -inf.*slater"):
        cm.solve(problem, cm.PDPG(), start=cm.uniform_policy(problem.mdp))


def test_an_empty_domain_is_proven(small: cm.Problem) -> None:
    barrier = cm.log_barrier(cm.linear("cost", per="step") <= 0.01)
    problem = cm.Problem(small.mdp, maximize=cm.linear("reward") + barrier)
    with pytest.raises(ProblemError, match=r"for every policy.*proven"):
        cm.solve(problem, cm.PDPG())


def test_a_logarithm_in_a_constraint_starts_inside_its_domain(small: cm.Problem) -> None:
    inside = cm.log_barrier(cm.linear("cost", per="step") <= 0.25) >= -5.0
    problem = cm.Problem(small.mdp, maximize=cm.linear("reward"), subject_to={"inside": inside})
    assert problem.evaluate(cm.uniform_policy(small.mdp)).slack["inside"] == -np.inf
    assert gap(problem, cm.solve(problem, cm.PDPG())) <= 1e-5


@cm.concave
def no_gradient(occupancy):
    return occupancy.sum() + jnp.sqrt(0.0 * occupancy[0, 0])


@pytest.mark.parametrize(
    "settings", [{}, {"primal_step": 0.1, "dual_step": 0.1}], ids=["auto", "constant"]
)
def test_a_gradient_that_is_not_finite_says_so(settings: dict, small: cm.Problem) -> None:
    with pytest.raises(SolverError, match=r"iteration 0: .*gradient nan.*utility of your own"):
        cm.solve(cm.Problem(small.mdp, maximize=no_gradient), cm.PDPG(**settings))


@pytest.mark.parametrize("settings", [{}, {"dual_bound": 10.0}], ids=["slater", "given bound"])
def test_an_infeasible_problem_comes_with_its_proof(settings: dict, small: cm.Problem) -> None:
    solution = cm.solve(small.with_budget("cost", 0.01), cm.PDPG(**settings))
    assert solution.status is cm.Status.INFEASIBLE
    assert not solution.has_policy
    assert "no policy satisfies 'cost'" in solution.message
    assert "proven" in solution.message


def test_a_problem_without_a_slater_point_is_answered_up_to_its_accuracy() -> None:
    signals = {"cost": [[1.0, 2.0]], "reward": [[0.0, 1.0]]}
    mdp = cm.TabularMDP(np.ones((1, 2, 1)), 0, 0.5, signals=signals)
    least = {
        "least": cm.linear("cost") <= 2
    }  # by always taking the first action, and in no other way
    problem = cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=least)
    solution = cm.solve(problem, cm.PDPG(iterations=500))
    assert solution.status is not cm.Status.OPTIMAL  # nothing surely satisfies it by gradients
    assert solution.slack["least"] == pytest.approx(0.0, abs=1e-2)
    assert "room to spare" in solution.message
    assert solution.objective == pytest.approx(0.0, abs=1e-2)


# Which policy is returned


def test_iterates_are_those_of_the_history(small: cm.Problem) -> None:
    def run(iterate: str) -> cm.Solution:
        solver = cm.PDPG(
            iterations=40, check_every=10, iterate=iterate, tolerance=None, direction="vanilla"
        )
        return cm.solve(small, solver)

    objective = run("average").history["objective"]  # linear: averages of occupancies are averages
    assert run("average").objective == pytest.approx(objective.mean(), rel=1e-10)
    half = run("half")
    assert half.objective == pytest.approx(objective[20:].mean(), rel=1e-10)
    multipliers = half.history["multipliers"]["cost"]
    assert half.multipliers["cost"] == pytest.approx(multipliers[20:].mean(), rel=1e-10)
    slack = half.history["slack"]["cost"]
    feasible = np.where(slack >= 0, objective, -np.inf)
    least = np.where(slack == slack.max(), objective, -np.inf)
    best = feasible.max() if (slack >= 0).any() else least.max()
    assert run("best").objective == pytest.approx(best, rel=1e-10)


def test_last_is_the_next_policy_of_the_family(small: cm.Problem) -> None:
    solver = cm.PDPG(iterations=5, iterate="last", tolerance=None, policy=cm.MLP(3))
    last = cm.solve(small, solver, seed=1)
    assert "MLP" in repr(last.policy)
    longer = cm.PDPG(iterations=6, iterate="last", tolerance=None, policy=cm.MLP(3))
    assert cm.solve(small, longer, seed=1).history["objective"][5] == pytest.approx(last.objective)


def test_short_runs_have_a_last_half_too(small: cm.Problem) -> None:
    solution = cm.solve(small, cm.PDPG(iterations=8, tolerance=None))
    objective = solution.history["objective"]
    assert len(objective) == 8
    assert solution.objective == pytest.approx(objective[4:].mean(), rel=1e-10)


# Starting and stopping


def test_optimal_only_when_certified(small: cm.Problem) -> None:
    solution = cm.solve(small, cm.PDPG(tolerance=1e-4))
    assert solution.status is cm.Status.OPTIMAL
    assert solution.stats["iterations"] < 2_000
    assert solution.stats["certified_gap"] <= 1e-4
    assert gap(small, solution) <= 1e-4
    cut = cm.solve(small, cm.PDPG(iterations=20, tolerance=1e-9))
    assert cut.status is cm.Status.ITERATION_LIMIT
    assert "ran out" in cut.message
    never = cm.solve(small, cm.PDPG(iterations=400, tolerance=None))
    assert never.stats["iterations"] == 400
    assert never.status is cm.Status.ITERATION_LIMIT


def test_history_has_one_entry_per_iteration(small: cm.Problem) -> None:
    solution = cm.solve(small, cm.PDPG(iterations=130, tolerance=None))
    history = solution.history
    series = [history[name] for name in ("objective", "gradient_norm", "primal_step")]
    series += [history["slack"]["cost"], history["multipliers"]["cost"]]
    assert [len(numbers) for numbers in series] == [130] * 5
    assert all(numbers.dtype == np.float64 for numbers in series)


@pytest.mark.parametrize("source", ["solution", "exact solution", "policy"])
def test_warm_start_continues(source: str, small: cm.Problem) -> None:
    starts = {
        "solution": lambda: cm.solve(small, cm.PDPG()),
        "exact solution": lambda: cm.solve(small, cm.ConvexProgram()),
        "policy": lambda: cm.solve(small, cm.ConvexProgram()).policy,
    }
    start = starts[source]()
    solver = cm.PDPG(iterations=40, tolerance=None)
    cold = cm.solve(small, solver).history["objective"]
    warm = cm.solve(small, solver, start=start).history["objective"]
    optimum = cm.solve(small, cm.ConvexProgram()).objective
    assert abs(warm[0] - optimum) < 1e-3 * optimum < 0.1 * abs(cold[0] - optimum)
    if source != "policy":  # with multipliers it stays there
        assert np.abs(warm - optimum).max() < 1e-3 * optimum


@pytest.mark.parametrize(
    ("first", "second"), [(cm.Table(), cm.Direct()), (cm.Direct(), cm.Table())], ids=str
)
def test_parameters_of_another_family_are_not_taken_for_ones_own(
    first, second, small: cm.Problem
) -> None:
    # Logits and probabilities have the same shape.
    def solver(family) -> cm.PDPG:
        return cm.PDPG(
            iterations=20, policy=family, direction="vanilla", iterate="last", tolerance=None
        )

    start = cm.solve(small, solver(first))
    continued = cm.solve(small, solver(second), start=start)
    assert continued.history["objective"][0] == pytest.approx(start.objective, rel=1e-4)


def test_a_network_cannot_start_from_a_table(small: cm.Problem) -> None:
    with pytest.raises(PolicyError, match="same family"):
        cm.solve(small, cm.PDPG(policy=cm.MLP(4)), start=cm.uniform_policy(small.mdp))


def _interrupting(function):
    """The same function, with a Ctrl-C while it runs."""

    calls = []

    def interrupted(*arguments):
        if not calls:  # a second one would raise
            signal.raise_signal(signal.SIGINT)
        calls.append(None)
        return function(*arguments)

    return interrupted


@pytest.fixture
def ctrl_c_at(keyboard, monkeypatch: pytest.MonkeyPatch):
    """Ctrl-C, a real signal, while the piece after this many iterations is computed."""
    run_piece = work.run_piece

    def at(iterations: int) -> list[int]:
        done: list[int] = []

        def interrupted(compiled, state, totals, steps, length, *rest):
            if sum(done) >= iterations:
                signal.raise_signal(signal.SIGINT)
            done.append(length)
            return run_piece(compiled, state, totals, steps, length, *rest)

        monkeypatch.setattr(work, "run_piece", interrupted)
        return done

    return at


def test_interruption_returns_what_there_is(small: cm.Problem, ctrl_c_at) -> None:
    done = ctrl_c_at(20)
    solution = cm.solve(small, cm.PDPG(check_every=10, tolerance=None, pessimism="auto"))
    assert solution.status is cm.Status.INTERRUPTED
    assert "Interrupted" in solution.message
    assert 20 < sum(done) <= 30  # the piece is finished; "auto" does not begin another run
    assert solution.stats["iterations"] == sum(done)
    assert len(solution.history["objective"]) == sum(done)
    assert np.isfinite(gap(small, solution))


def test_interruption_within_a_chunk_loses_nothing(
    small: cm.Problem, ctrl_c_at, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "PIECE_SECONDS", 0.0)  # as if an iteration took long
    done = ctrl_c_at(7)
    solution = cm.solve(small, cm.PDPG())
    assert done == [1] * 8
    assert solution.status is cm.Status.INTERRUPTED
    assert solution.objective == pytest.approx(solution.history["objective"].mean(), rel=1e-10)


@pytest.mark.parametrize("pessimism", [0.0, "auto"], ids=str)
def test_interruption_before_the_first_iteration_returns_the_start(
    pessimism, small: cm.Problem, keyboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work.PDPGWork, "__init__", _interrupting(work.PDPGWork.__init__))
    start = random_policy(small.mdp, generator(4))
    solution = cm.solve(small, cm.PDPG(pessimism=pessimism), start=start)
    assert solution.status is cm.Status.INTERRUPTED
    assert "this is the start" in solution.message
    assert solution.stats["iterations"] == 0
    assert solution.objective == pytest.approx(small.evaluate(start).objective, rel=1e-4)


@pytest.mark.parametrize("start", [None, "given"], ids=str)
def test_interruption_of_the_preparation_returns_the_start(
    start, small: cm.Problem, keyboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Certifier, "slater", _interrupting(Certifier.slater))
    given = start and random_policy(small.mdp, generator(4))
    solution = cm.solve(small, cm.PDPG(), start=given)
    assert solution.status is cm.Status.INTERRUPTED
    policy = given or cm.uniform_policy(small.mdp)
    np.testing.assert_allclose(solution.policy.probabilities(), policy.probabilities(), rtol=1e-4)


def test_pieces_do_not_change_the_run(small: cm.Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    solver = cm.PDPG(iterations=50, tolerance=None)
    whole = cm.solve(small, solver)
    monkeypatch.setattr(driver, "PIECE_SECONDS", 0.0)
    pieces = cm.solve(small, solver)
    np.testing.assert_array_equal(pieces.history["objective"], whole.history["objective"])
    np.testing.assert_array_equal(pieces.occupancy, whole.occupancy)


@pytest.mark.parametrize("tolerance", [1e-9, None], ids=str)
def test_progress_shows_the_gap(tolerance, small: cm.Problem, capsys) -> None:
    solver = cm.PDPG(iterations=200, check_every=100, tolerance=tolerance)
    shown_with = cm.solve(small, solver, progress=True)
    shown = capsys.readouterr().err
    assert "200/200" in shown
    assert ("certified gap" in shown) == (tolerance is not None)
    silent = cm.solve(small, solver)
    assert capsys.readouterr().err == ""
    # Whether somebody looks changes nothing.
    assert silent.message == shown_with.message
    assert set(silent.stats) == set(shown_with.stats)
    assert silent.stats.get("certified_gap") == shown_with.stats.get("certified_gap")


# Compilation, precision and large models


def test_same_shapes_compile_once(grid: cm.TabularMDP, expert: cm.TabularPolicy) -> None:
    other = random_policy(grid, generator(0))

    def problem(budget: float, target: cm.TabularPolicy) -> cm.Problem:
        return cm.Problem(
            grid,
            maximize=-cm.distance(target, norm="l2"),
            subject_to={"hazard": cm.linear("hazard", per="step") <= budget},
        )

    let_go(0)  # what other tests compiled, so that nothing is dropped between the runs below
    before = work.run_piece.count
    solver = cm.PDPG(iterations=45, check_every=10, tolerance=None)  # the last chunk is shorter
    cm.solve(problem(0.08, expert), solver)
    assert work.run_piece.count == before + 1
    cm.solve(problem(0.08, expert), solver)
    cm.solve(problem(0.07, expert), solver)
    cm.solve(problem(0.07, other), solver)
    harder = cm.PDPG(iterations=40, check_every=10, tolerance=None, pessimism=0.01, dual_bound=9.0)
    cm.solve(problem(0.07, other), harder)
    assert work.run_piece.count == before + 1


@pytest.mark.parametrize("name", ["equinox", "mlp", "adam"])
def test_other_families_and_rules_compile_once(name: str, small: cm.Problem) -> None:
    equinox = pytest.importorskip("equinox")
    settings = {
        "equinox": {
            "policy": cm.EquinoxModule(equinox.nn.MLP(6, 3, 4, 1, key=jax.random.key(0))),
            "direction": "vanilla",
        },
        "mlp": {"policy": cm.MLP(4), "direction": "vanilla"},
        "adam": {"primal_step": optax.adam(0.1), "dual_step": 0.1},
    }
    solver = cm.PDPG(iterations=8, tolerance=None, **settings[name])
    let_go(0)  # what other tests compiled, so that nothing is dropped between the runs below
    before = work.run_piece.count
    cm.solve(small, solver, seed=0)
    cm.solve(small, solver, seed=1)
    cm.solve(small.with_budget("cost", 0.41), solver, seed=1)
    assert work.run_piece.count == before + 1


def test_float64_inside_and_the_flag_outside(small: cm.Problem) -> None:
    before = jax.config.jax_enable_x64
    solution = cm.solve(small, cm.PDPG(iterations=20, tolerance=None))
    assert jax.config.jax_enable_x64 == before
    assert jnp.ones(1).dtype == (np.float64 if before else np.float32)
    assert solution.stats["params"].dtype == np.float64
    assert isinstance(solution.occupancy, np.ndarray)


def test_sparse_and_dense_paths_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = budgets(cm.garnet(60, 3, 4, seed=5, discount=0.99), 0.4)
    solver = cm.PDPG(iterations=40, tolerance=None)
    dense = cm.solve(problem, solver)
    monkeypatch.setattr(dynamics_module, "better_factorised", lambda mdp: False)
    sparse = cm.solve(problem, solver)
    np.testing.assert_allclose(sparse.history["objective"], dense.history["objective"], rtol=1e-7)


@pytest.mark.parametrize(
    ("states", "successors", "dense"), [(500, 3, True), (501, 3, False), (501, 30, True)]
)
def test_large_models_with_few_successors_stay_sparse(
    states: int, successors: int, dense: bool
) -> None:
    found = dynamics_module.dynamics(cm.garnet(states, 2, successors, seed=0))
    assert isinstance(found, dynamics_module.DenseDynamics) == dense


def test_sparse_solves_survive_a_breakdown(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(operator, right, **settings):
        return jnp.full(right.shape, jnp.nan), None

    problem = budgets(cm.garnet(7, 3, 2, seed=5, discount=0.98), 0.4)
    solver = cm.PDPG(iterations=4, tolerance=None)
    dense = cm.solve(problem, solver).history["objective"]
    monkeypatch.setattr(dynamics_module, "better_factorised", lambda mdp: False)
    monkeypatch.setattr(dynamics_module, "bicgstab", broken)
    np.testing.assert_allclose(cm.solve(problem, solver).history["objective"], dense, rtol=1e-7)


def test_a_large_sparse_model() -> None:
    problem = budgets(cm.garnet(3_000, 4, 4, seed=0), 0.4)
    solution = cm.solve(problem, cm.PDPG(iterations=60, tolerance=None, dual_bound=40.0))
    uniform = problem.evaluate(cm.uniform_policy(problem.mdp))
    assert solution.history["objective"][0] == pytest.approx(uniform.objective, rel=1e-9)
    assert solution.objective > 1.3 * uniform.objective


# Functions of one's own


def test_a_function_of_ones_own_is_solved_without_being_told_how(small: cm.Problem) -> None:
    problem = cm.Problem(small.mdp, maximize=coverage, subject_to=dict(small.constraints))
    solution = cm.solve(problem)
    assert solution.stats["solver"] == "PDPG (natural)"
    assert "of your own" in solution.stats["chosen"]
    certificate = cm.certify(problem, solution)
    assert certificate.relative_gap <= 1e-3
    assert any("coverage" in promise for promise in certificate.assumes)


@pytest.mark.parametrize("seed", [2, 4])
def test_what_is_called_optimal_violates_nothing(seed):
    """The gap that ends a run is of a policy that surely is feasible: that one is the answer."""
    mdp = cm.garnet(8, 3, 3, discount=0.9, seed=seed)
    least = cm.Problem(mdp, minimize=cm.linear("cost"))
    usual = least.evaluate(np.full((8, 3), 1 / 3)).objective
    budget = cm.linear("cost") <= (cm.solve(least).objective + usual) / 2
    problem = cm.Problem(mdp, maximize=cm.linear("reward"), subject_to={"cost": budget})
    found = cm.solve(problem, cm.PDPG(iterations=800))
    assert found.status is cm.Status.OPTIMAL
    assert found.stats["repaired"] > 0
    assert found.violation == {"cost": 0.0}
    certificate = cm.certify(problem, found)
    assert not certificate.repaired
    assert certificate.relative_gap <= 1e-6
    np.testing.assert_array_equal(certificate.policy.probabilities(), found.policy.probabilities())
