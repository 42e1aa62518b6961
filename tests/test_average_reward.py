"""The long run: average=True against hand-solved chains, policy iteration and exact rational optima."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.certificates.claims import Claims
from cvxmdp.checker.bounds import upper_bound
from cvxmdp.checker.check import check_file
from cvxmdp.checker.saved_problem import read_problem as read_saved
from cvxmdp.policies.occupancies import occupancy_of, policy_of

SOLVERS = (cm.ConvexProgram(), cm.ColumnGeneration())


def machine(budget: float | None = None) -> cm.Problem:
    """It earns 1 per step and breaks with chance 0.1; then it waits, or is repaired for 2."""
    transition = np.zeros((2, 2, 2))
    transition[0, :, 0], transition[0, :, 1] = 0.9, 0.1
    transition[1, 0, 1] = 1.0
    transition[1, 1, 0] = 1.0
    profit = np.array([[1.0, 1.0], [0.0, -2.0]])
    repairs = np.array([[0.0, 0.0], [0.0, 1.0]])
    mdp = cm.TabularMDP(
        transition,
        0,
        average=True,
        signals={"profit": profit, "repairs": repairs},
        state_names=["works", "broken"],
        action_names=["wait", "repair"],
    )
    limits = {} if budget is None else {"repairs": cm.linear("repairs") <= budget}
    return cm.Problem(mdp, maximize=cm.linear("profit"), subject_to=limits)


@pytest.mark.parametrize("solver", SOLVERS)
def test_hand_solved_machine(solver: cm.Solver) -> None:
    # Always repaired: shares 10/11 and 1/11, so 10/11 - 2/11. With repairs in 5% of the steps: 0.5 - 0.1.
    for budget, best in ((None, 8 / 11), (0.05, 0.4)):
        problem = machine(budget)
        solution = cm.solve(problem, solver)
        assert solution.status is cm.Status.OPTIMAL
        assert solution.objective == pytest.approx(best, abs=1e-6)
        certificate = cm.certify(problem, solution)
        assert certificate.lower <= best <= certificate.upper
        assert certificate.upper - certificate.lower < 1e-6
        assert cm.check(certificate, problem).accepted
    assert solution.multipliers["repairs"] == pytest.approx(8.0, rel=1e-4)  # 0.5 + 10 b - 2 b


def test_a_cycle_is_no_trouble() -> None:
    """Periodic chains: a ring of five states in which every step moves on."""
    ring = np.roll(np.eye(5), 1, axis=1)[:, None, :]
    reward = np.arange(5.0)[:, None]
    mdp = cm.TabularMDP(ring, 2, average=True, signals={"reward": reward})
    assert occupancy_of(mdp, np.ones((5, 1))).ravel() == pytest.approx(np.full(5, 0.2))
    for solver in SOLVERS:
        solution = cm.solve(cm.Problem(mdp, maximize=cm.linear("reward")), solver)
        assert solution.objective == pytest.approx(2.0, abs=1e-12)


def policy_iteration(mdp: cm.TabularMDP, reward: np.ndarray) -> float:
    """Howard's, for models in which every policy has one class: the gain of the best policy."""
    transition = mdp.dense_transition()
    states = np.arange(mdp.n_states)
    actions = np.zeros(mdp.n_states, dtype=int)
    while True:
        system = np.zeros((mdp.n_states + 1,) * 2)
        system[:-1, :-1] = np.eye(mdp.n_states) - transition[states, actions]
        system[:-1, -1], system[-1, 0] = 1.0, 1.0
        *h, gain = np.linalg.solve(system, [*reward[states, actions], 0.0])
        choices = reward + transition @ np.array(h)
        better = choices.max(axis=1) > choices[states, actions] + 1e-10
        if not better.any():
            return float(gain)
        actions = np.where(better, choices.argmax(axis=1), actions)


@pytest.mark.parametrize("seed", range(6))
def test_policy_iteration_agrees(seed: int) -> None:
    mdp = cm.garnet(15, 3, 15, discount=0.9, seed=seed).replace(average=True)
    reward = np.random.default_rng(seed).normal(size=mdp.shape)
    gain = policy_iteration(mdp, reward)
    problem = cm.Problem(mdp, maximize=cm.linear(reward))
    for solver in SOLVERS:
        solution = cm.solve(problem, solver)
        certificate = cm.certify(problem, solution)
        assert certificate.lower - 1e-11 <= gain <= certificate.upper + 1e-11
        assert certificate.gap < 1e-6


