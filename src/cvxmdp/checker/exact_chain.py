r"""The chain of a policy in exact arithmetic: its visits and its shares of time, to many digits.

Systems are solved in floats and refined: what the equations miss is computed exactly, and the correction again
in floats, each time a dozen digits more, until next to nothing is missed. Two bounds say what that means.

**Visits**, v = start + gamma Q'v. With d what is missed, |v - v_pi|_1 <= |d|_1 / (1 - gamma); for gamma = 1 it
is at most |d|_1 max w / (1 - l), where 1 + Q w <= w + l and l < 1: the policy's own longest stay.

**Shares of time** in a closed class, v = P'v with sum v = 1. For a state z let t >= 1 + P t_0, t_0 being t with
a zero at z. With d what v misses, |v - v_pi|_1 <= 2 <|d|, t>: write the error as the visits before z of d and
of what enters z, whose masses cancel because d sums to zero and both v sum to one.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from cvxmdp.checker.arithmetic import CertificateError
from cvxmdp.checker.exact_numbers import (
    Ball,
    ExactMatrix,
    add_up,
    at_most,
    ball,
    balls,
    greatest,
    refuse_unless,
)
from cvxmdp.checker.linear_solve import solve_system

ENOUGH = 1e-40  # that the equations may miss
REFINEMENTS = 40
DIGITS = 1e-9  # relative, that a correction is known to


class ExactChain:
    """Where a policy goes from some of the states.

    Args:
        transition: P, (S * A, S).
        policy: exactly, (S * A,).
        floats: the policy's chain in floats, (S, S).
        inside: boolean (S,): the states.
    """

    def __init__(
        self, transition: ExactMatrix, policy: np.ndarray, floats: sp.csr_array, inside: np.ndarray
    ) -> None:
        self.transition, self.policy, self.inside = transition, policy, inside
        self.owner = np.arange(policy.size) // (policy.size // inside.size)
        self.places = np.flatnonzero(inside)
        self.own = sp.csr_array(floats[self.places][:, self.places])

    def arriving(self, visits: np.ndarray) -> np.ndarray:
        """P_pi' v, (S,): anywhere."""
        return self.transition.transposed_times(visits[self.owner] * self.policy)

    def _after(self, values: np.ndarray) -> np.ndarray:
        """P_pi w of the states inside, w on all states."""
        played = (self.transition.times(values) * self.policy).reshape(self.inside.size, -1)
        return np.asarray(played.sum(axis=1)[self.places])

    def visits(self, start: np.ndarray, discount: float) -> np.ndarray:
        """v = start + gamma Q'v inside, zero elsewhere, (S,)."""
        factor, found = ball(discount), balls(np.zeros(self.inside.size))
        begin, best = start[self.places], (np.inf, found)
        missed = begin
        for _ in range(REFINEMENTS):
            found = self._moved(found, self._solved(self.own.T, missed, discount))
            missed = begin + self.arriving(found)[self.places] * factor - found[self.places]
            size = at_most(add_up(abs(one) for one in missed))
            if not size < best[0] / 2:  # no digits are gained any more
                break
            best = (size, found)
            if size <= ENOUGH:
                break
        size, found = best
        longest = 1 / (1 - factor) if discount < 1 else self._longest()
        return self._around(found, ball(size) * longest)

    def _longest(self) -> Ball:
        """No stay among the states is longer on average."""
        w = self._spread(np.maximum(self._solved(self.own, np.ones(self.places.size), 1.0), 0.0))
        left = greatest(self._after(w) + 1 - w[self.places]).nonnegative_part()
        refuse_unless(bool(left < 1), "the policy was not shown to end its episodes")
        return greatest(w) / (1 - left)

    def shares(self) -> np.ndarray:
        """The shares of time in a closed class, zero elsewhere, (S,)."""
        first = self._between(0)
        state = int(first.argmax())  # bounds are best from where one is most
        between = self._between(state)
        between /= between.sum()
        found = self._moved(balls(np.zeros(self.inside.size)), between)
        best = (np.inf, found)
        without = np.ones(self.places.size)
        without[state] = 0.0
        cut = sp.csr_array(self.own @ sp.diags_array(without))
        times = self._times(cut, int(self.places[state]))
        for _ in range(REFINEMENTS):
            found = found / add_up(found)
            missed = (self.arriving(found) - found)[self.places]
            size = at_most(add_up(abs(one) * t for one, t in zip(missed, times, strict=True)))
            if not size < best[0] / 2:
                break
            best = (size, found)
            if size <= ENOUGH:
                break
            change = self._solved(cut.T, missed, 1.0)
            found = self._moved(found, change - between * change.sum())
        size, found = best
        refuse_unless(np.isfinite(size), "the shares of time of the policy could not be computed")
        return self._around(found, ball(size) * 2)

    def _between(self, state: int) -> np.ndarray:
        """The visits between two of a state, by floats."""
        begin, kept = np.zeros(self.places.size), np.ones(self.places.size)
        begin[state], kept[state] = 1.0, 0.0
        return np.maximum(self._solved(sp.diags_array(kept) @ self.own.T, begin, 1.0), 0.0)

    def _times(self, cut: sp.csr_array, state: int) -> np.ndarray:
        """t >= 1 + P t_0 on the class: no return to the state takes longer."""
        t = self._spread(np.maximum(self._solved(cut, np.ones(self.places.size), 1.0), 0.0))
        zeroed = t.copy()
        zeroed[state] = ball(0.0)
        left = greatest(self._after(zeroed) + 1 - t[self.places]).nonnegative_part()
        refuse_unless(bool(left < 1), "the returns of the policy to a state were not bounded")
        return np.asarray(t[self.places] / (1 - left))

    def _solved(self, matrix: sp.csr_array, right: np.ndarray, discount: float) -> np.ndarray:
        near = np.array([float(one.mid()) if hasattr(one, "mid") else one for one in right])
        # Krylov steps break down on tiny numbers.
        size = float(np.abs(near).max(initial=0.0)) or 1.0
        try:
            return size * solve_system(sp.csr_array(matrix), near / size, discount, DIGITS)
        except np.linalg.LinAlgError as error:
            raise CertificateError(f"the policy never ends its episodes: {error}") from error

    def _spread(self, values: np.ndarray) -> np.ndarray:
        """Numbers of the states inside, as balls of all states."""
        found = np.zeros(self.inside.size)
        found[self.places] = values
        return balls(found)

    def _moved(self, found: np.ndarray, change: np.ndarray) -> np.ndarray:
        """Corrected, as the centres of what that gives."""
        moved = found + self._spread(change)
        return np.array([one.mid() for one in moved], dtype=object)

    def _around(self, centres: np.ndarray, radius: Ball) -> np.ndarray:
        """centre +- radius inside, without what is below zero."""
        around = [(one + ball(0.0, radius)).nonnegative_part() for one in centres]
        return np.where(self.inside, np.array(around, dtype=object), ball(0.0))
