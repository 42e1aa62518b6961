"""Finite horizons: horizon=T against hand-solved chains, exact recursions and the unrolled model."""

from __future__ import annotations

import itertools
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp import theory
from cvxmdp.algorithms.primal_dual import iteration as core
from cvxmdp.base.precision import double_precision
from cvxmdp.checker.check import check_file
from cvxmdp.checker.saved_problem import read_problem as read_saved
from cvxmdp.models.compiled_systems import SparseDynamics, TimedDynamics, dynamics
from cvxmdp.policies.occupancies import occupancy_of, policy_of

SOLVERS = (cm.ConvexProgram(), cm.ColumnGeneration())


def store(steps: int = 4, budget: float | None = None) -> cm.Problem:
    """Ripe or not: picking ends with 1, then with more; every step of waiting costs a little."""
    transition = np.zeros((3, 2, 3))
    transition[0, 0, 1] = transition[1, 0, 2] = transition[2, 0, 2] = 1.0
    price = np.array([[-0.1, 1.0], [-0.1, 1.5], [-0.1, 1.7]])
    waits = np.array([[1.0, 0.0]] * 3)
    mdp = cm.TabularMDP(
        transition,
        0,
        horizon=steps,
        signals={"price": price, "waits": waits},
        state_names=["green", "yellow", "red"],
        action_names=["wait", "pick"],
    )
    limits = {} if budget is None else {"waits": cm.linear("waits", per="episode") <= budget}
    return cm.Problem(mdp, maximize=cm.linear("price"), subject_to=limits)


@pytest.mark.parametrize("solver", SOLVERS)
def test_hand_solved_store(solver: cm.Solver) -> None:
    # Waiting twice: -0.2 + 1.7. In two steps: -0.1 + 1.5. With half a wait: between 1 and 1.4.
    for steps, budget, best in ((4, None, 1.5), (2, None, 1.4), (4, 0.5, 1.2), (1, None, 1.0)):
        problem = store(steps, budget)
        solution = cm.solve(problem, solver)
        assert solution.status is cm.Status.OPTIMAL
        assert solution.objective == pytest.approx(best, abs=1e-6)
        certificate = cm.certify(problem, solution)
        assert certificate.lower <= best + 1e-12 <= certificate.upper + 2e-12
        assert certificate.upper - certificate.lower < 1e-6
        assert cm.check(certificate, problem).accepted
        assert solution.occupancy.shape == (3, 2)
        assert solution.occupancy_by_time.shape == (steps, 3, 2)
        assert solution.occupancy_by_time.sum(axis=0) == pytest.approx(solution.occupancy)


def test_policies_depend_on_time() -> None:
    """With the end in sight one picks what there is."""
    policy = cm.solve(store(2)).policy
    assert isinstance(policy, cm.TimedPolicy)
    assert policy.probabilities(0, time=0) == pytest.approx([1.0, 0.0])
    assert policy.probabilities(1, time=1) == pytest.approx([0.0, 1.0])
    assert policy.probabilities().shape == (2, 3, 2)
    assert policy.probabilities(time=1).shape == (3, 2)
    with pytest.raises(cm.PolicyError, match="no step 2"):
        policy.probabilities(0, time=2)
    assert policy.sample(1, np.random.default_rng(0), time=1) == 1


def test_predict_counts_the_steps(tmp_path) -> None:  # type: ignore[no-untyped-def]
    tables = np.zeros((2, 3, 2))
    tables[0, :, 0] = tables[1, :, 1] = 1.0
    policy = cm.TimedPolicy(tables)
    assert [int(policy.predict(0, episode_start=k == 0)[0]) for k in range(3)] == [0, 1, 1]
    assert int(policy.predict(0, episode_start=True)[0]) == 0
    # Nobody says where episodes begin: each has as many steps as the horizon.
    assert [int(policy.predict(0)[0]) for _ in range(4)] == [1, 0, 1, 0]
    both = cm.TimedPolicy(tables)
    assert both.predict(np.array([0, 1]))[0].tolist() == [0, 0]
    assert both.predict(np.array([0, 1]), episode_start=np.array([True, False]))[0].tolist() == [
        0,
        1,
    ]
    policy.save(tmp_path / "policy.safetensors")
    again = cm.load_policy(tmp_path / "policy.safetensors")
    assert again.probabilities().tolist() == tables.tolist()
    with pytest.raises(cm.PolicyError, match=r"\(T, S, A\)"):
        cm.TimedPolicy(tables[0])


