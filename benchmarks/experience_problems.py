"""Problems with known optima that are learned from episodes: what ``experience.py`` measures learners on.

Each is small enough to be solved exactly. Signals are known functions of state and action; transitions and the
first state are what is learned.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import gymnasium
import numpy as np

import cvxmdp as cm

TAXI = "Taxi-v3" if "Taxi-v3" in gymnasium.registry else "Taxi-v4"


def spending(mdp: cm.TabularMDP, utility: cm.Utility, signal: str, share: float) -> float:
    """A share of what the best without budgets spends, so that the budget binds."""
    free = cm.solve(cm.Problem(mdp, maximize=utility))
    return share * float(np.vdot(mdp.signal(signal), free.occupancy))


def entropy_on_a_grid() -> cm.Problem:
    """Visit everything evenly, the hazards seldom."""
    mdp = cm.gridworld(5, slip=0.2, discount=0.95, start=0, hazards=[7, 12, 17])
    budget = {"hazard": cm.linear("hazard", per="step") <= 0.05}
    return cm.Problem(mdp, maximize=cm.entropy(), subject_to=budget)


def linear_two_budgets() -> cm.Problem:
    """Reward of a random model under two costs."""
    mdp = cm.garnet(20, 4, 4, seed=1, discount=0.95, signals=("reward", "first", "second"))
    free = cm.solve(cm.Problem(mdp, maximize=cm.linear("reward")))
    paid = {name: float(np.vdot(mdp.signal(name), free.occupancy)) for name in ("first", "second")}
    least = {name: cm.solve(cm.Problem(mdp, minimize=cm.linear(name))).objective for name in paid}
    budgets = {name: cm.linear(name) <= 0.5 * (paid[name] + least[name]) for name in paid}
    return cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=budgets)


def random_two_budgets(states: int, actions: int, successors: int) -> cm.Problem:
    """The same of any size; both costs midway between those of the dearest and of the cheapest plan."""
    signals = ("reward", "first", "second")
    mdp = cm.garnet(states, actions, successors, seed=states, discount=0.95, signals=signals)
    dear = cm.solve(cm.Problem(mdp, maximize=cm.linear("reward")))
    cheap = cm.solve(cm.Problem(mdp, minimize=cm.linear("first") + cm.linear("second")))
    midway = 0.5 * (dear.occupancy + cheap.occupancy)
    budgets = {n: cm.linear(n) <= float(np.vdot(mdp.signal(n), midway)) for n in signals[1:]}
    return cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=budgets)


def imitation() -> cm.Problem:
    """Be like an expert in the sense of kl, at three quarters of his cost."""
    mdp = cm.garnet(15, 3, 3, seed=2, discount=0.95)
    random = np.random.default_rng(0)
    expert = cm.TabularPolicy(random.dirichlet(np.ones(3), 15))
    cost = float(np.vdot(mdp.signal("cost"), cm.occupancy_of(mdp, expert)))
    near = cm.distance(expert, norm="kl")
    return cm.Problem(mdp, minimize=near, subject_to={"cost": cm.linear("cost") <= 0.75 * cost})


def river_swim() -> cm.Problem:
    """Six states in a row; swimming up takes effort and often fails, and the good reward is at the far end."""
    n = 6
    transition, reward, effort = np.zeros((n, 2, n)), np.zeros((n, 2)), np.zeros((n, 2))
    for state in range(n):
        transition[state, 0, max(state - 1, 0)] = 1.0
        up, down = min(state + 1, n - 1), max(state - 1, 0)
        for following, chance in ((up, 0.35), (state, 0.6), (down, 0.05)):
            transition[state, 1, following] += chance
        effort[state, 1] = 1.0
    reward[0, 0], reward[n - 1, 1] = 0.005, 1.0
    mdp = cm.TabularMDP(transition, 0, 0.95, signals={"reward": reward, "effort": effort})
    budget = {"effort": cm.linear("effort", per="step") <= 0.7}
    return cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=budget)


def queues() -> cm.TabularMDP:
    """Two queues of up to four; one of them is served, gently or with power."""
    size, arrivals, success = 5, (0.3, 0.25), (0.45, 0.8)
    transition = np.zeros((size * size, 4, size * size))
    served, power, waiting = (
        np.zeros((2, size * size, 4)),
        np.zeros((size**2, 4)),
        np.zeros((size**2, 4)),
    )
    for state in range(size * size):
        lengths = divmod(state, size)
        for action in range(4):
            which, strong = divmod(action, 2)
            chance = success[strong] if lengths[which] else 0.0
            served[which, state, action] = chance
            power[state, action], waiting[state, action] = (0.2, 1.0)[strong], sum(lengths)
            for done in (0, 1):
                for come in np.ndindex(2, 2):
                    now = [lengths[0] - done * (which == 0), lengths[1] - done * (which == 1)]
                    after = [min(size - 1, now[k] + come[k]) for k in (0, 1)]
                    p = chance if done else 1.0 - chance
                    for k in (0, 1):
                        p *= arrivals[k] if come[k] else 1.0 - arrivals[k]
                    transition[state, action, after[0] * size + after[1]] += p
    signals = {"first": served[0], "second": served[1], "power": power, "waiting": waiting}
    return cm.TabularMDP(transition, 0, 0.95, signals={**signals, "all": served.sum(axis=0)})


def servers() -> cm.TabularMDP:
    """Two queues of up to four, each with a server that works or rests; the second one's is the slower."""
    size, arrival, success = 5, 0.4, (0.8, 0.5)
    transition = np.zeros((size * size, 4, size * size))
    served, power = np.zeros((2, size * size, 4)), np.zeros((size * size, 4))
    for state, action in np.ndindex(size * size, 4):
        lengths, works = divmod(state, size), divmod(action, 2)
        chances = [success[k] if works[k] and lengths[k] else 0.0 for k in (0, 1)]
        served[:, state, action], power[state, action] = chances, sum(works)
        queues = [_one_queue(lengths[k], size, arrival, chances[k]) for k in (0, 1)]
        transition[state, action] = np.outer(*queues).ravel()
    signals = {"first": served[0], "second": served[1], "power": power}
    return cm.TabularMDP(transition, 0, 0.95, signals={**signals, "all": served.sum(axis=0)})


