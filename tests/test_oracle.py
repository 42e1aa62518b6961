"""The oracle of column generation: proven intervals, warm starts, masks, endings, visits."""

import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm
from cvxmdp.certificates.claims import Claims
from cvxmdp.checker.linear_solve import solve_system
from cvxmdp.models import systems
from cvxmdp.models.compiled_systems import DeviceSolver
from cvxmdp.models.planning import EpisodeOracle, optimal_values
from cvxmdp.models.systems import bicgstab, half_spread, largest, settle, solve_discounted, total


def masked_garnet(seed: int = 0, ending: float = 0.0, discount: float = 0.9) -> cm.TabularMDP:
    mdp = cm.garnet(40, 3, 4, seed=seed, discount=discount, ending=ending)
    actions = np.random.default_rng(seed).random(mdp.actions.shape) < 0.7
    actions[:, 0] = True
    return mdp.replace(actions=actions)


MODELS = {
    "garnet": cm.garnet(60, 4, 3, seed=1, discount=0.95),
    "garnet with endings": cm.garnet(60, 4, 3, seed=2, discount=0.99, ending=0.05),
    "masked": masked_garnet(3),
    "masked with endings": masked_garnet(4, ending=0.2),
    "grid with a goal": cm.gridworld(7, slip=0.1, discount=0.99, goal=48, hazards=[24]),
    "corridor": cm.gridworld((1, 60), discount=0.999, goal=59, step_reward=-1.0),
    "no future": cm.garnet(20, 3, 4, seed=5, discount=0.0),
    "unreached": cm.gridworld((3, 3), walls=[(0, 1), (1, 1), (2, 1)], discount=0.9),
}


def claims_of(mdp: cm.TabularMDP) -> Claims:
    return Claims.of(cm.Problem(mdp, maximize=cm.linear("reward")))


def checked_bound(claims: Claims, reward: np.ndarray, values: np.ndarray) -> float:
    exactly, flow = np.zeros(reward.shape), claims.checked.flow
    proof = {"values": values}
    excess = flow.excess(reward, exactly, proof)
    size = abs(float(claims.flow.initial @ values))
    remainder = None if excess is None else claims.flow.covering(excess, size)
    if remainder is not None:
        proof["remainder"] = remainder
    return flow.best_return(reward, exactly, proof)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_interval_holds_the_best_return(name: str, sign: float) -> None:
    mdp = MODELS[name]
    claims = claims_of(mdp)
    random = np.random.default_rng(0)
    reward = sign * mdp.signal("reward") + 0.1 * random.normal(size=mdp.actions.shape)
    exact, _ = optimal_values(mdp.flow, reward)
    truth = mdp.flow.best_return(reward, exact)
    size = claims.flow.mass * np.abs(reward).max()
    for accuracy in (1e-2 * size, 1e-9 * size):
        found = EpisodeOracle(mdp.flow).best(reward, accuracy)
        assert found.lower - 1e-11 * size <= truth <= found.upper + 1e-11 * size
        assert found.upper - found.lower <= accuracy
        # The checker's bound from the same V is no looser.
        assert checked_bound(claims, reward, found.values) <= found.upper + 1e-10 * size
        assert mdp.actions[np.arange(mdp.n_states), found.actions].all()


@pytest.mark.parametrize("name", MODELS)
def test_the_greedy_policy_earns_what_the_interval_says(name: str) -> None:
    mdp = MODELS[name]
    claims = claims_of(mdp)
    found = EpisodeOracle(mdp.flow).best(mdp.signal("reward"), 1e-3 * claims.flow.mass)
    policy = np.eye(mdp.n_actions)[found.actions]
    assert claims.achieved(policy).objective >= found.lower - 1e-9 * claims.flow.mass


@pytest.mark.parametrize("name", MODELS)
def test_visits_are_as_exact_as_asked(name: str) -> None:
    mdp = MODELS[name]
    claims = claims_of(mdp)
    oracle = EpisodeOracle(mdp.flow)
    random = np.random.default_rng(1)
    for error in (1e-2, 1e-10):
        scores = np.where(mdp.actions, random.random(mdp.actions.shape), -1.0)
        actions = scores.argmax(axis=1)
        visits = oracle.visits(oracle.chain(actions), error)
        exact = cm.occupancy_of(mdp, np.eye(mdp.n_actions)[actions]).sum(axis=1)
        assert np.abs(visits - exact).sum() <= error + 1e-11 * claims.flow.mass


def test_a_warm_start_saves_work() -> None:
    mdp = cm.garnet(500, 4, 4, seed=3, discount=0.99)
    oracle = EpisodeOracle(mdp.flow)
    oracle.best(mdp.signal("reward"), 1e-8)
    first = oracle.work.sweeps
    oracle.best(mdp.signal("reward") + 1e-5 * mdp.signal("cost"), 1e-6)
    assert oracle.work.sweeps - first < first


def test_the_next_reward_begins_with_what_is_known_of_the_last_values() -> None:
    mdp = cm.garnet(500, 4, 4, seed=3)
    oracle = EpisodeOracle(mdp.flow)
    first = oracle.best(mdp.signal("reward"), 1e-8)
    swept = oracle.work.sweeps
    again = oracle.best(mdp.signal("reward"), 1e-8)
    assert oracle.work.sweeps == swept
    assert (again.upper, again.lower) == (first.upper, first.lower)


