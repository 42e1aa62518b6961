"""Random models, policies, utilities and constraints for the tests.

Everything is drawn from a ``numpy.random.Generator``; a hypothesis test draws a seed from ``seeds`` and
makes one with ``generator(seed)``, so that a failing example is one number.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np

import cvxmdp as cm

seeds = st.integers(0, 2**32 - 1)
generator = np.random.default_rng

Maker = Callable[[cm.TabularMDP, np.random.Generator], cm.Utility]


def random_model(
    random: np.random.Generator,
    *,
    n_states: int | None = None,
    n_actions: int | None = None,
    discount: float | None = None,
    endings: bool | None = None,
    mask: bool | None = None,
    unreachable: bool | None = None,
) -> cm.TabularMDP:
    """A small random model with the positive signals "reward" and "cost".

    Args:
        random: the source of everything that is not given.
        n_states, n_actions, discount: drawn from 3 to 6, 2 to 3, and [0.5, 0.95].
        endings: some rows sum to less than one.
        mask: some actions are not available; every state keeps one.
        unreachable: no policy visits the last state.
    """
    states = int(random.integers(3, 7)) if n_states is None else n_states
    actions = int(random.integers(2, 4)) if n_actions is None else n_actions
    endings, mask, unreachable = (
        bool(random.random() < 0.5) if choice is None else choice
        for choice in (endings, mask, unreachable)
    )
    available = random.random((states, actions)) < (0.7 if mask else 1.0)
    available[np.arange(states), random.integers(actions, size=states)] = True
    weights = random.gamma(0.5, size=(states, actions, states)) + 1e-3
    initial = random.gamma(1.0, size=states) + 1e-3
    if unreachable:
        weights[:-1, :, -1] = 0.0
        initial[-1] = 0.0
    transition = weights / weights.sum(axis=2, keepdims=True)
    if endings:
        ends = np.where(
            random.random((states, actions)) < 0.5, 0.0, random.random((states, actions))
        )
        transition = transition * (1.0 - ends)[:, :, None]
    return cm.TabularMDP(
        transition,
        initial / initial.sum(),
        float(random.uniform(0.5, 0.95)) if discount is None else discount,
        signals={name: 0.1 + random.random((states, actions)) for name in ("reward", "cost")},
        actions=available,
    )


def random_policy(
    mdp: cm.TabularMDP, random: np.random.Generator, *, concentration: float | None = None
) -> cm.TabularPolicy:
    """Dirichlet rows over the available actions; small concentrations are nearly deterministic."""
    if concentration is None:
        concentration = 10.0 ** random.uniform(-1.0, 1.0)
    draws = random.gamma(concentration, size=mdp.actions.shape) + 1e-9
    draws = np.where(mdp.actions, draws, 0.0)
    return cm.TabularPolicy(draws / draws.sum(axis=1, keepdims=True))


def random_deterministic_policy(
    mdp: cm.TabularMDP, random: np.random.Generator
) -> cm.TabularPolicy:
    """One available action in each state: an extreme point of the occupancies, full of zeros."""
    scores = np.where(mdp.actions, random.random(mdp.actions.shape), -1.0)
    return cm.TabularPolicy(np.eye(mdp.n_actions)[scores.argmax(axis=1)])


def random_occupancy(mdp: cm.TabularMDP, random: np.random.Generator) -> np.ndarray:
    """The occupancy of a random policy, every third time of a deterministic one."""
    draw = random_deterministic_policy if random.random() < 1 / 3 else random_policy
    return cm.occupancy_of(mdp, draw(mdp, random))


# Compiled with little care, in a quarter of the time: for programs of the tests' own, run a few times each.
quickly = partial(
    jax.jit,
    compiler_options={"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False},
)


def grid_problem() -> cm.Problem:
    """Nine states to explore: what learners compile for it is compiled once for all tests that ask for it."""
    mdp = cm.gridworld(3, slip=0.1, discount=0.8, hazards=[4], goal=8)
    hazard = cm.linear("hazard", per="step") <= 0.05
    return cm.Problem(mdp, maximize=cm.entropy(), subject_to={"hazard": hazard})


@quickly
def under_jit(function, x):
    """Value, gradient, and the automatic derivative of the value: one program for all tests of a function."""
    value, slope = jax.value_and_grad(function.value)(x)
    return value, function.gradient(x), slope


def interior_point(mdp: cm.TabularMDP, random: np.random.Generator) -> np.ndarray:
    """A positive (S, A) array near the uniform policy's occupancy; not an occupancy itself."""
    uniform = cm.occupancy_of(mdp, cm.uniform_policy(mdp))
    return uniform * random.uniform(0.8, 1.2, uniform.shape) + 0.05 * random.random(uniform.shape)