def random_model(seed: int, steps: int, discount: float = 1.0) -> cm.TabularMDP:
    rng = np.random.default_rng(seed)
    mdp = cm.garnet(6, 3, 2, discount=0.9, seed=seed).replace(horizon=steps, discount=discount)
    return mdp.with_signals(r=rng.normal(size=(6, 3)), c=rng.uniform(size=(6, 3)))


@pytest.mark.parametrize("seed", range(3))
def test_a_linear_problem_is_that_of_the_unrolled_model(seed: int) -> None:
    finite = random_model(seed, 5, 0.95)
    limits = {"c": cm.linear("c") <= 2.0}
    problem = cm.Problem(finite, maximize=cm.linear("r"), subject_to=limits)
    unrolled = cm.Problem(finite.unroll(5), maximize=cm.linear("r"), subject_to=limits)
    expected = cm.solve(unrolled)
    for solver in SOLVERS:
        solution = cm.solve(problem, solver)
        assert solution.objective == pytest.approx(expected.objective, abs=2e-6)
        by_time = solution.occupancy_by_time.reshape(30, 3)
        assert unrolled.evaluate_occupancy(by_time).objective == pytest.approx(solution.objective)
        assert finite.flow.miss(by_time) < 1e-13


def test_a_concave_problem_sees_the_sum_over_time() -> None:
    """The entropy of the time-averaged state distribution, of which the unrolled model knows nothing."""
    mdp = random_model(1, 8)
    problem = cm.Problem(
        mdp, maximize=cm.entropy(), subject_to={"c": cm.linear("c", per="step") <= 0.5}
    )
    solution = cm.solve(problem)
    assert solution.status is cm.Status.OPTIMAL
    share = solution.occupancy.sum(axis=1) / 8
    assert solution.objective == pytest.approx(-float(share @ np.log(share)))
    certificate = cm.certify(problem, solution)
    assert certificate.relative_gap < 1e-8
    assert cm.check(certificate, problem).accepted
    other = cm.solve(problem, cm.ColumnGeneration(tolerance=1e-3))
    assert other.objective == pytest.approx(solution.objective, rel=2e-3)
    target = occupancy_of(mdp, cm.TabularPolicy(np.eye(3)[np.zeros(6, dtype=int)]))
    near = cm.Problem(mdp, minimize=cm.distance(target, norm="l2-squared"))
    assert cm.solve(near).objective == pytest.approx(0.0, abs=1e-8)


def test_signals_may_depend_on_time() -> None:
    mdp = random_model(2, 4)
    rng = np.random.default_rng(2)
    reward = rng.normal(size=(4, 6, 3))
    problem = cm.Problem(mdp, maximize=cm.linear(reward))
    values = np.zeros(6)
    for now in reward[::-1]:
        values = (now + mdp.dense_transition() @ values).max(axis=1)
    for solver in SOLVERS:
        solution = cm.solve(problem, solver)
        assert solution.objective == pytest.approx(float(mdp.initial @ values), abs=1e-6)
        assert cm.check(cm.certify(problem, solution), problem).accepted
    with pytest.raises(cm.UtilityError, match=r"one by time is \(T, S, A\)"):
        cm.Problem(mdp.replace(horizon=3), maximize=cm.linear(reward))
    with pytest.raises(cm.UtilityError, match=r"one by time is \(T, S, A\)"):
        cm.Problem(cm.garnet(6, 3, 2, discount=0.9, seed=0), maximize=cm.linear(reward))


@pytest.mark.parametrize("seed", range(8))
def test_bounds_hold_for_exact_optima(seed: int) -> None:
    """All deterministic policies of two steps by enumeration, in fractions; mixtures of two meet a budget."""
    rng = np.random.default_rng(seed)
    states, actions, steps = 2, 2, 3
    weights = rng.integers(1, 8, size=(states, actions, states))
    ends = rng.integers(0, 4, size=(states, actions))
    sums = weights.sum(axis=2) + ends
    values = rng.integers(-8, 9, size=(2, states, actions))
    mdp = cm.TabularMDP(
        weights / sums[:, :, None],
        0,
        horizon=steps,
        signals={"reward": values[0] / 8, "cost": values[1] / 8},
    )
    points = set()
    for choice in itertools.product(range(actions), repeat=states * steps):
        visits, found = [Fraction(1), Fraction(0)], [Fraction(0), Fraction(0)]
        for time in range(steps):
            after = [Fraction(0)] * states
            for s in range(states):
                a = choice[time * states + s]
                for k in range(2):
                    found[k] += visits[s] * Fraction(int(values[k, s, a]), 8)
                for t in range(states):
                    after[t] += visits[s] * Fraction(int(weights[s, a, t]), int(sums[s, a]))
            visits = after
        points.add(tuple(found))
    costs = sorted(c for _, c in points)
    budget = (2 * costs[0] + costs[-1]) / 3
    mixed = [
        r + (s - r) * (budget - c) / (d - c)
        for (r, c), (s, d) in itertools.permutations(points, 2)
        if c < budget < d
    ]
    best = float(max([r for r, c in points if c <= budget] + mixed))
    problem = cm.Problem(
        mdp, maximize=cm.linear("reward"), subject_to={"cost": cm.linear("cost") <= float(budget)}
    )
    for solver in SOLVERS:
        certificate = cm.certify(problem, cm.solve(problem, solver))
        assert certificate.lower <= best + 1e-13
        assert certificate.upper >= best - 1e-13
        assert certificate.upper - certificate.lower < 2e-6


