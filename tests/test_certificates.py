"""Certificates are true: no policy beats a bound, and every lower bound is reached."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

import cvxmdp as cm
from cvxmdp.base.errors import ProblemError
from cvxmdp.certificates.claims import Claims
from cvxmdp.checker.arithmetic import CertificateError, ErrorBound
from cvxmdp.checker.bounds import PlainProblem, achieved, upper_bound
from cvxmdp.problems.lowered import Lowered
from strategies import (
    AFFINE,
    CONCAVE,
    CONVEX,
    EVERY_UTILITY,
    coverage,
    exact_inner,
    exact_occupancy,
    generator,
    random_deterministic_policy,
    random_model,
    random_occupancy,
    random_policy,
    random_problem,
    seeds,
)

# Parameters of any size overflow here and there, which is then refused or makes an infinite bound.
pytestmark = [
    pytest.mark.filterwarnings("ignore:overflow"),
    pytest.mark.filterwarnings("ignore:invalid value"),
]

ROUNDING = 1e-11  # of the comparison, not of the certificate


def wild(parameters, random):
    """Parameters of the same form with other numbers in them: near, far, of any sign and size."""
    if isinstance(parameters, dict):
        return {name: wild(value, random) for name, value in parameters.items()}
    if isinstance(parameters, list):
        return [wild(value, random) for value in parameters]
    array = np.asarray(parameters, dtype=np.float64)
    kind = random.integers(4)
    if kind == 0:
        return array
    if kind == 1:
        return array + 0.1 * random.normal(size=array.shape)
    noise = random.normal(size=array.shape)
    return noise * 10.0 ** random.uniform(-3, 3 if kind == 2 else 300)


def some_policies(mdp, random, feasible):
    """Policies around a feasible one: mixtures with random and deterministic ones."""
    x = cm.occupancy_of(mdp, feasible)
    yield feasible
    for _ in range(12):
        share = 10.0 ** random.uniform(-4, 0)
        yield cm.policy_of(mdp, (1 - share) * x + share * random_occupancy(mdp, random))


def assert_none_beats(problem, bound, policies):
    """Bound is in the user's sign; at least one of the policies must be feasible."""
    compared = 0
    for policy in policies:
        found = problem.evaluate(policy)
        if min(found.slack.values(), default=0.0) < 0 or not math.isfinite(found.objective):
            continue
        compared += 1
        allowed = ROUNDING * max(1.0, abs(found.objective))
        assert problem.sign * found.objective <= problem.sign * bound + allowed
    assert compared > 0


def plain(problem):
    """The problem as the checker reads it."""
    return PlainProblem(Lowered(problem).plain())


def bound_of(certificate):
    """What no feasible policy beats."""
    return certificate.upper if certificate.sense == "maximize" else certificate.lower


def reached_by(certificate):
    """What ``certificate.policy`` reaches."""
    return certificate.lower if certificate.sense == "maximize" else certificate.upper


# The kernel: whatever the parameters are, the bound is true.


@pytest.mark.parametrize("kind", EVERY_UTILITY)
@settings(max_examples=15)
@given(seed=seeds)
def test_a_tangent_is_on_the_right_side_for_any_parameters(kind, seed):
    random = generator(seed)
    mdp = random_model(random)
    utility = EVERY_UTILITY[kind](mdp, random)
    concave = utility.curvature is not cm.Curvature.CONVEX
    sign = 1.0 if concave else -1.0
    claims = Claims.of(cm.Problem(mdp, **{"maximize" if concave else "minimize": utility}))
    node = claims.checked.objective  # of sign * utility: concave
    tangents = claims.lowered.tangents_at(random_occupancy(mdp, random))
    parameters = tangents["objective"]
    function, points = utility.lower(mdp), [random_occupancy(mdp, random) for _ in range(5)]
    values = [sign * float(function.value(x)) for x in points]
    for changed in (parameters, wild(parameters, random), wild(parameters, random)):
        try:
            tangent = node.tangent(changed)
        except CertificateError:
            continue  # refused: not finite, not an occupancy, all weights zero
        for x, value in zip(points, values, strict=True):
            above = float((tangent.reward * x).sum()) + tangent.constant
            size = tangent.size + tangent.steep.max() * claims.flow.mass + abs(value)
            assert value <= above + 1e-13 * size


@pytest.mark.parametrize("kind", EVERY_UTILITY)
@settings(max_examples=15)
@given(seed=seeds)
def test_drift_covers_the_change_to_any_point_that_near(kind, seed):
    random = generator(seed)
    mdp = random_model(random)
    utility = EVERY_UTILITY[kind](mdp, random)
    sense = "minimize" if utility.curvature is cm.Curvature.CONVEX else "maximize"
    problem = cm.Problem(mdp, **{sense: utility})
    function, node = problem.objective_function, plain(problem).objective
    x = random_occupancy(mdp, random)
    size = 10.0 ** random.uniform(-12, -1)
    moved = x + np.where(mdp.reachable_pairs, random.normal(size=x.shape) * size, 0.0)
    moved = np.where(x > 0, np.maximum(moved, 0.0), 0.0)
    error = ErrorBound(float(np.abs(moved - x).sum()), x > 0)
    difference = abs(node.value(x) - float(function.value(moved)))
    # Custom functions are taken to first order: their promise covers the rest.
    allowed = 1.5 if node.promises else 1.0
    assert difference <= allowed * node.drift(x, error) + 1e-15