def _uniform_occupancy(mdp: cm.TabularMDP) -> np.ndarray:
    return cm.occupancy_of(mdp, cm.uniform_policy(mdp))


def _random_array(mdp: cm.TabularMDP, random: np.random.Generator) -> np.ndarray:
    return random.normal(size=(mdp.n_states, mdp.n_actions))


def _factor(mdp: cm.TabularMDP, random: np.random.Generator, rows: int) -> np.ndarray:
    return random.normal(size=(rows, mdp.n_states, mdp.n_actions)) / 3.0


def _random_ball(mdp: cm.TabularMDP, random: np.random.Generator) -> object:
    return cm.ball(random_policy(mdp, random), float(random.uniform(0.05, 0.3)))


def _random_box(mdp: cm.TabularMDP, random: np.random.Generator) -> object:
    middle = _uniform_occupancy(mdp) * random.uniform(0.3, 1.5, (mdp.n_states, mdp.n_actions))
    upper = np.where(random.random(middle.shape) < 0.2, np.inf, 1.1 * middle)
    return cm.box(0.9 * middle, upper)


def _random_polytope(mdp: cm.TabularMDP, random: np.random.Generator) -> object:
    rows = random.normal(size=(4, mdp.n_states, mdp.n_actions))
    inside = _uniform_occupancy(mdp) + 0.3 * _random_array(mdp, random)
    return cm.polytope(rows, np.einsum("isa,sa->i", rows, inside) + 0.1)


def _safe_barrier(mdp: cm.TabularMDP, random: np.random.Generator) -> cm.Utility:
    largest = mdp.max_mass * mdp.signal("cost").max()
    return cm.log_barrier(cm.linear("cost") <= float(largest * random.uniform(1.5, 2.0)))


@cm.concave
def coverage(occupancy):
    return jnp.log(occupancy.sum(axis=1) + 0.1).mean()


@cm.convex
def smooth_maximum(occupancy):
    return jnp.log(jnp.exp(occupancy).sum())