def test_stationary_policies_are_taken_everywhere() -> None:
    problem = store(4)
    wait = np.tile([1.0, 0.0], (3, 1))
    assert occupancy_of(problem.mdp, wait).sum() == pytest.approx(4.0)
    assert problem.evaluate(wait).objective == pytest.approx(-0.4)
    certificate = cm.certify(problem, wait)
    assert certificate.lower == pytest.approx(-0.4)
    assert certificate.upper == pytest.approx(1.5)
    by_time = np.broadcast_to(wait, (4, 3, 2))
    assert problem.evaluate(by_time).objective == pytest.approx(-0.4)
    assert policy_of(problem.mdp, problem.evaluate(wait).occupancy.reshape(4, 3, 2)).steps == 4
    with pytest.raises(cm.PolicyError, match="tables for 3 steps"):
        problem.evaluate(by_time[:3])
    with pytest.raises(cm.PolicyError, match="depends on time"):
        occupancy_of(problem.mdp.replace(horizon=None, discount=0.9), by_time)
    again = cm.solve(problem, cm.ColumnGeneration(), start=cm.solve(problem))
    assert again.objective == pytest.approx(1.5)


def test_infeasible_budgets_and_slater_points() -> None:
    problem = store(3, 0.5)
    assert cm.slater(problem).exists
    both = {**problem.constraints, "late": cm.linear("waits") >= 1.0}
    infeasible = cm.Problem(problem.mdp, maximize=cm.linear("price"), subject_to=both)
    for solver in SOLVERS:
        assert cm.solve(infeasible, solver).status is cm.Status.INFEASIBLE


def test_models_problems_and_proofs_in_files(tmp_path) -> None:  # type: ignore[no-untyped-def]
    problem = store(3, 0.5)
    problem.mdp.save(tmp_path / "model.safetensors")
    again = cm.TabularMDP.load(tmp_path / "model.safetensors")
    assert again.horizon == problem.mdp.horizon
    assert "3 steps" in repr(again)
    solution = cm.solve(problem)
    solution.save(tmp_path / "solution")
    assert cm.load_solution(tmp_path / "solution").policy.probabilities().shape == (3, 3, 2)
    certificate = cm.certify(problem, solution)
    certificate.save(tmp_path / "certificate.json")
    assert check_file(tmp_path / "certificate.json", read_saved(tmp_path / "solution")).accepted
    longer = cm.Problem(
        problem.mdp.replace(horizon=4), maximize=problem.utility, subject_to=problem.constraints
    )
    assert not cm.check(certificate, longer).accepted  # another problem
    assert "sum over 3 steps" in str(solution)
    cm.report(solution, tmp_path / "report.html")


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_compiled_sweeps_are_those_of_the_flow(kind: str) -> None:
    mdp = random_model(2, 4, 0.9)
    flow, rng = mdp.flow, np.random.default_rng(0)
    policy, reward = rng.dirichlet(np.ones(3), size=24), rng.normal(size=(24, 3))
    with double_precision():
        entries = (mdp.transition.data, *mdp.transition.tocoo().coords)
        single = SparseDynamics(*entries, mdp.initial, 0.9, mdp.actions)
        compiled = dynamics(mdp) if kind == "dense" else TimedDynamics(single, 4)
        visits = compiled.visits(policy, ())
        values = compiled.values(policy, (), reward)
        following = compiled.following(values)
    assert np.asarray(visits) == pytest.approx(flow.occupancy(policy).sum(axis=1), rel=1e-13)
    assert np.asarray(values) == pytest.approx(flow.values(policy, reward), rel=1e-12)
    assert np.asarray(following) == pytest.approx(flow.following(np.asarray(values)), rel=1e-12)


