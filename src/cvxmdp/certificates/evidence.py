r"""Finding tangents, multipliers and values that make a bound tight. Nothing here is trusted.

Four ways, from cheap to thorough, each as good a proof as any other:

1. linearise at an occupancy at hand, with multipliers at hand: one MDP solve;
2. a conic program whose dual variables are the tangents (``algorithms.conic``), for small models;
3. column generation, for models that are too large for it;
4. natural policy gradient on the Lagrangian with averaged tangents, for functions of which only the
   gradient is known, and where all else failed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import softmax

from cvxmdp.algorithms.columns.generation import Generation
from cvxmdp.algorithms.conic import has_conic_form, solve_conic
from cvxmdp.atoms.shapes import SumShape
from cvxmdp.base.errors import MissingExtraError
from cvxmdp.base.progress import Progress
from cvxmdp.certificates.claims import Claims, Proof, best
from cvxmdp.problems.lowered import Evidence

PROGRAM_LIMIT = 20_000  # pairs up to which a conic program is tried
PROGRAM_TOLERANCE = 1e-10  # asked of it
COLUMNS_TOLERANCE, COLUMNS_KEPT, COLUMNS_STEPS = 1e-4, 40, 300  # of a search by column generation
PATIENCE = 2.0  # seconds of searching before a progress line is shown
WORK = 1e7  # entries of the transition to pass through in a search by gradient
MIXED_IN = 1e-9  # share of the uniform policy that keeps logarithms finite when linearising


def linearise(claims: Claims, x: np.ndarray, multipliers: Mapping[str, float]) -> Proof | None:
    """The proof with all tangents at x (a little of the uniform policy mixed in)."""
    model = claims.flow
    z = (1 - MIXED_IN) * x + MIXED_IN * model.occupancy(model.uniform)
    return claims.prove(Evidence(dict(multipliers), claims.lowered.tangents_at(z)))


def is_large(claims: Claims) -> bool:
    """Whether a model is too large for a conic program."""
    return int(claims.flow.actions.sum()) > PROGRAM_LIMIT


def by_program(claims: Claims) -> Proof | None:
    """The proof that a conic program finds, for models that are not too large for it."""
    if is_large(claims) or not has_conic_form(claims.lowered):
        return None
    try:
        found = solve_conic(claims.lowered, PROGRAM_TOLERANCE).evidence
    except MissingExtraError:
        return None
    return None if found is None else claims.prove(found)


def by_program_for(claims: Claims, multipliers: Mapping[str, float]) -> Proof | None:
    """The same with multipliers that are given: the Lagrangian is the objective of the program."""
    weights = (1.0, *(float(multipliers[name]) for name in claims.slacks))
    whole = SumShape(tuple(claims.lowered.functions), weights, 0.0)
    found = by_program(claims.with_objective(whole))
    if found is None:
        return None
    first, *rest = found.evidence.tangents["objective"]["parts"]
    tangents = {"objective": first, "slacks": dict(zip(claims.slacks, rest, strict=True))}
    return claims.prove(Evidence(dict(multipliers), tangents))


def steps(what: str, count: int, note: Callable[[], str] = lambda: "") -> Iterator[int]:
    """``range(count)`` with a progress line on a terminal, once the search has taken long.

    Args:
        what: the search does.
        count: of steps, at most; the search may end before.
        note: how far it is, asked after every step.
    """
    line = Progress(what, count, after=PATIENCE)
    try:
        for step in range(count):
            yield step
            line.update(step + 1, note())
    finally:
        line.close()


def by_columns(claims: Claims) -> Proof | None:
    """The proof that column generation finds: for models too large for a conic program."""
    generation = Generation(claims.lowered, COLUMNS_TOLERANCE, COLUMNS_KEPT)
    for _ in steps("looking for a proof", COLUMNS_STEPS, lambda: f"gap {generation.gap:.2g}"):
        generation.step()
        if generation.gap <= COLUMNS_TOLERANCE or generation.infeasible or generation.stuck:
            break
    found, x = generation.evidence(), generation.occupancy()
    if found is None or x is None:
        return None
    return claims.prove(replace(found, policy=claims.flow.policy(x)))


def room_by_columns(claims: Claims) -> Proof | None:
    """The same for the smallest slack of claims with affine slacks: a linear program in weights."""
    if any(g.affine() is None for g in claims.slacks.values()):
        return None
    some = next(iter(claims.slacks.values()))  # any affine function will do
    without = claims.lowered.with_objective(some, claims.slacks)
    generation = Generation(without, COLUMNS_TOLERANCE, COLUMNS_KEPT)
    generation.master.units = np.ones(len(claims.slacks))
    named = "looking for room in the constraints"
    for _ in steps(named, COLUMNS_STEPS, lambda: f"smallest slack {generation.room:.2g}"):
        generation.room_step()
        left = generation.room_upper - generation.room
        if left <= COLUMNS_TOLERANCE * max(abs(generation.room_upper), abs(generation.room)):
            break
    found = generation.room_evidence()
    if found is None:
        return None
    policy = claims.flow.policy(generation.safest())
    return claims.smallest_slack().prove(replace(found, policy=policy))


def by_gradient(
    claims: Claims,
    start: np.ndarray | None = None,
    multipliers: Mapping[str, float] | None = None,
    iterations: int | None = None,
    dual_bound: float = 100.0,
) -> Proof | None:
    """Natural policy gradient on the Lagrangian; tangents are averaged over the last half.

    Each step multiplies pi(a|s) by exp(step * advantage) of the shadow reward and lowers the
    multipliers along the slack; both steps are relative to the largest value seen, so no units have to
    be known. By the convexity of conjugates the averaged tangent is at least as good as the average
    of the tangents. Without ``iterations``, as many as fit into some minutes at the model's size.
    """
    lowered, model = claims.lowered, claims.flow
    if iterations is None:
        iterations = int(np.clip(WORK / max(model.transition.nnz, 1), 20, 1_000))
    mixed = 0.99 * (model.uniform if start is None else start) + 0.01 * model.uniform
    logits = np.log(np.where(model.actions, mixed, 1.0))
    names = list(claims.slacks)
    mu = np.array([float((multipliers or {}).get(name, 0.0)) for name in names])
    steepest, values = np.full(len(names), 1e-300), None
    trail: list[tuple[dict[str, Any], np.ndarray]] = []
    visited = np.zeros(model.shape)
    for step in steps("looking for a proof by gradient", iterations):
        policy = softmax(np.where(model.actions, logits, -np.inf), axis=1)
        x = model.occupancy(policy)
        tangents = lowered.tangents_at(x)
        reward, _ = lowered.lagrangian_tangent(dict(zip(names, mu, strict=True)), tangents)
        if not np.isfinite(reward).all():
            return None
        values = model.values(policy, reward, guess=values)
        choices = reward + model.following(values)
        advantage = np.where(model.actions, choices - values[:, None], 0.0)
        if step >= iterations // 2:
            trail.append((tangents, mu))
            visited += x
        size = float(np.abs(advantage[model.reached]).max())
        rate = 1.0 / math.sqrt(step + 1.0)
        if size > 0:
            logits = logits + 2.0 * rate * advantage / size
        slack = np.array([node.value(x) for node in claims.slacks.values()])
        steepest = np.maximum(steepest, np.abs(slack))
        mu = np.clip(mu - 0.1 * dual_bound * rate * slack / steepest, 0.0, dual_bound)
    return _average(claims, trail, names, model.policy(visited))


def _average(
    claims: Claims,
    trail: list[tuple[dict[str, Any], np.ndarray]],
    names: list[str],
    policy: np.ndarray,
) -> Proof | None:
    weights = np.array([mu for _, mu in trail]).reshape(len(trail), len(names))
    even = np.ones(len(trail))
    tangents = {
        "objective": claims.lowered.objective.mean([one["objective"] for one, _ in trail], even),
        "slacks": {
            name: node.mean([one["slacks"][name] for one, _ in trail], weights[:, k])
            for k, (name, node) in enumerate(claims.slacks.items())
        },
    }
    mu = dict(zip(names, weights.mean(axis=0), strict=True))
    at_mean = claims.lowered.tangents_at(claims.flow.occupancy(policy))
    found = [Evidence(mu, one, policy=policy) for one in (tangents, at_mean)]
    return best([claims.prove(one) for one in found])