def exact_points(
    transition: list[list[list[Fraction]]], signals: list[list[list[Fraction]]]
) -> set[tuple[Fraction, ...]]:
    """The long-run averages of all closed classes of all deterministic policies."""
    states, actions = len(transition), len(transition[0])
    found = set()
    for choice in itertools.product(range(actions), repeat=states):
        chain = [transition[s][choice[s]] for s in range(states)]
        for members in itertools.chain.from_iterable(
            itertools.combinations(range(states), size) for size in range(1, states + 1)
        ):
            if any(sum(chain[s][t] for t in members) != 1 for s in members):
                continue
            shares = exact_shares(chain, members)
            if shares is None:
                continue
            found.add(
                tuple(
                    sum(d * signal[s][choice[s]] for s, d in zip(members, shares, strict=True))
                    for signal in signals
                )
            )
    return found


def exact_shares(chain: list[list[Fraction]], members: tuple[int, ...]) -> list[Fraction] | None:
    """d = P'd with sum one on a closed set; None where it holds several classes."""
    size = len(members)
    rows = [
        [Fraction(s == t) - chain[s][t] for s in members] + [Fraction(0)] for t in members[:-1]
    ] + [[Fraction(1)] * (size + 1)]
    for k in range(size):
        pivot = next((i for i in range(k, size) if rows[i][k] != 0), None)
        if pivot is None:
            return None
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [value / rows[k][k] for value in rows[k]]
        for i in range(size):
            if i != k and rows[i][k] != 0:
                rows[i] = [a - rows[i][k] * b for a, b in zip(rows[i], rows[k], strict=True)]
    shares = [row[-1] for row in rows]
    return shares if min(shares) > 0 else None


def exact_best(points: set[tuple[Fraction, ...]], budget: Fraction) -> Fraction | None:
    """The best first average with the second at most the budget: a point, or between two."""
    inside = [r for r, c in points if c <= budget]
    for (r, c), (s, d) in itertools.permutations(points, 2):
        if c < budget < d:
            share = (budget - c) / (d - c)
            inside.append((1 - share) * r + share * s)
    return max(inside, default=None)


@pytest.mark.parametrize("seed", range(12))
def test_bounds_hold_for_exact_optima(seed: int) -> None:
    """Random communicating models whose policies may have several classes, some of which never leave."""
    rng = np.random.default_rng(seed)
    states, actions = 4, 2
    weights = np.zeros((states, actions, states), dtype=int)
    for s, a in itertools.product(range(states), range(actions)):
        near = [s, (s + a) % states, int(rng.integers(states))][: 1 + a + (s + seed) % 3]
        weights[s, a] = np.bincount(rng.choice(near, size=8), minlength=states)
    weights[range(states), 1, [(s + 1) % states for s in range(states)]] += 1  # a way round
    sums = weights.sum(axis=2)
    exact = [
        [[Fraction(int(w), int(sums[s, a])) for w in weights[s, a]] for a in range(actions)]
        for s in range(states)
    ]
    rewards = rng.integers(-8, 9, size=(2, states, actions))
    signals = [[[Fraction(int(v), 8) for v in row] for row in one] for one in rewards]
    mdp = cm.TabularMDP(
        weights / sums[:, :, None],
        0,
        average=True,
        signals={"reward": rewards[0] / 8, "cost": rewards[1] / 8},
    )
    points = exact_points(exact, signals)
    costs = sorted(c for _, c in points)
    budget = costs[len(costs) // 2] if seed % 3 else (costs[0] + 2 * costs[-1]) / 3
    best = exact_best(points, budget)
    assert best is not None
    limits = {"cost": cm.linear("cost") <= float(budget)}
    problem = cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=limits)
    for solver in SOLVERS:
        certificate = cm.certify(problem, cm.solve(problem, solver))
        # Floats of thirds are off by their rounding, which the tolerance is for.
        assert certificate.lower <= float(best) + 1e-12
        assert certificate.upper >= float(best) - 1e-12
        # Where classes are hardly connected, and the budget is at a corner, rounding is magnified.
        assert certificate.upper - certificate.lower < 3e-5
        assert cm.check(certificate, problem).accepted


