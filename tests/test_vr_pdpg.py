"""VR-PDPG end to end: what it learns, what it records, that it can be repeated, and its errors."""

from __future__ import annotations

import math
import signal
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cvxmdp as cm
from cvxmdp.base.errors import CvxmdpWarning, PolicyError, SettingsError, SolverError
from cvxmdp.base.removed import REMOVED
from cvxmdp.paper.tracking import tracking_problem
from cvxmdp.runs import run as driver
from cvxmdp.runs.run import Run
from cvxmdp.solvers import learning
from cvxmdp.solvers import vr_pdpg_work as work
from cvxmdp.solvers.contract import Task
from strategies import generator, random_policy, seeds, small_problem

OPTIMUM = 23.927031448955  # 100 * 0.9**13 - 0.2 * (1 - 0.9**13) / 0.1
HORIZON = 10
SOLVER = cm.VRPDPG(
    iterations=61,
    primal_step=0.1,
    dual_step=0.3,
    momentum=0.3,
    horizon=HORIZON,
    dual_bound=2.0,
    initial_multiplier=0.5,
    evaluate_every=20,
)
PER_ITERATION = (
    "episode_objective",
    "gradient_norm",
    "weight_mean",
    "weight_max",
    "effective_sample_size",
    "episode_length",
    "episode_return",
    "policy_entropy",
)


@pytest.fixture(scope="module")
def problem() -> cm.Problem:
    return small_problem()


@pytest.fixture(scope="module")
def solution(problem) -> cm.Solution:
    return cm.solve(problem, SOLVER, seed=3)


def params_of(solution: cm.Solution) -> np.ndarray:
    return np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(solution.stats["params"])])


def test_learns_to_track_the_expert():
    problem = tracking_problem("8x8-traj2")
    solver = cm.VRPDPG(2_000, 0.1, 0.1, momentum=0.3, horizon=14, initial_multiplier=1.0)
    found = [cm.solve(problem, solver, seed=seed) for seed in range(4)]
    reached = [abs(one.objective - OPTIMUM) < 1e-3 for one in found]
    assert sum(reached) >= 3
    for one in found:
        assert one.objective > 20.0
        assert one.history["objective"][0] < 1.0  # it had to learn that


def test_an_mlp_learns_too(problem):
    solver = replace(SOLVER, iterations=401, policy=cm.MLP(8), momentum=0.2)
    found = cm.solve(problem, solver, seed=0)
    assert found.objective > found.history["objective"][0] + 1.0


def test_status_and_sense(problem, solution):
    assert solution.status is cm.Status.ITERATION_LIMIT
    costs = cm.Problem(problem.mdp, minimize=-cm.linear("reward"), subject_to=problem.constraints)
    opposite = cm.solve(costs, SOLVER, seed=3)
    np.testing.assert_allclose(
        opposite.history["episode_objective"], -solution.history["episode_objective"], rtol=1e-5
    )


def test_history_has_every_key_at_its_length(solution):
    history = solution.history
    np.testing.assert_array_equal(history["iteration"], [0, 20, 40, 60, 61])
    assert history["objective"].shape == (5,)
    for name in PER_ITERATION:
        assert history[name].shape == (61,), name
    for name in ("slack", "episode_slack", "recursive_slack", "multipliers"):
        assert set(history[name]) == {"hazard", "spread"}
        expected = 5 if name == "slack" else 61
        assert all(column.shape == (expected,) for column in history[name].values()), name


def test_the_last_evaluation_is_the_solution(problem, solution):
    assert solution.history["objective"][-1] == pytest.approx(solution.objective, rel=1e-12)
    exact = problem.evaluate(solution.policy)
    assert solution.slack == pytest.approx(exact.slack, rel=1e-12)


def test_stats_count_the_steps_taken(solution):
    lengths = solution.history["episode_length"]
    assert solution.stats["iterations"] == 61
    assert solution.stats["samples"] == lengths.sum()
    assert lengths.max() <= HORIZON
    assert lengths.min() < HORIZON  # some episodes reach the goal


def test_multipliers_stay_in_the_box_and_the_last_step_is_reported(solution):
    history = solution.history
    for name, column in history["multipliers"].items():
        assert column[0] == np.float32(0.5)
        assert column.min() >= 0.0
        assert column.max() <= 2.0
        step = column[-1] - 0.3 * history["recursive_slack"][name][-1]
        assert solution.multipliers[name] == pytest.approx(min(max(step, 0.0), 2.0), rel=1e-5)


