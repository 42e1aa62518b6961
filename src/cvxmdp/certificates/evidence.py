r"""Finding tangents, multipliers and values that make a bound tight. Nothing here is trusted.

Four ways, from cheap to thorough, each as good a proof as any other:

1. linearise at an occupancy at hand, with multipliers at hand: one MDP solve;
2. a conic program whose dual variables are the tangents (``algorithms.conic``), for models that are not large;
   a linear one, where it is that and the model is small, without a conic solver;
3. column generation, for models that are too large for it;
4. natural policy gradient on the Lagrangian with averaged tangents, for functions of which only the
   gradient is known, and where all else failed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from cvxmdp.algorithms.columns.generation import Generation
from cvxmdp.algorithms.conic import has_conic_form, solve_conic
from cvxmdp.algorithms.lagrangian_ascent import LagrangianAscent
from cvxmdp.algorithms.linear_program import small, solve_linear
from cvxmdp.atoms.shapes import SumShape
from cvxmdp.base.errors import MissingExtraError, SolverError
from cvxmdp.base.progress import Progress
from cvxmdp.certificates.claims import Claims, Proof, best
from cvxmdp.problems.lowered import Evidence

PROGRAM_LIMIT = 20_000  # pairs up to which a conic program is tried
PROGRAM_TOLERANCE = 1e-10  # asked of it
COLUMNS_TOLERANCE, COLUMNS_KEPT, COLUMNS_STEPS = 1e-4, 40, 300  # of a search by column generation
ROUNDING = 1e-13  # of the size of a slack: budgets that leave no room are not known better
IDLE = 10  # steps in a row that change nothing, after which nothing more will
# Without a mixture that satisfies the constraints, or (a model of n pairs needs no more than n columns for one)
HOPELESS_STEPS = 100
MORE_STEPS = 10
CREEPING = 0.9  # with more than this left of the distance between the bounds after some more
LONGEST_SEARCH = 120.0  # seconds: what was found until then is the proof
PATIENCE = 2.0  # seconds of searching before a progress line is shown
WORK = 1e7  # entries of the transition to pass through in a search by gradient
MIXED_IN = 1e-9  # share of the uniform policy that keeps logarithms finite when linearising


def linearise(claims: Claims, x: np.ndarray, multipliers: Mapping[str, float]) -> Proof | None:
    """The proof with all tangents at x (a little of the uniform policy mixed in)."""
    model = claims.flow
    z = (1 - MIXED_IN) * x + MIXED_IN * model.uniform_occupancy
    return claims.prove(Evidence(dict(multipliers), claims.lowered.tangents_at(z)))


def is_large(claims: Claims) -> bool:
    """Whether a model is too large for a conic program."""
    return int(claims.flow.actions.sum()) > PROGRAM_LIMIT


def by_program(claims: Claims, scaled: bool = True) -> Proof | None:
    """The proof that a linear or conic program finds, for models that are not too large for it."""
    if is_large(claims) or not has_conic_form(claims.lowered):
        return None
    if claims.lowered.linear and small(claims.flow):
        found = solve_linear(claims.lowered, PROGRAM_TOLERANCE, seconds=LONGEST_SEARCH).evidence
        proof = None if found is None else claims.prove(found)
        if proof is not None:
            return proof
    try:
        found = solve_conic(
            claims.lowered, PROGRAM_TOLERANCE, scaled=scaled, seconds=LONGEST_SEARCH
        ).evidence
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


def steps(
    what: str,
    count: int,
    note: Callable[[], str] = lambda: "",
    seconds: float = LONGEST_SEARCH,
) -> Iterator[int]:
    """``range(count)`` with a progress line on a terminal, once the search has taken long.

    Args:
        what: the search does.
        count: of steps, at most; the search may end before.
        note: how far it is, asked after every step.
        seconds: after which it ends, but not before its first step.
    """
    line, started = Progress(what, count, after=PATIENCE), time.perf_counter()
    try:
        for step in range(count):
            if step and time.perf_counter() - started > seconds:
                break
            yield step
            line.update(step + 1, note())
    finally:
        line.close()


def by_columns(
    claims: Claims, tolerance: float = COLUMNS_TOLERANCE, seconds: float = LONGEST_SEARCH
) -> Proof | None:
    """The proof that column generation finds in so many seconds: for models too large for a conic program."""
    if claims.flow.strict:
        return None
    generation = Generation(claims.lowered, tolerance, COLUMNS_KEPT)
    if generation.outside:  # no policy was found at which the objective is finite
        return None
    try:
        return _generated(claims, generation, tolerance, seconds)
    except SolverError:  # slopes beyond all numbers
        return None


def _generated(
    claims: Claims, generation: Generation, tolerance: float, seconds: float
) -> Proof | None:
    hopeless = min(HOPELESS_STEPS, MORE_STEPS + int(claims.flow.actions.sum()))
    named, note = "looking for a proof", lambda: f"gap {generation.gap:.2g}"
    for step in steps(named, COLUMNS_STEPS, note, seconds):
        generation.step()
        if generation.gap <= tolerance or generation.infeasible or generation.stuck:
            break
        if step >= hopeless and (generation.answer is None or generation.creeps(CREEPING)):
            break  # a mixture inside is as good as out of reach, or the bound as good as it gets
    found, x = generation.evidence(), generation.occupancy()
    if found is None or x is None:
        return None
    return claims.prove(replace(found, policy=claims.flow.policy(x)))


def room_by_columns(claims: Claims) -> Proof | None:
    """The same for the smallest slack of claims with affine slacks: a linear program in weights."""
    if claims.flow.strict or any(g.affine() is None for g in claims.slacks.values()):
        return None
    some = next(iter(claims.slacks.values()))  # any affine function will do
    without = claims.lowered.with_objective(some, claims.slacks)
    generation = Generation(without, COLUMNS_TOLERANCE, COLUMNS_KEPT)
    rounding = ROUNDING * float(generation.master.units.max())
    generation.master.units = np.ones(len(claims.slacks))
    named, before, idle = "looking for room in the constraints", (math.nan, math.nan), 0
    for _ in steps(named, COLUMNS_STEPS, lambda: f"smallest slack {generation.room:.2g}"):
        generation.room_step()
        now = (generation.room, generation.room_upper)
        before, idle = now, idle + 1 if now == before else 0
        size = COLUMNS_TOLERANCE * max(abs(now[0]), abs(now[1]))
        if now[1] - now[0] <= max(size, rounding) or idle == IDLE:
            break
    return _of_room(claims, generation)


def _of_room(claims: Claims, generation: Generation) -> Proof | None:
    """What columns show of the smallest slack, with the mixture that has the most room."""
    found = generation.room_evidence()
    if found is None:
        return None
    policy = claims.flow.policy(generation.safest())
    return claims.smallest_slack().prove(replace(found, policy=policy))


def conflict_by_columns(claims: Claims) -> Proof | None:
    """The proof that no policy satisfies all constraints, curved ones too, where columns come upon one."""
    if claims.flow.strict:
        return None
    generation = Generation(claims.lowered, COLUMNS_TOLERANCE, COLUMNS_KEPT)
    if generation.outside:
        return None
    try:
        for _ in steps("looking for a conflict of constraints", HOPELESS_STEPS):
            generation.step()
            if generation.infeasible or generation.answer is not None or generation.stuck:
                break
    except SolverError:
        return None
    return _of_room(claims, generation) if generation.infeasible else None


def by_gradient(
    claims: Claims, start: np.ndarray | None = None, dual_bound: float = 100.0
) -> Proof | None:
    """The proof that a gradient ascent finds, in as many steps as fit into some minutes at the model's size.

    Args:
        claims: the problem.
        start: a policy (S, A) to start from.
        dual_bound: the largest multiplier.
    """
    iterations = int(np.clip(WORK / max(claims.flow.transition.nnz, 1), 20, 1_000))
    search = LagrangianAscent(claims.lowered, start, dual_bound)
    for step in steps("looking for a proof by gradient", iterations):
        if not search.step(keep=step >= iterations // 2):
            return None
    return best([claims.prove(one) for one in search.evidence()])