def test_gradients_find_tables_for_every_step() -> None:
    """Exact ones close the certified gap with a binding budget, sampled ones come near."""
    problem = store(4, 0.5)
    exact = cm.solve(problem, cm.PDPG(600))
    assert exact.status is cm.Status.OPTIMAL
    assert isinstance(exact.policy, cm.TimedPolicy)
    assert exact.objective == pytest.approx(1.2, abs=1e-6)
    assert exact.history["snapshot_occupancy"].shape[1:] == (3, 2)
    assert cm.check(cm.certify(problem, exact), problem).accepted
    learned = cm.solve(problem, cm.VRPDPG(1_000), seed=0)
    assert isinstance(learned.policy, cm.TimedPolicy)
    assert learned.objective == pytest.approx(1.2, abs=0.05)
    assert learned.slack["waits"] > -0.03
    assert "horizon 4," in learned.message  # the model's own: nothing is cut off
    again = cm.solve(problem, cm.PDPG(600), start=exact)
    assert again.stats["iterations"] <= exact.stats["iterations"]


def test_the_direction_of_steps_by_time_is_the_gradient() -> None:
    """A function that sees the sum over time alone: its gradient in the logits, by finite differences."""
    mdp = random_model(3, 3)
    problem = cm.Problem(mdp, maximize=cm.entropy())
    with double_precision():
        family = cm.Table().bind(mdp.deciding)
        nothing = np.zeros(0)
        compiled = core.Compiled(
            dynamics(mdp), problem.objective_function, (), family, nothing, nothing
        )
        theta = np.random.default_rng(0).normal(size=(18, 3))
        point, chain = core.evaluate(compiled, theta)
        found, _ = core.gradient_and_direction(compiled, theta, point, chain, nothing, "vanilla")
        for place in ((0, 0), (7, 1), (17, 2)):
            values = []
            for step in (1e-5, -1e-5):
                moved = theta.copy()
                moved[place] += step
                values.append(float(core.evaluate(compiled, moved)[0].objective))
            slope = (values[0] - values[1]) / 2e-5
            assert float(found[place]) == pytest.approx(slope, rel=1e-5, abs=1e-9)


def test_features_are_the_same_at_every_step_or_not() -> None:
    mdp = random_model(4, 3)
    rng = np.random.default_rng(0)
    always, by_time = rng.normal(size=(6, 3, 2)), rng.normal(size=(3, 6, 3, 2))
    for features in (always, by_time):
        family = cm.LinearSoftmax(features).bind(mdp.deciding)
        tables = family.deploy(np.array([0.3, -1.0])).probabilities().reshape(3, 6, 3)
        assert np.allclose(tables[0], tables[2]) == (features is always)
    with pytest.raises(cm.PolicyError, match="features of LinearSoftmax"):
        cm.LinearSoftmax(by_time[:2]).bind(mdp.deciding)


def test_declared_constants_hold_for_sums_over_time() -> None:
    """|f(sum_t x_t) - f(sum_t y_t)| <= L sqrt(T) |x - y|: the promise is about the sum."""
    far = cm.concave(lambda x: -jnp.sqrt((x**2).sum() + 1.0), lipschitz=1.0, smoothness=1.0)
    problem = cm.Problem(random_model(5, 4), maximize=far)
    found = problem.objective_function.constants(problem.mdp)
    assert (found.lipschitz, found.smoothness) == (2.0, 4.0)
    rng = np.random.default_rng(0)
    for _ in range(20):
        x, step = rng.uniform(size=(24, 3)), np.tile(rng.normal(size=(6, 3)), (4, 1))
        change = abs(
            problem.objective_function.value(x + step) - problem.objective_function.value(x)
        )
        assert change <= found.lipschitz * np.linalg.norm(step)