def _one_queue(length: int, size: int, arrival: float, served: float) -> np.ndarray:
    """Where a queue goes in one step."""
    after = np.zeros(size)
    for done, come in np.ndindex(2, 2):
        chance = (served if done else 1.0 - served) * (arrival if come else 1.0 - arrival)
        after[min(size - 1, max(length - done, 0) + come)] += chance
    return after


def queues_anywhere() -> cm.TabularMDP:
    """The same beginning with any lengths, all alike: good play then meets what it would seldom meet."""
    mdp = queues()
    return mdp.replace(initial=np.full(mdp.n_states, 1.0 / mdp.n_states))


def fair_queues(mdp: cm.TabularMDP, power: float = 0.5) -> cm.Problem:
    """The worse served queue gets as much as possible, with so much power per step."""
    worse = cm.minimum(cm.linear("first"), cm.linear("second"))
    budget = {"power": cm.linear("power", per="step") <= power}
    return cm.Problem(mdp, maximize=worse, subject_to=budget)


def busy_queues(mdp: cm.TabularMDP) -> cm.Problem:
    """Throughput, with a budget of power, and more for the second queue than would be best."""
    power = {"power": cm.linear("power", per="step") <= 0.5}
    best = cm.solve(cm.Problem(mdp, maximize=cm.linear("all"), subject_to=power))
    usual = float(np.vdot(mdp.signal("second"), best.occupancy))
    budgets = {**power, "second": cm.linear("second") >= 1.1 * usual}
    return cm.Problem(mdp, maximize=cm.linear("all"), subject_to=budgets)