def test_pessimism_is_not_part_of_the_slack_that_is_shown(problem, solution):
    careful = cm.solve(problem, replace(SOLVER, pessimism=0.05), seed=3)
    for name, column in careful.history["recursive_slack"].items():
        assert column[0] == pytest.approx(solution.history["recursive_slack"][name][0], abs=1e-5)
        assert careful.history["multipliers"][name][1] == pytest.approx(
            min(solution.history["multipliers"][name][1] + 0.3 * 0.05, 2.0), abs=1e-5
        )


def test_same_seed_same_bits(problem, solution):
    again = cm.solve(problem, SOLVER, seed=3)
    np.testing.assert_array_equal(params_of(again), params_of(solution))
    np.testing.assert_array_equal(again.history["gradient_norm"], solution.history["gradient_norm"])


def test_different_seeds_differ(problem, solution):
    other = cm.solve(problem, SOLVER, seed=4)
    assert np.abs(params_of(other) - params_of(solution)).max() > 0.01


@pytest.mark.parametrize("every", [1, 60])
def test_chunks_do_not_change_the_bits(problem, solution, every):
    other = cm.solve(problem, replace(SOLVER, evaluate_every=every), seed=3)
    np.testing.assert_array_equal(params_of(other), params_of(solution))
    np.testing.assert_array_equal(other.history["weight_max"], solution.history["weight_max"])


def test_another_seed_step_or_budget_does_not_compile_again(problem, solution):
    before = work.run_chunk.count
    assert before > 0
    tuned = replace(SOLVER, primal_step=0.2, dual_step=0.1, momentum=1.0, dual_decay=0.1)
    cm.solve(problem.with_budget("hazard", 0.3), tuned, seed=11)
    assert work.run_chunk.count == before


@settings(max_examples=12)
@given(seed=seeds, primal_step=st.floats(0.01, 1.0), momentum=st.floats(0.05, 1.0))
def test_weights_respect_the_lemma(seed, primal_step, momentum):
    """Lemma ISweight (I): w <= exp(2 H M_pi1 eta_theta), and M_pi1 = 1 for a table."""
    solver = replace(SOLVER, primal_step=primal_step, momentum=momentum)
    history = cm.solve(small_problem(), solver, seed=seed).history
    assert history["weight_max"].max() <= math.exp(2 * HORIZON * primal_step) * (1 + 1e-4)
    assert history["weight_max"].max() > 1.0
    assert (history["weight_mean"] <= history["weight_max"] * (1 + 1e-6)).all()


def test_iterate_average_deploys_the_policy_of_the_last_half(problem):
    averaged = cm.solve(problem, replace(SOLVER, iterate="half"), seed=3)
    last = cm.solve(problem, SOLVER, seed=3)
    assert params_of(averaged) == pytest.approx(params_of(last))
    every = cm.solve(problem, replace(SOLVER, evaluate_every=1), seed=3)
    mean = every.history["objective"][30:61].mean()
    assert averaged.objective == pytest.approx(mean, rel=1e-6)  # the objective is linear


def test_batches_are_counted(problem):
    found = cm.solve(problem, replace(SOLVER, iterations=3, batch_size=5), seed=0)
    lengths = found.history["episode_length"]
    assert found.stats["samples"] == pytest.approx(5 * lengths.sum(), abs=1e-3)
    assert (found.history["effective_sample_size"] <= 5.0 + 1e-4).all()
    assert found.history["effective_sample_size"][0] == pytest.approx(5.0)


def test_theory_gives_the_schedule_of_the_theorem(problem):
    solver = cm.VRPDPG.theory(problem, 10_000, dual_bound=3.0)
    assert solver.primal_step == pytest.approx(10_000**-0.5)
    assert solver.dual_step == pytest.approx(10_000**-0.75)
    assert solver.horizon == math.ceil(0.5 * math.log(10_000) / math.log(1 / 0.9))
    assert solver.momentum == "square root"
    assert solver.dual_bound == 3.0
    short = cm.VRPDPG.theory(problem, 16)
    assert short.dual_bound == cm.slater(problem).dual_bound
    few = cm.solve(problem, short, seed=0)
    assert few.stats["iterations"] == 16
    with pytest.raises(SettingsError, match="takes a problem first"):
        cm.VRPDPG.theory(10_000, 0.9)


def test_a_problem_without_constraints(problem):
    free = cm.Problem(problem.mdp, maximize=cm.entropy())
    found = cm.solve(free, SOLVER, seed=0)
    assert found.multipliers == {}
    assert math.isfinite(found.objective)


# --- starts -------------------------------------------------------------------------------------