@settings(max_examples=60)
@given(seed=seeds)
def test_any_multipliers_tangents_and_values_give_a_true_bound(seed):
    random = generator(seed)
    mdp = random_model(random)
    feasible = random_policy(mdp, random)
    problem = random_problem(mdp, random, feasible, custom=True)
    claims = plain(problem)
    lowered = Lowered(problem)
    for tried in range(4):
        z = random_occupancy(mdp, random)
        proof = lowered.tangents_at(z)
        multipliers = {name: float(random.gamma(0.3) * 10) for name in claims.slacks}
        proof["values"] = random.normal(size=mdp.n_states) * 10.0 ** random.uniform(-2, 3)
        if tried:
            proof = wild(proof, random)
        try:
            bound = upper_bound(claims, multipliers, proof)
        except CertificateError:
            continue
        policies = list(some_policies(mdp, random, feasible))
        assert_none_beats(problem, problem.sign * bound, policies)


# Forgeries that once worked: each claimed a bound below what some policy reaches.


def two_states(discount=0.9, scale=1.0):
    sway = np.array([[1.0, -1.0], [1.0, -1.0]])
    return cm.TabularMDP(
        np.full((2, 2, 2), 0.5 * scale),
        [0.5, 0.5],
        discount,
        signals={"reward": np.ones((2, 2)), "sway": sway},
    )


def test_huge_opposite_multipliers_do_not_swallow_the_reward():
    subject_to = {"up": cm.linear("sway") <= 0, "down": cm.linear("sway") >= 0}
    problem = cm.Problem(two_states(), maximize=cm.linear("reward"), subject_to=subject_to)
    part = {"parts": [{}]}
    proof = {"objective": {}, "slacks": {"up": part, "down": part}, "values": np.zeros(2)}
    bound = upper_bound(plain(problem), {"up": 1e17, "down": 1e17}, proof)
    assert bound >= 10.0


def test_weights_of_a_minimum_that_overflow_do_not_vanish():
    utility = cm.minimum(cm.linear("reward"), 2 * cm.linear("reward"))
    problem = cm.Problem(two_states(), maximize=utility)
    parts = [{}, {"parts": [{}]}]
    proof = {"objective": {"weights": np.full(2, 1.7e308), "parts": parts}, "slacks": {}}
    assert upper_bound(plain(problem), {}, {**proof, "values": np.zeros(2)}) >= 10.0


def test_a_direction_whose_norm_underflows_does_not_shrink_a_ball():
    mdp = two_states()
    inside = cm.distance(cm.ball(cm.uniform_policy(mdp), 3.0)) <= 0
    problem = cm.Problem(mdp, maximize=cm.linear("sway"), subject_to={"ball": inside})
    slacks = {"ball": {"parts": [{"v": mdp.signal("sway").ravel() * 1e-200}]}}
    proof = {"objective": {}, "slacks": slacks, "values": np.zeros(2)}
    with pytest.raises(CertificateError, match="huge"):
        upper_bound(plain(problem), {"ball": 1e200}, proof)


def test_rows_that_end_no_episode_mean_their_numbers_divided_by_their_sum():
    problem = cm.Problem(two_states(0.9999, 1 + 9e-13), maximize=cm.linear("reward"))
    proof = {"objective": {}, "slacks": {}, "values": np.zeros(2)}
    truth = 1 / (1 - Fraction(0.9999))
    assert truth <= upper_bound(plain(problem), {}, proof) <= float(truth) * (1 + 1e-12)


@cm.concave
def minus_cubes(occupancy):
    return -(occupancy**3).sum()  # concave on occupancies, not on all arrays


@cm.concave
def mass_minus_squares(occupancy):
    return occupancy.sum() ** 2 - 2 * (occupancy**2).sum()  # concave where the mass is given


@pytest.mark.parametrize("point", [-10.0, 0.0, 50.0])
@pytest.mark.parametrize("function", [minus_cubes, mass_minus_squares], ids=repr)
def test_a_custom_function_is_linearised_at_occupancies_only(function, point):
    claims = plain(cm.Problem(two_states(), maximize=function))
    with pytest.raises(CertificateError, match="no occupancy"):
        claims.objective.tangent({"z": np.full((2, 2), point)})