def islands() -> cm.TabularMDP:
    """Two islands of two states each; a ferry between them, which costs time only."""
    transition = np.zeros((4, 2, 4))
    transition[:, 0] = np.kron(np.eye(2), np.full((2, 2), 0.5))
    transition[:, 1] = np.kron(np.eye(2)[::-1], np.full((2, 2), 0.5))
    rich = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    names = ["north a", "north b", "south a", "south b"]
    return cm.TabularMDP(transition, 0, average=True, signals={"rich": rich}, state_names=names)


@pytest.mark.parametrize("solver", SOLVERS)
def test_time_is_shared_between_classes(solver: cm.Solver) -> None:
    """The best shares: 60% in the north, and hardly ever a ferry. No policy does exactly that."""
    mdp = islands()
    limits = {"not too rich": cm.linear("rich") <= 0.6}
    ferries = np.array([[0.0, 1.0]] * 4)
    problem = cm.Problem(
        mdp,
        minimize=cm.linear(ferries),
        subject_to={**limits, "rich": cm.linear("rich") >= 0.6 - 1e-3},
    )
    solution = cm.solve(problem, solver)
    assert solution.objective < 1e-5
    assert np.isclose(solution.occupancy[:2].sum(), 0.6, atol=2e-3)
    assert "shares its time between {'north a', 'north b'} (60%) and {'south a', 'south b'}" in str(
        solution
    )
    certificate = cm.certify(problem, solution)
    assert certificate.lower <= 0.0 <= certificate.upper < 1e-5


def test_policies_of_several_classes_are_looked_at_from_the_start() -> None:
    """Half of the starts settle in either island: the expected shares, with a proof."""
    mdp = islands().replace(initial=[0.25, 0.25, 0.5, 0.0])
    stay = np.tile([1.0, 0.0], (4, 1))
    assert occupancy_of(mdp, stay).sum(axis=1) == pytest.approx([0.25] * 4)
    problem = cm.Problem(mdp, maximize=cm.linear("rich"))
    certificate = cm.certify(problem, stay)
    assert certificate.lower == pytest.approx(0.5, abs=1e-12)
    assert certificate.upper == pytest.approx(1.0, abs=1e-9)


def test_the_policy_leads_back_to_its_support() -> None:
    mdp = islands()
    north = np.zeros((4, 2))
    north[:2, 0] = 0.5
    policy = policy_of(mdp, north)
    assert policy.probabilities(2) == pytest.approx([0.0, 1.0])  # by ferry
    assert occupancy_of(mdp, policy) == pytest.approx(north)


def test_states_before_and_beside_the_recurrent_part() -> None:
    """A start that is left for good, and a trap that nobody reaches, play no part."""
    base = islands()
    transition = np.zeros((6, 2, 6))
    transition[:4, :, :4] = base.dense_transition()
    transition[4, :, 0] = transition[5, :, 5] = 1.0
    reward = np.zeros((6, 2))
    reward[:4], reward[4:] = base.signal("rich"), 100.0
    mdp = cm.TabularMDP(transition, 4, average=True, signals={"reward": reward})
    assert mdp.reachable.tolist() == [True] * 4 + [False] * 2
    problem = cm.Problem(mdp, maximize=cm.linear("reward"))
    for solver in SOLVERS:
        assert cm.solve(problem, solver).objective == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_concave_problems_have_small_gaps(seed: int) -> None:
    mdp = cm.garnet(20, 3, 3, discount=0.9, seed=seed).replace(average=True)
    assert mdp.n_states == 20
    cost = np.random.default_rng(seed).uniform(size=mdp.shape)
    problem = cm.Problem(mdp, maximize=cm.entropy(), subject_to={"cost": cm.linear(cost) <= 0.45})
    solution = cm.solve(problem)
    assert solution.status is cm.Status.OPTIMAL
    certificate = cm.certify(problem, solution)
    assert certificate.relative_gap < 1e-9
    assert cm.check(certificate, problem).accepted
    flow = mdp.flow
    assert flow.miss(solution.occupancy) < 1e-12
    assert solution.occupancy.sum() == pytest.approx(1.0)


def test_infeasible_budgets_are_proven() -> None:
    problem = machine(0.05)
    both = {**problem.constraints, "runs": cm.linear([1.0, 0.0]) >= 0.6}
    infeasible = cm.Problem(problem.mdp, maximize=cm.linear("profit"), subject_to=both)
    for solver in SOLVERS:
        solution = cm.solve(infeasible, solver)
        assert solution.status is cm.Status.INFEASIBLE
        assert cm.certify(infeasible, solution).infeasible
    found = cm.slater(problem)
    assert found.exists