AFFINE: dict[str, Maker] = {
    "linear signal": lambda mdp, random: cm.linear("reward"),
    "linear per step": lambda mdp, random: cm.linear("cost", per="step"),
    "linear array": lambda mdp, random: cm.linear(_random_array(mdp, random)),
    "linear per state": lambda mdp, random: cm.linear(random.normal(size=mdp.n_states)),
    "linear sum": lambda mdp, random: 2 * cm.linear("reward") - cm.linear("cost") / 3 + 0.7,
    "constant": lambda mdp, random: 0 * cm.entropy() + 1.5,
}
CONCAVE: dict[str, Maker] = {
    "entropy": lambda mdp, random: cm.entropy(),
    "entropy state-action": lambda mdp, random: cm.entropy(of="state-action"),
    "log_barrier": _safe_barrier,
    "log_barrier of distance": lambda mdp, random: cm.log_barrier(
        cm.distance(random_policy(mdp, random), norm="l2-squared") <= 20.0 * mdp.max_mass**2
    ),
    "log_sum": lambda mdp, random: cm.log_sum("reward", "cost", cm.linear("cost") + 1.0),
    "power": lambda mdp, random: cm.power("reward", 0.3) + cm.power(cm.linear("cost") + 1.0, 0.7),
    "sqrt of a sum": lambda mdp, random: cm.sqrt(cm.linear("reward") + cm.entropy()),
    "log": lambda mdp, random: cm.log(cm.linear("reward") + 0.5),
    "entropy of actions": lambda mdp, random: cm.entropy(of="actions"),
    "minimum": lambda mdp, random: cm.minimum(
        cm.linear(_random_array(mdp, random)), cm.entropy(), 0.3 * cm.linear("reward") - 1.0
    ),
    "quadratic concave matrix": lambda mdp, random: cm.quadratic(_concave_matrix(mdp, random)),
    "quadratic concave weights": lambda mdp, random: cm.quadratic(
        weights=-random.random((mdp.n_states, mdp.n_actions))
    ),
    "minus distance": lambda mdp, random: -cm.distance(random_policy(mdp, random), norm="l2"),
    "concave sum": lambda mdp, random: (
        cm.linear("reward")
        + 0.5 * cm.entropy()
        - 2 * cm.distance(_random_ball(mdp, random), norm="l2-squared")
        - 1.0
    ),
}
CONVEX: dict[str, Maker] = {
    "l1 to policy": lambda mdp, random: cm.distance(random_policy(mdp, random), norm="l1"),
    "l2 to policy": lambda mdp, random: cm.distance(random_policy(mdp, random), norm="l2"),
    "l2-squared to occupancy": lambda mdp, random: cm.distance(
        random_occupancy(mdp, random), norm="l2-squared"
    ),
    "l2 to any point": lambda mdp, random: cm.distance(_random_array(mdp, random)),
    "kl to policy": lambda mdp, random: cm.distance(
        random_policy(mdp, random, concentration=3.0), norm="kl"
    ),
    "kl with smoothing": lambda mdp, random: cm.distance(
        random_deterministic_policy(mdp, random), norm="kl", smoothing=0.1
    ),
    "l1 of actions": lambda mdp, random: cm.distance(
        random_policy(mdp, random), norm="l1", of="actions"
    ),
    "kl of actions": lambda mdp, random: cm.distance(
        random_policy(mdp, random, concentration=3.0), norm="kl", of="actions"
    ),
    "kl of actions with smoothing": lambda mdp, random: cm.distance(
        random_deterministic_policy(mdp, random), norm="kl", smoothing=0.1, of="actions"
    ),
    "l2 to ball": lambda mdp, random: cm.distance(_random_ball(mdp, random), norm="l2"),
    "l2-squared to ball": lambda mdp, random: cm.distance(
        _random_ball(mdp, random), norm="l2-squared"
    ),
    "l1 to box": lambda mdp, random: cm.distance(_random_box(mdp, random), norm="l1"),
    "l2 to box": lambda mdp, random: cm.distance(_random_box(mdp, random), norm="l2"),
    "l2-squared to box": lambda mdp, random: cm.distance(
        _random_box(mdp, random), norm="l2-squared"
    ),
    "l2 to polytope": lambda mdp, random: cm.distance(_random_polytope(mdp, random), norm="l2"),
    "l2-squared to polytope": lambda mdp, random: cm.distance(
        _random_polytope(mdp, random), norm="l2-squared"
    ),
    "l2 of returns to a vector": lambda mdp, random: cm.distance(
        cm.returns("reward", _random_array(mdp, random)), random.normal(size=2)
    ),
    "l1 of returns to a box": lambda mdp, random: cm.distance(
        cm.returns("reward", cm.linear("cost", per="step")),
        cm.box([1.0, 0.1], [2.0, np.inf]),
        norm="l1",
    ),
    "l2-squared of returns to a ball": lambda mdp, random: cm.distance(
        cm.returns("reward", "cost"),
        cm.ball(random_policy(mdp, random), float(random.uniform(0.05, 0.3))),
        norm="l2-squared",
    ),
    "l2 of returns to a polytope": lambda mdp, random: cm.distance(
        cm.returns("reward", "cost"), cm.polytope(random.normal(size=(3, 2)), random.random(3))
    ),
    "quadratic convex matrix": lambda mdp, random: cm.quadratic(-_concave_matrix(mdp, random)),
    "quadratic weights per state": lambda mdp, random: cm.quadratic(
        weights=random.random(mdp.n_states)
    ),
    "quadratic factor": lambda mdp, random: cm.quadratic(factor=_factor(mdp, random, 4)),
    "minus minimum": lambda mdp, random: -cm.minimum(cm.linear("reward"), cm.linear("cost")),
    "chi2 to policy": lambda mdp, random: cm.distance(
        random_policy(mdp, random, concentration=3.0), norm="chi2"
    ),
    "negative power": lambda mdp, random: cm.power(cm.linear("cost") + 1.0, -0.5),
    "power above one": lambda mdp, random: cm.power("cost", 1.5),
    "cube of a hinge": lambda mdp, random: cm.power(cm.maximum(cm.linear("reward") - 1.0, 0), 3),
    "square": lambda mdp, random: cm.square(cm.linear("reward") - 2.0),
    "square of a distance": lambda mdp, random: cm.square(
        cm.distance(random_policy(mdp, random)) + 0.1
    ),
    "exp": lambda mdp, random: cm.exp(0.3 * cm.linear("reward") - 1.0),
    "exp of a maximum": lambda mdp, random: cm.exp(cm.maximum("cost", 0.2, -cm.log("reward"))),
    "maximum": lambda mdp, random: cm.maximum("reward", cm.linear("cost") + 1.0, 0.5),
    "spread": lambda mdp, random: cm.spread("reward", "cost", _random_array(mdp, random)),
    "norm": lambda mdp, random: cm.norm(cm.returns("reward", "cost"), "l1"),
    "norm of one": lambda mdp, random: cm.norm(cm.linear("reward") - 2.0),
    "huber": lambda mdp, random: cm.huber(cm.linear("reward") - 2.0, 0.5),
    "convex sum": lambda mdp, random: (
        3 * cm.distance(random_policy(mdp, random), norm="l1") - cm.entropy() + cm.linear("cost")
    ),
}
# Without a CVXPY form: ConvexProgram cannot take these.
CUSTOM_CONCAVE: dict[str, Maker] = {
    "custom concave": lambda mdp, random: coverage,
    "custom in a minimum": lambda mdp, random: cm.minimum(coverage, cm.linear("reward") - 2.0),
}
CUSTOM_CONVEX: dict[str, Maker] = {
    "custom convex": lambda mdp, random: smooth_maximum,
    "custom convex sum": lambda mdp, random: smooth_maximum - coverage + cm.linear("cost"),
}
EVERY_UTILITY: dict[str, Maker] = {**AFFINE, **CONCAVE, **CONVEX, **CUSTOM_CONCAVE, **CUSTOM_CONVEX}


