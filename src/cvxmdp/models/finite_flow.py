r"""The flow of a finite number of steps: out(x_0) = rho, out(x_{t+1}) = gamma P'x_t for t < T.

States here are pairs of time and state, t * S + s: policies may depend on time, and functions look at the sum
x = sum_t x_t (or, linear ones, at each x_t on its own). All systems are triangular in time: values come from
one sweep backwards, visits from one sweep forwards, the best policy from one backward recursion, each exact up
to rounding. Nothing is iterated, and no bound needs a stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from cvxmdp.models.episode_flow import EpisodeFlow
from cvxmdp.models.planning import MOST_ROUNDS, Best, Device, Oracle
from cvxmdp.models.systems import DENSE_LIMIT


@dataclass(frozen=True, eq=False)
class FiniteFlow(EpisodeFlow):
    """Time is part of the state.

    Attributes:
        steps: T.
        single: P of one step, (S*A, S); ``transition`` is that of all steps.
    """

    steps: int
    single: sp.csr_array

    @classmethod
    def of(
        cls,
        transition: sp.csr_array,
        initial: np.ndarray,
        actions: np.ndarray,
        discount: float,
        steps: int,
    ) -> FiniteFlow:
        """The flow of the first steps of a model, given by its one step."""
        later = sp.eye_array(steps, k=1, format="csr")  # time t leads to t + 1, the last to the end
        whole = sp.csr_array(sp.kron(later, transition, format="csr"))
        start = np.zeros(steps * initial.size)
        start[: initial.size] = initial
        return cls(whole, start, np.tile(actions, (steps, 1)), discount, steps, transition)

    @property
    def endless(self) -> bool:
        return False

    @property
    def scale(self) -> float:
        """One over the discounted number of steps."""
        return 1.0 / float((self.discount ** np.arange(self.steps)).sum())

    @property
    def ceiling(self) -> float:
        return 1.0 / self.scale

    @cached_property
    def reached(self) -> np.ndarray:
        """Boolean (T*S,): when some policy can be where."""
        found = np.zeros((self.steps, self.single.shape[1]), dtype=bool)
        found[0] = self._layers(self.initial)[0] > 0
        actions = self.shape[1]
        for time in range(1, self.steps):
            rows = np.repeat(found[time - 1], actions).astype(np.float64)
            found[time] = (self.single.T @ rows) > 0
        flat = found.ravel()
        flat.flags.writeable = False
        return flat

    @cached_property
    def stay(self) -> np.ndarray:
        """The longest stay: the best return of a reward of one."""
        return self.best_values(np.ones(self.shape))[0]

    def _layers(self, values: np.ndarray) -> np.ndarray:
        """What there is by time, (T, S, ...)."""
        return values.reshape(self.steps, -1, *values.shape[1:])

    def following(self, values: np.ndarray) -> np.ndarray:
        """gamma P V of the time after, (T*S, A)."""
        found = np.zeros((self.steps, self.single.shape[0]))
        found[:-1] = (self.single @ self._layers(values)[1:].T).T
        return self.discount * found.reshape(self.shape)

    def solved(
        self, chain: sp.csr_array, gained: np.ndarray, guess: np.ndarray | None = None
    ) -> np.ndarray:
        """From the last step on backwards."""
        size, values = self.single.shape[1], gained.copy()
        for time in range(self.steps - 2, -1, -1):
            rows = slice(time * size, (time + 1) * size)
            later = values[rows.stop : rows.stop + size]
            values[rows] += self.discount * (chain[rows, rows.stop : rows.stop + size] @ later)
        return values

    def best_values(
        self, reward: np.ndarray, guess: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The backward recursion: V_t = max_a (r_t + gamma P V_{t+1})."""
        states, actions = self.single.shape[1], self.shape[1]
        rewards, mask = self._layers(reward), self._layers(self.actions)
        values = np.zeros((self.steps, states))
        greedy = np.zeros((self.steps, states), dtype=np.int64)
        after = np.zeros(states)
        for time in range(self.steps - 1, -1, -1):
            later = self.discount * (self.single @ after).reshape(states, actions)
            choices = np.where(mask[time], rewards[time] + later, -np.inf)
            greedy[time] = choices.argmax(axis=1)
            after = values[time] = choices.max(axis=1)
        return values.ravel(), greedy.ravel()

    def covering(self, excess: np.ndarray, size: float) -> None:
        """The checker runs the recursion itself."""
        return

    def oracle(self, device: Device | None = None) -> FiniteOracle:
        return FiniteOracle(self)

    def occupancy(self, policy: np.ndarray) -> np.ndarray:
        """From the first step on forwards."""
        chosen = np.where(self._layers(self.actions), self._layers(policy), 0.0)
        x = np.empty_like(chosen)
        visits = self._layers(self.initial)[0]
        for time in range(self.steps):
            x[time] = visits[:, None] * chosen[time]
            visits = self.discount * (self.single.T @ x[time].ravel())
        return x.reshape(self.shape)

    def visits(self, chain: sp.csr_array) -> np.ndarray:
        """v = rho + gamma chain' v, (T*S,)."""
        size, found = self.single.shape[1], self.initial.copy()
        for time in range(self.steps - 1):
            rows = slice(time * size, (time + 1) * size)
            later = slice(rows.stop, rows.stop + size)
            found[later] += self.discount * (chain[rows, later].T @ found[rows])
        return found

    @property
    def least_visits(self) -> np.ndarray:
        """m_0 = rho, m_{t+1} = gamma sum_s m_t(s) min_a P(. | s, a): whatever is done, this much arrives."""
        found, mask = self._layers(self.initial.copy()), self._layers(self.actions)[0]
        if found.shape[1] <= DENSE_LIMIT:
            rows = self.single.toarray().reshape(*mask.shape, -1)
            surely = np.where(mask[:, :, None], rows, 1.0).min(axis=1)
            for time in range(1, self.steps):
                found[time] = self.discount * (found[time - 1] @ surely)
        return found.ravel()

    def after(self, steps: np.ndarray) -> np.ndarray:
        weights = self.discount ** np.arange(self.steps)
        left = np.append(np.cumsum(weights[::-1])[::-1], 0.0)
        return np.asarray(left[np.minimum(np.asarray(steps, dtype=np.int64), self.steps)])

    def tail(self, steps: int) -> float:
        return float(self.after(np.asarray(steps)))

    def steps_until(self, share: float) -> int:
        return self.steps

    def episode_visits(self, policy: np.ndarray, ending: np.ndarray) -> None:
        """Steps beyond the horizon do not count."""
        return


class FiniteOracle(Oracle):
    """The backward recursion, which leaves nothing open."""

    def __init__(self, flow: FiniteFlow) -> None:
        super().__init__(flow)
        self.flow = flow

    def best(self, reward: np.ndarray, accuracy: float, rounds: int = MOST_ROUNDS) -> Best:
        self.work.calls += 1
        self.work.sweeps += 1
        self.values, actions = self.flow.best_values(reward)
        best = float(self.initial @ self.values)
        return Best(self.values, actions, best, best)

    def evaluate(
        self, matrix: sp.csr_array, gained: np.ndarray, guess: np.ndarray, accuracy: float
    ) -> np.ndarray:
        return self.flow.solved(sp.csr_array(matrix), gained)

    def visits(self, matrix: sp.csr_array, error: float) -> np.ndarray:
        self.work.policy_sweeps += 1
        return self.flow.visits(sp.csr_array(matrix))