def shared_power() -> cm.Problem:
    """Throughput of two servers, and half of what the slower one could do more than would be best."""
    mdp = servers()
    power = {"power": cm.linear("power", per="step") <= 0.8}
    best = cm.solve(cm.Problem(mdp, maximize=cm.linear("all"), subject_to=power))
    usual = float(np.vdot(mdp.signal("second"), best.occupancy))
    most = cm.solve(cm.Problem(mdp, maximize=cm.linear("second"), subject_to=power)).objective
    budgets = {**power, "second": cm.linear("second") >= 0.5 * (usual + most)}
    return cm.Problem(mdp, maximize=cm.linear("all"), subject_to=budgets)


def frozen_lake(size: int, share: float) -> cm.Problem:
    """Reach the goal, and fall into holes at most a share as often as who only wants to reach it."""
    mdp = cm.from_gymnasium_table(
        "FrozenLake-v1",
        0.95,
        signals={"fall": lambda s, a, t, r, end: float(end and r == 0)},
        map_name=f"{size}x{size}",
    )
    reach = cm.linear("reward")
    budget = {"falls": cm.linear("fall") <= spending(mdp, reach, "fall", share)}
    return cm.Problem(mdp, maximize=reach, subject_to=budget)


def cliff_walking(slippery: bool) -> cm.Problem:
    """Reach the goal soon, with half of the time that the fastest spends on the edge."""
    mdp = cm.from_gymnasium_table(
        "CliffWalking-v1",
        0.95,
        signals={"edge": lambda s, a, t, r, end: float(25 <= s <= 34)},
        is_slippery=slippery,
    )
    mdp = mdp.with_signals(step=np.ones(mdp.shape))
    budget = {"edge": cm.linear("edge") <= spending(mdp, -cm.linear("step"), "edge", 0.5)}
    return cm.Problem(mdp, minimize=cm.linear("step"), subject_to=budget)