def _concave_matrix(mdp: cm.TabularMDP, random: np.random.Generator) -> np.ndarray:
    size = mdp.n_states * mdp.n_actions
    root = random.normal(size=(size, size)) / size
    return -(root @ root.T) - 0.1 * np.eye(size)


def random_concave_utility(
    mdp: cm.TabularMDP, random: np.random.Generator, *, custom: bool = False
) -> cm.Utility:
    """A concave (or affine) utility of a random kind, sometimes with a linear term.

    Args:
        mdp: the model it will be bound to.
        random: the source.
        custom: also utilities without a CVXPY form.
    """
    makers = {**AFFINE, **CONCAVE, **(CUSTOM_CONCAVE if custom else {})}
    return _pick(makers, mdp, random)


def random_convex_utility(
    mdp: cm.TabularMDP, random: np.random.Generator, *, custom: bool = False
) -> cm.Utility:
    """A convex (or affine) utility of a random kind, sometimes with a linear term."""
    makers = {**AFFINE, **CONVEX, **(CUSTOM_CONVEX if custom else {})}
    return _pick(makers, mdp, random)


# Tests say of their seeds what was drawn: atoms that came later are in the tables above and have tests of their
# own, and the random problems stay what they were.
LATER = {
    "log",
    "entropy of actions",
    "chi2 to policy",
    "negative power",
    "power above one",
    "cube of a hinge",
    "square",
    "square of a distance",
    "exp",
    "exp of a maximum",
    "maximum",
    "spread",
    "norm",
    "norm of one",
    "huber",
    "power",
    "sqrt of a sum",
    "l1 of actions",
    "kl of actions",
    "kl of actions with smoothing",
    "l2 of returns to a vector",
    "l1 of returns to a box",
    "l2-squared of returns to a ball",
    "l2 of returns to a polytope",
}


def _pick(makers: dict[str, Maker], mdp: cm.TabularMDP, random: np.random.Generator) -> cm.Utility:
    drawn = [name for name in makers if name not in LATER]
    name = drawn[random.integers(len(drawn))]
    utility = float(random.uniform(0.5, 2.0)) * makers[name](mdp, random)
    return utility + cm.linear("reward") if random.random() < 0.3 else utility


def random_constraint(
    mdp: cm.TabularMDP,
    random: np.random.Generator,
    feasible_policy: cm.TabularPolicy,
    *,
    custom: bool = False,
) -> cm.Constraint:
    """A constraint of a random kind and direction that the policy meets with room to spare."""
    x = cm.occupancy_of(mdp, feasible_policy)
    margin = float(random.uniform(0.05, 0.5))
    if random.random() < 0.5:
        utility = random_convex_utility(mdp, random, custom=custom)
        return utility <= float(utility.lower(mdp).value(x)) + margin
    utility = random_concave_utility(mdp, random, custom=custom)
    return utility >= float(utility.lower(mdp).value(x)) - margin