def test_a_probability_that_underflows_is_still_taken():
    table = np.zeros((2, 2, 2))
    table[0, 0, 0] = table[1, :, 1] = 1.0
    table[0, 1] = [1.0, 5e-324]
    cost = np.array([[0.0, 0.0], [1.0, 1.0]])
    mdp = cm.TabularMDP(table, 0, 0.5, signals={"cost": cost})
    policy = np.array([[1.0, 1e-300], [1.0, 0.0]])
    assert plain(cm.Problem(mdp, minimize=cm.linear("cost"))).flow.support(policy)[1, 0]
    problem = cm.Problem(mdp, maximize=cm.entropy(), subject_to={"c": cm.linear("cost") <= 0})
    assert not achieved(plain(problem), policy).feasible


def test_huge_values_do_not_hide_the_reward_in_their_rounding():
    claims = plain(cm.Problem(two_states(), maximize=cm.linear("reward")))
    for seed in range(50):
        random = generator(seed)
        values = np.full(2, -(10.0 ** random.uniform(12, 17)))
        proof = {"objective": {}, "slacks": {}, "values": values}
        assert upper_bound(claims, {}, proof) >= 10.0


@pytest.mark.parametrize("seed", range(5))
def test_a_far_and_large_ball_is_allowed_its_rounding(seed):
    mdp = two_states()
    random = generator(seed)
    x = cm.occupancy_of(mdp, random_policy(mdp, random))
    center = x - 1e9 * random.uniform(0.1, 1.0, size=(2, 2))
    radius = float(np.linalg.norm(x - center)) - 1e-3
    node = plain(cm.Problem(mdp, minimize=cm.distance(cm.ball(center, radius)))).objective
    pairs = zip(x.flat, center.flat, strict=True)
    square = sum((Fraction(float(a)) - Fraction(float(b))) ** 2 for a, b in pairs)
    length = Fraction(math.isqrt(int(square * 10**60)), 10**30)  # to 30 digits
    error = ErrorBound(0.0, np.ones(x.shape, dtype=bool))
    assert Fraction(radius) - length >= Fraction(node.value(x)) - Fraction(node.drift(x, error))


def test_a_polytope_with_sharp_corners_is_allowed_its_rounding():
    # Two nearly parallel faces: a point that misses them by rounding is far from the set.
    mdp = two_states()
    sharp = 1e-7
    rows = np.zeros((2, 2, 2))
    rows[0, 0], rows[1, 0] = [sharp, 1.0], [sharp, -1.0]
    wedge = cm.polytope(rows, [0.0, 0.0])  # tip at zero; the occupancy lies straight ahead of it
    problem = cm.Problem(mdp, minimize=cm.distance(wedge))
    node = plain(problem).objective
    x = np.array([[5.0, 1e-9], [1.0, 1.0]])
    error = ErrorBound(0.0, np.ones(x.shape, dtype=bool))
    truth = math.hypot(5.0, 1e-9)
    assert node.value(x) - node.drift(x, error) <= -truth * (1 - 1e-15)


def test_a_polytope_without_interior_is_a_promise():
    rows = np.stack([np.ones((2, 2)), -np.ones((2, 2))])
    flat = cm.polytope(rows, [10.0, -10.0])
    problem = cm.Problem(two_states(), minimize=cm.distance(flat))
    certificate = cm.certify(problem, cm.uniform_policy(problem.mdp))
    assert any("no interior" in promise for promise in certificate.assumes)


# certify: bounds for any policy of any problem.


@pytest.mark.slow
@settings(max_examples=25)
@given(seed=seeds)
def test_no_feasible_policy_beats_the_bound_and_the_policy_reaches_its_own(seed):
    random = generator(seed)
    mdp = random_model(random)
    feasible = random_policy(mdp, random)
    problem = random_problem(mdp, random, feasible)
    draw = random_deterministic_policy if random.random() < 0.5 else random_policy
    certificate = cm.certify(problem, draw(mdp, random))
    assert not certificate.infeasible
    assert_none_beats(problem, bound_of(certificate), some_policies(mdp, random, feasible))
    assert certificate.policy is not None, "a Slater point exists, so repair must succeed"
    found = problem.evaluate(certificate.policy)
    allowed = ROUNDING * max(1.0, abs(found.objective))
    assert problem.sign * found.objective >= problem.sign * reached_by(certificate) - allowed
    for name, slack in certificate.slack.items():
        assert 0 <= slack <= found.slack[name] + ROUNDING
    assert certificate.lower <= certificate.upper


@pytest.mark.parametrize("kind", [*AFFINE, *CONCAVE, *CONVEX])
def test_exact_solutions_are_certified_tightly(kind):
    random = generator(len(kind) * 1000 + sum(map(ord, kind)))
    solved = 0
    for _ in range(2):
        mdp = random_model(random)
        feasible = random_policy(mdp, random, concentration=3.0)
        utility = EVERY_UTILITY[kind](mdp, random)
        sense = "minimize" if utility.curvature is cm.Curvature.CONVEX else "maximize"
        used = float((mdp.signal("cost") * cm.occupancy_of(mdp, feasible)).sum())
        problem = cm.Problem(
            mdp, **{sense: utility}, subject_to={"cost": cm.linear("cost") <= 0.99 * used + 0.05}
        )
        solution = cm.solve(problem, cm.ConvexProgram())
        if solution.status is not cm.Status.OPTIMAL:
            continue
        solved += 1
        certificate = cm.certify(problem, solution)
        assert certificate.relative_gap <= 1e-6
        assert certificate.policy is not None
    assert solved > 0


