"""The problems of ``equal_answers``: 356 small ones of all kinds, by name."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.sparse as sp

import cvxmdp as cm

Case = tuple[str, Callable[[], Any]]


def transition_log() -> dict[str, list[Any]]:
    """3,000 steps of FrozenLake's table with random actions, drawn here."""
    lake, random = model("lake"), np.random.default_rng(0)
    rows, ending = lake.dense_transition(), np.asarray(lake.ending).reshape(lake.actions.shape)
    names = ("state", "action", "next_state", "terminated", "truncated", "reward")
    log: dict[str, list[Any]] = {name: [] for name in names}
    state = 0
    for step in range(3_000):
        action = int(random.integers(lake.n_actions))
        chances = np.append(rows[state, action], ending[state, action])
        following = int(random.choice(chances.size, p=chances / chances.sum()))
        over = following == lake.n_states
        reward = float(lake.signal("reward")[state, action])
        entry = (state, action, 0 if over else following, over, step % 40 == 39, reward)
        for name, value in zip(names, entry, strict=True):
            log[name].append(value)
        state = 0 if over or step % 40 == 39 else following
    return log


def serve(jobs: int, speed: str) -> list[tuple[float, int, dict[str, float]]]:
    """A queue of at most seven jobs, fast or slow service."""
    leave = {"slow": 0.3, "fast": 0.6}[speed]
    cost = {"reward": -float(jobs), "cost": 1.0 if speed == "fast" else 0.2}
    return [
        (0.4 * (1 - leave), min(jobs + 1, 7), cost),
        (0.6 * leave, max(jobs - 1, 0), cost),
        (0.4 * leave + 0.6 * (1 - leave), jobs, cost),
    ]


def masked(mdp: cm.TabularMDP) -> cm.TabularMDP:
    """Every third state lacks its last action."""
    actions = np.ones((mdp.n_states, mdp.n_actions), dtype=bool)
    actions[::3, -1] = False
    return mdp.replace(actions=actions)


def read_back(mdp: cm.TabularMDP, prism: bool) -> cm.TabularMDP:
    """The model after it was written to a file."""
    if prism:
        cm.to_prism(mdp.replace(initial=0), "model")
        return cm.from_prism("model", discount=mdp.discount, end="end")
    mdp.save("model.safetensors")
    return cm.TabularMDP.load("model.safetensors")


def of_table(sparse: bool) -> cm.TabularMDP:
    """The garnet's numbers as a sparse matrix, or as an array with a signal per successor."""
    mdp = model("garnet")
    table = mdp.dense_transition()
    cost = mdp.signal("cost") if sparse else np.broadcast_to(np.linspace(0, 1, 12), table.shape)
    given = sp.csr_array(table.reshape(-1, 12)) if sparse else table
    return cm.TabularMDP(given, 0, 0.9, signals={"reward": mdp.signal("reward"), "cost": cost})


def garnet(*shape: int, seed: int, **settings: Any) -> cm.TabularMDP:
    """A garnet with four signals."""
    signals = ("reward", "cost", "wear", "noise")
    return cm.garnet(*shape, seed=seed, **{"discount": 0.9, "signals": signals, **settings})


def grid(size: Any, hazards: list[int], **settings: Any) -> cm.TabularMDP:
    """A grid that slips."""
    return cm.gridworld(size, slip=0.1, discount=0.9, hazards=hazards, **settings)