def random_problem(
    mdp: cm.TabularMDP,
    random: np.random.Generator,
    feasible_policy: cm.TabularPolicy,
    *,
    constraints: int = 2,
    custom: bool = False,
) -> cm.Problem:
    """A problem of either sense whose constraints the policy meets with room to spare."""
    subject_to = {
        f"limit {index}": random_constraint(mdp, random, feasible_policy, custom=custom)
        for index in range(constraints)
    }
    if random.random() < 0.5:
        utility = random_concave_utility(mdp, random, custom=custom)
        return cm.Problem(mdp, maximize=utility, subject_to=subject_to)
    utility = random_convex_utility(mdp, random, custom=custom)
    return cm.Problem(mdp, minimize=utility, subject_to=subject_to)


def exact_occupancy(mdp: cm.TabularMDP, probabilities: np.ndarray) -> list[list[Fraction]]:
    """The occupancy of a policy in rational arithmetic: Gaussian elimination, no rounding at all.

    Rows of the policy are normalised exactly; masked actions count as zero.
    """
    states, actions = mdp.actions.shape
    table = mdp.dense_transition()
    policy = [
        [Fraction(float(p)) if ok else Fraction(0) for p, ok in zip(row, mask, strict=True)]
        for row, mask in zip(probabilities, mdp.actions, strict=True)
    ]
    policy = [[p / sum(row) for p in row] for row in policy]
    discount = Fraction(mdp.discount)
    rows = []
    for to in range(states):
        row = [
            -discount * sum(policy[s][a] * Fraction(float(table[s, a, to])) for a in range(actions))
            for s in range(states)
        ]
        row[to] += 1
        rows.append([*row, Fraction(float(mdp.initial[to]))])
    for pivot in range(states):  # diagonally dominant by columns: no pivot is ever zero
        for other in range(states):
            if other != pivot and rows[other][pivot]:
                factor = rows[other][pivot] / rows[pivot][pivot]
                rows[other] = [
                    x - factor * y for x, y in zip(rows[other], rows[pivot], strict=True)
                ]
    visits = [rows[s][-1] / rows[s][s] for s in range(states)]
    return [[visits[s] * p for p in policy[s]] for s in range(states)]


def exact_inner(reward: np.ndarray, x: list[list[Fraction]]) -> Fraction:
    """<reward, x> without rounding."""
    return sum(
        (
            Fraction(float(r)) * y
            for rewards, row in zip(reward, x, strict=True)
            for r, y in zip(rewards, row, strict=True)
        ),
        Fraction(0),
    )


def endings_promised(mdp: cm.TabularMDP) -> tuple[str, ...]:
    """What every certificate about this model rests on: that rows which sum to less than one end episodes."""
    return (mdp.endings,) if (mdp.ending > 0).any() else ()


def small_problem() -> cm.Problem:
    """A 3x3 grid with a goal and a hazard, a linear and a concave constraint."""
    mdp = cm.gridworld(
        3, slip=0.1, discount=0.9, goal=8, goal_reward=10.0, step_reward=-0.1, hazards=[4]
    )
    limits = {"hazard": cm.linear("hazard") <= 0.1, "spread": cm.entropy() >= 0.1}
    return cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=limits)


def walled_problem() -> cm.Problem:
    """A 3x3 grid with a wall and a hazard, a budget and an expert to stay near."""
    mdp = cm.gridworld(3, slip=0.1, discount=0.8, hazards=[4], walls=[1], rewards={8: 1.0})
    expert = cm.TabularPolicy(np.tile([0.1, 0.4, 0.4, 0.1], (9, 1)))
    return cm.Problem(
        mdp,
        maximize=cm.linear("reward"),
        subject_to={
            "hazard": cm.linear("hazard", per="step") <= 0.05,
            "near expert": cm.distance(expert, norm="l2") <= 1.0,
        },
    )


def on_two_devices(function: str) -> list[str]:
    """The words that a function of a test module gives in a process with two devices, compiled as here."""
    module, two = function.split(".")[0], "--xla_force_host_platform_device_count=2"
    code = f"import sys; sys.path.insert(0, 'tests'); import {module}; print(*{function}())"
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {two}"},
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