def test_functions_of_ones_own_are_decomposed() -> None:
    @cm.concave
    def fair(occupancy):  # type: ignore[no-untyped-def]
        return -((occupancy.sum(axis=1) - 0.5) ** 2).sum()

    problem = cm.Problem(machine().mdp, maximize=fair)
    solution = cm.solve(problem)
    assert "ColumnGeneration" in str(solution.stats["solver"])
    assert solution.objective == pytest.approx(0.0, abs=1e-4)


def test_gradient_solvers_say_why_not() -> None:
    for solver in (
        cm.PDPG(iterations=2),
        cm.VRPDPG(2, 0.1, 0.1, momentum=1.0, horizon=2),
        cm.ModelBased(100),
    ):
        with pytest.raises(cm.SolverError, match="average=True: gradient solvers"):
            cm.solve(machine(), solver, seed=0)


def test_models_that_do_not_fit_are_refused() -> None:
    ends = np.zeros((2, 1, 2))
    ends[0, 0, 1] = 1.0
    ends[1, 0, 0] = 0.75
    with pytest.raises(
        cm.ModelError,
        match=r"1 row ends episodes \(first: '1', '0', 0.25\); on a model with",
    ):
        cm.TabularMDP(ends, 0, average=True)
    split = np.zeros((3, 2, 3))
    split[0, :, 0] = 1.0
    split[1, :, 1] = 1.0
    split[2, 0, 0] = split[2, 1, 1] = 1.0
    with pytest.raises(cm.ModelError, match=r"2 separate parts, \{'pit'\} and \{'yard'\}"):
        cm.TabularMDP(split, 2, average=True, state_names=["pit", "yard", "gate"])
    assert cm.TabularMDP(split, 0, average=True).n_states == 3  # the others are out of reach
    dawdling = np.zeros((2, 2, 2))
    dawdling[0, 0, 0] = dawdling[0, 1, 1] = dawdling[1, :, 1] = 1.0
    with pytest.raises(cm.ModelError, match="separate parts"):  # it may never leave the start
        cm.TabularMDP(dawdling, 0, average=True)
    with pytest.raises(cm.ModelError, match="has no discount"):
        cm.TabularMDP(split, 0, 0.9, average=True)
    with pytest.raises(cm.ModelError, match=r"give discount=0\.95, horizon=20 or average=True"):
        cm.TabularMDP(split, 0)
    with pytest.raises(cm.ModelError, match="True or False"):
        cm.TabularMDP(split, 0, average=0.5)  # type: ignore[arg-type]


def test_models_problems_and_proofs_in_files(tmp_path) -> None:  # type: ignore[no-untyped-def]
    problem = machine(0.05)
    problem.mdp.save(tmp_path / "model.safetensors")
    again = cm.TabularMDP.load(tmp_path / "model.safetensors")
    assert again.horizon == problem.mdp.horizon
    assert again.replace(discount=0.9).discount == 0.9
    assert again.replace(initial=1).horizon == problem.mdp.horizon
    problem.save(tmp_path / "problem")
    assert cm.load_problem(tmp_path / "problem").mdp.horizon == problem.mdp.horizon
    certificate = cm.certify(problem, cm.solve(problem))
    certificate.save(tmp_path / "certificate.json")
    plain = read_saved(tmp_path / "problem")
    assert check_file(tmp_path / "certificate.json", plain).accepted
    discounted = cm.Problem(
        problem.mdp.replace(discount=0.9), maximize=problem.utility, subject_to=problem.constraints
    )
    assert not cm.check(certificate, discounted).accepted  # another problem


def test_words() -> None:
    problem = machine(0.05)
    assert "average per step" in repr(problem.mdp)
    text = str(cm.solve(problem))
    assert "discounted" not in text


def test_forged_values_prove_no_less_than_is_true() -> None:
    """Whatever h says, the bound is true."""
    problem = machine()
    certificate = cm.certify(problem, cm.solve(problem))
    rng = np.random.default_rng(0)
    checked = Claims.of(problem).checked
    for _ in range(20):
        values = rng.normal(scale=10.0, size=2)
        assert upper_bound(checked, {}, {**certificate.proof, "values": values}) >= 8 / 11


