"""returns(r_1, ..., r_k): distances of vectors of returns, from closed forms to episodes."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.atoms.maps import DenseMap, Entries
from cvxmdp.atoms.shapes import Mixed, NormShape
from cvxmdp.atoms.shapes.norm_sets import Ball, Box, Polytope, Singleton
from cvxmdp.base.interval import Interval
from cvxmdp.runs.specs.problem_specs import read_problem
from strategies import generator, random_model, random_occupancy, random_policy

SETS = {
    "vector": [3.0, 1.0],
    "box": cm.box([3.0, -np.inf], [4.0, 0.5]),
    "ball": cm.ball([3.0, 1.0], 0.3),
    "polytope": cm.polytope([[-1.0, 1.0], [0.0, 1.0]], [-3.0, 0.5]),
}


@pytest.fixture(scope="module")
def mdp() -> cm.TabularMDP:
    return cm.gridworld(3, slip=0.1, discount=0.9, hazards=[4], rewards={8: 1.0})


def returns_by_hand(mdp: cm.TabularMDP, x: np.ndarray) -> np.ndarray:
    return np.array([np.vdot(mdp.signal("reward"), x), np.vdot(mdp.signal("hazard"), x)])


def test_a_distance_is_that_of_the_returns(mdp):
    x = cm.occupancy_of(mdp, random_policy(mdp, generator(0)))
    u = returns_by_hand(mdp, x)
    found = {
        norm: cm.distance(cm.returns("reward", "hazard"), [3.0, 1.0], norm=norm).lower(mdp).value(x)
        for norm in ("l1", "l2", "l2-squared")
    }
    away = np.abs(u - [3.0, 1.0])
    assert found["l1"] == pytest.approx(away.sum())
    assert found["l2"] == pytest.approx(np.sqrt((away**2).sum()))
    assert found["l2-squared"] == pytest.approx((away**2).sum())


def test_a_policy_stands_for_its_returns(mdp):
    """Apprenticeship: any policy with the expert's returns will do, however it goes about it."""
    expert = random_policy(mdp, generator(1))
    near = cm.distance(cm.returns("reward", "hazard"), expert)
    assert near.lower(mdp).value(cm.occupancy_of(mdp, expert)) == pytest.approx(0.0, abs=1e-12)
    around = cm.distance(cm.returns("reward"), cm.ball(expert, 0.1)).lower(mdp)
    expected = returns_by_hand(mdp, cm.occupancy_of(mdp, expert))[0]
    assert around.set.center == pytest.approx([expected])


@pytest.mark.parametrize("kind", SETS)
def test_no_mixture_of_returns_is_nearer(kind, mdp):
    """No mixture of some policies' returns is nearer than what is found, and what is found is proven."""
    vertices = [returns_by_hand(mdp, random_occupancy(mdp, generator(seed))) for seed in range(40)]
    utility = cm.distance(cm.returns("reward", "hazard"), SETS[kind])
    problem = cm.Problem(mdp, minimize=utility)
    solution = cm.solve(problem, cm.ConvexProgram())
    certificate = cm.certify(problem, solution)
    assert certificate.gap <= 1e-7
    assert not certificate.assumes
    weights = cp.Variable(len(vertices), nonneg=True)
    bound = utility.lower(mdp).set
    nearest = cp.Variable(2)
    inside = [cp.sum(weights) == 1, *bound.inside(cp, nearest)]
    sampled = cp.Problem(cp.Minimize(cp.norm(weights @ np.array(vertices) - nearest)), inside)
    assert solution.objective <= sampled.solve(solver=cp.CLARABEL) + 1e-6


@pytest.mark.parametrize("kind", SETS)
def test_every_exact_solver_finds_the_same(kind, mdp, tmp_path):
    near = cm.distance(cm.returns("reward", "hazard"), SETS[kind], norm="l2") <= 0.4
    problem = cm.Problem(mdp, maximize=cm.linear("reward"), subject_to={"near": near})
    best = cm.solve(problem, cm.ConvexProgram())
    columns = cm.solve(problem, cm.ColumnGeneration(tolerance=1e-4))
    assert columns.objective == pytest.approx(best.objective, rel=2e-4)
    certificate = cm.certify(problem, columns)
    assert certificate.relative_gap <= 2e-4
    certificate.save(tmp_path / "certificate.json")
    assert cm.check(tmp_path / "certificate.json", problem)


def test_it_is_learned_from_samples(mdp):
    """The bonus of the goal and a stay at the hazard, both as wanted."""
    near = cm.distance(
        cm.returns("reward", "hazard"), cm.box([1.0, 0.2], [2.0, 0.3]), norm="l2-squared"
    )
    problem = cm.Problem(mdp, minimize=near)
    # With steps that do not shrink, the last policy of one in five runs has left the box again.
    steps = {"primal_step": 0.1, "primal_decay": 0.5, "dual_step": 1.0, "momentum": 0.3}
    learned = cm.solve(problem, cm.VRPDPG(800, **steps, horizon=40, batch_size=10), seed=0)
    uniform = problem.evaluate(cm.uniform_policy(mdp)).objective
    assert learned.objective <= 0.002 * uniform


def test_problem_files_and_folders_keep_it(tmp_path):
    (tmp_path / "problem.toml").write_text(
        """
        minimize = 'distance(returns("reward", "hazard"), box([3, 0], [4, 0.5]), norm="l1")'
        [model]
        kind = "gridworld"
        size = 3
        slip = 0.1
        discount = 0.9
        hazards = [4]
        rewards = { 8 = 1.0 }
        """
    )
    problem = read_problem(tmp_path / "problem.toml").problem
    problem.save(tmp_path / "folder")
    again = cm.load_problem(tmp_path / "folder")
    assert repr(again.utility) == repr(problem.utility)
    policy = random_policy(problem.mdp, generator(3))
    assert again.evaluate(policy).objective == problem.evaluate(policy).objective