def test_starts_from_a_policy(problem):
    policy = random_policy(problem.mdp, generator(1), concentration=1.0)
    still = replace(SOLVER, iterations=1, primal_step=1e-7)
    found = cm.solve(problem, still, start=policy, seed=0)
    assert found.objective == pytest.approx(problem.evaluate(policy).objective, rel=1e-4)


def test_starts_from_a_solution_with_its_multipliers(problem, solution):
    short = replace(SOLVER, iterations=1, initial_multiplier=None)
    found = cm.solve(problem, short, start=solution, seed=0)
    moved = np.linalg.norm(params_of(found) - params_of(solution))
    assert moved == pytest.approx(SOLVER.primal_step, rel=1e-4)
    for name, column in found.history["multipliers"].items():
        assert column[0] == pytest.approx(solution.multipliers[name], rel=1e-6)
    assert found.stats["start"] == "parameters and multipliers of the solution"


def test_an_explicit_multiplier_wins_over_that_of_the_start(problem, solution):
    given = replace(SOLVER, iterations=1, initial_multiplier=0.7)
    found = cm.solve(problem, given, start=solution, seed=0)
    for column in found.history["multipliers"].values():
        assert column[0] == pytest.approx(0.7)
    assert found.stats["start"] == "parameters of the solution"


def test_an_mlp_starts_from_its_own_solution(problem):
    solver = replace(SOLVER, iterations=1, policy=cm.MLP(8))
    earlier = cm.solve(problem, solver, seed=0)
    found = cm.solve(problem, solver, start=earlier, seed=1)
    moved = np.linalg.norm(params_of(found) - params_of(earlier))
    assert moved == pytest.approx(SOLVER.primal_step, rel=1e-4)


# --- interruption and errors --------------------------------------------------------------------


@pytest.mark.parametrize("iterate", ["last", "half", "uniform"])
def test_an_interrupt_returns_what_was_learnt(problem, solution, keyboard, monkeypatch, iterate):
    run_chunk, lengths = work.run_chunk, []

    def interrupted(*arguments, **settings):
        if sum(lengths) >= 3 and len(lengths) == 3:
            signal.raise_signal(signal.SIGINT)
        lengths.append(arguments[4])
        return run_chunk(*arguments, **settings)

    monkeypatch.setattr(driver, "PIECE_SECONDS", 0.0)  # as if an iteration took long
    monkeypatch.setattr(work, "run_chunk", interrupted)
    found = cm.solve(problem, replace(SOLVER, iterate=iterate), seed=3)
    assert lengths == [1] * 4
    assert found.status is cm.Status.INTERRUPTED
    assert found.stats["iterations"] == 4
    assert np.isfinite(found.objective)
    np.testing.assert_array_equal(found.history["iteration"], [0, 4])
    np.testing.assert_array_equal(
        found.history["gradient_norm"], solution.history["gradient_norm"][:4]
    )


def test_pieces_do_not_change_the_run(problem, solution, monkeypatch):
    monkeypatch.setattr(driver, "PIECE_SECONDS", 1e-4)
    pieces = cm.solve(problem, SOLVER, seed=3)
    np.testing.assert_array_equal(params_of(pieces), params_of(solution))
    np.testing.assert_array_equal(pieces.occupancy, solution.occupancy)
    for name in ("gradient_norm", "objective", "episode_return"):
        np.testing.assert_array_equal(pieces.history[name], solution.history[name])


@pytest.mark.parametrize("seed", [None, True, 0.5, "0"], ids=repr)
def test_sampling_needs_a_seed(problem, seed):
    with pytest.raises(SolverError, match="needs a seed"):
        cm.solve(problem, SOLVER, seed=seed)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("horizon", 0),
        ("horizon", 2.5),
        ("iterations", 0),
        ("batch_size", 0),
        ("evaluate_every", True),
        ("momentum", 0),
        ("momentum", 1.5),
        ("momentum", -0.1),
        ("momentum", math.nan),
        ("momentum", "x"),
        ("momentum", [0.3]),
        ("primal_step", 0.0),
        ("primal_step", math.inf),
        ("primal_step", "0.1"),
        ("iterate", "best"),
    ],
    ids=str,
)
def test_wrong_settings_are_named(setting, value):
    with pytest.raises(SolverError, match=f"{setting} must be .*got") as raised:
        replace(SOLVER, **{setting: value})
    assert str(value) in str(raised.value)