FALL = {"cost": lambda state, action, following, reward, end: float(end and reward == 0)}
MODELS: dict[str, Callable[[], cm.TabularMDP]] = {
    "garnet": lambda: garnet(12, 3, 4, seed=1),
    "garnet, 60 states": lambda: garnet(60, 4, 5, seed=2, discount=0.95),
    "garnet that ends": lambda: garnet(12, 3, 4, seed=3, ending=0.1),
    "large garnet": lambda: garnet(700, 3, 4, seed=4),
    "tiny": lambda: cm.garnet(3, 2, 3, seed=0, discount=0.3),
    "masked": lambda: masked(model("garnet")),
    "masked, ends": lambda: masked(model("garnet that ends")),
    "dense": lambda: of_table(sparse=False),
    "sparse": lambda: of_table(sparse=True),
    "grid": lambda: grid(4, [5, 6], rewards={15: 1.0}),
    "grid, goal": lambda: grid((4, 5), [7, 12], goal=19, walls=[6], step_reward=-0.01),
    "large grid": lambda: grid(24, [25, 70, 71], rewards={90: 1.0}),
    "queue": lambda: cm.from_function(serve, initial=0, actions=["slow", "fast"], discount=0.9),
    "lake": lambda: cm.from_gymnasium_table("FrozenLake-v1", 0.9, signals=FALL),
    "logged": lambda: cm.from_transitions(transition_log(), discount=0.9),
    "unrolled": lambda: model("grid").unroll(9),
    "prism": lambda: read_back(model("grid, goal"), prism=True),
    "saved": lambda: read_back(model("masked, ends"), prism=False),
}


@cache
def model(name: str) -> cm.TabularMDP:
    """The model of that name."""
    return MODELS[name]()


def expert(where: str = "garnet") -> cm.TabularPolicy:
    """A policy that is nowhere sure, drawn at random."""
    mdp = model(where)
    chances = np.random.default_rng(5).dirichlet(np.ones(mdp.n_actions), mdp.n_states)
    chances = np.where(mdp.actions, chances, 0.0)
    return cm.TabularPolicy(chances / chances.sum(axis=1, keepdims=True))


@cm.concave
def coverage(occupancy: Any) -> Any:
    """A function of the user's."""
    return jnp.log(occupancy.sum(axis=1) + 1e-2).mean()


@cm.convex(lipschitz=50.0, smoothness=2.0)
def crowding(occupancy: Any) -> Any:
    """Another one, with constants."""
    return (occupancy.sum(axis=1) ** 2).sum()