@pytest.mark.parametrize("norm", ["l1", "l2", "l2-squared"])
def test_derivatives_inside_mixtures(norm):
    """Column generation's gradients and Hessians against finite differences, inside and outside of sets."""
    random = generator(4)
    sets = [Singleton(random.normal(size=3)), Box(np.full(3, -0.5), np.array([0.2, np.inf, 0.1]))]
    if norm != "l1":
        sets += [
            Ball(random.normal(size=3), 0.4),
            Polytope(random.normal(size=(2, 3)), [0.1, -0.3]),
        ]
    images = random.normal(size=(4, 3))
    for target in sets:
        shape = NormShape(DenseMap(np.eye(3), (3, 1)), target, norm)

        def at(weights):
            return Mixed((images,), (weights @ images,), (np.ones(3, bool),))

        for weights in random.dirichlet(np.ones(4), size=4):
            local = shape.second(at(weights), 0.05)
            for k, step in enumerate(1e-5 * np.eye(4)):
                ends = [shape.second(at(weights + sign * step), 0.05) for sign in (1, -1)]
                slope = (ends[0].value - ends[1].value) / 2e-5
                bend = (ends[0].gradient - ends[1].gradient) / 2e-5
                assert local.gradient[k] == pytest.approx(slope, abs=1e-5)
                np.testing.assert_allclose(local.hessian[k], bend, atol=1e-3)


def test_intervals_of_returns_give_one_of_the_distance():
    shape = NormShape(Entries(None, (2, 1)), Box(np.zeros(2), np.ones(2)), "l2")
    parts = [Interval(4.0, 3.9, 4.05, "", True), Interval(-4.0, -4.0, -3.8, "", True)]
    lower, upper = shape.combined_interval(parts)
    random = generator(5)
    seen = [
        shape.combined_value([random.uniform(3.9, 4.05), random.uniform(-4.0, -3.8)])
        for _ in range(100)
    ]
    assert shape.combined_value([4.0, -4.0]) == pytest.approx(5.0)
    assert lower <= min(seen)
    assert max(seen) <= upper <= 5.0 + np.hypot(0.1, 0.2) + 1e-12


def test_episodes_bound_it_where_signals_have_bounds(mdp):
    """Also of an environment, where signals are recorded and no table is known."""
    utility = -cm.distance(cm.returns("reward"), [0.1])
    model = cm.from_gymnasium_table("FrozenLake-v1", discount=0.9)
    policy = cm.uniform_policy(model)
    exact = cm.Problem(model, maximize=utility).evaluate(policy).objective
    env = cm.GymnasiumEnv("FrozenLake-v1", discount=0.9)
    for source, bounds in ((model, None), (env, {"reward": (0.0, 1.0)})):
        found = cm.evaluate(policy, source, 300, seed=0, maximize=utility, bounds=bounds).objective
        assert found.proven
        assert found.lower <= exact <= found.upper
    unknown = cm.evaluate(policy, env, 300, seed=0, maximize=utility).objective
    assert not unknown.proven
    assert np.isfinite([unknown.lower, unknown.upper]).all()


def test_signals_of_an_environment_are_returns(mdp):
    env = cm.GymnasiumEnv("FrozenLake-v1", discount=0.9)
    per_state = np.zeros(16)
    per_state[0] = 1.0
    problem = cm.Problem(env, minimize=cm.distance(cm.returns("reward", per_state), [0.0, 1.0]))
    x = np.zeros(problem.shape)
    x[0, 1], x[16, 2] = 2.0, 0.5  # visits of the first state, and what the reward's own row has
    assert problem.objective_function.value(x) == pytest.approx(-np.hypot(0.5, 1.0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cm.returns(), "at least one reward"),
        (lambda: cm.returns(cm.entropy()), r"linear in x; got entropy\(\)"),
        (lambda: cm.returns(cm.linear("reward") + 1), "without a constant.* Move the target"),
        (lambda: cm.distance(cm.returns("reward")), "second argument"),
        (lambda: cm.distance(cm.returns("reward"), [1.0], norm="kl"), "l1, l2 and l2-squared"),
        (lambda: cm.distance(cm.returns("reward"), cm.ball([1.0], 1.0), norm="l1"), "to a ball"),
        (lambda: cm.distance(np.eye(2), "l1"), r'by name, distance\(target, norm="l1"\)'),
        (lambda: cm.distance(np.eye(2), cm.box(0, 1)), r"distance\(returns\(...\), box"),
    ],
)
def test_what_is_no_distance_of_returns_is_refused(call, message):
    with pytest.raises(cm.UtilityError, match=message):
        call()


@pytest.mark.parametrize(
    "target",
    [
        [1.0],
        [1.0, 2.0, 3.0],
        cm.box([1.0], [2.0]),
        cm.ball([1.0], 1.0),
        cm.polytope([[1.0]], [1.0]),
    ],
)
def test_targets_of_another_length_are_refused(target, mdp):
    with pytest.raises(cm.UtilityError, match=r"2 returns|expected \(2,\)"):
        cm.Problem(mdp, minimize=cm.distance(cm.returns("reward", "hazard"), target))


def test_random_models_keep_every_promise():
    """Masked actions, endings, unreachable states; the optimum is proven on each."""
    for seed in range(6):
        random = generator(seed)
        model = random_model(random)
        utility = cm.distance(
            cm.returns("reward", "cost"), random.uniform(0.0, 3.0, size=2), norm="l1"
        )
        problem = cm.Problem(model, minimize=utility)
        certificate = cm.certify(problem, cm.solve(problem))
        assert certificate.gap <= 1e-6