@pytest.mark.parametrize("setting", ["dual_step", "dual_bound", "pessimism", "initial_multiplier"])
def test_negative_numbers_and_unknown_constraints_are_refused(problem, setting):
    with pytest.raises(SolverError, match=setting):
        cm.solve(problem, replace(SOLVER, **{setting: -1.0}), seed=0)
    with pytest.raises(SolverError, match=r"'hazzard'.*hazard"):
        cm.solve(problem, replace(SOLVER, **{setting: {"hazzard": 1.0}}), seed=0)


def test_an_initial_multiplier_outside_the_box_is_refused(problem):
    with pytest.raises(SolverError, match=r"initial_multiplier of 'hazard' is 5.*dual_bound=2"):
        cm.solve(problem, replace(SOLVER, initial_multiplier=5.0), seed=0)


def test_the_direct_parameterisation_is_refused(problem):
    with pytest.raises(SolverError, match="needs scores"):
        cm.solve(problem, replace(SOLVER, policy=cm.Direct()), seed=0)


def test_features_for_another_number_of_actions_are_refused(problem):
    with pytest.raises(PolicyError, match=r"\(9, 4\).*\(9, 3, 2\)"):
        cm.solve(problem, replace(SOLVER, policy=cm.LinearSoftmax(np.ones((9, 3, 2)))), seed=0)


def test_a_module_for_another_number_of_actions_is_refused(problem):
    equinox = pytest.importorskip("equinox")
    module = equinox.nn.Linear(9, 3, key=jax.random.key(0))
    with pytest.raises(PolicyError, match="the model has 4 actions"):
        cm.solve(problem, replace(SOLVER, policy=cm.EquinoxModule(module)), seed=0)


@cm.concave
def breaks_on_the_second_visit(occupancy):
    """Finite with finite gradient at a single episode's occupancy, not where an entry is negative."""
    return jnp.sqrt(occupancy.sum() - 1.0) + jnp.where(occupancy.min() < 0, jnp.nan, 0.0)


@cm.concave
def never_finite(occupancy):
    return jnp.log(-1.0 - occupancy.sum() ** 2)


def test_a_utility_that_is_never_finite_stops_at_iteration_0(problem):
    bad = cm.Problem(
        problem.mdp, maximize=cm.linear("reward"), subject_to={"bad": never_finite >= 0}
    )
    with pytest.raises(SolverError, match=r"iteration 0: .*utility of your own"):
        cm.solve(bad, SOLVER, seed=0)


def test_a_utility_that_stops_being_finite_is_an_error_that_names_the_iteration(problem):
    limits = {"bad": breaks_on_the_second_visit >= 0}
    bad = cm.Problem(problem.mdp, maximize=cm.linear("reward"), subject_to=limits)
    harsh = replace(SOLVER, momentum=0.05, primal_step=1.0, evaluate_every=1)
    with pytest.raises(SolverError, match=r"iteration [1-9]\d*: ") as raised:
        cm.solve(bad, harsh, seed=0)
    named = int(str(raised.value).split(":")[0].split()[-1])
    shorter = replace(harsh, iterations=named)
    assert cm.solve(bad, shorter, seed=0).stats["iterations"] == named  # the one before was fine


# --- options ------------------------------------------------------------------------------------


def test_uniform_is_a_policy_that_draws_one_iterate_per_episode(problem, tmp_path):
    found = cm.solve(problem, replace(SOLVER, iterate="uniform"), seed=3)
    assert len(found.policy.components) == 61
    np.testing.assert_allclose(
        found.policy.components[0], 0.25, atol=1e-6
    )  # theta_0 is one of them
    members = [found.policy.draw(generator(k)).probabilities() for k in range(20)]
    assert np.ptp(members, axis=0).max() > 0.05
    mean = np.mean(
        [
            cm.occupancy_of(problem.mdp, p.astype(float))
            for p in map(normal, found.policy.components)
        ],
        axis=0,
    )
    np.testing.assert_allclose(found.occupancy, mean, rtol=1e-6, atol=1e-9)
    found.policy.save(tmp_path / "mixture.safetensors")
    again = cm.load_policy(tmp_path / "mixture.safetensors")
    np.testing.assert_array_equal(again.components, found.policy.components)
    np.testing.assert_array_equal(again.probabilities(), found.policy.probabilities())


def normal(table):
    return table.astype(float) / table.sum(axis=1, keepdims=True, dtype=float)


def test_uniform_keeps_a_fair_share_of_a_long_run(problem, monkeypatch):
    monkeypatch.setattr(learning, "KEPT", 16)
    found = cm.solve(problem, replace(SOLVER, iterate="uniform"), seed=3)
    assert len(found.policy.components) == 16