def squares(occupancy: Any) -> Any:
    """One that is not concave."""
    return (occupancy**2).sum()


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers in [0, 1)."""
    return np.random.default_rng(seed).random(shape)


PRICE = {"cost": 0.5, "wear": 0.1, "noise": 0.0}
SURE = cm.TabularPolicy(np.eye(3)[np.arange(12) % 3])
ATOMS: dict[str, Callable[[Any], cm.Utility]] = {  # of the random policy on the garnet
    "signal": lambda e: cm.linear("wear"),
    "signal per step": lambda e: cm.linear("wear", per="step"),
    "array of states": lambda e: cm.linear(numbers(12)),
    "array of pairs": lambda e: cm.linear(numbers(12, 3)),
    "entropy of states": lambda e: cm.entropy(),
    "entropy of pairs": lambda e: cm.entropy(of="state-action"),
    "l1 to a policy": lambda e: cm.distance(e, norm="l1"),
    "l2 to a policy": lambda e: cm.distance(e, norm="l2"),
    "squared l2 to an occupancy": lambda e: cm.distance(occupied(e), norm="l2-squared"),
    "kl to a policy": lambda e: cm.distance(e, norm="kl"),
    "kl, smoothed": lambda e: cm.distance(SURE, norm="kl", smoothing=0.2),
    "l2 to a ball": lambda e: cm.distance(cm.ball(e, 0.2)),
    "l2 to a box": lambda e: cm.distance(cm.box(0.1, 0.4)),
    "l1 to a box": lambda e: cm.distance(cm.box(0.1, 0.4), norm="l1"),
    "squared l2 to a box": lambda e: cm.distance(
        cm.box(0.1, numbers(12, 3) + 0.1), norm="l2-squared"
    ),
    "l2 to a polytope": lambda e: cm.distance(cm.polytope(numbers(2, 12, 3), [3.0, 4.0])),
    "log barrier": lambda e: cm.linear("reward") + 0.5 * cm.log_barrier(cm.linear("wear") <= 5.5),
    "log sum": lambda e: cm.log_sum("cost", "wear", "noise"),
    "minimum": lambda e: cm.minimum(cm.linear("cost"), cm.linear("wear"), cm.linear("noise")),
    "minimum with entropy": lambda e: cm.minimum(cm.linear("wear", per="step"), 0.3 * cm.entropy()),
    "quadratic, weights": lambda e: cm.quadratic(weights=numbers(12)),
    "quadratic, negative weights": lambda e: cm.quadratic(weights=-numbers(12, 3)),
    "quadratic, matrix": lambda e: cm.quadratic((rows := numbers(4, 36, seed=1)).T @ rows),
    "quadratic, factor": lambda e: cm.quadratic(factor=numbers(3, 12, 3, seed=2)),
    "sum": lambda e: cm.linear("wear") + 2.0 * cm.entropy() - cm.quadratic(weights=numbers(12)) / 9,
    "difference": lambda e: cm.distance(e) - 3 * cm.entropy() + 1.0,
    "composite": lambda e: -cm.minimum(cm.log_sum("wear"), cm.entropy()) / 2,
    "own concave function": lambda e: coverage,
    "own convex function": lambda e: crowding,
    "own function in a sum": lambda e: cm.linear("wear") + 4 * coverage,
}


def occupied(policy: Any, where: str = "garnet") -> np.ndarray:
    """The occupancy of a policy."""
    return cm.occupancy_of(model(where), policy)


def at_uniform(utility: cm.Utility, where: str) -> cm.Constraint:
    """The constraint to do better than the uniform policy does."""
    value = float(
        utility.lower(model(where)).value(occupied(cm.uniform_policy(model(where)), where))
    )
    return utility >= value if utility.curvature is cm.Curvature.CONCAVE else utility <= value


def as_objective(atom: str) -> cm.Problem:
    """The atom, maximised or minimised under a budget."""
    utility, limit = ATOMS[atom](expert()), at_uniform(cm.linear("cost"), "garnet")
    sense = "minimize" if utility.curvature is cm.Curvature.CONVEX else "maximize"
    return cm.Problem(model("garnet"), **{sense: utility}, subject_to={"cost": limit})


def as_constraint(atom: str) -> cm.Problem:
    """Reward, maximised where the atom constrains."""
    limit = {atom: at_uniform(ATOMS[atom](expert()), "garnet")}
    return cm.Problem(model("garnet"), maximize=cm.linear("reward"), subject_to=limit)


def several(where: str = "garnet", factor: float = 0.95) -> cm.Problem:
    """Reward under a budget for every other signal, a share of what the uniform policy takes."""
    mdp = model(where)
    used = occupied(cm.uniform_policy(mdp), where)
    taken = {name: float(np.vdot(mdp.signal(name), used)) for name in mdp.signals}
    limits = {n: cm.linear(n) <= factor * x for n, x in taken.items() if n != "reward"}
    return cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=limits)


def exploring(where: str = "grid") -> cm.Problem:
    """Entropy under one budget per step."""
    cost = next((name for name in model(where).signals if name != "reward"), "reward")
    limit = {"limit": at_uniform(cm.linear(cost, per="step"), where)}
    return cm.Problem(model(where), maximize=cm.entropy(), subject_to=limit)


def of(where: str, maximize: cm.Utility | None = None, **limits: cm.Constraint) -> cm.Problem:
    """Reward, or something else, under these constraints."""
    return cm.Problem(model(where), maximize=maximize or cm.linear("reward"), subject_to=limits)


def conflicting() -> cm.Problem:
    """No policy satisfies both, and either is easy; the third takes no part."""
    hazard, explore = cm.linear("hazard") <= 0.001, cm.entropy() >= 2.7
    return of("grid", hazard=hazard, explore=explore, reward=cm.linear("reward") >= 0.0)


def tiny() -> cm.Problem:
    """A problem for the theory, all of whose constants are known."""
    return of("tiny", cost=cm.linear("cost") <= 1.05)


def proven(problem: cm.Problem, solver: Any = None, **how: Any) -> dict[str, Any]:
    """A solution and its certificate."""
    solution = cm.solve(problem, solver, **how)
    return {"solution": solution, "certificate": cm.certify(problem, solution)}


def pdpg(iterations: int = 60, **settings: Any) -> cm.PDPG:
    """A short run."""
    return cm.PDPG(iterations, **{"check_every": 30, "tolerance": 1e-4, **settings})


def learner(iterations: int = 40, **settings: Any) -> cm.VRPDPG:
    """A short run from samples."""
    usual = {"primal_step": 0.3, "dual_step": 1.0, "momentum": 0.3, "horizon": 20, "batch_size": 4}
    return cm.VRPDPG(iterations, **{**usual, "evaluate_every": 20, **settings})


def learned(problem: cm.Problem, **settings: Any) -> cm.Solution:
    """What such a run learns."""
    return cm.solve(problem, learner(**settings), seed=0)


class Drift:
    """A point that drifts to the right and is pushed either way."""

    num_actions = 2

    def reset(self, key: Any) -> tuple[Any, Any]:
        """The first place."""
        place = jax.random.uniform(key, (1,), minval=-0.1, maxval=0.1)
        return place, place

    def step(self, key: Any, place: Any, action: Any) -> tuple[Any, ...]:
        """A push, the drift and noise."""
        push = 0.1 * (2 * action - 1) + 0.02 + 0.05 * jax.random.normal(key)
        place = jnp.clip(place + push, -1.0, 1.0)
        return place, place, 1.0 - jnp.abs(place[0]), False, {"right": jnp.float32(place[0] > 0)}


@contextlib.contextmanager
def played(where: str) -> Iterator[cm.Problem]:
    """A problem in an environment."""
    if where == "cart":
        bins = cm.UniformBins([-2.4, -3, -0.21, -3], [2.4, 3, 0.21, 3], [3, 1, 6, 1])
        tilted = np.zeros((3, 6))
        tilted[:, [0, 5]] = 1.0
        with cm.GymnasiumEnv("CartPole-v1", discount=0.9, features=bins, n_envs=4) as cart:
            limit = {"tilted": cm.linear(tilted.ravel(), per="step") <= 0.1}
            yield cm.Problem(cart, maximize=cm.entropy(), subject_to=limit)
        return
    if where == "drift":
        env = cm.JaxEnv(Drift(), discount=0.9, features=cm.UniformBins(-1.0, 1.0, 10))
        limit = {"right": cm.linear("right", per="step") <= 0.5}
        yield cm.Problem(env, maximize=cm.entropy(), subject_to=limit)
        return
    with cm.GymnasiumEnv("FrozenLake-v1", discount=0.9, n_envs=4, signals=FALL) as lake:
        limit = {"fall": cm.linear("cost") <= 0.25}
        yield cm.Problem(lake, maximize=cm.linear("reward"), subject_to=limit)


def atom_cases() -> Iterator[Case]:
    """Every atom as objective and as constraint, with three solvers."""
    columns = cm.ColumnGeneration(tolerance=1e-4, iterations=100)
    for atom in ATOMS:
        yield f"objective/{atom}/chosen", lambda a=atom: proven(as_objective(a))
        yield f"objective/{atom}/columns", lambda a=atom: cm.solve(as_objective(a), columns)
        yield f"constraint/{atom}/chosen", lambda a=atom: proven(as_constraint(a))
        yield f"constraint/{atom}/pdpg", lambda a=atom: cm.solve(as_constraint(a), pdpg())
    for atom in ("l2 to a policy", "l1 to a box", "minimum", "sum", "own convex function"):
        yield f"constraint/{atom}/columns", lambda a=atom: cm.solve(as_constraint(a), columns)
    for atom in ("log barrier", "minimum", "own concave function"):
        yield f"objective/{atom}/pdpg", lambda a=atom: cm.solve(as_objective(a), pdpg())
    for atom in ("entropy of pairs", "squared l2 to an occupancy", "kl to a policy", "log sum"):
        yield f"objective/{atom}/learned", lambda a=atom: learned(as_objective(a))


def model_cases() -> Iterator[Case]:
    """Every model: its numbers, linear and concave problems on it."""
    for name in MODELS:
        yield f"model/{name}/table", partial(model, name)
        yield f"model/{name}/linear", lambda n=name: proven(several(n, 0.98))
        yield f"model/{name}/entropy", lambda n=name: proven(exploring(n))
        yield f"model/{name}/free", lambda n=name: cm.solve(of(n))
    for name in ("garnet, 60 states", "masked, ends", "grid, goal", "large garnet"):
        yield f"model/{name}/columns", lambda n=name: proven(several(n), cm.ColumnGeneration())
        yield f"model/{name}/pdpg", lambda n=name: cm.solve(several(n, 0.98), pdpg())
    yield "model/grid/render", lambda: {"message": model("grid, goal").render()}
    for utility in (coverage, cm.concave(squares)):
        yield f"promise/{utility!r}", lambda u=utility: probed(u)


def probed(utility: cm.Utility) -> list[Any]:
    """What check_utility says."""
    found = cm.check_utility(utility, model("garnet"))
    return [found.ok, found.probes, found.counterexample]


def pdpg_cases() -> Iterator[Case]:
    """Steps, directions, families, iterates, pessimism, warm starts."""
    features = numbers(12, 3, 5)
    fixed = {"primal_step": 0.5, "dual_step": 0.1, "dual_bound": 20.0, "tolerance": None}
    plain = {**fixed, "direction": "vanilla"}
    settings: dict[str, dict[str, Any]] = {
        "automatic": {},
        "automatic, vanilla": {"direction": "vanilla"},
        "numbers, natural": fixed,
        "numbers, vanilla": plain,
        "numbers by constraint": {**fixed, "dual_step": {"cost": 0.1, "wear": 0.2, "noise": 0.3}},
        "normalised": {**plain, "primal_step": cm.Normalised(0.2)},
        "Adam": {**plain, "primal_step": optax.adam(0.05)},
        "box from slater": {**fixed, "dual_bound": None, "initial_multiplier": 0.5},
        "direct": {**plain, "policy": cm.Direct(), "primal_step": 0.02},
        "linear softmax": {"policy": cm.LinearSoftmax(features)},
        "network": {"policy": cm.MLP(8), "iterate": "last"},
        "module": {"policy": cm.EquinoxModule(eqx.nn.Linear(12, 3, key=jax.random.key(0)))},
        "network, vanilla": {**plain, "policy": cm.MLP(8), "iterate": "last"},
        "average": {"iterate": "average"},
        "last": {"iterate": "last"},
        "best": {"iterate": "best"},
        "pessimism": {"pessimism": 0.05},
        "pessimism by constraint": {"pessimism": {"cost": 0.01, "wear": 0.02, "noise": 0.0}},
        "pessimism found": {"pessimism": "auto"},
        "pessimism of the theory": {**plain, "policy": cm.Direct(), "pessimism": "theory"},
        "to a tolerance": {"iterations": 600, "tolerance": 1e-3},
    }
    for name, given in settings.items():
        yield f"pdpg/{name}", lambda g=given: cm.solve(several(), pdpg(**g), seed=0)
    yield "pdpg/theory", lambda: cm.solve(tiny(), cm.PDPG.theory(tiny(), 100))
    yield "pdpg/exploring, found pessimism", lambda: proven(exploring(), pdpg(pessimism="auto"))
    yield "pdpg/infeasible", lambda: cm.solve(conflicting(), pdpg())
    yield "pdpg/from a solution", lambda: from_solution(pdpg())
    yield "pdpg/from a policy", lambda: cm.solve(several(), pdpg(), start=expert())
    yield "pdpg/from a network", lambda: from_solution(pdpg(policy=cm.MLP(8), iterate="last"))


def from_solution(solver: Any, problem: Callable[[], cm.Problem] = several) -> cm.Solution:
    """A second run from where the first ended."""
    first = cm.solve(problem(), solver, seed=0)
    return cm.solve(problem(), solver, start=first, seed=1)


def learning_cases() -> Iterator[Case]:
    """VR-PDPG on a model, and in environments."""
    settings: dict[str, dict[str, Any]] = {
        "as it is": {},
        "momentum 1": {"momentum": 1.0},
        "square root": {"momentum": "square root"},
        "network": {"policy": cm.MLP(8)},
        "linear softmax": {"policy": cm.LinearSoftmax(numbers(16, 4, 5))},
        "uniform": {"iterate": "uniform"},
        "average": {"iterate": "half"},
        "recorded seldom": {"record_every": 7},
        "pessimism": {"pessimism": 0.01},
        "pessimism found": {"pessimism": "auto", "iterations": 60},
        "baseline": {"baseline": True},
        "decay": {"primal_decay": 0.25, "dual_decay": 0.3},
        "Adam": {"primal_step": optax.adam(0.05)},
    }
    for name, given in settings.items():
        yield f"learned/{name}", lambda g=given: learned(exploring(), **g)
    yield "learned/other seed", lambda: proven(exploring(), learner(), seed=1)
    yield "learned/several budgets", lambda: learned(several(), dual_bound=50.0)
    yield "learned/ends, masked", lambda: learned(several("masked, ends"))
    yield (
        "learned/theory",
        lambda: cm.solve(exploring(), cm.VRPDPG.theory(exploring(), 100), seed=0),
    )
    yield "learned/warm start", lambda: from_solution(learner(), exploring)
    kinds = ("as it is", "network", "uniform", "average", "recorded seldom", "pessimism found")
    for where, name in itertools.product(("lake", "cart", "drift"), kinds):
        solver = learner(**{**settings[name], "iterations": 10})
        yield f"played/{where}/{name}", partial(play, where, solver)


def play(where: str, solver: cm.VRPDPG) -> dict[str, Any]:
    """Learn in an environment, and evaluate what was learned."""
    with played(where) as problem:
        solution = cm.solve(problem, solver, seed=0)
        found = cm.evaluate(solution, problem.environment, 50, seed=1, problem=problem)
        return {"solution": solution, "evaluation": found}


def proof_cases() -> Iterator[Case]:
    """Certificates, their checks, Slater points, frontiers, and single solves."""
    for problem in (several, exploring, conflicting):
        name = problem.__name__
        yield f"certify/uniform/{name}", lambda p=problem: cm.certify(p(), uniform_of(p()))
        yield f"slater/{name}", lambda p=problem: cm.slater(p())
        yield f"check/{name}", partial(checked, problem)
    for change in ("budget", "bound", "evidence"):
        yield f"check/changed {change}", partial(checked, exploring, change)
    own, many = partial(as_objective, "own concave function"), garnet(3_500, 3, 4, seed=5)
    reward = cm.linear("reward", per="step") >= 0.6
    cheap = cm.Problem(model("garnet"), minimize=cm.linear("cost"), subject_to={"reward": reward})
    mixing, columns = cm.ColumnGeneration(columns=20, mixture=True), cm.ColumnGeneration()
    yield "certify/multipliers", lambda: cm.certify(several(), expert(), PRICE)
    yield "certify/array", lambda: cm.certify(several(factor=1.05), np.full((12, 3), 1 / 3))
    yield "certify/own function", lambda: cm.certify(own(), expert())
    yield "solve/infeasible/conic", lambda: proven(conflicting(), cm.ConvexProgram())
    yield "solve/infeasible/linear", lambda: proven(several(factor=0.2))
    yield "solve/infeasible/columns", lambda: cm.solve(several(factor=0.2), columns)
    yield "solve/loose tolerance", lambda: proven(exploring(), cm.ConvexProgram(tolerance=1e-6))
    yield "solve/minimize", lambda: proven(cheap)
    yield "solve/many pairs", lambda: cm.solve(cm.Problem(many, maximize=cm.linear("reward")))
    yield "solve/columns, mixture", lambda: cm.solve(several(), mixing)
    yield "solve/columns, warm start", lambda: from_solution(columns)
    yield "solve/another budget", lambda: proven(several().with_budget("cost", 4.2))
    yield "solve/shadow reward", shadow
    for budgets in ([1.0, 4.2, 4.5, 9.0], None):
        how = "chosen" if budgets is None else "given"
        yield f"frontier/{how}", lambda b=budgets: traced(several(), "cost", b)
    yield "frontier/exploring", lambda: traced(exploring(), "limit", None)


def uniform_of(problem: cm.Problem) -> Any:
    """The uniform policy of its model."""
    return cm.uniform_policy(problem.mdp)


def traced(problem: cm.Problem, name: str, budgets: list[float] | None) -> list[Any]:
    """A frontier with its envelopes."""
    found = cm.frontier(problem, name, budgets, n=4 if budgets is None else None)
    shares = (0.1, 0.9, 0.98, 1.02, 1.5)
    return [found, [found.envelope(share * problem.budgets[name]) for share in shares]]


def shadow() -> list[Any]:
    """An occupancy, its states, the Lagrangian there and its gradient."""
    problem, x = several(), occupied(expert())
    functions = (problem.lagrangian, problem.shadow_reward)
    return [x, cm.state_distribution(problem.mdp, x), *(f(x, PRICE) for f in functions)]


def checked(make: Callable[[], cm.Problem], change: str = "") -> cm.Check:
    """A certificate, written and checked; against another problem, or after somebody changed it."""
    problem = make()
    cm.certify(problem, cm.solve(problem)).save("certificate.json")
    file = Path("certificate.json")
    if change == "budget":
        problem = problem.with_budget("limit", 0.9 * problem.budgets["limit"])
    elif change == "bound":
        file.write_text(file.read_text().replace('"upper": ', '"upper": 0.5, "was": ', 1))
    elif change == "evidence":
        file.write_text(file.read_text().replace('"float64": "', '"float64": "AAAA', 1))
    return cm.check(file, problem)


def study_cases() -> Iterator[Case]:
    """Sweeps, evaluations, demonstrations, files of policies."""
    steps = {"primal_step": [0.1, 0.3], "budget/limit": [0.05, 0.1]}
    swept = partial(cm.sweep, progress=False)
    budgets, kept = {"budget/cost": [4.2, 4.5]}, {"seeds": (0, 1), "folder": "runs", "lanes": 2}
    yield "sweep/1 lane", lambda: swept(exploring(), learner(), steps, range(2), lanes=1)
    yield "sweep/4 lanes", lambda: swept(exploring(), learner(), steps, range(2), lanes=4)
    yield "sweep/shapes", lambda: swept(exploring(), learner(), {"horizon": [10, 20]}, lanes=2)
    yield "sweep/folder, twice", lambda: [swept(exploring(), learner(), **kept) for _ in "12"]
    yield "sweep/pdpg", lambda: swept(several(), pdpg(), {"iterate": ["half", "last"]})
    yield "sweep/exact", lambda: swept(several(), cm.ConvexProgram(), budgets)
    yield "sweep/rows", lambda: swept(exploring(), learner(), steps, lanes=4).rows()
    yield "evaluate/several", lambda: evaluated(several())
    yield "evaluate/exploring", lambda: evaluated(exploring(), "grid")
    yield "evaluate/own function", lambda: evaluated(as_constraint("own convex function"))
    yield "evaluate/distance", lambda: evaluated(as_constraint("l2 to a policy"))
    yield "evaluate/fairness", lambda: evaluated(as_objective("log sum"))
    yield "evaluate/simulator", simulated
    episodes = [[(k % 12, (k + n) % 3) for k in range(n, n + 15)] for n in range(40)]
    yield "demonstrations/episodes", lambda: imitated(episodes, episode_limit=15)
    yield "demonstrations/policy", lambda: imitated(expert())
    for name, family in (("table", cm.Table()), ("network", cm.MLP(8)), ("mixture", None)):
        yield f"policy file/{name}", partial(kept_policy, family)


def evaluated(problem: cm.Problem, where: str = "garnet") -> cm.PolicyEvaluation:
    """What episodes say of the random policy."""
    return cm.evaluate(expert(where), problem.mdp, 400, seed=0, problem=problem)


def simulated() -> cm.PolicyEvaluation:
    """What a simulator says of the uniform policy, with promises."""
    reward, most = cm.linear("reward"), {"reward": (0.0, 1.0)}
    what = {"maximize": reward, "subject_to": {"often": reward >= 0.005}, "discount": 0.95}
    promises = {"bounds": most, "return_bounds": most, "episode_limit": 100}
    return cm.evaluate(np.full((16, 4), 0.25), "FrozenLake-v1", 100, seed=0, **what, **promises)


def imitated(source: Any, **how: Any) -> list[Any]:
    """Demonstrations, their radius, and the policy that is nearest to them."""
    found = cm.demonstrations(source, model("garnet"), **how)
    nearest = proven(cm.Problem(model("garnet"), minimize=cm.distance(found)))
    return [found, found.radius("l1"), found.radius("l2", confidence=0.9), nearest]


def kept_policy(family: Any) -> dict[str, Any]:
    """A policy before and after it was in a file, and how it acts."""
    solver = learner(iterate="uniform") if family is None else learner(policy=family)
    policy = cm.solve(exploring(), solver, seed=0).policy
    policy.save("policy.safetensors")
    again = cm.load_policy("policy.safetensors")
    acts = again.seed(3).predict(np.arange(16))[0]
    drawn = [policy.sample(state, np.random.default_rng(state)) for state in range(16)]
    return {"before": policy, "after": again, "acts": acts, "drawn": drawn}


def error_cases() -> Iterator[Case]:
    """What users do wrong."""
    own, target = partial(as_objective, "own concave function"), np.ones((16, 4))
    solve = cm.solve
    wrong: dict[str, Callable[[], Any]] = {
        "maximize convex": lambda: of("grid", cm.distance(target)),
        "minimize concave": lambda: cm.Problem(model("grid"), minimize=cm.entropy()),
        "concave at most": lambda: cm.entropy() <= 1.0,
        "convex at least": lambda: cm.quadratic(weights=np.ones(16)) >= 1.0,
        "unknown signal": lambda: of("grid", cm.linear("rewrad")),
        "unknown constraint": lambda: several().with_budget("csot", 1.0),
        "neither": lambda: cm.Problem(model("grid")),
        "constraint without budget": lambda: of("grid", hazard=cm.linear("hazard")),
        "array of another shape": lambda: of("grid", cm.linear(np.ones(3))),
        "indefinite matrix": lambda: cm.quadratic(np.diag([1.0, -1.0])),
        "unknown norm": lambda: cm.distance(target, norm="l3"),
        "product of utilities": lambda: cm.entropy() * cm.entropy(),
        "rows that do not sum to one": lambda: cm.TabularMDP(np.ones((2, 1, 2)), 0, 0.9),
        "discount of one": lambda: cm.gridworld(3, discount=1.0),
        "start in a wall": lambda: cm.gridworld(3, walls=[0]),
        "policy that is none": lambda: cm.TabularPolicy([[0.5, 0.6]]),
        "own function, conic": lambda: solve(own(), cm.ConvexProgram()),
        "learning without a seed": lambda: solve(exploring(), learner()),
        "solver class": lambda: solve(exploring(), cm.PDPG),
        "step without dual step": lambda: solve(several(), cm.PDPG(10, primal_step=0.1)),
        "unknown iterate": lambda: cm.PDPG(iterate="first"),
        "momentum of zero": lambda: learner(momentum=0.0),
        "natural and direct": lambda: solve(several(), pdpg(policy=cm.Direct())),
        "step too large": lambda: solve(several(), pdpg(primal_step=1e300, dual_step=1e300)),
        "slater without constraints": lambda: cm.slater(of("grid")),
        "frontier of nothing": lambda: cm.frontier(several(), "csot"),
        "unknown axis": lambda: cm.sweep(exploring(), learner(), {"primal_stp": [0.1]}),
        "file that is none": lambda: cm.load_policy("absent.safetensors"),
        "theory without constants": lambda: cm.PDPG.theory(exploring(), 100),
        "unknown name": lambda: cm.gridwold(3),
        "empty log": lambda: cm.from_transitions({"state": [0]}, discount=0.9),
        "evaluation without a seed": lambda: cm.evaluate(expert(), model("garnet"), 10),
    }
    for name, mistake in wrong.items():
        yield f"error/{name}", mistake


def all_cases() -> dict[str, Callable[[], Any]]:
    """Every case by its name."""
    makers = (atom_cases, model_cases, pdpg_cases, learning_cases, proof_cases, study_cases)
    return dict(case for maker in (*makers, error_cases) for case in maker())
