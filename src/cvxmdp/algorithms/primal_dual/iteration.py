r"""One iteration of PDPG, as pure functions: gradients by shadow reward, and two ways to step.

At parameters theta with occupancy x and multipliers mu, let r = grad f(x) + sum mu_i grad g_i(x) be the
shadow reward, held fixed. The paper's eq. (grad_policy_grad_view) is

    grad_theta L = sum_{s,a} x(s,a) grad log pi(a|s) A(r; s, a),

A the advantage of r: one solve for x, one transposed solve for the values of r, one pull-back through the
policy. ``direction="natural"`` multiplies it with the inverse of the Fisher matrix
F = sum x(s,a) grad log pi grad log pi' (weighted by the unnormalised occupancy); for a softmax table that is
exactly the advantage A, for other families F w = grad is solved by conjugate gradients.

**The paper's step** (``paper_step``, eq. (algorithm_upate)): ascent in theta and projected descent in mu,
both from the same iterate, with step sizes that are given.

**The step without tuning** (``tuned_step``), for which nothing has to be given. Four well-known remedies,
each a departure from the paper:

- *proportional dual term*: the gradient uses mu_hat = clip(mu - rho g(x)) instead of mu, which is the gradient
  of the augmented Lagrangian L_rho(x, mu) = f - sum (mu_hat^2 - mu^2) / (2 rho) and damps the oscillation of
  primal-dual iterates; mu itself follows mu_hat slowly (the integral term);
- *line search*: a primal step is accepted if L_rho rises by a share of what its gradient promises, else the
  step size is halved; so no step size has to be known, and an iterate never leaves the domain of a log barrier;
- *momentum* (Nesterov), restarted whenever it would lower L_rho;
- *kinks made round* (``Shape.softened``): of ``minimum`` and of l1 and l2 distances, where a line search
  would stop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.sparse.linalg import cg

from cvxmdp.atoms.shapes import Shape
from cvxmdp.base.pytrees import Pytree, chosen, inner, moved, norm, transformed
from cvxmdp.policies.families import LOGIT_RANGE, BoundDirect, BoundFamily

Array = Any
Params = Any

ACCEPTED_SHARE = 0.3  # of the promised rise that a step must achieve
FASTER, SLOWER = 1.1, 0.5
DAMPING = 1e-6  # of the Fisher matrix, relative to its size
INTEGRAL_RATE = 0.1  # how fast mu follows mu_hat
# The largest change of a logit per step (a trust region of ratios up to 150 between probabilities), and the
# largest distance below the best one. The plain gradient has the probability as a factor: where that is far
# below 1e-6, it never comes back.
LOGITS = {"natural": (5.0, LOGIT_RANGE), "vanilla": (2.0, 14.0)}


@dataclass(frozen=True, eq=False)
class Compiled(Pytree):
    """A problem as compiled code takes it: every budget and target is a number, not structure."""

    dynamics: Any
    objective: Shape
    slacks: tuple[Shape, ...]
    family: BoundFamily
    dual_bound: Array  # (n,)
    pessimism: Array  # (n,): g_i - pessimism_i >= 0 is what is asked
    static: ClassVar[tuple[str, ...]] = ()


class Point(NamedTuple):
    """What is known at parameters theta, of a problem."""

    occupancy: Array  # (S, A)
    objective: Array  # f(x)
    slack: Array  # g(x) - pessimism, (n,)


class Chain(NamedTuple):
    """What is known at parameters theta, of the model: for gradients there, and not kept."""

    policy: Array  # (S, A)
    prepared: Any  # its linear systems


def evaluate(compiled: Compiled, params: Params) -> tuple[Point, Chain]:
    """Occupancy, objective and slack at theta, and the policy's linear systems."""
    policy = jnp.exp(compiled.family.log_table(params))
    prepared = compiled.dynamics.prepare(policy)
    visits = jnp.maximum(compiled.dynamics.visits(policy, prepared), 0.0)
    return seen_by(compiled, visits[:, None] * policy), Chain(policy, prepared)


def seen_by(compiled: Compiled, x: Array) -> Point:
    """What this problem says of an occupancy."""
    slack = [g.value(x) for g in compiled.slacks]
    stacked = jnp.stack(slack) if slack else jnp.zeros(0)
    return Point(x, compiled.objective.value(x), stacked - compiled.pessimism)


def shadow_reward(compiled: Compiled, x: Array, multipliers: Array) -> Array:
    """The gradient of the Lagrangian in the occupancy, (S, A)."""
    reward = compiled.objective.gradient(x)
    for multiplier, slack in zip(multipliers, compiled.slacks, strict=True):
        reward = reward + multiplier * slack.gradient(x)
    return reward


