r"""The flow of the long run: shares of time, out(x) = P'x with <1, x> = 1.

Asked of the model: all states that can be reached hold exactly one maximal end component, its *recurrent part*
(so it is weakly communicating; whether every policy has one closed class need not be known, and is hard to
find out). Whatever the policy, it ends up there; the part has no way out, and the start plays no role for what
can be achieved. Occupancies live on the part alone, and for any h

    <r, x> = <r + P h - h, x> <= max over the part's pairs of (r + P h - h),

with equality for the relative values of the best policy: mass is one, so no stay enters.

**From x to a policy.** pi(a|s) = x(s,a) / sum_a x(s,a) has the occupancy x where the support of x is one
closed class. Elsewhere it leads back to the support. Where the support holds several classes, no policy does
what x says, but policies come as near as one likes: a little of the uniform policy's occupancy,
``CONNECTING``, is mixed in, and the policy changes between the classes once in a long while.

**Best policies.** Howard's policy iteration. A greedy policy may have several closed classes, although one
with a single class is as good (each class but the old one has a strictly higher gain): all other states are
then led to the class with the highest gain (Haviv and Puterman, 1991).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import SolverError
from cvxmdp.models.end_components import end_components
from cvxmdp.models.flow import Equations, Flow, Label, naming, reached_from, visited_by_some
from cvxmdp.models.planning import MOST_ROUNDS, Best, Device, Oracle, improved
from cvxmdp.models.recurrence import (
    closed_classes,
    long_run,
    relative_values,
    steps_to,
)
from cvxmdp.models.systems import DENSE_LIMIT

CONNECTING = 1e-7  # share of the uniform policy's occupancy that connects classes
SWEEPS = 500  # before policies are evaluated exactly
TRACE = 1e-13  # of the mass: less is a solver's rounding, not part of a support
RARE = 1e-5  # of a state's visits, and of all: what a policy hardly ever does


def recurrent_parts(
    transition: sp.csr_array, initial: np.ndarray, actions: np.ndarray
) -> list[np.ndarray]:
    """The maximal end components that can be reached, as indices of their states."""
    reached = visited_by_some(transition, initial)
    found = end_components(transition, reached[:, None] & actions)
    return [found.members(one) for one in range(found.count)]


@dataclass(frozen=True, eq=False)
class AverageFlow(Flow):
    """out(x) = P'x, <1, x> = 1, on the one recurrent part.

    Attributes:
        part: the states of the recurrent part, as indices.
        given: the transition as it was given, where states out of reach were led elsewhere.
    """

    part: np.ndarray
    given: sp.csr_array

    @classmethod
    def of(cls, transition: sp.csr_array, initial: np.ndarray, actions: np.ndarray) -> AverageFlow:
        """The flow of a model with one recurrent part; states out of reach lead there, too."""
        (part,) = recurrent_parts(transition, initial, actions)
        given = transition
        far = ~visited_by_some(transition, initial)
        if far.any():
            rows = np.flatnonzero((far[:, None] & actions).ravel())
            near = sp.diags_array(np.repeat(~far, actions.shape[1]).astype(np.float64)) @ transition
            ones, first = np.ones(rows.size), np.full(rows.size, part[0])
            jumps = sp.csr_array((ones, (rows, first)), shape=transition.shape)
            transition = sp.csr_array(near + jumps)
        return cls(transition, initial, actions, part, given)

    @cached_property
    def reached(self) -> np.ndarray:
        """Boolean (S,): states of the recurrent part. In the long run no policy is anywhere else."""
        found = np.zeros(self.shape[0], dtype=bool)
        found[self.part] = True
        found.flags.writeable = False
        return found

    @property
    def invented(self) -> np.ndarray:
        changed = np.asarray(abs(self.transition - self.given).sum(axis=1))
        return np.asarray(changed.reshape(self.shape).any(axis=1))

    @property
    def scale(self) -> float:
        return 1.0

    @property
    def endless(self) -> bool:
        return True

    @property
    def mass(self) -> float:
        return 1.0

    @property
    def longest(self) -> float:
        """About the time that it takes to come back, which grows with the number of states."""
        return float(self.part.size)

    def following(self, values: np.ndarray) -> np.ndarray:
        """P h, (S, A)."""
        return np.asarray((self.transition @ values).reshape(self.shape))

    def values(
        self, policy: np.ndarray, reward: np.ndarray, guess: np.ndarray | None = None
    ) -> np.ndarray:
        gained = np.einsum("sa,sa->s", policy, reward)
        return relative_values(self.chain(policy), gained, guess)

    def best_return(
        self, reward: np.ndarray, values: np.ndarray, following: np.ndarray | None = None
    ) -> float:
        """The largest r + P h - h in the part."""
        following = self.following(values) if following is None else following
        return float((reward + following - values[:, None])[self.usable].max())

    def best_values(
        self, reward: np.ndarray, guess: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        oracle = self.oracle()
        if guess is not None:
            oracle.values = guess
        best = oracle.best(reward, 0.0)
        return best.values, best.actions

    def oracle(self, device: Device | None = None) -> AverageOracle:
        return AverageOracle(self)

    def occupancy(self, policy: np.ndarray) -> np.ndarray:
        """The expected shares of time of each pair, (S, A)."""
        shares = long_run(self.chain(policy), self.initial)
        return np.where(self.actions, shares[:, None] * policy, 0.0)

    def residual(self, x: np.ndarray) -> np.ndarray:
        """What the flow equations miss at x, (S,); what the mass misses is spread over the part."""
        missing = (float(x.sum()) - 1.0) * self.reached / self.part.size
        return np.asarray(x.sum(axis=1) - self.transition.T @ x.ravel() + missing)

    def equations(self) -> Equations:
        """One equation follows from the others; the mass stands in its place."""
        balanced = self.balance(1.0)
        right = np.zeros(self.part.size)
        right[0] = 1.0
        mass = sp.csr_array(np.ones((1, balanced.shape[1])))
        return Equations(sp.csr_array(sp.vstack([mass, balanced[1:]])), right, balance=0)

    def policy(self, x: np.ndarray) -> np.ndarray:
        """The policy of an occupancy, (S, A), which leads back to the support, all of which it visits."""
        inside = np.where(self.usable, np.maximum(x, 0.0), 0.0)
        inside[inside <= TRACE * inside.sum()] = 0.0
        visited = np.asarray(inside.any(axis=1))
        if not visited.any():
            return self.uniform
        nearer = self.nearer(visited)
        back = nearer / np.maximum(nearer.sum(axis=1, keepdims=True), 1)
        policy = np.where((visited | ~self.reached)[:, None], super().policy(inside), back)
        if len(closed_classes(self.chain(policy))) == 1:
            return policy
        even = self.uniform_occupancy
        return super().policy((1.0 - CONNECTING) * inside / inside.sum() + CONNECTING * even)

    def response(
        self, reward: np.ndarray, visited: np.ndarray, values: np.ndarray | None = None
    ) -> np.ndarray:
        """Of the actions that lead back to where the policy stays, the best; where none does, of all."""
        values, _ = self.best_values(reward)
        following = (self.given @ values).reshape(self.shape)
        choices = np.where(self.actions, reward + following, -np.inf)
        back = self.nearer(visited, self.given)
        led = back.any(axis=1, keepdims=True)
        return np.asarray(np.where(back | ~led, choices, -np.inf).argmax(axis=1))

    def nearer(self, goal: np.ndarray, transition: sp.csr_array | None = None) -> np.ndarray:
        """Boolean (S, A): actions with a chance of coming nearer to the goal, boolean (S,), from outside it."""
        graph = sp.csr_array((self.transition if transition is None else transition) > 0)
        pointers, actions = graph.indptr, self.shape[1]
        states = sp.csr_array(
            (graph.data, graph.indices, pointers[::actions]), shape=(len(goal),) * 2
        )
        steps = steps_to(goal, sp.csr_array(states.T))
        first = np.full(goal.size * actions, np.inf)  # fewest steps from a successor
        rows = np.flatnonzero(np.diff(pointers))
        first[rows] = np.minimum.reduceat(steps[graph.indices], pointers[rows])
        return np.asarray((first.reshape(self.shape) < steps[:, None]) & self.actions)

    def remark(self, x: np.ndarray, label: Label) -> str:
        """Between which parts a policy hardly ever changes, if it does so at all."""
        visits = x.sum(axis=1)
        likely = (x > RARE * visits[:, None]) & (visits > RARE * visits.sum())[:, None]
        rows = np.where(likely, x, 0.0) / np.where(likely.any(axis=1), visits, 1.0)[:, None]
        states = np.flatnonzero(likely.any(axis=1))
        classes = closed_classes(self.chain(rows)[states][:, states])
        parts = [states[one] for one in classes]
        if len(parts) < 2:
            return ""
        changes = 0.0  # per step
        for part in parts:
            inside = np.zeros(self.shape[0])
            inside[part] = 1.0
            away = 1.0 - (self.transition @ inside).reshape(self.shape)[part]
            changes += float((x[part] * np.maximum(away, 0.0)).sum())
        named = [f"{naming(part, label)} ({visits[part].sum():.0%})" for part in parts]
        each = f"; about {1.0 / changes:.0e} steps between changes" if changes > 0 else ""
        return f"In the long run it shares its time between {' and '.join(named)}{each}."

    def episode_visits(self, policy: np.ndarray, ending: np.ndarray) -> None:
        """There are no episodes."""
        return


class AverageOracle(Oracle):
    """Best policies of the long run, from the values of the call before on."""

    def __init__(self, flow: AverageFlow) -> None:
        super().__init__(flow)
        self.flow = flow

    def best(self, reward: np.ndarray, accuracy: float, rounds: int = MOST_ROUNDS) -> Best:
        self.work.calls += 1
        values, before = self._swept(reward, accuracy), None
        found: Best | None = None
        for _ in range(rounds):
            choices, actions, after = self.greedy(reward, values)
            change = (after - values)[self.reached]
            upper, lower = float(change.max()), float(change.min())
            if found is None or upper - lower < found.upper - found.lower:
                found = Best(values, actions, upper, lower)
            if upper - lower <= accuracy:
                break
            if before is not None:
                kept = choices.ravel()[self.first_rows + before]
                actions = improved(before, actions, kept, after)
                if (actions == before)[self.reached].all():
                    break
            before = self._connected(actions, reward, choices)
            gained = reward.ravel()[self.first_rows + before]
            values = relative_values(self.chain(before), gained, guess=after)
            self.work.policy_sweeps += 1
        if found is None:
            raise SolverError("a reward has entries that are not finite: no policy is best")
        self.values = found.values
        return found

    def _swept(self, reward: np.ndarray, accuracy: float) -> np.ndarray:
        """Values after some sweeps, for large models: rewards travel one step per sweep and per policy alike.

        Half a step each, so that periodic chains settle, too.
        """
        values = self.values
        if values.size <= DENSE_LIMIT:
            return values
        for _ in range(SWEEPS):
            change = self.greedy(reward, values)[2] - values
            inside = change[self.reached]
            if float(inside.max() - inside.min()) <= accuracy:
                break
            values = values + 0.5 * (change - float(inside.mean()))
        return values

    def _connected(
        self, actions: np.ndarray, reward: np.ndarray, choices: np.ndarray
    ) -> np.ndarray:
        """The same actions, but all states lead to the closed class with the highest gain."""
        chain = self.chain(actions)
        classes = closed_classes(chain)
        if len(classes) == 1:
            return actions
        gained = reward.ravel()[self.first_rows + actions]
        gains = [float(long_run(chain, _even(one, actions.size)) @ gained) for one in classes]
        best = int(np.argmax(gains))
        others = np.zeros(actions.size, dtype=bool)
        others[np.concatenate([one for k, one in enumerate(classes) if k != best])] = True
        backward = sp.csr_array(chain.T)
        lost = reached_from(others, backward.indptr, backward.indices)
        nearer = np.where(self.flow.nearer(~lost), choices, -np.inf)
        return np.where(lost, nearer.argmax(axis=1), actions)

    def evaluate(
        self, matrix: sp.csr_array, gained: np.ndarray, guess: np.ndarray, accuracy: float
    ) -> np.ndarray:
        return relative_values(matrix, gained, guess)

    def visits(self, matrix: sp.csr_array, error: float) -> np.ndarray:
        self.visits_before = long_run(matrix, self.initial, self.visits_before)
        return self.visits_before


def _even(places: np.ndarray, size: int) -> np.ndarray:
    found = np.zeros(size)
    found[places] = 1.0 / places.size
    return found
