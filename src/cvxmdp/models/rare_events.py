r"""Returns of one sign that are small beside others in the model: rare events, to their own digits.

Factorisations and Krylov steps know values up to rounding of the *largest*; a chance of 1e-20 is nothing to
them beside one of a half elsewhere, and which action makes it least is not seen. Sums of numbers that are not
negative lose no digits: sweeps from zero, for c = |r| and k a little more than the rounding of a sweep,

    V <- (1 + k) max_a (c + gamma P V)   where r >= 0,      V <- (1 - k) min_a (c + gamma P V)   where r <= 0,

rise to values that are right relative to themselves, state by state. The k makes them proofs: what they leave
open has the right sign by more than its rounding, in every state, so that nothing has to be added for rounding
in states that are worth far more (with r <= 0 a policy that goes there is not the one that is asked for).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse as sp

from cvxmdp.models.systems import EPS, dot, largest

if TYPE_CHECKING:
    from cvxmdp.models.episode_flow import EpisodeFlow

RARE = 1e-5  # of the largest value: a return below it has lost digits that matter
MOST_SWEEPS = 20_000
LOOKED_AT = 10  # sweeps between two looks at whether they still change anything
LONG = 1e9  # steps: the k of sweeps adds up over stays


class Rare(NamedTuple):
    """Values (S,) that prove a bound on the best return, the greedy actions (S,), and the visits of these."""

    values: np.ndarray
    actions: np.ndarray
    visits: np.ndarray


def rare_return(flow: EpisodeFlow, reward: np.ndarray, values: np.ndarray) -> Rare | None:
    """The best return to its own digits, where it is rare; None where it is not, or has no one sign.

    Args:
        flow: the model.
        reward: (S, A).
        values: about the best ones, (S,), up to rounding of the largest.
    """
    if flow.strict or flow.endless or flow.longest > LONG:
        return None
    sign = one_sign(reward[flow.usable])
    if not sign or abs(dot(flow.initial, values)) > RARE * largest(values[flow.reached]):
        return None
    size = np.where(flow.usable, np.abs(reward), 0.0)
    found, actions = _swept(flow, size, sign)
    chain = flow.transition[np.arange(flow.shape[0]) * flow.shape[1] + actions]
    return Rare(sign * found, actions, _visits(flow, chain))


def one_sign(reward: np.ndarray) -> int:
    """1 where no number is negative, -1 where none is positive; 0 where some are, or all are zero."""
    low, high = float(reward.min(initial=0.0)), float(reward.max(initial=0.0))
    return int(low == 0.0 < high) - int(low < 0.0 == high)


def _swept(flow: EpisodeFlow, size: np.ndarray, sign: int) -> tuple[np.ndarray, np.ndarray]:
    """The best sums of what is not negative, largest (sign 1) or least (-1), and their actions."""
    successors = int(np.diff(flow.transition.indptr).max(initial=0))
    more, worst = 4 * (successors + 12) * EPS, -np.inf if sign > 0 else np.inf
    found, closed = np.zeros(flow.shape[0]), ~flow.usable
    for sweep in range(MOST_SWEEPS):
        choices = size + flow.following(found)
        choices[closed] = worst
        best = choices.max(axis=1) if sign > 0 else choices.min(axis=1)
        after = np.where(flow.reached, (1.0 + sign * more) * best, 0.0)
        settled = sweep % LOOKED_AT == 0 and bool((after <= (1.0 + 0.25 * more) * found).all())
        found = after
        if settled:
            break
    choices = np.where(closed, worst, size + flow.following(found))
    return found, choices.argmax(axis=1) if sign > 0 else choices.argmin(axis=1)


def _visits(flow: EpisodeFlow, chain: sp.csr_array) -> np.ndarray:
    """v = rho + gamma chain' v, from below."""
    backward, visits = sp.csr_array(chain.T), flow.initial
    for sweep in range(MOST_SWEEPS):
        after = flow.initial + flow.discount * (backward @ visits)
        settled = sweep % LOOKED_AT == 0 and bool((after <= (1.0 + EPS) * visits).all())
        visits = after
        if settled:
            break
    return np.asarray(visits)
