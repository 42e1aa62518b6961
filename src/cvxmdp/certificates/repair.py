r"""Repair: the nearest mixture of a policy with a safe one that surely satisfies every constraint.

Mixing occupancies, (1 - b) x + b x_safe, keeps a policy where it is good and moves it into the
constraints: by concavity g((1-b) x + b x_safe) >= (1-b) g(x) + b g(x_safe). The smallest b for which
this proves feasibility is taken; the mixture's policy is then looked at afresh.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from cvxmdp.atoms import walk
from cvxmdp.atoms.shapes import MinimumShape, SumShape
from cvxmdp.base.errors import ModelError
from cvxmdp.certificates.claims import Claims
from cvxmdp.certificates.evidence import by_program
from cvxmdp.checker.bounds import Achieved

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
TRACES = (1e-14, 1e-12, 1e-10, 1e-8, 1e-6)  # probabilities that may be a solver's rounding
LITTLE = 1e-5  # of the objective, that a policy without its traces may be worse
SMALLEST_UNIT = 1e-9  # of the largest: a constraint whose rounding is nothing beside that of others
ROUNDING_SHARE = 1e-6  # repairs up to this share only undo rounding; any interior point will do


class Repaired(NamedTuple):
    """A surely feasible policy and the share of the safe policy in it (zero: nothing was changed)."""

    policy: np.ndarray
    share: float
    achieved: Achieved


def repair(
    claims: Claims,
    policy: np.ndarray,
    given: Achieved,
    slater_policy: Callable[[], np.ndarray],
    closely: bool = False,
) -> Repaired | None:
    """A surely feasible policy near the given one, or None where none was found.

    Args:
        claims: the problem.
        policy: probabilities (S, A).
        given: what the policy achieves.
        slater_policy: gives the policy with the largest smallest slack; called only when needed,
            because finding it costs about a solve.
        closely: look for the smallest share whatever it costs; otherwise where rounding alone is to be undone.
    """
    if given.feasible:
        return Repaired(policy, 0.0, given)
    if not claims.slacks:
        return None
    inside = _some_interior_point(claims, given)
    if inside is not None and _share(given, inside) <= ROUNDING_SHARE:
        found = _mix(claims, given, inside)
        if found is not None and found.share <= ROUNDING_SHARE:
            return found
    cleaned = _without_traces(claims, policy)
    if cleaned is not None and cleaned.achieved.objective >= given.objective - _little(given):
        return cleaned
    safe = claims.achieved(slater_policy())
    mixed = _mix(claims, given, safe) if safe.feasible else None
    ways = [one for one in (cleaned, mixed) if one is not None]
    if (mixed is None or mixed.share > ROUNDING_SHARE) and (closely or _rounded(given)):
        roomy = _roomiest(claims, given)
        better = None if roomy is None else _mix(claims, given, roomy)
        ways += [] if better is None else [better]
    return max(ways, key=lambda one: one.achieved.objective) if ways else None


def _rounded(given: Achieved) -> bool:
    """Whether no constraint is missed by more than rounding."""
    return all(slack >= -_wanted(given, name) for name, slack in given.computed_slack.items())


def _roomiest(claims: Claims, given: Achieved) -> Achieved | None:
    """The policy of which the smallest share will do: its slacks are the largest in units of what is wanted.

    The Slater point's are the largest as they are: beside costs of 1e-6 it has next to no room in others.
    """
    wanted = [_wanted(given, name) for name in claims.slacks]
    units = np.maximum(np.array(wanted) / max(*wanted, 1e-300), SMALLEST_UNIT)
    parts = zip(claims.slacks.values(), units, strict=True)
    scaled = tuple(SumShape((slack,), (1.0 / float(unit),), 0.0) for slack, unit in parts)
    proof = by_program(claims.with_objective(MinimumShape(scaled)))
    if proof is None or proof.evidence.policy is None:
        return None
    found = claims.achieved(proof.evidence.policy)
    return found if found.feasible else None


def _little(given: Achieved) -> float:
    """What rounding may cost; traces of probability may be all that connects parts of a model."""
    return LITTLE * (1.0 + abs(given.objective)) if math.isfinite(given.objective) else math.inf


def _without_traces(claims: Claims, policy: np.ndarray) -> Repaired | None:
    """The policy without probabilities that are a solver's rounding: "never" (cost <= 0) allows for none.

    No mixture helps there: the constraint has no interior.
    """
    for trace in TRACES:
        kept = np.where(policy > trace, policy, 0.0)
        if (kept > 0).sum() == (policy > 0).sum() or not kept.any(axis=1).all():
            continue
        kept = kept / kept.sum(axis=1, keepdims=True)
        found = claims.achieved(kept)
        if found.feasible:
            return Repaired(kept, trace, found)
    return None


def _wanted(given: Achieved, name: str) -> float:
    """Twice the margin of error, because a mixture's policy has an occupancy of its own, computed anew."""
    return 2.0 * (given.computed_slack[name] - given.slack[name])