@pytest.mark.parametrize("kind", [*CONCAVE, *CONVEX])
def test_exact_solutions_under_curved_constraints_are_certified_tightly(kind):
    random = generator(sum(map(ord, kind)))
    mdp = random_model(random)
    feasible = random_policy(mdp, random, concentration=3.0)
    utility = EVERY_UTILITY[kind](mdp, random)
    value = float(utility.lower(mdp).value(cm.occupancy_of(mdp, feasible)))
    convex = utility.curvature is cm.Curvature.CONVEX
    constraint = utility <= value + 0.05 if convex else utility >= value - 0.05
    problem = cm.Problem(mdp, maximize=cm.linear("reward"), subject_to={"limit": constraint})
    solution = cm.solve(problem, cm.ConvexProgram())
    assert solution.status is cm.Status.OPTIMAL
    assert cm.certify(problem, solution).relative_gap <= 1e-6


@pytest.mark.parametrize("sense", ["maximize", "minimize"])
def test_the_bound_is_the_side_that_no_policy_gets_past(sense):
    mdp = cm.garnet(5, 2, 2, seed=1, discount=0.9)
    problem = cm.Problem(mdp, **{sense: cm.linear("reward")})
    uniform = cm.uniform_policy(problem.mdp)
    best = cm.solve(problem).objective
    assert cm.certify(problem, uniform).bound == pytest.approx(best, abs=1e-6)
    assert problem.sign * (best - problem.evaluate(uniform).objective) > 0.01


@settings(max_examples=12)
@given(seed=seeds)
def test_repaired_policies_are_feasible_in_exact_arithmetic(seed):
    random = generator(seed)
    mdp = random_model(random, n_states=4, n_actions=2)
    target = random_occupancy(mdp, random)
    worst = random_deterministic_policy(mdp, random)
    near = cm.distance(target, norm="l2-squared")
    cost = mdp.signal("cost")
    least = cm.certify(cm.Problem(mdp, minimize=cm.linear("cost")), worst).lower
    budget = 0.5 * (least + float((cost * cm.occupancy_of(mdp, cm.uniform_policy(mdp))).sum()))
    problem = cm.Problem(
        mdp,
        maximize=cm.linear("reward"),
        subject_to={"cost": cm.linear("cost") <= budget, "near": near <= 400.0},
    )
    solution = cm.solve(problem)
    for given_policy in (worst, solution):
        certificate = cm.certify(problem, given_policy)
        assert certificate.policy is not None
        exact = exact_occupancy(mdp, certificate.policy.probabilities())
        slack = Fraction(budget) - exact_inner(cost, exact)
        assert slack >= Fraction(certificate.slack["cost"]) >= 0
        square = sum(
            (y - Fraction(float(t))) ** 2
            for row, targets in zip(exact, target, strict=True)
            for y, t in zip(row, targets, strict=True)
        )
        assert 400 - square >= Fraction(certificate.slack["near"]) >= 0
        assert exact_inner(mdp.signal("reward"), exact) >= Fraction(certificate.lower)


def test_a_squared_distance_that_binds_is_kept_exactly():
    random = generator(5)
    mdp = random_model(random, n_states=4, n_actions=2, discount=0.8)
    target = cm.occupancy_of(mdp, cm.uniform_policy(mdp))
    near = cm.distance(target, norm="l2-squared") <= 0.01
    problem = cm.Problem(mdp, maximize=cm.linear("reward"), subject_to={"near": near})
    certificate = cm.certify(problem, cm.solve(problem))
    assert certificate.relative_gap <= 1e-6
    exact = exact_occupancy(mdp, certificate.policy.probabilities())
    square = sum(
        (y - Fraction(float(t))) ** 2
        for row, targets in zip(exact, target, strict=True)
        for y, t in zip(row, targets, strict=True)
    )
    assert 0 <= Fraction(0.01) - square < 1e-6


@pytest.mark.parametrize(
    ("states", "actions", "discount"),
    [(1, 1, 0.0), (1, 1, 0.9), (1, 3, 0.9), (4, 1, 0.5), (4, 2, 0.0)],
)
def test_smallest_models(states, actions, discount):
    random = generator(3)
    mdp = random_model(
        random,
        n_states=states,
        n_actions=actions,
        discount=discount,
        mask=False,
        unreachable=False,
        endings=False,
    )
    uniform = cm.uniform_policy(mdp)
    used = cm.Problem(mdp, minimize=cm.linear("cost")).evaluate(uniform).objective
    for utility in (cm.entropy(), cm.entropy(of="state-action"), cm.linear("reward")):
        problem = cm.Problem(
            mdp, maximize=utility, subject_to={"cost": cm.linear("cost") <= used + 0.1}
        )
        certificate = cm.certify(problem, cm.solve(problem))
        assert certificate.gap <= 1e-6 * max(1.0, abs(certificate.upper))
        assert_none_beats(problem, certificate.upper, [uniform])


