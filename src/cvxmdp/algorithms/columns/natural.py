r"""Natural steps: columns for optima that lie in the interior, where best policies are poor columns.

Under entropy-like objectives the optimal policy is random almost everywhere, and a mixture of deterministic
ones needs as many as there are states. From the policy pi of the current mixture a natural policy gradient
step, pi' ~ pi exp(step A) with A the advantage of the shadow reward, leads inside instead. It is mirror ascent:
D_f(y, x) <= sum_s y(s) KL(pi_y(s) | pi_x(s)) for the state entropy (the marginal of a trajectory at a geometric
time has no more divergence than the trajectory), so a step of one never overshoots; much longer ones usually
pay, and the master, which mixes the new column with the last ones, shows whether they did: a new column that
gets all the weight asks for longer steps, one that gets little for shorter ones.
"""

from __future__ import annotations

import numpy as np

from cvxmdp.algorithms.columns.column_places import HostPlace
from cvxmdp.algorithms.columns.pool import Column

LONGER, SHORTER = 1.5, 1.0 / 1.5
WELCOME, UNWELCOME = 0.8, 0.3  # weights of the new column that change the step
LARGEST_CHANGE = 30.0  # of a logit per step
HARDLY = 1e-3  # visits, of the mean over states, up to which a state counts as hardly visited
SHORTEST, LONGEST = 1e-6, 1e9


class NaturalSteps:
    """Steps from the policy of a mixture; keeps values and step size.

    Args:
        place: of the model.
        available: boolean (S, A).
    """

    def __init__(self, place: HostPlace, available: np.ndarray) -> None:
        self.place = place
        self.values = np.zeros(len(available))
        self.step = 1.0
        self.advantage: np.ndarray | None = None
        self.policy = available / available.sum(axis=1, keepdims=True)

    def base(self, x: np.ndarray) -> np.ndarray:
        """The policy to step from: the mixture's where it goes, the last step's own where it hardly does.

        Far from its ways a mixture does what the one column does that strays there, however old; steps would
        never improve it, and the bound counts every state.
        """
        little = HARDLY * float(x.sum()) / len(x)
        mixed = x + little * self.policy
        return np.asarray(mixed / mixed.sum(axis=1, keepdims=True))

    def evaluate(
        self, policy: np.ndarray, reward: np.ndarray, accuracy: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Values V of the policy and gamma P V, V within ``accuracy`` of its Bellman equation."""
        self.values = self.place.evaluate(policy, reward, self.values, accuracy)
        following = self.place.oracle.following(self.values)
        self.advantage = reward + following - self.values[:, None]
        return self.values, following

    def column(self, policy: np.ndarray, error: float) -> Column:
        """The occupancy of the policy one step on."""
        assert self.advantage is not None
        change = np.clip(self.step * self.advantage, -LARGEST_CHANGE, LARGEST_CHANGE)
        weights = policy * np.exp(change)
        moved = weights / weights.sum(axis=1, keepdims=True)
        self.policy = moved
        return Column(self.place.visits(moved, error), None, moved, error)

    def learn(self, weight: float) -> None:
        """Adapt the step to the weight that the last column got."""
        if weight > WELCOME:
            self.step = min(self.step * LONGER, LONGEST)
        elif weight < UNWELCOME:
            self.step = max(self.step * SHORTER, SHORTEST)