def action_values(
    compiled: Compiled, point: Point, chain: Chain, multipliers: Array
) -> tuple[Array, Array]:
    """Q and V of the shadow reward."""
    reward = shadow_reward(compiled, point.occupancy, multipliers)
    values = compiled.dynamics.values(chain.policy, chain.prepared, reward)
    return reward + compiled.dynamics.following(values), values


def gradient_and_direction(
    compiled: Compiled,
    params: Params,
    point: Point,
    chain: Chain,
    multipliers: Array,
    direction: str,
) -> tuple[Params, Params]:
    """grad_theta L and the direction to step in (itself, or the natural one)."""
    q, values = action_values(compiled, point, chain, multipliers)
    advantage = jnp.where(compiled.family.actions, q - values[:, None], 0.0)
    if isinstance(compiled.family, BoundDirect):
        # Lemma on the policy gradient under the direct parameterisation: visits times Q.
        visits = point.occupancy.sum(axis=1, keepdims=True)
        gradient = jnp.where(compiled.family.actions, visits * q, 0.0)
        return gradient, gradient
    weighted = point.occupancy * advantage
    if compiled.family.is_table:
        # sum_a x A = 0 in every state, so the pull-back through log-softmax is x A itself.
        return weighted, advantage if direction == "natural" else weighted

    def scores(theta: Params) -> Array:
        return jnp.where(compiled.family.actions, compiled.family.log_table(theta), 0.0)

    _, pull_back = jax.vjp(scores, params)
    (gradient,) = pull_back(weighted)
    if direction == "vanilla":
        return gradient, gradient

    natural = natural_direction(
        scores, params, point.occupancy, gradient, DAMPING, steps=100, tolerance=1e-10
    )
    return gradient, natural


def natural_direction(
    scores: Callable[[Params], Array],
    params: Params,
    weights: Array,
    gradient: Params,
    damping: float,
    steps: int,
    tolerance: float = 1e-5,
) -> Params:
    """(F + eps I)^{-1} d by conjugate gradients, F = sum weights grad score grad score'.

    A little of the identity, because over-parameterised families have a singular Fisher matrix. Relative to
    its size along d, because both it and d vanish towards a corner, and their quotient does not.
    """
    _, pull_back = jax.vjp(scores, params)

    def fisher(vector: Params) -> Params:
        _, pushed = jax.jvp(scores, (params,), (vector,))
        return pull_back(weights * pushed)[0]

    size = norm(gradient)
    unit = jax.tree.map(lambda leaf: leaf / jnp.where(size > 0, size, 1.0), gradient)
    eps = damping * jnp.maximum(inner(unit, fisher(unit)), 1e-30)
    found, _ = cg(  # type: ignore[no-untyped-call]
        lambda vector: moved(fisher(vector), eps, vector), unit, tol=tolerance, maxiter=steps
    )
    return jax.tree.map(lambda leaf: size * leaf, found)


class Trace(NamedTuple):
    """What an iteration leaves in the history."""

    objective: Array
    slack: Array
    multipliers: Array
    gradient_norm: Array
    primal_step: Array


class PaperState(NamedTuple):
    """State of the paper's iteration."""

    params: Params
    multipliers: Array
    optimiser: Any


def paper_step(
    compiled: Compiled, state: PaperState, steps: Any, rule: str, transform: Any, direction: str
) -> tuple[PaperState, Point, Trace]:
    """eq. (algorithm_upate): both updates from the same iterate.

    Args:
        compiled: the problem.
        state: where we are.
        steps: (primal step, dual steps (n,)).
        rule: "constant", "normalised" (step / |gradient|) or "transform" (an Optax transformation).
        transform: the Optax transformation, or None.
        direction: "vanilla" or "natural".
    """
    primal, dual = steps
    point, chain = evaluate(compiled, state.params)
    gradient, towards = gradient_and_direction(
        compiled, state.params, point, chain, state.multipliers, direction
    )
    size = norm(towards)
    optimiser = state.optimiser
    if rule == "transform":
        params, optimiser = transformed(transform, state, towards)
        step = jnp.asarray(jnp.nan)
    else:
        # a zero gradient means no step
        step = primal / jnp.where(size > 0, size, 1.0) if rule == "normalised" else primal
        params = moved(state.params, step, towards)
    multipliers = jnp.clip(state.multipliers - dual * point.slack, 0.0, compiled.dual_bound)
    record = Trace(point.objective, point.slack, state.multipliers, norm(gradient), step)
    return PaperState(compiled.family.retract(params), multipliers, optimiser), point, record


class TunedState(NamedTuple):
    """State of the iteration without tuning."""

    params: Params
    previous: Params  # the iterate before, for momentum
    point: Point  # at params
    momentum: Array  # steps since the last restart
    step: Array
    multipliers: Array
    gradient_norm: Array
    rounded: Any  # (objective, slacks) with kinks made round, None where there are none