def test_an_initial_distribution_that_sums_to_a_little_more_than_one():
    mdp = cm.TabularMDP(np.ones((1, 1, 1)), [1 + 9e-10], 0.99, signals={"reward": np.ones((1, 1))})
    problem = cm.Problem(mdp, maximize=cm.linear("reward"))
    certificate = cm.certify(problem, np.ones((1, 1)))
    truth = Fraction(1 + 9e-10) / (1 - Fraction(0.99))
    assert Fraction(certificate.lower) <= truth <= Fraction(certificate.upper)
    assert certificate.gap < 1e-9


# Infeasible problems.


@pytest.mark.parametrize("seed", range(4))
def test_infeasible_problems_are_proven_infeasible(seed):
    random = generator(seed)
    mdp = random_model(random)
    least = cm.solve(cm.Problem(mdp, minimize=cm.linear("cost"))).objective
    most = cm.solve(cm.Problem(mdp, maximize=cm.linear("cost"))).objective
    problem = cm.Problem(
        mdp,
        maximize=cm.entropy(),
        subject_to={
            "bystander": cm.linear("reward") <= 1e6,
            "cheap": cm.linear("cost") <= least + 0.3 * (most - least),
            "dear": cm.linear("cost") >= least + 0.4 * (most - least),
        },
    )
    for answer in (cm.uniform_policy(mdp), cm.solve(problem)):
        certificate = cm.certify(problem, answer)
        assert certificate.infeasible
        assert certificate.conflict == ("cheap", "dear")
        assert certificate.slack_bound < 0
        assert math.isnan(certificate.gap)


@pytest.mark.parametrize("kind", ["l2", "kl", "l1"])
def test_curved_constraints_are_proven_infeasible(kind):
    random = generator(11)
    mdp = random_model(random, mask=False)
    first, second = (random_policy(mdp, random, concentration=5.0) for _ in range(2))
    apart = cm.Problem(mdp, minimize=cm.distance(first, norm=kind)).evaluate(second).objective
    problem = cm.Problem(
        mdp,
        maximize=cm.linear("reward"),
        subject_to={
            "first": cm.distance(first, norm=kind) <= 0.01 * apart,
            "second": cm.distance(second, norm=kind) <= 0.01 * apart,
        },
    )
    certificate = cm.certify(problem, first)
    assert certificate.infeasible
    assert certificate.conflict == ("first", "second")


# Policies from anywhere.


@pytest.fixture(scope="module")
def exploration(grid):
    hazard = cm.linear("hazard", per="step") <= 0.05
    return cm.Problem(grid, maximize=cm.entropy(), subject_to={"hazard": hazard})


@pytest.mark.parametrize("action", range(4))
def test_deterministic_policies_get_a_useful_bound(exploration, reference, action):
    optimum = reference["problems"]["safe exploration"]["optimum"]
    policy = np.tile(np.eye(4)[action], (64, 1))
    certificate = cm.certify(exploration, policy)
    assert optimum * (1 - 1e-7) <= certificate.upper <= 1.05 * optimum
    assert certificate.policy is not None


@pytest.mark.parametrize(
    "name", ["kl to policy", "log_sum", "entropy state-action", "log_barrier of distance"]
)
def test_deterministic_policies_under_unbounded_gradients(name):
    random = generator(7)
    mdp = random_model(random, mask=False)
    utility = EVERY_UTILITY[name](mdp, random)
    sense = "minimize" if utility.curvature is cm.Curvature.CONVEX else "maximize"
    problem = cm.Problem(mdp, **{sense: utility})
    certificate = cm.certify(problem, random_deterministic_policy(mdp, random))
    best = cm.solve(problem).objective
    assert bound_of(certificate) == pytest.approx(best, rel=1e-5, abs=1e-6)


def test_plain_arrays_and_rounded_rows(exploration):
    random = generator(1)
    rows = random.dirichlet(np.ones(4), size=64)
    rounded = rows.astype(np.float32).astype(np.float64)
    rounded /= rounded.sum(axis=1, keepdims=True)
    almost = rows * (1 + 9e-10 * random.uniform(-1, 1, size=(64, 1)))
    for policy in (rows, rows.tolist(), rounded, almost, cm.TabularPolicy(rows)):
        certificate = cm.certify(exploration, policy)
        assert 4.04 < certificate.upper < 4.06
        assert exploration.evaluate(certificate.policy).objective >= certificate.lower - ROUNDING