def test_theorems_speak_of_the_unrolled_model() -> None:
    """Lipschitz constants of sums over T steps, visits that no policy avoids, no strong concavity."""
    rng = np.random.default_rng(0)
    mixed = 0.5 * random_model(0, 3).dense_transition() + 0.5 / 6
    mdp = cm.TabularMDP(mixed, np.full(6, 1 / 6), horizon=3, signals={"r": rng.normal(size=(6, 3))})
    for _ in range(5):
        policy = rng.dirichlet(np.full(3, 0.2), size=18)
        assert (mdp.flow.occupancy(policy).sum(axis=1) >= mdp.flow.least_visits - 1e-15).all()
    problem = cm.Problem(mdp, maximize=-cm.distance(np.full((6, 3), 0.1), norm="l2-squared"))
    parameterisation = theory.direct_constants(mdp)
    found = theory.problem_constants(problem, parameterisation)
    assert parameterisation.inverse_lipschitz == pytest.approx(
        np.sqrt(8.0) / mdp.flow.least_visits.min()
    )
    assert found.strength == 0.0
    assert found.discount == pytest.approx(1 - 1 / 3)
    single = theory.problem_constants(
        cm.Problem(mdp.replace(horizon=1), maximize=problem.utility), parameterisation
    )
    assert found.smoothness == pytest.approx(3 * single.smoothness)
    with pytest.raises(theory.TheoryError, match="at step 1"):
        theory.direct_constants(random_model(0, 3).replace(initial=np.full(6, 1 / 6)))


def test_what_is_refused() -> None:
    with pytest.raises(cm.SolverError, match="horizon=4: this learner's policies"):
        cm.solve(store(4), cm.ModelBased(100), seed=0)
    base = store(4).mdp
    for steps, message in ((0, "at least 1"), (2.5, "whole number")):
        with pytest.raises(cm.ModelError, match=message):
            base.replace(horizon=steps)
    with pytest.raises(cm.ModelError, match="never ends"):
        cm.TabularMDP(base.transition, 0, horizon=3, average=True)
    with pytest.raises(cm.UtilityError, match='per="episode"'):
        cm.Problem(base.replace(discount=0.9), maximize=cm.linear("price", per="episode"))


def test_episodes_of_a_simulated_model_are_whole() -> None:
    problem = store(3, 0.5)
    solution = cm.solve(problem)
    found = cm.evaluate(solution, problem.mdp, 400, seed=0)
    assert found.truncated == 0
    assert found.objective.proven
    assert found.objective.lower <= solution.objective <= found.objective.upper
    assert found.occupancy == pytest.approx(solution.occupancy, abs=0.1)


def test_inventory_over_a_season() -> None:
    """Orders of a shop with four places: the exact recursion, and fewer orders under a budget."""
    places, demand = 4, np.array([0.3, 0.4, 0.3])
    transition = np.zeros((places + 1, places + 1, places + 1))
    profit, orders = np.zeros((places + 1, places + 1)), np.zeros((places + 1, places + 1))
    mask = np.zeros((places + 1, places + 1), dtype=bool)
    for stock, order in itertools.product(range(places + 1), repeat=2):
        if stock + order > places:
            continue
        mask[stock, order] = True
        orders[stock, order] = float(order > 0)
        for wanted, chance in enumerate(demand):
            sold = min(wanted, stock + order)
            transition[stock, order, stock + order - sold] += chance
            profit[stock, order] += chance * (3.0 * sold - 0.1 * (stock + order - sold))
        profit[stock, order] -= 1.0 * order + 0.5 * (order > 0)
    season = cm.TabularMDP(
        transition, 0, horizon=12, signals={"profit": profit, "orders": orders}, actions=mask
    )
    values = np.zeros(places + 1)
    for _ in range(12):
        values = np.where(mask, profit + transition @ values, -np.inf).max(axis=1)
    problem = cm.Problem(season, maximize=cm.linear("profit"))
    assert cm.solve(problem).objective == pytest.approx(values[0], abs=1e-9)
    few = cm.Problem(
        season, maximize=cm.linear("profit"), subject_to={"orders": cm.linear("orders") <= 4}
    )
    both = [cm.solve(few, solver) for solver in SOLVERS]
    assert both[0].objective == pytest.approx(both[1].objective, rel=2e-6)
    assert both[0].objective < values[0] - 0.01
    # Over many steps the mean per step is that of the long run, up to what the start and the end are worth.
    gain = cm.linear("profit", per="step")
    rate = {"orders": cm.linear("orders", per="step") <= 1 / 3}
    forever = cm.solve(cm.Problem(season.replace(average=True), maximize=gain, subject_to=rate))
    long = season.replace(horizon=240)
    lasting = cm.solve(cm.Problem(long, maximize=gain, subject_to=rate))
    assert lasting.objective == pytest.approx(forever.objective, abs=0.05)
    assert cm.certify(forever.problem, forever).relative_gap < 1e-6


def test_a_few_characters_cannot_ask_for_all_memory() -> None:
    mdp = cm.garnet(50, 3, 3, discount=0.9, seed=0)
    with pytest.raises(cm.ModelError, match=r"makes tables of 135,000,000,000 numbers"):
        mdp.replace(horizon=900_000_000)
