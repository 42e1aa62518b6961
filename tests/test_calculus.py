"""The calculus over returns: values by hand, rules of composition, proofs in both arithmetics, and ways out."""

from __future__ import annotations

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.base.errors import CurvatureError, UtilityError
from strategies import generator, random_model, random_policy

REWARD, COST = cm.linear("reward"), cm.linear("cost")


@pytest.fixture(scope="module")
def mdp() -> cm.TabularMDP:
    return random_model(
        generator(3), n_states=5, n_actions=3, discount=0.8, endings=True, mask=True
    )


def values(mdp: cm.TabularMDP, x: np.ndarray) -> tuple[float, float]:
    return float((mdp.signal("reward") * x).sum()), float((mdp.signal("cost") * x).sum())


def huber(u: float, width: float) -> float:
    return u**2 if abs(u) <= width else 2 * width * abs(u) - width**2


BY_HAND = {
    "log": (lambda: cm.log(REWARD + 1), lambda r, c: np.log(r + 1)),
    "power": (lambda: cm.power(REWARD + 1, -1.5), lambda r, c: (r + 1) ** -1.5),
    "cube": (lambda: cm.power("cost", 3), lambda r, c: c**3),
    "square": (lambda: cm.square(2 * COST - REWARD - 3), lambda r, c: (2 * c - r - 3) ** 2),
    "two": (lambda: cm.power(REWARD - 9, 2), lambda r, c: (r - 9) ** 2),
    "exp": (lambda: cm.exp(COST / 3 - 1), lambda r, c: np.exp(c / 3 - 1)),
    "maximum": (lambda: cm.maximum("reward", "cost", 0.3), lambda r, c: max(r, c, 0.3)),
    "minimum": (lambda: cm.minimum("reward", "cost", 0.3), lambda r, c: min(r, c, 0.3)),
    "spread": (lambda: cm.spread("reward", "cost"), lambda r, c: abs(r - c)),
    "l1": (lambda: cm.norm(cm.returns("reward", "cost"), "l1"), lambda r, c: abs(r) + abs(c)),
    "l2": (lambda: cm.norm(cm.returns("reward", "cost")), lambda r, c: np.hypot(r, c)),
    "linf": (
        lambda: cm.norm(cm.returns("reward", -COST), "linf"),
        lambda r, c: max(abs(r), abs(c)),
    ),
    "absolute": (lambda: cm.norm(REWARD - 4), lambda r, c: abs(r - 4)),
    "huber": (lambda: cm.huber(REWARD - 4, 0.5), lambda r, c: huber(r - 4, 0.5)),
    "huber near": (lambda: cm.huber(REWARD - 4, 50), lambda r, c: huber(r - 4, 50)),
    "nested": (
        lambda: cm.exp(cm.maximum(cm.square(COST - 1), 0.5) / 9),
        lambda r, c: np.exp(max((c - 1) ** 2, 0.5) / 9),
    ),
    "log of a root": (lambda: cm.log(cm.sqrt("reward") + 1), lambda r, c: np.log(np.sqrt(r) + 1)),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_values_by_hand(name, mdp):
    written, expected = BY_HAND[name]
    for seed in range(4):
        x = cm.occupancy_of(mdp, random_policy(mdp, generator(seed)))
        found = float(written().lower(mdp).value(x))
        assert found == pytest.approx(float(expected(*values(mdp, x))), rel=1e-12)


def test_conditional_entropy_and_chi2_by_hand(mdp):
    policy, other = (random_policy(mdp, generator(seed), concentration=3.0) for seed in (1, 2))
    x, y = (cm.occupancy_of(mdp, one) for one in (policy, other))
    p, q = mdp.scale * x, mdp.scale * y
    pi, d = policy.probabilities(), p.sum(axis=1)
    logs = np.log(np.where(pi > 0, pi, 1.0))
    entropy = -float(d @ (pi * logs).sum(axis=1))
    found = cm.entropy(of="actions").lower(mdp).value(x)
    assert float(found) == pytest.approx(entropy, rel=1e-12)
    both = (p - q) ** 2 / np.where(q > 0, q, 1.0)
    chi2 = cm.distance(other, norm="chi2").lower(mdp).value(x)
    assert float(chi2) == pytest.approx(float(both.sum()), rel=1e-12)


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: cm.log(cm.square("reward")), "logarithm is concave and increasing"),
        (lambda: cm.exp(cm.entropy()), "exponential is convex and increasing"),
        (lambda: cm.maximum("reward", cm.entropy()), "maximum is convex and increasing"),
        (lambda: cm.minimum("reward", cm.exp("cost")), "minimum is concave and increasing"),
        (lambda: cm.power(cm.exp("cost"), -1), "negative powers are convex and decreasing"),
        (lambda: cm.square(cm.entropy()), "increases from zero on"),
        (lambda: cm.square(cm.exp("cost") - 2), "may be negative"),
        (lambda: cm.huber(cm.maximum("cost", -1)), "may be negative"),
        (lambda: cm.norm(cm.entropy()), "affine utilities only"),
        (lambda: cm.spread("reward", cm.entropy()), "affine utilities only"),
    ],
)
def test_an_error_names_the_rule_that_fails(build, match):
    with pytest.raises(CurvatureError, match=match):
        build()