def _share(given: Achieved, safe: Achieved) -> float:
    """The smallest share b that concavity proves feasible."""
    share = 0.0
    for name, slack in given.slack.items():
        wanted = _wanted(given, name)
        if slack < wanted:
            reach = safe.slack[name] - slack
            share = max(share, (wanted - slack) / reach if reach > wanted - slack else 1.0)
    # A logarithm that is infinite here becomes finite with any share of a policy inside its domain.
    return share if math.isfinite(given.objective) else max(share, 1e-9)


def _mix(claims: Claims, given: Achieved, safe: Achieved) -> Repaired | None:
    share = _share(given, safe)
    while share < 1.0:
        mixture = (1 - share) * given.occupancy + share * safe.occupancy
        policy = claims.flow.policy(mixture)
        found = claims.achieved(policy)
        if found.feasible:
            return Repaired(policy, share, found)
        share = max(2.0 * share, 1e-12)
    policy = claims.flow.policy(safe.occupancy)
    alone = claims.achieved(policy)
    return Repaired(policy, 1.0, alone) if alone.feasible else None


def _some_interior_point(claims: Claims, given: Achieved) -> Achieved | None:
    """A policy with room in the constraints that are missed, found cheaply: at most two MDP solves away."""
    missed = [name for name, slack in given.slack.items() if slack < _wanted(given, name)]
    for partner in _targets(claims, given, missed):
        found = _between(claims, missed, given, partner)
        if found is not None and _share(given, found) <= ROUNDING_SHARE:
            return found
    uniform = claims.achieved(claims.flow.uniform)
    candidates = [uniform]
    best = _uphill(claims, uniform.occupancy, list(claims.slacks))
    halfway = 0.5 * (uniform.occupancy + best.occupancy)  # inside the domain of entropy and logs
    candidates += [best, claims.achieved(claims.flow.policy(halfway))]
    inside = [one for one in candidates if one.feasible and min(one.slack.values()) > 0]
    if inside:
        return max(inside, key=lambda one: min(one.slack.values()))
    found = _between(claims, missed, uniform, best)
    if found is None or _share(given, found) > ROUNDING_SHARE:
        # From the policy itself there is a way inwards, wherever a smooth constraint has an interior.
        found = _between(claims, missed, given, _uphill(claims, given.occupancy, missed)) or found
    return found


def _targets(claims: Claims, given: Achieved, names: list[str]) -> Iterator[Achieved]:
    """Policies at which the distances in these constraints are zero, or nearly."""
    for name in names:
        for visit in walk(claims.slacks[name]):
            closest = visit.node.closest(given.occupancy)
            if closest is not None:
                yield claims.achieved(claims.flow.policy(closest))


def _uphill(claims: Claims, x: np.ndarray, names: list[str]) -> Achieved:
    """The best policy for what raises these slacks at x, all in units of their slopes."""
    slopes = claims.lowered.tangents_at(x)["slacks"]
    reward = np.zeros(claims.flow.shape)
    for name in names:
        slope = claims.slacks[name].tangent(slopes[name]).reward[claims.flow.usable]
        reward[claims.flow.usable] += slope / max(float(np.abs(slope).max()), 1e-300)
    try:
        _, greedy = claims.flow.best_values(reward)
    except ModelError:  # nothing keeps it from staying for ever: some policy that ends has to do
        return claims.achieved(claims.flow.deterministic)
    return claims.achieved(np.eye(claims.flow.shape[1])[greedy])


def _between(
    claims: Claims, missed: list[str], first: Achieved, second: Achieved
) -> Achieved | None:
    """The mixture of two policies with the most room in the constraints that are missed."""
    units = {name: max(abs(first.slack[name]), abs(second.slack[name]), 1e-300) for name in missed}

    def room(share: float) -> float:
        mixture = (1 - share) * first.occupancy + share * second.occupancy
        slacks = [claims.slacks[name].value(mixture) / units[name] for name in missed]
        return float(min(slacks, default=0.0))

    share = max(SHARES, key=room)
    if not room(share) > 0:
        return None
    mixture = (1 - share) * first.occupancy + share * second.occupancy
    return claims.achieved(claims.flow.policy(mixture))