def tuned_start(
    compiled: Compiled, params: Params, multipliers: Array, rounded: Any = None
) -> TunedState:
    """The first state."""
    one = jnp.ones(())
    point, _ = evaluate(with_functions(compiled, rounded), params)
    return TunedState(params, params, point, 0 * one, one, multipliers, one, rounded)


def with_functions(compiled: Compiled, functions: Any) -> Compiled:
    """The problem with other functions (objective, slacks), if there are any."""
    if functions is None:
        return compiled
    return replace(compiled, objective=functions[0], slacks=functions[1])


def augmented(compiled: Compiled, penalty: Array, point: Point, multipliers: Array) -> Array:
    """L_rho(x, mu) = f(x) - sum (mu_hat^2 - mu^2) / (2 rho)."""
    hat = damped(compiled, penalty, point, multipliers)
    rho = jnp.where(penalty > 0, penalty, 1.0)  # zero where the box is: no multiplier there
    return point.objective - ((hat**2 - multipliers**2) / (2.0 * rho)).sum()


def damped(compiled: Compiled, penalty: Array, point: Point, multipliers: Array) -> Array:
    """mu_hat = clip(mu - rho g(x), 0, dual bound)."""
    return jnp.clip(multipliers - penalty * point.slack, 0.0, compiled.dual_bound)


def tuned_step(
    compiled: Compiled, state: TunedState, penalty: Array, direction: str
) -> tuple[TunedState, Point, Trace]:
    """One trial of the method without tuning: accepted, or answered with a smaller step."""
    true, compiled = compiled, with_functions(compiled, state.rounded)
    share = state.momentum / (state.momentum + 3.0)
    ahead = jax.tree.map(lambda a, b: a + share * (a - b), state.params, state.previous)
    largest_change, logit_range = LOGITS[direction]
    ahead = compiled.family.away_from_corners(ahead, logit_range)
    at, chain = evaluate(compiled, ahead)
    hat = damped(compiled, penalty, at, state.multipliers)
    gradient, towards = gradient_and_direction(compiled, ahead, at, chain, hat, direction)
    largest = compiled.family.logit_change(ahead, towards)
    # Momentum may have led outside the domain of a logarithm: then there is no gradient, and the trial
    # is refused below.
    known = jnp.isfinite(largest)
    limit = largest_change / jnp.maximum(jnp.where(known, largest, 1.0), 1e-300)
    step = jnp.minimum(state.step, limit)
    trial = compiled.family.away_from_corners(moved(ahead, step, towards), logit_range)
    there, _ = evaluate(compiled, trial)

    def value(point: Point) -> Array:
        return augmented(compiled, penalty, point, state.multipliers)

    promised = inner(gradient, jax.tree.map(jnp.subtract, trial, ahead))
    rounding = 1e-14 * jnp.abs(value(state.point))
    rises = value(there) >= value(at) + ACCEPTED_SHARE * promised - rounding
    rises &= jnp.isfinite(value(there)) & jnp.isfinite(promised)
    if state.rounded is not None:  # a rounded function is larger, and so is a logarithm's domain
        rises &= jnp.isfinite(true.objective.value(there.occupancy))
    accepted = rises & (value(there) >= value(state.point) - rounding)
    # Decided once: else a compiler puts all of the above into each of the choices below.
    rises, accepted = jax.lax.optimization_barrier(  # type: ignore[no-untyped-call]
        (rises, accepted)
    )
    followed = damped(compiled, penalty, there, state.multipliers)
    multipliers = state.multipliers + INTEGRAL_RATE * (followed - state.multipliers)
    rounded, reached, here = state.rounded, there, state.point
    if rounded is not None:
        x = there.occupancy
        rounded = (rounded[0].followed(x), tuple(slack.followed(x) for slack in rounded[1]))
        reached = seen_by(with_functions(compiled, rounded), x)
        here = seen_by(true, here.occupancy)
    following = TunedState(
        chosen(accepted, trial, state.params),
        state.params,
        chosen(accepted, reached, state.point),
        jnp.where(accepted, state.momentum + 1.0, 0.0),
        jnp.where(rises, FASTER * step, SLOWER * step),
        jnp.where(accepted, multipliers, state.multipliers),
        # Without momentum this was the iterate itself, inside the domain: then the gradient is the error.
        jnp.where(known | (state.momentum == 0), norm(gradient), state.gradient_norm),
        chosen(accepted, rounded, state.rounded),
    )
    record = Trace(here.objective, here.slack, state.multipliers, following.gradient_norm, step)
    return following, here, record