def test_lists_and_widths():
    assert repr(cm.norm(["reward", "cost"])) == repr(cm.norm(cm.returns("reward", "cost")))
    for width in (0, -1.0, True, np.inf):
        with pytest.raises(UtilityError, match="width of huber is a positive number"):
            cm.huber("reward", width)
    with pytest.raises(UtilityError, match='"l1", "l2" or "linf"'):
        cm.norm(cm.returns("reward"), "l3")


def test_powers_above_one_need_what_is_never_negative(mdp):
    with pytest.raises(UtilityError, match="write maximum"):
        cm.power(COST - 1, 3).lower(mdp)
    assert cm.power(cm.maximum(COST - 1, 0), 3).lower(mdp) is not None


@pytest.mark.parametrize("name", BY_HAND)
def test_bounds_hold_in_floats_and_in_exact_arithmetic(name, mdp, tmp_path):
    pytest.importorskip("flint")
    utility = BY_HAND[name][0]()
    sense = "minimize" if utility.curvature is cm.Curvature.CONVEX else "maximize"
    limits = {"floor": cm.linear("reward") >= 1.0, "cap": cm.exp(COST / 4) <= 40.0}
    problem = cm.Problem(mdp, **{sense: utility}, subject_to=limits)
    solution = cm.solve(problem, cm.ConvexProgram())
    certificate = cm.certify(problem, solution)
    assert certificate.gap <= 1e-5 * max(1.0, abs(solution.objective))
    certificate.save(tmp_path / "proof.json")
    assert cm.check(tmp_path / "proof.json", problem)
    assert cm.check(tmp_path / "proof.json", problem, exact=True)


def test_cvxpy_takes_the_problem_and_more(mdp):
    cp = pytest.importorskip("cvxpy")
    problem = cm.Problem(mdp, minimize=cm.huber(REWARD - 2), subject_to={"cap": COST <= 1.5})
    written = problem.to_cvxpy()
    value = written.problem.solve(solver=cp.CLARABEL)
    assert value == pytest.approx(cm.solve(problem).objective, abs=1e-6)
    evaluated = problem.evaluate(cm.policy_of(mdp, np.maximum(written.occupancy.value, 0.0)))
    assert evaluated.objective == pytest.approx(value, abs=1e-4)
    held = cp.sum(written.occupancy[0]) <= 0.5 * float(evaluated.occupancy[0].sum())
    more = cp.Problem(written.problem.objective, [*written.problem.constraints, held])
    assert more.solve(solver=cp.CLARABEL) >= value - 1e-6
    own = cm.convex(lambda occupancy: (occupancy**2).sum())
    with pytest.raises(cm.ProblemError, match="JAX code"):
        cm.Problem(mdp, minimize=own).to_cvxpy()


