"""An ordinary MDP solve: values V that make the upper bound of a reward tight.

Howard's policy iteration with direct solves for small models, the oracle of column generation for large
ones. Nothing is trusted here: any V gives a valid bound, a good one gives a tight bound.
"""

from __future__ import annotations

import numpy as np

from cvxmdp.checker.bounds import Claims, chain
from cvxmdp.models.systems import DENSE_LIMIT, solve_discounted

ACCURACY = (
    1e-11  # of the returns of large models, relative to what the reward can make of a difference
)


def optimal_values(
    claims: Claims, reward: np.ndarray, guess: np.ndarray | None = None, rounds: int = 200
) -> tuple[np.ndarray, np.ndarray]:
    """Nearly optimal values (S,) for a reward (S, A), and the greedy actions (S,).

    Args:
        claims: the model.
        reward: per pair; ignored where the action is not available.
        guess: values to start from.
        rounds: of policy iteration, at most.
    """
    if claims.shape[0] > DENSE_LIMIT:
        from cvxmdp.models.planning import Oracle  # it builds on this package

        spread = float(np.ptp(reward[claims.reached[:, None] & claims.actions]))
        oracle = Oracle(claims)
        oracle.values = np.zeros(claims.shape[0]) if guess is None else guess
        best_found = oracle.best(reward, ACCURACY * max(spread, 1e-300) * claims.mass)
        return best_found.values, best_found.actions
    states = np.arange(claims.shape[0])
    values = np.zeros(claims.shape[0]) if guess is None else guess
    greedy = None
    for _ in range(rounds):
        following = claims.discount * (claims.transition @ values).reshape(claims.shape)
        choices = np.where(claims.actions, reward + following, -np.inf)
        best = choices.argmax(axis=1)
        if greedy is not None:
            # Keep the old action unless the new one is better by more than rounding: no cycling.
            kept, gain = choices[states, greedy], choices[states, best]
            better = gain > kept + 1e-13 * (1.0 + np.abs(gain))
            best = np.where(better, best, greedy)
            if (best == greedy)[claims.reached].all():
                break
        greedy = best
        policy = np.zeros(claims.shape)
        policy[states, greedy] = 1.0
        gained = reward[states, greedy]
        values = solve_discounted(chain(claims, policy), gained, claims.discount, guess=values)
    assert greedy is not None
    return values, greedy