@pytest.mark.parametrize("size", [1e-40, 1.0, 1e30])
def test_sweeps_in_single_precision_lose_no_digits(size, monkeypatch) -> None:
    """Constants that are large beside differences, and rewards that single precision cannot hold."""
    mdp = cm.garnet(600, 4, 4, seed=3, discount=0.999)
    chain = mdp.flow.chain(mdp.flow.uniform)
    right = size * (1.0 + 1e-6 * mdp.signal("reward")[:, 0])
    target = 1e-14 * size
    monkeypatch.setattr(systems, "LIGHT_BEYOND", 0)
    found, sweeps = settle(chain, right, 0.999, np.zeros(600), target, half_spread)
    assert half_spread(right + 0.999 * (chain @ found) - found) <= 1.01 * target
    monkeypatch.setattr(systems, "LIGHT_BEYOND", 10**9)
    assert sweeps <= 3 * settle(chain, right, 0.999, np.zeros(600), target, half_spread)[1]


def test_bicgstab_reports_the_residual_it_has() -> None:
    random = np.random.default_rng(0)
    matrix = random.random((30, 30))
    matrix /= matrix.sum(axis=1, keepdims=True)
    right = random.random(30)
    for norm in (largest, total):
        v, left = bicgstab(lambda v: 0.99 * (matrix @ v), right, np.zeros(30), 1e-10, norm, 100)
        assert left <= 1e-10
        assert left == norm(right + 0.99 * (matrix @ v) - v)
    _, left = bicgstab(lambda v: 0.99 * (matrix @ v), right, np.zeros(30), 1e-10, largest, 1)
    assert left > 1e-10


@pytest.mark.parametrize("name", ["garnet", "garnet with endings", "corridor", "masked"])
def test_the_accelerators_solver_agrees(name: str) -> None:
    mdp = MODELS[name]
    claims = claims_of(mdp)
    oracle = EpisodeOracle(mdp.flow)
    policy = cm.uniform_policy(mdp).probabilities()
    matrix = oracle.policy_chain(policy)
    device = DeviceSolver()
    rho, gamma = claims.flow.initial, claims.flow.discount
    for chain, right, norm in (
        (matrix, mdp.signal("reward")[:, 0], "largest"),
        (matrix.T, rho, "total"),
        (matrix, mdp.signal("reward")[:, 0], "largest"),
    ):
        found = device.solve(chain, right, np.zeros(rho.size), gamma, 1e-10, norm)
        residual = right + gamma * (chain @ found) - found
        assert np.abs(residual).sum() <= 1e-8
        exact = np.linalg.solve(np.eye(rho.size) - gamma * chain.toarray(), right)
        np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("light", [False, True])
@pytest.mark.parametrize("norm", [largest, total])
@pytest.mark.parametrize("discount", [0.0, 0.5, 0.9, 0.999, 0.999999])
@pytest.mark.parametrize("kind", ["mixes", "cycle", "drifts", "absorbing"])
def test_settling_reaches_what_is_asked(kind, discount, norm, light, monkeypatch) -> None:
    """From any guess, by sweeps alone or with more, in single precision or not; never a wrong answer."""
    if light:
        monkeypatch.setattr(systems, "LIGHT_BEYOND", 0)
    random, n = np.random.default_rng(3), 40
    matrices = {
        "mixes": random.dirichlet(np.ones(n), size=n),
        "cycle": np.roll(np.eye(n), 1, axis=1),  # sweeps alone would never see the end of it
        "drifts": 0.9 * np.eye(n, k=1) + 0.05 * np.eye(n, k=-1),  # episodes end
        "absorbing": np.eye(n),
    }
    matrix, right = sp.csr_array(matrices[kind]), random.normal(size=n)
    exact = np.linalg.solve(np.eye(n) - discount * matrices[kind], right)
    for target in (1e-2, 1e-9):
        found, sweeps = settle(matrix, right, discount, 100.0 * random.normal(size=n), target, norm)
        left = right + discount * (matrix @ found) - found
        rounding = 1e-13 * n * np.abs(exact).max()
        assert norm(left) <= target + rounding
        assert sweeps >= 1
        again, few = settle(matrix, right, discount, found, max(2 * target, rounding), norm)
        assert few <= 2
        np.testing.assert_allclose(again, exact, atol=(2 * target + rounding) / (1 - discount))


def test_sparse_factors_give_what_dense_ones_do() -> None:
    mdp = cm.gridworld(20, slip=0.1, discount=0.99)  # 400 states, four successors
    chain = sp.csr_array(mdp.transition[:: mdp.n_actions])
    right = np.random.default_rng(0).random(400)
    dense = np.linalg.solve(np.eye(400) - 0.99 * chain.toarray(), right)
    np.testing.assert_allclose(solve_discounted(chain, right, 0.99), dense, rtol=1e-12)


@pytest.mark.parametrize("solve", [solve_discounted, solve_system])
@pytest.mark.parametrize("size", [10, 400, 2_000])
def test_a_chain_that_never_ends_is_singular_whatever_its_size(solve, size) -> None:
    with pytest.raises(np.linalg.LinAlgError):
        solve(sp.csr_array(sp.eye_array(size)), np.ones(size), 1.0)