@pytest.mark.parametrize("sense", ["maximize", "minimize"])
def test_a_policy_that_avoids_all_cost_is_feasible_with_budget_zero(sense):
    # Staying in state 0 is free; everything else costs. No policy has room to spare.
    table = np.zeros((3, 2, 3))
    table[0, 0, 0] = 1.0
    table[0, 1] = [0.3, 0.3, 0.4]
    table[1:, :, :] = [0.2, 0.3, 0.5]
    cost = np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
    reward = 1.0 - cost if sense == "minimize" else cost + 1.0
    mdp = cm.TabularMDP(table, 0, 0.9, signals={"cost": cost, "reward": reward})
    problem = cm.Problem(
        mdp, **{sense: cm.linear("reward")}, subject_to={"none": cm.linear("cost") <= 0}
    )
    stay = np.array([[1.0, 0.0], [0.5, 0.5], [0.5, 0.5]])
    certificate = cm.certify(problem, stay)
    assert not cm.slater(problem).exists
    assert certificate.policy is not None
    assert not certificate.repaired
    assert certificate.slack == {"none": 0.0}
    assert certificate.relative_gap <= 1e-6
    risky = np.array([[1 - 1e-12, 1e-12], [0.5, 0.5], [0.5, 0.5]])
    found = cm.certify(problem, risky)
    assert found.policy is None or found.repaired


def test_a_policy_that_never_visits_some_states():
    random = generator(2)
    mdp = random_model(random, unreachable=True, mask=True, endings=True)
    problem = cm.Problem(mdp, maximize=cm.entropy() + cm.linear("reward"))
    certificate = cm.certify(problem, random_deterministic_policy(mdp, random))
    best = cm.solve(problem).objective
    assert best - 1e-9 <= certificate.upper <= best + 1e-6


# Multipliers that the user chose.


@pytest.fixture(scope="module")
def small():
    random = generator(21)
    mdp = random_model(random, n_states=4, n_actions=2)
    uniform = cm.uniform_policy(mdp)
    used = cm.Problem(mdp, minimize=cm.linear("cost")).evaluate(uniform).objective
    subject_to = {
        "cost": cm.linear("cost") <= used + 0.01,
        "near": cm.distance(uniform, norm="l2") <= 0.5,
    }
    return cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=subject_to)


@pytest.mark.parametrize("cost", [0.0, 0.7, 50.0, 1e6])
@pytest.mark.parametrize("near", [0.0, 3.0])
def test_any_multipliers_that_are_not_negative_give_a_true_bound(small, cost, near):
    certificate = cm.certify(
        small, cm.uniform_policy(small.mdp), multipliers={"cost": cost, "near": near}
    )
    assert certificate.multipliers == {"cost": cost, "near": near}
    assert certificate.upper >= cm.solve(small).objective - 1e-9
    assert math.isfinite(certificate.upper)


def test_the_optimal_multipliers_give_a_tight_bound(small):
    solution = cm.solve(small)
    certificate = cm.certify(small, solution, multipliers=solution.multipliers)
    assert certificate.relative_gap <= 1e-6


@pytest.mark.parametrize(
    ("multipliers", "message"),
    [
        ({"cost": 1.0, "near": 1.0, "costs": 1.0}, "Did you mean 'cost'"),
        ({"cost": 1.0}, "no multiplier for the constraint 'near'"),
        ({"cost": -1e-9, "near": 1.0}, "not negative"),
        ({"cost": math.nan, "near": 1.0}, "finite"),
        ({"cost": math.inf, "near": 1.0}, "finite"),
    ],
    ids=["unknown", "missing", "negative", "nan", "infinite"],
)
def test_multipliers_that_are_refused(small, multipliers, message):
    with pytest.raises(ProblemError, match=message):
        cm.certify(small, cm.uniform_policy(small.mdp), multipliers=multipliers)


# Functions of the user's own.


@pytest.fixture(scope="module")
def custom():
    mdp = random_model(generator(4), n_states=4, n_actions=2, endings=False)
    used = cm.Problem(mdp, minimize=cm.linear("cost")).evaluate(cm.uniform_policy(mdp)).objective
    return cm.Problem(mdp, maximize=coverage, subject_to={"cost": cm.linear("cost") <= used + 0.01})


def test_a_custom_function_is_a_promise(custom):
    certificate = cm.certify(custom, cm.uniform_policy(custom.mdp))
    assert any("coverage" in promise for promise in certificate.assumes)
    assert "coverage" in str(certificate).splitlines()[-1]


def test_the_bound_of_a_custom_function_is_true_and_useful(custom):
    # The same function in atoms: log of the visits of each state.
    mdp = custom.mdp
    visits = [cm.linear(np.eye(mdp.n_states)[s]) + 0.1 for s in range(mdp.n_states)]
    same = cm.Problem(
        mdp, maximize=cm.log_sum(*visits) / mdp.n_states, subject_to=custom.constraints
    )
    optimum = cm.solve(same).objective
    certificate = cm.certify(custom, cm.uniform_policy(mdp))
    assert optimum - 1e-8 <= certificate.upper <= optimum + 0.05
    exact = cm.certify(same, cm.solve(same))
    assert exact.relative_gap <= 1e-6
    assert not exact.assumes