def test_recording_less_often_changes_nothing_but_the_history(problem, solution):
    thin = cm.solve(problem, replace(SOLVER, record_every=7), seed=3)
    np.testing.assert_array_equal(params_of(thin), params_of(solution))
    np.testing.assert_array_equal(thin.history["recorded"], np.arange(7, 62, 7))
    np.testing.assert_allclose(
        thin.history["gradient_norm"], solution.history["gradient_norm"][6::7], rtol=1e-5
    )
    assert thin.stats["samples"] == solution.stats["samples"]


def test_automatic_pessimism_is_certified_feasible():
    mdp = cm.gridworld(3, slip=0.1, discount=0.9, hazards=[4], rewards={8: 1.0})
    limits = {"hazard": cm.linear("hazard", per="step") <= 0.05}
    problem = cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=limits)
    solver = cm.VRPDPG(400, 0.3, 0.5, 0.3, 30, batch_size=4, pessimism="auto")
    found = cm.solve(problem, solver, seed=0)
    assert found.stats["violation_proven_zero"]
    assert found.slack["hazard"] >= 0
    certificate = cm.certify(problem, found)
    assert not certificate.repaired
    assert certificate.slack["hazard"] >= 0


def test_the_average_over_the_last_half_is_called_half():
    with pytest.raises(SettingsError, match=r'cvxmdp 0\.1.*write iterate="half"'):
        replace(SOLVER, iterate="average")


@pytest.mark.parametrize("name", [name for name in REMOVED["VRPDPG"] if name.isidentifier()])
def test_options_of_release_0_1_are_refused_by_name(problem, name):
    """However they are given: as a keyword, to ``replace``, or as the axis of a sweep."""
    instead = "write it in solve" if name == "progress" else "remove it"
    expected = rf"{name} was an option of cvxmdp 0\.1; it is gone because .*; {instead}"
    given: Any = {name: 1.0}
    with pytest.raises(SettingsError, match=expected):
        cm.VRPDPG(50, 0.1, 0.1, 1.0, HORIZON, **given)
    with pytest.raises(SettingsError, match=expected):
        replace(SOLVER, **given)
    with pytest.raises(SettingsError, match=expected):
        cm.sweep(problem, SOLVER, over={name: [1.0]}, seeds=[0])


def test_exploding_weights_are_a_warning(problem):
    wild = replace(SOLVER, primal_step=3.0, iterations=100, batch_size=30, horizon=40)
    with pytest.warns(CvxmdpWarning, match="largest importance weight was"):
        found = cm.solve(problem, wild, seed=1)
    assert found.stats["largest_weight"] > 20


def test_weights_that_play_no_part_are_no_warning(problem, recwarn):
    wild = replace(SOLVER, primal_step=3.0, iterations=100, batch_size=30, horizon=40, momentum=1.0)
    cm.solve(problem, wild, seed=1)
    assert not [w for w in recwarn if "importance weight" in str(w.message)]


def test_tracking_error_is_that_of_single_episodes():
    problem = tracking_problem("8x8-traj2")
    found = cm.solve(problem, cm.VRPDPG(40, 0.1, 0.1, 0.3, 14), seed=0)
    error = found.history["tracking_error"]["near the expert"]
    slack = found.history["episode_slack"]["near the expert"]
    np.testing.assert_allclose(error, 0.01 - slack, rtol=1e-4, atol=1e-5)
    assert found.history["episode_return"].min() >= -0.2 * 14 - 1e-5


@pytest.mark.parametrize("name", ["primal_decay", "dual_decay"])
def test_departures_are_numbers_that_are_not_negative(name):
    for wrong in (-0.1, math.inf, "a", [0.1]):
        with pytest.raises(SolverError, match=f"{name} must be"):
            replace(SOLVER, **{name: wrong})


def test_what_decays_ends_at_zero_and_not_in_denormal_numbers() -> None:
    """They slow a processor down several times; a table that is no longer visited would end there."""
    mdp = cm.gridworld(3, discount=0.9, goal=1)
    problem = cm.Problem(mdp, maximize=cm.entropy(), subject_to={"all": cm.linear("reward") <= 9.0})
    run = Run(cm.VRPDPG(400, 0.1, 0.1, 0.9, 4).prepare(Task(problem, seed=0)))
    while not run.finished:
        run.advance()
    state = run.state.carry.state
    for leaf in (np.asarray(state.occupancy), np.asarray(state.gradients)):
        assert not ((leaf != 0) & (np.abs(leaf) < 1e-30)).any()
    assert (np.asarray(state.occupancy) == 0).any()