def taxi() -> cm.Problem:
    """The reward of Gymnasium's Taxi, driving four fifths of what the best does."""
    mdp = cm.from_gymnasium_table(
        TAXI,
        0.95,
        signals={"driving": lambda s, a, t, r, end: float(s // 20 != t // 20)},
    )
    reward = cm.linear("reward")
    budget = {"driving": cm.linear("driving") <= spending(mdp, reward, "driving", 0.8)}
    return cm.Problem(mdp, maximize=reward, subject_to=budget)


def inventory() -> cm.Problem:
    """Stock of up to ten, demand of up to five a day: profit, with a third of the best one's lost sales."""
    n, demand = 11, np.array([0.1, 0.25, 0.3, 0.2, 0.1, 0.05])
    transition = np.zeros((n, 6, n))
    profit, lost = np.zeros((n, 6)), np.zeros((n, 6))
    for stock in range(n):
        for order in range(6):
            full = min(n - 1, stock + order)
            for asked, chance in enumerate(demand):
                sold = min(full, asked)
                transition[stock, order, full - sold] += chance
                profit[stock, order] += chance * 2.0 * sold
                lost[stock, order] += chance * (asked - sold)
            profit[stock, order] -= (1.0 if order else 0.0) + 0.5 * order + 0.1 * full
    mdp = cm.TabularMDP(transition, 3, 0.95, signals={"profit": profit, "lost": lost})
    profit_made = cm.linear("profit")
    budget = {"lost": cm.linear("lost") <= spending(mdp, profit_made, "lost", 1 / 3)}
    return cm.Problem(mdp, maximize=profit_made, subject_to=budget)


def machine() -> cm.Problem:
    """A machine that wears out: keep on, maintain or replace, with half of the best one's repairs."""
    n = 8
    transition, output, repair = np.zeros((n, 3, n)), np.zeros((n, 3)), np.zeros((n, 3))
    for wear in range(n):
        worse = min(n - 1, wear + 1)
        transition[wear, 0, worse] += 0.4
        transition[wear, 0, wear] += 0.6
        transition[wear, 1, max(0, wear - 2)] += 0.8
        transition[wear, 1, wear] += 0.2
        transition[wear, 2, 0] = 1.0
        output[wear] = (1.0 - (wear / (n - 1)) ** 2) * np.array([1.0, 0.7, 0.0])
        repair[wear, 1], repair[wear, 2] = 0.4, 1.5
    mdp = cm.TabularMDP(transition, 0, 0.95, signals={"output": output, "repair": repair})
    made = cm.linear("output")
    budget = {"repair": cm.linear("repair") <= spending(mdp, made, "repair", 0.5)}
    return cm.Problem(mdp, maximize=made, subject_to=budget)


def deep_chain() -> cm.Problem:
    """Twenty states: one of two actions goes on, the other back to the start, and only the end pays."""
    n = 20
    transition, reward, moves = np.zeros((n, 2, n)), np.zeros((n, 2)), np.zeros((n, 2))
    for state in range(n):
        right = state % 2  # which action goes on differs from state to state
        transition[state, right, min(state + 1, n - 1)] += 0.9
        transition[state, right, state] += 0.1
        transition[state, 1 - right, 0] = 1.0
        moves[state, right] = 1.0
    reward[n - 1, (n - 1) % 2] = 1.0
    mdp = cm.TabularMDP(transition, 0, 0.98, signals={"reward": reward, "moves": moves})
    budget = {"moves": cm.linear("moves", per="step") <= 0.8}
    return cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=budget)


PROBLEMS: dict[str, Callable[[], cm.Problem]] = {
    "entropy on a slippery grid, hazard budget": entropy_on_a_grid,
    "linear, two budgets": linear_two_budgets,
    "kl imitation under a budget": imitation,
    "river swim, effort budget": river_swim,
    "two queues, max-min fairness, power budget": lambda: fair_queues(queues()),
    "two queues, throughput, two budgets": lambda: busy_queues(queues()),
    "two servers, max-min fairness, power budget": lambda: fair_queues(servers(), 0.8),
    "two servers, throughput, two budgets": shared_power,
    "FrozenLake 4x4, 9/10 of its falls": lambda: frozen_lake(4, 0.9),
    "FrozenLake 8x8, 3/4 of its falls": lambda: frozen_lake(8, 0.75),
    "CliffWalking, half of its time on the edge": lambda: cliff_walking(False),
    "CliffWalking, slippery, half of its time on the edge": lambda: cliff_walking(True),
    "Taxi, 4/5 of its driving": taxi,
    "inventory, a third of its lost sales": inventory,
    "machine, half of its repairs": machine,
    "deep chain, moves": deep_chain,
    # Where one slip decides, the noise of the slack alone is worth some percent of the range: the limit, shown.
    "FrozenLake 4x4, 3/4 of its falls": lambda: frozen_lake(4, 0.75),
}

# What is proven depends on what is met: the queues that begin empty, and these.
ANYWHERE: dict[str, Callable[[], cm.Problem]] = {
    "max-min fairness, beginning anywhere": lambda: fair_queues(queues_anywhere()),
    "throughput, beginning anywhere": lambda: busy_queues(queues_anywhere()),
}

# Random ones of other sizes, for how tight bounds are.
RANDOM: dict[str, Callable[[], cm.Problem]] = {
    f"linear, two budgets, {states} x {actions} x {successors}": partial(
        random_two_budgets, states, actions, successors
    )
    for states, actions, successors in ((10, 2, 3), (12, 2, 3), (15, 3, 3), (18, 3, 4), (20, 2, 3))
}


def objective_range(problem: cm.Problem) -> float:
    """The largest minus the smallest objective over policies, as far as the worst for slopes show it."""
    free = cm.Problem(problem.mdp, **{problem.sense: problem.utility})
    best = cm.solve(free)
    f = free.objective_function
    worst, x = float("inf"), best.occupancy
    # A concave function is smallest at a vertex: downhill from vertex to vertex.
    for _ in range(20):
        slope = np.nan_to_num(f.gradient(x), posinf=1e6, neginf=-1e6)
        down = cm.solve(cm.Problem(free.mdp, minimize=cm.linear(slope)))
        value = float(f.value(down.occupancy))
        if value >= worst - 1e-12:
            break
        worst, x = value, down.occupancy
    return free.sign * best.objective - worst