@cm.convex(lipschitz=3.0)
def declared(occupancy):
    return jnp.sqrt((occupancy**2).sum() + 1.0)


def test_a_declared_lipschitz_constant_is_used():
    problem = cm.Problem(two_states(), minimize=declared)
    node = plain(problem).objective
    x = cm.occupancy_of(problem.mdp, cm.uniform_policy(problem.mdp))
    assert node.drift(x, ErrorBound(0.1, x > 0)) == pytest.approx(0.3)


def test_parts_of_a_minimum_that_are_far_above_it_blur_nothing():
    mdp = cm.garnet(9, 2, 3, discount=0.93, seed=77, signals=("euros", "visits"))
    mdp = mdp.with_signals(euros=1e8 * mdp.signals["euros"])
    problem = cm.Problem(mdp, maximize=cm.minimum("euros", "visits"))
    best = cm.solve(cm.Problem(mdp, maximize=cm.linear("visits"))).policy
    assert cm.certify(problem, best).relative_gap <= 1e-11


# In words.


def test_the_text_when_maximising(small):
    text = str(cm.certify(small, cm.solve(small)))
    assert "no feasible policy gets above" in text
    assert "reaches at least" in text
    assert "and satisfies every constraint (proven)" in text
    assert "Rests on no promises" in text
    assert "near" in text


def test_the_text_when_minimising(small):
    problem = cm.Problem(small.mdp, minimize=cm.linear("cost"))
    text = str(cm.certify(problem, cm.uniform_policy(small.mdp)))
    assert "no feasible policy gets below" in text
    assert "reaches at most" in text


def test_the_text_when_infeasible(small):
    certificate = cm.certify(small.with_budget("cost", -1.0), cm.uniform_policy(small.mdp))
    assert "Proven: no policy satisfies 'cost'." in str(certificate)
    assert "infeasible" in repr(certificate)


def test_the_text_when_repaired(small):
    bad = np.tile([1.0, 0.0], (4, 1))
    certificate = cm.certify(small, bad)
    if not certificate.repaired:
        certificate = cm.certify(small, bad[:, ::-1])
    assert certificate.repaired
    assert 0 < certificate.repair_share <= 1
    assert "repaired policy" in str(certificate)
    assert "of it was replaced" in str(certificate)
    assert min(certificate.given_slack.values()) < 0


def test_relative_gap_means_something_when_the_optimum_is_zero():
    mdp = random_model(generator(9), mask=False)
    expert = random_policy(mdp, generator(10), concentration=5.0)
    problem = cm.Problem(mdp, minimize=cm.distance(expert, norm="l2-squared"))
    certificate = cm.certify(problem, expert)
    assert certificate.relative_gap <= 1e-6
    assert certificate.size == pytest.approx(
        abs(certificate.lower - problem.evaluate(cm.uniform_policy(mdp)).objective), rel=1e-6
    )


def test_the_relative_gap_is_one_of_the_objective_however_bad_the_uniform_policy_is():
    certificate = replace(
        cm.certify(cm.Problem(two_states(), maximize=cm.linear("reward")), np.full((2, 2), 0.5)),
        **{"upper": 5.1, "lower": 3.7, "uniform": -127.0, "one_sign": False},
    )
    assert certificate.relative_gap == pytest.approx(1.4 / 5.1)
    assert "Gap 1.4, relative 0.27." in str(certificate)
    for uniform in (-1e3, -1e4, -3e4):
        worse = replace(certificate, uniform=uniform)
        assert worse.relative_gap == pytest.approx(1.4 / 5.1)
    beyond = replace(certificate, uniform=-1e6)
    assert beyond.relative_gap == pytest.approx(1.4 / 100, rel=1e-3)
    assert "relative 0.27 to the objective, 0.014 to 0.0001 of the uniform" in str(beyond)
    near_zero = replace(certificate, upper=0.01, lower=0.0)
    assert near_zero.relative_gap == pytest.approx(0.01 / 127.01)
    assert "relative 1 to the objective, 7.9e-05 to the uniform policy" in str(near_zero)
    rare = replace(near_zero, one_sign=True)
    assert rare.relative_gap == 1.0


@pytest.mark.parametrize("penalty", [30.0, 3e3])
def test_no_status_rests_on_how_bad_the_uniform_policy_is(penalty):
    """A forbidding action makes the uniform policy terrible; what is left to gain stays what it is."""
    mdp = cm.garnet(6, 3, 2, seed=1, discount=0.9)
    reward = np.array(mdp.signals["reward"])
    reward[:, 2] = -penalty
    problem = cm.Problem(mdp.replace(signals={"reward": reward}), maximize=cm.linear("reward"))
    first = np.tile([1.0, 0.0, 0.0], (6, 1))
    certificate = cm.certify(problem, first)
    best = cm.solve(problem).objective
    lost = (best - problem.evaluate(first).objective) / best
    assert lost > 0.05
    assert certificate.relative_gap == pytest.approx(lost, rel=1e-6)
    found = cm.solve(problem, cm.ColumnGeneration())
    assert found.status is cm.Status.OPTIMAL
    assert found.objective == pytest.approx(best, rel=1e-6)