def test_who_is_worst_off_is_printed(mdp):
    groups = {"parity": cm.spread("reward", "cost") <= 5.0}
    solution = cm.solve(cm.Problem(mdp, maximize=cm.minimum("reward", 2 * COST), subject_to=groups))
    lines = [line.split() for line in str(solution).splitlines()]
    inside = [line for line in lines if line[-1:] == ["smallest"]]
    assert len(inside) == 2
    values = {"reward": solution.problem.bind(REWARD), "cost": solution.problem.bind(COST)}
    for name, function in values.items():
        shown = [line for line in lines if line[:1] == [f'linear("{name}")']]
        assert float(shown[0][1]) == pytest.approx(float(function.value(solution.measured)), 1e-5)
    assert "<pre>" in solution._repr_html_()
    plain = cm.solve(cm.Problem(mdp, maximize=REWARD))
    assert "smallest" not in str(plain)
    mixed = cm.solve(cm.Problem(mdp, maximize=cm.log("reward") - cm.square("cost")))
    assert 'linear("cost")' in str(mixed)
    assert "smallest" not in str(mixed)  # a reward and a cost are not compared


@pytest.mark.parametrize("curved", [True, False])
def test_a_gradient_is_the_slope_of_the_best_objective(mdp, curved):
    objective = cm.minimum("reward", 3 - COST) + 0.1 * cm.entropy() if curved else -REWARD
    sense = "maximize" if curved else "minimize"
    cost = cm.solve(cm.Problem(mdp, maximize=REWARD)).problem.bind(COST)
    most = float(cost.value(cm.solve(cm.Problem(mdp, maximize=REWARD)).measured))
    problem = cm.Problem(mdp, **{sense: objective}, subject_to={"cap": 0.9 * most >= COST})
    solution = cm.solve(problem)
    step = 1e-4

    def slope(changed):
        ends = [cm.solve(changed(sign * step)).objective for sign in (1, -1)]
        return (ends[0] - ends[1]) / (2 * step)

    budget = slope(lambda by: problem.with_budget("cap", 0.9 * most + by))
    found = solution.gradient("budget/cap")
    assert float(found) == pytest.approx(budget, rel=1e-3, abs=1e-6)
    assert found.differentiable
    along = generator(5).normal(size=mdp.actions.shape) * mdp.actions
    for name in ("reward", "cost"):
        moved = slope(
            lambda by, name=name: problem.with_model(
                mdp.with_signals(**{name: mdp.signal(name) + by * along})
            )
        )
        exact = float(np.vdot(np.asarray(solution.gradient(f"signal/{name}")), along))
        assert exact == pytest.approx(moved, rel=1e-3, abs=1e-5)


def test_a_gradient_says_where_the_price_jumps(mdp):
    free = cm.solve(cm.Problem(mdp, maximize=REWARD))
    used = float(free.problem.bind(COST).value(free.measured))
    edge = cm.solve(cm.Problem(mdp, maximize=REWARD, subject_to={"cap": used >= COST}))
    assert not edge.gradient("budget/cap").differentiable
    with pytest.raises(cm.ProblemError, match="gradient takes"):
        edge.gradient("cap")
    with pytest.raises(cm.ProblemError, match="Did you mean"):
        edge.gradient("budget/cab")
    with pytest.raises(cm.ProblemError, match="reads a signal"):
        edge.gradient("signal/rewards")


def test_alpha_fairness_goes_from_the_sum_to_the_worst(mdp):
    def best(utility):
        return cm.solve(cm.Problem(mdp, maximize=utility)).measured

    def alpha(a):
        return sum(cm.power(r, 1 - a) / (1 - a) for r in (REWARD + 0.1, COST + 0.1))

    least = cm.minimum(REWARD, COST).lower(mdp)
    floors = [float(least.value(best(alpha(a)))) for a in (0.01, 2.0, 12.0)]
    assert (np.diff(floors) >= -1e-9).all()
    assert floors[-1] == pytest.approx(
        float(least.value(best(cm.minimum("reward", "cost")))), rel=0.1
    )