def test_a_queue_with_a_budget_on_fast_service() -> None:
    """Admission and two speeds: birth-death chains, whose stationary distribution is a product, by hand."""
    room, arrive = 5, 0.4
    serve = np.array([0.3, 0.6])
    transition = np.zeros((room + 1, 2, room + 1))
    for length, speed in itertools.product(range(room + 1), range(2)):
        up = arrive * (1 - (serve[speed] if length else 0.0)) if length < room else 0.0
        down = serve[speed] * (1 - arrive) if 0 < length < room else serve[speed] * (length > 0)
        transition[length, speed] = 0.0
        transition[length, speed, min(length + 1, room)] += up
        transition[length, speed, max(length - 1, 0)] += down
        transition[length, speed, length] += 1.0 - up - down
    waiting = np.arange(room + 1.0)
    fast = np.tile([0.0, 1.0], (room + 1, 1))
    mdp = cm.TabularMDP(transition, 0, average=True, signals={"waiting": waiting, "fast": fast})

    def mean_length(speeds: np.ndarray) -> float:
        chain = transition[np.arange(room + 1), speeds]
        ups, downs = np.diag(chain, 1), np.diag(chain, -1)
        shares = np.cumprod(np.append(1.0, ups / downs))
        return float(waiting @ shares / shares.sum())

    everything = [np.array(one) for one in itertools.product(range(2), repeat=room + 1)]
    best = min(mean_length(one) for one in everything)
    problem = cm.Problem(mdp, minimize=cm.linear("waiting"))
    assert cm.solve(problem).objective == pytest.approx(best, abs=1e-9)
    limits = {"fast": cm.linear("fast") <= 0.3}
    limited = cm.Problem(mdp, minimize=cm.linear("waiting"), subject_to=limits)
    found = [cm.solve(limited, solver) for solver in SOLVERS]
    assert found[0].objective == pytest.approx(found[1].objective, rel=2e-6)
    assert best < found[0].objective < mean_length(np.zeros(room + 1, dtype=int))
    # A discount near one approaches it, from the same start.
    near = cm.Problem(
        mdp.replace(discount=1 - 1e-6),
        minimize=cm.linear("waiting", per="step"),
        subject_to={"fast": cm.linear("fast", per="step") <= 0.3},
    )
    assert cm.solve(near).objective == pytest.approx(found[0].objective, abs=1e-4)
    assert len(cm.frontier(limited, "fast", budgets=[0.1, 0.3]).rows()) == 2


def test_one_long_path_proves_nothing_but_is_near() -> None:
    problem = machine(0.05)
    solution = cm.solve(problem)
    found = cm.evaluate(solution, problem.mdp, 50, seed=0, horizon=400)
    assert not found.objective.proven
    assert found.objective.value == pytest.approx(solution.objective, abs=0.06)
    assert found.steps == 20_000


def test_restarting_episodes_are_a_long_run() -> None:
    """Shares of the steps of episodes are those of the long run of episodes one after the other."""
    ends = cm.gridworld(3, slip=0.1, goal=8, discount=0.9)
    forever = ends.restarting(average=True)
    assert forever.horizon.kind == "average"
    solution = cm.solve(cm.Problem(forever, maximize=cm.linear("ending")))
    assert cm.certify(solution.problem, solution).relative_gap < 1e-9
    assert solution.objective > 0.2  # four steps or a few more from corner to corner


def test_makers_of_models_take_every_horizon():
    assert cm.garnet(5, 2, 2, seed=0, average=True).horizon.kind == "average"
    assert cm.garnet(5, 2, 2, seed=0).discount == 0.95
    assert cm.gridworld(3, horizon=4).horizon == cm.gridworld(3, discount=1, horizon=4).horizon
    walk = cm.from_function(
        lambda place, way: [(1.0, (place + way) % 3)], initial=0, actions=[1, 2], average=True
    )
    assert walk.horizon.kind == "average"
    lake = cm.from_gymnasium_table("FrozenLake-v1", horizon=20, is_slippery=False)
    assert cm.solve(cm.Problem(lake, maximize=cm.linear("reward"))).objective == pytest.approx(1.0)
    with pytest.raises(cm.ModelError, match="how far ahead to look is missing"):
        cm.from_gymnasium_table("FrozenLake-v1")