def test_endings_are_promises_whatever_the_horizon():
    """A row that has lost an entry looks like one that ends episodes: the certificate says so."""
    rows = np.full((2, 2, 2), 0.5)
    rows[1, 0, 1] = 0.18
    for horizon in ({"discount": 0.9}, {"horizon": 4}):
        mdp = cm.TabularMDP(rows, [0.5, 0.5], signals={"reward": np.eye(2)}, **horizon)
        problem = cm.Problem(mdp, maximize=cm.linear("reward"))
        certificate = cm.certify(problem, cm.solve(problem))
        assert certificate.assumes == ("1 of 4 rows ends episodes (0.32)",)
        hidden = cm.check(replace(certificate, assumes=()), problem)
        assert not hidden
        assert "hides a promise" in str(hidden)


def test_a_unit_of_slack_is_worth_the_gap_and_the_multiplier(small):
    """Multipliers of zero prove a bound, but not that more slack buys nothing."""
    certificate = cm.certify(small, cm.solve(small), multipliers={"cost": 0.0, "near": 0.0})
    looser = small.with_budget("cost", small.constraints["cost"].budget + 1.0)
    bought = cm.solve(looser).objective - cm.solve(small).objective
    assert 0 < bought <= certificate.worth("cost") == certificate.gap
    assert "a unit of slack is worth at most" in str(certificate)


def test_a_solution_of_a_neighbouring_problem_is_certified() -> None:
    mdp = cm.garnet(8, 3, 3, discount=0.9, seed=1)
    cost = {"cost": cm.linear("cost") <= 5}
    both = {**cost, "spread": cm.entropy() >= 0.5}
    objectives = (cm.linear("reward"), cm.entropy(), cm.log_sum("reward", "cost"))
    problems = [
        cm.Problem(mdp, maximize=objective, subject_to=constraints)
        for objective in objectives
        for constraints in ({}, cost, both)
    ]
    solutions = [cm.solve(problem) for problem in problems]
    for problem, own in zip(problems[::2], solutions[::2], strict=True):
        for other in solutions:
            certificate = cm.certify(problem, other)
            assert certificate.upper >= own.objective - 1e-9
            assert certificate.upper == pytest.approx(own.objective, rel=1e-4)


@pytest.mark.parametrize("unit", [1.0, 1e6, 1e8])
def test_bounds_are_as_tight_for_rewards_in_millions(unit: float) -> None:
    mdp = cm.garnet(8, 3, 3, discount=0.95, seed=3)
    uniform = np.full((8, 3), 1 / 3)
    problem = cm.Problem(
        mdp,
        maximize=cm.linear(unit * mdp.signal("reward")),
        subject_to={"near": cm.distance(cm.TabularPolicy(uniform), norm="kl") <= 0.05},
    )
    best = cm.solve(problem)
    certificate = cm.certify(problem, uniform)
    assert best.status is cm.Status.OPTIMAL
    assert certificate.upper == pytest.approx(best.objective, rel=1e-5)


def test_arguments_in_the_wrong_order_are_said() -> None:
    mdp = cm.gridworld(3, discount=0.9, hazards=[4])
    limit = {"hazard": cm.linear("hazard") <= 1.0}
    problem = cm.Problem(mdp, maximize=cm.entropy(), subject_to=limit)
    policy = cm.uniform_policy(mdp)
    proof = cm.certify(problem, policy)
    for ask, said in (
        (lambda: cm.solve(cm.ConvexProgram(), problem), r"Write solve\(problem, solver\)"),
        (
            lambda: cm.certify(policy, problem),
            r"got TabularPolicy.* Write certify\(problem, answer\)",
        ),
        (lambda: cm.certify(policy), "certify takes a Problem; got TabularPolicy"),
        (lambda: cm.certify(problem), "certify needs an answer"),
        (lambda: cm.check(problem, proof), r"Write check\(certificate, problem\)"),
        (lambda: cm.slater(mdp), "slater takes a Problem; got TabularMDP"),
        (lambda: cm.frontier("hazard", problem), "frontier takes a Problem; got 'hazard'"),
        (lambda: cm.frontier(problem, [0.1, 0.2]), "name of a constraint comes second"),
        (lambda: cm.occupancy_of(policy, mdp), r"occupancy_of\(mdp, policy\); got TabularPolicy"),
        (lambda: cm.policy_of(np.ones((9, 4)), mdp), r"takes a model first"),
        (lambda: cm.Problem(cm.entropy(), mdp), "a problem needs a model"),
    ):
        with pytest.raises(cm.CvxmdpError, match=said):
            ask()
